//! The application controller: the I/O shell around `engine/`.
//!
//! Two sentences are readable in the file list.
//!
//! - *A commit becomes status*: [`reconcile`] reads as one recipe (desired, live, compare, decide, health, conditions)
//!   with a file for each stage in `reconcile/`; [`operation`] is the recipe of a running sync; [`status`] is the
//!   only writer of Applications.
//! - *An event becomes work*: [`watch`] → `argosy_livestate` → [`dirty`] → [`queue`] → [`reconcile`].
//!
//! | fact | its one writer | readers get |
//! |---|---|---|
//! | Applications, AppProjects in this process | [`apps`] | `Arc`s out of [`apps::Store`] |
//! | argocd-cm, repository credentials | [`settings`] | an `Arc<Settings>` that never changes |
//! | cluster Secrets, live state of a cluster | [`clusters`], [`watch`] | a [`clusters::Cluster`] handle and its snapshots |
//! | what must be looked at | [`dirty`] into [`queue`] | one entry an Application |
//! | `status`, `operation`, annotations and finalizers of an Application | [`status`] | the object the write returned |
//!
//! Events say *look*, never *what*: a mark may be repeated or merged and nothing breaks, because each pass reads the
//! state. Nothing here scans all Applications or a whole cluster to answer for one Application.

mod account;
pub mod apps;
mod args;
pub mod clusters;
mod context;
pub mod deletion;
pub mod dirty;
pub mod events;
mod metrics;
mod neighbours;
pub mod operation;
pub mod queue;
pub mod reconcile;
mod redis;
mod run;
pub mod settings;
pub mod shards;
pub mod status;
mod tree;
mod watch;

pub use args::Args;
pub use context::{AppKey, Context, DirtySink, Options, StatusWriter, WriteError};
pub use run::{Surroundings, run, start};
