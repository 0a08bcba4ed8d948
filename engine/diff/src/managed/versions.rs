//! Fields that were written in another version of an API than the one the object is read in.
//!
//! An entry of `managedFields` names fields as its own version does. A field of the same name is the same field: kube-apiserver 1.36.3 takes it
//! away when an apply in another version does not state it any longer. One that the other version calls otherwise it leaves (an
//! autoscaler's `targetCPUUtilizationPercentage` of v1, which are `metrics` in v2): it is nobody's then, and a finding says so ([`lost`]).

use argosy_object::{Map, Path, Value, meta};

use crate::node::Node;

/// Whether the versions of a kind differ in more than their names, so that a document in one says nothing to one who reads the other. Known
/// for the kinds of Kubernetes 1.36; of custom resources with several versions it has to be assumed.
#[must_use]
pub fn differ_between_versions(group: &str, kind: &str) -> bool {
    !crate::facts::is_native_group(group) || (group, kind) == ("autoscaling", "HorizontalPodAutoscaler")
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
        if let Some(fields) = entry.get("fieldsV1").and_then(Value::as_object) {
            let mut names = Vec::new();
            look_for_lost(fields, node, &Path::root(), &mut names);
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

#[cfg(test)]
mod tests {
    use argosy_object::schema::Schemas;
    use serde_json::json;

    use super::*;
    use crate::node::{Semantics, schema_of};

    #[test]
    fn a_field_that_this_version_calls_otherwise_is_told() {
        let live = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"managedFields": [
            {"manager": "argocd-controller", "operation": "Apply", "apiVersion": "autoscaling/v1",
             "fieldsV1": {"f:spec": {"f:minReplicas": {}, "f:targetCPUUtilizationPercentage": {}}}},
            {"manager": "somebody", "operation": "Apply", "apiVersion": "autoscaling/v1", "fieldsV1": {"f:spec": {"f:other": {}}}}
        ]}});
        let schemas = Schemas::builtin();
        let gvk = meta::gvk(&live);
        let node = Node::root(
            schema_of(&schemas, &gvk),
            &schemas,
            &gvk,
            Semantics::of(&gvk.group, true),
        );
        let told = lost(&live, "argocd-controller", node);
        let expected = (
            "spec.targetCPUUtilizationPercentage".to_owned(),
            "autoscaling/v1".to_owned(),
        );
        assert_eq!(told, [expected]);
    }

    #[test]
    fn versions_of_most_kinds_name_their_fields_alike() {
        assert!(!differ_between_versions("networking.k8s.io", "Ingress"));
        assert!(differ_between_versions("autoscaling", "HorizontalPodAutoscaler"));
        assert!(differ_between_versions("example.com", "Widget"));
    }
}
