//! StatefulSet: as `kubectl rollout status` reads it.

use argosy_object::Value;

use crate::fields::{Fields, Malformed};
use crate::status::Health;

pub(crate) fn assess(live: &Value) -> Result<Health, Malformed> {
    let object = Fields::of("StatefulSet", live);
    let observed = object.int(&["status", "observedGeneration"])?;
    if observed == 0 || object.int(&["metadata", "generation"])? > observed {
        return Ok(Health::progressing(
            "Waiting for statefulset spec update to be observed...",
        ));
    }

    let wanted = object.optional_int(&["spec", "replicas"])?;
    let ready = object.int(&["status", "readyReplicas"])?;
    if let Some(wanted) = wanted
        && ready < wanted
    {
        return Ok(Health::progressing(format!(
            "Waiting for {} pods to be ready...",
            wanted - ready
        )));
    }

    let updated = object.int(&["status", "updatedReplicas"])?;
    let strategy = object.at(&["spec", "updateStrategy"]);
    let kind = strategy.text(&["type"])?;
    let rolling = strategy.at(&["rollingUpdate"]);
    if kind == "RollingUpdate" && rolling.exists() {
        if let (Some(wanted), Some(partition)) = (wanted, rolling.optional_int(&["partition"])?)
            && updated < wanted - partition
        {
            return Ok(Health::progressing(format!(
                "Waiting for partitioned roll out to finish: {updated} out of {} new pods have been updated...",
                wanted - partition
            )));
        }
        return Ok(Health::new(
            crate::Status::Healthy,
            format!("partitioned roll out complete: {updated} new pods have been updated..."),
        ));
    }
    if kind == "OnDelete" {
        return Ok(Health::new(
            crate::Status::Healthy,
            format!("statefulset has {ready} ready pods"),
        ));
    }

    let current_revision = object.text(&["status", "currentRevision"])?;
    let update_revision = object.text(&["status", "updateRevision"])?;
    if update_revision != current_revision {
        return Ok(Health::progressing(format!(
            "waiting for statefulset rolling update to complete {updated} pods at revision {update_revision}..."
        )));
    }
    let current = object.int(&["status", "currentReplicas"])?;
    Ok(Health::new(
        crate::Status::Healthy,
        format!("statefulset rolling update complete {current} pods at revision {current_revision}..."),
    ))
}
