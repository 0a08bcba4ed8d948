//! Owned objects go with their owners: after them, before them, or not at all.

use argosy_object::Value;
use argosy_object::meta::{self, OwnerReference};
use jiff::Timestamp;
use serde_json::json;

use super::{Look, owner_key};
use crate::api_server::ApiServer;
use crate::write::{self, FOREGROUND, ORPHAN};

/// Does what is due for an object as owner or as owned. True if it is being collected and nobody else needs to look at it.
pub(super) fn collect(server: &mut ApiServer, look: &Look, object: &Value, now: Timestamp) -> bool {
    if meta::deletion_timestamp(object).is_some() {
        let finalizers: Vec<&str> = meta::finalizers(object).collect();
        if finalizers.contains(&ORPHAN) {
            orphan(server, look, object);
            return true;
        }
        if finalizers.contains(&FOREGROUND) {
            foreground(server, look, object, now);
            return true;
        }
    }
    let owners = meta::owner_references(object);
    if owners.is_empty() || meta::deletion_timestamp(object).is_some() {
        return false;
    }
    let state = |owner: &OwnerReference| owner_state(server, owner, object);
    let states: Vec<Owner> = owners.iter().map(state).collect();
    if states.iter().all(|state| *state == Owner::Absent) {
        write::delete_by_machinery(server, &look.resource, &look.key, None, false, now);
        return true;
    }
    if states.iter().all(|state| *state != Owner::Present) {
        write::delete_by_machinery(server, &look.resource, &look.key, None, true, now);
        return true;
    }
    false
}

#[derive(PartialEq, Eq)]
enum Owner {
    Present,
    Absent,
    /// It waits for those it owns.
    Waiting,
}

fn owner_state(server: &ApiServer, owner: &OwnerReference, dependent: &Value) -> Owner {
    // An owner of a kind that nobody serves may be there after all.
    let Some((resource, key)) = owner_key(server, owner, dependent) else {
        return Owner::Present;
    };
    let Some(entry) = server.store.get(&resource, &key) else {
        return Owner::Absent;
    };
    let object = entry.content.value();
    if meta::uid(&object) != owner.uid {
        return Owner::Absent;
    }
    let waits = meta::deletion_timestamp(&object).is_some()
        && meta::finalizers(&object).any(|name| name == FOREGROUND);
    if waits { Owner::Waiting } else { Owner::Present }
}

fn dependents(server: &ApiServer, object: &Value) -> Vec<Look> {
    let known = server.controllers.dependents.get(meta::uid(object));
    known.into_iter().flatten().cloned().collect()
}

/// Those owned lose the reference, then the owner goes.
fn orphan(server: &mut ApiServer, look: &Look, object: &Value) {
    for dependent in dependents(server, object) {
        let Some(entry) = server.store.get(&dependent.resource, &dependent.key) else {
            continue;
        };
        let mut value = entry.content.value();
        let kept: Vec<Value> = meta::array_field(&value, &["metadata", "ownerReferences"])
            .iter()
            .filter(|owner| owner["uid"] != meta::uid(object))
            .cloned()
            .collect();
        if kept.is_empty() {
            meta::remove_field(&mut value, &["metadata", "ownerReferences"]);
        } else {
            meta::set_field(&mut value, &["metadata", "ownerReferences"], kept);
        }
        write::store_by_machinery(server, &dependent.resource, &dependent.key, value);
    }
    release(server, look, object, ORPHAN);
}

/// Those owned go first; the owner follows when none of them holds it up.
fn foreground(server: &mut ApiServer, look: &Look, object: &Value, now: Timestamp) {
    let dependents = dependents(server, object);
    let mut blocked = false;
    for dependent in dependents {
        let Some(entry) = server.store.get(&dependent.resource, &dependent.key) else {
            continue;
        };
        let value = entry.content.value();
        let mut owners = meta::array_field(&value, &["metadata", "ownerReferences"]).iter();
        blocked |=
            owners.any(|owner| owner["uid"] == meta::uid(object) && owner["blockOwnerDeletion"] == true);
        if meta::deletion_timestamp(&value).is_none() {
            server.controllers.look(&dependent.resource, &dependent.key);
        }
    }
    if !blocked {
        release(server, look, object, FOREGROUND);
    } else {
        // Another look when one of them has gone.
        let at = now + jiff::SignedDuration::from_millis(200);
        server.controllers.look_later(&look.resource, &look.key, at);
    }
}

/// Takes a finalizer off.
pub(super) fn release(server: &mut ApiServer, look: &Look, object: &Value, finalizer: &str) {
    let Some(kind) = server.registry.get(&look.resource) else {
        return;
    };
    let kept: Vec<&str> = meta::finalizers(object)
        .filter(|name| *name != finalizer)
        .collect();
    let patch = json!({"metadata": {"finalizers": if kept.is_empty() { Value::Null } else { json!(kept) }}});
    let root = if kind.group.is_empty() {
        "/api".to_owned()
    } else {
        format!("/apis/{}", kind.group)
    };
    let namespace = match look.key.split_once('/') {
        Some((namespace, _)) => format!("/namespaces/{namespace}"),
        None => String::new(),
    };
    let name = look.key.rsplit('/').next().unwrap_or_default();
    let target = format!(
        "{root}/{}{namespace}/{}/{name}?fieldManager=kube-controller-manager",
        kind.storage, kind.plural
    );
    let now = server.clock();
    server.own("PATCH", &target, "application/merge-patch+json", &patch, now);
}
