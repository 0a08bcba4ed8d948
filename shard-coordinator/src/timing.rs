//! How long what may take. All times are measured on one process's own monotonic clock.

use std::time::Duration;

/// The longest time between two renewals that can be asked for. Longer ones would leave clusters unowned for longer.
pub const RENEW_MAX: Duration = Duration::from_secs(10);

/// However seldom leases are renewed: a process that is to end is killed half a minute later.
const LEAVE_MAX: Duration = Duration::from_secs(15);

/// A moment: time since an arbitrary start, on the monotonic clock of one process.
pub type Time = Duration;

/// The times of the protocol.
///
/// A write may begin until [`Timing::write`] after the last successful renewal was *sent*, and must be over at
/// [`Timing::duration`]. Others take a lease away when they have seen it unchanged for `duration + margin`. They saw the
/// renewal after it was sent, so the margin covers clocks that run at rates differing by up to `margin / duration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// Between two renewals.
    pub renew: Duration,
    /// A renewal without an answer is sent again after so long.
    pub attempt: Duration,
    /// Writes begin no later than this after the last renewal.
    pub write: Duration,
    /// Writes are over by then.
    pub duration: Duration,
    /// Others wait so much longer.
    pub margin: Duration,
    /// A new coordinator waits so long for shards that are just starting before it gives away what nobody has owned.
    pub gather: Duration,
    /// A successor that has not listed the cluster after so long gets it without.
    pub warm: Duration,
    /// The same while the owner's process is ending; then everything is let go.
    pub leave: Duration,
    /// The lease of a shard that is over is removed after so long.
    pub forget: Duration,
    /// Everything is listed anew after so long: a watch may lose a change without a word.
    pub relist: Duration,
    /// The longest that any shard is known to want to be waited for ([`Timing::wanted`]): while the time between renewals is being
    /// changed, shards with different ones run side by side.
    pub longest: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing::with_renewal(Duration::from_secs(5))
    }
}

impl Timing {
    /// All times in proportion to the time between two renewals: 5 s make a lease of 20 s.
    pub fn with_renewal(renew: Duration) -> Self {
        Timing {
            renew,
            attempt: renew * 4 / 5,
            write: renew * 12 / 5,
            duration: renew * 4,
            margin: renew,
            gather: renew * 2 / 5,
            warm: renew * 12,
            leave: (renew * 3).min(LEAVE_MAX),
            forget: renew * 120,
            relist: renew * 120,
            longest: Duration::ZERO,
        }
    }

    /// A lease that has not changed for so long is nobody's any more.
    pub fn expiry(&self) -> Duration {
        self.wanted().max(self.longest)
    }

    /// What others have to wait before they take a lease away that is held by these times.
    pub fn wanted(&self) -> Duration {
        self.duration + self.margin
    }

    /// A lease is known that says how long it is to be waited for.
    pub(crate) fn heard_of(&mut self, wanted: Duration) {
        let most = Timing::with_renewal(RENEW_MAX).wanted();
        self.longest = self.longest.max(wanted.min(most));
    }
}
