//! One look at a running sync: what is the next step?

use argosy_health::Status;
use argosy_object::meta;

use super::{Observations, Present, Progress, Reason, Seen, Step, Wait, WaitOn};
use crate::hook::{self, DeletePolicy};
use crate::options::Removal;
use crate::phase::{OperationPhase, Phase};
use crate::plan::{Action, Plan, Task, TaskId};
use crate::result::ResultCode;

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
