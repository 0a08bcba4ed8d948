//! One look at one Application, on one screen: [`run`].
//!
//! Stages, each in its own file: [`desired`] asks the repo-server, [`live`] takes the snapshot, [`dry_run`] and [`versions`] ask
//! the API server where that is wanted or needed, [`compare`] judges the pairs, [`health`] and [`autosync`] decide ([`changes`] asks whether there is anything new), [`conditions`] puts findings into words. The outcome is one new status,
//! written once, and only when it differs.
//!
//! What is remembered between looks is in [`Memos`] and may be lost at any time: the desired state, the verdicts, since
//! when rendering fails.
//!
//! `reconciledAt` is written when something else changes, when a person asked for the look, or when it is the first after an operation; a look that found nothing
//! new writes nothing. (Argo CD writes it each time; over a fleet those are most of its writes.)

mod autosync;
mod changes;
pub mod compare;
mod conditions;
mod desired;
mod dry_run;
mod finished;
mod health;
mod live;
pub(crate) mod managed;
pub mod manifest;
pub(crate) mod orphans;
mod resolved;
mod spec;
pub(crate) mod summary;
mod verdict;
mod versions;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use argosy_api::annotation;
use argosy_api::condition::{self, ConditionType};
use argosy_api::finalizer;
use argosy_api::meta::Time;
use argosy_api::v1alpha1::{
    AppProject, Application, ApplicationCondition, ApplicationSource, ApplicationStatus, ComparedTo,
    Operation, SyncStatus, SyncStatusCode,
};
use argosy_health::{Health, Status as HealthStatus};
use argosy_livestate::Snapshot;
use argosy_object::ContentHash;
use argosy_runtime::tasks::busy;
use parking_lot::Mutex;
use serde_json::json;
use tracing::{debug, info, warn};

use crate::clusters::Cluster;
use crate::context::{AppKey, Context, WriteError};
use crate::dirty::Marker;
use crate::events;
use crate::queue::{Reason, Reasons, Refresh, Work};
use crate::status::patch_between;
use argosy_api::sync_window as window;
use autosync::Autosync;
pub use compare::Managed;

/// After a write of the status failed, the pass is repeated after so long.
const RETRY: Duration = Duration::from_secs(5);

/// After someone else wrote the Application first, so soon.
const CONFLICT: Duration = Duration::from_millis(100);
/// While rendering fails for the first time, it is tried again this often, or once the repo-server says that it may work.
const RENDER_AGAIN: Duration = Duration::from_secs(30);

/// What is asked of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The sources, one or several.
    pub sources: Vec<ApplicationSource>,
    /// Exact revisions, one a source; empty for what the sources' targets stand for.
    pub revisions: Vec<String>,
    /// Manifests that a person brought along, as JSON texts, in place of the sources.
    pub manifests: Vec<String>,
    /// How deep to look for newer revisions.
    pub refresh: Refresh,
    /// Pass by the repo-server's manifest cache.
    pub hard: bool,
}

/// Desired and live state of an Application, compared.
pub struct Compared {
    /// Its project.
    pub project: Arc<AppProject>,
    /// Its cluster.
    pub cluster: Cluster,
    /// The cluster's state that was compared with.
    pub snapshot: Snapshot,
    /// The sources that were rendered.
    pub sources: Vec<ApplicationSource>,
    /// The revision of each source.
    pub revisions: Vec<String>,
    /// The tool of each source.
    pub source_types: Vec<String>,
    /// Identity of what was rendered; none of manifests that were brought along.
    pub rendered: Option<ContentHash>,
    /// Ordinary resources, by key.
    pub resources: Vec<Managed>,
    /// Desired hooks, by key.
    pub hooks: Vec<Managed>,
    /// Are there hooks for the deletion of the Application, before and after?
    pub deletion_hooks: (bool, bool),
    /// The verdict on the whole.
    pub status: SyncStatusCode,
    /// Health of the whole.
    pub health: Health,
    /// What is to be said about it.
    pub conditions: Vec<ApplicationCondition>,
}

/// Why desired and live could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The spec, or the project, does not allow it.
    #[error("{}", .conditions.iter().map(|condition| condition.message.as_str()).collect::<Vec<_>>().join("; "))]
    Spec {
        /// What is wrong.
        conditions: Vec<ApplicationCondition>,
    },
    /// The manifests could not be had.
    #[error("Failed to load target state: {message}")]
    Render {
        /// What the repo-server said.
        message: String,
        /// After how long it may be otherwise, if nobody has to change anything for it.
        again: Option<Duration>,
    },
    /// The cluster's state is not known.
    #[error("Failed to load live state: {message}")]
    Cluster {
        /// What the cluster said.
        message: String,
    },
    /// The cluster is being listed for the first time: wait for the mark that comes when it is done.
    #[error("the cluster is being listed")]
    Busy,
    /// The cluster belongs to another shard.
    #[error("the cluster belongs to another shard")]
    NotOurs,
}

/// What the API server was asked before a comparison, and said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// What an apply would make of resources.
    pub dry_runs: dry_run::DryRuns,
    /// Live objects in the version of Git.
    pub in_version: versions::InVersion,
}

/// What is remembered of Applications between looks.
#[derive(Default)]
pub struct Memos {
    of_apps: Mutex<HashMap<AppKey, Arc<Mutex<Memo>>>>,
    /// Of all Applications together.
    resolved: resolved::Resolved,
}

#[derive(Default)]
struct Memo {
    desired: Option<Arc<manifest::Desired>>,
    verdicts: compare::Verdicts,
    /// By which rules the verdicts were made.
    rules: Option<verdict::Rules>,
    /// Since when rendering fails.
    failing_since: Option<jiff::Timestamp>,
    /// Whether what was rendered last, the second, differs from what the revisions of the last sync give, the first.
    changes: Option<(Vec<String>, Option<ContentHash>, bool)>,
}

impl Memos {
    fn of(&self, key: &AppKey) -> Arc<Mutex<Memo>> {
        self.of_apps.lock().entry(key.clone()).or_default().clone()
    }

    /// Identity of what the Application should be by the last look at its sources.
    pub(crate) fn rendered(&self, key: &AppKey) -> Option<ContentHash> {
        self.of(key).lock().desired.as_ref()?.rendered
    }

    /// Forgets an Application.
    pub fn forget(&self, key: &AppKey) {
        self.of_apps.lock().remove(key);
    }
}

/// Looks at the Application of `work` and writes what it finds.
pub(crate) async fn run(ctx: &Context, marker: &Marker, work: &Work) {
    let Some(app) = ctx.apps.get(&work.key) else {
        ctx.memos.forget(&work.key);
        note(ctx, &work.key);
        return;
    };
    if skipped(&app) {
        return;
    }
    let started = tokio::time::Instant::now();
    let mut request = request(&app, work);
    // While rendering fails, what was rendered last must not pass for what is desired now.
    if ctx.memos.of(&work.key).lock().failing_since.is_some() {
        request.refresh = request.refresh.max(Refresh::Latest);
    }
    if request.refresh >= Refresh::Latest {
        marker.periodic(&work.key);
    }
    let compared = compare_for(ctx, &app, &request).await;
    let now = ctx.clock.now();
    let outcome = match &compared {
        Ok(compared) => {
            let changed = changes::since_last_sync(ctx, &app, &request, compared).await;
            found(ctx, &app, compared, changed, now)
        }
        Err(error) => failed(ctx, &app, error, &request, now),
    };
    let Some(outcome) = outcome else { return };
    if let Some((pause, reason)) = outcome.look_again {
        ctx.queue.reschedule(&work.key, pause, Refresh::Nothing, reason);
    }
    if let Err(error) = write(ctx, &app, outcome, work.reasons, now).await {
        match &error {
            WriteError::Gone { .. } => {}
            // Someone else wrote first: look at what they wrote.
            WriteError::Api { source, .. } if source.conflict() => {
                ctx.queue
                    .mark_after(&work.key, CONFLICT, Refresh::Nothing, Reason::Retry);
            }
            _ => {
                warn!(
                    app = app.metadata.name,
                    error = argosy_runtime::log::chain(&error),
                    "write the status"
                );
                ctx.queue
                    .mark_after(&work.key, RETRY, Refresh::Nothing, Reason::Retry);
            }
        }
    }
    note(ctx, &work.key);
    ctx.metrics.reconciled(&app, started.elapsed());
    let took_ms = started.elapsed().as_millis() as u64;
    debug!(app = app.metadata.name, app_namespace = app.metadata.namespace, took_ms, refresh = ?request.refresh, "looked");
}

fn note(ctx: &Context, key: &AppKey) {
    if let Some(looked) = &ctx.looked {
        looked.note(key);
    }
}

/// Compares desired and live state of `app`.
pub async fn compare_for(
    ctx: &Context,
    app: &Arc<Application>,
    request: &Request,
) -> Result<Compared, Error> {
    let memo = ctx.memos.of(&AppKey::of(app));
    let settings = ctx.settings.get();
    let (project, cluster) = spec::check(ctx, app, &request.sources)?;
    live::known(&cluster)?;
    let render = desired::Render {
        ctx,
        app,
        project: &project,
        cluster: &cluster,
        settings: &settings,
    };
    let known = memo.lock().desired.clone();
    let desired = desired::desired(&render, request, known)
        .await
        .map_err(|desired::Failed { message, again }| Error::Render { message, again })?;
    cluster.first_lists(|kind| desired.wants(kind)).await;
    let facts = live::Facts {
        app: app.clone(),
        project,
        cluster,
        settings,
        desired,
        memo,
        request: request.clone(),
    };
    let mut task = live::Task::new(facts, &ctx.options.namespace);
    task.ask(ctx.options.server_side_diff).await;
    if task.is_short() {
        return Ok(task.compare());
    }
    let compared = busy(move || task.compare()).await;
    compared.map_err(|error| Error::Cluster {
        message: format!("the comparison was broken off: {error}"),
    })
}

/// What a pass has found: the new status, and what follows from it.
struct Outcome {
    status: ApplicationStatus,
    /// The finalizers the Application should have, if others than it has.
    finalizers: Option<Vec<String>>,
    /// The annotation about finished Jobs, if it should be another.
    finished_jobs: Option<serde_json::Value>,
    operation: Option<Box<Operation>>,
    look_again: Option<(Duration, Reason)>,
}

/// The status after a comparison. `changed`: what the Application should be has, since its last sync, or nobody knows.
fn found(
    ctx: &Context,
    app: &Application,
    compared: &Compared,
    changed: bool,
    now: jiff::Timestamp,
) -> Option<Outcome> {
    let mut found = compared.conditions.clone();
    found.extend(orphans::warning(ctx, app, compared));
    let (mut operation, mut look_again) = (None, None);
    match autosync::autosync(app, compared, changed, ctx.options.self_heal, now) {
        Autosync::No => {}
        Autosync::Wait(pause) => look_again = Some((pause, Reason::SelfHeal)),
        Autosync::Start(start) => match window_open(app, compared, now) {
            true => operation = Some(start),
            false => debug!(
                app = app.metadata.name,
                "automated sync is prevented by a sync window"
            ),
        },
        Autosync::Error { message, retry_after } => {
            found.push(ConditionType::SyncError.with_message(message));
            look_again = retry_after.map(|pause| (pause, Reason::SelfHeal));
        }
    }
    let evaluated = [
        conditions::OF_SPEC,
        conditions::OF_COMPARISON,
        conditions::OF_AUTOSYNC,
    ]
    .concat();
    let time = Time::from_timestamp(now);
    let mut status = app.status.clone();
    status.conditions = condition::updated(&app.status.conditions, found, &evaluated, time);
    status.sync = sync_status(app, compared.status, &compared.revisions);
    status.resources = live::resource_statuses(&compared.resources, ctx.options.persist_resource_health);
    status.resource_health_source = if ctx.options.persist_resource_health {
        String::new()
    } else {
        "appTree".to_owned()
    };
    set_health(&mut status, &compared.health, time);
    status.summary = live::summary(compared);
    let multiple = app.spec.has_multiple_sources();
    let types = compared.source_types.clone();
    (status.source_type, status.source_types) = if multiple {
        (String::new(), types)
    } else {
        (types.into_iter().next().unwrap_or_default(), Vec::new())
    };
    let finalizers = finalizers(app, compared.deletion_hooks);
    Some(Outcome {
        status,
        finalizers,
        finished_jobs: finished::annotation(app, &compared.resources),
        operation,
        look_again,
    })
}

/// Hooks for the deletion need finalizers that hold the Application until they have run. Nothing to change is nothing.
fn finalizers(app: &Application, (before, after): (bool, bool)) -> Option<Vec<String>> {
    if app.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let wanted = [
        (finalizer::PRE_DELETE, before),
        (finalizer::PRE_DELETE_CLEANUP, before),
        (finalizer::POST_DELETE, after),
        (finalizer::POST_DELETE_CLEANUP, after),
    ];
    let mut finalizers = app.metadata.finalizers.clone();
    for (name, wanted) in wanted {
        match (wanted, finalizers.iter().position(|known| known == name)) {
            (true, None) => finalizers.push(name.to_owned()),
            (false, Some(at)) => drop(finalizers.remove(at)),
            _ => {}
        }
    }
    (finalizers != app.metadata.finalizers).then_some(finalizers)
}

fn window_open(app: &Application, compared: &Compared, now: jiff::Timestamp) -> bool {
    let windows = &compared.project.spec.sync_windows;
    let attempt = window::Attempt {
        manual: false,
        started: None,
    };
    let (server, name) = (compared.cluster.server(), compared.cluster.name());
    windows.is_empty() || window::permits(windows, app, server, &name, attempt, now)
}

/// The status after a failure; nothing if the old one stands.
fn failed(
    ctx: &Context,
    app: &Application,
    error: &Error,
    request: &Request,
    now: jiff::Timestamp,
) -> Option<Outcome> {
    let time = Time::from_timestamp(now);
    let mut status = app.status.clone();
    let (found, evaluated) = match error {
        Error::Busy | Error::NotOurs => return None,
        Error::Spec { conditions } => (conditions.clone(), conditions::OF_SPEC.to_vec()),
        Error::Render { .. } | Error::Cluster { .. } => {
            let condition = ConditionType::ComparisonError.with_message(error.to_string());
            (
                vec![condition],
                [conditions::OF_SPEC, conditions::OF_COMPARISON].concat(),
            )
        }
    };
    status.conditions = condition::updated(&app.status.conditions, found, &evaluated, time);
    let within_grace = matches!(error, Error::Render { .. }) && {
        let memo = ctx.memos.of(&AppKey::of(app));
        let since = *memo.lock().failing_since.get_or_insert(now);
        let grace = i64::try_from(ctx.options.repo_error_grace.as_secs()).unwrap_or(i64::MAX);
        let asked = request.hard || request.refresh >= Refresh::ForceResolve;
        !asked && now.duration_since(since).as_secs() < grace && !app.status.sync.status.is_empty()
    };
    let look_again = match error {
        Error::Render { again, .. } if within_grace => {
            let after = again.unwrap_or_default().max(RENDER_AGAIN);
            Some((after, Reason::Retry))
        }
        _ => None,
    };
    if !within_grace {
        status.sync = SyncStatus {
            status: SyncStatusCode::Unknown.into(),
            ..sync_status(app, SyncStatusCode::Unknown, &[])
        };
        if matches!(error, Error::Spec { .. }) || matches!(error, Error::Cluster { .. }) {
            set_health(&mut status, &Health::new(HealthStatus::Unknown, ""), time);
        }
        for resource in &mut status.resources {
            if !resource.status.is_empty() {
                resource.status = SyncStatusCode::Unknown.into();
            }
            resource.requires_pruning = false;
        }
    }
    // Once it is told in a condition, saying it again each time would only hide the rest.
    if status.conditions != app.status.conditions {
        let (name, namespace) = (&app.metadata.name, &app.metadata.namespace);
        info!(
            app = name,
            app_namespace = namespace,
            error = error.to_string(),
            within_grace,
            "not compared"
        );
    }
    Some(Outcome {
        status,
        finalizers: None,
        finished_jobs: None,
        operation: None,
        look_again,
    })
}

fn sync_status(app: &Application, code: SyncStatusCode, revisions: &[String]) -> SyncStatus {
    let multiple = app.spec.has_multiple_sources();
    let mut compared_to = ComparedTo {
        destination: app.spec.destination.clone(),
        ignore_differences: app.spec.ignore_differences.clone(),
        ..ComparedTo::default()
    };
    if multiple {
        compared_to.sources = app.spec.sources.clone();
    } else {
        compared_to.source = app
            .spec
            .effective_sources()
            .into_iter()
            .next()
            .unwrap_or_default();
    }
    let (revision, revisions) = match multiple {
        true => (String::new(), revisions.to_vec()),
        false => (revisions.first().cloned().unwrap_or_default(), Vec::new()),
    };
    SyncStatus {
        status: code.into(),
        compared_to,
        revision,
        revisions,
    }
}

/// The time moves only with the code.
fn set_health(status: &mut ApplicationStatus, health: &Health, now: Time) {
    let code = health.status.to_string();
    if status.health.status != code {
        status.health.last_transition_time = Some(now);
        status.health.status = code;
    }
    status.health.message.clone_from(&health.message);
}

/// Writes what differs, and says so in events. The request to refresh is answered by the same write.
async fn write(
    ctx: &Context,
    app: &Arc<Application>,
    mut outcome: Outcome,
    reasons: Reasons,
    now: jiff::Timestamp,
) -> Result<(), WriteError> {
    let asked = app.metadata.annotations.contains_key(annotation::REFRESH);
    outcome
        .status
        .controller_namespace
        .clone_from(&ctx.options.namespace);
    outcome.status.observed_at = None;
    let changed = patch_between(&app.status, &outcome.status).is_some();
    if changed || asked || is_overtaken(&app.status) {
        outcome.status.reconciled_at = Some(Time::from_timestamp(now));
    }
    let mut patch = patch_between(&app.status, &outcome.status).unwrap_or_else(|| json!({}));
    if asked {
        patch["metadata"]["annotations"][annotation::REFRESH] = serde_json::Value::Null;
    }
    if let Some(finished) = &outcome.finished_jobs {
        patch["metadata"]["annotations"][finished::ANNOTATION] = finished.clone();
    }
    if let Some(finalizers) = &outcome.finalizers {
        patch["metadata"]["finalizers"] = finalizers.clone().into();
        patch["metadata"]["resourceVersion"] = app.metadata.resource_version.clone().into();
    }
    if let Some(operation) = &outcome.operation {
        patch["operation"] = serde_json::to_value(operation).unwrap_or_default();
        // A request that someone else made at the same time must not be overwritten.
        patch["metadata"]["resourceVersion"] = app.metadata.resource_version.clone().into();
    }
    if patch.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(());
    }
    debug!(app = app.metadata.name, ?reasons, %patch, "write the status");
    ctx.status.patch(app, patch).await?;
    tell(ctx, app, &outcome);
    Ok(())
}

/// Has nobody looked since the last operation ended? Clients wait for a look after it.
fn is_overtaken(status: &ApplicationStatus) -> bool {
    let finished = status
        .operation_state
        .as_ref()
        .and_then(|state| state.finished_at);
    match (status.reconciled_at, finished) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(looked), Some(finished)) => looked.to_timestamp() < finished.to_timestamp(),
    }
}

fn tell(ctx: &Context, app: &Application, outcome: &Outcome) {
    let or_unknown = |text: &str| {
        if text.is_empty() {
            "Unknown".to_owned()
        } else {
            text.to_owned()
        }
    };
    let (old, new) = (&app.status.sync.status, &outcome.status.sync.status);
    if old != new {
        let message = format!("Updated sync status: {} -> {new}", or_unknown(old));
        ctx.events.record(
            app,
            events::Reason::ResourceUpdated,
            &message,
            events::Kind::Normal,
        );
    }
    let (old, new) = (&app.status.health.status, &outcome.status.health.status);
    if old != new {
        let cause = &outcome.status.health.message;
        let cause = if cause.is_empty() {
            String::new()
        } else {
            format!(" ({cause})")
        };
        let message = format!("Updated health status: {} -> {new}{cause}", or_unknown(old));
        ctx.events.record(
            app,
            events::Reason::ResourceUpdated,
            &message,
            events::Kind::Normal,
        );
    }
    if let Some(operation) = &outcome.operation {
        let sync = operation.sync.as_ref();
        let revision = sync.map(|sync| {
            if sync.revisions.is_empty() {
                sync.revision.clone()
            } else {
                sync.revisions.join(", ")
            }
        });
        let message = format!("Initiated automated sync to '{}'", revision.unwrap_or_default());
        info!(
            app = app.metadata.name,
            app_namespace = app.metadata.namespace,
            "{message}"
        );
        ctx.events.record(
            app,
            events::Reason::OperationStarted,
            &message,
            events::Kind::Normal,
        );
    }
}

/// How deep this look goes: what was asked for, and at least what the object itself asks for.
fn request(app: &Application, work: &Work) -> Request {
    let asked = app.metadata.annotations.get(annotation::REFRESH);
    let hard = asked.is_some_and(|text| annotation::Refresh::parse(text) == annotation::Refresh::Hard);
    let mut refresh = work.refresh;
    let sources = app.spec.effective_sources();
    let compared_to = &app.status.sync.compared_to;
    let same_sources = match app.spec.has_multiple_sources() {
        true => compared_to.sources == sources,
        false => sources.first() == Some(&compared_to.source),
    };
    if asked.is_some() || !same_sources || compared_to.destination != app.spec.destination {
        refresh = refresh.max(Refresh::ForceResolve);
    }
    if app.status.sync.status.is_empty() {
        refresh = refresh.max(Refresh::Latest);
    }
    Request {
        sources,
        revisions: Vec::new(),
        manifests: Vec::new(),
        refresh,
        hard,
    }
}

/// Identity of parts of a spec, within this process.
fn spec_hash(parts: &impl std::hash::Hash) -> u64 {
    use std::hash::Hasher as _;
    let mut hasher = std::hash::DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// Is the Application to be left alone?
pub(crate) fn skipped(app: &Application) -> bool {
    let text = app.metadata.annotations.get(annotation::SKIP_RECONCILE);
    text.is_some_and(|text| annotation::parse_bool(text).unwrap_or_default())
}
