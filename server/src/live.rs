//! The controllers, asked for what they know: trees, desired and live state, how clusters are.
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

/// The controllers.
pub(crate) struct Live {
    plane: Arc<ControlPlane>,
    names: Vec<Pool>,
    /// Who answered last, by server or name of the cluster.
    owners: Mutex<HashMap<String, SocketAddr>>,
}

impl Live {
    /// The controllers behind these names (`host:port`). None is allowed: then trees are not to be had.
    pub(crate) fn new(plane: Arc<ControlPlane>, names: &[String], tls: &Tls) -> Result<Self, Error> {
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
        Ok(Live {
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
    ) -> Result<T, Status> {
        let cluster = cluster(&app.spec.destination);
        let mut controllers = self.controllers().await?;
        let owner = self.owners.lock().get(cluster).copied();
        controllers.sort_by_key(|controller| Some(controller.address) != owner);
        let mut refusal: Option<Status> = None;
        for controller in controllers {
            match call(client(&controller)).await {
                Ok(answer) => {
                    self.owners.lock().insert(cluster.to_owned(), controller.address);
                    return Ok(answer.into_inner());
                }
                // Who does not own the cluster says Unavailable: the owner's own words are more to the point.
                Err(status)
                    if refusal
                        .as_ref()
                        .is_none_or(|known| known.code() == Code::Unavailable) =>
                {
                    refusal = Some(status);
                }
                Err(_) => {}
            }
        }
        Err(refusal.map_or_else(|| Status::unavailable("no controller answered"), unavailable))
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
    pub(crate) async fn tree<V>(
        &self,
        app: &Granted<Arc<Application>, V>,
    ) -> Result<ApplicationTree, Status> {
        self.ask(app, |mut client| {
            let request = self.request(reference(app), Some(TIMEOUT));
            async move { client.resource_tree(request).await }.boxed()
        })
        .await
    }

    /// The tree now and after every change.
    pub(crate) async fn watch_tree<V>(
        &self,
        app: &Granted<Arc<Application>, V>,
    ) -> Result<Streaming<ApplicationTree>, Status> {
        self.ask(app, |mut client| {
            let request = self.request(reference(app), None);
            async move { client.watch_resource_tree(request).await }.boxed()
        })
        .await
    }

    /// Desired and live state of what an Application manages.
    pub(crate) async fn managed<V>(
        &self,
        app: &Granted<Arc<Application>, V>,
    ) -> Result<ManagedResourcesResponse, Status> {
        self.ask(app, |mut client| {
            let request = self.request(reference(app), Some(TIMEOUT));
            async move { client.managed_resources(request).await }.boxed()
        })
        .await
    }

    /// How clusters are, by server, as far as their owners answer.
    pub(crate) async fn clusters(&self) -> Result<HashMap<String, ClusterInfo>, Status> {
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
        | Code::Cancelled => {
            Status::unavailable(format!("ask the controller for live state: {}", status.message()))
        }
        _ => status,
    }
}
