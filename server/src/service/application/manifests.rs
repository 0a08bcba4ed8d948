//! What Git wants, rendered anew for someone to read, and what is known of its revisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_api::annotation;
use argosy_api::refs;
use argosy_api::services::application::application_manifest_query_with_files_wrapper::Part;
use argosy_api::services::application::{
    ApplicationManifestQuery, ApplicationManifestQueryWithFilesWrapper, RevisionMetadataQuery,
};
use argosy_api::services::repository::{
    ManifestRequest, ManifestResponse, RepoServerRevisionChartDetailsRequest,
    RepoServerRevisionMetadataRequest,
};
use argosy_api::v1alpha1::{
    AppProject, Application, ApplicationSource, ApplicationSpec, ChartDetails, Cluster, ClusterInfo,
    OciMetadata, RefTarget, RepoCreds, Repository, RevisionMetadata,
};
use argosy_runtime::bounds::{self, Limit};
use tonic::{Status, Streaming};

use crate::auth::Caller;
use crate::egress;
use crate::gate::Get;
use crate::service::Api;
use crate::state::{Settings, project_of};
use crate::status;

/// The largest upload, as the repo-server takes it.
const UPLOAD_LEN_MAX: usize = 100 << 20;

/// What rendering the sources of an Application needs beside them.
struct Rendering {
    /// The Application, as its marks name it.
    instance: String,
    settings: Arc<Settings>,
    project: AppProject,
    cluster: Cluster,
    info: ClusterInfo,
    repos: Vec<Repository>,
    creds: Vec<RepoCreds>,
    refs: BTreeMap<String, RefTarget>,
}

impl Rendering {
    fn request(&self, app: &Application, source: &ApplicationSource, no_cache: bool) -> ManifestRequest {
        let settings = &self.settings;
        ManifestRequest {
            repo: Some(settings.repository(&source.repo_url, project_of(app))),
            revision: source.target_revision.clone(),
            no_cache,
            app_label_key: settings.config.tracking.label_key.clone(),
            app_name: self.instance.clone(),
            namespace: app.spec.destination.namespace.clone(),
            application_source: Some(source.clone()),
            repos: self.repos.clone(),
            helm_repo_creds: self.creds.clone(),
            kustomize_options: Some(settings.config.kustomize.clone()),
            helm_options: Some(settings.config.helm.clone()),
            kube_version: self.info.server_version.clone(),
            api_versions: self.info.api_versions.clone(),
            tracking_method: settings.config.tracking.method.as_str().to_owned(),
            enabled_source_types: settings.config.enabled.to_map(),
            has_multiple_sources: app.spec.has_multiple_sources(),
            ref_sources: self.refs.clone(),
            project_source_repos: self.project.spec.source_repos.clone(),
            project_name: project_of(app).to_owned(),
            annotation_manifest_generate_paths: app
                .metadata
                .annotations
                .get(annotation::MANIFEST_GENERATE_PATHS)
                .cloned()
                .unwrap_or_default(),
            installation_id: settings.config.tracking.installation_id.clone(),
            source_integrity: argosy_api::integrity::effective(&self.project.spec),
            ..ManifestRequest::default()
        }
    }

    /// Adds what was rendered to an answer, masked.
    fn take(&self, answer: &mut ManifestResponse, rendered: ManifestResponse) {
        let sensitive = &self.settings.config.sensitive_annotations;
        let shown = rendered
            .manifests
            .iter()
            .filter_map(|text| egress::rendered(text, sensitive));
        answer.manifests.extend(shown);
        answer.revision = rendered.revision;
        answer.source_type = rendered.source_type;
        answer.namespace = rendered.namespace;
        answer.commands.extend(rendered.commands);
    }
}

/// The sources as a question wants them: with the revisions that it names, one, or by position where there are several. Of
/// what is hydrated it is about the source before that.
fn asked_for(
    spec: &ApplicationSpec,
    query: &ApplicationManifestQuery,
) -> Result<Vec<ApplicationSource>, Status> {
    let mut sources = match &spec.source_hydrator {
        Some(hydrator) => vec![hydrator.dry_source.to_source()],
        None => spec.effective_sources(),
    };
    if !spec.has_multiple_sources() {
        for source in sources.iter_mut().filter(|_| !query.revision().is_empty()) {
            query.revision().clone_into(&mut source.target_revision);
        }
        return Ok(sources);
    }
    if query.source_positions.len() != query.revisions.len() {
        return Err(Status::invalid_argument(
            "revisions and sourcePositions must be as many",
        ));
    }
    for (position, revision) in query.source_positions.iter().zip(&query.revisions) {
        let source = usize::try_from(position.saturating_sub(1))
            .ok()
            .and_then(|index| sources.get_mut(index));
        let source = source
            .ok_or_else(|| Status::invalid_argument(format!("source position {position} is out of range")))?;
        source.target_revision.clone_from(revision);
    }
    Ok(sources)
}

impl Api {
    pub(super) async fn manifests(
        &self,
        caller: &Caller,
        query: &ApplicationManifestQuery,
    ) -> Result<ManifestResponse, Status> {
        let app = self
            .gate
            .open_app::<Get>(caller, query.project(), query.app_namespace(), &query.name)?;
        let sources = asked_for(&app.spec, query)?;
        let rendering = self.rendering(&app, &sources).await?;
        let mut answer = ManifestResponse::default();
        for source in &sources {
            let request = rendering.request(&app, source, query.no_cache());
            let rendered = self.repo.generate_manifest(request).await.map_err(status::repo)?;
            rendering.take(&mut answer, rendered);
        }
        answer.server = rendering.cluster.server;
        Ok(answer)
    }

    /// Renders each source of an Application at what its revision is now, to learn whether it can be. What is hydrated is
    /// rendered before that, without what the cluster serves, as the commits are made of it.
    pub(super) async fn render_for_validation(
        &self,
        app: &Application,
    ) -> Result<Vec<(ApplicationSource, Result<(), argosy_repo_client::Error>)>, Status> {
        let sources = asked_for(&app.spec, &ApplicationManifestQuery::default())?;
        let mut rendering = self.rendering(app, &sources).await?;
        if app.spec.source_hydrator.is_some() {
            rendering.info = ClusterInfo::default();
        }
        let mut answers = Vec::new();
        for source in sources {
            let request = ManifestRequest {
                no_revision_cache: true,
                ..rendering.request(app, &source, false)
            };
            let answer = self.repo.generate_manifest(request).await.map(drop);
            answers.push((source, answer));
        }
        Ok(answers)
    }

    /// Manifests of files that a person has at home, as they would be of the Application's source: with its parameters, in
    /// its cluster.
    pub(super) async fn manifests_with_files(
        &self,
        caller: &Caller,
        mut parts: Streaming<ApplicationManifestQueryWithFilesWrapper>,
    ) -> Result<ManifestResponse, Status> {
        let first = parts.message().await?.and_then(|wrapper| wrapper.part);
        let Some(Part::Query(query)) = first else {
            return Err(Status::invalid_argument(
                "the first message must be the query: which application it is",
            ));
        };
        let (project, namespace) = (query.project().to_owned(), query.app_namespace().to_owned());
        let app = self
            .gate
            .open_app::<Get>(caller, &project, &namespace, &query.name)?;
        // Uploads are held whole: few at a time.
        let _place = self
            .uploads
            .acquire()
            .await
            .map_err(|_| Status::unavailable("the server is stopping"))?;
        let mut archive = Vec::new();
        while let Some(wrapper) = parts.message().await? {
            let Some(Part::Chunk(chunk)) = wrapper.part else {
                return Err(Status::invalid_argument(
                    "after the query nothing but chunks of the files may come",
                ));
            };
            if archive.len() + chunk.chunk.len() > UPLOAD_LEN_MAX {
                bounds::exceeded(Limit::RequestBody);
                return Err(Status::invalid_argument(format!(
                    "the files are more than {} MiB: leave out what the source does not need (--local-include)",
                    UPLOAD_LEN_MAX >> 20
                )));
            }
            archive.extend_from_slice(&chunk.chunk);
        }
        let sources = app.spec.effective_sources();
        let source = sources
            .first()
            .ok_or_else(|| Status::failed_precondition("the application has no source"))?;
        let rendering = self.rendering(&app, &sources).await?;
        let request = rendering.request(&app, source, true);
        let rendered = self
            .repo
            .generate_manifest_with_files(request, archive, query.checksum);
        let mut answer = ManifestResponse::default();
        rendering.take(&mut answer, rendered.await.map_err(status::repo)?);
        answer.server = rendering.cluster.server;
        Ok(answer)
    }

    /// What rendering the sources of an Application needs beside them.
    async fn rendering(&self, app: &Application, sources: &[ApplicationSource]) -> Result<Rendering, Status> {
        let settings = self.plane.settings();
        let project = self.plane.project_for_gate(project_of(app));
        let project = project.ok_or_else(|| {
            Status::failed_precondition(format!("project {} does not exist", project_of(app)))
        })?;
        let project = self.joined(&project);
        let cluster = self.cluster_for(app).map_err(Status::failed_precondition)?;
        let infos = self.live.clusters(&[&cluster.server]).await;
        let info = infos
            .unwrap_or_default()
            .remove(&cluster.server)
            .unwrap_or_default();
        let own = |name: &str| name.is_empty() || name == project_of(app);
        let is_chart = |kind: &str, oci: bool| kind == "helm" || kind == "oci" || oci;
        let repos: Vec<_> = settings
            .repositories
            .iter()
            .filter(|(_, repository)| {
                own(&repository.project) && is_chart(&repository.r#type, repository.enable_oci)
            })
            .map(|(_, repository)| settings.repository(&repository.repo, project_of(app)))
            .collect();
        let creds = settings.templates.iter().map(|(_, template)| template);
        let creds: Vec<_> = creds
            .filter(|template| is_chart(&template.r#type, template.enable_oci))
            .cloned()
            .collect();
        let refs = refs::targets(sources, &[], |url| settings.repository(url, project_of(app)));
        Ok(Rendering {
            instance: self.plane.instance(app),
            refs: refs.map_err(|error| Status::failed_precondition(error.to_string()))?,
            project,
            cluster,
            info,
            repos,
            creds,
            settings,
        })
    }

    /// The source that a question about a revision is about: of the history entry `versionId`, or as it is now.
    fn source_of(app: &Application, query: &RevisionMetadataQuery) -> Result<ApplicationSource, Status> {
        let index = usize::try_from(query.source_index()).unwrap_or_default();
        let sources = match query.version_id {
            None => app.spec.effective_sources(),
            Some(id) => {
                let entry = app.status.history.iter().find(|entry| entry.id == i64::from(id));
                let entry = entry.ok_or_else(|| {
                    Status::not_found(format!("revision history not found for version ID {id}"))
                })?;
                if entry.sources.is_empty() {
                    vec![entry.source.clone()]
                } else {
                    entry.sources.clone()
                }
            }
        };
        let source = sources.into_iter().nth(index);
        source.ok_or_else(|| {
            Status::invalid_argument(format!("sourceIndex: the application has no source {index}"))
        })
    }

    /// The source that a question about a revision is about, with the repository that has it.
    fn asked_source(
        &self,
        caller: &Caller,
        query: &RevisionMetadataQuery,
    ) -> Result<(ApplicationSource, Repository), Status> {
        let app = self
            .gate
            .open_app::<Get>(caller, query.project(), query.app_namespace(), &query.name)?;
        let source = Self::source_of(&app, query)?;
        let settings = self.plane.settings();
        let repo = settings.repository(&source.repo_url, project_of(&app));
        Ok((source, repo))
    }

    pub(super) async fn revision(
        &self,
        caller: &Caller,
        query: &RevisionMetadataQuery,
    ) -> Result<RevisionMetadata, Status> {
        let (_, repo) = self.asked_source(caller, query)?;
        let request = RepoServerRevisionMetadataRequest {
            repo: Some(repo),
            revision: query.revision.clone(),
            ..RepoServerRevisionMetadataRequest::default()
        };
        self.repo
            .get_revision_metadata(request)
            .await
            .map_err(status::repo)
    }

    /// A question about the chart or artifact of a source that is one, as `is_one` says; else `refusal` is the answer.
    fn artifact(
        &self,
        caller: &Caller,
        query: &RevisionMetadataQuery,
        is_one: impl FnOnce(&ApplicationSource) -> bool,
        refusal: String,
    ) -> Result<RepoServerRevisionChartDetailsRequest, Status> {
        let (source, repo) = self.asked_source(caller, query)?;
        if !is_one(&source) {
            return Err(Status::invalid_argument(refusal));
        }
        Ok(RepoServerRevisionChartDetailsRequest {
            repo: Some(repo),
            name: source.chart,
            revision: query.revision.clone(),
        })
    }

    pub(super) async fn oci_metadata(
        &self,
        caller: &Caller,
        query: &RevisionMetadataQuery,
    ) -> Result<OciMetadata, Status> {
        let refusal = format!("the source of application {} is no OCI artifact", query.name);
        let is_one = |source: &ApplicationSource| source.repo_url.starts_with("oci://");
        let request = self.artifact(caller, query, is_one, refusal)?;
        self.repo.get_oci_metadata(request).await.map_err(status::repo)
    }

    pub(super) async fn chart_details(
        &self,
        caller: &Caller,
        query: &RevisionMetadataQuery,
    ) -> Result<ChartDetails, Status> {
        let refusal = format!("no chart found for application: {}", query.name);
        let is_one = |source: &ApplicationSource| !source.chart.is_empty();
        let request = self.artifact(caller, query, is_one, refusal)?;
        self.repo
            .get_revision_chart_details(request)
            .await
            .map_err(status::repo)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use argosy_api::v1alpha1::SourceHydrator;

    use super::*;

    fn source(path: &str, revision: &str) -> ApplicationSource {
        ApplicationSource {
            path: path.into(),
            target_revision: revision.into(),
            ..ApplicationSource::default()
        }
    }

    #[test]
    fn one_revision_is_of_one_source_and_positions_say_which_of_several() {
        let revisions = |spec: &ApplicationSpec, query: &ApplicationManifestQuery| {
            let sources = asked_for(spec, query).map_err(|status| status.code())?;
            let told = sources.into_iter().map(|source| source.target_revision);
            Ok::<_, tonic::Code>(told.collect::<Vec<_>>())
        };
        let mut query = ApplicationManifestQuery {
            revision: Some("v1".into()),
            ..ApplicationManifestQuery::default()
        };
        let one = ApplicationSpec {
            source: Some(source("app", "main")),
            ..ApplicationSpec::default()
        };
        let two = ApplicationSpec {
            sources: vec![source("chart", "1.0"), source("values", "main")],
            ..ApplicationSpec::default()
        };
        assert_eq!(revisions(&one, &query).unwrap(), ["v1"]);
        // Which of them it should be of cannot be known.
        assert_eq!(revisions(&two, &query).unwrap(), ["1.0", "main"]);
        (query.source_positions, query.revisions) = (vec![2], vec!["v2".into()]);
        assert_eq!(revisions(&two, &query).unwrap(), ["1.0", "v2"]);
        query.source_positions = vec![3];
        assert_eq!(revisions(&two, &query), Err(tonic::Code::InvalidArgument));
        query.source_positions = vec![0];
        assert_eq!(revisions(&two, &query), Err(tonic::Code::InvalidArgument));
        query.source_positions = Vec::new();
        assert_eq!(revisions(&two, &query), Err(tonic::Code::InvalidArgument));
    }

    #[test]
    fn of_what_is_hydrated_the_dry_source_is_rendered() {
        let mut hydrator = SourceHydrator::default();
        hydrator.dry_source.path = "dry".into();
        hydrator.dry_source.target_revision = "main".into();
        hydrator.sync_source.path = "hydrated".into();
        hydrator.sync_source.target_branch = "env".into();
        let spec = ApplicationSpec {
            source_hydrator: Some(hydrator),
            ..ApplicationSpec::default()
        };
        let query = ApplicationManifestQuery::default();
        assert_eq!(asked_for(&spec, &query).unwrap(), [source("dry", "main")]);
        let query = ApplicationManifestQuery {
            revision: Some("v1".into()),
            ..query
        };
        assert_eq!(asked_for(&spec, &query).unwrap(), [source("dry", "v1")]);
    }
}
