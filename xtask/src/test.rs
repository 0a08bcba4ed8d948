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

/// The tests of Git over ssh talk to a real sshd.
fn require_programs() -> Result<()> {
    if shell::has("sshd") {
        return Ok(());
    }
    if shell::has("apt-get") {
        eprintln!("The tests of Git over ssh need sshd: installing openssh-server.");
        let mut update = Command::new("apt-get");
        shell::run(update.args(["update", "-qq"]))?;
        let mut install = Command::new("apt-get");
        install.args([
            "install",
            "-y",
            "-qq",
            "--no-install-recommends",
            "openssh-server",
        ]);
        return shell::run(install.env("DEBIAN_FRONTEND", "noninteractive"));
    }
    bail!("the tests of Git over ssh need sshd: install OpenSSH's server and run this again")
}
