//! OpenAPI documents: schemas as recorded and as CustomResourceDefinitions give them, paths as discovery implies them.

mod protobuf;

use std::collections::{BTreeMap, BTreeSet};

use argosy_object::meta;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL};
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::api_server::{ApiServer, json_response};
use crate::discovery::hash;
use crate::recorded;
use crate::registry::{Registry, ResourceType, Version};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const SCHEMAS: &str = "#/components/schemas/";

/// `/openapi/v3`: the documents, each with its hash.
pub(crate) fn index(server: &mut ApiServer) -> Response<Bytes> {
    let revision = server.registry.revision;
    let registry = &server.registry;
    let body = server.documents.cached(revision, "openapi/v3", || {
        let mut paths = Map::new();
        for (group, versions) in registry.group_versions() {
            for version in versions {
                let path = document_path(&group, &version);
                let tag = hash(fingerprint(registry, &group, &version).as_bytes());
                let url = format!("/openapi/v3/{path}?hash={tag}");
                paths.insert(path, json!({"serverRelativeURL": url}));
            }
        }
        json!({"paths": paths})
    });
    json_response(StatusCode::OK, body)
}

fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

/// What a document depends on.
fn fingerprint(registry: &Registry, group: &str, version: &str) -> String {
    let schemas: Vec<String> = kinds(registry, group, version)
        .map(|(kind, version)| format!("{}{}{}", kind.plural, version.schema, version.subresources.len()))
        .collect();
    format!("{group}/{version}/{}", schemas.join("\n"))
}

fn kinds<'a>(
    registry: &'a Registry,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = (&'a ResourceType, &'a Version)> {
    let of_group = registry.types().filter(move |kind| kind.group == group);
    of_group.filter_map(move |kind| Some((kind.as_ref(), kind.version(version)?)))
}

/// One document of version 3; none if there is no such group and version.
pub(crate) fn v3(server: &mut ApiServer, path: &str) -> Option<Response<Bytes>> {
    let steps: Vec<&str> = path.split('/').collect();
    let (group, version) = match steps.as_slice() {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return None,
    };
    let registry = &server.registry;
    kinds(registry, group, version).next()?;
    let revision = registry.revision;
    let name = format!("openapi/v3/{path}");
    let body = server
        .documents
        .cached(revision, &name, || document(registry, group, version));
    let mut response = json_response(StatusCode::OK, body);
    response
        .headers_mut()
        .insert(CACHE_CONTROL, http::HeaderValue::from_static("public"));
    Some(response)
}

fn document(registry: &Registry, group: &str, version: &str) -> Value {
    let recorded = recorded::all();
    let all = recorded["schemas"].as_object();
    let names = names_by_kind(all);
    let mut schemas: BTreeMap<String, Value> = BTreeMap::new();
    let mut paths = Map::new();
    for (kind, served) in kinds(registry, group, version) {
        let name = match names.get(&(group, version, kind.kind.as_str())) {
            Some(name) => (*name).to_owned(),
            None => custom_name(kind, version),
        };
        if kind.custom {
            schemas.insert(name.clone(), custom_schema(kind, served));
            schemas.insert(format!("{name}List"), list_schema(kind, version, &name));
        }
        describe(kind, served, &name, &mut paths);
    }
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    for value in paths.values().chain(schemas.values()) {
        references(value, &mut wanted);
    }
    while let Some(name) = wanted.pop_first() {
        if schemas.contains_key(&name) {
            continue;
        }
        if let Some(schema) = all.and_then(|all| all.get(&name)) {
            references(schema, &mut wanted);
            schemas.insert(name, schema.clone());
        }
    }
    json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": paths, "components": {"schemas": schemas},
    })
}

fn names_by_kind(all: Option<&Map<String, Value>>) -> BTreeMap<(&str, &str, &str), &str> {
    let mut names = BTreeMap::new();
    for (name, schema) in all.into_iter().flatten() {
        // Options and events of watches belong to every group.
        let kinds = meta::array_field(schema, &["x-kubernetes-group-version-kind"]);
        if let [kind] = kinds {
            let text = |field: &str| kind[field].as_str().unwrap_or_default();
            names.insert((text("group"), text("version"), text("kind")), name.as_str());
        }
    }
    names
}

fn custom_name(kind: &ResourceType, version: &str) -> String {
    let reversed: Vec<&str> = kind.group.split('.').rev().collect();
    format!("{}.{version}.{}", reversed.join("."), kind.kind)
}

fn custom_schema(kind: &ResourceType, version: &Version) -> Value {
    let mut schema = match &version.schema {
        Value::Object(_) => version.schema.clone(),
        _ => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    };
    let properties = [
        ("apiVersion", json!({"type": "string"})),
        ("kind", json!({"type": "string"})),
        (
            "metadata",
            json!({"allOf": [{"$ref": format!("{SCHEMAS}{META}.ObjectMeta")}]}),
        ),
    ];
    for (name, property) in properties {
        schema["properties"][name] = property;
    }
    schema["x-kubernetes-group-version-kind"] =
        json!([{"group": kind.group, "version": version.name, "kind": kind.kind}]);
    schema
}

fn list_schema(kind: &ResourceType, version: &str, name: &str) -> Value {
    json!({
        "type": "object", "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "items": {"type": "array", "items": {"$ref": format!("{SCHEMAS}{name}")}},
            "metadata": {"allOf": [{"$ref": format!("{SCHEMAS}{META}.ListMeta")}]},
        },
        "x-kubernetes-group-version-kind": [{"group": kind.group, "version": version, "kind": kind.list_kind}],
    })
}

fn references(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_str().and_then(|text| text.strip_prefix(SCHEMAS)) {
                    Some(target) if name == "$ref" => drop(names.insert(target.to_owned())),
                    _ => references(field, names),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, names)),
        _ => {}
    }
}

/// The operations on a kind, by path.
fn describe(kind: &ResourceType, version: &Version, name: &str, paths: &mut Map<String, Value>) {
    let root = match kind.group.as_str() {
        "" => format!("/api/{}", version.name),
        group => format!("/apis/{group}/{}", version.name),
    };
    let collection = match kind.namespaced {
        true => format!("{root}/namespaces/{{namespace}}/{}", kind.plural),
        false => format!("{root}/{}", kind.plural),
    };
    let own = json!({"group": kind.group, "version": version.name, "kind": kind.kind});
    let operations = |verbs: &[(&str, &str, &str)], of: &Value, allowed: &[String], schema: &str| {
        let mut all = Map::new();
        for (method, verb, action) in verbs {
            if allowed.iter().any(|known| known == verb) {
                all.insert((*method).to_owned(), operation(method, action, of, schema));
            }
        }
        all
    };
    let many = [
        ("get", "list", "list"),
        ("post", "create", "post"),
        ("delete", "deletecollection", "deletecollection"),
    ];
    let one = [
        ("get", "get", "get"),
        ("put", "update", "put"),
        ("patch", "patch", "patch"),
        ("delete", "delete", "delete"),
    ];
    paths.insert(
        collection.clone(),
        Value::Object(operations(&many, &own, &version.verbs, name)),
    );
    if version.has_verb("get") {
        let item = format!("{collection}/{{name}}");
        paths.insert(
            item.clone(),
            Value::Object(operations(&one, &own, &version.verbs, name)),
        );
        for sub in &version.subresources {
            let of = match sub.group.is_empty() && sub.version.is_empty() {
                true => own.clone(),
                false => json!({"group": sub.group, "version": sub.version, "kind": sub.kind}),
            };
            let path = format!("{item}/{}", sub.name);
            paths.insert(path, Value::Object(operations(&one, &of, &sub.verbs, name)));
        }
    }
    if kind.namespaced && version.has_verb("list") {
        let everywhere = operations(&many[..1], &own, &version.verbs, name);
        paths.insert(format!("{root}/{}", kind.plural), Value::Object(everywhere));
    }
}

fn operation(method: &str, action: &str, kind: &Value, schema: &str) -> Value {
    let text =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let schema = json!({"$ref": format!("{SCHEMAS}{schema}")});
    let mut operation = json!({
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
        "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind,
    });
    let parameters: &[&str] = match method {
        "post" | "put" => &["dryRun", "fieldManager", "fieldValidation"],
        "patch" => &["dryRun", "fieldManager", "fieldValidation", "force"],
        _ => &[],
    };
    if !parameters.is_empty() {
        operation["parameters"] = parameters.iter().map(|name| text(name)).collect();
        let body = if method == "patch" {
            json!({"$ref": format!("{SCHEMAS}{META}.Patch")})
        } else {
            schema
        };
        let media = if method == "patch" {
            "application/apply-patch+yaml"
        } else {
            "*/*"
        };
        operation["requestBody"] = json!({"content": {media: {"schema": body}}, "required": true});
    }
    operation
}

/// `/openapi/v2`: the definitions of all kinds in one document.
pub(crate) fn v2(server: &mut ApiServer, headers: &HeaderMap) -> Response<Bytes> {
    let accept = headers
        .get(ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let revision = server.registry.revision;
    let registry = &server.registry;
    if accept.contains("protobuf") {
        let body = server
            .documents
            .cached_bytes(revision, "openapi/v2/protobuf", || {
                protobuf::document(&definitions(registry)).into()
            });
        return crate::api_server::response(StatusCode::OK, protobuf::MEDIA, body);
    }
    let body = server
        .documents
        .cached(revision, "openapi/v2", || definitions(registry));
    json_response(StatusCode::OK, body)
}

fn definitions(registry: &Registry) -> Value {
    let recorded = recorded::all();
    let mut definitions: Map<String, Value> = Map::new();
    for (name, schema) in recorded["schemas"].as_object().into_iter().flatten() {
        definitions.insert(name.clone(), swagger(schema));
    }
    for kind in registry.types().filter(|kind| kind.custom) {
        for version in &kind.versions {
            let name = custom_name(kind, &version.name);
            definitions.insert(
                format!("{name}List"),
                swagger(&list_schema(kind, &version.name, &name)),
            );
            definitions.insert(name, swagger(&custom_schema(kind, version)));
        }
    }
    json!({
        "swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.3"}, "paths": {}, "definitions": definitions,
    })
}

/// A schema in the older form: references elsewhere, and no wrapping of a single one.
fn swagger(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            if let Some([Value::Object(only)]) =
                fields.get("allOf").and_then(Value::as_array).map(Vec::as_slice)
            {
                let mut merged = fields.clone();
                merged.remove("allOf");
                merged.remove("default");
                merged.extend(only.clone());
                return swagger(&Value::Object(merged));
            }
            let convert = |(name, value): (&String, &Value)| {
                let value = match value.as_str().and_then(|text| text.strip_prefix(SCHEMAS)) {
                    Some(target) if name == "$ref" => format!("#/definitions/{target}").into(),
                    _ => swagger(value),
                };
                (name.clone(), value)
            };
            // Words that the older form does not have.
            let known = |(name, _): &(&String, &Value)| {
                !matches!(name.as_str(), "nullable" | "oneOf" | "anyOf" | "not")
            };
            Value::Object(fields.iter().filter(known).map(convert).collect())
        }
        Value::Array(items) => items.iter().map(swagger).collect(),
        other => other.clone(),
    }
}
