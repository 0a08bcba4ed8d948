//! A Deployment has a ReplicaSet for each template, and moves its replicas to the newest.

use argosy_object::{Value, meta};
use serde_json::json;

use super::{Work, controller_reference, key_of, put_count, template_hash, with_condition};
use crate::registry::GroupResource;

const MANAGER: &str = "kube-controller-manager";
const REVISION: &str = "deployment.kubernetes.io/revision";
const HASH: &str = "pod-template-hash";

pub(super) fn step(work: &mut Work<'_>, deployment: &Value) {
    if meta::deletion_timestamp(deployment).is_some() {
        return;
    }
    let sets = work.owned(deployment, "apps", "replicasets");
    let hash = template_hash(&deployment["spec"]["template"]);
    let (mut new, mut old): (Vec<Value>, Vec<Value>) = sets
        .into_iter()
        .partition(|set| meta::label(set, HASH) == Some(&hash));
    let replicas = count(deployment, &["spec", "replicas"]);
    let paused = meta::bool_field(deployment, &["spec", "paused"]).unwrap_or_default();
    let recreate = deployment["spec"]["strategy"]["type"] == "Recreate";
    let (surge, unavailable) = room(deployment, replicas);
    let total_old: usize = old.iter().map(|set| count(set, &["spec", "replicas"])).sum();
    let pods_old: usize = old.iter().map(|set| count(set, &["status", "replicas"])).sum();

    let wanted = match recreate {
        true if pods_old > 0 || total_old > 0 => 0,
        true => replicas,
        false => replicas.min((replicas + surge).saturating_sub(total_old)),
    };
    if !paused {
        match new.first() {
            None => {
                let revision = 1 + old.iter().filter_map(revision).max().unwrap_or_default();
                let set = replica_set(deployment, &hash, wanted, replicas + surge, revision);
                new.extend(work.create(
                    "apps",
                    "v1",
                    meta::namespace(deployment),
                    "replicasets",
                    MANAGER,
                    &set,
                ));
            }
            Some(set) => {
                // A rollout goes on, a smaller number of replicas is obeyed at once.
                let has = count(set, &["spec", "replicas"]);
                let wanted = if has > replicas {
                    replicas
                } else {
                    wanted.max(has.min(replicas))
                };
                scale(work, set, wanted);
            }
        }
        old.sort_by_key(|set| revision(set).unwrap_or_default());
        scale_down(
            work,
            &old,
            &new,
            if recreate {
                None
            } else {
                Some(replicas.saturating_sub(unavailable))
            },
        );
        forget(work, deployment, &old);
    }
    if let Some(number) = new.first().and_then(revision) {
        let number = number.to_string();
        if meta::annotation(deployment, REVISION) != Some(&number) {
            // By way of the status, so that the generation does not count it.
            work.patch(
                MANAGER,
                "status",
                &json!({"metadata": {"annotations": {REVISION: number}}}),
            );
        }
    }
    tell(work, deployment, &new, &old, (replicas, unavailable), &hash);
}

fn count(object: &Value, path: &[&str]) -> usize {
    usize::try_from(meta::i64_field(object, path).unwrap_or_default()).unwrap_or_default()
}

fn revision(set: &Value) -> Option<u64> {
    meta::annotation(set, REVISION)?.parse().ok()
}

/// How many Pods there may be more, and how many may be missing.
fn room(deployment: &Value, replicas: usize) -> (usize, usize) {
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
    let (surge, unavailable) = (
        share(&rolling["maxSurge"], replicas, true),
        share(&rolling["maxUnavailable"], replicas, false),
    );
    // Something must be able to move.
    if surge == 0 && unavailable == 0 {
        (0, 1)
    } else {
        (surge, unavailable)
    }
}

/// A number, or so many percent of `whole`.
pub(super) fn share(value: &Value, whole: usize, round_up: bool) -> usize {
    match value {
        Value::Number(number) => number
            .as_u64()
            .and_then(|number| usize::try_from(number).ok())
            .unwrap_or_default(),
        Value::String(percent) => {
            let percent: usize = percent.trim_end_matches('%').parse().unwrap_or_default();
            let hundredths = whole * percent;
            if round_up {
                hundredths.div_ceil(100)
            } else {
                hundredths / 100
            }
        }
        _ => 0,
    }
}

fn replica_set(deployment: &Value, hash: &str, replicas: usize, most: usize, revision: u64) -> Value {
    let mut template = deployment["spec"]["template"].clone();
    meta::set_label(&mut template, HASH, hash);
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH] = hash.into();
    let mut annotations = deployment["metadata"]["annotations"].clone();
    if annotations.is_null() {
        annotations = json!({});
    }
    if let Value::Object(annotations) = &mut annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        annotations.insert(
            "deployment.kubernetes.io/desired-replicas".into(),
            deployment["spec"]["replicas"].to_string().into(),
        );
        annotations.insert(
            "deployment.kubernetes.io/max-replicas".into(),
            most.to_string().into(),
        );
        annotations.insert(REVISION.into(), revision.to_string().into());
    }
    json!({
        "metadata": {
            "name": format!("{}-{hash}", meta::name(deployment)), "labels": template["metadata"]["labels"],
            "annotations": annotations, "ownerReferences": controller_reference(deployment, "apps/v1", "Deployment"),
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    })
}

fn scale(work: &mut Work<'_>, set: &Value, replicas: usize) {
    if count(set, &["spec", "replicas"]) != replicas {
        let sets = GroupResource::new("apps", "replicasets");
        work.patch_other(
            &sets,
            &key_of(set),
            MANAGER,
            "",
            &json!({"spec": {"replicas": replicas}}),
        );
    }
}

/// Takes replicas from the old sets: as many as can be missed, or all of them at once.
fn scale_down(work: &mut Work<'_>, old: &[Value], new: &[Value], least_available: Option<usize>) {
    let spec = |sets: &[Value]| {
        sets.iter()
            .map(|set| count(set, &["spec", "replicas"]))
            .sum::<usize>()
    };
    let available = |sets: &[Value]| {
        sets.iter()
            .map(|set| count(set, &["status", "availableReplicas"]))
            .sum::<usize>()
    };
    let mut budget = match least_available {
        None => spec(old),
        Some(least) => {
            let new_missing = spec(new).saturating_sub(available(new));
            (spec(old) + spec(new)).saturating_sub(least + new_missing)
        }
    };
    for set in old {
        let has = count(set, &["spec", "replicas"]);
        let taken = has.min(budget);
        budget -= taken;
        if taken > 0 {
            scale(work, set, has - taken);
        }
    }
}

/// Deletes the oldest empty sets beyond the history that is wanted.
fn forget(work: &mut Work<'_>, deployment: &Value, old: &[Value]) {
    let limit = count(deployment, &["spec", "revisionHistoryLimit"]);
    let empty =
        |set: &&Value| count(set, &["spec", "replicas"]) == 0 && count(set, &["status", "replicas"]) == 0;
    let empty: Vec<&Value> = old.iter().filter(empty).collect();
    for set in &empty[..empty.len().saturating_sub(limit)] {
        work.delete("apps", "replicasets", &key_of(set));
    }
}

fn tell(
    work: &mut Work<'_>,
    deployment: &Value,
    new: &[Value],
    old: &[Value],
    (replicas, unavailable): (usize, usize),
    hash: &str,
) {
    let all = |field: &str| {
        new.iter()
            .chain(old)
            .map(|set| count(set, &["status", field]))
            .sum::<usize>()
    };
    let updated: usize = new.iter().map(|set| count(set, &["status", "replicas"])).sum();
    let available = all("availableReplicas");
    let total = all("replicas");
    let mut status = json!({});
    if let Some(generation) = meta::generation(deployment) {
        status["observedGeneration"] = generation.into();
    }
    put_count(&mut status, "replicas", total);
    put_count(&mut status, "updatedReplicas", updated);
    put_count(&mut status, "readyReplicas", all("readyReplicas"));
    put_count(&mut status, "availableReplicas", available);
    put_count(
        &mut status,
        "unavailableReplicas",
        replicas.saturating_sub(available),
    );

    let now = work.stamp();
    let known = meta::array_field(deployment, &["status", "conditions"]);
    let name = meta::name(deployment);
    let complete = updated == replicas && total == replicas && available == replicas;
    let (reason, message) = if complete {
        (
            "NewReplicaSetAvailable",
            format!("ReplicaSet \"{name}-{hash}\" has successfully progressed."),
        )
    } else {
        (
            "ReplicaSetUpdated",
            format!("ReplicaSet \"{name}-{hash}\" is progressing."),
        )
    };
    let conditions = if available >= replicas.saturating_sub(unavailable) {
        with_condition(
            known,
            "Available",
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
            &now,
        )
    } else {
        with_condition(
            known,
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
            &now,
        )
    };
    let mut conditions = with_condition(&conditions, "Progressing", "True", reason, &message, &now);
    for condition in &mut conditions {
        let before = known.iter().find(|one| one["type"] == condition["type"]);
        let same = before.is_some_and(|before| {
            before["reason"] == condition["reason"] && before["message"] == condition["message"]
        });
        condition["lastUpdateTime"] = match before {
            Some(before) if same => before["lastUpdateTime"].clone(),
            _ => now.as_str().into(),
        };
    }
    status["conditions"] = conditions.into();
    work.set_status(MANAGER, deployment, status);
}
