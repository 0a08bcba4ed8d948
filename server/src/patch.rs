//! JSON patches of people, applied within bounds. A few lines of them can ask for a document without end: each copy of a
//! document into itself doubles it, and whoever goes down a document that is nested deep enough runs out of stack.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

/// Operations of one patch; as many as a Kubernetes API server takes.
const OPERATIONS_MAX: usize = 10_000;
/// Bytes, roughly, that all copies of one patch add up to; as many as a Kubernetes API server lets them.
const COPIED_MAX: usize = 3 << 20;
/// Values in values.
const DEPTH_MAX: usize = 100;

/// Applies a patch. After an error the document is of no use.
pub(crate) fn apply(document: &mut Value, patch: &Patch) -> Result<(), String> {
    if patch.0.len() > OPERATIONS_MAX {
        return Err(format!(
            "it has {} operations, more than {OPERATIONS_MAX}",
            patch.0.len()
        ));
    }
    let mut copied = 0;
    for operation in &patch.0 {
        let placed = match operation {
            PatchOperation::Add(add) => Some(&add.value),
            PatchOperation::Replace(replace) => Some(&replace.value),
            PatchOperation::Move(moved) => document.pointer(moved.from.as_str()),
            PatchOperation::Copy(copy) => {
                let value = document.pointer(copy.from.as_str());
                copied += value.map_or(0, size);
                value
            }
            PatchOperation::Remove(_) | PatchOperation::Test(_) => None,
        };
        if copied > COPIED_MAX {
            return Err(format!("its copies add up to more than {} MiB", COPIED_MAX >> 20));
        }
        let deepest = placed.map_or(0, |value| operation.path().count() + depth(value));
        if deepest > DEPTH_MAX {
            return Err(format!(
                "{}: values would be nested deeper than {DEPTH_MAX}",
                operation.path()
            ));
        }
        json_patch::patch(document, std::slice::from_ref(operation)).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// How deep a value is nested.
fn depth(value: &Value) -> usize {
    let deepest = match value {
        Value::Array(list) => list.iter().map(depth).max(),
        Value::Object(object) => object.values().map(depth).max(),
        _ => return 0,
    };
    1 + deepest.unwrap_or_default()
}

/// How much room a value takes, roughly.
fn size(value: &Value) -> usize {
    16 + match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(size).sum(),
        Value::Object(object) => object.iter().map(|(key, value)| key.len() + size(value)).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn applied(mut document: Value, patch: Value) -> Result<Value, String> {
        let patch = serde_json::from_value(patch).unwrap();
        apply(&mut document, &patch).map(|()| document)
    }

    #[test]
    fn a_patch_does_what_it_says() {
        let patch = json!([{"op": "test", "path": "/a", "value": 1}, {"op": "copy", "from": "/b", "path": "/c"},
            {"op": "move", "from": "/a", "path": "/b/x"}, {"op": "replace", "path": "/c", "value": 2},
            {"op": "add", "path": "/d", "value": [1]}]);
        assert_eq!(
            applied(json!({"a": 1, "b": {}}), patch).unwrap(),
            json!({"b": {"x": 1}, "c": 2, "d": [1]})
        );
        let missing = json!([{"op": "remove", "path": "/a"}]);
        assert!(applied(json!({}), missing).is_err());
    }

    #[test]
    fn a_document_does_not_grow_without_end() {
        let copies: Vec<Value> = (0..40)
            .map(|at| json!({"op": "copy", "from": "", "path": format!("/{at}")}))
            .collect();
        let refused = applied(json!({"a": "x".repeat(100)}), copies.into()).unwrap_err();
        assert!(
            refused.contains("add up to more") || refused.contains("deeper"),
            "{refused}"
        );
        let wide: Vec<Value> = (0..40)
            .map(|_| json!({"op": "copy", "from": "/a", "path": "/a/-"}))
            .collect();
        assert!(applied(json!({"a": ["x".repeat(1 << 20)]}), wide.into()).is_err());
        let many = vec![json!({"op": "add", "path": "/a", "value": 1}); OPERATIONS_MAX + 1];
        assert!(applied(json!({}), many.into()).is_err());
    }

    #[test]
    fn a_document_is_not_nested_without_end() {
        let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!({"a": inner}));
        let mut path = String::new();
        let mut patch = Vec::new();
        for _ in 0..1000 {
            patch.push(json!({"op": "add", "path": format!("{path}/a"), "value": nested(90)}));
            path += &"/a".repeat(90);
        }
        assert!(applied(json!({}), patch.into()).unwrap_err().contains("deeper"));
        let doubled: Vec<Value> = (0..20)
            .map(|at| json!({"op": "copy", "from": "/a", "path": format!("/a{}", "/a".repeat(1 << at))}))
            .collect();
        assert!(applied(json!({"a": {"a": {}}}), doubled.into()).is_err());
    }
}
