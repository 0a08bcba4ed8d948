//! What a kube-apiserver 1.36 says of itself: version, discovery, schemas.
//!
//! `recorded/kubernetes-1.36.json.gz` holds each schema once, although many OpenAPI documents repeat it; the paths of those documents
//! follow from discovery ([`crate::openapi`]). The conformance test compares it with a running server, and writes it anew if asked.

use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::Value;

const RECORDED: &[u8] = include_bytes!("../recorded/kubernetes-1.36.json.gz");

/// The whole recording while somebody uses it: as a tree it takes some ten megabytes.
static HELD: Mutex<Weak<Value>> = Mutex::new(Weak::new());

/// `{"version", "discovery", "schemas"}`.
pub(crate) fn all() -> Arc<Value> {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(all) = held.upgrade() {
        return all;
    }
    let mut json = Vec::new();
    flate2::read::GzDecoder::new(RECORDED)
        .read_to_end(&mut json)
        .expect("the recording is gzip");
    let all: Arc<Value> = Arc::new(serde_json::from_slice(&json).expect("the recording is JSON"));
    *held = Arc::downgrade(&all);
    all
}

/// Aggregated discovery: `{"items": [APIGroupDiscovery]}`, the core group first.
pub(crate) fn discovery() -> Value {
    all()["discovery"].clone()
}

/// The answer to `/version`.
pub(crate) fn version() -> Value {
    all()["version"].clone()
}

/// The built-in groups in the order in which a kube-apiserver names them.
const GROUPS: [&str; 20] = [
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
];

/// Sorts groups: built-in ones as the server has them, others after them by name.
pub(crate) fn group_rank(group: &str) -> (usize, String) {
    let at = GROUPS.iter().position(|known| *known == group);
    match at {
        Some(at) => (at + 1, String::new()),
        None if group.is_empty() => (0, String::new()),
        None => (GROUPS.len() + 1, group.to_owned()),
    }
}
