//! The nodes that an Application's Pods are on: what they have, and who asks for it.

use std::collections::BTreeMap;

use argosy_api::v1alpha1::{HostInfo, HostResourceInfo};
use argosy_livestate::Snapshot;
use argosy_livestate::placement::{Asks, Placement, RESOURCES};
use argosy_object::{Document, ResourceKey, Value, meta};

/// The Pods of one Application, by node.
#[derive(Default)]
pub(super) struct Hosts(BTreeMap<String, Own>);

/// What the Application's Pods on one node ask for.
#[derive(Default)]
struct Own {
    all: Asks,
    /// Those that have not ended: they are among the node's guests.
    running: Asks,
}

impl Hosts {
    /// Counts an object of the Application, if it is a Pod on a node.
    pub(super) fn add(&mut self, object: &Value) {
        if (meta::group(object), meta::kind(object)) != ("", "Pod") {
            return;
        }
        let Some(node) = meta::str_field(object, &["spec", "nodeName"]) else {
            return;
        };
        let own = self.0.entry(node.to_owned()).or_default();
        Document::view(object, |pod| {
            own.all = own.all.with(Asks::of(&pod));
            if let Some(placement) = Placement::of(&pod) {
                own.running = own.running.with(placement.asks);
            }
        });
    }

    /// The nodes that are there, by name.
    pub(super) fn finish(self, snapshot: &Snapshot, labels: &[String]) -> Vec<HostInfo> {
        let hosts = self.0.into_iter();
        hosts
            .filter_map(|(name, own)| host(name, &own, snapshot, labels))
            .collect()
    }
}

fn host(name: String, own: &Own, snapshot: &Snapshot, labels: &[String]) -> Option<HostInfo> {
    let node = snapshot
        .get(&ResourceKey::new("", "Node", "", name.as_str()))?
        .value();
    let capacity = Document::view(&node, |node| Asks::at(&node, &["status", "capacity"]));
    let neighbors = snapshot.asked_of(&name).without(own.running);
    let resources = RESOURCES.iter().enumerate();
    let resources = resources.map(|(at, resource)| HostResourceInfo {
        resource_name: (*resource).to_owned(),
        requested_by_app: own.all.0[at],
        requested_by_neighbors: neighbors.0[at],
        capacity: capacity.0[at],
    });
    let system = node.pointer("/status/nodeInfo").cloned();
    let shown = labels
        .iter()
        .filter_map(|label| Some((label.clone(), meta::label(&node, label)?.to_owned())));
    Some(HostInfo {
        resources_info: resources.filter(|resource| resource.capacity > 0).collect(),
        system_info: system
            .and_then(|system| serde_json::from_value(system).ok())
            .unwrap_or_default(),
        labels: shown.collect(),
        name,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use argosy_livestate::{ClusterState, Event, Resource};
    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: &str, phase: &str, cpu: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "n", "uid": name},
            "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}]},
            "status": {"phase": phase}})
    }

    #[test]
    fn a_host_tells_what_the_application_and_its_neighbours_ask_for() {
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "node-1", "uid": "n1", "labels": {"zone": "a", "secret": "x"}},
            "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "nodeInfo": {"architecture": "arm64"}}});
        let ours = [
            pod("web-1", "node-1", "Running", "250m"),
            pod("web-2", "node-1", "Succeeded", "100m"),
            pod("web-3", "gone", "Running", "1"),
            pod("web-4", "", "Pending", "1"),
        ];
        let others = [
            pod("other-1", "node-1", "Running", "2"),
            pod("other-2", "node-1", "Failed", "1"),
            pod("other-3", "node-2", "Running", "1"),
        ];
        let mut cluster = ClusterState::new();
        for object in ours.iter().chain(&others).chain([&node]) {
            cluster.apply(Event::Upsert(Box::new(Resource::new(object, None::<Arc<str>>))));
        }
        let mut hosts = Hosts::default();
        ours.iter().for_each(|pod| hosts.add(pod));
        let hosts = hosts.finish(&cluster.snapshot(), &["zone".to_owned(), "rack".to_owned()]);
        assert_eq!(hosts.len(), 1, "only nodes that are there");
        let host = &hosts[0];
        assert_eq!(
            (host.name.as_str(), host.system_info.architecture.as_str()),
            ("node-1", "arm64")
        );
        assert_eq!(host.labels, BTreeMap::from([("zone".to_owned(), "a".to_owned())]));
        let mib = 1000 * 1024 * 1024;
        let told: Vec<_> = host
            .resources_info
            .iter()
            .map(|info| {
                (
                    info.resource_name.as_str(),
                    info.requested_by_app,
                    info.requested_by_neighbors,
                    info.capacity,
                )
            })
            .collect();
        // As in Argo CD, what has ended counts for the Application and not for its neighbours.
        assert_eq!(
            told,
            [
                ("cpu", 350, 2000, 4000),
                ("memory", 128 * mib, 64 * mib, 8192 * mib)
            ]
        );
    }
}
