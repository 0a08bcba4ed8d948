//! `application.ApplicationService`: the noun most requests are about. Each group of methods is a file.

mod actions;
pub(super) mod events;
mod list;
mod live;
mod logs;
mod manifests;
mod page;
mod resource;
mod select;
mod server_diff;
mod sync;
mod validate;
mod windows;
mod write;

use std::pin::Pin;

use argosy_api::services::application::application_service_server::ApplicationService;
use argosy_api::services::application::{
    ApplicationCreateRequest, ApplicationDeleteRequest, ApplicationManifestQuery,
    ApplicationManifestQueryWithFilesWrapper, ApplicationPatchRequest, ApplicationPodLogsQuery,
    ApplicationQuery, ApplicationResourceDeleteRequest, ApplicationResourceEventsQuery,
    ApplicationResourcePatchRequest, ApplicationResourceRequest, ApplicationResourceResponse,
    ApplicationResponse, ApplicationRollbackRequest, ApplicationServerSideDiffQuery,
    ApplicationServerSideDiffResponse, ApplicationSyncRequest, ApplicationSyncWindowsQuery,
    ApplicationSyncWindowsResponse, ApplicationUpdateRequest, ApplicationUpdateSpecRequest, LinksResponse,
    ListAppLinksRequest, LogEntry, ManagedResourcesResponse, OperationTerminateRequest,
    OperationTerminateResponse, ResourceActionRunRequest, ResourceActionRunRequestV2,
    ResourceActionsListResponse, ResourcesQuery, RevisionMetadataQuery,
};
use argosy_api::services::events::EventList;
use argosy_api::services::repository::ManifestResponse;
use argosy_api::v1alpha1::{
    Application, ApplicationList, ApplicationSpec, ApplicationTree, ApplicationWatchEvent, ChartDetails,
    OciMetadata, RevisionMetadata,
};
use futures::Stream;
use tonic::{Request, Response, Status, Streaming};

use super::Api;
use crate::auth;
use crate::gate::Get;
use crate::links;
use crate::state::project_of;
use crate::status;

pub(super) use list::{LOOK_AGAIN, WATCH_STALL};

/// A stream of answers.
pub(super) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ApplicationService for Api {
    type WatchStream = Answers<ApplicationWatchEvent>;
    type WatchResourceTreeStream = Answers<ApplicationTree>;
    type PodLogsStream = Answers<LogEntry>;

    async fn list(&self, request: Request<ApplicationQuery>) -> Result<Response<ApplicationList>, Status> {
        let caller = auth::caller(&request)?;
        self.list_apps(&caller, &request.into_inner()).map(Response::new)
    }

    async fn watch(&self, request: Request<ApplicationQuery>) -> Result<Response<Self::WatchStream>, Status> {
        let caller = auth::caller(&request)?;
        self.watch_apps(caller, request.into_inner()).map(Response::new)
    }

    async fn get(&self, request: Request<ApplicationQuery>) -> Result<Response<Application>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.get_app(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn list_resource_events(
        &self,
        request: Request<ApplicationResourceEventsQuery>,
    ) -> Result<Response<EventList>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.resource_events(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn create(
        &self,
        request: Request<ApplicationCreateRequest>,
    ) -> Result<Response<Application>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.create_app(&caller, request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn update(
        &self,
        request: Request<ApplicationUpdateRequest>,
    ) -> Result<Response<Application>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.update_app(&caller, request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn update_spec(
        &self,
        request: Request<ApplicationUpdateSpecRequest>,
    ) -> Result<Response<ApplicationSpec>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.update_app_spec(&caller, request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn patch(
        &self,
        request: Request<ApplicationPatchRequest>,
    ) -> Result<Response<Application>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.patch_app(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn delete(
        &self,
        request: Request<ApplicationDeleteRequest>,
    ) -> Result<Response<ApplicationResponse>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.delete_app(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn sync(&self, request: Request<ApplicationSyncRequest>) -> Result<Response<Application>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.sync_app(&caller, request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn rollback(
        &self,
        request: Request<ApplicationRollbackRequest>,
    ) -> Result<Response<Application>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.rollback_app(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn terminate_operation(
        &self,
        request: Request<OperationTerminateRequest>,
    ) -> Result<Response<OperationTerminateResponse>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.terminate(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn get_application_sync_windows(
        &self,
        request: Request<ApplicationSyncWindowsQuery>,
    ) -> Result<Response<ApplicationSyncWindowsResponse>, Status> {
        let caller = auth::caller(&request)?;
        self.sync_windows(&caller, &request.into_inner())
            .map(Response::new)
    }

    async fn revision_metadata(
        &self,
        request: Request<RevisionMetadataQuery>,
    ) -> Result<Response<RevisionMetadata>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.revision(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn revision_chart_details(
        &self,
        request: Request<RevisionMetadataQuery>,
    ) -> Result<Response<ChartDetails>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.chart_details(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn get_oci_metadata(
        &self,
        request: Request<RevisionMetadataQuery>,
    ) -> Result<Response<OciMetadata>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.oci_metadata(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn get_manifests(
        &self,
        request: Request<ApplicationManifestQuery>,
    ) -> Result<Response<ManifestResponse>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.manifests(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn get_manifests_with_files(
        &self,
        request: Request<Streaming<ApplicationManifestQueryWithFilesWrapper>>,
    ) -> Result<Response<ManifestResponse>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.manifests_with_files(&caller, request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn managed_resources(
        &self,
        request: Request<ResourcesQuery>,
    ) -> Result<Response<ManagedResourcesResponse>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.managed(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn server_side_diff(
        &self,
        request: Request<ApplicationServerSideDiffQuery>,
    ) -> Result<Response<ApplicationServerSideDiffResponse>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.server_diff(&caller, request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn resource_tree(
        &self,
        request: Request<ResourcesQuery>,
    ) -> Result<Response<ApplicationTree>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.tree(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn watch_resource_tree(
        &self,
        request: Request<ResourcesQuery>,
    ) -> Result<Response<Self::WatchResourceTreeStream>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.watch_tree(caller, request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn get_resource(
        &self,
        request: Request<ApplicationResourceRequest>,
    ) -> Result<Response<ApplicationResourceResponse>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.resource(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn patch_resource(
        &self,
        request: Request<ApplicationResourcePatchRequest>,
    ) -> Result<Response<ApplicationResourceResponse>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.patch_live(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn delete_resource(
        &self,
        request: Request<ApplicationResourceDeleteRequest>,
    ) -> Result<Response<ApplicationResponse>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.delete_live(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn list_resource_actions(
        &self,
        request: Request<ApplicationResourceRequest>,
    ) -> Result<Response<ResourceActionsListResponse>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.actions(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn run_resource_action(
        &self,
        request: Request<ResourceActionRunRequest>,
    ) -> Result<Response<ApplicationResponse>, Status> {
        let caller = auth::caller(&request)?;
        let old = request.into_inner();
        let request = ResourceActionRunRequestV2 {
            name: old.name,
            namespace: old.namespace,
            resource_name: old.resource_name,
            version: old.version,
            group: old.group,
            kind: old.kind,
            action: old.action,
            app_namespace: old.app_namespace,
            project: old.project,
            resource_action_parameters: Vec::new(),
        };
        Box::pin(self.run_action(&caller, &request))
            .await
            .map(Response::new)
    }

    async fn run_resource_action_v2(
        &self,
        request: Request<ResourceActionRunRequestV2>,
    ) -> Result<Response<ApplicationResponse>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.run_action(&caller, &request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn pod_logs(
        &self,
        request: Request<ApplicationPodLogsQuery>,
    ) -> Result<Response<Self::PodLogsStream>, Status> {
        let caller = auth::caller(&request)?;
        Box::pin(self.logs(&caller, request.into_inner()))
            .await
            .map(Response::new)
    }

    async fn list_links(
        &self,
        request: Request<ListAppLinksRequest>,
    ) -> Result<Response<LinksResponse>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let app = self
            .gate
            .open_app::<Get>(&caller, query.project(), query.namespace(), &query.name)?;
        let key = "application.links";
        Ok(Response::new(
            self.around(&app).links(key, &self.plane.settings().text(key)),
        ))
    }

    async fn list_resource_links(
        &self,
        request: Request<ApplicationResourceRequest>,
    ) -> Result<Response<LinksResponse>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let app = self
            .gate
            .open_app::<Get>(&caller, query.project(), query.app_namespace(), &query.name)?;
        let key = "resource.links";
        let text = self.plane.settings().text(key);
        if text.is_empty() {
            return Ok(Response::new(LinksResponse::default()));
        }
        let shown = Box::pin(self.resource(&caller, &query)).await?.manifest;
        let resource = serde_json::from_str(&shown).map_err(|error| status::internal(&error))?;
        Ok(Response::new(
            self.around(&app).resource(resource).links(key, &text),
        ))
    }
}

impl Api {
    /// What deep links of an Application may speak of.
    fn around(&self, app: &Application) -> links::About {
        let mut about = links::About::default().app(app);
        if let Some(project) = self.plane.project_for_gate(project_of(app)) {
            about = about.project(&project);
        }
        match self.cluster_for(app) {
            Ok(cluster) => about.cluster(&cluster),
            Err(_) => about,
        }
    }
}
