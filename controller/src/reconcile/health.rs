//! Health of the Application from the health of its resources. Pure.

use argosy_api::v1alpha1::Application;
use argosy_health::{Aggregate, Child, aggregate};

use super::compare::Managed;

/// The worst of what counts.
pub(crate) fn health(app: &Application, resources: &[Managed]) -> Aggregate {
    aggregate(resources.iter().map(|resource| {
        let key = &resource.key;
        let own = key.group == "argoproj.io"
            && key.kind == "Application"
            && key.name == app.metadata.name
            && key.namespace == app.metadata.namespace;
        Child {
            key: (**key).clone(),
            health: resource.health.clone(),
            live: resource.resource.is_some() || resource.finished,
            hook: resource.counts.outside,
            ignored: resource.counts.health_ignored || own,
        }
    }))
}
