//! The shards of the test, what can be done to them, and what the control plane says of them.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use argosy_test_cluster::api::Api;
use argosy_test_cluster::free_port;
use argosy_test_cluster::installation::Installation;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{LEASE, NAMESPACE};
use crate::harness::{self, PATIENCE};

/// Shards that run, by name. Whatever runs at the end is killed.
pub(super) struct Shards {
    running: BTreeMap<String, Shard>,
    /// So many clusters beside the control plane's own.
    clusters: usize,
}

struct Shard {
    process: Child,
    /// Its network to the control plane.
    network: Network,
    /// Where it tells the API server about live state.
    tree: String,
    /// Where it tells its metrics.
    metrics: String,
}

impl Shards {
    pub(super) fn of(clusters: usize) -> Self {
        Shards {
            running: BTreeMap::new(),
            clusters,
        }
    }

    pub(super) async fn start(&mut self, installation: &Installation, name: &str) -> Result<()> {
        let dir = harness::scratch(&format!("shard-{name}"));
        let log = std::fs::File::create(dir.join("log"))?;
        let network = Network::to_the_control_plane().await?;
        let kubeconfig = dir.join("kubeconfig");
        let direct = std::fs::read_to_string(harness::cluster().kubeconfig())?;
        std::fs::write(
            &kubeconfig,
            direct.replace(&harness::cluster().server(), &network.server),
        )?;
        let tree_port = free_port()?;
        let metrics = format!("127.0.0.1:{}", free_port()?);
        let process = Command::new(harness::program())
            .args([
                "controller",
                "--tree-address=127.0.0.1",
                &format!("--tree-port={tree_port}"),
                &format!("--namespace={NAMESPACE}"),
                &format!("--kubeconfig={}", kubeconfig.display()),
                &format!("--repo-server={}", installation.repo_server_address()),
                &format!("--metrics-address={metrics}"),
                "--app-resync=3s",
                "--app-resync-jitter=0",
            ])
            .env("ARGOSY_SHARDING", "leases")
            .env("POD_UID", name)
            // Leases of 8 s: long enough for a busy machine, short enough for a test.
            .env("ARGOCD_CONTROLLER_HEARTBEAT_TIME", "2")
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .spawn()
            .context("start a shard")?;
        let tree = format!("127.0.0.1:{tree_port}");
        let shard = Shard {
            process,
            network,
            tree,
            metrics,
        };
        self.running.insert(name.to_owned(), shard);
        Ok(())
    }

    /// Nothing gets through between the shard and the control plane, or everything again.
    pub(super) fn cut_off(&self, name: &str, cut: bool) {
        self.running[name].network.open.send_replace(!cut);
    }

    pub(super) fn metrics(&self, name: &str) -> &str {
        &self.running[name].metrics
    }

    pub(super) fn trees(&self) -> Vec<String> {
        self.running.values().map(|shard| shard.tree.clone()).collect()
    }

    pub(super) fn kill(&mut self, name: &str) {
        if let Some(mut shard) = self.running.remove(name) {
            let _ = shard.process.kill();
            let _ = shard.process.wait();
        }
    }

    pub(super) fn signal(&self, name: &str, signal: &str) -> Result<()> {
        let pid = self.running[name].process.id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{signal}"), &pid])
            .status()?;
        if !sent.success() {
            bail!("send {signal} to shard {name}");
        }
        Ok(())
    }

    pub(super) async fn ended(&mut self, name: &str) -> Result<()> {
        let mut child = self.running.remove(name).context("a shard that runs")?.process;
        let started = Instant::now();
        loop {
            match child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("shard {name} ended with {status}"),
                None if started.elapsed() > PATIENCE => {
                    let _ = child.kill();
                    bail!("shard {name} did not end");
                }
                None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    pub(super) async fn owners(&self, api: &Api) -> Result<Vec<String>> {
        let mut owners: Vec<String> = records(api)
            .await?
            .into_values()
            .map(|(owner, _)| owner)
            .collect();
        owners.sort();
        owners.dedup();
        Ok(owners)
    }

    /// Waits until every cluster is owned by a shard that runs.
    pub(super) async fn settled(&self, api: &Api, what: &str) -> Result<()> {
        self.settled_without(api, "", what).await
    }

    pub(super) async fn settled_without(&self, api: &Api, other: &str, what: &str) -> Result<()> {
        let started = Instant::now();
        loop {
            let records = records(api).await?;
            // The targets, the control plane's own cluster, and what has no cluster.
            let complete = records.len() == self.clusters + 2;
            let owned = |(owner, _): &(String, u64)| self.running.contains_key(owner) && owner != other;
            if complete && records.values().all(owned) {
                eprintln!("{what}: owned after {:.1} s", started.elapsed().as_secs_f32());
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                bail!("{what}: not every cluster is owned: {records:?}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        for shard in self.running.values_mut() {
            let _ = shard.process.kill();
            let _ = shard.process.wait();
        }
    }
}

/// Owner and epoch of each cluster.
pub(super) async fn records(api: &Api) -> Result<BTreeMap<String, (String, u64)>> {
    let mut records = BTreeMap::new();
    for lease in api.list(LEASE, NAMESPACE).await? {
        if lease["metadata"]["labels"]["argosy.dev/lease"] != "cluster" {
            continue;
        }
        let state = lease["metadata"]["annotations"]["argosy.dev/state"]
            .as_str()
            .unwrap_or_default();
        let state: Value = serde_json::from_str(state)?;
        let owner = state["owner"]["shard"].as_str().unwrap_or_default().to_owned();
        let cluster = state["cluster"].as_str().unwrap_or_default().to_owned();
        records.insert(cluster, (owner, state["epoch"].as_u64().unwrap_or_default()));
    }
    Ok(records)
}

/// A network with the control plane alone behind it.
struct Network {
    /// The control plane's address in it.
    server: String,
    open: watch::Sender<bool>,
}

impl Network {
    async fn to_the_control_plane() -> Result<Self> {
        let behind = harness::cluster()
            .server()
            .trim_start_matches("https://")
            .to_owned();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let server = format!("https://127.0.0.1:{}", listener.local_addr()?.port());
        let (open, is_open) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                let (behind, is_open) = (behind.clone(), is_open.clone());
                tokio::spawn(async move {
                    if let Ok(to) = TcpStream::connect(behind).await {
                        let ((from, back), (answers, to)) = (from.into_split(), to.into_split());
                        tokio::join!(carry(from, to, is_open.clone()), carry(answers, back, is_open));
                    }
                });
            }
        });
        Ok(Network { server, open })
    }
}

/// Carries bytes one way. While the network is cut they wait: it is sent again what it has lost.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut is_open: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if is_open.wait_for(|open| *open).await.is_err() || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
