//! One pair of desired and live → everything a pass wants to know about it. Pure, and remembered: a pair whose desired
//! document, live version and rules are as before is not opened again.

use std::sync::Arc;

use argosy_api::annotation;
use argosy_api::tracking;
use argosy_diff::{Context, IgnoreRules, Options, Seen};
use argosy_health::{Customizations, Health};
use argosy_livestate::Resource;
use argosy_object::schema::Schemas;
use argosy_object::{ContentHash, Value, meta};
use argosy_sync::options::{ResourceOptions, SyncOptions, resource_options};
use argosy_sync::{hook, options::Removal};

use super::Answers;
use super::dry_run::Answer;
use super::manifest::Manifest;

const BY_LABEL_ALONE: &str = "is no longer in Git; only its label, from before tracking by annotation, says that it is this Application's, so its \
    deletion waits for approval";

/// By what a pair is judged. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Rules {
    /// Identity of everything here that may change a verdict, besides the schemas.
    pub id: u64,
    pub schemas: Arc<Schemas>,
    pub ignore: Arc<IgnoreRules>,
    /// What is wrong with the Application's own rules in it.
    pub ignore_findings: Arc<[String]>,
    pub options: Arc<Options>,
    pub health: Arc<Customizations>,
    pub tracking: Arc<tracking::Config>,
    /// Instance name of the Application.
    pub instance: Arc<str>,
    pub sync_options: Arc<SyncOptions>,
    /// The field manager from which server-side apply takes over, if the Application names one.
    pub migration_manager: Option<Arc<str>>,
    /// What mutating webhooks change counts in a comparison by dry run.
    pub include_webhooks: bool,
}

impl Rules {
    /// How a resource with these options is compared.
    pub(crate) fn options_for(&self, resource: ResourceOptions) -> Arc<Options> {
        let mut options = self.options.clone();
        if resource.server_side_apply != options.server_side_apply
            || resource.strict != options.strict
            || resource.server_side_apply && resource.migrate_from != options.migrate_from
        {
            let options = Arc::make_mut(&mut options);
            options.server_side_apply = resource.server_side_apply;
            options.strict = resource.strict;
            options.migrate_from = resource.migrate_from;
        }
        options
    }
}

/// What is known of a pair.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    seen: Seen,
    /// An apply would change the live object, or there is none.
    pub modified: bool,
    /// Health of the live object; nothing if no rule exists.
    pub health: Option<Health>,
    /// The live object is a hook, and Git does not say by now that it is an ordinary resource.
    pub live_hook: bool,
    /// It is annotated to be never applied: in Git, or, where Git has it not, in the cluster.
    pub skipped: bool,
    /// The live object does not count against the Application when it is extra (`IgnoreExtraneous`).
    pub extraneous_ignored: bool,
    /// The tracking annotation of the live object names another object: it was copied.
    pub copied: bool,
    /// Its health does not count.
    pub health_ignored: bool,
    pub sync_wave: i64,
    /// Deleting it needs a person's consent.
    pub needs_confirmation: bool,
    /// Images of its pod template.
    pub images: Box<[String]>,
    /// Where people reach it.
    pub urls: Box<[String]>,
    /// What could not be taken into account when comparing.
    pub findings: Box<[String]>,
    /// The two could not be compared: the API server could not be asked.
    pub unknown: bool,
}

impl Verdict {
    /// Is it still the verdict on this pair (under the same rules)?
    pub(crate) fn stands(&self, desired: Option<&Manifest>, live: Option<&Resource>) -> bool {
        !self.unknown && self.seen.is(desired.map(content), live.map(version))
    }
}

fn content(manifest: &Manifest) -> ContentHash {
    manifest.hash
}

fn version(live: &Resource) -> (&str, &str) {
    (&live.uid, &live.resource_version)
}

/// Judges one pair. `answers` are what the API server said where it was asked.
pub(crate) fn judge(
    desired: Option<&Manifest>,
    live: Option<&Resource>,
    rules: &Rules,
    answers: &Answers,
) -> Verdict {
    let key = desired.map(|manifest| &manifest.key);
    let answer = key.and_then(|key| answers.dry_runs.get(key));
    let in_version = key.and_then(|key| answers.in_version.get(key));
    let wanted = desired.map(|manifest| manifest.document.value());
    let found = live.map(Resource::value);
    let mut verdict = Verdict {
        seen: Seen::new(desired.map(content), live.map(version)),
        ..Verdict::default()
    };
    if let Some(live) = &found {
        verdict.health = argosy_health::assess(live, &rules.health);
        verdict.live_hook = wanted.is_none() && super::manifest::is_hook(live);
        verdict.extraneous_ignored = annotation::CompareOptions::read(live).ignore_extraneous;
        verdict.copied =
            !tracking::is_self_referenced(live, wanted.as_ref(), &rules.instance, &rules.tracking);
        verdict.images = images(live).into();
        verdict.urls = super::summary::external_urls(live).into();
    }
    if let Some(either) = found.as_ref().or(wanted.as_ref()) {
        verdict.health_ignored = meta::annotation(either, annotation::IGNORE_HEALTHCHECK) == Some("true");
    }
    if let Some(either) = wanted.as_ref().or(found.as_ref()) {
        verdict.sync_wave = annotation::sync_wave(either);
        verdict.skipped = hook::skipped(either);
    }
    let resource = resource_options(
        &rules.sync_options,
        rules.migration_manager.as_deref(),
        wanted.as_ref(),
        found.as_ref(),
    );
    let told_by_label = |live: &Value| wanted.is_none() && tracking::has_label_alone(live, &rules.tracking);
    if found.as_ref().is_some_and(told_by_label) && !verdict.live_hook {
        verdict.needs_confirmation = true;
        verdict.findings = [BY_LABEL_ALONE.to_owned()].into();
    }
    verdict.needs_confirmation |= resource.prune == Removal::Confirm || resource.delete == Removal::Confirm;
    match (wanted, found) {
        // What is wrong with it is told by who rendered it.
        (Some(wanted), _) if meta::not_a_text(&wanted).is_some() => {
            (verdict.modified, verdict.unknown) = (true, true);
        }
        (Some(_), None) => verdict.modified = true,
        (Some(wanted), Some(mut found)) => {
            match in_version {
                None => {}
                Some(Ok(read)) => found.clone_from(read),
                Some(Err(message)) => {
                    (verdict.modified, verdict.unknown) = (true, true);
                    verdict.findings = [message.clone()].into();
                    return verdict;
                }
            }
            tracking::normalize_live(&mut found, &wanted, &rules.tracking);
            let options = rules.options_for(resource);
            let ctx = Context {
                schemas: &rules.schemas,
                rules: &rules.ignore,
                options: &options,
            };
            let include_webhooks = rules.include_webhooks
                || desired.is_some_and(|manifest| manifest.compare.include_mutation_webhook);
            let mut findings = Vec::new();
            if rules.sync_options.respect_ignore_differences() && !rules.ignore.is_empty() {
                let (_, unclear) =
                    argosy_diff::ignore::keep_live(&wanted, &found, &rules.ignore, &rules.schemas);
                findings.extend(unclear);
            }
            let comparison = match answer {
                None => Ok(argosy_diff::compare_owned(wanted, found, &ctx)),
                Some(Answer::Predicted(predicted)) => {
                    argosy_diff::compare_dry_run(&found, predicted, include_webhooks, &ctx)
                        .map_err(|error| (true, error.to_string()))
                }
                Some(Answer::Refused(message)) => Err((false, message.clone())),
                Some(Answer::Unknown(message)) => Err((true, message.clone())),
            };
            match comparison {
                Ok(comparison) => {
                    verdict.modified = comparison.modified;
                    findings.extend(comparison.findings);
                    verdict.findings = findings.iter().map(ToString::to_string).collect();
                }
                Err((unknown, message)) => {
                    verdict.modified = true;
                    verdict.unknown = unknown;
                    verdict.findings = [format!("server-side dry run: {message}")].into();
                }
            }
        }
        _ => {}
    }
    verdict
}

/// Images of an object's containers, wherever its kind keeps a pod.
pub(crate) fn images(object: &Value) -> Vec<String> {
    const PODS: [&[&str]; 4] = [
        &["spec"],
        &["spec", "template", "spec"],
        &["spec", "jobTemplate", "spec", "template", "spec"],
        &["spec", "template"],
    ];
    let mut images: Vec<String> = Vec::new();
    for pod in PODS {
        let Some(spec) = meta::field(object, pod) else {
            continue;
        };
        for list in ["initContainers", "containers"] {
            let found = meta::array_field(spec, &[list])
                .iter()
                .filter_map(|each| meta::str_field(each, &["image"]));
            images.extend(found.map(str::to_owned));
        }
    }
    images.sort_unstable();
    images.dedup();
    images
}
