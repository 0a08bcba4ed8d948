//! What can go wrong when talking to an API server, and whose turn it is then.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

/// A cause that cannot be named more exactly, shared so that an error can be handed to several readers.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// A call to an API server did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The way to the cluster is not configured in a usable way. Nothing was sent.
    #[error("configure the connection to {server}: {message}")]
    Config {
        /// URL of the API server.
        server: String,
        /// What is wrong and how to mend it.
        message: String,
    },
    /// Credentials could not be had from where the configuration says.
    #[error("get credentials for {server}: {message}")]
    Credentials {
        /// URL of the API server.
        server: String,
        /// What the plugin or the file system answered.
        message: String,
    },
    /// No connection. Nothing was sent.
    #[error("{call}: connect to {server}: {message}")]
    Connect {
        /// What was attempted.
        call: String,
        /// URL of the API server.
        server: String,
        /// The chain of causes, outermost first.
        message: String,
        /// The first of them.
        #[source]
        source: Cause,
    },
    /// The connection broke; whether the server has acted is not known.
    #[error("{call}: {message}")]
    Transport {
        /// What was attempted.
        call: String,
        /// The chain of causes, outermost first.
        message: String,
        /// The first of them.
        #[source]
        source: Cause,
    },
    /// No answer in time; whether the server has acted is not known.
    #[error("{call}: no answer within {}s", .after.as_secs_f32())]
    Timeout {
        /// What was attempted.
        call: String,
        /// How long was waited.
        after: Duration,
    },
    /// This process does not hold the cluster (any longer). Nothing was sent.
    #[error("{call}: this process does not hold the cluster")]
    Fenced {
        /// What was attempted.
        call: String,
    },
    /// The API server said no.
    #[error("{call}: {status}")]
    Api {
        /// What was attempted.
        call: String,
        /// What it said.
        status: Box<Status>,
    },
    /// The answer is not what the API promises.
    #[error("{call}: read the answer: {message}")]
    Answer {
        /// What was attempted.
        call: String,
        /// What is wrong with it.
        message: String,
    },
    /// The object given to the call cannot be sent.
    #[error("{call}: {message}")]
    Request {
        /// What was attempted.
        call: String,
        /// What is wrong with it.
        message: String,
    },
}

/// Whose turn it is after an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// Ours, again: the same call may succeed later. `after` is the server's wish, if it had one.
    Retry {
        /// The least time to wait.
        after: Option<Duration>,
    },
    /// Something else has to happen first.
    Wait {
        /// What that is.
        on: String,
    },
    /// A person must change something.
    Stalled,
    /// A defect of ours.
    Bug,
}

/// Nobody is made to wait longer than this, whatever a server says.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// A refusal of the API server (`metav1.Status`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, such as `NotFound`, `AlreadyExists`, `Conflict`, `Invalid`; may be empty.
    pub reason: String,
    /// The server's sentence, unchanged.
    pub message: String,
    /// The object or kind that the refusal is about.
    pub details: Details,
    /// The least time to wait before trying again, from the `Retry-After` header or the details; ten minutes at most.
    pub retry_after: Option<Duration>,
}

/// What a [`Status`] is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Details {
    /// Name of the object; empty if the refusal is not about one object.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Its kind (in fact often the plural resource name).
    pub kind: String,
    /// Its uid.
    pub uid: String,
    /// The single reasons of an `Invalid`.
    pub causes: Vec<StatusCause>,
    /// Seconds to wait.
    pub retry_after_seconds: u64,
}

/// One reason of an `Invalid`, or `UnexpectedServerResponse` with the text of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    /// Machine-readable, such as `FieldValueInvalid`.
    pub reason: String,
    /// The server's sentence.
    pub message: String,
    /// Path of the field, such as `spec.ports[0].port`.
    pub field: String,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            write!(f, "the server answered {}", self.code)
        } else {
            f.write_str(&self.message)
        }
    }
}

impl Status {
    /// Reads the body of an answer with an error code. A body that is no `Status` (a proxy's page, say) becomes the
    /// message, shortened.
    pub(crate) fn read(code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let bounded = |wait: Duration| wait.min(RETRY_AFTER_MAX);
        let retry_after = retry_after.map(bounded);
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Wire {
            kind: String,
            code: u16,
            reason: Option<String>,
            message: Option<String>,
            details: Option<Details>,
        }
        match serde_json::from_slice::<Wire>(body) {
            Ok(wire) if wire.kind == "Status" => {
                let details = wire.details.unwrap_or_default();
                let stated = (details.retry_after_seconds > 0)
                    .then(|| bounded(Duration::from_secs(details.retry_after_seconds)));
                Status {
                    code: if wire.code == 0 { code } else { wire.code },
                    reason: wire.reason.unwrap_or_default(),
                    message: wire.message.unwrap_or_default(),
                    details,
                    retry_after: retry_after.or(stated),
                }
            }
            _ => {
                let text: String = String::from_utf8_lossy(body).trim().chars().take(300).collect();
                let message = if text.is_empty() {
                    format!("the server answered {code}")
                } else {
                    format!("the server answered {code}: {text}")
                };
                Status {
                    code,
                    message,
                    retry_after,
                    ..Status::default()
                }
            }
        }
    }
}

impl Error {
    /// Whose turn it is.
    pub fn class(&self) -> Class {
        match self {
            Error::Config { .. } => Class::Stalled,
            Error::Credentials { .. }
            | Error::Connect { .. }
            | Error::Transport { .. }
            | Error::Timeout { .. }
            | Error::Answer { .. } => Class::Retry { after: None },
            Error::Fenced { .. } => Class::Wait {
                on: "ownership of the cluster".to_owned(),
            },
            Error::Request { .. } => Class::Bug,
            Error::Api { status, .. } => match (status.code, status.reason.as_str()) {
                (403, _) if self.namespace_terminating() => Class::Wait {
                    on: "the end of the namespace".to_owned(),
                },
                // A name that is taken stays taken; other conflicts are lost races.
                (409, "AlreadyExists") => Class::Stalled,
                (409 | 408 | 425 | 429 | 500 | 502 | 503 | 504, _) => Class::Retry {
                    after: status.retry_after,
                },
                (410, _) => Class::Retry { after: None },
                (404, _) if self.kind_unknown() => Class::Wait {
                    on: "the kind to be served".to_owned(),
                },
                _ => Class::Stalled,
            },
        }
    }

    /// The HTTP status code of the server's refusal.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// The server's reason (`NotFound`, `Conflict`, …); empty if it gave none or was not reached.
    pub fn reason(&self) -> &str {
        self.status().map_or("", |status| status.reason.as_str())
    }

    /// The server's own sentence if it refused, else this error's text.
    pub fn message(&self) -> String {
        match self.status() {
            Some(status) => status.to_string(),
            None => self.to_string(),
        }
    }

    /// The server's refusal in full.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Error::Api { status, .. } => Some(status),
            _ => None,
        }
    }

    /// The object is not there. Never true when it is the kind that is not served (see [`Error::kind_unknown`]).
    pub fn not_found(&self) -> bool {
        self.code() == Some(404) && !self.kind_unknown()
    }

    /// The server does not serve the kind at all: this says nothing about the object.
    pub fn kind_unknown(&self) -> bool {
        self.status()
            .is_some_and(|status| status.code == 404 && status.details.name.is_empty())
    }

    /// A POST found the name taken.
    pub fn already_exists(&self) -> bool {
        self.code() == Some(409) && self.reason() == "AlreadyExists"
    }

    /// The object changed since it was read, or a precondition on uid or resourceVersion failed.
    pub fn conflict(&self) -> bool {
        self.code() == Some(409) && !self.already_exists()
    }

    /// The resourceVersion or continue token is too old.
    pub fn gone(&self) -> bool {
        self.code() == Some(410)
    }

    /// The object does not validate.
    pub fn invalid(&self) -> bool {
        self.code() == Some(422)
    }

    /// The credentials are not accepted (any longer).
    pub fn unauthorized(&self) -> bool {
        self.code() == Some(401)
    }

    /// The account lacks a permission, or admission refused.
    pub fn forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Nothing may be created because the namespace is on its way out.
    pub fn namespace_terminating(&self) -> bool {
        self.status().is_some_and(|status| {
            status
                .details
                .causes
                .iter()
                .any(|cause| cause.reason == "NamespaceTerminating")
                || (status.code == 403 && status.message.contains("because it is being terminated"))
        })
    }

    /// No connection was made, so nothing was sent.
    pub fn is_connect(&self) -> bool {
        matches!(self, Error::Connect { .. })
    }
}

/// All texts of a chain of errors, outermost first, without repeating one that contains the next.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(code: u16, body: &str) -> Error {
        Error::Api {
            call: "get".into(),
            status: Box::new(Status::read(code, None, body.as_bytes())),
        }
    }

    #[test]
    fn a_missing_object_and_a_missing_kind_are_not_the_same() {
        let object = api(
            404,
            r#"{"kind":"Status","code":404,"reason":"NotFound","message":"configmaps \"a\" not found","details":{"name":"a","kind":"configmaps"}}"#,
        );
        assert!(object.not_found() && !object.kind_unknown());
        assert_eq!(object.message(), "configmaps \"a\" not found");
        let kind = api(
            404,
            r#"{"kind":"Status","code":404,"reason":"NotFound","message":"the server could not find the requested resource","details":{}}"#,
        );
        assert!(!kind.not_found() && kind.kind_unknown());
        let page = api(404, "404 page not found\n");
        assert!(!page.not_found() && page.kind_unknown());
    }

    #[test]
    fn a_wish_to_wait_is_kept() {
        let error = api(
            429,
            r#"{"kind":"Status","code":429,"reason":"TooManyRequests","message":"slow down","details":{"retryAfterSeconds":7}}"#,
        );
        assert_eq!(
            error.class(),
            Class::Retry {
                after: Some(Duration::from_secs(7))
            }
        );
    }

    #[test]
    fn nobody_is_made_to_wait_for_ever() {
        let body = br#"{"kind":"Status","code":429,"details":{"retryAfterSeconds":18446744073709551615}}"#;
        assert_eq!(Status::read(429, None, body).retry_after, Some(RETRY_AFTER_MAX));
        let header = Some(Duration::from_secs(u64::MAX));
        assert_eq!(Status::read(429, header, b"").retry_after, Some(RETRY_AFTER_MAX));
    }

    #[test]
    fn conflicts_are_retried_and_taken_names_are_not() {
        let taken = api(
            409,
            r#"{"kind":"Status","code":409,"reason":"AlreadyExists","message":"x","details":{"name":"a"}}"#,
        );
        assert!(taken.already_exists() && !taken.conflict());
        assert_eq!(taken.class(), Class::Stalled);
        let lost = api(
            409,
            r#"{"kind":"Status","code":409,"reason":"Conflict","message":"x","details":{"name":"a"}}"#,
        );
        assert!(lost.conflict());
        assert_eq!(lost.class(), Class::Retry { after: None });
    }

    #[test]
    fn a_proxys_page_becomes_the_message() {
        let error = api(502, "<html>bad gateway</html>");
        assert_eq!(error.code(), Some(502));
        assert!(error.message().contains("<html>bad gateway</html>"));
    }

    #[test]
    fn a_terminating_namespace_is_something_to_wait_for() {
        let error = api(
            403,
            r#"{"kind":"Status","code":403,"reason":"Forbidden","message":"unable to create new content in namespace shop because it is being terminated","details":{"name":"a","causes":[{"reason":"NamespaceTerminating","message":"","field":"metadata.namespace"}]}}"#,
        );
        assert!(matches!(error.class(), Class::Wait { .. }));
    }
}
