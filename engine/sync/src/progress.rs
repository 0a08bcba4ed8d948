//! The next step of a running sync.
//!
//! [`next()`] looks at the plan, at what has been done ([`Progress`]) and at what is seen in the cluster
//! ([`Observations`]) and answers with one [`Step`]. The caller does it, tells the outcome with [`Progress::record`], and
//! asks again: at once after a write, and whenever an object it waits for changes. Asking more often changes nothing.
//!
//! A wave goes: old hooks away, prune, apply rank after rank; then, if another wave follows or hooks are in it, wait for
//! health, for hooks and for what is being deleted. A failure stops after its wave: failure hooks, then the end.

mod pass;

use std::collections::{HashMap, HashSet};

use argosy_health::Health;
use argosy_object::{ResourceKey, Value, meta};

use crate::hook::{self, HookType};
use crate::phase::{OperationPhase, Phase};
use crate::plan::{Action, Plan, Task, TaskId};
use crate::result::{ResourceResult, ResultCode, images};

pub use pass::next;

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Check that these could be applied, without changing anything. Outcomes: [`Outcome::Applied`] or [`Outcome::Failed`] for
    /// each, then [`Progress::checked`].
    DryRun(Vec<TaskId>),
    /// Write these, side by side. Outcomes: `Applied` or `Failed`.
    Apply(Vec<TaskId>),
    /// Delete these, side by side. Outcomes: `Pruned`, `Spared` or `Failed`.
    Prune(Vec<TaskId>),
    /// Take the hook finalizer off these. Outcomes: `Released` or `RemovalFailed`.
    Release(Vec<TaskId>),
    /// Delete these hook objects. Outcomes: `Deleted` or `RemovalFailed`.
    DeleteHooks(Vec<TaskId>),
    /// Let other controllers see what was written before their answer is read: wait the configured delay, then ask again.
    Pause {
        /// The phase just written.
        phase: Phase,
        /// The wave just written.
        wave: i64,
    },
    /// Nothing to do until one of these objects changes, or the confirmation arrives.
    Wait(Wait),
    /// The end.
    Done {
        /// `Succeeded`, `Failed` or `Error`.
        phase: OperationPhase,
        /// For people.
        message: String,
    },
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// The text of the operation meanwhile.
    pub message: String,
    /// Every object that is waited for.
    pub on: Vec<WaitOn>,
}

/// One object that is waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitOn {
    /// Its task.
    pub task: TaskId,
    /// The object.
    pub key: ResourceKey,
    /// Why.
    pub reason: Reason,
    /// What its health says, if it says anything.
    pub detail: String,
}

/// Why an object is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A hook runs.
    Hook,
    /// The next wave needs it healthy.
    Health,
    /// It is being deleted.
    Deletion,
    /// A person must approve its deletion.
    Confirmation,
}

/// What was seen of the objects of the tasks. A task without an entry is not known about: it neither fails nor goes on.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    /// By task.
    pub seen: HashMap<TaskId, Seen>,
    /// A person has approved the deletions that need it, since the operation started.
    pub prune_confirmed: bool,
}

impl Observations {
    fn present(&self, id: TaskId) -> Option<&Present> {
        match self.seen.get(&id) {
            Some(Seen::Present(present)) => Some(present),
            _ => None,
        }
    }
}

/// What was seen of one object.
#[derive(Clone, Debug)]
pub enum Seen {
    /// It certainly does not exist.
    Absent,
    /// It exists.
    Present(Present),
}

/// What matters about a live object.
#[derive(Clone, Debug, Default)]
pub struct Present {
    /// Its health; `None` for kinds that have none.
    pub health: Option<Health>,
    /// It is on its way out.
    pub deleting: bool,
    /// It carries the hook finalizer.
    pub held: bool,
    /// The run it was created by, for hooks.
    pub run: Option<String>,
}

impl Seen {
    /// A live object with its health.
    pub fn live(object: &Value, health: Option<Health>) -> Seen {
        Seen::Present(Present {
            health,
            deleting: meta::deletion_timestamp(object).is_some(),
            held: hook::has_finalizer(object),
            run: meta::annotation(object, hook::RUN_ANNOTATION).map(str::to_owned),
        })
    }
}

/// How something ended that a [`Step`] asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Written (or, in a dry run, could be); the text says how.
    Applied(String),
    /// Deletion was accepted, or there was nothing left to delete.
    Pruned,
    /// It may not be deleted any longer; the text says why.
    Spared(String),
    /// The finalizer is off.
    Released,
    /// Deletion of the hook was accepted, or it was gone.
    Deleted,
    /// The write was refused; the text says why.
    Failed(String),
    /// The finalizer could not be taken off, or the hook not be deleted.
    RemovalFailed(String),
}

/// What has been done so far. Rebuilt from the results in the operation's state with [`Progress::resume`].
#[derive(Clone, Debug, Default)]
pub struct Progress {
    results: Vec<ResourceResult>,
    index: HashMap<(ResourceKey, Phase), usize>,
    /// The dry run is behind us.
    checked: bool,
    dry_run_failed: bool,
    /// The wave that is being written.
    step: Option<(Phase, i64)>,
    /// The wave `step` is written completely and what follows from that has been decided.
    closed: bool,
    terminating: bool,
    termination_failed: bool,
    released: HashSet<TaskId>,
    deleted: HashSet<TaskId>,
    done: Option<(OperationPhase, String)>,
}

impl Progress {
    /// Nothing done yet.
    pub fn new() -> Self {
        Progress::default()
    }

    /// Goes on where the results of the operation's state end. If there are any, the dry run has been done.
    pub fn resume(results: Vec<ResourceResult>) -> Self {
        let index = results
            .iter()
            .enumerate()
            .map(|(index, result)| ((result.key.clone(), result.sync_phase), index))
            .collect();
        Progress {
            checked: !results.is_empty(),
            results,
            index,
            ..Progress::default()
        }
    }

    /// The results in the order in which they first came.
    pub fn results(&self) -> &[ResourceResult] {
        &self.results
    }

    /// True while a wave is only partly written: nothing is waited for, so nobody's health matters.
    pub fn is_writing(&self, plan: &Plan) -> bool {
        let open = self.step.filter(|_| !self.closed);
        open.is_some_and(|step| {
            let left = |task: &&Task| (task.phase, task.wave) == step && task.action.is_apply();
            plan.tasks.iter().filter(left).any(|task| self.is_pending(task))
        })
    }

    /// Asks for the end: running hooks are removed.
    pub fn terminate(&mut self) {
        if self.done.is_none() && !self.terminating {
            self.terminating = true;
            self.released.clear();
            self.deleted.clear();
        }
    }

    /// Notes how something ended that a step asked for.
    pub fn record(&mut self, plan: &Plan, id: TaskId, outcome: Outcome) {
        let task = plan.task(id);
        if !self.checked && !self.is_namespace_first(plan, task) {
            return self.record_check(plan, task, outcome);
        }
        match outcome {
            Outcome::Applied(message) => {
                self.released.remove(&id);
                self.deleted.remove(&id);
                self.set(
                    task,
                    Some(ResultCode::Synced),
                    Some(OperationPhase::Running),
                    &message,
                );
            }
            Outcome::Pruned => self.set(
                task,
                Some(ResultCode::Pruned),
                Some(OperationPhase::Succeeded),
                "pruned",
            ),
            Outcome::Spared(message) => self.set(
                task,
                Some(ResultCode::PruneSkipped),
                Some(OperationPhase::Succeeded),
                &message,
            ),
            Outcome::Released => {
                self.released.insert(id);
            }
            Outcome::Deleted => {
                self.deleted.insert(id);
            }
            Outcome::Failed(message) => {
                self.set(
                    task,
                    Some(ResultCode::SyncFailed),
                    Some(OperationPhase::Failed),
                    &message,
                );
            }
            Outcome::RemovalFailed(message) => {
                self.released.insert(id);
                self.deleted.insert(id);
                self.termination_failed |= self.terminating;
                let status = self.status(task);
                self.set(task, status, Some(OperationPhase::Error), &message);
            }
        }
    }

    /// The removal of the object, or of its finalizer, was asked for and the object has not been written since.
    fn asked_removal(&self, task: &Task) -> bool {
        self.released.contains(&task.id) || self.deleted.contains(&task.id)
    }

    fn record_check(&mut self, plan: &Plan, task: &Task, outcome: Outcome) {
        match outcome {
            Outcome::Failed(message) => {
                self.dry_run_failed = true;
                self.set(
                    task,
                    Some(ResultCode::SyncFailed),
                    Some(OperationPhase::Failed),
                    &message,
                );
            }
            Outcome::Applied(message) if plan.dry_run => self.set(
                task,
                Some(ResultCode::Synced),
                Some(OperationPhase::Succeeded),
                &message,
            ),
            _ => {}
        }
    }

    fn is_namespace_first(&self, plan: &Plan, task: &Task) -> bool {
        !plan.dry_run && plan.namespace_task().is_some_and(|first| first.id == task.id)
    }

    /// Ends the dry run: its outcomes have been recorded.
    pub fn checked(&mut self, plan: &Plan) {
        self.checked = true;
        if !plan.dry_run {
            return;
        }
        for task in &plan.tasks {
            let (code, message) = match task.action {
                Action::Prune => (ResultCode::Pruned, "pruned (dry run)"),
                Action::SkipPruneUnasked => (ResultCode::PruneSkipped, "ignored (requires pruning)"),
                Action::SkipPruneForbidden => (ResultCode::PruneSkipped, "ignored (no prune)"),
                Action::Apply | Action::Hook | Action::CreateNamespace | Action::Observe => continue,
            };
            self.set(task, Some(code), Some(OperationPhase::Succeeded), message);
        }
    }

    /// Ends the operation before it began: these tasks may not run.
    pub fn reject(&mut self, plan: &Plan, invalid: &[crate::plan::Invalid]) -> (OperationPhase, String) {
        let mut messages: Vec<&str> = invalid
            .iter()
            .map(|one| one.message.as_str())
            .filter(|message| !message.is_empty())
            .collect();
        messages.sort_unstable();
        messages.dedup();
        for one in invalid {
            self.set(
                plan.task(one.task),
                Some(ResultCode::SyncFailed),
                None,
                &one.message,
            );
        }
        let head = "one or more synchronization tasks are not valid";
        let message = if messages.is_empty() {
            head.to_owned()
        } else {
            format!("{head}: {}", messages.join("; "))
        };
        self.done = Some((OperationPhase::Failed, message.clone()));
        (OperationPhase::Failed, message)
    }

    fn enter(&mut self, step: (Phase, i64)) {
        self.closed = self.closed && self.step == Some(step);
        self.step = Some(step);
    }

    fn result(&self, task: &Task) -> Option<&ResourceResult> {
        self.index
            .get(&(task.key.clone(), task.phase))
            .map(|index| &self.results[*index])
    }

    /// The state of a task; `None` before it has run.
    pub fn phase(&self, task: &Task) -> Option<OperationPhase> {
        self.result(task)?.phase
    }

    fn status(&self, task: &Task) -> Option<ResultCode> {
        self.result(task)?.status
    }

    fn is_pending(&self, task: &Task) -> bool {
        self.phase(task).is_none()
    }

    fn failed(&self, task: &Task) -> bool {
        self.phase(task)
            .is_some_and(|phase| phase.completed() && !phase.successful())
    }

    /// Writes down a result; an empty message keeps the one before.
    fn set(&mut self, task: &Task, status: Option<ResultCode>, phase: Option<OperationPhase>, message: &str) {
        let place = (task.key.clone(), task.phase);
        let results = &mut self.results;
        let index = *self.index.entry(place).or_insert_with(|| {
            let object = task.desired.as_deref().or(task.live.as_deref());
            results.push(ResourceResult {
                key: task.key.clone(),
                version: task.gvk.version.clone(),
                status: None,
                message: String::new(),
                hook: task.is_hook().then(|| HookType::from(task.phase)),
                phase: None,
                sync_phase: task.phase,
                images: object.map(images).unwrap_or_default(),
            });
            results.len() - 1
        });
        let result = &mut results[index];
        result.status = status;
        result.phase = phase;
        if !message.is_empty() {
            message.clone_into(&mut result.message);
        }
    }
}
