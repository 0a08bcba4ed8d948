//! How changes come in, and what they touch.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use argosy_object::{Document, GroupKind, Name, ResourceKey, intern};

use crate::index::{RowId, token};
use crate::placement::Placement;
use crate::relist::{Listed, Scope};
use crate::resource::{Resource, is_older};
use crate::row::{KindId, Row, app_name};
use crate::snapshot::{Kind, Snapshot, version_of};

/// The live state of one cluster. Has one writer, who owns it.
///
/// Memory a resource, besides its document: the row (48 B) and an entry of about 10 B (estimated from totals) in each of three to five sorted sets.
#[derive(Default)]
pub struct ClusterState {
    pub(crate) view: Snapshot,
    /// Places of rows that are gone.
    free: Vec<RowId>,
    pub(crate) relists: HashMap<Scope, Listed>,
    /// Uids that are known to be gone before the watch has said so.
    deleted: HashMap<Arc<str>, Unheard>,
    gone: Gone,
}

/// An object whose end the watch has yet to tell.
struct Unheard {
    kind: GroupKind,
    namespace: Box<str>,
    /// A count has been compared since. The next one begins after that, and so after the object's end.
    counted: bool,
    /// A list has begun since: the object is not in it, and the watch that follows it does not tell its end.
    listing: bool,
}

impl Unheard {
    fn is_in(&self, scope: &Scope) -> bool {
        self.kind == scope.kind && (scope.namespace.is_empty() || *scope.namespace == *self.namespace)
    }
}

/// The last objects that a watch has told the end of: tokens of their uids, and at which version that was. An API server
/// that has fallen behind tells of such objects as if they were there, when a client comes back to it.
#[derive(Default)]
struct Gone {
    order: VecDeque<u64>,
    at: HashMap<u64, Option<u64>>,
}

/// So many of them are remembered.
const GONE_LEN: usize = 4096;

impl Gone {
    fn add(&mut self, deletion: &Deletion) {
        if deletion.uid.is_empty() || deletion.resource_version.is_empty() {
            return;
        }
        // Versions that are no numbers cannot be compared.
        let version = deletion.resource_version.parse().ok();
        let uid = token(&*deletion.uid);
        if self.at.insert(uid, version).is_none() {
            self.order.push_back(uid);
        }
        if self.order.len() > GONE_LEN
            && let Some(oldest) = self.order.pop_front()
        {
            self.at.remove(&oldest);
        }
    }

    fn contains(&self, uid: &str) -> bool {
        self.at.contains_key(&token(uid))
    }

    /// Whether this is news of an object from before its end.
    fn is_news_of(&self, resource: &Resource) -> bool {
        let at = self.at.get(&token(&*resource.uid)).copied().flatten();
        let version = || resource.resource_version.parse::<u64>();
        at.is_some_and(|at| version().is_ok_and(|version| version < at))
    }
}

/// Something a watch says.
#[derive(Clone, Debug)]
pub enum Event {
    /// The object exists and looks like this.
    Upsert(Box<Resource>),
    /// The object is gone.
    Delete(Deletion),
}

/// An object that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// Its key.
    pub key: ResourceKey,
    /// Which incarnation; empty for any.
    pub uid: String,
    /// The version of the deletion; empty if it is not known.
    pub resource_version: String,
}

/// What a change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object was not there before.
    Added,
    /// It was there, and is another now.
    Updated,
    /// It is gone.
    Deleted,
    /// Nothing: the news was old, or already known.
    Nothing,
}

/// What a change did and whom it concerns.
#[derive(Clone, Debug)]
pub struct Touched {
    /// The object.
    pub key: Arc<ResourceKey>,
    /// What became of it.
    pub change: Change,
    /// Instance names of the Applications concerned, sorted: those that the object belonged to before and those that it
    /// belongs to now, by itself or through its owners.
    pub apps: Vec<Name>,
    /// Of an update: what the object was and what it is.
    pub update: Option<Box<Update>>,
}

/// An object that was there before.
#[derive(Clone, Debug)]
pub struct Update {
    /// As it was.
    pub before: Document,
    /// As it is.
    pub after: Document,
    /// Whether an Application tracks the object itself.
    pub tracked: bool,
    /// It belongs to others than before: another Application tracks it, or it has other owners.
    pub moved: bool,
}

/// Entries held, to see that what goes leaves nothing behind. (Which objects went last is remembered on purpose.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Footprint {
    pub rows: usize,
    pub uids: usize,
    pub owners: usize,
    pub apps: usize,
    pub kinds: usize,
    pub placed: usize,
    pub deleted: usize,
    pub relists: usize,
}

impl ClusterState {
    /// Nothing is known yet.
    pub fn new() -> Self {
        ClusterState::default()
    }

    /// Takes over what a watch says.
    pub fn apply(&mut self, event: Event) -> Touched {
        match event {
            Event::Upsert(resource) => self.upsert(*resource),
            Event::Delete(deletion) => self.delete(deletion),
        }
    }

    /// Takes over that an object is known to be gone, for instance because a read after our deletion did not find it.
    /// Late news about this incarnation are dropped until the watch has told its end.
    pub fn confirm_deleted(&mut self, key: &ResourceKey, uid: &str) -> Touched {
        // The watch may have been faster. It will not tell the end twice.
        if !self.gone.contains(uid) {
            let unheard = Unheard {
                kind: key.group_kind(),
                namespace: (*key.namespace).into(),
                counted: false,
                listing: false,
            };
            self.deleted.insert(Arc::from(uid), unheard);
        }
        match self.view.find(key) {
            Some(id) if self.view.row(id).uid == token(uid) => self.remove(id),
            _ => Touched::nothing(Arc::new(key.clone())),
        }
    }

    /// Computes anew which Application tracks each object, after the rules for that have changed.
    pub fn retag(&mut self, mut app_of: impl FnMut(&Resource) -> Option<Arc<str>>) -> Vec<Touched> {
        let changed: Vec<(RowId, Arc<Resource>, Option<Name>)> = self
            .view
            .row_ids()
            .filter_map(|id| {
                let resource = self.view.resource(id);
                let app = app_name(app_of(&resource));
                (app != resource.app).then_some((id, resource, app))
            })
            .collect();
        changed
            .into_iter()
            .map(|(id, resource, app)| {
                self.put(
                    Some(id),
                    Resource {
                        app,
                        ..(*resource).clone()
                    },
                )
            })
            .collect()
    }

    /// The state as it is now.
    pub fn snapshot(&self) -> Snapshot {
        self.view.clone()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    /// Entries held.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            rows: self.view.rows.len(),
            uids: self.view.by_uid.len(),
            owners: self.view.owned.len(),
            apps: self.view.by_app.len(),
            kinds: self.view.kinds.len() + self.view.kind_ids.len() + self.view.by_kind.len(),
            placed: self.view.placed.len() + self.view.guests.len(),
            deleted: self.deleted.len(),
            relists: self.relists.len(),
        }
    }

    /// Whether nothing has ever been told of an object, as far as is remembered.
    pub(crate) fn is_stranger(&self, key: &ResourceKey, uid: &str) -> bool {
        self.view.find(key).is_none() && !self.deleted.contains_key(uid) && !self.gone.contains(uid)
    }

    pub(crate) fn upsert(&mut self, resource: Resource) -> Touched {
        let expected_to_go = !resource.uid.is_empty() && self.deleted.contains_key(&*resource.uid);
        if expected_to_go || self.gone.is_news_of(&resource) {
            return Touched::nothing(resource.key);
        }
        let before = self.view.find(&resource.key);
        if let Some(id) = before {
            let known = self.view.row(id);
            let known_version = known.document.resource_version();
            let same = known.uid == token(&*resource.uid) && *known_version == *resource.resource_version;
            let known_already = same
                && known.app == resource.app
                && version_of(&known.document) == resource.version
                // Servers without versions: only the content tells.
                && (!resource.resource_version.is_empty() || known.document == resource.document);
            if known_already || is_older(&resource.resource_version, &known_version) {
                return Touched::nothing(resource.key);
            }
        }
        self.put(before, resource)
    }

    fn delete(&mut self, deletion: Deletion) -> Touched {
        self.deleted.remove(deletion.uid.as_str());
        self.gone.add(&deletion);
        let Some(id) = self.view.find(&deletion.key) else {
            return Touched::nothing(Arc::new(deletion.key));
        };
        let row = self.view.row(id);
        let other = !deletion.uid.is_empty() && row.uid != token(&*deletion.uid);
        if other || is_older(&deletion.resource_version, &row.document.resource_version()) {
            return Touched::nothing(Arc::new(deletion.key));
        }
        self.remove(id)
    }

    /// Whether ends are known that the watch may yet tell, when a count of the scope can be compared. Those that were waited
    /// for at the count before are not waited for any longer: the watch has told everything since.
    pub(crate) fn expects_deletions(&mut self, scope: &Scope) -> bool {
        let mut expects = false;
        self.deleted.retain(|_, unheard| {
            if !unheard.is_in(scope) {
                return true;
            }
            let waits = !std::mem::replace(&mut unheard.counted, true);
            expects |= waits;
            waits
        });
        expects
    }

    /// A list of the scope begins.
    pub(crate) fn mark_deleted(&mut self, scope: &Scope) {
        for unheard in self.deleted.values_mut() {
            unheard.listing |= unheard.is_in(scope);
        }
    }

    /// The list has come to its end. What has been known to be gone since before it began is not told any more; what went
    /// meanwhile may be in it, or in what the watch tells from its version on.
    pub(crate) fn forget_listed(&mut self, scope: &Scope) {
        self.deleted
            .retain(|_, unheard| !(unheard.listing && unheard.is_in(scope)));
    }

    pub(crate) fn forget_deleted(&mut self, kind: &GroupKind) {
        self.deleted.retain(|_, unheard| unheard.kind != *kind);
    }

    /// Puts an object in the place of what was there before, in every index.
    fn put(&mut self, before: Option<RowId>, resource: Resource) -> Touched {
        let mut apps = BTreeSet::new();
        let kind = self.kind_id(&resource.key);
        let row = Row::new(&resource, kind);
        let mut update = None;
        let mut moved = true;
        let (id, change) = match before {
            Some(id) => {
                let old = self.view.row(id).clone();
                moved = row.app != old.app || row.owners != old.owners;
                update = Some(Box::new(Update {
                    before: old.document.clone(),
                    after: row.document.clone(),
                    tracked: row.app.is_some(),
                    moved,
                }));
                apps.extend(self.view.apps_of_row(&old));
                self.exchange(id, Some(&old), Some(&row), resource.placement);
                self.view.rows.set(id as usize, Some(row));
                (id, Change::Updated)
            }
            None => {
                let id = self.place();
                self.exchange(id, None, Some(&row), resource.placement);
                self.view.rows.set(id as usize, Some(row));
                self.view.len += 1;
                if let Some(kind) = self.view.kinds.get_mut(&kind) {
                    kind.len += 1;
                }
                (id, Change::Added)
            }
        };
        self.view.revision += 1;
        if moved {
            apps.extend(self.view.apps_of_row(self.view.row(id)));
        }
        Touched {
            key: resource.key,
            change,
            apps: apps.into_iter().collect(),
            update,
        }
    }

    /// Takes an object out of every index.
    pub(crate) fn remove(&mut self, id: RowId) -> Touched {
        let row = self.view.row(id).clone();
        let key = Arc::new(self.view.key(&row));
        // While its owners can still be found through it.
        let apps = self.view.apps_of_row(&row);
        self.exchange(id, Some(&row), None, None);
        self.view.rows.set(id as usize, None);
        self.free.push(id);
        self.view.len -= 1;
        let kind = self.view.kinds.get_mut(&row.kind);
        let kind = kind.expect("the kind of a row is there as long as the row");
        kind.len -= 1;
        if kind.len == 0 {
            let name = (kind.group.clone(), kind.kind.clone());
            self.view.kinds.remove(&row.kind);
            self.view.kind_ids.remove(&name);
        }
        if self.view.is_empty() {
            self.view.rows = imbl::Vector::new();
            self.free = Vec::new();
        }
        self.view.revision += 1;
        Touched {
            key,
            change: Change::Deleted,
            apps,
            update: None,
        }
    }

    /// Moves the entries of a row from how it was to how it will be; most changes of an object change none of them.
    fn exchange(&mut self, id: RowId, old: Option<&Row>, new: Option<&Row>, placement: Option<Placement>) {
        let view = &mut self.view;
        view.exchange_placement(id, old, new, placement);
        let tokens = |view: &Snapshot, row: &Row| {
            let mut owned = row.owners.tokens().to_vec();
            owned.extend(view.inferred_tokens(row));
            owned
        };
        if old.map(|row| &row.owners) != new.map(|row| &row.owners) {
            if let Some(row) = old {
                tokens(view, row)
                    .into_iter()
                    .for_each(|token| view.owned.remove(token, id));
            }
            if let Some(row) = new {
                tokens(view, row)
                    .into_iter()
                    .for_each(|token| view.owned.insert(token, id));
            }
        }
        if old.map(|row| row.uid) != new.map(|row| row.uid) {
            old.into_iter().for_each(|row| view.by_uid.remove(row.uid, id));
            new.into_iter().for_each(|row| view.by_uid.insert(row.uid, id));
        }
        let app = |row: &Row| row.app.as_deref().map(token);
        if old.map(app) != new.map(app) {
            old.and_then(app)
                .into_iter()
                .for_each(|app| view.by_app.remove(app, id));
            new.and_then(app)
                .into_iter()
                .for_each(|app| view.by_app.insert(app, id));
        }
        // A row keeps its key: only the first and the last have another.
        if old.is_none() || new.is_none() {
            if let Some(row) = old {
                view.by_key.remove(row.key_token(), id);
                view.by_kind.remove(row.kind_token(), id);
            }
            if let Some(row) = new {
                view.by_key.insert(row.key_token(), id);
                view.by_kind.insert(row.kind_token(), id);
            }
        }
    }

    fn place(&mut self) -> RowId {
        self.free.pop().unwrap_or_else(|| {
            self.view.rows.push_back(None);
            RowId::try_from(self.view.rows.len() - 1).expect("a cluster has fewer than 2^32 objects")
        })
    }

    /// The number of a kind; kinds without objects have none.
    fn kind_id(&mut self, key: &ResourceKey) -> KindId {
        let name = (intern(&key.group), intern(&key.kind));
        if let Some(id) = self.view.kind_ids.get(&name) {
            return *id;
        }
        let id = (0..KindId::MAX)
            .find(|id| !self.view.kinds.contains_key(id))
            .expect("a cluster has fewer than 65535 kinds");
        let (group, kind) = name.clone();
        self.view.kinds.insert(id, Kind { group, kind, len: 0 });
        self.view.kind_ids.insert(name, id);
        id
    }
}

impl Touched {
    fn nothing(key: Arc<ResourceKey>) -> Self {
        Touched {
            key,
            change: Change::Nothing,
            apps: Vec::new(),
            update: None,
        }
    }
}
