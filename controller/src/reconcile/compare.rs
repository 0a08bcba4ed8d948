//! Desired × live → pairs with a verdict each, and the verdict on the whole. Pure.
//!
//! Only pairs that changed are opened; the rest keeps the verdict of the last pass ([`super::verdict`]).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use argosy_api::project::{self, Target};
use argosy_api::v1alpha1::{AppProject, Application, SyncStatusCode};
use argosy_health::{Health, Status};
use argosy_livestate::{Resource, Snapshot};
use argosy_object::{GroupKind, GroupVersionKind, ResourceKey, Value};
use rayon::prelude::*;

use super::Answers;
use super::finished::Finished;
use super::manifest::{Desired, Kinds, Manifest};
use super::verdict::{Rules, Verdict, judge};
use crate::neighbours::InCluster;

/// So few pairs are judged faster on this thread than handed around.
const PARALLEL_MIN: usize = 16;

/// One resource of an Application: desired, live, or both.
#[derive(Clone, Debug)]
pub struct Managed {
    /// Which one.
    pub key: Arc<ResourceKey>,
    /// API version in its group: the live object's, or else the manifest's.
    pub version: String,
    /// What Git wants.
    pub manifest: Option<Arc<Manifest>>,
    /// What the cluster has.
    pub resource: Option<Arc<Resource>>,
    /// The verdict; nothing for hooks and other objects that have none.
    pub status: Option<SyncStatusCode>,
    /// It is live and no longer desired.
    pub requires_pruning: bool,
    /// It is a hook.
    pub hook: bool,
    /// Deleting it needs a person's consent.
    pub requires_confirmation: bool,
    /// A Job that ended well and was removed by its time to live: that it is not live is no difference.
    pub finished: bool,
    /// Its sync wave.
    pub sync_wave: i64,
    /// Health of the live object; nothing if no rule exists or it is not live.
    pub health: Option<Health>,
    pub(super) counts: Counts,
}

/// What of a resource counts, and what it adds to the summary.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// It is none of the Application's for health.
    pub outside: bool,
    pub health_ignored: bool,
    pub images: Box<[String]>,
    pub urls: Box<[String]>,
}

impl Managed {
    /// Group, version and kind.
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind::new(&*self.key.group, &*self.version, &*self.key.kind)
    }

    /// The desired object, to work on.
    pub fn desired(&self) -> Option<Value> {
        self.manifest.as_ref().map(|manifest| manifest.document.value())
    }

    /// The live object, to work on.
    pub fn live(&self) -> Option<Value> {
        self.resource.as_ref().map(|resource| resource.value())
    }

    /// Live and desired differ, or one of them is missing.
    pub fn out_of_sync(&self) -> bool {
        self.status == Some(SyncStatusCode::OutOfSync)
    }
}

/// What is to be said about single resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Another Application tracks the live object too.
    Shared { key: Arc<ResourceKey>, other: Arc<str> },
    /// The objects of this kind cannot be listed, so nothing can be said about them.
    KindUnknown { kind: GroupKind, reason: String },
    /// A rule could not be applied, or a dry run was refused.
    Rule { key: Arc<ResourceKey>, message: String },
    /// It could not be compared.
    Unknown { key: Arc<ResourceKey>, message: String },
}

/// What is compared.
pub(crate) struct Input<'a> {
    pub app: &'a Application,
    /// The instance name that its resources carry.
    pub instance: &'a str,
    /// Nothing if it could not be loaded: then nothing is said to be in sync or extra.
    pub desired: Option<&'a Desired>,
    pub snapshot: &'a Snapshot,
    pub project: &'a AppProject,
    pub kinds: &'a (dyn Kinds + Sync),
    /// Why not all objects of a kind are known at the moment.
    pub incomplete: &'a (dyn Fn(&GroupKind) -> Option<String> + Sync),
    pub rules: &'a Rules,
    /// What the API server said about applies, where it was asked.
    pub answers: &'a Answers,
    /// The destination's cluster.
    pub target: Target<'a>,
    /// The cluster belongs to the project alone.
    pub own_cluster: bool,
}

/// The verdicts of the last pass.
pub(crate) type Verdicts = HashMap<Arc<ResourceKey>, Verdict>;

/// What came out.
pub(crate) struct Outcome {
    /// Ordinary resources and live hooks, by key.
    pub resources: Vec<Managed>,
    /// Desired hooks, by key.
    pub hooks: Vec<Managed>,
    pub status: SyncStatusCode,
    pub findings: Vec<Finding>,
}

struct Pair {
    key: Arc<ResourceKey>,
    manifest: Option<Arc<Manifest>>,
    resource: Option<Arc<Resource>>,
}

/// Compares. `verdicts` are those of the last pass and become those of this one.
pub(crate) fn compare(input: &Input<'_>, verdicts: &mut Verdicts) -> Outcome {
    let pairs = pair_up(input);
    let judged = judge_all(&pairs, verdicts, input.rules, input.answers);
    let mut outcome = Outcome {
        resources: Vec::with_capacity(pairs.len()),
        hooks: Vec::new(),
        status: SyncStatusCode::Synced,
        findings: Vec::new(),
    };
    let mut unknown_kinds = HashSet::new();
    let finished = Finished::of(input.app);
    for (pair, verdict) in pairs.into_iter().zip(&judged) {
        if let Some(live) = &pair.resource
            && let Some(other) = live.app.as_ref().filter(|other| &***other != input.instance)
            && pair.manifest.is_some()
        {
            outcome.findings.push(Finding::Shared {
                key: pair.key.clone(),
                other: other.as_str().into(),
            });
        }
        for message in &verdict.findings {
            let (key, message) = (pair.key.clone(), message.clone());
            outcome.findings.push(match verdict.unknown {
                true => Finding::Unknown { key, message },
                false => Finding::Rule { key, message },
            });
        }
        let kind = pair.key.group_kind();
        let incomplete = (input.incomplete)(&kind);
        let is_known = incomplete.is_none();
        if let Some(reason) = incomplete
            && unknown_kinds.insert(kind.clone())
        {
            outcome.findings.push(Finding::KindUnknown {
                kind: kind.clone(),
                reason,
            });
        }
        let (resource, counted) = managed(input, pair, verdict, &kind, !is_known, &finished);
        outcome.status = worse(outcome.status, counted);
        outcome.resources.push(resource);
    }
    if input.desired.is_none() {
        outcome.status = SyncStatusCode::Unknown;
    }
    *verdicts = outcome
        .resources
        .iter()
        .map(|resource| resource.key.clone())
        .zip(judged)
        .collect();
    if let Some(desired) = input.desired {
        outcome.hooks = desired
            .hooks
            .iter()
            .map(|manifest| hook(input, manifest))
            .collect();
    }
    outcome
}

/// Desired resources with their live object, then live objects of the Application that nobody desires, by key.
fn pair_up(input: &Input<'_>) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut paired = HashSet::new();
    let mut wanted = HashSet::new();
    for manifest in input.desired.into_iter().flat_map(|desired| &desired.resources) {
        wanted.insert(manifest.key.clone());
        let resource = input.snapshot.get(&manifest.key);
        if let Some(live) = &resource {
            paired.insert(live.uid.clone());
        }
        pairs.push(Pair {
            key: manifest.key.clone(),
            manifest: Some(manifest.clone()),
            resource,
        });
    }
    // What has an owner is that owner's business, also when labels and annotations were copied onto it.
    let extra = input.snapshot.by_app(input.instance).into_iter().filter(|live| {
        live.owners.is_empty()
            && !wanted.contains(&live.key)
            // The same object is served under several groups.
            && !paired.contains(&live.uid)
            && permitted_live(input, live)
    });
    pairs.extend(extra.map(|live| Pair {
        key: live.key.clone(),
        manifest: None,
        resource: Some(live),
    }));
    pairs.sort_by(|a, b| a.key.cmp(&b.key));
    pairs
}

/// May the project hold this live object at all? What it may not is neither shown nor pruned.
fn permitted_live(input: &Input<'_>, live: &Resource) -> bool {
    let key = &live.key;
    let resource = project::Resource {
        group: &key.group,
        kind: &key.kind,
        namespace: &key.namespace,
        name: &key.name,
    };
    let own = input.own_cluster.then_some(input.target);
    project::permits_resource(&input.project.spec, resource, input.target, own)
}

fn judge_all(pairs: &[Pair], verdicts: &mut Verdicts, rules: &Rules, answers: &Answers) -> Vec<Verdict> {
    let mut judged: Vec<Option<Verdict>> = pairs
        .iter()
        .map(|pair| {
            let known = verdicts.remove(&pair.key)?;
            known
                .stands(pair.manifest.as_deref(), pair.resource.as_deref())
                .then_some(known)
        })
        .collect();
    let open: Vec<usize> = judged
        .iter()
        .enumerate()
        .filter(|(_, known)| known.is_none())
        .map(|(i, _)| i)
        .collect();
    let one = |i: &usize| {
        judge(
            pairs[*i].manifest.as_deref(),
            pairs[*i].resource.as_deref(),
            rules,
            answers,
        )
    };
    let fresh: Vec<Verdict> = if open.len() < PARALLEL_MIN {
        open.iter().map(one).collect()
    } else {
        open.par_iter().map(one).collect()
    };
    for (i, verdict) in open.into_iter().zip(fresh) {
        judged[i] = Some(verdict);
    }
    judged.into_iter().flatten().collect()
}

/// The resource, and the status with which it counts for the Application.
fn managed(
    input: &Input<'_>,
    pair: Pair,
    verdict: &Verdict,
    kind: &GroupKind,
    incomplete: bool,
    finished: &Finished,
) -> (Managed, SyncStatusCode) {
    let (wanted, live) = (pair.manifest.is_some(), pair.resource.is_some());
    let extra = live && !wanted;
    let finished = !live
        && pair
            .manifest
            .as_deref()
            .is_some_and(|manifest| finished.holds(manifest));
    let without_status = verdict.live_hook || verdict.skipped || verdict.copied;
    let mut counted = SyncStatusCode::Synced;
    let mut status = if without_status {
        None
    } else if finished {
        Some(SyncStatusCode::Synced)
    } else if verdict.modified || !wanted || !live {
        if !(extra && verdict.extraneous_ignored) {
            counted = SyncStatusCode::OutOfSync;
        }
        Some(SyncStatusCode::OutOfSync)
    } else {
        Some(SyncStatusCode::Synced)
    };
    let namespaced = input
        .kinds
        .namespaced(kind)
        .unwrap_or(!pair.key.namespace.is_empty());
    if !project::permits_kind(
        &input.project.spec,
        &kind.group,
        &kind.kind,
        &pair.key.name,
        namespaced,
    ) {
        status = Some(SyncStatusCode::Unknown);
    }
    if verdict.unknown && !without_status {
        (status, counted) = (Some(SyncStatusCode::Unknown), SyncStatusCode::Unknown);
    }
    if incomplete {
        (status, counted) = (Some(SyncStatusCode::Unknown), SyncStatusCode::Unknown);
    }
    if input.desired.is_none() {
        status = Some(SyncStatusCode::Unknown);
    }
    let version = match (&pair.resource, &pair.manifest) {
        (Some(live), _) => live.version.to_string(),
        (None, Some(manifest)) => manifest.version.clone(),
        (None, None) => String::new(),
    };
    let deleting = input.app.metadata.deletion_timestamp.is_some();
    let known = input.desired.is_some() && !incomplete;
    let managed = Managed {
        version,
        status,
        requires_pruning: extra && known && !verdict.copied && !verdict.live_hook && !deleting,
        hook: verdict.live_hook,
        requires_confirmation: verdict.needs_confirmation,
        finished,
        sync_wave: if wanted { verdict.sync_wave } else { 0 },
        health: match (&pair.resource, &verdict.health) {
            _ if finished => Some(Health::healthy()),
            // What its neighbours know may change without it.
            (Some(live), Some(own)) if own.status == Status::Progressing => {
                let neighbours = InCluster(input.snapshot);
                argosy_health::assess_among(&live.value(), &input.rules.health, &neighbours)
            }
            _ => verdict.health.clone(),
        },
        counts: Counts {
            outside: verdict.live_hook || verdict.skipped,
            health_ignored: verdict.health_ignored,
            images: verdict.images.clone(),
            urls: verdict.urls.clone(),
        },
        key: pair.key,
        manifest: pair.manifest,
        resource: pair.resource,
    };
    (managed, counted)
}

fn hook(input: &Input<'_>, manifest: &Arc<Manifest>) -> Managed {
    Managed {
        key: manifest.key.clone(),
        version: manifest.version.clone(),
        manifest: Some(manifest.clone()),
        resource: input.snapshot.get(&manifest.key),
        status: None,
        requires_pruning: false,
        hook: true,
        requires_confirmation: false,
        finished: false,
        sync_wave: 0,
        health: None,
        counts: Counts {
            outside: true,
            ..Counts::default()
        },
    }
}

/// Unknown beats OutOfSync beats Synced.
fn worse(a: SyncStatusCode, b: SyncStatusCode) -> SyncStatusCode {
    let rank = |status| match status {
        SyncStatusCode::Synced => 0,
        SyncStatusCode::OutOfSync => 1,
        SyncStatusCode::Unknown => 2,
    };
    if rank(b) > rank(a) { b } else { a }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use argosy_api::tracking;
    use argosy_api::v1alpha1::ClusterResourceRestrictionItem;
    use argosy_livestate::{ClusterState, Event};
    use argosy_object::meta;
    use argosy_object::schema::Schemas;
    use argosy_sync::SyncOptions;
    use serde_json::json;

    use super::*;
    use crate::reconcile::manifest::sort_out;

    struct Builtin;

    impl Kinds for Builtin {
        fn namespaced(&self, kind: &GroupKind) -> Option<bool> {
            Some(!matches!(kind.kind.as_str(), "Namespace" | "ClusterRole"))
        }
        fn excluded(&self, _: &GroupKind) -> bool {
            false
        }
    }

    /// One Application `web` in namespace `shop` of a cluster that holds `live`.
    struct World {
        app: Application,
        desired: Option<Vec<Value>>,
        live: Vec<Value>,
        incomplete: Vec<GroupKind>,
        project: AppProject,
        verdicts: Verdicts,
        answers: Answers,
    }

    fn config_map(name: &str, text: &str) -> Value {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "shop"}, "data": {"text": text}});
        tracking::stamp(&mut object, "web", "shop", &tracking::Config::default()).unwrap();
        object
    }

    fn live(mut object: Value, version: &str) -> Value {
        let uid = format!("uid-{}", object["metadata"]["name"].as_str().unwrap());
        object["metadata"]["uid"] = uid.into();
        object["metadata"]["resourceVersion"] = version.into();
        object
    }

    impl World {
        fn new(desired: Vec<Value>, live: Vec<Value>) -> Self {
            let mut project = AppProject::default();
            project.metadata.name = "default".into();
            let any = || "*".to_owned();
            project.spec.destinations = vec![argosy_api::v1alpha1::ApplicationDestination {
                server: any(),
                namespace: any(),
                name: String::new(),
            }];
            project.spec.cluster_resource_whitelist = vec![ClusterResourceRestrictionItem {
                group: any(),
                kind: any(),
                name: String::new(),
            }];
            World {
                app: Application::default(),
                desired: Some(desired),
                live,
                incomplete: Vec::new(),
                project,
                verdicts: Verdicts::new(),
                answers: Answers::default(),
            }
        }

        fn resources_key(&self) -> Arc<ResourceKey> {
            Arc::new(meta::key(&self.live[0]))
        }

        fn compare(&mut self) -> Outcome {
            let config = Arc::new(tracking::Config::default());
            let mut state = ClusterState::new();
            for object in &self.live {
                let app = tracking::owner(object, &config).map(|owner| owner.instance.into());
                state.apply(Event::Upsert(Box::new(Resource::new(object, app))));
            }
            let rules = Rules {
                id: 1,
                schemas: Schemas::builtin(),
                ignore: Arc::default(),
                ignore_findings: Arc::default(),
                options: Arc::default(),
                health: Arc::default(),
                tracking: config,
                instance: "web".into(),
                sync_options: Arc::new(SyncOptions::parse([])),
                migration_manager: None,
                include_webhooks: false,
            };
            let desired = self
                .desired
                .clone()
                .map(|manifests| sort_out(manifests, "shop", &Builtin).unwrap());
            let input = Input {
                app: &self.app,
                instance: "web",
                desired: desired.as_ref(),
                snapshot: &state.snapshot(),
                project: &self.project,
                kinds: &Builtin,
                incomplete: &|kind| self.incomplete.contains(kind).then(|| "refused".to_owned()),
                rules: &rules,
                answers: &self.answers,
                target: Target {
                    server: "https://c1",
                    name: "one",
                },
                own_cluster: false,
            };
            compare(&input, &mut self.verdicts)
        }
    }

    fn rows(outcome: &Outcome) -> Vec<(String, Option<SyncStatusCode>, bool)> {
        let row = |managed: &Managed| (managed.key.name.clone(), managed.status, managed.requires_pruning);
        outcome.resources.iter().map(row).collect()
    }

    use SyncStatusCode::{OutOfSync, Synced, Unknown};

    #[test]
    fn equal_missing_changed_and_extra_resources_are_told_apart() {
        let mut world = World::new(
            vec![
                config_map("equal", "a"),
                config_map("missing", "a"),
                config_map("changed", "a"),
            ],
            vec![
                live(config_map("equal", "a"), "1"),
                live(config_map("changed", "b"), "1"),
                live(config_map("extra", "a"), "1"),
            ],
        );
        let outcome = world.compare();
        assert_eq!(outcome.status, OutOfSync);
        let expected = [
            ("changed", OutOfSync, false),
            ("equal", Synced, false),
            ("extra", OutOfSync, true),
            ("missing", OutOfSync, false),
        ];
        let expected: Vec<_> = expected
            .map(|(name, status, prune)| (name.to_owned(), Some(status), prune))
            .into();
        assert_eq!(rows(&outcome), expected);
    }

    #[test]
    fn a_job_that_ended_and_removed_itself_is_not_missing() {
        let job = |image: &str| {
            let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "seed", "namespace": "shop"},
                "spec": {"ttlSecondsAfterFinished": 30, "template": {"spec": {"containers": [{"name": "main", "image": image}]}}}});
            tracking::stamp(&mut job, "web", "shop", &tracking::Config::default()).unwrap();
            job
        };
        let mut ended = live(job("seed:1"), "1");
        ended["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        let mut world = World::new(vec![job("seed:1")], vec![]);
        assert_eq!(
            world.compare().status,
            SyncStatusCode::OutOfSync,
            "nobody has seen it end"
        );

        world.live = vec![ended];
        let outcome = world.compare();
        let text = crate::reconcile::finished::annotation(&world.app, &outcome.resources).unwrap();
        let name = crate::reconcile::finished::ANNOTATION.to_owned();
        world
            .app
            .metadata
            .annotations
            .insert(name, text.as_str().unwrap().to_owned());

        world.live.clear();
        let outcome = world.compare();
        assert_eq!(outcome.status, SyncStatusCode::Synced);
        assert_eq!(outcome.resources[0].health, Some(Health::healthy()));
        assert_eq!(
            crate::reconcile::finished::annotation(&world.app, &outcome.resources),
            None
        );

        // Another Job of that name has not run yet.
        world.desired = Some(vec![job("seed:2")]);
        let outcome = world.compare();
        assert_eq!(outcome.status, SyncStatusCode::OutOfSync);
        assert_eq!(
            crate::reconcile::finished::annotation(&world.app, &outcome.resources),
            Some(Value::Null)
        );
    }

    #[test]
    fn a_pair_is_judged_again_only_when_a_side_changes() {
        let mut world = World::new(vec![config_map("a", "a")], vec![live(config_map("a", "a"), "1")]);
        assert_eq!(world.compare().status, Synced);
        // The same version cannot have other content; if it had, it would not be looked at.
        world.live = vec![live(config_map("a", "b"), "1")];
        assert_eq!(world.compare().status, Synced);
        world.live = vec![live(config_map("a", "b"), "2")];
        assert_eq!(world.compare().status, OutOfSync);
        world.desired = Some(vec![config_map("a", "b")]);
        assert_eq!(world.compare().status, Synced);
    }

    #[test]
    fn the_answer_of_a_dry_run_decides_and_an_unanswered_one_is_asked_again() {
        use crate::reconcile::dry_run::Answer;
        let desired = config_map("a", "a");
        let key = Arc::new(meta::key(&desired));
        let mut world = World::new(vec![desired.clone()], vec![live(desired.clone(), "1")]);
        world
            .answers
            .dry_runs
            .insert(key.clone(), Answer::Unknown("timeout".into()));
        let outcome = world.compare();
        assert_eq!(outcome.status, Unknown);
        assert!(
            matches!(&outcome.findings[..], [Finding::Unknown { message, .. }] if message == "server-side dry run: timeout")
        );
        world
            .answers
            .dry_runs
            .insert(key.clone(), Answer::Refused("is immutable".into()));
        assert_eq!(world.compare().status, OutOfSync);
        // The server would put something in that Git does not state.
        let mut predicted = live(desired, "1");
        predicted["data"]["more"] = "x".into();
        predicted["metadata"]["managedFields"] = json!([
            {"manager": "argocd-controller", "operation": "Apply", "fieldsV1": {"f:data": {"f:text": {}}}},
            {"manager": "webhook", "operation": "Update", "fieldsV1": {"f:data": {"f:more": {}}}}
        ]);
        world.verdicts.clear();
        world
            .answers
            .dry_runs
            .insert(key, Answer::Predicted(Box::new(predicted.clone())));
        assert_eq!(world.compare().status, Synced);
        predicted["metadata"]["managedFields"][0]["fieldsV1"]["f:data"]["f:more"] = json!({});
        world.verdicts.clear();
        world.answers.dry_runs = [(world.resources_key(), Answer::Predicted(Box::new(predicted)))].into();
        assert_eq!(world.compare().status, OutOfSync);
    }

    #[test]
    fn a_pair_in_two_versions_is_compared_in_that_of_git() {
        let scaler = |version: &str, spec: Value| {
            let mut object = json!({"apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
            tracking::stamp(&mut object, "web", "shop", &tracking::Config::default()).unwrap();
            object
        };
        let desired = scaler(
            "v1",
            json!({"maxReplicas": 5, "targetCPUUtilizationPercentage": 60}),
        );
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 60}}});
        let stored = live(scaler("v2", json!({"maxReplicas": 5, "metrics": [cpu]})), "1");
        let mut world = World::new(vec![desired.clone()], vec![stored]);
        let key = world.resources_key();
        world
            .answers
            .in_version
            .insert(key.clone(), Ok(live(desired.clone(), "1")));
        assert_eq!(world.compare().status, Synced);
        world.verdicts.clear();
        let mut changed = live(desired, "1");
        changed["spec"]["targetCPUUtilizationPercentage"] = 70.into();
        world.answers.in_version.insert(key.clone(), Ok(changed));
        assert_eq!(world.compare().status, OutOfSync);
        world.answers.in_version.insert(key, Err("timeout".to_owned()));
        world.verdicts.clear();
        assert_eq!(world.compare().status, Unknown);
    }

    #[test]
    fn an_object_with_a_bad_label_is_unknown_and_the_others_are_compared() {
        let mut bad = config_map("bad", "a");
        bad["metadata"]["labels"] = json!({"version": 1.1});
        let mut world = World::new(
            vec![bad, config_map("good", "a")],
            vec![
                live(config_map("bad", "a"), "1"),
                live(config_map("good", "a"), "1"),
            ],
        );
        let expected = [
            ("bad".to_owned(), Some(Unknown), false),
            ("good".to_owned(), Some(Synced), false),
        ];
        assert_eq!(rows(&world.compare()), expected);
        world.live.remove(0);
        assert_eq!(rows(&world.compare()), expected, "and it is not missing");
    }

    #[test]
    fn an_object_that_left_git_and_has_the_label_of_earlier_days_is_extra_with_an_explanation() {
        let by_label = tracking::Config {
            method: tracking::Method::Label,
            ..tracking::Config::default()
        };
        let mut old = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "old", "namespace": "shop"}});
        tracking::stamp(&mut old, "web", "shop", &by_label).unwrap();
        let foreign = live(old.clone(), "1");
        assert_eq!(rows(&World::new(Vec::new(), vec![foreign]).compare()), []);
        let labels = json!({"f:app.kubernetes.io/instance": {}});
        old["metadata"]["managedFields"] =
            json!([{"manager": "argocd-controller", "fieldsV1": {"f:metadata": {"f:labels": labels}}}]);
        let outcome = World::new(Vec::new(), vec![live(old, "1")]).compare();
        assert_eq!(rows(&outcome), [("old".to_owned(), Some(OutOfSync), true)]);
        assert!(outcome.resources[0].requires_confirmation);
        assert!(
            matches!(&outcome.findings[..], [Finding::Rule { message, .. }] if message.contains("approval"))
        );
    }

    #[test]
    fn without_a_desired_state_nothing_is_extra() {
        let mut world = World::new(Vec::new(), vec![live(config_map("a", "a"), "1")]);
        world.desired = None;
        let outcome = world.compare();
        assert_eq!(outcome.status, Unknown);
        assert_eq!(rows(&outcome), [("a".to_owned(), Some(Unknown), false)]);
    }

    #[test]
    fn nothing_is_said_about_a_kind_that_cannot_be_listed() {
        let mut world = World::new(
            vec![config_map("a", "a")],
            vec![live(config_map("extra", "a"), "1")],
        );
        world.incomplete = vec![GroupKind::new("", "ConfigMap")];
        let outcome = world.compare();
        assert_eq!(outcome.status, Unknown);
        assert_eq!(
            rows(&outcome),
            [
                ("a".into(), Some(Unknown), false),
                ("extra".into(), Some(Unknown), false)
            ]
        );
        assert_eq!(
            outcome.findings,
            [Finding::KindUnknown {
                kind: GroupKind::new("", "ConfigMap"),
                reason: "refused".to_owned(),
            }]
        );
    }

    #[test]
    fn what_git_says_to_leave_alone_has_no_status_and_what_it_says_no_longer_has_one() {
        let mut left_alone = config_map("a", "a");
        left_alone["metadata"]["annotations"][argosy_api::annotation::HOOK] = "Skip".into();
        for present in [vec![], vec![live(config_map("a", "b"), "1")]] {
            let outcome = World::new(vec![left_alone.clone()], present).compare();
            assert_eq!(outcome.status, Synced);
            assert_eq!(rows(&outcome), [("a".to_owned(), None, false)]);
            assert!(outcome.resources[0].counts.outside);
        }
        // The annotation in the cluster is one that Git has taken away.
        let mut stored = live(left_alone.clone(), "1");
        stored["metadata"]["annotations"][argosy_diff::LAST_APPLIED] = left_alone.to_string().into();
        let outcome = World::new(vec![config_map("a", "a")], vec![stored]).compare();
        assert_eq!(rows(&outcome), [("a".to_owned(), Some(OutOfSync), false)]);
    }

    #[test]
    fn what_was_a_hook_and_is_none_any_longer_is_a_resource() {
        let mut hook = config_map("a", "a");
        hook["metadata"]["annotations"][argosy_api::annotation::HOOK] = "PreSync".into();
        let mut stored = live(hook.clone(), "1");
        stored["metadata"]["annotations"][argosy_diff::LAST_APPLIED] = hook.to_string().into();
        let outcome = World::new(vec![config_map("a", "a")], vec![stored.clone()]).compare();
        assert_eq!(rows(&outcome), [("a".to_owned(), Some(OutOfSync), false)]);
        assert!(!outcome.resources[0].hook);
        // Where Git has neither, it is what is left of the hook.
        let outcome = World::new(Vec::new(), vec![stored]).compare();
        assert_eq!(rows(&outcome), [("a".to_owned(), None, false)]);
    }

    #[test]
    fn copies_and_what_has_an_owner_are_not_the_applications() {
        let mut owned = live(config_map("owned", "a"), "1");
        owned["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "uid-x"}]);
        let mut copy = live(config_map("original", "a"), "1");
        copy["metadata"]["name"] = "copy".into();
        let mut world = World::new(Vec::new(), vec![owned, copy]);
        let outcome = world.compare();
        assert_eq!(outcome.status, Synced);
        assert_eq!(rows(&outcome), [("copy".to_owned(), None, false)]);
    }

    #[test]
    fn a_resource_that_another_application_tracks_is_reported() {
        let mut other = live(config_map("a", "a"), "1");
        other["metadata"]["annotations"][argosy_api::annotation::TRACKING_ID] =
            "team_other:/ConfigMap:shop/a".into();
        let mut world = World::new(vec![config_map("a", "a")], vec![other]);
        let outcome = world.compare();
        assert!(matches!(&outcome.findings[..], [Finding::Shared { other, .. }] if &**other == "team_other"));
    }

    #[test]
    fn extra_resources_that_are_to_be_ignored_do_not_count() {
        let mut extra = live(config_map("extra", "a"), "1");
        extra["metadata"]["annotations"][argosy_api::annotation::COMPARE_OPTIONS] = "IgnoreExtraneous".into();
        let outcome = World::new(Vec::new(), vec![extra]).compare();
        assert_eq!(outcome.status, Synced);
        assert_eq!(rows(&outcome), [("extra".to_owned(), Some(OutOfSync), true)]);
    }

    #[test]
    fn what_the_project_does_not_permit_is_unknown_and_never_pruned() {
        let mut world = World::new(
            vec![config_map("a", "a")],
            vec![live(config_map("extra", "a"), "1")],
        );
        world.project.spec.namespace_resource_blacklist = vec![argosy_api::v1alpha1::GroupKind {
            group: String::new(),
            kind: "ConfigMap".into(),
        }];
        assert_eq!(rows(&world.compare()), [("a".to_owned(), Some(Unknown), false)]);
    }
}
