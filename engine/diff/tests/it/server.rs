//! What an API server does with a patch, written for these tests alone: RFC 7386, and the strategic merge patch of Kubernetes with its
//! directives.

use argosy_diff::{Patch, PatchKind};
use argosy_object::schema::{Schema, Schemas};
use argosy_object::{Map, Value, meta};

/// `live` after `patch`.
pub(crate) fn apply(live: &Value, patch: &Patch, schemas: &Schemas) -> Value {
    match patch.kind {
        PatchKind::Merge => merge(live, &patch.content),
        PatchKind::Strategic => strategic(live, &patch.content, schemas.root(&meta::gvk(live))),
    }
}

pub(crate) fn merge(live: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch.clone();
    };
    let mut result = live.as_object().cloned().unwrap_or_default();
    for (name, value) in patch {
        if value.is_null() {
            result.remove(name);
        } else {
            let present = result.get(name).cloned().unwrap_or(Value::Null);
            result.insert(name.clone(), merge(&present, value));
        }
    }
    Value::Object(result)
}

fn strategic(live: &Value, patch: &Value, schema: Option<Schema<'_>>) -> Value {
    let (Value::Object(live), Value::Object(patch)) = (live, patch) else {
        return patch.clone();
    };
    let mut result = live.clone();
    for (name, value) in patch {
        if let Some(name) = name.strip_prefix("$deleteFromPrimitiveList/") {
            if let Some(Value::Array(items)) = result.get_mut(name) {
                items.retain(|item| !value.as_array().unwrap().contains(item));
            }
            continue;
        }
        if let Some(name) = name.strip_prefix("$setElementOrder/") {
            // An order alone, without changed items.
            if !patch.contains_key(name)
                && let Some(Value::Array(items)) = result.get(name)
            {
                let below = below(schema, name).unwrap();
                let items = order(
                    items.clone(),
                    value.as_array().unwrap(),
                    below.patch_merge_key().unwrap(),
                );
                result.insert(name.to_owned(), Value::Array(items));
            }
            continue;
        }
        let below = below(schema, name);
        let merged = match (result.get(name), value) {
            (_, Value::Null) => {
                result.remove(name);
                continue;
            }
            (Some(Value::Array(items)), Value::Array(patches)) => Value::Array(list(
                items,
                patches,
                patch.get(&format!("$setElementOrder/{name}")),
                below,
            )),
            (Some(_), value) if replaces(below) => value.clone(),
            (Some(present), value) => strategic(present, value, below),
            (None, value) => value.clone(),
        };
        result.insert(name.clone(), merged);
    }
    Value::Object(result)
}

fn replaces(schema: Option<Schema<'_>>) -> bool {
    let strategy = schema.and_then(|schema| schema.patch_strategy());
    strategy == Some("replace")
}

fn below<'s>(schema: Option<Schema<'s>>, name: &str) -> Option<Schema<'s>> {
    let schema = schema?;
    schema.field(name).or_else(|| schema.additional())
}

fn list(
    items: &[Value],
    patches: &[Value],
    set_order: Option<&Value>,
    schema: Option<Schema<'_>>,
) -> Vec<Value> {
    let merges = schema
        .and_then(|schema| schema.patch_strategy())
        .is_some_and(|text| text.contains("merge"));
    if !merges {
        return patches.to_vec();
    }
    let schema = schema.unwrap();
    let Some(key) = schema.patch_merge_key() else {
        let mut items = items.to_vec();
        for patch in patches {
            if !items.contains(patch) {
                items.push(patch.clone());
            }
        }
        return items;
    };
    if patches
        .iter()
        .any(|patch| patch.get("$patch") == Some(&Value::from("replace")))
    {
        return patches
            .iter()
            .filter(|patch| patch.get("$patch").is_none())
            .cloned()
            .collect();
    }
    let mut items = items.to_vec();
    for patch in patches {
        assert!(patch.get(key).is_some(), "item without merge key {key}: {patch}");
        let position = items.iter().position(|item| item.get(key) == patch.get(key));
        match (patch.get("$patch"), position) {
            (Some(directive), position) => {
                assert_eq!(directive, "delete");
                if let Some(position) = position {
                    items.remove(position);
                }
            }
            (None, Some(position)) => items[position] = strategic(&items[position], patch, schema.items()),
            (None, None) => items.push(patch.clone()),
        }
    }
    match set_order {
        Some(Value::Array(wanted)) => order(items, wanted, key),
        _ => items,
    }
}

/// Items named in `wanted` take that order; others stay behind the item they stood behind.
fn order(items: Vec<Value>, wanted: &[Value], key: &str) -> Vec<Value> {
    let rank = |item: &Value| wanted.iter().position(|wanted| wanted.get(key) == item.get(key));
    let mut named: Vec<Value> = items
        .iter()
        .filter(|item| rank(item).is_some())
        .cloned()
        .collect();
    named.sort_by_key(|item| rank(item));
    let mut named = named.into_iter();
    items
        .into_iter()
        .map(|item| {
            if rank(&item).is_some() {
                named.next().unwrap()
            } else {
                item
            }
        })
        .collect()
}

/// Some field helpers for building documents.
pub(crate) fn object(fields: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    Value::Object(Map::from_iter(
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)),
    ))
}
