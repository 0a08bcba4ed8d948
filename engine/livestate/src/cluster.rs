//! How changes come in, and what they touch.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use argosy_object::{GroupKind, ResourceKey};

use crate::keys::KeySet;
use crate::relist::Scope;
use crate::resource::{Resource, is_older};
use crate::snapshot::Snapshot;

/// The live state of one cluster. Has one writer, who owns it.
///
/// Memory a resource, besides its document: the row (about 150 B), the key shared by four indexes, and an entry of 8 to
/// 24 B in each of them.
#[derive(Default)]
pub struct ClusterState {
    pub(crate) view: Snapshot,
    pub(crate) relists: HashMap<Scope, HashSet<Arc<ResourceKey>>>,
    /// Uids that are known to be gone before the watch has said so, with their kind.
    deleted: HashMap<Arc<str>, GroupKind>,
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
    pub apps: Vec<Arc<str>>,
    /// The object before.
    pub before: Option<Arc<Resource>>,
    /// The object now.
    pub after: Option<Arc<Resource>>,
}

/// Entries held, to see that what goes leaves nothing behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Footprint {
    pub rows: usize,
    pub uids: usize,
    pub owners: usize,
    pub apps: usize,
    pub kinds: usize,
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
        self.deleted.insert(Arc::from(uid), key.group_kind());
        match self.view.rows.get(key) {
            Some(row) if *row.uid == *uid => self.remove(key),
            _ => Touched::nothing(Arc::new(key.clone())),
        }
    }

    /// Computes anew which Application tracks each object, after the rules for that have changed.
    pub fn retag(&mut self, mut app_of: impl FnMut(&Resource) -> Option<Arc<str>>) -> Vec<Touched> {
        let changed: Vec<(Arc<Resource>, Option<Arc<str>>)> = self
            .view
            .rows
            .values()
            .filter_map(|row| {
                let app = app_of(row);
                (app != row.app).then(|| (row.clone(), app))
            })
            .collect();
        changed
            .into_iter()
            .map(|(row, app)| {
                let mut next = (*row).clone();
                next.app = app;
                self.replace(Some(row), next)
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
            kinds: self.view.by_kind.len(),
            deleted: self.deleted.len(),
            relists: self.relists.len(),
        }
    }

    pub(crate) fn upsert(&mut self, resource: Resource) -> Touched {
        if !resource.uid.is_empty() && self.deleted.contains_key(&*resource.uid) {
            return Touched::nothing(resource.key);
        }
        let before = self.view.rows.get(&resource.key).cloned();
        if let Some(known) = &before {
            let same = known.uid == resource.uid && known.resource_version == resource.resource_version;
            let known_already = same
                && known.app == resource.app
                && known.version == resource.version
                // Servers without versions: only the content tells.
                && (!resource.resource_version.is_empty() || known.document == resource.document);
            if known_already || is_older(&resource.resource_version, &known.resource_version) {
                return Touched::nothing(resource.key);
            }
        }
        self.replace(before, resource)
    }

    fn delete(&mut self, deletion: Deletion) -> Touched {
        self.deleted.remove(deletion.uid.as_str());
        let Some(row) = self.view.rows.get(&deletion.key) else {
            return Touched::nothing(Arc::new(deletion.key));
        };
        let other = !deletion.uid.is_empty() && *row.uid != *deletion.uid;
        if other || is_older(&deletion.resource_version, &row.resource_version) {
            return Touched::nothing(row.key.clone());
        }
        self.remove(&deletion.key)
    }

    /// Whether deletions of this kind are known that the watch has not told yet.
    pub(crate) fn expects_deletions(&self, kind: &GroupKind) -> bool {
        self.deleted.values().any(|known| known == kind)
    }

    pub(crate) fn forget_deleted(&mut self, kind: &GroupKind) {
        self.deleted.retain(|_, known| known != kind);
    }

    /// Puts `resource` in the place of `before` in every index.
    fn replace(&mut self, before: Option<Arc<Resource>>, mut resource: Resource) -> Touched {
        let mut apps: BTreeSet<Arc<str>> = BTreeSet::new();
        let view = &mut self.view;
        if let Some(old) = &before {
            apps.extend(view.apps_of(old));
            // One key for all versions of the object.
            resource.key = old.key.clone();
            if old.uid != resource.uid {
                view.forget_uid(old);
            }
            if old.owners != resource.owners {
                view.disown(old);
            }
            if old.app != resource.app {
                view.untrack(old);
            }
        } else {
            let kind = resource.group_kind();
            view.by_kind.entry(kind).or_default().insert(resource.key.clone());
        }
        if let Some(app) = &resource.app
            && let Some((known, _)) = view.by_app.get_key_value(&**app)
        {
            // One name for all objects of the Application.
            resource.app = Some(known.clone());
        }
        let key = resource.key.clone();
        if before.as_ref().is_none_or(|old| old.uid != resource.uid) && !resource.uid.is_empty() {
            view.by_uid.insert(resource.uid.clone(), key.clone());
        }
        if before.as_ref().is_none_or(|old| old.owners != resource.owners) {
            for owner in &resource.owners {
                add(&mut view.owned, &owner.uid, &key);
            }
        }
        if before.as_ref().is_none_or(|old| old.app != resource.app)
            && let Some(app) = &resource.app
        {
            add(&mut view.by_app, app, &key);
        }
        let after = Arc::new(resource);
        view.rows.insert(key.clone(), after.clone());
        view.revision += 1;
        apps.extend(view.apps_of(&after));
        Touched {
            key,
            change: if before.is_some() {
                Change::Updated
            } else {
                Change::Added
            },
            apps: apps.into_iter().collect(),
            before,
            after: Some(after),
        }
    }

    /// Takes an object out of every index.
    pub(crate) fn remove(&mut self, key: &ResourceKey) -> Touched {
        let view = &mut self.view;
        let Some(row) = view.rows.get(key).cloned() else {
            return Touched::nothing(Arc::new(key.clone()));
        };
        // While its owners can still be found through it.
        let apps = view.apps_of(&row);
        view.rows.remove(key);
        view.forget_uid(&row);
        view.disown(&row);
        view.untrack(&row);
        let kind = row.group_kind();
        if let Some(keys) = view.by_kind.get_mut(&kind) {
            keys.remove(key);
            if keys.is_empty() {
                view.by_kind.remove(&kind);
            }
        }
        view.revision += 1;
        Touched {
            key: row.key.clone(),
            change: Change::Deleted,
            apps,
            before: Some(row),
            after: None,
        }
    }
}

impl Snapshot {
    fn forget_uid(&mut self, row: &Resource) {
        // The same object may be served under two groups; the other entry stays.
        if self.by_uid.get(&*row.uid).is_some_and(|key| **key == *row.key) {
            self.by_uid.remove(&*row.uid);
        }
    }

    fn disown(&mut self, row: &Resource) {
        for owner in &row.owners {
            take(&mut self.owned, &owner.uid, &row.key);
        }
    }

    fn untrack(&mut self, row: &Resource) {
        if let Some(app) = &row.app {
            take(&mut self.by_app, app, &row.key);
        }
    }
}

impl Touched {
    fn nothing(key: Arc<ResourceKey>) -> Self {
        Touched {
            key,
            change: Change::Nothing,
            apps: Vec::new(),
            before: None,
            after: None,
        }
    }
}

fn add(index: &mut imbl::HashMap<Arc<str>, KeySet>, name: &Arc<str>, key: &Arc<ResourceKey>) {
    match index.get_mut(&**name) {
        Some(keys) => keys.insert(key.clone()),
        None => {
            index.insert(name.clone(), KeySet::one(key.clone()));
        }
    }
}

fn take(index: &mut imbl::HashMap<Arc<str>, KeySet>, name: &str, key: &ResourceKey) {
    if let Some(keys) = index.get_mut(name) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(name);
        }
    }
}
