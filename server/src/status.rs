//! Errors as clients know them: gRPC codes with the texts they match on.

use argosy_api::repository::RETRY_AFTER;
use argosy_kube_io::Error;
use argosy_repo_client::Class;
use tonic::{Code, Status};

/// What the Kubernetes API answered, in Argo CD's translation.
pub(crate) fn kube(error: Error) -> Status {
    let code = match (error.reason(), error.code()) {
        ("NotFound", _) => Code::NotFound,
        ("AlreadyExists", _) => Code::AlreadyExists,
        ("Invalid", _) => Code::InvalidArgument,
        ("MethodNotAllowed", _) => Code::Unimplemented,
        ("ServiceUnavailable", _) => Code::Unavailable,
        ("BadRequest", _) => Code::FailedPrecondition,
        ("Unauthorized", _) => Code::Unauthenticated,
        ("Forbidden", _) => Code::PermissionDenied,
        ("Timeout" | "ServerTimeout", _) => Code::DeadlineExceeded,
        ("Conflict", _) => Code::Aborted,
        ("InternalError", _) => Code::Internal,
        ("TooManyRequests", _) => Code::ResourceExhausted,
        (_, Some(404)) => Code::NotFound,
        (_, Some(403)) => Code::PermissionDenied,
        (_, Some(401)) => Code::Unauthenticated,
        (_, Some(409)) => Code::Aborted,
        (_, Some(429)) => Code::ResourceExhausted,
        (_, Some(503)) => Code::Unavailable,
        _ if error.is_connect() => Code::Unavailable,
        _ => Code::Internal,
    };
    Status::new(code, error.message())
}

/// What the repo-server answered. What passes by itself is told apart from what a person has to mend, with the time after which to
/// ask again.
pub(crate) fn repo(error: argosy_repo_client::Error) -> Status {
    let code = match &error {
        argosy_repo_client::Error::Connect { .. } => Code::Unavailable,
        // That the repo-server has too much to do is not the caller's doing.
        argosy_repo_client::Error::Call { code, .. } => match code {
            Code::ResourceExhausted | Code::Unavailable | Code::Unauthenticated => Code::Unavailable,
            Code::DeadlineExceeded => Code::DeadlineExceeded,
            _ => Code::FailedPrecondition,
        },
        argosy_repo_client::Error::Config(_) => Code::FailedPrecondition,
    };
    let mut status = Status::new(code, error.message());
    if let (Code::Unavailable, Class::Retry { after }) = (code, error.class()) {
        let after = after.as_millis() as u64;
        status.metadata_mut().insert(RETRY_AFTER, after.into());
    }
    status
}

/// A defect of ours. The text goes to the log, not to the caller.
pub(crate) fn internal(error: &(dyn std::error::Error + 'static)) -> Status {
    tracing::error!(error = argosy_runtime::log::chain(error), "a request failed");
    Status::internal("the server could not make sense of an answer of the Kubernetes API; its log says more")
}

/// The words of the Kubernetes API for what does not exist.
pub(crate) fn not_found(resource: &str, name: &str) -> Status {
    Status::not_found(format!("{resource} \"{name}\" not found"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_repo_server_with_too_much_to_do_is_for_later_and_a_bad_source_is_not() {
        let said = |code, retry_after| {
            repo(argosy_repo_client::Error::Call {
                code,
                message: "words".into(),
                retry_after,
            })
        };
        let later = said(Code::ResourceExhausted, Some(Duration::from_secs(7)));
        assert_eq!(later.code(), Code::Unavailable);
        assert_eq!(later.metadata().get(RETRY_AFTER).unwrap(), "7000");
        let bad = said(Code::Unknown, None);
        assert_eq!((bad.code(), bad.message()), (Code::FailedPrecondition, "words"));
        assert!(bad.metadata().get(RETRY_AFTER).is_none());
    }
}
