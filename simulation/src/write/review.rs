//! Kinds that are questions: created to be answered, never stored.

use argosy_object::{Value, meta};
use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::json;

use super::body;
use crate::access::{self, User};
use crate::api_server::{ApiServer, Scope, json_response};
use crate::refusal::Refusal;
use crate::request::{Place, Request};

/// Whether the kind is a question.
pub(super) fn is_one(scope: &Scope<'_>) -> bool {
    matches!(
        scope.kind.group.as_str(),
        "authorization.k8s.io" | "authentication.k8s.io"
    )
}

/// The question with its answer.
pub(super) fn answer(
    server: &ApiServer,
    scope: &Scope<'_>,
    request: &Request,
) -> Result<Response<Bytes>, Refusal> {
    let mut question = body::document(scope, request)?;
    let status = match scope.kind.kind.as_str() {
        "SelfSubjectAccessReview" => access_status(server, scope.user, &question["spec"]),
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            let groups: Vec<&str> = meta::array_field(&question, &["spec", "groups"])
                .iter()
                .filter_map(Value::as_str)
                .collect();
            let name = meta::str_field(&question, &["spec", "user"]).unwrap_or_default();
            access_status(server, &User::new(name, &groups), &question["spec"])
        }
        "SelfSubjectRulesReview" => json!({
            "resourceRules": [], "nonResourceRules": [], "incomplete": true,
            "evaluationError": "rules are evaluated one question at a time",
        }),
        "SelfSubjectReview" => {
            json!({"userInfo": {"username": scope.user.name, "groups": scope.user.groups}})
        }
        "TokenReview" => {
            let token = meta::str_field(&question, &["spec", "token"]).unwrap_or_default();
            match server.users.get(token) {
                Some(user) => {
                    json!({"authenticated": true, "user": {"username": user.name, "groups": user.groups}})
                }
                None => json!({"user": {}, "error": "invalid bearer token"}),
            }
        }
        _ => return Err(Refusal::method_not_allowed()),
    };
    question["status"] = status;
    Ok(json_response(StatusCode::CREATED, question.to_string().into()))
}

fn access_status(server: &ApiServer, user: &User, spec: &Value) -> Value {
    let asked = &spec["resourceAttributes"];
    let text = |field: &str| asked[field].as_str().unwrap_or_default().to_owned();
    let place = Place {
        group: text("group"),
        version: text("version"),
        namespace: text("namespace"),
        plural: text("resource"),
        name: text("name"),
        subresource: text("subresource"),
    };
    let allowed = if asked.is_object() {
        access::allowed(server, user, &text("verb"), &place)
    } else {
        let path = meta::str_field(spec, &["nonResourceAttributes", "path"]).unwrap_or_default();
        access::may_read_documents(user, path).is_ok()
    };
    json!({"allowed": allowed})
}
