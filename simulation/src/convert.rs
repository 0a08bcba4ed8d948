//! Kinds whose versions differ in more than their name: events and horizontal autoscalers.

use argosy_object::meta;
use serde_json::{Map, Value, json};

use crate::registry::ResourceType;

/// Whether an object must be rewritten to be told in `version`.
pub(crate) fn is_needed(kind: &ResourceType, version: &str) -> bool {
    kind.group == "autoscaling" && kind.kind == "HorizontalPodAutoscaler" && version == "v1"
}

/// An object as it is stored, in the form of `version`.
pub(crate) fn between(kind: &ResourceType, version: &str, object: Value) -> Value {
    if is_needed(kind, version) {
        autoscaler_to_v1(object)
    } else {
        object
    }
}

/// An object in the form of `version`, as it is stored.
pub(crate) fn to_storage(kind: &ResourceType, version: &str, object: Value) -> Value {
    if is_needed(kind, version) {
        autoscaler_from_v1(object)
    } else {
        object
    }
}

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";

fn autoscaler_to_v1(mut object: Value) -> Value {
    let metrics = meta::remove_field(&mut object, &["spec", "metrics"]);
    let (mut percentage, mut others) = (None, Vec::new());
    for metric in metrics.as_ref().and_then(Value::as_array).into_iter().flatten() {
        let target = &metric["resource"]["target"];
        if metric["type"] == "Resource"
            && metric["resource"]["name"] == "cpu"
            && target["type"] == "Utilization"
        {
            percentage = Some(target["averageUtilization"].clone());
        } else {
            others.push(metric.clone());
        }
    }
    if let Some(percentage) = percentage {
        meta::set_field(
            &mut object,
            &["spec", "targetCPUUtilizationPercentage"],
            percentage,
        );
    }
    if !others.is_empty() {
        meta::set_annotation(&mut object, METRICS, Value::Array(others).to_string());
    }
    if let Some(conditions) = meta::remove_field(&mut object, &["status", "conditions"]) {
        meta::set_annotation(
            &mut object,
            "autoscaling.alpha.kubernetes.io/conditions",
            conditions.to_string(),
        );
    }
    meta::remove_field(&mut object, &["status", "currentMetrics"]);
    object
}

fn autoscaler_from_v1(mut object: Value) -> Value {
    let mut metrics = meta::remove_annotation(&mut object, METRICS)
        .and_then(|text| serde_json::from_str::<Vec<Value>>(text.as_str()?).ok())
        .unwrap_or_default();
    if let Some(percentage) = meta::remove_field(&mut object, &["spec", "targetCPUUtilizationPercentage"]) {
        metrics.push(json!({
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percentage}},
        }));
    }
    if !metrics.is_empty() {
        meta::set_field(&mut object, &["spec", "metrics"], metrics);
    }
    if meta::field(&object, &["metadata", "annotations"])
        .and_then(Value::as_object)
        .is_some_and(Map::is_empty)
    {
        meta::remove_field(&mut object, &["metadata", "annotations"]);
    }
    object
}
