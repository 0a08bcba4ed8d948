//! `metadata.managedFields`: what an update and an apply make of it.

use argosy_object::meta;
use serde_json::{Value, json};

use super::FieldSet;
use super::typed::{Node, compare, merge, stated, without};
use crate::refusal::{Cause, Refusal};

/// Who writes, and how.
#[derive(Clone, Debug)]
pub(crate) struct Author<'a> {
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) subresource: &'a str,
    /// The time in RFC 3339.
    pub(crate) now: &'a str,
    /// The kind is decoded into a Go struct: a map that becomes empty is null in it, and still there.
    pub(crate) typed: bool,
}

/// One entry of `managedFields`.
#[derive(Clone, Debug, PartialEq)]
struct Manager {
    name: String,
    applies: bool,
    api_version: String,
    subresource: String,
    time: String,
    fields: FieldSet,
}

/// All entries of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Managers(Vec<Manager>);

/// Fields that are nobody's: the server's own.
const OWNED_BY_NOBODY: [&[&str]; 10] = [
    &["f:apiVersion"],
    &["f:kind"],
    &["f:metadata", "f:name"],
    &["f:metadata", "f:namespace"],
    &["f:metadata", "f:creationTimestamp"],
    &["f:metadata", "f:selfLink"],
    &["f:metadata", "f:uid"],
    &["f:metadata", "f:generation"],
    &["f:metadata", "f:managedFields"],
    &["f:metadata", "f:resourceVersion"],
];

fn strip(set: &mut FieldSet, reset: &[&str]) {
    for path in OWNED_BY_NOBODY {
        set.remove(path);
    }
    set.remove_member("f:metadata");
    for field in reset {
        set.remove(&[field]);
    }
}

impl Managers {
    pub(crate) fn of(object: &Value) -> Self {
        let entries = meta::array_field(object, &["metadata", "managedFields"]);
        Self(entries.iter().map(Manager::from_json).collect())
    }

    /// Sorted as the server keeps them: those who apply first, then by time and name.
    fn sorted(mut self) -> Self {
        self.0.retain(|manager| !manager.fields.is_empty());
        self.0.sort_by(|a, b| {
            let by_kind = b.applies.cmp(&a.applies);
            by_kind
                .then_with(|| a.time.cmp(&b.time))
                .then_with(|| a.name.cmp(&b.name))
                .then_with(|| a.api_version.cmp(&b.api_version))
                .then_with(|| a.subresource.cmp(&b.subresource))
        });
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn write_to(self, object: &mut Value) {
        let managers = self.sorted().0;
        if managers.is_empty() {
            meta::remove_field(object, &["metadata", "managedFields"]);
        } else {
            let entries: Vec<Value> = managers.iter().map(Manager::to_json).collect();
            meta::set_field(object, &["metadata", "managedFields"], entries);
        }
    }

    /// The same entries with the same fields, whenever they were written.
    pub(crate) fn same_but_times(&self, other: &Self) -> bool {
        let timeless = |managers: &Self| {
            let mut managers = managers.0.clone();
            for manager in &mut managers {
                manager.time.clear();
            }
            Self(managers).sorted()
        };
        timeless(self) == timeless(other)
    }
}

impl Manager {
    fn from_json(entry: &Value) -> Self {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        Self {
            name: text("manager"),
            applies: entry["operation"] == "Apply",
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: text("time"),
            fields: FieldSet::from_json(&entry["fieldsV1"]),
        }
    }

    fn to_json(&self) -> Value {
        let mut entry = json!({
            "manager": self.name,
            "operation": if self.applies { "Apply" } else { "Update" },
            "apiVersion": self.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.to_json(),
        });
        if !self.time.is_empty() {
            entry["time"] = self.time.as_str().into();
        }
        if !self.subresource.is_empty() {
            entry["subresource"] = self.subresource.as_str().into();
        }
        entry
    }

    fn is(&self, author: &Author<'_>, applies: bool) -> bool {
        // Who applies is one manager, whichever version is applied.
        self.name == author.manager
            && self.applies == applies
            && self.subresource == author.subresource
            && (applies || self.api_version == author.api_version)
    }
}

/// The managers after `author` changed `live` to `new`. `reset` are top-level fields (`f:status`) that this write cannot set.
pub(crate) fn update(
    live: &Value,
    new: &Value,
    managers: Managers,
    author: &Author<'_>,
    reset: &[&str],
    node: Node<'_>,
) -> Managers {
    let changes = compare(&bare(live), &bare(new), node);
    let mut taken = changes.added.union(&changes.modified);
    strip(&mut taken, reset);
    let lost = changes.added.union(&changes.modified).union(&changes.removed);
    let mut managers = managers;
    for manager in &mut managers.0 {
        manager.fields = manager.fields.difference(&lost);
    }
    if !taken.is_empty() {
        match managers.0.iter_mut().find(|manager| manager.is(author, false)) {
            Some(own) => {
                own.fields = own.fields.union(&taken);
                own.time = author.now.to_owned();
            }
            None => managers.0.push(Manager {
                name: author.manager.to_owned(),
                applies: false,
                api_version: author.api_version.to_owned(),
                subresource: author.subresource.to_owned(),
                time: author.now.to_owned(),
                fields: taken,
            }),
        }
    }
    managers
}

/// The managers of an object that nobody owned until now: whoever wrote it before is one of them.
pub(crate) fn before_first_apply(
    live: &Value,
    empty: &Value,
    author: &Author<'_>,
    node: Node<'_>,
) -> Managers {
    let author = Author {
        manager: "before-first-apply",
        subresource: "",
        ..author.clone()
    };
    update(empty, live, Managers::default(), &author, &[], node)
}

/// Server-side apply of `config` to `live`: the new object and its managers.
pub(crate) fn apply(
    live: &Value,
    config: &Value,
    managers: Managers,
    author: &Author<'_>,
    reset: &[&str],
    force: bool,
    node: Node<'_>,
) -> Result<(Value, Managers), Refusal> {
    let (live, config) = (bare(live), bare(config));
    let merged = merge(&live, &config, node);
    // Its own name is the manager's too, until everything has been pruned: so what holds it stays.
    let owned = stated(&config, node);

    let before = managers.clone();
    let mut managers = managers;
    let own = managers.0.iter().position(|manager| manager.is(author, true));
    let last = own.map(|at| managers.0[at].fields.clone()).unwrap_or_default();
    let entry = Manager {
        name: author.manager.to_owned(),
        applies: true,
        api_version: author.api_version.to_owned(),
        subresource: author.subresource.to_owned(),
        time: author.now.to_owned(),
        fields: owned,
    };
    match own {
        Some(at) => managers.0[at] = entry,
        None => managers.0.push(entry),
    }

    let merged = prune(&merged, &last, &managers, node, author.typed);
    for manager in managers.0.iter_mut().filter(|manager| manager.is(author, true)) {
        strip(&mut manager.fields, reset);
    }
    let changes = compare(&live, &merged, node);
    let touched = changes.added.union(&changes.modified);
    let others = |manager: &&Manager| !manager.is(author, true);
    let conflicts: Vec<(&Manager, FieldSet)> = managers
        .0
        .iter()
        .filter(others)
        .map(|manager| (manager, manager.fields.intersection(&touched)))
        .filter(|(_, set)| !set.is_empty())
        .collect();
    if !conflicts.is_empty() && !force {
        return Err(refuse(&conflicts));
    }
    let lost = touched.union(&changes.removed);
    for manager in managers.0.iter_mut().filter(|manager| !manager.is(author, true)) {
        manager.fields = manager.fields.difference(&lost);
    }
    // An apply that changes nothing leaves all as it was; one that changes only what is owned has no time.
    if changes.is_empty() {
        if before.same_but_times(&managers) {
            return Ok((merged, before));
        }
        for manager in managers.0.iter_mut().filter(|manager| manager.is(author, true)) {
            manager.time.clear();
        }
    }
    Ok((merged, managers))
}

/// Takes out what the manager applied last time and does not now, unless somebody else owns it.
fn prune(merged: &Value, last: &FieldSet, managers: &Managers, node: Node<'_>, typed: bool) -> Value {
    if last.is_empty() {
        return merged.clone();
    }
    let owned = managers
        .0
        .iter()
        .fold(FieldSet::default(), |all, manager| all.union(&manager.fields));
    let (last, owned) = (last.with_named_parents(node), owned.with_named_parents(node));
    let there = stated(merged, node).with_named_parents(node);
    // What goes: it was ours, it is there, and nobody (ourselves included) owns it now. An item of a list goes with all in it, whoever
    // owns that.
    let gone = there.intersection(&last).difference(&owned);
    without(merged, &gone, node, typed).unwrap_or_else(|| json!({}))
}

fn refuse(conflicts: &[(&Manager, FieldSet)]) -> Refusal {
    let mut sorted: Vec<_> = conflicts.iter().collect();
    sorted.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    let mut causes = Vec::new();
    let mut texts = Vec::new();
    for (manager, set) in sorted {
        let subresource = if manager.subresource.is_empty() {
            String::new()
        } else {
            format!(" with subresource {:?}", manager.subresource)
        };
        // Who applies is one manager, whatever the version.
        let using = if manager.applies {
            String::new()
        } else {
            format!(" using {}", manager.api_version)
        };
        let with = format!("with {:?}{subresource}{using}", manager.name);
        let paths = set.paths();
        causes.extend(paths.iter().map(|path| Cause {
            reason: "FieldManagerConflict",
            field: path.clone(),
            message: format!("conflict {with}"),
        }));
        texts.push(format!("conflicts {with}:\n- {}", paths.join("\n- ")));
    }
    let message = match causes.as_slice() {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        many => format!("Apply failed with {} conflicts: {}", many.len(), texts.join("\n")),
    };
    Refusal::apply_conflict(&causes, message)
}

/// Without what is nobody's field: `managedFields`, and what says the kind, which stored objects do not carry.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    for path in [&["metadata", "managedFields"][..], &["apiVersion"], &["kind"]] {
        meta::remove_field(&mut object, path);
    }
    object
}
