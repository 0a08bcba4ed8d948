//! Label and field selectors.

use argosy_object::meta;
use serde_json::Value;

use crate::refusal::Refusal;
use crate::registry::ResourceType;
use crate::request::Query;

/// Which objects are meant. All of them, unless something is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, PartialEq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
}

#[derive(Clone, Debug, PartialEq)]
struct FieldRequirement {
    path: Vec<String>,
    equal: bool,
    value: String,
}

impl Selector {
    pub(crate) fn of(query: &Query, kind: &ResourceType) -> Result<Self, Refusal> {
        let labels = parse_labels(query.text("labelSelector"))
            .map_err(|message| Refusal::bad_request(format!("unable to parse requirement: {message}")))?;
        Ok(Self {
            labels,
            fields: parse_fields(query.text("fieldSelector"), kind)?,
        })
    }

    /// A `LabelSelector` document. One without requirements selects everything.
    pub(crate) fn of_document(selector: &Value) -> Self {
        let mut labels = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            labels.push(Requirement::In(
                key.clone(),
                vec![value.as_str().unwrap_or_default().to_owned()],
            ));
        }
        for one in selector["matchExpressions"].as_array().into_iter().flatten() {
            let key = one["key"].as_str().unwrap_or_default().to_owned();
            let values = one["values"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str);
            let values = values.map(str::to_owned).collect();
            labels.push(match one["operator"].as_str() {
                Some("NotIn") => Requirement::NotIn(key, values),
                Some("Exists") => Requirement::Exists(key),
                Some("DoesNotExist") => Requirement::Missing(key),
                _ => Requirement::In(key, values),
            });
        }
        Self {
            labels,
            fields: Vec::new(),
        }
    }

    /// The same, of one object only.
    pub(crate) fn named(mut self, name: &str) -> Self {
        let path = ["metadata", "name"].map(str::to_owned).to_vec();
        self.fields.push(FieldRequirement {
            path,
            equal: true,
            value: name.to_owned(),
        });
        self
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.labels.iter().all(|one| one.holds(labels))
            && self.fields.iter().all(|one| {
                let path: Vec<&str> = one.path.iter().map(String::as_str).collect();
                (field_text(object, &path) == one.value) == one.equal
            })
    }
}

fn field_text(object: &Value, path: &[&str]) -> String {
    match meta::field(object, path) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

impl Requirement {
    fn holds(&self, labels: &Value) -> bool {
        match self {
            Self::In(key, values) => labels
                .get(key)
                .and_then(Value::as_str)
                .is_some_and(|value| values.iter().any(|one| one == value)),
            Self::NotIn(key, values) => labels
                .get(key)
                .and_then(Value::as_str)
                .is_none_or(|value| values.iter().all(|one| one != value)),
            Self::Exists(key) => labels.get(key).is_some(),
            Self::Missing(key) => labels.get(key).is_none(),
        }
    }
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    let mut requirements = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (one, after) = split_requirement(rest);
        requirements.push(parse_requirement(one.trim())?);
        rest = after.trim();
    }
    Ok(requirements)
}

/// Up to the next comma outside of parentheses.
fn split_requirement(text: &str) -> (&str, &str) {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, "")
}

fn parse_requirement(text: &str) -> Result<Requirement, String> {
    let word = |text: &str| -> Result<String, String> {
        let text = text.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        match text.find(|c| !plain(c)) {
            None => Ok(text.to_owned()),
            Some(at) => Err(format!("found '{}', expected: identifier", &text[at..=at])),
        }
    };
    let list = |text: &str| -> Result<Vec<String>, String> {
        let inner = text
            .trim()
            .strip_prefix('(')
            .and_then(|text| text.strip_suffix(')'));
        let inner = inner.ok_or_else(|| format!("found '{text}' expected: '('"))?;
        inner.split(',').map(word).collect()
    };
    if let Some(key) = text.strip_prefix('!') {
        return Ok(Requirement::Missing(word(key)?));
    }
    for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((key, value)) = text.split_once(operator) {
            let (key, values) = (word(key)?, vec![word(value)?]);
            return Ok(if equal {
                Requirement::In(key, values)
            } else {
                Requirement::NotIn(key, values)
            });
        }
    }
    if let Some((key, values)) = text.split_once(" notin ") {
        return Ok(Requirement::NotIn(word(key)?, list(values)?));
    }
    if let Some((key, values)) = text.split_once(" in ") {
        return Ok(Requirement::In(word(key)?, list(values)?));
    }
    Ok(Requirement::Exists(word(text)?))
}

/// Fields other than name and namespace that can be selected by.
fn selectable(kind: &ResourceType) -> &'static [&'static str] {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "Event") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("", "Namespace") => &["status.phase"],
        ("", "Secret") => &["type"],
        ("", "Node") => &["spec.unschedulable"],
        ("", "Service") => &["spec.clusterIP", "spec.type"],
        ("batch", "Job") => &["status.successful"],
        ("apps", "ReplicaSet") => &["status.replicas"],
        _ => &[],
    }
}

fn parse_fields(text: &str, kind: &ResourceType) -> Result<Vec<FieldRequirement>, Refusal> {
    let mut requirements = Vec::new();
    for one in text.split(',').filter(|one| !one.is_empty()) {
        let (path, equal, value) = if let Some((path, value)) = one.split_once("!=") {
            (path, false, value)
        } else if let Some((path, value)) = one.split_once("==") {
            (path, true, value)
        } else if let Some((path, value)) = one.split_once('=') {
            (path, true, value)
        } else {
            return Err(Refusal::bad_request(format!(
                "invalid selector: '{text}'; can't understand '{one}'"
            )));
        };
        let known = ["metadata.name", "metadata.namespace"];
        if !known.contains(&path) && !selectable(kind).contains(&path) {
            let mut message = format!(
                "{path:?} is not a known field selector: only {:?}, {:?}",
                known[0], known[1]
            );
            if kind.custom {
                message = format!("field label not supported: {path}");
            }
            return Err(Refusal::bad_request(message));
        }
        requirements.push(FieldRequirement {
            path: path.split('.').map(str::to_owned).collect(),
            equal,
            value: value.to_owned(),
        });
    }
    Ok(requirements)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn matches(selector: &str, labels: Value) -> bool {
        let selector = Selector {
            labels: parse_labels(selector).unwrap(),
            fields: Vec::new(),
        };
        selector.matches(&json!({"metadata": {"labels": labels}}))
    }

    #[test]
    fn selectors_mean_what_kubernetes_says() {
        let labels = || json!({"app": "web", "tier": "front"});
        assert!(matches("", labels()));
        assert!(matches("app=web,tier in (front, back)", labels()));
        assert!(matches("app==web", labels()));
        assert!(!matches("app!=web", labels()));
        assert!(
            matches("other!=x", labels()),
            "what has no such label is not equal"
        );
        assert!(matches("app,!other", labels()));
        assert!(matches("tier notin (back)", labels()));
        assert!(!matches("tier in (back)", Value::Null));
        assert!(parse_labels("a===").is_err());
    }
}
