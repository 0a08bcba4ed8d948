//! The closed sets of words that texts of the API hold.

/// A word that is not in the set it should come from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read {set}: unknown word {word:?}")]
pub struct UnknownWord {
    /// Name of the set.
    pub set: &'static str,
    /// What was found.
    pub word: String,
}

/// Declares closed sets of words as enums that print and parse them.
macro_rules! words {
    ($($(#[$doc:meta])* $set:ident { $($(#[$word_doc:meta])* $word:ident = $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $set {
            $($(#[$word_doc])* $word,)*
        }

        impl $set {
            /// Every word, in the order of declaration.
            pub const ALL: &[Self] = &[$(Self::$word,)*];

            /// The word as the API spells it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$word => $text,)*
                }
            }
        }

        impl std::fmt::Display for $set {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $set {
            type Err = $crate::v1alpha1::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                match word {
                    $($text => Ok(Self::$word),)*
                    _ => Err($crate::v1alpha1::UnknownWord { set: stringify!($set), word: word.to_owned() }),
                }
            }
        }

        impl From<$set> for String {
            fn from(word: $set) -> Self {
                word.as_str().to_owned()
            }
        }
    )*};
}

pub(crate) use words;

words! {
    /// Does live match desired (`status.sync.status`, `resources[].status`).
    SyncStatusCode {
        Synced = "Synced",
        OutOfSync = "OutOfSync",
        /// The comparison could not be made.
        Unknown = "Unknown",
    }

    /// Health (`status.health.status`), from best to worst.
    HealthStatusCode {
        Healthy = "Healthy",
        Suspended = "Suspended",
        Progressing = "Progressing",
        Missing = "Missing",
        Degraded = "Degraded",
        Unknown = "Unknown",
    }

    /// How far an operation is (`operationState.phase`, `resources[].hookPhase`).
    OperationPhase {
        Running = "Running",
        /// Someone asked for the end of it; the controller has not ended it yet.
        Terminating = "Terminating",
        Failed = "Failed",
        /// It could not be carried out, as opposed to carried out and failed.
        Error = "Error",
        Succeeded = "Succeeded",
    }

    /// What a sync did with a resource (`syncResult.resources[].status`).
    ResultCode {
        Synced = "Synced",
        SyncFailed = "SyncFailed",
        Pruned = "Pruned",
        PruneSkipped = "PruneSkipped",
    }

    /// The phases of a sync, and of a deletion (`syncPhase`, `hookType`).
    HookType {
        PreSync = "PreSync",
        Sync = "Sync",
        PostSync = "PostSync",
        SyncFail = "SyncFail",
        /// Never applied.
        Skip = "Skip",
        PreDelete = "PreDelete",
        PostDelete = "PostDelete",
    }

    /// The tool that renders a source (`status.sourceType`).
    SourceType {
        Helm = "Helm",
        Kustomize = "Kustomize",
        Directory = "Directory",
        Plugin = "Plugin",
    }

    /// State of a connection to a cluster or a repository.
    ConnectionStatus {
        Successful = "Successful",
        Failed = "Failed",
        Unknown = "Unknown",
    }

    /// How far a hydration is.
    HydratePhase {
        Hydrating = "Hydrating",
        Hydrated = "Hydrated",
        Failed = "Failed",
    }

    /// Type of a condition of an ApplicationSet.
    ApplicationSetConditionType {
        ErrorOccurred = "ErrorOccurred",
        ParametersGenerated = "ParametersGenerated",
        ResourcesUpToDate = "ResourcesUpToDate",
        RolloutProgressing = "RolloutProgressing",
        InvalidRolloutConfig = "InvalidRolloutConfig",
    }

    /// How far an Application is in a rolling sync.
    ProgressiveSyncStatus {
        Waiting = "Waiting",
        Pending = "Pending",
        Progressing = "Progressing",
        Healthy = "Healthy",
    }
}

impl OperationPhase {
    /// Failed, Error or Succeeded: nothing more will happen.
    pub const fn completed(self) -> bool {
        matches!(self, Self::Failed | Self::Error | Self::Succeeded)
    }

    /// Failed or Error.
    pub const fn failed(self) -> bool {
        matches!(self, Self::Failed | Self::Error)
    }
}
