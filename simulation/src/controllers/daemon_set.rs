//! A DaemonSet has a Pod on every node.

use argosy_object::{Value, meta};
use serde_json::json;

use super::stateful_set::record_revision;
use super::{Work, controller_reference, is_active, is_ready, key_of, pod_of, put_count, template_hash};

const MANAGER: &str = "kube-controller-manager";
const REVISION: &str = "controller-revision-hash";

pub(super) fn step(work: &mut Work<'_>, set: &Value) {
    if meta::deletion_timestamp(set).is_some() {
        return;
    }
    let hash = template_hash(&set["spec"]["template"]);
    record_revision(work, set, "DaemonSet", &format!("{}-{hash}", meta::name(set)));
    let nodes: Vec<String> = (0..work.server.options.nodes)
        .map(|index| format!("node-{index}"))
        .collect();
    let mut pods: Vec<Value> = work
        .owned(set, "", "pods")
        .into_iter()
        .filter(is_active)
        .collect();
    // One outdated Pod at a time makes room for its successor.
    let outdated = pods
        .iter()
        .position(|pod| meta::label(pod, REVISION) != Some(&hash));
    if let Some(at) = outdated
        .filter(|_| set["spec"]["updateStrategy"]["type"] == "RollingUpdate" && pods.iter().all(is_ready))
    {
        let pod = pods.remove(at);
        work.delete("", "pods", &key_of(&pod));
    }
    for node in &nodes {
        if pods
            .iter()
            .any(|pod| meta::str_field(pod, &["spec", "nodeName"]) == Some(node))
        {
            continue;
        }
        let owner = controller_reference(set, "apps/v1", "DaemonSet");
        let labels = [(REVISION, hash.as_str()), ("pod-template-generation", "1")];
        let mut pod = pod_of(&set["spec"]["template"], owner, &labels);
        pod["metadata"]["generateName"] = format!("{}-", meta::name(set)).into();
        pod["spec"]["nodeName"] = node.as_str().into();
        pods.extend(work.create("", "v1", meta::namespace(set), "pods", MANAGER, &pod));
    }
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let updated = pods
        .iter()
        .filter(|pod| meta::label(pod, REVISION) == Some(&hash))
        .count();
    let mut status = json!({
        "currentNumberScheduled": pods.len(), "numberMisscheduled": 0, "desiredNumberScheduled": nodes.len(),
        "numberReady": ready,
    });
    put_count(&mut status, "numberAvailable", ready);
    put_count(
        &mut status,
        "numberUnavailable",
        nodes.len().saturating_sub(ready),
    );
    put_count(&mut status, "updatedNumberScheduled", updated);
    if let Some(generation) = meta::generation(set) {
        status["observedGeneration"] = generation.into();
    }
    work.set_status(MANAGER, set, status);
}
