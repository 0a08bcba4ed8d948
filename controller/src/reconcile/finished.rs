//! Jobs that ended well and were then removed by their own time to live.
//!
//! Git still wants such a Job, the cluster has none, and yet nothing is amiss. That it ended is written down in an annotation
//! of the Application, by a fingerprint of its manifest, while the finished Job can still be seen. A Job whose manifest
//! changes is missing again.

use std::collections::BTreeMap;

use argosy_api::v1alpha1::Application;
use argosy_object::{Value, meta};
use serde_json::json;

use super::compare::Managed;
use super::manifest::Manifest;

/// JSON: fingerprint by `namespace/name`.
pub(crate) const ANNOTATION: &str = "argosy.dev/finished-jobs";

/// What is written down.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Finished(BTreeMap<String, String>);

impl Finished {
    /// What the Application says. Text that somebody broke says nothing.
    pub(crate) fn of(app: &Application) -> Self {
        let text = app.metadata.annotations.get(ANNOTATION);
        let entries = text.and_then(|text| serde_json::from_str(text).ok());
        Finished(entries.unwrap_or_default())
    }

    /// Has this very Job ended well?
    pub(crate) fn holds(&self, manifest: &Manifest) -> bool {
        !self.0.is_empty()
            && expires(manifest)
            && self
                .0
                .get(&name(manifest))
                .is_some_and(|known| *known == fingerprint(manifest))
    }
}

/// The annotation as it should be after this comparison, if it differs from what it is; null to take it off.
pub(crate) fn annotation(app: &Application, resources: &[Managed]) -> Option<Value> {
    let before = Finished::of(app);
    let mut after = BTreeMap::new();
    for resource in resources {
        let Some(manifest) = resource.manifest.as_deref().filter(|manifest| expires(manifest)) else {
            continue;
        };
        let ended = resource
            .resource
            .as_ref()
            .is_some_and(|live| is_complete(&live.value()));
        if (ended && !resource.out_of_sync()) || before.holds(manifest) {
            after.insert(name(manifest), fingerprint(manifest));
        }
    }
    if before.0 == after {
        return None;
    }
    Some(if after.is_empty() {
        Value::Null
    } else {
        json!(json!(after).to_string())
    })
}

/// A Job that removes itself.
fn expires(manifest: &Manifest) -> bool {
    manifest.key.group == "batch"
        && manifest.key.kind == "Job"
        && manifest
            .document
            .value_at(&["spec", "ttlSecondsAfterFinished"])
            .is_some_and(|seconds| seconds.is_number())
}

fn is_complete(live: &Value) -> bool {
    let of = |condition: &Value, field: &'static str| meta::str_field(condition, &[field]).map(str::to_owned);
    meta::array_field(live, &["status", "conditions"])
        .iter()
        .any(|condition| {
            of(condition, "type").as_deref() == Some("Complete")
                && of(condition, "status").as_deref() == Some("True")
        })
}

fn name(manifest: &Manifest) -> String {
    format!("{}/{}", manifest.key.namespace, manifest.key.name)
}

/// FNV-1a over the manifest: the same in every build, since it is kept.
fn fingerprint(manifest: &Manifest) -> String {
    const PRIME: u64 = 0x0100_0000_01b3;
    let text = manifest.document.value().to_string();
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    });
    format!("{hash:016x}")
}
