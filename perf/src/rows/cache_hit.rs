//! `cache-hit`: 1,000 Applications of 50 manifests of 4 KiB, in 20 repositories, rendered already, asked for as often as Zipf says
//! from two repo-servers. Once with whole answers; once by a caller that still has the answer and names its digest.
//!
//! CPU seconds are those of both sides: the caller's, with its decoding, and the repo-servers'. Bytes are counted between
//! them, both ways apart. The request carries the API versions of a cluster, as a controller's does.
//!
//! A peer's command serves `RepoServerService` on `$PORT`; what it does not know (digests) it is not asked for.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Result, ensure};
use argosy_api::repository::ManifestRequest;
use argosy_api::v1alpha1::{ApplicationSource, Repository};
use argosy_repo_client::RepoClient;
use argosy_test_cluster::git::Repository as Repo;

use super::Context;
use crate::chance::Chance;
use crate::repo_server::{RepoServers, client, quantile};
use crate::report::Who;
use crate::{sources, usage};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many Applications.
    #[arg(long, default_value_t = 1000)]
    applications: usize,
    /// Manifests of each.
    #[arg(long, default_value_t = 50)]
    manifests: usize,
    /// Repo-servers.
    #[arg(long, default_value_t = 2)]
    replicas: usize,
    /// Callers at once.
    #[arg(long, default_value_t = 4)]
    callers: usize,
    /// Requests of each measurement.
    #[arg(long, default_value_t = 20_000)]
    requests: usize,
}

/// Repositories that the Applications are spread over.
const REPOSITORIES: usize = 20;
/// Bytes of one manifest, about.
const MANIFEST_BYTES: usize = 4096;

pub(crate) async fn run(args: &Args, context: &Context) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("argosy-perf-").tempdir()?;
    let urls = (0..REPOSITORIES).map(|nth| repository(&dir.path().join(nth.to_string()), nth, args.manifests));
    let urls: Vec<String> = urls.collect::<Result<_>>()?;
    let requests: Vec<ManifestRequest> =
        (0..args.applications).map(|nth| request(&urls[nth % urls.len()], nth)).collect();
    let ours = RepoServers::start(&context.program, args.replicas).await?;
    measure(args, context, &ours, requests.clone()).await?;
    drop(ours);
    if let Some(command) = &context.peer {
        let peer = RepoServers::peer(command, args.replicas).await?;
        measure(args, context, &peer, requests).await?;
    }
    Ok(())
}

async fn measure(
    args: &Args,
    context: &Context,
    servers: &RepoServers,
    mut requests: Vec<ManifestRequest>,
) -> Result<()> {
    let figure = |metric, value, unit| context.report.of(servers.who, "cache-hit", metric, value, unit);
    let client = servers.client()?;
    context.report.progress("rendering all once");
    for request in &mut requests {
        request.known_digest = client.generate_manifest(request.clone()).await?.digest;
    }
    let known = Arc::new(requests);
    let whole = known.iter().cloned().map(|request| ManifestRequest {
        known_digest: String::new(),
        ..request
    });
    let whole = Arc::new(whole.collect::<Vec<_>>());

    context.report.progress("asking for whole answers");
    // An answer of 200 KB is a hundred times as much work as one without manifests.
    let run = ask(servers, &client, &whole, args.callers, args.requests / 10).await?;
    let (whole_rate, unit) = (run.per_cpu_second, "requests a CPU second of both sides");
    if servers.who == Who::Peer {
        figure("requests_per_cpu_second", whole_rate, unit);
        figure("p99_ms", run.p99_ms, "ms");
        return Ok(());
    }
    figure("whole_requests_per_cpu_second", whole_rate, unit);
    figure("whole_p50_ms", run.p50_ms, "ms");
    figure("whole_p99_ms", run.p99_ms, "ms");

    context.report.progress("asking for answers that the caller has");
    let run = ask(servers, &client, &known, args.callers, args.requests).await?;
    figure("requests_per_cpu_second", run.per_cpu_second, unit);
    figure("p50_ms", run.p50_ms, "ms");
    figure("p99_ms", run.p99_ms, "ms");

    let address = servers.address();
    let first = address.split(',').next().unwrap_or_default();
    let (sent, answered) = bytes(&known[0], first).await?;
    figure("unchanged_wire_bytes", answered, "bytes of an answer, with framing");
    figure("request_wire_bytes", sent, "bytes of a request, with framing");
    Ok(())
}

struct Run {
    per_cpu_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// Asks so many times, one Application as often as its place in Zipf's order says.
async fn ask(
    servers: &RepoServers,
    client: &RepoClient,
    requests: &Arc<Vec<ManifestRequest>>,
    callers: usize,
    count: usize,
) -> Result<Run> {
    let order = Arc::new(zipf(requests.len(), count));
    let next = Arc::new(AtomicUsize::new(0));
    let own = usage::read(std::process::id())?.cpu_seconds;
    let theirs = servers.cpu_seconds()?;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let (client, requests, order, next) = (client.clone(), requests.clone(), order.clone(), next.clone());
        tasks.spawn(async move {
            let mut waits = Vec::new();
            while let Some(nth) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                let request = requests[*nth].clone();
                let (whole, started) = (request.known_digest.is_empty(), Instant::now());
                let answer = client.generate_manifest(request).await?;
                waits.push(started.elapsed());
                ensure!(
                    answer.manifests.is_empty() != whole,
                    "an answer has manifests although the caller has them, or lacks them"
                );
            }
            Ok(waits)
        });
    }
    let mut waits = Vec::new();
    while let Some(done) = tasks.join_next().await {
        waits.extend(done??);
    }
    let own = usage::read(std::process::id())?.cpu_seconds - own;
    let theirs = servers.cpu_seconds()? - theirs;
    waits.sort_unstable();
    Ok(Run {
        per_cpu_second: waits.len() as f64 / (own + theirs).max(0.01),
        p50_ms: quantile(&waits, 0.5).as_secs_f64() * 1e3,
        p99_ms: quantile(&waits, 0.99).as_secs_f64() * 1e3,
    })
}

/// Places in an order of popularity: the n-th is taken 1/n times as often as the first.
fn zipf(of: usize, count: usize) -> Vec<usize> {
    let mut sums = Vec::with_capacity(of);
    let mut sum = 0.0;
    for nth in 1..=of {
        sum += 1.0 / nth as f64;
        sums.push(sum);
    }
    let mut chance = Chance::new(11);
    let draws = (0..count).map(|_| chance.below(1 << 30) as f64 / f64::from(1 << 30) * sum);
    draws.map(|draw| sums.partition_point(|upto| *upto <= draw).min(of - 1)).collect()
}

/// Bytes to and from a repo-server a request, once the connection stands.
async fn bytes(request: &ManifestRequest, address: &str) -> Result<(f64, f64)> {
    const ROUNDS: u64 = 200;
    let counter = Counter::start(address.parse()?).await?;
    let client = client(&counter.address.to_string())?;
    client.generate_manifest(request.clone()).await?;
    let before = counter.read();
    for _ in 0..ROUNDS {
        client.generate_manifest(request.clone()).await?;
    }
    let after = counter.read();
    let each = |before: u64, after: u64| (after - before) as f64 / ROUNDS as f64;
    Ok((each(before.0, after.0), each(before.1, after.1)))
}

/// Passes bytes on and counts them.
struct Counter {
    address: SocketAddr,
    sent: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
}

impl Counter {
    async fn start(to: SocketAddr) -> Result<Counter> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let counter = Counter {
            address: listener.local_addr()?,
            sent: Arc::default(),
            answered: Arc::default(),
        };
        let (sent, answered) = (counter.sent.clone(), counter.answered.clone());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = tokio::net::TcpStream::connect(to).await else { return };
                let (near_in, near_out) = near.into_split();
                let (far_in, far_out) = far.into_split();
                tokio::spawn(pass(near_in, far_out, sent.clone()));
                tokio::spawn(pass(far_in, near_out, answered.clone()));
            }
        });
        Ok(counter)
    }

    fn read(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.answered.load(Ordering::Relaxed))
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    count: Arc<AtomicU64>,
) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length) = from.read(&mut buffer).await {
        if length == 0 || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
        count.fetch_add(length as u64, Ordering::Relaxed);
    }
}

fn repository(dir: &Path, nth: usize, manifests: usize) -> Result<String> {
    let repo = Repo::init(dir)?;
    let mut chance = Chance::new(nth as u64);
    let objects: Vec<String> = (0..manifests)
        .map(|at| {
            let text: Vec<String> = (0..MANIFEST_BYTES / 8).map(|_| chance.word()).collect();
            sources::config_map(&format!("part-{at}"), &text.join(" "))
        })
        .collect();
    repo.write("app/all.yaml", &objects.join("---\n"))?;
    repo.commit("all")?;
    Ok(repo.url())
}

fn request(url: &str, nth: usize) -> ManifestRequest {
    ManifestRequest {
        repo: Some(Repository {
            repo: url.to_owned(),
            ..Repository::default()
        }),
        application_source: Some(ApplicationSource {
            repo_url: url.to_owned(),
            path: "app".into(),
            ..ApplicationSource::default()
        }),
        app_name: format!("app-{nth}"),
        namespace: "default".into(),
        app_label_key: "app.kubernetes.io/instance".into(),
        tracking_method: "annotation".into(),
        kube_version: "1.34.0".into(),
        api_versions: sources::API_VERSIONS.iter().map(|text| (*text).to_owned()).collect(),
        project_name: "default".into(),
        ..ManifestRequest::default()
    }
}
