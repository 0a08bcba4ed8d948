//! CustomResourceDefinitions of the three stored kinds, made from the structs of [`crate::v1alpha1`].
//!
//! schemars writes what the derives know; [`structural`] turns that into the dialect Kubernetes takes. Field descriptions
//! are kept at the top and dropped below the generators of an ApplicationSet, whose schema holds an Application's thirty
//! times over and would else outgrow what etcd stores in one object.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::v1alpha1::{AppProject, Application, ApplicationSet, GROUP, Stored, VERSION};

/// The CustomResourceDefinitions to install, in the order Application, AppProject, ApplicationSet.
pub fn crds() -> Vec<Value> {
    let applications = definition::<Application>(
        &["app", "apps"],
        json!([
            {"name": "Sync Status", "type": "string", "jsonPath": ".status.sync.status"},
            {"name": "Health Status", "type": "string", "jsonPath": ".status.health.status"},
            {"name": "Revision", "type": "string", "jsonPath": ".status.sync.revision", "priority": 10},
            {"name": "Project", "type": "string", "jsonPath": ".spec.project", "priority": 10},
        ]),
        // A status that any writer of the object may touch, as Argo CD's clients expect.
        json!({}),
    );
    let projects = definition::<AppProject>(&["appproj", "appprojs"], json!([]), json!({}));
    let sets = definition::<ApplicationSet>(&["appset", "appsets"], json!([]), json!({"status": {}}));
    vec![applications, projects, sets]
}

fn definition<T: Stored + JsonSchema>(short_names: &[&str], columns: Value, subresources: Value) -> Value {
    let mut version = json!({
        "name": VERSION,
        "served": true,
        "storage": true,
        "schema": {"openAPIV3Schema": schema::<T>()},
        "subresources": subresources,
    });
    if columns.as_array().is_some_and(|columns| !columns.is_empty()) {
        version["additionalPrinterColumns"] = columns;
    }
    let name = format!("{}.{GROUP}", T::PLURAL);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "argocd"},
        },
        "spec": {
            "group": GROUP,
            "names": {
                "kind": T::KIND,
                "listKind": format!("{}List", T::KIND),
                "plural": T::PLURAL,
                "singular": T::KIND.to_lowercase(),
                "shortNames": short_names,
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    })
}

/// The structural schema of a kind, envelope included.
fn schema<T: Stored + JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
        settings.transforms.clear();
    });
    let mut schema = Schema::to_value(settings.into_generator().into_root_schema_for::<T>());
    structural(&mut schema, true);
    let properties = schema["properties"]
        .as_object_mut()
        .expect("invariant: a kind is a struct");
    for key in ["apiVersion", "kind"] {
        properties.insert(key.to_owned(), json!({"type": "string"}));
    }
    schema
}

/// Rewrites a JSON schema in place: no `null` beside a type, no defaults, no formats of Rust's own, no titles.
fn structural(schema: &mut Value, described: bool) {
    let Value::Object(map) = schema else { return };
    unwrap_option(map);
    for key in ["default", "title", "$schema"] {
        map.remove(key);
    }
    if !described {
        map.remove("description");
    }
    if !matches!(
        map.get("format").and_then(Value::as_str),
        None | Some("int32" | "int64" | "date-time")
    ) {
        map.remove("format");
    }
    if map
        .get("minimum")
        .is_some_and(|minimum| minimum.as_f64() == Some(0.0))
    {
        map.remove("minimum");
    }
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            map.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        for (name, property) in properties {
            structural(property, described && name != "generators");
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key) {
            structural(inner, described);
        }
    }
    // What holds any value says nothing else about it.
    if map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
        map.remove("additionalProperties");
    }
}

/// `anyOf: [X, null]` is how schemars writes an optional X.
fn unwrap_option(map: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = map.get("anyOf") else {
        return;
    };
    let is_null = |choice: &Value| choice == &json!({"type": "null"});
    if !choices.iter().any(is_null) {
        return;
    }
    let rest: Vec<Value> = choices
        .iter()
        .filter(|choice| !is_null(choice))
        .cloned()
        .collect();
    map.remove("anyOf");
    match <[Value; 1]>::try_from(rest) {
        Ok([Value::Object(only)]) => {
            for (key, value) in only {
                // The field's own description, pattern and the like come first.
                map.entry(key).or_insert(value);
            }
        }
        Ok([_]) => {}
        Err(rest) => {
            map.insert("anyOf".to_owned(), rest.into());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Walks every schema of a definition with its path.
    fn walk(path: &str, schema: &Value, visit: &mut dyn FnMut(&str, &Value)) {
        visit(path, schema);
        for (name, property) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            walk(&format!("{path}.{name}"), property, visit);
        }
        for key in ["items", "additionalProperties"] {
            if let Some(inner) = schema.get(key) {
                walk(&format!("{path}[]"), inner, visit);
            }
        }
    }

    fn root(crd: &Value) -> &Value {
        crd.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap()
    }

    #[test]
    fn every_schema_is_structural() {
        for crd in crds() {
            walk("", root(&crd), &mut |path, schema| {
                let map = schema.as_object().unwrap_or_else(|| panic!("{path}: {schema}"));
                for key in map.keys() {
                    assert!(
                        matches!(
                            key.as_str(),
                            "type"
                                | "properties"
                                | "items"
                                | "additionalProperties"
                                | "description"
                                | "format"
                                | "required"
                                | "enum"
                                | "pattern"
                                | "minLength"
                                | "maxLength"
                                | "anyOf"
                                | "x-kubernetes-int-or-string"
                                | "x-kubernetes-preserve-unknown-fields"
                                | "x-kubernetes-map-type"
                        ),
                        "{path}: {key}"
                    );
                }
                let any = map.contains_key("x-kubernetes-int-or-string")
                    || map.contains_key("x-kubernetes-preserve-unknown-fields");
                assert!(
                    any || map.get("type").is_some_and(Value::is_string),
                    "{path}: {schema}"
                );
                assert_eq!(
                    map.contains_key("anyOf"),
                    map.contains_key("x-kubernetes-int-or-string"),
                    "{path}"
                );
                for required in map
                    .get("required")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                {
                    assert!(
                        map["properties"].get(required.as_str().unwrap()).is_some(),
                        "{path}: {required}"
                    );
                }
            });
        }
    }

    #[test]
    fn only_application_sets_have_a_status_of_their_own() {
        let has_status: Vec<bool> = crds()
            .iter()
            .map(|crd| crd.pointer("/spec/versions/0/subresources/status").is_some())
            .collect();
        assert_eq!(has_status, [false, false, true]);
    }

    #[test]
    fn a_definition_fits_into_etcd() {
        for crd in crds() {
            let bytes = crd.to_string().len();
            assert!(bytes < 1_000_000, "{}: {bytes} bytes", crd["metadata"]["name"]);
        }
    }

    #[test]
    fn what_argo_cd_requires_is_required() {
        let crds = crds();
        let application = root(&crds[0]);
        assert_eq!(application["required"], json!(["metadata", "spec"]));
        assert_eq!(
            application["properties"]["spec"]["required"],
            json!(["destination", "project"])
        );
        assert_eq!(
            application["properties"]["spec"]["properties"]["source"]["required"],
            json!(["repoURL"])
        );
        assert_eq!(
            root(&crds[2])["properties"]["spec"]["required"],
            json!(["generators", "template"])
        );
    }
}
