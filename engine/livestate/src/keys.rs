//! Small sets of keys that share their memory between snapshots.

use std::sync::Arc;

use argosy_object::ResourceKey;

/// Up to so many keys stand in one slice: a copy of it costs less than the nodes of a tree would.
const FEW_MAX: usize = 16;

/// A sorted set of keys. Most hold one to three (the pods of a ReplicaSet), some thousands.
#[derive(Clone, Debug)]
pub(crate) enum KeySet {
    Few(Arc<[Arc<ResourceKey>]>),
    Many(imbl::OrdSet<Arc<ResourceKey>>),
}

impl KeySet {
    pub(crate) fn one(key: Arc<ResourceKey>) -> Self {
        KeySet::Few(Arc::from([key]))
    }

    pub(crate) fn insert(&mut self, key: Arc<ResourceKey>) {
        match self {
            KeySet::Few(list) => {
                let Err(at) = list.binary_search(&key) else { return };
                if list.len() < FEW_MAX {
                    let (before, after) = list.split_at(at);
                    *list = before
                        .iter()
                        .cloned()
                        .chain([key])
                        .chain(after.iter().cloned())
                        .collect();
                } else {
                    let mut set: imbl::OrdSet<_> = list.iter().cloned().collect();
                    set.insert(key);
                    *self = KeySet::Many(set);
                }
            }
            KeySet::Many(set) => {
                set.insert(key);
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &ResourceKey) {
        match self {
            KeySet::Few(list) => {
                if let Ok(at) = list.binary_search_by(|known| (**known).cmp(key)) {
                    *list = list
                        .iter()
                        .enumerate()
                        .filter(|(index, _)| *index != at)
                        .map(|(_, key)| key.clone())
                        .collect();
                }
            }
            KeySet::Many(set) => {
                set.remove(key);
                // Half of the limit, so that a set at the limit does not change its form at every step.
                if set.len() <= FEW_MAX / 2 {
                    *self = KeySet::Few(set.iter().cloned().collect());
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            KeySet::Few(list) => list.is_empty(),
            KeySet::Many(set) => set.is_empty(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            KeySet::Few(list) => list.len(),
            KeySet::Many(set) => set.len(),
        }
    }

    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = &Arc<ResourceKey>> + '_> {
        match self {
            KeySet::Few(list) => Box::new(list.iter()),
            KeySet::Many(set) => Box::new(set.iter()),
        }
    }
}
