//! Row `cold-sync`: one cluster from nothing to known, from the bytes of its lists.
//!
//! A peer's command follows all objects of the simulated cluster that the kubeconfig `cluster-1` in `$KUBECONFIG_DIR`
//! names, until it is ended. Its figures are those of the moment at which it asks for no more lists.

use anyhow::Result;
use argosy_simulation::Fleet;

use crate::fleet::{Feed, allocated};
use crate::report::Who;
use crate::rows::Context;
use crate::servers::{Peer, Servers};
use crate::usage;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many objects.
    #[arg(long, default_value_t = 100_000)]
    objects: usize,
}

#[allow(clippy::cast_precision_loss)]
pub(crate) async fn run(args: &Args, Context { report, peer, .. }: &Context) -> Result<()> {
    let start = allocated()?;
    let mut feed = Feed::new(1, false);
    feed.fill(args.objects)?;
    report.figure("cold-sync", "cpu_seconds", feed.cpu_seconds, "s");
    report.figure("cold-sync", "json_mb", feed.bytes as f64 / 1e6, "MB");
    report.figure("cold-sync", "steady_mb", (allocated()? - start) / 1e6, "MB");
    let usage = usage::read(std::process::id())?;
    report.figure("cold-sync", "peak_over_steady", usage.peak_rss_mb / usage.rss_mb, "");
    if let Some(command) = peer {
        let servers = Servers::start(&Fleet {
            objects: u32::try_from(args.objects)?,
            ..Fleet::default()
        })?;
        let dir = tempfile::Builder::new().prefix("argosy-perf-").tempdir()?;
        servers.write_kubeconfigs(dir.path())?;
        let usage = Peer::start(command, dir.path())?.settled(&servers).await?;
        report.of(Who::Peer, "cold-sync", "cpu_seconds", usage.cpu_seconds, "s");
        report.of(Who::Peer, "cold-sync", "steady_mb", usage.rss_mb, "MB");
        report.of(Who::Peer, "cold-sync", "peak_over_steady", usage.peak_rss_mb / usage.rss_mb, "");
    }
    Ok(())
}
