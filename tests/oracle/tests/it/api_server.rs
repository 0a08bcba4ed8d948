//! The comparison against a real API server: what was applied is Synced, one changed field is OutOfSync, as `kubectl diff` says.

use std::path::Path;
use std::process::{Command, Stdio};

use argosy_diff::{
    Comparison, Context, IgnoreRules, LAST_APPLIED, Options, Value, compare, compare_dry_run, patch,
};
use argosy_object::schema::Schemas;
use argosy_object::{meta, yaml};
use argosy_oracle::Dice;
use argosy_test_cluster::api::{Api, Kind, kinds};
use argosy_test_cluster::{Binaries, Cluster};
use serde_json::json;

use crate::{number, seed};

const STATEFUL_SET: Kind = Kind {
    api_version: "apps/v1",
    plural: "statefulsets",
};
const CRON_JOB: Kind = Kind {
    api_version: "batch/v1",
    plural: "cronjobs",
};
const NETWORK_POLICY: Kind = Kind {
    api_version: "networking.k8s.io/v1",
    plural: "networkpolicies",
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_applied_is_synced_and_what_is_changed_is_not() {
    let Ok(binaries) = Binaries::locate() else {
        assert!(
            std::env::var_os("ARGOSY_TOOLS").is_none(),
            "the servers are missing"
        );
        eprintln!("not compared with an API server: build it with `cargo xtask tools`");
        return;
    };
    let cluster = Cluster::start(binaries).unwrap();
    let api = Api::connect(&cluster.kubeconfig()).await.unwrap();
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    api.create(kinds::NAMESPACE, &shop).await.unwrap();
    let kubectl = has_kubectl();
    let schemas = Schemas::builtin();
    let mut dice = Dice::new(seed());
    let (mut applied, mut mutated, mut asked) = (0, 0, 0);
    for round in 0..number("ARGOSY_API_SERVER_OBJECTS", 60) {
        let (kind, desired) = object(&mut dice, round);
        let server_side = round % 2 == 0;
        let options = Options {
            server_side_apply: server_side,
            ..Options::default()
        };
        let judge = |desired: &Value, live: &Value| judge(&schemas, &options, desired, live);
        let live = if server_side {
            apply(&api, kind, &desired).await.unwrap()
        } else {
            let mut first = desired.clone();
            meta::set_annotation(&mut first, LAST_APPLIED, desired.to_string());
            api.create(kind, &first).await.unwrap()
        };
        let same = judge(&desired, &live);
        assert!(
            !same.modified,
            "just applied: {desired}\nlive {live}\n{:?}",
            same.differences
        );
        applied += 1;

        // Git moves on by one place.
        let next = change(&mut dice, &desired);
        let verdict = judge(&next, &live);
        let predicted = dry_run(&cluster, kind, &next, server_side, &live, &schemas).await;
        let Some(predicted) = predicted else { continue };
        let really = really_differs(&live, &predicted);
        assert_eq!(
            verdict.modified, really,
            "Git {next}\nlive {live}\nafter an apply {predicted}\n{:?}",
            verdict.differences
        );
        if server_side {
            let by_dry_run = compare_dry_run(&live, &predicted, false, &context(&schemas, &options)).unwrap();
            assert_eq!(
                by_dry_run.modified, really,
                "{next}\n{:?}",
                by_dry_run.differences
            );
        }
        mutated += 1;
        if kubectl && round < number("ARGOSY_KUBECTL_OBJECTS", 24) {
            assert_eq!(
                verdict.modified,
                kubectl_differs(&cluster, &next, server_side),
                "kubectl diff of {next}"
            );
            asked += 1;
        }
        // After the apply they agree again.
        let live = if server_side {
            apply(&api, kind, &next).await.unwrap()
        } else {
            client_side(&api, kind, &desired, &next, &live, &schemas).await
        };
        let after = judge(&next, &live);
        assert!(
            !after.modified,
            "after an apply of {next}\nlive {live}\n{:?}",
            after.differences
        );
    }
    eprintln!(
        "{applied} objects applied and Synced, {mutated} changed and judged as the API server does, {asked} of them also by kubectl diff"
    );
    assert!(mutated * 2 > applied);
}

fn context<'a>(schemas: &'a Schemas, options: &'a Options) -> Context<'a> {
    static RULES: std::sync::LazyLock<IgnoreRules> = std::sync::LazyLock::new(IgnoreRules::none);
    Context {
        schemas,
        rules: &RULES,
        options,
    }
}

fn judge(schemas: &Schemas, options: &Options, desired: &Value, live: &Value) -> Comparison {
    compare(Some(desired), Some(live), &context(schemas, options))
}

/// A valid object with a random choice of fields and spellings.
fn object(dice: &mut Dice, round: usize) -> (Kind, Value) {
    let name = format!("x{round}");
    let metadata =
        json!({"name": name, "namespace": "shop", "labels": {"app": name, "tier": dice.text(&["a", "b"])}});
    match round % 7 {
        0 | 1 => {
            let mut spec = json!({"selector": {"matchLabels": {"app": name}}, "template": pod(dice, &name)});
            maybe(dice, &mut spec, "replicas", json!(0));
            maybe(
                dice,
                &mut spec,
                "strategy",
                json!({"rollingUpdate": {"maxSurge": "50%"}}),
            );
            maybe(dice, &mut spec, "revisionHistoryLimit", json!(3));
            maybe(dice, &mut spec, "minReadySeconds", json!(0));
            let object =
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec});
            (kinds::DEPLOYMENT, object)
        }
        2 => {
            let mut spec = json!({"serviceName": name, "replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": pod(dice, &name)});
            maybe(
                dice,
                &mut spec,
                "volumeClaimTemplates",
                json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}}]),
            );
            let object =
                json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec});
            (STATEFUL_SET, object)
        }
        3 => {
            let mut spec = json!({"selector": {"app": name}, "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}, {"name": "http", "port": 80, "targetPort": "web"}
            ]});
            maybe(dice, &mut spec, "type", json!("ClusterIP"));
            maybe(dice, &mut spec, "clusterIP", json!(""));
            maybe(dice, &mut spec, "sessionAffinity", json!("ClientIP"));
            let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
            (kinds::SERVICE, object)
        }
        4 => {
            let mut object =
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"a": "YQ=="}});
            maybe(dice, &mut object, "stringData", json!({"b": "text", "c": ""}));
            maybe(dice, &mut object, "type", json!("Opaque"));
            (kinds::SECRET, object)
        }
        5 => {
            let mut template = pod(dice, &name);
            template["spec"]["restartPolicy"] = "Never".into();
            let mut spec = json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}});
            maybe(dice, &mut spec, "suspend", json!(false));
            maybe(dice, &mut spec, "startingDeadlineSeconds", json!(30));
            let object =
                json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec});
            (CRON_JOB, object)
        }
        _ => {
            let mut spec = json!({"podSelector": {}});
            maybe(
                dice,
                &mut spec,
                "ingress",
                json!([{"from": [{"podSelector": {"matchLabels": {"a": "b"}}}], "ports": [{"port": 80}]}]),
            );
            maybe(dice, &mut spec, "policyTypes", json!(["Ingress"]));
            let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec});
            (NETWORK_POLICY, object)
        }
    }
}

fn maybe(dice: &mut Dice, object: &mut Value, name: &str, value: Value) {
    if dice.chance(50) {
        object[name] = value;
    }
}

fn pod(dice: &mut Dice, name: &str) -> Value {
    let mut container = json!({"name": "main", "image": dice.text(&["a:1", "a", "b@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"])});
    maybe(
        dice,
        &mut container,
        "resources",
        json!({"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": "0.1"}}),
    );
    maybe(
        dice,
        &mut container,
        "env",
        json!([{"name": "A", "value": ""}, {"name": "B", "value": "b"}, {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
    );
    maybe(
        dice,
        &mut container,
        "ports",
        json!([{"name": "web", "containerPort": 8080}, {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}]),
    );
    maybe(
        dice,
        &mut container,
        "livenessProbe",
        json!({"httpGet": {"port": "web"}, "initialDelaySeconds": 0}),
    );
    maybe(
        dice,
        &mut container,
        "securityContext",
        json!({"capabilities": {"drop": ["ALL"]}, "runAsNonRoot": false}),
    );
    maybe(
        dice,
        &mut container,
        "volumeMounts",
        json!([{"name": "tmp", "mountPath": "/tmp"}]),
    );
    let mut spec = json!({"containers": [container], "volumes": [{"name": "tmp"}, {"name": "config", "configMap": {"name": "c", "defaultMode": 420}}]});
    if dice.chance(50) {
        let side = json!({"name": "side", "image": "s"});
        spec["containers"].as_array_mut().unwrap().push(side);
    }
    maybe(dice, &mut spec, "securityContext", json!({}));
    maybe(dice, &mut spec, "nodeSelector", json!({"disk": "ssd"}));
    maybe(
        dice,
        &mut spec,
        "tolerations",
        json!([{"key": "a", "operator": "Exists"}]),
    );
    maybe(dice, &mut spec, "hostNetwork", json!(false));
    maybe(dice, &mut spec, "serviceAccountName", json!("x"));
    json!({"metadata": {"labels": {"app": name}, "creationTimestamp": null}, "spec": spec})
}

/// The object with one leaf changed, taken away or added, where that makes an object that may be refused but can be read.
fn change(dice: &mut Dice, object: &Value) -> Value {
    let mut next = object.clone();
    let pod = ["/spec/template/spec", "/spec/jobTemplate/spec/template/spec"]
        .iter()
        .find(|pointer| next.pointer(pointer).is_some());
    match (dice.below(6), pod) {
        (0, _) => next["metadata"]["labels"]["tier"] = "changed".into(),
        (1, _) => {
            next["metadata"]["labels"].as_object_mut().unwrap().remove("tier");
        }
        (2, Some(pod)) => next.pointer_mut(pod).unwrap()["containers"][0]["image"] = "changed".into(),
        (3, Some(pod)) => {
            let spec = next.pointer_mut(pod).unwrap();
            let names = [
                "nodeSelector",
                "tolerations",
                "securityContext",
                "hostNetwork",
                "volumes",
            ];
            for name in names {
                if spec.as_object_mut().unwrap().remove(name).is_some() {
                    break;
                }
            }
            // What it mounts must be there.
            for container in spec["containers"].as_array_mut().unwrap() {
                container.as_object_mut().unwrap().remove("volumeMounts");
            }
        }
        // Another spelling of the same.
        (4, Some(pod)) => {
            let container = &mut next.pointer_mut(pod).unwrap()["containers"][0];
            if container.get("resources").is_some() {
                container["resources"] =
                    json!({"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "100m"}});
            } else {
                container["tty"] = false.into();
            }
        }
        (_, Some(pod)) => {
            let container = &mut next.pointer_mut(pod).unwrap()["containers"][0];
            for name in ["env", "ports", "livenessProbe", "resources", "securityContext"] {
                if container.as_object_mut().unwrap().remove(name).is_some() {
                    break;
                }
            }
        }
        (at, None) => match next["kind"].as_str() {
            Some("Secret") if at % 2 == 0 => next["data"] = json!({"other": "Yg=="}),
            Some("Secret") => {
                next.as_object_mut().unwrap().remove("stringData");
            }
            Some("Service") if at % 2 == 0 => {
                next["spec"]["ports"].as_array_mut().unwrap().remove(0);
            }
            Some("Service") => next["spec"]["ports"][2]["targetPort"] = json!(8080),
            _ => next["spec"]["podSelector"] = json!({"matchLabels": {"a": "c"}}),
        },
    }
    next
}

async fn apply(api: &Api, kind: Kind, object: &Value) -> anyhow::Result<Value> {
    api.patch_as(
        "argocd-controller",
        kind,
        object,
        "application/apply-patch+yaml",
        object,
        false,
    )
    .await
}

/// The object as it would be after an apply; none if it would be refused.
async fn dry_run(
    cluster: &Cluster,
    kind: Kind,
    next: &Value,
    server_side: bool,
    live: &Value,
    schemas: &Schemas,
) -> Option<Value> {
    let api = Api::connect(&cluster.kubeconfig()).await.unwrap();
    if server_side {
        return api
            .patch_as(
                "argocd-controller",
                kind,
                next,
                "application/apply-patch+yaml",
                next,
                true,
            )
            .await
            .ok();
    }
    let original: Value = serde_json::from_str(meta::annotation(live, LAST_APPLIED)?).ok()?;
    let sent = patch::three_way(Some(&original), next, live, schemas);
    if sent.is_empty() {
        return Some(live.clone());
    }
    api.patch_as(
        "argocd-controller",
        kind,
        next,
        "application/strategic-merge-patch+json",
        &sent.content,
        true,
    )
    .await
    .ok()
}

async fn client_side(
    api: &Api,
    kind: Kind,
    original: &Value,
    next: &Value,
    live: &Value,
    schemas: &Schemas,
) -> Value {
    let mut modified = next.clone();
    meta::set_annotation(&mut modified, LAST_APPLIED, next.to_string());
    let sent = patch::three_way(Some(original), &modified, live, schemas);
    api.patch_as(
        "argocd-controller",
        kind,
        next,
        "application/strategic-merge-patch+json",
        &sent.content,
        false,
    )
    .await
    .unwrap()
}

/// Whether an apply changes what is not the server's own bookkeeping.
fn really_differs(live: &Value, predicted: &Value) -> bool {
    let bare = |object: &Value| {
        let mut object = object.clone();
        for name in ["managedFields", "resourceVersion", "generation"] {
            meta::remove_field(&mut object, &["metadata", name]);
        }
        meta::remove_field(&mut object, &["status"]);
        meta::remove_annotation(&mut object, LAST_APPLIED);
        // A controller of the cluster writes it meanwhile.
        meta::remove_annotation(&mut object, "deployment.kubernetes.io/revision");
        object
    };
    let (mut live, mut predicted) = (bare(live), bare(predicted));
    for object in [&mut live, &mut predicted] {
        if object["metadata"]["annotations"]
            .as_object()
            .is_some_and(serde_json::Map::is_empty)
        {
            meta::remove_field(object, &["metadata", "annotations"]);
        }
    }
    live != predicted
}

fn has_kubectl() -> bool {
    let version = Command::new("kubectl")
        .args(["version", "--client"])
        .stdout(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}

/// What `kubectl diff` says: exit code 1 for a difference.
fn kubectl_differs(cluster: &Cluster, object: &Value, server_side: bool) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("object.yaml");
    std::fs::write(&file, yaml::to_string(object)).unwrap();
    let mut command = Command::new("kubectl");
    command
        .arg(format!("--kubeconfig={}", cluster.kubeconfig().display()))
        .arg("diff");
    if server_side {
        command.args([
            "--server-side",
            "--force-conflicts",
            "--field-manager=argocd-controller",
        ]);
    }
    let output = command.arg("-f").arg(Path::new(&file)).output().unwrap();
    match output.status.code() {
        Some(0) => false,
        Some(1) => true,
        _ => panic!(
            "kubectl diff of {object}: {}",
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}
