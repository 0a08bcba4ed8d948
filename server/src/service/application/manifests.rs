//! What Git wants, rendered anew for someone to read, and what is known of its revisions.

use std::collections::BTreeMap;

use argosy_api::annotation;
use argosy_api::services::application::{ApplicationManifestQuery, RevisionMetadataQuery};
use argosy_api::services::repository::{
    ManifestRequest, ManifestResponse, RepoServerRevisionChartDetailsRequest,
    RepoServerRevisionMetadataRequest,
};
use argosy_api::v1alpha1::{Application, ApplicationSource, ChartDetails, RefTarget, RevisionMetadata};
use tonic::Status;

use crate::auth::Caller;
use crate::egress;
use crate::gate::Get;
use crate::service::Api;
use crate::state::project_of;
use crate::status;

impl Api {
    pub(super) async fn manifests(
        &self,
        caller: &Caller,
        query: &ApplicationManifestQuery,
    ) -> Result<ManifestResponse, Status> {
        let app = self
            .gate
            .open_app::<Get>(caller, query.project(), query.app_namespace(), &query.name)?;
        let mut sources = app.spec.effective_sources();
        if query.source_positions.len() != query.revisions.len() {
            return Err(Status::invalid_argument(
                "revisions and sourcePositions must be as many",
            ));
        }
        for (position, revision) in query.source_positions.iter().zip(&query.revisions) {
            let source = usize::try_from(*position - 1)
                .ok()
                .and_then(|index| sources.get_mut(index));
            let source = source.ok_or_else(|| {
                Status::invalid_argument(format!("source position {position} is out of range"))
            })?;
            source.target_revision.clone_from(revision);
        }
        if !query.revision().is_empty()
            && let Some(first) = sources.first_mut()
        {
            query.revision().clone_into(&mut first.target_revision);
        }
        let settings = self.plane.settings();
        let project = self.plane.project_for_gate(project_of(&app));
        let project = project.ok_or_else(|| {
            Status::failed_precondition(format!("project {} does not exist", project_of(&app)))
        })?;
        let project = self.joined(&project);
        let cluster = self.cluster_for(&app).map_err(Status::failed_precondition)?;
        let infos = self.live.clusters().await.unwrap_or_default();
        let info = infos.get(&cluster.server).cloned().unwrap_or_default();
        let own = |name: &str| name.is_empty() || name == project_of(&app);
        let is_chart = |kind: &str, oci: bool| kind == "helm" || kind == "oci" || oci;
        let repos: Vec<_> = settings
            .repositories
            .iter()
            .filter(|(_, repository)| {
                own(&repository.project) && is_chart(&repository.r#type, repository.enable_oci)
            })
            .map(|(_, repository)| settings.repository(&repository.repo, project_of(&app)))
            .collect();
        let creds = settings.templates.iter().map(|(_, template)| template);
        let creds: Vec<_> = creds
            .filter(|template| is_chart(&template.r#type, template.enable_oci))
            .cloned()
            .collect();
        let refs = self.refs(&app, &sources);
        let mut answer = ManifestResponse::default();
        for source in &sources {
            let namespace = &app.metadata.namespace;
            let instance = match namespace == self.plane.namespace() {
                true => app.metadata.name.clone(),
                false => format!("{namespace}_{}", app.metadata.name),
            };
            let request = ManifestRequest {
                repo: Some(settings.repository(&source.repo_url, project_of(&app))),
                revision: source.target_revision.clone(),
                no_cache: query.no_cache(),
                app_label_key: settings.config.tracking.label_key.clone(),
                app_name: instance,
                namespace: app.spec.destination.namespace.clone(),
                application_source: Some(source.clone()),
                repos: repos.clone(),
                helm_repo_creds: creds.clone(),
                kustomize_options: Some(settings.config.kustomize.clone()),
                helm_options: Some(settings.config.helm.clone()),
                kube_version: info.server_version.clone(),
                api_versions: info.api_versions.clone(),
                tracking_method: settings.config.tracking.method.as_str().to_owned(),
                enabled_source_types: settings.config.enabled.to_map(),
                has_multiple_sources: app.spec.has_multiple_sources(),
                ref_sources: refs.clone(),
                project_source_repos: project.spec.source_repos.clone(),
                project_name: project_of(&app).to_owned(),
                annotation_manifest_generate_paths: app
                    .metadata
                    .annotations
                    .get(annotation::MANIFEST_GENERATE_PATHS)
                    .cloned()
                    .unwrap_or_default(),
                installation_id: settings.config.tracking.installation_id.clone(),
                source_integrity: argosy_api::integrity::effective(&project.spec),
                ..ManifestRequest::default()
            };
            let rendered = self.repo.generate_manifest(request).await.map_err(status::repo)?;
            let sensitive = &settings.config.sensitive_annotations;
            answer.manifests.extend(
                rendered
                    .manifests
                    .iter()
                    .filter_map(|text| egress::rendered(text, sensitive)),
            );
            answer.revision = rendered.revision;
            answer.source_type = rendered.source_type;
            answer.namespace = rendered.namespace;
            answer.commands.extend(rendered.commands);
        }
        answer.server = cluster.server;
        Ok(answer)
    }

    fn refs(&self, app: &Application, sources: &[ApplicationSource]) -> BTreeMap<String, RefTarget> {
        let settings = self.plane.settings();
        let named = sources.iter().filter(|source| !source.r#ref.is_empty());
        named
            .map(|source| {
                let target = RefTarget {
                    repo: settings.repository(&source.repo_url, project_of(app)),
                    target_revision: source.target_revision.clone(),
                    chart: source.chart.clone(),
                };
                (format!("${}", source.r#ref), target)
            })
            .collect()
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

    pub(super) async fn revision(
        &self,
        caller: &Caller,
        query: &RevisionMetadataQuery,
    ) -> Result<RevisionMetadata, Status> {
        let app = self
            .gate
            .open_app::<Get>(caller, query.project(), query.app_namespace(), &query.name)?;
        let source = Self::source_of(&app, query)?;
        let request = RepoServerRevisionMetadataRequest {
            repo: Some(
                self.plane
                    .settings()
                    .repository(&source.repo_url, project_of(&app)),
            ),
            revision: query.revision.clone(),
            ..RepoServerRevisionMetadataRequest::default()
        };
        self.repo
            .get_revision_metadata(request)
            .await
            .map_err(status::repo)
    }

    pub(super) async fn chart_details(
        &self,
        caller: &Caller,
        query: &RevisionMetadataQuery,
    ) -> Result<ChartDetails, Status> {
        let app = self
            .gate
            .open_app::<Get>(caller, query.project(), query.app_namespace(), &query.name)?;
        let source = Self::source_of(&app, query)?;
        if source.chart.is_empty() {
            return Err(Status::invalid_argument(format!(
                "no chart found for application: {}",
                query.name
            )));
        }
        let request = RepoServerRevisionChartDetailsRequest {
            repo: Some(
                self.plane
                    .settings()
                    .repository(&source.repo_url, project_of(&app)),
            ),
            name: source.chart.clone(),
            revision: query.revision.clone(),
        };
        self.repo
            .get_revision_chart_details(request)
            .await
            .map_err(status::repo)
    }
}
