//! The kinds we know natively: one module a kind, each `assess(&Value) -> Result<Health, Malformed>` or nearly so.

mod api_service;
pub(crate) mod application;
mod daemon_set;
mod deployment;
mod horizontal_pod_autoscaler;
mod ingress;
mod job;
mod persistent_volume_claim;
pub(crate) mod pod;
mod replica_set;
mod service;
mod stateful_set;
mod workflow;

use argosy_object::Value;

use crate::status::Health;

/// The native verdict on `live`: `None` for a kind without a rule, `Unknown` for a version of a known kind that has none.
pub(crate) fn native(group: &str, version: &str, kind: &str, live: &Value) -> Option<Health> {
    let verdict = match (group, kind, version) {
        ("apps", "Deployment", "v1") => deployment::assess(live),
        ("apps", "StatefulSet", "v1") => stateful_set::assess(live),
        ("apps", "ReplicaSet", "v1") => replica_set::assess(live),
        ("apps", "DaemonSet", "v1") => daemon_set::assess(live),
        ("extensions" | "networking.k8s.io", "Ingress", _) => ingress::assess(live),
        ("", "Service", "v1") => service::assess(live),
        ("", "PersistentVolumeClaim", "v1") => persistent_volume_claim::assess(live),
        ("", "Pod", "v1") => pod::assess(live),
        ("batch", "Job", "v1") => job::assess(live),
        ("autoscaling", "HorizontalPodAutoscaler", "v1") => horizontal_pod_autoscaler::assess_v1(live),
        ("autoscaling", "HorizontalPodAutoscaler", "v2") => horizontal_pod_autoscaler::assess_v2(live),
        ("apiregistration.k8s.io", "APIService", "v1" | "v1beta1") => api_service::assess(live),
        ("argoproj.io", "Workflow", _) => workflow::assess(live),
        ("argoproj.io", "Application", _) if application::asks(live) => application::assess(live),

        ("apps", "Deployment" | "StatefulSet" | "ReplicaSet" | "DaemonSet", _)
        | ("", "Service" | "PersistentVolumeClaim" | "Pod", _)
        | ("batch", "Job", _)
        | ("apiregistration.k8s.io", "APIService", _) => {
            return Some(unsupported(kind, group, version, kind));
        }
        ("autoscaling", "HorizontalPodAutoscaler", _) => {
            return Some(unsupported("HPA", group, version, kind));
        }
        _ => return None,
    };
    Some(verdict.unwrap_or_else(|malformed| Health::unknown(malformed.to_string())))
}

fn unsupported(what: &str, group: &str, version: &str, kind: &str) -> Health {
    Health::unknown(format!("unsupported {what} GVK: {group}/{version}, Kind={kind}"))
}
