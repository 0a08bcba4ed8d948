//! The next step of a running sync.
//!
//! [`next()`] looks at the plan, at what has been done ([`Progress`]) and at what is seen in the cluster
//! ([`Observations`]) and answers with one [`Step`]. The caller does it, tells the outcome with [`Progress::record`], and
//! asks again: at once after a write, and whenever an object it waits for changes. Asking more often changes nothing.
//!
//! A wave goes: old hooks away, prune, apply rank after rank; then, if another wave follows or hooks are in it, wait for
//! health, for hooks and for what is being deleted. A failure stops after its wave: failure hooks, then the end.

use std::collections::{HashMap, HashSet};

use argosy_health::{Health, Status};
use argosy_object::{ResourceKey, Value, meta};

use crate::hook::{self, DeletePolicy, HookType};
use crate::options::Removal;
use crate::phase::{OperationPhase, Phase};
use crate::plan::{Action, Plan, Task, TaskId};
use crate::result::{ResourceResult, ResultCode, images};

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Check that these could be applied, without changing anything. Outcomes: [`Outcome::Applied`] or [`Outcome::Failed`] for
    /// each, then [`Progress::checked`].
    DryRun(Vec<TaskId>),
    /// Write these, side by side. Outcomes: `Applied` or `Failed`.
    Apply(Vec<TaskId>),
    /// Delete these, side by side. Outcomes: `Pruned` or `Failed`.
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

/// The next step. Notes in `progress` what the observations mean for tasks that are running.
pub fn next(plan: &Plan, progress: &mut Progress, seen: &Observations) -> Step {
    if let Some((phase, message)) = progress.done.clone() {
        return Step::Done { phase, message };
    }
    let mut pass = Pass { plan, progress, seen };
    pass.adopt();
    if pass.progress.terminating {
        pass.settle();
        return pass.terminate();
    }
    None.or_else(|| pass.check())
        .or_else(|| pass.continue_wave())
        .or_else(|| pass.close_wave())
        .or_else(|| pass.settle())
        .or_else(|| pass.wait_for_running())
        .or_else(|| pass.wait_for_deletion())
        .or_else(|| pass.release_completed())
        .or_else(|| pass.fail())
        .or_else(|| pass.start_wave())
        .unwrap_or_else(|| pass.succeed("successfully synced (no more tasks)"))
}

/// One call of [`next()`].
struct Pass<'a> {
    plan: &'a Plan,
    progress: &'a mut Progress,
    seen: &'a Observations,
}

impl Pass<'_> {
    /// A hook of this very run exists although nothing is written down about it: we were stopped in between.
    fn adopt(&mut self) {
        let plan = self.plan;
        for task in plan.tasks.iter().filter(|task| task.is_hook()) {
            let Some(own) = task
                .desired
                .as_deref()
                .and_then(|desired| meta::annotation(desired, hook::RUN_ANNOTATION))
            else {
                continue;
            };
            let ours = self
                .seen
                .present(task.id)
                .is_some_and(|present| present.run.as_deref() == Some(own));
            if ours && self.progress.is_pending(task) {
                self.progress
                    .set(task, Some(ResultCode::Synced), Some(OperationPhase::Running), "");
            }
        }
    }

    /// What the health of running tasks means. Asked only where a wave has been written and is not the end: what the last
    /// wave applies counts as applied and stays `Running`.
    fn settle(&mut self) -> Option<Step> {
        let (plan, seen) = (self.plan, self.seen);
        let waited = plan.multi_step();
        for task in &plan.tasks {
            if self.progress.phase(task) != Some(OperationPhase::Running)
                || self.progress.deleted.contains(&task.id)
            {
                continue;
            }
            match seen.seen.get(&task.id) {
                Some(Seen::Absent) if waited || task.is_hook() => self.lose(task),
                // Somebody deletes a hook that has not come to its end: its result will never be known.
                Some(Seen::Present(present))
                    if task.is_hook() && present.deleting && finished(present, true).is_none() =>
                {
                    self.lose(task);
                }
                Some(Seen::Present(present)) => self.settle_one(task, present),
                _ => {}
            }
        }
        None
    }

    fn settle_one(&mut self, task: &Task, present: &Present) {
        let status = self.progress.status(task);
        match finished(present, task.is_hook()) {
            Some((phase, message)) if task.is_hook() => {
                // Only a kind without health has no word of its own about how it went.
                let none = if present.health.is_none() {
                    format!("{} created", task.key.name)
                } else {
                    String::new()
                };
                self.progress
                    .set(task, status, Some(phase), &message.unwrap_or(none));
            }
            Some((phase, message)) => {
                self.progress
                    .set(task, status, Some(phase), &message.unwrap_or_default())
            }
            None if task.is_hook() => {
                let message = present
                    .health
                    .as_ref()
                    .map(|health| health.message.clone())
                    .unwrap_or_default();
                self.progress
                    .set(task, status, Some(OperationPhase::Running), &message);
            }
            None => {}
        }
    }

    fn lose(&mut self, task: &Task) {
        let message = format!("Resource {} is missing, it might have been deleted", task.label());
        self.progress.set(
            task,
            Some(ResultCode::SyncFailed),
            Some(OperationPhase::Error),
            &message,
        );
    }

    /// Before anything else once in an operation: the Namespace, without which much cannot be checked, then a dry run of all.
    fn check(&mut self) -> Option<Step> {
        if self.progress.checked {
            return self.check_end();
        }
        let plan = self.plan;
        if !plan.dry_run
            && let Some(task) = plan.namespace_task()
        {
            if self.progress.is_pending(task) {
                return Some(Step::Apply(vec![task.id]));
            }
            if self.progress.failed(task) {
                return self.fail();
            }
        }
        let checkable =
            |task: &&Task| task.action.is_apply() && !task.unchecked && self.progress.is_pending(task);
        let tasks = ids(self.plan.tasks.iter().filter(checkable));
        if tasks.is_empty() {
            self.progress.checked(self.plan);
            return self.check_end();
        }
        Some(Step::DryRun(tasks))
    }

    fn check_end(&mut self) -> Option<Step> {
        if self.progress.dry_run_failed {
            return Some(self.end(
                OperationPhase::Failed,
                "one or more objects failed to apply (dry run)",
            ));
        }
        self.plan
            .dry_run
            .then(|| self.end(OperationPhase::Succeeded, "successfully synced (no more tasks)"))
    }

    /// The rest of the wave that is being written, failures in it or not.
    fn continue_wave(&mut self) -> Option<Step> {
        let step = self.progress.step.filter(|_| !self.progress.closed)?;
        self.write_wave(step)
    }

    /// What remains to be written in a wave; `None` if nothing does.
    fn write_wave(&mut self, step: (Phase, i64)) -> Option<Step> {
        let plan = self.plan;
        let tasks = || {
            plan.tasks
                .iter()
                .filter(move |task| (task.phase, task.wave) == step)
        };
        // Nothing is created on top of what could not be removed.
        let removed = |task: &Task| task.action.is_prune() || self.progress.asked_removal(task);
        if step.0 != Phase::SyncFail && tasks().any(|task| self.progress.failed(task) && removed(task)) {
            return None;
        }
        if let Some(step) = self.clear_old_hooks(tasks) {
            return Some(step);
        }
        if let Some(step) = self.prune(tasks) {
            return Some(step);
        }
        let pending = |task: &&Task| task.action.is_apply() && self.progress.is_pending(task);
        let rank = tasks().filter(pending).map(|task| task.rank).min()?;
        Some(Step::Apply(ids(tasks()
            .filter(pending)
            .filter(|task| task.rank == rank))))
    }

    /// Hooks of an earlier sync that stand where this wave creates its own.
    fn clear_old_hooks<'t, I: Iterator<Item = &'t Task>>(&self, tasks: impl Fn() -> I) -> Option<Step> {
        let old = |task: &&Task| {
            task.is_hook() && self.progress.is_pending(task) && self.seen.present(task.id).is_some()
        };
        let held = |task: &&Task| self.seen.present(task.id).is_some_and(|present| present.held);
        let deleting = |task: &&Task| self.seen.present(task.id).is_some_and(|present| present.deleting);
        let release = ids(tasks()
            .filter(old)
            .filter(held)
            .filter(|task| !self.progress.released.contains(&task.id)));
        if !release.is_empty() {
            return Some(Step::Release(release));
        }
        let replaced = |task: &&Task| task.hook_deleted(DeletePolicy::BeforeHookCreation);
        let delete = ids(tasks()
            .filter(old)
            .filter(replaced)
            .filter(|task| !deleting(task) && !self.progress.deleted.contains(&task.id)));
        if !delete.is_empty() {
            return Some(Step::DeleteHooks(delete));
        }
        // One that is already on its way out cannot be applied over, whatever its policy.
        let going: Vec<&Task> = tasks()
            .filter(old)
            .filter(|task| replaced(task) || deleting(task))
            .collect();
        (!going.is_empty()).then(|| Step::Wait(self.wait(&going, Reason::Deletion)))
    }

    fn prune<'t, I: Iterator<Item = &'t Task>>(&mut self, tasks: impl Fn() -> I) -> Option<Step> {
        for task in tasks() {
            let message = match task.action {
                Action::SkipPruneUnasked => "ignored (requires pruning)",
                Action::SkipPruneForbidden => "ignored (no prune)",
                _ => continue,
            };
            if self.progress.is_pending(task) {
                self.progress.set(
                    task,
                    Some(ResultCode::PruneSkipped),
                    Some(OperationPhase::Succeeded),
                    message,
                );
            }
        }
        let pending: Vec<&Task> = tasks()
            .filter(|task| task.action == Action::Prune && self.progress.is_pending(task))
            .collect();
        let unconfirmed: Vec<&Task> = pending
            .iter()
            .copied()
            .filter(|task| task.options.prune == Removal::Confirm)
            .collect();
        if !unconfirmed.is_empty() && !self.seen.prune_confirmed {
            return Some(Step::Wait(self.wait(&unconfirmed, Reason::Confirmation)));
        }
        (!pending.is_empty()).then(|| Step::Prune(ids(pending.into_iter())))
    }

    /// The wave has been written: what follows from that.
    fn close_wave(&mut self) -> Option<Step> {
        let (phase, wave) = self.progress.step.filter(|_| !self.progress.closed)?;
        let plan = self.plan;
        let tasks = || {
            plan.tasks
                .iter()
                .filter(|task| (task.phase, task.wave) == (phase, wave))
        };
        let failed = tasks().any(|task| self.progress.failed(task));
        let last = !plan.tasks.iter().any(|task| self.remaining(task));
        if last && !failed && phase != Phase::SyncFail && !tasks().any(Task::is_hook) {
            return Some(self.succeed("successfully synced (all tasks run)"));
        }
        self.progress.closed = true;
        (!last && !failed && phase != Phase::SyncFail).then_some(Step::Pause { phase, wave })
    }

    fn wait_for_running(&mut self) -> Option<Step> {
        // What has failed will not be healed by waiting for the health of something else; hooks must be seen to their end.
        let health_counts = self.plan.multi_step() && !self.any_failed();
        let running: Vec<&Task> = self
            .plan
            .tasks
            .iter()
            .filter(|task| {
                self.progress.phase(task) == Some(OperationPhase::Running)
                    && (task.is_hook() || health_counts)
            })
            .collect();
        (!running.is_empty()).then(|| Step::Wait(self.wait(&running, Reason::Health)))
    }

    fn wait_for_deletion(&mut self) -> Option<Step> {
        if self.any_failed() {
            return None;
        }
        let pruned =
            |task: &&Task| self.progress.status(task) == Some(ResultCode::Pruned) && !self.plan.dry_run;
        let going = |task: &&Task| self.seen.present(task.id).is_some_and(|present| present.deleting);
        let tasks: Vec<&Task> = self.plan.tasks.iter().filter(pruned).filter(going).collect();
        (!tasks.is_empty()).then(|| Step::Wait(self.wait(&tasks, Reason::Deletion)))
    }

    fn release_completed(&mut self) -> Option<Step> {
        let completed =
            |task: &&Task| task.is_hook() && self.progress.phase(task).is_some_and(OperationPhase::completed);
        let held = |task: &&Task| {
            self.seen.present(task.id).is_some_and(|present| present.held)
                && !self.progress.released.contains(&task.id)
        };
        let tasks = ids(self.plan.tasks.iter().filter(completed).filter(held));
        (!tasks.is_empty()).then_some(Step::Release(tasks))
    }

    /// Something failed: failure hooks, then the end.
    fn fail(&mut self) -> Option<Step> {
        if !self.any_failed() {
            return None;
        }
        if let Some(step) = self.delete_completed_hooks(DeletePolicy::HookFailed) {
            return Some(step);
        }
        let plan = self.plan;
        let first = plan
            .tasks
            .iter()
            .find(|task| task.phase == Phase::SyncFail && self.progress.is_pending(task));
        if let Some(task) = first {
            let step = (task.phase, task.wave);
            self.progress.enter(step);
            return self.write_wave(step);
        }
        let mut message = reasons(
            self.failure(),
            self.plan
                .tasks
                .iter()
                .filter(|task| task.phase != Phase::SyncFail && self.refused(task)),
            self.progress,
        );
        let mut hooks = self
            .plan
            .tasks
            .iter()
            .filter(|task| task.phase == Phase::SyncFail && self.refused(task))
            .peekable();
        if hooks.peek().is_some() {
            message = format!(
                "{message}\n{}",
                reasons("one or more SyncFail hooks failed", hooks, self.progress)
            );
        }
        Some(self.end(OperationPhase::Failed, message))
    }

    /// What is said first about a failure: whether anything at all of the wave that stopped was applied.
    fn failure(&self) -> &'static str {
        let plan = self.plan;
        if plan.namespace_task().is_some_and(|task| self.refused(task)) {
            return "the namespace failed to apply";
        }
        let refused = plan
            .tasks
            .iter()
            .find(|task| task.phase != Phase::SyncFail && self.refused_write(task));
        let wave = |task: &&Task| {
            refused.is_some_and(|refused| (task.phase, task.wave) == (refused.phase, refused.wave))
        };
        let applied = |task: &Task| self.progress.status(task) == Some(ResultCode::Synced);
        if refused.is_some() && !plan.tasks.iter().filter(wave).any(applied) {
            "one or more objects failed to apply"
        } else {
            "one or more synchronization tasks completed unsuccessfully"
        }
    }

    /// The next wave, once what earlier waves left in sync is healthy too.
    fn start_wave(&mut self) -> Option<Step> {
        let (plan, seen) = (self.plan, self.seen);
        let first = plan.tasks.iter().find(|task| self.remaining(task))?;
        let step = (first.phase, first.wave);
        let before = |task: &&Task| task.action == Action::Observe && (task.phase, task.wave) < step;
        let mut unhealthy = Vec::new();
        for task in plan.tasks.iter().filter(before) {
            let Some(present) = seen.present(task.id) else {
                continue;
            };
            match finished(present, false) {
                Some((OperationPhase::Failed, message)) => {
                    self.progress.set(
                        task,
                        Some(ResultCode::Synced),
                        Some(OperationPhase::Failed),
                        &message.unwrap_or_default(),
                    );
                }
                None => unhealthy.push(task),
                Some(_) => {}
            }
        }
        if self.any_failed() {
            return self.fail();
        }
        if !unhealthy.is_empty() {
            return Some(Step::Wait(self.wait(&unhealthy, Reason::Health)));
        }
        self.progress.enter(step);
        let next = self.write_wave(step);
        // A wave of nothing but skipped deletions has nothing to write: go on behind it.
        next.or_else(|| self.close_wave()).or_else(|| self.start_wave())
    }

    /// Running hooks are removed, and the operation ends.
    fn terminate(&mut self) -> Step {
        let (plan, seen) = (self.plan, self.seen);
        let hooks = || {
            plan.tasks
                .iter()
                .filter(|task| task.is_hook() && seen.present(task.id).is_some())
        };
        let running = |task: &Task| self.progress.phase(task) == Some(OperationPhase::Running);
        let ended = |task: &Task| self.progress.phase(task).is_some_and(OperationPhase::completed);
        let held = |task: &Task| self.seen.present(task.id).is_some_and(|present| present.held);
        let release = ids(hooks().filter(|task| {
            (running(task) || ended(task)) && held(task) && !self.progress.released.contains(&task.id)
        }));
        if !release.is_empty() {
            return Step::Release(release);
        }
        let unwanted =
            |task: &Task| running(task) || (ended(task) && task.hook_deleted(DeletePolicy::HookFailed));
        let delete = ids(hooks().filter(|task| unwanted(task) && !self.progress.deleted.contains(&task.id)));
        if !delete.is_empty() {
            return Step::DeleteHooks(delete);
        }
        for task in plan.tasks.iter().filter(|task| task.is_hook()) {
            if self.progress.phase(task) == Some(OperationPhase::Running) {
                let status = self.progress.status(task);
                self.progress
                    .set(task, status, Some(OperationPhase::Failed), "Terminated");
            }
        }
        match self.progress.termination_failed {
            false => self.end(OperationPhase::Failed, "Operation terminated"),
            true => self.end(OperationPhase::Error, "Operation termination had errors"),
        }
    }

    fn succeed(&mut self, message: &str) -> Step {
        match self.delete_completed_hooks(DeletePolicy::HookSucceeded) {
            Some(step) => step,
            None => self.end(OperationPhase::Succeeded, message),
        }
    }

    fn delete_completed_hooks(&self, policy: DeletePolicy) -> Option<Step> {
        let due = |task: &&Task| {
            task.hook_deleted(policy)
                && self.progress.phase(task).is_some_and(OperationPhase::completed)
                && self
                    .seen
                    .present(task.id)
                    .is_some_and(|present| !present.deleting)
                && !self.progress.deleted.contains(&task.id)
        };
        let tasks = ids(self.plan.tasks.iter().filter(due));
        (!tasks.is_empty()).then_some(Step::DeleteHooks(tasks))
    }

    fn end(&mut self, phase: OperationPhase, message: impl Into<String>) -> Step {
        let message = message.into();
        self.progress.done = Some((phase, message.clone()));
        Step::Done { phase, message }
    }

    /// Not yet run, and not only for the case of a failure.
    fn remaining(&self, task: &Task) -> bool {
        task.phase != Phase::SyncFail && task.action != Action::Observe && self.progress.is_pending(task)
    }

    fn any_failed(&self) -> bool {
        self.plan
            .tasks
            .iter()
            .any(|task| task.phase != Phase::SyncFail && self.progress.failed(task))
    }

    /// Refused by the API server, not lost later on.
    fn refused_write(&self, task: &Task) -> bool {
        self.refused(task) && self.progress.phase(task) == Some(OperationPhase::Failed)
    }

    fn refused(&self, task: &Task) -> bool {
        self.progress.status(task) == Some(ResultCode::SyncFailed)
    }

    /// The text for a wait: the first hook is named, else the first resource.
    fn wait(&self, tasks: &[&Task], reason: Reason) -> Wait {
        let hooks = tasks.iter().filter(|task| task.is_hook()).count();
        let first = tasks.iter().find(|task| task.is_hook()).unwrap_or(&tasks[0]);
        let waiting_for = match (reason, hooks > 0) {
            (Reason::Confirmation, _) => "pruning confirmation of",
            (Reason::Deletion, true) => "deletion of hook",
            (Reason::Deletion, false) => "deletion of",
            (Reason::Hook | Reason::Health, true) => "completion of hook",
            (Reason::Hook | Reason::Health, false) => "healthy state of",
        };
        let noun = if hooks == tasks.len() {
            "hooks"
        } else {
            "resources"
        };
        let mut message = format!("waiting for {waiting_for} {}", first.label());
        if tasks.len() > 1 {
            message = format!("{message} and {} more {noun}", tasks.len() - 1);
        }
        if let (Reason::Confirmation, Some(held)) = (reason, &self.plan.held) {
            message = format!("{message}: {held}");
        }
        let on = tasks
            .iter()
            .map(|task| WaitOn {
                task: task.id,
                key: task.key.clone(),
                reason: if reason == Reason::Health && task.is_hook() {
                    Reason::Hook
                } else {
                    reason
                },
                detail: self
                    .seen
                    .present(task.id)
                    .and_then(|present| present.health.as_ref())
                    .map(|health| health.message.clone())
                    .unwrap_or_default(),
            })
            .collect();
        Wait { message, on }
    }
}

/// What the health of a live object says about a task: its end and a text, or `None` while it is on its way.
/// A kind without health is done as soon as it exists. Health that cannot be told fails a hook and no resource.
fn finished(present: &Present, hook: bool) -> Option<(OperationPhase, Option<String>)> {
    let Some(health) = &present.health else {
        return Some((OperationPhase::Succeeded, None));
    };
    let message = Some(health.message.clone()).filter(|message| !message.is_empty());
    match health.status {
        Status::Healthy => Some((OperationPhase::Succeeded, message)),
        Status::Degraded => Some((OperationPhase::Failed, message)),
        Status::Unknown if hook => Some((OperationPhase::Failed, message)),
        Status::Progressing | Status::Suspended | Status::Missing | Status::Unknown => None,
    }
}

fn reasons<'t>(head: &str, tasks: impl Iterator<Item = &'t Task>, progress: &Progress) -> String {
    let mut messages: Vec<&str> = Vec::new();
    for task in tasks {
        let message = progress
            .result(task)
            .map(|result| result.message.as_str())
            .unwrap_or_default();
        if !messages.contains(&message) {
            messages.push(message);
        }
    }
    if messages.is_empty() {
        head.to_owned()
    } else {
        format!("{head}, reason: {}", messages.join(","))
    }
}

fn ids<'t>(tasks: impl Iterator<Item = &'t Task>) -> Vec<TaskId> {
    tasks.map(|task| task.id).collect()
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
