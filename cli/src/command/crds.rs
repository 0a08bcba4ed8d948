//! `argosy crds`

use std::process::ExitCode;

use anyhow::Result;

use crate::output::{self, Documents};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Format.
    #[arg(short, long, value_enum, default_value_t = Documents::Yaml)]
    output: Documents,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    output::documents(&argosy_api::crds(), args.output)?;
    Ok(ExitCode::SUCCESS)
}
