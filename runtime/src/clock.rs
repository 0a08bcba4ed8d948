//! The clocks of a process, by the door: who stamps times or measures leases takes a [`Clock`], so that tests and simulations
//! turn it.
//!
//! Waiting is tokio's (`tokio::time`), which tests pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{Timestamp, ToSpan};

/// Tells the time of day, and time that nobody sets.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;

    /// Time since some beginning, in which the process may sleep or be suspended. It never goes back and nobody sets it: leases
    /// are measured on it.
    fn since_boot(&self) -> Duration;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Clock for System {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn since_boot(&self) -> Duration {
        since_boot()
    }
}

/// Time since the machine was started, its sleep included, so that a machine that was suspended wakes up without its leases.
#[allow(unsafe_code)]
fn since_boot() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec of our own, which the call fills and does not keep.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    assert_eq!(
        failed, 0,
        "invariant: every Linux since 2.6.39 has CLOCK_BOOTTIME"
    );
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// A clock that stands until it is turned by hand. Clones share the hand.
#[derive(Clone, Debug)]
pub struct Manual {
    millis: Arc<AtomicI64>,
}

impl Manual {
    /// A clock that shows `at`.
    pub fn new(at: Timestamp) -> Self {
        Manual {
            millis: Arc::new(AtomicI64::new(at.as_millisecond())),
        }
    }

    /// Turns it forward.
    pub fn advance(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.millis.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for Manual {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.millis.load(Ordering::SeqCst)).unwrap_or(Timestamp::MAX)
    }

    fn since_boot(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.millis.load(Ordering::SeqCst)).unwrap_or_default())
    }
}

/// A clock that shows tokio's time: it stands and jumps with paused time in tests.
#[derive(Clone, Copy, Debug)]
pub struct Tokio {
    start: tokio::time::Instant,
    at_start: Timestamp,
}

impl Tokio {
    /// A clock that shows `at` at this moment of the current runtime.
    pub fn new(at: Timestamp) -> Self {
        Tokio {
            start: tokio::time::Instant::now(),
            at_start: at,
        }
    }
}

impl Clock for Tokio {
    fn now(&self) -> Timestamp {
        let millis = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.at_start
            .checked_add(millis.milliseconds())
            .unwrap_or(Timestamp::MAX)
    }

    fn since_boot(&self) -> Duration {
        self.start.elapsed()
    }
}

/// RFC 3339 with whole seconds and `Z`: how Kubernetes writes a time in an object.
pub fn rfc3339(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn times_in_objects_have_whole_seconds() {
        let at: Timestamp = "2026-11-29T15:00:01.987654321Z".parse().unwrap();
        assert_eq!(rfc3339(at), "2026-11-29T15:00:01Z");
    }

    #[test]
    fn a_manual_clock_moves_only_when_turned() {
        let clock = Manual::new("2026-11-29T15:00:00Z".parse().unwrap());
        let other = clock.clone();
        other.advance(Duration::from_secs(90));
        assert_eq!(rfc3339(clock.now()), "2026-11-29T15:01:30Z");
    }
}
