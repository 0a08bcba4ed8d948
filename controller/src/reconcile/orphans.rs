//! Objects in the namespace of an Application that belong to no Application, where its project asks for them.
//!
//! A namespace's objects are read one kind after another; without monitoring in the project nothing is read.

use std::collections::HashSet;
use std::sync::Arc;

use argosy_api::condition::ConditionType;
use argosy_api::project::{self, ignores_orphan, permits_kind};
use argosy_api::v1alpha1::{AppProject, Application, ApplicationCondition};
use argosy_livestate::{Resource, Snapshot};
use argosy_object::ResourceKey;

use super::Compared;
use crate::context::{AppKey, Context};

/// What is asked about.
pub(crate) struct Around<'a> {
    pub project: &'a AppProject,
    /// The Application's namespace in its cluster; without one nothing is an orphan.
    pub namespace: &'a str,
    /// What it manages.
    pub managed: HashSet<ResourceKey>,
    pub snapshot: &'a Snapshot,
}

/// The orphans, and what they own. `is_app` tells instance names of Applications that there are.
pub(crate) fn orphans(around: &Around<'_>, is_app: impl Fn(&str) -> bool) -> Vec<Arc<Resource>> {
    let Some(settings) = &around.project.spec.orphaned_resources else {
        return Vec::new();
    };
    if around.namespace.is_empty() {
        return Vec::new();
    }
    let (snapshot, spec) = (around.snapshot, &around.project.spec);
    let belongs = |resource: &Resource| {
        around.managed.contains(&*resource.key) || snapshot.apps_of(resource).iter().any(|app| is_app(app))
    };
    let mut roots = Vec::new();
    for kind in snapshot.kinds() {
        if !permits_kind(spec, &kind.group, &kind.kind, "", true) {
            continue;
        }
        for resource in snapshot.by_kind_in(&kind, around.namespace) {
            let key = &resource.key;
            let asked = project::Resource {
                group: &key.group,
                kind: &key.kind,
                namespace: &key.namespace,
                name: &key.name,
            };
            let is_root = resource.owners.is_empty() && snapshot.parents(&resource).is_empty();
            if is_root && !belongs(&resource) && !ignores_orphan(settings, asked) {
                roots.push(resource);
            }
        }
    }
    let mut seen = HashSet::new();
    let all = roots.iter().flat_map(|root| snapshot.descendants(root));
    all.filter(|resource| !belongs(resource) && seen.insert(resource.key.clone()))
        .collect()
}

/// The condition that tells how many there are.
pub(crate) fn warning(ctx: &Context, app: &Application, compared: &Compared) -> Option<ApplicationCondition> {
    let settings = compared.project.spec.orphaned_resources.as_ref()?;
    if settings.warn == Some(false) {
        return None;
    }
    let managed = compared.resources.iter().chain(&compared.hooks);
    let around = Around {
        project: &compared.project,
        namespace: &app.spec.destination.namespace,
        managed: managed.map(|managed| (*managed.key).clone()).collect(),
        snapshot: &compared.snapshot,
    };
    let count = orphans(&around, |instance| exists(ctx, instance)).len();
    (count > 0).then(|| {
        ConditionType::OrphanedResourceWarning
            .with_message(format!("Application has {count} orphaned resources"))
    })
}

/// Is there an Application of this instance name?
pub(crate) fn exists(ctx: &Context, instance: &str) -> bool {
    ctx.apps
        .get(&AppKey::from_instance(instance, &ctx.options.namespace))
        .is_some()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use argosy_livestate::{ClusterState, Event};
    use serde_json::{Value, json};

    use super::*;

    fn found(settings: Value, objects: &[(Value, Option<&str>)]) -> Vec<String> {
        let mut state = ClusterState::new();
        for (object, app) in objects {
            let app = app.map(Arc::<str>::from);
            state.apply(Event::Upsert(Box::new(Resource::new(object, app))));
        }
        let project: AppProject = serde_json::from_value(
            json!({"metadata": {"name": "p"}, "spec": {"orphanedResources": settings}}),
        )
        .unwrap();
        let around = Around {
            project: &project,
            namespace: "ns",
            managed: HashSet::from([ResourceKey::new("", "ConfigMap", "ns", "managed")]),
            snapshot: &state.snapshot(),
        };
        let mut names: Vec<_> = orphans(&around, |app| app == "web")
            .iter()
            .map(|found| found.key.name.to_string())
            .collect();
        names.sort();
        names
    }

    fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace, "uid": format!("{kind}-{name}")}})
    }

    fn owned(mut object: Value, kind: &str, name: &str) -> Value {
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": format!("{kind}-{name}")}]);
        object
    }

    #[test]
    fn what_no_application_has_is_an_orphan_with_all_that_it_owns() {
        let objects = [
            (object("v1", "ConfigMap", "ns", "lost"), None),
            (object("v1", "ConfigMap", "elsewhere", "far"), None),
            (object("v1", "ConfigMap", "ns", "managed"), None),
            (object("v1", "ConfigMap", "ns", "tracked"), Some("web")),
            // Its Application is gone.
            (object("v1", "ConfigMap", "ns", "left"), Some("former")),
            (object("v1", "ConfigMap", "ns", "kube-root-ca.crt"), None),
            (object("v1", "ServiceAccount", "ns", "default"), None),
            (object("v1", "Secret", "ns", "ignored-one"), None),
            (object("apps/v1", "Deployment", "ns", "strange"), None),
            (
                owned(
                    object("apps/v1", "ReplicaSet", "ns", "strange-1"),
                    "Deployment",
                    "strange",
                ),
                None,
            ),
            (object("apps/v1", "Deployment", "ns", "ours"), Some("web")),
            (
                owned(
                    object("apps/v1", "ReplicaSet", "ns", "ours-1"),
                    "Deployment",
                    "ours",
                ),
                None,
            ),
        ];
        let settings = json!({"ignore": [{"kind": "Secret", "name": "ignored-*"}]});
        assert_eq!(
            found(settings, &objects),
            ["left", "lost", "strange", "strange-1"]
        );
        assert_eq!(found(Value::Null, &objects), [""; 0]);
    }
}
