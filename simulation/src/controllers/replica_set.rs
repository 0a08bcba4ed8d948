//! A ReplicaSet has as many Pods as it asks for.

use argosy_object::{Value, meta};
use serde_json::json;

use super::{Work, controller_reference, is_active, is_ready, key_of, pod_of, put_count};

const MANAGER: &str = "kube-controller-manager";

pub(super) fn step(work: &mut Work<'_>, set: &Value) {
    if meta::deletion_timestamp(set).is_some() {
        return;
    }
    let mut pods: Vec<Value> = work
        .owned(set, "", "pods")
        .into_iter()
        .filter(is_active)
        .collect();
    let wanted =
        usize::try_from(meta::i64_field(set, &["spec", "replicas"]).unwrap_or(1)).unwrap_or_default();
    while pods.len() < wanted {
        let owner = controller_reference(set, "apps/v1", "ReplicaSet");
        let mut pod = pod_of(&set["spec"]["template"], owner, &[]);
        pod["metadata"]["generateName"] = format!("{}-", meta::name(set)).into();
        match work.create("", "v1", meta::namespace(set), "pods", MANAGER, &pod) {
            Some(created) => pods.push(created),
            // A namespace that is going takes no Pods.
            None => break,
        }
    }
    // Those that are not ready go first.
    pods.sort_by_key(|pod| !is_ready(pod));
    while pods.len() > wanted {
        if let Some(pod) = pods.pop() {
            work.delete("", "pods", &key_of(&pod));
        }
    }
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let mut status = json!({"replicas": pods.len()});
    put_count(&mut status, "fullyLabeledReplicas", pods.len());
    put_count(&mut status, "readyReplicas", ready);
    put_count(&mut status, "availableReplicas", ready);
    if let Some(generation) = meta::generation(set) {
        status["observedGeneration"] = generation.into();
    }
    work.set_status(MANAGER, set, status);
}
