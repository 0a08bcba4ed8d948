//! What is wrong in one Application is said in its conditions, by name, and hurts no other.

use anyhow::Result;
use argosy_test_cluster::api::kinds;
use argosy_test_cluster::git::Repository;
use serde_json::{Value, json};

use crate::harness::{self, condition, config_map, run, wait_app};

/// An Application from `source` gets a condition of `condition_type` whose text has all of `words`.
async fn is_told(name: &str, source: Value, condition_type: &str, words: &[&str]) -> Result<Value> {
    let installation = harness::installation().await;
    let (api, namespace) = (installation.api(), installation.namespace());
    let mut app = harness::application(namespace, name, source);
    // What cannot succeed need not be tried five times, over minutes.
    app["spec"]["syncPolicy"]["retry"] = json!({"limit": 1, "backoff": {"duration": "1s"}});
    api.create(kinds::APPLICATION, &app).await?;
    wait_app(
        api,
        namespace,
        name,
        &format!("told {condition_type} with {words:?}"),
        |app| {
            let message = condition(app, condition_type);
            words.iter().all(|word| message.contains(word))
        },
    )
    .await
}

fn source(repository: &Repository, path: &str) -> Value {
    json!({"repoURL": repository.url(), "path": path, "targetRevision": "main"})
}

fn repository(name: &str, file: &str, content: &str) -> Result<Repository> {
    let repository = harness::repository(name)?;
    repository.write(file, content)?;
    repository.commit("content")?;
    Ok(repository)
}

#[test]
fn a_missing_repository() {
    run(async {
        let source =
            json!({"repoURL": "file:///nowhere/at/all.git", "path": "app", "targetRevision": "main"});
        is_told(
            "no-repository",
            source,
            "ComparisonError",
            &["/nowhere/at/all.git"],
        )
        .await
        .map(drop)
    });
}

#[test]
fn an_unknown_revision() {
    run(async {
        let repository = repository("no-revision", "app/a.yaml", &config_map("a", "1"))?;
        let mut source = source(&repository, "app");
        source["targetRevision"] = "no-such-branch".into();
        is_told("no-revision", source, "ComparisonError", &["no-such-branch"])
            .await
            .map(drop)
    });
}

#[test]
fn a_missing_path() {
    run(async {
        let repository = repository("no-path", "app/a.yaml", &config_map("a", "1"))?;
        is_told(
            "no-path",
            source(&repository, "elsewhere"),
            "ComparisonError",
            &["elsewhere"],
        )
        .await
        .map(drop)
    });
}

#[test]
fn a_path_outside_the_repository() {
    run(async {
        let repository = repository("outside", "app/a.yaml", &config_map("a", "1"))?;
        is_told(
            "outside",
            source(&repository, "../../etc"),
            "ComparisonError",
            &["../../etc"],
        )
        .await
        .map(drop)
    });
}

#[test]
fn broken_yaml_with_its_file_and_line() {
    run(async {
        let content = format!(
            "{}---\napiVersion: v1\nkind: ConfigMap\nmetadata: [unclosed\n",
            config_map("a", "1")
        );
        let repository = repository("broken-yaml", "app/broken.yaml", &content)?;
        is_told(
            "broken-yaml",
            source(&repository, "app"),
            "ComparisonError",
            &["broken.yaml", "line"],
        )
        .await
        .map(drop)
    });
}

#[test]
fn a_chart_that_does_not_render_keeps_helms_words() {
    run(async {
        let repository = harness::repository("broken-chart")?;
        repository.write(
            "chart/Chart.yaml",
            "apiVersion: v2\nname: sample\nversion: 1.0.0\n",
        )?;
        repository.write(
            "chart/templates/a.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  key: {{ required \"a size is needed\" .Values.size }}\n",
        )?;
        repository.commit("a chart")?;
        is_told(
            "broken-chart",
            source(&repository, "chart"),
            "ComparisonError",
            &["a size is needed", "templates/a.yaml"],
        )
        .await
        .map(drop)
    });
}

#[test]
fn an_unknown_kind_fails_its_sync_only() {
    run(async {
        let content = "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: w\n";
        let repository = repository("unknown-kind", "app/w.yaml", content)?;
        is_told(
            "unknown-kind",
            source(&repository, "app"),
            "SyncError",
            &["Widget"],
        )
        .await
        .map(drop)
    });
}

#[test]
fn what_the_api_server_refuses() {
    run(async {
        let content =
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n  ports:\n  - port: 700000\n";
        let repository = repository("refused", "app/service.yaml", content)?;
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        let mut app = harness::application(namespace, "refused", source(&repository, "app"));
        app["spec"]["syncPolicy"]["retry"] = json!({"limit": 1, "backoff": {"duration": "1s"}});
        api.create(kinds::APPLICATION, &app).await?;
        let app = wait_app(api, namespace, "refused", "failed", |app| {
            app["status"]["operationState"]["phase"] == "Failed" && !condition(app, "SyncError").is_empty()
        })
        .await?;
        // The API server's own words reach the person: which field, and what is allowed.
        let result = &app["status"]["operationState"]["syncResult"]["resources"][0];
        assert_eq!(result["status"], "SyncFailed");
        assert!(
            result["message"].as_str().unwrap().contains("spec.ports[0].port"),
            "{result}"
        );
        assert_eq!(app["status"]["sync"]["status"], "OutOfSync");
        Ok(())
    });
}

#[test]
fn a_project_that_forbids_the_repository() {
    run(async {
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        let project = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": "narrow", "namespace": namespace},
            "spec": {"sourceRepos": ["https://git.example.com/*"], "destinations": [{"server": "*", "namespace": "*"}]},
        });
        api.apply(kinds::PROJECT, &project).await?;
        let repository = repository("forbidden", "app/a.yaml", &config_map("a", "1"))?;
        let mut app = harness::application(namespace, "forbidden", source(&repository, "app"));
        app["spec"]["project"] = "narrow".into();
        api.create(kinds::APPLICATION, &app).await?;
        let app = wait_app(api, namespace, "forbidden", "told InvalidSpecError", |app| {
            condition(app, "InvalidSpecError").contains("is not permitted in project")
        })
        .await?;
        assert_eq!(app["status"]["sync"]["status"], "Unknown");
        assert!(api.get(kinds::CONFIG_MAP, "forbidden", "a").await?.is_none());
        Ok(())
    });
}

#[test]
fn a_render_that_fails_later_keeps_the_resources_and_heals() {
    run(async {
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        let name = "fails-later";
        let repository = repository(name, "app/a.yaml", &config_map("a", "1"))?;
        let first = repository.head()?;
        api.create(
            kinds::APPLICATION,
            &harness::application(namespace, name, source(&repository, "app")),
        )
        .await?;
        wait_app(api, namespace, name, "Synced", |app| {
            harness::synced_to(app, &first)
        })
        .await?;

        repository.write("app/a.yaml", "kind: [broken\n")?;
        repository.commit("break it")?;
        harness::refresh(api, namespace, name).await?;
        wait_app(api, namespace, name, "told ComparisonError", |app| {
            condition(app, "ComparisonError").contains("a.yaml")
        })
        .await?;
        // An error is never a reason to prune.
        assert!(api.get(kinds::CONFIG_MAP, name, "a").await?.is_some());

        repository.write("app/a.yaml", &config_map("a", "2"))?;
        let third = repository.commit("mend it")?;
        let app = wait_app(api, namespace, name, "Synced again", |app| {
            harness::synced_to(app, &third)
        })
        .await?;
        assert_eq!(condition(&app, "ComparisonError"), "");
        Ok(())
    });
}
