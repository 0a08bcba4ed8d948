//! Snapshot → resource tree. Pure.

use std::collections::HashSet;
use std::sync::Arc;

use argosy_api::meta::Time;
use argosy_api::v1alpha1::{
    Application, ApplicationTree, HealthStatus, InfoItem, ResourceNetworkingInfo, ResourceNode, ResourceRef,
};
use argosy_health::Customizations;
use argosy_livestate::{Resource, Snapshot};
use argosy_object::{ResourceKey, Value, meta};

use crate::neighbours::InCluster;
use crate::reconcile::summary;
use crate::tree::hosts::Hosts;

/// Everything that the Application with this instance name owns: what it tracks or manages, and what that owns. Of the nodes
/// that its Pods are on, those of their labels are told that are in `node_labels`.
pub(super) fn tree(
    app: &Application,
    instance: &str,
    snapshot: &Snapshot,
    health: &Customizations,
    node_labels: &[String],
) -> ApplicationTree {
    let mut roots = snapshot.by_app(instance);
    let mut missing = Vec::new();
    let known: HashSet<Arc<ResourceKey>> = roots.iter().map(|root| root.key.clone()).collect();
    for managed in &app.status.resources {
        let key = ResourceKey::new(&managed.group, &managed.kind, &managed.namespace, &managed.name);
        if known.contains(&key) {
            continue;
        }
        match snapshot.get(&key) {
            Some(live) => roots.push(live),
            None => missing.push(ResourceNode {
                resource_ref: ResourceRef {
                    group: managed.group.clone(),
                    version: managed.version.clone(),
                    kind: managed.kind.clone(),
                    namespace: managed.namespace.clone(),
                    name: managed.name.clone(),
                    uid: String::new(),
                },
                health: Some(HealthStatus {
                    status: "Missing".to_owned(),
                    ..HealthStatus::default()
                }),
                ..ResourceNode::default()
            }),
        }
    }
    let mut seen = HashSet::new();
    let (mut nodes, mut hosts) = (Vec::new(), Hosts::default());
    for root in roots {
        for resource in snapshot.descendants(&root) {
            if seen.insert(resource.key.clone()) {
                let object = resource.value();
                hosts.add(&object);
                nodes.push(node(&resource, &object, snapshot, health));
            }
        }
    }
    nodes.extend(missing);
    nodes.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
    ApplicationTree {
        nodes,
        hosts: hosts.finish(snapshot, node_labels),
        ..ApplicationTree::default()
    }
}

fn sort_key(node: &ResourceNode) -> (&str, &str, &str, &str) {
    let found = &node.resource_ref;
    (&found.group, &found.kind, &found.namespace, &found.name)
}

fn reference(resource: &Resource) -> ResourceRef {
    let key = &resource.key;
    ResourceRef {
        group: key.group.to_string(),
        version: resource.version.to_string(),
        kind: key.kind.to_string(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        uid: resource.uid.to_string(),
    }
}

fn node(resource: &Resource, object: &Value, snapshot: &Snapshot, health: &Customizations) -> ResourceNode {
    let assessed =
        argosy_health::assess_among(object, health, &InCluster(snapshot)).map(|health| HealthStatus {
            status: health.status.to_string(),
            message: health.message,
            ..HealthStatus::default()
        });
    ResourceNode {
        resource_ref: reference(resource),
        parent_refs: snapshot
            .parents(resource)
            .iter()
            .map(|parent| reference(parent))
            .collect(),
        info: info(object),
        networking_info: networking(object),
        resource_version: resource.resource_version.to_string(),
        images: images(object),
        health: assessed,
        created_at: Time::parse(meta::creation_timestamp(object).unwrap_or_default()).ok(),
    }
}

/// Nodes of objects as they are, in order.
pub(super) fn nodes(
    found: &[Arc<Resource>],
    snapshot: &Snapshot,
    health: &Customizations,
) -> Vec<ResourceNode> {
    let mut nodes: Vec<_> = found
        .iter()
        .map(|resource| node(resource, &resource.value(), snapshot, health))
        .collect();
    nodes.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
    nodes
}

/// What the UI and CLI show beside a name.
fn info(object: &Value) -> Vec<InfoItem> {
    let item = |name: &str, value: String| InfoItem {
        name: name.to_owned(),
        value,
    };
    match (meta::group(object), meta::kind(object)) {
        ("", "Pod") => {
            let (reason, ready, total, restarts) = pod(object);
            let mut items = vec![item("Status Reason", reason)];
            if let Some(node) = meta::str_field(object, &["spec", "nodeName"]) {
                items.push(item("Node", node.to_owned()));
            }
            items.push(item("Containers", format!("{ready}/{total}")));
            if restarts > 0 {
                items.push(item("Restart Count", restarts.to_string()));
            }
            items
        }
        ("apps", "ReplicaSet") => {
            let revision = meta::annotation(object, "deployment.kubernetes.io/revision");
            revision
                .map(|revision| item("Revision", format!("Rev:{revision}")))
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Why a pod is as it is, its ready and all containers, and how often they were started anew.
fn pod(object: &Value) -> (String, usize, usize, i64) {
    let text = |value: &Value, path: &[&str]| meta::str_field(value, path).unwrap_or_default().to_owned();
    let mut reason = match text(object, &["status", "reason"]) {
        reason if reason.is_empty() => text(object, &["status", "phase"]),
        reason => reason,
    };
    let containers = meta::array_field(object, &["status", "containerStatuses"]);
    let (mut ready, mut restarts) = (0, 0);
    for container in containers {
        restarts += container
            .get("restartCount")
            .and_then(Value::as_i64)
            .unwrap_or_default();
        if container.get("ready").and_then(Value::as_bool) == Some(true) {
            ready += 1;
        }
        let waiting = text(container, &["state", "waiting", "reason"]);
        let terminated = text(container, &["state", "terminated", "reason"]);
        if !waiting.is_empty() {
            reason = waiting;
        } else if !terminated.is_empty() {
            reason = terminated;
        }
    }
    if meta::str_field(object, &["metadata", "deletionTimestamp"]).is_some() {
        "Terminating".clone_into(&mut reason);
    }
    let total = meta::array_field(object, &["spec", "containers"]).len();
    (reason, ready, total, restarts)
}

fn texts(object: &Value, path: &[&str]) -> std::collections::BTreeMap<String, String> {
    let map = meta::field(object, path).and_then(Value::as_object);
    let pairs = map.into_iter().flatten();
    pairs
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// How traffic reaches it, for kinds that have to do with traffic.
fn networking(object: &Value) -> Option<ResourceNetworkingInfo> {
    let urls = summary::external_urls(object);
    let mut info = ResourceNetworkingInfo {
        external_urls: urls,
        ..ResourceNetworkingInfo::default()
    };
    match (meta::group(object), meta::kind(object)) {
        ("", "Pod") => info.labels = texts(object, &["metadata", "labels"]),
        ("", "Service") => info.target_labels = texts(object, &["spec", "selector"]),
        _ => {}
    }
    (info != ResourceNetworkingInfo::default()).then_some(info)
}

fn images(object: &Value) -> Vec<String> {
    let template: &[&str] = match (meta::group(object), meta::kind(object)) {
        ("", "Pod") => &["spec"],
        ("batch", "CronJob") => &["spec", "jobTemplate", "spec", "template", "spec"],
        _ => &["spec", "template", "spec"],
    };
    let of = |list: &str| {
        let path: Vec<&str> = template.iter().copied().chain([list]).collect();
        let containers = meta::array_field(object, &path).iter();
        containers
            .filter_map(|container| meta::str_field(container, &["image"]).map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let mut images = of("initContainers");
    images.extend(of("containers"));
    images.sort_unstable();
    images.dedup();
    images
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use argosy_api::v1alpha1::ResourceStatus;
    use argosy_livestate::{ClusterState, Event};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tree_has_what_is_tracked_what_that_owns_and_what_is_missing() {
        let mut cluster = ClusterState::new();
        let mut add = |object: Value, app: Option<&str>| {
            cluster.apply(Event::Upsert(Box::new(Resource::new(
                &object,
                app.map(Arc::from),
            ))));
        };
        add(
            json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web", "namespace": "n", "uid": "1",
                "annotations": {"deployment.kubernetes.io/revision": "3"}}}),
            Some("shop"),
        );
        add(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-a", "namespace": "n", "uid": "2",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1"}]},
                "spec": {"nodeName": "node-1", "containers": [{"image": "nginx:1"}]},
                "status": {"phase": "Running", "containerStatuses": [{"ready": false, "restartCount": 2,
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}),
            None,
        );
        add(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other", "namespace": "n", "uid": "3"}}),
            Some("other"),
        );
        let mut app = Application::default();
        app.status.resources = vec![ResourceStatus {
            version: "v1".into(),
            kind: "Service".into(),
            namespace: "n".into(),
            name: "web".into(),
            ..ResourceStatus::default()
        }];
        let tree = tree(&app, "shop", &cluster.snapshot(), &Customizations::default(), &[]);
        let names: Vec<_> = tree
            .nodes
            .iter()
            .map(|node| (node.resource_ref.kind.as_str(), node.resource_ref.name.as_str()))
            .collect();
        assert_eq!(
            names,
            [("Pod", "web-a"), ("Service", "web"), ("ReplicaSet", "web")]
        );
        let pod = &tree.nodes[0];
        assert_eq!(pod.parent_refs[0].uid, "1");
        assert_eq!(pod.images, ["nginx:1"]);
        let info: Vec<_> = pod
            .info
            .iter()
            .map(|item| (item.name.as_str(), item.value.as_str()))
            .collect();
        assert_eq!(
            info,
            [
                ("Status Reason", "CrashLoopBackOff"),
                ("Node", "node-1"),
                ("Containers", "0/1"),
                ("Restart Count", "2")
            ]
        );
        assert_eq!(tree.nodes[1].health.as_ref().unwrap().status, "Missing");
        assert_eq!(tree.nodes[2].info[0].value, "Rev:3");
    }
}
