//! Pods run, where there are nodes: the part of the scheduler and of the kubelet.
//!
//! A Pod whose image has `missing` in its name never gets that image; one whose image has `failing` ends with an error. So both
//! can be seen without a registry.

use argosy_object::{Value, meta};
use jiff::Timestamp;
use serde_json::json;

use super::{Work, garbage};
use crate::registry::GroupResource;

const KUBELET: &str = "kubelet";

/// A node as it registers itself.
pub(crate) fn node(name: &str, now: Timestamp) -> Value {
    let now = crate::api_server::stamp(now);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        }},
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
                "lastHeartbeatTime": now, "lastTransitionTime": now}],
        },
    })
}

pub(super) fn step(work: &mut Work<'_>, pod: &Value) {
    if meta::deletion_timestamp(pod).is_some() {
        return end(work, pod);
    }
    if !work.has_nodes() {
        return;
    }
    match meta::str_field(pod, &["status", "phase"]) {
        Some("Succeeded" | "Failed") => {
            // The Job has counted it.
            if meta::finalizers(pod).any(|name| name == JOB_TRACKING) {
                garbage::release(work.server, work.look, pod, JOB_TRACKING);
            }
        }
        Some("Running") => finish(work, pod),
        _ => start(work, pod),
    }
}

const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// A deleted Pod has stopped as soon as somebody looks.
fn end(work: &mut Work<'_>, pod: &Value) {
    if meta::finalizers(pod).any(|name| name == JOB_TRACKING) {
        return garbage::release(work.server, work.look, pod, JOB_TRACKING);
    }
    crate::write::delete_by_machinery(
        work.server,
        &work.look.resource,
        &work.look.key,
        Some(0),
        false,
        work.now,
    );
}

fn images(pod: &Value) -> impl Iterator<Item = &str> {
    let containers = meta::array_field(pod, &["spec", "containers"]).iter();
    containers.filter_map(|container| container["image"].as_str())
}

fn condition(kind: &str, status: &str, now: &str) -> Value {
    json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": now})
}

fn start(work: &mut Work<'_>, pod: &Value) {
    let now = work.stamp();
    let node = match meta::str_field(pod, &["spec", "nodeName"]).filter(|node| !node.is_empty()) {
        Some(node) => node.to_owned(),
        None => {
            let index = work.server.random.u32(..work.server.options.nodes);
            let node = format!("node-{index}");
            work.patch("kube-scheduler", "", &json!({"spec": {"nodeName": node}}));
            node
        }
    };
    if images(pod).any(|image| image.contains("missing")) {
        let statuses: Vec<Value> = meta::array_field(pod, &["spec", "containers"])
            .iter()
            .map(|container| {
                json!({
                    "name": container["name"], "image": container["image"], "imageID": "", "ready": false, "started": false,
                    "restartCount": 0,
                    "state": {"waiting": {"reason": "ImagePullBackOff",
                        "message": format!("Back-off pulling image {}", container["image"])}},
                })
            })
            .collect();
        let status = json!({"status": {
            "phase": "Pending", "startTime": now, "containerStatuses": statuses,
            "conditions": [condition("PodScheduled", "True", &now), condition("ContainersReady", "False", &now),
                condition("Ready", "False", &now), condition("Initialized", "True", &now)],
        }});
        if pod["status"]["containerStatuses"].is_null() {
            work.patch(KUBELET, "status", &status);
        }
        return;
    }
    let statuses: Vec<Value> = meta::array_field(pod, &["spec", "containers"])
        .iter()
        .map(|container| {
            json!({
                "name": container["name"], "image": container["image"], "imageID": container["image"],
                "containerID": format!("simulated://{}", meta::uid(pod)),
                "ready": true, "started": true, "restartCount": 0, "state": {"running": {"startedAt": now}},
            })
        })
        .collect();
    let address = format!(
        "10.244.{}.{}",
        work.server.random.u8(..),
        work.server.random.u8(1..255)
    );
    let conditions: Vec<Value> = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]
    .iter()
    .map(|kind| condition(kind, "True", &now))
    .collect();
    let number: u32 = node
        .rsplit('-')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or_default();
    let host = format!("10.0.0.{}", 10 + number % 200);
    work.patch(KUBELET, "status", &json!({"status": {
        "phase": "Running", "startTime": now, "hostIP": host, "hostIPs": [{"ip": host}],
        "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions, "containerStatuses": statuses,
    }}));
    touch_selectors(work, pod);
}

/// A Pod that is to end ends a second after it began.
fn finish(work: &mut Work<'_>, pod: &Value) {
    let ends = meta::str_field(pod, &["spec", "restartPolicy"]).is_some_and(|policy| policy != "Always");
    if !ends {
        return;
    }
    let started =
        meta::str_field(pod, &["status", "startTime"]).and_then(|time| time.parse::<Timestamp>().ok());
    if started.is_some_and(|started| work.now.duration_since(started).as_secs() < 1) {
        return work.later(1);
    }
    let fails = images(pod).any(|image| image.contains("failing"));
    let (phase, code, reason) = if fails {
        ("Failed", 1, "Error")
    } else {
        ("Succeeded", 0, "Completed")
    };
    let now = work.stamp();
    let mut statuses = meta::array_field(pod, &["status", "containerStatuses"]).to_vec();
    for status in &mut statuses {
        status["ready"] = false.into();
        status["started"] = false.into();
        status["state"] = json!({"terminated": {
            "exitCode": code, "reason": reason, "startedAt": pod["status"]["startTime"], "finishedAt": now,
        }});
    }
    let conditions: Vec<Value> = meta::array_field(pod, &["status", "conditions"])
        .iter()
        .map(|one| match one["type"].as_str() {
            Some("Ready" | "ContainersReady") => {
                let mut one = one.clone();
                one["status"] = "False".into();
                one["reason"] = "PodCompleted".into();
                one
            }
            _ => one.clone(),
        })
        .collect();
    let status = json!({"status": {"phase": phase, "containerStatuses": statuses, "conditions": conditions}});
    work.patch(KUBELET, "status", &status);
}

/// Services and disruption budgets select Pods; there is no telling which from the Pod alone.
fn touch_selectors(work: &mut Work<'_>, pod: &Value) {
    let prefix = format!("{}/", meta::namespace(pod));
    for (group, plural) in [("", "services"), ("policy", "poddisruptionbudgets")] {
        let resource = GroupResource::new(group, plural);
        let table = work.server.store.table(&resource);
        let keys = table.into_iter().flat_map(|table| table.objects.keys());
        let near: Vec<_> = keys.filter(|key| key.starts_with(&prefix)).cloned().collect();
        for key in near {
            work.server.controllers.look(&resource, &key);
        }
    }
}
