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

/// Before anything is installed, and not by an object that the API server refuses, or takes for something else.
#[test]
fn the_chart_names_what_is_wrong_with_a_value() {
    for (value, place, why) in [
        (
            "controller.sharding=modulo",
            "/controller/sharding",
            "'single', 'leases'",
        ),
        (
            "controller.replicas=three",
            "/controller/replicas",
            "want integer",
        ),
        ("controller.replicas=null", "/controller", "'replicas'"),
        (
            "controller.args=--loglevel=debug",
            "/controller/args",
            "want array",
        ),
        ("server.enabled=yes", "/server/enabled", "want boolean"),
        ("image.tag=", "/image/tag", "does not match"),
        ("repoServer.replica=3", "/repoServer", "'replica' not allowed"),
    ] {
        let error = render("chart/argosy", &[value]).unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.contains(&format!("at '{place}'")) && text.contains(why),
            "{value}: {text}"
        );
    }
}

/// In values, null takes a default away.
#[test]
fn what_may_be_left_out_may_be_null() -> Result<()> {
    let all = render("chart/argosy", &["server.enabled=true"])?;
    let values: Vec<String> = ["controller", "repoServer", "server"]
        .iter()
        .flat_map(|part| ["args", "env", "resources"].map(|key| format!("{part}.{key}=null")))
        .chain([
            "server.enabled=true".to_owned(),
            "imagePullSecrets=null".to_owned(),
        ])
        .collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    assert_eq!(render("chart/argosy", &values)?, all);
    Ok(())
}

#[test]
fn the_chart_may_be_a_part_of_another_that_switches_it_on() -> Result<()> {
    let alone = render("chart/argosy", &[])?;
    let part = render("chart/argosy", &["enabled=true", "global.region=north"])?;
    assert_eq!(part, alone);
    Ok(())
}

/// Where no two may be on one node, one more than there are nodes has no place.
#[test]
fn replicas_on_nodes_of_their_own_are_replaced_without_one_more() -> Result<()> {
    for objects in [
        render("ha", &[])?,
        render("chart/argosy", &["repoServer.spread=true"])?,
    ] {
        let is_alone = |object: &&Value| {
            let affinity = &object["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"];
            affinity["requiredDuringSchedulingIgnoredDuringExecution"].is_array()
        };
        let alone: Vec<&Value> = objects.iter().filter(is_alone).collect();
        assert_eq!(alone.len(), 1);
        for object in alone {
            let how = &object["spec"]["strategy"]["rollingUpdate"];
            assert_eq!(how, &json!({"maxSurge": 0, "maxUnavailable": 1}), "{object}");
        }
    }
    Ok(())
}

/// Addresses of a pod that ends are known elsewhere for a moment longer, and no probe cuts a long list short.
#[test]
fn an_api_server_is_neither_asked_before_it_has_listed_nor_after_it_has_ended() -> Result<()> {
    for objects in [
        render("server", &[])?,
        render("chart/argosy", &["server.enabled=true"])?,
    ] {
        let server = objects
            .iter()
            .find(|object| object["kind"] == "Deployment" && object["metadata"]["name"] == "argocd-server")
            .context("find the API server")?;
        let container = &server["spec"]["template"]["spec"]["containers"][0];
        let stop = &container["lifecycle"]["preStop"]["exec"]["command"];
        assert_eq!(stop, &json!(["sleep", "5"]));
        let start = &container["startupProbe"];
        let patience = start["periodSeconds"]
            .as_u64()
            .zip(start["failureThreshold"].as_u64());
        assert!(
            patience.is_some_and(|(every, times)| every * times >= 300),
            "{start}"
        );
    }
    Ok(())
}

/// Folders and chart are two ways to one installation.
#[test]
fn roles_in_folders_and_chart_are_the_same() -> Result<()> {
    let rules = |objects: Vec<Value>| -> Vec<(String, Value)> {
        let mut rules: Vec<_> = objects
            .into_iter()
            .filter(|object| object["rules"].is_array())
            .map(|object| {
                (
                    format!("{} {}", object["kind"], object["metadata"]["name"]),
                    object["rules"].clone(),
                )
            })
            .collect();
        rules.sort_by(|a, b| a.0.cmp(&b.0));
        rules
    };
    let mut folders = render("base", &[])?;
    folders.extend(render("server", &[])?);
    let chart = render("chart/argosy", &["server.enabled=true"])?;
    let (folders, chart) = (rules(folders), rules(chart));
    assert_eq!(folders.len(), 4);
    assert_eq!(folders, chart);
    Ok(())
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
