//! What a server refuses although it can be read: names, required fields, what must not change.

use std::sync::LazyLock;

use argosy_object::{Value, meta};
use regex::Regex;

use super::id;
use crate::custom;
use crate::refusal::{Cause, Refusal};
use crate::registry::ResourceType;
use crate::selector::Selector;

static SUBDOMAIN: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"));
static LABEL: LazyLock<Regex> = LazyLock::new(|| regex(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"));
static SERVICE: LazyLock<Regex> = LazyLock::new(|| regex(r"^[a-z]([-a-z0-9]*[a-z0-9])?$"));
static LABEL_VALUE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is right")
}

const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
    start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
    with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
    start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SERVICE_TEXT: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
    character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
    '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// Refuses a new object that is wrong.
pub(crate) fn created(kind: &ResourceType, version: &str, object: &Value) -> Result<(), Refusal> {
    let mut causes = Vec::new();
    name(kind, object, &mut causes);
    common(kind, version, object, &mut causes);
    refuse(kind, object, causes)
}

/// Refuses a change that is wrong.
pub(crate) fn updated(kind: &ResourceType, version: &str, old: &Value, new: &Value) -> Result<(), Refusal> {
    let mut causes = Vec::new();
    common(kind, version, new, &mut causes);
    for path in immutable(kind) {
        let (before, after) = (meta::field(old, path), meta::field(new, path));
        if before != after {
            let value = printed(after.unwrap_or(&Value::Null));
            causes.push(Cause {
                reason: "FieldValueInvalid",
                field: path.join("."),
                message: format!("Invalid value: {value}: field is immutable"),
            });
        }
    }
    if (kind.kind == "ConfigMap" || kind.kind == "Secret")
        && kind.group.is_empty()
        && old["immutable"] == true
    {
        for field in ["data", "binaryData"] {
            if old[field] != new[field] {
                causes.push(Cause::forbidden(
                    field,
                    "field is immutable when `immutable` is set",
                ));
            }
        }
    }
    refuse(kind, new, causes)
}

fn refuse(kind: &ResourceType, object: &Value, causes: Vec<Cause>) -> Result<(), Refusal> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(kind, meta::name(object), &causes))
}

/// A value as a Go server prints it in such texts, near enough for maps of texts.
fn printed(value: &Value) -> String {
    value.to_string()
}

fn name(kind: &ResourceType, object: &Value, causes: &mut Vec<Cause>) {
    let name = meta::name(object);
    let (pattern, text): (&Regex, &str) = match id(kind) {
        // Names of roles are path segments.
        ("rbac.authorization.k8s.io", _) => return,
        ("", "Namespace") => (&LABEL, LABEL_TEXT),
        ("", "Service") => (&SERVICE, SERVICE_TEXT),
        _ => (&SUBDOMAIN, SUBDOMAIN_TEXT),
    };
    if !pattern.is_match(name) {
        causes.push(Cause::invalid("metadata.name", &name.into(), text));
    }
    let longest = if matches!(id(kind), ("", "Namespace" | "Service")) {
        63
    } else {
        253
    };
    if name.len() > longest {
        causes.push(Cause::invalid(
            "metadata.name",
            &name.into(),
            &format!("must be no more than {longest} characters"),
        ));
    }
}

fn common(kind: &ResourceType, version: &str, object: &Value, causes: &mut Vec<Cause>) {
    for (_, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        if text.len() > 63 || !LABEL_VALUE.is_match(text) {
            causes.push(Cause::invalid("metadata.labels", value, LABEL_VALUE_TEXT));
        }
    }
    let annotations: usize = object["metadata"]["annotations"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if annotations > 256 << 10 {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            field: "metadata.annotations".to_owned(),
            message: format!("Too long: may not be more than {} bytes", 256 << 10),
        });
    }
    if kind.custom {
        causes.extend(custom::validate(kind, version, object));
        return;
    }
    match id(kind) {
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => workload(object, causes),
        ("batch", "Job") => pod_spec(object, &["spec", "template", "spec"], causes),
        ("", "Pod") => pod_spec(object, &["spec"], causes),
        ("", "PodTemplate") => pod_spec(object, &["template", "spec"], causes),
        ("", "Service") => service(object, causes),
        _ => {}
    }
}

fn workload(object: &Value, causes: &mut Vec<Cause>) {
    let selector = &object["spec"]["selector"];
    if meta::i64_field(object, &["spec", "replicas"]).is_some_and(|replicas| replicas < 0) {
        causes.push(Cause::invalid(
            "spec.replicas",
            &object["spec"]["replicas"],
            "must be greater than or equal to 0",
        ));
    }
    let labels = meta::field(object, &["spec", "template", "metadata", "labels"]);
    if selector.is_null() {
        causes.push(Cause::required("spec.selector", ""));
    }
    if selector.is_null() || !Selector::of_document(selector).matches(&object["spec"]["template"]) {
        causes.push(Cause {
            reason: "FieldValueInvalid",
            field: "spec.template.metadata.labels".to_owned(),
            message: format!(
                "Invalid value: {}: `selector` does not match template `labels`",
                printed(labels.unwrap_or(&Value::Null))
            ),
        });
    }
    pod_spec(object, &["spec", "template", "spec"], causes);
}

fn pod_spec(object: &Value, path: &[&str], causes: &mut Vec<Cause>) {
    let at = path.join(".");
    let empty = Value::Null;
    let spec = meta::field(object, path).unwrap_or(&empty);
    let containers = meta::array_field(spec, &["containers"]);
    if containers.is_empty() {
        causes.push(Cause::required(format!("{at}.containers"), ""));
    }
    for (index, container) in containers.iter().enumerate() {
        let at = format!("{at}.containers[{index}]");
        let name = container["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else if !LABEL.is_match(name) {
            causes.push(Cause::invalid(format!("{at}.name"), &name.into(), LABEL_TEXT));
        }
        if container["image"].as_str().is_none_or(str::is_empty) {
            causes.push(Cause::required(format!("{at}.image"), ""));
        }
        if containers[..index]
            .iter()
            .any(|other| other["name"] == container["name"])
            && !name.is_empty()
        {
            causes.push(Cause {
                reason: "FieldValueDuplicate",
                field: format!("{at}.name"),
                message: format!("Duplicate value: {name:?}"),
            });
        }
    }
}

fn service(object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    let ports = meta::array_field(spec, &["ports"]);
    if ports.is_empty() && spec["type"] != "ExternalName" && spec["clusterIP"] != "None" {
        causes.push(Cause::required("spec.ports", ""));
    }
    for (index, port) in ports.iter().enumerate() {
        for field in ["port", "targetPort"] {
            let number = match &port[field] {
                Value::String(_) => continue,
                number => number.as_i64().unwrap_or_default(),
            };
            if !(1..=65535).contains(&number) {
                let text = "must be between 1 and 65535, inclusive";
                causes.push(Cause::invalid(
                    format!("spec.ports[{index}].{field}"),
                    &number.into(),
                    text,
                ));
            }
        }
        if ports.len() > 1 && port["name"].as_str().is_none_or(str::is_empty) {
            causes.push(Cause::required(format!("spec.ports[{index}].name"), ""));
        }
    }
}

/// Fields that never change.
fn immutable(kind: &ResourceType) -> &'static [&'static [&'static str]] {
    match id(kind) {
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => &[&["spec", "selector"]],
        ("batch", "Job") => &[
            &["spec", "selector"],
            &["spec", "template"],
            &["spec", "completions"],
        ],
        ("", "Secret") => &[&["type"]],
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &[&["roleRef"]],
        ("storage.k8s.io", "StorageClass") => &[&["provisioner"], &["parameters"], &["reclaimPolicy"]],
        _ => &[],
    }
}
