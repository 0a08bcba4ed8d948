//! The end of an operation, or of one attempt at it.

use std::time::Duration;

use argosy_api::meta::Time;
use argosy_api::v1alpha1::{Application, OperationPhase as ApiPhase, OperationState, RevisionHistory};
use argosy_object::Value;
use argosy_sync::{OperationPhase, retry};
use serde_json::json;
use tracing::info;

use super::desk::Desk;
use super::{Memory, Next, begin, journal};
use crate::context::WriteError;
use crate::events;

/// Entries of the history that are kept if the spec does not say.
const HISTORY_MAX: i64 = 10;

/// Ends the attempt; if another one follows, the operation goes on.
pub(super) async fn end(
    desk: &mut Desk<'_>,
    memory: &mut Memory,
    phase: OperationPhase,
    message: String,
) -> Result<Next, WriteError> {
    let terminating = desk.state.phase == ApiPhase::Terminating.as_str();
    let mut message = message;
    let mut phase = phase;
    if !phase.successful() && !terminating {
        match begin::pause(desk) {
            Some(Ok(pause)) => return another(desk, memory, &message, pause).await,
            Some(Err(error)) => {
                phase = OperationPhase::Error;
                message = format!("{message} (failed to retry: {error})");
            }
            None => {}
        }
    }
    if !phase.successful() {
        if let Some(cause) = memory.cause.take().filter(|_| terminating) {
            message = format!("{message}, triggered by {cause}");
        }
        if desk.state.retry_count > 0 {
            message = format!("{message} (retried {} times).", desk.state.retry_count);
        }
    }
    let now = Time::from_timestamp(desk.ctx.clock.now());
    desk.state.phase = phase.as_str().to_owned();
    desk.state.finished_at = Some(now);
    desk.say(&message);
    let extra = if phase.successful() {
        history(&desk.app, &desk.state, now)
    } else {
        None
    };
    let extra = journal::without_note(desk, extra);
    desk.save_with(extra).await?;
    *memory = Memory::default();
    info!(app = desk.app.metadata.name, app_namespace = desk.app.metadata.namespace, phase = %phase, message, "operation ended");
    tell(desk, phase);
    Ok(Next::Done)
}

/// Writes down that there will be another attempt: `Running` with an end.
async fn another(
    desk: &mut Desk<'_>,
    memory: &mut Memory,
    failure: &str,
    pause: Duration,
) -> Result<Next, WriteError> {
    let now = desk.ctx.clock.now();
    desk.state.finished_at = Some(Time::from_timestamp(now));
    desk.state.retry_count += 1;
    let at = now
        .as_second()
        .saturating_add(i64::try_from(pause.as_secs()).unwrap_or(i64::MAX));
    let message = retry::message(failure, desk.state.retry_count, at);
    desk.say(&message);
    desk.save().await?;
    memory.session = None;
    Ok(Next::Wait { at_most: pause })
}

/// The history with this sync, as a patch: only for whole syncs that changed something.
fn history(app: &Application, state: &OperationState, now: Time) -> Option<Value> {
    let sync = state.operation.sync.as_ref()?;
    let result = state.sync_result.as_ref()?;
    if sync.dry_run || !sync.resources.is_empty() {
        return None;
    }
    let several = !result.sources.is_empty();
    let entry = RevisionHistory {
        id: app
            .status
            .history
            .last()
            .map(|last| last.id + 1)
            .unwrap_or_default(),
        revision: if several {
            String::new()
        } else {
            result.revision.clone()
        },
        revisions: if several {
            result.revisions.clone()
        } else {
            Vec::new()
        },
        source: if several {
            Default::default()
        } else {
            result.source.clone()
        },
        sources: result.sources.clone(),
        deployed_at: Some(now),
        deploy_started_at: state.started_at,
        initiated_by: state.operation.initiated_by.clone(),
    };
    let mut entries = app.status.history.clone();
    entries.push(entry);
    let keep = usize::try_from(app.spec.revision_history_limit.unwrap_or(HISTORY_MAX)).unwrap_or_default();
    entries.drain(..entries.len().saturating_sub(keep));
    Some(json!({"status": {"history": entries}}))
}

fn tell(desk: &Desk<'_>, phase: OperationPhase) {
    let partial = desk
        .operation()
        .sync
        .as_ref()
        .is_some_and(|sync| !sync.resources.is_empty());
    let mut message = if partial {
        "Partial sync operation".to_owned()
    } else {
        "Sync operation".to_owned()
    };
    if let Some(result) = &desk.state.sync_result {
        let revision = if result.sources.is_empty() {
            result.revision.clone()
        } else {
            result.revisions.join(", ")
        };
        message = format!("{message} to {revision}");
    }
    let (message, kind) = match phase.successful() {
        true => (format!("{message} succeeded"), events::Kind::Normal),
        false => (
            format!("{message} failed: {}", desk.state.message),
            events::Kind::Warning,
        ),
    };
    desk.ctx
        .events
        .record(&desk.app, events::Reason::OperationCompleted, &message, kind);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use argosy_api::v1alpha1::{
        ApplicationSource, Operation, SyncOperation, SyncOperationResource, SyncOperationResult,
    };

    use super::*;

    fn application(entries: i64, limit: Option<i64>) -> Application {
        let mut app = Application::default();
        app.spec.revision_history_limit = limit;
        app.status.history = (0..entries)
            .map(|id| RevisionHistory {
                id,
                ..RevisionHistory::default()
            })
            .collect();
        app
    }

    fn state(sync: SyncOperation) -> OperationState {
        OperationState {
            operation: Operation {
                sync: Some(sync),
                ..Operation::default()
            },
            sync_result: Some(SyncOperationResult {
                revision: "abc".into(),
                source: ApplicationSource {
                    path: "guestbook".into(),
                    ..ApplicationSource::default()
                },
                ..SyncOperationResult::default()
            }),
            started_at: Some(Time {
                seconds: 100,
                nanos: 0,
            }),
            ..OperationState::default()
        }
    }

    fn ids(patch: &Value) -> Vec<i64> {
        patch["status"]["history"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["id"].as_i64().unwrap())
            .collect()
    }

    const NOW: Time = Time {
        seconds: 160,
        nanos: 0,
    };

    #[test]
    fn a_whole_sync_is_added_to_the_history() {
        let patch = history(&application(0, None), &state(SyncOperation::default()), NOW).unwrap();
        let entry = &patch["status"]["history"][0];
        assert_eq!(
            (entry["id"].as_i64(), entry["revision"].as_str()),
            (Some(0), Some("abc"))
        );
        assert_eq!(entry["source"]["path"], "guestbook");
        assert_eq!(entry["deployStartedAt"], "1970-01-01T00:01:40Z");
    }

    #[test]
    fn the_oldest_entries_go() {
        assert_eq!(
            ids(&history(&application(12, None), &state(SyncOperation::default()), NOW).unwrap()),
            [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
        );
        assert_eq!(
            ids(&history(&application(3, Some(2)), &state(SyncOperation::default()), NOW).unwrap()),
            [2, 3]
        );
        assert_eq!(
            ids(&history(&application(3, Some(0)), &state(SyncOperation::default()), NOW).unwrap()),
            [0i64; 0]
        );
    }

    #[test]
    fn partial_and_dry_syncs_leave_no_trace() {
        let partial = SyncOperation {
            resources: vec![SyncOperationResource::default()],
            ..SyncOperation::default()
        };
        assert_eq!(history(&application(1, None), &state(partial), NOW), None);
        let dry = SyncOperation {
            dry_run: true,
            ..SyncOperation::default()
        };
        assert_eq!(history(&application(1, None), &state(dry), NOW), None);
    }
}
