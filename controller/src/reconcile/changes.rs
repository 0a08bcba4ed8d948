//! Has what the Application should be changed since its last sync? Asked for Applications that name the paths that they are made of
//! (`manifest-generate-paths`): for those a commit elsewhere in the repository is no reason to sync again, and so to put back what somebody
//! has changed by hand.

use argosy_api::annotation;
use argosy_api::v1alpha1::{Application, SyncStatusCode};

use super::desired::{Render, is_the_same};
use super::{Compared, Request};
use crate::context::{AppKey, Context};

/// False if the same is rendered now as from the revisions that were synced last. Asked only where it matters.
pub(super) async fn since_last_sync(
    ctx: &Context,
    app: &Application,
    request: &Request,
    compared: &Compared,
) -> bool {
    let Some(last) = synced_last(app).filter(|_| matters(app, compared)) else {
        return true;
    };
    if last == compared.revisions {
        return true;
    }
    let memo = ctx.memos.of(&AppKey::of(app));
    let (desired, known) = {
        let memo = memo.lock();
        (memo.desired.clone(), memo.changes.clone())
    };
    let Some(desired) = desired.filter(|desired| desired.revisions == compared.revisions) else {
        return true;
    };
    if let Some((_, _, changed)) =
        known.filter(|(since, rendered, _)| *since == last && *rendered == desired.rendered)
    {
        return changed;
    }
    let settings = ctx.settings.get();
    let render = Render {
        ctx,
        app,
        project: &compared.project,
        cluster: &compared.cluster,
        settings: &settings,
    };
    let changed = !is_the_same(&render, request, &desired, &last).await;
    memo.lock().changes = Some((last, desired.rendered, changed));
    changed
}

/// Would a newer revision make a sync start?
fn matters(app: &Application, compared: &Compared) -> bool {
    let paths = app.metadata.annotations.get(annotation::MANIFEST_GENERATE_PATHS);
    let policy = app
        .spec
        .sync_policy
        .as_ref()
        .and_then(|policy| policy.automated.as_ref());
    compared.status == SyncStatusCode::OutOfSync
        && paths.is_some_and(|paths| !paths.trim().is_empty())
        && policy.is_some_and(|policy| policy.enabled.unwrap_or(true))
}

/// The revisions of the last sync, one a source.
fn synced_last(app: &Application) -> Option<Vec<String>> {
    let result = app.status.operation_state.as_ref()?.sync_result.as_ref()?;
    Some(match app.spec.has_multiple_sources() {
        true => result.revisions.clone(),
        false => vec![result.revision.clone()],
    })
}
