//! Why a request is not granted, in the words of a kube-apiserver.
//!
//! The texts are part of the interface: clients and people match on them.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::registry::ResourceType;

/// A request that was not granted: an HTTP status with a `Status` document.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// The machine-readable word, such as `NotFound`.
    pub reason: &'static str,
    /// The text for people.
    pub message: String,
    /// `details` of the `Status`.
    pub details: Option<Value>,
    /// Seconds for the `Retry-After` header.
    pub retry_after: Option<u32>,
}

/// One thing that is wrong with a document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) field: String,
    pub(crate) message: String,
}

impl Cause {
    pub(crate) fn required(field: impl Into<String>, text: &str) -> Self {
        let message = if text.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {text}")
        };
        Self {
            reason: "FieldValueRequired",
            field: field.into(),
            message,
        }
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, text: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            field: field.into(),
            message: format!("Invalid value: {value}: {text}"),
        }
    }

    pub(crate) fn forbidden(field: impl Into<String>, text: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            field: field.into(),
            message: format!("Forbidden: {text}"),
        }
    }

    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, allowed: &[&str]) -> Self {
        let allowed: Vec<String> = allowed.iter().map(|word| format!("{word:?}")).collect();
        Self {
            reason: "FieldValueNotSupported",
            field: field.into(),
            message: format!(
                "Unsupported value: {value}: supported values: {}",
                allowed.join(", ")
            ),
        }
    }
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            retry_after: None,
        }
    }

    fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// What a server says when it gives an error of its own no name.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn not_found(kind: &ResourceType, name: &str) -> Self {
        Self::new(
            404,
            "NotFound",
            format!("{} {name:?} not found", kind.qualified()),
        )
        .with_details(kind.details(name, &kind.plural))
    }

    /// A path below a known group and version that serves nothing.
    pub(crate) fn no_such_resource() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with_details(json!({}))
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .with_details(json!({}))
    }

    pub(crate) fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(406, "NotAcceptable", message)
    }

    pub(crate) fn already_exists(kind: &ResourceType, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} {name:?} already exists", kind.qualified()),
        )
        .with_details(kind.details(name, &kind.plural))
    }

    pub(crate) fn conflict(kind: &ResourceType, name: &str, why: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} {name:?}: {why}",
                kind.qualified()
            ),
        )
        .with_details(kind.details(name, &kind.plural))
    }

    /// A precondition of a delete that does not hold. Such texts name the kind, not the plural.
    pub(crate) fn precondition(kind: &ResourceType, name: &str, why: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} {name:?}: {why}",
                kind.qualified_kind()
            ),
        )
        .with_details(kind.details(name, &kind.kind))
    }

    pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn invalid(kind: &ResourceType, name: &str, causes: &[Cause]) -> Self {
        Self::invalid_as(&kind.group, &kind.kind, name, causes)
    }

    pub(crate) fn invalid_as(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let qualified = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let each: Vec<String> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        let text = match each.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !group.is_empty() {
            details.insert("group".into(), group.into());
        }
        details.insert("kind".into(), kind.into());
        details.insert("causes".into(), causes_json(causes));
        Self::new(422, "Invalid", format!("{qualified} {name:?} is invalid: {text}"))
            .with_details(Value::Object(details))
    }

    /// A JSON patch that cannot be applied.
    pub(crate) fn unprocessable() -> Self {
        Self::new(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
        .with_details(json!({}))
    }

    pub(crate) fn forbidden(kind: &ResourceType, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{} is forbidden: {why}", kind.qualified())
        } else {
            format!("{} {name:?} is forbidden: {why}", kind.qualified())
        };
        Self::new(403, "Forbidden", message).with_details(kind.details(name, &kind.plural))
    }

    pub(crate) fn forbidden_path(message: String) -> Self {
        Self::new(403, "Forbidden", message).with_details(json!({}))
    }

    pub(crate) fn namespace_terminating(kind: &ResourceType, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut refusal = Self::forbidden(kind, name, &why);
        if let Some(Value::Object(details)) = &mut refusal.details {
            let cause = Cause {
                reason: "NamespaceTerminating",
                field: "metadata.namespace".into(),
                message: format!("namespace {namespace} is being terminated"),
            };
            details.insert("causes".into(), causes_json(&[cause]));
        }
        refusal
    }

    pub(crate) fn apply_conflict(conflicts: &[Cause], message: String) -> Self {
        Self::new(409, "Conflict", message).with_details(json!({"causes": causes_json(conflicts)}))
    }

    /// The server has forgotten a resourceVersion.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn too_large_version(asked: u64, current: u64) -> Self {
        let mut refusal = Self::new(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
        );
        refusal.details = Some(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }));
        refusal.retry_after = Some(1);
        refusal
    }

    /// What an overloaded or broken server says, for faults.
    pub(crate) fn fault(code: u16, retry_after: Option<u32>) -> Self {
        let (reason, message) = match code {
            429 => (
                "TooManyRequests",
                "the server has received too many requests and has asked us to try again later",
            ),
            503 => (
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
            504 => (
                "Timeout",
                "the server was unable to return a response in the time allotted",
            ),
            _ => ("InternalError", "Internal error occurred: a fault was asked for"),
        };
        let mut refusal = Self::new(code, reason, message);
        if let Some(seconds) = retry_after {
            refusal.details = Some(json!({"retryAfterSeconds": seconds}));
            refusal.retry_after = Some(seconds);
        }
        refusal
    }

    /// The `Status` document.
    #[must_use]
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }

    pub(crate) fn body(&self) -> Bytes {
        self.status().to_string().into()
    }
}

fn causes_json(causes: &[Cause]) -> Value {
    let one = |cause: &Cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field});
    causes.iter().map(one).collect()
}
