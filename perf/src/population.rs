//! The population M1: what a fleet of ordinary workloads looks like to an API server, object by object.
//!
//! A workload is a Deployment with one live and two old ReplicaSets and four Pods, a Service with its EndpointSlice, two
//! ConfigMaps of about 2 KB, a Secret of about 1 KB and a ServiceAccount; one in five has a HorizontalPodAutoscaler,
//! one in ten an Ingress and a custom resource, one in twenty a StatefulSet with a claim. Objects carry managedFields
//! as the server keeps them, and what came from Git also its last-applied annotation and tracking id.
//!
//! With `unique`, nothing repeats that need not: every template has environment variables, labels, annotations and images
//! of its own, and every Pod is the only one of its template. That is the worst case of a store that shares.

use base64::Engine as _;
use serde_json::{Map, Value, json};

use crate::chance::Chance;

/// The moment of the first object, in seconds since 1970.
const EPOCH: i64 = 1_780_000_000;

/// Makes workloads. The same seed makes the same fleet.
pub(crate) struct Population {
    chance: Chance,
    words: Vec<String>,
    unique: bool,
    version: u64,
    now: i64,
}

struct Workload {
    app: String,
    namespace: String,
    team: String,
    image: String,
    containers: Vec<Value>,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
}

impl Population {
    pub(crate) fn new(seed: u64, unique: bool) -> Self {
        let mut words = Chance::new(7);
        Population {
            words: (0..2000).map(|_| words.word()).collect(),
            chance: Chance::new(seed),
            unique,
            version: 1000 + seed * 1_000_000,
            now: EPOCH,
        }
    }

    /// All objects of one workload, as a list of the server has them; `index` makes its name.
    pub(crate) fn workload(&mut self, index: usize) -> Vec<Value> {
        self.now += i64::try_from(self.chance.below(600)).unwrap_or(0);
        let work = self.plan(index);
        let mut out = Vec::with_capacity(20);
        let deployment = self.deployment(&work);
        let deployment_uid = uid(&deployment);
        for old in 0..3 {
            let hash = self.hash();
            let name = format!("{}-{hash}", work.app);
            let replicas = if old == 0 && !self.unique {
                4
            } else {
                i64::from(old == 0)
            };
            let set = self.replica_set(&work, &name, &hash, replicas, &deployment_uid);
            let set_uid = uid(&set);
            out.push(set);
            // Where nothing repeats, each of the four Pods is a workload's own.
            for _ in 0..replicas {
                out.push(self.pod(&work, &name, &hash, &set_uid));
            }
        }
        out.push(deployment);
        if self.unique {
            for number in 1..4 {
                let mut other = self.plan(index * 10 + number);
                other.namespace.clone_from(&work.namespace);
                let (hash, owner) = (self.hash(), self.uuid());
                let name = format!("{}-{hash}", other.app);
                out.push(self.pod(&other, &name, &hash, &owner));
            }
        }
        out.push(self.service(&work));
        let service_uid = uid(&out[out.len() - 1]);
        out.push(self.endpoint_slice(&work, &service_uid));
        for number in 0..2 {
            out.push(self.config_map(&work, number));
        }
        out.push(self.secret(&work));
        out.push(self.service_account(&work));
        if self.chance.below(5) == 0 {
            out.push(self.autoscaler(&work));
        }
        if self.chance.below(10) == 0 {
            out.push(self.ingress(&work));
        }
        if self.chance.below(10) == 0 {
            out.push(self.custom(&work));
        }
        if self.chance.below(20) == 0 {
            let set = self.stateful_set(&work);
            out.push(set);
            out.push(self.claim(&work));
        }
        out
    }

    fn plan(&mut self, index: usize) -> Workload {
        let app = format!(
            "{}-{}-{index:05}",
            self.words[index % 97],
            self.words[index % 1009]
        );
        let team = self.words[index % 20].clone();
        let image = format!("registry.example.com/{team}/{app}:1.{}.{}", index % 9, index % 31);
        let containers = if index % 5 < 3 { 1 } else { 2 };
        let mut labels = Map::new();
        labels.insert("app".into(), json!(app));
        labels.insert("app.kubernetes.io/name".into(), json!(app));
        labels.insert("app.kubernetes.io/part-of".into(), json!(team));
        labels.insert("app.kubernetes.io/managed-by".into(), json!("Helm"));
        let mut annotations = Map::new();
        annotations.insert("prometheus.io/scrape".into(), json!("true"));
        annotations.insert("prometheus.io/port".into(), json!("9090"));
        if self.unique {
            for _ in 0..3 {
                labels.insert(self.random(12), json!(self.random(16)));
                annotations.insert(format!("example.com/{}", self.random(10)), json!(self.random(40)));
            }
        }
        let mut work = Workload {
            namespace: format!("{team}-{}", index % 50),
            app,
            team,
            image,
            containers: Vec::new(),
            labels,
            annotations,
        };
        for number in 0..containers {
            let container = self.container(&work, index, number);
            work.containers.push(container);
        }
        work
    }

    fn container(&mut self, work: &Workload, index: usize, number: usize) -> Value {
        let variables = if number == 1 { 2 } else { 4 + index % 9 };
        let env: Vec<Value> = (0..variables)
            .map(|at| {
                if self.unique {
                    json!({"name": self.random(14).to_uppercase(), "value": self.random(24)})
                } else if at == 0 {
                    json!({"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}})
                } else {
                    let key = self.words[(index + at) % 300].to_uppercase();
                    json!({"name": key, "value": self.words[(index * 3 + at) % 2000]})
                }
            })
            .collect();
        let (name, image) = match (number, self.unique) {
            (0, false) => (work.app.clone(), work.image.clone()),
            (_, true) => (
                self.random(9),
                format!("registry.example.com/{}:{}", self.random(12), self.random(8)),
            ),
            _ => (
                "proxy".to_owned(),
                "registry.example.com/mesh/proxy:2.1.0".to_owned(),
            ),
        };
        let probe = |path: &str| {
            json!({"httpGet": {"path": path, "port": "http", "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1,
                   "failureThreshold": 3, "successThreshold": 1})
        };
        json!({
            "name": name, "image": image, "imagePullPolicy": "IfNotPresent",
            "args": ["--listen=:8080", format!("--service={}", work.app), "--log-format=json"],
            "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
            "env": env,
            "resources": {
                "limits": {"cpu": "1", "memory": "512Mi"},
                "requests": {"cpu": format!("{}m", 50 * (1 + index % 8)), "memory": "128Mi"},
            },
            "livenessProbe": probe("/healthz"), "readinessProbe": probe("/ready"),
            "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                                "capabilities": {"drop": ["ALL"]}},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "volumeMounts": [{"name": "config", "mountPath": "/etc/config", "readOnly": true}],
        })
    }

    fn pod_spec(&self, work: &Workload, service_account: bool) -> Value {
        let mut spec = json!({
            "containers": work.containers,
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "securityContext": {"runAsNonRoot": true, "fsGroup": 1000}, "terminationGracePeriodSeconds": 30,
            "volumes": [{"name": "config", "configMap": {"name": format!("{}-0", work.app), "defaultMode": 420}}],
        });
        if service_account {
            spec["serviceAccount"] = json!(work.app);
            spec["serviceAccountName"] = json!(work.app);
        }
        spec
    }

    fn deployment(&mut self, work: &Workload) -> Value {
        let wanted = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": self.bare_meta(work, &work.app),
            "spec": {
                "replicas": 4, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
                "selector": {"matchLabels": {"app": work.app}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
                "template": {
                    "metadata": {"labels": work.labels, "annotations": work.annotations},
                    "spec": self.pod_spec(work, true),
                },
            },
        });
        let mut live = self.managed(work, wanted);
        let (then, now) = (self.time(-3600), self.time(40));
        live["metadata"]["generation"] = json!(3);
        live["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = json!("3");
        live["status"] = json!({
            "availableReplicas": 4, "readyReplicas": 4, "replicas": 4, "updatedReplicas": 4, "observedGeneration": 3,
            "conditions": [
                {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
                 "message": "Deployment has minimum availability.", "lastTransitionTime": then, "lastUpdateTime": then},
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable",
                 "message": format!("ReplicaSet \"{}-6d4f8b9c7\" has successfully progressed.", work.app),
                 "lastTransitionTime": then, "lastUpdateTime": now},
            ],
        });
        self.status_manager(&mut live, "kube-controller-manager");
        live
    }

    fn replica_set(&mut self, work: &Workload, name: &str, hash: &str, replicas: i64, owner: &str) -> Value {
        let mut labels = work.labels.clone();
        labels.insert("pod-template-hash".into(), json!(hash));
        let mut set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": name, "namespace": work.namespace, "labels": labels, "generation": 1,
                "annotations": {"deployment.kubernetes.io/desired-replicas": "4", "deployment.kubernetes.io/max-replicas": "5",
                                "deployment.kubernetes.io/revision": "3"},
                "ownerReferences": [owner_reference("apps/v1", "Deployment", &work.app, owner)],
            },
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": work.app, "pod-template-hash": hash}},
                "template": {"metadata": {"labels": labels, "annotations": work.annotations},
                             "spec": self.pod_spec(work, true)},
            },
        });
        self.served(&mut set, "kube-controller-manager", "Update");
        set["status"] = json!({"replicas": replicas, "observedGeneration": 1, "fullyLabeledReplicas": replicas,
                               "readyReplicas": replicas, "availableReplicas": replicas});
        self.status_manager(&mut set, "kube-controller-manager");
        set
    }

    fn pod(&mut self, work: &Workload, set: &str, hash: &str, owner: &str) -> Value {
        let name = format!("{set}-{}", self.suffix());
        let mut labels = work.labels.clone();
        labels.insert("pod-template-hash".into(), json!(hash));
        let mut spec = self.pod_spec(work, true);
        let node = self.chance.below(200);
        let volume = format!("kube-api-access-{}", self.suffix());
        spec["nodeName"] = json!(format!("ip-10-0-{}-{node}.eu-west-1.compute.internal", node % 16));
        spec["enableServiceLinks"] = json!(true);
        spec["preemptionPolicy"] = json!("PreemptLowerPriority");
        spec["priority"] = json!(0);
        spec["tolerations"] = json!([
            {"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300},
            {"effect": "NoExecute", "key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300},
        ]);
        let token = json!({"name": volume, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true});
        for container in spec["containers"].as_array_mut().into_iter().flatten() {
            if let Some(mounts) = container["volumeMounts"].as_array_mut() {
                mounts.push(token.clone());
            }
        }
        if let Some(volumes) = spec["volumes"].as_array_mut() {
            volumes.push(json!({"name": volume, "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
                {"downwardAPI": {"items": [{"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"}]}},
            ]}}));
        }
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "generateName": format!("{set}-"), "namespace": work.namespace, "labels": labels,
                "annotations": work.annotations,
                "ownerReferences": [owner_reference("apps/v1", "ReplicaSet", set, owner)],
            },
            "spec": spec,
        });
        self.served(&mut pod, "kube-controller-manager", "Update");
        let delay = 4 + i64::try_from(self.chance.below(30)).unwrap_or(0);
        let (start, ready) = (self.time(0), self.time(delay));
        let condition = |kind: &str, at: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": at, "observedGeneration": 1});
        let statuses: Vec<Value> = work
            .containers
            .iter()
            .map(|container| {
                let image = container["image"].as_str().unwrap_or_default();
                let digest = argosy_object::ContentHash::of(image.as_bytes()).to_string();
                json!({
                    "name": container["name"], "image": image, "ready": true, "started": true, "restartCount": 0,
                    "imageID": format!("{}@sha256:{digest}", image.split(':').next().unwrap_or_default()),
                    "containerID": format!("containerd://{}", self.hex(64)), "lastState": {},
                    "state": {"running": {"startedAt": self.time(2)}},
                })
            })
            .collect();
        let ip = format!(
            "10.{}.{}.{}",
            self.chance.below(4),
            self.chance.below(256),
            self.chance.below(256)
        );
        let host = format!("10.0.{}.{node}", node % 16);
        pod["status"] = json!({
            "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "hostIP": host, "hostIPs": [{"ip": host}],
            "qosClass": "Burstable", "startTime": start, "observedGeneration": 1,
            "conditions": [
                condition("PodReadyToStartContainers", &ready), condition("Initialized", &start), condition("Ready", &ready),
                condition("ContainersReady", &ready), condition("PodScheduled", &start),
            ],
            "containerStatuses": statuses,
        });
        self.status_manager(&mut pod, "kubelet");
        pod
    }

    fn service(&mut self, work: &Workload) -> Value {
        let wanted = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": self.bare_meta(work, &work.app),
            "spec": {"ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"}],
                     "selector": {"app": work.app}, "type": "ClusterIP"},
        });
        let mut live = self.managed(work, wanted);
        let ip = format!("172.20.{}.{}", self.chance.below(256), self.chance.below(256));
        live["spec"]["clusterIP"] = json!(ip);
        live["spec"]["clusterIPs"] = json!([ip]);
        live["spec"]["ipFamilies"] = json!(["IPv4"]);
        live["spec"]["ipFamilyPolicy"] = json!("SingleStack");
        live["spec"]["internalTrafficPolicy"] = json!("Cluster");
        live["spec"]["sessionAffinity"] = json!("None");
        live["status"] = json!({"loadBalancer": {}});
        live
    }

    fn endpoint_slice(&mut self, work: &Workload, owner: &str) -> Value {
        let endpoints: Vec<Value> = (0..4)
            .map(|_| {
                let node = self.chance.below(200);
                json!({
                    "addresses": [format!("10.{}.{}.{}", self.chance.below(4), self.chance.below(256), self.chance.below(256))],
                    "conditions": {"ready": true, "serving": true, "terminating": false},
                    "nodeName": format!("ip-10-0-{}-{node}.eu-west-1.compute.internal", node % 16),
                    "targetRef": {"kind": "Pod", "name": format!("{}-6d4f8b9c7-{}", work.app, self.suffix()),
                                  "namespace": work.namespace, "uid": self.uuid()},
                    "zone": "eu-west-1a",
                })
            })
            .collect();
        let mut slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": format!("{}-{}", work.app, self.suffix()), "generateName": format!("{}-", work.app),
                "namespace": work.namespace, "generation": 6,
                "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": self.time(30)},
                "labels": {"kubernetes.io/service-name": work.app, "app": work.app,
                           "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
                "ownerReferences": [owner_reference("v1", "Service", &work.app, owner)],
            },
            "endpoints": endpoints,
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        });
        self.served(&mut slice, "kube-controller-manager", "Update");
        slice
    }

    fn config_map(&mut self, work: &Workload, number: usize) -> Value {
        let mut text = format!("# configuration of {}\n", work.app);
        while text.len() < 2000 {
            let line = if self.unique {
                format!("{}: {}\n", self.random(12), self.random(24))
            } else {
                // Files of one kind look alike; values differ.
                let at = text.lines().count();
                format!(
                    "{}.{}: {}\n",
                    self.words[at],
                    self.words[at * 7 % 2000],
                    self.words[self.chance.below(2000)]
                )
            };
            text.push_str(&line);
        }
        let wanted = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": self.bare_meta(work, &format!("{}-{number}", work.app)),
            "data": {"application.yaml": text, "LOG_LEVEL": "info"},
        });
        self.managed(work, wanted)
    }

    fn secret(&mut self, work: &Workload) -> Value {
        let data = base64(&(0..700).map(|_| self.chance.byte()).collect::<Vec<_>>());
        let wanted = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": self.bare_meta(work, &work.app),
            "data": {"key.pem": data, "username": base64(work.app.as_bytes())},
        });
        let mut live = self.managed(work, wanted);
        // Secrets come from other controllers; nobody applies them from the client.
        if let Some(annotations) = live["metadata"]["annotations"].as_object_mut() {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
        live
    }

    fn service_account(&mut self, work: &Workload) -> Value {
        let wanted = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.bare_meta(work, &work.app),
                            "automountServiceAccountToken": true});
        self.managed(work, wanted)
    }

    fn autoscaler(&mut self, work: &Workload) -> Value {
        let metrics = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]);
        let wanted = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": self.bare_meta(work, &work.app),
            "spec": {"minReplicas": 2, "maxReplicas": 10, "metrics": metrics,
                     "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": work.app}},
        });
        let mut live = self.managed(work, wanted);
        let used = self.chance.below(100);
        live["status"] = json!({
            "currentReplicas": 4, "desiredReplicas": 4, "lastScaleTime": self.time(100),
            "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": used, "averageValue": format!("{used}m")}}}],
            "conditions": [
                {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "lastTransitionTime": self.time(0),
                 "message": "recommended size matches current size"},
                {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound", "lastTransitionTime": self.time(0),
                 "message": "the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)"},
            ],
        });
        self.status_manager(&mut live, "kube-controller-manager");
        live
    }

    fn ingress(&mut self, work: &Workload) -> Value {
        let backend = json!({"service": {"name": work.app, "port": {"name": "http"}}});
        let host = format!("{}.{}.example.com", work.app, work.team);
        let wanted = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": self.bare_meta(work, &work.app),
            "spec": {"ingressClassName": "nginx", "tls": [{"hosts": [host], "secretName": work.app}],
                     "rules": [{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]},
        });
        let mut live = self.managed(work, wanted);
        live["status"] =
            json!({"loadBalancer": {"ingress": [{"hostname": "lb-1.eu-west-1.elb.example.com"}]}});
        self.status_manager(&mut live, "nginx-ingress-controller");
        live
    }

    fn custom(&mut self, work: &Workload) -> Value {
        let wanted = json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": self.bare_meta(work, &work.app),
            "spec": {"dnsNames": [format!("{}.example.com", work.app)], "secretName": format!("{}-tls", work.app),
                     "issuerRef": {"group": "cert-manager.io", "kind": "ClusterIssuer", "name": "letsencrypt"}},
        });
        let mut live = self.managed(work, wanted);
        live["status"] = json!({
            "notAfter": self.time(90 * 86400), "notBefore": self.time(0), "renewalTime": self.time(60 * 86400), "revision": 1,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": self.time(9),
                            "observedGeneration": 1, "message": "Certificate is up to date and has not expired"}],
        });
        self.status_manager(&mut live, "cert-manager-certificates-readiness");
        live
    }

    fn stateful_set(&mut self, work: &Workload) -> Value {
        let wanted = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": self.bare_meta(work, &format!("{}-db", work.app)),
            "spec": {
                "replicas": 1, "serviceName": work.app, "podManagementPolicy": "OrderedReady",
                "selector": {"matchLabels": {"app": work.app}},
                "template": {"metadata": {"labels": work.labels}, "spec": self.pod_spec(work, false)},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "10Gi"}}, "volumeMode": "Filesystem"}}],
            },
        });
        let mut live = self.managed(work, wanted);
        live["status"] = json!({"replicas": 1, "readyReplicas": 1, "currentReplicas": 1, "observedGeneration": 1,
                                "currentRevision": format!("{}-db-{}", work.app, self.hash())});
        self.status_manager(&mut live, "kube-controller-manager");
        live
    }

    fn claim(&mut self, work: &Workload) -> Value {
        let mut claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": format!("data-{}-db-0", work.app), "namespace": work.namespace, "labels": {"app": work.app},
                         "finalizers": ["kubernetes.io/pvc-protection"]},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}},
                     "storageClassName": "gp3", "volumeMode": "Filesystem", "volumeName": format!("pvc-{}", self.uuid())},
        });
        self.served(&mut claim, "kube-controller-manager", "Update");
        claim["status"] =
            json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}, "phase": "Bound"});
        self.status_manager(&mut claim, "kube-controller-manager");
        claim
    }

    fn bare_meta(&self, work: &Workload, name: &str) -> Value {
        json!({"name": name, "namespace": work.namespace, "labels": work.labels})
    }

    /// What the server makes of a manifest that Argo CD applied from the client's side.
    fn managed(&mut self, work: &Workload, mut wanted: Value) -> Value {
        let api = wanted["apiVersion"].as_str().unwrap_or_default();
        let group = api.split_once('/').map_or("", |(group, _)| group);
        let tracking = format!(
            "{}:{group}/{}:{}/{}",
            work.app,
            wanted["kind"].as_str().unwrap_or_default(),
            work.namespace,
            wanted["metadata"]["name"].as_str().unwrap_or_default(),
        );
        wanted["metadata"]["annotations"] = json!({"argocd.argoproj.io/tracking-id": tracking});
        let applied = format!("{wanted}\n");
        wanted["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] =
            json!(applied);
        self.served(&mut wanted, "argocd-controller", "Update");
        wanted
    }

    /// What the server adds.
    fn served(&mut self, object: &mut Value, manager: &str, operation: &str) {
        let fields = fields_of(object);
        let time = self.time(0);
        object["metadata"]["uid"] = json!(self.uuid());
        object["metadata"]["creationTimestamp"] = json!(time);
        object["metadata"]["resourceVersion"] = json!(self.next_version().to_string());
        object["metadata"]["managedFields"] = json!([{
            "manager": manager, "operation": operation, "apiVersion": object["apiVersion"], "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        }]);
    }

    fn status_manager(&mut self, object: &mut Value, manager: &str) {
        let fields = fields_of(&json!({"status": object["status"]}));
        let entry = json!({
            "manager": manager, "operation": "Update", "apiVersion": object["apiVersion"], "time": self.time(5),
            "fieldsType": "FieldsV1", "fieldsV1": fields, "subresource": "status",
        });
        if let Some(managers) = object["metadata"]["managedFields"].as_array_mut() {
            managers.push(entry);
        }
    }

    /// Another status of the same Pod: what a kubelet's next report looks like.
    pub(crate) fn touch(&mut self, pod: &mut Value) {
        self.now += 1;
        let (time, flip) = (self.time(0), self.chance.below(2) == 0);
        pod["metadata"]["resourceVersion"] = json!(self.next_version().to_string());
        pod["metadata"]["managedFields"][1]["time"] = json!(time);
        for at in [2, 3] {
            pod["status"]["conditions"][at]["status"] = json!(if flip { "True" } else { "False" });
            pod["status"]["conditions"][at]["lastTransitionTime"] = json!(time);
        }
        pod["status"]["containerStatuses"][0]["ready"] = json!(flip);
        pod["status"]["containerStatuses"][0]["restartCount"] = json!(self.chance.below(5));
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1 + self.chance.below(20) as u64;
        self.version
    }

    fn time(&self, after: i64) -> String {
        time_text(self.now + after)
    }

    fn uuid(&mut self) -> String {
        let hex = self.hex(32);
        format!(
            "{}-{}-4{}-a{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[13..16],
            &hex[17..20],
            &hex[20..32]
        )
    }

    fn hex(&mut self, len: usize) -> String {
        (0..len)
            .map(|_| char::from(b"0123456789abcdef"[self.chance.below(16)]))
            .collect()
    }

    fn hash(&mut self) -> String {
        let alphabet = b"bcdfghjklmnpqrstvwxz2456789";
        (0..9)
            .map(|_| char::from(alphabet[self.chance.below(alphabet.len())]))
            .collect()
    }

    fn suffix(&mut self) -> String {
        self.hash()[..5].to_owned()
    }

    fn random(&mut self, len: usize) -> String {
        (0..len)
            .map(|_| char::from(b'a' + u8::try_from(self.chance.below(26)).unwrap_or(0)))
            .collect()
    }
}

/// The instance name in an object's tracking id.
pub(crate) fn app_of(object: &Value) -> Option<std::sync::Arc<str>> {
    let id = argosy_object::meta::annotation(object, "argocd.argoproj.io/tracking-id")?;
    id.split_once(':').map(|(app, _)| app.into())
}

fn uid(object: &Value) -> String {
    argosy_object::meta::uid(object).to_owned()
}

fn owner_reference(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true})
}

/// `fieldsV1` of all that an object says, by the keys the server uses for its lists.
fn fields_of(object: &Value) -> Value {
    let mut fields = Map::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        match name.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => {
                let mut meta = Map::new();
                for part in ["annotations", "generateName", "labels", "ownerReferences"] {
                    if let Some(value) = value.get(part) {
                        meta.insert(format!("f:{part}"), fields_below(value));
                    }
                }
                fields.insert("f:metadata".into(), Value::Object(meta));
            }
            _ => {
                fields.insert(format!("f:{name}"), fields_below(value));
            }
        }
    }
    Value::Object(fields)
}

fn fields_below(value: &Value) -> Value {
    let mut fields = Map::new();
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                fields.insert(format!("f:{name}"), fields_below(value));
            }
        }
        Value::Array(items) => {
            for item in items {
                let key = ["uid", "containerPort", "ip", "type", "name", "mountPath"]
                    .iter()
                    .find_map(|key| item.get(*key).map(|value| json!({ *key: value })));
                let Some(key) = key else { return json!({}) };
                let mut below = fields_below(item);
                below["."] = json!({});
                fields.insert(format!("k:{key}"), below);
            }
        }
        _ => {}
    }
    Value::Object(fields)
}

/// RFC 3339 in UTC.
fn time_text(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds)
        .expect("moments of a population lie within a year of its seed's")
        .to_string()
}

fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
