//! One of ten shards is killed, told to end, or emptied by a person: how many clusters move, how even it is afterwards, when
//! they have another owner, and for how long they have none. In virtual time: the protocol itself, with calls of 2 to 42 ms, on the real clocks of nobody.
//! Figures without a number of clusters and a word for the loss are the worst of those where the shard is killed.

use std::collections::BTreeMap;

use anyhow::Result;
use argosy_shard_simulation::run::{Failover, Loss, failover, log_normal};
use argosy_shard_simulation::{Plan, run as simulate};

use super::Context;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Shards.
    #[arg(long, default_value_t = 10)]
    shards: usize,
    /// Losses of each kind for each number of clusters.
    #[arg(long, default_value_t = 20)]
    losses: u64,
    /// Seeds with everything going wrong, in which writes of an owner that is none any more are looked for.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<()> {
    let mut worst: BTreeMap<&str, (f64, &str)> = BTreeMap::new();
    for clusters in [100, 500] {
        for (how, loss) in [
            ("killed", Loss::Killed),
            ("ended", Loss::Ended),
            ("drained", Loss::Drained),
        ] {
            context.report.progress(&format!(
                "{clusters} clusters, one of {} shards {how}",
                args.shards
            ));
            let losses: Vec<Failover> = (0..args.losses)
                .map(|seed| failover(seed, args.shards, &log_normal(seed, clusters), loss))
                .collect();
            let most = |figure: fn(&Failover) -> f64| losses.iter().map(figure).fold(0.0, f64::max);
            let p99 = |figure: fn(&Failover) -> &Vec<f64>| {
                let mut seconds: Vec<f64> = losses.iter().flat_map(figure).copied().collect();
                seconds.sort_by(f64::total_cmp);
                seconds.get(seconds.len() * 99 / 100).copied().unwrap_or(0.0)
            };
            let name = |metric: &str| format!("{metric}_{clusters}_{how}");
            let mut figure = |metric: &'static str, value: f64, unit: &'static str| {
                context.report.figure("failover", &name(metric), value, unit);
                if loss == Loss::Killed {
                    let known = worst.entry(metric).or_insert((value, unit));
                    known.0 = known.0.max(value);
                }
            };
            figure(
                "moved_over_owned",
                most(|loss| loss.moved as f64 - loss.owned as f64),
                "clusters",
            );
            figure("max_over_mean", most(|loss| loss.over_mean), "ratio");
            figure("max_over_least", most(|loss| loss.over_least), "ratio");
            figure("taken_over_seconds_p99", p99(|loss| &loss.taken), "s");
            figure("unowned_seconds_p99", p99(|loss| &loss.unowned), "s");
            figure(
                "central_writes_per_second",
                most(|loss| loss.writes_at_rest),
                "writes a shard",
            );
        }
    }
    for (metric, (value, unit)) in worst {
        context.report.figure("failover", metric, value, unit);
    }
    context.report.progress(&format!("{} seeds with everything going wrong", args.seeds));
    let broken = (0..args.seeds).filter(|seed| simulate(*seed, Plan::default()).broken.is_some());
    context.report.figure("failover", "stale_writes", broken.count() as f64, "seeds");
    Ok(())
}
