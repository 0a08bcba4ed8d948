//! What documents share: one table of words, one of shapes, both of the whole process.
//!
//! An item has a number, which documents write in two or three bytes where it stands for the item. Users are counted;
//! the last one takes the item along. Tables are split by hash, so that writers of many clusters rarely meet.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

use hashbrown::HashTable;
use parking_lot::RwLock;

/// Parts of a table: a power of two.
const SHARDS: usize = 64;

/// An item's number. It is valid as long as somebody uses the item.
pub(super) type Id = u32;

pub(super) struct Pool<T> {
    shards: [RwLock<Shard<T>>; SHARDS],
}

struct Shard<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    /// Places in `entries`, by hash.
    index: HashTable<u32>,
}

struct Entry<T> {
    hash: u32,
    users: u32,
    item: Option<T>,
}

impl<T> Pool<T> {
    pub(super) fn new() -> Self {
        Pool {
            shards: std::array::from_fn(|_| {
                RwLock::new(Shard {
                    entries: Vec::new(),
                    free: Vec::new(),
                    index: HashTable::new(),
                })
            }),
        }
    }

    /// The number of the item with this hash for which `is` holds, if there is one, with one more user.
    pub(super) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<Id> {
        let (number, short) = split(hash);
        let shard = &mut *self.shards[number].write();
        let at = shard.find(short, is)?;
        shard.entries[at as usize].users += 1;
        Some(id(at, number))
    }

    /// The number of such an item, which is added if there is none, with one more user.
    pub(super) fn find_or_add(&self, hash: u64, is: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> Id {
        let (number, short) = split(hash);
        let shard = &mut *self.shards[number].write();
        let at = shard.find(short, is).unwrap_or_else(|| shard.add(short, make()));
        shard.entries[at as usize].users += 1;
        id(at, number)
    }

    /// Reads an item that somebody uses.
    pub(super) fn with<R>(&self, id: Id, read: impl FnOnce(&T) -> R) -> R {
        let shard = self.shards[id as usize % SHARDS].read();
        let item = shard.entries[id as usize / SHARDS].item.as_ref();
        read(item.expect("a number that is in use names an item"))
    }

    /// Adds a user to an item that has one.
    pub(super) fn enter(&self, id: Id) {
        self.shards[id as usize % SHARDS].write().entries[id as usize / SHARDS].users += 1;
    }

    /// Takes a user away, and the item when that was the last one.
    pub(super) fn release(&self, id: Id) {
        // The item goes after the lock: its end may release other items.
        let _gone = self.shards[id as usize % SHARDS]
            .write()
            .release(id as usize / SHARDS);
    }

    /// How many items there are.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().index.len()).sum()
    }
}

impl<T> Shard<T> {
    fn find(&self, hash: u32, is: impl Fn(&T) -> bool) -> Option<u32> {
        let entries = &self.entries;
        let same = |at: &u32| {
            let entry = &entries[*at as usize];
            entry.hash == hash && entry.item.as_ref().is_some_and(&is)
        };
        self.index.find(spread(hash), same).copied()
    }

    fn add(&mut self, hash: u32, item: T) -> u32 {
        let entry = Entry {
            hash,
            users: 0,
            item: Some(item),
        };
        let at = if let Some(at) = self.free.pop() {
            self.entries[at as usize] = entry;
            at
        } else {
            if self.entries.len() == self.entries.capacity() {
                // Doubling would leave a third of a large table empty.
                self.entries.reserve_exact(self.entries.len() / 8 + 8);
            }
            self.entries.push(entry);
            u32::try_from(self.entries.len() - 1).expect("a table holds fewer than 2^26 items a shard")
        };
        let entries = &self.entries;
        self.index
            .insert_unique(spread(hash), at, |at| spread(entries[*at as usize].hash));
        at
    }

    fn release(&mut self, at: usize) -> Option<T> {
        let entry = &mut self.entries[at];
        entry.users -= 1;
        if entry.users > 0 {
            return None;
        }
        let (item, hash) = (entry.item.take(), entry.hash);
        if let Ok(found) = self.index.find_entry(spread(hash), |other| *other as usize == at) {
            found.remove();
        }
        if self.index.is_empty() {
            (self.entries, self.free, self.index) = (Vec::new(), Vec::new(), HashTable::new());
        } else {
            self.free
                .push(u32::try_from(at).expect("it came from a number of 32 bits"));
        }
        item
    }
}

/// The shard and the part of a hash that entries keep.
fn split(hash: u64) -> (usize, u32) {
    ((hash >> 58) as usize % SHARDS, hash as u32)
}

fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn id(at: u32, shard: usize) -> Id {
    at * SHARDS as u32 + shard as u32
}

/// Tells what comes for the second time: what is alone in the process should not enter a table. Forgetful by
/// design, each place remembers the last hash that fell on it.
pub(super) fn seen_before(hash: u64) -> bool {
    const PLACES: usize = 1 << 18;
    static SEEN: LazyLock<Box<[AtomicU16]>> =
        LazyLock::new(|| (0..PLACES).map(|_| AtomicU16::new(0)).collect());
    let mark = (hash >> 40) as u16 | 1;
    SEEN[hash as usize % PLACES].swap(mark, Ordering::Relaxed) == mark
}
