use argosy_livestate::{Change, ClusterState, Scope};
use argosy_object::GroupKind;

use crate::{apps, delete, key, object, resource, upsert};

fn configs() -> Scope {
    Scope::all(GroupKind::new("", "ConfigMap"))
}

fn three(state: &mut ClusterState) {
    for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
        upsert(
            state,
            &object("v1", "ConfigMap", name, name, 1 + index as u64, &[]),
            Some("shop"),
        );
    }
    upsert(state, &object("v1", "Secret", "s", "s", 9, &[]), Some("shop"));
}

#[test]
fn what_a_complete_list_does_not_contain_is_gone() {
    let mut state = ClusterState::new();
    three(&mut state);
    state.begin_relist(&configs());
    state.relist(
        &configs(),
        *resource(&object("v1", "ConfigMap", "a", "a", 1, &[]), Some("shop")),
    );
    state.relist(
        &configs(),
        *resource(&object("v1", "ConfigMap", "c", "c", 30, &[]), Some("shop")),
    );
    let touched = state.end_relist(&configs(), "40");
    assert_eq!(touched.len(), 1);
    assert_eq!(
        (touched[0].key.name.as_str(), touched[0].change),
        ("b", Change::Deleted)
    );
    assert_eq!(apps(&touched[0]), ["shop"]);
    // Another kind is none of this list's business.
    assert!(state.snapshot().get(&key("", "Secret", "s")).is_some());
    assert_eq!(
        &*state
            .snapshot()
            .get(&key("", "ConfigMap", "c"))
            .unwrap()
            .resource_version,
        "30"
    );
}

#[test]
fn a_list_that_breaks_off_deletes_nothing() {
    let mut state = ClusterState::new();
    three(&mut state);
    state.begin_relist(&configs());
    state.relist(
        &configs(),
        *resource(&object("v1", "ConfigMap", "a", "a", 1, &[]), Some("shop")),
    );
    state.abandon_relist(&configs());
    assert!(state.end_relist(&configs(), "40").is_empty());
    assert_eq!(state.len(), 4);
}

#[test]
fn a_list_that_begins_again_counts_from_there() {
    let mut state = ClusterState::new();
    three(&mut state);
    state.begin_relist(&configs());
    state.relist(
        &configs(),
        *resource(&object("v1", "ConfigMap", "a", "a", 1, &[]), Some("shop")),
    );
    state.begin_relist(&configs());
    for name in ["b", "c"] {
        state.relist(
            &configs(),
            *resource(&object("v1", "ConfigMap", name, name, 50, &[]), Some("shop")),
        );
    }
    let touched = state.end_relist(&configs(), "60");
    assert_eq!(
        touched
            .iter()
            .map(|one| one.key.name.as_str())
            .collect::<Vec<_>>(),
        ["a"]
    );
}

#[test]
fn what_goes_during_a_list_does_not_come_back_with_late_news() {
    let mut state = ClusterState::new();
    three(&mut state);
    state.confirm_deleted(&key("", "ConfigMap", "a"), "a");
    state.begin_relist(&configs());
    // The list was taken before this one went.
    state.confirm_deleted(&key("", "ConfigMap", "b"), "b");
    for name in ["b", "c"] {
        state.relist(
            &configs(),
            *resource(&object("v1", "ConfigMap", name, name, 3, &[]), Some("shop")),
        );
    }
    state.end_relist(&configs(), "40");
    let late = object("v1", "ConfigMap", "b", "b", 41, &[]);
    assert_eq!(upsert(&mut state, &late, Some("shop")).change, Change::Nothing);
    delete(&mut state, &key("", "ConfigMap", "b"), "b", 42);
    assert_eq!(state.footprint().deleted, 0);
    assert_eq!(state.len(), 2);
}

#[test]
fn what_we_wrote_after_the_list_was_taken_stays() {
    let mut state = ClusterState::new();
    state.begin_relist(&configs());
    upsert(
        &mut state,
        &object("v1", "ConfigMap", "ours", "o", 41, &[]),
        Some("shop"),
    );
    assert!(state.end_relist(&configs(), "40").is_empty());
    assert_eq!(state.len(), 1);
}

#[test]
fn a_list_of_one_namespace_says_nothing_about_others() {
    let mut state = ClusterState::new();
    three(&mut state);
    let scope = Scope {
        kind: GroupKind::new("", "ConfigMap"),
        namespace: "elsewhere".to_owned(),
    };
    state.begin_relist(&scope);
    assert!(state.end_relist(&scope, "99").is_empty());
    assert_eq!(state.len(), 4);
}

#[test]
fn a_kind_that_is_no_longer_served_goes_with_its_objects() {
    let mut state = ClusterState::new();
    three(&mut state);
    let touched = state.remove_kind(&GroupKind::new("", "ConfigMap"));
    assert_eq!(touched.len(), 3);
    assert_eq!(state.len(), 1);
}
