//! A few hundred seeds in every test run.
#![allow(clippy::unwrap_used)]

use argosy_shard_simulation::run::{Loss, failover, log_normal};
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
        let lost = failover(seed, 10, &log_normal(seed, 100), Loss::Killed);
        assert_eq!(lost.unowned.len(), lost.owned, "every one of them");
        let longest = most(&lost.unowned);
        assert!(longest <= 40.0, "seed {seed}: {longest:.1} s after the loss");
        assert!(
            lost.writes_at_rest <= 1.0,
            "{} writes a second",
            lost.writes_at_rest
        );
    }
}

#[test]
fn a_planned_hand_over_is_done_in_five_seconds_and_leaves_no_cluster_alone_for_one() {
    for (shards, clusters) in [(5, 30), (3, 40)] {
        for seed in 0..3 {
            for loss in [Loss::Ended, Loss::Drained] {
                let lost = failover(seed, shards, &log_normal(seed, clusters), loss);
                assert_eq!(lost.taken.len(), lost.owned, "every one of them");
                let (taken, unowned) = (most(&lost.taken), most(&lost.unowned));
                let of = format!("seed {seed}, {clusters} clusters on {shards} shards, {loss:?}");
                assert!(taken <= 5.0, "{of}: the last one after {taken:.1} s");
                assert!(unowned <= 1.0, "{of}: {unowned:.1} s without an owner");
            }
        }
    }
}

fn most(seconds: &[f64]) -> f64 {
    seconds.iter().copied().fold(0.0, f64::max)
}
