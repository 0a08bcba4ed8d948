//! What is to be done to each object, before the order is known.

use std::collections::HashSet;
use std::sync::Arc;

use argosy_object::{GroupVersionKind, ResourceKey, Value, meta};
use serde_json::json;

use super::arrange::is_namespace;
use super::{Action, Options, PlanError, Resource, Task, TaskId};
use crate::hook::{self, Hook, Role};
use crate::options::{self, Removal, SyncOptions, resource_options};
use crate::order::kind_rank;
use crate::phase::Phase;
use crate::wave;

/// A resource that is a hook in what is desired.
pub(super) struct DesiredHook<'r> {
    resource: &'r Resource,
    object: &'r Value,
    hook: Hook,
}

/// What the resources of an Application are to a sync.
pub(super) struct Sorted<'r> {
    /// A task for each that the sync is about.
    pub(super) tasks: Vec<Task>,
    /// The hooks that were met on the way.
    pub(super) hooks: Vec<DesiredHook<'r>>,
    /// How many are live, also of those that this sync is not about.
    pub(super) live: usize,
}

/// Sorts the resources out.
pub(super) fn resource_tasks<'r>(
    resources: &'r [Resource],
    options: &Options,
) -> Result<Sorted<'r>, PlanError> {
    let mut hooks = Vec::new();
    let mut live = 0;
    let mut tasks = Vec::with_capacity(resources.len());
    let mut known = HashSet::new();
    for resource in resources {
        let Some(object) = resource.desired.as_ref().or(resource.live.as_ref()) else {
            return Err(PlanError::Nothing(resource.key.clone()));
        };
        let selected =
            options.selection.is_empty() || options.selection.iter().any(|one| one.matches(&resource.key));
        let role = Role::of(object);
        live += usize::from(role == Role::Resource && resource.live.is_some());
        match role {
            Role::Resource if selected => {}
            // A live object that is marked as a hook is the remains of an earlier sync, not a resource that went missing.
            Role::Hook(hook) => {
                hooks.extend(resource.desired.as_deref().map(|object| DesiredHook {
                    resource,
                    object,
                    hook,
                }));
                continue;
            }
            Role::Resource | Role::Skipped => continue,
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
        if resource.doubtful && own.prune == Removal::Allowed {
            own.prune = Removal::Confirm;
        }
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
    Ok(Sorted { tasks, hooks, live })
}

/// A task for each hook and each phase in which it runs.
pub(super) fn hook_tasks(hooks: Vec<DesiredHook<'_>>, options: &Options) -> Result<Vec<Task>, PlanError> {
    let mut tasks = Vec::new();
    let mut known = HashSet::new();
    for DesiredHook {
        resource,
        object: desired,
        hook,
    } in hooks
    {
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
pub(super) fn namespace_task(resources: &[Resource], tasks: &[Task], options: &Options) -> Option<Task> {
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
