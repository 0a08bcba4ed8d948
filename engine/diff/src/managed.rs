//! `metadata.managedFields`: who owns which field.

use argosy_object::{Map, Value, meta};
use bumpalo::Bump;

use crate::node::{ListRule, Node};
use crate::{LAST_APPLIED, scalar};

/// Fields owned by one manager, in the API's own form: `f:` a field, `k:` an item by key, `v:` a member by value, `i:` an item by position,
/// `.` the thing itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fields(Map);

/// The fields that `manager` owns in `live`, however it wrote them; those of `status` included.
pub(crate) fn fields_of(live: &Value, manager: &str) -> Fields {
    collect(live, |entry| {
        entry.get("manager").and_then(Value::as_str) == Some(manager)
    })
}

fn collect(live: &Value, belongs: impl Fn(&Value) -> bool) -> Fields {
    let mut fields = Map::new();
    for entry in meta::array_field(live, &["metadata", "managedFields"])
        .iter()
        .filter(|entry| belongs(entry))
    {
        if let Some(Value::Object(more)) = entry.get("fieldsV1") {
            unite(&mut fields, more);
        }
    }
    Fields(fields)
}

fn unite(fields: &mut Map, more: &Map) {
    for (name, below) in more {
        match (
            fields
                .entry(name.clone())
                .or_insert_with(|| Value::Object(Map::new())),
            below,
        ) {
            (Value::Object(fields), Value::Object(more)) => unite(fields, more),
            (slot, below) => *slot = below.clone(),
        }
    }
}

/// What `manager` applied last and nobody else owns, cut out of the live object: that is what an apply without it removes. Without an apply
/// by the manager the last applied configuration stands in: that is what a change from client-side to server-side apply takes over.
///
/// A list item that somebody else owns too is left out with all its fields.
pub(crate) fn extract(live: &Value, manager: &str, node: Node<'_>) -> Option<Value> {
    let ours = |entry: &Value| {
        entry.get("manager").and_then(Value::as_str) == Some(manager)
            && entry.get("operation").and_then(Value::as_str) == Some("Apply")
            && entry
                .get("subresource")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .is_empty()
    };
    let fields = collect(live, ours);
    if fields.0.is_empty() {
        return serde_json::from_str(meta::annotation(live, LAST_APPLIED)?).ok();
    }
    let others = collect(live, |entry| !ours(entry));
    cut(&fields.0, &others.0, live, node, &Bump::new())
}

fn cut(fields: &Map, others: &Map, value: &Value, node: Node<'_>, arena: &Bump) -> Option<Value> {
    if fields.keys().all(|name| name == ".") {
        // An owned leaf, or an item or object of which only the existence is owned.
        return match value {
            Value::Object(_) if !fields.is_empty() => Some(Value::Object(Map::new())),
            _ => Some(value.clone()),
        };
    }
    let nobody = Map::new();
    let theirs = |name: &str| others.get(name).map(|below| below.as_object().unwrap_or(&nobody));
    match value {
        Value::Object(present) => {
            let mut owned = Map::new();
            for (form, below) in fields {
                let Some(name) = form.strip_prefix("f:") else {
                    continue;
                };
                let (Some(value), Value::Object(below)) = (present.get(name), below) else {
                    continue;
                };
                let shared = theirs(form);
                if below.is_empty() && shared.is_some() {
                    continue;
                }
                if let Some(value) = cut(below, shared.unwrap_or(&nobody), value, node.field(name), arena) {
                    owned.insert(name.to_owned(), value);
                }
            }
            Some(Value::Object(owned))
        }
        Value::Array(items) => {
            let keys = match node.list_rule(arena) {
                ListRule::Keyed(keys) => keys,
                _ => &[],
            };
            let mut owned = Vec::new();
            for (form, below) in fields {
                let (Some(position), None) = (locate(form, items), theirs(form)) else {
                    continue;
                };
                let (item, Value::Object(below)) = (&items[position], below) else {
                    continue;
                };
                let Some(mut cut) = cut(below, &nobody, item, node.item(), arena) else {
                    continue;
                };
                if let (Some(cut), Some(item)) = (cut.as_object_mut(), item.as_object()) {
                    for key in keys {
                        if let Some(value) = item.get(*key) {
                            cut.insert((*key).to_owned(), value.clone());
                        }
                    }
                }
                owned.push(cut);
            }
            Some(Value::Array(owned))
        }
        scalar => Some(scalar.clone()),
    }
}

/// Where `k:…`, `v:…` or `i:…` is in a list.
fn locate(name: &str, items: &[Value]) -> Option<usize> {
    let (form, text) = name.split_once(':')?;
    match form {
        "k" => {
            let keys: Map = serde_json::from_str(text).ok()?;
            items.iter().position(|item| {
                keys.iter().all(|(key, value)| match item.get(key) {
                    Some(present) => scalar::same(argosy_object::schema::Type::Any, present, value),
                    // The server names a key by its default too.
                    None => key == "protocol" && value == "TCP",
                })
            })
        }
        "v" => {
            let value: Value = serde_json::from_str(text).ok()?;
            items.iter().position(|item| *item == value)
        }
        "i" => text.parse().ok().filter(|position| *position < items.len()),
        _ => None,
    }
}

impl Fields {
    /// Takes the owned fields out of `document`. What holds other fields stays, and so do the keys of list items.
    pub(crate) fn remove_from(&self, document: &mut Value) {
        remove(&self.0, document, &[]);
    }
}

fn remove(fields: &Map, document: &mut Value, keys: &[String]) {
    match document {
        Value::Object(present) => {
            for (name, below) in fields {
                let Some(name) = name.strip_prefix("f:") else {
                    continue;
                };
                if keys.iter().any(|key| key == name) {
                    continue;
                }
                match below {
                    Value::Object(below) if below.keys().any(|name| name != ".") => {
                        if let Some(value) = present.get_mut(name) {
                            remove(below, value, &[]);
                        }
                    }
                    Value::Object(below) if below.contains_key(".") => {}
                    _ => {
                        present.remove(name);
                    }
                }
            }
        }
        Value::Array(items) => {
            let mut whole = Vec::new();
            for (name, below) in fields {
                let (Some(position), Value::Object(below)) = (locate(name, items), below) else {
                    continue;
                };
                if name.starts_with("v:") {
                    whole.push(position);
                    continue;
                }
                let keys: Vec<String> = name
                    .strip_prefix("k:")
                    .and_then(|text| serde_json::from_str::<Map>(text).ok())
                    .map(|keys| keys.keys().cloned().collect())
                    .unwrap_or_default();
                remove(below, &mut items[position], &keys);
            }
            whole.sort_unstable();
            for position in whole.into_iter().rev() {
                items.remove(position);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn live() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "web", "finalizers": ["a", "b"],
                "managedFields": [
                    {"manager": "hpa", "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
                    {"manager": "hpa", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {"f:replicas": {}}}},
                    {"manager": "mesh", "operation": "Update", "fieldsV1": {
                        "f:metadata": {"f:finalizers": {".": {}, "v:\"b\"": {}}},
                        "f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:name": {}, "f:image": {}}}}}}
                    }}
                ]
            },
            "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "side"}, {"name": "main", "image": "x", "args": ["a"]}]}}}
        })
    }

    #[test]
    fn fields_of_a_manager_are_removed_and_keys_stay() {
        let live = live();
        let mut document = live.clone();
        fields_of(&live, "hpa").remove_from(&mut document);
        fields_of(&live, "mesh").remove_from(&mut document);
        fields_of(&live, "nobody").remove_from(&mut document);
        assert_eq!(document["metadata"]["finalizers"], json!(["a"]));
        assert_eq!(
            document["spec"],
            json!({"template": {"spec": {"containers": [{"name": "side"}, {"name": "main", "args": ["a"]}]}}})
        );
    }
}
