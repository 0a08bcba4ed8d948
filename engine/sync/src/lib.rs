//! What a sync does, decided without doing it.
//!
//! [`plan()`] turns compared resources and options into an ordered list of tasks; [`next()`] turns that plan, what has
//! been done and what is seen in the cluster into the one next [`Step`]. The caller applies, deletes and watches, and
//! comes back. Whether a sync starts at all is [`autosync::decide`]; when a failed one is tried again is [`retry`].
//!
//! Nothing here knows a clock, a cluster or a repository, so a plan can be printed, simulated and resumed elsewhere.

pub mod autosync;
pub mod hold;
pub mod hook;
mod marks;
pub mod options;
pub mod order;
pub mod phase;
pub mod plan;
pub mod progress;
pub mod result;
pub mod retry;
pub mod vital;
pub mod wave;

pub use hold::Hold;
pub use options::{ResourceOptions, SyncOptions, resource_options};
pub use phase::{OperationPhase, Phase};
pub use plan::{Action, Options, Plan, PlanError, Resource, Selector, Task, TaskId, plan};
pub use progress::{Observations, Outcome, Present, Progress, Seen, Step, Wait, WaitOn, next};
pub use result::{ResourceResult, ResultCode};
