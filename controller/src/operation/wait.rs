//! What is seen of the objects of an operation.

use std::collections::HashMap;

use argosy_api::annotation;
use argosy_api::meta::Time;
use argosy_object::{Value, meta};
use argosy_sync::{Action, Observations, OperationPhase, Seen, Task};
use futures::StreamExt as _;
use tracing::debug;

use super::begin::Session;
use super::desk::Desk;
use crate::neighbours::InCluster;

/// Looks at every object whose state can matter to the next step.
pub(super) async fn observe(desk: &Desk<'_>, session: &Session) -> Observations {
    let writing = session.progress.is_writing(&session.plan);
    let mut looks = Vec::new();
    for task in session
        .plan
        .tasks
        .iter()
        .filter(|task| matters(session, task, writing))
    {
        looks.push(async move { Some((task.id, look(session, task).await?)) });
    }
    let seen: Vec<_> = futures::stream::iter(looks)
        .buffer_unordered(session.writer.parallelism)
        .collect()
        .await;
    Observations {
        seen: seen.into_iter().flatten().collect::<HashMap<_, _>>(),
        prune_confirmed: confirmed(desk),
    }
}

/// Hooks always (one of an earlier sync may be in the way); of the rest what is on its way up or down, and what only
/// gates. While a wave is being written nobody's health is asked for.
fn matters(session: &Session, task: &Task, writing: bool) -> bool {
    let phase = session.progress.phase(task);
    match task.action {
        Action::Hook | Action::Observe => true,
        Action::Prune => phase.is_some(),
        Action::Apply | Action::CreateNamespace => !writing && phase == Some(OperationPhase::Running),
        Action::SkipPruneUnasked | Action::SkipPruneForbidden => false,
    }
}

/// One object; nothing if nothing certain is known about it.
async fn look(session: &Session, task: &Task) -> Option<Seen> {
    if let Some(live) = session.cluster().snapshot().get(&task.key) {
        return Some(seen(session, &live.value()));
    }
    // Absence that would end the operation, or of a kind that is not followed, is asked for.
    let waited_for = session.progress.phase(task) == Some(OperationPhase::Running);
    let followed = session.cluster().follows(&task.key.group_kind());
    if !waited_for && followed {
        return Some(Seen::Absent);
    }
    match session.writer.get(task).await {
        Ok(Some(live)) => Some(seen(session, &live)),
        Ok(None) => Some(Seen::Absent),
        Err(error) => {
            debug!(task = %task.key, %error, "nothing is known about an object of the operation");
            None
        }
    }
}

fn seen(session: &Session, live: &Value) -> Seen {
    let snapshot = session.cluster().snapshot();
    let health = argosy_health::assess_among(live, &session.health, &InCluster(&snapshot));
    debug!(kind = meta::kind(live), name = meta::name(live), ?health, "seen");
    Seen::live(live, health)
}

/// Has a person approved deletions since the operation started?
fn confirmed(desk: &Desk<'_>) -> bool {
    let approved = desk.app.metadata.annotations.get(annotation::DELETION_APPROVED);
    let approved = approved.and_then(|text| Time::parse(text).ok());
    approved.is_some_and(|time| time.seconds >= desk.started_at())
}
