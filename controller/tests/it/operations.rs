//! Operations against a real API server. The manifests come with the operation, so no repo-server is needed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use argosy_controller::{Args, Surroundings};
use argosy_kube_io::ClusterAuth;
use argosy_runtime::clock;
use argosy_runtime::tasks::Tasks;
use argosy_shard_coordinator::own;
use argosy_test_cluster::api::{Api, Kind, kinds};
use argosy_test_cluster::{Binaries, Cluster as ControlPlane};
use clap::Parser as _;
use serde_json::{Value, json};

const NAMESPACE: &str = "argocd";
/// Long enough for a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(300);
const PODS: Kind = Kind {
    api_version: "v1",
    plural: "pods",
};
const PANELS: Kind = Kind {
    api_version: "example.com/v1",
    plural: "panels",
};
const WIDGETS: Kind = Kind {
    api_version: "example.com/v1",
    plural: "widgets",
};

#[test]
fn operations_on_a_real_cluster() {
    let server = ControlPlane::start(Binaries::locate().unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let world = World::new(&server).await;
        a_sync_creates_and_a_second_one_changes_nothing(&world).await;
        what_is_removed_is_removed_and_what_is_extra_is_pruned_when_asked(&world).await;
        refusals_carry_the_words_of_the_api_server(&world).await;
        a_hook_runs_once_and_goes(&world).await;
        a_running_hook_is_removed_when_the_operation_is_terminated(&world).await;
        a_definition_and_its_resource_come_in_one_sync(&world).await;
        a_comparison_by_dry_run_asks_the_server(&world).await;
        what_cannot_be_changed_is_replaced_when_forced(&world).await;
        a_definition_is_not_deleted_when_it_is_forced(&world).await;
        a_window_that_shuts_in_the_middle_holds_the_rest_back(&world).await;
        what_is_ignored_keeps_the_value_that_it_has_when_its_wave_comes(&world).await;
        a_dry_run_changes_nothing(&world).await;
        the_server_applies_when_asked_and_takes_over_what_was_applied_before(&world).await;
        a_failure_is_tried_again(&world).await;
        deletion_goes_backwards_through_the_waves(&world).await;
        a_fixed_shard_leaves_the_operations_of_others_alone(&world, &server).await;
        an_operation_goes_on_when_its_cluster_is_followed_anew(&world).await;
    });
}

#[derive(clap::Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

struct World {
    api: Api,
}

impl World {
    async fn new(server: &ControlPlane) -> World {
        let api = Api::connect(&server.kubeconfig()).await.unwrap();
        for crd in argosy_api::crds() {
            api.apply(kinds::CRD, &crd).await.unwrap();
        }
        let world = World { api };
        let args = world.control_plane(NAMESPACE, server).await;
        tokio::spawn(async move { argosy_controller::run(args).await.unwrap() });
        world
    }

    /// A control plane's namespace with its project, and how a controller of it is started.
    async fn control_plane(&self, name: &str, server: &ControlPlane) -> Args {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.api.apply(kinds::NAMESPACE, &namespace).await.unwrap();
        let project = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": "default", "namespace": name},
            "spec": {
                "sourceRepos": ["*"],
                "destinations": [{"server": "*", "namespace": "*"}],
                "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
            },
        });
        patiently(async || self.api.apply(kinds::PROJECT, &project).await.ok()).await;
        let arguments = [
            "controller".to_owned(),
            format!("--namespace={name}"),
            format!("--kubeconfig={}", server.kubeconfig().display()),
            "--repo-server=127.0.0.1:1".to_owned(),
            "--metrics-port=0".to_owned(),
            "--tree-port=0".to_owned(),
            "--sync-wave-delay-seconds=0".to_owned(),
        ];
        Command::parse_from(arguments).args
    }

    /// An Application whose namespace is its name.
    async fn application(&self, name: &str) {
        self.application_of(name, json!({"server": "https://kubernetes.default.svc"}))
            .await;
    }

    /// The same for another cluster, or one that is named otherwise.
    async fn application_of(&self, name: &str, mut destination: Value) {
        destination["namespace"] = name.into();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.api.apply(kinds::NAMESPACE, &namespace).await.unwrap();
        let app = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "project": "default",
                "source": {"repoURL": "https://git.example.com/shop.git", "path": "app"},
                "destination": destination,
            },
        });
        self.api.create(kinds::APPLICATION, &app).await.unwrap();
    }

    /// Asks for a sync with these manifests and further fields of the request.
    async fn ask(&self, app: &str, manifests: &[Value], request: Value) {
        let mut sync = json!({"manifests": manifests.iter().map(Value::to_string).collect::<Vec<_>>()});
        sync.as_object_mut()
            .unwrap()
            .extend(request.as_object().unwrap().clone());
        let retry = sync
            .as_object_mut()
            .unwrap()
            .remove("retry")
            .unwrap_or_else(|| json!({}));
        let operation =
            json!({"operation": {"sync": sync, "initiatedBy": {"username": "admin"}, "retry": retry}});
        self.api
            .merge_patch(kinds::APPLICATION, NAMESPACE, app, &operation)
            .await
            .unwrap();
    }

    async fn state(&self, app: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let app = self
                .api
                .get(kinds::APPLICATION, NAMESPACE, app)
                .await
                .unwrap()
                .unwrap();
            let state = &app["status"]["operationState"];
            if condition(&app) {
                return state.clone();
            }
            assert!(
                started.elapsed() < PATIENCE,
                "waiting for {what}: {state:#}\n{:#}",
                app["status"]["conditions"]
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the object is gone.
    async fn gone(&self, kind: Kind, namespace: &str, name: &str) {
        patiently(async || {
            let live = self.api.get(kind, namespace, name).await.unwrap();
            live.is_none().then_some(())
        })
        .await;
    }

    /// The end of the operation that is asked for.
    async fn end(&self, app: &str) -> Value {
        self.state(app, "the end of the operation", is_over).await
    }

    async fn sync(&self, app: &str, manifests: &[Value], request: Value) -> Value {
        self.ask(app, manifests, request).await;
        self.end(app).await
    }

    /// A sync in the middle of which something is done to ConfigMaps. It waits for a hook of the sync before to go, a ConfigMap too:
    /// changes of one kind are told in their order, so that what was done has been seen when the hook is seen to be gone.
    async fn sync_while(
        &self,
        app: &str,
        manifests: &[Value],
        request: Value,
        done: impl Future<Output = ()>,
    ) -> Value {
        let hook = annotated(
            config_map("before", json!({})),
            json!({"argocd.argoproj.io/hook": "PreSync"}),
        );
        let state = self.sync(app, std::slice::from_ref(&hook), json!({})).await;
        assert_eq!(said(&state).0, "Succeeded");
        let hold = async |finalizers: Value| {
            let patch = json!({"metadata": {"finalizers": finalizers}});
            self.api
                .merge_patch(kinds::CONFIG_MAP, app, "before", &patch)
                .await
                .unwrap();
        };
        hold(json!(["example.com/held"])).await;
        self.ask(app, &[&[hook][..], manifests].concat(), request).await;
        let waiting = "waiting for deletion of hook /ConfigMap/before";
        self.state(app, waiting, |app| {
            app["status"]["operationState"]["message"] == waiting
        })
        .await;
        done.await;
        hold(Value::Null).await;
        self.end(app).await
    }
}

/// Whether the operation that was asked for has ended.
fn is_over(app: &Value) -> bool {
    let phase = app["status"]["operationState"]["phase"]
        .as_str()
        .unwrap_or_default();
    app.get("operation").is_none_or(Value::is_null) && ["Succeeded", "Failed", "Error"].contains(&phase)
}

async fn patiently<T>(call: impl AsyncFn() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = call().await {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "it does not happen");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn annotated(mut object: Value, annotations: Value) -> Value {
    object["metadata"]["annotations"] = annotations;
    object
}

/// `Kind/name: status phase message`.
fn results(state: &Value) -> Vec<String> {
    let text = |result: &Value, field: &str| result[field].as_str().unwrap_or("-").to_owned();
    let results = state["syncResult"]["resources"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let line = |one: &Value| {
        format!(
            "{}/{}: {} {} {}",
            text(one, "kind"),
            text(one, "name"),
            text(one, "status"),
            text(one, "hookPhase"),
            text(one, "message")
        )
    };
    results.iter().map(line).collect()
}

fn said(state: &Value) -> (&str, &str) {
    (
        state["phase"].as_str().unwrap_or_default(),
        state["message"].as_str().unwrap_or_default(),
    )
}

async fn a_sync_creates_and_a_second_one_changes_nothing(world: &World) {
    world.application("first").await;
    let manifests = [
        config_map("a", json!({"x": "1"})),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}}),
    ];
    let state = world.sync("first", &manifests, json!({})).await;
    assert_eq!(said(&state), ("Succeeded", "successfully synced (all tasks run)"));
    assert_eq!(
        results(&state),
        [
            "Secret/s: Synced Running secret/s created",
            "ConfigMap/a: Synced Running configmap/a created"
        ]
    );
    let live = world
        .api
        .get(kinds::CONFIG_MAP, "first", "a")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        live["metadata"]["managedFields"][0]["manager"],
        "argocd-controller"
    );
    let applied = live["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
        .as_str()
        .unwrap();
    assert!(
        applied.ends_with("}\n") && applied.contains("\"data\":{\"x\":\"1\"}"),
        "{applied}"
    );
    assert_eq!(
        live["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"],
        "first:/ConfigMap:first/a"
    );

    let state = world.sync("first", &manifests, json!({})).await;
    assert_eq!(said(&state).0, "Succeeded");
    assert_eq!(
        results(&state),
        [
            "Secret/s: Synced Running secret/s unchanged",
            "ConfigMap/a: Synced Running configmap/a unchanged"
        ]
    );
    let again = world
        .api
        .get(kinds::CONFIG_MAP, "first", "a")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        live["metadata"]["resourceVersion"],
        again["metadata"]["resourceVersion"]
    );
    let app = world
        .api
        .get(kinds::APPLICATION, NAMESPACE, "first")
        .await
        .unwrap()
        .unwrap();
    let ids: Vec<i64> = app["status"]["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["id"].as_i64().unwrap())
        .collect();
    assert_eq!(ids, [0, 1]);
}

async fn what_is_removed_is_removed_and_what_is_extra_is_pruned_when_asked(world: &World) {
    world.application("second").await;
    let before = [
        config_map("a", json!({"x": "1", "y": "2"})),
        config_map("b", json!({})),
    ];
    assert_eq!(
        said(&world.sync("second", &before, json!({})).await).0,
        "Succeeded"
    );
    world
        .api
        .merge_patch(
            kinds::CONFIG_MAP,
            "second",
            "a",
            &json!({"data": {"other": "kept"}}),
        )
        .await
        .unwrap();
    let after = [config_map("a", json!({"x": "3"}))];
    let state = world.sync("second", &after, json!({})).await;
    assert_eq!(
        results(&state),
        [
            "ConfigMap/b: PruneSkipped Succeeded ignored (requires pruning)",
            "ConfigMap/a: Synced Running configmap/a configured"
        ]
    );
    let live = world
        .api
        .get(kinds::CONFIG_MAP, "second", "a")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        live["data"],
        json!({"x": "3", "other": "kept"}),
        "what nobody of us applied stays"
    );
    let state = world.sync("second", &after, json!({"prune": true})).await;
    assert_eq!(results(&state)[0], "ConfigMap/b: Pruned Succeeded pruned");
    // Deleted in the foreground: the garbage collector takes it away in its own time.
    world.gone(kinds::CONFIG_MAP, "second", "b").await;
}

async fn refusals_carry_the_words_of_the_api_server(world: &World) {
    world.application("refused").await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"selector": {"a": "b"}}});
    let state = world
        .sync("refused", &[service, config_map("good", json!({}))], json!({}))
        .await;
    assert_eq!(said(&state).0, "Failed");
    assert!(
        said(&state)
            .1
            .starts_with("one or more synchronization tasks completed unsuccessfully, reason: "),
        "{}",
        said(&state).1
    );
    assert!(
        said(&state).1.contains("spec.ports: Required value"),
        "{}",
        said(&state).1
    );
    assert!(
        world
            .api
            .get(kinds::CONFIG_MAP, "refused", "good")
            .await
            .unwrap()
            .is_some()
    );

    let misspelt =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "dota": {"x": "y"}});
    let state = world
        .sync("refused", std::slice::from_ref(&misspelt), json!({}))
        .await;
    assert_eq!(said(&state).0, "Failed");
    assert!(
        said(&state).1.contains("unknown field \"dota\""),
        "{}",
        said(&state).1
    );
    let state = world
        .sync(
            "refused",
            &[annotated(
                misspelt,
                json!({"argocd.argoproj.io/sync-options": "Validate=false"}),
            )],
            json!({}),
        )
        .await;
    assert_eq!(said(&state).0, "Succeeded", "{state:#}");

    let unknown = json!({"apiVersion": "example.org/v1", "kind": "Nothing", "metadata": {"name": "n"}});
    let state = world.sync("refused", &[unknown], json!({})).await;
    assert!(
        said(&state)
            .1
            .contains("Make sure the \"Nothing\" CRD is installed"),
        "{}",
        said(&state).1
    );
}

fn hook_pod(name: &str, policy: &str) -> Value {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}});
    annotated(
        pod,
        json!({"argocd.argoproj.io/hook": "PreSync", "argocd.argoproj.io/hook-delete-policy": policy}),
    )
}

async fn a_hook_runs_once_and_goes(world: &World) {
    world.application("hooks").await;
    let manifests = [hook_pod("migrate", "HookSucceeded"), config_map("a", json!({}))];
    world.ask("hooks", &manifests, json!({})).await;
    let waiting = "waiting for completion of hook /Pod/migrate";
    let state = world
        .state("hooks", waiting, |app| {
            app["status"]["operationState"]["message"] == waiting
        })
        .await;
    assert_eq!(
        (state["phase"].as_str(), results(&state).len()),
        (Some("Running"), 1)
    );
    let pod = world.api.get(PODS, "hooks", "migrate").await.unwrap().unwrap();
    assert_eq!(
        pod["metadata"]["finalizers"],
        json!(["argocd.argoproj.io/hook-finalizer"])
    );
    assert!(
        world
            .api
            .get(kinds::CONFIG_MAP, "hooks", "a")
            .await
            .unwrap()
            .is_none(),
        "nothing is applied before the hook has ended"
    );
    world
        .api
        .patch_status(
            PODS,
            "hooks",
            "migrate",
            &json!({"status": {"phase": "Succeeded"}}),
        )
        .await
        .unwrap();
    let state = world.end("hooks").await;
    assert_eq!(said(&state), ("Succeeded", "successfully synced (all tasks run)"));
    assert!(
        results(&state)[0].starts_with("Pod/migrate: Synced Succeeded"),
        "{:?}",
        results(&state)
    );
    world.gone(PODS, "hooks", "migrate").await;

    world.ask("hooks", &manifests, json!({})).await;
    world
        .state("hooks", waiting, |app| {
            app["status"]["operationState"]["message"] == waiting
        })
        .await;
    world
        .api
        .patch_status(
            PODS,
            "hooks",
            "migrate",
            &json!({"status": {"phase": "Failed", "message": "no luck"}}),
        )
        .await
        .unwrap();
    let state = world.end("hooks").await;
    assert_eq!(
        said(&state),
        (
            "Failed",
            "one or more synchronization tasks completed unsuccessfully"
        )
    );
}

async fn a_running_hook_is_removed_when_the_operation_is_terminated(world: &World) {
    world.application("stopped").await;
    world
        .ask(
            "stopped",
            &[
                hook_pod("endless", "BeforeHookCreation"),
                config_map("a", json!({})),
            ],
            json!({}),
        )
        .await;
    world
        .state("stopped", "the hook", |app| {
            app["status"]["operationState"]["message"] == "waiting for completion of hook /Pod/endless"
        })
        .await;
    let stop = json!({"status": {"operationState": {"phase": "Terminating"}}});
    world
        .api
        .merge_patch(kinds::APPLICATION, NAMESPACE, "stopped", &stop)
        .await
        .unwrap();
    let state = world.end("stopped").await;
    assert_eq!(said(&state), ("Failed", "Operation terminated"));
    world.gone(PODS, "stopped", "endless").await;
}

async fn a_definition_and_its_resource_come_in_one_sync(world: &World) {
    world.application("definitions").await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}}]},
    });
    let widget = |size: i64| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": size}});
    let state = world
        .sync("definitions", &[widget(1), definition.clone()], json!({}))
        .await;
    assert_eq!(
        said(&state),
        ("Succeeded", "successfully synced (all tasks run)"),
        "{state:#}"
    );
    assert_eq!(
        results(&state)[1],
        "Widget/w: Synced Running widget.example.com/w created"
    );
    let state = world
        .sync("definitions", &[widget(2), definition], json!({}))
        .await;
    assert_eq!(
        results(&state).get(1).map(String::as_str),
        Some("Widget/w: Synced Running widget.example.com/w configured"),
        "{state:#}"
    );
    assert_eq!(
        world.api.get(WIDGETS, "definitions", "w").await.unwrap().unwrap()["spec"]["size"],
        2
    );
}

/// The server knows that parts are told apart by name; a comparison of custom resources by their text does not.
async fn a_comparison_by_dry_run_asks_the_server(world: &World) {
    world.application("asked").await;
    let part = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}});
    let parts = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": part});
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"parts": parts}}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "panels.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "panels", "singular": "panel", "kind": "Panel", "listKind": "PanelList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    });
    let panel = |size: i64| {
        let parts = json!([{"name": "a", "size": size}]);
        let panel = json!({"apiVersion": "example.com/v1", "kind": "Panel", "metadata": {"name": "p"}, "spec": {"parts": parts}});
        annotated(
            panel,
            json!({"argocd.argoproj.io/compare-options": "ServerSideDiff=true"}),
        )
    };
    let synced = |state: &Value| {
        results(state)
            .into_iter()
            .filter(|line| line.starts_with("Panel/"))
            .collect::<Vec<_>>()
    };
    let state = world
        .sync("asked", &[definition.clone(), panel(1)], json!({}))
        .await;
    assert_eq!(
        synced(&state),
        ["Panel/p: Synced Running panel.example.com/p created"]
    );
    let by_hand = json!({"spec": {"parts": [{"name": "a", "size": 1}, {"name": "b", "size": 7}]}});
    world
        .api
        .merge_patch(PANELS, "asked", "p", &by_hand)
        .await
        .unwrap();

    let what_differs = json!({"syncOptions": ["ApplyOutOfSyncOnly=true"]});
    let state = world
        .sync("asked", &[definition.clone(), panel(1)], what_differs.clone())
        .await;
    assert_eq!(synced(&state), Vec::<String>::new(), "{state:#}");
    let state = world.sync("asked", &[definition, panel(2)], what_differs).await;
    assert_eq!(
        synced(&state),
        ["Panel/p: Synced Running panel.example.com/p configured"]
    );
}

async fn what_cannot_be_changed_is_replaced_when_forced(world: &World) {
    world.application("forced").await;
    let deployment = |tier: &str, options: &str| {
        let labels = json!({"app": "web", "tier": tier});
        annotated(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
            "replicas": 0, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}}}}),
            json!({"argocd.argoproj.io/sync-options": options}),
        )
    };
    assert_eq!(
        said(&world.sync("forced", &[deployment("a", "")], json!({})).await).0,
        "Succeeded"
    );
    let first = world
        .api
        .get(kinds::DEPLOYMENT, "forced", "web")
        .await
        .unwrap()
        .unwrap();
    let state = world.sync("forced", &[deployment("b", "")], json!({})).await;
    assert_eq!(said(&state).0, "Failed");
    assert!(
        said(&state).1.contains("field is immutable"),
        "{}",
        said(&state).1
    );
    let state = world
        .sync(
            "forced",
            &[deployment("b", "Force=true, Replace=true")],
            json!({}),
        )
        .await;
    assert_eq!(
        results(&state),
        ["Deployment/web: Synced Running deployment.apps/web replaced"]
    );
    let second = world
        .api
        .get(kinds::DEPLOYMENT, "forced", "web")
        .await
        .unwrap()
        .unwrap();
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    let state = world
        .sync("forced", &[deployment("c", "Force=true")], json!({}))
        .await;
    // Replace counts as well where only the live object asks for it.
    assert_eq!(
        results(&state),
        ["Deployment/web: Synced Running deployment.apps/web replaced"]
    );
    let third = world
        .api
        .get(kinds::DEPLOYMENT, "forced", "web")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(third["spec"]["selector"]["matchLabels"]["tier"], "c");
    let state = world
        .sync("forced", &[deployment("c", "Replace=true")], json!({}))
        .await;
    assert_eq!(
        results(&state),
        ["Deployment/web: Synced Running deployment.apps/web replaced"]
    );
}

async fn a_definition_is_not_deleted_when_it_is_forced(world: &World) {
    world.application("definition").await;
    let definition = |scope: &str| {
        annotated(
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gadgets.example.com"},
                "spec": {"group": "example.com", "scope": scope, "names": {"kind": "Gadget", "plural": "gadgets"},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}),
            json!({"argocd.argoproj.io/sync-options": "Force=true"}),
        )
    };
    let sync = async |scope: &str| world.sync("definition", &[definition(scope)], json!({})).await;
    let uid = async || {
        let live = world
            .api
            .get(kinds::CRD, "", "gadgets.example.com")
            .await
            .unwrap();
        live.unwrap()["metadata"]["uid"].clone()
    };
    assert_eq!(said(&sync("Namespaced").await).0, "Succeeded");
    let before = uid().await;
    let state = sync("Cluster").await;
    assert_eq!(said(&state).0, "Failed", "{state:#}");
    assert_eq!(
        uid().await,
        before,
        "all of its resources would have gone with it"
    );
}

async fn a_window_that_shuts_in_the_middle_holds_the_rest_back(world: &World) {
    for name in ["window", "window-too"] {
        world.application(name).await;
    }
    let windows = async |windows: Value| {
        let spec = json!({"spec": {"syncWindows": windows}});
        world
            .api
            .merge_patch(kinds::PROJECT, NAMESPACE, "default", &spec)
            .await
            .unwrap();
    };
    let told = |text: &'static str| {
        move |app: &Value| app["status"]["operationState"]["message"].as_str() == Some(text)
    };
    let manifests = [
        hook_pod("before", "BeforeHookCreation"),
        config_map("a", json!({})),
    ];
    world.ask("window", &manifests, json!({})).await;
    world
        .state(
            "window",
            "the hook",
            told("waiting for completion of hook /Pod/before"),
        )
        .await;
    let deny = json!([{"kind": "deny", "schedule": "* * * * *", "duration": "1h", "applications": ["window", "window-too"]}]);
    windows(deny).await;
    // Projects are told of by themselves: the window is known when it holds somebody back.
    let held = "Sync operation blocked by sync window";
    patiently(async || {
        world.ask("window-too", &manifests[1..], json!({})).await;
        let seen = |app: &Value| is_over(app) || told(held)(app);
        let state = world.state("window-too", "the window, or its end", seen).await;
        (said(&state).1 == held).then_some(())
    })
    .await;
    world
        .api
        .patch_status(
            PODS,
            "window",
            "before",
            &json!({"status": {"phase": "Succeeded"}}),
        )
        .await
        .unwrap();
    world.state("window", "the window", told(held)).await;
    let config = async || world.api.get(kinds::CONFIG_MAP, "window", "a").await.unwrap();
    assert!(config().await.is_none(), "it was not yet the turn of the rest");
    windows(json!([])).await;
    assert_eq!(said(&world.end("window").await).0, "Succeeded");
    assert!(config().await.is_some());
}

async fn what_is_ignored_keeps_the_value_that_it_has_when_its_wave_comes(world: &World) {
    world.application("scaled").await;
    let ignored = json!({"spec": {"ignoreDifferences": [{"group": "", "kind": "ConfigMap", "jsonPointers": ["/data/size"]}]}});
    world
        .api
        .merge_patch(kinds::APPLICATION, NAMESPACE, "scaled", &ignored)
        .await
        .unwrap();
    let first = [config_map("a", json!({"size": "1", "x": "1"}))];
    assert_eq!(
        said(&world.sync("scaled", &first, json!({})).await).0,
        "Succeeded"
    );
    let second = [config_map("a", json!({"size": "1", "x": "2"}))];
    let respect = json!({"syncOptions": ["RespectIgnoreDifferences=true"]});
    // While the plan waits, somebody scales.
    let scale = async {
        let size = json!({"data": {"size": "9"}});
        world
            .api
            .merge_patch(kinds::CONFIG_MAP, "scaled", "a", &size)
            .await
            .unwrap();
    };
    let state = world.sync_while("scaled", &second, respect, scale).await;
    assert_eq!(said(&state).0, "Succeeded", "{state:#}");
    let live = world.api.get(kinds::CONFIG_MAP, "scaled", "a").await.unwrap();
    assert_eq!(live.unwrap()["data"], json!({"size": "9", "x": "2"}));
}

async fn a_dry_run_changes_nothing(world: &World) {
    world.application("dry").await;
    let state = world
        .sync("dry", &[config_map("a", json!({}))], json!({"dryRun": true}))
        .await;
    assert_eq!(said(&state), ("Succeeded", "successfully synced (no more tasks)"));
    assert_eq!(
        results(&state),
        ["ConfigMap/a: Synced Succeeded configmap/a created (dry run)"]
    );
    assert!(
        world
            .api
            .get(kinds::CONFIG_MAP, "dry", "a")
            .await
            .unwrap()
            .is_none()
    );
    let app = world
        .api
        .get(kinds::APPLICATION, NAMESPACE, "dry")
        .await
        .unwrap()
        .unwrap();
    assert!(app["status"]["history"].is_null(), "a dry run leaves no history");
}

async fn the_server_applies_when_asked_and_takes_over_what_was_applied_before(world: &World) {
    world.application("server").await;
    let options = json!({"syncOptions": ["ServerSideApply=true"]});
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "server"}, "data": {"x": "1", "gone": "1"}});
    let create = async {
        world.api.create(kinds::CONFIG_MAP, &theirs).await.unwrap();
    };
    let manager = json!({"argocd.argoproj.io/client-side-apply-migration-manager": "kubectl"});
    let ours = [annotated(config_map("a", json!({"x": "2"})), manager)];
    let state = world.sync_while("server", &ours, options, create).await;
    let line = "ConfigMap/a: Synced Running configmap/a serverside-applied";
    assert!(results(&state).iter().any(|one| one == line), "{state:#}");
    let live = world
        .api
        .get(kinds::CONFIG_MAP, "server", "a")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        live["data"],
        json!({"x": "2"}),
        "what the old manager had applied and Git does not state is gone"
    );
    let managers: Vec<&str> = live["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["manager"].as_str().unwrap())
        .collect();
    assert_eq!(managers, ["argocd-controller"]);
}

async fn a_failure_is_tried_again(world: &World) {
    world.application("again").await;
    let elsewhere =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "later"}});
    let retry = json!({"limit": 300, "backoff": {"duration": "1s", "factor": 1}});
    world.ask("again", &[elsewhere], json!({"retry": retry})).await;
    let pausing = |app: &Value| {
        app["status"]["operationState"]["retryCount"].as_i64() >= Some(1)
            && app["status"]["operationState"]["finishedAt"].is_string()
    };
    let state = world.state("again", "the pause before a retry", pausing).await;
    assert_eq!(state["phase"], "Running");
    assert!(
        said(&state).1.contains(". Retrying attempt #"),
        "{}",
        said(&state).1
    );
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}});
    world.api.apply(kinds::NAMESPACE, &namespace).await.unwrap();
    let state = world.end("again").await;
    assert_eq!(said(&state).0, "Succeeded", "{state:#}");
    assert!(state["retryCount"].as_i64().unwrap() >= 1);
}

async fn deletion_goes_backwards_through_the_waves(world: &World) {
    world.application("farewell").await;
    let wave = |name: &str, wave: &str, more: Value| {
        let mut object = annotated(
            config_map(name, json!({})),
            json!({"argocd.argoproj.io/sync-wave": wave}),
        );
        object["metadata"]
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        object
    };
    let held = json!({"finalizers": ["example.com/held"]});
    let kept = annotated(
        config_map("kept", json!({})),
        json!({"argocd.argoproj.io/sync-options": "Delete=false"}),
    );
    let state = world
        .sync(
            "farewell",
            &[wave("one", "1", json!({})), wave("two", "2", held), kept],
            json!({}),
        )
        .await;
    assert_eq!(said(&state).0, "Succeeded");
    let finalizer = json!({"metadata": {"finalizers": ["resources-finalizer.argocd.argoproj.io"]}});
    world
        .api
        .merge_patch(kinds::APPLICATION, NAMESPACE, "farewell", &finalizer)
        .await
        .unwrap();
    world
        .api
        .delete(kinds::APPLICATION, NAMESPACE, "farewell")
        .await
        .unwrap();
    patiently(async || {
        let two = world.api.get(kinds::CONFIG_MAP, "farewell", "two").await.unwrap();
        two.filter(|two| two["metadata"]["deletionTimestamp"].is_string())
    })
    .await;
    assert!(
        world
            .api
            .get(kinds::CONFIG_MAP, "farewell", "one")
            .await
            .unwrap()
            .is_some(),
        "wave 1 waits for wave 2"
    );
    world
        .api
        .merge_patch(
            kinds::CONFIG_MAP,
            "farewell",
            "two",
            &json!({"metadata": {"finalizers": null}}),
        )
        .await
        .unwrap();
    world.gone(kinds::APPLICATION, NAMESPACE, "farewell").await;
    assert!(
        world
            .api
            .get(kinds::CONFIG_MAP, "farewell", "one")
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        world
            .api
            .get(kinds::CONFIG_MAP, "farewell", "kept")
            .await
            .unwrap()
            .is_some()
    );
}

fn cluster_secret(namespace: &str, name: &str, fields: Value) -> Value {
    let labels = json!({"argocd.argoproj.io/secret-type": "cluster"});
    let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": fields})
}

/// The others may be Argo CD's.
async fn a_fixed_shard_leaves_the_operations_of_others_alone(world: &World, server: &ControlPlane) {
    const CONTROL_PLANE: &str = "argocd-fixed";
    let args = world.control_plane(CONTROL_PLANE, server).await;
    // Nobody listens there, so that what is asked for comes to an end soon.
    let away = "https://127.0.0.1:1";
    let secret = json!({"name": "away", "server": away, "shard": "1", "config": "{}"});
    let secret = cluster_secret(CONTROL_PLANE, "away", secret);
    world.api.create(kinds::SECRET, &secret).await.unwrap();
    for (name, destination) in [("theirs", "https://kubernetes.default.svc"), ("ours", away)] {
        let app = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": name, "namespace": CONTROL_PLANE},
            "spec": {
                "project": "default",
                "source": {"repoURL": "https://git.example.com/shop.git", "path": "app"},
                "destination": {"server": destination, "namespace": "default"},
            },
            "operation": {
                "sync": {"manifests": [config_map("a", json!({})).to_string()]},
                "initiatedBy": {"username": "admin"},
            },
        });
        world.api.create(kinds::APPLICATION, &app).await.unwrap();
    }
    let env = |name: &str| match name {
        "ARGOSY_SHARDING" => Some("fixed".to_owned()),
        "ARGOCD_CONTROLLER_REPLICAS" => Some("2".to_owned()),
        "ARGOCD_CONTROLLER_SHARD" => Some("1".to_owned()),
        _ => None,
    };
    let around = Surroundings {
        auth: ClusterAuth::kubeconfig(Some(&server.kubeconfig()), None)
            .await
            .unwrap(),
        shard: own::read(env, "host").unwrap(),
        repo: None,
        clock: Arc::new(clock::System),
    };
    let tasks = Tasks::new();
    let its = tasks.clone();
    let started = tokio::spawn(async move { argosy_controller::start(args, around, &its).await });
    started.await.unwrap().unwrap();
    let app = async |name: &str| {
        let app = world.api.get(kinds::APPLICATION, CONTROL_PLANE, name).await;
        app.unwrap().unwrap()
    };
    let ours = patiently(async || Some(app("ours").await).filter(is_over)).await;
    assert_eq!(
        said(&ours["status"]["operationState"]).0,
        "Error",
        "it cannot be reached"
    );
    let theirs = app("theirs").await;
    assert!(theirs["operation"].is_object(), "{theirs:#}");
    assert!(theirs["status"]["operationState"].is_null(), "{theirs:#}");
    tasks.stop();
}

/// What was known of it before never changes again.
async fn an_operation_goes_on_when_its_cluster_is_followed_anew(world: &World) {
    world.application("anew").await;
    let manifests = [hook_pod("migrate", "HookSucceeded"), config_map("a", json!({}))];
    world.ask("anew", &manifests, json!({})).await;
    let waiting = "waiting for completion of hook /Pod/migrate";
    world
        .state("anew", waiting, |app| {
            app["status"]["operationState"]["message"] == waiting
        })
        .await;
    let secret = json!({"name": "renamed", "server": "https://kubernetes.default.svc", "config": "{}"});
    let secret = cluster_secret(NAMESPACE, "renamed", secret);
    world.api.create(kinds::SECRET, &secret).await.unwrap();
    // Who names it as the Secret does is synced once the Secret counts.
    world.application_of("told", json!({"name": "renamed"})).await;
    patiently(async || {
        let state = world.sync("told", &[config_map("a", json!({}))], json!({})).await;
        (said(&state).0 == "Succeeded").then_some(())
    })
    .await;
    let done = json!({"status": {"phase": "Succeeded"}});
    let written = world.api.patch_status(PODS, "anew", "migrate", &done).await;
    written.unwrap();
    let state = world.end("anew").await;
    assert_eq!(said(&state), ("Succeeded", "successfully synced (all tasks run)"));
}
