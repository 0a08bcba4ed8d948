//! The process: listeners, TLS, health, and an orderly end.

use crate::args::{Args, CLIENT_CA};
use crate::metrics::Metrics;
use crate::peers::{Authorised, Gate};
use crate::render::Renderer;
use crate::service::Service;
use anyhow::Context as _;
use argosy_api::repository::repo_server_service_server::RepoServerServiceServer;
use argosy_peers::files::Files;
use argosy_peers::{Callers, Live, Mutual};
use argosy_runtime::tasks::Tasks;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Server as Transport;

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
    let live = if args.disable_tls {
        None
    } else {
        Some(certificates(&args, tasks)?)
    };
    if live.is_none() && args.client_ca_path.exists() {
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
        args.include_hidden_directories,
        args.gpg_enabled,
    )?)
    .max_decoding_message_size(max_message)
    .max_encoding_message_size(max_message);
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<RepoServerServiceServer<Service>>().await;
    let gate = live.as_ref().map(|live| Gate {
        callers: Arc::new(Callers::new(live.clone())),
        mutual: args.mutual_tls,
    });
    let tls = live.map(|live| argosy_peers::server::config(&live, &NAMES));
    let tls = tls.transpose().context("set up TLS")?;
    let router = Transport::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(8 << 20)
        .layer(tower::layer::layer_fn(move |inner| Authorised {
            inner,
            gate: gate.clone(),
        }))
        .add_service(health)
        .add_service(service);
    let stopping = tasks.stopping();
    let serving = tasks.clone();
    tasks.spawn_finishing("grpc", async move {
        let end = stopping.clone();
        let end = async move { end.cancelled().await };
        let incoming = argosy_peers::server::incoming(listener, tls);
        if let Err(error) = router.serve_with_incoming_shutdown(incoming, end).await {
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

/// What we show, and by whom clients are known: from files, which may come and change while we run.
fn certificates(args: &Args, tasks: &Tasks) -> anyhow::Result<Arc<Live>> {
    let authority = &args.client_ca_path;
    let asked = args.mutual_tls != Mutual::Off;
    // An optional Secret is mounted as an empty folder until it is there.
    anyhow::ensure!(
        !asked || authority.parent().is_some_and(Path::is_dir) || authority == Path::new(CLIENT_CA),
        "--client-ca-path: there is no folder for {}",
        authority.display()
    );
    let files = Files {
        identity: Some((args.tls_path.join("tls.crt"), args.tls_path.join("tls.key"))),
        authority: asked.then(|| authority.clone()),
    };
    let live = Live::of(files.read()?).context("use the certificates of --tls-path and --client-ca-path")?;
    match (args.mutual_tls, live.knows_an_authority()) {
        (Mutual::Off, _) => tracing::info!("clients are not asked who they are (--mutual-tls off)"),
        (mode, true) => tracing::info!(%mode, path = %authority.display(), "mutual TLS"),
        (_, false) => tracing::warn!(
            path = %authority.display(),
            "there is no authority yet that clients could be known by: all are served"
        ),
    }
    tasks.spawn("certificates", files.follow(live.clone()));
    Ok(live)
}
