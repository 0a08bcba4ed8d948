//! Named tasks, and the end of a process.
//!
//! Every task of a process is spawned here under a name. A panic stays inside its task: it is logged with the name,
//! counted, and then the task is either over, started again, or ends the process, as its spawner chose. The process
//! ends when [`Tasks::stop`] is called, a signal comes, or a vital task is over; then everyone holding
//! [`Tasks::stopping`] finishes, for at most a grace period.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

/// The first wait before a panicked task is started again; it doubles to [`RESTART_WAIT_MAX`].
const RESTART_WAIT: Duration = Duration::from_millis(500);
/// The longest wait before a panicked task is started again.
const RESTART_WAIT_MAX: Duration = Duration::from_secs(30);

/// Why the process ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// A task without which the process is of no use is over.
    #[error("task {name} ended: {reason}")]
    Vital {
        /// Its name.
        name: String,
        /// Its error, or that it panicked or returned.
        reason: String,
    },
}

/// The tasks of one process. Clones share them.
#[derive(Clone)]
pub struct Tasks {
    inner: Arc<Inner>,
}

struct Inner {
    tracker: TaskTracker,
    stopping: CancellationToken,
    panics: AtomicU64,
    ended: std::sync::Mutex<Option<Ended>>,
}

impl Default for Tasks {
    fn default() -> Self {
        Tasks::new()
    }
}

impl Tasks {
    /// No task yet.
    pub fn new() -> Self {
        Tasks {
            inner: Arc::new(Inner {
                tracker: TaskTracker::new(),
                stopping: CancellationToken::new(),
                panics: AtomicU64::new(0),
                ended: std::sync::Mutex::new(None),
            }),
        }
    }

    /// Is cancelled when the process is to end.
    pub fn stopping(&self) -> CancellationToken {
        self.inner.stopping.clone()
    }

    /// Panics caught so far.
    pub fn panics(&self) -> u64 {
        self.inner.panics.load(Ordering::Relaxed)
    }

    /// Asks every task to finish.
    pub fn stop(&self) {
        self.inner.stopping.cancel();
    }

    /// Runs `future` as the task `name`. A panic ends this task alone. The task is dropped at its next await when the
    /// process stops.
    pub fn spawn<F>(&self, name: impl Into<String>, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (tasks, name) = (self.clone(), name.into());
        self.inner.tracker.spawn(async move {
            let stopping = tasks.stopping();
            tokio::select! {
                biased;
                () = stopping.cancelled() => {}
                outcome = caught(future) => if let Err(message) = outcome { tasks.panicked(&name, &message) },
            }
        });
    }

    /// Like [`Tasks::spawn`], but the task is left to see [`Tasks::stopping`] itself and finish what it has in hand.
    pub fn spawn_finishing<F>(&self, name: impl Into<String>, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (tasks, name) = (self.clone(), name.into());
        self.inner.tracker.spawn(async move {
            if let Err(message) = caught(future).await {
                tasks.panicked(&name, &message);
            }
        });
    }

    /// Runs what `make` returns as the task `name`; after a panic it is made again, with growing waits.
    pub fn spawn_restarting<M, F>(&self, name: impl Into<String>, mut make: M)
    where
        M: FnMut() -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (tasks, name) = (self.clone(), name.into());
        self.inner.tracker.spawn(async move {
            let stopping = tasks.stopping();
            let mut wait = RESTART_WAIT;
            loop {
                let started = tokio::time::Instant::now();
                tokio::select! {
                    biased;
                    () = stopping.cancelled() => return,
                    outcome = caught(make()) => match outcome {
                        Ok(()) => return,
                        Err(message) => tasks.panicked(&name, &message),
                    },
                }
                if started.elapsed() > RESTART_WAIT_MAX {
                    wait = RESTART_WAIT;
                }
                tokio::select! {
                    () = stopping.cancelled() => return,
                    () = tokio::time::sleep(wait) => wait = (wait * 2).min(RESTART_WAIT_MAX),
                }
            }
        });
    }

    /// Runs `future` as the task `name`, without which the process is of no use: when it is over in any way, the
    /// process stops.
    pub fn spawn_vital<F, E>(&self, name: impl Into<String>, future: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display + Send,
    {
        let (tasks, name) = (self.clone(), name.into());
        self.inner.tracker.spawn(async move {
            let stopping = tasks.stopping();
            let outcome = tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                outcome = caught(future) => outcome,
            };
            let reason = match outcome {
                Ok(Ok(())) => "it returned".to_owned(),
                Ok(Err(error)) => format!("{error:#}"),
                Err(message) => {
                    tasks.panicked(&name, &message);
                    format!("it panicked: {message}")
                }
            };
            tasks.end(Ended::Vital { name, reason });
        });
    }

    /// Waits until the process is to stop, by [`Tasks::stop`], a vital task, SIGTERM or SIGINT; then lets the tasks
    /// finish for at most `grace`, or until another signal. An error names the vital task that ended it.
    pub async fn run_until_stopped(&self, grace: Duration) -> Result<(), Ended> {
        let stopping = self.stopping();
        let mut signals = Signals::listen();
        tokio::select! {
            () = stopping.cancelled() => {}
            signal = signals.next() => {
                info!(signal, "stopping on a signal");
                self.stop();
            }
        }
        tokio::select! {
            ended = self.finish(grace) => ended,
            signal = signals.next() => {
                warn!(signal, left = self.inner.tracker.len(), "ending at once on another signal");
                self.ended()
            }
        }
    }

    /// Once the tasks are to stop: lets them finish for at most `grace`. An error names the vital task that ended the process.
    ///
    /// # Errors
    /// The end of a vital task.
    pub async fn finish(&self, grace: Duration) -> Result<(), Ended> {
        self.inner.tracker.close();
        if tokio::time::timeout(grace, self.inner.tracker.wait())
            .await
            .is_err()
        {
            let left = self.inner.tracker.len();
            warn!(left, "tasks were still busy at the end of the grace period");
        }
        self.ended()
    }

    /// What ended the process, if a vital task did.
    fn ended(&self) -> Result<(), Ended> {
        match self
            .inner
            .ended
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take()
        {
            Some(ended) => Err(ended),
            None => Ok(()),
        }
    }

    fn end(&self, ended: Ended) {
        error!("{ended}");
        self.inner
            .ended
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .get_or_insert(ended);
        self.stop();
    }

    fn panicked(&self, name: &str, message: &str) {
        self.inner.panics.fetch_add(1, Ordering::Relaxed);
        error!(task = name, panic = message, "a task panicked");
    }
}

/// Runs work that keeps a processor busy for a while, beside the threads that wait for the network. A runtime with one thread,
/// as in simulations, does it at once: there time stands meanwhile.
///
/// # Errors
/// With the message of its panic.
pub async fn busy<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    use tokio::runtime::{Handle, RuntimeFlavor};
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return std::panic::catch_unwind(AssertUnwindSafe(work)).map_err(|payload| panic_message(&*payload));
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| match error.try_into_panic() {
        Ok(payload) => panic_message(&*payload),
        Err(error) => error.to_string(),
    })
}

/// Runs a future to its end and returns the message of a panic in it as an error.
pub async fn caught<F: Future>(future: F) -> Result<F::Output, String> {
    AssertUnwindSafe(future)
        .catch_unwind()
        .await
        .map_err(|payload| panic_message(&*payload))
}

/// The text of a panic.
pub fn panic_message(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    }
}

/// The signals that ask the process to end.
struct Signals(Option<(Signal, Signal)>);

impl Signals {
    fn listen() -> Self {
        match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            (Ok(term), Ok(int)) => Signals(Some((term, int))),
            _ => {
                warn!("signals cannot be listened to, the process ends only by being killed");
                Signals(None)
            }
        }
    }

    /// The name of the next one.
    async fn next(&mut self) -> &'static str {
        let Some((term, int)) = &mut self.0 else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = int.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_its_own_task_alone() {
        let tasks = Tasks::new();
        let (tx, rx) = tokio::sync::oneshot::channel();
        tasks.spawn("bad", async { panic!("broken on purpose") });
        tasks.spawn("good", async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            tx.send(7).unwrap();
        });
        assert_eq!(rx.await.unwrap(), 7);
        assert_eq!(tasks.panics(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_restarting_task_comes_back_after_a_panic() {
        let tasks = Tasks::new();
        let runs = Arc::new(AtomicUsize::new(0));
        let (tx, mut rx) = tokio::sync::mpsc::channel(1);
        let seen = runs.clone();
        tasks.spawn_restarting("flaky", move || {
            let (seen, tx) = (seen.clone(), tx.clone());
            async move {
                if seen.fetch_add(1, Ordering::SeqCst) < 3 {
                    panic!("not yet");
                }
                tx.send(()).await.unwrap();
            }
        });
        rx.recv().await.unwrap();
        assert_eq!(runs.load(Ordering::SeqCst), 4);
        assert_eq!(tasks.panics(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_vital_task_ends_the_process_with_its_reason() {
        let tasks = Tasks::new();
        tasks.spawn("endless", std::future::pending());
        tasks.spawn_vital("listener", async { Err::<(), _>("port is taken") });
        let ended = tasks.run_until_stopped(Duration::from_secs(5)).await;
        assert_eq!(
            ended,
            Err(Ended::Vital {
                name: "listener".into(),
                reason: "port is taken".into()
            })
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_finishing_task_is_waited_for() {
        let tasks = Tasks::new();
        let done = Arc::new(AtomicUsize::new(0));
        let (stopping, seen) = (tasks.stopping(), done.clone());
        tasks.spawn_finishing("write", async move {
            stopping.cancelled().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            seen.store(1, Ordering::SeqCst);
        });
        tasks.stop();
        tasks.run_until_stopped(Duration::from_secs(5)).await.unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 1);
    }
}
