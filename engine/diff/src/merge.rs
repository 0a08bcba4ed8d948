//! What the live object would be after an apply, and every place where that is not what it is now.
//!
//! Three documents are walked at once: what was applied last (the base), what Git wants now (desired), what there is (live). A field that
//! Git states is as Git says; one that Git stated last time and does not now is removed; all others are somebody else's and stay. Lists are
//! matched by key where the kind has one, and are one value where it has none.
//!
//! Where desired and live mean the same, the live spelling stays, so that the result is equal to the live object exactly if nothing is
//! different.

mod items;
mod place;
mod unstated;

use argosy_object::{GroupVersionKind, Map, Path, Value};
use bumpalo::Bump;
use bumpalo::collections::Vec as BumpVec;

use crate::compare::{Difference, KnownType, KnownTypeKind};
use crate::facts;
use crate::managed;
use crate::node::{ListRule, Node};
use crate::scalar;

use items::{Index, takes_name};
use place::{At, Beside};

pub(crate) use unstated::Owners;

const CHANGED: &str = "set in Git to another value";
const ADDED: &str = "in Git, but not in the cluster";
pub(crate) const REMOVED: &str = "removed from Git since the last apply";
const NULLED: &str = "set to null in Git";
const NOT_IN_WHOLE: &str = "not in Git, and what holds it is applied as a whole";
const SAME_NAME: &str = "has the name of an item in Git that has another key";
const OTHER_MEMBER: &str = "not in Git, and only one of these fields may be set";
const ORDER: &str = "in Git in another order";

/// Collects the differences of one comparison.
pub(crate) struct Recorder<'k> {
    pub(crate) differences: Vec<Difference>,
    /// The live object's managedFields.
    managers: &'k [Value],
    known: Vec<&'k KnownType>,
}

impl<'k> Recorder<'k> {
    pub(crate) fn new(known: &'k [KnownType], gvk: &GroupVersionKind, managers: &'k [Value]) -> Self {
        let known = known
            .iter()
            .filter(|known| known.group == gvk.group && known.kind == gvk.kind)
            .collect();
        Self {
            differences: Vec::new(),
            managers,
            known,
        }
    }

    /// Whether an operator said that the field has a type by which the two values are the same.
    fn known_same(&self, path: &Path<'_>, desired: &Value, live: &Value) -> bool {
        if self.known.is_empty() {
            return false;
        }
        let place = names(path);
        self.known
            .iter()
            .filter(|known| {
                place
                    .strip_prefix(known.field.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
            .any(|known| match known.known {
                KnownTypeKind::Quantity => scalar::same_quantity(desired, live),
                KnownTypeKind::Core => holds_amount(path) && scalar::same_quantity(desired, live),
                KnownTypeKind::Duration => scalar::same_duration(desired, live),
            })
    }
}

/// Whether an amount is at this place, as far as names tell: of a resource by its name (`limits`), or alone.
fn holds_amount(path: &Path<'_>) -> bool {
    let lists = [
        "allocatable",
        "capacity",
        "default",
        "defaultRequest",
        "hard",
        "limits",
        "max",
        "min",
        "overhead",
        "requests",
    ];
    let around = path.parent().and_then(Path::name);
    matches!(path.name(), Some("divisor" | "sizeLimit"))
        || around.is_some_and(|around| lists.contains(&around))
}

/// The field names of a path, joined by dots, without list positions.
fn names(path: &Path<'_>) -> String {
    let mut steps: Vec<&str> = std::iter::successors(Some(path), |path| path.parent())
        .filter_map(Path::name)
        .collect();
    steps.reverse();
    steps.join(".")
}

/// A walk over the three documents.
pub(crate) struct Merge<'a, 'r, 'k> {
    arena: &'a Bump,
    recorder: Option<&'r mut Recorder<'k>>,
    /// How many differences were found so far.
    changes: usize,
}

impl<'a, 'r, 'k> Merge<'a, 'r, 'k> {
    pub(crate) fn new(arena: &'a Bump, recorder: Option<&'r mut Recorder<'k>>) -> Self {
        Self {
            arena,
            recorder,
            changes: 0,
        }
    }

    /// The live document after an apply of `desired` on top of `base`; none if it stays as it is.
    pub(crate) fn document(
        mut self,
        base: Option<&Value>,
        desired: &Value,
        live: &Value,
        node: Node<'_>,
    ) -> Option<Value> {
        self.whole(base, desired, live, node, None)
    }

    /// The live document when it will be `predicted`, none if it stays as it is: what is not in that will be gone, `why` says why.
    pub(crate) fn prediction(
        mut self,
        predicted: &Value,
        live: &Value,
        node: Node<'_>,
        why: &'static str,
    ) -> Option<Value> {
        self.whole(None, predicted, live, node, Some(why))
    }

    fn whole(
        &mut self,
        base: Option<&Value>,
        desired: &Value,
        live: &Value,
        node: Node<'_>,
        gone: Option<&'static str>,
    ) -> Option<Value> {
        let path = Path::root();
        let root = At {
            path: &path,
            node,
            name: "",
            parent: "",
            above: "",
            beside: Beside::default(),
            gone,
        };
        self.value(base, desired, live, root)
    }

    fn record(&mut self, at: &At<'_>, desired: Option<&Value>, live: Option<&Value>, why: &str) {
        self.changes += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.differences.push(Difference {
                path: at.path.to_string(),
                desired: desired.cloned(),
                live: live.cloned(),
                why: why.to_owned(),
                owners: if live.is_some() {
                    managed::managers_of(recorder.managers, at.path)
                } else {
                    Vec::new()
                },
            });
        }
    }

    fn same(&self, at: &At<'_>, desired: &Value, live: &Value) -> bool {
        scalar::same(at.node.kind(), desired, live)
            || self
                .recorder
                .as_ref()
                .is_some_and(|recorder| recorder.known_same(at.path, desired, live))
    }

    /// What a live value becomes; none if it stays as it is. So nothing is copied where nothing changes.
    fn value(&mut self, base: Option<&Value>, desired: &Value, live: &Value, at: At<'_>) -> Option<Value> {
        match (desired, live) {
            (Value::Object(desired), Value::Object(live)) => self
                .object(base.and_then(Value::as_object), desired, live, &at)
                .map(Value::Object),
            (Value::Array(wanted), Value::Array(present)) => {
                if at.native() && wanted.is_empty() && self.leaves_to_server(base, desired, &at) {
                    return None;
                }
                self.list(base.and_then(Value::as_array), wanted, present, &at)
                    .map(Value::Array)
            }
            _ if self.same(&at, desired, live) => None,
            // What the server drops it replaces by the default.
            _ if at.drops(desired, false) && at.native() && at.is_default(live, false) => None,
            _ if at.native()
                && at.gone != Some(NOT_IN_WHOLE)
                && self.leaves_to_server(base, desired, &at) =>
            {
                None
            }
            _ => {
                let desired = prune(desired, &at);
                self.record(&at, Some(&desired), Some(live), CHANGED);
                Some(desired)
            }
        }
    }

    /// Whether Git, now as before, leaves the field to the API server.
    fn leaves_to_server(&self, base: Option<&Value>, desired: &Value, at: &At<'_>) -> bool {
        facts::leaves_to_server(at.name, desired)
            && base.is_none_or(|base| facts::leaves_to_server(at.name, base))
    }

    fn object(&mut self, base: Option<&Map>, desired: &Map, live: &Map, at: &At<'_>) -> Option<Map> {
        let at = &At {
            gone: at.gone.or_else(|| at.node.is_atomic().then_some(NOT_IN_WHOLE)),
            ..*at
        };
        let before = self.changes;
        // Live fields that do not stay as they are, in order, with what they become; and new ones.
        let (mut edits, mut added) = (Vec::new(), Vec::new());
        let beside = Beside {
            desired: Some(desired),
            live: Some(live),
            base,
        };
        for (name, present) in live {
            let path = at.path.field(name);
            let here = at.field(&path, name).beside(beside);
            let applied = base
                .and_then(|base| {
                    base.get(name)
                        .or_else(|| applied_otherwise(base, desired, present, &here))
                })
                .filter(|value| !value.is_null());
            match desired.get(name) {
                Some(wanted) if !wanted.is_null() => {
                    if let Some(changed) = self.value(applied, wanted, present, here) {
                        edits.push((name, Some(changed)));
                    }
                }
                stated => {
                    let nulled = stated.is_some() && !here.native();
                    match self.unstated(applied, nulled, present, at, &here) {
                        Unstated::Stays => {}
                        Unstated::Becomes(rest) => edits.push((name, Some(rest))),
                        Unstated::Goes => edits.push((name, None)),
                    }
                }
            }
        }
        for (name, wanted) in desired {
            if live.contains_key(name) {
                continue;
            }
            let path = at.path.field(name);
            let here = at.field(&path, name);
            let wanted = prune(wanted, &here);
            if here.drops(&wanted, at.is_map()) {
                continue;
            }
            self.record(&here, Some(&wanted), None, ADDED);
            added.push((name.clone(), wanted));
        }
        if edits.is_empty() && added.is_empty() {
            return None;
        }
        let mut edits = edits.into_iter().peekable();
        let mut result = Map::new();
        for (name, present) in live {
            let value = match edits.next_if(|(edited, _)| *edited == name) {
                Some((_, edited)) => edited,
                None => Some(present.clone()),
            };
            if let Some(value) = value {
                result.insert(name.clone(), value);
            }
        }
        result.extend(added);
        if self.changes > before && at.node.retains_keys() {
            self.retain_stated(desired, &mut result, at);
        }
        Some(result)
    }

    /// What becomes of a live field that Git does not state.
    fn unstated(
        &mut self,
        applied: Option<&Value>,
        nulled: bool,
        present: &Value,
        around: &At<'_>,
        at: &At<'_>,
    ) -> Unstated {
        let in_map = around.is_map();
        if !(nulled || applied.is_some() || around.gone.is_some()) || at.is_default(present, in_map) {
            return Unstated::Stays;
        }
        if let (Some(applied), false, false) = (applied, nulled, around.gone.is_some()) {
            if at.native() && facts::leaves_to_server(at.name, applied) {
                return Unstated::Stays;
            }
            match (applied, present) {
                // An empty object stated nothing that could be removed, unless it means something by being there.
                (Value::Object(fields), Value::Object(entries))
                    if fields.is_empty() && (at.is_map() || !entries.is_empty()) =>
                {
                    return Unstated::Stays;
                }
                // Of a map only our entries go.
                (Value::Object(fields), Value::Object(entries)) if at.is_map() => {
                    return match self.object(Some(fields), &Map::new(), entries, at) {
                        None => Unstated::Stays,
                        Some(rest) if rest.is_empty() => Unstated::Goes,
                        Some(rest) => Unstated::Becomes(Value::Object(rest)),
                    };
                }
                _ => {}
            }
        }
        let why = match (nulled, applied) {
            (true, _) => NULLED,
            (false, Some(_)) => REMOVED,
            (false, None) => around.gone.unwrap_or(NOT_IN_WHOLE),
        };
        self.record(at, None, Some(present), why);
        Unstated::Goes
    }

    /// Of a union only the stated members stay once something in it changes.
    fn retain_stated(&mut self, desired: &Map, result: &mut Map, at: &At<'_>) {
        let unstated: Vec<String> = result
            .keys()
            .filter(|name| desired.get(*name).is_none_or(Value::is_null))
            .cloned()
            .collect();
        for name in unstated {
            let path = at.path.field(&name);
            let here = at.field(&path, &name);
            if let Some(present) = result.remove(&name) {
                self.record(&here, None, Some(&present), OTHER_MEMBER);
            }
        }
    }

    fn list(
        &mut self,
        base: Option<&Vec<Value>>,
        desired: &[Value],
        live: &[Value],
        at: &At<'_>,
    ) -> Option<Vec<Value>> {
        let arena = self.arena;
        match at.node.list_rule(arena) {
            ListRule::Set if all_scalars(desired) && all_scalars(live) => self.set(base, desired, live, at),
            ListRule::Keyed(keys) => {
                let item = at.node.item();
                match (
                    Index::of(arena, desired, keys, item),
                    Index::of(arena, live, keys, item),
                ) {
                    (Some(wanted), Some(present)) => {
                        self.keyed(base, (desired, &wanted), (live, &present), keys, at)
                    }
                    // Without unique keys the items cannot be told apart.
                    _ => self.sequence(desired, live, at),
                }
            }
            _ => self.sequence(desired, live, at),
        }
    }

    /// A list as one value: item by item if there are as many, so that a difference has a place.
    fn sequence(&mut self, desired: &[Value], live: &[Value], at: &At<'_>) -> Option<Vec<Value>> {
        let item_by_item = desired.len() == live.len() && !(all_scalars(desired) && all_scalars(live));
        if item_by_item {
            let mut edits = Vec::new();
            for (position, (wanted, present)) in desired.iter().zip(live).enumerate() {
                let path = at.path.index(position);
                if let Some(changed) = self.value(None, wanted, present, at.item(&path, at.inside())) {
                    edits.push((position, changed));
                }
            }
            if edits.is_empty() {
                return None;
            }
            let mut items = live.to_vec();
            for (position, changed) in edits {
                items[position] = changed;
            }
            return Some(items);
        }
        let same = desired.len() == live.len()
            && desired
                .iter()
                .zip(live)
                .all(|(wanted, present)| self.same(&at.item(at.path, at.inside()), wanted, present));
        if same {
            return None;
        }
        let wanted = prune_items(desired, at);
        self.record(
            at,
            Some(&Value::Array(wanted.clone())),
            Some(&Value::Array(live.to_vec())),
            CHANGED,
        );
        Some(wanted)
    }

    /// A set of scalars; order does not count.
    fn set(
        &mut self,
        base: Option<&Vec<Value>>,
        desired: &[Value],
        live: &[Value],
        at: &At<'_>,
    ) -> Option<Vec<Value>> {
        let before = self.changes;
        let mut result = BumpVec::with_capacity_in(live.len(), self.arena);
        for (position, member) in live.iter().enumerate() {
            let applied = base.is_some_and(|base| base.contains(member));
            if desired.contains(member) || !(applied || at.gone.is_some()) {
                result.push(member);
                continue;
            }
            let path = at.path.member(member, position);
            self.record(
                &at.item(&path, at.inside()),
                None,
                Some(member),
                if applied {
                    REMOVED
                } else {
                    at.gone.unwrap_or(NOT_IN_WHOLE)
                },
            );
        }
        for member in desired {
            if !result.contains(&member) {
                let path = at.path.member(member, result.len());
                self.record(&at.item(&path, at.inside()), Some(member), None, ADDED);
                result.push(member);
            }
        }
        (self.changes > before).then(|| result.into_iter().cloned().collect())
    }

    /// A list whose items are matched by key. Items of others keep their places; ours take the order of Git.
    fn keyed(
        &mut self,
        base: Option<&Vec<Value>>,
        (desired, wanted): (&[Value], &Index<'_>),
        (live, present): (&[Value], &Index<'_>),
        keys: &[&str],
        at: &At<'_>,
    ) -> Option<Vec<Value>> {
        let arena = self.arena;
        let before = self.changes;
        let item = at.node.item();
        let applied = base.and_then(|base| Index::of(arena, base, keys, item).map(|index| (base, index)));
        let base_item = |key: &str, near: usize| {
            applied
                .as_ref()
                .and_then(|(base, index)| index.position(key, near).map(|position| &base[position]))
        };

        // One entry a resulting item: a position in `desired`, or a live item of somebody else.
        enum Entry {
            Ours(usize),
            Theirs(usize),
        }
        let mut entries = BumpVec::with_capacity_in(live.len() + desired.len(), arena);
        let mut ours = BumpVec::with_capacity_in(desired.len(), arena);
        for (position, key) in present.keys.iter().enumerate() {
            if let Some(position) = wanted.position(key, position) {
                ours.push(position);
                entries.push(Entry::Ours(position));
                continue;
            }
            let why = if at.gone.is_some() {
                at.gone
            } else if base_item(key, position).is_some() {
                Some(REMOVED)
            } else if takes_name(&live[position], keys, desired, wanted, present) {
                Some(SAME_NAME)
            } else {
                None
            };
            match why {
                None => entries.push(Entry::Theirs(position)),
                Some(why) => {
                    let path = at.path.item(keys, &live[position], position);
                    self.record(&at.item(&path, at.gone), None, Some(&live[position]), why);
                }
            }
        }

        if !ours.is_sorted() {
            let shown =
                |order: &[usize]| Value::Array(order.iter().map(|at| label(&desired[*at], keys)).collect());
            let now = shown(&ours);
            ours.sort_unstable();
            let then = shown(&ours);
            self.record(at, Some(&then), Some(&now), ORDER);
            let mut next = ours.iter();
            for entry in &mut entries {
                if let Entry::Ours(position) = entry {
                    *position = next.next().copied().unwrap_or(*position);
                }
            }
        }

        // A new item stands behind the one that stands before it in Git.
        for position in 0..desired.len() {
            if present.position(wanted.keys[position], position).is_some() {
                continue;
            }
            let place = |wanted: usize, entries: &BumpVec<'_, Entry>| {
                entries
                    .iter()
                    .position(|entry| matches!(entry, Entry::Ours(at) if *at == wanted))
            };
            let behind = position
                .checked_sub(1)
                .and_then(|before| place(before, &entries))
                .map(|place| place + 1);
            let before = || (position + 1..desired.len()).find_map(|after| place(after, &entries));
            let end = entries.len();
            let place = behind.or_else(before).unwrap_or(end);
            entries.insert(place, Entry::Ours(position));
        }

        let mut edits = Vec::new();
        for (place, entry) in entries.iter().enumerate() {
            let Entry::Ours(position) = entry else { continue };
            let (key, wanted) = (wanted.keys[*position], &desired[*position]);
            let path = at.path.item(keys, wanted, *position);
            let here = at.item(&path, at.gone);
            let changed = match present.position(key, place) {
                Some(found) => self.value(base_item(key, *position), wanted, &live[found], here),
                None => {
                    let wanted = prune(wanted, &here);
                    self.record(&here, Some(&wanted), None, ADDED);
                    Some(wanted)
                }
            };
            edits.extend(changed.map(|changed| (place, changed)));
        }
        if self.changes == before {
            return None;
        }
        let mut edits = edits.into_iter().peekable();
        let mut items = Vec::with_capacity(entries.len());
        for (place, entry) in entries.iter().enumerate() {
            items.push(match (edits.next_if(|(edited, _)| *edited == place), entry) {
                (Some((_, changed)), _) => changed,
                (None, Entry::Theirs(position)) => live[*position].clone(),
                (None, Entry::Ours(position)) => {
                    let found = present.position(wanted.keys[*position], place);
                    found.map_or(Value::Null, |found| live[found].clone())
                }
            });
        }
        Some(items)
    }
}

/// What was applied under the other name of a field that has two. The API server writes the account of a Pod under both, and takes it from
/// the old one if the new one goes alone.
fn applied_otherwise<'v>(base: &'v Map, desired: &Map, present: &Value, at: &At<'_>) -> Option<&'v Value> {
    const NAME: &str = "serviceAccountName";
    if at.name != "serviceAccount" || !at.native() || desired.contains_key(NAME) {
        return None;
    }
    base.get(NAME).filter(|applied| *applied == present)
}

/// What becomes of a live field that Git does not state.
enum Unstated {
    Stays,
    Becomes(Value),
    Goes,
}

/// How an item is called in a report on the order.
fn label(item: &Value, keys: &[&str]) -> Value {
    match keys {
        [key] => item.get(*key).cloned().unwrap_or(Value::Null),
        _ => {
            let fields = keys
                .iter()
                .filter_map(|key| Some(((*key).to_owned(), item.get(*key)?.clone())));
            Value::Object(fields.collect())
        }
    }
}

fn all_scalars(items: &[Value]) -> bool {
    items.iter().all(|item| !item.is_object() && !item.is_array())
}

/// `value` as the API server would keep it if it is new: without nulls, and without zero values that it drops.
fn prune(value: &Value, at: &At<'_>) -> Value {
    match value {
        Value::Object(fields) => {
            let mut kept = Map::new();
            for (name, field) in fields {
                let here = at.field(at.path, name);
                let field = prune(field, &here);
                if !here.drops(&field, at.is_map()) {
                    kept.insert(name.clone(), field);
                }
            }
            Value::Object(kept)
        }
        Value::Array(items) => Value::Array(prune_items(items, at)),
        other => other.clone(),
    }
}

fn prune_items(items: &[Value], at: &At<'_>) -> Vec<Value> {
    items
        .iter()
        .map(|item| prune(item, &at.item(at.path, at.inside())))
        .collect()
}
