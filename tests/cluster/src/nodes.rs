//! Nodes without machines: kwok plays the kubelet, so that Pods run and end as their commands say.
//!
//! There is no scheduler: a Pod runs if its template names [`NODE`] as its `nodeName`. All others stay Pending.

use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::api::{Api, kinds};
use crate::process::Process;
use crate::{Cluster, free_port};

/// The name of the only node.
pub const NODE: &str = "node-1";

const STAGES: &str = include_str!("nodes/stages.yaml");

/// A running kwok. Dropping it ends the process; the node's object stays.
pub struct Nodes {
    _process: Process,
}

impl Nodes {
    /// Starts kwok on a cluster and creates the node.
    ///
    /// # Errors
    /// When kwok has not been built, or the API server refuses the node.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let program = cluster.binaries.path("kwok");
        if !program.is_file() {
            bail!(
                "{} is missing: build it once with `cargo xtask tools`",
                program.display()
            );
        }
        let stages = cluster.file("stages.yaml");
        fs::write(&stages, STAGES).context("write the stages of nodes and Pods")?;
        let process = Process::spawn(
            &program,
            &[
                format!("--kubeconfig={}", cluster.kubeconfig().display()),
                format!("--config={}", stages.display()),
                "--manage-all-nodes=true".into(),
                format!("--server-address=127.0.0.1:{}", free_port()?),
            ],
            cluster.file("kwok.log"),
        )?;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
        Api::connect(&cluster.kubeconfig())
            .await?
            .apply(kinds::NODE, &node)
            .await
            .context("create a node")?;
        Ok(Nodes { _process: process })
    }
}
