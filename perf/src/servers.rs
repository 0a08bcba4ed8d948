//! Simulated API servers in this process, on threads of their own: what they cost is not counted, and peers can reach them.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use argosy_simulation::serve::Transport;
use argosy_simulation::{ADMIN_TOKEN, Answer, ApiServer, Cluster, Fleet};
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::usage::{self, Usage};

/// The threads that the servers run on.
const THREADS: &str = "servers";
/// A peer that asks for no list for so long has what it wants.
const QUIET: Duration = Duration::from_secs(10);
/// A peer that is not quiet after this time has failed.
const DEADLINE: Duration = Duration::from_secs(1800);

/// Servers that listen until this is dropped.
pub(crate) struct Servers {
    pub(crate) clusters: Vec<Cluster>,
    runtime: Option<Runtime>,
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.clusters.clear();
        if let Some(runtime) = self.runtime.take() {
            // Nothing in there is worth waiting for, and who drops this may be a task itself.
            runtime.shutdown_background();
        }
    }
}

impl Servers {
    /// The clusters of a fleet, and before them an empty one without controllers.
    pub(crate) fn start(fleet: &Fleet) -> Result<Servers> {
        let now = Timestamp::now();
        let empty = Fleet {
            objects: 0,
            ..fleet.clone()
        };
        let servers = std::iter::once(empty.server(u32::MAX, now));
        Self::serve(servers.chain((0..fleet.clusters).map(|number| fleet.server(number, now))))
    }

    /// Servers that are prepared already.
    pub(crate) fn serve(servers: impl IntoIterator<Item = ApiServer>) -> Result<Servers> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name(THREADS)
            .enable_all()
            .build()
            .context("start threads for the simulated servers")?;
        let mut clusters = Vec::new();
        for server in servers {
            let (send, receive) = std::sync::mpsc::channel();
            runtime.spawn(async move {
                let _ = send.send(Cluster::serve(server, Transport::Tls).await);
            });
            clusters.push(receive.recv().context("start a simulated server")??);
        }
        Ok(Servers {
            clusters,
            runtime: Some(runtime),
        })
    }

    /// CPU seconds of this process without those of the servers.
    pub(crate) fn cpu_seconds_beside(&self) -> Result<f64> {
        Ok(usage::read(std::process::id())?.cpu_seconds - usage::threads_cpu_seconds(THREADS)?)
    }

    /// Bytes that all of them have sent.
    pub(crate) fn sent(&self) -> u64 {
        self.clusters.iter().map(Cluster::sent).sum()
    }

    /// Lists that all of them were asked for, whole ones, pages and counts.
    pub(crate) fn lists(&self) -> u64 {
        let lists = |cluster: &Cluster| cluster.with(|server| server.asked("list", ""));
        self.clusters.iter().map(lists).sum()
    }

    /// Writes the kubeconfig of each into a directory, as `cluster-0` and so on.
    pub(crate) fn write_kubeconfigs(&self, dir: &Path) -> Result<()> {
        for (number, cluster) in self.clusters.iter().enumerate() {
            let file = dir.join(format!("cluster-{number}"));
            std::fs::write(&file, cluster.kubeconfig()?.to_string())
                .with_context(|| format!("write {}", file.display()))?;
        }
        Ok(())
    }
}

/// Makes one request of a server, past its port, and gives the answer's document.
pub(crate) fn request(cluster: &Cluster, method: &str, path: &str, body: &Value) -> Result<Value> {
    let media = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
        .header("content-type", media)
        .body(Bytes::from(body))?;
    match cluster.with(|server| server.handle(&request, Timestamp::now())) {
        Answer::Document(answer) if answer.status().is_success() => {
            serde_json::from_slice(answer.body()).context("read the answer of a simulated server")
        }
        Answer::Document(answer) => {
            bail!(
                "{method} {path}: {} {}",
                answer.status(),
                String::from_utf8_lossy(answer.body())
            )
        }
        Answer::Watch(_) | Answer::Broken => bail!("{method} {path}: no document"),
    }
}

/// A peer that runs, with whatever it has started; dropping this ends them.
pub(crate) struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill")
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
        let _ = self.0.wait();
    }
}

impl Peer {
    /// Runs a command by a shell, in a process group of its own. `KUBECONFIG_DIR` names the directory of the kubeconfigs.
    pub(crate) fn start(command: &str, kubeconfigs: &Path) -> Result<Peer> {
        let child = Command::new("sh")
            .args(["-c", command])
            .env("KUBECONFIG_DIR", kubeconfigs)
            .stdin(Stdio::null())
            .stdout(std::io::stderr())
            .process_group(0)
            .spawn()
            .with_context(|| format!("run {command}"))?;
        Ok(Peer(child))
    }

    /// What it has used so far.
    pub(crate) fn usage(&mut self) -> Result<Usage> {
        if let Some(status) = self.0.try_wait()? {
            bail!("the peer has ended: {status}");
        }
        usage::group(self.0.id())
    }

    /// Waits until it has listed something and then asks for no more. Gives what it has used by then.
    pub(crate) async fn settled(&mut self, servers: &Servers) -> Result<Usage> {
        let started = Instant::now();
        let (mut lists, mut since) = (servers.lists(), None);
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let usage = self.usage()?;
            let now = servers.lists();
            if now != lists {
                (lists, since) = (now, Some(Instant::now()));
            } else if since.is_some_and(|since: Instant| since.elapsed() >= QUIET) {
                return Ok(usage);
            }
            if started.elapsed() > DEADLINE {
                bail!("the peer has not come to rest after {} s", DEADLINE.as_secs());
            }
        }
    }
}
