//! What is taken from both sides before comparing, because Git cannot own it or because there are two ways to write it.

use argosy_object::{Map, Value, meta};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::LAST_APPLIED;
use crate::compare::{IgnoreStatus, Options};

/// Metadata that the API server writes.
const SERVER_METADATA: [&str; 8] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Makes `desired` and `base` name the object as the live one does: it was found by its key, so a difference in how the version or the
/// namespace is written is none of the object.
pub(crate) fn align(desired: &mut Value, live: &Value, base: Option<&mut Value>) {
    for document in [Some(desired), base].into_iter().flatten() {
        if let (Some(fields), Some(version)) = (document.as_object_mut(), live.get("apiVersion")) {
            fields.insert("apiVersion".to_owned(), version.clone());
        }
        meta::remove_field(document, &["metadata", "namespace"]);
    }
}

/// Takes out what Git cannot own and brings the rest into one form.
pub(crate) fn normalize(document: &mut Value, options: &Options) {
    prepare(document);
    meta::remove_annotation(document, LAST_APPLIED);
    let ignores_status = match options.ignore_status {
        IgnoreStatus::All => true,
        IgnoreStatus::Crd => meta::is_crd(document),
        IgnoreStatus::None => false,
    };
    if ignores_status {
        meta::remove_field(document, &["status"]);
    }
}

/// Applications are written back by their controller, which leaves out what says nothing. `automated: {}` says something by being there,
/// and so does `enabled: false` in it; values of charts are nobody's but the chart's.
fn without_zero_values(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (_, field) in fields.iter_mut().filter(|(name, _)| *name != "valuesObject") {
                without_zero_values(field);
            }
            fields.retain(|name, field| match field {
                Value::Null => false,
                Value::Bool(truth) => *truth || name == "enabled",
                Value::Number(number) => number.as_f64() != Some(0.0),
                Value::String(text) => !text.is_empty(),
                Value::Array(items) => !items.is_empty(),
                Value::Object(fields) => {
                    !fields.is_empty() || matches!(name.as_str(), "automated" | "valuesObject")
                }
            });
        }
        Value::Array(items) => items.iter_mut().for_each(without_zero_values),
        _ => {}
    }
}

/// The part of [`normalize`] that also holds for what is applied.
pub(crate) fn prepare(document: &mut Value) {
    if let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in SERVER_METADATA {
            metadata.remove(name);
        }
    }
    match (meta::group(document), meta::kind(document)) {
        ("", "Secret") => secret(document),
        ("", "Endpoints") => endpoints(document),
        ("argoproj.io", "Application") => {
            if let Some(spec) = document.get_mut("spec") {
                without_zero_values(spec);
            }
        }
        // Of a claim the empty class says "none", of a volume nothing.
        ("", "PersistentVolume") if meta::str_field(document, &["spec", "storageClassName"]) == Some("") => {
            meta::remove_field(document, &["spec", "storageClassName"]);
        }
        _ => {}
    }
}

/// Folds `stringData` into `data`, as the API server does on write, so that a key removed from it is seen as removed; a key without value
/// is an empty one, and `data:` without content says nothing about other keys.
fn secret(document: &mut Value) {
    let Some(fields) = document.as_object_mut() else {
        return;
    };
    if let Some(Value::Object(texts)) = fields.remove("stringData") {
        let data = fields.entry("data").or_insert_with(|| Value::Object(Map::new()));
        if data.is_null() {
            *data = Value::Object(Map::new());
        }
        if let Some(data) = data.as_object_mut() {
            for (key, text) in texts {
                // What is no text stays as it is: the API server shall refuse it, not we repair it.
                let value = match text {
                    Value::String(text) => Value::String(STANDARD.encode(text)),
                    other => other,
                };
                data.insert(key, value);
            }
        }
    }
    match fields.get_mut("data") {
        Some(Value::Object(data)) => {
            for value in data.values_mut().filter(|value| value.is_null()) {
                *value = Value::String(String::new());
            }
        }
        Some(Value::Null) => {
            fields.remove("data");
        }
        _ => {}
    }
}

/// The API server puts the parts of Endpoints in an order of its own.
fn endpoints(document: &mut Value) {
    let Some(subsets) = document.get_mut("subsets").and_then(Value::as_array_mut) else {
        return;
    };
    for subset in subsets.iter_mut() {
        for list in ["addresses", "notReadyAddresses"] {
            sort_by_fields(subset.get_mut(list), &["ip", "hostname", "nodeName"]);
        }
        if let Some(ports) = subset.get_mut("ports").and_then(Value::as_array_mut) {
            for port in ports.iter_mut().filter_map(Value::as_object_mut) {
                port.entry("protocol").or_insert_with(|| Value::from("TCP"));
            }
        }
        sort_by_fields(subset.get_mut("ports"), &["port", "name", "protocol"]);
    }
    subsets.sort_by_cached_key(stated);
}

/// What a value says, as a text: what is empty may be there or not.
fn stated(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(|item| format!("[{}]", stated(item))).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, field)| (name, stated(field)))
            .filter(|(_, text)| !text.is_empty())
            .map(|(name, text)| format!("{{{name}:{text}}}"))
            .collect(),
        other => other.to_string(),
    }
}

fn sort_by_fields(list: Option<&mut Value>, fields: &[&str]) {
    if let Some(Value::Array(items)) = list {
        items.sort_by_cached_key(|item| {
            let texts = fields
                .iter()
                .map(|field| item.get(*field).map(stated).unwrap_or_default());
            // Where these are the same, the rest tells two items apart.
            texts.chain([stated(item)]).collect::<Vec<_>>()
        });
    }
}

/// A Service without session affinity has no configuration of it: the API server takes away what says so.
pub(crate) fn service(desired: &mut Value, live: &mut Value, base: Option<&mut Value>) {
    if !meta::group(live).is_empty() || meta::kind(live) != "Service" {
        return;
    }
    let affinity = |document: &Value| {
        let stated = meta::str_field(document, &["spec", "sessionAffinity"]);
        stated.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let affinity = affinity(desired).or_else(|| affinity(live));
    if affinity.is_some_and(|affinity| affinity != "None") {
        return;
    }
    for document in [Some(desired), Some(live), base].into_iter().flatten() {
        meta::remove_field(document, &["spec", "sessionAffinityConfig"]);
    }
}

/// Rules of roles. The Go types always write them, so that no rules in Git means none in the cluster; but where the control plane
/// aggregates them, they are not Git's.
pub(crate) fn roles(desired: &mut Value, live: &mut Value, base: Option<&mut Value>, options: &Options) {
    if meta::group(live) != "rbac.authorization.k8s.io" || !matches!(meta::kind(live), "Role" | "ClusterRole")
    {
        return;
    }
    let states_rules = desired
        .get("rules")
        .and_then(Value::as_array)
        .is_some_and(|rules| !rules.is_empty());
    let aggregated = desired.get("aggregationRule").is_some_and(Value::is_object);
    let leave_out = aggregated && (options.ignore_aggregated_roles || !states_rules);
    for document in [Some(desired), Some(live), base].into_iter().flatten() {
        let Some(fields) = document.as_object_mut() else {
            continue;
        };
        if leave_out {
            fields.remove("rules");
        } else if fields.get("rules").is_none_or(Value::is_null) {
            fields.insert("rules".to_owned(), Value::Array(Vec::new()));
        }
    }
}
