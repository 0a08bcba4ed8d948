//! Application: nobody's health counts for the Application that holds it, as in Argo CD, unless it asks to be waited for.
//!
//! Asked to, a child is healthy once it has been compared with the spec that it has now, is in sync and says that it is healthy. So a wave of
//! children waits for what the wave before has been changed to, and not for the health from before the change.

use argosy_object::{Value, meta};

use crate::fields::{Fields, Malformed};
use crate::status::{Health, Status};

/// On a child Application: the Application that holds it waits until it is synced and healthy.
const WAIT_FOR_SYNC: &str = "argosy.dev/wait-for-sync";

/// Whether the Application asks to be waited for.
pub(crate) fn asks(live: &Value) -> bool {
    meta::annotation(live, WAIT_FOR_SYNC) == Some("true")
}

pub(crate) fn assess(live: &Value) -> Result<Health, Malformed> {
    let object = Fields::of("Application", live);
    let (spec, compared) = (object.at(&["spec"]), object.at(&["status", "sync", "comparedTo"]));
    // What is compared is the list of sources, or else the one; behind a hydrator it is not written in the spec.
    let source = match (
        spec.at(&["sourceHydrator"]).exists(),
        spec.list(&["sources"])?.next(),
    ) {
        (true, _) => None,
        (false, Some(_)) => Some("sources"),
        (false, None) => Some("source"),
    };
    let seen = source
        .into_iter()
        .chain(["destination"])
        .all(|name| mean_the_same(spec.at(&[name]).value(), compared.at(&[name]).value()));
    let sync = object.text(&["status", "sync", "status"])?;
    let operation = object.text(&["status", "operationState", "phase"])?;
    if sync.is_empty() || !seen {
        return Ok(Health::progressing(
            "its spec has not been compared with the cluster yet",
        ));
    }
    if object.at(&["operation"]).exists() || matches!(operation, "Running" | "Terminating") {
        return Ok(Health::progressing("it is being synced"));
    }
    if sync != "Synced" {
        return Ok(match operation {
            "Failed" | "Error" => Health::degraded(format!(
                "its last sync failed: {}",
                object.text(&["status", "operationState", "message"])?
            )),
            _ => Health::progressing(format!("it is {sync}")),
        });
    }
    let message = object.text(&["status", "health", "message"])?;
    Ok(
        match object.text(&["status", "health", "status"])?.parse::<Status>() {
            Ok(status) => Health::new(status, message),
            Err(_) => Health::progressing(message),
        },
    )
}

/// Whether two values are the same but for fields that say nothing: the controller leaves them out when it writes.
fn mean_the_same(left: Option<&Value>, right: Option<&Value>) -> bool {
    match (left, right) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => left
            .keys()
            .chain(right.keys())
            .all(|name| mean_the_same(left.get(name), right.get(name))),
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| mean_the_same(Some(left), Some(right)))
        }
        (Some(left), Some(right)) => left == right || (says_nothing(left) && says_nothing(right)),
        (Some(one), None) | (None, Some(one)) => says_nothing(one),
        (None, None) => true,
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(says_nothing),
    }
}
