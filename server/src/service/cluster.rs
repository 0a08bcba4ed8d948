//! `cluster.ClusterService`: clusters that Applications are deployed to.

mod rotate;

use std::collections::HashMap;

use argosy_api::meta::Time;
use argosy_api::services::cluster::cluster_service_server::ClusterService;
use argosy_api::services::cluster::{
    ClusterCreateRequest, ClusterId, ClusterQuery, ClusterResponse, ClusterUpdateRequest,
};
use argosy_api::v1alpha1::{Cluster, ClusterInfo, ClusterList};
use tonic::{Request, Response, Status};

use super::Api;
use super::repository::unescaped;
use crate::auth::{self, Caller};
use crate::egress;
use crate::gate::{Create, Delete, Get, Granted, Shut, Update, Verb};
use crate::state::project_of;

type Stored = (Option<String>, Cluster);

/// Which cluster a request means.
enum Wanted {
    Server(String),
    Name(String),
    Nothing,
}

impl Wanted {
    fn read(id: Option<&ClusterId>, server: &str, name: &str) -> Self {
        if let Some(id) = id.filter(|id| !id.value.is_empty()) {
            let value = unescaped(&id.value);
            return match id.r#type.as_str() {
                "name" | "name_escaped" => Wanted::Name(value),
                _ => Wanted::Server(value.trim_end_matches('/').to_owned()),
            };
        }
        match (server, name) {
            ("", "") => Wanted::Nothing,
            ("", name) => Wanted::Name(name.to_owned()),
            (server, _) => Wanted::Server(unescaped(server).trim_end_matches('/').to_owned()),
        }
    }

    fn is(&self, cluster: &Cluster) -> bool {
        match self {
            Wanted::Server(server) => cluster.server == *server,
            Wanted::Name(name) => cluster.name == *name,
            Wanted::Nothing => false,
        }
    }
}

impl Api {
    /// The cluster that is meant, if the caller may do `V` with it, by whichever of its names it was asked for.
    fn cluster<V: Verb>(&self, caller: &Caller, wanted: &Wanted) -> Result<Granted<Stored, V>, Status> {
        let settings = self.plane.settings();
        let mut found = settings.clusters.iter().filter(|(_, cluster)| wanted.is(cluster));
        let first = found.next();
        if first.is_some() && found.next().is_some() {
            // Two of one name: whose rights would count? Neither.
            return Err(Status::permission_denied(crate::gate::DENIED));
        }
        let shut = first
            .cloned()
            .map(|(secret, cluster)| self.plane.shut_cluster(secret, cluster));
        self.gate.open_found(caller, shut)
    }

    async fn infos(&self, clusters: &[&Cluster]) -> HashMap<String, ClusterInfo> {
        let servers: Vec<_> = clusters.iter().map(|cluster| cluster.server.as_str()).collect();
        match self.live.clusters(&servers).await {
            Ok(infos) => infos,
            Err(status) => {
                tracing::debug!(error = status.message(), "ask the controller for its clusters");
                HashMap::new()
            }
        }
    }

    async fn known_cluster(&self, cluster: &Cluster) -> Cluster {
        self.shown_cluster(cluster, &self.infos(&[cluster]).await)
    }

    fn shown_cluster(&self, cluster: &Cluster, infos: &HashMap<String, ClusterInfo>) -> Cluster {
        let mut shown = egress::cluster(cluster);
        let mut info = infos.get(&cluster.server).cloned().unwrap_or_else(|| {
            let mut unknown = ClusterInfo::default();
            unknown.connection_state.status = "Unknown".to_owned();
            unknown.connection_state.message =
                "Cluster has no applications and is not being monitored.".to_owned();
            unknown
        });
        let count = self.plane.count_apps(|app| {
            let destination = &app.spec.destination;
            (!destination.server.is_empty() && destination.server == cluster.server)
                || (!destination.name.is_empty() && destination.name == cluster.name)
        });
        info.applications_count = i64::try_from(count).unwrap_or_default();
        shown.server_version.clone_from(&info.server_version);
        shown.connection_state = info.connection_state.clone();
        shown.info = info;
        shown
    }

    /// Tries to reach a cluster, with the credentials that are to be stored.
    async fn try_cluster(&self, cluster: &Cluster) -> Result<String, Status> {
        let target = self.targets.fresh(&self.plane, cluster).await?;
        let version = target.client().version().await.map_err(|error| {
            Status::invalid_argument(format!("the cluster cannot be reached: {}", error.message()))
        })?;
        Ok(version.git_version)
    }
}

/// Whether two descriptions of a cluster say the same, of what people say.
fn is_same(a: &Cluster, b: &Cluster) -> bool {
    a.config == b.config
        && a.name == b.name
        && a.namespaces == b.namespaces
        && a.shard == b.shard
        && a.cluster_resources == b.cluster_resources
        && a.labels == b.labels
        && a.annotations == b.annotations
}

#[tonic::async_trait]
impl ClusterService for Api {
    async fn list(&self, request: Request<ClusterQuery>) -> Result<Response<ClusterList>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let wanted = Wanted::read(query.id.as_ref(), &query.server, &query.name);
        let mut visible: Vec<Granted<Stored, Get>> = self.gate.filter(&caller, self.plane.clusters());
        visible.retain(|stored| matches!(wanted, Wanted::Nothing) || wanted.is(&stored.1));
        let wanted: Vec<_> = visible.iter().map(|stored| &stored.1).collect();
        let infos = self.infos(&wanted).await;
        let mut items: Vec<_> = visible
            .iter()
            .map(|stored| self.shown_cluster(&stored.1, &infos))
            .collect();
        items.sort_by(|a, b| a.server.cmp(&b.server));
        Ok(Response::new(ClusterList {
            items,
            ..ClusterList::default()
        }))
    }

    async fn create(&self, request: Request<ClusterCreateRequest>) -> Result<Response<Cluster>, Status> {
        let caller = auth::caller(&request)?;
        let ClusterCreateRequest { cluster, upsert } = request.into_inner();
        let mut cluster =
            cluster.ok_or_else(|| Status::invalid_argument("missing payload 'cluster' in request"))?;
        cluster.server = cluster.server.trim_end_matches('/').to_owned();
        if cluster.server.is_empty() {
            return Err(Status::invalid_argument(
                "server: the URL of the cluster's API server is missing",
            ));
        }
        if cluster.name.is_empty() {
            cluster.name = cluster.server.clone();
        }
        let granted = self
            .gate
            .open::<Create, _>(&caller, self.plane.shut_cluster(None, cluster.clone()))?;
        let known = self.cluster_of(&cluster.server);
        let version = self.try_cluster(&cluster).await?;
        match known {
            Some(known) => {
                // In whose project it is, is told only to those who may see it.
                let known = self.gate.open_found::<Get, _>(&caller, Some(known))?;
                if is_same(&known.1, &cluster) {
                    return Ok(Response::new(self.known_cluster(&known.1).await));
                }
                if !upsert {
                    return Err(Status::invalid_argument(
                        "existing cluster spec is different; use upsert flag to force update",
                    ));
                }
                // Both what it is and what it becomes are asked for.
                self.gate.open::<Update, _>(&caller, known.shut())?;
                let shut = self.plane.shut_cluster(known.0.clone(), cluster.clone());
                let granted = self.gate.open::<Update, _>(&caller, shut)?;
                self.plane.write_cluster(&granted).await?;
            }
            None => self.plane.write_cluster(&granted).await?,
        }
        let mut shown = self.shown_cluster(&cluster, &HashMap::new());
        shown.server_version = version;
        Ok(Response::new(shown))
    }

    async fn get(&self, request: Request<ClusterQuery>) -> Result<Response<Cluster>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let stored = self.cluster::<Get>(
            &caller,
            &Wanted::read(query.id.as_ref(), &query.server, &query.name),
        )?;
        Ok(Response::new(self.known_cluster(&stored.1).await))
    }

    async fn update(&self, request: Request<ClusterUpdateRequest>) -> Result<Response<Cluster>, Status> {
        let caller = auth::caller(&request)?;
        let ClusterUpdateRequest {
            cluster,
            updated_fields,
            id,
        } = request.into_inner();
        let sent = cluster.ok_or_else(|| Status::invalid_argument("missing payload 'cluster' in request"))?;
        let wanted = Wanted::read(id.as_ref(), &sent.server, &sent.name);
        let stored = self.cluster::<Update>(&caller, &wanted)?;
        let mut becomes = stored.1.clone();
        // Without a list of fields everything that was sent counts, but never the server: that is which cluster it is.
        let all = updated_fields.is_empty();
        let is_wanted = |field: &str| all || updated_fields.iter().any(|wanted| wanted == field);
        for field in &updated_fields {
            if ![
                "name",
                "namespaces",
                "config",
                "shard",
                "clusterResources",
                "labels",
                "annotations",
                "project",
            ]
            .contains(&field.as_str())
            {
                return Err(Status::invalid_argument(format!(
                    "updatedFields: {field} cannot be changed"
                )));
            }
        }
        let change = |cluster: &mut Cluster| {
            if is_wanted("name") && !sent.name.is_empty() {
                cluster.name.clone_from(&sent.name);
            }
            if is_wanted("namespaces") {
                cluster.namespaces.clone_from(&sent.namespaces);
            }
            if is_wanted("config") {
                cluster.config.clone_from(&sent.config);
            }
            if is_wanted("shard") {
                cluster.shard = sent.shard;
            }
            if is_wanted("clusterResources") {
                cluster.cluster_resources = sent.cluster_resources;
            }
            if is_wanted("labels") {
                cluster.labels.clone_from(&sent.labels);
            }
            if is_wanted("annotations") {
                cluster.annotations.clone_from(&sent.annotations);
            }
            if is_wanted("project") {
                cluster.project.clone_from(&sent.project);
            }
        };
        change(&mut becomes);
        let granted = self
            .gate
            .open::<Update, _>(&caller, self.plane.shut_cluster(stored.0.clone(), becomes))?;
        self.try_cluster(&granted.1).await?;
        let written = match stored.0 {
            Some(_) => self.plane.change_cluster(&stored, &granted, change).await?,
            None => {
                self.plane.write_cluster(&granted).await?;
                granted.1.clone()
            }
        };
        self.targets.forget(&written.server);
        Ok(Response::new(self.known_cluster(&written).await))
    }

    async fn delete(&self, request: Request<ClusterQuery>) -> Result<Response<ClusterResponse>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let stored = self.cluster::<Delete>(
            &caller,
            &Wanted::read(query.id.as_ref(), &query.server, &query.name),
        )?;
        self.plane.delete_cluster(&stored).await?;
        self.targets.forget(&stored.1.server);
        Ok(Response::new(ClusterResponse {}))
    }

    async fn rotate_auth(&self, request: Request<ClusterQuery>) -> Result<Response<ClusterResponse>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let stored = self.cluster::<Update>(
            &caller,
            &Wanted::read(query.id.as_ref(), &query.server, &query.name),
        )?;
        Box::pin(self.rotate(&stored)).await?;
        Ok(Response::new(ClusterResponse {}))
    }

    async fn invalidate_cache(&self, request: Request<ClusterQuery>) -> Result<Response<Cluster>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let stored = self.cluster::<Update>(
            &caller,
            &Wanted::read(query.id.as_ref(), &query.server, &query.name),
        )?;
        if stored.0.is_some() {
            let now = Time::from_timestamp(self.now());
            let ask = |cluster: &mut Cluster| cluster.refresh_requested_at = Some(now);
            self.plane.change_cluster(&stored, &stored, ask).await?;
        }
        Ok(Response::new(self.known_cluster(&stored.1).await))
    }
}

impl Api {
    fn cluster_of(&self, server: &str) -> Option<Shut<Stored>> {
        let settings = self.plane.settings();
        let found = settings
            .clusters
            .iter()
            .find(|(_, cluster)| cluster.server == server)
            .cloned();
        found.map(|(secret, cluster)| self.plane.shut_cluster(secret, cluster))
    }

    /// The cluster that an Application goes to. Whoever may look at the Application may have it looked at there.
    pub(crate) fn destination<V>(
        &self,
        app: &Granted<std::sync::Arc<argosy_api::v1alpha1::Application>, V>,
    ) -> Result<Cluster, Status> {
        let destination = &app.spec.destination;
        let settings = self.plane.settings();
        let wanted = Wanted::read(None, &destination.server, &destination.name);
        let mut found = settings.clusters.iter().filter(|(_, cluster)| wanted.is(cluster));
        match (found.next(), found.next()) {
            (Some((_, cluster)), None) => Ok(cluster.clone()),
            _ => Err(Status::failed_precondition(format!(
                "application destination of {} in project {} is not a cluster that is known",
                app.metadata.name,
                project_of(app)
            ))),
        }
    }
}
