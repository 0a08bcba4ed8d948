//! The one error of the repo-server: what failed, in words a person can act on, and whose turn it is.
//!
//! Every variant is cheap to clone, because a failure is cached beside the manifests and handed to all
//! callers that waited for the same render. No variant holds a credential: texts that came from `git`,
//! Helm or a registry pass through [`crate::git::redact`] first.

use argosy_runtime::bounds::Limit;
use std::time::Duration;

/// Whose turn it is after a failure; queues and conditions follow from this, never from the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The outside world failed; the same call may succeed after this long.
    Retry {
        /// How long to wait before the next attempt.
        after: Duration,
    },
    /// A person has to change the repository, the Application or a credential first.
    Stalled,
    /// A broken invariant of our own.
    Bug,
}

/// Why no manifests, revision or details could be given.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The repository, chart registry or index could not be reached or read.
    #[error("{attempted} {url}: {message}")]
    Fetch {
        /// What was attempted, such as `failed to list refs of`.
        attempted: &'static str,
        /// The repository, without user information.
        url: String,
        /// What the tool or server said, without credentials.
        message: String,
    },
    /// The repository refused the credential (or wants one).
    #[error("authentication failed for {url}: {message}")]
    Authentication {
        /// The repository, without user information.
        url: String,
        /// What the tool or server said, without credentials.
        message: String,
    },
    /// The host has been asked too often, and says when it may be asked again.
    #[error("{url} asks for patience, for {} s: {message}", .retry_after.as_secs())]
    Patience {
        /// The repository, without user information.
        url: String,
        /// What the tool or server said, without credentials.
        message: String,
        /// How long it is left alone.
        retry_after: Duration,
    },
    /// The URL or a credential of the repository cannot be used as configured.
    #[error("repository {url} cannot be used: {message}")]
    Repository {
        /// The repository, without user information.
        url: String,
        /// What is wrong.
        message: String,
    },
    /// The revision names nothing in the repository.
    #[error("unable to resolve '{revision}' to a commit SHA")]
    Revision {
        /// The revision as asked for.
        revision: String,
    },
    /// A semver constraint or chart version that nothing satisfies.
    #[error("{message}")]
    Version {
        /// What was looked for and where.
        message: String,
    },
    /// A path that does not exist, is of the wrong sort, or leaves its repository.
    #[error("{path}: {message}")]
    Path {
        /// The path as written by the user.
        path: String,
        /// What is wrong with it.
        message: String,
    },
    /// The source of the Application contradicts itself or asks for what is not there.
    #[error("{0}")]
    Source(String),
    /// A file that is not the YAML, JSON or Jsonnet it should be.
    #[error("failed to parse {file}{}: {message}", .line.map(|l| format!(" line {l}")).unwrap_or_default())]
    Manifest {
        /// Path of the file inside the repository.
        file: String,
        /// One-based line, where known.
        line: Option<u64>,
        /// The parser's words.
        message: String,
    },
    /// Helm, Kustomize or Jsonnet refused the source.
    #[error("{tool}: {message}")]
    Render {
        /// The tool, such as `helm template`.
        tool: &'static str,
        /// The tool's words.
        message: String,
    },
    /// A config management plugin refused the source, or there is none that takes it. Argo CD's words.
    #[error("CMP processing failed for application {app:?}: {message}")]
    Plugin {
        /// The Application.
        app: String,
        /// What went wrong, mostly in the plugin's words.
        message: String,
    },
    /// A tool did not finish in time and was killed.
    #[error("{what} did not finish within {} s", .after.as_secs_f64())]
    Deadline {
        /// What was running.
        what: String,
        /// The deadline that passed.
        after: Duration,
    },
    /// Input or output larger than its budget.
    #[error("{which} exceeds the limit of {limit}")]
    Limit {
        /// What was too large.
        which: String,
        /// The budget, with its unit.
        limit: String,
    },
    /// The process that rendered died; only this render is affected.
    #[error("the render worker failed while running {what}: {message}")]
    Worker {
        /// What it was doing.
        what: String,
        /// How it died.
        message: String,
    },
    /// Something Argosy does not do yet.
    #[error("{0}")]
    Unsupported(String),
    /// Our own disk or process table refused.
    #[error("{attempted}: {message}")]
    Io {
        /// What was attempted.
        attempted: String,
        /// The operating system's words.
        message: String,
    },
    /// The store of a repository is damaged; it is made anew.
    #[error("the stored objects of {url} are damaged: {message}")]
    Store {
        /// The repository, without user information.
        url: String,
        /// What could not be read, and why.
        message: String,
    },
    /// Too many requests wait already.
    #[error("the repo-server is overloaded; try again in {} s", .retry_after.as_secs())]
    Overloaded {
        /// When to come back.
        retry_after: Duration,
    },
}

impl Error {
    /// Whose turn it is.
    pub fn class(&self) -> Class {
        match self {
            Error::Fetch { .. } => Class::Retry {
                after: Duration::from_secs(10),
            },
            Error::Worker { .. } | Error::Io { .. } | Error::Store { .. } => Class::Retry {
                after: Duration::from_secs(5),
            },
            Error::Deadline { .. } => Class::Retry {
                after: Duration::from_secs(30),
            },
            Error::Overloaded { retry_after } | Error::Patience { retry_after, .. } => {
                Class::Retry { after: *retry_after }
            }
            Error::Authentication { .. }
            | Error::Repository { .. }
            | Error::Revision { .. }
            | Error::Version { .. }
            | Error::Path { .. }
            | Error::Source(_)
            | Error::Manifest { .. }
            | Error::Render { .. }
            | Error::Plugin { .. }
            | Error::Limit { .. }
            | Error::Unsupported(_) => Class::Stalled,
        }
    }

    /// Which bound it is about, if it is.
    pub(crate) fn limit(&self) -> Option<Limit> {
        match self {
            Error::Deadline { .. } => Some(Limit::Time),
            Error::Limit { which, .. } if which.starts_with("memory of ") => Some(Limit::RenderMemory),
            Error::Limit { which, .. } if which.starts_with("output of ") => Some(Limit::ToolOutput),
            // What remains are sizes, lengths and numbers of what a repository, a registry or a caller has.
            Error::Limit { .. } => Some(Limit::Source),
            _ => None,
        }
    }

    /// An operating system failure with what was attempted.
    pub(crate) fn io(attempted: impl Into<String>, error: impl std::fmt::Display) -> Error {
        Error::Io {
            attempted: attempted.into(),
            message: error.to_string(),
        }
    }

    /// A path that cannot be used.
    pub(crate) fn path(path: impl Into<String>, message: impl Into<String>) -> Error {
        Error::Path {
            path: path.into(),
            message: message.into(),
        }
    }
}

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
