//! What an event costs on its way into live state, and what a reader pays.
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Arc;

use argosy_livestate::{ClusterState, Event, Resource};
use argosy_object::{Document, ResourceKey, Value, meta};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::json;

/// Deployments in the cluster; each has a ReplicaSet and four Pods.
const WORKLOADS: usize = 1000;

fn metadata(name: &str, uid: &str, version: usize, owner: Option<(&str, &str, &str)>) -> Value {
    let owners = owner.map(|(kind, name, uid)| {
        json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true}])
    });
    json!({
        "name": name, "namespace": "shop", "uid": uid, "resourceVersion": version.to_string(),
        "creationTimestamp": "2026-06-01T08:00:00Z", "labels": {"app": name, "tier": "web"},
        "ownerReferences": owners.unwrap_or_else(|| json!([])),
    })
}

fn pod_spec(app: &str) -> Value {
    let env =
        (0..8).map(|number| json!({"name": format!("SETTING_{number}"), "value": format!("{app}-{number}")}));
    json!({
        "serviceAccountName": app, "nodeName": "node-1", "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
        "containers": [{
            "name": "main", "image": format!("registry.example.com/{app}:1.2.3"), "env": env.collect::<Vec<_>>(),
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/config", "readOnly": true}],
        }],
        "volumes": [{"name": "config", "configMap": {"name": app, "defaultMode": 420}}],
    })
}

fn uid(kind: u8, number: usize) -> String {
    format!("{kind:08x}-0000-4000-8000-{number:012x}")
}

/// Deployment, ReplicaSet and Pods of one workload.
fn workload(number: usize) -> Vec<Value> {
    let app = format!("app-{number:04}");
    let set = format!("{app}-6d4f8b9c7");
    let version = 10 * number;
    let mut deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(&app, &uid(1, number), version + 1, None),
        "spec": {"replicas": 4, "selector": {"matchLabels": {"app": app}}, "template": {"spec": pod_spec(&app)}},
        "status": {"replicas": 4, "readyReplicas": 4},
    });
    meta::set_label(&mut deployment, "instance", app.as_str());
    let replica_set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": metadata(&set, &uid(2, number), version + 2, Some(("Deployment", &app, &uid(1, number)))),
        "spec": {"replicas": 4, "template": {"spec": pod_spec(&app)}},
        "status": {"replicas": 4, "readyReplicas": 4},
    });
    let pod = |index: usize| {
        let name = format!("{set}-{index:05}");
        let owner = ("ReplicaSet", &*set, &*uid(2, number));
        let started = format!("2026-06-01T08:00:{:02}Z", index + 10);
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": metadata(&name, &uid(3, 4 * number + index), version + 3 + index, Some(owner)),
            "spec": pod_spec(&app),
            "status": {
                "phase": "Running", "podIP": format!("10.1.{}.{index}", number % 250), "startTime": started,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": started}],
                "containerStatuses": [{"name": "main", "ready": true, "restartCount": 0, "state": {"running": {"startedAt": started}}}],
            },
        })
    };
    [deployment, replica_set]
        .into_iter()
        .chain((0..4).map(pod))
        .collect()
}

fn read(text: &[u8]) -> Resource {
    let read = Document::read(text, |object| {
        let label = object.label();
        let app = meta::label(&label, "instance").map(Arc::from);
        Resource::arrived(&object, &label, app)
    });
    read.expect("the text is JSON")
}

fn cluster() -> ClusterState {
    let mut state = ClusterState::new();
    for object in (0..WORKLOADS).flat_map(workload) {
        let text = object.to_string();
        state.apply(Event::Upsert(Box::new(read(text.as_bytes()))));
    }
    state
}

/// A Pod of the cluster that has been restarted so often.
fn restarted(number: usize, times: usize) -> String {
    let mut pod = workload(number % WORKLOADS).swap_remove(3);
    pod["metadata"]["resourceVersion"] = (1_000_000 + times).to_string().into();
    pod["status"]["containerStatuses"][0]["restartCount"] = times.into();
    pod.to_string()
}

fn write(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("livestate");
    let mut state = cluster();
    let text = restarted(1, 1);
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("decode", |bencher| {
        bencher.iter(|| read(black_box(text.as_bytes())))
    });
    let mut times = 0;
    group.throughput(Throughput::Elements(1));
    group.bench_function("apply", |bencher| {
        let next = || {
            times += 1;
            Event::Upsert(Box::new(read(restarted(times, times).as_bytes())))
        };
        bencher.iter_batched(next, |event| state.apply(event), BatchSize::SmallInput);
    });
    // Readers hold the snapshot before; the writer pays for what it shares with them.
    group.bench_function("apply_and_snapshot", |bencher| {
        let mut held = state.snapshot();
        let next = || {
            times += 1;
            Event::Upsert(Box::new(read(restarted(times, times).as_bytes())))
        };
        bencher.iter_batched(
            next,
            |event| {
                state.apply(event);
                held = state.snapshot();
            },
            BatchSize::SmallInput,
        );
        black_box(held.len());
    });
    group.bench_function("snapshot", |bencher| bencher.iter(|| state.snapshot()));
    group.finish();
}

fn lookup(criterion: &mut Criterion) {
    let snapshot = cluster().snapshot();
    let mut group = criterion.benchmark_group("livestate");
    let key = ResourceKey::new("", "Pod", "shop", "app-0500-6d4f8b9c7-00001");
    assert!(snapshot.get(&key).is_some());
    group.bench_function("get", |bencher| bencher.iter(|| snapshot.get(black_box(&key))));
    group.bench_function("by_app", |bencher| {
        bencher.iter(|| snapshot.by_app(black_box("app-0500")))
    });
    let root = snapshot.by_app("app-0500").swap_remove(0);
    assert_eq!(snapshot.descendants(&root).len(), 6);
    group.bench_function("tree_of_6", |bencher| {
        bencher.iter(|| snapshot.descendants(black_box(&root)))
    });
    let pod = snapshot.get(&key).expect("it is there");
    group.bench_function("apps_of_a_pod", |bencher| {
        bencher.iter(|| snapshot.apps_of(black_box(&pod)))
    });
    let json = pod.document.to_json();
    group.throughput(Throughput::Bytes(json.len() as u64));
    group.bench_function("emit", |bencher| {
        bencher.iter(|| black_box(&pod.document).to_json())
    });
    group.finish();
}

criterion_group!(benches, write, lookup);
criterion_main!(benches);
