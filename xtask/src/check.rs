//! `cargo xtask ci`: what must hold before a change lands.

use std::process::Command;

use anyhow::Result;

use crate::{go, shell, test, tidy};

/// Runs every check, the cheap ones first.
///
/// # Errors
/// Names the check that failed.
pub(crate) fn run() -> Result<()> {
    shell::run(&mut shell::cargo(["fmt", "--all", "--check"]))?;
    tidy::run()?;
    for module in [go::worker_dir(), go::oracle_dir()] {
        shell::run(
            Command::new("go")
                .args(["vet", "-trimpath", "./..."])
                .current_dir(module),
        )?;
    }
    shell::run(&mut shell::cargo([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    if shell::has("cargo-deny") {
        shell::run(&mut shell::cargo([
            "deny", "check", "bans", "licenses", "sources",
        ]))?;
    } else {
        eprintln!(
            "cargo-deny is not installed: licences and sources were not checked (cargo install cargo-deny)"
        );
    }
    let check = [
        "run",
        "--quiet",
        "--package",
        "xtask",
        "--features",
        "codegen",
        "--",
        "codegen",
        "--check",
    ];
    shell::run(&mut shell::cargo(check))?;
    test::run()
}
