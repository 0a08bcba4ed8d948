//! The shards' protocol in virtual time, with everything going wrong that can.
//!
//! The real [`argosy_shard_coordinator::node::Node`] runs in a few simulated processes against one simulated store.
//! Everything else comes from a seed: how long calls take, which are lost on the way there or back, who crashes around
//! which write, who is frozen, who is cut off, whose watch lags or goes back in time, whose clock runs how fast. After
//! every step the invariants of ownership are checked ([`check`]); when the faults end, that everything is owned, at rest
//! and balanced.

pub mod check;
pub mod coverage;
pub mod process;
pub mod run;
pub mod store;
pub mod world;

pub use coverage::Coverage;
pub use run::{Outcome, Plan, run};
