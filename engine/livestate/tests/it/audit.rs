use argosy_livestate::{ClusterState, Looked, Missed, Scope};
use argosy_object::GroupKind;

use crate::{delete, key, object, upsert};

fn configs() -> Scope {
    Scope::all(GroupKind::new("", "ConfigMap"))
}

/// Three ConfigMaps at the versions 1, 2 and 3.
fn three() -> ClusterState {
    let mut state = ClusterState::new();
    for (version, name) in (1..).zip(["a", "b", "c"]) {
        put(&mut state, name, version);
    }
    state
}

fn put(state: &mut ClusterState, name: &str, version: u64) {
    upsert(
        state,
        &object("v1", "ConfigMap", name, name, version, &[]),
        Some("shop"),
    );
}

fn counted(at: &str, count: u64) -> Looked {
    Looked {
        at: at.to_owned(),
        count: Some(count),
        ..Looked::default()
    }
}

fn seen(name: &str, version: &str) -> Looked {
    Looked {
        at: "10".to_owned(),
        seen: vec![(key("", "ConfigMap", name), version.to_owned())],
        ..Looked::default()
    }
}

#[test]
fn an_object_that_was_seen_and_is_not_known_was_missed_unless_it_has_gone() {
    let mut state = three();
    let stranger = |name: &str| Looked {
        at: "10".to_owned(),
        count: Some(3),
        strangers: vec![(key("", "ConfigMap", name), name.to_owned())],
        ..Looked::default()
    };
    let missed = Some(Missed::Of(key("", "ConfigMap", "d")));
    assert_eq!(state.missed(&configs(), &stranger("d")), missed);
    assert_eq!(
        state.missed(&configs(), &stranger("a")),
        None,
        "it came meanwhile"
    );
    put(&mut state, "d", 11);
    delete(&mut state, &key("", "ConfigMap", "d"), "d", 12);
    assert_eq!(
        state.missed(&configs(), &stranger("d")),
        None,
        "it went meanwhile"
    );
    state.confirm_deleted(&key("", "ConfigMap", "e"), "e");
    assert_eq!(state.missed(&configs(), &stranger("e")), None);
}

#[test]
fn a_count_of_the_server_is_compared_only_with_what_it_counted() {
    let mut state = three();
    assert_eq!(state.missed(&configs(), &counted("10", 3)), None);
    assert_eq!(
        state.missed(&configs(), &counted("10", 2)),
        Some(Missed::Count(3))
    );
    let elsewhere = Scope {
        kind: GroupKind::new("", "ConfigMap"),
        namespace: "elsewhere".to_owned(),
    };
    assert_eq!(state.missed(&elsewhere, &counted("10", 0)), None);
    assert_eq!(
        state.missed(&elsewhere, &counted("10", 1)),
        Some(Missed::Count(0))
    );
    // A write of ours that the count may or may not have seen.
    put(&mut state, "ours", 11);
    assert_eq!(state.missed(&configs(), &counted("10", 2)), None);
    assert_eq!(
        state.missed(&configs(), &counted("11", 3)),
        Some(Missed::Count(4))
    );
    state.confirm_deleted(&key("", "ConfigMap", "ours"), "ours");
    assert_eq!(state.missed(&configs(), &counted("12", 9)), None);
}

#[test]
fn an_end_that_the_watch_told_first_is_not_waited_for() {
    let mut state = three();
    delete(&mut state, &key("", "ConfigMap", "a"), "a", 4);
    state.confirm_deleted(&key("", "ConfigMap", "a"), "a");
    assert_eq!(state.footprint().deleted, 0);
    assert_eq!(state.missed(&configs(), &counted("10", 2)), None);
    assert_eq!(
        state.missed(&configs(), &counted("10", 3)),
        Some(Missed::Count(2))
    );
}

#[test]
fn an_end_that_the_watch_never_tells_is_waited_for_until_the_second_count() {
    let mut state = three();
    state.confirm_deleted(&key("", "ConfigMap", "a"), "a");
    let elsewhere = Scope {
        kind: GroupKind::new("", "ConfigMap"),
        namespace: "elsewhere".to_owned(),
    };
    for _ in 0..2 {
        assert_eq!(
            state.missed(&elsewhere, &counted("10", 1)),
            Some(Missed::Count(0)),
            "a count of another namespace is not about it"
        );
    }
    assert_eq!(state.missed(&configs(), &counted("10", 9)), None);
    assert_eq!(
        state.missed(&configs(), &counted("12", 9)),
        Some(Missed::Count(2))
    );
    assert_eq!(state.footprint().deleted, 0);
}

#[test]
fn an_object_that_was_seen_in_a_newer_version_is_missed() {
    let mut state = three();
    assert_eq!(state.missed(&configs(), &seen("b", "2")), None, "as it is known");
    assert_eq!(
        state.missed(&configs(), &seen("b", "9")),
        Some(Missed::Of(key("", "ConfigMap", "b")))
    );
    // Whether it changed or went: its end has a version, too.
    put(&mut state, "b", 9);
    assert_eq!(state.missed(&configs(), &seen("b", "9")), None);
    delete(&mut state, &key("", "ConfigMap", "b"), "b", 10);
    assert_eq!(state.missed(&configs(), &seen("b", "9")), None, "gone since");
}

#[test]
fn an_object_that_is_missed_counts_before_the_number_does() {
    let mut state = three();
    let look = Looked {
        count: Some(2),
        ..seen("a", "7")
    };
    assert_eq!(
        state.missed(&configs(), &look),
        Some(Missed::Of(key("", "ConfigMap", "a")))
    );
}
