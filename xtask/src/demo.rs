//! `cargo xtask demo`: build what the demo needs, then hand over to `argosy demo`.

use std::process::Command;

use anyhow::{Context, Result};

use crate::{go, shell};

/// Builds and runs the demo with `args` for `argosy demo`.
///
/// # Errors
/// When a build fails. The exit code of the demo itself becomes that of this process.
pub(crate) fn run(args: &[String]) -> Result<()> {
    // Only a real control plane has to be built; the simulated one is part of the program.
    if args.iter().any(|arg| arg.ends_with("real")) {
        go::build_servers()?;
    }
    go::build_render_worker()?;
    // The profile that the tests use too: a newcomer builds everything once.
    shell::run(&mut shell::cargo(["build", "--package", "argosy"]))?;
    let status = Command::new(shell::root().join("target/debug/argosy"))
        .arg("demo")
        .args(args)
        .env("ARGOSY_TOOLS", go::tools_dir())
        .env("ARGOSY_RENDER_WORKER", go::render_worker())
        .current_dir(shell::root())
        .status()
        .context("start the demo")?;
    std::process::exit(status.code().unwrap_or(1));
}
