//! What other objects of a cluster know about the health of one, from its live state.

use argosy_health::Neighbours;
use argosy_livestate::{Resource, Snapshot};
use argosy_object::{ResourceKey, Value, meta};

/// The objects of a cluster.
pub(crate) struct InCluster<'a>(pub(crate) &'a Snapshot);

impl Neighbours for InCluster<'_> {
    fn storage_class(&self, name: &str) -> Option<Value> {
        let key = ResourceKey::new("storage.k8s.io", "StorageClass", "", name);
        self.0.get(&key).map(|class| class.value())
    }

    /// Owned by the workload, or by the ReplicaSets between.
    fn pods(&self, workload: &Value) -> Vec<Value> {
        let is = |resource: &Resource, kind: &str| &*resource.key.kind == kind;
        let owned = self.0.children(meta::uid(workload));
        let below = owned
            .iter()
            .filter(|resource| is(resource, "ReplicaSet"))
            .flat_map(|set| self.0.children(&set.uid));
        let all = owned.iter().cloned().chain(below);
        all.filter(|resource| is(resource, "Pod"))
            .map(|pod| pod.value())
            .collect()
    }
}
