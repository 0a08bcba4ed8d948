//! What every Kubernetes document says about itself.
//!
//! The readers take whatever is there: a field that is missing or of another type reads as absent, because documents
//! come from repositories and a broken label must not stop the rest.

use crate::{GroupVersionKind, Map, ResourceKey, Value, split_api_version};

/// An entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerReference {
    /// API group of the owner.
    pub group: String,
    /// API version of the owner inside its group.
    pub version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner, which is in the same namespace or in none.
    pub name: String,
    /// Unique id of the owner.
    pub uid: String,
    /// Whether this owner is the one that manages the object.
    pub controller: bool,
}

/// The field at a path of names, if every step is an object that has it.
pub fn field<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |at, name| at.as_object()?.get(*name))
}

/// The field at a path of names, to change it.
pub fn field_mut<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Value> {
    path.iter()
        .try_fold(value, |at, name| at.as_object_mut()?.get_mut(*name))
}

/// The string at a path of names.
pub fn str_field<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    field(value, path)?.as_str()
}

/// The integer at a path of names.
pub fn i64_field(value: &Value, path: &[&str]) -> Option<i64> {
    field(value, path)?.as_i64()
}

/// The boolean at a path of names.
pub fn bool_field(value: &Value, path: &[&str]) -> Option<bool> {
    field(value, path)?.as_bool()
}

/// The list at a path of names; empty if there is none.
pub fn array_field<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    field(value, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Puts `new` at a path of names. Steps on the way that are missing or no objects become objects.
pub fn set_field(value: &mut Value, path: &[&str], new: impl Into<Value>) {
    let mut at = value;
    for name in path {
        at = as_map(at).entry(*name).or_insert(Value::Null);
    }
    *at = new.into();
}

/// Takes out the field at a path of names and returns it. Emptied parents stay.
pub fn remove_field(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    field_mut(value, parents)?.as_object_mut()?.remove(*last)
}

/// The document's `apiVersion`, empty if absent.
pub fn api_version(value: &Value) -> &str {
    str_field(value, &["apiVersion"]).unwrap_or_default()
}

/// The document's `kind`, empty if absent.
pub fn kind(value: &Value) -> &str {
    str_field(value, &["kind"]).unwrap_or_default()
}

/// The API group in the document's `apiVersion`, empty for the core group.
pub fn group(value: &Value) -> &str {
    split_api_version(api_version(value)).0
}

/// Group, version and kind; parts that are absent are empty.
pub fn gvk(value: &Value) -> GroupVersionKind {
    GroupVersionKind::from_api_version(api_version(value), kind(value))
}

/// The key of the resource; parts that are absent are empty.
pub fn key(value: &Value) -> ResourceKey {
    ResourceKey::new(group(value), kind(value), namespace(value), name(value))
}

/// `metadata.name`, empty if absent.
pub fn name(value: &Value) -> &str {
    str_field(value, &["metadata", "name"]).unwrap_or_default()
}

/// Whether this is a list of objects and none itself: it has items, no name, and nothing besides. A custom resource whose kind or fields
/// are called alike is an object.
pub fn is_list(value: &Value) -> bool {
    let known = |field: &String| matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "items");
    field(value, &["items"]).is_some_and(Value::is_array)
        && name(value).is_empty()
        && generate_name(value).is_empty()
        && value.as_object().is_some_and(|fields| fields.keys().all(known))
}

/// The first label or annotation that is no text: its path, and what it is. YAML makes numbers and truth values of what is not quoted.
pub fn not_a_text(value: &Value) -> Option<(String, &Value)> {
    ["labels", "annotations"].iter().find_map(|name| {
        let entries = field(value, &["metadata", name])?;
        let Some(entries) = entries.as_object() else {
            return (!entries.is_null()).then(|| (format!("metadata.{name}"), entries));
        };
        let wrong = entries
            .iter()
            .find(|(_, entry)| !(entry.is_string() || entry.is_null()));
        wrong.map(|(key, entry)| (format!("metadata.{name}.{key}"), entry))
    })
}

/// `metadata.generateName`, empty if absent.
pub fn generate_name(value: &Value) -> &str {
    str_field(value, &["metadata", "generateName"]).unwrap_or_default()
}

/// `metadata.namespace`, empty if absent.
pub fn namespace(value: &Value) -> &str {
    str_field(value, &["metadata", "namespace"]).unwrap_or_default()
}

/// `metadata.uid`, empty if absent.
pub fn uid(value: &Value) -> &str {
    str_field(value, &["metadata", "uid"]).unwrap_or_default()
}

/// `metadata.resourceVersion`, empty if absent.
pub fn resource_version(value: &Value) -> &str {
    str_field(value, &["metadata", "resourceVersion"]).unwrap_or_default()
}

/// `metadata.generation`.
pub fn generation(value: &Value) -> Option<i64> {
    i64_field(value, &["metadata", "generation"])
}

/// `metadata.creationTimestamp`, RFC 3339.
pub fn creation_timestamp(value: &Value) -> Option<&str> {
    str_field(value, &["metadata", "creationTimestamp"])
}

/// `metadata.deletionTimestamp`, RFC 3339; present once the object is being deleted.
pub fn deletion_timestamp(value: &Value) -> Option<&str> {
    str_field(value, &["metadata", "deletionTimestamp"])
}

/// The entries of `metadata.finalizers`.
pub fn finalizers(value: &Value) -> impl Iterator<Item = &str> {
    array_field(value, &["metadata", "finalizers"])
        .iter()
        .filter_map(Value::as_str)
}

/// The entries of `metadata.ownerReferences`, in their order.
pub fn owner_references(value: &Value) -> Vec<OwnerReference> {
    let text = |entry: &Value, name: &str| {
        entry
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    array_field(value, &["metadata", "ownerReferences"])
        .iter()
        .map(|entry| {
            let api_version = text(entry, "apiVersion");
            let (group, version) = split_api_version(&api_version);
            OwnerReference {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: text(entry, "kind"),
                name: text(entry, "name"),
                uid: text(entry, "uid"),
                controller: entry.get("controller").and_then(Value::as_bool).unwrap_or(false),
            }
        })
        .collect()
}

/// The label with this key.
pub fn label<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    str_field(value, &["metadata", "labels", key])
}

/// The annotation with this key.
pub fn annotation<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    str_field(value, &["metadata", "annotations", key])
}

/// The entries of an annotation that holds a comma-separated list: trimmed, without empty ones.
pub fn annotation_list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    annotation(value, key)
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
}

/// Sets an annotation.
pub fn set_annotation(value: &mut Value, key: &str, text: impl Into<String>) {
    set_field(value, &["metadata", "annotations", key], text.into());
}

/// Sets a label.
pub fn set_label(value: &mut Value, key: &str, text: impl Into<String>) {
    set_field(value, &["metadata", "labels", key], text.into());
}

/// Removes an annotation, and the map of annotations when that was the last one.
pub fn remove_annotation(value: &mut Value, key: &str) -> Option<Value> {
    remove_entry(value, "annotations", key)
}

/// Removes a label, and the map of labels when that was the last one.
pub fn remove_label(value: &mut Value, key: &str) -> Option<Value> {
    remove_entry(value, "labels", key)
}

/// Whether the document defines a custom resource.
pub fn is_crd(value: &Value) -> bool {
    kind(value) == "CustomResourceDefinition" && group(value) == "apiextensions.k8s.io"
}

fn remove_entry(value: &mut Value, map: &str, key: &str) -> Option<Value> {
    let metadata = value.get_mut("metadata")?.as_object_mut()?;
    let entries = metadata.get_mut(map)?.as_object_mut()?;
    let removed = entries.remove(key);
    if removed.is_some() && entries.is_empty() {
        metadata.remove(map);
    }
    removed
}

fn as_map(value: &mut Value) -> &mut Map {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("the value was made an object above"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn pod() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "front", "namespace": "web", "uid": "u1", "resourceVersion": "7", "generation": 3,
                "labels": {"app": "front"},
                "annotations": {"list": " a, b ,,c "},
                "finalizers": ["x/y"],
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "front-1", "uid": "u0", "controller": true}
                ]
            }
        })
    }

    #[test]
    fn a_document_names_itself() {
        let pod = pod();
        assert_eq!(key(&pod), ResourceKey::new("", "Pod", "web", "front"));
        assert_eq!(gvk(&pod), GroupVersionKind::new("", "v1", "Pod"));
        assert_eq!(
            (uid(&pod), resource_version(&pod), generation(&pod)),
            ("u1", "7", Some(3))
        );
        assert_eq!(finalizers(&pod).collect::<Vec<_>>(), ["x/y"]);
    }

    #[test]
    fn absent_or_wrong_fields_read_as_empty() {
        let odd = json!({"kind": 7, "metadata": {"name": [], "labels": "no"}});
        assert_eq!(key(&odd), ResourceKey::default());
        assert_eq!(label(&odd, "a"), None);
        assert!(owner_references(&odd).is_empty());
        assert_eq!(key(&Value::Null), ResourceKey::default());
    }

    #[test]
    fn lists_in_annotations_are_trimmed() {
        assert_eq!(
            annotation_list(&pod(), "list").collect::<Vec<_>>(),
            ["a", "b", "c"]
        );
        assert_eq!(annotation_list(&pod(), "other").count(), 0);
    }

    #[test]
    fn owners_carry_group_and_version_apart() {
        let owners = owner_references(&pod());
        assert_eq!(
            (owners[0].group.as_str(), owners[0].version.as_str()),
            ("apps", "v1")
        );
        assert!(owners[0].controller);
    }

    #[test]
    fn setting_makes_the_way_and_removing_the_last_takes_the_map() {
        let mut value = json!({});
        set_annotation(&mut value, "a/b", "1");
        assert_eq!(value, json!({"metadata": {"annotations": {"a/b": "1"}}}));
        assert_eq!(remove_annotation(&mut value, "a/b"), Some(json!("1")));
        assert_eq!(value, json!({"metadata": {}}));
        set_field(&mut value, &["spec", "replicas"], 3);
        assert_eq!(i64_field(&value, &["spec", "replicas"]), Some(3));
        assert_eq!(remove_field(&mut value, &["spec", "replicas"]), Some(json!(3)));
    }

    #[test]
    fn only_the_right_group_makes_a_crd() {
        assert!(is_crd(
            &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"})
        ));
        assert!(!is_crd(
            &json!({"apiVersion": "v1", "kind": "CustomResourceDefinition"})
        ));
    }
}
