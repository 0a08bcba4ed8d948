//! A machine: one runtime of one thread whose time is turned from outside.
//!
//! Everything that runs on it runs to rest before its clock moves on, so that a machine does the same whatever else the real one is
//! doing. It may be left standing while time passes elsewhere, as a process that is stopped or a machine that is suspended: when it
//! goes on, its clock has gone on, and every timer that would have rung rings at once.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

/// One machine, with a clock of its own.
pub(crate) struct Host {
    runtime: Runtime,
    start: Instant,
    /// Thousandths of true time that its clock runs fast.
    fast: i64,
    began: Duration,
    stood: bool,
}

impl Host {
    /// A machine that starts at this moment of true time.
    pub(crate) fn new(began: Duration, fast: i64) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()?;
        let start = runtime.block_on(async { Instant::now() });
        Ok(Host {
            runtime,
            start,
            fast,
            began,
            stood: false,
        })
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// What its clock shows at a moment of true time.
    fn shows(&self, now: Duration) -> Duration {
        let lived = now.saturating_sub(self.began).as_micros() as i64;
        Duration::from_micros((lived + lived * self.fast / 1000) as u64)
    }

    /// Lets everything run until `now`.
    pub(crate) fn drive(&mut self, now: Duration) {
        let until = self.start + self.shows(now);
        let stood = std::mem::take(&mut self.stood);
        self.runtime.block_on(async {
            let left = until.saturating_duration_since(Instant::now());
            if stood {
                tokio::time::advance(left).await;
            }
            tokio::time::sleep_until(until).await;
        });
    }

    /// It stands still until it is driven again.
    pub(crate) fn stand(&mut self) {
        self.stood = true;
    }
}
