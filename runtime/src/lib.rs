//! What every process of Argosy has in common, and nothing of what any of them is about: arguments, logs, the metrics
//! port, time, named tasks, and an orderly end.
//!
//! A process reads: parse its arguments, [`log::init`], make a [`tasks::Tasks`], spawn named tasks on it, serve
//! [`metrics::serve`], and wait for [`tasks::Tasks::run_until_stopped`].

pub mod args;
pub mod bounds;
pub mod clock;
pub mod dial;
pub mod log;
pub mod metrics;
pub mod process;
pub mod tasks;
