use argosy_livestate::ClusterState;
use serde_json::json;

use crate::{apps, key, object, upsert, web};

#[test]
fn children_are_found_whichever_came_first() {
    let mut state = ClusterState::new();
    upsert(
        &mut state,
        &object("v1", "Pod", "web-1-a", "p1", 3, &[("ReplicaSet", "web-1", "r1")]),
        None,
    );
    upsert(
        &mut state,
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
        &mut state,
        &object("apps/v1", "Deployment", "web", "d1", 1, &[]),
        Some("shop"),
    );
    let snapshot = state.snapshot();
    let pod = snapshot.get(&key("", "Pod", "web-1-a")).unwrap();
    assert_eq!(
        snapshot
            .apps_of(&pod)
            .iter()
            .map(|app| &**app)
            .collect::<Vec<_>>(),
        ["shop"]
    );
    let tree = snapshot.descendants(&snapshot.get(&key("apps", "Deployment", "web")).unwrap());
    assert_eq!(
        tree.iter().map(|row| row.key.name.as_str()).collect::<Vec<_>>(),
        ["web", "web-1", "web-1-a"]
    );
}

#[test]
fn an_owner_in_another_namespace_is_not_believed() {
    let mut state = ClusterState::new();
    web(&mut state);
    let mut pod = object("v1", "Pod", "intruder", "x1", 9, &[("Deployment", "web", "d1")]);
    pod["metadata"]["namespace"] = json!("elsewhere");
    assert!(apps(&upsert(&mut state, &pod, None)).is_empty());
    assert_eq!(state.snapshot().children("d1").len(), 1);
}

#[test]
fn a_cluster_scoped_owner_owns_in_every_namespace() {
    let mut state = ClusterState::new();
    let mut owner = object("example.com/v1", "Tenant", "blue", "t1", 1, &[]);
    owner["metadata"].as_object_mut().unwrap().remove("namespace");
    upsert(&mut state, &owner, Some("tenants"));
    let touched = upsert(
        &mut state,
        &object("v1", "ConfigMap", "a", "c1", 2, &[("Tenant", "blue", "t1")]),
        None,
    );
    assert_eq!(apps(&touched), ["tenants"]);
}

#[test]
fn a_circle_of_owners_ends() {
    let mut state = ClusterState::new();
    upsert(
        &mut state,
        &object("apps/v1", "A", "a", "a", 1, &[("B", "b", "b")]),
        None,
    );
    let touched = upsert(
        &mut state,
        &object("apps/v1", "B", "b", "b", 2, &[("A", "a", "a")]),
        None,
    );
    assert!(apps(&touched).is_empty());
    let snapshot = state.snapshot();
    assert_eq!(
        snapshot
            .descendants(&snapshot.get(&key("apps", "A", "a")).unwrap())
            .len(),
        2
    );
}

#[test]
fn claims_belong_to_the_stateful_set_of_their_template() {
    let mut state = ClusterState::new();
    let mut set = object("apps/v1", "StatefulSet", "my-db", "s1", 1, &[]);
    set["spec"] = json!({"volumeClaimTemplates": [{"metadata": {"name": "the-data"}}]});
    upsert(&mut state, &set, Some("shop"));
    let touched = upsert(
        &mut state,
        &object("v1", "PersistentVolumeClaim", "the-data-my-db-0", "c0", 2, &[]),
        None,
    );
    assert_eq!(apps(&touched), ["shop"]);
    for (name, uid) in [
        ("the-data-my-db-11", "c1"),
        ("the-data-my-db-x", "c2"),
        ("other-my-db-0", "c3"),
    ] {
        upsert(
            &mut state,
            &object("v1", "PersistentVolumeClaim", name, uid, 3, &[]),
            None,
        );
    }
    let children = state.snapshot().children("s1");
    assert_eq!(
        children
            .iter()
            .map(|row| row.key.name.as_str())
            .collect::<Vec<_>>(),
        ["the-data-my-db-0", "the-data-my-db-11"]
    );
}

#[test]
fn endpoints_belong_to_the_service_of_their_name() {
    let mut state = ClusterState::new();
    upsert(
        &mut state,
        &object("v1", "Service", "web", "s1", 1, &[]),
        Some("shop"),
    );
    assert_eq!(
        apps(&upsert(
            &mut state,
            &object("v1", "Endpoints", "web", "e1", 2, &[]),
            None
        )),
        ["shop"]
    );
    assert_eq!(state.snapshot().children("s1").len(), 1);
}
