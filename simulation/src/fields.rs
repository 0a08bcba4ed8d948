//! Who owns which field: sets of fields, and the walks that make them.
//!
//! The rules are those of Kubernetes' structured merge: granular maps and keyed lists are owned piece by piece, atomic ones as a whole.
//! Fields are named in the form of `fieldsV1`: `f:` a field, `k:` an item by key, `v:` a member by value.

mod managed;
mod typed;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub(crate) use managed::{Author, Managers, apply, before_first_apply, update};
pub(crate) use typed::{Node, undeclared};

/// A set of fields, as a tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FieldSet(BTreeMap<String, Part>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Part {
    /// The field itself is in the set, not only fields below it.
    member: bool,
    below: FieldSet,
}

impl FieldSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The set at a path, made if it is not there.
    fn at(&mut self, path: &[String]) -> &mut Self {
        path.iter().fold(self, |set, step| {
            &mut set.0.entry(step.clone()).or_default().below
        })
    }

    fn insert(&mut self, path: &[String]) {
        if let [above @ .., last] = path {
            self.at(above).0.entry(last.clone()).or_default().member = true;
        }
    }

    fn part(&self, step: &str) -> Option<&Part> {
        self.0.get(step)
    }

    /// Takes a field and all below it out.
    pub(crate) fn remove(&mut self, path: &[&str]) {
        let [step, rest @ ..] = path else { return };
        if rest.is_empty() {
            self.0.remove(*step);
        } else if let Some(part) = self.0.get_mut(*step) {
            part.below.remove(rest);
            if part.is_void() {
                self.0.remove(*step);
            }
        }
    }

    /// Takes a field out, and leaves what is below it.
    fn remove_member(&mut self, step: &str) {
        if let Some(part) = self.0.get_mut(step) {
            part.member = false;
            if part.is_void() {
                self.0.remove(step);
            }
        }
    }

    fn combine(&self, other: &Self, member: fn(bool, bool) -> bool) -> Self {
        let nothing = Part::default();
        let mut result = BTreeMap::new();
        for step in self.0.keys().chain(other.0.keys()) {
            if result.contains_key(step) {
                continue;
            }
            let (ours, theirs) = (
                self.part(step).unwrap_or(&nothing),
                other.part(step).unwrap_or(&nothing),
            );
            let part = Part {
                member: member(ours.member, theirs.member),
                below: ours.below.combine(&theirs.below, member),
            };
            if !part.is_void() {
                result.insert(step.clone(), part);
            }
        }
        Self(result)
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| ours || theirs)
    }

    pub(crate) fn difference(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| ours && !theirs)
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| ours && theirs)
    }

    /// With every field that has owned fields below it as a member too, where it is a named field of a structure or a keyed item.
    fn with_named_parents(&self, node: Node<'_>) -> Self {
        let part = |(step, part): (&String, &Part)| {
            let child = node.step(step);
            let below = part.below.with_named_parents(child);
            let member = part.member || (!below.is_empty() && step.starts_with("f:") && node.names(step));
            (step.clone(), Part { member, below })
        };
        Self(self.0.iter().map(part).collect())
    }

    /// The paths of all members, as texts name them: `.spec.containers[name="a"].image`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect("", &mut paths);
        paths
    }

    fn collect(&self, above: &str, paths: &mut Vec<String>) {
        // First the members themselves, then what is below others: the order in which conflicts are named.
        for (step, _) in self.0.iter().filter(|(_, part)| part.member) {
            paths.push(format!("{above}{}", step_text(step)));
        }
        for (step, part) in &self.0 {
            part.below.collect(&format!("{above}{}", step_text(step)), paths);
        }
    }

    /// As `fieldsV1`.
    pub(crate) fn to_json(&self) -> Value {
        let mut json = Map::new();
        for (step, part) in &self.0 {
            let Value::Object(mut below) = part.below.to_json() else {
                continue;
            };
            if part.member && !below.is_empty() {
                below.insert(".".into(), Value::Object(Map::new()));
            }
            json.insert(step.clone(), Value::Object(below));
        }
        Value::Object(json)
    }

    /// From `fieldsV1`.
    pub(crate) fn from_json(json: &Value) -> Self {
        let fields = json.as_object().into_iter().flatten();
        let part = |(step, below): (&String, &Value)| {
            let itself = below.get(".").is_some() || below.as_object().is_none_or(Map::is_empty);
            (
                step.clone(),
                Part {
                    member: itself,
                    below: Self::from_json(below),
                },
            )
        };
        Self(fields.filter(|(step, _)| *step != ".").map(part).collect())
    }
}

impl Part {
    fn is_void(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

fn step_text(step: &str) -> String {
    match step.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<String> = keys
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            format!("[{}]", keys.join(","))
        }
        Some(("v", value)) => format!("[={value}]"),
        Some((_, index)) => format!("[{index}]"),
        None => step.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_come_back_as_they_went() {
        let json = json!({"f:data": {".": {}, "f:x": {}}, "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}});
        let set = FieldSet::from_json(&json);
        assert_eq!(set.to_json(), json);
        assert_eq!(
            set.paths(),
            [
                ".data",
                ".data.x",
                r#".spec.ports[port=80,protocol="TCP"]"#,
                r#".spec.ports[port=80,protocol="TCP"].port"#
            ]
        );
    }

    #[test]
    fn sets_are_combined_member_by_member() {
        let a = FieldSet::from_json(&json!({"f:data": {".": {}, "f:x": {}, "f:y": {}}}));
        let b = FieldSet::from_json(&json!({"f:data": {"f:y": {}, "f:z": {}}}));
        assert_eq!(
            a.union(&b).to_json(),
            json!({"f:data": {".": {}, "f:x": {}, "f:y": {}, "f:z": {}}})
        );
        assert_eq!(
            a.difference(&b).to_json(),
            json!({"f:data": {".": {}, "f:x": {}}})
        );
        assert_eq!(a.intersection(&b).to_json(), json!({"f:data": {"f:y": {}}}));
        assert!(a.difference(&a).is_empty());
    }
}
