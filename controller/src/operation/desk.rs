//! The operation's state while a pass works on it, and its way into the Application.

use std::sync::Arc;
use std::time::Duration;

use argosy_api::meta::Time;
use argosy_api::v1alpha1::{Application, Operation, OperationPhase, OperationState, ResultCode};
use argosy_object::Value;
use argosy_sync::ResourceResult;
use jiff::Timestamp;
use tokio::time::Instant;
use tracing::warn;

use super::result;
use crate::context::{AppKey, Context, WriteError};

/// Between two steps the state is written at most so often; where the operation waits or ends it is written anyway.
const PACE: Duration = Duration::from_secs(1);
/// Texts are cut to so many characters where the state does not fit otherwise.
const SHORT: usize = 200;

/// One pass's view of the operation.
pub(super) struct Desk<'a> {
    pub(super) ctx: &'a Context,
    /// The Application as it was last seen.
    pub(super) app: Arc<Application>,
    /// Its operation as it shall be.
    pub(super) state: OperationState,
    saved: Instant,
}

impl<'a> Desk<'a> {
    /// Goes on with the operation that is at work, or begins the one that is asked for.
    pub(super) fn open(ctx: &'a Context, app: &Arc<Application>) -> Self {
        let last = app.status.operation_state.as_ref();
        let running = last.filter(|state| !completed(state));
        let state = running.cloned().unwrap_or_else(|| OperationState {
            operation: app.operation.clone().unwrap_or_default(),
            phase: OperationPhase::Running.into(),
            message: "waiting to start".to_owned(),
            started_at: Some(start(ctx.clock.now(), last.and_then(|last| last.started_at))),
            ..OperationState::default()
        });
        Desk {
            ctx,
            app: app.clone(),
            state,
            saved: Instant::now(),
        }
    }

    /// Nobody has begun it yet.
    pub(super) fn is_new(&self) -> bool {
        self.app.status.operation_state.as_ref().is_none_or(completed)
    }

    pub(super) fn key(&self) -> AppKey {
        AppKey::of(&self.app)
    }

    /// When the operation started, Unix seconds. Stays through all attempts.
    pub(super) fn started_at(&self) -> i64 {
        self.state.started_at.map(|time| time.seconds).unwrap_or_default()
    }

    pub(super) fn operation(&self) -> &Operation {
        &self.state.operation
    }

    pub(super) fn say(&mut self, message: &str) {
        message.clone_into(&mut self.state.message);
    }

    /// Puts results into the state.
    pub(super) fn note(&mut self, results: &[ResourceResult]) {
        if let Some(sync_result) = &mut self.state.sync_result {
            sync_result.resources = results.iter().map(result::to_api).collect();
        }
    }

    /// Has someone asked for the end? Looks at the newest Application there is.
    pub(super) fn asked_to_stop(&mut self) -> bool {
        if let Some(newest) = self
            .ctx
            .apps
            .get(&self.key())
            .filter(|newest| newest.metadata.uid == self.app.metadata.uid)
        {
            self.app = newest;
        }
        let written = self.app.status.operation_state.as_ref();
        written.is_some_and(|state| state.phase == OperationPhase::Terminating.as_str())
    }

    /// Takes over what another process has begun.
    pub(super) async fn adopt(&mut self) -> Result<(), WriteError> {
        self.app = self.ctx.status.adopt(&self.app).await?;
        Ok(())
    }

    /// Writes the state if it differs from what is written.
    pub(super) async fn save(&mut self) -> Result<(), WriteError> {
        self.save_with(None).await
    }

    /// The same, if the last time is a while ago.
    pub(super) async fn save_now_and_then(&mut self) -> Result<(), WriteError> {
        if self.saved.elapsed() < PACE {
            Ok(())
        } else {
            self.save().await
        }
    }

    /// The same with more of the Application in the same write. A state that does not fit is cut until it does: an
    /// operation whose phase cannot be stored would run for ever.
    pub(super) async fn save_with(&mut self, extra: Option<Value>) -> Result<(), WriteError> {
        self.saved = Instant::now();
        if extra.is_none()
            && self.app.status.operation_state.as_ref() == Some(&self.state)
            && !completed(&self.state)
        {
            return Ok(());
        }
        let mut state = self.state.clone();
        for cut in Cut::ALL {
            match self.ctx.status.operation(&self.app, &state, extra.clone()).await {
                Ok(app) => {
                    self.app = app;
                    return Ok(());
                }
                Err(WriteError::TooLarge { .. }) => {
                    warn!(
                        app = self.app.metadata.name,
                        ?cut,
                        "the state of the operation is too large and is cut"
                    );
                    cut.apply(&mut state);
                }
                Err(error) => return Err(error),
            }
        }
        let written = self.ctx.status.operation(&self.app, &state, None).await?;
        self.app = written;
        Ok(())
    }
}

/// When an operation is said to begin: now, or a second after the last one was said to. Times have whole seconds, and by its start an
/// operation is told from others: hooks and notes carry it.
fn start(now: Timestamp, last: Option<Time>) -> Time {
    let after = last.and_then(|last| Timestamp::from_second(last.seconds + 1).ok());
    Time::from_timestamp(after.map_or(now, |after| now.max(after)))
}

fn completed(state: &OperationState) -> bool {
    state.phase.parse().is_ok_and(OperationPhase::completed)
}

/// What of a state is given up, least first.
#[derive(Clone, Copy, Debug)]
enum Cut {
    LongTexts,
    GoodResults,
    Manifests,
    Results,
}

impl Cut {
    const ALL: [Cut; 4] = [Cut::LongTexts, Cut::GoodResults, Cut::Manifests, Cut::Results];

    fn apply(self, state: &mut OperationState) {
        let note = |state: &mut OperationState, what: &str| {
            state.message = format!(
                "{} ({what}: the application is too large to be stored whole)",
                shortened(&state.message)
            );
        };
        match self {
            Cut::LongTexts => {
                state.message = shortened(&state.message);
                for result in state
                    .sync_result
                    .iter_mut()
                    .flat_map(|result| &mut result.resources)
                {
                    result.message = shortened(&result.message);
                    result.images.clear();
                }
            }
            Cut::GoodResults => {
                if let Some(result) = &mut state.sync_result {
                    result
                        .resources
                        .retain(|one| one.status != ResultCode::Synced.as_str() || !one.hook_type.is_empty());
                }
                note(state, "results of resources that were synced are left out");
            }
            Cut::Manifests => {
                if let Some(sync) = &mut state.operation.sync {
                    sync.manifests.clear();
                }
            }
            Cut::Results => {
                if let Some(result) = &mut state.sync_result {
                    result.resources.clear();
                }
                note(state, "all results are left out");
            }
        }
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= SHORT {
        text.to_owned()
    } else {
        text.chars().take(SHORT).chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_operations_of_one_second_have_different_starts() {
        let now = Timestamp::UNIX_EPOCH;
        let first = start(now, None);
        let second = start(now, Some(first));
        assert_eq!((first.seconds, second.seconds), (0, 1));
        assert_eq!(start(now, Some(second)).seconds, 2);
        let later = Timestamp::from_second(60).unwrap_or_default();
        assert_eq!(start(later, Some(second)).seconds, 60);
    }
}
