//! Connections to the clusters that Applications go to, for what people do with single resources: look at one, change
//! it, read its logs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use argosy_api::v1alpha1::Cluster;
use argosy_kube_io::{ApiResource, ClusterAuth, Discovery, Target, auth, client, connect, discover};
use argosy_object::GroupVersionKind;
use parking_lot::Mutex;
use tonic::Status;

use crate::state::ControlPlane;
use crate::status;

/// Which kinds a cluster serves is asked anew after so long.
const KINDS_TTL: Duration = Duration::from_secs(60);
/// Connections that nobody used for so long are given up.
const IDLE: Duration = Duration::from_secs(600);

struct Connection {
    config: argosy_api::v1alpha1::ClusterConfig,
    target: Target,
    kinds: Option<(Instant, Arc<Discovery>)>,
    used: Instant,
}

/// Connections by server.
pub(crate) struct Targets {
    connections: Mutex<HashMap<String, Connection>>,
    /// Credential programs that cluster Secrets name may be run.
    allow_exec: bool,
}

impl Targets {
    /// No connection yet.
    pub(crate) fn new(allow_exec: bool) -> Self {
        Targets {
            connections: Mutex::default(),
            allow_exec,
        }
    }

    /// The connection to a cluster.
    pub(crate) async fn of(&self, plane: &ControlPlane, cluster: &Cluster) -> Result<Target, Status> {
        {
            let mut connections = self.connections.lock();
            connections.retain(|_, connection| connection.used.elapsed() < IDLE);
            if let Some(known) = connections.get_mut(&cluster.server)
                && known.config == cluster.config
            {
                known.used = Instant::now();
                return Ok(known.target.clone());
            }
        }
        let target = self.fresh(plane, cluster).await?;
        let connection = Connection {
            config: cluster.config.clone(),
            target: target.clone(),
            kinds: None,
            used: Instant::now(),
        };
        self.connections.lock().insert(cluster.server.clone(), connection);
        Ok(target)
    }

    /// A new connection, for credentials that are to be tried.
    pub(crate) async fn fresh(&self, plane: &ControlPlane, cluster: &Cluster) -> Result<Target, Status> {
        let policy = auth::Policy {
            allow_exec: self.allow_exec,
        };
        let auth = ClusterAuth::cluster(&cluster.server, &cluster.config, plane.auth(), policy)
            .map_err(|error| Status::invalid_argument(error.message()))?;
        let client = connect(auth, client::Options::default()).await.map_err(|error| {
            Status::unavailable(format!("connect to {}: {}", cluster.server, error.message()))
        })?;
        Ok(Target::new(client).with_field_manager("argocd-server"))
    }

    /// The kind as the cluster serves it.
    pub(crate) async fn kind(
        &self,
        plane: &ControlPlane,
        cluster: &Cluster,
        gvk: &GroupVersionKind,
    ) -> Result<(Target, ApiResource), Status> {
        let target = self.of(plane, cluster).await?;
        let known = self
            .connections
            .lock()
            .get(&cluster.server)
            .and_then(|connection| connection.kinds.clone());
        let fresh = known.filter(|(at, kinds)| at.elapsed() < KINDS_TTL && kinds.find(gvk).is_some());
        let kinds = match fresh {
            Some((_, kinds)) => kinds,
            None => {
                let kinds = Arc::new(discover(target.client()).await.map_err(status::kube)?);
                if let Some(connection) = self.connections.lock().get_mut(&cluster.server) {
                    connection.kinds = Some((Instant::now(), kinds.clone()));
                }
                kinds
            }
        };
        let found = kinds.find(gvk).cloned();
        let found = found.ok_or_else(|| Status::not_found(format!("the cluster serves no kind {gvk}")))?;
        Ok((target, found))
    }

    /// Forgets a cluster whose credentials changed.
    pub(crate) fn forget(&self, server: &str) {
        self.connections.lock().remove(server);
    }
}
