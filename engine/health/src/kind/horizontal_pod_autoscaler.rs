//! HorizontalPodAutoscaler: its conditions, a failure before a success.

use argosy_object::{Value, meta};

use crate::fields::{Fields, Malformed};
use crate::status::{Health, Status};

const KIND: &str = "HPA";

/// v1 has no place for conditions; the API server keeps them in this annotation, as JSON.
const CONDITIONS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/conditions";

const DEGRADED: [(&str, &str); 8] = [
    ("AbleToScale", "FailedGetScale"),
    ("AbleToScale", "FailedUpdateScale"),
    ("ScalingActive", "FailedGetResourceMetric"),
    ("ScalingActive", "FailedGetObjectMetric"),
    ("ScalingActive", "FailedGetPodsMetric"),
    ("ScalingActive", "FailedGetExternalMetric"),
    ("ScalingActive", "FailedComputeMetricsReplicas"),
    ("ScalingActive", "InvalidSelector"),
];

pub(crate) fn assess_v1(live: &Value) -> Result<Health, Malformed> {
    let Some(text) = meta::annotation(live, CONDITIONS_ANNOTATION) else {
        return Ok(waiting());
    };
    match serde_json::from_str::<Value>(text) {
        Ok(conditions) if conditions.is_array() || conditions.is_null() => {
            judge(Fields::of(KIND, &conditions).list(&[])?)
        }
        Ok(_) => Ok(Health::unknown(
            "failed to convert conditions annotation to typed: not a list",
        )),
        Err(error) => Ok(Health::unknown(format!(
            "failed to convert conditions annotation to typed: {error}"
        ))),
    }
}

pub(crate) fn assess_v2(live: &Value) -> Result<Health, Malformed> {
    judge(Fields::of(KIND, live).list(&["status", "conditions"])?)
}

/// A failure in any condition outweighs a success in another.
fn judge<'a>(conditions: impl Iterator<Item = Fields<'a>> + Clone) -> Result<Health, Malformed> {
    for condition in conditions.clone() {
        if DEGRADED.contains(&(condition.text(&["type"])?, condition.text(&["reason"])?)) {
            return Ok(Health::degraded(condition.text(&["message"])?));
        }
    }
    for condition in conditions {
        if matches!(condition.text(&["type"])?, "AbleToScale" | "ScalingLimited")
            && condition.text(&["status"])? == "True"
        {
            return Ok(Health::new(Status::Healthy, condition.text(&["message"])?));
        }
    }
    Ok(waiting())
}

fn waiting() -> Health {
    Health::progressing("Waiting to Autoscale")
}
