//! An automated sync whose revision is no longer the newest makes room for the newer one at the next safe point.
//!
//! Safe is where nothing of ours runs: while resources become healthy, while deletions or approvals are awaited, between
//! waves, between attempts. A running hook is seen to its end first. The operation then ends as one that is terminated,
//! and the next look starts a sync to what Git has now. A newer revision from which the same is rendered is no reason: in a
//! repository of many, syncs that take longer than the time between two commits would never end.

use argosy_api::v1alpha1::{OperationPhase, SyncStatusCode};
use argosy_object::ContentHash;
use argosy_sync::progress::Reason;
use argosy_sync::{OperationPhase as TaskPhase, Step};

use super::begin::Session;
use super::desk::Desk;

/// The newer revisions, if the operation is automated and the comparison has found others than it goes to. `rendered` is what was rendered
/// from those.
pub(super) fn newer(desk: &Desk<'_>, rendered: Option<ContentHash>) -> Option<String> {
    let (operation, app) = (desk.operation(), &desk.app);
    let automated = app.spec.sync_policy.as_ref()?.automated.as_ref()?;
    let at_work = operation.initiated_by.automated && desk.state.phase == OperationPhase::Running.as_str();
    if !at_work || automated.enabled == Some(false) || app.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let result = desk.state.sync_result.as_ref()?;
    let found = &app.status.sync;
    if found.status != SyncStatusCode::OutOfSync.as_str() {
        return None;
    }
    let (going_to, newest) = match app.spec.has_multiple_sources() {
        true => (result.revisions.clone(), found.revisions.clone()),
        false => (vec![result.revision.clone()], vec![found.revision.clone()]),
    };
    // Only a comparison of the sources that the spec has now counts.
    let compared_to = &found.compared_to;
    let compared = match app.spec.has_multiple_sources() {
        true => compared_to.sources.clone(),
        false => vec![compared_to.source.clone()],
    };
    let known =
        |revisions: &[String]| !revisions.is_empty() && revisions.iter().all(|revision| !revision.is_empty());
    let changes = || rendered.is_none() || desk.ctx.memos.rendered(&desk.key()) != rendered;
    let differs = known(&going_to) && known(&newest) && going_to != newest && changes();
    (differs && compared == app.spec.effective_sources()).then(|| newest.join(", "))
}

/// Can the operation be left here?
pub(super) fn is_safe(step: &Step, session: &Session) -> bool {
    let hook_runs = || {
        session
            .plan
            .tasks
            .iter()
            .any(|task| task.is_hook() && session.progress.phase(task) == Some(TaskPhase::Running))
    };
    match step {
        Step::Wait(wait) => wait.on.iter().all(|on| on.reason != Reason::Hook) && !hook_runs(),
        Step::Pause { .. } => !hook_runs(),
        _ => false,
    }
}
