//! Making one object match: the ways of `kubectl apply`, `create` and `replace`, without kubectl.
//!
//! Client-side apply is a POST where nothing is live and else the three-way patch from what was applied last, bound to
//! the very object it was computed from; nothing is sent if nothing changes. Server-side apply leaves the merge to the
//! API server. What a write returns is in live state before the next step looks.

use std::sync::Arc;
use std::time::Duration;

use argosy_diff::managed::differ_between_versions;
use argosy_diff::patch::three_way;
use argosy_diff::{IgnoreRules, PatchKind};
use argosy_kube_io::target::{Delete, Deleted, FieldValidation, Patch, Propagation, Write, Written};
use argosy_kube_io::{ApiResource, Class, Error, Target};
use argosy_object::{GroupVersionKind, Value, meta};
use argosy_sync::options::Propagation as Wanted;
use argosy_sync::{Action, Outcome, SyncOptions, Task, TaskId};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::Interrupted;
use super::begin::Session;
use crate::clusters::Cluster;

mod document;
mod migrate;
mod unstated;

pub(crate) use document::prepared;
use document::{LAST_APPLIED_MAX, kubectl_name, with_last_applied};

/// A write that met a changed object is worked out anew at most so often.
const ATTEMPTS: usize = 4;
/// Pauses before a call that may succeed later is repeated.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// An object that is deleted to be created again must be gone after so long.
const GONE_WITHIN: Duration = Duration::from_secs(60);
/// A definition is served after so long, or somebody else finds out.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(3);
/// A kind whose definition has just been created shows up in discovery after so long.
const SERVED_WITHIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(100);
/// Calls in flight if the options do not limit them.
const PARALLEL: usize = 50;

/// The way to one cluster, for the writes of one operation.
#[derive(Clone)]
pub(super) struct Writer {
    pub(super) cluster: Cluster,
    pub(super) target: Target,
    pub(super) propagation: Propagation,
    /// The Application, as its resources name it.
    pub(super) instance: Arc<str>,
    /// What nobody is to touch beside what Git states.
    pub(super) ignored: Arc<IgnoreRules>,
    /// What of that Git states is left as it is in the cluster, too (`RespectIgnoreDifferences`).
    pub(super) keeps_ignored: bool,
    /// Calls in flight at once.
    pub(super) parallelism: usize,
}

/// Why an object was not written.
pub(super) enum Failure {
    /// Nothing is known: the cluster is not ours any longer.
    Interrupted,
    /// Refused, with the text to show.
    Refused(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Fenced { .. } => Failure::Interrupted,
            other => Failure::Refused(other.message()),
        }
    }
}

fn refused(message: impl Into<String>) -> Failure {
    Failure::Refused(message.into())
}

/// Checks that these could be applied, without a call: names and kinds are known, and what would be done can be said.
pub(super) fn check(session: &mut Session, tasks: &[TaskId]) {
    for id in tasks {
        let outcome = match session.writer.check(session.plan.task(*id)) {
            Ok(message) => Outcome::Applied(message),
            Err(message) => Outcome::Failed(message),
        };
        session.progress.record(&session.plan, *id, outcome);
    }
    session.progress.checked(&session.plan);
}

/// Writes these, side by side.
pub(super) async fn apply(session: &mut Session, tasks: &[TaskId]) -> Result<(), Interrupted> {
    side_by_side(session, tasks, |writer, task| {
        async move {
            match writer.write(task).await {
                Ok(message) => Ok(Outcome::Applied(message)),
                Err(Failure::Refused(message)) => Ok(Outcome::Failed(document::explained(&message))),
                Err(Failure::Interrupted) => Err(Interrupted),
            }
        }
        .boxed()
    })
    .await
}

/// Does something for each task, so many at once, and tells the engine what came out, in the order of the tasks. What was
/// interrupted is not told: it is asked for again.
pub(super) async fn side_by_side<F>(
    session: &mut Session,
    tasks: &[TaskId],
    run: F,
) -> Result<(), Interrupted>
where
    F: for<'a> Fn(&'a Writer, &'a Task) -> BoxFuture<'a, Result<Outcome, Interrupted>>,
{
    let parallelism = session.writer.parallelism;
    let mut runs = Vec::with_capacity(tasks.len());
    for id in tasks {
        let id = *id;
        runs.push(run(&session.writer, session.plan.task(id)).map(move |outcome| (id, outcome)));
    }
    let mut outcomes: Vec<_> = futures::stream::iter(runs)
        .buffer_unordered(parallelism)
        .collect()
        .await;
    outcomes.sort_by_key(|(id, _)| *id);
    let mut all = Ok(());
    for (id, outcome) in outcomes {
        match outcome {
            Ok(outcome) => session.progress.record(&session.plan, id, outcome),
            Err(Interrupted) => all = Err(Interrupted),
        }
    }
    all
}

impl Writer {
    pub(super) fn new(
        cluster: Cluster,
        target: Target,
        instance: Arc<str>,
        options: &SyncOptions,
        ignored: Arc<IgnoreRules>,
        limit: usize,
    ) -> Self {
        let propagation = match options.propagation() {
            Wanted::Foreground => Propagation::Foreground,
            Wanted::Background => Propagation::Background,
            Wanted::Orphan => Propagation::Orphan,
        };
        Writer {
            cluster,
            target,
            propagation,
            instance,
            ignored,
            keeps_ignored: options.respect_ignore_differences(),
            parallelism: if limit == 0 { PARALLEL } else { limit },
        }
    }

    /// The object as the API server has it now.
    pub(super) async fn get(&self, task: &Task) -> Result<Option<Value>, Error> {
        let discovery = self.cluster.discovery();
        // A kind that is not served has no objects.
        let Some(resource) = discovery.find(&task.gvk) else {
            return Ok(None);
        };
        self.target
            .get(resource, &task.key.namespace, &task.key.name)
            .await
    }

    /// A Namespace, if it exists.
    pub(super) async fn namespace(&self, name: &str) -> Option<Value> {
        let key = argosy_object::ResourceKey::new("", "Namespace", "", name);
        if let Some(live) = self.cluster.snapshot().get(&key) {
            return Some(live.value());
        }
        let resource = ApiResource::known("", "v1", "Namespace", "namespaces", false);
        self.target.get(&resource, "", name).await.ok().flatten()
    }

    fn check(&self, task: &Task) -> Result<String, String> {
        let Some(desired) = task.desired.as_deref() else {
            return Err("nothing is desired".to_owned());
        };
        if task.key.name.is_empty() {
            return Err(format!(
                "from {}: cannot use generate name with apply",
                meta::generate_name(desired)
            ));
        }
        let discovery = self.cluster.discovery();
        let resource = discovery.exact(&task.gvk).ok_or_else(|| {
            format!(
                "no matches for kind {:?} in version {:?}",
                task.gvk.kind,
                task.gvk.api_version()
            )
        })?;
        if resource.namespaced && task.key.namespace.is_empty() {
            return Err(format!(
                "{} needs a namespace, and neither it nor the destination names one",
                kubectl_name(desired)
            ));
        }
        let verb = match self.cluster.snapshot().get(&task.key).map(|live| live.value()) {
            None => "created",
            Some(_) if task.options.replace => "replaced",
            Some(_) if task.options.server_side_apply => "serverside-applied",
            Some(live) => {
                let desired = self.keeping_ignored(task, prepared(desired), Some(&live));
                let modified = with_last_applied(&desired, Some(&live));
                let patch = three_way(
                    document::last_applied(&live).as_ref(),
                    &modified,
                    &live,
                    &self.cluster.schemas(),
                );
                if patch.is_empty() {
                    "unchanged"
                } else {
                    "configured"
                }
            }
        };
        Ok(format!("{} {verb} (dry run)", kubectl_name(desired)))
    }

    /// Makes the object of a task match; the text says how.
    async fn write(&self, task: &Task) -> Result<String, Failure> {
        let Some(desired) = task.desired.as_deref() else {
            return Err(refused("nothing is desired"));
        };
        let resource = self.resource(&task.gvk).await?;
        let live = self.live(task, &resource).await?;
        let desired = self.keeping_ignored(task, prepared(desired), live.as_ref());
        let job = Job {
            writer: self,
            task,
            resource: &resource,
            desired: &desired,
        };
        let mut message = if task.options.replace {
            job.replace(live).await?
        } else if task.options.server_side_apply {
            job.server_side(live, "serverside-applied").await?
        } else {
            job.client_side(live).await?
        };
        if task.options.strict && !task.options.replace && job.take_unstated().await? {
            message.push_str(", without what others had put beside it");
        }
        if meta::is_crd(&desired) {
            self.establish(&resource, meta::name(&desired)).await;
        }
        Ok(message)
    }

    /// What is applied, with the live values of what is ignored if they are to be kept: those of now, for a wave may come long after the
    /// plan was made. What could not be kept is told by the comparison.
    fn keeping_ignored(&self, task: &Task, desired: Value, live: Option<&Value>) -> Value {
        match live {
            Some(live) if self.keeps_ignored && task.action == Action::Apply => {
                let schemas = self.cluster.schemas();
                argosy_diff::ignore::keep_live(&desired, live, &self.ignored, &schemas).0
            }
            _ => desired,
        }
    }

    /// The kind as it is served; one whose definition has just been written is waited for.
    async fn resource(&self, gvk: &GroupVersionKind) -> Result<ApiResource, Failure> {
        let deadline = Instant::now() + SERVED_WITHIN;
        if let Some(resource) = self.cluster.discovery().exact(gvk) {
            return Ok(resource.clone());
        }
        self.cluster.rediscover();
        while Instant::now() < deadline {
            sleep(POLL).await;
            if let Some(resource) = self.cluster.discovery().exact(gvk) {
                return Ok(resource.clone());
            }
        }
        let asked = argosy_kube_io::discover(self.target.client()).await?;
        asked.exact(gvk).cloned().ok_or_else(|| {
            refused(format!(
                "The Kubernetes API could not find {}/{}. Make sure the {:?} CRD is installed on the destination cluster.",
                gvk.group, gvk.kind, gvk.kind
            ))
        })
    }

    /// The live object; in the version in which it will be written, if another one says the same in other fields.
    async fn live(&self, task: &Task, resource: &ApiResource) -> Result<Option<Value>, Failure> {
        let kind = task.key.group_kind();
        match self.cluster.snapshot().get(&task.key) {
            Some(live)
                if *live.version == *task.gvk.version
                    || !differ_between_versions(&kind.group, &kind.kind) =>
            {
                return Ok(Some(live.value()));
            }
            None if self.cluster.follows(&kind) && self.cluster.kind_failure(&kind).is_none() => {
                return Ok(None);
            }
            _ => {}
        }
        Ok(self
            .target
            .get(resource, &task.key.namespace, &task.key.name)
            .await?)
    }

    /// Waits until the kinds of a definition are served. If they are not in time, whoever needs them finds out.
    async fn establish(&self, resource: &ApiResource, name: &str) {
        let deadline = Instant::now() + ESTABLISHED_WITHIN;
        loop {
            if let Ok(Some(definition)) = self.target.get(resource, "", name).await
                && is_established(&definition)
            {
                break;
            }
            if Instant::now() >= deadline {
                warn!(crd = name, "the definition is not established yet");
                break;
            }
            sleep(POLL).await;
        }
        self.cluster.rediscover();
    }

    /// Deletes exactly this object; what is known of it afterwards is in live state.
    pub(super) async fn delete(
        &self,
        resource: &ApiResource,
        live: &Value,
        propagation: Propagation,
    ) -> Result<(), Failure> {
        let delete = Delete {
            uid: Some(meta::uid(live).to_owned()),
            propagation,
            ..Delete::default()
        };
        let (namespace, name) = (meta::namespace(live), meta::name(live));
        let deleted = repeated(|| self.target.delete(resource, namespace, name, &delete).boxed()).await;
        match deleted {
            Ok(Deleted::Marked(object)) => self.cluster.observe(*object).await,
            Ok(Deleted::Gone) => {
                self.cluster
                    .observe_deleted(&meta::key(live), meta::uid(live))
                    .await
            }
            // Another object has taken the name: ours is gone.
            Err(error) if error.conflict() => {
                self.cluster
                    .observe_deleted(&meta::key(live), meta::uid(live))
                    .await
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

fn is_established(definition: &Value) -> bool {
    meta::array_field(definition, &["status", "conditions"])
        .iter()
        .any(|condition| {
            meta::str_field(condition, &["type"]) == Some("Established")
                && meta::str_field(condition, &["status"]) == Some("True")
        })
}

/// Repeats a call whose failure may pass. Conflicts are not repeated: the object has to be looked at again.
pub(super) async fn repeated<'a, T>(
    call: impl Fn() -> BoxFuture<'a, Result<T, Error>> + Send,
) -> Result<T, Error> {
    for pause in PAUSES {
        match call().await {
            Err(error) if matches!(error.class(), Class::Retry { .. }) && !error.conflict() => {
                debug!(%error, "a call is repeated");
                sleep(pause).await;
            }
            other => return other,
        }
    }
    call().await
}

/// One object on its way to the cluster.
struct Job<'a> {
    writer: &'a Writer,
    task: &'a Task,
    resource: &'a ApiResource,
    desired: &'a Value,
}

impl Job<'_> {
    fn options(&self) -> Write {
        let validation = if self.task.options.validate {
            FieldValidation::Strict
        } else {
            FieldValidation::Ignore
        };
        Write {
            field_validation: validation,
            ..Write::default()
        }
    }

    fn said(&self, verb: &str) -> String {
        format!("{} {verb}", kubectl_name(self.desired))
    }

    async fn seen(&self, written: Written) {
        self.writer.cluster.observe(written.object).await;
    }

    async fn get(&self) -> Result<Option<Value>, Failure> {
        let key = &self.task.key;
        Ok(repeated(|| {
            self.writer
                .target
                .get(self.resource, &key.namespace, &key.name)
                .boxed()
        })
        .await?)
    }

    async fn create(&self, object: &Value) -> Result<Written, Error> {
        let options = self.options();
        repeated(|| self.writer.target.create(self.resource, object, &options).boxed()).await
    }

    /// Client-side apply.
    async fn client_side(&self, live: Option<Value>) -> Result<String, Failure> {
        let mut live = live;
        for _ in 0..ATTEMPTS {
            let modified = with_last_applied(self.desired, live.as_ref());
            if document::annotations_len(&modified) > LAST_APPLIED_MAX {
                return self
                    .server_side(live, "serverside-applied (too large for client-side apply)")
                    .await;
            }
            let Some(current) = &live else {
                match self.create(&modified).await {
                    Ok(written) => {
                        self.seen(written).await;
                        return Ok(self.said("created"));
                    }
                    Err(error) if error.already_exists() => live = self.get().await?,
                    Err(error) => return Err(error.into()),
                }
                continue;
            };
            if document::role_changed(&modified, current) {
                // To whom a binding belongs may change, what it grants may not.
                self.recreate(&modified, current).await?;
                return Ok(self.said("configured"));
            }
            match self.patch(&modified, current).await {
                Ok(None) => return Ok(self.said("unchanged")),
                Ok(Some(written)) => {
                    self.seen(written).await;
                    return Ok(self.said("configured"));
                }
                Err(error) if error.conflict() || (error.not_found() && !error.kind_unknown()) => {
                    live = self.get().await?
                }
                Err(error) if error.invalid() && self.may_recreate() => {
                    self.recreate(&modified, current).await?;
                    return Ok(self.said("configured"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(refused(format!(
            "{} keeps changing while it is applied; please apply your changes to the latest version and try again",
            kubectl_name(self.desired)
        )))
    }

    /// The three-way patch, bound to the object it was computed from; `None` if there is nothing to send.
    async fn patch(&self, modified: &Value, current: &Value) -> Result<Option<Written>, Error> {
        let schemas = self.writer.cluster.schemas();
        let mut patch = three_way(
            document::last_applied(current).as_ref(),
            modified,
            current,
            &schemas,
        );
        if patch.is_empty() {
            return Ok(None);
        }
        if !meta::uid(current).is_empty() {
            meta::set_field(
                &mut patch.content,
                &["metadata", "uid"],
                json!(meta::uid(current)),
            );
        }
        self.send(&patch).await.map(Some)
    }

    /// Server-side apply. Fields that kubectl applied become ours first, so that what is removed from Git goes away.
    async fn server_side(&self, live: Option<Value>, verb: &str) -> Result<String, Failure> {
        if let (Some(current), Some(manager)) = (&live, &self.task.options.migrate_from) {
            migrate::take_over(self.writer, self.resource, current, manager)
                .await
                .map_err(|failure| match failure {
                    Failure::Refused(message) => refused(format!(
                        "Failed to perform client-side apply migration for {}: {message}",
                        self.task.key
                    )),
                    Failure::Interrupted => Failure::Interrupted,
                })?;
        }
        let (key, options) = (&self.task.key, self.options());
        let mut live = live;
        for attempt in 1.. {
            // What was looked at is what is changed. An object that is written to without a pause is bound by its uid alone in
            // the end; after a migration its version is another anyway.
            let bound = attempt < ATTEMPTS && self.task.options.migrate_from.is_none();
            let object = live.as_ref().map(|current| self.bound_to(current, bound));
            let body = Patch::Apply {
                object: object.as_ref().unwrap_or(self.desired),
                force: true,
            };
            let call = || {
                self.writer
                    .target
                    .patch(self.resource, &key.namespace, &key.name, body, &options)
                    .boxed()
            };
            match repeated(call).await {
                Ok(written) => {
                    self.seen(written).await;
                    break;
                }
                Err(error) if error.conflict() && attempt < ATTEMPTS => live = self.get().await?,
                Err(error)
                    if (error.invalid() || error.conflict()) && self.may_recreate() && live.is_some() =>
                {
                    if let Some(current) = self.get().await? {
                        self.recreate(self.desired, &current).await?;
                    }
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.said(verb))
    }

    /// The desired object with preconditions: only over this very object, and, if `version`, as it was seen.
    fn bound_to(&self, current: &Value, version: bool) -> Value {
        let mut object = self.desired.clone();
        meta::set_field(&mut object, &["metadata", "uid"], json!(meta::uid(current)));
        if version {
            let version = meta::resource_version(current);
            meta::set_field(&mut object, &["metadata", "resourceVersion"], json!(version));
        }
        object
    }

    async fn send(&self, patch: &argosy_diff::Patch) -> Result<Written, Error> {
        let body = match patch.kind {
            PatchKind::Merge => Patch::Merge(&patch.content),
            PatchKind::Strategic => Patch::Strategic(&patch.content),
        };
        let (key, options) = (&self.task.key, self.options());
        let call = || {
            self.writer
                .target
                .patch(self.resource, &key.namespace, &key.name, body, &options)
                .boxed()
        };
        repeated(call).await
    }

    /// Definitions and Namespaces hold others: all of those would go with them.
    fn is_container(&self) -> bool {
        meta::is_crd(self.desired) || (self.task.key.kind == "Namespace" && self.task.key.group.is_empty())
    }

    /// May the object be deleted to be created again?
    fn may_recreate(&self) -> bool {
        self.task.options.force && !self.is_container()
    }

    /// Replaces the object as a whole.
    async fn replace(&self, live: Option<Value>) -> Result<String, Failure> {
        let mut live = live;
        let container = self.is_container();
        for _ in 0..ATTEMPTS {
            let Some(current) = &live else {
                match self.create(self.desired).await {
                    Ok(written) => {
                        self.seen(written).await;
                        return Ok(self.said("created"));
                    }
                    Err(error) if error.already_exists() => live = self.get().await?,
                    Err(error) => return Err(error.into()),
                }
                continue;
            };
            if self.may_recreate() {
                self.recreate(self.desired, current).await?;
                return Ok(self.said("replaced"));
            }
            let mut object = self.desired.clone();
            for field in ["resourceVersion", "uid"] {
                let value = meta::field(current, &["metadata", field])
                    .cloned()
                    .unwrap_or_default();
                meta::set_field(&mut object, &["metadata", field], value);
            }
            let options = self.options();
            match repeated(|| {
                self.writer
                    .target
                    .replace(self.resource, &object, &options)
                    .boxed()
            })
            .await
            {
                Ok(written) => {
                    self.seen(written).await;
                    return Ok(match container {
                        true => format!("{}/{} updated", self.task.key.kind, self.task.key.name),
                        false => self.said("replaced"),
                    });
                }
                Err(error) if error.conflict() || (error.not_found() && !error.kind_unknown()) => {
                    live = self.get().await?
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(refused(format!(
            "{} keeps changing while it is replaced",
            kubectl_name(self.desired)
        )))
    }

    /// Deletes the object, waits until it is really gone, and creates it again.
    async fn recreate(&self, object: &Value, current: &Value) -> Result<(), Failure> {
        self.writer
            .delete(self.resource, current, self.writer.propagation)
            .await?;
        let deadline = Instant::now() + GONE_WITHIN;
        while let Some(found) = self.get().await? {
            if meta::uid(&found) != meta::uid(current) {
                return Err(refused(format!(
                    "{} was created by somebody else in the meantime",
                    kubectl_name(object)
                )));
            }
            if Instant::now() >= deadline {
                return Err(refused(format!(
                    "timed out waiting for the deletion of {} before it is created again",
                    kubectl_name(object)
                )));
            }
            sleep(POLL).await;
        }
        self.writer
            .cluster
            .observe_deleted(&self.task.key, meta::uid(current))
            .await;
        let written = self.create(object).await?;
        self.seen(written).await;
        Ok(())
    }
}
