//! Is the spec of an Application one that can be deployed? Said at once, where a person can still change it.

use argosy_api::project::{self, Target};
use argosy_api::refs;
use argosy_api::services::repository::TestRepositoryRequest;
use argosy_api::v1alpha1::{AppProject, Application, Cluster};
use tonic::Status;

use crate::egress;
use crate::service::Api;
use crate::state::project_of;

impl Api {
    /// Checks the spec; with `reach` also that its repositories can be read.
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
        let sources = app.spec.effective_sources();
        if sources.is_empty() {
            return Err(invalid("spec.source.repoURL and either spec.source.path, spec.source.chart, or spec.source.ref are required".into()));
        }
        for source in &sources {
            if source.repo_url.is_empty()
                || (source.path.is_empty() && source.chart.is_empty() && source.r#ref.is_empty())
            {
                return Err(invalid(format!(
                    "spec.source.repoURL and either source.path, source.chart, or source.ref are required for source {}",
                    egress::bare_url(&source.repo_url)
                )));
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
        let repository = |url: &str| self.plane.settings().repository(url, project_name);
        refs::targets(&sources, &[], repository)
            .map_err(|error| invalid(format!("error getting ref sources: {error}")))?;
        let destination = &app.spec.destination;
        let cluster = self.cluster_for(app).map_err(|why| {
            invalid(format!(
                "application destination spec for {name} is invalid: {why}"
            ))
        })?;
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
            return Err(invalid(format!(
                "application destination server '{}' and namespace '{}' do not match any of the allowed destinations in project '{project_name}'",
                cluster.server, destination.namespace
            )));
        }
        if reach {
            for source in &sources {
                let request = TestRepositoryRequest {
                    repo: Some(self.plane.settings().repository(&source.repo_url, project_name)),
                };
                self.repo
                    .test_repository(request)
                    .await
                    .map_err(|error| invalid(format!("repository not accessible: {}", error.message())))?;
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
        let mut matching =
            settings
                .clusters
                .iter()
                .map(|(_, cluster)| cluster)
                .filter(|cluster| match server {
                    "" => cluster.name == *name,
                    server => cluster.server == server,
                });
        match (server.is_empty(), name.is_empty()) {
            (true, true) => return Err("destination server missing from app spec".to_owned()),
            (false, false) => {
                return Err(format!(
                    "can't have both name and server defined: {name} {server}"
                ));
            }
            _ => {}
        }
        match (matching.next(), matching.next()) {
            (Some(cluster), None) => Ok(cluster.clone()),
            (None, _) => Err(format!(
                "unable to find destination server: there are no clusters with this name or URL: {server}{name}"
            )),
            (Some(_), Some(_)) => Err(format!(
                "unable to find destination server: there are 2 clusters with the same name: {name}"
            )),
        }
    }
}
