//! Deleting an Application: with its finalizer its resources go first, without it they stay.

use std::time::Duration;

use argosy_test_cluster::api::kinds;
use serde_json::json;

use crate::harness::{self, config_map, run, synced_to, wait, wait_app};

#[test]
fn the_finalizer_deletes_the_resources_first() {
    run(async {
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        for (name, finalizer) in [
            ("cascade-foreground", "resources-finalizer.argocd.argoproj.io"),
            (
                "cascade-background",
                "resources-finalizer.argocd.argoproj.io/background",
            ),
        ] {
            let repository = harness::repository(name)?;
            repository.write("app/a.yaml", &config_map("a", "1"))?;
            repository.write(
                "app/kept.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kept\n  annotations: {argocd.argoproj.io/sync-options: Delete=false}\n",
            )?;
            let revision = repository.commit("settings")?;
            let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
            let mut app = harness::application(namespace, name, source);
            app["metadata"]["finalizers"] = json!([finalizer]);
            api.create(kinds::APPLICATION, &app).await?;
            wait_app(api, namespace, name, "Synced", |app| synced_to(app, &revision)).await?;

            api.delete(kinds::APPLICATION, namespace, name).await?;
            wait(api, kinds::APPLICATION, namespace, name, "gone", |app| {
                app.is_none()
            })
            .await?;
            assert!(
                api.get(kinds::CONFIG_MAP, name, "a").await?.is_none(),
                "{name}: the resource goes before the Application"
            );
            assert!(
                api.get(kinds::CONFIG_MAP, name, "kept").await?.is_some(),
                "{name}: Delete=false keeps its resource"
            );
        }
        Ok(())
    });
}

#[test]
fn what_waits_for_approval_keeps_its_application_until_then() {
    run(async {
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        let name = "delete-confirm";
        let repository = harness::repository(name)?;
        let held = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: held\n  annotations: {argocd.argoproj.io/sync-options: Delete=confirm}\n";
        repository.write("app/held.yaml", held)?;
        let revision = repository.commit("settings")?;
        let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
        let mut app = harness::application(namespace, name, source);
        app["metadata"]["finalizers"] = json!(["resources-finalizer.argocd.argoproj.io"]);
        api.create(kinds::APPLICATION, &app).await?;
        wait_app(api, namespace, name, "Synced", |app| synced_to(app, &revision)).await?;

        api.delete(kinds::APPLICATION, namespace, name).await?;
        // Nothing must happen; some looks go by meanwhile.
        tokio::time::sleep(Duration::from_secs(8)).await;
        assert!(api.get(kinds::CONFIG_MAP, name, "held").await?.is_some());
        let approved = json!({"metadata": {"annotations": {"argocd.argoproj.io/deletion-approved": "2099-01-01T00:00:00Z"}}});
        api.merge_patch(kinds::APPLICATION, namespace, name, &approved)
            .await?;
        wait(api, kinds::APPLICATION, namespace, name, "gone", |app| {
            app.is_none()
        })
        .await?;
        assert!(api.get(kinds::CONFIG_MAP, name, "held").await?.is_none());
        Ok(())
    });
}

#[test]
fn without_a_cascade_the_hooks_of_the_deletion_do_not_run() {
    run(async {
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        let name = "orphan-hooks";
        let repository = harness::repository(name)?;
        repository.write("app/a.yaml", &config_map("a", "1"))?;
        for hook in ["PreDelete", "PostDelete"] {
            let lower = hook.to_lowercase();
            repository.write(
                &format!("app/{lower}.yaml"),
                &format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {lower}\n  annotations: {{argocd.argoproj.io/hook: {hook}}}\n"),
            )?;
        }
        let revision = repository.commit("settings and hooks")?;
        let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
        api.create(kinds::APPLICATION, &harness::application(namespace, name, source))
            .await?;
        wait_app(api, namespace, name, "held by the hooks' finalizers", |app| {
            synced_to(app, &revision)
                && app["metadata"]["finalizers"]
                    .to_string()
                    .contains("pre-delete-finalizer")
                && app["metadata"]["finalizers"]
                    .to_string()
                    .contains("post-delete-finalizer")
        })
        .await?;
        api.delete(kinds::APPLICATION, namespace, name).await?;
        wait(api, kinds::APPLICATION, namespace, name, "gone", |app| {
            app.is_none()
        })
        .await?;
        assert!(
            api.get(kinds::CONFIG_MAP, name, "a").await?.is_some(),
            "the resource stays"
        );
        for hook in ["predelete", "postdelete"] {
            assert!(
                api.get(kinds::CONFIG_MAP, name, hook).await?.is_none(),
                "{hook} does not run"
            );
        }
        Ok(())
    });
}

#[test]
fn with_a_cascade_the_hooks_run_around_the_deletion() {
    run(async {
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        let name = "cascade-hooks";
        let repository = harness::repository(name)?;
        repository.write("app/a.yaml", &config_map("a", "1"))?;
        for hook in ["PreDelete", "PostDelete"] {
            let lower = hook.to_lowercase();
            repository.write(
                &format!("app/{lower}.yaml"),
                &format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {lower}\n  annotations: {{argocd.argoproj.io/hook: {hook}}}\n"),
            )?;
        }
        let revision = repository.commit("settings and hooks")?;
        let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
        let mut app = harness::application(namespace, name, source);
        app["metadata"]["finalizers"] = json!(["resources-finalizer.argocd.argoproj.io"]);
        api.create(kinds::APPLICATION, &app).await?;
        wait_app(api, namespace, name, "held by the hooks' finalizers", |app| {
            synced_to(app, &revision)
                && app["metadata"]["finalizers"]
                    .to_string()
                    .contains("post-delete-finalizer")
        })
        .await?;
        api.delete(kinds::APPLICATION, namespace, name).await?;
        wait(api, kinds::APPLICATION, namespace, name, "gone", |app| {
            app.is_none()
        })
        .await?;
        assert!(
            api.get(kinds::CONFIG_MAP, name, "a").await?.is_none(),
            "the resource is gone"
        );
        assert!(
            api.get(kinds::CONFIG_MAP, name, "postdelete").await?.is_some(),
            "the hook behind it ran"
        );
        Ok(())
    });
}

#[test]
fn without_a_finalizer_the_resources_stay() {
    run(async {
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        let name = "orphan";
        let repository = harness::repository(name)?;
        repository.write("app/a.yaml", &config_map("a", "1"))?;
        let revision = repository.commit("settings")?;
        let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
        api.create(kinds::APPLICATION, &harness::application(namespace, name, source))
            .await?;
        wait_app(api, namespace, name, "Synced", |app| synced_to(app, &revision)).await?;
        api.delete(kinds::APPLICATION, namespace, name).await?;
        wait(api, kinds::APPLICATION, namespace, name, "gone", |app| {
            app.is_none()
        })
        .await?;
        assert!(api.get(kinds::CONFIG_MAP, name, "a").await?.is_some());
        Ok(())
    });
}

#[test]
fn a_destination_that_is_gone_does_not_hold_the_application() {
    run(async {
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        let name = "no-cluster";
        let mut app = harness::application(
            namespace,
            name,
            json!({"repoURL": "file:///nowhere.git", "path": "app"}),
        );
        app["metadata"]["finalizers"] = json!(["resources-finalizer.argocd.argoproj.io"]);
        app["spec"]["destination"] = json!({"server": "https://gone.example.com", "namespace": name});
        api.create(kinds::APPLICATION, &app).await?;
        wait_app(api, namespace, name, "told InvalidSpecError", |app| {
            harness::condition(app, "InvalidSpecError").contains("gone.example.com")
        })
        .await?;
        api.delete(kinds::APPLICATION, namespace, name).await?;
        wait(api, kinds::APPLICATION, namespace, name, "gone", |app| {
            app.is_none()
        })
        .await?;
        Ok(())
    });
}
