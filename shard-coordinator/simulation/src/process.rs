//! A simulated process: the real node, a clock of its own, and what the shell around the node would keep.

use std::collections::BTreeMap;
use std::time::Duration;

use argosy_shard_coordinator::node::Node;
use argosy_shard_coordinator::object::ClusterId;

/// True time, in microseconds.
pub type Micros = u64;

/// One process from its start to its end.
pub struct Process {
    /// Which place it fills.
    pub slot: usize,
    /// The protocol.
    pub node: Node,
    /// How much longer others wait than it writes.
    pub margin: Duration,
    /// Its clock ran on before it started.
    pub offset: Micros,
    /// Thousandths of true time that its clock shows.
    pub rate: u64,
    /// It does nothing until then.
    pub frozen: Micros,
    /// Its calls do not reach the store until then.
    pub cut: Micros,
    /// Its watch tells nothing until then.
    pub lag: Micros,
    /// How much of the store's history its watch has told.
    pub cursor: usize,
    /// It has got its first list.
    pub listed: bool,
    /// What it may write to.
    pub holds: BTreeMap<ClusterId, Hold>,
    /// It has been told to end.
    pub stopping: bool,
}

/// A cluster that a process holds.
pub struct Hold {
    /// Under which epoch.
    pub epoch: u64,
    /// Writes may begin.
    pub open: bool,
    /// Writes under way.
    pub flying: u32,
    /// The version of the target that the process has seen.
    pub seen: Option<u64>,
}

impl Process {
    /// What its clock shows.
    pub fn local(&self, now: Micros) -> Duration {
        Duration::from_micros(self.offset + now / 1000 * self.rate + now % 1000 * self.rate / 1000)
    }

    /// When its clock will show that.
    pub fn when(&self, local: Duration) -> Micros {
        let shown = u64::try_from(local.as_micros())
            .unwrap_or(u64::MAX)
            .saturating_sub(self.offset);
        shown.saturating_mul(1000) / self.rate + 1
    }

    /// Time left in which writes may begin and must be over.
    pub fn left(&self, now: Micros) -> Option<Duration> {
        let authority = self.node.authority()?;
        let local = self.local(now);
        (local < authority.start).then(|| authority.end - local)
    }

    /// Whether a write to the cluster may begin.
    pub fn may_write(&self, now: Micros, cluster: &ClusterId) -> bool {
        self.left(now).is_some() && self.holds.get(cluster).is_some_and(|hold| hold.open)
    }
}
