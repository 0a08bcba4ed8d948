//! What keeps a sync from doing harm: deletions that wait for a person, and newer revisions that take over.

use argosy_test_cluster::api::kinds;
use serde_json::json;

use crate::harness::{self, config_map, run, synced_to, wait_app};

fn phase_and_message(app: &serde_json::Value) -> (String, String) {
    let state = &app["status"]["operationState"];
    let text = |field: &str| state[field].as_str().unwrap_or_default().to_owned();
    (text("phase"), text("message"))
}

#[test]
fn an_automated_sync_that_would_delete_most_of_it_waits_for_a_person() {
    run(async {
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        let name = "held";
        let repository = harness::repository(name)?;
        for index in 0..14 {
            repository.write(
                &format!("app/c{index}.yaml"),
                &config_map(&format!("c{index}"), "1"),
            )?;
        }
        let revision = repository.commit("fourteen")?;
        let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
        api.create(kinds::APPLICATION, &harness::application(namespace, name, source))
            .await?;
        wait_app(api, namespace, name, "Synced", |app| synced_to(app, &revision)).await?;

        // A broken overlay: twelve of fourteen are gone from Git.
        for index in 2..14 {
            repository.remove(&format!("app/c{index}.yaml"))?;
        }
        let revision = repository.commit("two are left")?;
        let app = wait_app(api, namespace, name, "waiting for a person", |app| {
            phase_and_message(app).1.contains("pruning confirmation")
        })
        .await?;
        let (phase, message) = phase_and_message(&app);
        assert_eq!(phase, "Running");
        assert!(
            message.ends_with("the sync would delete 12 of 14 resources"),
            "{message}"
        );
        assert!(
            api.get(kinds::CONFIG_MAP, name, "c13").await?.is_some(),
            "nothing is deleted yet"
        );

        // What `argocd app confirm-deletion` writes.
        let approved = json!({"metadata": {"annotations": {"argocd.argoproj.io/deletion-approved": "2099-01-01T00:00:00Z"}}});
        api.merge_patch(kinds::APPLICATION, namespace, name, &approved)
            .await?;
        wait_app(api, namespace, name, "Synced", |app| synced_to(app, &revision)).await?;
        assert!(api.get(kinds::CONFIG_MAP, name, "c13").await?.is_none());
        assert!(api.get(kinds::CONFIG_MAP, name, "c1").await?.is_some());
        Ok(())
    });
}

#[test]
fn a_newer_revision_takes_over_from_a_sync_that_waits_for_health() {
    run(async {
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        let name = "superseded";
        let repository = harness::repository(name)?;
        // No kubelet runs it: the first wave never becomes healthy.
        repository.write(
            "app/web.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  selector: {matchLabels: {app: web}}\n  template:\n    \
             metadata: {labels: {app: web}}\n    spec:\n      containers: [{name: main, image: registry.example/broken:1}]\n",
        )?;
        repository.write(
            "app/last.yaml",
            &config_map("last", "1").replace(
                "\ndata:",
                "\n  annotations: {argocd.argoproj.io/sync-wave: '1'}\ndata:",
            ),
        )?;
        let broken = repository.commit("broken")?;
        let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
        api.create(kinds::APPLICATION, &harness::application(namespace, name, source))
            .await?;
        wait_app(api, namespace, name, "waiting for health", |app| {
            phase_and_message(app)
                .1
                .contains("waiting for healthy state of apps/Deployment/web")
        })
        .await?;

        repository.remove("app/web.yaml")?;
        let mended = repository.commit("mended")?;
        let app = wait_app(api, namespace, name, "Synced to the newer revision", |app| {
            synced_to(app, &mended)
        })
        .await?;
        let history = app["status"]["history"].as_array().unwrap();
        assert!(
            history.iter().all(|entry| entry["revision"] != broken.as_str()),
            "the broken revision was never deployed"
        );
        assert!(api.get(kinds::CONFIG_MAP, name, "last").await?.is_some());
        Ok(())
    });
}
