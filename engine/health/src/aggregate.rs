//! Health of an Application from the health of its resources.

use argosy_object::ResourceKey;

use crate::status::{Health, Status};

/// So many culprits are named in the message; the rest is counted.
const NAMED_CAUSES: usize = 3;

/// One resource of the Application, as far as its health is concerned.
#[derive(Debug, Clone)]
pub struct Child {
    /// Which resource.
    pub key: ResourceKey,
    /// Its own health; `None` if no rule exists or it is not in the cluster.
    pub health: Option<Health>,
    /// Whether the object is in the cluster.
    pub live: bool,
    /// Not a resource of the Application at all for this purpose: a hook, a desired object marked to be skipped, an ignored object.
    pub hook: bool,
    /// In the Application, but its health does not count: annotated `argocd.argoproj.io/ignore-healthcheck: "true"`, or the
    /// Application's own object.
    pub ignored: bool,
}

/// The verdict over all resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregate {
    /// Code and message of the Application.
    pub health: Health,
    /// The resources that have this code, in the order they came; empty when the Application is healthy.
    pub causes: Vec<ResourceKey>,
}

/// The worst code of the children wins, and the children that have it are the cause.
///
/// A resource that is missing does not make the Application worse (that is OutOfSync's business), unless resources are expected and not one
/// of them is live. A child Application that is missing or unknown does not count either: its own row says so.
pub fn aggregate(children: impl IntoIterator<Item = Child>) -> Aggregate {
    let mut worst = Status::Healthy;
    let mut causes = Vec::new();
    let (mut expected, mut any_live) = (false, false);

    for child in children {
        if child.hook {
            continue;
        }
        expected = true;
        any_live |= child.live;
        if !counts(&child) {
            continue;
        }
        let Some(status) = child.health.map(|health| health.status) else {
            continue;
        };
        if status.is_worse_than(worst) {
            worst = status;
            causes.clear();
        }
        if status == worst && status != Status::Healthy {
            causes.push(child.key);
        }
    }

    if expected && !any_live && Status::Missing.is_worse_than(worst) {
        return Aggregate {
            health: Health::new(Status::Missing, ""),
            causes: Vec::new(),
        };
    }
    Aggregate {
        health: Health::new(worst, message(&causes)),
        causes,
    }
}

fn counts(child: &Child) -> bool {
    if child.ignored || !child.live {
        return false;
    }
    let is_application = child.key.group == "argoproj.io" && child.key.kind == "Application";
    let status = child.health.as_ref().map(|health| health.status);
    !(is_application && matches!(status, Some(Status::Missing | Status::Unknown)))
}

/// `Caused by apps/Deployment:shop/web, Service:shop/web and 2 more`; nothing without causes.
fn message(causes: &[ResourceKey]) -> String {
    if causes.is_empty() {
        return String::new();
    }
    let named: Vec<String> = causes.iter().take(NAMED_CAUSES).map(reference).collect();
    let mut text = format!("Caused by {}", named.join(", "));
    if causes.len() > NAMED_CAUSES {
        text.push_str(&format!(" and {} more", causes.len() - NAMED_CAUSES));
    }
    text
}

/// `[group/]Kind:[namespace/]name`.
fn reference(key: &ResourceKey) -> String {
    let mut text = String::new();
    if !key.group.is_empty() {
        text.push_str(&key.group);
        text.push('/');
    }
    text.push_str(&key.kind);
    text.push(':');
    if !key.namespace.is_empty() {
        text.push_str(&key.namespace);
        text.push('/');
    }
    text.push_str(&key.name);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(group: &str, kind: &str, name: &str, status: Option<Status>) -> Child {
        Child {
            key: ResourceKey {
                group: group.into(),
                kind: kind.into(),
                namespace: "shop".into(),
                name: name.into(),
            },
            health: status.map(|status| Health::new(status, "")),
            live: true,
            hook: false,
            ignored: false,
        }
    }

    fn missing(name: &str) -> Child {
        Child {
            live: false,
            health: Some(Health::new(Status::Missing, "")),
            ..child("", "Service", name, None)
        }
    }

    #[test]
    fn an_empty_application_is_healthy() {
        assert_eq!(aggregate([]).health, Health::healthy());
    }

    #[test]
    fn the_worst_resource_decides_and_is_named() {
        let verdict = aggregate([
            child("", "Service", "web", Some(Status::Progressing)),
            child("apps", "Deployment", "web", Some(Status::Degraded)),
            child("", "ConfigMap", "web", None),
            child("batch", "Job", "seed", Some(Status::Healthy)),
        ]);
        assert_eq!(
            verdict.health,
            Health::new(Status::Degraded, "Caused by apps/Deployment:shop/web")
        );
        assert_eq!(verdict.causes.len(), 1);
    }

    #[test]
    fn three_causes_are_named_and_the_rest_is_counted() {
        let verdict =
            aggregate((0..5).map(|n| child("", "Service", &format!("s{n}"), Some(Status::Progressing))));
        assert_eq!(
            verdict.health.message,
            "Caused by Service:shop/s0, Service:shop/s1, Service:shop/s2 and 2 more"
        );
    }

    #[test]
    fn a_cluster_scoped_cause_has_no_namespace() {
        let mut crd = child(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "a.b",
            Some(Status::Degraded),
        );
        crd.key.namespace.clear();
        assert_eq!(
            aggregate([crd]).health.message,
            "Caused by apiextensions.k8s.io/CustomResourceDefinition:a.b"
        );
    }

    #[test]
    fn a_missing_resource_does_not_worsen_the_application() {
        let verdict = aggregate([missing("a"), child("", "Service", "b", Some(Status::Healthy))]);
        assert_eq!(verdict.health, Health::healthy());
    }

    #[test]
    fn an_application_of_which_nothing_is_live_is_missing() {
        assert_eq!(
            aggregate([missing("a"), missing("b")]).health.status,
            Status::Missing
        );
    }

    #[test]
    fn a_live_resource_without_health_still_proves_presence() {
        assert_eq!(
            aggregate([missing("a"), child("", "ConfigMap", "b", None)])
                .health
                .status,
            Status::Healthy
        );
    }

    #[test]
    fn hooks_are_left_out_altogether() {
        let hook = Child {
            hook: true,
            ..child("batch", "Job", "migrate", Some(Status::Degraded))
        };
        assert_eq!(aggregate([hook.clone()]).health, Health::healthy());
        assert_eq!(aggregate([hook, missing("a")]).health.status, Status::Missing);
    }

    #[test]
    fn an_ignored_resource_counts_as_present_only() {
        let ignored = Child {
            ignored: true,
            ..child("apps", "Deployment", "web", Some(Status::Degraded))
        };
        assert_eq!(aggregate([ignored, missing("a")]).health, Health::healthy());
    }

    #[test]
    fn a_child_application_that_is_missing_or_unknown_does_not_count() {
        for status in [Status::Missing, Status::Unknown] {
            assert_eq!(
                aggregate([child("argoproj.io", "Application", "kid", Some(status))]).health,
                Health::healthy()
            );
        }
        let degraded = aggregate([child("argoproj.io", "Application", "kid", Some(Status::Degraded))]);
        assert_eq!(degraded.health.status, Status::Degraded);
    }
}
