//! Row `memory`: what an object costs at rest, every field of it held.
//!
//! A peer's command follows all objects of the simulated clusters that the kubeconfigs `cluster-1` and so on in
//! `$KUBECONFIG_DIR` name, until it is ended. It is started twice, with half of the objects and with all; what it keeps is
//! its resident memory.

use anyhow::Result;
use argosy_simulation::Fleet;

use crate::fleet::{Feed, allocated};
use crate::report::{Report, Who};
use crate::rows::Context;
use crate::servers::{Peer, Servers};
use crate::usage;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many clusters.
    #[arg(long, default_value_t = 10)]
    clusters: usize,
    /// Objects of them all; the slope is taken from half of them to all.
    #[arg(long, default_value_t = 200_000)]
    objects: usize,
    /// Measure the population in which nothing repeats instead.
    #[arg(long)]
    unique: bool,
}

/// The row's metric: which of the two populations it is about.
fn metric(args: &Args) -> &'static str {
    match args.unique {
        true => "bytes_per_object_unique",
        false => "bytes_per_object",
    }
}

/// What a peer keeps.
async fn measure_peer(command: &str, args: &Args, report: &Report) -> Result<()> {
    let mut points = Vec::new();
    for part in [2, 1] {
        let servers = Servers::start(&Fleet {
            clusters: u32::try_from(args.clusters)?,
            objects: u32::try_from(args.objects / args.clusters / part)?,
            unique: args.unique,
            ..Fleet::default()
        })?;
        let dir = tempfile::Builder::new().prefix("argosy-perf-").tempdir()?;
        servers.write_kubeconfigs(dir.path())?;
        let mut peer = Peer::start(command, dir.path())?;
        let usage = peer.settled(&servers).await?;
        points.push(((args.objects / part) as f64, usage.rss_mb));
    }
    let slope = (points[1].1 - points[0].1) * 1e6 / (points[1].0 - points[0].0);
    report.of(Who::Peer, "memory", metric(args), slope, "B");
    report.of(Who::Peer, "memory", "rss_mb", points[1].1, "MB");
    Ok(())
}

#[allow(clippy::cast_precision_loss)]
pub(crate) async fn run(args: &Args, Context { report, peer, .. }: &Context) -> Result<()> {
    let mut feeds: Vec<Feed> = (0..args.clusters)
        .map(|seed| Feed::new(seed as u64 + 1, args.unique))
        .collect();
    let start = allocated()?;
    let mut points = Vec::new();
    for part in [2, 1] {
        for feed in &mut feeds {
            feed.fill(args.objects / args.clusters / part)?;
        }
        let objects: usize = feeds.iter().map(|feed| feed.state.len()).sum();
        points.push((objects as f64, allocated()? - start));
        report.progress(&format!("{objects} objects, {:.1} MB", points[points.len() - 1].1 / 1e6));
    }
    let slope = (points[1].1 - points[0].1) / (points[1].0 - points[0].0);
    report.figure("memory", metric(args), slope, "B");
    let json: usize = feeds.iter().map(|feed| feed.bytes).sum();
    report.figure("memory", "json_bytes_per_object", json as f64 / points[1].0, "B");
    let usage = usage::read(std::process::id())?;
    report.figure("memory", "rss_mb", usage.rss_mb, "MB");
    let cpu: f64 = feeds.iter().map(|feed| feed.cpu_seconds).sum();
    report.figure("memory", "cpu_us_per_object", cpu * 1e6 / points[1].0, "us");
    for feed in &mut feeds {
        feed.state = argosy_livestate::ClusterState::new();
    }
    report.figure("memory", "left_after_deleting_all_kb", (allocated()? - start) / 1e3, "kB");
    match peer {
        Some(command) => measure_peer(command, args, report).await,
        None => Ok(()),
    }
}
