//! The hand-over within bounds that take seconds; `cargo xtask model` looks further.

use std::time::Duration;

use argosy_shard_model::{Begin, Bounds, HandOver};
use stateright::{Checker, Model};

const BOUNDS: Bounds = Bounds {
    time: 3,
    delays: 1,
    lags: 0,
    crashes: 0,
    writes: 1,
};

#[test]
fn a_cluster_is_handed_over_without_two_writers() {
    let checker = HandOver::new(BOUNDS, Begin::Emptied).checker().spawn_bfs().join();
    checker.assert_no_discovery("one writer at a time");
    checker.assert_no_discovery("no write lands after a newer owner has begun");
    checker.assert_any_discovery("the cluster moves");
}

#[test]
fn an_owner_that_sleeps_is_followed_without_two_writers() {
    let bounds = Bounds { delays: 0, ..BOUNDS };
    let model = HandOver::new(bounds, Begin::Asleep);
    let checker = model.checker().target_state_count(50_000).spawn_bfs().join();
    checker.assert_no_discovery("one writer at a time");
    checker.assert_no_discovery("no write lands after a newer owner has begun");
    checker.assert_any_discovery("the cluster moves");
}

#[test]
fn an_owner_whose_writes_outlast_its_lease_is_caught() {
    let bounds = Bounds { delays: 0, ..BOUNDS };
    let mut model = HandOver::new(bounds, Begin::Asleep);
    model.timing.write = Duration::from_secs(10);
    let checker = model.checker().target_state_count(50_000).spawn_bfs().join();
    checker.assert_any_discovery("one writer at a time");
}
