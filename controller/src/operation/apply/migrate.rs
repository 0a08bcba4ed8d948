//! Before the first server-side apply: what kubectl, or an earlier client-side apply, set becomes ours.
//!
//! Without that, a field removed from Git would stay, because the other manager still holds it. Only `managedFields` is
//! patched, guarded by the version it was worked out from.

use argosy_kube_io::target::{FIELD_MANAGER, Patch, Write};
use argosy_kube_io::{ApiResource, Error};
use argosy_object::{Map, Value, meta};
use futures::FutureExt as _;
use serde_json::json;

use super::{ATTEMPTS, Failure, Writer, refused, repeated};

/// Moves the fields of `manager` on `live` to ours, if it has any from updates.
pub(super) async fn take_over(
    writer: &Writer,
    resource: &ApiResource,
    live: &Value,
    manager: &str,
) -> Result<(), Failure> {
    let mut live = live.clone();
    for _ in 0..ATTEMPTS {
        let Some(fields) = united(&live, manager) else {
            return Ok(());
        };
        let patch = json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": fields},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": meta::resource_version(&live)},
        ]);
        let (namespace, name) = (meta::namespace(&live), meta::name(&live));
        let write = Write::default();
        let call = || {
            writer
                .target
                .patch(resource, namespace, name, Patch::Json(&patch), &write)
                .boxed()
        };
        let moved: Result<_, Error> = repeated(call).await;
        match moved {
            Ok(written) => {
                writer.cluster.observe(written.object).await;
                return Ok(());
            }
            Err(error) if error.conflict() => match writer.target.get(resource, namespace, name).await? {
                Some(newer) => live = newer,
                None => return Ok(()),
            },
            Err(error) => return Err(error.into()),
        }
    }
    Err(refused("the object keeps changing"))
}

/// `managedFields` with the fields of `manager` in our entry; `None` if it has none from updates of the object itself.
fn united(live: &Value, manager: &str) -> Option<Value> {
    let entries = meta::array_field(live, &["metadata", "managedFields"]);
    let text = |entry: &Value, field: &str| meta::str_field(entry, &[field]).unwrap_or_default().to_owned();
    let theirs = |entry: &&Value| {
        text(entry, "manager") == manager
            && text(entry, "operation") == "Update"
            && text(entry, "subresource").is_empty()
    };
    let ours = |entry: &Value| {
        text(entry, "manager") == FIELD_MANAGER
            && text(entry, "operation") == "Apply"
            && text(entry, "subresource").is_empty()
    };
    let first = entries.iter().find(theirs)?;
    let mut kept: Vec<Value> = entries.iter().filter(|entry| !theirs(entry)).cloned().collect();
    let mut own = match kept.iter().position(ours) {
        Some(index) => kept.remove(index),
        None => {
            let mut entry = first.clone();
            meta::set_field(&mut entry, &["manager"], json!(FIELD_MANAGER));
            meta::set_field(&mut entry, &["operation"], json!("Apply"));
            entry
        }
    };
    for entry in entries.iter().filter(theirs) {
        if let (Some(into), Some(Value::Object(fields))) = (
            own.get_mut("fieldsV1").and_then(Value::as_object_mut),
            entry.get("fieldsV1"),
        ) {
            unite(into, fields);
        }
    }
    kept.push(own);
    Some(Value::Array(kept))
}

/// Sets of fields are maps of maps: the union has the keys of both.
fn unite(into: &mut Map, fields: &Map) {
    for (key, value) in fields {
        match (into.get_mut(key), value) {
            (Some(Value::Object(known)), Value::Object(more)) => unite(known, more),
            (Some(_), _) => {}
            (None, value) => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn the_fields_of_kubectl_become_ours() {
        let live = json!({"metadata": {"managedFields": [
            entry("kubectl-client-side-apply", "Update", json!({"f:data": {"f:a": {}}})),
            entry("other", "Update", json!({"f:data": {"f:z": {}}})),
        ]}});
        let moved = united(&live, "kubectl-client-side-apply").unwrap();
        assert_eq!(
            moved,
            json!([
                entry("other", "Update", json!({"f:data": {"f:z": {}}})),
                entry("argocd-controller", "Apply", json!({"f:data": {"f:a": {}}})),
            ])
        );
    }

    #[test]
    fn they_are_added_to_what_is_ours_already() {
        let live = json!({"metadata": {"managedFields": [
            entry("argocd-controller", "Apply", json!({"f:data": {"f:b": {}}, "f:x": {}})),
            entry("kubectl-client-side-apply", "Update", json!({"f:data": {"f:a": {}, ".": {}}})),
        ]}});
        let moved = united(&live, "kubectl-client-side-apply").unwrap();
        assert_eq!(
            moved,
            json!([entry(
                "argocd-controller",
                "Apply",
                json!({"f:data": {"f:a": {}, "f:b": {}, ".": {}}, "f:x": {}})
            )])
        );
    }

    #[test]
    fn fields_that_were_applied_by_the_server_stay_where_they_are() {
        let live =
            json!({"metadata": {"managedFields": [entry("kubectl-client-side-apply", "Apply", json!({}))]}});
        assert_eq!(united(&live, "kubectl-client-side-apply"), None);
    }
}
