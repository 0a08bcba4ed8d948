//! `cargo xtask`: what people do in this repository, each as one command.

mod check;
#[cfg(feature = "codegen")]
mod codegen;
#[cfg(feature = "codegen")]
mod crds;
mod demo;
mod go;
mod guards;
#[cfg(feature = "codegen")]
mod schemas;
mod shell;
mod test;
mod tidy;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "What people do in this repository")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The main job, live: a control plane on loopback, a sample Git repository, Applications synced from it.
    Demo {
        /// Arguments for `argosy demo`, such as `--once --json`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// All tests: Rust, Go, and end to end on a real kube-apiserver.
    Test,
    /// What must hold before a change lands: format, lints, layering, generated code, tests.
    Ci,
    /// Builds the servers that tests and demo run on (etcd, kube-apiserver, kube-controller-manager, kwok), kubectl, promtool, and the render worker.
    Tools,
    /// The shards' protocol in virtual time with everything going wrong, so many seeds of it.
    Simulate {
        /// Whole controllers instead of the protocol alone.
        #[arg(long)]
        whole: bool,
        /// Arguments for the simulation, such as `--seeds 1000`, or `--first 17 --seeds 1` to repeat one.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// The hand-over of a cluster in a model checker, every way that it can go within bounds.
    Model {
        /// Arguments for the check, such as `--time 6 --delays 2`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Takes each guard of the shards' protocol out of a copy, one at a time, and looks for the seed that notices.
    Guards {
        /// The guards of whole controllers instead.
        #[arg(long)]
        whole: bool,
        /// The guards that have a test of their own instead.
        #[arg(long, conflicts_with = "whole")]
        tests: bool,
        /// Only those whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
        /// So many seeds at most for each.
        #[arg(long, conflicts_with = "tests")]
        seeds: Option<u64>,
    },
    /// The layering and habits that the compiler does not check.
    Tidy,
    /// Regenerates what is made from api/: gRPC code and deploy/crds. With --check, fails if it differs.
    Codegen {
        /// Compare with what is committed and write nothing.
        #[arg(long)]
        check: bool,
        /// A folder of OpenAPI v3 documents of a kube-apiserver: remakes the embedded schemas as well.
        #[arg(long)]
        openapi: Option<std::path::PathBuf>,
    },
}

fn main() -> Result<()> {
    match Args::parse().command {
        Command::Demo { args } => demo::run(&args),
        Command::Test => test::run(),
        Command::Ci => check::run(),
        Command::Tools => go::build_all(),
        Command::Simulate { whole: false, args } => released("argosy-shard-simulation", &args),
        Command::Simulate { whole: true, args } => released("argosy-whole", &args),
        Command::Model { args } => released("argosy-shard-model", &args),
        Command::Guards {
            whole,
            tests,
            only,
            seeds,
        } => {
            let kind = match (whole, tests) {
                (true, _) => guards::Kind::Whole,
                (_, true) => guards::Kind::Tests,
                _ => guards::Kind::Protocol,
            };
            guards::run(kind, &only, seeds)
        }
        Command::Tidy => tidy::run(),
        Command::Codegen { check, openapi } => generate(check, openapi.as_deref()),
    }
}

/// Runs the program of a package, optimised.
fn released(package: &str, args: &[String]) -> Result<()> {
    let mut command = shell::cargo(["run", "--quiet", "--release", "--package", package, "--"]);
    shell::run(command.args(args))
}

#[cfg(feature = "codegen")]
fn generate(check: bool, openapi: Option<&std::path::Path>) -> Result<()> {
    if let Some(folder) = openapi {
        schemas::run(folder)?;
    }
    codegen::run(check)?;
    crds::run(check)
}

/// The generators bring a protobuf compiler along, which no other command wants to wait for: they are a feature.
#[cfg(not(feature = "codegen"))]
fn generate(check: bool, openapi: Option<&std::path::Path>) -> Result<()> {
    let mut command = shell::cargo([
        "run",
        "--quiet",
        "--package",
        "xtask",
        "--features",
        "codegen",
        "--",
        "codegen",
    ]);
    if check {
        command.arg("--check");
    }
    if let Some(folder) = openapi {
        command.arg("--openapi").arg(folder);
    }
    shell::run(&mut command)
}
