//! The controllers, asked for what they know.
//!
//! An Application is known to the controller that owns its cluster. A name may stand for many controllers (a headless
//! Service): whoever answered last for a cluster is asked first, and the others if it has lost the cluster since.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use argosy_api::services::tree::tree_service_client::TreeServiceClient;
use argosy_api::services::tree::{ApplicationRef, ManagedResourcesResponse};
use argosy_api::v1alpha1::{Application, ApplicationDestination, ApplicationTree, ClusterInfo};
use argosy_repo_client::{Config, Error, Pool, Replica, Tls};
use aws_lc_rs::hmac;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::gate::Granted;
use crate::state::ControlPlane;

/// What the key of the installation signs to prove that we may ask.
const PROOF: &[u8] = b"argosy.tree.v1";
/// A question is answered within so much time.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How clusters are is told from memory.
const CLUSTERS_TIMEOUT: Duration = Duration::from_secs(5);
/// Trees of many thousand resources are large.
const MESSAGE_LEN_MAX: usize = 200 << 20;

type Client = TreeServiceClient<Channel>;

/// Why no controller told what it was asked for.
pub(super) enum Untold {
    /// None is configured or answers, or none of those that do owns the cluster.
    NoOwner(Status),
    /// The owner's own words.
    Owner(Status),
}

impl Untold {
    fn of(status: Status) -> Self {
        // What did not come from a controller has a cause in this process.
        let unreached = std::error::Error::source(&status).is_some();
        match status.code() {
            Code::Aborted => Untold::NoOwner(status),
            Code::Unavailable if unreached => Untold::NoOwner(status),
            _ => Untold::Owner(status),
        }
    }

    /// The answer of most weight is told: an owner's, and of owners that of one that is about to have an answer last.
    fn weight(&self) -> u8 {
        match self {
            Untold::NoOwner(_) => 0,
            Untold::Owner(status) if status.code() == Code::Unavailable => 1,
            Untold::Owner(_) => 2,
        }
    }
}

impl From<Untold> for Status {
    fn from(untold: Untold) -> Status {
        match untold {
            Untold::NoOwner(status) | Untold::Owner(status) => unavailable(status),
        }
    }
}

/// The controllers.
pub(super) struct Controllers {
    plane: Arc<ControlPlane>,
    names: Vec<Pool>,
    /// Who answered last, by server or name of the cluster.
    owners: Mutex<HashMap<String, SocketAddr>>,
}

impl Controllers {
    /// The controllers behind these names (`host:port`). None is allowed: then trees are not to be had.
    pub(super) fn new(plane: Arc<ControlPlane>, names: &[String], tls: &Tls) -> Result<Self, Error> {
        let names = names
            .iter()
            .map(|text| text.trim())
            .filter(|text| !text.is_empty());
        let pool = |name: &str| {
            Pool::new(&Config {
                address: name.to_owned(),
                tls: tls.clone(),
                timeout: TIMEOUT,
                max_message: MESSAGE_LEN_MAX,
                ..Config::default()
            })
        };
        Ok(Controllers {
            plane,
            names: names.map(pool).collect::<Result<_, _>>()?,
            owners: Mutex::default(),
        })
    }

    async fn controllers(&self) -> Result<Vec<Replica>, Status> {
        if self.names.is_empty() {
            return Err(Status::unavailable(
                "no controller is configured that could tell live state: set --controller",
            ));
        }
        let (mut found, mut failed) = (Vec::new(), None);
        for name in &self.names {
            match name.replicas().await {
                Ok(replicas) => found.extend(replicas),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(Error::Connect { address, message }) if found.is_empty() => Err(Status::unavailable(
                format!("find the controllers at {address} (--controller): {message}"),
            )),
            Some(error) if found.is_empty() => Err(Status::unavailable(error.to_string())),
            _ => Ok(found),
        }
    }

    /// Asks until one answers: the owner, as far as is known, first.
    async fn ask<V, T>(
        &self,
        app: &Granted<Arc<Application>, V>,
        call: impl Fn(Client) -> BoxFuture<'static, Result<Response<T>, Status>>,
    ) -> Result<T, Untold> {
        let cluster = cluster(&app.spec.destination);
        let mut controllers = self.controllers().await.map_err(Untold::NoOwner)?;
        let owner = self.owners.lock().get(cluster).copied();
        controllers.sort_by_key(|controller| Some(controller.address) != owner);
        let mut told = Untold::NoOwner(Status::unavailable("no controller answered"));
        for controller in controllers {
            match call(client(&controller)).await {
                Ok(answer) => {
                    self.owners.lock().insert(cluster.to_owned(), controller.address);
                    return Ok(answer.into_inner());
                }
                Err(status) => {
                    let untold = Untold::of(status);
                    if untold.weight() >= told.weight() {
                        told = untold;
                    }
                }
            }
        }
        Err(told)
    }

    fn request<T>(&self, message: T, timeout: Option<Duration>) -> Request<T> {
        let mut request = Request::new(message);
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.plane.settings().signing_key);
        let proof: String = hmac::sign(&key, PROOF)
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        if let Ok(value) = format!("Bearer {proof}").parse() {
            request.metadata_mut().insert("authorization", value);
        }
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        request
    }

    /// Everything an Application owns.
    pub(super) async fn tree<V>(
        &self,
        app: &Granted<Arc<Application>, V>,
    ) -> Result<ApplicationTree, Untold> {
        self.ask(app, |mut client| {
            let request = self.request(reference(app), Some(TIMEOUT));
            async move { client.resource_tree(request).await }.boxed()
        })
        .await
    }

    /// The tree now and after every change.
    pub(super) async fn watch_tree<V>(
        &self,
        app: &Granted<Arc<Application>, V>,
    ) -> Result<Streaming<ApplicationTree>, Untold> {
        self.ask(app, |mut client| {
            let request = self.request(reference(app), None);
            async move { client.watch_resource_tree(request).await }.boxed()
        })
        .await
    }

    /// Desired and live state of what an Application manages.
    pub(super) async fn managed<V>(
        &self,
        app: &Granted<Arc<Application>, V>,
    ) -> Result<ManagedResourcesResponse, Untold> {
        self.ask(app, |mut client| {
            let request = self.request(reference(app), Some(TIMEOUT));
            async move { client.managed_resources(request).await }.boxed()
        })
        .await
    }

    /// How clusters are, by server, as far as their owners answer.
    pub(super) async fn clusters(&self) -> Result<HashMap<String, ClusterInfo>, Status> {
        let (mut infos, mut refusal) = (None, None);
        for controller in self.controllers().await? {
            match client(&controller)
                .clusters(self.request((), Some(CLUSTERS_TIMEOUT)))
                .await
            {
                Ok(answer) => {
                    let items = answer.into_inner().items.into_iter();
                    let told = items.filter_map(|each| each.info.map(|info| (each.server, info)));
                    infos.get_or_insert_with(HashMap::new).extend(told);
                }
                Err(status) => refusal = Some(status),
            }
        }
        infos
            .ok_or_else(|| refusal.map_or_else(|| Status::unavailable("no controller answered"), unavailable))
    }
}

fn client(controller: &Replica) -> Client {
    TreeServiceClient::new(controller.channel.clone()).max_decoding_message_size(MESSAGE_LEN_MAX)
}

/// What a destination calls its cluster.
fn cluster(destination: &ApplicationDestination) -> &str {
    match destination.server.as_str() {
        "" => &destination.name,
        server => server,
    }
}

fn reference<V>(app: &Granted<Arc<Application>, V>) -> ApplicationRef {
    ApplicationRef {
        namespace: app.metadata.namespace.clone(),
        name: app.metadata.name.clone(),
    }
}

/// A controller that cannot be reached, or refuses us, is our trouble and not the caller's permission.
fn unavailable(status: Status) -> Status {
    match status.code() {
        Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unknown
        | Code::Unavailable
        | Code::Aborted
        | Code::Cancelled => {
            Status::unavailable(format!("ask the controller for live state: {}", status.message()))
        }
        _ => status,
    }
}
