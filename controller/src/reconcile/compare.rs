//! Desired × live → pairs with a verdict each, and the verdict on the whole. Pure.
//!
//! Only pairs that changed are opened; the rest keeps the verdict of the last pass ([`super::verdict`]).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use argosy_api::project::{self, Target};
use argosy_api::v1alpha1::{AppProject, Application, SyncStatusCode};
use argosy_health::Health;
use argosy_livestate::{Resource, Snapshot};
use argosy_object::{GroupKind, GroupVersionKind, ResourceKey, Value};
use rayon::prelude::*;

use super::manifest::{Desired, Kinds, Manifest};
use super::verdict::{Rules, Verdict, judge};

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
    KindUnknown { kind: GroupKind },
    /// A rule could not be applied.
    Rule { key: Arc<ResourceKey>, message: String },
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
    /// Kinds of which not all objects are known at the moment.
    pub incomplete: &'a (dyn Fn(&GroupKind) -> bool + Sync),
    pub rules: &'a Rules,
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
    let judged = judge_all(&pairs, verdicts, input.rules);
    let mut outcome =
        Outcome { resources: Vec::with_capacity(pairs.len()), hooks: Vec::new(), status: SyncStatusCode::Synced, findings: Vec::new() };
    let mut unknown_kinds = HashSet::new();
    for (pair, verdict) in pairs.into_iter().zip(&judged) {
        if let Some(live) = &pair.resource
            && let Some(other) = live.app.as_ref().filter(|other| &***other != input.instance)
            && pair.manifest.is_some()
        {
            outcome.findings.push(Finding::Shared { key: pair.key.clone(), other: other.clone() });
        }
        for message in &verdict.findings {
            outcome.findings.push(Finding::Rule { key: pair.key.clone(), message: message.clone() });
        }
        let kind = pair.key.group_kind();
        let incomplete = (input.incomplete)(&kind);
        if incomplete && unknown_kinds.insert(kind.clone()) {
            outcome.findings.push(Finding::KindUnknown { kind: kind.clone() });
        }
        let (resource, counted) = managed(input, pair, verdict, &kind, incomplete);
        outcome.status = worse(outcome.status, counted);
        outcome.resources.push(resource);
    }
    if input.desired.is_none() {
        outcome.status = SyncStatusCode::Unknown;
    }
    *verdicts = outcome.resources.iter().map(|resource| resource.key.clone()).zip(judged).collect();
    if let Some(desired) = input.desired {
        outcome.hooks = desired.hooks.iter().map(|manifest| hook(input, manifest)).collect();
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
        pairs.push(Pair { key: manifest.key.clone(), manifest: Some(manifest.clone()), resource });
    }
    // What has an owner is that owner's business, also when labels and annotations were copied onto it.
    let extra = input.snapshot.by_app(input.instance).into_iter().filter(|live| {
        live.owners.is_empty()
            && !wanted.contains(&live.key)
            // The same object is served under several groups.
            && !paired.contains(&live.uid)
            && permitted_live(input, live)
    });
    pairs.extend(extra.map(|live| Pair { key: live.key.clone(), manifest: None, resource: Some(live) }));
    pairs.sort_by(|a, b| a.key.cmp(&b.key));
    pairs
}

/// May the project hold this live object at all? What it may not is neither shown nor pruned.
fn permitted_live(input: &Input<'_>, live: &Resource) -> bool {
    let key = &live.key;
    let resource = project::Resource { group: &key.group, kind: &key.kind, namespace: &key.namespace, name: &key.name };
    let own = input.own_cluster.then_some(input.target);
    project::permits_resource(&input.project.spec, resource, input.target, own)
}

fn judge_all(pairs: &[Pair], verdicts: &mut Verdicts, rules: &Rules) -> Vec<Verdict> {
    let mut judged: Vec<Option<Verdict>> = pairs
        .iter()
        .map(|pair| {
            let known = verdicts.remove(&pair.key)?;
            known.stands(pair.manifest.as_deref(), pair.resource.as_deref()).then_some(known)
        })
        .collect();
    let open: Vec<usize> = judged.iter().enumerate().filter(|(_, known)| known.is_none()).map(|(i, _)| i).collect();
    let one = |i: &usize| judge(pairs[*i].manifest.as_deref(), pairs[*i].resource.as_deref(), rules);
    let fresh: Vec<Verdict> =
        if open.len() < PARALLEL_MIN { open.iter().map(one).collect() } else { open.par_iter().map(one).collect() };
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
) -> (Managed, SyncStatusCode) {
    let (wanted, live) = (pair.manifest.is_some(), pair.resource.is_some());
    let extra = live && !wanted;
    let without_status = verdict.live_hook || verdict.skipped || verdict.copied;
    let mut counted = SyncStatusCode::Synced;
    let mut status = if without_status {
        None
    } else if verdict.modified || !wanted || !live {
        if !(extra && verdict.extraneous_ignored) {
            counted = SyncStatusCode::OutOfSync;
        }
        Some(SyncStatusCode::OutOfSync)
    } else {
        Some(SyncStatusCode::Synced)
    };
    let namespaced = input.kinds.namespaced(kind).unwrap_or(!pair.key.namespace.is_empty());
    if !project::permits_kind(&input.project.spec, &kind.group, &kind.kind, &pair.key.name, namespaced) {
        status = Some(SyncStatusCode::Unknown);
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
        sync_wave: if wanted { verdict.sync_wave } else { 0 },
        health: verdict.health.clone(),
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
        sync_wave: 0,
        health: None,
        counts: Counts { outside: true, ..Counts::default() },
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
