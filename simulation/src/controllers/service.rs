//! Services and Ingresses get addresses, where there are nodes.

use argosy_object::{Value, meta};
use serde_json::json;

use super::{Work, controller_reference, is_ready, key_of};
use crate::registry::GroupResource;
use crate::selector::Selector;

const MANAGER: &str = "kube-controller-manager";
/// Outside addresses are of a network that is reserved for documentation.
const OUTSIDE: &str = "192.0.2";

pub(super) fn step(work: &mut Work<'_>, service: &Value) {
    if !work.has_nodes() || meta::deletion_timestamp(service).is_some() {
        return;
    }
    if service["spec"]["type"] == "LoadBalancer"
        && meta::array_field(service, &["status", "loadBalancer", "ingress"]).is_empty()
    {
        let address = format!("{OUTSIDE}.{}", work.server.random.u8(1..255));
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}}});
        work.patch(MANAGER, "status", &status);
    }
    let Some(labels) = service["spec"]["selector"].as_object() else {
        return;
    };
    let selector = Selector::of_document(&json!({"matchLabels": labels}));
    let prefix = format!("{}/", meta::namespace(service));
    let pods: Vec<Value> = work
        .server
        .store
        .table(&GroupResource::new("", "pods"))
        .into_iter()
        .flat_map(|table| &table.objects)
        .filter(|(key, _)| key.starts_with(&prefix))
        .map(|(_, entry)| entry.content.value())
        .filter(|pod| selector.matches(pod) && pod["status"]["podIP"].is_string())
        .collect();
    let endpoints: Vec<Value> = pods
        .iter()
        .map(|pod| {
            let ready = is_ready(pod);
            json!({
                "addresses": [pod["status"]["podIP"]],
                "conditions": {"ready": ready, "serving": ready, "terminating": meta::deletion_timestamp(pod).is_some()},
                "nodeName": pod["spec"]["nodeName"],
                "targetRef": {"kind": "Pod", "namespace": meta::namespace(pod), "name": meta::name(pod), "uid": meta::uid(pod)},
            })
        })
        .collect();
    let ports: Vec<Value> = meta::array_field(service, &["spec", "ports"])
        .iter()
        .map(|port| {
            let number = match &port["targetPort"] {
                Value::Number(number) => json!(number),
                _ => port["port"].clone(),
            };
            json!({"name": port["name"].as_str().unwrap_or_default(), "port": number, "protocol": port["protocol"]})
        })
        .collect();
    let existing = work.owned(service, "discovery.k8s.io", "endpointslices");
    match existing.first() {
        Some(slice) => {
            if slice["endpoints"].as_array().map_or(0, Vec::len) == endpoints.len()
                && same(&slice["endpoints"], &endpoints)
            {
                return;
            }
            let slices = GroupResource::new("discovery.k8s.io", "endpointslices");
            let patch = json!({"endpoints": endpoints, "ports": ports});
            work.patch_other(&slices, &key_of(slice), MANAGER, "", &patch);
        }
        None => {
            let name = meta::name(service);
            let slice = json!({
                "metadata": {
                    "generateName": format!("{name}-"),
                    "labels": {
                        "kubernetes.io/service-name": name,
                        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                    },
                    "ownerReferences": controller_reference(service, "v1", "Service"),
                },
                "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
            });
            work.create(
                "discovery.k8s.io",
                "v1",
                meta::namespace(service),
                "endpointslices",
                MANAGER,
                &slice,
            );
        }
    }
}

fn same(known: &Value, wanted: &[Value]) -> bool {
    let address = |endpoint: &Value| {
        (
            endpoint["addresses"].clone(),
            endpoint["conditions"]["ready"].clone(),
        )
    };
    known
        .as_array()
        .is_some_and(|known| known.iter().map(address).eq(wanted.iter().map(address)))
}

/// An Ingress is published at an address.
pub(super) fn publish_ingress(work: &mut Work<'_>, ingress: &Value) {
    if !work.has_nodes() || !meta::array_field(ingress, &["status", "loadBalancer", "ingress"]).is_empty() {
        return;
    }
    let address = format!("{OUTSIDE}.{}", work.server.random.u8(1..255));
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}});
    work.patch("ingress-controller", "status", &status);
}
