//! Is the spec of an Application one that can be deployed? Said at once, where a person can still change it.

use std::collections::HashSet;

use argosy_api::project::{self, Target};
use argosy_api::refs;
use argosy_api::services::repository::TestRepositoryRequest;
use argosy_api::v1alpha1::{AppProject, Application, ApplicationSource, Cluster};
use tonic::{Code, Status};

use crate::egress;
use crate::service::Api;
use crate::state::project_of;
use crate::status;

/// What is said of an Application whose one source is not described.
const ONE_SOURCE: &str = "spec.source.repoURL and either spec.source.path or spec.source.chart are required";

impl Api {
    /// Checks the spec; with `reach` also that its sources can be read and rendered.
    pub(super) async fn validate_app(&self, app: &Application, reach: bool) -> Result<(), Status> {
        let name = &app.metadata.name;
        let invalid = |why: String| {
            Status::invalid_argument(format!(
                "application spec for {name} is invalid: InvalidSpecError: {why}"
            ))
        };
        if name.is_empty() {
            return Err(Status::invalid_argument(
                "metadata.name: an application needs a name",
            ));
        }
        let project_name = project_of(app);
        let found = self.plane.project_for_gate(project_name);
        let found = found.ok_or_else(|| {
            Status::invalid_argument(format!(
                "app is not allowed in project {project_name:?}, or the project does not exist"
            ))
        })?;
        let namespace = &app.metadata.namespace;
        if !project::permits_application_namespace(&found.spec, namespace, self.plane.namespace()) {
            return Err(Status::invalid_argument(format!(
                "app is not allowed in project {project_name:?}, or the project does not exist"
            )));
        }
        let found = self.joined(&found);
        let cluster = self.cluster_for(app).map_err(|why| {
            Status::invalid_argument(format!(
                "application destination spec for {name} is invalid: {why}"
            ))
        })?;
        let sources = app.spec.effective_sources();
        let has_several = app.spec.has_multiple_sources();
        if sources.is_empty() {
            return Err(invalid(ONE_SOURCE.into()));
        }
        let mut names = HashSet::new();
        if let Some(twice) = sources
            .iter()
            .find(|source| !source.name.is_empty() && !names.insert(&source.name))
        {
            return Err(Status::invalid_argument(format!(
                "application {name} has duplicate source name: {}",
                twice.name
            )));
        }
        for source in &sources {
            let says_what = !source.path.is_empty()
                || !source.chart.is_empty()
                || has_several && !source.r#ref.is_empty();
            if source.repo_url.is_empty() || !says_what {
                return Err(invalid(match has_several {
                    true => format!(
                        "spec.source.repoURL and either source.path, source.chart, or source.ref are required for source {}",
                        egress::bare_url(&source.repo_url)
                    ),
                    false => ONE_SOURCE.into(),
                }));
            }
            if !source.chart.is_empty() && source.target_revision.is_empty() {
                return Err(invalid(
                    "spec.source.targetRevision is required if the manifest source is a helm chart".into(),
                ));
            }
            if !project::permits_source(&found.spec, &source.repo_url) {
                return Err(invalid(format!(
                    "application repo {} is not permitted in project '{project_name}'",
                    egress::bare_url(&source.repo_url)
                )));
            }
        }
        if let Some(hydrator) = &app.spec.source_hydrator {
            let dry = &hydrator.dry_source.repo_url;
            if !project::permits_source(&found.spec, dry) {
                return Err(invalid(format!(
                    "application repo {} is not permitted in project '{project_name}'",
                    egress::bare_url(dry)
                )));
            }
        }
        let repository = |url: &str| self.plane.settings().repository(url, project_name);
        refs::targets(&sources, &[], repository)
            .map_err(|error| invalid(format!("error getting ref sources: {error}")))?;
        let destination = &app.spec.destination;
        let own: Vec<_> = self
            .plane
            .settings()
            .clusters
            .iter()
            .map(|(_, cluster)| cluster.clone())
            .filter(|cluster| cluster.project == project_name)
            .collect();
        let target = |cluster: &'_ Cluster| (cluster.server.clone(), cluster.name.clone());
        let own: Vec<_> = own.iter().map(target).collect();
        let permitted = project::permits_destination(
            &found.spec,
            Target {
                server: &cluster.server,
                name: &cluster.name,
            },
            &destination.namespace,
            own.iter().map(|(server, name)| Target { server, name }),
        );
        if !permitted {
            let named = match destination.name.as_str() {
                "" => &cluster.server,
                _ => &cluster.name,
            };
            return Err(invalid(format!(
                "application destination server '{named}' and namespace '{}' do not match any of the allowed destinations in project '{project_name}'",
                destination.namespace
            )));
        }
        if reach {
            self.reaches_sources(app, &sources, &invalid).await?;
        }
        Ok(())
    }

    /// Checks that the repositories can be read and that what lies there can be rendered.
    async fn reaches_sources(
        &self,
        app: &Application,
        sources: &[ApplicationSource],
        invalid: &impl Fn(String) -> Status,
    ) -> Result<(), Status> {
        // A repo-server that has too much to do, or took too long, says nothing of the spec.
        let refused = |error: argosy_repo_client::Error, what: &str| {
            let why = format!("{what}: {}", error.message());
            let refused = status::repo(error);
            match refused.code() {
                Code::FailedPrecondition => invalid(why),
                _ => refused,
            }
        };
        for source in sources {
            let request = TestRepositoryRequest {
                repo: Some(
                    self.plane
                        .settings()
                        .repository(&source.repo_url, project_of(app)),
                ),
            };
            self.repo
                .test_repository(request)
                .await
                .map_err(|error| refused(error, "repository not accessible"))?;
        }
        for (source, rendered) in self.render_for_validation(app).await? {
            match rendered {
                // The files may come later; until then the comparison tells.
                Err(error) if error.message().contains("matched no files") => {}
                Err(error) => {
                    let what = format!("Unable to generate manifests in {}", source.path);
                    return Err(refused(error, &what));
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// A project with what it inherits.
    pub(in crate::service) fn joined(&self, project: &AppProject) -> AppProject {
        let settings = self.plane.settings();
        let globals = settings.config.global_projects.iter().filter(|global| {
            global.project_name != project.metadata.name
                && global.label_selector.matches(&project.metadata.labels)
        });
        let globals: Vec<_> = globals
            .filter_map(|global| self.plane.project_for_gate(&global.project_name))
            .collect();
        project::with_globals(project, globals.iter().map(|global| &**global))
    }

    /// The one cluster that a destination means.
    pub(in crate::service) fn cluster_for(&self, app: &Application) -> Result<Cluster, String> {
        let destination = &app.spec.destination;
        let settings = self.plane.settings();
        let (server, name) = (destination.server.trim_end_matches('/'), &destination.name);
        match (server.is_empty(), name.is_empty()) {
            (true, true) => return Err("Destination server missing from app spec".to_owned()),
            (false, false) => {
                return Err(format!(
                    "application destination can't have both name and server defined: {name} {server}"
                ));
            }
            _ => {}
        }
        let clusters = settings.clusters.iter().map(|(_, cluster)| cluster);
        let matching: Vec<_> = clusters
            .filter(|cluster| match server {
                "" => cluster.name == *name,
                server => cluster.server == server,
            })
            .collect();
        match (matching.as_slice(), server) {
            ([cluster], _) => Ok((*cluster).clone()),
            ([], "") => Err(format!("there are no clusters with this name: {name}")),
            ([], server) => Err(format!(
                "error getting cluster by server {server:?}: cluster {server:?} not found"
            )),
            (several, _) => {
                let servers: Vec<_> = several.iter().map(|cluster| cluster.server.as_str()).collect();
                Err(format!(
                    "there are {} clusters with the same name: [{}]",
                    servers.len(),
                    servers.join(" ")
                ))
            }
        }
    }
}
