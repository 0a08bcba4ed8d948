//! What a cluster does by itself.

use argosy_simulation::{Options, POWERLESS_TOKEN};
use serde_json::{Value, json};

use crate::support::Direct;

fn cluster() -> Direct {
    let mut direct = Direct::new(Options::default());
    direct.settle();
    direct
}

fn deployment(image: &str, replicas: u32) -> Value {
    json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}}},
    })
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn names(direct: &mut Direct, path: &str) -> Vec<String> {
    let (_, list) = direct.call("GET", path, &Value::Null);
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_deployment_gets_its_pods_and_says_so() {
    let mut direct = cluster();
    assert_eq!(direct.call("POST", DEPLOYMENTS, &deployment("nginx:1", 3)).0, 201);
    direct.settle();
    let (_, web) = direct.call("GET", &format!("{DEPLOYMENTS}/web"), &Value::Null);
    let status = &web["status"];
    assert_eq!(
        (&status["readyReplicas"], &status["observedGeneration"]),
        (&json!(3), &web["metadata"]["generation"])
    );
    assert_eq!(web["metadata"]["generation"], 1);
    assert_eq!(names(&mut direct, "/api/v1/namespaces/default/pods").len(), 3);
}

#[test]
fn a_disruption_budget_counts_the_pods_it_covers() {
    let mut direct = cluster();
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let selector = json!({"matchLabels": {"app": "web"}});
    for (name, field, value) in [
        ("number", "maxUnavailable", json!(1)),
        ("percent", "minAvailable", json!("50%")),
        ("all", "minAvailable", json!(3)),
    ] {
        let mut budget = json!({"metadata": {"name": name}, "spec": {"selector": selector}});
        budget["spec"][field] = value;
        assert_eq!(direct.call("POST", budgets, &budget).0, 201);
    }
    direct.call("POST", DEPLOYMENTS, &deployment("nginx:1", 3));
    direct.settle();
    let mut counts = |name: &str| {
        let (_, budget) = direct.call("GET", &format!("{budgets}/{name}"), &Value::Null);
        let status = &budget["status"];
        let number = |field: &str| status[field].as_i64().unwrap();
        (
            number("expectedPods"),
            number("desiredHealthy"),
            number("disruptionsAllowed"),
            status["conditions"][0]["reason"].as_str().unwrap().to_owned(),
        )
    };
    // By the disruption controller's rules: 3 - 1; half of 3, rounded up; all.
    assert_eq!(counts("number"), (3, 2, 1, "SufficientPods".to_owned()));
    assert_eq!(counts("percent"), (3, 2, 1, "SufficientPods".to_owned()));
    assert_eq!(counts("all"), (3, 3, 0, "InsufficientPods".to_owned()));
}

#[test]
fn a_new_template_replaces_the_pods_and_keeps_the_old_set() {
    let mut direct = cluster();
    direct.call("POST", DEPLOYMENTS, &deployment("nginx:1", 3));
    direct.settle();
    let before = names(&mut direct, "/api/v1/namespaces/default/pods");
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}}});
    assert_eq!(direct.call("PATCH", &format!("{DEPLOYMENTS}/web"), &patch).0, 200);
    direct.settle();
    let after = names(&mut direct, "/api/v1/namespaces/default/pods");
    assert_eq!(after.len(), 3);
    assert!(after.iter().all(|name| !before.contains(name)));
    assert_eq!(
        names(&mut direct, "/apis/apps/v1/namespaces/default/replicasets").len(),
        2
    );
    let (_, web) = direct.call("GET", &format!("{DEPLOYMENTS}/web"), &Value::Null);
    assert_eq!(
        web["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "2"
    );
    assert_eq!(web["status"]["updatedReplicas"], 3);
}

#[test]
fn a_rollout_that_cannot_start_keeps_the_old_pods() {
    let mut direct = cluster();
    direct.call("POST", DEPLOYMENTS, &deployment("nginx:1", 4));
    direct.settle();
    let patch =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "missing:2"}]}}}});
    direct.call("PATCH", &format!("{DEPLOYMENTS}/web"), &patch);
    direct.settle();
    let (_, web) = direct.call("GET", &format!("{DEPLOYMENTS}/web"), &Value::Null);
    assert!(
        web["status"]["availableReplicas"].as_u64().unwrap() >= 3,
        "{}",
        web["status"]
    );
    assert_ne!(web["status"]["updatedReplicas"], web["status"]["replicas"]);
}

#[test]
fn what_is_owned_goes_in_the_background_in_front_or_not_at_all() {
    for (policy, left) in [("Background", 0), ("Foreground", 0), ("Orphan", 1)] {
        let mut direct = cluster();
        direct.call("POST", DEPLOYMENTS, &deployment("nginx:1", 1));
        direct.settle();
        let options = json!({"propagationPolicy": policy});
        assert_eq!(
            direct.call("DELETE", &format!("{DEPLOYMENTS}/web"), &options).0,
            200
        );
        direct.settle();
        assert_eq!(
            direct.call("GET", &format!("{DEPLOYMENTS}/web"), &Value::Null).0,
            404,
            "{policy}"
        );
        assert_eq!(
            names(&mut direct, "/apis/apps/v1/namespaces/default/replicasets").len(),
            left,
            "{policy}"
        );
        assert_eq!(
            names(&mut direct, "/api/v1/namespaces/default/pods").len(),
            left,
            "{policy}"
        );
    }
}

#[test]
fn an_object_of_an_owner_that_never_was_goes() {
    let mut direct = cluster();
    let map = json!({"metadata": {"name": "m", "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "0a0a0a0a-0000-4000-8000-000000000000"}]}});
    assert_eq!(
        direct
            .call("POST", "/api/v1/namespaces/default/configmaps", &map)
            .0,
        201
    );
    direct.settle();
    assert_eq!(
        direct
            .call("GET", "/api/v1/namespaces/default/configmaps/m", &Value::Null)
            .0,
        404
    );
}

#[test]
fn a_namespace_goes_when_all_in_it_has_gone() {
    let mut direct = cluster();
    direct.call(
        "POST",
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "team"}}),
    );
    let maps = "/api/v1/namespaces/team/configmaps";
    direct.call(
        "POST",
        maps,
        &json!({"metadata": {"name": "m", "finalizers": ["example.com/keep"]}}),
    );
    direct.settle();
    direct.call("DELETE", "/api/v1/namespaces/team", &Value::Null);
    direct.settle();
    let (code, team) = direct.call("GET", "/api/v1/namespaces/team", &Value::Null);
    assert_eq!((code, &team["status"]["phase"]), (200, &json!("Terminating")));
    assert_eq!(
        direct
            .call("POST", maps, &json!({"metadata": {"name": "late"}}))
            .0,
        403
    );
    direct.call(
        "PATCH",
        &format!("{maps}/m"),
        &json!({"metadata": {"finalizers": null}}),
    );
    direct.settle();
    assert_eq!(direct.call("GET", "/api/v1/namespaces/team", &Value::Null).0, 404);
}

#[test]
fn stateful_sets_daemon_sets_and_jobs_come_to_their_end() {
    let mut direct = cluster();
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    let selector = json!({"matchLabels": {"a": "b"}});
    let set = json!({"metadata": {"name": "db"}, "spec": {"replicas": 2, "serviceName": "db", "selector": selector, "template": template,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}});
    assert_eq!(
        direct
            .call("POST", "/apis/apps/v1/namespaces/default/statefulsets", &set)
            .0,
        201
    );
    let daemon = json!({"metadata": {"name": "agent"}, "spec": {"selector": selector, "template": template}});
    assert_eq!(
        direct
            .call("POST", "/apis/apps/v1/namespaces/default/daemonsets", &daemon)
            .0,
        201
    );
    for (name, image) in [("good", "nginx"), ("bad", "failing")] {
        let job = json!({"metadata": {"name": name}, "spec": {"backoffLimit": 1, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": image}]}}}});
        assert_eq!(
            direct
                .call("POST", "/apis/batch/v1/namespaces/default/jobs", &job)
                .0,
            201
        );
    }
    direct.settle();
    let (_, set) = direct.call(
        "GET",
        "/apis/apps/v1/namespaces/default/statefulsets/db",
        &Value::Null,
    );
    assert_eq!(
        (&set["status"]["readyReplicas"], &set["status"]["currentReplicas"]),
        (&json!(2), &json!(2))
    );
    let (_, claim) = direct.call(
        "GET",
        "/api/v1/namespaces/default/persistentvolumeclaims/data-db-1",
        &Value::Null,
    );
    assert_eq!(claim["status"]["phase"], "Bound");
    let (_, daemon) = direct.call(
        "GET",
        "/apis/apps/v1/namespaces/default/daemonsets/agent",
        &Value::Null,
    );
    assert_eq!(daemon["status"]["numberReady"], 2);
    for (name, end) in [("good", "Complete"), ("bad", "Failed")] {
        let (_, job) = direct.call(
            "GET",
            &format!("/apis/batch/v1/namespaces/default/jobs/{name}"),
            &Value::Null,
        );
        let conditions = job["status"]["conditions"].as_array().unwrap();
        assert!(
            conditions
                .iter()
                .any(|one| one["type"] == end && one["status"] == "True"),
            "{name}: {}",
            job["status"]
        );
    }
}

#[test]
fn the_same_seed_and_the_same_requests_give_the_same_state() {
    let run = || {
        let mut direct = cluster();
        direct.call("POST", DEPLOYMENTS, &deployment("nginx:1", 3));
        direct.settle();
        direct.call("GET", "/api/v1/pods", &Value::Null).1
    };
    assert_eq!(run(), run());
}

#[test]
fn roles_decide_who_may_do_what() {
    let mut direct = cluster();
    let ask = |direct: &mut Direct, method: &str, target: &str| {
        let request = http::Request::builder()
            .method(method)
            .uri(target)
            .header("authorization", format!("Bearer {POWERLESS_TOKEN}"))
            .body(bytes::Bytes::new())
            .unwrap();
        match direct.server.handle(&request, direct.now) {
            argosy_simulation::Answer::Document(response) => response.status().as_u16(),
            _ => 0,
        }
    };
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(ask(&mut direct, "GET", maps), 403);
    assert_eq!(ask(&mut direct, "GET", "/api/v1"), 200);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]});
    direct.call("POST", &format!("{rbac}/roles"), &role);
    let binding = json!({"metadata": {"name": "reader"}, "roleRef": {"kind": "Role", "name": "reader"}, "subjects": [{"kind": "User", "name": "powerless"}]});
    direct.call("POST", &format!("{rbac}/rolebindings"), &binding);
    assert_eq!(ask(&mut direct, "GET", maps), 200);
    assert_eq!(ask(&mut direct, "GET", &format!("{maps}/x")), 403);
    assert_eq!(ask(&mut direct, "GET", "/api/v1/configmaps"), 403);
}
