//! Defaults of the built-in kinds: what a kube-apiserver writes where a document says nothing.

use argosy_object::{Value, meta};
use serde_json::json;

use super::{fold_string_data, id};
use crate::registry::ResourceType;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Sets `value` where nothing is stated, which for a text is the same as an empty one.
fn set(object: &mut Value, path: &[&str], value: impl Into<Value>) {
    let empty = meta::field(object, path).is_none_or(|known| known.as_str().is_some_and(str::is_empty));
    if empty {
        meta::set_field(object, path, value);
    }
}

fn has(object: &Value, path: &[&str]) -> bool {
    meta::field(object, path).is_some()
}

fn each(object: &mut Value, path: &[&str], act: impl FnMut(&mut Value)) {
    if let Some(Value::Array(items)) = meta::field_mut(object, path) {
        items.iter_mut().for_each(act);
    }
}

/// Fills in the defaults of a kind.
pub(super) fn fill(kind: &ResourceType, object: &mut Value) {
    match id(kind) {
        ("", "Pod") => {
            set(object, &["spec", "enableServiceLinks"], true);
            pod_spec(object, &["spec"]);
            for field in ["containers", "initContainers"] {
                each(object, &["spec", field], request_limits);
            }
        }
        ("", "PodTemplate") => of_pod_template(object, &["template"]),
        ("", "Namespace") => {
            let name = meta::name(object).to_owned();
            if !name.is_empty() {
                meta::set_label(object, "kubernetes.io/metadata.name", name);
            }
        }
        ("", "Service") => service(object),
        ("", "Secret") => {
            fold_string_data(object);
            set(object, &["type"], "Opaque");
        }
        ("", "PersistentVolumeClaim") => set(object, &["spec", "volumeMode"], "Filesystem"),
        ("", "PersistentVolume") => {
            set(object, &["spec", "persistentVolumeReclaimPolicy"], "Retain");
            set(object, &["spec", "volumeMode"], "Filesystem");
            if meta::field(object, &["spec", "hostPath"]).is_some() {
                set(object, &["spec", "hostPath", "type"], "");
            }
        }
        ("", "Endpoints") => each(object, &["subsets"], |subset| {
            each(subset, &["ports"], |port| set(port, &["protocol"], "TCP"));
        }),
        ("", "Event") => {
            for field in ["firstTimestamp", "lastTimestamp", "eventTime"] {
                set(object, &[field], Value::Null);
            }
            set(object, &["reportingComponent"], "");
            set(object, &["reportingInstance"], "");
        }
        ("", "ReplicationController") => {
            set(object, &["spec", "replicas"], 1);
            of_pod_template(object, &["spec", "template"]);
        }
        ("apps", "Deployment") => {
            set(object, &["spec", "replicas"], 1);
            set(object, &["spec", "strategy", "type"], "RollingUpdate");
            if object["spec"]["strategy"]["type"] == "RollingUpdate" {
                set(
                    object,
                    &["spec", "strategy", "rollingUpdate", "maxUnavailable"],
                    "25%",
                );
                set(object, &["spec", "strategy", "rollingUpdate", "maxSurge"], "25%");
            }
            set(object, &["spec", "revisionHistoryLimit"], 10);
            set(object, &["spec", "progressDeadlineSeconds"], 600);
            of_pod_template(object, &["spec", "template"]);
        }
        ("apps", "ReplicaSet") => {
            set(object, &["spec", "replicas"], 1);
            of_pod_template(object, &["spec", "template"]);
        }
        ("apps", "StatefulSet") => stateful_set(object),
        ("apps", "DaemonSet") => {
            set(object, &["spec", "updateStrategy", "type"], "RollingUpdate");
            if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
                set(
                    object,
                    &["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"],
                    1,
                );
                set(
                    object,
                    &["spec", "updateStrategy", "rollingUpdate", "maxSurge"],
                    0,
                );
            }
            set(object, &["spec", "revisionHistoryLimit"], 10);
            set(
                object,
                &[
                    "metadata",
                    "annotations",
                    "deprecated.daemonset.template.generation",
                ],
                "1",
            );
            of_pod_template(object, &["spec", "template"]);
        }
        ("batch", "Job") => {
            // A Job without labels of its own has those of its Pods.
            if let Some(labels) = meta::field(object, &["spec", "template", "metadata", "labels"]).cloned() {
                set(object, &["metadata", "labels"], labels);
            }
            job_spec(object, &["spec"]);
        }
        ("batch", "CronJob") => {
            set(object, &["spec", "concurrencyPolicy"], "Allow");
            set(object, &["spec", "suspend"], false);
            set(object, &["spec", "successfulJobsHistoryLimit"], 3);
            set(object, &["spec", "failedJobsHistoryLimit"], 1);
            of_pod_template(object, &["spec", "jobTemplate", "spec", "template"]);
        }
        ("networking.k8s.io", "NetworkPolicy") => network_policy(object),
        ("networking.k8s.io", "IngressClass") if has(object, &["spec", "parameters"]) => {
            set(object, &["spec", "parameters", "scope"], "Cluster");
        }
        ("discovery.k8s.io", "EndpointSlice") => each(object, &["ports"], |port| {
            set(port, &["name"], "");
            set(port, &["protocol"], "TCP");
        }),
        ("autoscaling", "HorizontalPodAutoscaler") => {
            set(object, &["spec", "minReplicas"], 1);
            set(
                object,
                &["spec", "metrics"],
                json!([{"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
                }}]),
            );
        }
        (RBAC, "RoleBinding" | "ClusterRoleBinding") => {
            set(object, &["roleRef", "apiGroup"], RBAC);
            each(object, &["subjects"], |subject| {
                if subject["kind"] == "User" || subject["kind"] == "Group" {
                    set(subject, &["apiGroup"], RBAC);
                }
            });
        }
        ("storage.k8s.io", "StorageClass") => {
            set(object, &["reclaimPolicy"], "Delete");
            set(object, &["volumeBindingMode"], "Immediate");
        }
        ("scheduling.k8s.io", "PriorityClass") => set(object, &["preemptionPolicy"], "PreemptLowerPriority"),
        ("apiregistration.k8s.io", "APIService") if has(object, &["spec", "service"]) => {
            set(object, &["spec", "service", "port"], 443);
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(object),
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        ) => {
            let mutating = kind.kind.starts_with("Mutating");
            each(object, &["webhooks"], |webhook| {
                admission_webhook(webhook, mutating)
            });
        }
        _ => {}
    }
}

/// The template of a workload's Pods.
fn of_pod_template(object: &mut Value, path: &[&str]) {
    let spec: Vec<&str> = path.iter().copied().chain(["spec"]).collect();
    pod_spec(object, &spec);
}

/// What admission adds to a Pod itself, and not to templates.
pub(super) fn admit_pod(pod: &mut Value) {
    set(pod, &["spec", "priority"], 0);
    set(pod, &["spec", "preemptionPolicy"], "PreemptLowerPriority");
    if let Some(account) = meta::str_field(pod, &["spec", "serviceAccountName"]).map(str::to_owned) {
        set(pod, &["spec", "serviceAccount"], account);
    }
    let mut tolerations: Vec<Value> = meta::array_field(pod, &["spec", "tolerations"]).to_vec();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = |toleration: &Value| {
            let key_matches = toleration["key"] == key || toleration.get("key").is_none();
            let effect = &toleration["effect"];
            key_matches && (effect == "NoExecute" || effect.is_null())
        };
        if !tolerations.iter().any(tolerated) {
            tolerations.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
    meta::set_field(pod, &["spec", "tolerations"], tolerations);
}

fn pod_spec(object: &mut Value, path: &[&str]) {
    let Some(spec) = meta::field_mut(object, path).filter(|spec| spec.is_object()) else {
        return;
    };
    set(spec, &["restartPolicy"], "Always");
    set(spec, &["terminationGracePeriodSeconds"], 30);
    set(spec, &["dnsPolicy"], "ClusterFirst");
    set(spec, &["securityContext"], json!({}));
    set(spec, &["schedulerName"], "default-scheduler");
    if let Some(account) = meta::str_field(spec, &["serviceAccountName"]).map(str::to_owned) {
        set(spec, &["serviceAccount"], account);
    }
    let host_network = spec["hostNetwork"] == true;
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        each(spec, &[field], |one| container(one, host_network));
    }
    each(spec, &["volumes"], volume);
    each(spec, &["topologySpreadConstraints"], |constraint| {
        set(constraint, &["whenUnsatisfiable"], "DoNotSchedule");
    });
}

fn container(container: &mut Value, host_network: bool) {
    set(container, &["terminationMessagePath"], "/dev/termination-log");
    set(container, &["terminationMessagePolicy"], "File");
    let image = meta::str_field(container, &["image"]).unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    let policy = if latest { "Always" } else { "IfNotPresent" };
    set(container, &["imagePullPolicy"], policy);
    each(container, &["ports"], |port| {
        set(port, &["protocol"], "TCP");
        if host_network && let Some(number) = port.get("containerPort").cloned() {
            set(port, &["hostPort"], number);
        }
    });
    each(container, &["env"], |variable| {
        if meta::field(variable, &["valueFrom", "fieldRef"]).is_some() {
            set(variable, &["valueFrom", "fieldRef", "apiVersion"], "v1");
        }
    });
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = meta::field_mut(container, &[name]) {
            set(probe, &["timeoutSeconds"], 1);
            set(probe, &["periodSeconds"], 10);
            set(probe, &["successThreshold"], 1);
            set(probe, &["failureThreshold"], 3);
            http_get(probe);
            if meta::field(probe, &["grpc"]).is_some() {
                set(probe, &["grpc", "service"], "");
            }
        }
    }
    for name in ["postStart", "preStop"] {
        if let Some(hook) = meta::field_mut(container, &["lifecycle", name]) {
            http_get(hook);
        }
    }
}

/// Who states only a limit asks for as much; in a Pod, not in a template.
fn request_limits(container: &mut Value) {
    let limits = meta::field(container, &["resources", "limits"]).and_then(Value::as_object);
    for (resource, limit) in limits.cloned().unwrap_or_default() {
        set(container, &["resources", "requests", resource.as_str()], limit);
    }
}

fn http_get(handler: &mut Value) {
    if meta::field(handler, &["httpGet"]).is_some() {
        set(handler, &["httpGet", "path"], "/");
        set(handler, &["httpGet", "scheme"], "HTTP");
    }
}

fn volume(volume: &mut Value) {
    let named_only = volume
        .as_object()
        .is_some_and(|fields| fields.len() == 1 && fields.contains_key("name"));
    if named_only {
        set(volume, &["emptyDir"], json!({}));
    }
    for source in ["configMap", "secret", "projected", "downwardAPI"] {
        if meta::field(volume, &[source]).is_some() {
            set(volume, &[source, "defaultMode"], 420);
        }
    }
    if meta::field(volume, &["hostPath"]).is_some() {
        set(volume, &["hostPath", "type"], "");
    }
    let field_refs = |item: &mut Value| {
        if meta::field(item, &["fieldRef"]).is_some() {
            set(item, &["fieldRef", "apiVersion"], "v1");
        }
    };
    each(volume, &["downwardAPI", "items"], field_refs);
    each(volume, &["projected", "sources"], |source| {
        if meta::field(source, &["serviceAccountToken"]).is_some() {
            set(source, &["serviceAccountToken", "expirationSeconds"], 3600);
        }
        each(source, &["downwardAPI", "items"], field_refs);
    });
    if meta::field(volume, &["ephemeral", "volumeClaimTemplate", "spec"]).is_some() {
        set(
            volume,
            &["ephemeral", "volumeClaimTemplate", "spec", "volumeMode"],
            "Filesystem",
        );
    }
}

fn service(service: &mut Value) {
    set(service, &["spec", "type"], "ClusterIP");
    set(service, &["spec", "sessionAffinity"], "None");
    if service["spec"]["sessionAffinity"] == "ClientIP" {
        set(
            service,
            &["spec", "sessionAffinityConfig", "clientIP", "timeoutSeconds"],
            10800,
        );
    }
    let kind = meta::str_field(service, &["spec", "type"])
        .unwrap_or_default()
        .to_owned();
    each(service, &["spec", "ports"], |port| {
        set(port, &["protocol"], "TCP");
        if let Some(number) = port.get("port").cloned() {
            set(port, &["targetPort"], number);
        }
    });
    if kind != "ExternalName" {
        set(service, &["spec", "internalTrafficPolicy"], "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        set(service, &["spec", "externalTrafficPolicy"], "Cluster");
    }
    if kind == "LoadBalancer" {
        set(service, &["spec", "allocateLoadBalancerNodePorts"], true);
    }
}

fn stateful_set(set_object: &mut Value) {
    set(set_object, &["spec", "replicas"], 1);
    set(set_object, &["spec", "podManagementPolicy"], "OrderedReady");
    set(set_object, &["spec", "updateStrategy", "type"], "RollingUpdate");
    if set_object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
        set(
            set_object,
            &["spec", "updateStrategy", "rollingUpdate", "partition"],
            0,
        );
    }
    set(set_object, &["spec", "revisionHistoryLimit"], 10);
    set(
        set_object,
        &["spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted"],
        "Retain",
    );
    set(
        set_object,
        &["spec", "persistentVolumeClaimRetentionPolicy", "whenScaled"],
        "Retain",
    );
    each(set_object, &["spec", "volumeClaimTemplates"], |claim| {
        set(claim, &["apiVersion"], "v1");
        set(claim, &["kind"], "PersistentVolumeClaim");
        set(claim, &["spec", "volumeMode"], "Filesystem");
        set(claim, &["status", "phase"], "Pending");
    });
    of_pod_template(set_object, &["spec", "template"]);
}

fn job_spec(job: &mut Value, path: &[&str]) {
    let Some(spec) = meta::field_mut(job, path) else {
        return;
    };
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        set(spec, &["completions"], 1);
    }
    set(spec, &["parallelism"], 1);
    set(spec, &["backoffLimit"], 6);
    set(spec, &["completionMode"], "NonIndexed");
    set(spec, &["suspend"], false);
    set(spec, &["manualSelector"], false);
    set(spec, &["podReplacementPolicy"], "TerminatingOrFailed");
    of_pod_template(spec, &["template"]);
}

fn network_policy(policy: &mut Value) {
    let mut kinds = vec!["Ingress"];
    if !meta::array_field(policy, &["spec", "egress"]).is_empty() {
        kinds.push("Egress");
    }
    set(policy, &["spec", "policyTypes"], json!(kinds));
    for side in ["ingress", "egress"] {
        each(policy, &["spec", side], |rule| {
            each(rule, &["ports"], |port| set(port, &["protocol"], "TCP"));
        });
    }
}

fn definition(definition: &mut Value) {
    let kind = meta::str_field(definition, &["spec", "names", "kind"])
        .unwrap_or_default()
        .to_owned();
    set(definition, &["spec", "names", "singular"], kind.to_lowercase());
    set(definition, &["spec", "names", "listKind"], format!("{kind}List"));
    set(definition, &["spec", "conversion", "strategy"], "None");
}

fn admission_webhook(webhook: &mut Value, mutating: bool) {
    set(webhook, &["failurePolicy"], "Fail");
    set(webhook, &["matchPolicy"], "Equivalent");
    set(webhook, &["namespaceSelector"], json!({}));
    set(webhook, &["objectSelector"], json!({}));
    set(webhook, &["timeoutSeconds"], 10);
    if mutating {
        set(webhook, &["reinvocationPolicy"], "Never");
    }
    if meta::field(webhook, &["clientConfig", "service"]).is_some() {
        set(webhook, &["clientConfig", "service", "port"], 443);
    }
    each(webhook, &["rules"], |rule| set(rule, &["scope"], "*"));
}
