//! A plan as a table for people.

use std::fmt;

use serde::Serialize;

use super::{Action, Plan, Task};
use crate::options::Removal;
use crate::phase::Phase;

impl Plan {
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
