//! `argosy-perf ROW`: whole runs of the shipped program, measured from outside.
//!
//! Each row prints its figures, with `--json` as lines `{"row","who","metric","value","unit"}`. Published results are in
//! `perf/results/`, with machine and date.

mod one_cluster;
mod report;
mod usage;
mod workload;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

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
}

#[derive(Subcommand)]
enum Row {
    /// Applications of 20 plain resources each on one real kube-apiserver: from nothing to all Synced, then a refresh of all.
    OneCluster(one_cluster::Args),
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let report = report::Report::new(args.json);
    match args.row {
        Row::OneCluster(row) => one_cluster::run(&row, &args.program, &report).await,
    }
}
