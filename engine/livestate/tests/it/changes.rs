use argosy_livestate::{Change, ClusterState, Scope};
use argosy_object::GroupKind;
use serde_json::json;

use crate::{apps, delete, key, object, resource, upsert, web};

#[test]
fn a_change_concerns_the_application_that_tracks_the_object() {
    let mut state = ClusterState::new();
    let config = object("v1", "ConfigMap", "a", "u1", 1, &[]);
    let touched = upsert(&mut state, &config, Some("shop"));
    assert_eq!((touched.change, apps(&touched)), (Change::Added, vec!["shop"]));
    assert_eq!(
        state.snapshot().get(&key("", "ConfigMap", "a")).unwrap().value(),
        config
    );
    assert_eq!(state.snapshot().by_app("shop").len(), 1);
    assert!(state.snapshot().by_app("other").is_empty());
}

#[test]
fn a_change_of_hands_concerns_both_applications() {
    let mut state = ClusterState::new();
    upsert(
        &mut state,
        &object("v1", "ConfigMap", "a", "u1", 1, &[]),
        Some("old"),
    );
    let touched = upsert(
        &mut state,
        &object("v1", "ConfigMap", "a", "u1", 2, &[]),
        Some("new"),
    );
    assert_eq!(apps(&touched), ["new", "old"]);
    assert!(touched.update.unwrap().moved);
    assert!(state.snapshot().by_app("old").is_empty());
    // Also if only the rules have changed, and the object is as it was.
    let touched = state.retag(|_| Some("newest".into()));
    assert_eq!(apps(&touched[0]), ["new", "newest"]);
    assert!(touched[0].update.as_ref().unwrap().moved);
    let same = object("v1", "ConfigMap", "a", "u1", 3, &[]);
    assert!(!upsert(&mut state, &same, Some("newest")).update.unwrap().moved);
}

#[test]
fn a_pod_concerns_the_application_of_its_deployment() {
    let mut state = ClusterState::new();
    web(&mut state);
    let touched = upsert(
        &mut state,
        &object("v1", "Pod", "web-1-a", "p1", 4, &[("ReplicaSet", "web-1", "r1")]),
        None,
    );
    assert_eq!((touched.change, apps(&touched)), (Change::Updated, vec!["shop"]));
    let gone = delete(&mut state, &key("", "Pod", "web-1-a"), "p1", 5);
    assert_eq!((gone.change, apps(&gone)), (Change::Deleted, vec!["shop"]));
}

#[test]
fn older_news_of_an_object_is_dropped() {
    let mut state = ClusterState::new();
    upsert(
        &mut state,
        &object("v1", "ConfigMap", "a", "u1", 10, &[]),
        Some("shop"),
    );
    let late = upsert(
        &mut state,
        &object("v1", "ConfigMap", "a", "u1", 9, &[]),
        Some("shop"),
    );
    assert_eq!(late.change, Change::Nothing);
    assert_eq!(
        &*state
            .snapshot()
            .get(&key("", "ConfigMap", "a"))
            .unwrap()
            .resource_version,
        "10"
    );
}

#[test]
fn the_same_news_twice_touches_nobody_the_second_time() {
    let mut state = ClusterState::new();
    let config = object("v1", "ConfigMap", "a", "u1", 10, &[]);
    upsert(&mut state, &config, Some("shop"));
    let again = upsert(&mut state, &config, Some("shop"));
    assert!(again.change == Change::Nothing && again.apps.is_empty());
}

#[test]
fn the_end_of_an_earlier_incarnation_does_not_remove_the_new_object() {
    let mut state = ClusterState::new();
    upsert(
        &mut state,
        &object("v1", "ConfigMap", "a", "new", 20, &[]),
        Some("shop"),
    );
    assert_eq!(
        delete(&mut state, &key("", "ConfigMap", "a"), "old", 19).change,
        Change::Nothing
    );
    assert_eq!(state.len(), 1);
}

#[test]
fn an_object_known_to_be_gone_does_not_come_back_with_late_news() {
    let mut state = ClusterState::new();
    upsert(
        &mut state,
        &object("v1", "ConfigMap", "a", "u1", 10, &[]),
        Some("shop"),
    );
    let touched = state.confirm_deleted(&key("", "ConfigMap", "a"), "u1");
    assert_eq!((touched.change, apps(&touched)), (Change::Deleted, vec!["shop"]));
    assert_eq!(
        upsert(
            &mut state,
            &object("v1", "ConfigMap", "a", "u1", 11, &[]),
            Some("shop")
        )
        .change,
        Change::Nothing
    );
    // A new object of the same name is another one.
    assert_eq!(
        upsert(
            &mut state,
            &object("v1", "ConfigMap", "a", "u2", 12, &[]),
            Some("shop")
        )
        .change,
        Change::Added
    );
    delete(&mut state, &key("", "ConfigMap", "a"), "u1", 11);
    assert_eq!(state.footprint().deleted, 0);
    assert_eq!(state.len(), 1);
}

#[test]
fn a_snapshot_does_not_change() {
    let mut state = ClusterState::new();
    web(&mut state);
    let snapshot = state.snapshot();
    delete(&mut state, &key("apps", "Deployment", "web"), "d1", 9);
    upsert(
        &mut state,
        &object("v1", "Pod", "more", "p2", 10, &[]),
        Some("shop"),
    );
    assert_eq!(snapshot.len(), 3);
    assert_eq!(snapshot.by_app("shop").len(), 1);
    assert_eq!(&*snapshot.by_app("shop")[0].uid, "d1");
    assert!(snapshot.revision() < state.snapshot().revision());
}

#[test]
fn new_tracking_rules_concern_old_and_new_applications() {
    let mut state = ClusterState::new();
    upsert(
        &mut state,
        &object("v1", "ConfigMap", "a", "u1", 1, &[]),
        Some("one"),
    );
    upsert(
        &mut state,
        &object("v1", "ConfigMap", "b", "u2", 2, &[]),
        Some("one"),
    );
    let touched = state.retag(|row| {
        (row.key.name == "a")
            .then(|| "two".into())
            .or_else(|| row.app.as_deref().map(Into::into))
    });
    assert_eq!(touched.len(), 1);
    assert_eq!(apps(&touched[0]), ["one", "two"]);
    assert_eq!(state.snapshot().by_app("two").len(), 1);
}

#[test]
fn a_token_secret_belongs_to_its_service_account() {
    let mut state = ClusterState::new();
    upsert(
        &mut state,
        &object("v1", "ServiceAccount", "robot", "s1", 1, &[]),
        Some("shop"),
    );
    let mut secret = object("v1", "Secret", "robot-token", "t1", 2, &[]);
    secret["type"] = json!("kubernetes.io/service-account-token");
    secret["metadata"]["annotations"] =
        json!({"kubernetes.io/service-account.uid": "s1", "kubernetes.io/service-account.name": "robot"});
    assert_eq!(apps(&upsert(&mut state, &secret, None)), ["shop"]);
}

/// An API server that has fallen behind, after the client came back to it: it lists what was, and tells again what happened.
#[test]
fn a_server_that_has_fallen_behind_takes_nothing_back() {
    let mut state = ClusterState::new();
    let configs = Scope::all(GroupKind::new("", "ConfigMap"));
    let map = |name: &str, version| object("v1", "ConfigMap", name, name, version, &[]);
    upsert(&mut state, &map("changed", 1), Some("shop"));
    upsert(&mut state, &map("deleted", 2), Some("shop"));
    upsert(&mut state, &map("changed", 4), Some("shop"));
    delete(&mut state, &key("", "ConfigMap", "deleted"), "deleted", 5);
    upsert(&mut state, &map("created", 6), Some("shop"));
    let names = |state: &ClusterState| -> Vec<(String, String)> {
        let maps = state.snapshot().by_kind(&configs.kind);
        maps.iter()
            .map(|map| (map.key.name.clone(), map.resource_version.to_string()))
            .collect()
    };
    let known = names(&state);
    assert_eq!(
        known,
        [("changed".into(), "4".into()), ("created".into(), "6".into())]
    );

    state.begin_relist(&configs);
    for (name, version) in [("changed", 1), ("deleted", 2)] {
        state.relist(&configs, *resource(&map(name, version), Some("shop")));
        assert_eq!(names(&state), known);
    }
    assert!(state.end_relist(&configs, "3").is_empty());
    assert_eq!(
        upsert(&mut state, &map("changed", 4), Some("shop")).change,
        Change::Nothing
    );
    delete(&mut state, &key("", "ConfigMap", "deleted"), "deleted", 5);
    assert_eq!(names(&state), known);

    // Another object of the same name is another object.
    let mut again = map("deleted", 7);
    again["metadata"]["uid"] = "another".into();
    assert_eq!(upsert(&mut state, &again, Some("shop")).change, Change::Added);
}
