//! The invariants of ownership.

use std::collections::BTreeMap;

use argosy_shard_coordinator::object::ClusterId;

use crate::process::{Micros, Process};

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which one, by its number and in words.
    pub invariant: &'static str,
    /// What happened.
    pub detail: String,
    /// When, in true time.
    pub at: Micros,
}

/// I1: an object never takes a write of an older epoch after one of a newer.
pub const EPOCH_MONOTONE: &str = "I1: writes are accepted in the order of epochs";
/// I5: every cluster has an owner once the faults are over.
pub const OWNED: &str = "I5: every cluster has exactly one owner";
/// I6: what is at rest stays at rest.
pub const AT_REST: &str = "I6: at rest nothing is written but renewals";
/// I8: nobody begins a write while another may write, or after a newer owner has.
pub const ONE_WRITER: &str = "I8: no write without the lease: one writer at a time";
/// I8, for writes under way.
pub const NONE_LATE: &str = "I8: no write lands after the end of its lease";

/// What the checker remembers.
#[derive(Default)]
pub struct Checker {
    /// The newest epoch under which somebody was made owner.
    owned: BTreeMap<ClusterId, u64>,
    /// The newest epoch under which a write began.
    begun: BTreeMap<ClusterId, u64>,
    /// The newest epoch of which a write was accepted.
    accepted: BTreeMap<ClusterId, u64>,
    /// Somebody has deleted everything, epochs included: they begin anew.
    pub wiped: bool,
    /// The first invariant that broke.
    pub broken: Option<Broken>,
}

impl Checker {
    /// Notes a broken invariant, if it is the first.
    pub fn broke(&mut self, at: Micros, invariant: &'static str, detail: String) {
        self.broken.get_or_insert(Broken {
            invariant,
            detail,
            at,
        });
    }

    /// A process was made owner.
    pub fn owns(&mut self, cluster: &ClusterId, epoch: u64) {
        let newest = self.owned.entry(cluster.clone()).or_default();
        *newest = epoch.max(*newest);
    }

    /// At most one process may begin writes to a cluster.
    pub fn one_writer<'a>(
        &mut self,
        now: Micros,
        cluster: &ClusterId,
        processes: impl Iterator<Item = (usize, &'a Process)>,
    ) {
        let writers: Vec<String> = processes
            .filter(|(_, process)| process.may_write(now, cluster))
            .map(|(pid, process)| {
                format!(
                    "process {pid} as {:?} epoch {}",
                    process.node.own().map(ToString::to_string),
                    process.holds[cluster].epoch
                )
            })
            .collect();
        if writers.len() > 1 {
            self.broke(now, ONE_WRITER, format!("{cluster}: {}", writers.join(", ")));
        }
    }

    /// A write leaves.
    pub fn begins(&mut self, now: Micros, cluster: &ClusterId, epoch: u64) {
        let newest = self.begun.get(cluster).copied().unwrap_or(0);
        if epoch < newest && !self.wiped {
            let detail = format!("{cluster}: a write of epoch {epoch} begins after one of {newest}");
            self.broke(now, ONE_WRITER, detail);
        }
        self.begun.insert(cluster.clone(), epoch.max(newest));
    }

    /// The target has accepted a write. `timely` unless the writer was frozen between its check and the network, or
    /// clocks run further apart than the margin allows.
    pub fn accepts(&mut self, now: Micros, cluster: &ClusterId, epoch: u64, timely: bool) {
        let newest = self.accepted.get(cluster).copied().unwrap_or(0);
        if epoch < newest && !self.wiped {
            let detail = format!("{cluster}: a write of epoch {epoch} is accepted after one of {newest}");
            self.broke(now, EPOCH_MONOTONE, detail);
        }
        self.accepted.insert(cluster.clone(), epoch.max(newest));
        let owned = self.owned.get(cluster).copied().unwrap_or(0);
        if timely && epoch < owned && !self.wiped {
            let detail = format!("{cluster}: a write of epoch {epoch} lands while {owned} has begun");
            self.broke(now, NONE_LATE, detail);
        }
    }
}
