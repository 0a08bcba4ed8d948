//! The facts of the built-in kinds, boiled down from the OpenAPI v3 documents of a Kubernetes release.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::load::{is_empty_default, is_native, kind_of, reference, scopes};
use crate::{GroupKind, Map, Value, meta};

/// Words of a schema that are facts for this crate.
const KEPT: [&str; 10] = [
    "type",
    "format",
    "nullable",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-preserve-unknown-fields",
];

/// Boils OpenAPI v3 documents down to `{"schemas": {name: schema}, "scopes": {"group/Kind": scope}}`: the kinds that can
/// be written as resources and what they are made of, without words for people.
///
/// This makes the file behind [`super::Schemas::builtin`].
pub fn compact<'v>(documents: impl IntoIterator<Item = &'v Value>) -> Value {
    let mut definitions: BTreeMap<&str, &Value> = BTreeMap::new();
    let mut all_scopes: BTreeMap<GroupKind, Value> = BTreeMap::new();
    for document in documents {
        let schemas = meta::field(document, &["components", "schemas"]).and_then(Value::as_object);
        for (name, schema) in schemas.into_iter().flatten() {
            definitions.entry(name).or_insert(schema);
        }
        all_scopes.extend(
            scopes(document)
                .into_iter()
                .map(|(kind, scope)| (kind, json!(scope))),
        );
    }

    let mut kept: BTreeMap<&str, Value> = BTreeMap::new();
    let is_resource =
        |kind: &Value| kind_of(kind).is_some_and(|kind| all_scopes.contains_key(&kind.group_kind()));
    let mut wanted: Vec<&str> = definitions
        .iter()
        .filter(|(_, schema)| {
            meta::array_field(schema, &["x-kubernetes-group-version-kind"])
                .iter()
                .any(is_resource)
        })
        .map(|(name, _)| *name)
        .collect();
    while let Some(name) = wanted.pop() {
        let Some(schema) = definitions.get(name).filter(|_| !kept.contains_key(name)) else {
            continue;
        };
        let mut references = BTreeSet::new();
        let mut stripped = strip(schema, is_native(name), &mut references);
        if let (Some(kinds), Value::Object(map)) =
            (schema.get("x-kubernetes-group-version-kind"), &mut stripped)
        {
            map.insert("x-kubernetes-group-version-kind".to_owned(), kinds.clone());
        }
        kept.insert(name, stripped);
        wanted.extend(references);
    }
    let scopes: Map = all_scopes
        .into_iter()
        .map(|(kind, scope)| (format!("{}/{}", kind.group, kind.kind), scope))
        .collect();
    json!({"schemas": kept, "scopes": scopes})
}

fn strip<'v>(schema: &'v Value, native: bool, references: &mut BTreeSet<&'v str>) -> Value {
    let mut kept = Map::new();
    for word in KEPT {
        if let Some(value) = schema.get(word) {
            kept.insert(word.to_owned(), value.clone());
        }
    }
    if let Some(name) = reference(schema) {
        references.insert(name);
        kept.insert("$ref".to_owned(), name.into());
    }
    if let Some(default) = schema
        .get("default")
        .filter(|default| !(native && is_empty_default(default)))
    {
        kept.insert("default".to_owned(), default.clone());
    }
    for word in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(word).filter(|inner| inner.is_object()) {
            kept.insert(word.to_owned(), strip(inner, native, references));
        }
    }
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        let properties: Map = properties
            .iter()
            .map(|(name, inner)| (name.clone(), strip(inner, native, references)))
            .collect();
        kept.insert("properties".to_owned(), properties.into());
    }
    Value::Object(kept)
}
