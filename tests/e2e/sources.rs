//! Applications of all four source kinds, and of several sources, become Synced and Healthy.

use anyhow::Result;
use argosy_test_cluster::api::kinds;
use serde_json::{Value, json};

use crate::harness::{self, config_map, run, synced_to, wait_app};

/// What every source kind must come to: Synced, Healthy, the type recognised, the ConfigMap live with its value.
async fn becomes_synced(
    name: &str,
    files: &[(&str, &str)],
    source: Value,
    expected_type: &str,
    data: Value,
) -> Result<()> {
    let installation = harness::installation().await;
    let (api, namespace) = (installation.api(), installation.namespace());
    let repository = harness::repository(name)?;
    for (path, content) in files {
        repository.write(path, content)?;
    }
    let revision = repository.commit("first version")?;
    let mut source = source;
    source["repoURL"] = repository.url().into();
    source["targetRevision"] = "main".into();
    api.create(kinds::APPLICATION, &harness::application(namespace, name, source))
        .await?;
    let app = wait_app(api, namespace, name, "Synced and Healthy", |app| {
        synced_to(app, &revision) && app["status"]["health"]["status"] == "Healthy"
    })
    .await?;
    assert_eq!(app["status"]["sourceType"], expected_type);
    assert_eq!(app["status"]["history"][0]["revision"], revision.as_str());
    assert_eq!(
        app["status"]["operationState"]["operation"]["initiatedBy"]["automated"],
        true
    );
    let live = api
        .get(kinds::CONFIG_MAP, name, "settings")
        .await?
        .expect("the ConfigMap was created");
    assert_eq!(live["data"], data);
    assert_eq!(
        live["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"],
        format!("{name}:/ConfigMap:{name}/settings")
    );
    Ok(())
}

#[test]
fn a_directory_of_manifests_becomes_synced() {
    run(becomes_synced(
        "plain",
        &[
            ("app/settings.yaml", &config_map("settings", "plain")),
            (
                "app/account.json",
                r#"{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "runner"}}"#,
            ),
            ("app/notes.txt", "not a manifest"),
            ("other/broken.yaml", "a: [unclosed"),
        ],
        json!({"path": "app"}),
        "Directory",
        json!({"key": "plain"}),
    ));
}

#[test]
fn a_helm_chart_becomes_synced() {
    run(becomes_synced(
        "helm",
        &[
            (
                "chart/Chart.yaml",
                "apiVersion: v2\nname: sample\nversion: 1.2.3\n",
            ),
            ("chart/values.yaml", "greeting: from the chart\n"),
            ("chart/values-prod.yaml", "greeting: from a file\n"),
            (
                "chart/templates/settings.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  labels:\n    release: {{ .Release.Name }}\n\
                 data:\n  greeting: {{ .Values.greeting | quote }}\n  who: {{ .Values.who | quote }}\n",
            ),
        ],
        json!({"path": "chart", "helm": {
            "valueFiles": ["values-prod.yaml"],
            "parameters": [{"name": "who", "value": "$ARGOCD_APP_NAME"}],
        }}),
        "Helm",
        json!({"greeting": "from a file", "who": "helm"}),
    ));
}

#[test]
fn a_kustomization_becomes_synced() {
    run(becomes_synced(
        "kustomize",
        &[
            ("base/kustomization.yaml", "resources: [settings.yaml]\n"),
            ("base/settings.yaml", &config_map("settings", "base")),
            (
                "overlay/kustomization.yaml",
                "resources: [../base]\npatches:\n- patch: |-\n    - op: replace\n      path: /data/key\n      value: overlay\n  target:\n    kind: ConfigMap\n",
            ),
        ],
        json!({"path": "overlay", "kustomize": {"commonAnnotations": {"team": "blue"}}}),
        "Kustomize",
        json!({"key": "overlay"}),
    ));
}

#[test]
fn a_jsonnet_program_becomes_synced() {
    run(becomes_synced(
        "jsonnet",
        &[
            (
                "app/main.jsonnet",
                "local k = import 'k.libsonnet';\nfunction(tier) [k.configMap('settings', {tier: tier, region: std.extVar('region')})]\n",
            ),
            (
                "lib/k.libsonnet",
                "{ configMap(name, data):: { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: name }, data: data } }\n",
            ),
        ],
        json!({"path": "app", "directory": {"jsonnet": {
            "libs": ["lib"],
            "tlas": [{"name": "tier", "value": "gold"}],
            "extVars": [{"name": "region", "value": "north"}],
        }}}),
        "Directory",
        json!({"tier": "gold", "region": "north"}),
    ));
}

#[test]
fn a_chart_takes_its_values_from_another_repository() {
    run(async {
        let installation = harness::installation().await;
        let (api, namespace) = (installation.api(), installation.namespace());
        let charts = harness::repository("charts")?;
        charts.write(
            "sample/Chart.yaml",
            "apiVersion: v2\nname: sample\nversion: 1.0.0\n",
        )?;
        charts.write(
            "sample/templates/settings.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  size: {{ .Values.size | quote }}\n",
        )?;
        let chart_revision = charts.commit("a chart")?;
        let config = harness::repository("config")?;
        config.write("envs/prod.yaml", "size: large\n")?;
        let config_revision = config.commit("values of prod")?;

        let mut app = harness::application(namespace, "multi-source", json!({}));
        app["spec"]["source"].take();
        app["spec"].as_object_mut().unwrap().remove("source");
        app["spec"]["sources"] = json!([
            {"repoURL": charts.url(), "path": "sample", "targetRevision": "main",
             "helm": {"valueFiles": ["$config/envs/prod.yaml"]}},
            {"repoURL": config.url(), "targetRevision": "main", "ref": "config"},
        ]);
        api.create(kinds::APPLICATION, &app).await?;
        let app = wait_app(api, namespace, "multi-source", "Synced", |app| {
            app["status"]["sync"]["status"] == "Synced"
                && app["status"]["operationState"]["phase"] == "Succeeded"
        })
        .await?;
        assert_eq!(
            app["status"]["sync"]["revisions"],
            json!([chart_revision, config_revision])
        );
        let live = api
            .get(kinds::CONFIG_MAP, "multi-source", "settings")
            .await?
            .expect("the ConfigMap was created");
        assert_eq!(live["data"]["size"], "large");
        Ok(())
    });
}
