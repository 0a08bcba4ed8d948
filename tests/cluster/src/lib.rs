//! A real Kubernetes control plane on loopback: etcd, kube-apiserver and kube-controller-manager as child processes.
//!
//! The end-to-end tests, the load harness and `argosy demo` run on it. There are no nodes, so Pods stay Pending unless [`nodes`] plays them; all
//! that the API server and the controllers do (admission, defaulting, garbage collection, namespaces, ReplicaSets of
//! Deployments) is the real thing. The programs are built from their Go modules by `cargo xtask tools`.
//!
//! Everything lives in one temporary folder and ends with the [`Cluster`] value, also when its owner is killed.

pub mod api;
pub mod git;
pub mod installation;
pub mod nodes;
mod process;
mod ready;
pub mod redis;

use std::fs;
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use process::Process;

/// How long a server may take until it is ready. A cold start on two busy cores takes about ten seconds, on very busy ones minutes.
const READY_DEADLINE: Duration = Duration::from_secs(600);

/// The controllers that run: those that work without nodes.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,statefulset-controller,daemonset-controller,\
    job-controller,cronjob-controller,garbage-collector-controller,namespace-controller,serviceaccount-controller,\
    clusterrole-aggregation-controller,disruption-controller";

/// Where the three programs are.
#[derive(Clone, Debug)]
pub struct Binaries {
    dir: PathBuf,
}

impl Binaries {
    /// The programs in `dir`.
    ///
    /// # Errors
    /// Names the program that is missing and the command that builds it.
    pub fn in_dir(dir: impl Into<PathBuf>) -> Result<Self> {
        let dir = dir.into();
        for name in ["etcd", "kube-apiserver", "kube-controller-manager"] {
            let path = dir.join(name);
            if !path.is_file() {
                bail!(
                    "{} is missing: build it once with `cargo xtask tools`",
                    path.display()
                );
            }
        }
        Ok(Self { dir })
    }

    /// The programs named by `ARGOSY_TOOLS`, or else in the workspace's `target/tools`.
    ///
    /// # Errors
    /// As [`Binaries::in_dir`].
    pub fn locate() -> Result<Self> {
        Self::in_dir(tools_dir())
    }

    /// The render worker that `cargo xtask tools` has built, if it has; otherwise `argosy` looks beside itself.
    #[must_use]
    pub fn render_worker_built() -> Option<PathBuf> {
        Some(tools_dir().join("argosy-render-worker")).filter(|path| path.is_file())
    }

    /// The render worker, if it was built beside them; otherwise `argosy` looks beside itself.
    #[must_use]
    pub fn render_worker(&self) -> Option<PathBuf> {
        Some(self.path("argosy-render-worker")).filter(|path| path.is_file())
    }

    /// kubectl, if `cargo xtask tools` has built it.
    #[must_use]
    pub fn kubectl_built() -> Option<PathBuf> {
        Some(tools_dir().join("kubectl")).filter(|path| path.is_file())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// Where the programs are built: named by `ARGOSY_TOOLS`, or in the workspace.
fn tools_dir() -> PathBuf {
    match std::env::var_os("ARGOSY_TOOLS") {
        Some(dir) => PathBuf::from(dir),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools"),
    }
}

/// A running control plane. Dropping it ends the processes and removes its folder.
pub struct Cluster {
    binaries: Binaries,
    dir: tempfile::TempDir,
    etcd_port: u16,
    etcd_peer_port: u16,
    api_port: u16,
    etcd: Option<Process>,
    api_server: Option<Process>,
    controllers: Option<Process>,
}

/// The bearer token of the administrator (group `system:masters`).
pub const ADMIN_TOKEN: &str = "argosy-admin-token";

/// The bearer token of a user without any right, for tests of refusals.
pub const POWERLESS_TOKEN: &str = "argosy-powerless-token";

impl Cluster {
    /// Starts the control plane and waits until it is ready to serve.
    ///
    /// # Errors
    /// When a program cannot be started or does not become ready; the end of its log is part of the text.
    pub fn start(binaries: Binaries) -> Result<Self> {
        Self::start_in(binaries, &std::env::temp_dir())
    }

    /// As [`Cluster::start`], with the cluster's folder made inside `parent`.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_in(binaries: Binaries, parent: &Path) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("argosy-cluster-")
            .tempdir_in(parent)
            .context("create a folder for the cluster")?;
        let mut cluster = Self {
            binaries,
            etcd_port: free_port()?,
            etcd_peer_port: free_port()?,
            api_port: free_port()?,
            dir,
            etcd: None,
            api_server: None,
            controllers: None,
        };
        cluster.write_credentials()?;
        cluster.start_etcd()?;
        cluster.start_api_server()?;
        cluster.start_controllers()?;
        Ok(cluster)
    }

    /// `https://127.0.0.1:PORT`.
    #[must_use]
    pub fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.api_port)
    }

    /// A kubeconfig of the administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig")
    }

    /// The PEM bundle that verifies the API server's certificate.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn ca_pem(&self) -> Result<String> {
        fs::read_to_string(self.ca_file()).context("read the API server's certificate")
    }

    /// The process id of kube-apiserver, for measurements beside it.
    #[must_use]
    pub fn api_server_pid(&self) -> Option<u32> {
        self.api_server.as_ref().map(Process::pid)
    }

    /// Kills kube-apiserver as a crash would. etcd keeps the data.
    pub fn kill_api_server(&mut self) {
        self.api_server = None;
    }

    /// Starts kube-apiserver (again) on the same port and waits until it is ready.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_api_server(&mut self) -> Result<()> {
        let certificates = self.file("apiserver");
        let process = Process::spawn(
            &self.binaries.path("kube-apiserver"),
            &[
                format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
                "--bind-address=127.0.0.1".into(),
                "--advertise-address=127.0.0.1".into(),
                format!("--secure-port={}", self.api_port),
                format!("--cert-dir={}", certificates.display()),
                "--service-account-issuer=https://kubernetes.default.svc".into(),
                format!(
                    "--service-account-key-file={}",
                    self.file("service-account.pub").display()
                ),
                format!(
                    "--service-account-signing-key-file={}",
                    self.file("service-account.key").display()
                ),
                format!("--token-auth-file={}", self.file("tokens.csv").display()),
                "--authorization-mode=RBAC".into(),
                "--disable-admission-plugins=ServiceAccount".into(),
                "--service-cluster-ip-range=10.0.0.0/16".into(),
                "--max-requests-inflight=2000".into(),
                "--max-mutating-requests-inflight=1000".into(),
                "--endpoint-reconciler-type=none".into(),
            ],
            self.file("kube-apiserver.log"),
        )?;
        let port = self.api_port;
        let ca = self.ca_file();
        wait_until(&process, "kube-apiserver", || {
            ready::https_ok(port, "/readyz", &ca, ADMIN_TOKEN)
        })?;
        self.api_server = Some(process);
        Ok(())
    }

    fn start_etcd(&mut self) -> Result<()> {
        let client = format!("http://127.0.0.1:{}", self.etcd_port);
        let peer = format!("http://127.0.0.1:{}", self.etcd_peer_port);
        let process = Process::spawn(
            &self.binaries.path("etcd"),
            &[
                "--name=one".into(),
                format!("--data-dir={}", self.file("etcd").display()),
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=one={peer}"),
                // The data lives as long as the test: a write need not reach the disk.
                "--unsafe-no-fsync".into(),
                "--quota-backend-bytes=4294967296".into(),
                "--log-level=warn".into(),
            ],
            self.file("etcd.log"),
        )?;
        let port = self.etcd_port;
        wait_until(&process, "etcd", || ready::http_ok(port, "/health"))?;
        self.etcd = Some(process);
        Ok(())
    }

    fn start_controllers(&mut self) -> Result<()> {
        let process = Process::spawn(
            &self.binaries.path("kube-controller-manager"),
            &[
                format!("--kubeconfig={}", self.kubeconfig().display()),
                format!("--controllers={CONTROLLERS}"),
                format!(
                    "--service-account-private-key-file={}",
                    self.file("service-account.key").display()
                ),
                "--leader-elect=false".into(),
                "--secure-port=0".into(),
                "--kube-api-qps=500".into(),
                "--kube-api-burst=1000".into(),
                "--concurrent-gc-syncs=20".into(),
                "--concurrent-namespace-syncs=20".into(),
            ],
            self.file("kube-controller-manager.log"),
        )?;
        self.controllers = Some(process);
        Ok(())
    }

    fn write_credentials(&self) -> Result<()> {
        let key = rcgen::KeyPair::generate().context("generate the service account key")?;
        fs::write(self.file("service-account.key"), key.serialize_pem())?;
        fs::write(self.file("service-account.pub"), key.public_key_pem())?;
        // The API server takes an EC key to verify with only in its public form.
        fs::write(self.file("service-account.pub"), key.public_key_pem())?;
        fs::write(
            self.file("tokens.csv"),
            format!(
                "{ADMIN_TOKEN},admin,admin,\"system:masters\"\n{POWERLESS_TOKEN},powerless,powerless,\"nobody\"\n"
            ),
        )?;
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "argosy",
            "clusters": [{"name": "argosy", "cluster": {
                "server": self.server(),
                "certificate-authority": self.ca_file(),
            }}],
            "users": [{"name": "admin", "user": {"token": ADMIN_TOKEN}}],
            "contexts": [{"name": "argosy", "context": {"cluster": "argosy", "user": "admin"}}],
        });
        fs::write(self.kubeconfig(), serde_json::to_vec_pretty(&kubeconfig)?)?;
        Ok(())
    }

    fn ca_file(&self) -> PathBuf {
        self.file("apiserver/apiserver.crt")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Clients first, so that nobody logs a storm about a server that has gone.
        self.controllers = None;
        self.api_server = None;
        self.etcd = None;
    }
}

/// Where [`free_port`] looks: below the ports that Linux gives to connections, and to those who ask for any.
const PORTS: Range<u16> = 15_000..32_000;

/// A port on loopback where nobody listens, for a program that is started on it in a while, and perhaps again and again. No
/// connection comes by it meanwhile, and it is given once in a process.
///
/// # Errors
/// When there is none.
pub fn free_port() -> Result<u16> {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    // Processes at the same time begin at different places.
    let begin = std::process::id().wrapping_mul(89) % u32::from(count);
    for _ in PORTS {
        let nth = (begin + u32::from(GIVEN.fetch_add(1, Ordering::Relaxed))) % u32::from(count);
        let port = PORTS.start + nth as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("every port from {} to {} is taken", PORTS.start, PORTS.end)
}

fn wait_until(process: &Process, name: &str, mut ready: impl FnMut() -> bool) -> Result<()> {
    let started = Instant::now();
    while !ready() {
        if let Some(status) = process.ended() {
            bail!(
                "{name} ended with {status} before it was ready:\n{}",
                process.log_tail()
            );
        }
        if started.elapsed() > READY_DEADLINE {
            bail!(
                "{name} was not ready after {} s:\n{}",
                READY_DEADLINE.as_secs(),
                process.log_tail()
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
