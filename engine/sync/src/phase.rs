//! The phases of a sync, and the phases of the operation that runs it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// When in a sync a task runs. The order of the variants is the order in which they run;
/// `SyncFail` runs instead of what remains once something has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Hooks before anything is applied.
    PreSync,
    /// Resources, and the hooks that run among them.
    Sync,
    /// Hooks after every resource is healthy.
    PostSync,
    /// Hooks that run because the sync failed.
    SyncFail,
}

impl Phase {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::PreSync => "PreSync",
            Phase::Sync => "Sync",
            Phase::PostSync => "PostSync",
            Phase::SyncFail => "SyncFail",
        }
    }
}

/// The state of an operation, and of each of its tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OperationPhase {
    /// At work, or waiting.
    Running,
    /// Asked to stop; running hooks are being removed.
    Terminating,
    /// Ended: the cluster or a hook said no.
    Failed,
    /// Ended: the sync itself could not go on.
    Error,
    /// Ended well.
    Succeeded,
}

impl OperationPhase {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            OperationPhase::Running => "Running",
            OperationPhase::Terminating => "Terminating",
            OperationPhase::Failed => "Failed",
            OperationPhase::Error => "Error",
            OperationPhase::Succeeded => "Succeeded",
        }
    }

    /// True for `Failed`, `Error` and `Succeeded`: nothing more happens.
    pub fn completed(self) -> bool {
        matches!(
            self,
            OperationPhase::Failed | OperationPhase::Error | OperationPhase::Succeeded
        )
    }

    /// True for `Succeeded` alone.
    pub fn successful(self) -> bool {
        self == OperationPhase::Succeeded
    }
}

/// A name that is none of the known ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown phase {0:?}")]
pub struct UnknownPhase(pub String);

impl FromStr for Phase {
    type Err = UnknownPhase;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Phase::PreSync, Phase::Sync, Phase::PostSync, Phase::SyncFail]
            .into_iter()
            .find(|phase| phase.as_str() == text)
            .ok_or_else(|| UnknownPhase(text.to_owned()))
    }
}

impl FromStr for OperationPhase {
    type Err = UnknownPhase;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        use OperationPhase::{Error, Failed, Running, Succeeded, Terminating};
        [Running, Terminating, Failed, Error, Succeeded]
            .into_iter()
            .find(|phase| phase.as_str() == text)
            .ok_or_else(|| UnknownPhase(text.to_owned()))
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for OperationPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
