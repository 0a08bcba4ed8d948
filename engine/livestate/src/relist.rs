//! How a full list replaces what was known, without a gap.
//!
//! Objects of the list are taken over as they come, newer ones only, so nothing is held twice. At the end of a
//! complete list, and only then, what it did not contain is deleted: unless it is newer than the list, because an
//! answer to a write of ours can be ahead of it. A list that breaks off changes nothing that it has not told.

use argosy_object::GroupKind;

use crate::cluster::{ClusterState, Touched};
use crate::index::RowId;
use crate::resource::{Resource, is_older};
use crate::row::Row;

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

    pub(crate) fn covers(&self, row: &Row) -> bool {
        self.namespace.is_empty() || row.document.is_in(&self.namespace)
    }
}

/// The rows that a list has told so far: a bit each.
#[derive(Debug, Default)]
pub(crate) struct Listed(Vec<u64>);

impl Listed {
    fn insert(&mut self, row: RowId) {
        let at = row as usize / 64;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (row % 64);
    }

    fn contains(&self, row: RowId) -> bool {
        self.0
            .get(row as usize / 64)
            .is_some_and(|bits| bits >> (row % 64) & 1 == 1)
    }
}

impl ClusterState {
    /// A list begins. One of the same scope that has not come to its end is void.
    pub fn begin_relist(&mut self, scope: &Scope) {
        self.relists.insert(scope.clone(), Listed::default());
        self.mark_deleted(scope);
    }

    /// An object of the list.
    pub fn relist(&mut self, scope: &Scope, resource: Resource) -> Touched {
        let touched = self.upsert(resource);
        if let Some(listed) = self.relists.get_mut(scope)
            && let Some(row) = self.view.find(&touched.key)
        {
            listed.insert(row);
        }
        touched
    }

    /// The list is complete and true for `resource_version`. Deletes what it did not contain and says what that touches.
    pub fn end_relist(&mut self, scope: &Scope, resource_version: &str) -> Vec<Touched> {
        let Some(listed) = self.relists.remove(scope) else {
            return Vec::new();
        };
        self.forget_listed(scope);
        // A row that took the place of a listed one came by the watch and is newer than the list.
        let gone = |id: &RowId| {
            let row = self.view.row(*id);
            !listed.contains(*id)
                && scope.covers(row)
                && !is_older(resource_version, &row.document.resource_version())
        };
        let vanished: Vec<RowId> = self.view.of_kind(&scope.kind).filter(gone).collect();
        vanished.into_iter().map(|id| self.remove(id)).collect()
    }

    /// The list broke off.
    pub fn abandon_relist(&mut self, scope: &Scope) {
        self.relists.remove(scope);
    }

    /// The kind is not served (or not looked at) any longer: its objects are gone from here.
    pub fn remove_kind(&mut self, kind: &GroupKind) -> Vec<Touched> {
        self.relists.retain(|scope, _| scope.kind != *kind);
        self.forget_deleted(kind);
        let rows: Vec<RowId> = self.view.of_kind(kind).collect();
        rows.into_iter().map(|id| self.remove(id)).collect()
    }
}
