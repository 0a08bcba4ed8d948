//! What `deploy/` installs: every folder and the chart render, and a real API server accepts each object.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use argosy_test_cluster::api::{Kind, kinds};
use serde_json::{Value, json};

use crate::harness::{self, run};

/// Values of the chart: one controller, several, and everything.
const VALUES: [&[&str]; 3] = [
    &[],
    &["controller.sharding=leases"],
    &[
        "controller.sharding=leases",
        "server.enabled=true",
        "monitoring=true",
        "repoServer.spread=true",
    ],
];

#[test]
fn the_api_server_accepts_what_the_folders_and_the_chart_install() {
    run(async {
        let api = harness::installation().await.api();
        let mut checked = 0;
        for (what, objects) in renders()? {
            for object in objects {
                let Some(kind) = kind(&object)? else { continue };
                api.patch_as(
                    "deploy",
                    kind,
                    &object,
                    "application/apply-patch+yaml",
                    &object,
                    true,
                )
                .await
                .with_context(|| {
                    format!("{what}: apply {} {}", object["kind"], object["metadata"]["name"])
                })?;
                checked += 1;
            }
        }
        assert!(checked > 100, "{checked} objects");
        Ok(())
    });
}

#[test]
fn the_chart_names_a_value_that_it_does_not_know() {
    let error = render("chart/argosy", &["controller.sharding=modulo"]).unwrap_err();
    let text = format!("{error:#}");
    assert!(
        text.contains("controller.sharding is") && text.contains("modulo"),
        "{text}"
    );
}

#[test]
fn each_alert_fires_on_its_condition_and_not_beside_it() -> Result<()> {
    let Some(promtool) = harness::tool("promtool") else {
        return Ok(());
    };
    let objects = render("monitoring", &[])?;
    let rules = objects
        .iter()
        .find(|object| object["kind"] == "PrometheusRule")
        .context("find the rules in deploy/monitoring")?;
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/monitoring/rules_test.yaml");
    let tests = std::fs::read_to_string(tests)?;
    let alerts = rules["spec"]["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|group| group["rules"].as_array().into_iter().flatten());
    for alert in alerts {
        let name = alert["alert"].as_str().context("an alert has a name")?;
        let fires = format!("alertname: {name}\n        eval_time");
        assert!(tests.contains(&fires), "rules_test.yaml never has {name} fire");
    }

    let dir = harness::scratch("rules");
    std::fs::write(dir.join("rules.yaml"), rules["spec"].to_string())?;
    std::fs::write(dir.join("rules_test.yaml"), tests)?;
    for (what, file) in [("check", "rules.yaml"), ("test", "rules_test.yaml")] {
        let output = Command::new(&promtool)
            .args([what, "rules", file])
            .current_dir(&dir)
            .output()?;
        let (told, failed) = (output.stdout, output.stderr);
        assert!(
            output.status.success(),
            "promtool {what} rules: {}{}",
            String::from_utf8_lossy(&told),
            String::from_utf8_lossy(&failed)
        );
    }
    Ok(())
}

fn renders() -> Result<Vec<(String, Vec<Value>)>> {
    let mut renders = Vec::new();
    let folders = [
        "crds",
        "base",
        "plugins",
        "sharded",
        "ha",
        "server",
        "monitoring",
        "priority",
    ];
    for folder in folders {
        renders.push((folder.to_owned(), render(folder, &[])?));
    }
    for values in VALUES {
        renders.push((format!("chart {values:?}"), render("chart/argosy", values)?));
    }
    Ok(renders)
}

fn render(folder: &str, values: &[&str]) -> Result<Vec<Value>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Command::new(harness::program());
    command.arg("render").arg("--repo").arg(&root);
    command.args([
        "--path",
        &format!("deploy/{folder}"),
        "-o",
        "json",
        "--namespace",
        "argocd",
    ]);
    for value in values {
        command.args(["--set", value]);
    }
    let output = command.output().context("run argosy render")?;
    if !output.status.success() {
        bail!("deploy/{folder}: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("read what argosy render printed")
}

/// Where the kind is served; nothing for the Prometheus operator's, which a bare cluster lacks.
fn kind(object: &Value) -> Result<Option<Kind>> {
    let served = |api_version, plural| Ok(Some(Kind { api_version, plural }));
    match object["kind"].as_str().unwrap_or_default() {
        "ConfigMap" => Ok(Some(kinds::CONFIG_MAP)),
        "Service" => Ok(Some(kinds::SERVICE)),
        "ServiceAccount" => Ok(Some(kinds::SERVICE_ACCOUNT)),
        "Deployment" => Ok(Some(kinds::DEPLOYMENT)),
        "CustomResourceDefinition" => Ok(Some(kinds::CRD)),
        "ClusterRole" => Ok(Some(kinds::CLUSTER_ROLE)),
        "StatefulSet" => served("apps/v1", "statefulsets"),
        "Role" => served("rbac.authorization.k8s.io/v1", "roles"),
        "RoleBinding" => served("rbac.authorization.k8s.io/v1", "rolebindings"),
        "ClusterRoleBinding" => served("rbac.authorization.k8s.io/v1", "clusterrolebindings"),
        "NetworkPolicy" => served("networking.k8s.io/v1", "networkpolicies"),
        "FlowSchema" => served("flowcontrol.apiserver.k8s.io/v1", "flowschemas"),
        "PodDisruptionBudget" => served("policy/v1", "poddisruptionbudgets"),
        "PodMonitor" | "ServiceMonitor" | "PrometheusRule" => Ok(None),
        other => bail!("kind {other} is not known to this test: {}", json!(object)),
    }
}
