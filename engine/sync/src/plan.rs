//! The plan of a sync: every task, in the order in which it runs.
//!
//! The order is phase, wave, kind, name. A Namespace or a CustomResourceDefinition that something earlier needs is pulled
//! forward to it, the waves of what is pruned are mirrored, and what is pruned last comes one wave after everything else.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use argosy_object::{GroupVersionKind, ResourceKey, Value, meta};
use serde::Serialize;
use serde_json::json;

use crate::hold::{self, Hold};
use crate::hook::{self, DeletePolicy, Hook};
use crate::options::{self, Removal, ResourceOptions, SyncOptions, resource_options};
use crate::order::kind_rank;
use crate::phase::Phase;
use crate::result::ResourceResult;
use crate::wave;

/// One compared resource. At least one side is present. Left out by the caller: what is not this Application's own.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Identity, with the namespace the object really lives in.
    pub key: ResourceKey,
    /// Kind with version: of the desired object if there is one.
    pub gvk: GroupVersionKind,
    /// As rendered, hooks included.
    pub desired: Option<Arc<Value>>,
    /// As found in the cluster.
    pub live: Option<Arc<Value>>,
    /// The verdict of the comparison; true where there was none.
    pub out_of_sync: bool,
}

/// What is asked of one operation.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Namespace of the destination; empty if the Application names none.
    pub namespace: String,
    /// That Namespace as it is in the cluster, if it exists.
    pub namespace_live: Option<Arc<Value>>,
    /// Labels and annotations the Application wants on it.
    pub managed_namespace: Option<ManagedNamespace>,
    /// The revision synced to; part of the names of generated hooks.
    pub revision: String,
    /// Start of the operation, Unix seconds; part of the names of generated hooks.
    pub started_at: i64,
    /// Distinguishes this attempt from every other one of this Application; written on hooks. Empty: hooks are not marked.
    pub run: String,
    /// What is no longer desired is deleted.
    pub prune: bool,
    /// Nothing is changed; the results say what would be.
    pub dry_run: bool,
    /// The strategy asks for delete and create where a change is impossible.
    pub force: bool,
    /// The strategy runs hooks. A partial sync does not, whatever this says.
    pub hooks: bool,
    /// Resources to sync; empty means all.
    pub selection: Vec<Selector>,
    /// The options of the operation.
    pub sync_options: SyncOptions,
    /// The Application's annotation of that name.
    pub migration_manager: Option<String>,
    /// When deletions wait for approval; `None`: only those that say so themselves.
    pub hold: Option<Hold>,
}

/// Labels and annotations of the destination's Namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedNamespace {
    /// Labels to set.
    pub labels: BTreeMap<String, String>,
    /// Annotations to set.
    pub annotations: BTreeMap<String, String>,
}

/// Names one resource of a partial sync. An empty namespace matches every namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// API group, empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Selector {
    /// True if it names this resource.
    pub fn matches(&self, key: &ResourceKey) -> bool {
        self.name == key.name
            && self.kind == key.kind
            && self.group == key.group
            && (self.namespace.is_empty() || self.namespace == key.namespace)
    }
}

/// Place of a task in [`Plan::tasks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The destination's Namespace is created, or given its labels and annotations. It is not one of the Application's resources.
    CreateNamespace,
    /// The object is made to match.
    Apply,
    /// It matches already and only differences are applied: it still counts when a wave waits for health.
    Observe,
    /// A hook is created and waited for.
    Hook,
    /// The object is deleted.
    Prune,
    /// It would be deleted, but that was not asked for.
    SkipPruneUnasked,
    /// It would be deleted, but it may not be.
    SkipPruneForbidden,
}

impl Action {
    /// A lower-case word for tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::CreateNamespace => "create-namespace",
            Action::Apply => "apply",
            Action::Observe => "observe",
            Action::Hook => "hook",
            Action::Prune => "prune",
            Action::SkipPruneUnasked | Action::SkipPruneForbidden => "skip-prune",
        }
    }

    /// True for the three that concern something no longer desired.
    pub fn is_prune(self) -> bool {
        matches!(
            self,
            Action::Prune | Action::SkipPruneUnasked | Action::SkipPruneForbidden
        )
    }

    /// True for the three that write an object.
    pub fn is_apply(self) -> bool {
        matches!(self, Action::CreateNamespace | Action::Apply | Action::Hook)
    }
}

/// One thing to do to one object.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its place.
    pub id: TaskId,
    /// When in the sync.
    pub phase: Phase,
    /// When in the phase.
    pub wave: i64,
    /// When in the wave: tasks of one rank run side by side, the next rank after them.
    pub rank: u32,
    /// What is done.
    pub action: Action,
    /// The object.
    pub key: ResourceKey,
    /// Its kind with version.
    pub gvk: GroupVersionKind,
    /// Set for hooks.
    pub hook: Option<Hook>,
    /// What is applied: with its name, its namespace and, for hooks, finalizer and run.
    pub desired: Option<Arc<Value>>,
    /// What was in the cluster when the plan was made.
    pub live: Option<Arc<Value>>,
    /// The options that count for it.
    pub options: ResourceOptions,
    /// Its kind appears only during the sync, so it cannot be checked before.
    pub unchecked: bool,
}

impl Task {
    /// True for hooks.
    pub fn is_hook(&self) -> bool {
        self.action == Action::Hook
    }

    /// True if its object is a hook with this policy.
    pub fn hook_deleted(&self, policy: DeletePolicy) -> bool {
        self.is_hook() && self.hook.as_ref().is_some_and(|hook| hook.deleted(policy))
    }

    /// `group/Kind/name` as texts for people have it.
    pub fn label(&self) -> String {
        format!("{}/{}/{}", self.key.group, self.key.kind, self.key.name)
    }
}

/// The tasks of one operation in the order in which they run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Sorted by phase, wave and rank.
    pub tasks: Vec<Task>,
    /// Nothing is changed.
    pub dry_run: bool,
    /// Namespace of the destination.
    pub namespace: String,
    /// Kinds, as (group, kind), whose definition is among what is desired.
    pub defined_kinds: HashSet<(String, String)>,
    /// Why all its deletions wait for approval, if they do.
    pub held: Option<String>,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A resource without either side.
    #[error("{0} is neither desired nor live")]
    Nothing(ResourceKey),
    /// Two tasks of one phase for one object.
    #[error("{key} is declared more than once in phase {phase}")]
    Repeated {
        /// The object.
        key: ResourceKey,
        /// The phase.
        phase: Phase,
    },
}

/// Plans one operation.
///
/// # Errors
/// If a resource has no side, or two hooks of one phase have the same name.
pub fn plan(resources: &[Resource], options: &Options) -> Result<Plan, PlanError> {
    let mut tasks = resource_tasks(resources, options)?;
    let held = options
        .hold
        .as_ref()
        .and_then(|hold| hold::hold(&mut tasks, hold));
    if options.hooks && options.selection.is_empty() {
        tasks.extend(hook_tasks(resources, options)?);
    }
    tasks.extend(namespace_task(resources, &tasks, options));
    mirror_prune_waves(&mut tasks);
    prune_last(&mut tasks);
    sort(&mut tasks);
    pull_forward(&mut tasks, needed_namespace, namespace_of);
    pull_forward(&mut tasks, defined_kind, kind_of);
    number(&mut tasks);
    let defined_kinds = resources
        .iter()
        .filter_map(|resource| defined_kind(resource.desired.as_deref()?))
        .collect();
    Ok(Plan {
        tasks,
        dry_run: options.dry_run,
        namespace: options.namespace.clone(),
        defined_kinds,
        held,
    })
}

fn resource_tasks(resources: &[Resource], options: &Options) -> Result<Vec<Task>, PlanError> {
    let mut tasks = Vec::with_capacity(resources.len());
    let mut known = HashSet::new();
    for resource in resources {
        let Some(object) = resource.desired.as_ref().or(resource.live.as_ref()) else {
            return Err(PlanError::Nothing(resource.key.clone()));
        };
        let selected =
            options.selection.is_empty() || options.selection.iter().any(|one| one.matches(&resource.key));
        // A live object that is marked as a hook is the remains of an earlier sync, not a resource that went missing.
        if !selected || hook::skipped(object) || Hook::of(object).is_some() {
            continue;
        }
        if !known.insert(&resource.key) {
            return Err(PlanError::Repeated {
                key: resource.key.clone(),
                phase: Phase::Sync,
            });
        }
        let mut own = resource_options(
            &options.sync_options,
            options.migration_manager.as_deref(),
            resource.desired.as_deref(),
            resource.live.as_deref(),
        );
        own.force |= options.force;
        let settled = resource.live.is_some() && !resource.out_of_sync && own.out_of_sync_only;
        let action = match (&resource.desired, own.prune) {
            (Some(_), _) if settled => Action::Observe,
            (Some(_), _) => Action::Apply,
            (None, _) if !options.prune => Action::SkipPruneUnasked,
            (None, Removal::Forbidden) => Action::SkipPruneForbidden,
            (None, _) => Action::Prune,
        };
        tasks.push(Task {
            id: TaskId(0),
            phase: Phase::Sync,
            wave: wave::of(object),
            rank: kind_rank(&resource.key.kind),
            action,
            key: resource.key.clone(),
            gvk: resource.gvk.clone(),
            hook: None,
            desired: resource.desired.clone(),
            live: resource.live.clone(),
            options: own,
            unchecked: false,
        });
    }
    Ok(tasks)
}

fn hook_tasks(resources: &[Resource], options: &Options) -> Result<Vec<Task>, PlanError> {
    let mut tasks = Vec::new();
    let mut known = HashSet::new();
    for resource in resources {
        let Some(desired) = &resource.desired else {
            continue;
        };
        let Some(hook) = Hook::of(desired) else { continue };
        for phase in hook.phases() {
            let (key, object) = hook_object(resource, desired, phase, options);
            if !known.insert((key.clone(), phase)) {
                return Err(PlanError::Repeated { key, phase });
            }
            let mut own = resource_options(
                &options.sync_options,
                options.migration_manager.as_deref(),
                Some(desired),
                resource.live.as_deref(),
            );
            own.force |= options.force;
            tasks.push(Task {
                id: TaskId(0),
                phase,
                wave: wave::of(desired),
                rank: kind_rank(&key.kind),
                action: Action::Hook,
                key,
                gvk: resource.gvk.clone(),
                hook: Some(hook.clone()),
                desired: Some(Arc::new(object)),
                live: resource.live.clone(),
                options: own,
                unchecked: false,
            });
        }
    }
    Ok(tasks)
}

/// The hook as it is created: with a name, with the finalizer, and marked with the run it belongs to.
fn hook_object(
    resource: &Resource,
    desired: &Value,
    phase: Phase,
    options: &Options,
) -> (ResourceKey, Value) {
    let mut object = desired.clone();
    let mut key = resource.key.clone();
    if key.name.is_empty() {
        let prefix = meta::field(desired, &["metadata", "generateName"])
            .and_then(Value::as_str)
            .unwrap_or_default();
        key.name = hook::generated_name(prefix, &options.revision, phase, options.started_at);
        meta::set_field(&mut object, &["metadata", "name"], json!(key.name));
    }
    if !hook::has_finalizer(&object) {
        let mut finalizers = meta::field(&object, &["metadata", "finalizers"])
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        finalizers.push(json!(hook::FINALIZER));
        meta::set_field(&mut object, &["metadata", "finalizers"], Value::Array(finalizers));
    }
    if !options.run.is_empty() {
        meta::set_annotation(&mut object, hook::RUN_ANNOTATION, run_of(&options.run, phase));
    }
    (key, object)
}

/// The mark on a hook: what created it, and for which phase, because one object may be a hook of several.
pub(crate) fn run_of(run: &str, phase: Phase) -> String {
    format!("{run}/{phase}")
}

/// The task that creates the destination's Namespace or sets its labels, unless the Application has that Namespace itself.
fn namespace_task(resources: &[Resource], tasks: &[Task], options: &Options) -> Option<Task> {
    if !options.sync_options.create_namespace() || options.namespace.is_empty() {
        return None;
    }
    let own = |resource: &Resource| {
        resource.desired.is_some() && is_namespace(&resource.key) && resource.key.name == options.namespace
    };
    if resources.iter().any(own) || (options.namespace_live.is_some() && options.managed_namespace.is_none())
    {
        return None;
    }
    let mut object =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": options.namespace}});
    if let Some(managed) = &options.managed_namespace {
        for (key, value) in &managed.labels {
            meta::set_label(&mut object, key, value.as_str());
        }
        for (key, value) in &managed.annotations {
            meta::set_annotation(&mut object, key, value.as_str());
        }
        // Labels and annotations that others put on the Namespace are theirs: only the server can merge by owner.
        meta::set_annotation(&mut object, options::ANNOTATION, "ServerSideApply=true");
    }
    let first_wave = tasks
        .iter()
        .filter(|task| task.phase == Phase::PreSync)
        .map(|task| task.wave)
        .min()
        .unwrap_or(0);
    let own = resource_options(
        &SyncOptions::default(),
        options.migration_manager.as_deref(),
        Some(&object),
        None,
    );
    Some(Task {
        id: TaskId(0),
        phase: Phase::PreSync,
        wave: first_wave,
        rank: kind_rank("Namespace"),
        action: Action::CreateNamespace,
        key: ResourceKey {
            group: String::new(),
            kind: "Namespace".into(),
            namespace: String::new(),
            name: options.namespace.clone(),
        },
        gvk: GroupVersionKind {
            group: String::new(),
            version: "v1".into(),
            kind: "Namespace".into(),
        },
        hook: None,
        desired: Some(Arc::new(object)),
        live: options.namespace_live.clone(),
        options: own,
        unchecked: false,
    })
}

/// What was applied first is deleted last: the waves of the prune tasks are swapped symmetrically around their middle.
fn mirror_prune_waves(tasks: &mut [Task]) {
    let mut waves: Vec<i64> = tasks
        .iter()
        .filter(|task| task.action.is_prune())
        .map(|task| task.wave)
        .collect();
    waves.sort_unstable();
    waves.dedup();
    let mirrored: HashMap<i64, i64> = waves.iter().copied().zip(waves.iter().rev().copied()).collect();
    for task in tasks.iter_mut().filter(|task| task.action.is_prune()) {
        task.wave = mirrored[&task.wave];
    }
}

fn prune_last(tasks: &mut [Task]) {
    let last = tasks
        .iter()
        .filter(|task| task.phase == Phase::Sync)
        .map(|task| task.wave)
        .max()
        .unwrap_or(0)
        .max(0);
    for task in tasks
        .iter_mut()
        .filter(|task| task.action.is_prune() && task.options.prune_last)
    {
        task.wave = last + 1;
    }
}

fn sort(tasks: &mut [Task]) {
    tasks.sort_by(|a, b| {
        (a.phase, a.wave, a.rank, &a.key.name, &a.key).cmp(&(b.phase, b.wave, b.rank, &b.key.name, &b.key))
    });
}

/// Moves each task that defines something in front of the first task that needs it, if that one comes earlier.
fn pull_forward<K: std::hash::Hash + Eq>(
    tasks: &mut Vec<Task>,
    defines: fn(&Value) -> Option<K>,
    needs: fn(&Task) -> Option<K>,
) {
    let mut ordered: Vec<Task> = Vec::with_capacity(tasks.len());
    let mut first_need: HashMap<K, usize> = HashMap::new();
    for mut task in tasks.drain(..) {
        let Some(desired) = task.desired.as_deref() else {
            ordered.push(task);
            continue;
        };
        if let Some(defined) = defines(desired) {
            if let Some(&place) = first_need.get(&defined) {
                task.phase = ordered[place].phase;
                task.wave = ordered[place].wave;
                ordered.insert(place, task);
                first_need
                    .values_mut()
                    .filter(|index| **index >= place)
                    .for_each(|index| *index += 1);
                continue;
            }
        } else if let Some(needed) = needs(&task) {
            first_need.entry(needed).or_insert(ordered.len());
        }
        ordered.push(task);
    }
    *tasks = ordered;
}

fn is_namespace(key: &ResourceKey) -> bool {
    key.group.is_empty() && key.kind == "Namespace"
}

fn needed_namespace(object: &Value) -> Option<String> {
    is_namespace(&meta::key(object)).then(|| meta::name(object).to_owned())
}

fn namespace_of(task: &Task) -> Option<String> {
    (!task.key.namespace.is_empty()).then(|| task.key.namespace.clone())
}

fn defined_kind(object: &Value) -> Option<(String, String)> {
    if !meta::is_crd(object) {
        return None;
    }
    let group = meta::field(object, &["spec", "group"])?.as_str()?;
    let kind = meta::field(object, &["spec", "names", "kind"])?.as_str()?;
    Some((group.to_owned(), kind.to_owned()))
}

fn kind_of(task: &Task) -> Option<(String, String)> {
    Some((task.key.group.clone(), task.key.kind.clone()))
}

/// Gives every task its id and, inside its wave, a rank that grows with the order, also where something was pulled forward.
fn number(tasks: &mut [Task]) {
    let mut rank = 0;
    let mut previous: Option<(Phase, i64, u32)> = None;
    for (index, task) in tasks.iter_mut().enumerate() {
        let here = (task.phase, task.wave, task.rank);
        rank = match previous {
            Some(before) if before == here => rank,
            Some((phase, wave, _)) if (phase, wave) == (here.0, here.1) => rank + 1,
            _ => 0,
        };
        previous = Some(here);
        task.id = TaskId(index as u32);
        task.rank = rank;
    }
}

/// What the destination says about the kind of a task, and the project about the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// Served and permitted.
    Fine,
    /// The API server does not serve the kind at all.
    UnknownKind,
    /// It serves the kind in another version only.
    OtherVersion {
        /// The version it does serve.
        version: String,
    },
    /// Refused, with the text to show.
    Refused(String),
}

/// A task that may not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The task.
    pub task: TaskId,
    /// Why, for people.
    pub message: String,
}

impl Plan {
    /// The hooks that these results know of and nothing else: enough to end an operation of which no more can be known.
    pub fn of_hooks(results: &[ResourceResult]) -> Plan {
        let hooks = results.iter().filter_map(|result| Some((result, result.hook?)));
        let tasks = hooks.enumerate().map(|(index, (result, hook))| Task {
            id: TaskId(index as u32),
            phase: result.sync_phase,
            wave: 0,
            rank: 0,
            action: Action::Hook,
            key: result.key.clone(),
            gvk: result.key.group_kind().with_version(&*result.version),
            hook: Some(Hook {
                types: vec![hook],
                delete_policies: vec![DeletePolicy::BeforeHookCreation],
            }),
            desired: None,
            live: None,
            options: resource_options(&SyncOptions::default(), None, None, None),
            unchecked: false,
        });
        Plan {
            tasks: tasks.collect(),
            ..Plan::default()
        }
    }

    /// The task at this place.
    pub fn task(&self, id: TaskId) -> &Task {
        &self.tasks[id.0 as usize]
    }

    /// Asks about every task; returns those that may not run. A kind that is not served is let through, unchecked, if its
    /// definition is part of the sync or the options say so.
    pub fn validate(&mut self, mut check: impl FnMut(&Task) -> Check) -> Vec<Invalid> {
        let mut invalid = Vec::new();
        for task in &mut self.tasks {
            let ResourceKey {
                group,
                kind,
                namespace,
                name,
            } = &task.key;
            let expected = task.options.skip_dry_run_on_missing_kind
                || self.defined_kinds.contains(&(group.clone(), kind.clone()));
            let message = match check(task) {
                Check::Fine => continue,
                Check::UnknownKind | Check::OtherVersion { .. } if expected => {
                    task.unchecked = true;
                    continue;
                }
                Check::UnknownKind => format!(
                    "The Kubernetes API could not find {group}/{kind} for requested resource {namespace}/{name}. \
                     Make sure the \"{kind}\" CRD is installed on the destination cluster."
                ),
                Check::OtherVersion { version } => format!(
                    "The Kubernetes API could not find version \"{}\" of {group}/{kind} for requested resource \
                     {namespace}/{name}. Version \"{version}\" of {group}/{kind} is installed on the destination cluster.",
                    task.gvk.version
                ),
                Check::Refused(message) => message,
            };
            invalid.push(Invalid {
                task: task.id,
                message,
            });
        }
        invalid
    }

    /// True if there is more than one wave, so that each must be healthy before the next.
    pub fn multi_step(&self) -> bool {
        match (self.tasks.first(), self.tasks.last()) {
            (Some(first), Some(last)) => (first.phase, first.wave) != (last.phase, last.wave),
            _ => false,
        }
    }

    /// The task that brings the destination's Namespace into being, if it does not exist yet.
    pub(crate) fn namespace_task(&self) -> Option<&Task> {
        self.tasks.iter().find(|task| {
            task.action.is_apply()
                && task.live.is_none()
                && is_namespace(&task.key)
                && task.key.name == self.namespace
        })
    }

    /// The plan as a table, with the waits between the waves.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::with_capacity(self.tasks.len());
        let waves = self.tasks.chunk_by(|a, b| (a.phase, a.wave) == (b.phase, b.wave));
        let count = waves.clone().count();
        for (index, tasks) in waves.enumerate() {
            rows.extend(tasks.iter().map(Row::of));
            // The failure hooks are no next wave of a sync that goes well.
            let followed =
                index + 1 < count && tasks[0].phase != Phase::SyncFail && self.goes_on_after(tasks);
            if followed || tasks.iter().any(Task::is_hook) {
                rows.push(Row::wait(tasks, followed));
            }
        }
        rows
    }

    fn goes_on_after(&self, tasks: &[Task]) -> bool {
        let last = tasks[tasks.len() - 1].id.0 as usize;
        self.tasks[last + 1..]
            .iter()
            .any(|task| task.phase != Phase::SyncFail)
    }
}

/// One line of a printed plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Phase.
    pub phase: Phase,
    /// Wave.
    pub wave: i64,
    /// `create-namespace`, `apply`, `observe`, `hook`, `prune`, `skip-prune` or `wait`.
    pub action: &'static str,
    /// API group.
    pub group: String,
    /// Kind; empty for a wait.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name; empty for a wait.
    pub name: String,
    /// What else there is to know: how it is applied, why it is not deleted, what is waited for.
    pub detail: String,
}

impl Row {
    fn of(task: &Task) -> Row {
        let mut details: Vec<&str> = Vec::new();
        match task.action {
            Action::SkipPruneUnasked => details.push("requires pruning"),
            Action::SkipPruneForbidden => details.push("no prune"),
            Action::Prune if task.options.prune == Removal::Confirm => details.push("after confirmation"),
            Action::Observe => details.push("in sync"),
            _ => {}
        }
        if task.action.is_apply() {
            let how = [
                (task.options.replace, "replace"),
                (task.options.force, "force"),
                (task.options.server_side_apply, "server-side"),
            ];
            details.extend(how.into_iter().filter(|(on, _)| *on).map(|(_, text)| text));
        }
        Row {
            phase: task.phase,
            wave: task.wave,
            action: task.action.as_str(),
            group: task.key.group.clone(),
            kind: task.key.kind.clone(),
            namespace: task.key.namespace.clone(),
            name: task.key.name.clone(),
            detail: details.join(", "),
        }
    }

    fn wait(tasks: &[Task], followed: bool) -> Row {
        let hooks = tasks.iter().any(Task::is_hook);
        let pruned = tasks.iter().any(|task| task.action == Action::Prune);
        let resources = tasks.iter().any(|task| {
            matches!(
                task.action,
                Action::Apply | Action::Observe | Action::CreateNamespace
            )
        });
        let what = [
            (hooks, "hooks have completed"),
            (followed && resources, "resources are healthy"),
            (followed && pruned, "pruned objects are gone"),
        ];
        Row {
            phase: tasks[0].phase,
            wave: tasks[0].wave,
            action: "wait",
            group: String::new(),
            kind: String::new(),
            namespace: String::new(),
            name: String::new(),
            detail: what
                .into_iter()
                .filter(|(on, _)| *on)
                .map(|(_, text)| text)
                .collect::<Vec<_>>()
                .join(", "),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.phase, self.wave, self.action)?;
        if !self.kind.is_empty() {
            write!(
                f,
                " {}/{}/{}/{}",
                self.group, self.kind, self.namespace, self.name
            )?;
        }
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        Ok(())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows().iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}
