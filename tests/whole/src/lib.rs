//! Whole controllers in virtual time.
//!
//! Everything that `argosy controller` is runs here as it is: watches, live state, queues, comparison, operations, status, leases
//! and the fence in front of writes. Around it are simulated API servers, a Git repository that is a number, and a network in
//! memory, all on one true time that a test turns:
//!
//! | module | is |
//! |---|---|
//! | `host` | a machine: a runtime of one thread with a clock of its own, which may stand still while time passes elsewhere |
//! | `network` | connections between machines, which may be held up, cut and lost |
//! | `git` | commits and what they ask for, and the repo-server that tells it |
//! | `world` | the control plane, targets and pods, and what can be done to them |
//! | `witness` | who stands at each connection and lets writes go wrong |
//! | `check` | what must hold whenever a write lands |
//! | [`run`] | one run: faults, then peace, then the end |
//!
//! A run is made from its seed. What it leaves to the real machine is the order in which Rust's hash maps are walked, which differs
//! from process to process.

mod check;
mod git;
mod host;
mod network;
mod run;
mod witness;
mod world;

pub use check::Broken;
pub use run::{Outcome, Plan, run, strike, taken_over_by_one_who_is_behind};
pub use witness::{Blow, Strike};
