//! ReplicaSet.

use argosy_object::Value;

use crate::fields::{Fields, Malformed};
use crate::status::Health;

pub(crate) fn assess(live: &Value) -> Result<Health, Malformed> {
    let object = Fields::of("ReplicaSet", live);
    if object.int(&["metadata", "generation"])? > object.int(&["status", "observedGeneration"])? {
        return Ok(Health::progressing(
            "Waiting for rollout to finish: observed replica set generation less than desired generation",
        ));
    }
    for condition in object.list(&["status", "conditions"])? {
        if condition.text(&["type"])? == "ReplicaFailure" {
            if condition.text(&["status"])? == "True" {
                return Ok(Health::degraded(condition.text(&["message"])?));
            }
            break;
        }
    }
    let available = object.int(&["status", "availableReplicas"])?;
    if let Some(wanted) = object.optional_int(&["spec", "replicas"])?
        && available < wanted
    {
        return Ok(Health::progressing(format!(
            "Waiting for rollout to finish: {available} out of {wanted} new replicas are available..."
        )));
    }
    Ok(Health::healthy())
}
