//! Requests chosen one by one: every kind of refusal, the defaults of every usual kind.

use serde_json::{Value, json};

use super::{APPLY, JSON, MERGE, PATCH, STRATEGIC, Step};

const MAPS: &str = "/api/v1/namespaces/script/configmaps";
const WIDGETS: &str = "/apis/script.example.com/v1/namespaces/script/widgets";
const TEMPLATES: &str = "/api/v1/namespaces/script/podtemplates";

pub(super) fn definition() -> Value {
    json!({
        "metadata": {"name": "widgets.script.example.com"},
        "spec": {
            "group": "script.example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["color"], "properties": {
                        "color": {"type": "string", "enum": ["red", "green", "blue"]},
                        "size": {"type": "integer", "default": 3, "minimum": 1, "maximum": 100},
                        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 4},
                        "words": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
                            "type": "object", "required": ["name"], "properties": {
                                "name": {"type": "string"}, "weight": {"type": "integer"},
                                "mode": {"type": "string", "default": "plain"}}}},
                        "limits": {"type": "object", "additionalProperties": {"type": "string"}},
                        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "port": {"x-kubernetes-int-or-string": true}}},
                    "status": {"type": "object", "properties": {"phase": {"type": "string"}, "seen": {"type": "integer"}}}}}}
            }],
        },
    })
}

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "script.example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

pub(super) fn script() -> Vec<Step> {
    let mut steps = refusals();
    steps.extend(updates());
    steps.extend(custom());
    steps.extend(applies());
    steps.extend(lists());
    steps.extend(defaults());
    steps
}

fn refusals() -> Vec<Step> {
    let post = |body: Value| Step::new("POST", MAPS, JSON, body);
    let get = |target: &str| Step::new("GET", target, JSON, Value::Null);
    vec![
        post(map("a", json!({"x": "1"}))),
        post(map("a", json!({}))),
        post(map("A_b", json!({}))),
        post(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})),
        post(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}})),
        post(json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "b"}})),
        post(json!({"metadata": {"name": "other", "namespace": "elsewhere"}})),
        post(json!({"metadata": {"name": "versioned", "resourceVersion": "5"}})),
        post(Value::from("{\"a\":")),
        post(json!({"metadata": {"name": "unknown-field"}, "bogus": 1})),
        Step::new(
            "POST",
            format!("{MAPS}?fieldValidation=Strict"),
            JSON,
            json!({"metadata": {"name": "strict"}, "bogus": 1}),
        ),
        post(json!({"metadata": {"name": "number"}, "data": {"a": 1}})),
        post(json!({"metadata": {"name": "label", "labels": {"a": "no spaces please"}}})),
        Step::new(
            "POST",
            "/api/v1/namespaces/nowhere/configmaps",
            JSON,
            map("a", json!({})),
        ),
        Step::new(
            "POST",
            format!("{MAPS}?dryRun=All"),
            JSON,
            map("dry", json!({"a": "1"})),
        ),
        Step::new(
            "POST",
            format!("{MAPS}?dryRun=Some"),
            JSON,
            map("dry", json!({"a": "1"})),
        ),
        get(&format!("{MAPS}/dry")),
        get(&format!("{MAPS}/none")),
        get("/api/v1/namespaces/nowhere/configmaps"),
        get("/api/v1/namespaces/script/nothings"),
        get("/apis/apps/v9/deployments"),
        get("/apis/none.example.com/v1/things"),
        get("/nothing"),
        Step::new("PUT", MAPS, JSON, map("a", json!({}))),
        Step::new("PUT", format!("{MAPS}/a"), JSON, map("b", json!({}))),
        Step::new("PUT", format!("{MAPS}/new"), JSON, map("new", json!({}))),
        Step::new("PATCH", format!("{MAPS}/a"), "text/plain", json!({})),
        Step::new("PATCH", format!("{MAPS}/none"), MERGE, json!({"data": {}})),
        Step::new("PATCH", format!("{MAPS}/a"), APPLY, map("a", json!({}))),
        Step::new(
            "PATCH",
            format!("{MAPS}/a"),
            PATCH,
            json!([{"op": "remove", "path": "/data/none"}]),
        ),
        Step::new(
            "PATCH",
            format!("{MAPS}/a"),
            PATCH,
            json!([{"op": "test", "path": "/data/x", "value": "2"}]),
        ),
        Step::new(
            "PATCH",
            format!("{MAPS}/a?fieldManager=m"),
            APPLY,
            json!({"kind": "ConfigMap"}),
        ),
        Step::new(
            "PATCH",
            format!("{MAPS}/a?fieldManager=m"),
            APPLY,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}}),
        ),
        Step::new("DELETE", format!("{MAPS}/none"), JSON, Value::Null),
        Step::new(
            "DELETE",
            format!("{MAPS}/a"),
            JSON,
            json!({"preconditions": {"uid": "77"}}),
        ),
        Step::new(
            "DELETE",
            format!("{MAPS}/a"),
            JSON,
            json!({"propagationPolicy": "Sideways"}),
        ),
        Step::new("DELETE", format!("{MAPS}/a?dryRun=All"), JSON, Value::Null),
        Step::new("DELETE", format!("{MAPS}/a"), JSON, Value::Null),
        Step::new("DELETE", format!("{MAPS}/unknown-field"), JSON, Value::Null),
    ]
}

fn updates() -> Vec<Step> {
    let at = format!("{MAPS}/u");
    let by = |manager: &str| format!("{at}?fieldManager={manager}");
    vec![
        Step::new(
            "POST",
            format!("{MAPS}?fieldManager=one"),
            JSON,
            map("u", json!({"x": "1", "y": "1"})),
        ),
        Step::new("PUT", by("two"), JSON, map("u", json!({"x": "2", "y": "1"}))),
        Step::new("PUT", by("two"), JSON, map("u", json!({"x": "2", "y": "1"}))),
        Step::new(
            "PUT",
            by("two"),
            JSON,
            json!({"metadata": {"name": "u", "resourceVersion": "1"}, "data": {}}),
        ),
        Step::new(
            "PUT",
            by("two"),
            JSON,
            json!({"metadata": {"name": "u", "uid": "12345"}, "data": {}}),
        ),
        Step::new(
            "PUT",
            by("two"),
            JSON,
            json!({"metadata": {"name": "u", "labels": {"l": "1"}, "finalizers": ["example.com/keep"]}, "data": {"x": "3"}}),
        ),
        Step::new(
            "PATCH",
            by("three"),
            MERGE,
            json!({"data": {"x": null, "z": "9"}}),
        ),
        Step::new(
            "PATCH",
            by("three"),
            STRATEGIC,
            json!({"data": {"z": null, "q": "1"}, "metadata": {"finalizers": ["example.com/too"]}}),
        ),
        Step::new(
            "PATCH",
            by("four"),
            PATCH,
            json!([{"op": "add", "path": "/data/j", "value": "1"}]),
        ),
        Step::new("DELETE", at.clone(), JSON, Value::Null),
        Step::new("GET", at.clone(), JSON, Value::Null),
        Step::new("DELETE", at.clone(), JSON, Value::Null),
        Step::new(
            "PATCH",
            by("four"),
            MERGE,
            json!({"metadata": {"finalizers": ["example.com/keep"]}}),
        ),
        Step::new(
            "PATCH",
            by("four"),
            MERGE,
            json!({"metadata": {"finalizers": null}}),
        ),
        Step::new("GET", at.clone(), JSON, Value::Null),
        Step::new(
            "POST",
            format!("{MAPS}?fieldManager=one"),
            JSON,
            json!({"metadata": {"name": "fixed"}, "immutable": true, "data": {"a": "1"}}),
        ),
        Step::new(
            "PATCH",
            format!("{MAPS}/fixed"),
            MERGE,
            json!({"data": {"a": "2"}}),
        ),
        Step::new("DELETE", format!("{MAPS}/fixed"), JSON, Value::Null),
    ]
}

fn custom() -> Vec<Step> {
    let post = |name: &str, spec: Value| Step::new("POST", WIDGETS, JSON, widget(name, spec));
    let a = format!("{WIDGETS}/a");
    vec![
        post("a", json!({})),
        post("a", json!({"color": 1})),
        post(
            "a",
            json!({"color": "pink", "size": 1000, "tags": ["a", "b", "c", "d", "e"]}),
        ),
        post(
            "a",
            json!({"color": "red", "unknown": 1, "tags": "x", "size": "y"}),
        ),
        post(
            "a",
            json!({"color": "red", "parts": [{"name": "p"}], "free": {"any": {"thing": 1}}, "port": "http", "size": null}),
        ),
        Step::new("GET", a.clone(), JSON, Value::Null),
        Step::new(
            "PATCH",
            format!("{a}?fieldManager=two"),
            MERGE,
            json!({"spec": {"size": 7}, "status": {"phase": "no"}}),
        ),
        Step::new(
            "PATCH",
            format!("{a}/status?fieldManager=three"),
            MERGE,
            json!({"spec": {"size": 8}, "status": {"phase": "yes"}}),
        ),
        Step::new("PATCH", a.clone(), STRATEGIC, json!({"spec": {"size": 8}})),
        // A field is taken away so where whoever patches does not know whether it is there.
        Step::new(
            "PATCH",
            a.clone(),
            PATCH,
            json!([{"op": "add", "path": "/spec/free", "value": null}, {"op": "add", "path": "/spec/size", "value": null}]),
        ),
        post(
            "n",
            json!({"color": "red", "tags": null, "parts": [{"name": "p", "none": null}], "limits": {"cpu": null}}),
        ),
        Step::new("DELETE", format!("{WIDGETS}/n"), JSON, Value::Null),
        Step::new("PUT", a.clone(), JSON, widget("a", json!({"color": "blue"}))),
        Step::new("PUT", a.clone(), JSON, {
            let mut object = widget("a", json!({"color": "blue", "limits": {"cpu": "1"}}));
            object["metadata"]["resourceVersion"] = "$version".into();
            object
        }),
        Step::new("GET", WIDGETS, JSON, Value::Null),
        Step::new("DELETE", a, JSON, Value::Null),
        Step::new("GET", WIDGETS, JSON, Value::Null),
    ]
}

fn applies() -> Vec<Step> {
    let apply = |manager: &str, force: bool, spec: Value| {
        let force = if force { "&force=true" } else { "" };
        Step::new(
            "PATCH",
            format!("{WIDGETS}/s?fieldManager={manager}{force}"),
            APPLY,
            widget("s", spec),
        )
    };
    let template = |manager: &str, force: bool, spec: Value| {
        let force = if force { "&force=true" } else { "" };
        let body = json!({
            "apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t", "labels": {"by": manager}},
            "template": {"spec": spec},
        });
        Step::new(
            "PATCH",
            format!("{TEMPLATES}/t?fieldManager={manager}{force}"),
            APPLY,
            body,
        )
    };
    vec![
        apply(
            "one",
            false,
            json!({"color": "red", "parts": [{"name": "a", "weight": 1}, {"name": "b"}], "words": ["x", "y"]}),
        ),
        apply(
            "one",
            false,
            json!({"color": "red", "parts": [{"name": "a", "weight": 1}, {"name": "b"}], "words": ["x", "y"]}),
        ),
        apply("two", false, json!({"color": "green"})),
        apply(
            "two",
            false,
            json!({"color": "red", "parts": [{"name": "c"}, {"name": "a"}], "words": ["z"], "limits": {"cpu": "1"}}),
        ),
        apply(
            "one",
            false,
            json!({"color": "red", "parts": [{"name": "b"}], "words": ["y"]}),
        ),
        apply("two", true, json!({"color": "green", "whole": {"a": "1"}})),
        apply("one", false, json!({"color": "red", "whole": {"b": "1"}})),
        apply("one", true, json!({"color": "red", "whole": {"b": "1"}})),
        apply("two", false, json!({"color": "red"})),
        Step::new(
            "PATCH",
            format!("{WIDGETS}/s?fieldManager=three"),
            MERGE,
            json!({"spec": {"parts": [{"name": "z"}], "free": {"a": {"b": 1}}}}),
        ),
        apply("one", false, json!({"color": "red", "free": {"a": {"c": 2}}})),
        apply("one", false, json!({"color": "red"})),
        apply("one", false, json!({"color": "red", "unknown": 1})),
        Step::new("DELETE", format!("{WIDGETS}/s"), JSON, Value::Null),
        template(
            "one",
            false,
            json!({"containers": [{"name": "a", "image": "x:1", "ports": [{"containerPort": 80}], "env": [{"name": "E", "value": "1"}]}]}),
        ),
        template("two", false, json!({"containers": [{"name": "b", "image": "y"}]})),
        template(
            "two",
            true,
            json!({"containers": [{"name": "b", "image": "y"}, {"name": "a", "image": "x:2"}]}),
        ),
        template(
            "one",
            true,
            json!({"containers": [{"name": "a", "image": "x:3", "resources": {"limits": {"cpu": "1000m"}}}]}),
        ),
        Step::new(
            "PATCH",
            format!("{TEMPLATES}/t?fieldManager=three"),
            STRATEGIC,
            json!({"template": {"spec": {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [{"name": "a", "$patch": "delete"}, {"name": "d", "image": "z"}],
            }}}),
        ),
        Step::new(
            "PATCH",
            format!("{TEMPLATES}/t?fieldManager=three"),
            STRATEGIC,
            json!({"template": {"spec": {
                "volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "b", "env": [{"name": "A", "value": "1"}]}],
            }}}),
        ),
        Step::new(
            "PATCH",
            format!("{TEMPLATES}/t?fieldManager=three"),
            STRATEGIC,
            json!({"template": {"spec": {
                "volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}],
            }}}),
        ),
        Step::new(
            "PATCH",
            format!("{TEMPLATES}/t?fieldManager=three"),
            STRATEGIC,
            json!({"template": {"spec": {
                "containers": [{"image": "no-name"}],
            }}}),
        ),
        Step::new("DELETE", format!("{TEMPLATES}/t"), JSON, Value::Null),
    ]
}

fn lists() -> Vec<Step> {
    let mut steps = Vec::new();
    for name in ["l1", "l2", "l3", "l4"] {
        let body = json!({"metadata": {"name": name, "labels": {"n": name, "even": (name > "l2").to_string()}}, "data": {"a": name}});
        steps.push(Step::new("POST", MAPS, JSON, body));
    }
    let get = |query: &str| Step::new("GET", format!("{MAPS}?{query}"), JSON, Value::Null);
    steps.extend([
        get("labelSelector=even%3Dtrue"),
        get("labelSelector=n%20in%20(l1,l2)"),
        get("labelSelector=n%20notin%20(l1,l2),n"),
        get("labelSelector=!n"),
        get("labelSelector=a%3D%3D%3D"),
        get("fieldSelector=metadata.name%3Dl3"),
        get("fieldSelector=spec.nothing%3Dl3"),
        get("limit=2&labelSelector=n"),
        get("limit=2&labelSelector=n&continue=$continue"),
        get("limit=1&fieldSelector=metadata.name%21%3Dkube-root-ca.crt"),
        get("limit=2&continue=bad"),
        get("resourceVersion=abc"),
        get("resourceVersionMatch=Exact"),
        get("watch=true&timeoutSeconds=1&sendInitialEvents=true"),
        get("watch=true&timeoutSeconds=1&resourceVersionMatch=NotOlderThan"),
        Step::new(
            "DELETE",
            format!("{MAPS}?labelSelector=even%3Dtrue"),
            JSON,
            Value::Null,
        ),
        get("labelSelector=n"),
        Step::new("DELETE", format!("{MAPS}?labelSelector=n"), JSON, Value::Null),
    ]);
    steps
}

/// What is written where nothing is said: creation on trial, so that no controller interferes.
fn defaults() -> Vec<Step> {
    let pod = json!({
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "containers": [{
                "name": "c", "image": "nginx", "ports": [{"containerPort": 80}],
                "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "EMPTY", "value": ""}],
                "livenessProbe": {"httpGet": {"port": 80}}, "resources": {"requests": {"cpu": "1000m"}},
                "lifecycle": {"preStop": {"httpGet": {"port": 80}}}, "args": [], "tty": false,
            }],
            "initContainers": [{"name": "i", "image": "busybox:1.2", "resources": {"limits": {"memory": "1024Mi"}}}],
            "volumes": [
                {"name": "v", "configMap": {"name": "x"}}, {"name": "s", "secret": {"secretName": "x"}}, {"name": "e"},
                {"name": "h", "hostPath": {"path": "/x"}}, {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
                {"name": "d", "downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ],
        },
    });
    // A Pod needs an account for such a volume.
    let mut plain_pod = pod.clone();
    plain_pod["spec"]["volumes"]
        .as_array_mut()
        .unwrap()
        .retain(|volume| volume["name"] != "p");
    let selector = json!({"matchLabels": {"a": "b"}});
    let job_pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "r.example.com:5000/nginx"}]}});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}});
    let apps = |plural: &str, spec: Value| (format!("/apis/apps/v1/namespaces/script/{plural}"), spec);
    let core = |plural: &str, spec: Value| (format!("/api/v1/namespaces/script/{plural}"), spec);
    let specs = [
        core("pods", plain_pod["spec"].clone()),
        core(
            "pods",
            json!({"containers": [{"name": "c", "image": "x"}], "tolerations": [{"operator": "Exists"}], "hostNetwork": true}),
        ),
        core("pods", json!({"containers": []})),
        core(
            "pods",
            json!({"containers": [{"name": "C", "image": ""}, {"name": "C"}]}),
        ),
        apps("deployments", json!({"selector": selector, "template": pod})),
        apps(
            "deployments",
            json!({"replicas": 0, "paused": false, "strategy": {"type": "Recreate"}, "selector": selector, "template": job_pod["metadata"]}),
        ),
        apps(
            "deployments",
            json!({"replicas": 0, "minReadySeconds": 0, "strategy": {"type": "Recreate"}, "selector": selector,
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x:latest"}]}}}),
        ),
        apps(
            "deployments",
            json!({"selector": {"matchLabels": {"a": "c"}}, "template": pod}),
        ),
        apps(
            "deployments",
            json!({"replicas": "3", "selector": selector, "template": pod}),
        ),
        apps(
            "deployments",
            json!({"replicas": -1, "selector": selector, "template": pod}),
        ),
        apps("replicasets", json!({"selector": selector, "template": pod})),
        apps(
            "statefulsets",
            json!({"serviceName": "x", "selector": selector, "template": pod,
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}]}),
        ),
        apps("daemonsets", json!({"selector": selector, "template": pod})),
        (
            "/apis/batch/v1/namespaces/script/jobs".to_owned(),
            json!({"template": job_pod}),
        ),
        (
            "/apis/batch/v1/namespaces/script/cronjobs".to_owned(),
            json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": job_pod}}}),
        ),
        core(
            "services",
            json!({"selector": {"a": "b"}, "ports": [{"port": 80}]}),
        ),
        core(
            "services",
            json!({"type": "NodePort", "ports": [{"name": "x", "port": 80, "targetPort": "http"}]}),
        ),
        core(
            "services",
            json!({"type": "LoadBalancer", "ports": [{"name": "x", "port": 80}]}),
        ),
        core(
            "services",
            json!({"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"name": "x", "port": 80}]}),
        ),
        core(
            "services",
            json!({"type": "ExternalName", "externalName": "a.example.com"}),
        ),
        core("services", json!({"ports": []})),
        core("services", json!({"ports": [{"port": 0}]})),
        core("persistentvolumeclaims", claim.clone()),
        (
            "/apis/networking.k8s.io/v1/namespaces/script/ingresses".to_owned(),
            json!({"rules": [{"host": "a.b", "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}),
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/script/networkpolicies".to_owned(),
            json!({"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}, {}]}),
        ),
        (
            "/apis/policy/v1/namespaces/script/poddisruptionbudgets".to_owned(),
            json!({"selector": selector, "minAvailable": 1}),
        ),
        (
            "/apis/autoscaling/v2/namespaces/script/horizontalpodautoscalers".to_owned(),
            json!({"maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}),
        ),
        core(
            "resourcequotas",
            json!({"hard": {"pods": "10", "requests.cpu": "1000m"}}),
        ),
        core(
            "limitranges",
            json!({"limits": [{"type": "Pod", "max": {"cpu": "1000m"}}]}),
        ),
        (
            "/api/v1/persistentvolumes".to_owned(),
            json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}),
        ),
        (
            "/apis/networking.k8s.io/v1/ingressclasses".to_owned(),
            json!({"controller": "a.b/c"}),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/script/leases".to_owned(),
            json!({"holderIdentity": "x", "leaseDurationSeconds": 10}),
        ),
    ];
    let mut steps: Vec<Step> = specs
        .into_iter()
        .map(|(path, spec)| {
            let body = json!({"metadata": {"name": "d"}, "spec": spec});
            Step::new("POST", format!("{path}?dryRun=All&fieldManager=m"), JSON, body)
        })
        .collect();
    let others = [
        (
            "/api/v1/namespaces/script/secrets",
            json!({"stringData": {"a": "b"}}),
        ),
        ("/api/v1/namespaces/script/serviceaccounts", json!({})),
        (
            "/api/v1/namespaces/script/endpoints",
            json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]}),
        ),
        (
            "/apis/discovery.k8s.io/v1/namespaces/script/endpointslices",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/script/roles",
            json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/script/rolebindings",
            json!({"roleRef": {"kind": "Role", "name": "h"},
            "subjects": [{"kind": "ServiceAccount", "name": "x", "namespace": "script"}, {"kind": "User", "name": "u"}]}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            json!({"rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]}),
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            json!({"provisioner": "x"}),
        ),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", json!({"value": 0})),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            json!({"webhooks": [{
            "name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"service": {"name": "a", "namespace": "b"}},
            "rules": [{"apiGroups": ["none"], "apiVersions": ["*"], "resources": ["*"], "operations": ["CREATE"]}]}]}),
        ),
        ("/api/v1/namespaces", json!({})),
    ];
    steps.extend(others.into_iter().map(|(path, mut body)| {
        body["metadata"] = json!({"name": "d"});
        Step::new("POST", format!("{path}?dryRun=All&fieldManager=m"), JSON, body)
    }));
    steps
}
