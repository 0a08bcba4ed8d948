//! The six health codes and their order.

use std::fmt;
use std::str::FromStr;

/// Health of a resource or of an Application; ordered from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Does what it is there for.
    Healthy,
    /// Deliberately at rest (a paused Deployment, a suspended Job).
    Suspended,
    /// Not healthy yet, but may become so by itself.
    Progressing,
    /// Desired, but not in the cluster.
    Missing,
    /// Failed, or did not become healthy in its own time.
    Degraded,
    /// Could not be told.
    Unknown,
}

impl Status {
    /// All codes, best first.
    pub const ALL: [Status; 6] = [
        Status::Healthy,
        Status::Suspended,
        Status::Progressing,
        Status::Missing,
        Status::Degraded,
        Status::Unknown,
    ];

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Healthy => "Healthy",
            Status::Suspended => "Suspended",
            Status::Progressing => "Progressing",
            Status::Missing => "Missing",
            Status::Degraded => "Degraded",
            Status::Unknown => "Unknown",
        }
    }

    /// Whether this code is worse than `other`.
    #[must_use]
    pub fn is_worse_than(self, other: Status) -> bool {
        self > other
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A text that is none of the six codes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("read health status {0:?}")]
pub struct UnknownStatus(pub String);

impl FromStr for Status {
    type Err = UnknownStatus;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Status::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| UnknownStatus(text.to_owned()))
    }
}

/// A code and the sentence that goes with it (may be empty).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The code.
    pub status: Status,
    /// Why, in words for a person.
    pub message: String,
}

impl Health {
    /// A code with a message.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    /// Healthy, nothing to say.
    #[must_use]
    pub fn healthy() -> Self {
        Self::new(Status::Healthy, "")
    }

    pub(crate) fn progressing(message: impl Into<String>) -> Self {
        Self::new(Status::Progressing, message)
    }

    pub(crate) fn degraded(message: impl Into<String>) -> Self {
        Self::new(Status::Degraded, message)
    }

    pub(crate) fn suspended(message: impl Into<String>) -> Self {
        Self::new(Status::Suspended, message)
    }

    pub(crate) fn unknown(message: impl Into<String>) -> Self {
        Self::new(Status::Unknown, message)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            write!(formatter, "{}", self.status)
        } else {
            write!(formatter, "{}: {}", self.status, self.message)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn codes_are_ordered_from_best_to_worst() {
        assert!(Status::Suspended.is_worse_than(Status::Healthy));
        assert!(Status::Degraded.is_worse_than(Status::Missing));
        assert!(Status::Unknown.is_worse_than(Status::Degraded));
        assert!(!Status::Progressing.is_worse_than(Status::Progressing));
    }

    #[test]
    fn a_code_reads_back_what_it_prints() {
        for status in Status::ALL {
            assert_eq!(status.to_string().parse::<Status>().unwrap(), status);
        }
        assert_eq!(
            "healthy".parse::<Status>(),
            Err(UnknownStatus("healthy".to_owned()))
        );
    }
}
