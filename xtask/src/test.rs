//! `cargo xtask test`: every test there is.

use std::process::Command;

use anyhow::{Result, bail};

use crate::{go, shell};

/// Builds what the tests need and runs them all.
///
/// # Errors
/// Names the step that failed.
pub(crate) fn run() -> Result<()> {
    require_programs()?;
    go::build_all()?;
    shell::run(
        Command::new("go")
            .args(["test", "-trimpath", "./..."])
            .current_dir(go::worker_dir()),
    )?;
    // The end-to-end tests start the shipped program as an operator would. Built together with the tests it has the
    // same dependencies as they, which are compiled once.
    shell::run(&mut shell::cargo(["build", "--workspace", "--bins", "--tests"]))?;
    shell::run(
        shell::cargo(["test", "--workspace", "--no-fail-fast"])
            .env("ARGOSY_TOOLS", go::tools_dir())
            .env("ARGOSY_RENDER_WORKER", go::render_worker()),
    )
}

/// Servers that tests start: program, Debian's package, what for.
const PROGRAMS: [(&str, &str, &str); 2] = [
    ("sshd", "openssh-server", "Git over ssh"),
    ("redis-server", "redis-server", "state for Argo CD's API server"),
];

fn require_programs() -> Result<()> {
    let missing: Vec<_> = PROGRAMS
        .iter()
        .filter(|(program, ..)| !shell::has(program))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    for (program, _, purpose) in &missing {
        eprintln!("The tests of {purpose} need {program}.");
    }
    if !shell::has("apt-get") {
        bail!("install what is named above and run this again");
    }
    let packages = missing.iter().map(|(_, package, _)| *package);
    let mut update = Command::new("apt-get");
    shell::run(update.args(["update", "-qq"]))?;
    let mut install = Command::new("apt-get");
    install
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(packages);
    shell::run(install.env("DEBIAN_FRONTEND", "noninteractive"))
}
