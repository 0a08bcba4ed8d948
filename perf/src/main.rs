//! `argosy-perf ROW`: runs measured as a whole, the shipped program from outside or a part of it in this process.
//!
//! Each row prints its figures, with `--json` as lines `{"row","who","metric","value","unit"}`. Published results are in
//! `docs/results/`, with machine and date.

mod chance;
mod fleet;
mod made;
mod population;
mod repo_server;
mod report;
mod rows;
mod servers;
mod sources;
mod usage;
mod workload;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;

use rows::{Context, Row};

/// The allocator of the shipped program: rows that measure memory in this process measure what it would have.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
#[command(about = "Measures whole runs of Argosy", max_term_width = 110)]
struct Args {
    #[command(subcommand)]
    row: Row,
    /// Print JSON lines.
    #[arg(long, global = true)]
    json: bool,
    /// The `argosy` program to measure: a release build.
    #[arg(long, global = true, default_value = "target/release/argosy")]
    program: PathBuf,
    /// What to measure beside it; each row that takes a peer says what the command has to do.
    #[arg(long, global = true, value_name = "COMMAND")]
    peer: Option<String>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let context = Context {
        program: args.program,
        peer: args.peer,
        report: report::Report::new(args.json),
    };
    args.row.run(&context).await
}
