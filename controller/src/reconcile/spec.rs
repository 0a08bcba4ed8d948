//! Can the spec be followed: is it complete, does its project exist and permit it, is its destination a cluster.

use std::sync::Arc;

use argosy_api::condition::ConditionType;
use argosy_api::project::{self, Target};
use argosy_api::v1alpha1::{AppProject, Application, ApplicationCondition, ApplicationSource};

use super::Error;
use crate::apps::{self, Project};
use crate::clusters::{Cluster, DestinationError};
use crate::context::Context;

/// The project and the cluster, or everything that is wrong.
pub(crate) fn check(
    ctx: &Context,
    app: &Application,
    sources: &[ApplicationSource],
) -> Result<(Arc<AppProject>, Cluster), Error> {
    let mut wrong = complete(sources, app.spec.has_multiple_sources());
    let project = match find_project(ctx, app) {
        Ok(project) => Some(project),
        Err(condition) => {
            wrong.push(condition);
            None
        }
    };
    let cluster = match ctx.clusters.resolve(&app.spec.destination) {
        Ok(cluster) => Some(cluster),
        Err(DestinationError::NotOwned { .. }) => return Err(Error::NotOurs),
        // One shard tells what is wrong with a destination that is no cluster.
        Err(error) if error.homeless() && !ctx.clusters.owns_homeless() => return Err(Error::NotOurs),
        Err(error) => {
            wrong.push(invalid(error.to_string()));
            None
        }
    };
    if let Some(project) = &project {
        wrong.extend(permitted(app, sources, project, cluster.as_ref()));
    }
    match (project, cluster) {
        (Some(project), Some(cluster)) if wrong.is_empty() => Ok((project, cluster)),
        _ => Err(Error::Spec { conditions: wrong }),
    }
}

fn invalid(message: impl Into<String>) -> ApplicationCondition {
    ConditionType::InvalidSpecError.with_message(message)
}

/// What the sources lack.
fn complete(sources: &[ApplicationSource], multiple: bool) -> Vec<ApplicationCondition> {
    if sources.is_empty() {
        return vec![invalid(
            "spec.source is required, or at least one of spec.sources",
        )];
    }
    let mut wrong = Vec::new();
    for source in sources {
        let located =
            !source.path.is_empty() || !source.chart.is_empty() || (multiple && !source.r#ref.is_empty());
        if source.repo_url.is_empty() || !located {
            wrong.push(invalid(match multiple {
                true => "spec.source.repoURL and either spec.source.path, spec.source.chart, or spec.source.ref are required",
                false => "spec.source.repoURL and either spec.source.path or spec.source.chart are required",
            }));
        } else if !source.chart.is_empty() && source.target_revision.is_empty() {
            wrong.push(invalid(
                "spec.source.targetRevision is required if the manifest source is a helm chart",
            ));
        }
    }
    wrong
}

fn find_project(ctx: &Context, app: &Application) -> Result<Arc<AppProject>, ApplicationCondition> {
    let name = apps::project_name(app);
    let project = match ctx.apps.project(name) {
        Project::Found(project) => project,
        Project::Unreadable(message) => {
            return Err(invalid(format!(
                "Application referencing project {name} which cannot be read: {message}"
            )));
        }
        Project::Missing if name == "default" => {
            return Err(invalid(format!(
                "Application referencing project default which does not exist. The API server creates it when it \
                 starts; without one, create an AppProject named default in namespace {} with sourceRepos ['*'], \
                 destinations [{{server: '*', namespace: '*'}}] and clusterResourceWhitelist [{{group: '*', kind: '*'}}]",
                ctx.options.namespace
            )));
        }
        Project::Missing => {
            return Err(invalid(format!(
                "Application referencing project {name} which does not exist"
            )));
        }
    };
    if !project::permits_application_namespace(&project.spec, &app.metadata.namespace, &ctx.options.namespace)
    {
        return Err(invalid(format!(
            "application '{}' in namespace '{}' is not permitted to use project '{name}'",
            app.metadata.name, app.metadata.namespace
        )));
    }
    Ok(ctx.settings.get().effective(&project, &ctx.apps))
}

/// What the project does not permit.
fn permitted(
    app: &Application,
    sources: &[ApplicationSource],
    project: &AppProject,
    cluster: Option<&Cluster>,
) -> Vec<ApplicationCondition> {
    let name = &project.metadata.name;
    let mut wrong: Vec<ApplicationCondition> = sources
        .iter()
        .filter(|source| {
            !source.repo_url.is_empty() && !project::permits_source(&project.spec, &source.repo_url)
        })
        .map(|source| {
            invalid(format!(
                "application repo {} is not permitted in project '{name}'",
                source.repo_url
            ))
        })
        .collect();
    let Some(cluster) = cluster else { return wrong };
    let (server, cluster_name) = (cluster.server(), cluster.name());
    let target = Target {
        server,
        name: &cluster_name,
    };
    let namespace = &app.spec.destination.namespace;
    let own = (cluster.info().project == *name).then_some(target);
    if !project::permits_destination(&project.spec, target, namespace, own) {
        wrong.push(invalid(format!(
            "application destination server '{server}' and namespace '{namespace}' do not match any of the allowed \
             destinations in project '{name}'"
        )));
    }
    wrong
}
