//! Row `memory`: what an object costs at rest, every field of it held.

use anyhow::Result;

use crate::fleet::{Feed, allocated};
use crate::rows::Context;
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

#[allow(clippy::unused_async, clippy::cast_precision_loss)]
pub(crate) async fn run(args: &Args, Context { report, .. }: &Context) -> Result<()> {
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
    let metric = if args.unique { "bytes_per_object_unique" } else { "bytes_per_object" };
    report.figure("memory", metric, slope, "B");
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
    Ok(())
}
