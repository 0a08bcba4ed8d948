//! A PodDisruptionBudget says how many of its Pods may go.

use std::collections::BTreeSet;

use argosy_object::{Value, meta};
use serde_json::json;

use super::{Work, deployment, is_active, is_ready, owner_key, with_condition};
use crate::registry::GroupResource;
use crate::selector::Selector;

const MANAGER: &str = "kube-controller-manager";

pub(super) fn step(work: &mut Work<'_>, budget: &Value) {
    if !work.has_nodes() || meta::deletion_timestamp(budget).is_some() {
        return;
    }
    let pods: Vec<Value> = pods(work, budget).filter(is_active).collect();
    let healthy = pods.iter().filter(|pod| is_ready(pod)).count();
    let (expected, wanted) = wanted(work, budget, &pods);
    let allowed = match expected {
        0 => 0,
        _ => healthy.saturating_sub(wanted),
    };
    let (status, reason) = match allowed {
        0 => ("False", "InsufficientPods"),
        _ => ("True", "SufficientPods"),
    };
    let conditions = meta::array_field(budget, &["status", "conditions"]);
    let conditions = with_condition(conditions, "DisruptionAllowed", status, reason, "", &work.stamp());
    let status = json!({
        "currentHealthy": healthy, "desiredHealthy": wanted, "disruptionsAllowed": allowed, "expectedPods": expected,
        "observedGeneration": meta::generation(budget), "conditions": conditions,
    });
    work.set_status(MANAGER, budget, status);
}

fn pods(work: &Work<'_>, budget: &Value) -> impl Iterator<Item = Value> {
    let selector = Selector::of_document(&budget["spec"]["selector"]);
    let prefix = format!("{}/", meta::namespace(budget));
    let table = work.server.store.table(&GroupResource::new("", "pods"));
    let objects = table.into_iter().flat_map(|table| &table.objects);
    objects
        .filter(move |(key, _)| key.starts_with(&prefix))
        .map(|(_, entry)| entry.content.value())
        .filter(move |pod| selector.matches(pod))
}

/// How many Pods there should be, and how many of them healthy. As Kubernetes counts: a number of Pods that must be there is
/// held against those that are; everything else against what their controllers ask for.
fn wanted(work: &Work<'_>, budget: &Value, pods: &[Value]) -> (usize, usize) {
    let spec = &budget["spec"];
    if let Some(least) = spec["minAvailable"].as_u64() {
        return (pods.len(), usize::try_from(least).unwrap_or(usize::MAX));
    }
    let owners = pods.iter().filter_map(|pod| {
        let owner = meta::owner_references(pod)
            .into_iter()
            .find(|owner| owner.controller)?;
        owner_key(work.server, &owner, pod)
    });
    let owners: BTreeSet<_> = owners.collect();
    let asked = owners.iter().filter_map(|(resource, key)| {
        let owner = work.server.store.get(resource, key)?.content.value();
        usize::try_from(meta::i64_field(&owner, &["spec", "replicas"])?).ok()
    });
    let expected = asked.sum();
    let share = |value: &Value| deployment::share(value, expected, true);
    let wanted = match (&spec["minAvailable"], &spec["maxUnavailable"]) {
        (Value::Null, Value::Null) => 0,
        (Value::Null, most) => expected - share(most).min(expected),
        (least, _) => share(least),
    };
    (expected, wanted)
}
