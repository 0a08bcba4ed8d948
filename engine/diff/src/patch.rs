//! Client-side apply: the patch that leads from the live object to the merged one.

use argosy_object::schema::Schemas;
use argosy_object::{Map, Value, meta};
use bumpalo::Bump;

use crate::compare::Options;
use crate::ignore::IgnoreRules;
use crate::merge::{Merge, Owners};
use crate::node::{ListRule, Lists, Node, Semantics, schema_of};
use crate::{managed, normalize};

/// What to send to the API server.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    /// The body; an empty object if nothing changes.
    pub content: Value,
    /// How the server is to read it.
    pub kind: PatchKind,
}

/// Content type of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`
    Strategic,
}

impl Patch {
    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.content.as_object().is_none_or(Map::is_empty)
    }
}

/// The patch that applies `modified` to `current`, knowing what was applied last (`original`).
///
/// What `original` states and `modified` does not is removed; what neither states stays. `modified` carries the new last applied
/// configuration annotation already. Built-in kinds get a strategic merge patch, others a JSON merge patch. Metadata that the API server
/// writes and `status` are never sent.
#[must_use]
pub fn three_way(original: Option<&Value>, modified: &Value, current: &Value, schemas: &Schemas) -> Patch {
    let gvk = meta::gvk(modified);
    let semantics = Semantics::of(&gvk.group, false);
    let node = Node::root(schema_of(schemas, &gvk), schemas, &gvk, semantics);
    let (mut original, mut modified, mut target) = (original.cloned(), modified.clone(), current.clone());

    normalize::align(&mut modified, current, original.as_mut());
    for document in [Some(&mut modified), original.as_mut()].into_iter().flatten() {
        normalize::prepare(document);
        meta::remove_field(document, &["status"]);
    }
    normalize::roles(&mut modified, &mut target, original.as_mut(), &Options::default());
    normalize::service(&mut modified, &mut target, original.as_mut());

    let arena = Bump::new();
    let merged = Merge::new(&arena, None).document(original.as_ref(), &modified, &target, node);
    let merged = merged.as_ref().unwrap_or(&target);
    let (kind, content) = match semantics.lists {
        Lists::Strategic => (PatchKind::Strategic, strategic(&target, merged, node, &arena)),
        _ => (PatchKind::Merge, merge(&target, merged)),
    };
    Patch { content, kind }
}

/// The patch that takes from `current`, just after an apply of `desired`, what others put beside it (`Strict=true`) and no rule says to
/// leave alone. Empty if there is nothing of the kind.
#[must_use]
pub fn without_unstated(
    desired: &Value,
    current: &Value,
    rules: &IgnoreRules,
    schemas: &Schemas,
    manager: &str,
) -> Patch {
    let gvk = meta::gvk(desired);
    let semantics = Semantics::of(&gvk.group, false);
    let node = Node::root(schema_of(schemas, &gvk), schemas, &gvk, semantics);
    let applicable = rules.for_object(current);
    let left_alone: Vec<&str> = applicable.managers().collect();
    let (kept, others) = managed::kept_and_others(current, manager, &left_alone);
    let (mut desired, mut target) = (desired.clone(), current.clone());
    normalize::align(&mut desired, current, None);
    for document in [&mut desired, &mut target] {
        normalize::prepare(document);
    }
    let ignored = applicable.paths(&target);

    let arena = Bump::new();
    let rest = Merge::new(&arena, None).without_unstated(
        &desired,
        &target,
        Owners {
            others: others.root(),
            kept: Some(kept.root()),
        },
        node,
        &ignored,
    );
    let rest = rest.as_ref().unwrap_or(&target);
    let (kind, content) = match semantics.lists {
        Lists::Strategic => (PatchKind::Strategic, strategic(&target, rest, node, &arena)),
        _ => (PatchKind::Merge, merge(&target, rest)),
    };
    Patch { content, kind }
}

/// The JSON merge patch from `from` to `to`.
fn merge(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    let mut patch = Map::new();
    for (name, value) in to {
        match from.get(name) {
            Some(present) if present == value => {}
            Some(present @ Value::Object(_)) if value.is_object() => {
                patch.insert(name.clone(), merge(present, value));
            }
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    Value::Object(patch)
}

/// The strategic merge patch from `from` to `to`.
fn strategic(from: &Value, to: &Value, node: Node<'_>, arena: &Bump) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    Value::Object(strategic_object(from, to, node, arena))
}

fn strategic_object(from: &Map, to: &Map, node: Node<'_>, arena: &Bump) -> Map {
    let mut patch = Map::new();
    for (name, value) in to {
        let here = node.field(name);
        match (from.get(name), value) {
            (Some(present), value) if present == value => {}
            // The server puts what the patch says in its place.
            (Some(_), Value::Object(value)) if here.is_atomic() => {
                patch.insert(name.clone(), Value::Object(value.clone()));
            }
            (Some(Value::Object(present)), Value::Object(value)) => {
                patch.insert(
                    name.clone(),
                    Value::Object(strategic_object(present, value, here, arena)),
                );
            }
            (Some(Value::Array(present)), Value::Array(value)) => {
                strategic_list(name, present, value, here, arena, &mut patch);
            }
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    patch
}

fn strategic_list(name: &str, from: &[Value], to: &[Value], node: Node<'_>, arena: &Bump, patch: &mut Map) {
    match (node.list_rule(arena), node.patch_merge_key()) {
        (ListRule::Keyed(_), Some(key)) => match (by_key(from, key), by_key(to, key)) {
            (Some(from), Some(to)) => keyed_list(name, key, &from, &to, node, arena, patch),
            // The server matches by this key alone; where it is not unique the list is set as a whole.
            _ => {
                let mut items = vec![directive("replace")];
                items.extend_from_slice(to);
                patch.insert(name.to_owned(), Value::Array(items));
            }
        },
        (ListRule::Set, _) => {
            let added: Vec<Value> = to
                .iter()
                .filter(|member| !from.contains(member))
                .cloned()
                .collect();
            let gone: Vec<Value> = from
                .iter()
                .filter(|member| !to.contains(member))
                .cloned()
                .collect();
            if !gone.is_empty() {
                patch.insert(format!("$deleteFromPrimitiveList/{name}"), Value::Array(gone));
            }
            if !added.is_empty() {
                patch.insert(name.to_owned(), Value::Array(added));
            }
        }
        _ => {
            patch.insert(name.to_owned(), Value::Array(to.to_vec()));
        }
    }
}

type Keyed<'v> = Vec<(&'v Value, &'v Map)>;

/// The items with their keys, if each has one of its own.
fn by_key<'v>(items: &'v [Value], key: &str) -> Option<Keyed<'v>> {
    let mut keyed: Keyed<'v> = Vec::with_capacity(items.len());
    let mut seen = std::collections::HashSet::with_capacity(items.len());
    for item in items {
        let fields = item.as_object()?;
        let value = fields.get(key).filter(|value| !value.is_null())?;
        if !seen.insert(value.to_string()) {
            return None;
        }
        keyed.push((value, fields));
    }
    Some(keyed)
}

fn keyed_list(
    name: &str,
    key: &str,
    from: &Keyed<'_>,
    to: &Keyed<'_>,
    node: Node<'_>,
    arena: &Bump,
    patch: &mut Map,
) {
    let item = node.item();
    let mut items = Vec::new();
    for (value, fields) in to {
        match from.iter().find(|(present, _)| present == value) {
            None => items.push(Value::Object((*fields).clone())),
            Some((_, present)) => {
                let mut changed = strategic_object(present, fields, item, arena);
                if !changed.is_empty() {
                    changed.insert(key.to_owned(), (*value).clone());
                    items.push(Value::Object(changed));
                }
            }
        }
    }
    for (value, _) in from
        .iter()
        .filter(|(value, _)| !to.iter().any(|(kept, _)| kept == value))
    {
        let mut gone = Map::new();
        gone.insert("$patch".to_owned(), Value::from("delete"));
        gone.insert(key.to_owned(), (*value).clone());
        items.push(Value::Object(gone));
    }
    if !items.is_empty() {
        patch.insert(name.to_owned(), Value::Array(items));
    }
    let order = to
        .iter()
        .map(|(value, _)| Value::Object(Map::from_iter([(key.to_owned(), (*value).clone())])));
    patch.insert(format!("$setElementOrder/{name}"), Value::Array(order.collect()));
}

fn directive(text: &str) -> Value {
    Value::Object(Map::from_iter([("$patch".to_owned(), Value::from(text))]))
}
