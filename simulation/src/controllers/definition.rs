//! A CustomResourceDefinition is established; one that is deleted goes after its objects.

use argosy_object::{Value, meta};
use serde_json::json;

use super::{Work, garbage, with_condition};
use crate::registry::GroupResource;
use crate::write::{self, CLEANUP};

pub(super) fn step(work: &mut Work<'_>, definition: &Value) {
    if meta::deletion_timestamp(definition).is_some() {
        return clean_up(work, definition);
    }
    let names = &definition["spec"]["names"];
    let now = work.stamp();
    let conditions = meta::array_field(definition, &["status", "conditions"]);
    let conditions = with_condition(
        conditions,
        "NamesAccepted",
        "True",
        "NoConflicts",
        "no conflicts found",
        &now,
    );
    let conditions = with_condition(
        &conditions,
        "Established",
        "True",
        "InitialNamesAccepted",
        "the initial names have been accepted",
        &now,
    );
    let mut stored: Vec<Value> = meta::array_field(definition, &["status", "storedVersions"]).to_vec();
    let storage = meta::array_field(definition, &["spec", "versions"])
        .iter()
        .find(|version| version["storage"] == true);
    if let Some(name) = storage.map(|version| version["name"].clone())
        && !stored.contains(&name)
    {
        stored.push(name);
    }
    let status = json!({"conditions": conditions, "acceptedNames": names, "storedVersions": stored});
    work.set_status("kube-apiserver", definition, status);
}

fn clean_up(work: &mut Work<'_>, definition: &Value) {
    if !meta::finalizers(definition).any(|name| name == CLEANUP) {
        return;
    }
    let text = |path: &[&str]| meta::str_field(definition, path).unwrap_or_default();
    let resource = GroupResource::new(text(&["spec", "group"]), text(&["spec", "names", "plural"]));
    let keys: Vec<String> = work
        .server
        .store
        .table(&resource)
        .into_iter()
        .flat_map(|table| table.objects.keys())
        .map(ToString::to_string)
        .collect();
    for key in keys {
        write::delete_by_machinery(work.server, &resource, &key, None, false, work.now);
    }
    if work.server.count(&resource.group, &resource.plural) == 0 {
        garbage::release(work.server, work.look, definition, CLEANUP);
    } else {
        work.later(1);
    }
}
