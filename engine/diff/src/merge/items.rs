//! The items of a keyed list by their keys.

use std::collections::HashMap;

use argosy_object::{Map, Value};
use bumpalo::Bump;
use bumpalo::collections::Vec as BumpVec;

use crate::node::Node;

/// Up to so many items, a key is found faster by looking at all of them.
const LOOK_THROUGH_MAX: usize = 32;

/// The items of a keyed list by their key.
pub(super) struct Index<'a> {
    /// The key of each item, as text.
    pub(super) keys: BumpVec<'a, &'a str>,
    /// Where each key is, in long lists.
    positions: HashMap<&'a str, usize>,
}

impl<'a> Index<'a> {
    /// None if an item has no key or two have the same.
    pub(super) fn of(arena: &'a Bump, items: &'a [Value], keys: &[&str], node: Node<'_>) -> Option<Self> {
        let mut index = Self {
            keys: BumpVec::with_capacity_in(items.len(), arena),
            positions: HashMap::new(),
        };
        let long = items.len() > LOOK_THROUGH_MAX;
        if long {
            index.positions.reserve(items.len());
        }
        for (position, item) in items.iter().enumerate() {
            let key = key_text(arena, item.as_object()?, keys, node)?;
            let twice = match long {
                true => index.positions.insert(key, position).is_some(),
                false => index.keys.contains(&key),
            };
            if twice {
                return None;
            }
            index.keys.push(key);
        }
        Some(index)
    }

    /// Where the item with this key is; mostly it is at `near`.
    pub(super) fn position(&self, key: &str, near: usize) -> Option<usize> {
        if self.keys.get(near).is_some_and(|at| *at == key) {
            Some(near)
        } else if self.positions.is_empty() {
            self.keys.iter().position(|at| *at == key)
        } else {
            self.positions.get(key).copied()
        }
    }
}

/// The values of the key fields as one text. A field that is absent has its default; one without default may be absent if another is
/// present.
fn key_text<'a>(arena: &'a Bump, item: &'a Map, keys: &[&str], node: Node<'_>) -> Option<&'a str> {
    if let [key] = keys
        && let Some(Value::String(text)) = item.get(*key)
    {
        return Some(text);
    }
    let mut text = bumpalo::collections::String::new_in(arena);
    let mut present = 0;
    for key in keys {
        let value = item
            .get(*key)
            // An empty protocol is the default one.
            .filter(|value| !(value.is_null() || *key == "protocol" && value.as_str() == Some("")));
        present += usize::from(value.is_some());
        match value.or_else(|| node.key_default(key)) {
            Some(Value::String(value)) => text.push_str(value),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => text.push_str(&value.to_string()),
            Some(_) => return None,
            None => {}
        }
        text.push('\u{0}');
    }
    (present > 0).then(|| text.into_bump_str())
}

/// Whether a live item of nobody's stands in the way of a new one: it is keyed by something else than its name, and the name, which must be
/// unique too, is the new one's (a port edited by hand).
pub(super) fn takes_name(
    live: &Value,
    keys: &[&str],
    desired: &[Value],
    wanted: &Index<'_>,
    present: &Index<'_>,
) -> bool {
    if keys.contains(&"name") {
        return false;
    }
    let Some(name) = live
        .get("name")
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
    else {
        return false;
    };
    let named = |item: &Value| item.get("name").and_then(Value::as_str) == Some(name);
    desired
        .iter()
        .zip(&wanted.keys)
        .enumerate()
        .any(|(at, (item, key))| named(item) && present.position(key, at).is_none())
}
