//! What Pods ask of nodes.

use argosy_livestate::{Asks, ClusterState};
use serde_json::{Value, json};

use crate::{delete, key, upsert};

fn pod(name: &str, version: u64, spec: Value, phase: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name, "uid": name, "resourceVersion": version.to_string()},
        "spec": spec, "status": {"phase": phase}})
}

fn asks(cpu: i64, memory: i64) -> Asks {
    Asks([cpu, memory * 1000, 0])
}

fn requests(cpu: &str) -> Value {
    json!({"resources": {"requests": {"cpu": cpu}}})
}

#[test]
fn sums_follow_pods_that_come_change_and_go() {
    let mut state = ClusterState::new();
    let spec = |node: Option<&str>, cpu: &str| json!({"nodeName": node, "containers": [requests(cpu)]});
    upsert(&mut state, &pod("a", 1, spec(None, "100m"), "Pending"), None);
    assert_eq!(
        state.snapshot().asked_of("one"),
        Asks::default(),
        "it is on no node yet"
    );
    upsert(
        &mut state,
        &pod("a", 2, spec(Some("one"), "100m"), "Pending"),
        None,
    );
    upsert(
        &mut state,
        &pod("b", 3, spec(Some("one"), "1"), "Running"),
        Some("shop"),
    );
    let before = state.snapshot();
    assert_eq!(before.asked_of("one"), asks(1100, 0));

    // Resized in place, and a change that has nothing to do with it.
    upsert(
        &mut state,
        &pod("a", 4, spec(Some("one"), "300m"), "Running"),
        None,
    );
    upsert(
        &mut state,
        &pod("a", 5, spec(Some("one"), "300m"), "Running"),
        None,
    );
    assert_eq!(state.snapshot().asked_of("one"), asks(1300, 0));
    assert_eq!(
        before.asked_of("one"),
        asks(1100, 0),
        "a snapshot does not change"
    );

    // Other rules about Applications change nothing.
    state.retag(|_| None);
    assert_eq!(state.snapshot().asked_of("one"), asks(1300, 0));

    upsert(
        &mut state,
        &pod("b", 6, spec(Some("one"), "1"), "Succeeded"),
        None,
    );
    assert_eq!(
        state.snapshot().asked_of("one"),
        asks(300, 0),
        "what has ended takes nothing"
    );

    // Another incarnation, on another node.
    let mut again = pod("a", 7, spec(Some("two"), "2"), "Running");
    again["metadata"]["uid"] = "a2".into();
    upsert(&mut state, &again, None);
    assert_eq!(state.snapshot().asked_of("one"), Asks::default());
    assert_eq!(state.snapshot().asked_of("two"), asks(2000, 0));

    delete(&mut state, &key("", "Pod", "a"), "a2", 8);
    delete(&mut state, &key("", "Pod", "b"), "b", 9);
    assert_eq!(state.snapshot().asked_of("two"), Asks::default());
    assert_eq!(state.footprint().placed, 0);
}

/// The figures are those of the Kubernetes documentation on sidecar containers: the sum of containers and sidecars, or what
/// initialisation takes at most, and the overhead.
#[test]
fn a_pod_asks_for_what_it_takes_at_most() {
    let asked = |spec: Value| {
        let mut state = ClusterState::new();
        upsert(&mut state, &pod("a", 1, spec, "Running"), None);
        state.snapshot().asked_of("one")
    };
    let sidecar = |cpu: &str| {
        let mut container = requests(cpu);
        container["restartPolicy"] = "Always".into();
        container
    };
    let both = json!({"resources": {"requests": {"cpu": "0.5", "memory": "1Ki"}}});
    assert_eq!(
        asked(json!({"nodeName": "one", "containers": [requests("200m"), both], "overhead": {"cpu": "10m"}})),
        asks(710, 1024)
    );
    assert_eq!(
        asked(
            json!({"nodeName": "one", "initContainers": [requests("1"), requests("300m")], "containers": [requests("200m")]})
        ),
        asks(1000, 0)
    );
    assert_eq!(
        asked(
            json!({"nodeName": "one", "initContainers": [sidecar("100m"), requests("250m")], "containers": [requests("200m")]})
        ),
        asks(350, 0)
    );
    assert_eq!(
        asked(
            json!({"nodeName": "one", "initContainers": [sidecar("100m")], "containers": [requests("200m")]})
        ),
        asks(300, 0)
    );
}
