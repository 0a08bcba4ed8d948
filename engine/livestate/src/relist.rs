//! How a full list replaces what was known, without a gap.
//!
//! Objects of the list are taken over as they come, newer ones only, so nothing is held twice. At the end of a
//! complete list, and only then, what it did not contain is deleted: unless it is newer than the list, because an
//! answer to a write of ours can be ahead of it. A list that breaks off changes nothing that it has not told.

use std::collections::HashSet;
use std::sync::Arc;

use argosy_object::{GroupKind, ResourceKey};

use crate::cluster::{ClusterState, Touched};
use crate::resource::{Resource, is_older};

/// What one list covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// The kind.
    pub kind: GroupKind,
    /// One namespace, or all (and for cluster-scoped kinds) if empty.
    pub namespace: String,
}

impl Scope {
    /// All objects of a kind.
    pub fn all(kind: GroupKind) -> Self {
        Scope {
            kind,
            namespace: String::new(),
        }
    }

    fn covers(&self, key: &ResourceKey) -> bool {
        self.namespace.is_empty() || self.namespace == key.namespace
    }
}

impl ClusterState {
    /// A list begins. One of the same scope that has not come to its end is void.
    pub fn begin_relist(&mut self, scope: &Scope) {
        self.relists.insert(scope.clone(), HashSet::new());
    }

    /// An object of the list.
    pub fn relist(&mut self, scope: &Scope, resource: Resource) -> Touched {
        if let Some(listed) = self.relists.get_mut(scope) {
            listed.insert(resource.key.clone());
        }
        self.upsert(resource)
    }

    /// The list is complete and true for `resource_version`. Deletes what it did not contain and says what that touches.
    pub fn end_relist(&mut self, scope: &Scope, resource_version: &str) -> Vec<Touched> {
        let Some(listed) = self.relists.remove(scope) else {
            return Vec::new();
        };
        // Whatever was deleted before the list is not in it.
        self.forget_deleted(&scope.kind);
        let vanished: Vec<Arc<ResourceKey>> =
            self.view.by_kind.get(&scope.kind).map_or_else(Vec::new, |keys| {
                let gone = |key: &&Arc<ResourceKey>| {
                    scope.covers(key)
                        && !listed.contains(*key)
                        && self
                            .view
                            .rows
                            .get(&***key)
                            .is_some_and(|row| !is_older(resource_version, &row.resource_version))
                };
                keys.iter().filter(gone).cloned().collect()
            });
        vanished.into_iter().map(|key| self.remove(&key)).collect()
    }

    /// How many objects of the scope are known, to be compared with a count of the server at this version. `None` if
    /// something newer is known already (an answer to a write of ours), so that the two cannot be compared.
    pub fn count_at(&self, scope: &Scope, resource_version: &str) -> Option<u64> {
        if self.expects_deletions(&scope.kind) {
            return None;
        }
        let Some(keys) = self.view.by_kind.get(&scope.kind) else {
            return Some(0);
        };
        let mut count = 0;
        for key in keys.iter().filter(|key| scope.covers(key)) {
            if let Some(row) = self.view.rows.get(&**key) {
                if is_older(resource_version, &row.resource_version) {
                    return None;
                }
                count += 1;
            }
        }
        Some(count)
    }

    /// The list broke off.
    pub fn abandon_relist(&mut self, scope: &Scope) {
        self.relists.remove(scope);
    }

    /// The kind is not served (or not looked at) any longer: its objects are gone from here.
    pub fn remove_kind(&mut self, kind: &GroupKind) -> Vec<Touched> {
        self.relists.retain(|scope, _| scope.kind != *kind);
        self.forget_deleted(kind);
        let keys: Vec<_> = self
            .view
            .by_kind
            .get(kind)
            .map_or_else(Vec::new, |keys| keys.iter().cloned().collect());
        keys.into_iter().map(|key| self.remove(&key)).collect()
    }
}
