//! What others do to the objects of an Application: fields beside ours, deletions before ours, other versions of an API.

use anyhow::Result;
use argosy_test_cluster::api::{Kind, kinds};
use serde_json::{Value, json};

use crate::harness::{self, config_map, run, wait_app};
use crate::options::{App, CREATE, result};

const SCALER: Kind = Kind {
    api_version: "autoscaling/v2",
    plural: "horizontalpodautoscalers",
};

/// Waits for a status of the comparison.
async fn compared(app: &App, status: &str) -> Result<Value> {
    harness::refresh(&app.api, &app.control_plane, app.name).await?;
    wait_app(&app.api, &app.control_plane, app.name, status, |app| {
        app["status"]["sync"]["status"] == status
    })
    .await
}

#[test]
fn strict_takes_what_others_put_beside_ours_and_nothing_else() {
    run(async {
        let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  selector: {app: web}\n  \
                       ports: [{name: http, port: 80, targetPort: 8080}]\n";
        for (name, strict) in [
            ("strict-client", &[CREATE, "Strict=true"][..]),
            ("strict-server", &[CREATE, "Strict=true", "ServerSideApply=true"]),
        ] {
            let app = App::new(name, strict, &[("web", service), ("a", &config_map("a", "1"))]).await?;
            app.synced(json!({})).await?;
            compared(&app, "Synced").await?;

            let port = json!({"name": "debug", "port": 83, "targetPort": 83, "protocol": "TCP"});
            let before = app.api.get(kinds::SERVICE, name, "web").await?.unwrap();
            let ports = json!([before["spec"]["ports"][0].clone(), port]);
            let edit = json!({"metadata": {"labels": {"owner": "me"}}, "spec": {"ports": ports}});
            app.api.merge_patch(kinds::SERVICE, name, "web", &edit).await?;
            app.api
                .merge_patch(kinds::CONFIG_MAP, name, "a", &json!({"data": {"other": "x"}}))
                .await?;
            // Each is told of by itself.
            wait_app(&app.api, &app.control_plane, name, "both OutOfSync", |app| {
                let resources = app["status"]["resources"].as_array();
                let differ = resources
                    .into_iter()
                    .flatten()
                    .filter(|one| one["status"] == "OutOfSync");
                differ.count() == 2
            })
            .await?;

            let state = app.synced(json!({})).await?;
            let (_, message) = result(&state, "Service", "web");
            assert!(
                message.ends_with(", without what others had put beside it"),
                "{message}"
            );
            let after = app.api.get(kinds::SERVICE, name, "web").await?.unwrap();
            assert_eq!(after["spec"], before["spec"], "what the server assigned stays");
            assert_eq!(after["metadata"]["labels"], before["metadata"]["labels"]);
            assert_eq!(app.config_map("a").await?.unwrap()["data"], json!({"key": "1"}));
            compared(&app, "Synced").await?;
        }
        Ok(())
    });
}

#[test]
fn what_somebody_else_deletes_before_the_prune_counts_as_pruned() {
    run(async {
        let files = [("old", config_map("old", "1")), ("a", config_map("a", "1"))];
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let app = App::new("pruned-by-others", &[CREATE, "PruneLast=true"], &files).await?;
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
            |app| app["status"]["operationState"]["message"] == "waiting for healthy state of batch/Job/gate",
        )
        .await?;
        app.api.delete(kinds::CONFIG_MAP, app.name, "old").await?;
        harness::complete_job(&app.api, app.name, "gate").await?;
        let state = app.ended(&sync).await?;
        assert_eq!(state["phase"], "Succeeded", "{state:#}");
        assert_eq!(result(&state, "ConfigMap", "old").0, "Pruned");
        Ok(())
    });
}

#[test]
fn a_resource_in_an_older_version_of_its_api_is_compared_and_healed_in_it() {
    run(async {
        let scaler = "apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\nspec:\n  maxReplicas: 5\n  \
                      scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}\n  targetCPUUtilizationPercentage: 60\n";
        for (name, options) in [
            ("old-version-client", &[CREATE][..]),
            ("old-version-server", &[CREATE, "ServerSideApply=true"]),
        ] {
            let app = App::new(name, options, &[("web", scaler)]).await?;
            app.synced(json!({})).await?;
            compared(&app, "Synced").await?;
            let metric = |percent: u64| {
                json!({"spec": {"metrics": [{"type": "Resource", "resource": {"name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": percent}}}]}})
            };
            app.api.merge_patch(SCALER, name, "web", &metric(80)).await?;
            compared(&app, "OutOfSync").await?;
            app.synced(json!({})).await?;
            let live = app.api.get(SCALER, name, "web").await?.unwrap();
            assert_eq!(live["spec"]["metrics"], metric(60)["spec"]["metrics"]);
            compared(&app, "Synced").await?;
        }
        Ok(())
    });
}

#[test]
fn a_commit_elsewhere_is_no_reason_to_sync_where_paths_are_named() {
    run(async {
        let app = App::new("paths-named", &[CREATE], &[("a", &config_map("a", "1"))]).await?;
        app.synced(json!({})).await?;
        let first = compared(&app, "Synced").await?["status"]["sync"]["revision"].clone();
        let policy = json!({"metadata": {"annotations": {"argocd.argoproj.io/manifest-generate-paths": "."}},
            "spec": {"syncPolicy": {"automated": {}}}});
        app.api
            .merge_patch(kinds::APPLICATION, &app.control_plane, app.name, &policy)
            .await?;
        let by_hand = json!({"data": {"key": "by hand"}});
        app.api
            .merge_patch(kinds::CONFIG_MAP, app.name, "a", &by_hand)
            .await?;
        compared(&app, "OutOfSync").await?;

        app.repository.write("elsewhere/b.yaml", &config_map("b", "1"))?;
        let second = app.repository.commit("elsewhere")?;
        harness::refresh(&app.api, &app.control_plane, app.name).await?;
        let looked = wait_app(&app.api, &app.control_plane, app.name, "looked at", |app| {
            app["status"]["sync"]["revision"] == *second
        })
        .await?;
        // What starts a sync is written together with the status.
        assert!(looked["operation"].is_null(), "{looked:#}");
        assert_eq!(looked["status"]["sync"]["status"], "OutOfSync");
        assert_eq!(
            looked["status"]["operationState"]["syncResult"]["revision"],
            first
        );

        let third = app.commit(&[("c", &config_map("c", "1"))])?;
        harness::refresh(&app.api, &app.control_plane, app.name).await?;
        wait_app(&app.api, &app.control_plane, app.name, "synced", |app| {
            let state = &app["status"]["operationState"];
            state["phase"] == "Succeeded" && state["syncResult"]["revision"] == *third
        })
        .await?;
        assert_eq!(app.config_map("a").await?.unwrap()["data"], json!({"key": "1"}));
        Ok(())
    });
}

#[test]
fn a_sync_to_exact_revisions_takes_the_values_of_another_source_from_its_own() {
    run(async {
        let chart = "apiVersion: v2\nname: shop\nversion: 0.1.0\n";
        let template =
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {key: {{ .Values.key | quote }}}\n";
        let app = App::new("pinned-values", &[CREATE], &[("a", &config_map("a", "1"))]).await?;
        app.repository.write("chart/Chart.yaml", chart)?;
        app.repository.write("chart/templates/a.yaml", template)?;
        app.repository.write("values/shop.yaml", "key: old\n")?;
        let old = app.repository.commit("old")?;
        app.repository.write("values/shop.yaml", "key: new\n")?;
        let new = app.repository.commit("new")?;
        let sources = json!([
            {"repoURL": app.repository.url(), "path": "chart", "targetRevision": "main", "helm": {"valueFiles": ["$values/values/shop.yaml"]}},
            {"repoURL": app.repository.url(), "targetRevision": "main", "ref": "values"},
        ]);
        let spec = json!({"spec": {"source": null, "sources": sources}});
        app.api
            .merge_patch(kinds::APPLICATION, &app.control_plane, app.name, &spec)
            .await?;
        app.synced(json!({})).await?;
        let key = async || anyhow::Ok(app.config_map("a").await?.unwrap()["data"]["key"].clone());
        assert_eq!(key().await?, "new");
        let state = app
            .synced(json!({"sources": sources, "revisions": [new, old]}))
            .await?;
        assert_eq!(state["syncResult"]["revisions"], json!([new, old]));
        assert_eq!(key().await?, "old");
        Ok(())
    });
}

#[test]
fn a_retry_goes_to_the_newest_revision_when_asked() {
    run(async {
        let bad = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nwrong: {}\n";
        let app = App::new("retry-refresh", &[CREATE], &[("a", bad)]).await?;
        harness::refresh(&app.api, &app.control_plane, app.name).await?;
        let retry = json!({"limit": 20, "refresh": true, "backoff": {"duration": "1s", "factor": 1}});
        let operation = json!({"operation": {"sync": {"syncOptions": [CREATE]}, "retry": retry, "initiatedBy": {"username": "tester"}}});
        app.api
            .merge_patch(kinds::APPLICATION, &app.control_plane, app.name, &operation)
            .await?;
        wait_app(&app.api, &app.control_plane, app.name, "tried again", |app| {
            app["status"]["operationState"]["retryCount"].as_u64() >= Some(1)
        })
        .await?;
        let revision = app.commit(&[("a", &config_map("a", "1"))])?;
        let found = wait_app(&app.api, &app.control_plane, app.name, "synced", |app| {
            app["status"]["operationState"]["phase"] == "Succeeded"
        })
        .await?;
        assert_eq!(
            found["status"]["operationState"]["syncResult"]["revision"],
            revision.as_str()
        );
        Ok(())
    });
}

#[test]
fn one_object_with_a_bad_label_holds_the_sync_and_not_the_view() {
    run(async {
        let bad = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: bad\n  labels: {version: 1.10}\n";
        let app = App::new("bad-label", &[CREATE], &[("a", &config_map("a", "1"))]).await?;
        app.synced(json!({})).await?;
        let twice = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: twice}\ndata:\n  x: a\n  x: b\n";
        let revision = app.commit(&[("bad", bad), ("twice", twice)])?;
        harness::refresh(&app.api, &app.control_plane, app.name).await?;
        let found = wait_app(
            &app.api,
            &app.control_plane,
            app.name,
            "at the new revision",
            |app| app["status"]["sync"]["revision"] == revision.as_str(),
        )
        .await?;
        let status = |name: &str| {
            let resources = found["status"]["resources"].as_array().unwrap();
            let one = resources.iter().find(|one| one["name"] == name).unwrap();
            one["status"].as_str().unwrap_or_default().to_owned()
        };
        assert_eq!(
            (
                status("a").as_str(),
                status("bad").as_str(),
                status("twice").as_str()
            ),
            ("Synced", "Unknown", "OutOfSync")
        );
        let fault = harness::condition(&found, "ComparisonError");
        assert!(
            fault.starts_with(
                "failed to parse app/bad.yaml line 1: ConfigMap bad: metadata.labels.version is 1.1"
            ),
            "{fault}"
        );
        let odd = harness::condition(&found, "ComparisonWarning");
        assert!(
            odd.starts_with("app/twice.yaml: line 6, column 3: the key \"x\""),
            "{odd}"
        );
        let state = app.sync(json!({})).await?;
        assert_eq!(state["phase"], "Error", "{state:#}");
        assert!(app.config_map("twice").await?.is_none());
        Ok(())
    });
}
