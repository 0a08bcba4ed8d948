//! The order of the tasks: mirrored, moved to the end; then sorted, pulled forward and numbered ([`arrange`]).

use std::collections::HashMap;

use argosy_object::{ResourceKey, Value, meta};

use super::{Task, TaskId};
use crate::phase::Phase;

/// What was applied first is deleted last: the waves of the prune tasks are swapped symmetrically around their middle. `before` are the
/// waves of what this attempt has to delete or has deleted already; returns all of them.
pub(super) fn mirror_prune_waves(tasks: &mut [Task], before: &[i64]) -> Vec<i64> {
    let mut waves: Vec<i64> = tasks
        .iter()
        .filter(|task| task.action.is_prune())
        .map(|task| task.wave)
        .chain(before.iter().copied())
        .collect();
    waves.sort_unstable();
    waves.dedup();
    let mirrored: HashMap<i64, i64> = waves.iter().copied().zip(waves.iter().rev().copied()).collect();
    for task in tasks.iter_mut().filter(|task| task.action.is_prune()) {
        task.wave = mirrored[&task.wave];
    }
    waves
}

/// Those that come last: one wave after everything else.
pub(super) fn prune_last(tasks: &mut [Task]) {
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

/// The tasks in the order in which they run, numbered.
pub(super) fn arrange(tasks: Vec<Task>) -> Vec<Task> {
    let mut order = sorted(&tasks);
    pull_forward(&mut order, &tasks, needed_namespace, namespace_of);
    pull_forward(&mut order, &tasks, kind_from, kind_of);
    number(tasks, &order)
}

/// Where a task runs. Tasks are large, so their places are sorted and moved about, and each task is moved once.
#[derive(Clone, Copy)]
struct Place {
    phase: Phase,
    wave: i64,
    rank: u32,
    task: usize,
}

/// Phase, wave, kind, name.
fn sorted(tasks: &[Task]) -> Vec<Place> {
    let places = tasks.iter().enumerate().map(|(index, task)| Place {
        phase: task.phase,
        wave: task.wave,
        rank: task.rank,
        task: index,
    });
    let mut order: Vec<Place> = places.collect();
    order.sort_unstable_by(|a, b| {
        let (one, other) = (&tasks[a.task].key, &tasks[b.task].key);
        (a.phase, a.wave, a.rank)
            .cmp(&(b.phase, b.wave, b.rank))
            .then_with(|| (&one.name, one, a.task).cmp(&(&other.name, other, b.task)))
    });
    order
}

/// Moves each task that defines something in front of the first task that needs it, if that one comes earlier.
fn pull_forward<'t, K: std::hash::Hash + Eq>(
    order: &mut Vec<Place>,
    tasks: &'t [Task],
    defines: impl Fn(&'t Task) -> Option<K>,
    needs: impl Fn(&'t Task) -> Option<K>,
) {
    let mut ordered: Vec<Place> = Vec::with_capacity(order.len());
    let mut first_need: HashMap<K, usize> = HashMap::new();
    for mut place in order.drain(..) {
        let task = &tasks[place.task];
        if task.desired.is_none() {
            ordered.push(place);
            continue;
        }
        if let Some(defined) = defines(task) {
            if let Some(&needed) = first_need.get(&defined) {
                place.phase = ordered[needed].phase;
                place.wave = ordered[needed].wave;
                ordered.insert(needed, place);
                first_need
                    .values_mut()
                    .filter(|index| **index >= needed)
                    .for_each(|index| *index += 1);
                continue;
            }
        } else if let Some(needed) = needs(task) {
            first_need.entry(needed).or_insert(ordered.len());
        }
        ordered.push(place);
    }
    *order = ordered;
}

/// The tasks at their places. Each gets its id and, inside its wave, a rank that grows with the order, also where something
/// was pulled forward.
fn number(tasks: Vec<Task>, order: &[Place]) -> Vec<Task> {
    let mut waiting: Vec<Option<Task>> = tasks.into_iter().map(Some).collect();
    let mut rank = 0;
    let mut previous: Option<Place> = None;
    let mut numbered = Vec::with_capacity(order.len());
    for place in order {
        rank = match previous {
            Some(before) if (before.phase, before.wave) != (place.phase, place.wave) => 0,
            Some(before) if before.rank == place.rank => rank,
            Some(_) => rank + 1,
            None => 0,
        };
        previous = Some(*place);
        numbered.extend(waiting[place.task].take().map(|task| Task {
            id: TaskId(numbered.len() as u32),
            phase: place.phase,
            wave: place.wave,
            rank,
            ..task
        }));
    }
    numbered
}

pub(super) fn is_namespace(key: &ResourceKey) -> bool {
    key.group.is_empty() && key.kind == "Namespace"
}

fn needed_namespace(task: &Task) -> Option<&str> {
    is_namespace(&task.key).then_some(task.key.name.as_str())
}

fn namespace_of(task: &Task) -> Option<&str> {
    Some(task.key.namespace.as_str()).filter(|namespace| !namespace.is_empty())
}

/// The kind that an object of this key defines, as (group, kind). The key is asked first: it is at hand.
pub(super) fn defined_kind<'o>(key: &ResourceKey, object: Option<&'o Value>) -> Option<(&'o str, &'o str)> {
    if key.kind != "CustomResourceDefinition" {
        return None;
    }
    let object = object.filter(|object| meta::is_crd(object))?;
    let group = meta::field(object, &["spec", "group"])?.as_str()?;
    let kind = meta::field(object, &["spec", "names", "kind"])?.as_str()?;
    Some((group, kind))
}

fn kind_from(task: &Task) -> Option<(&str, &str)> {
    defined_kind(&task.key, task.desired.as_deref())
}

fn kind_of(task: &Task) -> Option<(&str, &str)> {
    Some((&task.key.group, &task.key.kind))
}
