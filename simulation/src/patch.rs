//! The three patches that change an object as it is: JSON patch, JSON merge patch, strategic merge patch.

use argosy_object::schema::Schema;
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// A JSON patch (RFC 6902).
pub(crate) fn json(document: &Value, patch: &Value) -> Result<Value, Refusal> {
    let patch: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))?;
    let mut patched = document.clone();
    json_patch::patch(&mut patched, &patch).map_err(|_| Refusal::unprocessable())?;
    Ok(patched)
}

/// A JSON merge patch (RFC 7396).
pub(crate) fn merge(document: &Value, patch: &Value) -> Value {
    let Value::Object(fields) = patch else {
        return patch.clone();
    };
    let mut merged = document.as_object().cloned().unwrap_or_default();
    for (name, field) in fields {
        if field.is_null() {
            merged.remove(name);
        } else {
            let present = merged.get(name).unwrap_or(&Value::Null);
            let field = merge(present, field);
            merged.insert(name.clone(), field);
        }
    }
    Value::Object(merged)
}

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER_OF: &str = "$setElementOrder/";

/// A strategic merge patch: as a JSON merge patch, but lists are merged where the schema says so.
pub(crate) fn strategic(
    document: &Value,
    patch: &Value,
    schema: Option<Schema<'_>>,
) -> Result<Value, Refusal> {
    match (document, patch) {
        (Value::Object(document), Value::Object(patch)) => {
            merge_object(document, patch, schema).map(Value::Object)
        }
        _ => Err(Refusal::bad_request(
            "error decoding patch: a strategic merge patch is an object",
        )),
    }
}

fn merge_object(
    document: &Map<String, Value>,
    patch: &Map<String, Value>,
    schema: Option<Schema<'_>>,
) -> Result<Map<String, Value>, Refusal> {
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("replace") => {
            let mut replaced = patch.clone();
            replaced.remove(DIRECTIVE);
            return Ok(replaced);
        }
        Some("delete") => return Ok(Map::new()),
        Some("merge") | None => {}
        Some(other) => {
            return Err(Refusal::bad_request(format!(
                "invalid patch: unknown patch type {other:?}"
            )));
        }
    }
    let mut merged = document.clone();
    if let Some(Value::Array(retained)) = patch.get(RETAIN) {
        merged.retain(|name, _| retained.iter().any(|retained| retained == name));
    }
    for (field, values) in patch
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(DELETE_FROM)?, value)))
    {
        if let (Some(Value::Array(items)), Value::Array(values)) = (merged.get_mut(field), values) {
            items.retain(|item| !values.contains(item));
        }
    }
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        let child = schema.and_then(|schema| schema.child(name));
        let replaces = strategies(child).any(|strategy| strategy == "replace");
        let present = merged.get(name);
        let result = match (present, value) {
            (_, Value::Null) => {
                merged.remove(name);
                continue;
            }
            (Some(Value::Object(present)), Value::Object(value)) if !replaces => {
                Value::Object(merge_object(present, value, child)?)
            }
            (None, Value::Object(value)) => Value::Object(merge_object(&Map::new(), value, child)?),
            (present, Value::Array(value)) if strategies(child).any(|strategy| strategy == "merge") => {
                let order = patch.get(&format!("{ORDER_OF}{name}")).and_then(Value::as_array);
                let present = present.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                Value::Array(merge_list(present, value, order, child)?)
            }
            _ => value.clone(),
        };
        merged.insert(name.clone(), result);
    }
    // An order may come without changes to its list.
    for (field, order) in patch
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(ORDER_OF)?, value)))
    {
        if patch.contains_key(field) {
            continue;
        }
        let child = schema.and_then(|schema| schema.child(field));
        if let (Some(Value::Array(items)), Value::Array(order)) = (merged.get(field), order) {
            let ordered = in_order(
                items.clone(),
                items,
                order,
                child.and_then(Schema::patch_merge_key),
            );
            merged.insert(field.to_owned(), Value::Array(ordered));
        }
    }
    Ok(merged)
}

fn strategies<'a>(schema: Option<Schema<'a>>) -> impl Iterator<Item = &'a str> {
    schema
        .and_then(Schema::patch_strategy)
        .unwrap_or_default()
        .split(',')
        .filter(|word| !word.is_empty())
}

fn merge_list(
    present: &[Value],
    patch: &[Value],
    order: Option<&Vec<Value>>,
    schema: Option<Schema<'_>>,
) -> Result<Vec<Value>, Refusal> {
    let key = schema.and_then(Schema::patch_merge_key);
    if let Some(order) = order {
        follows_order(patch, order, key)?;
    }
    // Without an order the items of the patch have that of the patch.
    let order = order.map_or(patch, Vec::as_slice);
    let mut merged = present.to_vec();
    let Some(key) = key else {
        for value in patch {
            if !merged.contains(value) {
                merged.push(value.clone());
            }
        }
        return Ok(in_order(merged, present, order, None));
    };
    if patch.iter().any(|item| item[DIRECTIVE] == "replace") {
        return Ok(patch
            .iter()
            .filter(|item| item.get(DIRECTIVE).is_none())
            .cloned()
            .collect());
    }
    let item_schema = schema.and_then(Schema::items);
    for item in patch {
        let Some(fields) = item.as_object() else {
            return Err(Refusal::bad_request(
                "error decoding patch: a list of objects is merged with a list of scalars",
            ));
        };
        let Some(id) = fields.get(key) else {
            return Err(Refusal::internal(format!(
                "map: {} does not contain declared merge key: {key}",
                go_text(item)
            )));
        };
        let at = merged.iter().position(|present| present.get(key) == Some(id));
        if fields
            .get(DIRECTIVE)
            .is_some_and(|directive| directive == "delete")
        {
            merged.retain(|present| present.get(key) != Some(id));
            continue;
        }
        let nothing = Map::new();
        let base = at.and_then(|at| merged[at].as_object()).unwrap_or(&nothing);
        let result = Value::Object(merge_object(base, fields, item_schema)?);
        match at {
            Some(at) => merged[at] = result,
            None => merged.push(result),
        }
    }
    Ok(in_order(merged, present, order, Some(key)))
}

/// Every item of the patch must be in the order, at its place.
fn follows_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Refusal> {
    let id = |item: &Value| key.map_or_else(|| item.clone(), |key| item[key].clone());
    let mut rest = order.iter();
    if patch.iter().all(|item| rest.any(|place| id(place) == id(item))) {
        return Ok(());
    }
    let list = |items: &[Value]| items.iter().map(go_text).collect::<Vec<_>>().join(" ");
    Err(Refusal::internal(format!(
        "The order in patch list:\n[{}]\n doesn't match $setElementOrder list:\n[{}]\n",
        list(patch),
        list(order)
    )))
}

/// A value as a Go program prints it.
fn go_text(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, field)| format!("{name}:{}", go_text(field)))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}

/// Puts the items that `order` names in that order; others keep their place relative to what stood beside them.
fn in_order(merged: Vec<Value>, present: &[Value], order: &[Value], key: Option<&str>) -> Vec<Value> {
    let id = |item: &Value| match key {
        Some(key) => item.get(key).cloned().unwrap_or_default(),
        None => item.clone(),
    };
    let rank = |list: &[Value], item: &Value| {
        let wanted = id(item);
        list.iter().position(|one| id(one) == wanted)
    };
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| rank(order, item).is_some());
    named.sort_by_key(|item| rank(order, item));
    let mut result = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let other_first = match (named.peek(), others.peek()) {
            (None, None) => return result,
            (Some(_), None) => false,
            (None, Some(_)) => true,
            (Some(named), Some(other)) => match (rank(present, named), rank(present, other)) {
                (Some(named), Some(other)) => other < named,
                _ => false,
            },
        };
        result.extend(if other_first { others.next() } else { named.next() });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use argosy_object::GroupVersionKind;
    use argosy_object::schema::Schemas;
    use serde_json::json;

    use super::*;

    fn patched(document: Value, patch: Value) -> Value {
        let schemas = Schemas::builtin();
        let schema = schemas.root(&GroupVersionKind::new("apps", "v1", "Deployment"));
        strategic(&document, &patch, schema).unwrap()
    }

    fn containers(list: Value) -> Value {
        json!({"spec": {"template": {"spec": {"containers": list}}}})
    }

    #[test]
    fn containers_are_merged_by_name_and_args_are_replaced() {
        let result = patched(
            containers(json!([{"name": "a", "image": "1", "args": ["x", "y"]}, {"name": "b", "image": "2"}])),
            containers(
                json!([{"name": "a", "args": ["z"]}, {"name": "b", "$patch": "delete"}, {"name": "c", "image": "3"}]),
            ),
        );
        assert_eq!(
            result,
            containers(json!([{"name": "a", "image": "1", "args": ["z"]}, {"name": "c", "image": "3"}]))
        );
    }

    #[test]
    fn retain_keys_clears_the_other_members_of_a_union() {
        let result = patched(
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
        );
        assert_eq!(result, json!({"spec": {"strategy": {"type": "Recreate"}}}));
    }

    #[test]
    fn an_order_moves_items_of_the_patch_only() {
        let result = patched(
            containers(json!([{"name": "own"}, {"name": "a"}, {"name": "b"}])),
            json!({"spec": {"template": {"spec": {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [{"name": "a", "image": "1"}],
            }}}}),
        );
        assert_eq!(
            result,
            containers(json!([{"name": "own"}, {"name": "b"}, {"name": "a", "image": "1"}]))
        );
    }

    #[test]
    fn finalizers_are_a_merged_list_of_texts() {
        // The order is that of apimachinery: what the patch brings stands before what only the server had.
        let schemas = Schemas::builtin();
        let schema = schemas.root(&GroupVersionKind::new("", "v1", "ConfigMap"));
        let result = strategic(
            &json!({"metadata": {"finalizers": ["a", "b"]}}),
            &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}}),
            schema,
        );
        assert_eq!(result.unwrap(), json!({"metadata": {"finalizers": ["c", "b"]}}));
    }
}
