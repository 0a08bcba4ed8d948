//! `argosy completion` and `argosy man`: what shells and `man` want to know of this program.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap_complete::Shell;

use crate::output;

#[derive(clap::Args)]
pub(crate) struct Completion {
    /// The shell.
    shell: Shell,
}

pub(crate) fn completion(mut program: clap::Command, args: &Completion) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "argosy", &mut script);
    output::text(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(clap::Args)]
pub(crate) struct Man {
    /// Where the pages go, one a command. It is made if it is not there.
    folder: PathBuf,
}

pub(crate) fn man(program: clap::Command, args: &Man) -> Result<ExitCode> {
    std::fs::create_dir_all(&args.folder).with_context(|| format!("create {}", args.folder.display()))?;
    clap_mangen::generate_to(program, &args.folder)
        .with_context(|| format!("write pages to {}", args.folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
