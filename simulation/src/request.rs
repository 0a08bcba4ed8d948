//! What a request asks for: its path, query and headers taken apart.

use std::borrow::Cow;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method};

use crate::refusal::Refusal;

/// One request with its whole body.
pub type Request = http::Request<bytes::Bytes>;

/// A path that names resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) plural: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
}

impl Place {
    /// `/api/v1/…` or `/apis/group/version/…`, with at least the plural name.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let steps: Vec<Cow<'_, str>> = path.trim_matches('/').split('/').map(decode).collect();
        let steps: Vec<&str> = steps.iter().map(AsRef::as_ref).collect();
        let (group, version, rest) = match steps.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            // `namespaces/x`, `namespaces/x/status` and `namespaces/x/finalize` are a namespace itself.
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            _ => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", String::new()),
            [plural, name] => (*plural, *name, String::new()),
            [plural, name, sub @ ..] => (*plural, *name, sub.join("/")),
            [] => return None,
        };
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            namespace: namespace.to_owned(),
            plural: plural.to_owned(),
            name: name.to_owned(),
            subresource,
        })
    }
}

fn decode(step: &str) -> Cow<'_, str> {
    if !step.contains('%') {
        return step.into();
    }
    // A plus sign is itself in a path.
    let pair = format!("x={}", step.replace('+', "%2B"));
    url::form_urlencoded::parse(pair.as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
        .into()
}

/// The query of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn of(request: &Request) -> Self {
        let query = request.uri().query().unwrap_or_default();
        Self(
            url::form_urlencoded::parse(query.as_bytes())
                .into_owned()
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The value, or `""`.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1" | "True" | ""))
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

/// What is to be done, in the words of RBAC.
pub(crate) fn verb(method: &Method, place: &Place, query: &Query) -> Result<&'static str, Refusal> {
    let one = !place.name.is_empty();
    Ok(match *method {
        Method::GET | Method::HEAD if query.flag("watch") => "watch",
        Method::GET | Method::HEAD if one => "get",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT if one => "update",
        Method::PATCH if one => "patch",
        Method::DELETE if one => "delete",
        Method::DELETE => "deletecollection",
        _ => return Err(Refusal::method_not_allowed()),
    })
}

/// The form in which an answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The object itself.
    Plain,
    /// Rows for people.
    Table,
    /// Only the metadata.
    Metadata,
}

impl Form {
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        let accept = headers
            .get(ACCEPT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        if accept.is_empty() {
            return Ok(Self::Plain);
        }
        for choice in accept.split(',') {
            let mut parts = choice.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            if !matches!(media, "application/json" | "application/*" | "*/*") {
                continue;
            }
            let wanted = parts.find_map(|part| part.strip_prefix("as="));
            return Ok(match wanted {
                Some("Table") => Self::Table,
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Self::Metadata,
                Some(_) => continue,
                None => Self::Plain,
            });
        }
        Err(Refusal::not_acceptable(
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        ))
    }
}

/// The media type of the body without parameters.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// The manager that a write is recorded under: named, or the first word of the client's name.
pub(crate) fn field_manager(headers: &HeaderMap, query: &Query) -> String {
    if let Some(manager) = query.get("fieldManager").filter(|manager| !manager.is_empty()) {
        return manager.to_owned();
    }
    let agent = headers
        .get(http::header::USER_AGENT)
        .and_then(|value| value.to_str().ok());
    let name = agent.unwrap_or_default().split('/').next().unwrap_or_default();
    if name.is_empty() {
        "unknown".to_owned()
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn place(path: &str) -> [String; 6] {
        let place = Place::parse(path).unwrap();
        [
            place.group,
            place.version,
            place.namespace,
            place.plural,
            place.name,
            place.subresource,
        ]
    }

    #[test]
    fn paths_name_collections_objects_and_subresources() {
        assert_eq!(place("/api/v1/pods"), ["", "v1", "", "pods", "", ""]);
        assert_eq!(place("/api/v1/namespaces"), ["", "v1", "", "namespaces", "", ""]);
        assert_eq!(
            place("/api/v1/namespaces/a"),
            ["", "v1", "", "namespaces", "a", ""]
        );
        assert_eq!(
            place("/api/v1/namespaces/a/finalize"),
            ["", "v1", "", "namespaces", "a", "finalize"]
        );
        assert_eq!(
            place("/api/v1/namespaces/a/pods/b/log"),
            ["", "v1", "a", "pods", "b", "log"]
        );
        assert_eq!(
            place("/apis/apps/v1/namespaces/a/deployments"),
            ["apps", "v1", "a", "deployments", "", ""]
        );
        assert_eq!(
            place("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode"),
            [
                "rbac.authorization.k8s.io",
                "v1",
                "",
                "clusterroles",
                "system:node",
                ""
            ]
        );
        assert_eq!(Place::parse("/apis/apps/v1"), None);
        assert_eq!(Place::parse("/version"), None);
    }
}
