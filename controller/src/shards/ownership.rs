//! What this process may write to, as the connector asks it: the lease's deadline and the clusters that are held.
//!
//! One writer: the shards' task. Everybody else asks, also in the middle of a write.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use argosy_kube_io::fence::Fence;
use argosy_runtime::clock::Clock;
use argosy_shard_coordinator::node::Authority;
use parking_lot::{Mutex, RwLock};

/// What this process holds. One a process.
pub struct Ownership {
    authority: RwLock<Option<Authority>>,
    holds: RwLock<HashMap<String, Arc<Hold>>>,
    /// What is under way to each cluster, under whichever epoch it left.
    wires: Mutex<HashMap<String, Arc<Wire>>>,
    /// A write without an answer is under way for so long after the lease that covered it.
    margin: Duration,
    clock: Arc<dyn Clock>,
    refused: AtomicU64,
}

/// One cluster under one epoch.
struct Hold {
    epoch: u64,
    open: AtomicBool,
}

/// Writes to one cluster that have left.
#[derive(Default)]
struct Wire {
    flying: AtomicUsize,
    /// Writes that were not answered may be under way until then.
    doubtful: Mutex<Duration>,
}

impl Ownership {
    /// Nothing is held. Deadlines are measured on `clock`.
    pub fn new(margin: Duration, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Ownership {
            authority: RwLock::new(None),
            holds: RwLock::default(),
            wires: Mutex::default(),
            margin,
            clock,
            refused: AtomicU64::new(0),
        })
    }

    /// Whether this cluster is ours, even if the lease has run out for the moment.
    pub fn owns(&self, server: &str) -> bool {
        self.holds.read().contains_key(server)
    }

    /// The epoch under which the cluster is held.
    pub fn epoch(&self, server: &str) -> Option<u64> {
        self.holds.read().get(server).map(|hold| hold.epoch)
    }

    /// Writes that were refused because the lease, or the cluster, was not held.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The fence of a cluster. It follows what is held from then on.
    pub fn fence(self: &Arc<Self>, server: &str) -> Arc<dyn Fence> {
        Arc::new(ClusterFence {
            ownership: self.clone(),
            wire: self.wire(server),
            server: server.to_owned(),
        })
    }

    fn wire(&self, server: &str) -> Arc<Wire> {
        let mut wires = self.wires.lock();
        if let Some(wire) = wires.get(server) {
            return wire.clone();
        }
        wires.entry(server.to_owned()).or_default().clone()
    }

    pub(super) fn set_authority(&self, authority: Option<Authority>) {
        *self.authority.write() = authority;
    }

    pub(super) fn open(&self, server: &str, epoch: u64) {
        let mut holds = self.holds.write();
        match holds.get(server) {
            // A hand-over was called off.
            Some(hold) if hold.epoch == epoch => hold.open.store(true, Ordering::SeqCst),
            _ => {
                let hold = Hold {
                    epoch,
                    open: AtomicBool::new(true),
                };
                holds.insert(server.to_owned(), Arc::new(hold));
            }
        }
    }

    pub(super) fn close(&self, server: &str) {
        if let Some(hold) = self.holds.read().get(server) {
            hold.open.store(false, Ordering::SeqCst);
        }
    }

    /// No write is under way any more, of this epoch or an earlier one.
    pub(super) fn quiet(&self, server: &str, epoch: u64, now: Duration) -> bool {
        let wire = self.wire(server);
        self.holds.read().get(server).is_none_or(|hold| {
            hold.epoch != epoch || (wire.flying.load(Ordering::SeqCst) == 0 && *wire.doubtful.lock() <= now)
        })
    }

    pub(super) fn forget(&self, server: &str) {
        self.holds.write().remove(server);
    }

    fn left(&self) -> Option<Duration> {
        let now = self.clock.since_boot();
        let authority = (*self.authority.read())?;
        (now < authority.start).then(|| authority.end.saturating_sub(now))
    }
}

struct ClusterFence {
    ownership: Arc<Ownership>,
    server: String,
    wire: Arc<Wire>,
}

impl ClusterFence {
    fn hold(&self) -> Option<Arc<Hold>> {
        self.ownership.holds.read().get(&self.server).cloned()
    }
}

impl Fence for ClusterFence {
    fn remaining(&self) -> Option<Duration> {
        let open = self.hold()?.open.load(Ordering::SeqCst);
        open.then(|| self.ownership.left()).flatten()
    }

    fn begun(&self) -> Box<dyn FnOnce(bool) + Send> {
        // Counted before the fence is asked: who closes it and then counts misses nobody.
        let (wire, ownership) = (self.wire.clone(), self.ownership.clone());
        wire.flying.fetch_add(1, Ordering::SeqCst);
        Box::new(move |answered| {
            if !answered {
                let end = ownership.authority.read().map(|authority| authority.end);
                let until = end.unwrap_or_else(|| ownership.clock.since_boot()) + ownership.margin;
                let mut doubtful = wire.doubtful.lock();
                *doubtful = until.max(*doubtful);
            }
            wire.flying.fetch_sub(1, Ordering::SeqCst);
        })
    }

    fn refused(&self) {
        self.ownership.refused.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use argosy_runtime::clock::Manual;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Nothing is held, and the clock stands at nothing.
    fn begin() -> (Arc<Ownership>, Manual) {
        let clock = Manual::new(jiff::Timestamp::UNIX_EPOCH);
        (Ownership::new(Duration::ZERO, Arc::new(clock.clone())), clock)
    }

    fn authority(start: Duration, end: Duration) -> Option<Authority> {
        Some(Authority { start, end })
    }

    #[test]
    fn a_write_may_leave_while_lease_and_cluster_are_held() {
        let (ownership, clock) = begin();
        let fence = ownership.fence("https://a");
        assert_eq!(fence.remaining(), None, "nothing is held");
        ownership.set_authority(authority(MINUTE, 2 * MINUTE));
        assert_eq!(fence.remaining(), None, "the cluster is not held");
        ownership.open("https://a", 3);
        assert_eq!(fence.remaining(), Some(2 * MINUTE));
        assert_eq!(ownership.epoch("https://a"), Some(3));
        ownership.close("https://a");
        assert_eq!(fence.remaining(), None, "it is being handed over");
        ownership.open("https://a", 3);
        assert_eq!(fence.remaining(), Some(2 * MINUTE), "it is kept");
        clock.advance(MINUTE);
        assert_eq!(fence.remaining(), None, "no write begins after the deadline");
    }

    #[test]
    fn a_hold_is_quiet_when_every_write_was_answered_or_its_time_has_passed() {
        let (ownership, _) = begin();
        ownership.set_authority(authority(MINUTE, MINUTE));
        ownership.open("https://a", 1);
        let fence = ownership.fence("https://a");
        let (answered, lost) = (fence.begun(), fence.begun());
        ownership.close("https://a");
        assert!(!ownership.quiet("https://a", 1, Duration::ZERO));
        answered(true);
        lost(false);
        assert!(
            !ownership.quiet("https://a", 1, Duration::ZERO),
            "one may still arrive"
        );
        assert!(ownership.quiet("https://a", 1, MINUTE));
    }

    #[test]
    fn what_left_under_an_earlier_epoch_is_waited_for_too() {
        let (ownership, _) = begin();
        ownership.set_authority(authority(MINUTE, MINUTE));
        ownership.open("https://a", 1);
        let fence = ownership.fence("https://a");
        let flying = fence.begun();
        // Its record was deleted and made anew, in its own name: lost for a moment, or without a word.
        ownership.forget("https://a");
        ownership.open("https://a", 2);
        ownership.open("https://a", 3);
        ownership.close("https://a");
        assert!(!ownership.quiet("https://a", 3, Duration::ZERO));
        flying(true);
        assert!(ownership.quiet("https://a", 3, Duration::ZERO));
    }
}
