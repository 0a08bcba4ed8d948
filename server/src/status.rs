//! Errors as clients know them: gRPC codes with the texts they match on.

use argosy_kube_io::Error;
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

/// What the repo-server answered.
pub(crate) fn repo(error: argosy_repo_client::Error) -> Status {
    Status::failed_precondition(error.message())
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
