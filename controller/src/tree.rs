//! Live state for the API server: gRPC in, gRPC out. Trees come from the snapshot of the Application's cluster, desired
//! states from the same comparison that a look makes; nothing is kept for it.
//!
//! A controller that does not own an Application's cluster answers `ABORTED`: another one knows.
//!
//! Who asks proves that they hold the key of the installation (`server.secretkey` of `argocd-secret`), which only its
//! own components can read, and shows the certificate of an API server where certificates are kept.

mod hosts;
mod node;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use argosy_api::services::tree::tree_service_server::{TreeService, TreeServiceServer};
use argosy_api::services::tree::{ApplicationRef, ClusterStatus, ClustersResponse, ManagedResourcesResponse};
use argosy_api::v1alpha1::{Application, ApplicationTree, ClusterInfo, ResourceNode};
use argosy_kube_io::{Target, api};
use argosy_object::ResourceKey;
use argosy_peers::server::{Refusal, Shown};
use argosy_peers::{Callers, Component, Live, Mutual};
use argosy_runtime::tasks::Tasks;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::Stream;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tracing::{info, warn};

use crate::apps;
use crate::args::Args;
use crate::clusters::{self, Cluster, DestinationError};
use crate::context::{AppKey, Context};
use crate::reconcile::{self, orphans};

/// What the key signs.
const PROOF: &[u8] = b"argosy.tree.v1";
/// The key is read anew at most this often.
const KEY_TTL: Duration = Duration::from_secs(1);
/// A tree that is watched is looked at this often, and sent if its cluster and it have changed.
const LOOK: Duration = Duration::from_millis(300);
/// A port that is taken is tried again after so long: the process that held it may be going.
const BIND_AGAIN: Duration = Duration::from_secs(5);
/// Names of the certificate of our own, which stands where none is kept.
const NAMES: [&str; 2] = ["localhost", "argocd-application-controller"];
/// Trees of many thousand resources are large.
const MESSAGE_LEN_MAX: usize = 200 << 20;

/// Serves, as a task, unless the port is 0.
pub(crate) fn serve(
    tasks: &Tasks,
    args: &Args,
    ctx: &Arc<Context>,
    control_plane: Target,
    live: Arc<Live>,
) -> anyhow::Result<()> {
    if args.tree_port == 0 {
        return Ok(());
    }
    let address = SocketAddr::new(args.tree_address, args.tree_port);
    let service = Service {
        ctx: ctx.clone(),
        keys: Arc::new(Keys {
            control_plane,
            known: Mutex::default(),
        }),
        callers: (!args.tree_plaintext).then(|| Arc::new(Callers::new(live.clone()))),
        mutual: args.mutual_tls,
    };
    let service = TreeServiceServer::new(service).max_encoding_message_size(MESSAGE_LEN_MAX);
    let tls = match args.tree_plaintext {
        true => None,
        false => Some(argosy_peers::server::config(&live, &NAMES)?),
    };
    let router = Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .add_service(service);
    let stopping = tasks.stopping();
    tasks.spawn("tree service", async move {
        let listener = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(error) => {
                    warn!(%address, %error, "listen for the API server");
                    tokio::time::sleep(BIND_AGAIN).await;
                }
            }
        };
        info!(%address, "telling the API server about live state");
        let end = async move { stopping.cancelled().await };
        let incoming = argosy_peers::server::incoming(listener, tls);
        if let Err(error) = router.serve_with_incoming_shutdown(incoming, end).await {
            warn!(%error, "serving the API server ended");
        }
    });
    Ok(())
}

/// The key of the installation.
struct Keys {
    control_plane: Target,
    known: Mutex<Option<(Instant, Vec<u8>)>>,
}

impl Keys {
    async fn read(&self, namespace: &str) -> Result<Vec<u8>, Status> {
        if let Some((at, key)) = &*self.known.lock()
            && at.elapsed() < KEY_TTL
        {
            return Ok(key.clone());
        }
        let secret = self
            .control_plane
            .get(&api::secrets(), namespace, "argocd-secret")
            .await;
        let secret = secret
            .map_err(|error| Status::unavailable(format!("read argocd-secret: {}", error.message())))?;
        let text = secret
            .as_ref()
            .and_then(|secret| secret.pointer("/data/server.secretkey")?.as_str());
        let key = text
            .and_then(|text| STANDARD.decode(text).ok())
            .unwrap_or_default();
        *self.known.lock() = Some((Instant::now(), key.clone()));
        Ok(key)
    }
}

#[derive(Clone)]
struct Service {
    ctx: Arc<Context>,
    keys: Arc<Keys>,
    /// Nothing where there is no TLS.
    callers: Option<Arc<Callers>>,
    mutual: Mutual,
}

impl Service {
    async fn check<T>(&self, request: &Request<T>) -> Result<(), Status> {
        if let Some(callers) = &self.callers {
            let shown = request.extensions().get::<Shown>();
            let caller = callers.who(shown.map_or(&[], Shown::certificates));
            match caller.refusal(self.mutual, &[Component::Server]) {
                None => {}
                Some(Refusal::Unknown(why)) => return Err(Status::unauthenticated(why)),
                Some(Refusal::NotTheirs(who)) => {
                    return Err(Status::unauthenticated(format!("live state is not for {who}")));
                }
            }
        }
        let refused = || Status::unauthenticated("the caller does not hold the key of this installation");
        let sent = request
            .metadata()
            .get("authorization")
            .and_then(|value| value.to_str().ok());
        let sent = sent
            .and_then(|text| text.strip_prefix("Bearer "))
            .and_then(unhex)
            .ok_or_else(refused)?;
        let key = self.keys.read(&self.ctx.options.namespace).await?;
        if key.is_empty() {
            return Err(refused());
        }
        hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &key), PROOF, &sent).map_err(|_| refused())
    }

    fn app(&self, reference: &ApplicationRef) -> Result<(Arc<Application>, Cluster), Status> {
        let key = AppKey::new(&reference.namespace, &reference.name);
        let app = self
            .ctx
            .apps
            .get(&key)
            .ok_or_else(|| Status::not_found(format!("there is no application {key}")))?;
        let cluster = self.ctx.clusters.resolve(&app.spec.destination);
        let cluster = cluster.map_err(|error| match error {
            DestinationError::NotOwned { .. } => Status::aborted(error.to_string()),
            _ => Status::failed_precondition(error.to_string()),
        })?;
        Ok((app, cluster))
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let whole = !text.is_empty() && text.len().is_multiple_of(2) && text.is_ascii();
    let pairs = (0..text.len()).step_by(2);
    whole.then(|| {
        pairs
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
            .collect()
    })?
}

/// Everything an Application owns, from the cluster's snapshot.
pub(crate) fn tree(ctx: &Context, app: &Application, cluster: &Cluster) -> Result<ApplicationTree, Status> {
    match cluster.status() {
        clusters::Status::Synced { .. } | clusters::Status::Failed { .. } => {}
        clusters::Status::Syncing { .. } => {
            return Err(Status::unavailable(format!(
                "cluster {} is being listed",
                cluster.server()
            )));
        }
        clusters::Status::Stopped => {
            return Err(Status::aborted("the cluster is followed by another controller"));
        }
    }
    let instance = AppKey::of(app).instance(&ctx.options.namespace);
    let settings = ctx.settings.get();
    let mut tree = node::tree(
        app,
        &instance,
        &cluster.snapshot(),
        &settings.health,
        &settings.config.allowed_node_labels,
    );
    tree.orphaned_nodes = orphaned(ctx, app, cluster);
    Ok(tree)
}

/// What is in the Application's namespace and nobody's, if its project asks for that.
fn orphaned(ctx: &Context, app: &Application, cluster: &Cluster) -> Vec<ResourceNode> {
    let apps::Project::Found(project) = ctx.apps.project(apps::project_name(app)) else {
        return Vec::new();
    };
    let managed = app.status.resources.iter();
    let managed =
        managed.map(|found| ResourceKey::new(&found.group, &found.kind, &found.namespace, &found.name));
    let snapshot = cluster.snapshot();
    let around = orphans::Around {
        project: &project,
        namespace: &app.spec.destination.namespace,
        managed: managed.collect(),
        snapshot: &snapshot,
    };
    let found = orphans::orphans(&around, |instance| orphans::exists(ctx, instance));
    node::nodes(&found, &snapshot, &ctx.settings.get().health)
}

#[tonic::async_trait]
impl TreeService for Service {
    type WatchResourceTreeStream = Pin<Box<dyn Stream<Item = Result<ApplicationTree, Status>> + Send>>;

    async fn resource_tree(
        &self,
        request: Request<ApplicationRef>,
    ) -> Result<Response<ApplicationTree>, Status> {
        self.check(&request).await?;
        let (app, cluster) = self.app(request.get_ref())?;
        tree(&self.ctx, &app, &cluster).map(Response::new)
    }

    async fn watch_resource_tree(
        &self,
        request: Request<ApplicationRef>,
    ) -> Result<Response<Self::WatchResourceTreeStream>, Status> {
        self.check(&request).await?;
        let reference = request.into_inner();
        let (app, cluster) = self.app(&reference)?;
        tree(&self.ctx, &app, &cluster)?;
        let service = self.clone();
        let (tx, rx) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(LOOK);
            let (mut seen, mut sent) = (None, None);
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = tx.closed() => return,
                }
                let (app, cluster) = match service.app(&reference) {
                    Ok(found) => found,
                    Err(status) => {
                        let _ = tx.send(Err(status)).await;
                        return;
                    }
                };
                let version = (
                    cluster.snapshot().revision(),
                    app.metadata.resource_version.clone(),
                );
                if seen.as_ref() == Some(&version) {
                    continue;
                }
                seen = Some(version);
                // A cluster that is listed anew has no tree for a while; the old one stands.
                let Ok(tree) = tree(&service.ctx, &app, &cluster) else {
                    continue;
                };
                if sent.as_ref() == Some(&tree) {
                    continue;
                }
                sent = Some(tree.clone());
                if tx.send(Ok(tree)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(
            tokio_stream::wrappers::ReceiverStream::new(rx),
        )))
    }

    async fn managed_resources(
        &self,
        request: Request<ApplicationRef>,
    ) -> Result<Response<ManagedResourcesResponse>, Status> {
        self.check(&request).await?;
        let (app, _) = self.app(request.get_ref())?;
        let items = reconcile::managed::managed(&self.ctx, &app)
            .await
            .map_err(|error| match error {
                reconcile::Error::Busy => Status::unavailable(error.to_string()),
                reconcile::Error::NotOurs => Status::aborted(error.to_string()),
                _ => Status::failed_precondition(error.to_string()),
            })?;
        Ok(Response::new(ManagedResourcesResponse { items }))
    }

    async fn clusters(&self, request: Request<()>) -> Result<Response<ClustersResponse>, Status> {
        self.check(&request).await?;
        let items = clusters(&self.ctx)
            .into_iter()
            .map(|(server, info)| ClusterStatus {
                server,
                info: Some(info),
            });
        Ok(Response::new(ClustersResponse {
            items: items.collect(),
        }))
    }
}

/// How the clusters that this process looks after are, by URL. One that is only being warmed for a hand-over is told about
/// by its owner.
pub(crate) fn clusters(ctx: &Context) -> Vec<(String, ClusterInfo)> {
    let running = ctx.clusters.running().into_iter();
    let ours = running.filter(|cluster| ctx.clusters.owns(cluster.server()));
    ours.map(|cluster| (cluster.server().to_owned(), info(ctx, &cluster)))
        .collect()
}

fn info(ctx: &Context, cluster: &Cluster) -> ClusterInfo {
    let mut info = ClusterInfo {
        server_version: cluster.kube_version().unwrap_or_default(),
        api_versions: cluster.api_versions().to_vec(),
        ..ClusterInfo::default()
    };
    let destinations = [cluster.server().to_owned(), cluster.name()];
    let count = destinations
        .iter()
        .map(|name| ctx.apps.of_destination(name).len())
        .sum::<usize>();
    info.applications_count = i64::try_from(count).unwrap_or_default();
    let (word, message, since) = match cluster.status() {
        clusters::Status::Synced { at } => ("Successful", unknown_kinds(cluster), at),
        clusters::Status::Syncing { since } => ("Unknown", "the cluster is being listed".to_owned(), since),
        clusters::Status::Failed { message, since } => ("Failed", message, since),
        clusters::Status::Stopped => ("Unknown", String::new(), ctx.clock.now()),
    };
    let time = argosy_api::meta::Time::from_timestamp(since);
    word.clone_into(&mut info.connection_state.status);
    info.connection_state.message = message;
    info.connection_state.attempted_at = Some(time);
    info.cache_info.resources_count = i64::try_from(cluster.resource_count()).unwrap_or_default();
    info.cache_info.apis_count = i64::try_from(cluster.watched_kinds()).unwrap_or_default();
    info.cache_info.last_cache_sync_time = (word == "Successful").then_some(time);
    info
}

/// Kinds of a cluster that can be spoken to of which not everything is known, for its connection's message.
fn unknown_kinds(cluster: &Cluster) -> String {
    let failures = cluster.kind_failures();
    let named = failures
        .iter()
        .filter(|failure| !failure.left_out)
        .map(|failure| format!("{}: {}", failure.kind, failure.reason()));
    named.collect::<Vec<_>>().join("; ")
}
