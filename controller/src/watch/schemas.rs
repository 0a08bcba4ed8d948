//! The schemas of a cluster: those of the built-in kinds, which the process has once, and those of its CRDs.
//!
//! A server of the version whose schemas are built in needs nothing fetched: its CRDs are part of live state anyway.
//! Another version, or an account that may not see CRDs, is asked for its OpenAPI documents. Either way clusters
//! with the same content share one copy.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

use argosy_kube_io::client::Version;
use argosy_kube_io::{Client, Discovery, openapi};
use argosy_livestate::{Resource, Snapshot};
use argosy_object::schema::Schemas;
use argosy_object::{ContentHash, GroupKind, Value};
use parking_lot::Mutex;
use tracing::debug;

use super::Shared;

/// The version of the built-in schemas.
const BUILTIN: (&str, &str) = ("1", "36");

/// Layers of CRDs over built-in schemas, by the content of the CRDs.
static LAYERS: LazyLock<Mutex<HashMap<ContentHash, Weak<Schemas>>>> = LazyLock::new(Mutex::default);

/// Brings the cluster's schemas up to date with its kinds.
pub(crate) async fn refresh(shared: &Arc<Shared>, client: &Client, discovery: &Discovery) {
    let version = shared.version.load_full();
    let snapshot = Snapshot::clone(&shared.snapshot.load());
    let layered = with_crds(&snapshot);
    let complete = || {
        discovery
            .kinds()
            .filter(|kind| shared.wants(&kind.group_kind()) && kind.watchable())
            .all(|kind| {
                // Kinds of CRDs that have not been listed yet come with the next look.
                layered.root(&kind.gvk()).is_some()
            })
    };
    let crds_come = shared.pending.read().iter().any(|scope| scope.kind == crd_kind());
    let schemas = if version.is_some_and(|version| is_builtin(&version)) && (crds_come || complete()) {
        layered
    } else {
        match openapi::schemas(client).await {
            Ok(schemas) => schemas,
            Err(error) => {
                // What is known serves on.
                debug!(cluster = shared.server, error = %error, "schemas are not up to date");
                layered
            }
        }
    };
    if !Arc::ptr_eq(&shared.schemas.load_full(), &schemas) {
        shared.schemas.store(schemas);
    }
}

fn crd_kind() -> GroupKind {
    GroupKind::new("apiextensions.k8s.io", "CustomResourceDefinition")
}

/// The built-in schemas with those of the cluster's CRDs over them.
fn with_crds(snapshot: &Snapshot) -> Arc<Schemas> {
    let crds = snapshot.by_kind(&crd_kind());
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
