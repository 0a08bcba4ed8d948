//! A few runs in every test.
#![allow(clippy::unwrap_used)]

use argosy_whole::{Plan, run};

#[test]
fn one_controller_brings_one_application_to_what_git_says() {
    let plan = Plan {
        pods: 1,
        targets: 1,
        chaos: 0,
    };
    let outcome = run(1, plan).unwrap();
    assert_eq!(outcome.broken, None);
}
