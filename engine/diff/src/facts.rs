//! What the Kubernetes API does that its OpenAPI does not tell.
//!
//! Two kinds of facts: which zero values the Go types keep, and which defaults the API server fills in. The first were read off the types of
//! Kubernetes 1.36 by reflection: a name stands here if it is a pointer in any type, which is the same in all of them but for a few names.

use std::collections::HashMap;
use std::sync::LazyLock;

use argosy_object::Value;

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

/// Whether `value` is what the API server puts into the field `name` under `parent` (the nearest field above) if nobody states it.
pub(crate) fn is_default(parent: &str, name: &str, value: &Value) -> bool {
    let parent = if parent.is_empty() { "/" } else { parent };
    [parent, "*"].iter().any(|parent| {
        DEFAULTS
            .get(&(*parent, name))
            .is_some_and(|defaults| defaults.contains(value))
    })
}

/// Defaults by the field and the field above it; `*` for any, `/` for the object itself.
static DEFAULTS: LazyLock<HashMap<(&'static str, &'static str), Vec<Value>>> = LazyLock::new(|| {
    let mut table: HashMap<_, Vec<Value>> = HashMap::new();
    for line in DEFAULTS_TEXT.lines() {
        let mut words = line.split_whitespace();
        let (Some(parent), Some(name), Some(json)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if let Ok(value) = serde_json::from_str(json) {
            table.entry((parent, name)).or_default().push(value);
        }
    }
    table
});

/// One a line: parent, field, value. Two lines for one field: either value is a default (by image tag, by version of the server).
const DEFAULTS_TEXT: &str = r#"
* protocol "TCP"
* defaultMode 420
* terminationMessagePath "/dev/termination-log"
* terminationMessagePolicy "File"
* imagePullPolicy "IfNotPresent"
* imagePullPolicy "Always"
* dnsPolicy "ClusterFirst"
* schedulerName "default-scheduler"
* terminationGracePeriodSeconds 30
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
* externalTrafficPolicy "Cluster"
* ipFamilyPolicy "SingleStack"
* allocateLoadBalancerNodePorts true
* publishNotReadyAddresses false
* completionMode "NonIndexed"
* podReplacementPolicy "TerminatingOrFailed"
* backoffLimit 6
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
* namespaceSelector {}
* objectSelector {}
spec restartPolicy "Always"
spec securityContext {}
spec replicas 1
spec completions 1
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
rollingUpdate partition 0
rollingUpdate maxSurge "25%"
rollingUpdate maxSurge 0
rollingUpdate maxUnavailable "25%"
rollingUpdate maxUnavailable 1
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
image pullPolicy "IfNotPresent"
image pullPolicy "Always"
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
spec podReplacementPolicy "Failed"
spec policyTypes ["Ingress","Egress"]
spec policyTypes ["Ingress"]
spec volumeLifecycleModes ["Persistent"]
volumeClaimTemplates kind "PersistentVolumeClaim"
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
        assert!(is_default("ports", "protocol", &json!("TCP")));
        assert!(!is_default("ports", "protocol", &json!("UDP")));
        assert!(is_default("spec", "restartPolicy", &json!("Always")));
        assert!(!is_default("containers", "restartPolicy", &json!("Always")));
    }
}
