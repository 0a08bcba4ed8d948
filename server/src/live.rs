//! The controllers, asked for what they know: trees, desired and live state, how clusters are.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use argosy_api::services::tree::tree_service_client::TreeServiceClient;
use argosy_api::services::tree::{ApplicationRef, ManagedResourcesResponse};
use argosy_api::v1alpha1::{Application, ApplicationTree, ClusterInfo};
use argosy_repo_client::{Tls, connect};
use aws_lc_rs::hmac;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use crate::gate::Granted;
use crate::state::ControlPlane;

/// What the key of the installation signs to prove that we may ask.
const PROOF: &[u8] = b"argosy.tree.v1";
/// A question is answered within so much time.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Trees of many thousand resources are large.
const MESSAGE_LEN_MAX: usize = 200 << 20;

/// The controllers.
pub(crate) struct Live {
    plane: Arc<ControlPlane>,
    controllers: Vec<Channel>,
}

impl Live {
    /// The controllers at these addresses (`host:port`). None is allowed: then trees are not to be had.
    pub(crate) fn new(plane: Arc<ControlPlane>, addresses: &[String], tls: &Tls) -> anyhow::Result<Self> {
        let addresses = addresses
            .iter()
            .map(|text| text.trim())
            .filter(|text| !text.is_empty());
        let controllers = addresses
            .map(|address| connect(address, tls))
            .collect::<Result<_, _>>()?;
        Ok(Live { plane, controllers })
    }

    fn clients(&self) -> Result<impl Iterator<Item = TreeServiceClient<Channel>>, Status> {
        if self.controllers.is_empty() {
            return Err(Status::unavailable(
                "no controller is configured that could tell live state: set --controller",
            ));
        }
        Ok(self
            .controllers
            .iter()
            .cloned()
            .map(|channel| TreeServiceClient::new(channel).max_decoding_message_size(MESSAGE_LEN_MAX)))
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
        let mut last = None;
        for mut client in self.clients()? {
            match client
                .resource_tree(self.request(reference(app), Some(TIMEOUT)))
                .await
            {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => last = Some(status),
            }
        }
        Err(unavailable(last))
    }

    /// The tree now and after every change.
    pub(crate) async fn watch_tree<V>(
        &self,
        app: &Granted<Arc<Application>, V>,
    ) -> Result<Streaming<ApplicationTree>, Status> {
        let mut last = None;
        for mut client in self.clients()? {
            match client
                .watch_resource_tree(self.request(reference(app), None))
                .await
            {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => last = Some(status),
            }
        }
        Err(unavailable(last))
    }

    /// Desired and live state of what an Application manages.
    pub(crate) async fn managed<V>(
        &self,
        app: &Granted<Arc<Application>, V>,
    ) -> Result<ManagedResourcesResponse, Status> {
        let mut last = None;
        for mut client in self.clients()? {
            match client
                .managed_resources(self.request(reference(app), Some(TIMEOUT)))
                .await
            {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => last = Some(status),
            }
        }
        Err(unavailable(last))
    }

    /// How clusters are, by server.
    pub(crate) async fn clusters(&self) -> Result<HashMap<String, ClusterInfo>, Status> {
        let mut infos = HashMap::new();
        for mut client in self.clients()? {
            let answer = client
                .clusters(self.request((), Some(Duration::from_secs(5))))
                .await?
                .into_inner();
            infos.extend(
                answer
                    .items
                    .into_iter()
                    .filter_map(|each| each.info.map(|info| (each.server, info))),
            );
        }
        Ok(infos)
    }
}

fn reference<V>(app: &Granted<Arc<Application>, V>) -> ApplicationRef {
    ApplicationRef {
        namespace: app.metadata.namespace.clone(),
        name: app.metadata.name.clone(),
    }
}

/// A controller that cannot be reached, or refuses us, is our trouble and not the caller's permission.
fn unavailable(status: Option<Status>) -> Status {
    match status {
        None => Status::unavailable("no controller answered"),
        Some(status) => match status.code() {
            Code::PermissionDenied
            | Code::Unauthenticated
            | Code::Unknown
            | Code::Unavailable
            | Code::Cancelled => {
                Status::unavailable(format!("ask the controller for live state: {}", status.message()))
            }
            _ => status,
        },
    }
}
