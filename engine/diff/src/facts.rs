//! What the Kubernetes API does that its OpenAPI does not tell.
//!
//! Two kinds of facts: which zero values the Go types keep, and which defaults the API server fills in. The first were read off the types of
//! Kubernetes 1.36 by reflection: a name stands here if it is a pointer in any type, which is the same in all of them but for a few names.

use std::collections::HashMap;
use std::sync::LazyLock;

use argosy_object::Value;
use serde_json::json;

/// Whether the kinds of a group are built into Kubernetes.
pub(crate) fn is_native_group(group: &str) -> bool {
    matches!(
        group,
        "" | "apps"
            | "autoscaling"
            | "batch"
            | "extensions"
            | "policy"
            | "admissionregistration.k8s.io"
            | "apiextensions.k8s.io"
            | "apiregistration.k8s.io"
            | "authentication.k8s.io"
            | "authorization.k8s.io"
            | "certificates.k8s.io"
            | "coordination.k8s.io"
            | "discovery.k8s.io"
            | "events.k8s.io"
            | "flowcontrol.apiserver.k8s.io"
            | "internal.apiserver.k8s.io"
            | "networking.k8s.io"
            | "node.k8s.io"
            | "rbac.authorization.k8s.io"
            | "resource.k8s.io"
            | "scheduling.k8s.io"
            | "storage.k8s.io"
            | "storagemigration.k8s.io"
    )
}

/// Truth values of which `false` is not the same as absent.
const KEPT_FALSE: &[&str] = &[
    "adminAccess",
    "allNodes",
    "allocateLoadBalancerNodePorts",
    "allowMultipleAllocations",
    "allowPrivilegeEscalation",
    "allowVolumeExpansion",
    "allowed",
    "attachRequired",
    "automountServiceAccountToken",
    "bindsToNode",
    "blockOwnerDeletion",
    "bool",
    "controller",
    "enableServiceLinks",
    "hostProcess",
    "hostUsers",
    "immutable",
    "manualSelector",
    "namespaced",
    "optional",
    "optionalOldSelf",
    "perDeviceNodeSelection",
    "podInfoOnMount",
    "preventPodSchedulingIfMissing",
    "privileged",
    "readOnlyRootFilesystem",
    "orphanDependents",
    "ready",
    "requiresRepublish",
    "runAsNonRoot",
    "seLinuxMount",
    "served",
    "serviceAccountTokenInSecrets",
    "serving",
    "started",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "storage",
    "storageCapacity",
    "suspend",
    "terminating",
    "x-kubernetes-preserve-unknown-fields",
];

/// Numbers of which `0` is the same as absent; in all others it is not.
const DROPPED_ZERO: &[&str] = &[
    "code",
    "containerPort",
    "count",
    "deprecatedCount",
    "failureThreshold",
    "generation",
    "handSize",
    "healthCheckNodePort",
    "hostPort",
    "initialDelaySeconds",
    "matchingPrecedence",
    "maxReplicas",
    "maxSkew",
    "minReadySeconds",
    "nodePort",
    "number",
    "periodSeconds",
    "queueLengthLimit",
    "queues",
    "seconds",
    "start",
    "successThreshold",
    "timeoutSeconds",
    "weight",
];

/// Numbers that the API server assigns where Git says 0.
const ASSIGNED_NUMBERS: &[&str] = &["nodePort", "healthCheckNodePort"];

/// Texts that the API server, its admission or a controller assigns where Git says the empty one.
const ASSIGNED_TEXTS: &[&str] = &[
    "clusterIP",
    "nodeName",
    "priorityClassName",
    "serviceAccount",
    "serviceAccountName",
    "volumeName",
];

/// Texts of which the empty one says something.
const KEPT_EMPTY_TEXT: &[&str] = &[
    "appProtocol",
    "cachingMode",
    "capacityKey",
    "commonEncodingVersion",
    "completionMode",
    "currentVolumeAttributesClassName",
    "disruptionMode",
    "distinctAttribute",
    "endpointsNamespace",
    "extendedResourceName",
    "failedIndexes",
    "failurePolicy",
    "fsGroupChangePolicy",
    "fsGroupPolicy",
    "gmsaCredentialSpec",
    "gmsaCredentialSpecName",
    "holderIdentity",
    "hostnameOverride",
    "ingressClassName",
    "initiatorName",
    "internalTrafficPolicy",
    "ipFamilyPolicy",
    "ipMode",
    "loadBalancerClass",
    "localhostProfile",
    "managedBy",
    "matchAttribute",
    "matchPolicy",
    "mountPropagation",
    "nodeAffinityPolicy",
    "nodeTaintsPolicy",
    "parameterNotFoundAction",
    "pathType",
    "persistentVolumeName",
    "podGroupName",
    "podReplacementPolicy",
    "preemptionPolicy",
    "preferredHolder",
    "procMount",
    "propagationPolicy",
    "reclaimPolicy",
    "recursiveReadOnly",
    "resourceClaimName",
    "resourceClaimTemplateName",
    "runAsUserName",
    "runtimeClassName",
    "scope",
    "seLinuxChangePolicy",
    "secretNamespace",
    "selectPolicy",
    "service",
    "shareID",
    "sideEffects",
    "stopSignal",
    "storageClassName",
    "string",
    "succeededIndexes",
    "supplementalGroupsPolicy",
    "timeZone",
    "trafficDistribution",
    "unhealthyPodEvictionPolicy",
    "url",
    "validationError",
    "volumeAttributesClassName",
    "volumeBindingMode",
    "volumeMode",
    "zone",
];

/// Objects of which the empty one is the same as absent, because they are no pointers.
const DROPPED_EMPTY_OBJECT: &[&str] = &[
    "backend",
    "clientConfig",
    "conditions",
    "describedObject",
    "divisor",
    "involvedObject",
    "jobTemplate",
    "loadBalancer",
    "metadata",
    "metric",
    "names",
    "podAffinityTerm",
    "preference",
    "reference",
    "regarding",
    "resources",
    "roleRef",
    "scaleTargetRef",
    "schedulingPolicy",
    "source",
    "spec",
    "status",
    "strategy",
    "target",
    "targetPort",
    "template",
    "updateStrategy",
];

/// Lists that the API server fills where Git leaves them empty.
const ASSIGNED_LISTS: &[&str] = &["ipFamilies", "clusterIPs", "volumeLifecycleModes"];

/// Numbers of which `0` is the same as absent under this field, although it is not elsewhere.
const DROPPED_ZERO_UNDER: &[(&str, &str)] = &[
    ("additionalPrinterColumns", "priority"),
    ("awsElasticBlockStore", "partition"),
    ("gcePersistentDisk", "partition"),
];

/// The other way round: where `0` is not the same as absent, although it is elsewhere.
const KEPT_ZERO_UNDER: &[(&str, &str)] = &[
    ("allocatable", "count"),
    ("clientIP", "timeoutSeconds"),
    ("webhooks", "timeoutSeconds"),
];

/// Whether the API server does not keep `value` in the field `name` of a native object, so that it is the same as absent.
///
/// `parent` is the nearest field above; `is_map`: the field is a map with free keys.
pub(crate) fn is_dropped(parent: &str, name: &str, value: &Value, is_map: bool) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth && !KEPT_FALSE.contains(&name),
        Value::Number(number) => {
            number.as_f64() == Some(0.0)
                && (DROPPED_ZERO.contains(&name) || DROPPED_ZERO_UNDER.contains(&(parent, name)))
                && !KEPT_ZERO_UNDER.contains(&(parent, name))
        }
        Value::String(text) => text.is_empty() && !KEPT_EMPTY_TEXT.contains(&name),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && (is_map || DROPPED_EMPTY_OBJECT.contains(&name)),
    }
}

/// Whether Git leaves the field `name` of a native object to the API server by stating `value`, although the live object has one.
pub(crate) fn leaves_to_server(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty() && ASSIGNED_TEXTS.contains(&name),
        Value::Number(number) => number.as_f64() == Some(0.0) && ASSIGNED_NUMBERS.contains(&name),
        Value::Array(items) => items.is_empty() && ASSIGNED_LISTS.contains(&name),
        _ => false,
    }
}

/// Whether `value` is what the API server puts into the field `name` if nobody states it. `parents` are the nearest field above and the
/// one above that.
pub(crate) fn is_default([parent, above]: [&str; 2], name: &str, value: &Value) -> bool {
    let parent = if parent.is_empty() { "/" } else { parent };
    [(above, parent), ("*", parent), ("*", "*")]
        .iter()
        .any(|(above, parent)| {
            DEFAULTS
                .get(&(*above, *parent, name))
                .is_some_and(|defaults| defaults.contains(value))
        })
}

/// What the API server puts into a field if nobody states it, where that depends on the fields beside it; the outer nothing for a field
/// of which that is not so, the inner one where it puts nothing.
pub(crate) fn default_beside<'v>(
    name: &str,
    beside: impl Fn(&str) -> Option<&'v Value>,
) -> Option<Option<Value>> {
    let text = |name| beside(name).and_then(Value::as_str).unwrap_or_default();
    let stated = |name| beside(name).is_some_and(|value| !value.is_null());
    let default = match name {
        "imagePullPolicy" => pull_policy(text("image")),
        // Of a volume that is an image.
        "pullPolicy" => pull_policy(text("reference")),
        "policyTypes" => match beside("egress").and_then(Value::as_array) {
            Some(rules) if !rules.is_empty() => json!(["Ingress", "Egress"]),
            _ => json!(["Ingress"]),
        },
        "podReplacementPolicy" if stated("podFailurePolicy") => json!("Failed"),
        "podReplacementPolicy" => json!("TerminatingOrFailed"),
        "backoffLimit" if stated("backoffLimitPerIndex") => json!(i32::MAX),
        "backoffLimit" => json!(6),
        // Of a Service that is reached from outside.
        "externalTrafficPolicy" => {
            let outside = matches!(text("type"), "NodePort" | "LoadBalancer") || stated("externalIPs");
            return Some(outside.then(|| json!("Cluster")));
        }
        // With a parallelism of its own, a Job without a count of completions is a queue.
        "completions" => return Some((!stated("parallelism")).then(|| json!(1))),
        _ => return None,
    };
    Some(Some(default))
}

/// An image that is called `latest`, by saying so or by saying nothing, is pulled each time.
fn pull_policy(image: &str) -> Value {
    let (named, digest) = match image.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (image, None),
    };
    let last = named.rsplit('/').next().unwrap_or_default();
    let tag = last.split_once(':').map(|(_, tag)| tag);
    match (tag, digest) {
        (Some("latest"), _) => json!("Always"),
        (None, None) if !image.is_empty() => json!("Always"),
        _ => json!("IfNotPresent"),
    }
}

type DefaultsOf = HashMap<(&'static str, &'static str, &'static str), Vec<Value>>;

/// Defaults by the field and the two above it; `*` for any, `/` for the object itself.
static DEFAULTS: LazyLock<DefaultsOf> = LazyLock::new(|| {
    let mut table = DefaultsOf::new();
    for line in DEFAULTS_TEXT.lines() {
        let mut words = line.split_whitespace();
        let (Some(parents), Some(name), Some(json)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let (above, parent) = match parents.split_once('/') {
            Some((above, parent)) if !parent.is_empty() => (above, parent),
            _ => ("*", parents),
        };
        if let Ok(value) = serde_json::from_str(json) {
            table.entry((above, parent, name)).or_default().push(value);
        }
    }
    table
});

/// One a line: parent (perhaps with the field above it and a slash before), field, value. Two lines for one field: either value is a default
/// (of another kind, or version of the server).
const DEFAULTS_TEXT: &str = r#"
* protocol "TCP"
* defaultMode 420
* terminationMessagePath "/dev/termination-log"
* terminationMessagePolicy "File"
* dnsPolicy "ClusterFirst"
* schedulerName "default-scheduler"
spec terminationGracePeriodSeconds 30
* enableServiceLinks true
* preemptionPolicy "PreemptLowerPriority"
* serviceAccountName "default"
* serviceAccount "default"
* recursiveReadOnly "Disabled"
* readOnly false
* revisionHistoryLimit 10
* progressDeadlineSeconds 600
* podManagementPolicy "OrderedReady"
* volumeMode "Filesystem"
* sessionAffinity "None"
* internalTrafficPolicy "Cluster"
* ipFamilyPolicy "SingleStack"
* allocateLoadBalancerNodePorts true
* publishNotReadyAddresses false
* completionMode "NonIndexed"
* manualSelector false
* concurrencyPolicy "Allow"
* successfulJobsHistoryLimit 3
* failedJobsHistoryLimit 1
* reclaimPolicy "Delete"
* volumeBindingMode "Immediate"
* persistentVolumeReclaimPolicy "Retain"
* matchPolicy "Equivalent"
* reinvocationPolicy "Never"
* attachRequired true
* podInfoOnMount false
* requiresRepublish false
* seLinuxMount false
* storageCapacity false
* fsGroupPolicy "ReadWriteOnceWithFSType"
* unhealthyPodEvictionPolicy "IfHealthyBudget"
* nodeAffinityPolicy "Honor"
* nodeTaintsPolicy "Ignore"
* suspend false
spec restartPolicy "Always"
spec securityContext {}
spec replicas 1
spec parallelism 1
spec minReplicas 1
spec type "ClusterIP"
spec updateStrategy {"rollingUpdate":{"partition":0},"type":"RollingUpdate"}
spec updateStrategy {"rollingUpdate":{"maxSurge":0,"maxUnavailable":1},"type":"RollingUpdate"}
spec strategy {"rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"},"type":"RollingUpdate"}
spec persistentVolumeClaimRetentionPolicy {"whenDeleted":"Retain","whenScaled":"Retain"}
persistentVolumeClaimRetentionPolicy whenDeleted "Retain"
persistentVolumeClaimRetentionPolicy whenScaled "Retain"
strategy type "RollingUpdate"
strategy rollingUpdate {"maxSurge":"25%","maxUnavailable":"25%"}
updateStrategy type "RollingUpdate"
updateStrategy rollingUpdate {"partition":0}
updateStrategy rollingUpdate {"maxSurge":0,"maxUnavailable":1}
strategy/rollingUpdate maxSurge "25%"
strategy/rollingUpdate maxUnavailable "25%"
updateStrategy/rollingUpdate maxSurge 0
updateStrategy/rollingUpdate maxUnavailable 1
updateStrategy/rollingUpdate partition 0
livenessProbe timeoutSeconds 1
livenessProbe periodSeconds 10
livenessProbe successThreshold 1
livenessProbe failureThreshold 3
readinessProbe timeoutSeconds 1
readinessProbe periodSeconds 10
readinessProbe successThreshold 1
readinessProbe failureThreshold 3
startupProbe timeoutSeconds 1
startupProbe periodSeconds 10
startupProbe successThreshold 1
startupProbe failureThreshold 3
httpGet scheme "HTTP"
httpGet path "/"
grpc service ""
hostPath type ""
fieldRef apiVersion "v1"
resourceFieldRef divisor "0"
serviceAccountToken expirationSeconds 3600
volumes emptyDir {}
paths pathType "ImplementationSpecific"
webhooks namespaceSelector {}
webhooks objectSelector {}
matchConstraints namespaceSelector {}
matchConstraints objectSelector {}
matchResources namespaceSelector {}
matchResources objectSelector {}
webhooks timeoutSeconds 10
webhooks failurePolicy "Fail"
webhooks matchPolicy "Equivalent"
rules scope "*"
resourceRules scope "*"
excludeResourceRules scope "*"
service port 443
roleRef apiGroup "rbac.authorization.k8s.io"
subjects apiGroup "rbac.authorization.k8s.io"
subjects apiGroup ""
iscsi iscsiInterface "default"
rbd pool "rbd"
rbd user "admin"
rbd keyring "/etc/ceph/keyring"
azureDisk cachingMode "ReadWrite"
azureDisk fsType "ext4"
azureDisk kind "Shared"
azureDisk readOnly false
scaleIO storageMode "ThinProvisioned"
scaleIO fsType "xfs"
conversion strategy "None"
spec conversion {"strategy":"None"}
spec preserveUnknownFields false
clientIP timeoutSeconds 10800
ports name ""
volumeClaimTemplates apiVersion "v1"
/ type "Opaque"
exempt lendablePercent 0
exempt nominalConcurrencyShares 0
fileKeyRef optional false
limited lendablePercent 0
limited nominalConcurrencyShares 30
onPodConditions status "True"
parameters scope "Cluster"
queuing handSize 8
queuing queueLengthLimit 50
queuing queues 64
scaleDown selectPolicy "Max"
scaleUp selectPolicy "Max"
scaleUp stabilizationWindowSeconds 0
spec failurePolicy "Fail"
spec matchingPrecedence 1000
spec metrics [{"resource":{"name":"cpu","target":{"averageUtilization":80,"type":"Utilization"}},"type":"Resource"}]
spec volumeLifecycleModes ["Persistent"]
volumeClaimTemplates kind "PersistentVolumeClaim"
"#;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines = DEFAULTS_TEXT.lines().filter(|line| !line.is_empty()).count();
        assert_eq!(DEFAULTS.values().map(Vec::len).sum::<usize>(), lines);
    }

    #[test]
    fn zero_values_are_dropped_where_the_go_type_is_no_pointer() {
        assert!(is_dropped("spec", "hostNetwork", &json!(false), false));
        assert!(!is_dropped(
            "spec",
            "automountServiceAccountToken",
            &json!(false),
            false
        ));
        assert!(is_dropped("spec", "minReadySeconds", &json!(0), false));
        assert!(!is_dropped("spec", "replicas", &json!(0), false));
        assert!(is_dropped("spec", "value", &json!(""), false));
        assert!(!is_dropped("spec", "storageClassName", &json!(""), false));
        assert!(is_dropped("spec", "resources", &json!({}), false));
        assert!(!is_dropped("spec", "selector", &json!({}), false));
        assert!(is_dropped("spec", "limits", &json!({}), true));
        assert!(is_dropped("spec", "args", &json!([]), false));
    }

    #[test]
    fn defaults_know_their_place() {
        let is = |parents, name, value| is_default(parents, name, &value);
        assert!(is(["ports", "containers"], "protocol", json!("TCP")));
        assert!(!is(["ports", "containers"], "protocol", json!("UDP")));
        assert!(is(["spec", "template"], "restartPolicy", json!("Always")));
        assert!(!is(["containers", "spec"], "restartPolicy", json!("Always")));
        assert!(is(["spec", ""], "terminationGracePeriodSeconds", json!(30)));
        assert!(!is(
            ["livenessProbe", "containers"],
            "terminationGracePeriodSeconds",
            json!(30)
        ));
        assert!(is(["", ""], "type", json!("Opaque")));
    }

    #[test]
    fn what_is_the_default_of_one_kind_is_none_of_another() {
        let is = |above, name, value| is_default(["rollingUpdate", above], name, &value);
        assert!(is("strategy", "maxUnavailable", json!("25%")));
        assert!(!is("strategy", "maxUnavailable", json!(1)));
        assert!(is("updateStrategy", "maxUnavailable", json!(1)));
        assert!(!is("updateStrategy", "maxSurge", json!("25%")));
        assert!(is_default(["webhooks", ""], "namespaceSelector", &json!({})));
        // Here it means "all namespaces", and its absence "this one".
        assert!(!is_default(["from", "ingress"], "namespaceSelector", &json!({})));
        assert!(!is_default(
            [
                "podAffinityTerm",
                "preferredDuringSchedulingIgnoredDuringExecution"
            ],
            "namespaceSelector",
            &json!({})
        ));
    }

    #[test]
    fn some_defaults_depend_on_what_stands_beside() {
        let default = |name, fields: Value| default_beside(name, |beside| fields.get(beside)).unwrap();
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("registry:5000/nginx", "Always"),
            ("nginx:1.2", "IfNotPresent"),
            ("registry:5000/nginx:1.2", "IfNotPresent"),
            ("nginx@sha256:00", "IfNotPresent"),
            ("nginx:latest@sha256:00", "Always"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(
                default("imagePullPolicy", json!({"image": image})),
                Some(json!(policy)),
                "{image}"
            );
        }
        assert_eq!(
            default("policyTypes", json!({"egress": [{}]})),
            Some(json!(["Ingress", "Egress"]))
        );
        assert_eq!(
            default("policyTypes", json!({"egress": []})),
            Some(json!(["Ingress"]))
        );
        assert_eq!(
            default("podReplacementPolicy", json!({"podFailurePolicy": {}})),
            Some(json!("Failed"))
        );
        assert_eq!(
            default("backoffLimit", json!({"backoffLimitPerIndex": 1})),
            Some(json!(2_147_483_647))
        );
        assert_eq!(default("externalTrafficPolicy", json!({})), None);
        assert_eq!(
            default("externalTrafficPolicy", json!({"type": "NodePort"})),
            Some(json!("Cluster"))
        );
        assert_eq!(default("completions", json!({})), Some(json!(1)));
        assert_eq!(default("completions", json!({"parallelism": 2})), None);
        assert_eq!(default_beside("replicas", |_| None), None);
    }
}
