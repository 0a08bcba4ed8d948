//! Health: what a live object says about itself, and what its objects say about an Application.
//!
//! [`assess`] answers for one live object, in the order Argo CD asks: is it being deleted, does somebody's Lua script know it, do we know it
//! natively ([`kind`] modules, one a kind; [`rules`], data for custom resources). [`assess_among`] adds what other objects of the cluster know
//! about it. [`aggregate`] answers for an Application from the answers of its resources.
//!
//! Pure but for one documented exception: a Lua script is somebody else's program, so the guard around it reads the monotonic clock to end
//! a run that takes longer than its deadline. No answer contains a time.

pub mod action;
mod aggregate;
mod assess;
mod customizations;
mod expression;
mod fields;
mod kind;
mod lua;
mod neighbours;
mod rules;
mod status;

pub use aggregate::{Aggregate, Child, aggregate};
pub use assess::assess;
pub use customizations::{Customizations, PatternError};
pub use lua::{DEADLINE as LUA_DEADLINE, MEMORY_LIMIT as LUA_MEMORY_LIMIT};
pub use neighbours::{Neighbours, assess_among};
pub use rules::builtin_kinds;
pub use status::{Health, Status, UnknownStatus};

/// A Kubernetes document.
pub use argosy_object::Value;
