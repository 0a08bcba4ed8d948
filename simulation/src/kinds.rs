//! What is particular to a kind beyond its fields: what is set at creation, what an update cannot change, how it goes.

mod defaults;
mod pod;
pub(crate) mod validation;

use argosy_object::{Value, meta};
use base64::Engine as _;
use serde_json::json;

use crate::api_server::ApiServer;
use crate::registry::ResourceType;
use crate::{custom, shapes};

fn id(kind: &ResourceType) -> (&str, &str) {
    (kind.group.as_str(), kind.kind.as_str())
}

/// Fills in what nobody stated.
pub(crate) fn default(kind: &ResourceType, object: &mut Value) {
    if kind.custom {
        custom::default(kind, &kind.storage, object);
    } else {
        defaults::fill(kind, object);
    }
}

/// Takes out of a new object what only the server may say, and sets what it says at creation.
pub(crate) fn prepare_create(kind: &ResourceType, object: &mut Value, now: &str) {
    if kind.custom {
        if kind.has_status() {
            meta::remove_field(object, &["status"]);
        }
        return;
    }
    if kind.has_status() {
        let empty = shapes::kind(&kind.gvk(&kind.storage)).map(shapes::Struct::empty);
        match empty.and_then(|empty| empty.get("status").cloned()) {
            Some(status) => object["status"] = status,
            None => drop(meta::remove_field(object, &["status"])),
        }
    }
    match id(kind) {
        ("", "Namespace") => {
            meta::set_field(object, &["spec", "finalizers"], json!(["kubernetes"]));
            meta::set_field(object, &["status", "phase"], "Active");
        }
        ("", "Pod") => {
            meta::set_field(object, &["status", "phase"], "Pending");
            let class = pod::quality(object);
            meta::set_field(object, &["status", "qosClass"], class);
            defaults::admit_pod(object);
        }
        ("", "PersistentVolumeClaim") => {
            meta::set_field(object, &["status", "phase"], "Pending");
            protect(object, "kubernetes.io/pvc-protection");
        }
        ("", "PersistentVolume") => {
            meta::set_field(object, &["status", "phase"], "Pending");
            meta::set_field(object, &["status", "lastPhaseTransitionTime"], now);
            protect(object, "kubernetes.io/pv-protection");
        }
        ("apps", "StatefulSet") => meta::set_field(object, &["status", "availableReplicas"], 0),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let stored: Vec<Value> = meta::array_field(object, &["spec", "versions"])
                .iter()
                .filter(|version| version["storage"] == true)
                .map(|version| version["name"].clone())
                .collect();
            meta::set_field(object, &["status", "storedVersions"], stored);
        }
        _ => {}
    }
}

fn protect(object: &mut Value, finalizer: &str) {
    let mut finalizers: Vec<Value> = meta::array_field(object, &["metadata", "finalizers"]).to_vec();
    if !finalizers.iter().any(|known| known == finalizer) {
        finalizers.push(finalizer.into());
    }
    meta::set_field(object, &["metadata", "finalizers"], finalizers);
}

/// Brings back what this way of writing cannot change.
pub(crate) fn prepare_update(kind: &ResourceType, subresource: &str, old: &Value, new: &mut Value) {
    let keep = |new: &mut Value, path: &[&str]| match meta::field(old, path) {
        Some(value) => meta::set_field(new, path, value.clone()),
        None => drop(meta::remove_field(new, path)),
    };
    match subresource {
        "" if kind.has_status() => keep(new, &["status"]),
        "" => {}
        "status" if kind.custom => {
            let status = new.get("status").cloned();
            let managers = meta::field(new, &["metadata", "managedFields"]).cloned();
            *new = old.clone();
            match status {
                Some(status) => new["status"] = status,
                None => drop(meta::remove_field(new, &["status"])),
            }
            if let Some(managers) = managers {
                meta::set_field(new, &["metadata", "managedFields"], managers);
            }
        }
        "status" => {
            keep(new, &["spec"]);
            keep(new, &["metadata", "labels"]);
            keep(new, &["metadata", "ownerReferences"]);
        }
        "finalize" => keep(new, &["status"]),
        _ => keep(new, &["status"]),
    }
    if id(kind) == ("", "Namespace") && subresource != "finalize" {
        keep(new, &["spec", "finalizers"]);
    }
    if id(kind) == ("", "Service") && subresource.is_empty() {
        keep_addresses(old, new);
    }
    if kind.kind == "Secret"
        && kind.group.is_empty()
        && meta::str_field(new, &["type"]).is_none_or(str::is_empty)
    {
        keep(new, &["type"]);
    }
}

/// What a Service was given stays unless the new one asks for something else.
fn keep_addresses(old: &Value, new: &mut Value) {
    if meta::str_field(new, &["spec", "type"]) == Some("ExternalName") {
        return;
    }
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if meta::field(new, &["spec", field]).is_none()
            && let Some(value) = meta::field(old, &["spec", field])
        {
            meta::set_field(new, &["spec", field], value.clone());
        }
    }
    let known: Vec<Value> = meta::array_field(old, &["spec", "ports"]).to_vec();
    let keeps_node_ports = matches!(
        meta::str_field(new, &["spec", "type"]),
        Some("NodePort" | "LoadBalancer")
    );
    if let Some(Value::Array(ports)) = meta::field_mut(new, &["spec", "ports"]) {
        for port in ports
            .iter_mut()
            .filter(|port| port.get("nodePort").is_none() && keeps_node_ports)
        {
            let same = |known: &&Value| {
                known["port"] == port["port"]
                    && known["protocol"] == port.get("protocol").cloned().unwrap_or(json!("TCP"))
            };
            if let Some(node_port) = known.iter().find(same).and_then(|known| known.get("nodePort")) {
                port["nodePort"] = node_port.clone();
            }
        }
    }
}

/// Whether `metadata.generation` counts the changes of what is wanted.
pub(crate) fn has_generation(kind: &ResourceType) -> bool {
    if kind.custom {
        return true;
    }
    matches!(
        id(kind),
        ("", "Pod" | "PodTemplate" | "ReplicationController")
            | ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
            | ("batch", "Job" | "CronJob")
            | ("networking.k8s.io", "Ingress" | "IngressClass" | "NetworkPolicy")
            | ("policy", "PodDisruptionBudget")
            | ("discovery.k8s.io", "EndpointSlice")
            | ("scheduling.k8s.io", "PriorityClass")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
            | ("admissionregistration.k8s.io" | "flowcontrol.apiserver.k8s.io", _)
    )
}

/// Counts the generation on if what is wanted has changed.
pub(crate) fn advance_generation(kind: &ResourceType, subresource: &str, old: &Value, new: &mut Value) {
    if subresource == "status" {
        return;
    }
    let wanted = |object: &Value| {
        let mut object = object.clone();
        for field in ["apiVersion", "kind", "metadata"] {
            meta::remove_field(&mut object, &[field]);
        }
        if kind.has_status() {
            meta::remove_field(&mut object, &["status"]);
        }
        object
    };
    let annotated = id(kind) == ("apps", "Deployment")
        && old["metadata"]["annotations"] != new["metadata"]["annotations"];
    if wanted(old) != wanted(new) || annotated {
        let generation = meta::generation(old).unwrap_or_default() + 1;
        meta::set_field(new, &["metadata", "generation"], generation);
    }
}

/// What is given out at creation: addresses, ports, labels with the object's own uid.
pub(crate) fn allocate(server: &mut ApiServer, kind: &ResourceType, object: &mut Value) {
    match id(kind) {
        ("", "Service") => allocate_service(server, object),
        ("batch", "Job") => label_job(object),
        _ => {}
    }
}

fn allocate_service(server: &mut ApiServer, service: &mut Value) {
    let kind = meta::str_field(service, &["spec", "type"])
        .unwrap_or_default()
        .to_owned();
    if kind == "ExternalName" {
        return;
    }
    let address = match meta::str_field(service, &["spec", "clusterIP"]) {
        None | Some("") => format!("10.96.{}.{}", server.random.u8(1..255), server.random.u8(1..255)),
        Some(given) => given.to_owned(),
    };
    let headless_without_selector =
        address == "None" && meta::field(service, &["spec", "selector"]).is_none();
    meta::set_field(service, &["spec", "clusterIP"], address.as_str());
    if meta::field(service, &["spec", "clusterIPs"]).is_none() {
        meta::set_field(service, &["spec", "clusterIPs"], json!([address]));
    }
    let (families, policy) = if headless_without_selector {
        (json!(["IPv4", "IPv6"]), "RequireDualStack")
    } else {
        (json!(["IPv4"]), "SingleStack")
    };
    for (field, value) in [("ipFamilies", families), ("ipFamilyPolicy", policy.into())] {
        if meta::field(service, &["spec", field]).is_none() {
            meta::set_field(service, &["spec", field], value);
        }
    }
    if let Some(Value::Array(ports)) = meta::field_mut(service, &["spec", "ports"])
        && matches!(kind.as_str(), "NodePort" | "LoadBalancer")
    {
        for port in ports.iter_mut().filter(|port| port.get("nodePort").is_none()) {
            port["nodePort"] = server.random.u16(30000..32768).into();
        }
    }
}

fn label_job(job: &mut Value) {
    if meta::bool_field(job, &["spec", "manualSelector"]) == Some(true) {
        return;
    }
    let (uid, name) = (meta::uid(job).to_owned(), meta::name(job).to_owned());
    let own = [
        ("batch.kubernetes.io/controller-uid", uid.as_str()),
        ("batch.kubernetes.io/job-name", name.as_str()),
        ("controller-uid", uid.as_str()),
        ("job-name", name.as_str()),
    ];
    for (key, value) in own {
        meta::set_field(job, &["spec", "template", "metadata", "labels", key], value);
    }
    // A Job without labels of its own has those of its Pods.
    let labels = meta::field(job, &["spec", "template", "metadata", "labels"])
        .cloned()
        .unwrap_or_default();
    if meta::field(job, &["metadata", "labels"]).is_none() {
        meta::set_field(job, &["metadata", "labels"], labels);
    } else {
        for (key, value) in own {
            meta::set_label(job, key, value);
        }
    }
    let selector = json!({"batch.kubernetes.io/controller-uid": uid});
    meta::set_field(job, &["spec", "selector", "matchLabels"], selector);
}

/// `stringData` becomes `data`.
pub(crate) fn fold_string_data(secret: &mut Value) {
    let Some(Value::Object(texts)) = meta::remove_field(secret, &["stringData"]) else {
        return;
    };
    for (key, text) in texts {
        let bytes = text.as_str().unwrap_or_default().as_bytes();
        let encoded = base64::engine::general_purpose::STANDARD.encode(bytes);
        meta::set_field(secret, &["data", key.as_str()], encoded);
    }
}

/// Seconds until a deleted object goes: a running Pod gets time to end.
pub(crate) fn grace_seconds(kind: &ResourceType, object: &Value, asked: Option<i64>) -> i64 {
    let running = meta::str_field(object, &["spec", "nodeName"]).is_some_and(|node| !node.is_empty())
        && !matches!(
            meta::str_field(object, &["status", "phase"]),
            Some("Succeeded" | "Failed")
        );
    if id(kind) != ("", "Pod") || !running {
        return 0;
    }
    let own = || meta::i64_field(object, &["spec", "terminationGracePeriodSeconds"]);
    asked.or_else(own).unwrap_or(30).max(0)
}

/// Whether a delete answers with the object that was deleted rather than with a status.
pub(crate) fn answers_deleted_object(kind: &ResourceType) -> bool {
    matches!(
        id(kind),
        (
            "",
            "Pod"
                | "Service"
                | "ServiceAccount"
                | "PersistentVolume"
                | "PersistentVolumeClaim"
                | "PodTemplate"
                | "ResourceQuota"
        ) | ("storage.k8s.io", _)
            | ("policy", "PodSecurityPolicy")
    )
}
