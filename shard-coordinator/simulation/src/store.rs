//! The store: objects with versions, a history for watches, compare-and-swap.

use std::collections::BTreeMap;

use argosy_shard_coordinator::object::{Key, Object, Version};

/// One change, as watches tell it.
#[derive(Clone, Debug)]
pub struct Change {
    /// What changed.
    pub key: Key,
    /// Its new state; `None` when it was deleted.
    pub object: Option<(Object, Version)>,
}

/// The store behind the API server.
#[derive(Default)]
pub struct Store {
    objects: BTreeMap<Key, (Object, Version)>,
    history: Vec<Change>,
    /// Writes that were done.
    pub writes: u64,
}

impl Store {
    /// Writes if `expect` is the object's version; `None` stands for no object.
    pub fn put(&mut self, object: Object, expect: Option<&Version>) -> Option<Version> {
        let key = object.key();
        if self.objects.get(&key).map(|(_, version)| version) != expect {
            return None;
        }
        let version: Version = (self.history.len() as u64 + 1).to_string().into();
        self.objects
            .insert(key.clone(), (object.clone(), version.clone()));
        self.history.push(Change {
            key,
            object: Some((object, version.clone())),
        });
        self.writes += 1;
        Some(version)
    }

    /// Deletes if `expect` is the object's version; without one in any case.
    pub fn delete(&mut self, key: &Key, expect: Option<&Version>) -> bool {
        let known = self.objects.get(key).map(|(_, version)| version);
        if known.is_none() || expect.is_some_and(|expect| known != Some(expect)) {
            return false;
        }
        self.objects.remove(key);
        self.history.push(Change {
            key: key.clone(),
            object: None,
        });
        self.writes += 1;
        true
    }

    /// The object as it is.
    pub fn get(&self, key: &Key) -> Option<&(Object, Version)> {
        self.objects.get(key)
    }

    /// All objects.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values().map(|(object, _)| object)
    }

    /// Changes so far.
    pub fn len(&self) -> usize {
        self.history.len()
    }

    /// True before the first write.
    pub fn is_empty(&self) -> bool {
        self.history.is_empty()
    }

    /// The change at a place of the history.
    pub fn change(&self, at: usize) -> &Change {
        &self.history[at]
    }

    /// Everything as it was after so many changes.
    pub fn list(&self, after: usize) -> BTreeMap<Key, (Object, Version)> {
        let mut objects = BTreeMap::new();
        for change in &self.history[..after] {
            match &change.object {
                Some(state) => drop(objects.insert(change.key.clone(), state.clone())),
                None => drop(objects.remove(&change.key)),
            }
        }
        objects
    }
}
