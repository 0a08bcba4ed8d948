//! DaemonSet: as `kubectl rollout status` reads it.

use argosy_object::Value;

use crate::fields::{Fields, Malformed};
use crate::status::{Health, Status};

pub(crate) fn assess(live: &Value) -> Result<Health, Malformed> {
    let object = Fields::of("DaemonSet", live);
    if object.int(&["metadata", "generation"])? > object.int(&["status", "observedGeneration"])? {
        return Ok(Health::progressing(
            "Waiting for rollout to finish: observed daemon set generation less than desired generation",
        ));
    }
    let name = object.text(&["metadata", "name"])?;
    let wanted = object.int(&["status", "desiredNumberScheduled"])?;
    let updated = object.int(&["status", "updatedNumberScheduled"])?;
    let available = object.int(&["status", "numberAvailable"])?;
    if object.text(&["spec", "updateStrategy", "type"])? == "OnDelete" {
        return Ok(Health::new(
            Status::Healthy,
            format!("daemon set {updated} out of {wanted} new pods have been updated"),
        ));
    }
    if updated < wanted {
        return Ok(Health::progressing(format!(
            "Waiting for daemon set {name:?} rollout to finish: {updated} out of {wanted} new pods have been updated..."
        )));
    }
    if available < wanted {
        return Ok(Health::progressing(format!(
            "Waiting for daemon set {name:?} rollout to finish: {available} of {wanted} updated pods are available..."
        )));
    }
    Ok(Health::healthy())
}
