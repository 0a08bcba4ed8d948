//! Claims get their volumes, where there are nodes, and go when no Pod uses them.

use argosy_object::{Value, meta};
use serde_json::json;

use super::{Work, garbage};
use crate::registry::GroupResource;

const MANAGER: &str = "kube-controller-manager";
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

pub(super) fn step(work: &mut Work<'_>, claim: &Value) {
    if meta::deletion_timestamp(claim).is_some() {
        if is_used(work, claim) {
            work.later(1);
        } else if meta::finalizers(claim).any(|name| name == CLAIM_PROTECTION) {
            garbage::release(work.server, work.look, claim, CLAIM_PROTECTION);
        }
        return;
    }
    if !work.has_nodes() || claim["status"]["phase"] == "Bound" {
        return;
    }
    let name = format!("pvc-{}", meta::uid(claim));
    let size = claim["spec"]["resources"]["requests"]["storage"].clone();
    let modes = claim["spec"]["accessModes"].clone();
    let volume = json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": "simulated"}},
        "spec": {
            "capacity": {"storage": size}, "accessModes": modes, "hostPath": {"path": format!("/simulated/{name}")},
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta::namespace(claim),
                "name": meta::name(claim), "uid": meta::uid(claim)},
        },
    });
    work.create("", "v1", "", "persistentvolumes", MANAGER, &volume);
    let volumes = GroupResource::new("", "persistentvolumes");
    work.patch_other(
        &volumes,
        &name,
        MANAGER,
        "status",
        &json!({"status": {"phase": "Bound"}}),
    );
    work.patch(MANAGER, "", &json!({"spec": {"volumeName": name}}));
    let status = json!({"status": {"phase": "Bound", "accessModes": modes, "capacity": {"storage": size}}});
    work.patch(MANAGER, "status", &status);
}

fn is_used(work: &Work<'_>, claim: &Value) -> bool {
    let prefix = format!("{}/", meta::namespace(claim));
    let pods = work
        .server
        .store
        .table(&GroupResource::new("", "pods"))
        .into_iter()
        .flat_map(|table| &table.objects);
    pods.filter(|(key, _)| key.starts_with(&prefix))
        .any(|(_, entry)| {
            let pod = entry.content.value();
            let volumes = meta::array_field(&pod, &["spec", "volumes"]);
            volumes
                .iter()
                .any(|volume| volume["persistentVolumeClaim"]["claimName"] == meta::name(claim))
        })
}

/// A volume that is deleted goes; one whose claim has gone follows it.
pub(super) fn release(work: &mut Work<'_>, volume: &Value) {
    if meta::deletion_timestamp(volume).is_some()
        && meta::finalizers(volume).any(|name| name == VOLUME_PROTECTION)
    {
        garbage::release(work.server, work.look, volume, VOLUME_PROTECTION);
    }
}
