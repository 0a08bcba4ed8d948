//! Behaviour of live state as its users see it.
#![allow(clippy::unwrap_used)]

mod audit;
mod changes;
mod model;
mod ownership;
mod placement;
mod relist;

use std::sync::Arc;

use argosy_livestate::{ClusterState, Deletion, Event, Resource, Touched};
use argosy_object::{ResourceKey, Value};
use serde_json::json;

pub(crate) fn object(
    api: &str,
    kind: &str,
    name: &str,
    uid: &str,
    version: u64,
    owners: &[(&str, &str, &str)],
) -> Value {
    json!({
        "apiVersion": api, "kind": kind,
        "metadata": {
            "namespace": "shop", "name": name, "uid": uid, "resourceVersion": version.to_string(),
            "ownerReferences": owners.iter().map(|(kind, name, uid)| json!({
                "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true,
            })).collect::<Vec<_>>(),
        },
        "version": version,
    })
}

pub(crate) fn resource(object: &Value, app: Option<&str>) -> Box<Resource> {
    Box::new(Resource::new(object, app.map(Arc::from)))
}

pub(crate) fn upsert(state: &mut ClusterState, object: &Value, app: Option<&str>) -> Touched {
    state.apply(Event::Upsert(resource(object, app)))
}

pub(crate) fn delete(state: &mut ClusterState, key: &ResourceKey, uid: &str, version: u64) -> Touched {
    state.apply(Event::Delete(Deletion {
        key: key.clone(),
        uid: uid.to_owned(),
        resource_version: version.to_string(),
    }))
}

pub(crate) fn key(group: &str, kind: &str, name: &str) -> ResourceKey {
    ResourceKey::new(group, kind, "shop", name)
}

pub(crate) fn apps(touched: &Touched) -> Vec<&str> {
    touched.apps.iter().map(|app| &**app).collect()
}

/// A Deployment of the Application `shop`, its ReplicaSet and a Pod.
pub(crate) fn web(state: &mut ClusterState) {
    upsert(
        state,
        &object("apps/v1", "Deployment", "web", "d1", 1, &[]),
        Some("shop"),
    );
    upsert(
        state,
        &object(
            "apps/v1",
            "ReplicaSet",
            "web-1",
            "r1",
            2,
            &[("Deployment", "web", "d1")],
        ),
        None,
    );
    upsert(
        state,
        &object("v1", "Pod", "web-1-a", "p1", 3, &[("ReplicaSet", "web-1", "r1")]),
        None,
    );
}
