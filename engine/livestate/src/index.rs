//! Sorted sets of rows by something that they have: about 9 bytes an entry, shared between snapshots.

use std::hash::{BuildHasher, Hash};
use std::ops::Bound;
use std::sync::{Arc, LazyLock};

/// Where a row stands. Free places are used again.
pub(crate) type RowId = u32;

static HASHER: LazyLock<foldhash::quality::RandomState> = LazyLock::new(Default::default);

/// What a thing is found by. Different things may have the same token, so whoever finds a row looks at it.
pub(crate) fn token(thing: &(impl Hash + ?Sized)) -> u64 {
    HASHER.hash_one(thing)
}

/// Entries in a run. A change copies one run, so longer ones cost time, and shorter ones room. Half of one and what stands
/// before it take 512 bytes, which allocators give out whole.
const RUN_LEN_MAX: usize = 124;
/// Two neighbours that are together no longer than this become one.
const MERGED_LEN_MAX: usize = RUN_LEN_MAX / 2;

/// Rows by the upper half of a token. The entries stand in sorted runs, each exactly as long as it is, by their first
/// entries: a tree with an entry in each of its places would be half empty.
#[derive(Clone, Default)]
pub(crate) struct Index {
    runs: imbl::OrdMap<u64, Arc<[u64]>>,
    len: usize,
}

impl Index {
    pub(crate) fn insert(&mut self, token: u64, row: RowId) {
        let entry = entry(token, row);
        let Some((first, run)) = self.run_of(entry).or_else(|| self.runs.get_min().cloned()) else {
            self.runs.insert(entry, Arc::from([entry]));
            self.len = 1;
            return;
        };
        let Err(at) = run.binary_search(&entry) else {
            return;
        };
        let run = [&run[..at], &[entry], &run[at..]].concat();
        self.len += 1;
        match run.len() > RUN_LEN_MAX {
            true => {
                let (low, high) = run.split_at(run.len() / 2);
                self.put(first, low);
                self.runs.insert(high[0], Arc::from(high));
            }
            false => self.put(first, &run),
        }
    }

    pub(crate) fn remove(&mut self, token: u64, row: RowId) {
        let entry = entry(token, row);
        let Some((first, run)) = self.run_of(entry) else {
            return;
        };
        let Ok(at) = run.binary_search(&entry) else { return };
        let mut run = [&run[..at], &run[at + 1..]].concat();
        self.len -= 1;
        let following = self
            .runs
            .range::<_, u64>((Bound::Excluded(first), Bound::Unbounded))
            .next();
        if let Some((next, following)) = following.map(|(next, run)| (*next, run.clone()))
            && run.len() + following.len() <= MERGED_LEN_MAX
        {
            run.extend_from_slice(&following);
            self.runs.remove(&next);
        }
        self.put(first, &run);
    }

    /// Rows that may have this token.
    pub(crate) fn rows(&self, token: u64) -> impl Iterator<Item = RowId> {
        self.range(token, token)
    }

    /// Rows whose token is in this range, both ends included.
    pub(crate) fn range(&self, from: u64, to: u64) -> impl Iterator<Item = RowId> {
        let (from, to) = (entry(from, RowId::MIN), entry(to, RowId::MAX));
        let start = self.runs.get_prev(&from).map_or(from, |(first, _)| *first);
        let runs = self.runs.range(start..=to);
        runs.flat_map(move |(_, run)| {
            let begin = run.partition_point(|entry| *entry < from);
            let end = run.partition_point(|entry| *entry <= to);
            run[begin..end.max(begin)].iter().map(|entry| *entry as RowId)
        })
    }

    /// Whether this row is there under this token.
    pub(crate) fn contains(&self, token: u64, row: RowId) -> bool {
        let entry = entry(token, row);
        self.run_of(entry)
            .is_some_and(|(_, run)| run.binary_search(&entry).is_ok())
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The run that an entry is in, if it is in any.
    fn run_of(&self, entry: u64) -> Option<(u64, Arc<[u64]>)> {
        self.runs
            .get_prev(&entry)
            .map(|(first, run)| (*first, run.clone()))
    }

    /// Puts a run in the place of the one that began with `first`.
    fn put(&mut self, first: u64, run: &[u64]) {
        if run.first() != Some(&first) {
            self.runs.remove(&first);
        }
        if let Some(first) = run.first() {
            self.runs.insert(*first, Arc::from(run));
        }
    }
}

fn entry(token: u64, row: RowId) -> u64 {
    token & 0xffff_ffff_0000_0000 | u64::from(row)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_plain_set_holds(steps in prop::collection::vec((any::<bool>(), 0..40_u64, 0..60_u32), 0..3000)) {
            let (mut index, mut plain) = (Index::default(), BTreeSet::new());
            let mut before = None;
            for (adds, token, row) in steps {
                let token = token << 32;
                if adds {
                    index.insert(token, row);
                    plain.insert((token, row));
                } else {
                    index.remove(token, row);
                    plain.remove(&(token, row));
                }
                before.get_or_insert_with(|| (index.clone(), plain.clone()));
            }
            for (index, plain) in before.into_iter().chain([(index, plain)]) {
                prop_assert_eq!(index.len(), plain.len());
                for token in 0..41_u64 {
                    let (token, upper) = (token << 32, (token + 3) << 32);
                    let rows: Vec<RowId> = index.rows(token).collect();
                    let of = |from, to| plain.range((from, 0)..=(to, RowId::MAX)).map(|(_, row)| *row).collect::<Vec<_>>();
                    prop_assert_eq!(rows, of(token, token));
                    prop_assert_eq!(index.range(token, upper).collect::<Vec<_>>(), of(token, upper));
                }
            }
        }
    }
}
