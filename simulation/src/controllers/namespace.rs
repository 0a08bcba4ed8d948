//! A new namespace gets its account; one that is deleted goes once everything in it has gone.

use argosy_object::{Value, meta};
use serde_json::json;

use super::Work;
use crate::registry::GroupResource;
use crate::write;

pub(super) fn step(work: &mut Work<'_>, namespace: &Value) {
    let name = meta::name(namespace);
    if meta::deletion_timestamp(namespace).is_none() {
        let accounts = GroupResource::new("", "serviceaccounts");
        if work
            .server
            .store
            .get(&accounts, &format!("{name}/default"))
            .is_none()
        {
            let account = json!({"metadata": {"name": "default"}});
            work.create(
                "",
                "v1",
                name,
                "serviceaccounts",
                "kube-controller-manager",
                &account,
            );
        }
        return;
    }
    work.server.controllers.terminating.insert(name.to_owned());
    let prefix = format!("{name}/");
    let mut left = 0;
    let content: Vec<(GroupResource, String)> = work
        .server
        .store
        .tables()
        .flat_map(|(resource, table)| {
            let range = table.objects.range::<str, _>((
                std::ops::Bound::Included(prefix.as_str()),
                std::ops::Bound::Unbounded,
            ));
            let keys = range
                .map(|(key, _)| key)
                .take_while(|key| key.starts_with(&prefix));
            keys.map(|key| (resource.clone(), key.to_string()))
                .collect::<Vec<_>>()
        })
        .collect();
    for (resource, key) in content {
        write::delete_by_machinery(work.server, &resource, &key, None, false, work.now);
        left += usize::from(work.server.store.get(&resource, &key).is_some());
    }
    if left > 0 {
        return;
    }
    let mut finalised = namespace.clone();
    meta::remove_field(&mut finalised, &["spec", "finalizers"]);
    finalised["apiVersion"] = "v1".into();
    finalised["kind"] = "Namespace".into();
    let target = format!("/api/v1/namespaces/{name}/finalize?fieldManager=kube-controller-manager");
    work.server
        .own("PUT", &target, "application/json", &finalised, work.now);
}
