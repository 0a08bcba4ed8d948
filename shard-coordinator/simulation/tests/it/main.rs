//! A few hundred seeds in every test run.
#![allow(clippy::unwrap_used)]

use argosy_shard_simulation::run::{failover, log_normal};
use argosy_shard_simulation::{Plan, run};

#[test]
fn two_hundred_seeds_break_no_invariant() {
    for seed in 0..200 {
        if let Some(broken) = run(seed, Plan::default()).broken {
            panic!(
                "seed {seed} broke {}: {} (cargo xtask simulate --first {seed} --seeds 1)",
                broken.invariant, broken.detail
            );
        }
    }
}

#[test]
fn a_seed_is_a_run() {
    let text = |seed| format!("{}", run(seed, Plan::default()).coverage);
    assert_eq!(text(7), text(7));
}

#[test]
fn a_lost_shards_clusters_have_another_owner_within_forty_seconds() {
    for seed in 0..4 {
        for killed in [true, false] {
            let lost = failover(seed, 10, &log_normal(seed, 100), killed);
            assert_eq!(lost.unowned.len(), lost.owned, "every one of them");
            let longest = lost.unowned.iter().copied().fold(0.0, f64::max);
            assert!(longest <= 40.0, "seed {seed}: {longest:.1} s after the loss");
            assert!(
                lost.writes_at_rest <= 1.0,
                "{} writes a second",
                lost.writes_at_rest
            );
        }
    }
}
