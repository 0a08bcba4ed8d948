//! Sorted sets of rows by something that they have: 8 bytes an entry, shared between snapshots.

use std::hash::{BuildHasher, Hash};
use std::sync::LazyLock;

/// Where a row stands. Free places are used again.
pub(crate) type RowId = u32;

static HASHER: LazyLock<foldhash::quality::RandomState> = LazyLock::new(Default::default);

/// What a thing is found by. Different things may have the same token, so whoever finds a row looks at it.
pub(crate) fn token(thing: &(impl Hash + ?Sized)) -> u64 {
    HASHER.hash_one(thing)
}

/// Rows by the upper half of a token.
#[derive(Clone, Default)]
pub(crate) struct Index(imbl::OrdSet<u64>);

impl Index {
    pub(crate) fn insert(&mut self, token: u64, row: RowId) {
        self.0.insert(entry(token, row));
    }

    pub(crate) fn remove(&mut self, token: u64, row: RowId) {
        self.0.remove(&entry(token, row));
    }

    /// Rows that may have this token.
    pub(crate) fn rows(&self, token: u64) -> impl Iterator<Item = RowId> {
        self.range(token, token)
    }

    /// Rows whose token is in this range, both ends included.
    pub(crate) fn range(&self, from: u64, to: u64) -> impl Iterator<Item = RowId> {
        let range = entry(from, RowId::MIN)..=entry(to, RowId::MAX);
        self.0.range(range).map(|entry| *entry as RowId)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

fn entry(token: u64, row: RowId) -> u64 {
    token & 0xffff_ffff_0000_0000 | u64::from(row)
}
