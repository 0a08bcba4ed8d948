//! The JSON that Argo CD's clients and Kubernetes see, written out where it is not what one would guess.

use argosy_api::meta::{IntOrString, Time};
use argosy_api::v1alpha1::{
    AppProject, Application, ApplicationSet, ApplicationSource, ApplicationSourcePluginParameter,
    ConnectionState, OperationState, ResourceNode, ResourceOverride, Stored, SyncPolicyAutomated,
    SyncStrategy,
};
use serde_json::{Value, from_value, json, to_value};

/// Reads and writes; what comes out must be what went in.
fn same<T: serde::de::DeserializeOwned + serde::Serialize>(value: Value) -> T {
    let read: T = from_value(value.clone()).unwrap();
    assert_eq!(to_value(&read).unwrap(), value);
    read
}

#[test]
fn an_empty_application_writes_what_argo_cd_always_writes() {
    assert_eq!(
        Application::default().to_document(),
        json!({
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {},
            "spec": {"destination": {}, "project": ""},
            "status": {
                "health": {},
                "sourceHydrator": {},
                "summary": {},
                "sync": {"comparedTo": {"destination": {}, "source": {"repoURL": ""}}, "status": ""}
            }
        })
    );
}

#[test]
fn the_hook_strategy_is_inline() {
    let strategy: SyncStrategy = same(json!({"hook": {"force": true}}));
    assert!(strategy.hook.unwrap().sync_strategy_apply.force);
    let bare: SyncStrategy = same(json!({"hook": {}}));
    assert!(bare.hook.is_some());
}

#[test]
fn automated_is_on_without_a_word_and_off_with_one() {
    assert_eq!(same::<SyncPolicyAutomated>(json!({})).enabled, None);
    assert_eq!(
        same::<SyncPolicyAutomated>(json!({"enabled": false})).enabled,
        Some(false)
    );
    assert_eq!(
        same::<SyncPolicyAutomated>(json!({"enabled": true, "prune": true})).enabled,
        Some(true)
    );
}

#[test]
fn empty_plugin_parameters_stay_present() {
    let empty: ApplicationSourcePluginParameter = same(json!({"name": "a", "map": {}, "array": []}));
    assert!(empty.map.is_some() && empty.array.is_some());
    let absent: ApplicationSourcePluginParameter = same(json!({"name": "a"}));
    assert!(absent.map.is_none() && absent.array.is_none());
    same::<ApplicationSourcePluginParameter>(json!({"name": "a", "string": ""}));
}

#[test]
fn a_tree_node_holds_its_reference_inline() {
    let node: ResourceNode = same(json!({
        "version": "v1", "kind": "Pod", "namespace": "shop", "name": "web-1", "uid": "u",
        "parentRefs": [{"group": "apps", "kind": "ReplicaSet", "namespace": "shop", "name": "web", "version": "v1"}],
        "createdAt": "2026-01-02T03:04:05Z", "health": {"status": "Healthy"}
    }));
    assert_eq!(node.resource_ref.name, "web-1");
}

#[test]
fn a_connection_says_when_it_was_attempted() {
    let state: ConnectionState =
        same(json!({"status": "Failed", "message": "refused", "attemptedAt": "2026-01-02T03:04:05Z"}));
    assert_eq!(state.attempted_at.unwrap().seconds, 1_767_323_045);
    same::<ConnectionState>(json!({"status": "", "message": "", "attemptedAt": null}));
}

#[test]
fn an_override_speaks_the_keys_of_the_config_map() {
    let rules = r#"{"jsonPointers":["/spec/replicas"],"jqPathExpressions":[],"managedFieldsManagers":[]}"#;
    let read: ResourceOverride = from_value(
        json!({"health.lua": "return {}", "health.lua.useOpenLibs": true, "ignoreDifferences": rules}),
    )
    .unwrap();
    assert_eq!(
        to_value(&read).unwrap(),
        json!({
            "health.lua": "return {}",
            "health.lua.useOpenLibs": true,
            "ignoreDifferences":
                "jqPathExpressions: null\njsonPointers:\n- \"/spec/replicas\"\nmanagedFieldsManagers: null\n",
            "ignoreResourceUpdates": "jqPathExpressions: null\njsonPointers: null\nmanagedFieldsManagers: null\n"
        })
    );
}

#[test]
fn a_running_operation_reads_back() {
    let state: OperationState = same(json!({
        "operation": {"sync": {"revision": "abc", "prune": true}, "initiatedBy": {"automated": true}, "retry": {"limit": 5}},
        "phase": "Running",
        "message": "one or more tasks are running",
        "startedAt": "2026-01-02T03:04:05Z",
        "syncResult": {
            "resources": [{
                "group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop", "name": "web",
                "status": "Synced", "message": "deployment.apps/web configured", "hookPhase": "Running", "syncPhase": "Sync"
            }],
            "revision": "abc", "source": {"repoURL": "https://host/a", "path": "."}
        }
    }));
    assert_eq!(state.operation.retry.limit, 5);
}

#[test]
fn an_empty_kind_list_is_not_an_absent_one() {
    let spec =
        |list: Value| json!({"metadata": {}, "spec": {"namespaceResourceWhitelist": list}, "status": {}});
    let closed: AppProject = same(spec(json!([])));
    assert_ne!(closed.spec.namespace_resource_whitelist, []);
    let open: AppProject = same(json!({"metadata": {}, "spec": {}, "status": {}}));
    assert_eq!(open.spec.namespace_resource_whitelist, []);
    same::<AppProject>(spec(json!([{"group": "apps", "kind": "*"}])));
}

#[test]
fn helm_values_keep_their_nulls() {
    let source: ApplicationSource = same(json!({
        "repoURL": "https://host/a", "helm": {"valuesObject": {"sidecar": null, "replicas": 2, "ratio": 0.5}}
    }));
    assert_eq!(
        source.helm.unwrap().values_object.unwrap().to_value().unwrap()["replicas"],
        2
    );
}

#[test]
fn times_are_read_with_any_offset_and_written_in_utc_seconds() {
    for (text, written) in [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T05:04:05.678+02:00", "2026-01-02T03:04:05Z"),
    ] {
        assert_eq!(
            to_value(from_value::<Time>(text.into()).unwrap()).unwrap(),
            written
        );
    }
    assert!(from_value::<Time>("yesterday".into()).is_err());
}

#[test]
fn integers_and_percentages_stay_what_they_are() {
    assert_eq!(same::<IntOrString>(json!(3)).to_int(), Some(3));
    assert!(same::<IntOrString>(json!("25%")).is_text());
    assert_eq!(same::<IntOrString>(json!("3")).to_int(), Some(3));
}

#[test]
fn what_is_unknown_is_passed_over_and_what_is_wrong_is_named() {
    let mut document = Application::default().to_document();
    document["metadata"]["name"] = "shop".into();
    document["metadata"]["namespace"] = "argocd".into();
    document["metadata"]["creationTimestamp"] = Value::Null;
    document["spec"]["fromTheFuture"] = json!({"a": 1});
    assert_eq!(
        Application::from_document(&document).unwrap().metadata.name,
        "shop"
    );

    document["spec"]["project"] = json!(7);
    let error = Application::from_document(&document).unwrap_err();
    assert_eq!(error.to_string(), "read Application argocd/shop");
    let error = ApplicationSet::from_document(&document).unwrap_err();
    assert_eq!(
        error.to_string(),
        "read ApplicationSet: the document is a Application of argoproj.io/v1alpha1"
    );
}

#[test]
fn a_set_that_go_wrote_with_nulls_is_read() {
    let set: ApplicationSet = from_value(json!({
        "metadata": {"name": "a"},
        "spec": {"generators": null, "template": {"metadata": {}, "spec": {"destination": {}, "project": ""}}},
        "status": {"applicationStatus": [
            {"application": "a", "message": "", "status": "Waiting", "step": "1", "targetRevisions": null}
        ]}
    }))
    .unwrap();
    assert!(set.spec.generators.is_empty());
    assert!(set.status.application_status[0].target_revisions.is_empty());
}
