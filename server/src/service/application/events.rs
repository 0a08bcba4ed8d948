//! Events of Kubernetes about an Application or one of its resources.

use argosy_api::services::application::ApplicationResourceEventsQuery;
use argosy_api::services::events::{Event, EventList};
use argosy_kube_io::api;
use argosy_kube_io::target::Selection;
use bytes::Bytes;
use tonic::Status;

use crate::auth::Caller;
use crate::gate::Get;
use crate::service::Api;
use crate::status;

/// Events that can be read; the others are left out.
pub(in crate::service) fn list(items: Vec<Bytes>) -> EventList {
    let items = items
        .iter()
        .filter_map(|bytes| serde_json::from_slice::<Event>(bytes).ok());
    EventList {
        metadata: Default::default(),
        items: items.collect(),
    }
}

/// Selects the events about one object. A tree may come from Redis, which vouches for nothing: what would be more than a
/// value of the selector is refused.
fn about(name: &str, uid: &str) -> Result<String, Status> {
    if [name, uid]
        .iter()
        .any(|value| value.contains([',', '=', '!', '\\']))
    {
        return Err(Status::failed_precondition(format!(
            "the tree of the application has a resource {name:?} with uid {uid:?}: no resource is called so"
        )));
    }
    Ok(format!("involvedObject.name={name},involvedObject.uid={uid}"))
}

impl Api {
    pub(super) async fn resource_events(
        &self,
        caller: &Caller,
        query: &ApplicationResourceEventsQuery,
    ) -> Result<EventList, Status> {
        let app = self
            .gate
            .open_app::<Get>(caller, query.project(), query.app_namespace(), &query.name)?;
        if query.resource_name().is_empty() && query.resource_uid().is_empty() {
            return self.plane.events_about(&app).await.map(list);
        }
        let tree = self.live_tree(caller, &app).await?;
        let node = tree.nodes.iter().chain(&tree.orphaned_nodes).find(|node| {
            node.resource_ref.uid == query.resource_uid()
                && node.resource_ref.name == query.resource_name()
                && node.resource_ref.namespace == query.resource_namespace()
        });
        let node = node.ok_or_else(|| {
            Status::invalid_argument(format!(
                "{} not found as part of application {}",
                query.resource_name(),
                query.name
            ))
        })?;
        let cluster = self.destination(&app)?;
        let target = self.targets.of(&self.plane, &cluster).await?;
        let namespace = match node.resource_ref.namespace.as_str() {
            // Events about cluster-scoped objects live here.
            "" => "default",
            namespace => namespace,
        };
        let selection = Selection {
            fields: about(&node.resource_ref.name, &node.resource_ref.uid)?,
            ..Selection::namespace(namespace)
        };
        Ok(list(
            target
                .list(&api::events(), &selection)
                .await
                .map_err(status::kube)?
                .items,
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_that_would_select_more_is_refused() {
        assert_eq!(
            about("system:web", "u-1").unwrap(),
            "involvedObject.name=system:web,involvedObject.uid=u-1"
        );
        for bad in ["a,b", "a=b", "a!", "a\\"] {
            assert!(about(bad, "u").is_err() && about("a", bad).is_err(), "{bad}");
        }
    }
}
