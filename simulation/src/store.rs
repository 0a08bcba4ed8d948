//! What a server holds: objects by kind and key, and the changes that led there.
//!
//! One counter numbers every change of the whole server, as etcd's revision does. The last changes of each kind are remembered;
//! from them watches are fed and earlier states are read again, and what they no longer reach is gone (410).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use serde_json::Value;

use crate::registry::GroupResource;

/// `namespace/name`, or `name` for kinds without namespaces. Sorted by bytes, as etcd sorts.
pub(crate) type Key = Arc<str>;

/// Makes objects that nobody has touched yet, so that they cost nothing until somebody asks.
pub trait Population: Send + Sync {
    /// The object with that number, without `apiVersion`, `kind` and `metadata.resourceVersion`.
    fn object(&self, index: u32) -> Value;
}

/// One object's fields but `apiVersion` and `kind`, which the kind and the asked version tell.
#[derive(Clone)]
pub(crate) enum Content {
    /// As JSON.
    Json(Bytes),
    /// Made when needed.
    Generated {
        population: Arc<dyn Population>,
        index: u32,
        version: u64,
    },
}

impl Content {
    /// JSON with the metadata's version set.
    pub(crate) fn of(value: &Value) -> Self {
        Self::Json(serde_json::to_vec(value).expect("a value is JSON").into())
    }

    /// A JSON object.
    pub(crate) fn json(&self) -> Bytes {
        match self {
            Self::Json(json) => json.clone(),
            Self::Generated { .. } => serde_json::to_vec(&self.value()).expect("a value is JSON").into(),
        }
    }

    pub(crate) fn value(&self) -> Value {
        match self {
            Self::Json(json) => serde_json::from_slice(json).expect("stored objects are JSON"),
            Self::Generated {
                population,
                index,
                version,
            } => {
                let mut value = population.object(*index);
                value["metadata"]["resourceVersion"] = version.to_string().into();
                value
            }
        }
    }
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) version: u64,
    pub(crate) content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) kind: ChangeKind,
    pub(crate) key: Key,
    /// The object after the change; of a deletion its last state with the version of the deletion.
    pub(crate) content: Content,
    pub(crate) before: Option<Entry>,
    /// The watches that were open then are not told.
    pub(crate) unheard: bool,
}

/// All objects of one kind.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) objects: BTreeMap<Key, Entry>,
    log: VecDeque<Change>,
    /// States before this version are forgotten.
    oldest: u64,
    wakers: Vec<Waker>,
}

pub(crate) struct Store {
    version: u64,
    tables: BTreeMap<GroupResource, Table>,
    history_max: usize,
    /// Of a hundred changes so many are left unheard, by chance.
    pub(crate) loss_percent: u8,
    chance: fastrand::Rng,
}

impl Store {
    /// `history_max`: how many changes of each kind are remembered.
    pub(crate) fn new(history_max: usize, seed: u64) -> Self {
        Self {
            version: 1,
            tables: BTreeMap::new(),
            history_max,
            loss_percent: 0,
            chance: fastrand::Rng::with_seed(seed ^ 0x1055),
        }
    }

    /// The number of the last change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The number that the next change will have.
    pub(crate) fn next_version(&self) -> u64 {
        self.version + 1
    }

    pub(crate) fn table(&self, resource: &GroupResource) -> Option<&Table> {
        self.tables.get(resource)
    }

    pub(crate) fn get(&self, resource: &GroupResource, key: &str) -> Option<&Entry> {
        self.tables.get(resource)?.objects.get(key)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (&GroupResource, &Table)> {
        self.tables.iter()
    }

    /// Whether the next change is left unheard.
    fn loses(&mut self) -> bool {
        self.loss_percent > 0 && self.chance.u8(..100) < self.loss_percent
    }

    /// Creates or replaces; `content` carries [`Self::next_version`].
    pub(crate) fn put(&mut self, resource: &GroupResource, key: Key, content: Content) {
        self.version += 1;
        let version = self.version;
        let (history_max, unheard) = (self.history_max, self.loses());
        let table = self.table_mut(resource);
        let before = table.objects.insert(
            key.clone(),
            Entry {
                version,
                content: content.clone(),
            },
        );
        let kind = if before.is_some() {
            ChangeKind::Modified
        } else {
            ChangeKind::Added
        };
        table.record(
            Change {
                version,
                kind,
                key,
                content,
                before,
                unheard,
            },
            history_max,
        );
    }

    /// Removes; `last` carries [`Self::next_version`].
    pub(crate) fn remove(&mut self, resource: &GroupResource, key: &Key, last: Content) {
        self.version += 1;
        let version = self.version;
        let (history_max, unheard) = (self.history_max, self.loses());
        let table = self.table_mut(resource);
        let before = table.objects.remove(key);
        let change = Change {
            version,
            kind: ChangeKind::Deleted,
            key: key.clone(),
            content: last,
            before,
            unheard,
        };
        table.record(change, history_max);
    }

    /// Has the watches that are open now not hear of the last change of a kind. Those that begin later, from before it, do.
    pub(crate) fn leave_unheard(&mut self, resource: &GroupResource) {
        if let Some(change) = self.table_mut(resource).log.back_mut() {
            change.unheard = true;
        }
    }

    /// Puts objects in place as if they had always been there: without a trace in the history.
    pub(crate) fn seed(&mut self, resource: &GroupResource, key: Key, content: impl FnOnce(u64) -> Content) {
        self.version += 1;
        let version = self.version;
        let table = self.table_mut(resource);
        table.objects.insert(
            key,
            Entry {
                version,
                content: content(version),
            },
        );
        table.oldest = version;
    }

    /// Puts an object where nobody sees it: a new version, and no event. For what watches miss.
    pub(crate) fn alter_silently(
        &mut self,
        resource: &GroupResource,
        key: &str,
        content: Option<impl FnOnce(u64) -> Content>,
    ) {
        self.version += 1;
        let version = self.version;
        let table = self.table_mut(resource);
        match content {
            Some(content) => {
                let content = content(version);
                table.objects.insert(Key::from(key), Entry { version, content });
            }
            None => drop(table.objects.remove(key)),
        }
    }

    /// Forgets all changes so far: watches from before get 410.
    pub(crate) fn compact(&mut self) {
        let version = self.version;
        for table in self.tables.values_mut() {
            table.log.clear();
            table.oldest = version;
        }
    }

    /// Wakes whoever waits for changes of a kind.
    pub(crate) fn wake(&mut self, resource: &GroupResource) {
        if let Some(table) = self.tables.get_mut(resource) {
            table.wakers.drain(..).for_each(Waker::wake);
        }
    }

    pub(crate) fn wake_all(&mut self) {
        for table in self.tables.values_mut() {
            table.wakers.drain(..).for_each(Waker::wake);
        }
    }

    pub(crate) fn wait(&mut self, resource: &GroupResource, waker: &Waker) {
        let wakers = &mut self.table_mut(resource).wakers;
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    fn table_mut(&mut self, resource: &GroupResource) -> &mut Table {
        if !self.tables.contains_key(resource) {
            self.tables.insert(resource.clone(), Table::default());
        }
        self.tables.get_mut(resource).expect("just inserted")
    }
}

impl Table {
    fn record(&mut self, change: Change, history_max: usize) {
        self.log.push_back(change);
        while self.log.len() > history_max {
            if let Some(gone) = self.log.pop_front() {
                self.oldest = gone.version;
            }
        }
        self.wakers.drain(..).for_each(Waker::wake);
    }

    /// The changes after `version`, oldest first; none if some of them are forgotten.
    pub(crate) fn changes_after(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        if version < self.oldest {
            return None;
        }
        let start = self.log.partition_point(|change| change.version <= version);
        Some(self.log.range(start..))
    }

    /// The version whose state is the oldest that can still be told.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }

    /// The objects as they were at `version`; none if that is forgotten.
    pub(crate) fn at(&self, version: u64) -> Option<std::borrow::Cow<'_, BTreeMap<Key, Entry>>> {
        let mut later = self.changes_after(version)?.peekable();
        if later.peek().is_none() {
            return Some(std::borrow::Cow::Borrowed(&self.objects));
        }
        let mut objects = self.objects.clone();
        let later: Vec<&Change> = later.collect();
        for change in later.into_iter().rev() {
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), before.clone()),
                None => objects.remove(&change.key),
            };
        }
        Some(std::borrow::Cow::Owned(objects))
    }
}
