//! From the request to a plan: which attempt this is, what is desired and live, what is to be done.

use std::sync::Arc;
use std::time::Duration;

use argosy_api::condition::ConditionType;
use argosy_api::meta::Time;
use argosy_api::project::{self, Target as Destination};
use argosy_api::tracking;
use argosy_api::v1alpha1::{
    Application, ApplicationCondition, ApplicationSource, OperationPhase as ApiPhase, RetryStrategy,
    SyncOperation, SyncOperationResult,
};
use argosy_health::Customizations;
use argosy_livestate::{Resource as Live, Snapshot};
use argosy_object::{ContentHash, GroupKind, ResourceKey, Value, meta};
use argosy_sync::options::Removal;
use argosy_sync::plan::{Check, ManagedNamespace};
use argosy_sync::retry::{self, Backoff, Strategy};
use argosy_sync::{
    Action, Hold, OperationPhase, Options, Plan, Progress, Resource, Selector, SyncOptions, Task, plan, vital,
};
use tokio::time::Instant;
use tracing::info;

use super::apply::Writer;
use super::desk::Desk;
use super::{AGAIN, journal, result};
use crate::apps::{self, Project};
use crate::clusters::{Cluster, Status};
use crate::queue::Refresh;
use crate::reconcile::{self, Compared, Managed, Request, compare_for};
use crate::settings::Settings;
use argosy_api::sync_window as window;

/// A sync window that is shut is looked at again after so long.
const WINDOW: Duration = Duration::from_secs(30);

/// An operation with its plan, between steps.
pub(super) struct Session {
    pub(super) plan: Plan,
    pub(super) progress: Progress,
    pub(super) writer: Writer,
    pub(super) health: Arc<Customizations>,
    /// Nothing is done before this moment.
    pub(super) pause: Option<Instant>,
    /// The wish to stop has reached the engine.
    pub(super) terminating: bool,
    /// Identity of what was rendered for it, if something was.
    pub(super) rendered: Option<ContentHash>,
    /// The attempt it belongs to.
    attempt: (i64, i64),
    /// The same as it is written on hooks and notes.
    pub(super) run: String,
}

impl Session {
    /// True if it belongs to the attempt that is at work, and to the cluster that this goes to, as that is followed now: what was
    /// known of one that has been stopped, or started anew with other credentials, never changes again.
    pub(super) fn is_of(&self, desk: &Desk<'_>) -> bool {
        let cluster = self.cluster();
        let server = desk.ctx.clusters.server_of(&desk.app.spec.destination);
        self.attempt == attempt(desk)
            && server.as_deref() == Some(cluster.server())
            && cluster.status() != Status::Stopped
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.writer.cluster
    }

    /// What is left of the pause between two waves.
    pub(super) fn pause_left(&mut self) -> Option<Duration> {
        let left = self.pause?.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.pause = None;
            return None;
        }
        Some(left)
    }
}

/// Start of the operation and number of retries: tells attempts apart.
fn attempt(desk: &Desk<'_>) -> (i64, i64) {
    (desk.started_at(), desk.state.retry_count)
}

/// The attempt as a text.
fn run(desk: &Desk<'_>) -> String {
    let (started_at, retries) = attempt(desk);
    format!("{started_at}-{retries}")
}

/// Where the operation stands among its attempts.
pub(super) enum Attempt {
    /// In the middle of one.
    Running,
    /// Between two, for so long.
    Waits(Duration),
    /// At the beginning of one.
    Begins,
    /// It cannot be said when the next one is.
    Never(String),
}

/// A phase `Running` with an end is the pause before the next attempt.
pub(super) fn next_attempt(desk: &mut Desk<'_>) -> Attempt {
    let (true, Some(ended)) = (
        desk.state.phase == ApiPhase::Running.as_str(),
        desk.state.finished_at,
    ) else {
        return Attempt::Running;
    };
    let strategy = strategy(&desk.operation().retry);
    // The count has been raised when the attempt was written down: the first pause is that of no retries.
    let pause = match strategy.backoff.pause(desk.state.retry_count - 1) {
        Ok(pause) => pause,
        Err(error) => return Attempt::Never(error.to_string()),
    };
    let passed = desk.ctx.clock.now().as_second() - ended.seconds;
    let left = pause.saturating_sub(Duration::from_secs(u64::try_from(passed).unwrap_or_default()));
    if !left.is_zero() {
        return Attempt::Waits(left);
    }
    let mut latest = "";
    if strategy.refresh {
        latest = " with latest revisions";
        if let Some(sync) = &mut desk.state.operation.sync {
            sync.revision.clear();
            sync.revisions.clear();
        }
    }
    let message = format!("Retrying operation{latest}. Attempt #{}", desk.state.retry_count);
    desk.say(&message);
    desk.state.finished_at = None;
    desk.state.sync_result = None;
    Attempt::Begins
}

/// The retry strategy of an operation.
pub(super) fn strategy(given: &RetryStrategy) -> Strategy {
    let backoff = given.backoff.clone().unwrap_or_default();
    let backoff = Backoff {
        duration: backoff.duration,
        factor: backoff.factor,
        max_duration: backoff.max_duration,
    };
    Strategy {
        limit: given.limit,
        backoff,
        refresh: given.refresh,
    }
}

/// Why there is no plan.
pub(super) enum Refusal {
    /// Not now: something has to become known first.
    Later(Duration),
    /// The operation is over.
    Ended { phase: OperationPhase, message: String },
}

fn error(message: impl Into<String>) -> Refusal {
    Refusal::Ended {
        phase: OperationPhase::Error,
        message: message.into(),
    }
}

fn failed(message: impl Into<String>) -> Refusal {
    Refusal::Ended {
        phase: OperationPhase::Failed,
        message: message.into(),
    }
}

/// Compares and plans.
pub(super) async fn session(desk: &mut Desk<'_>) -> Result<Session, Refusal> {
    let Some(sync) = desk.operation().sync.clone() else {
        return Err(error("Invalid operation request: no operation specified"));
    };
    let request = request(desk, &sync);
    let compared = match compare_for(desk.ctx, &desk.app, &request).await {
        Ok(compared) => compared,
        Err(error) if desk.state.phase == ApiPhase::Terminating.as_str() => return last_session(desk, error),
        Err(error) => return Err(refusal(error)),
    };
    pin(desk, &compared);
    blocking_conditions(&compared, &sync)?;
    let settings = desk.ctx.settings.get();
    let writer = writer(desk, &compared, &settings, &sync)?;
    let resources = resources(desk, &compared, &settings);
    let options = options(desk, &compared, &settings, &sync, &writer).await;
    let mut plan = plan(&resources, &options).map_err(|found| {
        failed(format!(
            "one or more synchronization tasks are not valid: {found}"
        ))
    })?;
    spare_vital(&mut plan, &desk.ctx.options.namespace);
    spare_definitions_in_use(&mut plan, &compared.snapshot, &writer.instance);
    let known = desk
        .state
        .sync_result
        .iter()
        .flat_map(|result| &result.resources)
        .filter_map(result::from_api);
    let mut progress = Progress::resume(known.collect());
    let invalid = plan.validate(|task| check(task, &compared));
    if !invalid.is_empty() {
        let (phase, message) = progress.reject(&plan, &invalid);
        desk.note(progress.results());
        return Err(Refusal::Ended { phase, message });
    }
    info!(
        app = desk.app.metadata.name,
        app_namespace = desk.app.metadata.namespace,
        tasks = plan.tasks.len(),
        "operation planned"
    );
    let health = settings.health.clone();
    Ok(Session {
        plan,
        progress,
        writer,
        health,
        pause: None,
        terminating: false,
        rendered: compared.rendered,
        attempt: attempt(desk),
        run: run(desk),
    })
}

/// What is left to do for an operation that is to end and whose plan cannot be made again: its hooks must not stay.
fn last_session(desk: &Desk<'_>, error: reconcile::Error) -> Result<Session, Refusal> {
    let Some((cluster, target)) = desk
        .ctx
        .clusters
        .resolve(&desk.app.spec.destination)
        .ok()
        .and_then(|cluster| {
            let target = cluster.target()?;
            Some((cluster, target))
        })
    else {
        return Err(refusal(error));
    };
    let known: Vec<_> = desk
        .state
        .sync_result
        .iter()
        .flat_map(|result| &result.resources)
        .filter_map(result::from_api)
        .collect();
    let writer = Writer::new(
        cluster,
        target,
        instance(desk),
        &SyncOptions::default(),
        Arc::default(),
        desk.ctx.options.kubectl_parallelism,
    );
    Ok(Session {
        plan: Plan::of_hooks(&known),
        progress: Progress::resume(known),
        writer,
        health: desk.ctx.settings.get().health.clone(),
        pause: None,
        terminating: false,
        rendered: None,
        attempt: attempt(desk),
        run: run(desk),
    })
}

/// A closed sync window holds the operation back until it opens, also in the middle; then so long. One that is to end may.
pub(super) fn held_by_window(desk: &mut Desk<'_>) -> Option<Duration> {
    let (ctx, app) = (desk.ctx, desk.app.clone());
    if desk.state.phase != ApiPhase::Running.as_str() {
        return None;
    }
    let Project::Found(project) = ctx.apps.project(apps::project_name(&app)) else {
        return None;
    };
    let project = ctx.settings.get().effective(&project, &ctx.apps);
    let cluster = ctx.clusters.resolve(&app.spec.destination).ok()?;
    let attempt = window::Attempt {
        manual: !desk.operation().initiated_by.automated,
        started: desk.state.started_at.map(Time::to_timestamp),
    };
    let open = window::permits(
        &project.spec.sync_windows,
        &app,
        cluster.server(),
        &cluster.name(),
        attempt,
        ctx.clock.now(),
    );
    if open {
        return None;
    }
    desk.say("Sync operation blocked by sync window");
    Some(WINDOW)
}

/// What is to be compared: the sources and revisions of the request, or, once they are known, the exact ones.
fn request(desk: &mut Desk<'_>, sync: &SyncOperation) -> Request {
    let app = &desk.app;
    let result = desk.state.sync_result.get_or_insert_with(|| requested(app, sync));
    let (sources, revisions) = match result.sources.is_empty() {
        true => (vec![result.source.clone()], vec![result.revision.clone()]),
        false => (result.sources.clone(), result.revisions.clone()),
    };
    let known = !revisions.is_empty() && revisions.iter().any(|revision| !revision.is_empty());
    let revisions = if known {
        filled(revisions, &sources)
    } else {
        Vec::new()
    };
    let refresh = if known {
        Refresh::Latest
    } else {
        Refresh::ForceResolve
    };
    Request {
        sources,
        revisions,
        manifests: sync.manifests.clone(),
        refresh,
        hard: false,
    }
}

/// A source without a revision of its own goes to its target.
fn filled(revisions: Vec<String>, sources: &[ApplicationSource]) -> Vec<String> {
    let mut revisions = revisions;
    revisions.resize(sources.len(), String::new());
    for (revision, source) in revisions.iter_mut().zip(sources) {
        if revision.is_empty() {
            revision.clone_from(&source.target_revision);
        }
    }
    revisions
}

/// The result as it is before anything is known: what was asked for, or what the spec says.
fn requested(app: &Application, sync: &SyncOperation) -> SyncOperationResult {
    let of_spec = || {
        let sources = app.spec.effective_sources();
        let source = sources.first().cloned().unwrap_or_default();
        let several = if app.spec.has_multiple_sources() {
            sources
        } else {
            Vec::new()
        };
        (source, several)
    };
    let (source, sources) = match (&sync.source, &sync.sources) {
        (None, several) if several.is_empty() => of_spec(),
        (one, several) => (one.clone().unwrap_or_default(), several.clone()),
    };
    SyncOperationResult {
        revision: sync.revision.clone(),
        revisions: sync.revisions.clone(),
        source,
        sources,
        ..SyncOperationResult::default()
    }
}

/// From now on the operation goes to exactly these revisions, also after a restart.
fn pin(desk: &mut Desk<'_>, compared: &Compared) {
    let managed = desk
        .app
        .spec
        .sync_policy
        .as_ref()
        .and_then(|policy| policy.managed_namespace_metadata.clone());
    let Some(result) = &mut desk.state.sync_result else {
        return;
    };
    if result.sources.is_empty() {
        result.revision = compared.revisions.first().cloned().unwrap_or_default();
    } else {
        result.revisions.clone_from(&compared.revisions);
    }
    result.managed_namespace_metadata = managed;
}

fn refusal(error: reconcile::Error) -> Refusal {
    match error {
        reconcile::Error::Busy | reconcile::Error::NotOurs => Refusal::Later(AGAIN),
        reconcile::Error::Spec { conditions } => self::error(joined(&conditions)),
        other => self::error(format!("{}: {other}", ConditionType::ComparisonError)),
    }
}

/// `Type: message`, several behind each other.
fn joined(conditions: &[ApplicationCondition]) -> String {
    let texts: Vec<String> = conditions
        .iter()
        .map(|condition| format!("{}: {}", condition.r#type, condition.message))
        .collect();
    texts.join(";")
}

fn blocking_conditions(compared: &Compared, sync: &SyncOperation) -> Result<(), Refusal> {
    let of = |wanted: &[ConditionType]| -> Vec<ApplicationCondition> {
        let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
        compared
            .conditions
            .iter()
            .filter(|condition| wanted.contains(&condition.r#type))
            .cloned()
            .collect()
    };
    let shared = of(&[ConditionType::SharedResourceWarning]);
    let refuse_shared =
        SyncOptions::parse(sync.sync_options.iter().map(String::as_str)).fail_on_shared_resource();
    if let Some(first) = shared.first().filter(|_| refuse_shared) {
        return Err(failed(format!("Shared resource found: {}", first.message)));
    }
    let errors = of(&[ConditionType::ComparisonError, ConditionType::InvalidSpecError]);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(error(joined(&errors)))
    }
}

/// The Application, as its resources name it.
fn instance(desk: &Desk<'_>) -> Arc<str> {
    desk.key().instance(&desk.ctx.options.namespace).into()
}

/// The way to the cluster, as the account that the project wants.
fn writer(
    desk: &Desk<'_>,
    compared: &Compared,
    settings: &Settings,
    sync: &SyncOperation,
) -> Result<Writer, Refusal> {
    let cluster = compared.cluster.clone();
    let mut target = cluster.target().ok_or(Refusal::Later(AGAIN))?;
    let account = crate::account::of(settings, &compared.project, cluster.server(), &desk.app);
    if let Some(account) = account.map_err(|found| error(found.to_string()))? {
        target = target.with_impersonation(account);
    }
    Ok(Writer::new(
        cluster,
        target,
        instance(desk),
        &SyncOptions::parse(sync.sync_options.iter().map(String::as_str)),
        settings.ignore_rules(&desk.app.spec.ignore_differences).0,
        desk.ctx.options.kubectl_parallelism,
    ))
}

/// The pairs of the comparison as the engine wants them.
fn resources(desk: &Desk<'_>, compared: &Compared, settings: &Settings) -> Vec<Resource> {
    let ours = compared.resources.iter().filter(|managed| {
        let extra = managed.manifest.is_none();
        // What is live only and not known to be superfluous is none of a sync's business.
        !(managed.hook || (extra && !managed.requires_pruning))
    });
    let resource = |managed: &Managed| {
        let (desired, live) = (managed.desired(), managed.live());
        if managed_namespace(managed, desired.as_ref(), &desk.app.spec.destination.namespace) {
            return None;
        }
        let gvk = desired.as_ref().map(meta::gvk).unwrap_or_else(|| managed.gvk());
        let doubtful = desired.is_none()
            && live
                .as_ref()
                .is_some_and(|live| tracking::has_label_alone(live, &settings.tracking));
        Some(Resource {
            key: (*managed.key).clone(),
            gvk,
            desired: desired.map(Arc::new),
            live: live.map(Arc::new),
            out_of_sync: managed.out_of_sync() || managed.resource.is_none(),
            doubtful,
        })
    };
    ours.filter_map(resource)
        .chain(compared.hooks.iter().filter_map(resource))
        .collect()
}

/// Labels and annotations of the destination's namespace are compared as if Git had it, made of the live one; a sync writes
/// them in a task of their own.
fn managed_namespace(managed: &Managed, desired: Option<&Value>, destination: &str) -> bool {
    let key = &managed.key;
    let destinations = key.group.is_empty() && key.kind == "Namespace" && key.name == destination;
    destinations && desired.is_some_and(|desired| !meta::uid(desired).is_empty())
}

async fn options(
    desk: &Desk<'_>,
    compared: &Compared,
    settings: &Settings,
    sync: &SyncOperation,
    writer: &Writer,
) -> Options {
    let namespace = desk.app.spec.destination.namespace.clone();
    let sync_options = SyncOptions::parse(sync.sync_options.iter().map(String::as_str));
    let managed = desk
        .app
        .spec
        .sync_policy
        .as_ref()
        .and_then(|policy| policy.managed_namespace_metadata.as_ref());
    let namespace_live = match sync_options.create_namespace() && !namespace.is_empty() {
        true => writer.namespace(&namespace).await.map(Arc::new),
        false => None,
    };
    let strategy = sync.sync_strategy.as_ref();
    let apply = strategy.and_then(|strategy| strategy.apply.as_ref());
    let hook = strategy
        .and_then(|strategy| strategy.hook.as_ref())
        .map(|hook| &hook.sync_strategy_apply);
    let (started_at, _) = attempt(desk);
    let run = run(desk);
    Options {
        namespace,
        namespace_live,
        managed_namespace: managed.map(|managed| ManagedNamespace {
            labels: managed.labels.clone().into_iter().collect(),
            annotations: managed.annotations.clone().into_iter().collect(),
        }),
        revision: compared.revisions.first().cloned().unwrap_or_default(),
        started_at,
        prune_waves: journal::prune_waves(desk, &run),
        run,
        prune: sync.prune,
        dry_run: sync.dry_run,
        force: apply.or(hook).is_some_and(|strategy| strategy.force),
        hooks: apply.is_none(),
        selection: sync
            .resources
            .iter()
            .map(|one| Selector {
                group: one.group.clone(),
                kind: one.kind.clone(),
                namespace: one.namespace.clone(),
                name: one.name.clone(),
            })
            .collect(),
        sync_options,
        migration_manager: desk
            .app
            .metadata
            .annotations
            .get(argosy_api::annotation::CLIENT_SIDE_APPLY_MIGRATION_MANAGER)
            .cloned(),
        hold: hold(desk, settings),
    }
}

/// What a person asks for is done; what happens by itself waits for a person if it would delete much.
fn hold(desk: &Desk<'_>, settings: &Settings) -> Option<Hold> {
    let hold = &settings.config.deletion_hold;
    (desk.operation().initiated_by.automated && hold.enabled).then(|| Hold {
        at_least: hold.at_least,
        share: hold.share,
        kinds: hold.kinds.clone(),
    })
}

/// What nothing can live without is never deleted, whatever carries our mark.
fn spare_vital(plan: &mut Plan, own_namespace: &str) {
    for task in &mut plan.tasks {
        if task.action == Action::Prune && vital::is_vital(&task.key, own_namespace) {
            task.action = Action::SkipPruneForbidden;
        }
    }
}

/// A definition takes all of its resources with it, those of other Applications too: as long as there are such it is deleted only where
/// somebody is asked.
fn spare_definitions_in_use(plan: &mut Plan, snapshot: &Snapshot, own: &str) {
    for task in &mut plan.tasks {
        if task.action != Action::Prune || task.options.prune != Removal::Allowed {
            continue;
        }
        let Some(definition) = task.live.as_deref().filter(|live| meta::is_crd(live)) else {
            continue;
        };
        let text = |path: &[&str]| meta::str_field(definition, path).unwrap_or_default().to_owned();
        let kind = GroupKind::new(text(&["spec", "group"]), text(&["spec", "names", "kind"]));
        let of_others = |live: &Arc<Live>| live.app.as_deref().is_some_and(|app| app != own);
        if snapshot.by_kind(&kind).iter().any(of_others) {
            task.action = Action::SkipPruneForbidden;
        }
    }
}

/// Is the kind served, and does the project permit the resource?
fn check(task: &Task, compared: &Compared) -> Check {
    let discovery = compared.cluster.discovery();
    let found = if task.action.is_prune() {
        discovery.find(&task.gvk)
    } else {
        discovery.exact(&task.gvk)
    };
    let Some(served) = found else {
        return match discovery.preferred(&task.gvk.group_kind()) {
            Some(other) => Check::OtherVersion {
                version: other.version.clone(),
            },
            None if discovery.group_is_broken(&task.gvk.group) => Check::Refused(format!(
                "the API server cannot say which kinds of group {:?} it serves, so {} cannot be applied",
                task.gvk.group, task.key
            )),
            None => Check::UnknownKind,
        };
    };
    let (spec, name) = (&compared.project.spec, &compared.project.metadata.name);
    let ResourceKey {
        group,
        kind,
        namespace,
        name: object,
    } = &task.key;
    if !project::permits_kind(spec, group, kind, object, served.namespaced) {
        return Check::Refused(format!(
            "resource {group}:{kind} is not permitted in project {name}"
        ));
    }
    let cluster_name = compared.cluster.name();
    let target = Destination {
        server: compared.cluster.server(),
        name: &cluster_name,
    };
    let own = (compared.cluster.info().project == *name).then_some(target);
    if served.namespaced && !project::permits_destination(spec, target, namespace, own) {
        return Check::Refused(format!(
            "namespace {namespace} is not permitted in project '{name}'"
        ));
    }
    Check::Fine
}

/// For the retry in [`super::finish`]: the pause before the next attempt, or why there is none.
pub(super) fn pause(desk: &Desk<'_>) -> Option<Result<Duration, retry::InvalidDuration>> {
    let strategy = strategy(&desk.operation().retry);
    strategy
        .allows(desk.state.retry_count)
        .then(|| strategy.backoff.pause(desk.state.retry_count))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use argosy_livestate::{ClusterState, Event};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_of_which_others_have_resources_is_not_deleted_unasked() {
        let planned = |options: &str, of: &str| {
            let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "panels.example.com", "uid": "d", "annotations": {"argocd.argoproj.io/sync-options": options}},
                "spec": {"group": "example.com", "names": {"kind": "Panel"}}});
            let panel = json!({"apiVersion": "example.com/v1", "kind": "Panel", "metadata": {"name": "p", "namespace": "shop", "uid": "p"}});
            let mut state = ClusterState::new();
            state.apply(Event::Upsert(Box::new(Live::new(&panel, Some(of.into())))));
            let resource = Resource {
                key: meta::key(&definition),
                gvk: meta::gvk(&definition),
                desired: None,
                live: Some(Arc::new(definition)),
                out_of_sync: true,
                doubtful: false,
            };
            let options = Options {
                prune: true,
                ..Options::default()
            };
            let mut plan = plan(&[resource], &options).unwrap();
            spare_definitions_in_use(&mut plan, &state.snapshot(), "web");
            plan.tasks[0].action
        };
        assert_eq!(planned("", "other"), Action::SkipPruneForbidden);
        assert_eq!(planned("", "web"), Action::Prune);
        assert_eq!(planned("Prune=confirm", "other"), Action::Prune);
    }
}
