//! Deleting what is no longer desired: exactly the objects the plan saw, and nothing that has taken their names.

use argosy_object::meta;
use argosy_sync::{Outcome, Task, TaskId};
use futures::FutureExt as _;

use super::Interrupted;
use super::apply::{Failure, Writer, side_by_side};
use super::begin::Session;

/// Deletes these, side by side.
pub(super) async fn prune(session: &mut Session, tasks: &[TaskId]) -> Result<(), Interrupted> {
    side_by_side(session, tasks, |writer, task| {
        let outcome = |deleted| match deleted {
            Ok(()) => Ok(Outcome::Pruned),
            Err(Failure::Refused(message)) => Ok(Outcome::Failed(message)),
            Err(Failure::Interrupted) => Err(Interrupted),
        };
        delete(writer, task).map(outcome).boxed()
    })
    .await
}

async fn delete(writer: &Writer, task: &Task) -> Result<(), Failure> {
    let Some(planned) = task.live.as_deref() else {
        return Ok(());
    };
    let now = writer.cluster.snapshot().get(&task.key);
    // One that is on its way out already needs no second push.
    let going = now.as_ref().is_some_and(|live| {
        *live.uid == *meta::uid(planned) && meta::deletion_timestamp(&live.value()).is_some()
    });
    if going || meta::deletion_timestamp(planned).is_some() {
        return Ok(());
    }
    let discovery = writer.cluster.discovery();
    let Some(resource) = discovery.find(&task.gvk) else {
        return Err(Failure::Refused(format!(
            "the API server does not serve {}/{} any longer",
            task.gvk.api_version(),
            task.gvk.kind
        )));
    };
    writer.delete(resource, planned, writer.propagation).await
}
