//! Row `refresh`: Applications of one ConfigMap each, all Synced, looked at again although nothing has changed. And the same
//! beside ten times the objects: what a look costs must not depend on them.
//!
//! The shipped program runs beside a simulated API server, which is both control plane and target. Looks come of themselves
//! (`--app-resync`), and then by the annotation, which costs two writes and their news.
//!
//! A peer's command is a whole installation that works on the cluster of the kubeconfig `cluster-0` in `$KUBECONFIG_DIR`, in
//! the namespace `argocd`, and serves the repository named by `$REPOSITORY`. It is asked by the annotation; all its processes
//! count.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use argosy_simulation::{Cluster, Fleet};
use argosy_test_cluster::git::Repository;
use argosy_test_cluster::installation::{Installation, Options};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::report::{Report, Who};
use crate::rows::Context;
use crate::servers::{Peer, Servers, request};
use crate::usage;

/// The control plane's namespace.
const NAMESPACE: &str = "argocd";
/// Where the ConfigMaps are.
const TARGET: &str = "fleet";
const APPLICATIONS: &str = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications";
/// A state that is not reached after this time will not be.
const DEADLINE: Duration = Duration::from_secs(1800);
const POLL: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many Applications.
    #[arg(long, default_value_t = 10_000)]
    applications: usize,
    /// Seconds between two looks at one.
    #[arg(long, default_value_t = 60)]
    resync: u64,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<()> {
    let scratch = tempfile::Builder::new().prefix("argosy-perf-").tempdir()?;
    let repository = Repository::init(scratch.path().join("repository"))?;
    for index in 0..args.applications {
        let text = serde_json::to_string_pretty(&config_map(index))?;
        repository.write(&format!("{}/map.json", name(index)), &text)?;
    }
    repository.commit("one ConfigMap each")?;

    let report = &context.report;
    let few = measure(args, context, &repository.url(), 0, &scratch.path().join("few")).await?;
    report.figure("refresh", "cpu_ms_per_app", few.of_themselves, "ms");
    report.figure("refresh", "asked_cpu_ms_per_app", few.asked, "ms");
    let others = args.applications * 9;
    let many = measure(args, context, &repository.url(), others, &scratch.path().join("many")).await?;
    report.figure("refresh", "cpu_ms_per_app_10x", many.of_themselves, "ms");
    report.figure("refresh", "growth_10x", many.of_themselves / few.of_themselves, "");
    if let Some(command) = &context.peer {
        measure_peer(args, report, &repository.url(), command, scratch.path()).await?;
    }
    Ok(())
}

/// CPU milliseconds of the controller for one look at one Application.
struct Looked {
    /// When the time has come.
    of_themselves: f64,
    /// When somebody asks.
    asked: f64,
}

async fn measure(
    args: &Args,
    Context { program, report, .. }: &Context,
    repository: &str,
    others: usize,
    dir: &Path,
) -> Result<Looked> {
    report.progress(&format!("{} Applications, {others} other objects", args.applications));
    let servers = cluster(args, others)?;
    let cluster = &servers.clusters[0];
    std::fs::create_dir_all(dir)?;
    servers.write_kubeconfigs(dir)?;
    let options = Options {
        program: program
            .canonicalize()
            .with_context(|| format!("find {} (build it with --release)", program.display()))?,
        namespace: NAMESPACE.into(),
        dir: dir.to_owned(),
        attention: Some(Duration::from_secs(args.resync)),
    };
    let installation = Installation::start_on(dir.join("cluster-0"), None, options).await?;
    for index in 0..args.applications {
        request(cluster, "POST", APPLICATIONS, &application(index, repository))?;
    }
    wait_for(cluster, args.applications, report, "Synced", |app| app["status"]["sync"]["status"] == "Synced").await?;

    let pid = installation.controller_pid().context("find the controller")?;
    let metrics = installation.controller_metrics_address();
    // Two rounds, counted by the looks that there were.
    let (cpu, looks) = (usage::read(pid)?.cpu_seconds, looks(&metrics).await?);
    tokio::time::sleep(Duration::from_secs(2 * args.resync)).await;
    let looks = self::looks(&metrics).await? - looks;
    let cpu = usage::read(pid)?.cpu_seconds - cpu;
    ensure!(looks >= args.applications as f64, "only {looks} looks in two rounds");
    report.progress(&format!("{looks} looks, {cpu:.2} CPU s"));
    let of_themselves = cpu * 1e3 / looks;

    let before = usage::read(pid)?.cpu_seconds;
    ask(cluster, args.applications, report).await?;
    let cpu = usage::read(pid)?.cpu_seconds - before;
    Ok(Looked {
        of_themselves,
        asked: cpu * 1e3 / args.applications as f64,
    })
}

async fn measure_peer(args: &Args, report: &Report, repository: &str, command: &str, dir: &Path) -> Result<()> {
    report.progress("the peer");
    let servers = cluster(args, 0)?;
    let cluster = &servers.clusters[0];
    servers.write_kubeconfigs(dir)?;
    let command = format!("REPOSITORY='{repository}'; export REPOSITORY; {command}");
    let mut peer = Peer::start(&command, dir)?;
    let served = Instant::now();
    while request(cluster, "GET", APPLICATIONS, &Value::Null).is_err() {
        ensure!(served.elapsed() < DEADLINE, "the peer has not brought its CustomResourceDefinitions");
        tokio::time::sleep(POLL).await;
    }
    for index in 0..args.applications {
        request(cluster, "POST", APPLICATIONS, &application(index, repository))?;
    }
    wait_for(cluster, args.applications, report, "Synced", |app| app["status"]["sync"]["status"] == "Synced").await?;
    let before = peer.usage()?.cpu_seconds;
    ask(cluster, args.applications, report).await?;
    let cpu = peer.usage()?.cpu_seconds - before;
    report.of(Who::Peer, "refresh", "asked_cpu_ms_per_app", cpu * 1e3 / args.applications as f64, "ms");
    Ok(())
}

/// The control plane, with all ConfigMaps as a sync would have left them, and so many other objects.
fn cluster(args: &Args, others: usize) -> Result<Servers> {
    let fleet = Fleet {
        objects: u32::try_from(others)?,
        ..Fleet::default()
    };
    let servers = Servers::serve([fleet.server(0, Timestamp::now())])?;
    let cluster = &servers.clusters[0];
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TARGET}});
    request(cluster, "POST", "/api/v1/namespaces", &namespace)?;
    for index in 0..args.applications {
        let mut map = config_map(index);
        let name = name(index);
        map["metadata"]["annotations"] =
            json!({"argocd.argoproj.io/tracking-id": format!("{name}:/ConfigMap:{TARGET}/{name}")});
        request(cluster, "POST", &format!("/api/v1/namespaces/{TARGET}/configmaps"), &map)?;
    }
    Ok(servers)
}

fn name(index: usize) -> String {
    format!("app-{index:05}")
}

fn config_map(index: usize) -> Value {
    let text = format!("setting.{index} = value\n").repeat(80);
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name(index), "namespace": TARGET},
        "data": {"application.properties": text},
    })
}

fn application(index: usize, repository: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": name(index), "namespace": NAMESPACE},
        "spec": {
            "project": "default",
            "source": {"repoURL": repository, "targetRevision": "main", "path": name(index)},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": TARGET},
        },
    })
}

/// Asks for a look at every Application and waits for the last.
async fn ask(cluster: &Cluster, applications: usize, report: &Report) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {"argocd.argoproj.io/refresh": "normal"}}});
    for index in 0..applications {
        request(cluster, "PATCH", &format!("{APPLICATIONS}/{}", name(index)), &patch)?;
        // The server has other callers.
        tokio::task::yield_now().await;
    }
    wait_for(cluster, applications, report, "refreshed", |app| {
        app["metadata"]["annotations"]["argocd.argoproj.io/refresh"].is_null()
    })
    .await
}

async fn wait_for(
    cluster: &Cluster,
    applications: usize,
    report: &Report,
    what: &str,
    is_done: impl Fn(&Value) -> bool,
) -> Result<()> {
    let started = Instant::now();
    let mut last = usize::MAX;
    loop {
        let list = request(cluster, "GET", APPLICATIONS, &Value::Null)?;
        let items = list["items"].as_array().context("read the list of Applications")?;
        let done = items.iter().filter(|app| is_done(app)).count();
        if done == applications {
            return Ok(());
        }
        if done != last {
            report.progress(&format!("{:>4.0} s  {done}/{applications} {what}", started.elapsed().as_secs_f64()));
            last = done;
        }
        if started.elapsed() > DEADLINE {
            bail!("only {done} of {applications} Applications are {what} after {} s", DEADLINE.as_secs());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// How many looks the controller has had, by its metrics.
async fn looks(address: &str) -> Result<f64> {
    let mut stream = tokio::net::TcpStream::connect(address).await.context("read metrics")?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.context("read metrics")?;
    let samples = text.lines().filter(|line| line.starts_with("argocd_app_reconcile_count"));
    Ok(samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}
