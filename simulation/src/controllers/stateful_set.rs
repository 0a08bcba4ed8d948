//! A StatefulSet has Pods with numbers, one after the other, and a claim for each of them.

use argosy_object::{Value, meta};
use serde_json::json;

use super::{Work, controller_reference, is_ready, key_of, pod_of, put_count, template_hash};
use crate::registry::GroupResource;

const MANAGER: &str = "kube-controller-manager";
const REVISION: &str = "controller-revision-hash";

pub(super) fn step(work: &mut Work<'_>, set: &Value) {
    if meta::deletion_timestamp(set).is_some() {
        return;
    }
    let (name, namespace) = (meta::name(set), meta::namespace(set));
    let revision = format!("{name}-{}", template_hash(&set["spec"]["template"]));
    record_revision(work, set, "StatefulSet", &revision);
    let wanted =
        usize::try_from(meta::i64_field(set, &["spec", "replicas"]).unwrap_or(1)).unwrap_or_default();
    let parallel = set["spec"]["podManagementPolicy"] == "Parallel";
    let pods = work.owned(set, "", "pods");
    let by_number = |number: usize| {
        pods.iter()
            .find(|pod| meta::name(pod) == format!("{name}-{number}"))
    };

    for number in 0..wanted {
        match by_number(number) {
            None => {
                claim(work, set, number);
                let pod = pod(set, number, &revision);
                work.create("", "v1", namespace, "pods", MANAGER, &pod);
                if !parallel {
                    break;
                }
            }
            Some(pod) if !is_ready(pod) && !parallel => break,
            Some(_) => {}
        }
    }
    let surplus = pods
        .iter()
        .rev()
        .find(|pod| number_of(pod, name).is_none_or(|number| number >= wanted));
    if let Some(pod) = surplus.filter(|pod| meta::deletion_timestamp(pod).is_none()) {
        work.delete("", "pods", &key_of(pod));
    } else if set["spec"]["updateStrategy"]["type"] == "RollingUpdate"
        && pods.len() == wanted
        && pods.iter().all(is_ready)
    {
        roll(work, set, &pods, &revision);
    }
    tell(work, set, &revision);
}

fn number_of(pod: &Value, name: &str) -> Option<usize> {
    meta::name(pod)
        .strip_prefix(name)?
        .strip_prefix('-')?
        .parse()
        .ok()
}

/// Deletes the last Pod of an old revision; its successor comes with the new one.
fn roll(work: &mut Work<'_>, set: &Value, pods: &[Value], revision: &str) {
    let partition =
        meta::i64_field(set, &["spec", "updateStrategy", "rollingUpdate", "partition"]).unwrap_or_default();
    let from = usize::try_from(partition).unwrap_or_default();
    let outdated = |pod: &&Value| {
        meta::label(pod, REVISION) != Some(revision)
            && number_of(pod, meta::name(set)).is_some_and(|number| number >= from)
    };
    if let Some(pod) = pods
        .iter()
        .filter(outdated)
        .max_by_key(|pod| number_of(pod, meta::name(set)))
    {
        work.delete("", "pods", &key_of(pod));
    }
}

fn pod(set: &Value, number: usize, revision: &str) -> Value {
    let pod_name = format!("{}-{number}", meta::name(set));
    let number_text = number.to_string();
    let owner = controller_reference(set, "apps/v1", "StatefulSet");
    let labels = [
        ("statefulset.kubernetes.io/pod-name", pod_name.as_str()),
        ("apps.kubernetes.io/pod-index", number_text.as_str()),
        (REVISION, revision),
    ];
    let mut pod = pod_of(&set["spec"]["template"], owner, &labels);
    let mut volumes: Vec<Value> = meta::array_field(&pod, &["spec", "volumes"]).to_vec();
    for template in meta::array_field(set, &["spec", "volumeClaimTemplates"]) {
        let name = meta::name(template);
        volumes.retain(|volume| volume["name"] != name);
        volumes.push(
            json!({"name": name, "persistentVolumeClaim": {"claimName": format!("{name}-{pod_name}")}}),
        );
    }
    if !volumes.is_empty() {
        pod["spec"]["volumes"] = volumes.into();
    }
    pod["spec"]["hostname"] = pod_name.as_str().into();
    if let Some(service) =
        meta::str_field(set, &["spec", "serviceName"]).filter(|service| !service.is_empty())
    {
        pod["spec"]["subdomain"] = service.into();
    }
    pod["metadata"]["name"] = pod_name.into();
    pod
}

fn claim(work: &mut Work<'_>, set: &Value, number: usize) {
    for template in meta::array_field(set, &["spec", "volumeClaimTemplates"]) {
        let name = format!("{}-{}-{number}", meta::name(template), meta::name(set));
        let claims = GroupResource::new("", "persistentvolumeclaims");
        let namespace = meta::namespace(set);
        if work
            .server
            .store
            .get(&claims, &format!("{namespace}/{name}"))
            .is_some()
        {
            continue;
        }
        let labels = &set["spec"]["selector"]["matchLabels"];
        let claim = json!({"metadata": {"name": name, "labels": labels}, "spec": template["spec"]});
        work.create("", "v1", namespace, "persistentvolumeclaims", MANAGER, &claim);
    }
}

/// The object that remembers a template.
pub(super) fn record_revision(work: &mut Work<'_>, owner: &Value, kind: &str, name: &str) {
    let namespace = meta::namespace(owner);
    let revisions = GroupResource::new("apps", "controllerrevisions");
    if work
        .server
        .store
        .get(&revisions, &format!("{namespace}/{name}"))
        .is_some()
    {
        return;
    }
    let number = 1 + work.owned(owner, "apps", "controllerrevisions").len();
    let hash = name.rsplit('-').next().unwrap_or_default();
    let revision = json!({
        "metadata": {
            "name": name, "labels": {"controller.kubernetes.io/hash": hash},
            "ownerReferences": controller_reference(owner, "apps/v1", kind),
        },
        "data": {"spec": {"template": owner["spec"]["template"]}},
        "revision": number,
    });
    work.create("apps", "v1", namespace, "controllerrevisions", MANAGER, &revision);
}

fn tell(work: &mut Work<'_>, set: &Value, revision: &str) {
    let pods = work.owned(set, "", "pods");
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let updated = pods
        .iter()
        .filter(|pod| meta::label(pod, REVISION) == Some(revision))
        .count();
    // The old revision is the current one until every Pod has the new one.
    let known = meta::str_field(set, &["status", "currentRevision"]).unwrap_or(revision);
    let done = updated == pods.len() && ready == pods.len();
    let current = if done { revision } else { known };
    let of_current = pods
        .iter()
        .filter(|pod| meta::label(pod, REVISION) == Some(current))
        .count();
    let mut status = json!({
        "replicas": pods.len(), "availableReplicas": ready, "currentRevision": current, "updateRevision": revision,
        "collisionCount": 0,
    });
    put_count(&mut status, "readyReplicas", ready);
    put_count(&mut status, "currentReplicas", of_current);
    put_count(&mut status, "updatedReplicas", updated);
    if let Some(generation) = meta::generation(set) {
        status["observedGeneration"] = generation.into();
    }
    work.set_status(MANAGER, set, status);
}
