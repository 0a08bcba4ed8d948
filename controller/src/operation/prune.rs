//! Deleting what is no longer desired: exactly the objects the plan saw, and nothing that has taken their names. Between the plan and the
//! deletion days may pass, if a person has to agree: what has become another Application's since, or is not to be deleted any longer,
//! stays.

use argosy_livestate::Resource;
use argosy_object::meta;
use argosy_sync::options::{Removal, SyncOptions, resource_options};
use argosy_sync::{Outcome, Task, TaskId};
use futures::FutureExt as _;

use super::Interrupted;
use super::apply::{Failure, Writer, side_by_side};
use super::begin::Session;

/// Deletes these, side by side.
pub(super) async fn prune(session: &mut Session, tasks: &[TaskId]) -> Result<(), Interrupted> {
    side_by_side(session, tasks, |writer, task| {
        let outcome = |deleted| match deleted {
            Ok(outcome) => Ok(outcome),
            Err(Failure::Refused(message)) => Ok(Outcome::Failed(message)),
            Err(Failure::Interrupted) => Err(Interrupted),
        };
        delete(writer, task).map(outcome).boxed()
    })
    .await
}

async fn delete(writer: &Writer, task: &Task) -> Result<Outcome, Failure> {
    let Some(planned) = task.live.as_deref() else {
        return Ok(Outcome::Pruned);
    };
    if meta::deletion_timestamp(planned).is_some() {
        return Ok(Outcome::Pruned);
    }
    let now = writer.cluster.snapshot().get(&task.key);
    if let Some(live) = now.filter(|live| *live.uid == *meta::uid(planned)) {
        // One that is on its way out already needs no second push.
        if meta::deletion_timestamp(&live.value()).is_some() {
            return Ok(Outcome::Pruned);
        }
        if let Some(reason) = spared(&live, &writer.instance, task.options.prune) {
            return Ok(Outcome::Spared(reason.to_owned()));
        }
    }
    let discovery = writer.cluster.discovery();
    let Some(resource) = discovery.find(&task.gvk) else {
        return Err(Failure::Refused(format!(
            "the API server does not serve {}/{} any longer",
            task.gvk.api_version(),
            task.gvk.kind
        )));
    };
    writer.delete(resource, planned, writer.propagation).await?;
    Ok(Outcome::Pruned)
}

/// Why an object may not be deleted now, if it may not. `planned` is what was to be asked of a person when the plan was made.
fn spared(live: &Resource, instance: &str, planned: Removal) -> Option<&'static str> {
    if live.app.as_deref() != Some(instance) {
        return Some("ignored (it is not this application's any longer)");
    }
    let said = resource_options(&SyncOptions::default(), None, None, Some(&live.value())).prune;
    match said {
        Removal::Forbidden => Some("ignored (no prune)"),
        Removal::Confirm if planned == Removal::Allowed => Some("ignored (nobody has confirmed it)"),
        Removal::Confirm | Removal::Allowed => None,
    }
}

#[cfg(test)]
mod tests {
    use argosy_object::Value;
    use serde_json::json;

    use super::*;

    fn live(options: &str, app: &str) -> Resource {
        let object: Value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop", "uid": "u",
            "annotations": {"argocd.argoproj.io/sync-options": options}}});
        Resource::new(&object, Some(app.into()))
    }

    #[test]
    fn what_has_become_another_applications_since_the_plan_is_not_deleted() {
        assert_eq!(spared(&live("", "web"), "web", Removal::Allowed), None);
        assert!(spared(&live("", "other"), "web", Removal::Confirm).is_some());
    }

    #[test]
    fn what_an_object_says_of_its_deletion_counts_when_it_is_deleted() {
        let spared = |options, planned| spared(&live(options, "web"), "web", planned);
        assert_eq!(
            spared("Prune=false", Removal::Confirm),
            Some("ignored (no prune)")
        );
        assert!(spared("Prune=confirm", Removal::Allowed).is_some());
        assert_eq!(spared("Prune=confirm", Removal::Confirm), None);
    }
}
