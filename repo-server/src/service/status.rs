//! Failures as statuses.

use crate::error::{Class, Error};
use argosy_api::repository::RETRY_AFTER;
use argosy_runtime::bounds;
use std::time::Duration;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

/// A stock repo-server answers nearly everything with `Unknown`, and users match on the texts. `ResourceExhausted` is tried again by
/// callers of Argo CD's too; ours wait for as long as it says.
impl From<Error> for Status {
    fn from(error: Error) -> Status {
        // Whatever is refused passes here.
        if let Some(limit) = error.limit() {
            bounds::exceeded(limit);
        }
        let class = error.class();
        let code = match (&error, class) {
            (Error::Deadline { .. }, _) => Code::DeadlineExceeded,
            (Error::Overloaded { .. }, _) => Code::ResourceExhausted,
            (Error::Unsupported(_), _) => Code::FailedPrecondition,
            (_, Class::Retry { .. }) => Code::Aborted,
            (_, Class::Stalled) => Code::Unknown,
            (_, Class::Bug) => Code::Internal,
        };
        let mut status = Status::new(code, error.to_string());
        if let Class::Retry { after } = class {
            let after = after.max(Duration::from_millis(1)).as_millis() as u64;
            status
                .metadata_mut()
                .insert(RETRY_AFTER, MetadataValue::from(after));
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use argosy_runtime::bounds::{Limit, times_exceeded};

    use super::*;

    #[test]
    fn what_is_refused_is_counted_by_what_was_too_much() {
        let limit = |which: &str| Error::Limit {
            which: which.into(),
            limit: "256 MiB".into(),
        };
        let deadline = Error::Deadline {
            what: "helm template".into(),
            after: Duration::from_secs(90),
        };
        for (error, counted) in [
            (limit("memory of helm template"), Limit::RenderMemory),
            (limit("output of git"), Limit::ToolOutput),
            (limit("entries of the archive"), Limit::Source),
            (deadline, Limit::Time),
        ] {
            let before = times_exceeded(counted);
            assert_ne!(Status::from(error).code(), Code::Ok);
            assert!(times_exceeded(counted) > before, "{counted:?}");
        }
    }
}
