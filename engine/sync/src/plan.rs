//! The plan of a sync: every task, in the order in which it runs.
//!
//! The order is phase, wave, kind, name. A Namespace or a CustomResourceDefinition that something earlier needs is pulled
//! forward to it, the waves of what is pruned are mirrored, and what is pruned last comes one wave after everything else.

mod arrange;
mod rows;
mod tasks;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use argosy_object::{GroupVersionKind, ResourceKey, Value};

use crate::hold::{self, Hold};
use crate::hook::{DeletePolicy, Hook};
use crate::options::{ResourceOptions, SyncOptions, resource_options};
use crate::phase::Phase;
use crate::result::ResourceResult;
use arrange::{arrange, defined_kind, is_namespace, mirror_prune_waves, prune_last};
use tasks::{Sorted, hook_tasks, namespace_task, resource_tasks};

pub use rows::Row;

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
    /// It is not certain that the live object is this Application's: deleting it waits for a person.
    pub doubtful: bool,
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
    /// [`Plan::prune_waves`] of this attempt's plan, where it is not the first one: the order of deletions is told by all that is deleted,
    /// also by what is gone already.
    pub prune_waves: Vec<i64>,
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
    /// The waves of what the attempt deletes, as the objects state them: for [`Options::prune_waves`] if the plan has to be made again.
    pub prune_waves: Vec<i64>,
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
    let Sorted {
        mut tasks,
        hooks,
        live,
    } = resource_tasks(resources, options)?;
    let held = options
        .hold
        .as_ref()
        .and_then(|hold| hold::hold(&mut tasks, live, hold));
    if options.hooks && options.selection.is_empty() {
        tasks.extend(hook_tasks(hooks, options)?);
    }
    tasks.extend(namespace_task(resources, &tasks, options));
    let prune_waves = mirror_prune_waves(&mut tasks, &options.prune_waves);
    prune_last(&mut tasks);
    let defined_kinds = resources
        .iter()
        .filter_map(|resource| defined_kind(&resource.key, resource.desired.as_deref()))
        .map(|(group, kind)| (group.to_owned(), kind.to_owned()))
        .collect();
    Ok(Plan {
        tasks: arrange(tasks),
        dry_run: options.dry_run,
        namespace: options.namespace.clone(),
        defined_kinds,
        held,
        prune_waves,
    })
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
}
