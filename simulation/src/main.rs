//! `argosy-simulation`: simulated clusters for whoever wants to speak to some.

use std::path::PathBuf;

use anyhow::{Context, Result};
use argosy_simulation::fleet::Fleet;
use argosy_simulation::serve::{Cluster, Transport};
use argosy_simulation::{ApiServer, Options};
use clap::{Parser, Subcommand};
use jiff::Timestamp;

#[derive(Parser)]
#[command(
    name = "argosy-simulation",
    version,
    about = "Simulated Kubernetes API servers",
    max_term_width = 110
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve clusters until Ctrl-C, with a kubeconfig for each.
    Serve(Serve),
}

#[derive(clap::Args)]
struct Serve {
    /// How many clusters.
    #[arg(long, default_value_t = 1)]
    clusters: u32,
    /// Objects in each; without any, clusters begin empty and their controllers run.
    #[arg(long, default_value_t = 0)]
    objects: u32,
    /// Custom kinds in each beside those that the objects need.
    #[arg(long, default_value_t = 0)]
    extra_kinds: u32,
    /// No two workloads have anything in common.
    #[arg(long)]
    unique: bool,
    /// Changes a second in each cluster.
    #[arg(long, default_value_t = 0)]
    churn: u32,
    /// The same seed makes the same clusters.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Without TLS.
    #[arg(long)]
    plain: bool,
    /// Nodes on which Pods run, in clusters that begin empty.
    #[arg(long, default_value_t = 2)]
    nodes: u32,
    /// Where the kubeconfigs go, as `cluster-0`, `cluster-1` and so on.
    #[arg(long, value_name = "DIR")]
    kubeconfig_dir: PathBuf,
}

#[tokio::main]
async fn main() -> Result<()> {
    match Args::parse().command {
        Command::Serve(args) => serve(args).await,
    }
}

async fn serve(args: Serve) -> Result<()> {
    let transport = if args.plain {
        Transport::Plain
    } else {
        Transport::Tls
    };
    let started = Timestamp::now();
    let clusters = if args.objects > 0 {
        let fleet = Fleet {
            clusters: args.clusters,
            objects: args.objects,
            extra_kinds: args.extra_kinds,
            unique: args.unique,
            seed: args.seed,
            churn: args.churn,
            transport,
            ..Fleet::default()
        };
        fleet.start().await?
    } else {
        empty(&args, transport).await?
    };
    let dir = &args.kubeconfig_dir;
    std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    for (number, cluster) in clusters.iter().enumerate() {
        let file = dir.join(format!("cluster-{number}"));
        let kubeconfig = serde_json::to_vec_pretty(&cluster.kubeconfig()?)?;
        std::fs::write(&file, kubeconfig).with_context(|| format!("write {}", file.display()))?;
    }
    let seconds = Timestamp::now().duration_since(started).as_secs_f64();
    println!(
        "{} clusters after {seconds:.1} s; kubeconfigs are in {}",
        clusters.len(),
        dir.display()
    );
    tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
    Ok(())
}

async fn empty(args: &Serve, transport: Transport) -> Result<Vec<Cluster>> {
    let mut clusters = Vec::new();
    for number in 0..args.clusters {
        let options = Options {
            seed: args.seed.wrapping_add(u64::from(number)),
            nodes: args.nodes,
            ..Options::default()
        };
        clusters.push(Cluster::serve(ApiServer::new(options, Timestamp::now()), transport).await?);
    }
    Ok(clusters)
}
