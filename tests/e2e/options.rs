//! Sync options and kinds of syncs on a real API server: each alone, asked for as Argo CD's API server asks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use argosy_test_cluster::api::{Api, Kind, kinds};
use argosy_test_cluster::git::Repository;
use serde_json::{Value, json};

use crate::harness::{self, PATIENCE, config_map, run, wait, wait_app};

/// An Application that syncs only when it is asked to.
pub(crate) struct App {
    pub(crate) api: Api,
    pub(crate) control_plane: String,
    pub(crate) name: &'static str,
    pub(crate) repository: Repository,
}

impl App {
    pub(crate) async fn new(name: &'static str, options: &[&str], files: &[(&str, &str)]) -> Result<Self> {
        let installation = harness::installation().await;
        let app = App {
            api: installation.api().clone(),
            control_plane: installation.namespace().to_owned(),
            name,
            repository: harness::repository(name)?,
        };
        app.commit(files)?;
        let source = json!({"repoURL": app.repository.url(), "path": "app", "targetRevision": "main"});
        let mut object = harness::application(&app.control_plane, name, source);
        object["spec"]["syncPolicy"] = json!({"syncOptions": options});
        app.api.create(kinds::APPLICATION, &object).await?;
        Ok(app)
    }

    pub(crate) fn commit(&self, files: &[(&str, &str)]) -> Result<String> {
        for (name, text) in files {
            self.repository.write(&format!("app/{name}.yaml"), text)?;
        }
        self.repository.commit("change")
    }

    /// Asks for a sync with the spec's options and these fields, and waits for its end.
    pub(crate) async fn sync(&self, fields: Value) -> Result<Value> {
        let number = self.ask(fields).await?;
        self.ended(&number).await
    }

    /// Asks for a sync; by the number in the answer it is known again.
    pub(crate) async fn ask(&self, fields: Value) -> Result<String> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed).to_string();
        harness::refresh(&self.api, &self.control_plane, self.name).await?;
        let app = wait_app(&self.api, &self.control_plane, self.name, "refreshed", |app| {
            app["metadata"]["annotations"]["argocd.argoproj.io/refresh"].is_null()
                && !app["status"]["reconciledAt"].is_null()
        })
        .await?;
        let mut sync = json!({"syncOptions": app["spec"]["syncPolicy"]["syncOptions"]});
        for (name, value) in fields.as_object().into_iter().flatten() {
            sync[name] = value.clone();
        }
        let operation = json!({"operation": {
            "sync": sync,
            "initiatedBy": {"username": "tester"},
            "info": [{"name": "number", "value": number}],
        }});
        self.api
            .merge_patch(kinds::APPLICATION, &self.control_plane, self.name, &operation)
            .await?;
        Ok(number)
    }

    /// Waits for the end of a sync.
    pub(crate) async fn ended(&self, number: &str) -> Result<Value> {
        let app = wait_app(&self.api, &self.control_plane, self.name, "synced", |app| {
            let state = &app["status"]["operationState"];
            state["operation"]["info"][0]["value"] == number
                && ["Succeeded", "Failed", "Error"]
                    .iter()
                    .any(|phase| state["phase"] == *phase)
        })
        .await?;
        Ok(app["status"]["operationState"].clone())
    }

    pub(crate) async fn synced(&self, fields: Value) -> Result<Value> {
        let state = self.sync(fields).await?;
        assert_eq!(state["phase"], "Succeeded", "{state:#}");
        Ok(state)
    }

    pub(crate) async fn config_map(&self, name: &str) -> Result<Option<Value>> {
        self.api.get(kinds::CONFIG_MAP, self.name, name).await
    }
}

/// The result of one resource: code and message.
pub(crate) fn result(state: &Value, kind: &str, name: &str) -> (String, String) {
    let resources = state["syncResult"]["resources"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let found = resources
        .iter()
        .find(|one| one["kind"] == kind && one["name"] == name);
    let text = |field: &str| {
        found
            .and_then(|one| one[field].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    (text("status"), text("message"))
}

pub(crate) const CREATE: &str = "CreateNamespace=true";

#[test]
fn the_destinations_namespace_gets_its_labels_and_keeps_those_of_others() {
    run(async {
        let app = App::new("managed-namespace", &[CREATE], &[("a", &config_map("a", "1"))]).await?;
        let labels = |labels: Value| json!({"spec": {"syncPolicy": {"managedNamespaceMetadata": {"labels": labels, "annotations": {"by": "git"}}}}});
        app.api
            .merge_patch(
                kinds::APPLICATION,
                &app.control_plane,
                app.name,
                &labels(json!({"team": "a"})),
            )
            .await?;
        app.synced(json!({})).await?;
        let foreign = json!({"metadata": {"labels": {"foreign": "stays"}}});
        app.api
            .merge_patch(kinds::NAMESPACE, "", app.name, &foreign)
            .await?;
        app.api
            .merge_patch(
                kinds::APPLICATION,
                &app.control_plane,
                app.name,
                &labels(json!({"team": "b"})),
            )
            .await?;
        app.synced(json!({})).await?;
        let namespace = app.api.get(kinds::NAMESPACE, "", app.name).await?.unwrap();
        assert_eq!(namespace["metadata"]["labels"]["team"], "b");
        assert_eq!(namespace["metadata"]["labels"]["foreign"], "stays");
        assert_eq!(namespace["metadata"]["annotations"]["by"], "git");
        assert!(
            namespace["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"].is_null(),
            "it is none of the Application's resources"
        );
        Ok(())
    });
}

#[test]
fn a_selective_sync_touches_what_is_named_and_leaves_no_history() {
    run(async {
        let hook = config_map("hook", "1").replace(
            "\ndata:",
            "\n  annotations: {argocd.argoproj.io/hook: PreSync}\ndata:",
        );
        let files = [
            ("a", config_map("a", "1")),
            ("b", config_map("b", "1")),
            ("hook", hook),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let app = App::new("selective", &[CREATE], &files).await?;
        app.synced(json!({"resources": [{"kind": "ConfigMap", "name": "a"}]}))
            .await?;
        assert!(app.config_map("a").await?.is_some());
        assert!(app.config_map("b").await?.is_none());
        assert!(
            app.config_map("hook").await?.is_none(),
            "a partial sync runs no hooks"
        );
        let status = app
            .api
            .get(kinds::APPLICATION, &app.control_plane, app.name)
            .await?
            .unwrap()["status"]
            .clone();
        assert!(status["history"].is_null(), "{status:#}");
        Ok(())
    });
}

#[test]
fn only_what_differs_is_applied_when_asked() {
    run(async {
        let files = [("a", config_map("a", "1")), ("b", config_map("b", "1"))];
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let app = App::new("differences", &[CREATE, "ApplyOutOfSyncOnly=true"], &files).await?;
        app.synced(json!({})).await?;
        app.commit(&[("b", &config_map("b", "2"))])?;
        let state = app.synced(json!({})).await?;
        assert_eq!(result(&state, "ConfigMap", "a").0, "", "a is in sync");
        assert_eq!(result(&state, "ConfigMap", "b").0, "Synced");
        Ok(())
    });
}

#[test]
fn ignored_fields_keep_their_live_values_when_asked() {
    run(async {
        let with = |owner: &str| {
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata: {{scale: '1', owner: {owner}}}\n"
            )
        };
        let app = App::new(
            "respect-ignored",
            &[CREATE, "RespectIgnoreDifferences=true"],
            &[("a", &with("git"))],
        )
        .await?;
        let ignore =
            json!({"spec": {"ignoreDifferences": [{"kind": "ConfigMap", "jsonPointers": ["/data/scale"]}]}});
        app.api
            .merge_patch(kinds::APPLICATION, &app.control_plane, app.name, &ignore)
            .await?;
        app.synced(json!({})).await?;
        let scaled = json!({"data": {"scale": "5"}});
        app.api
            .merge_patch(kinds::CONFIG_MAP, app.name, "a", &scaled)
            .await?;
        app.commit(&[("a", &with("somebody"))])?;
        app.synced(json!({})).await?;
        let data = app.config_map("a").await?.unwrap()["data"].clone();
        assert_eq!(data, json!({"scale": "5", "owner": "somebody"}));
        Ok(())
    });
}

#[test]
fn what_another_application_has_is_refused_when_asked() {
    run(async {
        let shared = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared, namespace: owner-of-it}\n";
        let owner = App::new("owner-of-it", &[CREATE], &[("shared", shared)]).await?;
        owner.synced(json!({})).await?;
        let app = App::new(
            "intruder",
            &[CREATE, "FailOnSharedResource=true"],
            &[("shared", shared)],
        )
        .await?;
        let state = app.sync(json!({})).await?;
        assert_eq!(state["phase"], "Failed");
        let message = state["message"].as_str().unwrap();
        assert!(message.starts_with("Shared resource found:"), "{message}");
        Ok(())
    });
}

#[test]
fn unknown_fields_are_refused_unless_validation_is_off() {
    run(async {
        let odd = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndta: {key: value}\n";
        let app = App::new("validated", &[CREATE], &[("a", odd)]).await?;
        let state = app.sync(json!({})).await?;
        assert_eq!(state["phase"], "Failed");
        assert!(
            result(&state, "ConfigMap", "a")
                .1
                .contains("unknown field \"dta\""),
            "{state:#}"
        );
        let state = app
            .sync(json!({"syncOptions": [CREATE, "Validate=false"]}))
            .await?;
        assert_eq!(state["phase"], "Succeeded");
        assert!(app.config_map("a").await?.is_some());
        Ok(())
    });
}

#[test]
fn what_may_not_be_pruned_stays_and_what_waits_for_approval_waits() {
    run(async {
        let with = |name: &str, option: &str| {
            config_map(name, "1").replace(
                "\ndata:",
                &format!("\n  annotations: {{argocd.argoproj.io/sync-options: {option}}}\ndata:"),
            )
        };
        let (kept, asked) = (with("kept", "Prune=false"), with("asked", "Prune=confirm"));
        let app = App::new(
            "pruning",
            &[CREATE],
            &[
                ("kept", &kept),
                ("asked", &asked),
                ("plain", &config_map("plain", "1")),
            ],
        )
        .await?;
        app.synced(json!({})).await?;
        for name in ["kept", "asked", "plain"] {
            app.repository.remove(&format!("app/{name}.yaml"))?;
        }
        app.commit(&[("other", &config_map("other", "1"))])?;

        let state = app.synced(json!({})).await?;
        assert_eq!(
            result(&state, "ConfigMap", "plain"),
            ("PruneSkipped".into(), "ignored (requires pruning)".into())
        );

        let approved = json!({"metadata": {"annotations": {"argocd.argoproj.io/deletion-approved": "2099-01-01T00:00:00Z"}}});
        app.api
            .merge_patch(kinds::APPLICATION, &app.control_plane, app.name, &approved)
            .await?;
        let state = app.synced(json!({"prune": true})).await?;
        assert_eq!(
            result(&state, "ConfigMap", "kept"),
            ("PruneSkipped".into(), "ignored (no prune)".into())
        );
        assert_eq!(result(&state, "ConfigMap", "asked").0, "Pruned");
        assert!(app.config_map("kept").await?.is_some());
        assert!(app.config_map("plain").await?.is_none());
        assert!(app.config_map("asked").await?.is_none());
        Ok(())
    });
}

#[test]
fn orphans_stay_behind_a_pruned_owner_when_asked() {
    run(async {
        let web = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 0\n  selector: {matchLabels: {app: web}}\n  \
                   template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: main, image: registry.example/web:1}]}\n";
        let app = App::new(
            "orphans",
            &[CREATE, "PrunePropagationPolicy=orphan"],
            &[("web", web)],
        )
        .await?;
        app.synced(json!({})).await?;
        let started = Instant::now();
        let mut sets = Vec::new();
        while sets.is_empty() && started.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(200)).await;
            sets = app.api.list(kinds::REPLICA_SET, app.name).await?;
        }
        assert_eq!(sets.len(), 1, "the Deployment has a ReplicaSet");
        app.repository.remove("app/web.yaml")?;
        app.commit(&[("other", &config_map("other", "1"))])?;
        app.synced(json!({"prune": true})).await?;
        wait(&app.api, kinds::DEPLOYMENT, app.name, "web", "gone", |object| {
            object.is_none()
        })
        .await?;
        assert_eq!(
            app.api.list(kinds::REPLICA_SET, app.name).await?.len(),
            1,
            "what it owned stays"
        );
        Ok(())
    });
}

#[test]
fn a_failure_runs_its_hooks_and_a_generated_name_is_new_each_time() {
    run(async {
        let hook = |kind: &str, name: &str| {
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  {name}\n  annotations: {{argocd.argoproj.io/hook: {kind}}}\n"
            )
        };
        let before = hook("PreSync", "generateName: before-");
        let failed = hook("SyncFail", "name: failed");
        let app = App::new(
            "failing",
            &[CREATE],
            &[
                ("before", &before),
                ("failed", &failed),
                ("a", &config_map("a", "1")),
            ],
        )
        .await?;
        app.synced(json!({})).await?;
        assert!(app.config_map("failed").await?.is_none());
        app.commit(&[(
            "a",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nwrong: {}\n",
        )])?;
        let state = app.sync(json!({})).await?;
        assert_eq!(state["phase"], "Failed");
        assert!(
            app.config_map("failed").await?.is_some(),
            "the hook of the failure ran"
        );
        let generated: Vec<Value> = app
            .api
            .list(kinds::CONFIG_MAP, app.name)
            .await?
            .into_iter()
            .map(|object| object["metadata"]["name"].clone())
            .filter(|name| {
                name.as_str()
                    .is_some_and(|name| name.starts_with("before-") && name.contains("-presync-"))
            })
            .collect();
        assert_eq!(generated.len(), 2, "{generated:?}");
        Ok(())
    });
}

#[test]
fn a_sync_to_an_older_revision_rolls_back() {
    run(async {
        let app = App::new("rollback", &[CREATE], &[("a", &config_map("a", "1"))]).await?;
        let first = app.repository.head()?;
        app.synced(json!({})).await?;
        app.commit(&[("a", &config_map("a", "2"))])?;
        app.synced(json!({})).await?;
        let state = app.synced(json!({"revision": first})).await?;
        assert_eq!(state["syncResult"]["revision"], first.as_str());
        assert_eq!(app.config_map("a").await?.unwrap()["data"]["key"], "1");
        let object = wait_app(
            &app.api,
            &app.control_plane,
            app.name,
            "OutOfSync with its target",
            |app| app["status"]["sync"]["status"] == "OutOfSync",
        )
        .await?;
        let ids: Vec<_> = object["status"]["history"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["id"].clone())
            .collect();
        assert_eq!(ids, [json!(0), json!(1), json!(2)]);
        Ok(())
    });
}

#[test]
fn a_kind_that_appears_later_is_tried_again_when_asked() {
    run(async {
        let thing = "apiVersion: late.example.com/v1\nkind: Latecomer\nmetadata: {name: x}\n";
        let app = App::new(
            "latecomer",
            &[CREATE],
            &[("x", thing), ("a", &config_map("a", "1"))],
        )
        .await?;
        let state = app.sync(json!({})).await?;
        assert_eq!(state["phase"], "Failed");
        assert!(
            state["message"]
                .as_str()
                .unwrap()
                .contains("could not find late.example.com/Latecomer"),
            "{state:#}"
        );
        assert!(app.config_map("a").await?.is_none(), "nothing of it was applied");
        let options = [CREATE, "SkipDryRunOnMissingResource=true"];
        let state = app.sync(json!({"syncOptions": options})).await?;
        assert_eq!(state["phase"], "Failed");
        assert!(app.config_map("a").await?.is_some(), "the rest was applied");

        app.api
            .create(
                kinds::CRD,
                &json!({
                    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                    "metadata": {"name": "latecomers.late.example.com"},
                    "spec": {"group": "late.example.com", "scope": "Namespaced",
                        "names": {"plural": "latecomers", "singular": "latecomer", "kind": "Latecomer", "listKind": "LatecomerList"},
                        "versions": [{"name": "v1", "served": true, "storage": true,
                            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
                }),
            )
            .await?;
        let latecomers = Kind {
            api_version: "late.example.com/v1",
            plural: "latecomers",
        };
        let started = Instant::now();
        while let Err(error) = app.api.list(latecomers, app.name).await {
            assert!(started.elapsed() < PATIENCE, "it is not served: {error:#}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let state = app.synced(json!({"syncOptions": options})).await?;
        assert_eq!(result(&state, "Latecomer", "x").0, "Synced");
        Ok(())
    });
}

#[test]
fn what_is_pruned_last_goes_once_the_rest_is_healthy() {
    run(async {
        let files = [("old", config_map("old", "1")), ("a", config_map("a", "1"))];
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let app = App::new("prune-last", &[CREATE, "PruneLast=true"], &files).await?;
        app.synced(json!({})).await?;
        app.repository.remove("app/old.yaml")?;
        let gate = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: gate}\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n      \
                    containers: [{name: main, image: registry.example/gate:1}]\n";
        app.commit(&[("gate", gate)])?;
        let sync = app.ask(json!({"prune": true})).await?;
        wait_app(
            &app.api,
            &app.control_plane,
            app.name,
            "waiting for the Job",
            |app| {
                let message = app["status"]["operationState"]["message"]
                    .as_str()
                    .unwrap_or_default();
                message == "waiting for healthy state of batch/Job/gate"
            },
        )
        .await?;
        assert!(app.config_map("old").await?.is_some(), "the Job is not done");
        harness::complete_job(&app.api, app.name, "gate").await?;
        let state = app.ended(&sync).await?;
        assert_eq!(state["phase"], "Succeeded", "{state:#}");
        assert_eq!(result(&state, "ConfigMap", "old").0, "Pruned");
        assert!(app.config_map("old").await?.is_none());
        Ok(())
    });
}

#[test]
fn a_dry_run_that_is_refused_is_a_difference_and_can_be_forced() {
    run(async {
        let web = |tier: &str| {
            format!(
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  replicas: 0\n  selector: {{matchLabels: {{app: web, tier: {tier}}}}}\n  \
                 template:\n    metadata: {{labels: {{app: web, tier: {tier}}}}}\n    spec: {{containers: [{{name: main, image: registry.example/web:1}}]}}\n"
            )
        };
        let app = App::new("by-dry-run", &[CREATE], &[("web", &web("one"))]).await?;
        let option = json!({"metadata": {"annotations": {"argocd.argoproj.io/compare-options": "ServerSideDiff=true"}}});
        app.api
            .merge_patch(kinds::APPLICATION, &app.control_plane, app.name, &option)
            .await?;
        app.synced(json!({})).await?;
        let synced = |app: &Value| app["status"]["sync"]["status"] == "Synced";
        wait_app(&app.api, &app.control_plane, app.name, "Synced", synced).await?;

        let revision = app.commit(&[("web", &web("two"))])?;
        let found = wait_app(&app.api, &app.control_plane, app.name, "OutOfSync", |app| {
            app["status"]["sync"]["status"] == "OutOfSync"
                && app["status"]["sync"]["revision"] == revision.as_str()
        })
        .await?;
        let told = found["status"]["conditions"].to_string();
        assert!(told.contains("field is immutable"), "{told}");
        assert_eq!(
            harness::condition(&found, "ComparisonError"),
            "",
            "a sync is not held back"
        );
        let state = app.sync(json!({})).await?;
        assert_eq!(state["phase"], "Failed");
        let options = json!([CREATE, "Replace=true", "Force=true"]);
        app.synced(json!({"syncOptions": options, "syncStrategy": {"apply": {"force": true}}}))
            .await?;
        wait_app(&app.api, &app.control_plane, app.name, "Synced", synced).await?;
        Ok(())
    });
}
