//! Reading YAML, and keeping documents.
#![allow(missing_docs)]

use std::hint::black_box;

use argosy_object::schema::Schemas;
use argosy_object::yaml::{Limits, parse_all, to_string};
use argosy_object::{Document, GroupVersionKind, Value};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::json;

/// A Deployment of an ordinary size, about 3 KB as YAML.
fn deployment() -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/team/{name}:v1.2.3"), "imagePullPolicy": "IfNotPresent",
            "args": ["--listen=:8080", "--log-level=info", "--config=/etc/config/config.yaml"],
            "env": (0..8).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": format!("value {n}")})).collect::<Vec<_>>(),
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/config", "readOnly": true}],
        })
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "front", "namespace": "web", "labels": {"app": "front", "team": "a"}},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "front"}},
            "template": {
                "metadata": {"labels": {"app": "front"}, "annotations": {"checksum/config": "0123456789abcdef"}},
                "spec": {
                    "containers": [container("main"), container("sidecar")],
                    "volumes": [{"name": "config", "configMap": {"name": "front"}}],
                },
            },
        },
    })
}

fn yaml(criterion: &mut Criterion) {
    let text = vec![to_string(&deployment()); 20].join("---\n");
    let mut group = criterion.benchmark_group("yaml");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("parse_all", |bencher| {
        bencher
            .iter(|| parse_all(black_box(text.as_bytes()), &Limits::default()).expect("the text is valid"));
    });
    let value = deployment();
    group.throughput(Throughput::Bytes(to_string(&value).len() as u64));
    group.bench_function("to_string", |bencher| {
        bencher.iter(|| to_string(black_box(&value)))
    });
    group.finish();
}

fn document(criterion: &mut Criterion) {
    let value = deployment();
    let json = serde_json::to_vec(&value).expect("a value always has a JSON text");
    let document = Document::from_value(&value);
    let mut group = criterion.benchmark_group("document");
    group.throughput(Throughput::Bytes(json.len() as u64));
    group.bench_function("from_value", |bencher| {
        bencher.iter(|| Document::from_value(black_box(&value)))
    });
    group.bench_function("from_json", |bencher| {
        bencher.iter(|| Document::from_json(black_box(&json)))
    });
    group.bench_function("value", |bencher| bencher.iter(|| black_box(&document).value()));
    group.bench_function("str_at", |bencher| {
        bencher.iter(|| black_box(&document).str_at(&["metadata", "labels", "team"]));
    });
    group.finish();
}

fn schema(criterion: &mut Criterion) {
    let schemas = Schemas::builtin();
    let kind = GroupVersionKind::new("apps", "v1", "Deployment");
    criterion.bench_function("schema/containers", |bencher| {
        bencher.iter(|| {
            let path = ["spec", "template", "spec", "containers"];
            path.iter()
                .try_fold(schemas.root(black_box(&kind))?, |schema, name| schema.field(name))
        });
    });
}

criterion_group!(benches, yaml, document, schema);
criterion_main!(benches);
