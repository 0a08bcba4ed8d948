//! Which Applications a query is about.

use argosy_api::git_url;
use argosy_api::meta::LabelSelector;
use argosy_api::services::application::ApplicationQuery;
use argosy_api::v1alpha1::Application;
use tonic::Status;

use crate::selector;
use crate::state::project_of;

/// What a query selects. Empty lists and texts select everything.
pub(super) struct Selection {
    name: String,
    namespace: String,
    projects: Vec<String>,
    repo: String,
    selector: LabelSelector,
    /// In lower case.
    search: String,
    health: Vec<String>,
    sync: Vec<String>,
    clusters: Vec<String>,
    destination_namespaces: Vec<String>,
}

impl Selection {
    pub(super) fn read(query: &ApplicationQuery) -> Result<Self, Status> {
        let filled = |texts: &[String]| texts.iter().filter(|text| !text.is_empty()).cloned().collect();
        Ok(Selection {
            name: query.name().to_owned(),
            namespace: query.app_namespace().to_owned(),
            projects: filled(&[&query.projects[..], &query.project[..]].concat()),
            repo: git_url::normalize(query.repo()),
            selector: selector::parse(query.selector())?,
            search: query.search().trim().to_lowercase(),
            health: filled(&query.health),
            sync: filled(&query.sync),
            clusters: filled(&query.cluster),
            destination_namespaces: filled(&query.destination_namespace),
        })
    }

    /// Of watches: one Application is meant by its name, and without a namespace it is that of the control plane.
    pub(super) fn here(mut self, namespace: &str) -> Self {
        if !self.name.is_empty() && self.namespace.is_empty() {
            namespace.clone_into(&mut self.namespace);
        }
        self
    }

    pub(super) fn selects(&self, app: &Application) -> bool {
        let of_repo = || {
            app.spec
                .effective_sources()
                .iter()
                .any(|source| git_url::normalize(&source.repo_url) == self.repo)
        };
        let one_of =
            |wanted: &[String], text: &str| wanted.is_empty() || wanted.iter().any(|each| each == text);
        let destination = &app.spec.destination;
        (self.name.is_empty() || app.metadata.name == self.name)
            && (self.namespace.is_empty() || app.metadata.namespace == self.namespace)
            && one_of(&self.projects, project_of(app))
            && (self.repo.is_empty() || of_repo())
            && selector::selects(&self.selector, &app.metadata.labels)
            && one_of(&self.health, unless_empty(&app.status.health.status))
            && one_of(&self.sync, unless_empty(&app.status.sync.status))
            && one_of(&self.destination_namespaces, &destination.namespace)
            && (self.clusters.is_empty()
                || [&destination.server, &destination.name]
                    .into_iter()
                    .any(|cluster| !cluster.is_empty() && self.clusters.contains(cluster)))
            && (self.search.is_empty() || self.finds(app))
    }

    fn finds(&self, app: &Application) -> bool {
        let has = |text: &str| text.to_lowercase().contains(&self.search);
        let destination = &app.spec.destination;
        has(&app.metadata.name)
            || has(project_of(app))
            || has(&destination.server)
            || has(&destination.name)
            || has(&destination.namespace)
            || app
                .spec
                .effective_sources()
                .iter()
                .any(|source| has(&source.repo_url) || has(&source.path) || has(&source.chart))
            || app
                .metadata
                .labels
                .iter()
                .any(|(key, value)| has(&format!("{key}={value}")))
    }
}

/// A status that was never written is Unknown.
pub(super) fn unless_empty(status: &str) -> &str {
    match status {
        "" => "Unknown",
        status => status,
    }
}
