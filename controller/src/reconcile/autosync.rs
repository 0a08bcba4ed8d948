//! Does the Application sync by itself now? Gathers what the decision needs and turns a yes into an operation.

use std::time::Duration;

use argosy_api::v1alpha1::{
    Application, ApplicationSource, Operation, OperationInitiator, OperationPhase, OperationState,
    RetryStrategy, SyncOperation, SyncOperationResource, SyncStatusCode,
};
use argosy_sync::autosync::{self, Decision, LastOperation, Policy, Resource, SelfHealBackoff, Status};
use argosy_sync::plan::Selector;

use super::Compared;

/// Attempts after the first of an automated sync whose spec says nothing.
const RETRY_LIMIT: i64 = 5;

/// What to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Autosync {
    /// Nothing.
    No,
    /// Look again after this time: a self-heal waits for its pause.
    Wait(Duration),
    /// Begin this operation.
    Start(Box<Operation>),
    /// Say so in a SyncError condition; look again after this time, if any.
    Error {
        message: String,
        retry_after: Option<Duration>,
    },
}

/// Decides for what was just compared. `changed`: what the Application should be has changed since its last sync, or may have.
pub(crate) fn autosync(
    app: &Application,
    compared: &Compared,
    changed: bool,
    backoff: SelfHealBackoff,
    now: jiff::Timestamp,
) -> Autosync {
    let policy = policy(app);
    let resources: Vec<Resource> = compared.resources.iter().map(resource).collect();
    let last = app
        .status
        .operation_state
        .as_ref()
        .and_then(|state| last(app, state, now));
    let going_on = app
        .status
        .operation_state
        .as_ref()
        .is_some_and(|state| !completed(&state.phase));
    let input = autosync::Input {
        policy,
        operation_in_progress: app.operation.is_some() || going_on,
        deleting: app.metadata.deletion_timestamp.is_some(),
        status: status(compared.status),
        resources: &resources,
        revisions: &compared.revisions,
        revisions_have_changes: changed,
        last: last.as_ref(),
        backoff,
    };
    match autosync::decide(&input) {
        Decision::Skip(reason) => {
            tracing::debug!(app = app.metadata.name, %reason, "no automated sync");
            Autosync::No
        }
        Decision::Wait(pause) => Autosync::Wait(pause),
        Decision::Error { message, retry_after } => Autosync::Error { message, retry_after },
        Decision::Start {
            resources,
            prune,
            self_heal_attempts,
        } => Autosync::Start(Box::new(operation(
            app,
            &compared.revisions,
            resources,
            prune,
            self_heal_attempts,
        ))),
    }
}

/// `syncPolicy.automated`, unless it is switched off.
fn policy(app: &Application) -> Option<Policy> {
    let automated = app.spec.sync_policy.as_ref()?.automated.as_ref()?;
    automated.enabled.unwrap_or(true).then(|| Policy {
        prune: automated.prune.unwrap_or_default(),
        self_heal: automated.self_heal.unwrap_or_default(),
        allow_empty: automated.allow_empty.unwrap_or_default(),
    })
}

fn resource(managed: &super::Managed) -> Resource {
    let key = &managed.key;
    Resource {
        selector: Selector {
            group: key.group.clone(),
            kind: key.kind.clone(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        },
        desired: managed.manifest.is_some(),
        status: managed.status.map(status),
        requires_pruning: managed.requires_pruning,
    }
}

fn status(code: SyncStatusCode) -> Status {
    match code {
        SyncStatusCode::Synced => Status::Synced,
        SyncStatusCode::OutOfSync => Status::OutOfSync,
        SyncStatusCode::Unknown => Status::Unknown,
    }
}

fn completed(phase: &str) -> bool {
    phase
        .parse::<OperationPhase>()
        .is_ok_and(OperationPhase::completed)
}

/// The last operation as the decision sees it; nothing if it was no sync.
fn last(app: &Application, state: &OperationState, now: jiff::Timestamp) -> Option<LastOperation> {
    let sync = state.operation.sync.as_ref()?;
    let multiple = app.spec.has_multiple_sources();
    let result = state.sync_result.as_ref();
    let revisions = result.map(|result| match multiple {
        true => result.revisions.clone(),
        false => vec![result.revision.clone()],
    });
    let synced: Vec<&ApplicationSource> = match result {
        Some(result) if multiple => result.sources.iter().collect(),
        Some(result) => vec![&result.source],
        None => Vec::new(),
    };
    let wanted = app.spec.effective_sources();
    let finished = state.finished_at.map(|at| now.duration_since(at.to_timestamp()));
    Some(LastOperation {
        phase: phase(&state.phase),
        message: state.message.clone(),
        revisions,
        same_sources: synced.into_iter().eq(wanted.iter()),
        self_heal_attempts: sync.auto_heal_attempts_count,
        finished: finished.and_then(|passed| Duration::try_from(passed).ok()),
    })
}

fn phase(text: &str) -> argosy_sync::phase::OperationPhase {
    use argosy_sync::phase::OperationPhase as Phase;
    match text {
        "Running" => Phase::Running,
        "Terminating" => Phase::Terminating,
        "Failed" => Phase::Failed,
        "Succeeded" => Phase::Succeeded,
        _ => Phase::Error,
    }
}

/// The operation: to exactly what was compared, sources included, whatever becomes of the spec until it begins.
fn operation(
    app: &Application,
    compared_to: &[String],
    resources: Vec<Selector>,
    prune: bool,
    self_heal_attempts: i64,
) -> Operation {
    let policy = app.spec.sync_policy.as_ref();
    let multiple = app.spec.has_multiple_sources();
    let (revision, revisions) = match multiple {
        true => (String::new(), compared_to.to_vec()),
        false => (compared_to.first().cloned().unwrap_or_default(), Vec::new()),
    };
    let resources = resources.into_iter().map(|selector| SyncOperationResource {
        group: selector.group,
        kind: selector.kind,
        name: selector.name,
        namespace: selector.namespace,
    });
    Operation {
        sync: Some(SyncOperation {
            revision,
            revisions,
            prune,
            sync_options: policy
                .map(|policy| policy.sync_options.clone())
                .unwrap_or_default(),
            source: if multiple {
                None
            } else {
                app.spec.effective_sources().into_iter().next()
            },
            sources: if multiple {
                app.spec.sources.clone()
            } else {
                Vec::new()
            },
            resources: resources.collect(),
            auto_heal_attempts_count: self_heal_attempts,
            ..SyncOperation::default()
        }),
        initiated_by: OperationInitiator {
            automated: true,
            ..OperationInitiator::default()
        },
        info: Vec::new(),
        retry: policy
            .and_then(|policy| policy.retry.clone())
            .unwrap_or_else(|| RetryStrategy {
                limit: RETRY_LIMIT,
                ..RetryStrategy::default()
            }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_automated_sync_goes_to_what_was_compared_sources_included() {
        let source = |path: &str| ApplicationSource {
            repo_url: "https://git.example/shop".into(),
            path: path.into(),
            ..ApplicationSource::default()
        };
        let mut app = Application::default();
        app.spec.source = Some(source("one"));
        let of = |app: &Application, revisions: &[&str]| {
            let revisions: Vec<String> = revisions.iter().map(|text| (*text).to_owned()).collect();
            operation(app, &revisions, Vec::new(), false, 0)
                .sync
                .unwrap_or_default()
        };
        let sync = of(&app, &["abc"]);
        assert_eq!(
            (sync.revision.as_str(), sync.source.as_ref()),
            ("abc", Some(&source("one")))
        );
        assert_eq!((sync.revisions.len(), sync.sources.len()), (0, 0));
        app.spec.sources = vec![source("two"), source("three")];
        let sync = of(&app, &["abc", "def"]);
        assert_eq!((sync.source, sync.sources), (None, app.spec.sources.clone()));
        assert_eq!(sync.revisions, ["abc", "def"]);
    }
}
