//! `diff`: CPU time of a comparison, in this process: 2,000 Deployments, 500 custom resources and 200 Secrets with ten ignore rules,
//! five of them jq.
//!
//! *cold*: one pair after the other comes as JSON, is decoded and compared. *decoded*: both are there, and are copied. *changed*: the same, and one
//! field of Git differs. *unchanged*: the verdict is remembered, and found to stand by what it was made from. CPU seconds of the process
//! over many rounds, not wall time, so that a loaded machine does not show.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use anyhow::Result;
use argosy_diff::{Context as Comparing, IgnoreRule, IgnoreRules, LAST_APPLIED, Options, Seen, Value, compare, compare_owned};
use argosy_object::schema::Schemas;
use argosy_object::{ContentHash, ResourceKey, meta};
use serde_json::json;

use super::Context;
use crate::usage;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// CPU seconds to spend on each figure, at least.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

const DEPLOYMENTS: usize = 2_000;
const CUSTOM: usize = 500;
const SECRETS: usize = 200;

pub(crate) async fn run(args: &Args, context: &Context) -> Result<()> {
    let schemas = Schemas::builtin();
    let (rules, findings) = IgnoreRules::new(ignore_rules());
    anyhow::ensure!(findings.is_empty(), "{findings:?}");
    let options = Options::default();
    let comparing = Comparing {
        schemas: &schemas,
        rules: &rules,
        options: &options,
    };
    let objects: Vec<(Value, Value)> = objects().into_iter().map(|desired| (desired.clone(), live(&desired))).collect();
    let texts: Vec<(String, String)> =
        objects.iter().map(|(desired, live)| (desired.to_string(), live.to_string())).collect();
    let count = objects.len() as f64;

    let cold = cpu_us(args.seconds, || {
        let decoded = |(desired, live): &(String, String)| {
            Some((serde_json::from_str(desired).ok()?, serde_json::from_str(live).ok()?))
        };
        let verdicts = texts.iter().filter_map(decoded).map(|(desired, live)| compare_owned(desired, live, &comparing));
        verdicts.filter(|comparison| comparison.modified).count()
    })?;
    context.report.figure("diff", "cold_us", cold / count, "µs CPU a resource, with decoding");

    let borrowed = |objects: &[(Value, Value)]| differing(objects, &comparing);
    let warm = cpu_us(args.seconds, || borrowed(&objects))?;
    context.report.figure("diff", "compare_us", warm / count, "µs CPU a resource, decoded");

    let changed: Vec<(Value, Value)> = objects
        .iter()
        .map(|(desired, live)| {
            let mut desired = desired.clone();
            meta::set_label(&mut desired, "version", "2");
            (desired, live.clone())
        })
        .collect();
    anyhow::ensure!(borrowed(&changed) == changed.len(), "a changed resource went unnoticed");
    anyhow::ensure!(borrowed(&objects) == 0, "an unchanged resource is said to differ");
    let changed = cpu_us(args.seconds, || borrowed(&changed))?;
    context.report.figure("diff", "changed_us", changed / count, "µs CPU a resource that changed");

    // A manifest keeps its document's hash.
    let documents: Vec<(Arc<ResourceKey>, ContentHash, String)> = objects
        .iter()
        .enumerate()
        .map(|(at, (desired, _))| (Arc::new(meta::key(desired)), ContentHash::of_value(desired), at.to_string()))
        .collect();
    let seen = |hash: ContentHash, version: &str| Seen::new(Some(hash), Some(("uid", version)));
    let known: HashMap<Arc<ResourceKey>, Seen> = documents
        .iter()
        .map(|(key, hash, version)| (key.clone(), seen(*hash, version)))
        .collect();
    let unchanged = cpu_us(args.seconds, || {
        documents
            .iter()
            .filter(|(key, hash, version)| {
                let known = known.get(key);
                known.is_some_and(|known| known.is(Some(*hash), Some(("uid", version))))
            })
            .count()
    })?;
    context.report.figure("diff", "unchanged_us", unchanged / count, "µs CPU a resource");
    Ok(())
}

/// CPU microseconds of one call of `work`, over as many as take `seconds`.
fn cpu_us(seconds: f64, work: impl Fn() -> usize) -> Result<f64> {
    black_box(work());
    let own = std::process::id();
    let start = usage::read(own)?.cpu_seconds;
    let mut rounds = 0_u32;
    loop {
        black_box(work());
        rounds += 1;
        // Reading the clock costs as much as many cheap rounds.
        if rounds.is_power_of_two() || rounds.is_multiple_of(256) {
            let spent = usage::read(own)?.cpu_seconds - start;
            if spent >= seconds {
                return Ok(spent * 1e6 / f64::from(rounds));
            }
        }
    }
}

fn differing(objects: &[(Value, Value)], comparing: &Comparing<'_>) -> usize {
    let differs = |(desired, live): &&(Value, Value)| compare(Some(desired), Some(live), comparing).modified;
    objects.iter().filter(differs).count()
}

/// Ten rules as people write them, over all kinds of the load.
fn ignore_rules() -> Vec<IgnoreRule> {
    let rule = |kind: &str, pointers: &[&str], expressions: &[&str]| IgnoreRule {
        group: "*".into(),
        kind: kind.into(),
        json_pointers: pointers.iter().map(|text| (*text).to_owned()).collect(),
        jq_path_expressions: expressions.iter().map(|text| (*text).to_owned()).collect(),
        ..IgnoreRule::default()
    };
    vec![
        rule("*", &["/metadata/annotations/example.com~1touched"], &[]),
        rule("Deployment", &["/spec/replicas"], &[]),
        rule("Deployment", &["/spec/template/metadata/annotations/restartedAt"], &[]),
        rule("Secret", &["/data/generated"], &[]),
        rule("Widget", &["/spec/state"], &[]),
        rule("Deployment", &[], &[".spec.template.spec.containers[] | select(.name == \"injected\")"]),
        rule("Deployment", &[], &[".spec.template.spec.containers[].env[]? | select(.name == \"REVISION\")"]),
        rule("Deployment", &[], &[".spec.template.spec.initContainers[]?.image"]),
        rule("Secret", &[], &[".metadata.labels.\"example.com/rotation\""]),
        rule("Widget", &[], &[".spec.parts[]? | select(.kind == \"cache\").size"]),
    ]
}

fn objects() -> Vec<Value> {
    let deployments = (0..DEPLOYMENTS).map(deployment);
    let custom = (0..CUSTOM).map(|at| {
        let parts = (0..10).map(|part| json!({"name": format!("part-{part}"), "kind": "disk", "size": part * at}));
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata("widget", at),
            "spec": {"size": at, "mode": "fast", "parts": parts.collect::<Vec<_>>()}})
    });
    let secrets = (0..SECRETS).map(|at| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("secret", at), "type": "Opaque",
            "data": {"user": "YWRtaW4=", "password": "aHVudGVyMg=="}})
    });
    deployments.chain(custom).chain(secrets).collect()
}

fn metadata(kind: &str, at: usize) -> Value {
    json!({"name": format!("{kind}-{at}"), "namespace": format!("team-{}", at % 50), "labels": {"app": format!("{kind}-{at}"), "version": "1"}})
}

/// Two containers with 20 variables each: 4 KB.
fn deployment(at: usize) -> Value {
    let container = |name: &str| {
        let env = (0..20).map(|n| json!({"name": format!("SETTING_{n}"), "value": (n * at).to_string()}));
        json!({"name": name, "image": format!("registry.example.com/shop/{name}:1.2.{at}"),
            "args": ["--listen=:8080", "--log=json"], "env": env.collect::<Vec<_>>(),
            "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}],
            "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "1024Mi"}},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/web"}]})
    };
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("web", at),
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": format!("web-{at}")}},
            "template": {"metadata": {"labels": {"app": format!("web-{at}")}}, "spec": {
                "containers": [container("web"), container("proxy")],
                "volumes": [{"name": "config", "configMap": {"name": "web"}}]}}}})
}

/// As the API server has it: with defaults, status, and what was applied last.
fn live(desired: &Value) -> Value {
    let mut live = desired.clone();
    if let Some(pod) = live.pointer_mut("/spec/template/spec") {
        pod["dnsPolicy"] = "ClusterFirst".into();
        pod["restartPolicy"] = "Always".into();
        pod["schedulerName"] = "default-scheduler".into();
        pod["securityContext"] = json!({});
        pod["terminationGracePeriodSeconds"] = 30.into();
        for container in pod["containers"].as_array_mut().into_iter().flatten() {
            container["imagePullPolicy"] = "IfNotPresent".into();
            container["terminationMessagePath"] = "/dev/termination-log".into();
            container["terminationMessagePolicy"] = "File".into();
            container["resources"]["limits"]["memory"] = "1Gi".into();
            for port in container["ports"].as_array_mut().into_iter().flatten() {
                port["protocol"] = "TCP".into();
            }
        }
        live["spec"]["progressDeadlineSeconds"] = 600.into();
        live["spec"]["strategy"] =
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
        live["status"] = json!({"replicas": 3, "readyReplicas": 3, "observedGeneration": 2});
    }
    live["metadata"]["uid"] = "11111111-1111-1111-1111-111111111111".into();
    live["metadata"]["resourceVersion"] = "1".into();
    meta::set_annotation(&mut live, LAST_APPLIED, desired.to_string());
    live
}
