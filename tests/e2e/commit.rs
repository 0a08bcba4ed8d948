//! A commit arrives; drift is healed; what left Git leaves the cluster; people ask for a sync by hand.

use std::time::Duration;

use argosy_test_cluster::api::kinds;
use serde_json::json;

use crate::harness::{self, config_map, run, synced_to, wait, wait_app};

#[test]
fn a_commit_arrives_and_what_it_removed_is_pruned() {
    run(async {
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        let name = "commit";
        let repository = harness::repository(name)?;
        repository.write("app/one.yaml", &config_map("one", "1"))?;
        repository.write("app/two.yaml", &config_map("two", "1"))?;
        let first = repository.commit("two settings")?;
        let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
        api.create(kinds::APPLICATION, &harness::application(namespace, name, source))
            .await?;
        wait_app(api, namespace, name, "Synced to the first commit", |app| {
            synced_to(app, &first)
        })
        .await?;

        repository.write("app/one.yaml", &config_map("one", "2"))?;
        repository.remove("app/two.yaml")?;
        let second = repository.commit("change one, remove two")?;
        let app = wait_app(api, namespace, name, "Synced to the second commit", |app| {
            synced_to(app, &second)
        })
        .await?;

        assert_eq!(
            api.get(kinds::CONFIG_MAP, name, "one").await?.unwrap()["data"]["key"],
            "2"
        );
        assert!(
            api.get(kinds::CONFIG_MAP, name, "two").await?.is_none(),
            "two left Git and must be pruned"
        );
        let history = app["status"]["history"].as_array().unwrap();
        assert_eq!(
            history
                .iter()
                .map(|entry| entry["id"].as_i64().unwrap())
                .collect::<Vec<_>>(),
            [0, 1]
        );
        assert_eq!(history[1]["revision"], second.as_str());
        assert_eq!(app["status"]["resources"].as_array().unwrap().len(), 1);
        Ok(())
    });
}

#[test]
fn drift_is_healed_and_a_deleted_resource_comes_back() {
    run(async {
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        let name = "drift";
        let repository = harness::repository(name)?;
        repository.write("app/settings.yaml", &config_map("settings", "from-git"))?;
        let revision = repository.commit("settings")?;
        let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
        api.create(kinds::APPLICATION, &harness::application(namespace, name, source))
            .await?;
        wait_app(api, namespace, name, "Synced", |app| synced_to(app, &revision)).await?;

        api.merge_patch(
            kinds::CONFIG_MAP,
            name,
            "settings",
            &json!({"data": {"key": "by-hand"}}),
        )
        .await?;
        wait(
            api,
            kinds::CONFIG_MAP,
            name,
            "settings",
            "as in Git again",
            |object| object.is_some_and(|object| object["data"]["key"] == "from-git"),
        )
        .await?;

        api.delete(kinds::CONFIG_MAP, name, "settings").await?;
        wait(api, kinds::CONFIG_MAP, name, "settings", "back", |object| {
            object.is_some()
        })
        .await?;
        wait_app(api, namespace, name, "Synced again", |app| {
            synced_to(app, &revision)
        })
        .await?;
        Ok(())
    });
}

#[test]
fn what_other_controllers_add_is_no_drift() {
    run(async {
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        let name = "workload";
        let repository = harness::repository(name)?;
        // Terse on purpose: the API server fills in some forty defaults, and writes its own form of quantities.
        repository.write(
            "app/deployment.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  selector:\n    matchLabels: {app: web}\n  template:\n    \
             metadata:\n      labels: {app: web}\n    spec:\n      containers:\n      - name: main\n        image: registry.example/web:1\n        \
             ports: [{containerPort: 80}]\n        resources:\n          requests: {cpu: 1000m, memory: 1024Mi}\n",
        )?;
        repository.write(
            "app/service.yaml",
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n  selector: {app: web}\n  ports:\n  - port: 80\n",
        )?;
        let revision = repository.commit("a workload")?;
        let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
        api.create(kinds::APPLICATION, &harness::application(namespace, name, source))
            .await?;
        let app = wait_app(api, namespace, name, "Synced", |app| synced_to(app, &revision)).await?;
        // There are no nodes: its Pods stay Pending.
        assert_eq!(app["status"]["health"]["status"], "Progressing");
        assert_eq!(
            app["status"]["summary"]["images"],
            json!(["registry.example/web:1"])
        );

        let operation = app["status"]["operationState"]["startedAt"].clone();
        tokio::time::sleep(Duration::from_secs(8)).await;
        let later = api.get(kinds::APPLICATION, namespace, name).await?.unwrap();
        assert_eq!(later["status"]["sync"]["status"], "Synced");
        assert_eq!(
            later["status"]["operationState"]["startedAt"], operation,
            "no second sync without a reason"
        );
        Ok(())
    });
}

#[test]
fn a_person_syncs_by_the_operation_field() {
    run(async {
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        let name = "manual";
        let repository = harness::repository(name)?;
        repository.write("app/settings.yaml", &config_map("settings", "1"))?;
        let revision = repository.commit("settings")?;
        let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
        let mut app = harness::application(namespace, name, source);
        app["spec"]["syncPolicy"]
            .as_object_mut()
            .unwrap()
            .remove("automated");
        api.create(kinds::APPLICATION, &app).await?;
        let app = wait_app(api, namespace, name, "OutOfSync and Missing", |app| {
            app["status"]["sync"]["status"] == "OutOfSync" && app["status"]["health"]["status"] == "Missing"
        })
        .await?;
        assert!(
            app["status"].get("operationState").is_none(),
            "nothing starts by itself"
        );

        let operation = json!({"operation": {
            "initiatedBy": {"username": "ada"},
            "sync": {"revision": revision, "syncOptions": ["CreateNamespace=true"]},
        }});
        api.merge_patch(kinds::APPLICATION, namespace, name, &operation)
            .await?;
        let app = wait_app(api, namespace, name, "Synced", |app| synced_to(app, &revision)).await?;
        assert!(
            app.get("operation").is_none(),
            "the request is taken over into the status"
        );
        assert_eq!(
            app["status"]["operationState"]["operation"]["initiatedBy"]["username"],
            "ada"
        );
        assert_eq!(
            app["status"]["operationState"]["message"],
            "successfully synced (all tasks run)"
        );
        assert_eq!(app["status"]["history"][0]["initiatedBy"]["username"], "ada");
        Ok(())
    });
}

#[test]
fn a_refresh_that_finds_nothing_new_writes_only_what_it_must() {
    run(async {
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        let name = "refresh";
        let repository = harness::repository(name)?;
        repository.write("app/settings.yaml", &config_map("settings", "1"))?;
        let revision = repository.commit("settings")?;
        let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
        api.create(kinds::APPLICATION, &harness::application(namespace, name, source))
            .await?;
        wait_app(api, namespace, name, "Synced", |app| synced_to(app, &revision)).await?;
        for kind in ["normal", "hard"] {
            let patch = json!({"metadata": {"annotations": {"argocd.argoproj.io/refresh": kind}}});
            api.merge_patch(kinds::APPLICATION, namespace, name, &patch)
                .await?;
            let app = wait_app(api, namespace, name, "refreshed", |app| {
                app["metadata"]["annotations"]["argocd.argoproj.io/refresh"].is_null()
            })
            .await?;
            assert!(synced_to(&app, &revision));
        }
        Ok(())
    });
}
