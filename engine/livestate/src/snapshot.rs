//! Reads of a cluster's live state.

use std::sync::Arc;

use argosy_object::{GroupKind, ResourceKey};

use crate::keys::KeySet;
use crate::resource::Resource;

/// A cluster as it was at one moment. Cloning is cheap; nothing that the writer does later shows.
#[derive(Clone, Default)]
pub struct Snapshot {
    pub(crate) rows: imbl::HashMap<Arc<ResourceKey>, Arc<Resource>>,
    pub(crate) by_uid: imbl::HashMap<Arc<str>, Arc<ResourceKey>>,
    /// By uid of the owner, which need not be there (yet).
    pub(crate) owned: imbl::HashMap<Arc<str>, KeySet>,
    pub(crate) by_app: imbl::HashMap<Arc<str>, KeySet>,
    pub(crate) by_kind: imbl::HashMap<GroupKind, imbl::OrdSet<Arc<ResourceKey>>>,
    pub(crate) revision: u64,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("len", &self.len())
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

impl Snapshot {
    /// The object with this key.
    pub fn get(&self, key: &ResourceKey) -> Option<Arc<Resource>> {
        self.rows.get(key).cloned()
    }

    /// The object with this uid.
    pub fn by_uid(&self, uid: &str) -> Option<Arc<Resource>> {
        self.rows.get(&**self.by_uid.get(uid)?).cloned()
    }

    /// The objects that the Application with this instance name tracks itself, sorted by key. What they own is reached
    /// with [`Snapshot::children`].
    pub fn by_app(&self, app: &str) -> Vec<Arc<Resource>> {
        self.by_app
            .get(app)
            .map_or_else(Vec::new, |keys| self.rows_of(keys.iter()))
    }

    /// Instance names of all Applications that track something here, in no order.
    pub fn apps(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_app.keys()
    }

    /// How many objects the Application tracks itself.
    pub fn app_len(&self, app: &str) -> usize {
        self.by_app.get(app).map_or(0, KeySet::len)
    }

    /// All objects of a kind, sorted by namespace and name.
    pub fn by_kind(&self, kind: &GroupKind) -> Vec<Arc<Resource>> {
        self.by_kind
            .get(kind)
            .map_or_else(Vec::new, |keys| self.rows_of(keys.iter()))
    }

    /// The objects of a kind in one namespace, sorted by name.
    pub fn by_kind_in(&self, kind: &GroupKind, namespace: &str) -> Vec<Arc<Resource>> {
        self.with_prefix(kind, namespace, "").collect()
    }

    /// How many objects of a kind there are.
    pub fn kind_len(&self, kind: &GroupKind) -> usize {
        self.by_kind.get(kind).map_or(0, imbl::OrdSet::len)
    }

    /// Kinds of which there is at least one object, in no order.
    pub fn kinds(&self) -> impl Iterator<Item = &GroupKind> {
        self.by_kind.keys()
    }

    /// All objects, in no order. For audits and exports; nothing that answers for one Application uses it.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.rows.values()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Grows with every change of the cluster's state: equal numbers mean equal snapshots of one cluster.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Objects of a kind in a namespace whose name begins with `prefix`, sorted by name.
    pub(crate) fn with_prefix<'a>(
        &'a self,
        kind: &GroupKind,
        namespace: &'a str,
        prefix: &'a str,
    ) -> impl Iterator<Item = Arc<Resource>> + use<'a> {
        let from = ResourceKey::new(&*kind.group, &*kind.kind, namespace, prefix);
        let keys = self.by_kind.get(kind).map(|keys| keys.range(Arc::new(from)..));
        keys.into_iter()
            .flatten()
            .take_while(move |key| key.namespace == namespace && key.name.starts_with(prefix))
            .filter_map(|key| self.rows.get(&**key).cloned())
    }

    pub(crate) fn rows_of<'a>(&self, keys: impl Iterator<Item = &'a Arc<ResourceKey>>) -> Vec<Arc<Resource>> {
        keys.filter_map(|key| self.rows.get(&**key).cloned()).collect()
    }
}
