//! Repo-servers under measurement: the shipped program, or whatever a peer's command starts.
//!
//! A peer's command is run by a shell with `PORT` in its environment and serves Argo CD's `RepoServerService` there in plain
//! text on 127.0.0.1. Both are asked by the same client.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use argosy_repo_client::{Config, RepoClient, Tls};
use argosy_test_cluster::free_port;

use crate::report::Who;
use crate::usage;

/// How long a repo-server may take until it listens.
const READY: Duration = Duration::from_secs(60);

/// Repo-servers behind one client.
pub(crate) struct RepoServers {
    pub(crate) who: Who,
    servers: Vec<Process>,
    _dir: tempfile::TempDir,
}

/// One repo-server; dropping it ends it and what it started.
struct Process {
    child: Child,
    port: u16,
    metrics_port: u16,
}

impl Drop for Process {
    fn drop(&mut self) {
        // The whole group: a command of a peer may have started others.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill")
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
        let _ = self.child.wait();
    }
}

impl RepoServers {
    /// Starts as many of the shipped program.
    pub(crate) async fn start(program: &Path, count: usize) -> Result<RepoServers> {
        let program = program
            .canonicalize()
            .with_context(|| format!("find {} (build it with --release)", program.display()))?;
        RepoServers::launch(Who::Argosy, count, |dir, port, metrics_port| {
            let mut command = Command::new(&program);
            command
                .args([
                    "repo-server",
                    "--disable-tls",
                    "--address=127.0.0.1",
                    "--metrics-address=127.0.0.1",
                ])
                .arg(format!("--port={port}"))
                .arg(format!("--metrics-port={metrics_port}"))
                .arg("--allow-inner-hosts=file://")
                .arg("--loglevel=warn")
                .env("ARGOSY_REPO_SERVER_CACHE_DIR", dir);
            command
        })
        .await
    }

    /// Starts as many of a peer.
    pub(crate) async fn peer(command: &str, count: usize) -> Result<RepoServers> {
        RepoServers::launch(Who::Peer, count, |dir, port, metrics_port| {
            let mut shell = Command::new("sh");
            shell
                .args(["-c", command])
                .current_dir(dir)
                .env("PORT", port.to_string())
                .env("METRICS_PORT", metrics_port.to_string());
            shell
        })
        .await
    }

    async fn launch(
        who: Who,
        count: usize,
        command: impl Fn(&Path, u16, u16) -> Command,
    ) -> Result<RepoServers> {
        let dir = tempfile::Builder::new().prefix("argosy-perf-").tempdir()?;
        let mut servers = Vec::new();
        for nth in 0..count {
            let own = dir.path().join(nth.to_string());
            std::fs::create_dir(&own)?;
            let (port, metrics_port) = (free_port()?, free_port()?);
            let mut command = command(&own, port, metrics_port);
            // What a server says is not a figure.
            command
                .stdin(Stdio::null())
                .stdout(std::io::stderr())
                .process_group(0);
            let child = command.spawn().with_context(|| format!("start {command:?}"))?;
            servers.push(Process {
                child,
                port,
                metrics_port,
            });
        }
        let mut servers = RepoServers {
            who,
            servers,
            _dir: dir,
        };
        let started = Instant::now();
        for server in &mut servers.servers {
            while tokio::net::TcpStream::connect(("127.0.0.1", server.port))
                .await
                .is_err()
            {
                if let Some(status) = server.child.try_wait()? {
                    bail!("a repo-server ended at its start: {status}");
                }
                ensure!(started.elapsed() < READY, "a repo-server does not listen");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(servers)
    }

    /// `host:port` of each, separated by commas.
    pub(crate) fn address(&self) -> String {
        let addresses: Vec<String> = self
            .servers
            .iter()
            .map(|server| format!("127.0.0.1:{}", server.port))
            .collect();
        addresses.join(",")
    }

    pub(crate) fn client(&self) -> Result<RepoClient> {
        client(&self.address())
    }

    /// CPU seconds of all of them, with their workers, so far.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        self.servers
            .iter()
            .map(|server| usage::tree_cpu_seconds(server.child.id()))
            .sum()
    }

    /// Sums of the samples of a metric whose labels have a text in them, one for each server.
    pub(crate) async fn metric(&self, name: &str, labels: &str) -> Result<Vec<f64>> {
        let mut sums = Vec::new();
        for server in &self.servers {
            let text = scrape(server.metrics_port).await?;
            let samples = text
                .lines()
                .filter(|line| line.starts_with(name) && line.contains(labels));
            sums.push(
                samples
                    .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                    .sum(),
            );
        }
        Ok(sums)
    }
}

/// A client without transport security.
pub(crate) fn client(address: &str) -> Result<RepoClient> {
    let config = Config {
        address: address.to_owned(),
        tls: Tls::Plaintext,
        timeout: Duration::from_secs(300),
        ..Config::default()
    };
    Ok(RepoClient::new(config)?)
}

async fn scrape(port: u16) -> Result<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .context("read metrics")?;
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.context("read metrics")?;
    Ok(text)
}

/// The value below which a share of the values lies.
pub(crate) fn quantile(sorted: &[Duration], share: f64) -> Duration {
    let at = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or_default()
}
