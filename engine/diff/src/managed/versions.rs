//! Fields that were written in another version of an API than the one the object is read in.
//!
//! An entry of `managedFields` names fields as its own version does. The API server converts the object to tell what they are in another; from
//! outside only names can be translated. Versions of a kind name their fields alike, but for the kinds of [`RENAMED`], read off the
//! conversions of Kubernetes 1.36. What a custom resource's webhook makes of a field is not known: a field that the version at hand does not
//! have owns nothing here, and a finding says so ([`lost`]).

use std::borrow::Cow;

use argosy_object::{Map, Path, Value, meta, split_api_version};

use crate::node::Node;

/// Fields of a kind that have another name in another version.
struct Renamed {
    group: &'static str,
    kind: &'static str,
    from: &'static str,
    to: &'static str,
    /// Old and new place, as `managedFields` writes them.
    fields: &'static [(&'static [&'static str], &'static [&'static str])],
}

const METADATA: &str = "f:metadata";
const ANNOTATIONS: &str = "f:annotations";

/// In its first version, an autoscaler knows processors alone and keeps the rest in annotations.
const RENAMED: [Renamed; 2] = [
    Renamed {
        group: "autoscaling",
        kind: "HorizontalPodAutoscaler",
        from: "v1",
        to: "v2",
        fields: &[
            (
                &["f:spec", "f:targetCPUUtilizationPercentage"],
                &["f:spec", "f:metrics"],
            ),
            (
                &[METADATA, ANNOTATIONS, "f:autoscaling.alpha.kubernetes.io/metrics"],
                &["f:spec", "f:metrics"],
            ),
            (
                &[
                    METADATA,
                    ANNOTATIONS,
                    "f:autoscaling.alpha.kubernetes.io/behavior",
                ],
                &["f:spec", "f:behavior"],
            ),
        ],
    },
    Renamed {
        group: "autoscaling",
        kind: "HorizontalPodAutoscaler",
        from: "v2",
        to: "v1",
        fields: &[
            (
                &["f:spec", "f:metrics"],
                &["f:spec", "f:targetCPUUtilizationPercentage"],
            ),
            (
                &["f:spec", "f:behavior"],
                &[
                    METADATA,
                    ANNOTATIONS,
                    "f:autoscaling.alpha.kubernetes.io/behavior",
                ],
            ),
        ],
    },
];

/// Whether the versions of a kind differ in more than their names, so that a document in one says nothing to one who reads the other. Known
/// for the kinds of Kubernetes; of custom resources with several versions it has to be assumed.
#[must_use]
pub fn differ_between_versions(group: &str, kind: &str) -> bool {
    if !crate::facts::is_native_group(group) {
        return true;
    }
    RENAMED
        .iter()
        .any(|renamed| renamed.group == group && renamed.kind == kind)
}

/// The fields of an entry as the version of `live` names them.
pub(super) fn fields_of_entry<'e>(entry: &'e Value, live: &Value) -> Option<Cow<'e, Map>> {
    let fields = entry.get("fieldsV1")?.as_object()?;
    let (group, to) = split_api_version(meta::api_version(live));
    let (_, from) = split_api_version(
        entry
            .get("apiVersion")
            .and_then(Value::as_str)
            .unwrap_or_default(),
    );
    let renamed = RENAMED.iter().find(|renamed| {
        (renamed.group, renamed.from, renamed.to) == (group, from, to) && renamed.kind == meta::kind(live)
    });
    let Some(renamed) = renamed else {
        return Some(Cow::Borrowed(fields));
    };
    let mut fields = fields.clone();
    for (old, new) in renamed.fields {
        if let Some(below) = take(&mut fields, old) {
            put(&mut fields, new, below);
        }
    }
    Some(Cow::Owned(fields))
}

/// What `manager` applied in other versions than that of `live` and this one does not have: each field with its version.
pub(crate) fn lost(live: &Value, manager: &str, node: Node<'_>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let here = meta::api_version(live);
    for entry in meta::array_field(live, &["metadata", "managedFields"]) {
        let text = |name: &str| meta::str_field(entry, &[name]).unwrap_or_default();
        if text("manager") != manager || text("operation") != "Apply" || text("apiVersion") == here {
            continue;
        }
        if let Some(fields) = fields_of_entry(entry, live) {
            let mut names = Vec::new();
            look_for_lost(&fields, node, &Path::root(), &mut names);
            found.extend(
                names
                    .into_iter()
                    .map(|name| (name, text("apiVersion").to_owned())),
            );
        }
    }
    found
}

fn look_for_lost(fields: &Map, node: Node<'_>, path: &Path<'_>, found: &mut Vec<String>) {
    for (form, below) in fields {
        let Some(below) = below.as_object() else { continue };
        match form.strip_prefix("f:") {
            Some(name) if node.lacks_field(name) => found.push(path.field(name).to_string()),
            Some(name) => look_for_lost(below, node.field(name), &path.field(name), found),
            None if form.starts_with("k:") => look_for_lost(below, node.item(), path, found),
            None => {}
        }
    }
}

fn take(fields: &mut Map, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let parent = parents
        .iter()
        .try_fold(fields, |at, step| at.get_mut(*step)?.as_object_mut())?;
    parent.remove(*last)
}

fn put(fields: &mut Map, path: &[&str], below: Value) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let mut at = fields;
    for step in parents {
        let next = at
            .entry(*step)
            .or_insert_with(|| Value::Object(Map::new()))
            .as_object_mut();
        let Some(next) = next else { return };
        at = next;
    }
    at.insert((*last).to_owned(), below);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn read_in(version: &str, entry: &Value) -> Value {
        let live = json!({"apiVersion": version, "kind": "HorizontalPodAutoscaler"});
        Value::Object(fields_of_entry(entry, &live).unwrap().into_owned())
    }

    #[test]
    fn what_the_first_version_of_an_autoscaler_calls_otherwise_is_translated() {
        let old = json!({"apiVersion": "autoscaling/v1", "fieldsV1": {
            "f:metadata": {"f:annotations": {".": {}, "f:autoscaling.alpha.kubernetes.io/behavior": {}, "f:team": {}}},
            "f:spec": {"f:maxReplicas": {}, "f:targetCPUUtilizationPercentage": {}}
        }});
        assert_eq!(
            read_in("autoscaling/v2", &old),
            json!({
                "f:metadata": {"f:annotations": {".": {}, "f:team": {}}},
                "f:spec": {"f:maxReplicas": {}, "f:metrics": {}, "f:behavior": {}}
            })
        );
        assert_eq!(read_in("autoscaling/v1", &old), old["fieldsV1"]);
        let new = json!({"apiVersion": "autoscaling/v2", "fieldsV1": {"f:spec": {"f:maxReplicas": {}, "f:metrics": {}}}});
        assert_eq!(
            read_in("autoscaling/v1", &new),
            json!({"f:spec": {"f:maxReplicas": {}, "f:targetCPUUtilizationPercentage": {}}})
        );
    }

    #[test]
    fn versions_of_most_kinds_name_their_fields_alike() {
        assert!(!differ_between_versions("networking.k8s.io", "Ingress"));
        assert!(differ_between_versions("autoscaling", "HorizontalPodAutoscaler"));
        assert!(differ_between_versions("example.com", "Widget"));
    }
}
