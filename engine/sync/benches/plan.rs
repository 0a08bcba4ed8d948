//! Planning a sync of 5,000 resources: waves, a hook in fifty, a namespace and a definition to pull forward, a tenth to prune.
//! Figures are processor time of the thread, which does not depend on what else the machine does.
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use argosy_object::{Value, meta};
use argosy_sync::{Hold, Options, Progress, Resource, SyncOptions, next, plan};
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::json;

const RESOURCES: usize = 5_000;

fn object(index: usize) -> Value {
    let kinds = [
        ("apps/v1", "Deployment"),
        ("v1", "Service"),
        ("v1", "ConfigMap"),
        ("networking.k8s.io/v1", "Ingress"),
        ("example.com/v1", "Widget"),
    ];
    let (api_version, kind) = kinds[index % kinds.len()];
    let mut object = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": format!("r{index}"), "namespace": format!("n{}", index % 40), "labels": {"app": "shop"}},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]}}},
    });
    meta::set_annotation(
        &mut object,
        "argocd.argoproj.io/sync-wave",
        format!("{}", index % 7),
    );
    if index.is_multiple_of(50) {
        meta::set_annotation(&mut object, "argocd.argoproj.io/hook", "PreSync");
    }
    object
}

fn resources() -> Vec<Resource> {
    let special = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n7"}}),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
            "spec": {"group": "example.com", "names": {"kind": "Widget"}}}),
    ];
    let objects = special.into_iter().chain((0..RESOURCES - 2).map(object));
    objects
        .enumerate()
        .map(|(index, object)| {
            let object = Arc::new(object);
            let gone = index % 10 == 9;
            Resource {
                key: meta::key(&object),
                gvk: meta::gvk(&object),
                desired: (!gone).then(|| object.clone()),
                live: (index % 3 != 0 || gone).then_some(object),
                out_of_sync: index % 2 == 0,
                doubtful: false,
            }
        })
        .collect()
}

/// Processor time of this thread, as Linux counts it.
struct CpuTime;

fn cpu_time() -> Duration {
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(counted.split(' ').next().unwrap().parse().unwrap())
}

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        cpu_time()
    }

    fn end(&self, started: Duration) -> Duration {
        cpu_time() - started
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        const WALL: &WallTime = &WallTime;
        WALL.formatter()
    }
}

fn benches(criterion: &mut Criterion<CpuTime>) {
    let resources = resources();
    let options = Options {
        namespace: "n0".into(),
        revision: "0123456789abcdef".into(),
        run: "1".into(),
        prune: true,
        hooks: true,
        sync_options: SyncOptions::parse(["CreateNamespace=true", "ServerSideApply=true"]),
        hold: Some(Hold::default()),
        ..Options::default()
    };
    criterion.bench_function("plan 5,000 resources", |bencher| {
        bencher.iter(|| plan(black_box(&resources), &options).unwrap());
    });
    let planned = plan(&resources, &options).unwrap();
    criterion.bench_function("first step of 5,000 tasks", |bencher| {
        bencher.iter(|| next(&planned, &mut Progress::new(), &Default::default()));
    });
}

criterion_group!(
    name = plans;
    // Linux counts in steps of some milliseconds: few samples, and long ones.
    config = Criterion::default().with_measurement(CpuTime).sample_size(10);
    targets = benches
);
criterion_main!(plans);
