//! As whom Applications act in a cluster: the account that their project wants, where impersonation is on.

use argosy_api::project;
use argosy_api::v1alpha1::{AppProject, Application};
use argosy_kube_io::target::Impersonate;

use crate::settings::Settings;

/// Why nobody may act.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// What the project says cannot be followed.
    #[error("failed to derive service account to impersonate: {0}")]
    Derive(String),
    /// The project says nothing, and the settings insist.
    #[error("no matching service account found for destination server {server} and namespace {namespace}")]
    Missing {
        /// The destination's cluster.
        server: String,
        /// The destination's namespace.
        namespace: String,
    },
}

/// The account for writes of `app`, and for dry runs of them; nothing where the controller acts as itself.
pub(crate) fn of(
    settings: &Settings,
    project: &AppProject,
    server: &str,
    app: &Application,
) -> Result<Option<Impersonate>, Error> {
    if !settings.config.impersonation_enabled {
        return Ok(None);
    }
    let namespace = &app.spec.destination.namespace;
    let found = project::service_account(&project.spec, server, namespace, &app.metadata.namespace)
        .map_err(|error| Error::Derive(error.to_string()))?;
    match found {
        None if settings.config.impersonation_enforced => Err(Error::Missing {
            server: server.to_owned(),
            namespace: namespace.clone(),
        }),
        found => Ok(found.map(|user| Impersonate {
            user,
            groups: Vec::new(),
        })),
    }
}
