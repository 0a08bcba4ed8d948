//! Row `list`: people who see little of a large fleet ask the API server for lists and watch it, over gRPC.
//!
//! The program runs as a process of its own against a simulated control plane in this process, which holds the fleet from
//! the start. Latencies are what a client in this process sees, decoded. Of a watch, the time runs from before the write
//! to the control plane until a watcher has the event, so that the control plane's own share is in it.

mod world;

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use argosy_api::services::application::ApplicationQuery;
use argosy_api::services::application::application_service_client::ApplicationServiceClient;
use argosy_simulation::ApiServer;
use argosy_test_cluster::api::{Api, kinds};
use argosy_test_cluster::free_port;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use jiff::Timestamp;
use serde_json::json;
use tonic::Request;
use tonic::transport::Channel;

use crate::chance::Chance;
use crate::report::Who;
use crate::rows::Context;
use crate::servers::Servers;
use crate::usage;
use world::{NAMESPACE, World};

/// Applications of the first page.
const PAGE: i64 = 50;
/// A server that has not answered after so long has failed.
const READY_DEADLINE: Duration = Duration::from_secs(300);
/// Changes that are written at the same time.
const WRITES_AT_ONCE: usize = 16;
/// Watches that share a connection.
const WATCHES_PER_CONNECTION: usize = 20;
/// Messages of whole fleets.
const MESSAGE_LEN_MAX: usize = 512 << 20;
/// When an Application was written, in nanoseconds since the row began.
const WRITTEN: &str = "perf.argosy.dev/written";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Applications of the fleet.
    #[arg(long, default_value_t = 10_000)]
    applications: usize,
    /// Projects that they are in. Each has one account that sees it and nothing else.
    #[arg(long, default_value_t = 100)]
    projects: usize,
    /// Lists of each kind that are asked for.
    #[arg(long, default_value_t = 300)]
    requests: usize,
    /// Watchers, spread over the accounts.
    #[arg(long, default_value_t = 500)]
    watchers: usize,
    /// Changes a second, of Applications by chance.
    #[arg(long, default_value_t = 100)]
    changes: u32,
    /// For how many seconds.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Measure this API server instead: a command for the shell, which finds KUBECONFIG, PERF_NAMESPACE and PERF_PORT in
    /// its environment and serves gRPC without TLS on 127.0.0.1 at that port.
    #[arg(long, value_name = "COMMAND")]
    peer: Option<String>,
}

pub(crate) async fn run(args: &Args, Context { program, report, .. }: &Context) -> Result<()> {
    ensure!(args.projects > 0 && args.applications >= args.projects, "at least one Application a project is needed");
    let who = if args.peer.is_some() { Who::Peer } else { Who::Argosy };
    report.progress(&format!("{} Applications in {} projects", args.applications, args.projects));
    let world = World { applications: args.applications, projects: args.projects };
    // Nobody looks after objects that are only described.
    let options = argosy_simulation::Options { controllers: false, ..argosy_simulation::Options::default() };
    let servers = Servers::serve([ApiServer::new(options, Timestamp::now())])?;
    world.fill(&servers.clusters[0])?;
    let scratch = tempfile::Builder::new().prefix("argosy-perf-").tempdir()?;
    servers.write_kubeconfigs(scratch.path())?;
    let kubeconfig = scratch.path().join("cluster-0");
    let api = Api::connect(&kubeconfig).await?;

    report.progress("starting the server");
    let port = free_port()?;
    let mut server = start(args.peer.as_deref(), program, &kubeconfig, port)?;
    let pid = server.id().context("find the server's process")?;
    let address = format!("http://127.0.0.1:{port}");
    let admin = tokio::time::timeout(READY_DEADLINE, log_in(&address, &mut server))
        .await
        .context("the server did not answer in time")??;
    let connections = stream::iter(0..args.watchers.div_ceil(WATCHES_PER_CONNECTION).max(1))
        .then(|_| connect(&address))
        .try_collect::<Vec<_>>()
        .await?;
    let tokens = world.tokens(&connections[0], &admin).await?;
    let rest = usage::read(pid)?;

    report.progress("asking for lists");
    let one_percent = &tokens[tokens.len() / 2];
    let visible = list(&connections[0], one_percent, ApplicationQuery::default()).await?;
    let page = ApplicationQuery { limit: Some(PAGE), sort_by: Some("name".into()), ..ApplicationQuery::default() };
    for (metric, query) in [("first_page_p99_ms", page), ("full_list_p99_ms", ApplicationQuery::default())] {
        let mut waits = Vec::new();
        for _ in 0..args.requests {
            let begun = Instant::now();
            list(&connections[0], one_percent, query.clone()).await?;
            waits.push(begun.elapsed());
        }
        report.of(who, "list", metric, quantile(&mut waits, 0.99), "ms");
    }

    report.progress(&format!("watching with {} watchers", args.watchers));
    let mut seen = watch(args, &api, &world, &connections, &tokens, pid).await?;
    report.of(who, "list", "watch_p99_ms", quantile(&mut seen.waits, 0.99), "ms");
    report.of(who, "list", "watch_p50_ms", quantile(&mut seen.waits, 0.5), "ms");
    let busy = usage::read(pid)?;
    #[allow(clippy::cast_precision_loss)]
    for (metric, value, unit) in [
        ("rss_mb", busy.peak_rss_mb - rest.rss_mb, "MB more than at rest, at most"),
        ("rss_at_rest_mb", rest.rss_mb, "MB"),
        ("cpu_cores_watching", seen.cores, "cores"),
        ("events_missed", seen.missed as f64, "events"),
        ("visible", visible as f64, "Applications"),
    ] {
        report.of(who, "list", metric, value, unit);
    }
    server.kill().await.context("end the server")?;
    Ok(())
}

fn start(peer: Option<&str>, program: &Path, kubeconfig: &Path, port: u16) -> Result<tokio::process::Child> {
    let mut command = match peer {
        Some(line) => {
            // `exec`, so that the process measured is the program and not the shell.
            let mut command = tokio::process::Command::new("sh");
            command.args(["-c", &format!("exec {line}")]);
            command
        }
        None => {
            let program = program
                .canonicalize()
                .with_context(|| format!("find {} (build it with --release)", program.display()))?;
            let mut command = tokio::process::Command::new(program);
            command
                .args(["server", "--insecure", "--address=127.0.0.1", "--metrics-address=127.0.0.1:0"])
                .arg(format!("--port={port}"))
                .arg(format!("--namespace={NAMESPACE}"))
                // Nobody asks for what the controller or the repo-server knows.
                .args(["--controller=127.0.0.1:1", "--repo-server=127.0.0.1:1"]);
            command
        }
    };
    command
        .env("KUBECONFIG", kubeconfig)
        .env("PERF_NAMESPACE", NAMESPACE)
        .env("PERF_PORT", port.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command.spawn().context("start the server")
}

/// A session of the administrator, as soon as the server gives one.
async fn log_in(address: &str, server: &mut tokio::process::Child) -> Result<String> {
    loop {
        if let Some(status) = server.try_wait()? {
            bail!("the server ended: {status}");
        }
        if let Ok(channel) = connect(address).await
            && let Ok(token) = world::session(&channel).await
        {
            return Ok(token);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn connect(address: &str) -> Result<Channel> {
    Channel::from_shared(address.to_owned())?
        .connect()
        .await
        .context("connect to the server")
}

fn client(channel: &Channel) -> ApplicationServiceClient<Channel> {
    ApplicationServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_LEN_MAX)
}

fn with<T>(token: &str, message: T) -> Result<Request<T>> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
    Ok(request)
}

async fn list(channel: &Channel, token: &str, query: ApplicationQuery) -> Result<usize> {
    let answer = client(channel).list(with(token, query)?).await.context("list Applications")?;
    Ok(answer.into_inner().items.len())
}

/// What the watchers have seen.
struct Seen {
    waits: Vec<Duration>,
    missed: usize,
    /// Of the server, while they watched.
    cores: f64,
}

/// Watches while Applications change by chance.
async fn watch(args: &Args, api: &Api, world: &World, connections: &[Channel], tokens: &[String], pid: u32) -> Result<Seen> {
    let began = Instant::now();
    let waits = Arc::new(Mutex::new(Vec::new()));
    let listed = client(&connections[0]).list(with(&tokens[0], ApplicationQuery::default())?).await?.into_inner();
    for at in 0..args.watchers {
        let query = ApplicationQuery {
            resource_version: Some(listed.metadata.resource_version.clone()),
            ..ApplicationQuery::default()
        };
        let request = with(&tokens[at % tokens.len()], query)?;
        let channel = connections[at / WATCHES_PER_CONNECTION].clone();
        let waits = waits.clone();
        tokio::spawn(async move {
            let mut events = client(&channel).watch(request).await?.into_inner();
            while let Some(event) = events.message().await? {
                let written = event.application.metadata.annotations.get(WRITTEN);
                if let Some(nanoseconds) = written.and_then(|text| text.parse().ok()) {
                    let waited = began.elapsed().saturating_sub(Duration::from_nanos(nanoseconds));
                    waits.lock().push(waited);
                }
            }
            anyhow::Ok(())
        });
    }
    // A server in Go sends the head of a stream with its first message: that a watch is on cannot be seen.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (before, started) = (usage::read(pid)?, Instant::now());
    let mut chance = Chance::new(11);
    let mut expected = 0;
    let mut writes = tokio::task::JoinSet::new();
    let places = Arc::new(tokio::sync::Semaphore::new(WRITES_AT_ONCE));
    for number in 0..args.changes * args.seconds {
        let due = started + Duration::from_secs(1) / args.changes * number;
        tokio::time::sleep_until(due.into()).await;
        let app = chance.below(args.applications);
        let project = world.project_of(app);
        expected += (0..args.watchers).filter(|at| at % tokens.len() == project).count();
        let (api, places) = (api.clone(), places.clone());
        writes.spawn(async move {
            let _place = places.acquire().await?;
            let written = began.elapsed().as_nanos().to_string();
            let patch = json!({"metadata": {"annotations": {WRITTEN: written}}});
            api.merge_patch(kinds::APPLICATION, NAMESPACE, &world::name(app), &patch).await
        });
    }
    while let Some(written) = writes.join_next().await {
        written?.context("change an Application")?;
    }
    let settled = Instant::now();
    while waits.lock().len() < expected && settled.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let cores = (usage::read(pid)?.cpu_seconds - before.cpu_seconds) / started.elapsed().as_secs_f64();
    let waits = std::mem::take(&mut *waits.lock());
    Ok(Seen {
        missed: expected.saturating_sub(waits.len()),
        cores,
        waits,
    })
}

/// In milliseconds.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn quantile(waits: &mut [Duration], share: f64) -> f64 {
    waits.sort_unstable();
    let at = (waits.len().saturating_sub(1)) as f64 * share;
    waits.get(at.ceil() as usize).map_or(f64::NAN, |wait| wait.as_secs_f64() * 1e3)
}
