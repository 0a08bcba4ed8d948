//! Server-side apply as the API server does it: a merge by schema, then the removal of what we owned and no longer state.
//!
//! The structure comes from the list and map types of the schema (`x-kubernetes-list-type` and its like). What the schema does not know is
//! taken by its form: an object is merged field by field, a list is one value. So one unknown field changes nothing for its neighbours.
//!
//! A field that we applied last and do not state now is removed unless another manager owns it. Its own children are asked one by one: what
//! somebody else put into a map or list of ours stays, and then so does the map or list.

use std::collections::HashMap;

use argosy_object::{Map, Path, Value};
use bumpalo::Bump;

use crate::managed::{Owned, keys_of};
use crate::node::{ListRule, Node};

/// `live` after an apply of `desired`. `last` is what the apply before owned, `others` what other managers own.
pub(crate) fn apply(
    live: &Value,
    desired: &Value,
    last: &Owned<'_>,
    others: &[Owned<'_>],
    node: Node<'_>,
    arena: &Bump,
) -> Value {
    let merged = merge(Some(live), Some(desired), node, arena);
    if last.is_empty() {
        return merged;
    }
    let prune = Prune { arena };
    let around = Around {
        last: Some(*last),
        others,
        desired: Some(desired),
        covered: false,
        orphaned: false,
    };
    prune.value(&merged, &around, node).0
}

/// The fields that Git states and the schema does not know, which are merged by their form. What every object has is known anyway.
pub(crate) fn unknown_fields(desired: &Value, node: Node<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in desired.as_object().into_iter().flatten() {
        if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status") {
            look_for_unknown(name, value, node, &Path::root(), &mut found);
        }
    }
    found
}

fn look_for_unknown(name: &str, value: &Value, around: Node<'_>, path: &Path<'_>, found: &mut Vec<String>) {
    let path = path.field(name);
    if around.lacks_field(name) {
        found.push(path.to_string());
        return;
    }
    let node = around.field(name);
    let (objects, node) = match value {
        Value::Array(items) => (items.as_slice(), node.item()),
        other => (std::slice::from_ref(other), node),
    };
    for (name, value) in objects.iter().filter_map(Value::as_object).flatten() {
        look_for_unknown(name, value, node, &path, found);
    }
}

/// What a server-side apply on `left` makes of it where `right` is stated.
pub(crate) fn merge(left: Option<&Value>, right: Option<&Value>, node: Node<'_>, arena: &Bump) -> Value {
    match (left, right) {
        (Some(Value::Object(left)), Some(Value::Object(right))) if !node.is_atomic() => {
            Value::Object(merge_objects(left, right, node, arena))
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            let items = merge_lists(left, right, node, arena);
            Value::Array(items.unwrap_or_else(|| right.clone()))
        }
        // A null is no statement about what a map or list holds.
        (Some(left @ Value::Object(fields)), Some(Value::Null))
            if !node.is_atomic() && !fields.is_empty() =>
        {
            left.clone()
        }
        (Some(left @ Value::Array(items)), Some(Value::Null))
            if node.list_rule(arena) != ListRule::Sequence && !items.is_empty() =>
        {
            left.clone()
        }
        (_, Some(right)) => right.clone(),
        (Some(left), None) => left.clone(),
        (None, None) => Value::Null,
    }
}

fn merge_objects(left: &Map, right: &Map, node: Node<'_>, arena: &Bump) -> Map {
    let mut merged = Map::new();
    for (name, value) in left {
        merged.insert(
            name.clone(),
            merge(Some(value), right.get(name), node.field(name), arena),
        );
    }
    for (name, value) in right {
        if !left.contains_key(name) {
            merged.insert(name.clone(), value.clone());
        }
    }
    merged
}

/// The items of two keyed lists or sets: those of both in the order of `right`, those of `left` alone where they stand. None if the list is
/// one value, or its items cannot be told apart.
fn merge_lists(left: &[Value], right: &[Value], node: Node<'_>, arena: &Bump) -> Option<Vec<Value>> {
    if left.is_empty() || right.is_empty() {
        return match node.list_rule(arena) {
            ListRule::Sequence => None,
            _ => Some(if right.is_empty() { left } else { right }.to_vec()),
        };
    }
    let left_keys = keys_of(left, node, arena)?;
    let right_keys = keys_of(right, node, arena)?;
    let mut in_right = HashMap::with_capacity(right.len());
    for (at, key) in right_keys.iter().enumerate() {
        if in_right.insert(*key, at).is_some() {
            return None;
        }
    }
    // Which item of `left` a key names; none if several have it: then it cannot be merged with either.
    let mut in_left: HashMap<&str, Option<usize>> = HashMap::with_capacity(left.len());
    for (at, key) in left_keys.iter().enumerate() {
        in_left
            .entry(key)
            .and_modify(|known| *known = None)
            .or_insert(Some(at));
    }
    let item = node.item();
    let both = |at: usize| {
        let present = in_left.get(right_keys[at]).copied().flatten();
        merge(present.map(|at| &left[at]), Some(&right[at]), item, arena)
    };
    // The items of both lists that are still to come, in the order of `right`.
    let mut shared = right_keys
        .iter()
        .filter(|key| in_left.contains_key(**key))
        .copied()
        .peekable();
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let mut taken = vec![false; right.len()];
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if let (Some(ours), Some(theirs)) = (left_keys.get(l), right_keys.get(r)) {
            if ours == theirs {
                merged.push(both(r));
                taken[r] = true;
                (l, r) = (l + 1, r + 1);
                shared.next();
                continue;
            }
            if in_right.contains_key(ours) && shared.peek().is_some_and(|next| next != ours) {
                // It comes later, in its place in `right`.
                l += 1;
                continue;
            }
        }
        if let Some(key) = left_keys.get(l) {
            match in_right.get(key) {
                None => {
                    merged.push(left[l].clone());
                    l += 1;
                    continue;
                }
                Some(at) if taken[*at] => l += 1,
                Some(_) => {}
            }
        }
        if let Some(key) = right_keys.get(r) {
            merged.push(both(r));
            taken[r] = true;
            r += 1;
            shared.next_if_eq(key);
        }
    }
    Some(merged)
}

/// The removal of what we owned.
struct Prune<'a> {
    arena: &'a Bump,
}

/// Who states and owns what is at a place.
struct Around<'o> {
    /// What we owned below here; nothing below which we owned nothing.
    last: Option<Owned<'o>>,
    /// What others own here.
    others: &'o [Owned<'o>],
    /// What Git states here.
    desired: Option<&'o Value>,
    /// Something around was ours.
    covered: bool,
    /// Something around was ours and is nobody's now.
    orphaned: bool,
}

impl Prune<'_> {
    /// What remains, and whether something in it has become empty.
    fn value(&self, value: &Value, around: &Around<'_>, node: Node<'_>) -> (Value, bool) {
        let mut emptied = false;
        let rest = match value {
            Value::Object(fields) if !node.is_atomic() => {
                let mut kept = Map::new();
                for (name, value) in fields {
                    let desired = around.desired.and_then(|desired| desired.get(name));
                    let below = node.field(name);
                    let named = node.names_field(name);
                    let counts = |value: &Value| !named || owns_something(value, below, self.arena);
                    let step = Step {
                        form: &format!("f:{name}"),
                        named,
                        counts: counts(value),
                        states: desired.is_some_and(counts),
                        desired,
                    };
                    match self.child(value, step, around, below) {
                        Remains::Rest(value) => {
                            kept.insert(name.clone(), value);
                        }
                        Remains::Emptied => emptied = true,
                        Remains::Nothing => {}
                    }
                }
                Value::Object(kept)
            }
            Value::Array(items) => self.list(items, around, node),
            scalar => scalar.clone(),
        };
        (rest, emptied)
    }

    fn list(&self, items: &[Value], around: &Around<'_>, node: Node<'_>) -> Value {
        let Some(keys) = keys_of(items, node, self.arena) else {
            return Value::Array(items.to_vec());
        };
        let stated: &[Value] = around
            .desired
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice);
        let stated_keys = keys_of(stated, node, self.arena);
        let mut kept = Vec::with_capacity(items.len());
        for (item, key) in items.iter().zip(&keys) {
            let desired = stated_keys
                .iter()
                .flatten()
                .position(|stated| stated == key)
                .map(|at| &stated[at]);
            let step = Step {
                form: key,
                named: false,
                counts: true,
                states: desired.is_some(),
                desired,
            };
            if let Remains::Rest(item) = self.child(item, step, around, node.item()) {
                kept.push(item);
            }
        }
        Value::Array(kept)
    }

    /// What remains of a field or item.
    fn child(&self, value: &Value, step: Step<'_>, around: &Around<'_>, node: Node<'_>) -> Remains {
        let Some(last) = around.last.and_then(|last| last.below(step.form)) else {
            // We owned nothing here, so there is nothing of ours to take away.
            return Remains::Rest(value.clone());
        };
        let was_ours = last.is_owned() || step.named;
        let covered = around.covered || was_ours;
        let others: Vec<Owned<'_>> = around
            .others
            .iter()
            .filter_map(|other| other.below(step.form))
            .collect();
        let owned = others.iter().any(|other| other.is_owned() || step.named) || step.states;
        let orphaned = around.orphaned || (step.counts && covered && !owned);
        if step.counts && orphaned && was_ours {
            return Remains::Nothing;
        }
        let below = Around {
            last: Some(last),
            others: &others,
            desired: step.desired,
            covered,
            orphaned,
        };
        let (rest, emptied) = self.value(value, &below, node);
        // What the removal has emptied goes too, but not what holds only that.
        if is_hollow(&rest) && !is_hollow(value) && !emptied {
            Remains::Emptied
        } else {
            Remains::Rest(rest)
        }
    }
}

/// What remains of a field or item.
enum Remains {
    Nothing,
    /// It has lost all it held.
    Emptied,
    Rest(Value),
}

/// Whether there is something in the value of a named field that can be owned. An empty list whose items could be is owned by nobody.
fn owns_something(value: &Value, node: Node<'_>, arena: &Bump) -> bool {
    match value {
        Value::Array(items) => !items.is_empty() || node.list_rule(arena) == ListRule::Sequence,
        Value::Object(fields) if !fields.is_empty() && !node.is_atomic() => fields
            .iter()
            .any(|(name, value)| !node.names_field(name) || owns_something(value, node.field(name), arena)),
        _ => true,
    }
}

fn is_hollow(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// One step down.
struct Step<'s> {
    /// As managedFields writes it.
    form: &'s str,
    /// It is a field of a type, not an entry of a map: whoever owns something in it owns it.
    named: bool,
    /// It holds or is something that can be owned.
    counts: bool,
    /// Git states it, by which it is ours again.
    states: bool,
    /// What Git states there.
    desired: Option<&'s Value>,
}

/// The answer of a dry run without what other managers (mutating webhooks) changed on the way: where we own nothing, `live` stands, and
/// what the server took away is away.
pub(crate) fn without_others(
    predicted: &Value,
    live: Option<&Value>,
    ours: Option<Owned<'_>>,
    node: Node<'_>,
    arena: &Bump,
) -> Option<Value> {
    if ours.is_some_and(|ours| ours.is_leaf()) {
        return Some(predicted.clone());
    }
    match (predicted, live) {
        (Value::Object(fields), live) if !node.is_atomic() && live.is_none_or(Value::is_object) => {
            let present = live.and_then(Value::as_object);
            if ours.is_none() && present.is_none() {
                return None;
            }
            let kept = fields.iter().filter_map(|(name, value)| {
                let ours = ours.and_then(|ours| ours.below(&format!("f:{name}")));
                let live = present.and_then(|present| present.get(name));
                Some((
                    name.clone(),
                    without_others(value, live, ours, node.field(name), arena)?,
                ))
            });
            Some(Value::Object(kept.collect()))
        }
        (Value::Array(items), live) if live.is_none_or(Value::is_array) => {
            let present: &[Value] = live.and_then(Value::as_array).map_or(&[], Vec::as_slice);
            let (Some(keys), Some(present_keys)) =
                (keys_of(items, node, arena), keys_of(present, node, arena))
            else {
                return live.cloned();
            };
            if ours.is_none() && live.is_none() {
                return None;
            }
            let kept = items.iter().zip(&keys).filter_map(|(item, key)| {
                let live = present_keys
                    .iter()
                    .position(|present| present == key)
                    .map(|at| &present[at]);
                let ours = ours.and_then(|ours| ours.below(key));
                let mut kept = without_others(item, live, ours, node.item(), arena)?;
                // An item is nothing without its keys, whoever owns those.
                if let (ListRule::Keyed(keys), Some(kept)) = (node.list_rule(arena), kept.as_object_mut()) {
                    for key in keys {
                        if let Some(value) = item.get(*key) {
                            kept.insert((*key).to_owned(), value.clone());
                        }
                    }
                }
                Some(kept)
            });
            Some(Value::Array(kept.collect()))
        }
        _ => live.cloned(),
    }
}
