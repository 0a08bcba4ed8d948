//! The end of an Application with finalizers: one pass of it on one screen, [`run`].
//!
//! PreDelete hooks; then, if the finalizers ask for it, the resources, in reverse order of their waves, each wave gone
//! before the next; then PostDelete hooks; then the hooks themselves; each step takes its finalizer off. A destination
//! that is no cluster any longer has nothing to clean up: all finalizers go. Whatever else stands in the way becomes a
//! `DeletionError` condition, and the pass is repeated.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use argosy_api::annotation::{self, Propagation as Wanted};
use argosy_api::condition::{self, ConditionType};
use argosy_api::meta::Time;
use argosy_api::project::{self, Target as Destination};
use argosy_api::v1alpha1::{AppProject, Application};
use argosy_api::{finalizer, tracking};
use argosy_health::Status as Health;
use argosy_kube_io::target::{Delete, Deleted, Propagation, Write};
use argosy_kube_io::{Error, Target};
use argosy_livestate::{Resource, Snapshot};
use argosy_object::{ResourceKey, Value, meta};
use argosy_sync::hook::{self, DeletePolicy, Hook, HookType};
use argosy_sync::options::{Removal, SyncOptions, resource_options};
use argosy_sync::{vital, wave};
use futures::StreamExt as _;
use serde_json::json;
use tracing::{info, warn};

use crate::apps::{self, Project};
use crate::clusters::{Cluster, DestinationError, Status};
use crate::context::{AppKey, Context, WriteError};
use crate::events;
use crate::operation::Next;
use crate::queue::Refresh;
use crate::reconcile::{self, Request, compare_for};

/// What is waited for is looked at again after so long, even if nothing is heard of it.
const BACKSTOP: Duration = Duration::from_secs(10);
/// After a failure the pass is repeated after so long.
const AGAIN: Duration = Duration::from_secs(15);

/// Set when the resources are gone: hooks behind the deletion run only for an Application whose resources were deleted.
const RESOURCES_DELETED: &str = "argosy.dev/resources-deleted";

/// How far a pass came.
enum Progress {
    /// A finalizer has gone: go on at once.
    Step,
    /// Something has to happen first.
    Waits,
    /// None of our finalizers is left.
    Over,
}

/// Why a pass could not go on.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Project(String),
    #[error("the cluster's state is not known: {0}")]
    Cluster(String),
    #[error("cannot apply impersonation: {0}")]
    Account(String),
    #[error("error executing {}-delete hooks: {message}", .hook.to_lowercase())]
    Hooks { hook: &'static str, message: String },
    #[error("{0}")]
    Delete(String),
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The cluster is not ours (yet, or any longer): not an error of the Application.
    #[error("the cluster is not ours")]
    NotOurs,
}

/// One pass over an Application that is being deleted.
pub(crate) async fn run(ctx: &Context, app: &Arc<Application>) -> Next {
    match pass(ctx, app).await {
        Ok(Progress::Step) => Next::Again,
        Ok(Progress::Waits) => Next::Wait { at_most: BACKSTOP },
        Ok(Progress::Over) | Err(Trouble::Write(WriteError::Gone { .. })) => Next::Done,
        Err(Trouble::NotOurs) => Next::Wait { at_most: BACKSTOP },
        Err(trouble) => {
            report(ctx, app, Some(&trouble)).await;
            Next::Wait { at_most: AGAIN }
        }
    }
}

async fn pass(ctx: &Context, app: &Arc<Application>) -> Result<Progress, Trouble> {
    if !app
        .metadata
        .finalizers
        .iter()
        .any(|name| finalizer::is_ours(name))
    {
        return Ok(Progress::Over);
    }
    let cluster = match ctx.clusters.resolve(&app.spec.destination) {
        Ok(cluster) => cluster,
        Err(DestinationError::NotOwned { .. }) => return Err(Trouble::NotOurs),
        Err(error) if error.homeless() && !ctx.clusters.owns_homeless() => return Err(Trouble::NotOurs),
        Err(error) => return let_go(ctx, app, &error).await,
    };
    if leaves_resources(app) {
        info!(
            app = app.metadata.name,
            app_namespace = app.metadata.namespace,
            "the resources are left alone, and so no hook runs"
        );
        return take_off(ctx, app, finalizer::is_ours, false).await;
    }
    let scene = Scene::new(ctx, app, cluster)?;
    let has = |name: &str| app.metadata.finalizers.iter().any(|known| known == name);
    let done = if has(finalizer::PRE_DELETE) {
        scene
            .run_hooks(HookType::PreDelete)
            .await?
            .then_some(finalizer::PRE_DELETE)
    } else if finalizer::cascade(app.metadata.finalizers.iter().map(String::as_str)).is_some() {
        scene.delete_resources().await?.then_some(finalizer::RESOURCES)
    } else if has(finalizer::POST_DELETE) {
        scene
            .run_hooks(HookType::PostDelete)
            .await?
            .then_some(finalizer::POST_DELETE)
    } else if has(finalizer::PRE_DELETE_CLEANUP) {
        scene
            .clean_up(HookType::PreDelete)
            .await?
            .then_some(finalizer::PRE_DELETE_CLEANUP)
    } else if has(finalizer::POST_DELETE_CLEANUP) {
        scene
            .clean_up(HookType::PostDelete)
            .await?
            .then_some(finalizer::POST_DELETE_CLEANUP)
    } else {
        return Ok(Progress::Over);
    };
    report(ctx, app, None).await;
    match done {
        Some(finished) => {
            let deleted = finished == finalizer::RESOURCES;
            take_off(ctx, app, |name| is_of_step(name, finished), deleted).await
        }
        None => Ok(Progress::Waits),
    }
}

/// Nobody asked for the resources to go: neither do hooks run. (Their finalizers are put on every Application that has such hooks.)
fn leaves_resources(app: &Application) -> bool {
    let asked = finalizer::cascade(app.metadata.finalizers.iter().map(String::as_str)).is_some();
    !asked && !app.metadata.annotations.contains_key(RESOURCES_DELETED)
}

/// The finalizers that a finished step takes with it: for the resources, in whichever way they were asked to go.
fn is_of_step(name: &str, finished: &str) -> bool {
    match finished {
        finalizer::RESOURCES => [
            finalizer::RESOURCES,
            finalizer::RESOURCES_FOREGROUND,
            finalizer::RESOURCES_BACKGROUND,
        ]
        .contains(&name),
        other => name == other,
    }
}

/// There is no such cluster: nothing can be cleaned up, and nobody shall wait for it.
async fn let_go(
    ctx: &Context,
    app: &Arc<Application>,
    error: &DestinationError,
) -> Result<Progress, Trouble> {
    warn!(app = app.metadata.name, app_namespace = app.metadata.namespace, %error, "the destination is gone, finalizers are taken off");
    let message = format!("Resources are left behind: {error}");
    ctx.events.record(
        app,
        events::Reason::ResourceDeleted,
        &message,
        events::Kind::Warning,
    );
    take_off(ctx, app, finalizer::is_ours, false).await
}

async fn take_off(
    ctx: &Context,
    app: &Arc<Application>,
    goes: impl Fn(&str) -> bool,
    resources_deleted: bool,
) -> Result<Progress, Trouble> {
    let left: Vec<&String> = app
        .metadata
        .finalizers
        .iter()
        .filter(|name| !goes(name))
        .collect();
    let over = !left.iter().any(|name| finalizer::is_ours(name));
    // The list is replaced as a whole, so it must be the one that was read.
    let mut patch =
        json!({"metadata": {"finalizers": left, "resourceVersion": app.metadata.resource_version}});
    if resources_deleted && !over {
        patch["metadata"]["annotations"] = json!({RESOURCES_DELETED: "true"});
    }
    match ctx.status.patch(app, patch).await {
        Ok(_) => {}
        // Without its last finalizer the Application is gone before the answer is read.
        Err(WriteError::Gone { .. }) => return Ok(Progress::Over),
        Err(error) => return Err(error.into()),
    }
    info!(
        app = app.metadata.name,
        app_namespace = app.metadata.namespace,
        over,
        "a step of the deletion is done"
    );
    Ok(if over { Progress::Over } else { Progress::Step })
}

/// Keeps the `DeletionError` condition as it should be; what cannot be written now is written by a later pass.
async fn report(ctx: &Context, app: &Arc<Application>, trouble: Option<&Trouble>) {
    let found = trouble.map(|trouble| ConditionType::DeletionError.with_message(trouble.to_string()));
    let now = Time::from_timestamp(ctx.clock.now());
    let conditions = condition::updated(
        &app.status.conditions,
        found.into_iter().collect(),
        &[ConditionType::DeletionError],
        now,
    );
    if conditions == app.status.conditions {
        return;
    }
    if let Some(trouble) = trouble {
        warn!(
            app = app.metadata.name,
            app_namespace = app.metadata.namespace,
            error = argosy_runtime::log::chain(trouble),
            "the deletion does not go on"
        );
        let message = format!("Unable to delete application resources: {trouble}");
        ctx.events.record(
            app,
            events::Reason::StatusRefreshed,
            &message,
            events::Kind::Warning,
        );
    }
    if let Err(error) = ctx
        .status
        .patch(app, json!({"status": {"conditions": conditions}}))
        .await
        && !matches!(error, WriteError::Gone { .. })
    {
        warn!(
            app = app.metadata.name,
            error = argosy_runtime::log::chain(&error),
            "report an error of the deletion"
        );
    }
}

/// What a pass works with.
struct Scene<'a> {
    ctx: &'a Context,
    app: &'a Arc<Application>,
    project: Arc<AppProject>,
    cluster: Cluster,
    target: Target,
    instance: String,
}

impl<'a> Scene<'a> {
    fn new(ctx: &'a Context, app: &'a Arc<Application>, cluster: Cluster) -> Result<Self, Trouble> {
        let name = apps::project_name(app);
        let settings = ctx.settings.get();
        let project = match ctx.apps.project(name) {
            Project::Found(project) => settings.effective(&project, &ctx.apps),
            Project::Unreadable(message) => {
                return Err(Trouble::Project(format!(
                    "project {name} cannot be read: {message}"
                )));
            }
            Project::Missing => {
                return Err(Trouble::Project(format!(
                    "application '{}' references project {name} which does not exist",
                    app.metadata.name
                )));
            }
        };
        match cluster.status() {
            Status::Synced { .. } => {}
            Status::Syncing { .. } | Status::Stopped => return Err(Trouble::NotOurs),
            Status::Failed { message, since } => {
                return Err(Trouble::Cluster(format!("{message} (since {since})")));
            }
        }
        let mut target = cluster.target().ok_or(Trouble::NotOurs)?;
        let account = crate::account::of(&settings, &project, cluster.server(), app);
        if let Some(account) = account.map_err(|error| Trouble::Account(error.to_string()))? {
            target = target.with_impersonation(account);
        }
        let instance = AppKey::of(app).instance(&ctx.options.namespace);
        Ok(Scene {
            ctx,
            app,
            project,
            cluster,
            target,
            instance,
        })
    }

    /// The live objects that are this Application's own and that its project lets it have.
    fn live(&self, snapshot: &Snapshot) -> Vec<(Arc<Resource>, Value)> {
        let settings = self.ctx.settings.get();
        let own = |live: &Arc<Resource>| {
            let value = live.value();
            let ours = tracking::is_self_referenced(&value, None, &self.instance, &settings.tracking)
                && self.permitted(live);
            ours.then_some((live.clone(), value))
        };
        // What an owner takes with it is its business.
        let with_owner = |live: &Resource| {
            live.owners
                .iter()
                .any(|owner| snapshot.by_uid(&owner.uid).is_some())
        };
        snapshot
            .by_app(&self.instance)
            .iter()
            .filter(|live| !with_owner(live))
            .filter_map(own)
            .collect()
    }

    fn permitted(&self, live: &Resource) -> bool {
        let key = &live.key;
        let resource = project::Resource {
            group: &key.group,
            kind: &key.kind,
            namespace: &key.namespace,
            name: &key.name,
        };
        let name = self.cluster.name();
        let target = Destination {
            server: self.cluster.server(),
            name: &name,
        };
        let own = (self.cluster.info().project == self.project.metadata.name).then_some(target);
        project::permits_resource(&self.project.spec, resource, target, own)
    }

    /// Deletes the resources, last waves first. True when nothing is left.
    async fn delete_resources(&self) -> Result<bool, Trouble> {
        self.nothing_hidden()?;
        let live = self.live(&self.cluster.snapshot());
        if live
            .iter()
            .any(|(_, object)| meta::deletion_timestamp(object).is_some())
        {
            return Ok(false);
        }
        let removals = Removals::new(self.app, &self.ctx.options.namespace);
        let mut doomed: Vec<(Arc<Resource>, Value)> = Vec::new();
        for (resource, object) in live {
            match self.removal(&removals, &object) {
                Removal::Forbidden => continue,
                Removal::Confirm if !self.approved() => {
                    info!(app = self.app.metadata.name, resource = %resource.key, "the deletion waits for approval");
                    return Ok(false);
                }
                Removal::Allowed | Removal::Confirm => doomed.push((resource, object)),
            }
        }
        let Some(last) = doomed.iter().map(|(_, object)| wave::of(object)).max() else {
            return Ok(true);
        };
        doomed.retain(|(_, object)| wave::of(object) == last);
        let asked = finalizer::cascade(self.app.metadata.finalizers.iter().map(String::as_str));
        let propagation = if asked == Some(Wanted::Background) {
            Propagation::Background
        } else {
            Propagation::Foreground
        };
        info!(
            app = self.app.metadata.name,
            app_namespace = self.app.metadata.namespace,
            wave = last,
            resources = doomed.len(),
            "resources are deleted"
        );
        self.delete(doomed.iter().map(|(_, object)| object).collect(), propagation)
            .await?;
        // All of it may have gone at once.
        let left = self.live(&self.cluster.snapshot());
        Ok(!left
            .iter()
            .any(|(_, object)| self.removal(&removals, object) != Removal::Forbidden))
    }

    /// As long as not all is known of a kind that the Application had, it cannot be said that nothing is left of it.
    fn nothing_hidden(&self) -> Result<(), Trouble> {
        for resource in &self.app.status.resources {
            let kind = argosy_object::GroupKind::new(&*resource.group, &*resource.kind);
            if let Some(failure) = self.cluster.kind_failure(&kind) {
                return Err(Trouble::Cluster(format!(
                    "{}/{} cannot be listed: {}",
                    kind.group, kind.kind, failure.message
                )));
            }
        }
        Ok(())
    }

    /// May this be deleted with its Application?
    fn removal(&self, removals: &Removals<'_>, object: &Value) -> Removal {
        // A label of earlier days may be somebody else's.
        let by_label = tracking::has_label_alone(object, &self.ctx.settings.get().tracking);
        match removals.of(object) {
            Removal::Allowed if by_label => Removal::Confirm,
            other => other,
        }
    }

    /// Has a person approved since the deletion was asked for?
    fn approved(&self) -> bool {
        let text = self.app.metadata.annotations.get(annotation::DELETION_APPROVED);
        let approved = text.and_then(|text| Time::parse(text).ok());
        let asked = self
            .app
            .metadata
            .deletion_timestamp
            .map(|time| time.seconds)
            .unwrap_or_default();
        approved.is_some_and(|time| time.seconds >= asked)
    }

    async fn delete(&self, objects: Vec<&Value>, propagation: Propagation) -> Result<(), Trouble> {
        let limit = self.ctx.options.kubectl_parallelism.clamp(1, 50);
        let mut calls = Vec::with_capacity(objects.len());
        for object in objects {
            calls.push(self.delete_one(object, propagation));
        }
        let done: Vec<Result<(), String>> = futures::stream::iter(calls)
            .buffer_unordered(limit)
            .collect()
            .await;
        let failures: Vec<String> = done.into_iter().filter_map(Result::err).collect();
        match failures.first() {
            None => Ok(()),
            Some(first) if failures.len() == 1 => Err(Trouble::Delete(first.clone())),
            Some(first) => Err(Trouble::Delete(format!(
                "{first} and {} more",
                failures.len() - 1
            ))),
        }
    }

    async fn delete_one(&self, object: &Value, propagation: Propagation) -> Result<(), String> {
        let discovery = self.cluster.discovery();
        let gvk = meta::gvk(object);
        // A kind that is not served any longer has no objects.
        let Some(resource) = discovery.find(&gvk) else {
            return Ok(());
        };
        let delete = Delete {
            uid: Some(meta::uid(object).to_owned()),
            propagation,
            ..Delete::default()
        };
        match self
            .target
            .delete(resource, meta::namespace(object), meta::name(object), &delete)
            .await
        {
            Ok(Deleted::Marked(marked)) => self.cluster.observe(*marked).await,
            Ok(Deleted::Gone) => {
                self.cluster
                    .observe_deleted(&meta::key(object), meta::uid(object))
                    .await
            }
            Err(error) if error.conflict() => {
                self.cluster
                    .observe_deleted(&meta::key(object), meta::uid(object))
                    .await
            }
            Err(error) => {
                return Err(format!(
                    "{}/{}: {}",
                    gvk.kind,
                    meta::name(object),
                    error.message()
                ));
            }
        }
        Ok(())
    }

    /// Creates the hooks of this type that do not exist and looks how the others are. True when all have ended well.
    async fn run_hooks(&self, of: HookType) -> Result<bool, Trouble> {
        let trouble = |message: String| Trouble::Hooks {
            hook: if of == HookType::PreDelete { "Pre" } else { "Post" },
            message,
        };
        let request = Request {
            sources: self.app.spec.effective_sources(),
            refresh: Refresh::Recent,
            ..Request::default()
        };
        let compared = match compare_for(self.ctx, self.app, &request).await {
            Ok(compared) => compared,
            Err(reconcile::Error::Busy | reconcile::Error::NotOurs) => return Err(Trouble::NotOurs),
            Err(error) => return Err(trouble(error.to_string())),
        };
        let running = self.hooks(of);
        let mut created = 0;
        for hook in &compared.hooks {
            let Some(mut desired) = hook.desired().filter(|desired| hook::is_of_type(desired, of)) else {
                continue;
            };
            if running.iter().any(|live| meta::key(live) == *hook.key) {
                continue;
            }
            if meta::name(&desired).is_empty() {
                // One name for each deletion, so that a second pass finds the hook of the first.
                let asked = self
                    .app
                    .metadata
                    .deletion_timestamp
                    .map(|time| time.seconds)
                    .unwrap_or_default();
                let name = format!(
                    "{}{}-{asked}",
                    meta::generate_name(&desired),
                    of.as_str().to_lowercase()
                );
                meta::set_field(&mut desired, &["metadata", "name"], name);
                if running.iter().any(|live| meta::key(live) == meta::key(&desired)) {
                    continue;
                }
            }
            let new = self
                .create_hook(&desired)
                .await
                .map_err(|error| trouble(error.message()))?;
            created += usize::from(new);
        }
        if created > 0 {
            return Ok(false);
        }
        self.judge_hooks(&running, of).await.map_err(|error| match error {
            Trouble::Delete(message) => trouble(message),
            other => other,
        })
    }

    fn hooks(&self, of: HookType) -> Vec<Value> {
        let live = self.cluster.snapshot().by_app(&self.instance);
        live.iter()
            .map(|live| live.value())
            .filter(|object| hook::is_of_type(object, of))
            .collect()
    }

    /// Says whether the hook is new. One of its name that is not this Application's is not waited for.
    async fn create_hook(&self, desired: &Value) -> Result<bool, Error> {
        let discovery = self.cluster.discovery();
        let gvk = meta::gvk(desired);
        let Some(resource) = discovery.exact(&gvk) else {
            return Err(Error::Request {
                call: format!("create {}/{}", gvk.kind, meta::name(desired)),
                message: format!("the API server does not serve {} {}", gvk.api_version(), gvk.kind),
            });
        };
        info!(
            app = self.app.metadata.name,
            kind = gvk.kind,
            name = meta::name(desired),
            "a hook of the deletion is created"
        );
        match self.target.create(resource, desired, &Write::default()).await {
            Ok(written) => self.cluster.observe(written.object).await,
            Err(error) if error.already_exists() => {
                warn!(
                    app = self.app.metadata.name,
                    kind = gvk.kind,
                    name = meta::name(desired),
                    "an object of the name of a hook exists already"
                );
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Failed hooks are removed, so that mended ones can run, and reported.
    async fn judge_hooks(&self, hooks: &[Value], of: HookType) -> Result<bool, Trouble> {
        let settings = self.ctx.settings.get();
        let (mut going_on, mut failed) = (false, Vec::new());
        for object in hooks {
            match argosy_health::assess(object, &settings.health).map(|health| health.status) {
                Some(Health::Degraded) => failed.push(object),
                Some(Health::Progressing | Health::Suspended | Health::Missing) => going_on = true,
                Some(Health::Healthy | Health::Unknown) | None => {}
            }
        }
        if !failed.is_empty() {
            let names: Vec<String> = failed
                .iter()
                .map(|object| format!("{}/{}", meta::namespace(object), meta::name(object)))
                .collect();
            self.delete(failed, Propagation::Background).await?;
            return Err(Trouble::Delete(format!(
                "{} hook(s) failed: {}",
                of.as_str(),
                names.join(", ")
            )));
        }
        Ok(!going_on)
    }

    /// Removes hooks whose policy says so. True when all of those are gone.
    async fn clean_up(&self, of: HookType) -> Result<bool, Trouble> {
        let settings = self.ctx.settings.get();
        let hooks = self.hooks(of);
        let degraded = hooks.iter().any(|object| {
            argosy_health::assess(object, &settings.health)
                .is_some_and(|health| health.status == Health::Degraded)
        });
        let due = if degraded {
            DeletePolicy::HookFailed
        } else {
            DeletePolicy::HookSucceeded
        };
        let unwanted: Vec<&Value> = hooks
            .iter()
            .filter(|object| Hook::of(object).is_some_and(|hook| hook.deleted(due)))
            .collect();
        if unwanted.is_empty() {
            return Ok(true);
        }
        let fresh = unwanted
            .into_iter()
            .filter(|object| meta::deletion_timestamp(object).is_none())
            .collect();
        self.delete(fresh, Propagation::Background).await?;
        let left = self.hooks(of);
        Ok(!left
            .iter()
            .any(|object| Hook::of(object).is_some_and(|hook| hook.deleted(due))))
    }
}

/// What may be deleted with an Application, read once for all of its objects.
struct Removals<'a> {
    app: &'a Application,
    own_namespace: &'a str,
    options: SyncOptions,
    /// What Git said at the last look that a person has to agree to; it may not have been synced since.
    told: HashSet<ResourceKey>,
}

impl<'a> Removals<'a> {
    fn new(app: &'a Application, own_namespace: &'a str) -> Self {
        let options = app
            .spec
            .sync_policy
            .iter()
            .flat_map(|policy| &policy.sync_options);
        let told = app.status.resources.iter();
        let told = told.filter(|known| known.requires_deletion_confirmation);
        Removals {
            app,
            own_namespace,
            options: SyncOptions::parse(options.map(String::as_str)),
            told: told
                .map(|known| ResourceKey::new(&*known.group, &*known.kind, &*known.namespace, &*known.name))
                .collect(),
        }
    }

    /// May `object` be deleted? Definitions never, because of what others may have made of them; nor the Application itself, if it is
    /// among its own resources, and Namespaces without which the cluster or we cannot live. What a person has to agree to when it leaves
    /// Git, a person has to agree to here too.
    fn of(&self, object: &Value) -> Removal {
        let itself = meta::uid(object) == self.app.metadata.uid
            && meta::kind(object) == "Application"
            && meta::group(object) == "argoproj.io";
        let key = meta::key(object);
        if meta::is_crd(object) || itself || vital::is_vital(&key, self.own_namespace) {
            return Removal::Forbidden;
        }
        let own = resource_options(&self.options, None, None, Some(object));
        match own.delete {
            Removal::Allowed if own.prune == Removal::Confirm || self.told.contains(&key) => Removal::Confirm,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use argosy_api::v1alpha1::{ResourceStatus, SyncPolicy};

    use super::*;

    fn config_map(options: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop", "uid": "u",
            "annotations": {"argocd.argoproj.io/sync-options": options}}})
    }

    #[test]
    fn what_a_person_has_to_agree_to_when_it_leaves_git_waits_here_too() {
        let mut app = Application::default();
        let of = |app: &Application, options| Removals::new(app, "argocd").of(&config_map(options));
        assert_eq!(of(&app, ""), Removal::Allowed);
        assert_eq!(of(&app, "Delete=confirm"), Removal::Confirm);
        assert_eq!(of(&app, "Prune=confirm"), Removal::Confirm);
        assert_eq!(of(&app, "Prune=confirm,Delete=false"), Removal::Forbidden);
        app.spec.sync_policy = Some(SyncPolicy {
            sync_options: vec!["Prune=confirm".to_owned()],
            ..SyncPolicy::default()
        });
        assert_eq!(of(&app, ""), Removal::Confirm);
        assert_eq!(of(&app, "Prune=true"), Removal::Allowed);
    }

    #[test]
    fn what_git_says_of_it_counts_although_it_was_not_synced_since() {
        let mut app = Application::default();
        app.status.resources.push(ResourceStatus {
            kind: "ConfigMap".to_owned(),
            namespace: "shop".to_owned(),
            name: "a".to_owned(),
            requires_deletion_confirmation: true,
            ..ResourceStatus::default()
        });
        let removals = Removals::new(&app, "argocd");
        assert_eq!(removals.of(&config_map("")), Removal::Confirm);
        let mut other = config_map("");
        meta::set_field(&mut other, &["metadata", "name"], "b");
        assert_eq!(removals.of(&other), Removal::Allowed);
    }

    #[test]
    fn definitions_and_namespaces_that_everything_needs_stay() {
        let app = Application::default();
        let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "uid": "u"}});
        let removals = Removals::new(&app, "argocd");
        assert_eq!(removals.of(&namespace("kube-system")), Removal::Forbidden);
        assert_eq!(removals.of(&namespace("argocd")), Removal::Forbidden);
        assert_eq!(removals.of(&namespace("shop")), Removal::Allowed);
    }
}
