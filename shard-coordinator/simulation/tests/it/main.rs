//! A few hundred seeds in every test run.
#![allow(clippy::unwrap_used)]

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
