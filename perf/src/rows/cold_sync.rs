//! Row `cold-sync`: one cluster from nothing to known, from the bytes of its lists.

use anyhow::Result;

use crate::fleet::{Feed, allocated};
use crate::rows::Context;
use crate::usage;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many objects.
    #[arg(long, default_value_t = 100_000)]
    objects: usize,
}

#[allow(clippy::unused_async, clippy::cast_precision_loss)]
pub(crate) async fn run(args: &Args, Context { report, .. }: &Context) -> Result<()> {
    let start = allocated()?;
    let mut feed = Feed::new(1, false);
    feed.fill(args.objects)?;
    report.figure("cold-sync", "cpu_seconds", feed.cpu_seconds, "s");
    report.figure("cold-sync", "json_mb", feed.bytes as f64 / 1e6, "MB");
    report.figure("cold-sync", "steady_mb", (allocated()? - start) / 1e6, "MB");
    let usage = usage::read(std::process::id())?;
    report.figure("cold-sync", "peak_over_steady", usage.peak_rss_mb / usage.rss_mb, "");
    Ok(())
}
