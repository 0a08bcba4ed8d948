//! Deployment: as `kubectl rollout status` reads it.

use argosy_object::Value;

use crate::fields::{Fields, Malformed};
use crate::status::Health;

pub(crate) fn assess(live: &Value) -> Result<Health, Malformed> {
    let object = Fields::of("Deployment", live);
    if object.truth(&["spec", "paused"])? {
        return Ok(Health::suspended("Deployment is paused"));
    }
    // The status describes an older spec: nothing in it can be trusted.
    if object.int(&["metadata", "generation"])? > object.int(&["status", "observedGeneration"])? {
        return Ok(Health::progressing(
            "Waiting for rollout to finish: observed deployment generation less than desired generation",
        ));
    }
    for condition in object.list(&["status", "conditions"])? {
        if condition.text(&["type"])? == "Progressing" {
            if condition.text(&["reason"])? == "ProgressDeadlineExceeded" {
                let name = object.text(&["metadata", "name"])?;
                return Ok(Health::degraded(format!(
                    "Deployment {name:?} exceeded its progress deadline"
                )));
            }
            break;
        }
    }

    let replicas = object.int(&["status", "replicas"])?;
    let updated = object.int(&["status", "updatedReplicas"])?;
    let available = object.int(&["status", "availableReplicas"])?;
    if let Some(wanted) = object.optional_int(&["spec", "replicas"])?
        && updated < wanted
    {
        return Ok(Health::progressing(format!(
            "Waiting for rollout to finish: {updated} out of {wanted} new replicas have been updated..."
        )));
    }
    if replicas > updated {
        return Ok(Health::progressing(format!(
            "Waiting for rollout to finish: {} old replicas are pending termination...",
            replicas - updated
        )));
    }
    if available < updated {
        return Ok(Health::progressing(format!(
            "Waiting for rollout to finish: {available} of {updated} updated replicas are available..."
        )));
    }
    Ok(Health::healthy())
}
