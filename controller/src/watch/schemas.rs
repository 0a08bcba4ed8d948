//! The schemas of a cluster: those of the built-in kinds, which the process has once, and those of its CRDs.
//!
//! A server of the version whose schemas are built in needs nothing fetched: its CRDs are part of live state anyway.
//! Another version, or an account that may not see CRDs, is asked for its OpenAPI documents. Either way clusters
//! with the same content share one copy.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock, Weak};

use argosy_kube_io::client::Version;
use argosy_kube_io::{Client, Discovery, openapi};
use argosy_livestate::Resource;
use argosy_object::schema::Schemas;
use argosy_object::{ContentHash, GroupKind, GroupVersionKind, Value};
use parking_lot::Mutex;
use tracing::debug;

use super::Shared;

/// The version of the built-in schemas.
const BUILTIN: (&str, &str) = ("1", "36");

/// Layers of CRDs over built-in schemas, by the content of the CRDs.
static LAYERS: LazyLock<Mutex<HashMap<ContentHash, Weak<Schemas>>>> = LazyLock::new(Mutex::default);

/// The CRDs of a cluster, and what they come to. Some clusters have hundreds, of a hundred kilobytes each: as long as none changes, each
/// is read once.
#[derive(Default)]
pub(crate) struct Definitions {
    crds: Vec<Arc<Resource>>,
    /// The kinds that they announce, and whether each is served.
    pub(crate) announced: Vec<(GroupVersionKind, bool)>,
    /// Made when it is asked for.
    layered: OnceLock<Arc<Schemas>>,
}

impl Definitions {
    /// Those that are known now.
    pub(crate) fn of(shared: &Shared) -> Arc<Self> {
        let crds = shared.snapshot.load().by_kind(&crd_kind());
        let mut known = shared.definitions.lock();
        let is_same = |(one, other): (&Arc<Resource>, &Arc<Resource>)| {
            one.uid == other.uid
                && one.resource_version == other.resource_version
                && !one.resource_version.is_empty()
        };
        let unchanged = known.crds.len() == crds.len() && known.crds.iter().zip(&crds).all(is_same);
        if !unchanged {
            *known = Arc::new(Definitions {
                announced: crds.iter().flat_map(|crd| announced(crd)).collect(),
                crds,
                layered: OnceLock::new(),
            });
        }
        known.clone()
    }

    /// The built-in schemas with those of the CRDs over them.
    fn layered(&self) -> Arc<Schemas> {
        self.layered.get_or_init(|| with_crds(&self.crds)).clone()
    }
}

/// Brings the cluster's schemas up to date with its kinds.
pub(crate) async fn refresh(shared: &Arc<Shared>, client: &Client, discovery: &Discovery) {
    let definitions = Definitions::of(shared);
    let version = shared.version.load_full();
    let complete = || {
        let layered = definitions.layered();
        discovery
            .kinds()
            .filter(|kind| shared.wants(&kind.group_kind()) && kind.watchable())
            .all(|kind| {
                // Kinds of CRDs that have not been listed yet come with the next look.
                layered.root(&kind.gvk()).is_some()
            })
    };
    let crds_come = shared.pending.read().iter().any(|scope| scope.kind == crd_kind());
    let known = shared.schemas.load_full();
    let schemas = if version.is_some_and(|version| is_builtin(&version)) && (crds_come || complete()) {
        definitions.layered()
    } else {
        match openapi::schemas(client, &shared.broken_documents).await {
            Ok(schemas) => schemas,
            Err(error) => {
                debug!(cluster = shared.server, error = %error, "schemas are not up to date");
                // What is known serves on, if it is more than what was there before anything was.
                match Arc::ptr_eq(&known, &Schemas::builtin()) {
                    true => definitions.layered(),
                    false => known.clone(),
                }
            }
        }
    };
    if !Arc::ptr_eq(&known, &schemas) {
        shared.schemas.store(schemas);
    }
}

fn crd_kind() -> GroupKind {
    GroupKind::new("apiextensions.k8s.io", "CustomResourceDefinition")
}

/// The kinds that a CRD announces, in all versions, and whether each is served.
fn announced(crd: &Resource) -> Vec<(GroupVersionKind, bool)> {
    // A field at a time: with its schemas it would be large.
    let crd = &crd.document;
    let text = |path: &[&str]| crd.str_at(path).unwrap_or_default();
    let list = |path: &[&str]| match crd.value_at(path) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let (group, kind) = (text(&["spec", "group"]), text(&["spec", "names", "kind"]));
    let established = list(&["status", "conditions"]).iter().any(|condition| {
        condition.get("type").and_then(Value::as_str) == Some("Established")
            && condition.get("status").and_then(Value::as_str) == Some("True")
    });
    if !established || crd.value_at(&["metadata", "deletionTimestamp"]).is_some() {
        return Vec::new();
    }
    let versions = list(&["spec", "versions"]);
    let served = |version: &Value| {
        let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
        let served = version.get("served").and_then(Value::as_bool).unwrap_or(false);
        (GroupVersionKind::new(group.clone(), name, kind.clone()), served)
    };
    versions.iter().map(served).collect()
}

/// The built-in schemas with those of some CRDs over them.
fn with_crds(crds: &[Arc<Resource>]) -> Arc<Schemas> {
    if crds.is_empty() {
        return Schemas::builtin();
    }
    // One after the other: a large one takes ten megabytes to work on.
    let hashes: Vec<String> = crds
        .iter()
        .map(|crd| ContentHash::of_value(&bare(crd)).to_string())
        .collect();
    let key = ContentHash::of(hashes.join("\n").as_bytes());
    if let Some(known) = LAYERS.lock().get(&key).and_then(Weak::upgrade) {
        return known;
    }
    let made = Schemas::builtin().with_crds(crds.iter().map(|crd| bare(crd)));
    let mut known = LAYERS.lock();
    known.retain(|_, schemas| schemas.strong_count() > 0);
    known.insert(key, Arc::downgrade(&made));
    made
}

/// Of a CRD only what its schema is made from, so that clusters with the same CRDs meet.
fn bare(crd: &Resource) -> Value {
    serde_json::json!({
        "apiVersion": argosy_object::api_version(&crd.key.group, &crd.version), "kind": crd.key.kind,
        "metadata": {"name": crd.key.name}, "spec": crd.document.value_at(&["spec"]).unwrap_or_default(),
    })
}

fn is_builtin(version: &Version) -> bool {
    // Some providers write `36+`.
    (version.major.as_str(), version.minor.trim_end_matches('+')) == BUILTIN
}
