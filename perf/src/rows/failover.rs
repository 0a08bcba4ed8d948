//! One of ten shards is lost, killed or told to end: how many clusters move, how even it is afterwards, for how long clusters
//! have no owner. In virtual time: the protocol itself, with calls of 2 to 42 ms, on the real clocks of nobody.

use anyhow::Result;
use argosy_shard_simulation::run::{Failover, failover, log_normal};

use super::Context;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Shards.
    #[arg(long, default_value_t = 10)]
    shards: usize,
    /// Losses of each kind for each number of clusters.
    #[arg(long, default_value_t = 20)]
    losses: u64,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<()> {
    for clusters in [100, 500] {
        for (how, killed) in [("killed", true), ("ended", false)] {
            context
                .report
                .progress(&format!("{clusters} clusters, one of {} shards {how}", args.shards));
            let losses: Vec<Failover> = (0..args.losses)
                .map(|seed| failover(seed, args.shards, &log_normal(seed, clusters), killed))
                .collect();
            let most = |figure: fn(&Failover) -> f64| losses.iter().map(figure).fold(0.0, f64::max);
            let mut unowned: Vec<f64> = losses.iter().flat_map(|loss| loss.unowned.clone()).collect();
            unowned.sort_by(f64::total_cmp);
            let p99 = unowned.get(unowned.len() * 99 / 100).copied().unwrap_or(0.0);
            let name = |metric: &str| format!("{metric}_{clusters}_{how}");
            let figure = |metric: &str, value: f64, unit: &str| {
                context.report.figure("failover", &name(metric), value, unit);
            };
            figure(
                "moved_over_owned",
                most(|loss| loss.moved as f64 - loss.owned as f64),
                "clusters",
            );
            figure("max_over_mean", most(|loss| loss.over_mean), "ratio");
            figure("unowned_seconds_p99", p99, "s");
            figure(
                "central_writes_per_second",
                most(|loss| loss.writes_at_rest),
                "writes a shard",
            );
        }
    }
    Ok(())
}
