//! Documents as people write them: each field once, round and back, and nothing of it pruned by our own definitions.

use std::collections::BTreeSet;

use argosy_api::crds;
use argosy_api::v1alpha1::{AppProject, Application, ApplicationSet, Stored};
use serde_json::Value;

const APPLICATION: &str = include_str!("../examples/application.json");
const SOURCES: &str = include_str!("../examples/application-with-several-sources.json");
const PROJECT: &str = include_str!("../examples/appproject.json");
const SET: &str = include_str!("../examples/applicationset.json");

fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn schema(plural: &str) -> Value {
    let name = format!("{plural}.argoproj.io");
    let crd = crds()
        .into_iter()
        .find(|crd| crd["metadata"]["name"] == name.as_str())
        .unwrap();
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema")
        .unwrap()
        .clone()
}

fn round_trip<T: Stored>(text: &str) {
    let document = document(text);
    let read = T::from_document(&document).unwrap();
    let written = read.to_document();
    for (path, value) in leaves("", &document) {
        assert_eq!(written.pointer(&path), Some(&value), "{path}");
    }
    assert_eq!(T::from_document(&written).unwrap().to_document(), written);
}

/// Every scalar and every empty list or object, by JSON pointer.
fn leaves(path: &str, value: &Value) -> Vec<(String, Value)> {
    let escape = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(map) if !map.is_empty() => map
            .iter()
            .flat_map(|(key, value)| leaves(&format!("{path}/{}", escape(key)), value))
            .collect(),
        Value::Array(list) if !list.is_empty() => list
            .iter()
            .enumerate()
            .flat_map(|(at, value)| leaves(&format!("{path}/{at}"), value))
            .collect(),
        _ => vec![(path.to_owned(), value.clone())],
    }
}

#[test]
fn examples_read_back_as_they_were_written() {
    round_trip::<Application>(APPLICATION);
    round_trip::<Application>(SOURCES);
    round_trip::<AppProject>(PROJECT);
    round_trip::<ApplicationSet>(SET);
}

#[test]
fn definitions_declare_every_field_of_the_examples() {
    let mut undeclared = Vec::new();
    for (plural, text) in [
        ("applications", APPLICATION),
        ("applications", SOURCES),
        ("appprojects", PROJECT),
        ("applicationsets", SET),
    ] {
        validate(plural, &schema(plural), &document(text), &mut undeclared);
    }
    assert_eq!(undeclared, Vec::<String>::new());
}

/// What a Kubernetes API server would prune or refuse.
fn validate(path: &str, schema: &Value, value: &Value, errors: &mut Vec<String>) {
    let flag = |key: &str| schema.get(key).and_then(Value::as_bool) == Some(true);
    if flag("x-kubernetes-int-or-string") {
        if !(value.is_i64() || value.is_string()) {
            errors.push(format!("{path}: neither integer nor text"));
        }
        return;
    }
    let fits = match schema.get("type").and_then(Value::as_str) {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64(),
        Some(_) => false,
        None => flag("x-kubernetes-preserve-unknown-fields"),
    };
    if !fits {
        errors.push(format!("{path}: {value} is not {}", schema["type"]));
        return;
    }
    if flag("x-kubernetes-preserve-unknown-fields")
        || path.ends_with(".metadata") && schema.get("properties").is_none()
    {
        return;
    }
    for required in schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if value.get(required.as_str().unwrap()).is_none() {
            errors.push(format!("{path}: {required} is missing"));
        }
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let inner = schema
                    .get("properties")
                    .and_then(|p| p.get(key))
                    .or_else(|| schema.get("additionalProperties"));
                match inner {
                    Some(inner) => validate(&format!("{path}.{key}"), inner, value, errors),
                    None => errors.push(format!("{path}.{key}: undeclared")),
                }
            }
        }
        Value::Array(list) => {
            for value in list {
                validate(&format!("{path}[]"), &schema["items"], value, errors);
            }
        }
        _ => {}
    }
}

#[test]
fn examples_show_every_field_there_is() {
    let shown = |texts: &[&str]| {
        let mut paths = BTreeSet::new();
        for text in texts {
            value_paths("", &document(text), &mut paths);
        }
        paths
    };
    for (plural, texts) in [
        ("applications", &[APPLICATION, SOURCES][..]),
        ("appprojects", &[PROJECT][..]),
        ("applicationsets", &[SET][..]),
    ] {
        let mut declared = BTreeSet::new();
        schema_paths("", &schema(plural), &mut declared);
        let shown = shown(texts);
        let missing: Vec<_> = declared
            .difference(&shown)
            .filter(|path| !is_shown_elsewhere(path))
            .collect();
        assert!(missing.is_empty(), "{plural}: {missing:#?}");
    }
}

/// Sources and templates recur; once is enough.
fn is_shown_elsewhere(path: &str) -> bool {
    let again = |within: &str, of: &str| path.strip_prefix(within).is_some_and(|rest| rest.contains(of));
    again("/status", "/source") // covers sources and sourceHydrator
        || again("/operation", "/source")
        || again("/spec", "/sourceHydrator/drySource/")
        || again("/spec", "/sources/")
        || path.starts_with("/status/operationState/operation/")
        || again("/status", "/ignoreDifferences/")
        || path.starts_with("/spec/template/spec/")
        || (path.starts_with("/spec/generators") && (path.contains("/template/") || path.contains("/matrix/generators/")
            || path.contains("/merge/generators/")))
}

fn value_paths(path: &str, value: &Value, paths: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = format!("{path}/{key}");
                paths.insert(path.clone());
                value_paths(&path, value, paths);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| value_paths(path, value, paths)),
        _ => {}
    }
}

fn schema_paths(path: &str, schema: &Value, paths: &mut BTreeSet<String>) {
    for (key, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let path = format!("{path}/{key}");
        paths.insert(path.clone());
        schema_paths(&path, property, paths);
    }
    if let Some(items) = schema.get("items") {
        schema_paths(path, items, paths);
    }
}
