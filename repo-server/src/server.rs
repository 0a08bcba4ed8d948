//! The process: listeners, TLS, health, and an orderly end.

use crate::args::{Args, CLIENT_CA};
use crate::metrics::Metrics;
use crate::peers::Authorised;
use crate::render::Renderer;
use crate::service::Service;
use anyhow::Context as _;
use argosy_api::repository::repo_server_service_server::RepoServerServiceServer;
use argosy_runtime::tasks::Tasks;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server as Transport, ServerTlsConfig};

/// How long renders under way may take once the process is to end.
const GRACE: Duration = Duration::from_secs(30);
/// Names of the self-signed certificate; clients do not check them unless they were given a certificate to trust.
const NAMES: [&str; 2] = ["localhost", "argocd-repo-server"];

/// A repo-server that listens.
#[derive(Debug)]
pub struct Server {
    /// Of gRPC.
    pub address: SocketAddr,
    /// Of metrics and health.
    pub metrics_address: SocketAddr,
}

/// Runs the repo-server until it is told to stop.
///
/// # Errors
/// When it cannot start, or something without which it is of no use ended.
pub async fn run(args: Args) -> anyhow::Result<()> {
    argosy_runtime::log::init(&args.log, "ARGOCD_REPO_SERVER").context("set up logs")?;
    let tasks = Tasks::new();
    let server = start(args, &tasks).await?;
    tracing::info!(address = %server.address, "argosy repo-server is listening");
    tasks.run_until_stopped(GRACE).await?;
    Ok(())
}

/// Starts the repo-server as tasks.
///
/// # Errors
/// When a cache directory, certificate or port cannot be had.
pub async fn start(args: Args, tasks: &Tasks) -> anyhow::Result<Server> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let metrics = Metrics::default();
    let mut registry = argosy_runtime::metrics::registry();
    metrics.register(&mut registry);
    let cache_dir = args
        .cache_dir
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join("argosy-repo-server"));
    let renderer = Arc::new(crate::renderer(&args, &cache_dir, metrics).context("set up the caches")?);
    fence(&renderer, args.require_render_fence).await?;
    let tls = if args.disable_tls { None } else { Some(tls(&args)?) };
    if tls.is_none() && args.client_ca_path.exists() {
        tracing::warn!(
            path = %args.client_ca_path.display(),
            "TLS is off (--disable-tls), so clients are not asked for a certificate of this authority"
        );
    }
    let listener = tokio::net::TcpListener::bind((args.address, args.port))
        .await
        .context("listen for gRPC")?;
    let address = listener.local_addr()?;
    let polled = renderer.clone();
    tasks.spawn_restarting("poll", move || {
        let polled = polled.clone();
        async move { polled.git.poll().await }
    });
    let max_message = args.grpc_max_size << 20;
    let service = RepoServerServiceServer::new(Service::new(
        renderer,
        args.parallelism_limit,
        args.include_hidden_directories,
        args.gpg_enabled,
    )?)
    .max_decoding_message_size(max_message)
    .max_encoding_message_size(max_message);
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<RepoServerServiceServer<Service>>().await;
    let mut transport = Transport::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(8 << 20);
    if let Some(tls) = tls {
        transport = transport.tls_config(tls).context("set up TLS")?;
    }
    let mut transport = transport.layer(tower::layer::layer_fn(Authorised));
    let router = transport.add_service(health).add_service(service);
    let stopping = tasks.stopping();
    let serving = tasks.clone();
    tasks.spawn_finishing("grpc", async move {
        // The builder sets this only for listeners of its own; without it answers wait for the acknowledgement of others.
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let end = stopping.clone();
        if let Err(error) = router
            .serve_with_incoming_shutdown(incoming, async move { end.cancelled().await })
            .await
        {
            tracing::error!(%error, "serving gRPC ended");
        }
        if !stopping.is_cancelled() {
            serving.stop();
        }
    });
    let metrics = argosy_runtime::args::Metrics {
        metrics_address: args.metrics_address,
        metrics_port: Some(args.metrics_port),
    };
    let metrics_address = metrics.socket(args.metrics_port);
    let metrics_address = argosy_runtime::metrics::serve(
        tasks,
        metrics_address,
        registry,
        argosy_runtime::metrics::Health::default(),
    )
    .await
    .context("serve metrics")?;
    Ok(Server {
        address,
        metrics_address,
    })
}

/// Says loudly, or refuses to go on, where content of repositories is not fenced in.
async fn fence(renderer: &Renderer, required: bool) -> anyhow::Result<()> {
    let held = match &renderer.child {
        Some(child) => Some(child.probe().await?),
        None => None,
    };
    renderer.metrics.fence(held);
    let missing = match held {
        Some(held) if held.is_whole() => {
            tracing::info!(files = ?held.files, "renders are fenced in: no network, no files but their own");
            return Ok(());
        }
        Some(held) => format!(
            "files: {:?}, system calls and network: {:?}",
            held.files, held.system_calls
        ),
        None => "the program argosy-render-child is not beside this one".to_owned(),
    };
    anyhow::ensure!(
        !required,
        "renders cannot be fenced in here ({missing}), and that is required"
    );
    tracing::warn!(
        missing,
        "RENDERS ARE NOT FENCED IN: a hostile repository can reach what this process can reach. \
         A kernel with Landlock (5.13) and seccomp is needed"
    );
    Ok(())
}

/// The certificate of the administrator, or a new one of our own.
fn tls(args: &Args) -> anyhow::Result<ServerTlsConfig> {
    let identity = match pair(&args.tls_path)? {
        Some(identity) => identity,
        None => {
            let names = NAMES.map(str::to_owned).to_vec();
            let made = rcgen::generate_simple_self_signed(names).context("make a certificate")?;
            Identity::from_pem(made.cert.pem(), made.signing_key.serialize_pem())
        }
    };
    let mut tls = ServerTlsConfig::new().identity(identity);
    let path = &args.client_ca_path;
    anyhow::ensure!(
        path.exists() || path == Path::new(CLIENT_CA),
        "--client-ca-path: there is no {}",
        path.display()
    );
    if path.exists() {
        let ca = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        tls = tls.client_ca_root(Certificate::from_pem(ca));
        tracing::info!(path = %path.display(), "mutual TLS: clients must show a certificate of this authority");
    }
    Ok(tls)
}

fn pair(dir: &Path) -> anyhow::Result<Option<Identity>> {
    let (certificate, key) = (dir.join("tls.crt"), dir.join("tls.key"));
    if !certificate.is_file() || !key.is_file() {
        return Ok(None);
    }
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("read {}", path.display()));
    Ok(Some(Identity::from_pem(read(&certificate)?, read(&key)?)))
}
