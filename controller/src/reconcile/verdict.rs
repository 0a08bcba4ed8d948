//! One pair of desired and live → everything a pass wants to know about it. Pure, and remembered: a pair whose desired
//! document, live version and rules are as before is not opened again.

use std::sync::Arc;

use argosy_api::annotation;
use argosy_api::tracking;
use argosy_diff::{Context, IgnoreRules, Options};
use argosy_health::{Customizations, Health};
use argosy_livestate::Resource;
use argosy_object::schema::Schemas;
use argosy_object::{ContentHash, Value, meta};
use argosy_sync::options::{SyncOptions, resource_options};
use argosy_sync::{hook, options::Removal};

use super::manifest::Manifest;

/// By what a pair is judged. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Rules {
    /// Identity of everything here that may change a verdict, besides the schemas.
    pub id: u64,
    pub schemas: Arc<Schemas>,
    pub ignore: Arc<IgnoreRules>,
    pub options: Arc<Options>,
    pub health: Arc<Customizations>,
    pub tracking: Arc<tracking::Config>,
    /// Instance name of the Application.
    pub instance: Arc<str>,
    pub sync_options: Arc<SyncOptions>,
}

/// What is known of a pair.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    desired: Option<ContentHash>,
    live: Option<(Arc<str>, Box<str>)>,
    /// An apply would change the live object, or there is none.
    pub modified: bool,
    /// Health of the live object; nothing if no rule exists.
    pub health: Option<Health>,
    /// The live object is a hook.
    pub live_hook: bool,
    /// The live object is annotated to be never applied.
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
}

impl Verdict {
    /// Is it still the verdict on this pair (under the same rules)?
    pub(crate) fn stands(&self, desired: Option<&Manifest>, live: Option<&Resource>) -> bool {
        self.desired == desired.map(|manifest| manifest.document.hash())
            && match (&self.live, live) {
                (None, None) => true,
                (Some((uid, version)), Some(live)) => *uid == live.uid && *version == live.resource_version,
                _ => false,
            }
    }
}

/// Judges one pair.
pub(crate) fn judge(desired: Option<&Manifest>, live: Option<&Resource>, rules: &Rules) -> Verdict {
    let mut wanted = desired.map(|manifest| manifest.document.value());
    let mut found = live.map(Resource::value);
    let mut verdict = Verdict {
        desired: desired.map(|manifest| manifest.document.hash()),
        live: live.map(|live| (live.uid.clone(), live.resource_version.clone())),
        ..Verdict::default()
    };
    if let Some(live) = &found {
        verdict.health = argosy_health::assess(live, &rules.health);
        verdict.live_hook = super::manifest::is_hook(live);
        verdict.skipped = hook::skipped(live);
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
    }
    let resource = resource_options(&rules.sync_options, None, wanted.as_ref(), found.as_ref());
    verdict.needs_confirmation = resource.prune == Removal::Confirm || resource.delete == Removal::Confirm;
    match (&mut wanted, &mut found) {
        (Some(_), None) => verdict.modified = true,
        (Some(wanted), Some(found)) => {
            tracking::normalize_live(found, wanted, &rules.tracking);
            let mut options = rules.options.clone();
            if resource.server_side_apply != options.server_side_apply {
                Arc::make_mut(&mut options).server_side_apply = resource.server_side_apply;
            }
            let ctx = Context {
                schemas: &rules.schemas,
                rules: &rules.ignore,
                options: &options,
            };
            let comparison = argosy_diff::compare(Some(wanted), Some(found), &ctx);
            verdict.modified = comparison.modified;
            verdict.findings = comparison.findings.iter().map(ToString::to_string).collect();
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
