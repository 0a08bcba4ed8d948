//! Places in a document as lists of steps, and what is done with them.

use argosy_object::schema::Schemas;
use argosy_object::{Value, meta};
use bumpalo::Bump;

use super::IgnoreRules;
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
    let parent = parents.iter().try_fold(document, |at, step| match (at, step) {
        (Value::Object(fields), Step::Field(name)) => fields.get_mut(name),
        (Value::Array(items), Step::Index(index)) => items.get_mut(*index),
        _ => None,
    })?;
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
/// places that the rules name, and without those places that are not live. `status` is not touched.
///
/// Items of lists are found in the other document by their keys (by `name` where no schema tells), so that a new item in Git is kept and
/// only the named field of an old one is taken from the cluster. Where items cannot be told apart the position counts, if the lists are
/// equally long; otherwise the place is left as Git has it.
#[must_use]
pub fn keep_live(desired: &Value, live: &Value, rules: &IgnoreRules, schemas: &Schemas) -> Value {
    let mut result = desired.clone();
    let applicable = rules.for_object(live);
    let gvk = meta::gvk(desired);
    let semantics = Semantics {
        lists: Lists::Structured,
        ..Semantics::of(&gvk.group, true)
    };
    let node = Node::root(schema_of(schemas, &gvk), schemas, &gvk, semantics);
    let is_status = |path: &Steps| path.first() == Some(&Step::Field("status".to_owned()));

    let mut gone = Vec::new();
    for path in applicable
        .paths(desired)
        .into_iter()
        .filter(|path| !is_status(path))
    {
        match translate(desired, live, &path, node) {
            Some(there) if find(live, &there).is_some() => {}
            _ => gone.push(path),
        }
    }
    for path in applicable.paths(live).into_iter().filter(|path| !is_status(path)) {
        let Some(value) = find(live, &path) else { continue };
        if let Some(here) = translate(live, desired, &path, node) {
            put(&mut result, &here, value.clone());
        }
    }
    remove(&mut result, gone);
    result
}

fn find<'v>(document: &'v Value, path: &[Step]) -> Option<&'v Value> {
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

/// The same place in the other document; the last field need not exist there, but the items of lists on the way must.
fn translate(from: &Value, to: &Value, path: &[Step], node: Node<'_>) -> Option<Steps> {
    let arena = Bump::new();
    let (mut from, mut to, mut node) = (Some(from), Some(to), node);
    let mut steps = Vec::with_capacity(path.len());
    for step in path {
        match step {
            Step::Field(name) => {
                steps.push(step.clone());
                (from, to, node) = (
                    from.and_then(|at| at.get(name)),
                    to.and_then(|at| at.get(name)),
                    node.field(name),
                );
            }
            Step::Index(index) => {
                let (ours, theirs) = (from?.as_array()?, to?.as_array()?);
                let other = position(ours, theirs, *index, node.list_rule(&arena))?;
                steps.push(Step::Index(other));
                (from, to, node) = (ours.get(*index), theirs.get(other), node.item());
            }
        }
    }
    Some(steps)
}

fn position(ours: &[Value], theirs: &[Value], index: usize, rule: ListRule<'_>) -> Option<usize> {
    let item = ours.get(index)?;
    let keys: &[&str] = match rule {
        ListRule::Keyed(keys) => keys,
        ListRule::Set => return theirs.iter().position(|other| other == item),
        ListRule::Sequence if ours.iter().chain(theirs).all(|item| item.get("name").is_some()) => &["name"],
        ListRule::Sequence => return (ours.len() == theirs.len()).then_some(index),
    };
    theirs
        .iter()
        .position(|other| keys.iter().all(|key| other.get(*key) == item.get(*key)))
}
