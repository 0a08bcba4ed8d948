//! Failures as statuses.

use crate::error::{Class, Error};
use argosy_api::repository::RETRY_AFTER;
use std::time::Duration;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

/// A stock repo-server answers nearly everything with `Unknown`, and users match on the texts. `ResourceExhausted` is tried again by
/// callers of Argo CD's too; ours wait for as long as it says.
impl From<Error> for Status {
    fn from(error: Error) -> Status {
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
