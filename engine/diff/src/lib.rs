//! Diff: what Git wants × what the cluster has → is it different, where, and why.
//!
//! [`compare`] is the recipe: take from both sides what Git cannot own ([`normalize`]) and what a person said to ignore ([`ignore`]), work out
//! what the live object would be after an apply ([`merge`]), and report every place where that is not what it is now. The merge is the same
//! for looking and for applying: [`patch::three_way`] writes down the way from the live object to the merged one.
//!
//! Equality is by meaning, from the schema of the target cluster: `1000m` is `1`, an absent list is an empty one, `60s` is `1m0s`. A field
//! that the schema does not know is compared as it is written and switches nothing off.

mod compare;
mod dry_run;
pub mod explain;
mod facts;
pub mod ignore;
mod last_applied;
pub mod managed;
pub mod mask;
mod merge;
mod node;
mod normalize;
pub mod patch;
mod scalar;
mod seen;
mod structured;

pub use compare::{
    Comparison, Context, Difference, IgnoreStatus, KnownType, KnownTypeKind, Options, compare, compare_owned,
};
pub use dry_run::{NotAnApply, compare_dry_run};
pub use ignore::{Finding, IgnoreRule, IgnoreRules};
pub use patch::{Patch, PatchKind};
pub use seen::Seen;

/// A Kubernetes document.
pub use argosy_object::Value;

/// Where client-side apply keeps what it applied last.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The field manager under which `kubectl apply` writes.
pub const CLIENT_SIDE_APPLY_MANAGER: &str = "kubectl-client-side-apply";

/// The field manager under which the controller writes.
pub const FIELD_MANAGER: &str = "argocd-controller";
