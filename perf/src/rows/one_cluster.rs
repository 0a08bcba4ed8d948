//! Row `one-cluster` (and, after it, `refresh` and `idle` on the same fleet).

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use argosy_test_cluster::api::kinds;
use argosy_test_cluster::git::Repository;
use argosy_test_cluster::installation::{Installation, Options};
use argosy_test_cluster::{Binaries, Cluster};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};

use crate::report::Report;
use crate::rows::Context;
use crate::usage::{self, Usage};
use crate::workload;

/// The control plane's namespace.
const NAMESPACE: &str = "argocd";

/// A run that takes longer than this has failed.
const DEADLINE: Duration = Duration::from_secs(1800);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many Applications.
    #[arg(long, default_value_t = 300)]
    applications: usize,
    /// How long the idle fleet is watched, in seconds.
    #[arg(long, default_value_t = 30)]
    idle_seconds: u64,
}

pub(crate) async fn run(args: &Args, Context { program, report, .. }: &Context) -> Result<()> {
    let scratch = tempfile::Builder::new().prefix("argosy-perf-").tempdir()?;
    let repository = Repository::init(scratch.path().join("repository"))?;
    workload::fill(&repository, args.applications)?;
    report.progress("starting a control plane");
    let cluster = Cluster::start(Binaries::locate()?)?;
    let program = program
        .canonicalize()
        .with_context(|| format!("find {} (build it with --release)", program.display()))?;
    let options = Options {
        program,
        namespace: NAMESPACE.into(),
        dir: scratch.path().join("argosy"),
        attention: None,
    };
    let installation = Installation::start(&cluster, options).await?;

    report.progress(&format!("creating {} Applications", args.applications));
    let before = measure(&installation)?;
    let started = Instant::now();
    create(&installation, args.applications, &repository.url()).await?;
    wait_synced(&installation, args.applications, started, report).await?;
    let seconds = started.elapsed().as_secs_f64();
    let synced = measure(&installation)?;
    report.figure("one-cluster", "seconds_to_synced", seconds, "s");
    report.figure(
        "one-cluster",
        "controller_cpu_seconds",
        synced.controller.cpu_seconds - before.controller.cpu_seconds,
        "s",
    );
    report.figure(
        "one-cluster",
        "repo_server_cpu_seconds",
        synced.repo_server.cpu_seconds - before.repo_server.cpu_seconds,
        "s",
    );

    report.progress("watching the idle fleet");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let idle_start = measure(&installation)?;
    tokio::time::sleep(Duration::from_secs(args.idle_seconds)).await;
    let idle_end = measure(&installation)?;
    let idle_cpu = idle_end.controller.cpu_seconds - idle_start.controller.cpu_seconds;
    #[allow(clippy::cast_precision_loss)]
    report.figure(
        "idle",
        "controller_cores",
        idle_cpu / args.idle_seconds as f64,
        "cores",
    );
    report.figure(
        "one-cluster",
        "controller_peak_rss_mb",
        idle_end.controller.peak_rss_mb,
        "MB",
    );
    report.figure(
        "one-cluster",
        "controller_rss_mb",
        idle_end.controller.rss_mb,
        "MB",
    );
    report.figure(
        "one-cluster",
        "repo_server_rss_mb",
        idle_end.repo_server.rss_mb,
        "MB",
    );

    report.progress("refreshing all Applications");
    let refresh_start = measure(&installation)?;
    let started = Instant::now();
    refresh(&installation, args.applications).await?;
    let refreshed = measure(&installation)?;
    let cpu = refreshed.controller.cpu_seconds - refresh_start.controller.cpu_seconds;
    #[allow(clippy::cast_precision_loss)]
    report.figure(
        "refresh",
        "cpu_ms_per_app",
        cpu * 1000.0 / args.applications as f64,
        "ms",
    );
    report.figure("refresh", "seconds", started.elapsed().as_secs_f64(), "s");
    Ok(())
}

struct Measured {
    controller: Usage,
    repo_server: Usage,
}

fn measure(installation: &Installation) -> Result<Measured> {
    Ok(Measured {
        controller: usage::read(installation.controller_pid().context("find the controller")?)?,
        repo_server: usage::read(installation.repo_server_pid().context("find the repo-server")?)?,
    })
}

async fn create(installation: &Installation, applications: usize, repository: &str) -> Result<()> {
    stream::iter(0..applications)
        .map(|index| async move {
            let application = workload::application(index, repository, NAMESPACE);
            installation.api().create(kinds::APPLICATION, &application).await
        })
        .buffer_unordered(20)
        .try_for_each(|_| async { Ok(()) })
        .await
}

async fn wait_synced(
    installation: &Installation,
    applications: usize,
    started: Instant,
    report: &Report,
) -> Result<()> {
    let mut last = usize::MAX;
    loop {
        let list = installation.api().list(kinds::APPLICATION, NAMESPACE).await?;
        let synced = list.iter().filter(|application| is_synced(application)).count();
        if synced == applications {
            return Ok(());
        }
        if started.elapsed() > DEADLINE {
            bail!(
                "only {synced} of {applications} Applications are Synced after {} s",
                DEADLINE.as_secs()
            );
        }
        if synced != last {
            report.progress(&format!(
                "{:>4.0} s  {synced}/{applications} Synced",
                started.elapsed().as_secs_f64()
            ));
            last = synced;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn is_synced(application: &Value) -> bool {
    application["status"]["sync"]["status"] == "Synced"
        && application["status"]["operationState"]["phase"] == "Succeeded"
}

async fn refresh(installation: &Installation, applications: usize) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {"argocd.argoproj.io/refresh": "normal"}}});
    let patch = &patch;
    stream::iter(0..applications)
        .map(|index| async move {
            installation
                .api()
                .merge_patch(kinds::APPLICATION, NAMESPACE, &workload::name(index), patch)
                .await
        })
        .buffer_unordered(20)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    let started = Instant::now();
    loop {
        let list = installation.api().list(kinds::APPLICATION, NAMESPACE).await?;
        let waiting = list
            .iter()
            .filter(|application| {
                !application["metadata"]["annotations"]["argocd.argoproj.io/refresh"].is_null()
            })
            .count();
        if waiting == 0 {
            return Ok(());
        }
        if started.elapsed() > DEADLINE {
            bail!(
                "{waiting} Applications were not refreshed after {} s",
                DEADLINE.as_secs()
            );
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
