//! gRPC in, gRPC out: messages become requests of [`crate::render`], errors become statuses. Nothing else of the
//! crate knows tonic.
//!
//! - `manifests`: rendering; - `details`: what the tool of a source can be told;
//! - `repositories`: what a repository is and has; - `revisions`: what is known of one revision; - `files`: what lies in it;
//! - `pool`: where all of that runs; - `status`: failures.

mod details;
mod files;
mod manifests;
mod pool;
mod repositories;
mod revisions;
mod status;

use crate::render::Renderer;
use argosy_api::repository as wire;
use argosy_api::repository::repo_server_service_server::RepoServerService;
use argosy_api::v1alpha1::{ChartDetails, OciMetadata, Repository, RevisionMetadata, SourceIntegrity};
use manifests::Asked;
use pool::Pool;
use std::sync::Arc;
use tonic::{Request, Response, Status, Streaming};

/// The service.
pub(crate) struct Service {
    renderer: Arc<Renderer>,
    include_hidden: bool,
    /// Whether demands for signatures are looked at.
    verifies: bool,
    pool: Pool,
}

impl Service {
    /// Serves what a renderer renders.
    pub(crate) fn new(
        renderer: Arc<Renderer>,
        include_hidden: bool,
        verifies: bool,
    ) -> std::io::Result<Service> {
        Ok(Service {
            renderer,
            include_hidden,
            verifies,
            pool: Pool::new()?,
        })
    }

    /// Runs work that reads many objects away from the threads that serve connections. However many wait for one
    /// render, they hold no thread while they do. A caller who goes away leaves it to itself: it is as good for the next one.
    async fn run<Q, T, F>(
        &self,
        request: Q,
        work: impl FnOnce(Arc<Renderer>, Q) -> F,
    ) -> Result<Response<T>, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        match self.pool.spawn(work(self.renderer.clone(), request)).await {
            Ok(outcome) => outcome.map(Response::new),
            Err(error) => Err(Status::internal(format!("the request panicked: {error}"))),
        }
    }

    /// What a caller demands of signatures. One that speaks only the language of Argo CD before 3.5 is refused: it would take
    /// an answer without a result for a good one.
    fn demanded(
        &self,
        asked: bool,
        integrity: Option<SourceIntegrity>,
    ) -> Result<Option<SourceIntegrity>, Status> {
        if !self.verifies {
            return Ok(None);
        }
        if asked && integrity.is_none() {
            return Err(Status::failed_precondition(
                "signatures are verified for callers that send sourceIntegrity (Argo CD 3.5 and later)",
            ));
        }
        Ok(integrity)
    }

    fn asked(&self, mut message: wire::ManifestRequest) -> Result<Asked, Status> {
        let integrity = self.demanded(message.verify_signature, message.source_integrity.take())?;
        Asked::of(message, integrity)
    }
}

/// The repository of a request.
fn repo(repo: Option<Repository>) -> Result<Repository, Status> {
    repo.filter(|repo| !repo.repo.is_empty())
        .ok_or_else(|| Status::invalid_argument("the request names no repository"))
}

#[tonic::async_trait]
impl RepoServerService for Service {
    async fn generate_manifest(
        &self,
        call: Request<wire::ManifestRequest>,
    ) -> Result<Response<wire::ManifestResponse>, Status> {
        let patience = manifests::patience(call.metadata());
        let asked = self.asked(call.into_inner())?.within(patience);
        self.run(asked, manifests::generate).await
    }

    async fn generate_manifest_with_files(
        &self,
        call: Request<Streaming<wire::ManifestRequestWithFiles>>,
    ) -> Result<Response<wire::ManifestResponse>, Status> {
        let patience = manifests::patience(call.metadata());
        let (message, archive) = manifests::receive(call.into_inner()).await?;
        let asked = self.asked(message)?.within(patience);
        self.run((asked, archive), manifests::of_files).await
    }

    async fn test_repository(
        &self,
        call: Request<wire::TestRepositoryRequest>,
    ) -> Result<Response<wire::TestRepositoryResponse>, Status> {
        self.run(call.into_inner(), repositories::test).await
    }

    async fn resolve_revision(
        &self,
        call: Request<wire::ResolveRevisionRequest>,
    ) -> Result<Response<wire::ResolveRevisionResponse>, Status> {
        self.run(call.into_inner(), repositories::resolve).await
    }

    async fn list_refs(&self, call: Request<wire::ListRefsRequest>) -> Result<Response<wire::Refs>, Status> {
        self.run(call.into_inner(), repositories::refs).await
    }

    async fn list_oci_tags(
        &self,
        call: Request<wire::ListRefsRequest>,
    ) -> Result<Response<wire::Refs>, Status> {
        self.run(call.into_inner(), repositories::tags).await
    }

    async fn list_apps(
        &self,
        call: Request<wire::ListAppsRequest>,
    ) -> Result<Response<wire::AppList>, Status> {
        self.run(call.into_inner(), files::sources).await
    }

    async fn list_plugins(&self, _: Request<()>) -> Result<Response<wire::PluginList>, Status> {
        let names = self.renderer.plugins.names().into_iter();
        let items = names.map(|name| wire::PluginInfo { name }).collect();
        Ok(Response::new(wire::PluginList { items }))
    }

    async fn get_app_details(
        &self,
        call: Request<wire::RepoServerAppDetailsQuery>,
    ) -> Result<Response<wire::RepoAppDetailsResponse>, Status> {
        self.run(call.into_inner(), details::details).await
    }

    async fn get_revision_metadata(
        &self,
        call: Request<wire::RepoServerRevisionMetadataRequest>,
    ) -> Result<Response<RevisionMetadata>, Status> {
        let mut request = call.into_inner();
        let integrity = self.demanded(request.check_signature, request.source_integrity.take())?;
        self.run((request, integrity), revisions::metadata).await
    }

    async fn get_oci_metadata(
        &self,
        call: Request<wire::RepoServerRevisionChartDetailsRequest>,
    ) -> Result<Response<OciMetadata>, Status> {
        self.run(call.into_inner(), revisions::artifact).await
    }

    async fn get_revision_chart_details(
        &self,
        call: Request<wire::RepoServerRevisionChartDetailsRequest>,
    ) -> Result<Response<ChartDetails>, Status> {
        self.run(call.into_inner(), revisions::chart).await
    }

    async fn get_helm_charts(
        &self,
        call: Request<wire::HelmChartsRequest>,
    ) -> Result<Response<wire::HelmChartsResponse>, Status> {
        self.run(call.into_inner(), repositories::charts).await
    }

    async fn get_git_files(
        &self,
        call: Request<wire::GitFilesRequest>,
    ) -> Result<Response<wire::GitFilesResponse>, Status> {
        let mut request = call.into_inner();
        let integrity = self.demanded(request.verify_commit, request.source_integrity.take())?;
        self.run((request, integrity), files::matching).await
    }

    async fn get_git_directories(
        &self,
        call: Request<wire::GitDirectoriesRequest>,
    ) -> Result<Response<wire::GitDirectoriesResponse>, Status> {
        let mut request = call.into_inner();
        let integrity = self.demanded(request.verify_commit, request.source_integrity.take())?;
        let asked = (request, integrity, self.include_hidden);
        self.run(asked, files::directories).await
    }

    async fn update_revision_for_paths(
        &self,
        call: Request<wire::UpdateRevisionForPathsRequest>,
    ) -> Result<Response<wire::UpdateRevisionForPathsResponse>, Status> {
        self.run(call.into_inner(), revisions::changes).await
    }
}
