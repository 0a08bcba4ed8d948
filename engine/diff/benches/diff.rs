//! One Deployment against its live object: never seen before (decoded from JSON first), unchanged, and with one field changed.
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;

use argosy_diff::{Context, IgnoreRules, LAST_APPLIED, Options, Value, compare, compare_owned};
use argosy_object::meta;
use argosy_object::schema::Schemas;
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::json;

fn desired() -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": "registry.example.com/shop/web:1.2.3",
            "args": ["--listen=:8080", "--log=json"],
            "env": (0..20).map(|n| json!({"name": format!("SETTING_{n}"), "value": n.to_string()})).collect::<Vec<_>>(),
            "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}],
            "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "1024Mi"}},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/web"}]
        })
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                "containers": [container("web"), container("proxy")],
                "volumes": [{"name": "config", "configMap": {"name": "web"}}]
            }}
        }
    })
}

fn live(desired: &Value) -> Value {
    let mut live = desired.clone();
    live["spec"]["progressDeadlineSeconds"] = json!(600);
    live["spec"]["strategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
    for container in live["spec"]["template"]["spec"]["containers"]
        .as_array_mut()
        .unwrap()
    {
        container["imagePullPolicy"] = json!("IfNotPresent");
        container["resources"]["limits"]["memory"] = json!("1Gi");
        for port in container["ports"].as_array_mut().unwrap() {
            port["protocol"] = json!("TCP");
        }
    }
    live["metadata"]["uid"] = json!("11111111-1111-1111-1111-111111111111");
    live["status"] = json!({"replicas": 3, "readyReplicas": 3, "observedGeneration": 2});
    meta::set_annotation(&mut live, LAST_APPLIED, desired.to_string());
    live
}

fn benches(criterion: &mut Criterion) {
    let schemas = Schemas::builtin();
    let (rules, options) = (IgnoreRules::none(), Options::default());
    let ctx = Context {
        schemas: &schemas,
        rules: &rules,
        options: &options,
    };
    let desired = desired();
    let live = live(&desired);
    let mut changed = desired.clone();
    changed["spec"]["template"]["spec"]["containers"][0]["image"] =
        json!("registry.example.com/shop/web:1.2.4");
    let (desired_text, live_text) = (desired.to_string(), live.to_string());

    criterion.bench_function("cold", |bencher| {
        bencher.iter(|| {
            let desired: Value = serde_json::from_str(black_box(&desired_text)).unwrap();
            let live: Value = serde_json::from_str(black_box(&live_text)).unwrap();
            compare_owned(desired, live, &ctx).modified
        });
    });
    criterion.bench_function("unchanged", |bencher| {
        bencher.iter(|| compare(Some(black_box(&desired)), Some(black_box(&live)), &ctx).modified);
    });
    criterion.bench_function("changed", |bencher| {
        bencher.iter(|| compare(Some(black_box(&changed)), Some(black_box(&live)), &ctx).modified);
    });
}

criterion_group!(group, benches);
criterion_main!(group);
