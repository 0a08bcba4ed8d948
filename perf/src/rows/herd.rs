//! `herd`: 1,000 callers for the same manifests within a second, then 1,000 for a hundred that differ in little, of three
//! repo-servers; then a repository that takes half of all calls beside sixty others.
//!
//! `renders_per_key` is what all repo-servers rendered over what was different; `p99_over_render` the wait of the callers who
//! want the same over that of one who asks alone; `skew` the calls of the busiest repo-server over their mean.
//!
//! A peer's command serves `RepoServerService` on `$PORT`; its renders are not counted, its waits are.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use argosy_api::repository::ManifestRequest;
use argosy_api::v1alpha1::{ApplicationSource, Repository};
use argosy_repo_client::RepoClient;
use argosy_test_cluster::git::Repository as Repo;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use super::Context;
use crate::chance::Chance;
use crate::repo_server::{RepoServers, quantile};
use crate::report::Who;
use crate::sources;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Callers for the same, and for nearly the same.
    #[arg(long, default_value_t = 1000)]
    callers: usize,
    /// How many different ones are among those that are nearly the same.
    #[arg(long, default_value_t = 100)]
    keys: usize,
    /// Repo-servers.
    #[arg(long, default_value_t = 3)]
    replicas: usize,
    /// Calls while one repository is hot.
    #[arg(long, default_value_t = 12_000)]
    calls: usize,
}

/// Repositories beside the hot one.
const COLD: usize = 60;
/// Applications of the hot one, and of all others together.
const APPLICATIONS: usize = 240;
/// Time in which the callers come.
const COME: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: &Args, context: &Context) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("argosy-perf-").tempdir()?;
    let hot = repository(&dir.path().join("hot"))?;
    let cold = (0..COLD).map(|nth| repository(&dir.path().join(format!("cold-{nth}"))));
    let cold: Vec<String> = cold.collect::<Result<_>>()?;
    let ours = RepoServers::start(&context.program, args.replicas).await?;
    measure(args, context, &ours, &hot, &cold).await?;
    drop(ours);
    if let Some(command) = &context.peer {
        let peer = RepoServers::peer(command, args.replicas).await?;
        measure(args, context, &peer, &hot, &cold).await?;
    }
    Ok(())
}

async fn measure(
    args: &Args,
    context: &Context,
    servers: &RepoServers,
    hot: &str,
    cold: &[String],
) -> Result<()> {
    let figure = |metric, value, unit| context.report.of(servers.who, "herd", metric, value, unit);
    let client = servers.client()?;
    // The repository is there and the workers are warm; then one caller alone.
    let warm = (0..8).map(|nth| request(hot, "heavy", &format!("warm-{nth}")));
    come(&client, warm.collect(), Duration::ZERO).await?;
    let started = Instant::now();
    client.generate_manifest(request(hot, "heavy", "alone")).await?;
    let alone = started.elapsed();
    let rendered = async || -> Result<f64> {
        let renders = servers.metric("argosy_renders_total", "result=\"ok\"").await?;
        Ok(renders.iter().sum::<f64>())
    };
    let ours = servers.who == Who::Argosy;
    let before = if ours { rendered().await? } else { 0.0 };

    context.report.progress("a thousand for the same");
    let same = (0..args.callers).map(|_| request(hot, "heavy", "same"));
    let waits = come(&client, same.collect(), COME).await?;
    let p99 = quantile(&waits, 0.99);
    figure("render_ms", alone.as_secs_f64() * 1e3, "ms, one caller alone");
    figure("p99_ms", p99.as_secs_f64() * 1e3, "ms");
    figure("p99_over_render", p99.as_secs_f64() / alone.as_secs_f64(), "times");

    context.report.progress("a thousand for nearly the same");
    let near = (0..args.callers).map(|nth| request(hot, "heavy", &format!("near-{}", nth % args.keys)));
    let started = Instant::now();
    let waits = come(&client, near.collect(), COME).await?;
    figure("near_p99_ms", quantile(&waits, 0.99).as_secs_f64() * 1e3, "ms");
    figure("near_seconds", started.elapsed().as_secs_f64(), "s until all are answered");
    if ours {
        let renders = rendered().await? - before;
        figure("renders_per_key", renders / (args.keys + 1) as f64, "renders");
    }

    if ours {
        context.report.progress("one repository takes half of the calls");
        let skew = skew(servers, &client, args.calls, hot, cold).await?;
        figure("skew", skew, "busiest over mean");
    }
    Ok(())
}

/// Sends all requests, evenly over a time, and gives the waits, sorted.
async fn come(client: &RepoClient, requests: Vec<ManifestRequest>, within: Duration) -> Result<Vec<Duration>> {
    let (start, count) = (tokio::time::Instant::now(), requests.len());
    let mut callers = tokio::task::JoinSet::new();
    for (nth, request) in requests.into_iter().enumerate() {
        let client = client.clone();
        let at = start + within.mul_f64(nth as f64 / count as f64);
        callers.spawn(async move {
            tokio::time::sleep_until(at).await;
            let started = Instant::now();
            client.generate_manifest(request).await?;
            anyhow::Ok(started.elapsed())
        });
    }
    let mut waits = Vec::new();
    while let Some(done) = callers.join_next().await {
        waits.push(done??);
    }
    waits.sort_unstable();
    Ok(waits)
}

/// How much more than the mean the busiest repo-server is asked once the shares are known.
async fn skew(servers: &RepoServers, client: &RepoClient, calls: usize, hot: &str, cold: &[String]) -> Result<f64> {
    let mut chance = Chance::new(15);
    let mut requests = (0..calls).map(|_| {
        let app = chance.below(APPLICATIONS);
        match chance.below(2) {
            0 => request(hot, "app", &format!("app-{app}")),
            _ => request(&cold[app % cold.len()], "app", &format!("app-{app}")),
        }
    });
    let asked = async || servers.metric("argosy_manifest_cache_lookups_total", "").await;
    // A quarter of the calls makes the shares known and the caches warm.
    let known: Vec<_> = requests.by_ref().take(calls / 4).collect();
    let ask = async |requests: Vec<ManifestRequest>| -> Result<()> {
        stream::iter(requests)
            .map(|request| client.generate_manifest(request))
            .buffer_unordered(8)
            .try_for_each(|_| async { Ok(()) })
            .await?;
        Ok(())
    };
    ask(known).await?;
    let before = asked().await?;
    ask(requests.collect()).await?;
    let each: Vec<f64> = asked().await?.iter().zip(before).map(|(after, before)| after - before).collect();
    let mean = each.iter().sum::<f64>() / each.len() as f64;
    Ok(each.iter().copied().fold(0.0, f64::max) / mean.max(1.0))
}

/// A plain folder, and a chart that takes some tenths of a second.
fn repository(dir: &Path) -> Result<String> {
    let repo = Repo::init(dir)?;
    repo.write("app/a.yaml", &sources::config_map("a", "b"))?;
    sources::templates(&repo, "heavy")?;
    repo.commit("all")?;
    Ok(repo.url())
}

fn request(url: &str, path: &str, app: &str) -> ManifestRequest {
    ManifestRequest {
        repo: Some(Repository {
            repo: url.to_owned(),
            ..Repository::default()
        }),
        application_source: Some(ApplicationSource {
            repo_url: url.to_owned(),
            path: path.to_owned(),
            ..ApplicationSource::default()
        }),
        app_name: app.to_owned(),
        namespace: "default".into(),
        tracking_method: "annotation".into(),
        kube_version: "1.34.0".into(),
        ..ManifestRequest::default()
    }
}
