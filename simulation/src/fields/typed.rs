//! Walks over documents along their schema.

use std::collections::BTreeMap;

use argosy_object::schema::{List, Schema, Type};
use serde_json::{Map, Value};

use super::FieldSet;

/// Where a walk is.
#[derive(Clone, Copy)]
pub(crate) enum Node<'a> {
    /// The schema says what is here.
    Known(Schema<'a>),
    /// Nobody says: maps are granular, lists are one value.
    Deduced,
}

/// How a value is owned.
enum Shape<'a> {
    Leaf,
    Map,
    Keyed(&'a [String]),
    Set,
}

/// The fields in which two documents differ.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }
}

impl<'a> Node<'a> {
    fn shape(self, value: &Value) -> Shape<'a> {
        match self {
            Node::Deduced if value.is_object() => Shape::Map,
            Node::Deduced => Shape::Leaf,
            Node::Known(schema) => match schema.kind() {
                Type::Object if schema.atomic_map() || self.is_blank() => Shape::Leaf,
                Type::Object => Shape::Map,
                Type::Array => match schema.list() {
                    List::Atomic => Shape::Leaf,
                    List::Set => Shape::Set,
                    List::Map(keys) => Shape::Keyed(keys),
                },
                Type::Any if schema.preserve_unknown() && value.is_object() => Shape::Map,
                _ => Shape::Leaf,
            },
        }
    }

    /// An object of which the schema says nothing.
    fn is_blank(self) -> bool {
        match self {
            Node::Known(schema) => {
                schema.fields().next().is_none()
                    && schema.additional().is_none()
                    && !schema.preserve_unknown()
            }
            Node::Deduced => true,
        }
    }

    /// Whether a step is a field that the schema names.
    pub(super) fn names(self, step: &str) -> bool {
        match (self, step.strip_prefix("f:")) {
            (Node::Known(schema), Some(name)) => schema.field(name).is_some(),
            _ => false,
        }
    }

    pub(crate) fn field(self, name: &str) -> Node<'a> {
        match self {
            Node::Known(schema) => match schema.child(name) {
                Some(child) => Node::Known(child),
                None => Node::Deduced,
            },
            other => other,
        }
    }

    pub(crate) fn item(self) -> Node<'a> {
        match self {
            Node::Known(schema) => schema.items().map_or(Node::Deduced, Node::Known),
            other => other,
        }
    }

    pub(super) fn step(self, step: &str) -> Node<'a> {
        match step.strip_prefix("f:") {
            Some(name) => self.field(name),
            None => self.item(),
        }
    }

    /// What tells an item of a keyed list from others.
    fn key(self, keys: &[String], item: &Value) -> String {
        let schema = match self.item() {
            Node::Known(schema) => Some(schema),
            _ => None,
        };
        let mut named = Map::new();
        for key in keys {
            let default = || {
                schema
                    .and_then(|schema| schema.field(key))
                    .and_then(Schema::default)
            };
            if let Some(value) = item.get(key).or_else(default) {
                named.insert(key.clone(), value.clone());
            }
        }
        format!("k:{}", Value::Object(named))
    }

    /// The items of a list with the steps that lead to them; none if the list is one value.
    fn items(self, value: &'a Value) -> Option<Vec<(String, &'a Value)>> {
        let items = value.as_array()?;
        match self.shape(value) {
            Shape::Keyed(keys) => Some(items.iter().map(|item| (self.key(keys, item), item)).collect()),
            Shape::Set => Some(items.iter().map(|item| (format!("v:{item}"), item)).collect()),
            _ => None,
        }
    }
}

/// Every field that a document states.
pub(super) fn stated(value: &Value, node: Node<'_>) -> FieldSet {
    let mut set = FieldSet::default();
    state(value, node, &mut Vec::new(), &mut set);
    set
}

fn state(value: &Value, node: Node<'_>, path: &mut Vec<String>, set: &mut FieldSet) {
    match (node.shape(value), value) {
        (Shape::Map, Value::Object(fields)) => {
            for (name, field) in fields {
                let step = format!("f:{name}");
                let named = node.names(&step);
                path.push(step);
                state(field, node.field(name), path, set);
                if !named || field.is_null() || field.as_object().is_some_and(Map::is_empty) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (Shape::Keyed(_) | Shape::Set, Value::Array(_)) => {
            for (step, item) in node.items(value).unwrap_or_default() {
                path.push(step);
                state(item, node.item(), path, set);
                set.insert(path);
                path.pop();
            }
        }
        (Shape::Keyed(_) | Shape::Set, Value::Null) => {}
        _ => set.insert(path),
    }
}

/// Fields that the schema does not declare, as texts name them.
pub(crate) fn undeclared(value: &Value, node: Node<'_>) -> Vec<String> {
    let mut paths = Vec::new();
    look_for_undeclared(value, node, "", &mut paths);
    paths
}

fn look_for_undeclared(value: &Value, node: Node<'_>, path: &str, paths: &mut Vec<String>) {
    let Node::Known(schema) = node else { return };
    match value {
        Value::Object(fields) => {
            let open = schema.preserve_unknown() || node.is_blank();
            for (name, field) in fields {
                let here = format!("{path}.{name}");
                match schema.child(name) {
                    Some(child) => look_for_undeclared(field, Node::Known(child), &here, paths),
                    None if open
                        || (path.is_empty()
                            && matches!(name.as_str(), "apiVersion" | "kind" | "metadata")) => {}
                    None => paths.push(here),
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                look_for_undeclared(item, node.item(), &format!("{path}[{index}]"), paths);
            }
        }
        _ => {}
    }
}

/// The fields in which `to` differs from `from`.
pub(super) fn compare(from: &Value, to: &Value, node: Node<'_>) -> Changes {
    let mut changes = Changes::default();
    walk(Some(from), Some(to), node, &mut Vec::new(), &mut changes);
    changes
}

fn is_void(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(_) => false,
    }
}

fn walk(
    from: Option<&Value>,
    to: Option<&Value>,
    node: Node<'_>,
    path: &mut Vec<String>,
    changes: &mut Changes,
) {
    let sample = to
        .filter(|to| !to.is_null())
        .or(from.filter(|from| !from.is_null()));
    let shape = sample.map_or(Shape::Leaf, |sample| node.shape(sample));
    // Two empty ones are told apart as they are written.
    let leaf = matches!(shape, Shape::Leaf) || (is_void(from) && is_void(to));
    if leaf {
        match (from, to) {
            (None, Some(_)) => changes.added.insert(path),
            (Some(_), None) => changes.removed.insert(path),
            (from, to) if from != to => changes.modified.insert(path),
            _ => {}
        }
        return;
    }
    let steps = |value: Option<&Value>| -> Vec<(String, Value)> {
        match value {
            Some(Value::Object(fields)) => fields
                .iter()
                .map(|(name, field)| (format!("f:{name}"), field.clone()))
                .collect(),
            Some(list @ Value::Array(_)) => {
                let items = node.items(list).unwrap_or_default();
                items
                    .into_iter()
                    .map(|(step, item)| (step, item.clone()))
                    .collect()
            }
            _ => Vec::new(),
        }
    };
    let (before, after): (BTreeMap<_, _>, BTreeMap<_, _>) =
        (steps(from).into_iter().collect(), steps(to).into_iter().collect());
    for step in before
        .keys()
        .chain(after.keys().filter(|step| !before.contains_key(*step)))
    {
        let (before, after) = (before.get(step), after.get(step));
        if before == after {
            continue;
        }
        path.push(step.clone());
        walk(before, after, node.step(step), path, changes);
        path.pop();
    }
    match (from, to) {
        (None, Some(_)) => changes.added.insert(path),
        (Some(_), None) => changes.removed.insert(path),
        _ => {}
    }
}

/// `base` with everything that `over` states.
pub(crate) fn merge(base: &Value, over: &Value, node: Node<'_>) -> Value {
    match (base, over, node.shape(over)) {
        (Value::Object(base), Value::Object(over), Shape::Map) => {
            let mut merged = base.clone();
            for (name, field) in over {
                let below = match base.get(name) {
                    Some(present) => merge(present, field, node.field(name)),
                    None => field.clone(),
                };
                merged.insert(name.clone(), below);
            }
            Value::Object(merged)
        }
        (Value::Array(_), Value::Array(_), Shape::Keyed(_) | Shape::Set) => merge_lists(base, over, node),
        _ => over.clone(),
    }
}

/// The items of both lists, those of `over` in its order. An item that only `base` has keeps its place behind the items that
/// stood before it.
fn merge_lists(base: &Value, over: &Value, node: Node<'_>) -> Value {
    let base = node.items(base).unwrap_or_default();
    let over = node.items(over).unwrap_or_default();
    let in_base: BTreeMap<&str, &Value> = base.iter().map(|(step, item)| (step.as_str(), *item)).collect();
    let in_over: BTreeMap<&str, &Value> = over.iter().map(|(step, item)| (step.as_str(), *item)).collect();
    let mut shared = over
        .iter()
        .filter(|(step, _)| in_base.contains_key(step.as_str()))
        .peekable();
    let mut done: Vec<&str> = Vec::new();
    let mut merged = Vec::new();
    let both = |step: &str, item: &Value| match in_base.get(step) {
        Some(present) => merge(present, item, node.item()),
        None => item.clone(),
    };
    let (mut left, mut right) = (base.iter().peekable(), over.iter().peekable());
    loop {
        match (left.peek(), right.peek()) {
            (None, None) => return Value::Array(merged),
            (Some((ours, item)), theirs) => {
                let ours = ours.as_str();
                if theirs.is_some_and(|(step, _)| step == ours) {
                    merged.push(both(ours, in_over[ours]));
                    done.push(ours);
                    shared.next();
                    left.next();
                    right.next();
                    continue;
                }
                if !in_over.contains_key(ours) {
                    merged.push((*item).clone());
                    left.next();
                    continue;
                }
                let next_shared = shared.peek().map(|(step, _)| step.as_str());
                if done.contains(&ours) || next_shared.is_some_and(|next| next != ours) {
                    left.next();
                    continue;
                }
            }
            (None, Some(_)) => {}
        }
        if let Some((step, item)) = right.next() {
            merged.push(both(step, item));
            done.push(step);
            if shared.peek().is_some_and(|(next, _)| next == step) {
                shared.next();
            }
        }
    }
}

/// `value` without the fields of `set`; none if nothing is left. With `nulls` what becomes empty is null rather than gone.
pub(super) fn without(value: &Value, set: &FieldSet, node: Node<'_>, nulls: bool) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            let mut kept = Map::new();
            for (name, field) in fields {
                match set.part(&format!("f:{name}")) {
                    Some(part) if part.member => {}
                    Some(part) => match without(field, &part.below, node.field(name), nulls) {
                        Some(rest) => drop(kept.insert(name.clone(), rest)),
                        None if nulls => drop(kept.insert(name.clone(), Value::Null)),
                        None => {}
                    },
                    None => drop(kept.insert(name.clone(), field.clone())),
                }
            }
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(_) => {
            let items = node.items(value)?;
            let mut kept = Vec::new();
            for (step, item) in items {
                match set.part(&step) {
                    Some(part) if part.member => {}
                    Some(part) => kept.extend(without(item, &part.below, node.item(), nulls)),
                    None => kept.push(item.clone()),
                }
            }
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        scalar => Some(scalar.clone()),
    }
}
