//! Row `definitions`: what CustomResourceDefinitions that nobody should write cost a controller that runs: a megabyte of schema,
//! one that is deep, one that says nothing, two versions, the name of a built-in kind, and an OpenAPI document that cannot be had.
//!
//! The controller is a process of its own, and the simulated API server is in this one: the growth is the controller's alone.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use argosy_simulation::fault::{Fault, Rule};
use argosy_simulation::{ApiServer, Options};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::rows::Context;
use crate::servers::{Peer, Servers, request};

const NAMESPACE: &str = "argocd";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GROUP: &str = "odd.example.com";
const BROKEN: &str = "broken.example.com";
/// A controller that has not listed a kind after this time will not.
const DEADLINE: Duration = Duration::from_secs(300);
/// What is free for reuse goes back to the system within ten seconds.
const REST: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many definitions with a megabyte of schema.
    #[arg(long, default_value_t = 1)]
    huge: usize,
}

pub(crate) async fn run(args: &Args, Context { program, report, .. }: &Context) -> Result<()> {
    let mut server = ApiServer::new(Options::default(), Timestamp::now());
    server.faults().add(Rule {
        verb: String::new(),
        plural: String::new(),
        path: format!("/openapi/v3/apis/{BROKEN}"),
        percent: 100,
        times: None,
        fault: Fault::Error(500, None),
    });
    let servers = Servers::serve([server])?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    request(&servers.clusters[0], "POST", "/api/v1/namespaces", &namespace)?;
    for own in argosy_api::crds() {
        request(&servers.clusters[0], "POST", DEFINITIONS, &own)?;
    }
    // A cluster is followed for the Applications that go there.
    let project = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": {"name": "default"},
        "spec": {"sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}]},
    });
    let application = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "shop"},
        "spec": {
            "project": "default", "source": {"repoURL": "https://git.example.com/shop.git", "path": "shop"},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "shop"},
        },
    });
    for (plural, object) in [("appprojects", project), ("applications", application)] {
        let path = format!("/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/{plural}");
        // A kind is served a moment after its definition.
        let started = Instant::now();
        while let Err(error) = request(&servers.clusters[0], "POST", &path, &object) {
            ensure!(started.elapsed() < DEADLINE, "{error:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let dir = tempfile::Builder::new().prefix("argosy-perf-").tempdir()?;
    servers.write_kubeconfigs(dir.path())?;
    let command = format!(
        "exec {} controller --namespace={NAMESPACE} --kubeconfig=$KUBECONFIG_DIR/cluster-0 --repo-server=127.0.0.1:1 \
         --metrics-port=0 --tree-port=0",
        program.display()
    );
    let mut controller = Peer::start(&command, dir.path())?;
    controller.settled(&servers).await?;
    tokio::time::sleep(REST).await;
    let before = controller.usage()?;

    for odd in odd(args.huge) {
        request(&servers.clusters[0], "POST", DEFINITIONS, &odd.definition())?;
        followed(&servers, &odd.plural).await?;
        report.progress(&format!("{} of {} is followed", odd.kind, odd.group));
    }
    tokio::time::sleep(REST).await;
    let after = controller.usage()?;
    report.figure("definitions", "rss_before_mb", before.rss_mb, "MB");
    report.figure("definitions", "rss_growth_mb", after.rss_mb - before.rss_mb, "MB");
    report.figure("definitions", "peak_growth_mb", after.peak_rss_mb - before.rss_mb, "MB");
    report.figure(
        "definitions",
        "cpu_seconds",
        after.cpu_seconds - before.cpu_seconds,
        "s",
    );
    Ok(())
}

/// Waits until the objects of a kind have been listed and are watched.
async fn followed(servers: &Servers, plural: &str) -> Result<()> {
    let started = Instant::now();
    // One name is a built-in kind's, too, which was listed before.
    let listed = || servers.clusters[0].with(|server| server.asked("list", plural));
    let enough = if plural == "configmaps" { 2 } else { 1 };
    while listed() < enough {
        ensure!(started.elapsed() < DEADLINE, "the controller does not list {plural}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

struct Odd {
    group: &'static str,
    plural: String,
    kind: String,
    /// Each with its schema; the first one is stored.
    versions: Vec<(&'static str, Value)>,
}

fn odd(huge: usize) -> Vec<Odd> {
    let plain = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let deep = (0..60).fold(
        json!({"type": "string"}),
        |inner, _| json!({"type": "object", "properties": {"next": inner}}),
    );
    let mut all = Vec::new();
    let mut add = |group, plural: &str, kind: &str, versions| {
        all.push(Odd {
            group,
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            versions,
        });
    };
    for number in 0..huge {
        let field = |at: usize| {
            (
                format!("field{number}x{at}"),
                json!({"type": "string", "description": "x".repeat(200)}),
            )
        };
        let many: Map<String, Value> = (0..5000).map(field).collect();
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": many}}});
        add(
            GROUP,
            &format!("huge{number}s"),
            &format!("Huge{number}"),
            vec![("v1", schema)],
        );
    }
    add(GROUP, "deeps", "Deep", vec![("v1", deep)]);
    add(GROUP, "blanks", "Blank", vec![("v1", plain.clone())]);
    let two = vec![("v2", plain.clone()), ("v1", plain.clone())];
    add(GROUP, "movers", "Mover", two);
    add(GROUP, "configmaps", "ConfigMap", vec![("v1", plain.clone())]);
    add(BROKEN, "brokens", "Broken", vec![("v1", plain)]);
    all
}

impl Odd {
    fn definition(&self) -> Value {
        let versions = self.versions.iter().enumerate().map(|(at, (name, schema))| {
            json!({"name": name, "served": true, "storage": at == 0, "schema": {"openAPIV3Schema": schema}})
        });
        let Odd {
            group, plural, kind, ..
        } = self;
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "versions": versions.collect::<Vec<_>>(),
                "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind, "listKind": format!("{kind}List")},
            },
        })
    }
}
