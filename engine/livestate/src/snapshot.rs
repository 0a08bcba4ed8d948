//! Reads of a cluster's live state.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_object::{Document, GroupKind, Name, ResourceKey, intern, split_api_version};

use crate::index::{Index, RowId, token};
use crate::placement::Guests;
use crate::resource::{Resource, is_older, owners_in};
use crate::row::{KindId, Owners, Row, key_token, kind_token, namespace_token};

/// A cluster as it was at one moment. Cloning is cheap; nothing that the writer does later shows.
#[derive(Clone, Default)]
pub struct Snapshot {
    /// Places without a row are free.
    pub(crate) rows: imbl::Vector<Option<Row>>,
    pub(crate) len: usize,
    pub(crate) kinds: imbl::OrdMap<KindId, Kind>,
    pub(crate) kind_ids: imbl::OrdMap<(Name, Name), KindId>,
    pub(crate) by_key: Index,
    pub(crate) by_uid: Index,
    /// By owner, which need not be there (yet): tokens of uids, and of the sets whose claims go by name.
    pub(crate) owned: Index,
    pub(crate) by_app: Index,
    pub(crate) by_kind: Index,
    /// Pods on nodes, by all that their placement says.
    pub(crate) placed: Index,
    /// Nodes with Pods on them.
    pub(crate) guests: imbl::OrdMap<Name, Guests>,
    pub(crate) revision: u64,
}

/// A kind of which there is at least one object.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) group: Name,
    pub(crate) kind: Name,
    pub(crate) len: usize,
}

impl Kind {
    pub(crate) fn is(&self, group: &str, kind: &str) -> bool {
        self.group == *group && self.kind == *kind
    }
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
        Some(self.resource(self.find(key)?))
    }

    /// Whether there is an object with this key.
    pub fn contains(&self, key: &ResourceKey) -> bool {
        self.find(key).is_some()
    }

    /// The object with this uid.
    pub fn by_uid(&self, uid: &str) -> Option<Arc<Resource>> {
        Some(self.resource(self.find_uid(token(uid)).next()?))
    }

    /// Whether an object is known in a version that is older than this one.
    pub fn is_behind(&self, key: &ResourceKey, resource_version: &str) -> bool {
        let known = self.find(key).map(|id| self.row(id).document.resource_version());
        known.is_some_and(|known| is_older(&known, resource_version))
    }

    /// The objects that the Application with this instance name tracks itself, sorted by key. What they own is reached
    /// with [`Snapshot::children`].
    pub fn by_app(&self, app: &str) -> Vec<Arc<Resource>> {
        self.resources(self.find_app(app))
    }

    /// Instance names of all Applications that track something here, each with the number of objects, sorted.
    pub fn apps(&self) -> impl Iterator<Item = (Name, usize)> {
        let mut apps = BTreeMap::new();
        for app in self.rows.iter().flatten().filter_map(|row| row.app.as_ref()) {
            *apps.entry(app.clone()).or_default() += 1;
        }
        apps.into_iter()
    }

    /// How many objects the Application tracks itself.
    pub fn app_len(&self, app: &str) -> usize {
        self.find_app(app).count()
    }

    /// All objects of a kind, sorted by namespace and name.
    pub fn by_kind(&self, kind: &GroupKind) -> Vec<Arc<Resource>> {
        self.resources(self.of_kind(kind))
    }

    /// The objects of a kind in one namespace, sorted by name.
    pub fn by_kind_in(&self, kind: &GroupKind, namespace: &str) -> Vec<Arc<Resource>> {
        let Some(kind) = self.kind_id(kind) else {
            return Vec::new();
        };
        let namespace = namespace_token(namespace);
        let rows = self.by_kind.rows(kind_token(kind, namespace));
        self.resources(rows.filter(|row| self.row(*row).namespace == namespace))
    }

    /// How many objects of a kind there are.
    pub fn kind_len(&self, kind: &GroupKind) -> usize {
        self.kind_id(kind)
            .and_then(|id| self.kinds.get(&id))
            .map_or(0, |kind| kind.len)
    }

    /// Kinds of which there is at least one object, in no order.
    pub fn kinds(&self) -> impl Iterator<Item = GroupKind> {
        self.kinds
            .values()
            .map(|kind| GroupKind::new(&*kind.group, &*kind.kind))
    }

    /// All objects, in no order. For audits and exports; nothing that answers for one Application uses it.
    pub fn iter(&self) -> impl Iterator<Item = Arc<Resource>> {
        self.row_ids().map(|row| self.resource(row))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Grows with every change of the cluster's state: equal numbers mean equal snapshots of one cluster.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn row(&self, id: RowId) -> &Row {
        self.rows
            .get(id as usize)
            .and_then(Option::as_ref)
            .expect("an index names rows that are there")
    }

    pub(crate) fn row_ids(&self) -> impl Iterator<Item = RowId> {
        self.rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.is_some())
            .map(|(id, _)| id as RowId)
    }

    pub(crate) fn kind_id(&self, kind: &GroupKind) -> Option<KindId> {
        self.kind_ids
            .get(&(intern(&kind.group), intern(&kind.kind)))
            .copied()
    }

    pub(crate) fn kind(&self, row: &Row) -> &Kind {
        self.kinds
            .get(&row.kind)
            .expect("the kind of a row is there as long as the row")
    }

    pub(crate) fn find(&self, key: &ResourceKey) -> Option<RowId> {
        let kind = self.kind_ids.get(&(intern(&key.group), intern(&key.kind)))?;
        let namespace = namespace_token(&key.namespace);
        self.by_key
            .rows(key_token(*kind, namespace, &key.name))
            .find(|id| {
                let row = self.row(*id);
                row.kind == *kind && row.namespace == namespace && row.document.name() == key.name
            })
    }

    /// Rows with this uid: one, or two if the object is served in two groups.
    pub(crate) fn find_uid(&self, uid: u64) -> impl Iterator<Item = RowId> {
        self.by_uid.rows(uid).filter(move |row| self.row(*row).uid == uid)
    }

    pub(crate) fn find_app(&self, app: &str) -> impl Iterator<Item = RowId> {
        self.by_app
            .rows(token(app))
            .filter(move |row| self.row(*row).app.as_deref() == Some(app))
    }

    /// Rows of a kind, in no order.
    pub(crate) fn of_kind(&self, kind: &GroupKind) -> impl Iterator<Item = RowId> {
        let id = self.kind_id(kind);
        id.into_iter()
            .flat_map(|id| self.by_kind.range(kind_token(id, 0), kind_token(id, u32::MAX)))
    }

    pub(crate) fn key(&self, row: &Row) -> ResourceKey {
        let kind = self.kind(row);
        ResourceKey::new(
            &*kind.group,
            &*kind.kind,
            if row.namespace == 0 {
                String::new()
            } else {
                row.document.namespace()
            },
            row.document.name(),
        )
    }

    pub(crate) fn resource(&self, id: RowId) -> Arc<Resource> {
        let row = self.row(id);
        Arc::new(Resource {
            key: Arc::new(self.key(row)),
            version: version_of(&row.document),
            uid: Arc::from(row.document.uid()),
            resource_version: row.document.resource_version().into_boxed_str(),
            app: row.app.clone(),
            owners: match row.owners {
                Owners::None => Box::default(),
                _ => owners_in(&row.document),
            },
            placement: None,
            document: row.document.clone(),
        })
    }

    /// Sorted by key.
    pub(crate) fn resources(&self, rows: impl Iterator<Item = RowId>) -> Vec<Arc<Resource>> {
        let mut resources: Vec<_> = rows.map(|row| self.resource(row)).collect();
        resources.sort_by(|a, b| a.key.cmp(&b.key));
        resources
    }
}

/// The API version in which a document was read.
pub(crate) fn version_of(document: &Document) -> Name {
    let api_version = document.str_at(&["apiVersion"]).unwrap_or_default();
    intern(split_api_version(&api_version).1)
}
