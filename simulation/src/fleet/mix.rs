//! The mix of objects that Argosy's measurements use, called M1.
//!
//! A workload is a Deployment with one live and two old ReplicaSets, four Pods, a Service with its EndpointSlice, two ConfigMaps of 2 KB, a
//! Secret of 1 KB and a ServiceAccount. Every fifth has an autoscaler, every tenth an Ingress and a custom resource, every twentieth a
//! StatefulSet with a claim. What came from Git has `managedFields`, its last applied configuration and Argo CD's tracking marks.

use base64::Engine as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::registry::GroupResource;
use crate::store::Population;

/// Workloads in one namespace.
const PER_NAMESPACE: u32 = 10;
/// Numbers of a workload's objects; the rest of an index is the workload.
const SLOTS: u32 = 32;
/// Objects of twenty workloads.
const PER_TWENTY: u32 = 20 * 14 + 4 + 2 + 2 + 2;

/// The place of an object in its workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The namespace of several workloads.
    Namespace,
    /// The Deployment.
    Deployment,
    /// A ReplicaSet: 0 is live, the others are old.
    ReplicaSet(u32),
    /// A Pod of the live ReplicaSet.
    Pod(u32),
    /// The Service.
    Service,
    /// Its EndpointSlice.
    EndpointSlice,
    /// A ConfigMap.
    ConfigMap(u32),
    /// The Secret.
    Secret,
    /// The ServiceAccount.
    ServiceAccount,
    /// The autoscaler.
    Autoscaler,
    /// The Ingress.
    Ingress,
    /// The StatefulSet.
    StatefulSet,
    /// Its claim.
    Claim,
    /// The custom resource.
    Widget,
}

const ALL: [Slot; 20] = [
    Slot::Namespace,
    Slot::Deployment,
    Slot::ReplicaSet(0),
    Slot::ReplicaSet(1),
    Slot::ReplicaSet(2),
    Slot::Pod(0),
    Slot::Pod(1),
    Slot::Pod(2),
    Slot::Pod(3),
    Slot::Service,
    Slot::EndpointSlice,
    Slot::ConfigMap(0),
    Slot::ConfigMap(1),
    Slot::Secret,
    Slot::ServiceAccount,
    Slot::Autoscaler,
    Slot::Ingress,
    Slot::StatefulSet,
    Slot::Claim,
    Slot::Widget,
];

impl Slot {
    /// The kind of the object.
    #[must_use]
    pub fn resource(self) -> GroupResource {
        let (group, plural) = match self {
            Self::Namespace => ("", "namespaces"),
            Self::Deployment => ("apps", "deployments"),
            Self::ReplicaSet(_) => ("apps", "replicasets"),
            Self::Pod(_) => ("", "pods"),
            Self::Service => ("", "services"),
            Self::EndpointSlice => ("discovery.k8s.io", "endpointslices"),
            Self::ConfigMap(_) => ("", "configmaps"),
            Self::Secret => ("", "secrets"),
            Self::ServiceAccount => ("", "serviceaccounts"),
            Self::Autoscaler => ("autoscaling", "horizontalpodautoscalers"),
            Self::Ingress => ("networking.k8s.io", "ingresses"),
            Self::StatefulSet => ("apps", "statefulsets"),
            Self::Claim => ("", "persistentvolumeclaims"),
            Self::Widget => ("simulation.example.com", "widgets"),
        };
        GroupResource::new(group, plural)
    }

    /// Group and kind as tracking marks name them, and the API version.
    fn kind(self) -> (&'static str, &'static str) {
        match self {
            Self::Namespace => ("v1", "Namespace"),
            Self::Deployment => ("apps/v1", "Deployment"),
            Self::ReplicaSet(_) => ("apps/v1", "ReplicaSet"),
            Self::Pod(_) => ("v1", "Pod"),
            Self::Service => ("v1", "Service"),
            Self::EndpointSlice => ("discovery.k8s.io/v1", "EndpointSlice"),
            Self::ConfigMap(_) => ("v1", "ConfigMap"),
            Self::Secret => ("v1", "Secret"),
            Self::ServiceAccount => ("v1", "ServiceAccount"),
            Self::Autoscaler => ("autoscaling/v2", "HorizontalPodAutoscaler"),
            Self::Ingress => ("networking.k8s.io/v1", "Ingress"),
            Self::StatefulSet => ("apps/v1", "StatefulSet"),
            Self::Claim => ("v1", "PersistentVolumeClaim"),
            Self::Widget => ("simulation.example.com/v1", "Widget"),
        }
    }

    fn number(self) -> u32 {
        let at = ALL.iter().position(|slot| *slot == self);
        u32::try_from(at.unwrap_or_default()).unwrap_or_default()
    }

    /// Whether the workload with that number has such an object.
    fn is_in(self, workload: u32) -> bool {
        match self {
            Self::Namespace => false,
            Self::Autoscaler => workload.is_multiple_of(5),
            Self::Ingress | Self::Widget => workload.is_multiple_of(10),
            Self::StatefulSet | Self::Claim => workload.is_multiple_of(20),
            _ => true,
        }
    }

    /// Whether Git has it.
    fn is_managed(self) -> bool {
        !matches!(
            self,
            Self::ReplicaSet(_) | Self::Pod(_) | Self::EndpointSlice | Self::Claim | Self::Namespace
        )
    }
}

/// How many workloads have about so many objects.
pub(super) fn workloads_of(objects: u32) -> u32 {
    let workloads = u64::from(objects) * 20 / u64::from(PER_TWENTY);
    u32::try_from(workloads)
        .unwrap_or(u32::MAX)
        .max(u32::from(objects > 0))
}

/// The definitions of the custom kinds: that of the workloads, and so many more.
pub(super) fn definitions(extra: u32) -> Vec<Value> {
    let definition = |plural: String, kind: String, schema: Value| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.simulation.example.com")},
            "spec": {
                "group": "simulation.example.com", "scope": "Namespaced",
                "names": {"plural": plural, "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": schema}}}],
            },
        })
    };
    let schema = json!({
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer", "default": 1}, "color": {"type": "string"},
            "parts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "weight": {"type": "integer"}}}},
        }},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    });
    let mut all = vec![definition("widgets".into(), "Widget".into(), schema)];
    let plain = json!({"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    all.extend(
        (0..extra)
            .map(|number| definition(format!("things{number}"), format!("Thing{number}"), plain.clone())),
    );
    all
}

/// The objects of one cluster.
#[derive(Clone, Debug)]
pub struct Mix {
    seed: u64,
    cluster: u32,
    unique: bool,
    /// When the youngest object was made.
    now: Timestamp,
}

impl Population for Mix {
    fn object(&self, index: u32) -> Value {
        let (workload, slot) = (index / SLOTS, ALL[(index % SLOTS) as usize % ALL.len()]);
        Maker {
            mix: self,
            workload,
            slot,
        }
        .object()
    }
}

impl Mix {
    pub(super) fn new(seed: u64, cluster: u32, unique: bool, now: Timestamp) -> Self {
        Self {
            seed,
            cluster,
            unique,
            now,
        }
    }

    /// The namespaces of so many workloads, with their indices.
    pub(super) fn namespaces(&self, workloads: u32) -> Vec<(String, u32)> {
        let count = workloads.div_ceil(PER_NAMESPACE);
        (0..count)
            .map(|number| (format!("team-{number}"), number * PER_NAMESPACE * SLOTS))
            .collect()
    }

    /// The objects of a workload: slot, namespace, name, index.
    pub(super) fn objects(&self, workload: u32) -> Vec<(Slot, String, String, u32)> {
        let in_it = ALL.into_iter().filter(|slot| slot.is_in(workload));
        in_it
            .map(|slot| {
                let maker = Maker {
                    mix: self,
                    workload,
                    slot,
                };
                (
                    slot,
                    maker.namespace(),
                    maker.name(slot),
                    workload * SLOTS + slot.number(),
                )
            })
            .collect()
    }
}

/// Makes one object.
struct Maker<'a> {
    mix: &'a Mix,
    workload: u32,
    slot: Slot,
}

/// Words and numbers that depend on nothing but where they stand.
fn mixed(seed: u64, a: u64, b: u64) -> u64 {
    let mut x = seed ^ a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b.wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    for shift in [30, 27, 31] {
        x = (x ^ (x >> shift)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }
    x ^ (x >> 29)
}

impl Maker<'_> {
    fn random(&self, of: u64) -> u64 {
        mixed(self.mix.seed, u64::from(self.workload), of)
    }

    /// A word that another workload has too, unless everything is to be unique.
    fn word(&self, of: u64) -> String {
        let from = if self.mix.unique {
            self.random(of)
        } else {
            mixed(7, u64::from(self.workload % 8), of)
        };
        format!("{from:016x}")
    }

    fn text(&self, of: u64, len: usize) -> String {
        let mut text = String::with_capacity(len + 20);
        let mut line = 0;
        while text.len() < len {
            text.push_str("setting.");
            text.push_str(&self.word(of * 1000 + line));
            text.push_str(" = on\n");
            line += 1;
        }
        text
    }

    fn namespace(&self) -> String {
        format!("team-{}", self.workload / PER_NAMESPACE)
    }

    fn app(&self) -> String {
        format!("app-{}-{}", self.mix.cluster, self.workload)
    }

    fn hash(&self, set: u32) -> String {
        let letters = b"bcdfghjklmnpqrstvwxz2456789";
        let random = self.random(100 + u64::from(set));
        (0..10)
            .map(|at| char::from(letters[(random >> (at * 5)) as usize % letters.len()]))
            .collect()
    }

    fn name(&self, slot: Slot) -> String {
        let app = self.app();
        match slot {
            Slot::Namespace => self.namespace(),
            Slot::ReplicaSet(set) => format!("{app}-{}", self.hash(set)),
            Slot::Pod(pod) => {
                let suffix = self.random(200 + u64::from(pod));
                let letters = b"bcdfghjklmnpqrstvwxz2456789";
                let suffix: String = (0..5)
                    .map(|at| char::from(letters[(suffix >> (at * 5)) as usize % letters.len()]))
                    .collect();
                format!("{app}-{}-{suffix}", self.hash(0))
            }
            Slot::EndpointSlice => format!("{app}-{}", &self.hash(9)[..5]),
            Slot::ConfigMap(number) => format!("{app}-config-{number}"),
            Slot::StatefulSet => format!("{app}-store"),
            Slot::Claim => format!("data-{app}-store-0"),
            _ => app,
        }
    }

    fn uid(&self, slot: Slot) -> String {
        let of = 300 + u64::from(slot.number());
        let bits = u128::from(self.random(of)) << 64 | u128::from(self.random(of + 1000));
        crate::write::uid_of(bits)
    }

    fn time(&self, seconds_ago: i64) -> String {
        crate::api_server::stamp(
            self.mix.now - SignedDuration::from_secs(seconds_ago + i64::from(self.workload)),
        )
    }

    fn labels(&self) -> Value {
        json!({
            "app.kubernetes.io/name": self.app(), "app.kubernetes.io/part-of": format!("suite-{}", self.workload % 7),
            "app.kubernetes.io/managed-by": "argocd", "team": self.namespace(),
        })
    }

    fn object(&self) -> Value {
        let mut object = self.body();
        let created = self.time(86_400);
        let managed = self.slot.is_managed();
        let (api_version, kind) = self.slot.kind();
        let mut annotations = object["metadata"]["annotations"].clone();
        if annotations.is_null() {
            annotations = json!({});
        }
        if managed {
            let group = api_version.split_once('/').map_or("", |(group, _)| group);
            annotations["argocd.argoproj.io/tracking-id"] = format!(
                "{}:{group}/{kind}:{}/{}",
                self.app(),
                self.namespace(),
                self.name(self.slot)
            )
            .into();
            let mut applied = object.clone();
            for field in ["status", "metadata"] {
                if let Value::Object(fields) = &mut applied {
                    fields.remove(field);
                }
            }
            applied["apiVersion"] = api_version.into();
            applied["kind"] = kind.into();
            applied["metadata"] = json!({
                "name": self.name(self.slot), "namespace": self.namespace(), "labels": self.labels(), "annotations": annotations,
            });
            annotations["kubectl.kubernetes.io/last-applied-configuration"] = format!("{applied}\n").into();
        }
        let metadata = &mut object["metadata"];
        if metadata.is_null() {
            *metadata = json!({});
        }
        if annotations
            .as_object()
            .is_some_and(|annotations| !annotations.is_empty())
        {
            metadata["annotations"] = annotations;
        }
        metadata["name"] = self.name(self.slot).into();
        if self.slot != Slot::Namespace {
            metadata["namespace"] = self.namespace().into();
        }
        metadata["uid"] = self.uid(self.slot).into();
        metadata["creationTimestamp"] = created.as_str().into();
        if metadata["labels"].is_null() {
            metadata["labels"] = self.labels();
        }
        let manager = if managed {
            "argocd-controller"
        } else {
            "kube-controller-manager"
        };
        let managers = managers(&object, manager, api_version, &created, &self.time(600));
        object["metadata"]["managedFields"] = managers;
        object
    }

    fn owned_by(&self, slot: Slot) -> Value {
        let (api_version, kind) = slot.kind();
        json!([{
            "apiVersion": api_version, "kind": kind, "name": self.name(slot), "uid": self.uid(slot),
            "controller": true, "blockOwnerDeletion": true,
        }])
    }

    fn selector(&self) -> Value {
        json!({"app.kubernetes.io/name": self.app()})
    }

    fn template(&self, version: u32) -> Value {
        let app = self.app();
        let mut env: Vec<Value> = (0..6)
            .map(|number| json!({"name": format!("OPTION_{number}"), "value": self.word(400 + number)}))
            .collect();
        env.push(json!({"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}));
        let probe = |path: &str| {
            json!({
                "httpGet": {"path": path, "port": "http", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
                "successThreshold": 1, "failureThreshold": 3,
            })
        };
        let image = self.random(7) % 30;
        json!({
            "metadata": {
                "labels": {"app.kubernetes.io/name": app, "team": self.namespace(), "version": format!("v{version}")},
                "annotations": {"checksum/config": self.word(410 + u64::from(version))},
            },
            "spec": {
                "volumes": [
                    {"name": "config", "configMap": {"name": format!("{app}-config-0"), "defaultMode": 420}},
                    {"name": "secret", "secret": {"secretName": app, "defaultMode": 420}},
                    {"name": "tmp", "emptyDir": {}},
                ],
                "containers": [{
                    "name": "main", "image": format!("registry.example.com/team/service-{image}:1.{}.{version}", self.random(8) % 40),
                    "args": ["serve", "--config=/etc/config/app.conf", format!("--name={app}")],
                    "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}, {"name": "metrics", "containerPort": 9090, "protocol": "TCP"}],
                    "env": env,
                    "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "50m", "memory": "128Mi"}},
                    "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}, {"name": "secret", "readOnly": true, "mountPath": "/etc/secret"}, {"name": "tmp", "mountPath": "/tmp"}],
                    "livenessProbe": probe("/healthz"), "readinessProbe": probe("/ready"),
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
                    "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true},
                }],
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
                "serviceAccountName": app, "serviceAccount": app, "securityContext": {"fsGroup": 65532},
                "schedulerName": "default-scheduler",
            },
        })
    }

    fn body(&self) -> Value {
        let app = self.app();
        match self.slot {
            Slot::Namespace => json!({
                "metadata": {"labels": {"kubernetes.io/metadata.name": self.namespace()}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            }),
            Slot::Deployment => self.deployment(),
            Slot::ReplicaSet(set) => self.replica_set(set),
            Slot::Pod(pod) => self.pod(pod),
            Slot::Service => json!({
                "spec": {
                    "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": "http"}],
                    "selector": self.selector(), "clusterIP": self.address(10, 500), "clusterIPs": [self.address(10, 500)],
                    "type": "ClusterIP", "sessionAffinity": "None", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                    "internalTrafficPolicy": "Cluster",
                },
                "status": {"loadBalancer": {}},
            }),
            Slot::EndpointSlice => {
                let endpoint = |pod: u32| {
                    json!({
                        "addresses": [self.address(172, 510 + u64::from(pod))],
                        "conditions": {"ready": true, "serving": true, "terminating": false},
                        "nodeName": self.node(pod),
                        "targetRef": {"kind": "Pod", "namespace": self.namespace(), "name": self.name(Slot::Pod(pod)), "uid": self.uid(Slot::Pod(pod))},
                    })
                };
                json!({
                    "metadata": {
                        "generateName": format!("{app}-"), "ownerReferences": self.owned_by(Slot::Service),
                        "labels": {"kubernetes.io/service-name": app, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
                    },
                    "addressType": "IPv4", "endpoints": (0..4).map(endpoint).collect::<Vec<_>>(),
                    "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
                })
            }
            Slot::ConfigMap(number) => {
                json!({"data": {"app.conf": self.text(600 + u64::from(number), 2000)}})
            }
            Slot::Secret => {
                let bytes = self.text(620, 700);
                json!({
                    "data": {"token": base64::engine::general_purpose::STANDARD.encode(bytes)}, "type": "Opaque",
                })
            }
            Slot::ServiceAccount => json!({}),
            Slot::Autoscaler => json!({
                "spec": {
                    "scaleTargetRef": {"kind": "Deployment", "name": app, "apiVersion": "apps/v1"}, "minReplicas": 4, "maxReplicas": 10,
                    "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}],
                },
                "status": {"currentReplicas": 4, "desiredReplicas": 4, "currentMetrics": null, "conditions": [
                    {"type": "AbleToScale", "status": "True", "lastTransitionTime": self.time(80_000), "reason": "ReadyForNewScale", "message": "recommended size matches current size"},
                ]},
            }),
            Slot::Ingress => json!({
                "spec": {"ingressClassName": "public", "rules": [{"host": format!("{app}.example.com"), "http": {"paths": [
                    {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": app, "port": {"name": "http"}}}},
                ]}}]},
                "status": {"loadBalancer": {"ingress": [{"ip": self.address(192, 520)}]}},
            }),
            Slot::StatefulSet => self.stateful_set(),
            Slot::Claim => json!({
                "metadata": {"finalizers": ["kubernetes.io/pvc-protection"], "labels": self.selector()},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Gi"}}, "storageClassName": "standard",
                    "volumeMode": "Filesystem", "volumeName": format!("pvc-{}", self.uid(Slot::Claim))},
                "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "8Gi"}},
            }),
            Slot::Widget => json!({
                "metadata": {"generation": 1},
                "spec": {"size": self.random(9) % 9 + 1, "color": self.word(630), "parts": [
                    {"name": "left", "weight": 1}, {"name": "right", "weight": self.random(10) % 100},
                ]},
                "status": {"ready": true, "observedGeneration": 1},
            }),
        }
    }

    fn address(&self, first: u8, of: u64) -> String {
        let random = self.random(of);
        format!(
            "{first}.{}.{}.{}",
            96 + random % 16,
            random >> 8 & 0xff,
            (random >> 16) % 254 + 1
        )
    }

    fn node(&self, pod: u32) -> String {
        format!("node-{}", self.random(530 + u64::from(pod)) % 50)
    }

    fn deployment(&self) -> Value {
        let condition = |kind: &str, reason: &str, message: String| {
            json!({
                "type": kind, "status": "True", "lastUpdateTime": self.time(80_000), "lastTransitionTime": self.time(80_000),
                "reason": reason, "message": message,
            })
        };
        json!({
            "metadata": {"generation": 3, "annotations": {"deployment.kubernetes.io/revision": "3"}},
            "spec": {
                "replicas": 4, "selector": {"matchLabels": self.selector()}, "template": self.template(3),
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
                "revisionHistoryLimit": 2, "progressDeadlineSeconds": 600,
            },
            "status": {
                "observedGeneration": 3, "replicas": 4, "updatedReplicas": 4, "readyReplicas": 4, "availableReplicas": 4,
                "conditions": [
                    condition("Progressing", "NewReplicaSetAvailable", format!("ReplicaSet \"{}\" has successfully progressed.", self.name(Slot::ReplicaSet(0)))),
                    condition("Available", "MinimumReplicasAvailable", "Deployment has minimum availability.".to_owned()),
                ],
            },
        })
    }

    fn replica_set(&self, set: u32) -> Value {
        let mut template = self.template(3 - set);
        template["metadata"]["labels"]["pod-template-hash"] = self.hash(set).into();
        let mut selector = self.selector();
        selector["pod-template-hash"] = self.hash(set).into();
        let replicas = if set == 0 { 4 } else { 0 };
        let mut status = json!({"replicas": replicas, "observedGeneration": 2});
        if set == 0 {
            for field in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
                status[field] = replicas.into();
            }
        }
        json!({
            "metadata": {
                "generation": 2, "labels": template["metadata"]["labels"], "ownerReferences": self.owned_by(Slot::Deployment),
                "annotations": {
                    "deployment.kubernetes.io/desired-replicas": "4", "deployment.kubernetes.io/max-replicas": "5",
                    "deployment.kubernetes.io/revision": (3 - set).to_string(),
                },
            },
            "spec": {"replicas": replicas, "selector": {"matchLabels": selector}, "template": template},
            "status": status,
        })
    }

    fn pod(&self, pod: u32) -> Value {
        let mut template = self.template(3);
        template["metadata"]["labels"]["pod-template-hash"] = self.hash(0).into();
        let mut spec = template["spec"].clone();
        spec["nodeName"] = self.node(pod).into();
        spec["priority"] = 0.into();
        spec["enableServiceLinks"] = true.into();
        spec["preemptionPolicy"] = "PreemptLowerPriority".into();
        let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        spec["tolerations"] = json!([
            toleration("node.kubernetes.io/not-ready"),
            toleration("node.kubernetes.io/unreachable")
        ]);
        let started = self.time(70_000 - i64::from(pod) * 13);
        let conditions: Vec<Value> = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
            .iter()
            .map(|kind| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": started}))
            .collect();
        let image = spec["containers"][0]["image"].clone();
        let (ip, host) = (
            self.address(172, 510 + u64::from(pod)),
            self.address(10, 540 + u64::from(pod)),
        );
        json!({
            "metadata": {
                "generateName": format!("{}-", self.name(Slot::ReplicaSet(0))), "labels": template["metadata"]["labels"],
                "annotations": template["metadata"]["annotations"], "ownerReferences": self.owned_by(Slot::ReplicaSet(0)),
            },
            "spec": spec,
            "status": {
                "phase": "Running", "conditions": conditions, "hostIP": host, "hostIPs": [{"ip": host}], "podIP": ip, "podIPs": [{"ip": ip}],
                "startTime": started, "qosClass": "Burstable",
                "containerStatuses": [{
                    "name": "main", "image": image, "imageID": format!("registry.example.com/team@sha256:{:064x}", self.random(8)),
                    "containerID": format!("containerd://{:032x}{:032x}", self.random(550 + u64::from(pod)), self.random(560 + u64::from(pod))),
                    "ready": true, "started": true, "restartCount": self.random(570 + u64::from(pod)) % 4, "state": {"running": {"startedAt": started}},
                    "lastState": {},
                }],
            },
        })
    }

    fn stateful_set(&self) -> Value {
        let revision = format!("{}-{}", self.name(Slot::StatefulSet), self.hash(8));
        let mut template = self.template(1);
        template["metadata"]["labels"]["app.kubernetes.io/name"] = self.name(Slot::StatefulSet).into();
        json!({
            "metadata": {"generation": 1},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": {"app.kubernetes.io/name": self.name(Slot::StatefulSet)}},
                "template": template, "serviceName": self.app(), "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}, "revisionHistoryLimit": 10,
                "volumeClaimTemplates": [{"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "data"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Gi"}}, "volumeMode": "Filesystem"},
                    "status": {"phase": "Pending"}}],
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            },
            "status": {"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "currentReplicas": 1, "updatedReplicas": 1,
                "availableReplicas": 1, "currentRevision": revision, "updateRevision": revision, "collisionCount": 0},
        })
    }
}

/// `managedFields` that name every field: of what is wanted by `manager`, of the status by who reports it.
fn managers(object: &Value, manager: &str, api_version: &str, created: &str, reported: &str) -> Value {
    let fields = |names: &[&str]| {
        let mut fields = json!({});
        for name in names {
            if let Some(value) = object.get(*name) {
                fields[format!("f:{name}")] = owned(value);
            }
        }
        fields
    };
    let mut wanted = fields(&["data", "spec", "type", "addressType", "endpoints", "ports"]);
    let mut metadata = json!({});
    for name in ["annotations", "labels", "ownerReferences", "generateName"] {
        if let Some(value) = object["metadata"].get(name) {
            metadata[format!("f:{name}")] = owned(value);
        }
    }
    wanted["f:metadata"] = metadata;
    let mut all = vec![json!({
        "manager": manager, "operation": "Update", "apiVersion": api_version, "time": created, "fieldsType": "FieldsV1", "fieldsV1": wanted,
    })];
    if object.get("status").is_some() {
        all.push(json!({
            "manager": "kubelet", "operation": "Update", "apiVersion": api_version, "time": reported, "fieldsType": "FieldsV1",
            "fieldsV1": fields(&["status"]), "subresource": "status",
        }));
    }
    Value::Array(all)
}

fn owned(value: &Value) -> Value {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let mut owned = json!({".": {}});
            for (name, field) in fields {
                owned[format!("f:{name}")] = self::owned(field);
            }
            owned
        }
        Value::Array(items) if items.iter().all(|item| item.get("name").is_some()) => {
            let mut owned = json!({".": {}});
            for item in items {
                owned[format!("k:{{\"name\":{}}}", item["name"])] = self::owned(item);
            }
            owned
        }
        _ => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_objects() {
        let now = Timestamp::from_second(1_800_000_000).unwrap_or_default();
        let make = |seed| Mix::new(seed, 3, false, now);
        for (_, _, _, index) in make(1).objects(20) {
            assert_eq!(make(1).object(index), make(1).object(index));
            assert_ne!(make(1).object(index), make(2).object(index));
        }
    }

    #[test]
    fn twenty_workloads_are_290_objects() {
        let mix = Mix::new(1, 0, false, Timestamp::default());
        let count: usize = (0..20).map(|workload| mix.objects(workload).len()).sum();
        assert_eq!(count, PER_TWENTY as usize);
        assert_eq!(workloads_of(290), 20);
    }

    #[test]
    fn owners_are_where_owned_objects_say() {
        let mix = Mix::new(1, 0, false, Timestamp::default());
        let pod = mix.object(7 * SLOTS + Slot::Pod(2).number());
        let set = mix.object(7 * SLOTS + Slot::ReplicaSet(0).number());
        let owner = &pod["metadata"]["ownerReferences"][0];
        assert_eq!(owner["uid"], set["metadata"]["uid"]);
        assert_eq!(owner["name"], set["metadata"]["name"]);
    }
}
