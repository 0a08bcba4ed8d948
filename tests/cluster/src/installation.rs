//! Argosy as an operator runs it: CRDs and settings on a [`Cluster`], a repo-server and a controller as processes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::api::{Api, kinds};
use crate::process::Process;
use crate::{Cluster, free_port, ready};

/// How long a process may take until its health port answers: minutes, where many others want the processors too.
const READY_DEADLINE: Duration = Duration::from_secs(600);

/// What to run and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `argosy` program.
    pub program: PathBuf,
    /// The control plane's namespace.
    pub namespace: String,
    /// Where logs and the repo-server's cache go.
    pub dir: PathBuf,
    /// How soon a commit is noticed; None for the defaults (two to three minutes).
    pub attention: Option<Duration>,
}

/// A running installation. Dropping it ends the processes.
pub struct Installation {
    options: Options,
    kubeconfig: PathBuf,
    render_worker: Option<PathBuf>,
    api: Api,
    repo_server: Option<Process>,
    repo_server_port: u16,
    /// Further repo-servers and their ports.
    replicas: Vec<(Process, u16)>,
    controller: Option<Process>,
    controller_metrics_port: u16,
    tree_port: u16,
    server: Option<Process>,
    server_port: u16,
    server_metrics_port: u16,
}

impl Installation {
    /// Prepares the namespace (CRDs, `argocd-cm`, project `default`) and starts both processes.
    ///
    /// # Errors
    /// When the API server refuses something or a process does not become ready; the end of its log is part of the text.
    pub async fn start(cluster: &Cluster, options: Options) -> Result<Self> {
        Self::start_on(cluster.kubeconfig(), cluster.binaries.render_worker(), options).await
    }

    /// As [`Installation::start`], on whatever cluster a kubeconfig names. Without a render worker `argosy` looks beside itself.
    ///
    /// # Errors
    /// As [`Installation::start`].
    pub async fn start_on(
        kubeconfig: PathBuf,
        render_worker: Option<PathBuf>,
        options: Options,
    ) -> Result<Self> {
        let api = Api::connect(&kubeconfig).await?;
        install(&api, &options).await?;
        let mut installation = Self {
            options,
            kubeconfig,
            render_worker,
            api,
            repo_server: None,
            repo_server_port: free_port()?,
            replicas: Vec::new(),
            controller: None,
            controller_metrics_port: free_port()?,
            tree_port: free_port()?,
            server: None,
            server_port: free_port()?,
            server_metrics_port: free_port()?,
        };
        let port = installation.repo_server_port;
        installation.repo_server = Some(installation.spawn_repo_server("repo-server", port, &[])?);
        installation.start_controller(&[])?;
        Ok(installation)
    }

    /// Kubernetes calls as a person makes them.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The control plane's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.options.namespace
    }

    /// `127.0.0.1:PORT` of the repo-server's gRPC; of each of them, separated by commas, if there are several.
    #[must_use]
    pub fn repo_server_address(&self) -> String {
        let more = self.replicas.iter().map(|(_, port)| *port);
        let ports = [self.repo_server_port].into_iter().chain(more);
        let addresses: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        addresses.join(",")
    }

    /// Starts another repo-server beside those that run. Whatever is started from now on asks it too.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn start_another_repo_server(&mut self) -> Result<()> {
        let (name, port) = (format!("repo-server-{}", self.replicas.len() + 2), free_port()?);
        let process = self.spawn_repo_server(&name, port, &[])?;
        self.replicas.push((process, port));
        Ok(())
    }

    /// Kills the first repo-server, as `kill -9` does.
    pub fn kill_repo_server(&mut self) {
        self.repo_server = None;
    }

    /// The process id of the controller.
    #[must_use]
    pub fn controller_pid(&self) -> Option<u32> {
        self.controller.as_ref().map(Process::pid)
    }

    /// `127.0.0.1:PORT` of the controller's metrics.
    #[must_use]
    pub fn controller_metrics_address(&self) -> String {
        format!("127.0.0.1:{}", self.controller_metrics_port)
    }

    /// The process id of the repo-server.
    #[must_use]
    pub fn repo_server_pid(&self) -> Option<u32> {
        self.repo_server.as_ref().map(Process::pid)
    }

    /// `127.0.0.1:PORT` of the API server, once it is started.
    #[must_use]
    pub fn server_address(&self) -> String {
        format!("127.0.0.1:{}", self.server_port)
    }

    /// Starts the API server (again), with further arguments.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn start_server(&mut self, more: &[&str]) -> Result<()> {
        let mut args = vec![
            "server".to_owned(),
            format!("--namespace={}", self.options.namespace),
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--repo-server={}", self.repo_server_address()),
            format!("--controller=127.0.0.1:{}", self.tree_port),
            "--address=127.0.0.1".to_owned(),
            format!("--port={}", self.server_port),
            format!("--metrics-address=127.0.0.1:{}", self.server_metrics_port),
        ];
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        self.server = None;
        self.server = Some(self.start_process("server", &args, self.server_metrics_port)?);
        Ok(())
    }

    /// The first password of `admin`, which the API server made.
    ///
    /// # Errors
    /// When there is none.
    pub async fn admin_password(&self) -> Result<String> {
        use base64::Engine as _;
        let secret = self
            .api
            .get(
                kinds::SECRET,
                &self.options.namespace,
                "argocd-initial-admin-secret",
            )
            .await?;
        let secret = secret.context("there is no Secret argocd-initial-admin-secret")?;
        let text = secret["data"]["password"]
            .as_str()
            .context("the Secret holds no password")?;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(text)
            .context("decode the password")?;
        String::from_utf8(bytes).context("decode the password")
    }

    /// Ends the controller with SIGKILL, as a crash or an eviction would.
    pub fn kill_controller(&mut self) {
        self.controller = None;
    }

    /// Starts the controller (again), with further arguments.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn start_controller(&mut self, more: &[&str]) -> Result<()> {
        let mut args = vec![
            "controller".to_owned(),
            format!("--namespace={}", self.options.namespace),
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--repo-server={}", self.repo_server_address()),
            format!("--metrics-address=127.0.0.1:{}", self.controller_metrics_port),
            "--tree-address=127.0.0.1".to_owned(),
            format!("--tree-port={}", self.tree_port),
        ];
        if let Some(attention) = self.options.attention {
            args.push(format!("--app-resync={}ms", attention.as_millis()));
            args.push("--app-resync-jitter=0".to_owned());
        }
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        self.controller = None;
        self.controller = Some(self.start_process("controller", &args, self.controller_metrics_port)?);
        Ok(())
    }

    /// Starts the repo-server (again), with further arguments.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn start_repo_server(&mut self, more: &[&str]) -> Result<()> {
        self.repo_server = None;
        self.repo_server = Some(self.spawn_repo_server("repo-server", self.repo_server_port, more)?);
        Ok(())
    }

    fn spawn_repo_server(&self, name: &str, port: u16, more: &[&str]) -> Result<Process> {
        let metrics_port = free_port()?;
        let mut args = vec![
            "repo-server".to_owned(),
            "--address=127.0.0.1".to_owned(),
            format!("--port={port}"),
            "--metrics-address=127.0.0.1".to_owned(),
            format!("--metrics-port={metrics_port}"),
            format!("--cache-dir={}", self.options.dir.join(name).display()),
            // The repositories of tests and demonstrations are directories and servers of this machine.
            "--allow-inner-hosts=file://,127.0.0.0/8,localhost".to_owned(),
        ];
        if let Some(worker) = &self.render_worker {
            args.push(format!("--render-worker={}", worker.display()));
        }
        if let Some(attention) = self.options.attention {
            args.push(format!("--revision-cache-expiration={}ms", attention.as_millis()));
        }
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        self.start_process(name, &args, metrics_port)
    }

    fn start_process(&self, name: &str, args: &[String], health_port: u16) -> Result<Process> {
        let process = Process::spawn(&self.options.program, args, self.log_file(name))?;
        let started = Instant::now();
        while !ready::http_ok(health_port, "/healthz") {
            if let Some(status) = process.ended() {
                bail!(
                    "argosy {name} ended with {status} before it was ready:\n{}",
                    process.log_tail()
                );
            }
            if started.elapsed() > READY_DEADLINE {
                bail!(
                    "argosy {name} was not ready after {} s:\n{}",
                    READY_DEADLINE.as_secs(),
                    process.log_tail()
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(process)
    }

    /// Says whether all processes that were started are still there.
    ///
    /// # Errors
    /// When one has ended by itself; the end of its log is part of the text.
    pub fn check_alive(&self) -> Result<()> {
        let processes = [
            ("repo-server", &self.repo_server),
            ("controller", &self.controller),
            ("server", &self.server),
        ];
        for (name, process) in processes {
            let ended = process
                .as_ref()
                .and_then(|process| Some((process, process.ended()?)));
            if let Some((process, status)) = ended {
                bail!("argosy {name} ended with {status}:\n{}", process.log_tail());
            }
        }
        Ok(())
    }

    /// Where a process logs to.
    #[must_use]
    pub fn log_file(&self, name: &str) -> PathBuf {
        self.options.dir.join(format!("{name}.log"))
    }
}

async fn install(api: &Api, options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.dir).with_context(|| format!("create {}", options.dir.display()))?;
    for crd in crds(&options.program)? {
        api.apply(kinds::CRD, &crd).await?;
    }
    let namespace = &options.namespace;
    api.apply(
        kinds::NAMESPACE,
        &json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
        }),
    )
    .await?;
    api.apply(kinds::CONFIG_MAP, &json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "argocd-cm", "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "argocd"}},
    }))
    .await?;
    apply_when_served(
        api,
        &json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": "default", "namespace": namespace},
            "spec": {
                "sourceRepos": ["*"],
                "destinations": [{"server": "*", "namespace": "*"}],
                "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
            },
        }),
    )
    .await
}

/// The API server needs a moment until it serves a new CRD.
async fn apply_when_served(api: &Api, project: &Value) -> Result<()> {
    let started = Instant::now();
    loop {
        match api.apply(kinds::PROJECT, project).await {
            Ok(_) => return Ok(()),
            Err(error) if started.elapsed() > READY_DEADLINE => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

fn crds(program: &Path) -> Result<Vec<Value>> {
    let output = std::process::Command::new(program)
        .args(["crds", "-o", "json"])
        .output()
        .context("run argosy crds")?;
    if !output.status.success() {
        bail!("argosy crds failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("read what argosy crds printed")
}
