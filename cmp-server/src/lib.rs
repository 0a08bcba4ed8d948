//! The sidecar of a config management plugin: it is sent the files of a source over a socket that it shares with the
//! repo-server, runs the commands of its `plugin.yaml` on them, and answers with what they print.
//!
//! Files, socket and gRPC are those of Argo CD's `argocd-cmp-server`, which our repo-server asks just as well, as Argo CD's repo-server
//! asks this one. What a plugin may do is decided by the container that it runs in.

mod authority;
mod command;
mod config;
mod discover;
mod receive;
mod service;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use argosy_api::services::plugin::config_management_plugin_service_server::ConfigManagementPluginServiceServer;
use argosy_runtime::tasks::Tasks;
use tokio::net::UnixListener;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use authority::Tolerant;
use config::Plugin;
use service::Service;

/// How long requests under way may take once the process is to end.
const GRACE: Duration = Duration::from_secs(30);
/// The folder of unpacked files, below the working folder.
const WORK: &str = "_cmp_server";

/// Arguments of `argosy cmp-server`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// How to log.
    #[command(flatten)]
    pub log: argosy_runtime::args::Log,
    /// Folder of `plugin.yaml`.
    #[arg(long, default_value = "/home/argocd/cmp-server/config")]
    pub config_dir_path: PathBuf,
    /// Folder of the plugins' sockets, shared with the repo-server.
    #[arg(
        long,
        env = "ARGOCD_PLUGINSOCKFILEPATH",
        default_value = "/home/argocd/cmp-server/plugins"
    )]
    pub plugin_sockets: PathBuf,
    /// Folder below which files of requests are unpacked; the folder for temporary files if not given.
    #[arg(long, env = "ARGOCD_CMP_WORKDIR")]
    pub work_dir: Option<PathBuf>,
    /// Deadline of each command of the plugin.
    #[arg(long, env = "ARGOCD_EXEC_TIMEOUT", value_parser = argosy_api::duration::parse_or_seconds, default_value = "90s")]
    pub exec_timeout: Duration,
    /// How long a command that took too long may take to end, once it is asked to; then it is killed.
    #[arg(long, env = "ARGOCD_EXEC_FATAL_TIMEOUT", value_parser = argosy_api::duration::parse_or_seconds, default_value = "10s")]
    pub exec_fatal_timeout: Duration,
    /// Largest answer, in MB.
    #[arg(long, env = "ARGOCD_GRPC_MAX_SIZE_MB", default_value_t = 100)]
    pub grpc_max_size: usize,
}

/// Runs the plugin until it is told to stop.
///
/// # Errors
/// When it cannot start, or serving ended.
pub async fn run(args: Args) -> anyhow::Result<()> {
    argosy_runtime::log::init(&args.log, "ARGOCD_CMP_SERVER").context("set up logs")?;
    let tasks = Tasks::new();
    let socket = start(&args, &tasks)?;
    tracing::info!(socket = %socket.display(), "argosy cmp-server is listening");
    // The socket stays where it is: a repo-server that finds nobody behind it waits, one that found none would take the sources
    // for another tool's.
    Ok(tasks.run_until_stopped(GRACE).await?)
}

/// Starts the plugin as a task; gives the socket that it listens on.
///
/// # Errors
/// When `plugin.yaml`, a folder or the socket cannot be had.
pub fn start(args: &Args, tasks: &Tasks) -> anyhow::Result<PathBuf> {
    let plugin = Arc::new(Plugin::read(&args.config_dir_path)?);
    let socket = args.plugin_sockets.join(format!("{}.sock", plugin.name()));
    anyhow::ensure!(
        std::os::unix::net::UnixStream::connect(&socket).is_err(),
        "another plugin {:?} listens on {} already: give one of the two another metadata.name or spec.version",
        plugin.name(),
        socket.display()
    );
    let folder = args
        .work_dir
        .clone()
        .unwrap_or_else(std::env::temp_dir)
        .join(WORK)
        .join(plugin.name());
    private(&folder).with_context(|| format!("create {}", folder.display()))?;
    // What an earlier process left behind.
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).with_context(|| format!("listen on {}", socket.display()))?;
    let max_message = args.grpc_max_size << 20;
    let service = ConfigManagementPluginServiceServer::new(Service {
        plugin,
        folder,
        limits: command::Limits {
            deadline: args.exec_timeout,
            grace: args.exec_fatal_timeout,
            output: max_message as u64,
        },
    })
    .max_decoding_message_size(max_message)
    .max_encoding_message_size(max_message);
    let (stopping, serving) = (tasks.stopping(), tasks.clone());
    tasks.spawn_finishing("grpc", async move {
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter
            .set_serving::<ConfigManagementPluginServiceServer<Service>>()
            .await;
        let router = Server::builder().add_service(health).add_service(service);
        let end = stopping.clone();
        let incoming = UnixListenerStream::new(listener).map(|stream| stream.map(Tolerant::new));
        let ended = router.serve_with_incoming_shutdown(incoming, async move { end.cancelled().await });
        if let Err(error) = ended.await {
            tracing::error!(%error, "serving gRPC ended");
        }
        if !stopping.is_cancelled() {
            serving.stop();
        }
    });
    Ok(socket)
}

/// Makes a folder that only we can read, empty.
fn private(folder: &PathBuf) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}
