//! The wish to stop: somebody's, or the clock's.

use std::time::Duration;

use argosy_api::v1alpha1::OperationPhase;

use super::begin::Session;
use super::desk::Desk;
use crate::context::WriteError;

/// The reason to stop, if the operation runs for longer than it may.
pub(super) fn overdue(desk: &Desk<'_>) -> Option<&'static str> {
    let running = desk.state.phase == OperationPhase::Running.as_str();
    (running && time_left(desk).is_zero()).then_some("controller sync timeout")
}

/// How long the operation may still run.
pub(super) fn time_left(desk: &Desk<'_>) -> Duration {
    let limit = desk.ctx.options.sync_timeout;
    if limit.is_zero() {
        return Duration::MAX;
    }
    let now = desk.ctx.clock.now().as_second();
    let running = Duration::from_secs(u64::try_from(now - desk.started_at()).unwrap_or_default());
    limit.saturating_sub(running)
}

/// Writes down that the controller itself ends the operation.
pub(super) async fn order(desk: &mut Desk<'_>, message: &str) -> Result<(), WriteError> {
    desk.state.phase = OperationPhase::Terminating.into();
    desk.say(message);
    // One that waits for its next attempt has nothing running.
    desk.state.finished_at = None;
    desk.save().await
}

/// Hands the wish on to the engine, once.
pub(super) fn heed(desk: &mut Desk<'_>, session: &mut Session) {
    if session.terminating
        || !(desk.asked_to_stop() || desk.state.phase == OperationPhase::Terminating.as_str())
    {
        return;
    }
    desk.state.phase = OperationPhase::Terminating.into();
    if !desk.state.message.starts_with("operation is terminating") {
        desk.say("operation is terminating");
    }
    session.terminating = true;
    session.pause = None;
    session.progress.terminate();
}
