//! Runs the control plane until Enter is pressed: a cluster to try things on by hand.

use anyhow::Result;
use argosy_test_cluster::{Binaries, Cluster};

fn main() -> Result<()> {
    let cluster = Cluster::start(Binaries::locate()?)?;
    println!("export KUBECONFIG={}", cluster.kubeconfig().display());
    println!("Serving on {}; press Enter to end it.", cluster.server());
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
