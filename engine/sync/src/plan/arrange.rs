//! The order of the tasks: mirrored, moved to the end, sorted, pulled forward, numbered.

use std::collections::HashMap;

use argosy_object::{ResourceKey, Value, meta};

use super::{Task, TaskId};
use crate::phase::Phase;

/// What was applied first is deleted last: the waves of the prune tasks are swapped symmetrically around their middle.
pub(super) fn mirror_prune_waves(tasks: &mut [Task]) {
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

/// Phase, wave, kind, name.
pub(super) fn sort(tasks: &mut [Task]) {
    tasks.sort_by(|a, b| {
        (a.phase, a.wave, a.rank, &a.key.name, &a.key).cmp(&(b.phase, b.wave, b.rank, &b.key.name, &b.key))
    });
}

/// Moves each task that defines something in front of the first task that needs it, if that one comes earlier.
pub(super) fn pull_forward<K: std::hash::Hash + Eq>(
    tasks: &mut Vec<Task>,
    defines: fn(&Task) -> Option<K>,
    needs: fn(&Task) -> Option<K>,
) {
    let mut ordered: Vec<Task> = Vec::with_capacity(tasks.len());
    let mut first_need: HashMap<K, usize> = HashMap::new();
    for mut task in tasks.drain(..) {
        if task.desired.is_none() {
            ordered.push(task);
            continue;
        }
        if let Some(defined) = defines(&task) {
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

pub(super) fn is_namespace(key: &ResourceKey) -> bool {
    key.group.is_empty() && key.kind == "Namespace"
}

pub(super) fn needed_namespace(task: &Task) -> Option<String> {
    is_namespace(&task.key).then(|| task.key.name.clone())
}

pub(super) fn namespace_of(task: &Task) -> Option<String> {
    (!task.key.namespace.is_empty()).then(|| task.key.namespace.clone())
}

/// The kind that an object of this key defines. The key is asked first: it is at hand.
pub(super) fn defined_kind(key: &ResourceKey, object: Option<&Value>) -> Option<(String, String)> {
    if key.kind != "CustomResourceDefinition" {
        return None;
    }
    let object = object.filter(|object| meta::is_crd(object))?;
    let group = meta::field(object, &["spec", "group"])?.as_str()?;
    let kind = meta::field(object, &["spec", "names", "kind"])?.as_str()?;
    Some((group.to_owned(), kind.to_owned()))
}

pub(super) fn kind_from(task: &Task) -> Option<(String, String)> {
    defined_kind(&task.key, task.desired.as_deref())
}

pub(super) fn kind_of(task: &Task) -> Option<(String, String)> {
    Some((task.key.group.clone(), task.key.kind.clone()))
}

/// Gives every task its id and, inside its wave, a rank that grows with the order, also where something was pulled forward.
pub(super) fn number(tasks: &mut [Task]) {
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
