//! Taking hooks away: first the finalizer that held them until their result was seen, then the object.

use argosy_kube_io::target::{Patch, Write};
use argosy_object::{Value, meta};
use argosy_sync::hook::FINALIZER;
use argosy_sync::{Outcome, Task, TaskId};
use futures::FutureExt as _;
use serde_json::json;

use super::Interrupted;
use super::apply::{Failure, Writer, repeated, side_by_side};
use super::begin::Session;

/// A hook that changes while its finalizer is taken off is looked at again at most so often.
const ATTEMPTS: usize = 5;

/// Takes the finalizer off these.
pub(super) async fn release(session: &mut Session, tasks: &[TaskId]) -> Result<(), Interrupted> {
    side_by_side(session, tasks, |writer, task| {
        let outcome = |removed| match removed {
            Ok(()) => Ok(Outcome::Released),
            Err(Failure::Refused(message)) => Ok(Outcome::RemovalFailed(format!(
                "Failed to remove hook finalizer: {message}"
            ))),
            Err(Failure::Interrupted) => Err(Interrupted),
        };
        release_one(writer, task).map(outcome).boxed()
    })
    .await
}

/// Deletes these hook objects.
pub(super) async fn delete(session: &mut Session, tasks: &[TaskId]) -> Result<(), Interrupted> {
    side_by_side(session, tasks, |writer, task| {
        let outcome = |removed| match removed {
            Ok(()) => Ok(Outcome::Deleted),
            Err(Failure::Refused(message)) => Ok(Outcome::RemovalFailed(format!(
                "failed to delete resource: {message}"
            ))),
            Err(Failure::Interrupted) => Err(Interrupted),
        };
        delete_one(writer, task).map(outcome).boxed()
    })
    .await
}

async fn release_one(writer: &Writer, task: &Task) -> Result<(), Failure> {
    let discovery = writer.cluster.discovery();
    let Some(resource) = discovery.find(&task.gvk) else {
        return Ok(());
    };
    let mut live = live(writer, task).await?;
    for _ in 0..ATTEMPTS {
        let Some(object) = &live else { return Ok(()) };
        let Some(patch) = without_finalizer(object) else {
            return Ok(());
        };
        let (namespace, name) = (&task.key.namespace, &task.key.name);
        let write = Write::default();
        let call = || {
            writer
                .target
                .patch(resource, namespace, name, Patch::Merge(&patch), &write)
                .boxed()
        };
        match repeated(call).await {
            Ok(written) => {
                // The last finalizer of a deleted object takes the object with it.
                if meta::deletion_timestamp(&written.object).is_some()
                    && meta::finalizers(&written.object).next().is_none()
                {
                    writer.cluster.observe_deleted(&task.key, meta::uid(object)).await;
                } else {
                    writer.cluster.observe(written.object).await;
                }
                return Ok(());
            }
            Err(error) if error.not_found() => {
                writer.cluster.observe_deleted(&task.key, meta::uid(object)).await;
                return Ok(());
            }
            Err(error) if error.conflict() => live = writer.get(task).await?,
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failure::Refused("the hook keeps changing".to_owned()))
}

async fn delete_one(writer: &Writer, task: &Task) -> Result<(), Failure> {
    let discovery = writer.cluster.discovery();
    let Some(resource) = discovery.find(&task.gvk) else {
        return Ok(());
    };
    match live(writer, task).await? {
        Some(object) => writer.delete(resource, &object, writer.propagation).await,
        None => Ok(()),
    }
}

async fn live(writer: &Writer, task: &Task) -> Result<Option<Value>, Failure> {
    match writer.cluster.snapshot().get(&task.key) {
        Some(live) => Ok(Some(live.value())),
        None => Ok(writer.get(task).await?),
    }
}

/// The patch that takes our finalizer off, bound to this version of the object; `None` if it carries none.
fn without_finalizer(object: &Value) -> Option<Value> {
    let others: Vec<&str> = meta::finalizers(object)
        .filter(|name| *name != FINALIZER)
        .collect();
    if others.len() == meta::finalizers(object).count() {
        return None;
    }
    Some(json!({"metadata": {
        "finalizers": if others.is_empty() { Value::Null } else { json!(others) },
        "uid": meta::uid(object),
        "resourceVersion": meta::resource_version(object),
    }}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_finalizer_goes() {
        let hook = |finalizers: Value| json!({"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": finalizers}});
        let expected = |finalizers: Value| {
            Some(json!({"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": finalizers}}))
        };
        assert_eq!(
            without_finalizer(&hook(json!([FINALIZER, "foregroundDeletion"]))),
            expected(json!(["foregroundDeletion"]))
        );
        assert_eq!(
            without_finalizer(&hook(json!([FINALIZER]))),
            expected(Value::Null)
        );
        assert_eq!(without_finalizer(&hook(json!(["foregroundDeletion"]))), None);
    }
}
