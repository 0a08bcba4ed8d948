//! Places in a document as lists of steps, and what is done with them.

use std::collections::HashSet;

use argosy_object::schema::Schemas;
use argosy_object::{Value, meta};
use bumpalo::Bump;

use super::{Finding, IgnoreRules, each_once};
use crate::managed::{self, Owned};
use crate::node::{ListRule, Lists, Node, Semantics, schema_of};

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// A position in a list.
    Index(usize),
    /// A field of an object.
    Field(String),
}

/// Steps from the top.
pub(crate) type Steps = Vec<Step>;

/// Removes all `paths`, which were found in this document: the last place first, so that none moves before its turn.
pub(crate) fn remove(document: &mut Value, mut paths: Vec<Steps>) {
    paths.sort();
    paths.dedup();
    for path in paths.iter().rev() {
        take(document, path);
    }
}

fn take(document: &mut Value, path: &[Step]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(document, step_into)?;
    match (parent, last) {
        (Value::Object(fields), Step::Field(name)) => fields.remove(name),
        (Value::Array(items), Step::Index(index)) if *index < items.len() => Some(items.remove(*index)),
        _ => None,
    }
}

/// The steps of a JSON pointer, if it leads somewhere.
pub(crate) fn from_pointer(document: &Value, pointer: &str) -> Option<Steps> {
    let mut steps = Vec::new();
    let mut at = document;
    for token in pointer.strip_prefix('/')?.split('/') {
        let token = token.replace("~1", "/").replace("~0", "~");
        let step = match at {
            Value::Array(_) => Step::Index(token.parse().ok()?),
            _ => Step::Field(token),
        };
        at = get(at, &step)?;
        steps.push(step);
    }
    Some(steps)
}

fn get<'v>(value: &'v Value, step: &Step) -> Option<&'v Value> {
    match step {
        Step::Field(name) => value.get(name),
        Step::Index(index) => value.get(index),
    }
}

/// What to apply when differences are not only ignored but left alone (`RespectIgnoreDifferences`): `desired` with the live values in all
/// places that the rules name or that belong to a manager whom they name, and without those places that are not live. `status` is not
/// touched.
///
/// Items of lists are found in the other document by their keys, or where no schema tells by what tells them apart (see [`same_item`]), so
/// that a new item in Git is kept and only the named field of an old one is taken from the cluster. Where items cannot be told apart the
/// position counts, if the lists are equally long; otherwise the place is left as Git has it, and a finding says so.
#[must_use]
pub fn keep_live(
    desired: &Value,
    live: &Value,
    rules: &IgnoreRules,
    schemas: &Schemas,
) -> (Value, Vec<Finding>) {
    let mut result = desired.clone();
    let mut findings = Vec::new();
    let applicable = rules.for_object(live);
    let gvk = meta::gvk(desired);
    let semantics = Semantics {
        lists: Lists::Structured,
        ..Semantics::of(&gvk.group, true)
    };
    let node = Node::root(schema_of(schemas, &gvk), schemas, &gvk, semantics);
    let is_status = |path: &Steps| path.first() == Some(&Step::Field("status".to_owned()));
    let named = |document| -> Vec<Steps> {
        let paths = applicable.paths(document).into_iter();
        paths.filter(|path| !is_status(path)).collect()
    };
    let (in_desired, in_live) = (named(desired), named(live));
    let mut of_managers = Vec::new();
    for manager in applicable.managers() {
        let fields = managed::fields_of(live, manager);
        values_of(fields.root(), live, &mut Steps::new(), &mut of_managers);
    }
    of_managers.retain(|path| !is_status(path));
    // An item is recognised by what nobody said to ignore.
    let stripped = |document: &Value, paths: &[Steps]| {
        let mut rest = document.clone();
        clear(&mut rest, paths);
        rest
    };
    let ours = Side {
        document: desired,
        rest: &stripped(desired, &in_desired),
    };
    let theirs = Side {
        document: live,
        rest: &stripped(live, &in_live),
    };

    let mut gone = Vec::new();
    for path in in_desired {
        match translate(ours, theirs, &path, node) {
            There::At(there) if find(live, &there).is_some() => {}
            // Of a new item nothing is live that could be kept.
            There::WithinNew => {}
            There::At(_) | There::Nowhere => gone.push(path),
            There::Unclear(list) => findings.push(unclear(&list)),
        }
    }
    for path in in_live {
        let Some(value) = find(live, &path) else { continue };
        match translate(theirs, ours, &path, node) {
            There::At(here) => put(&mut result, &here, value.clone()),
            There::Nowhere | There::WithinNew => {}
            There::Unclear(list) => findings.push(unclear(&list)),
        }
    }
    // What a manager owns is kept where Git states it too; the rest is that manager's anyway.
    for path in of_managers {
        if let (Some(value), There::At(here)) = (find(live, &path), translate(theirs, ours, &path, node))
            && find(desired, &here).is_some()
        {
            put(&mut result, &here, value.clone());
        }
    }
    remove(&mut result, gone);
    each_once(&mut findings);
    (result, findings)
}

/// The places in `live` whose values somebody owns, and not only something below them.
fn values_of(owned: Owned<'_>, live: &Value, steps: &mut Steps, found: &mut Vec<Steps>) {
    for (form, below) in owned.steps() {
        let step = match (form.strip_prefix("f:"), live) {
            (Some(name), Value::Object(_)) => Some(Step::Field(name.to_owned())),
            (None, Value::Array(items)) => managed::locate(form, items).map(Step::Index),
            _ => None,
        };
        let Some((step, present)) = step.and_then(|step| Some((step.clone(), get(live, &step)?))) else {
            continue;
        };
        steps.push(step);
        if below.is_leaf() {
            found.push(steps.clone());
        } else {
            values_of(below, present, steps, found);
        }
        steps.pop();
    }
}

fn unclear(list: &[Step]) -> Finding {
    let names = list.iter().map(|step| match step {
        Step::Field(name) => format!(".{name}"),
        Step::Index(index) => format!("[{index}]"),
    });
    Finding::new(
        names.collect::<String>(),
        "nothing tells its items apart, so what is ignored in them is applied as it is in Git",
    )
}

/// A document, and what it is without the places that rules name. Items of lists are null there, so that positions stay.
#[derive(Clone, Copy)]
struct Side<'v> {
    document: &'v Value,
    rest: &'v Value,
}

impl<'v> Side<'v> {
    fn below(self, step: &Step) -> Option<Side<'v>> {
        Some(Side {
            document: get(self.document, step)?,
            rest: get(self.rest, step).unwrap_or(&Value::Null),
        })
    }
}

fn clear(document: &mut Value, paths: &[Steps]) {
    for path in paths {
        let Some((last, parents)) = path.split_last() else {
            continue;
        };
        let parent = parents.iter().try_fold(&mut *document, step_into);
        match (parent, last) {
            (Some(Value::Object(fields)), Step::Field(name)) => drop(fields.remove(name)),
            (Some(Value::Array(items)), Step::Index(index)) => {
                if let Some(item) = items.get_mut(*index) {
                    *item = Value::Null;
                }
            }
            _ => {}
        }
    }
}

fn step_into<'v>(at: &'v mut Value, step: &Step) -> Option<&'v mut Value> {
    match (at, step) {
        (Value::Object(fields), Step::Field(name)) => fields.get_mut(name),
        (Value::Array(items), Step::Index(index)) => items.get_mut(*index),
        _ => None,
    }
}

pub(crate) fn find<'v>(document: &'v Value, path: &[Step]) -> Option<&'v Value> {
    path.iter().try_fold(document, get)
}

/// Sets a field or an existing item; parents that are objects are made.
fn put(document: &mut Value, path: &[Step], value: Value) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let mut at = document;
    for step in parents {
        let next = match (at, step) {
            (Value::Object(fields), Step::Field(name)) => Some(
                fields
                    .entry(name.clone())
                    .or_insert_with(|| Value::Object(argosy_object::Map::new())),
            ),
            (Value::Array(items), Step::Index(index)) => items.get_mut(*index),
            _ => None,
        };
        let Some(next) = next else { return };
        at = next;
    }
    match (at, last) {
        (Value::Object(fields), Step::Field(name)) => {
            fields.insert(name.clone(), value);
        }
        (Value::Array(items), Step::Index(index)) => {
            if let Some(item) = items.get_mut(*index) {
                *item = value;
            }
        }
        _ => {}
    }
}

/// Where a place of one document is in the other.
enum There {
    At(Steps),
    /// It is an item that is not there.
    Nowhere,
    /// It is in an item that is not there.
    WithinNew,
    /// The items of the list at this place cannot be told apart.
    Unclear(Steps),
}

/// The same place in the other document; the last field need not exist there, but the items of lists on the way must.
fn translate(from: Side<'_>, to: Side<'_>, path: &[Step], node: Node<'_>) -> There {
    let arena = Bump::new();
    let mut node = node;
    let (mut here, mut there) = (Some(from), Some(to));
    let mut steps = Vec::with_capacity(path.len());
    for (depth, step) in path.iter().enumerate() {
        match step {
            Step::Field(name) => {
                steps.push(step.clone());
                (here, there, node) = (
                    here.and_then(|side| side.below(step)),
                    there.and_then(|side| side.below(step)),
                    node.field(name),
                );
            }
            Step::Index(index) => {
                let missing = || match path.len() - depth {
                    1 => There::Nowhere,
                    _ => There::WithinNew,
                };
                let (Some(ours), Some(theirs)) = (here, there) else {
                    return missing();
                };
                let (Some(our_items), Some(their_items)) =
                    (ours.document.as_array(), theirs.document.as_array())
                else {
                    return missing();
                };
                let rests = (ours.rest.as_array(), theirs.rest.as_array());
                let (our_rest, their_rest) = match rests {
                    (Some(ours), Some(theirs)) => (ours, theirs),
                    // The whole list is ignored.
                    _ => (our_items, their_items),
                };
                let other = match same_item(
                    (our_items, our_rest),
                    (their_items, their_rest),
                    *index,
                    node.list_rule(&arena),
                ) {
                    Ok(Some(other)) => Step::Index(other),
                    Ok(None) => return missing(),
                    Err(Ambiguous) => return There::Unclear(path[..depth].to_vec()),
                };
                (here, there, node) = (ours.below(step), theirs.below(&other), node.item());
                steps.push(other);
            }
        }
    }
    There::At(steps)
}

/// It cannot be said which item is meant.
struct Ambiguous;

/// Fields by which people tell items of lists apart where no schema names the keys, the most telling first.
const TELLING: [&str; 4] = ["name", "key", "id", "type"];

/// Where the item at `index` of the first list is in the second. Both come as they are and as what nobody ignores of them.
///
/// By the keys that the schema names; without, by the first of some usual fields that every item of both lists has and no two share; or
/// else by being the same in all that is not ignored, if only one item is; or else by position, if the lists are equally long.
fn same_item(
    (ours, our_rest): (&[Value], &[Value]),
    (theirs, their_rest): (&[Value], &[Value]),
    index: usize,
    rule: ListRule<'_>,
) -> Result<Option<usize>, Ambiguous> {
    let Some(item) = ours.get(index) else {
        return Ok(None);
    };
    let by = |keys: &[&str]| {
        theirs
            .iter()
            .position(|other| keys.iter().all(|key| other.get(*key) == item.get(*key)))
    };
    match rule {
        ListRule::Keyed(keys) => return Ok(by(keys)),
        ListRule::Set => return Ok(theirs.iter().position(|other| other == item)),
        ListRule::Sequence => {}
    }
    if let Some(key) = TELLING
        .iter()
        .find(|key| tells_apart(ours, key) && tells_apart(theirs, key))
    {
        return Ok(by(&[key]));
    }
    let rest = our_rest.get(index);
    let equal = |items: &[Value]| {
        let mut places = (0..items.len()).filter(|at| items.get(*at) == rest && !items[*at].is_null());
        (places.next(), places.next().is_some())
    };
    if let ((Some(_), false), (Some(other), false)) = (equal(our_rest), equal(their_rest)) {
        return Ok(Some(other));
    }
    if ours.len() == theirs.len() {
        return Ok(Some(index));
    }
    let strays = |some: &[Value], others: &[Value]| some.iter().any(|item| !others.contains(item));
    if strays(our_rest, their_rest) && strays(their_rest, our_rest) {
        return Err(Ambiguous);
    }
    // All of one list are found in the other: this one is new, or gone.
    Ok(None)
}

/// Whether every item has a scalar in this field, and no two the same.
fn tells_apart(items: &[Value], key: &str) -> bool {
    let mut seen = HashSet::with_capacity(items.len());
    items.iter().all(|item| match item.get(key) {
        None | Some(Value::Null | Value::Object(_) | Value::Array(_)) => false,
        Some(value) => seen.insert(value.to_string()),
    })
}
