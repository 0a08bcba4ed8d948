//! Row `marginal-cluster`: what one more small cluster of a known kind costs in live state. Connections and the tasks that
//! follow kinds are not part of it.

use anyhow::Result;

use crate::fleet::{Feed, allocated};
use crate::rows::Context;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many clusters; the slope is taken from a quarter of them to all.
    #[arg(long, default_value_t = 200)]
    clusters: usize,
    /// Objects of each.
    #[arg(long, default_value_t = 50)]
    objects: usize,
}

#[allow(clippy::unused_async, clippy::cast_precision_loss)]
pub(crate) async fn run(args: &Args, Context { report, .. }: &Context) -> Result<()> {
    let (mut feeds, mut points) = (Vec::new(), Vec::new());
    for clusters in [args.clusters / 4, args.clusters] {
        while feeds.len() < clusters {
            let mut feed = Feed::new(feeds.len() as u64 + 1, false);
            feed.fill(args.objects)?;
            // Only the state counts, not what makes the objects.
            feeds.push(feed.state);
        }
        points.push((clusters as f64, allocated()?));
    }
    let slope = (points[1].1 - points[0].1) / (points[1].0 - points[0].0);
    report.figure("marginal-cluster", "mib_per_cluster", slope / f64::from(1 << 20), "MiB");
    Ok(())
}
