//! What others put beside what Git states, for who wants none of it (`Strict=true`).
//!
//! `managedFields` tells who set what. What is not in Git, set by somebody else and not what would be there anyway goes; it does not where
//! we or Kubernetes itself own something in it, down to the fields that are somebody's alone. Finalizers and owners of an object are never
//! taken: they say what happens at its end, not what it is.

use argosy_object::{Path, Value};

use super::Merge;
use super::place::{At, Beside};
use crate::ignore::path::{self, Step, Steps};
use crate::managed::{Owned, locate};
use crate::node::Node;

const BY_OTHERS: &str = "not in Git, and set by somebody else";

/// Who set what at a place.
#[derive(Clone, Copy)]
pub(crate) struct Owners<'f> {
    /// Somebody else.
    pub(crate) others: Owned<'f>,
    /// We, Kubernetes itself, or somebody whose fields are left alone; if anything.
    pub(crate) kept: Option<Owned<'f>>,
}

impl Merge<'_, '_, '_> {
    /// The live document without what only others have set, `ignored` places aside; none if there is nothing of the kind.
    pub(crate) fn without_unstated(
        mut self,
        desired: &Value,
        live: &Value,
        owners: Owners<'_>,
        node: Node<'_>,
        ignored: &[Steps],
    ) -> Option<Value> {
        let path = Path::root();
        let root = At {
            path: &path,
            node,
            name: "",
            parent: "",
            above: "",
            beside: Beside::default(),
            gone: None,
        };
        let mut found = Vec::new();
        self.look(owners, Some(desired), live, &root, &mut Steps::new(), &mut found);
        let mut gone = Vec::new();
        for path in found {
            spare(live, path, ignored, &mut gone);
        }
        if gone.is_empty() {
            return None;
        }
        let mut rest = live.clone();
        path::remove(&mut rest, gone);
        Some(rest)
    }

    fn look(
        &mut self,
        owners: Owners<'_>,
        desired: Option<&Value>,
        live: &Value,
        at: &At<'_>,
        steps: &mut Steps,
        gone: &mut Vec<Steps>,
    ) {
        for (form, others) in owners.others.steps() {
            let below = Owners {
                others,
                kept: owners.kept.and_then(|kept| kept.below(form)),
            };
            match (form.strip_prefix("f:"), live) {
                (Some(name), Value::Object(fields)) => {
                    let Some(present) = fields.get(name).filter(|_| may_go(at, steps, name)) else {
                        continue;
                    };
                    let path = at.path.field(name);
                    let beside = Beside {
                        desired: desired.and_then(Value::as_object),
                        live: Some(fields),
                        base: None,
                    };
                    let here = at.field(&path, name).beside(beside);
                    let stated = desired
                        .and_then(|desired| desired.get(name))
                        .filter(|stated| !stated.is_null());
                    steps.push(Step::Field(name.to_owned()));
                    // Labels and annotations are asked one by one, whoever came first.
                    let one_by_one = steps.len() == 1 && name == "metadata"
                        || matches!(name, "labels" | "annotations")
                            && present.is_object()
                            && !others.is_leaf();
                    if one_by_one || stated.is_some() || below.kept.is_some() {
                        self.look(below, stated, present, &here, steps, gone);
                    } else if !here.is_default(present, at.is_map()) {
                        self.record(&here, None, Some(present), BY_OTHERS);
                        gone.push(steps.clone());
                    }
                    steps.pop();
                }
                (None, Value::Array(items)) => {
                    let Some(position) = locate(form, items) else {
                        continue;
                    };
                    let stated_items = desired.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                    let stated = locate(form, stated_items)
                        .filter(|_| !form.starts_with("i:"))
                        .and_then(|position| stated_items.get(position));
                    let (present, keys) = (&items[position], key_names(form));
                    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                    let path = match keys.as_slice() {
                        [] => at.path.member(present, position),
                        keys => at.path.item(keys, present, position),
                    };
                    let here = at.item(&path, None);
                    steps.push(Step::Index(position));
                    if stated.is_some() || below.kept.is_some() {
                        self.look(below, stated, present, &here, steps, gone);
                    } else if !form.starts_with("i:") {
                        self.record(&here, None, Some(present), BY_OTHERS);
                        gone.push(steps.clone());
                    }
                    steps.pop();
                }
                _ => {}
            }
        }
    }
}

/// Puts a place that goes into `gone`, or of an object with ignored places in it all the rest. An item of a list goes as a whole: without it
/// nothing in it has a place.
fn spare(live: &Value, place: Steps, ignored: &[Steps], gone: &mut Vec<Steps>) {
    if ignored.iter().any(|path| place.starts_with(path)) {
        return;
    }
    let within = ignored.iter().any(|path| path.starts_with(&place));
    match path::find(live, &place) {
        Some(Value::Object(fields)) if within && matches!(place.last(), Some(Step::Field(_))) => {
            for name in fields.keys() {
                let mut below = place.clone();
                below.push(Step::Field(name.clone()));
                spare(live, below, ignored, gone);
            }
        }
        _ => gone.push(place),
    }
}

/// Of metadata only labels and annotations say what an object is, and of those the names that Kubernetes keeps for itself are its parts' business
/// (the revision of a Deployment, the record of the last apply, a restart), under whatever manager a distribution writes them.
fn may_go(at: &At<'_>, steps: &Steps, name: &str) -> bool {
    match (steps.len(), at.name) {
        (0, _) => name != "status",
        (1, "metadata") => matches!(name, "labels" | "annotations"),
        (_, "labels" | "annotations") => !is_reserved(name),
        _ => true,
    }
}

/// Whether a label or annotation is in a domain that Kubernetes keeps for itself.
fn is_reserved(name: &str) -> bool {
    let Some((domain, _)) = name.split_once('/') else {
        return false;
    };
    ["kubernetes.io", "k8s.io"].iter().any(|reserved| {
        domain
            .strip_suffix(reserved)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// The names of the key fields in `k:{…}`.
fn key_names(form: &str) -> Vec<String> {
    let keys = form
        .strip_prefix("k:")
        .and_then(|text| serde_json::from_str::<argosy_object::Map>(text).ok());
    keys.map(|keys| keys.into_iter().map(|(name, _)| name).collect())
        .unwrap_or_default()
}
