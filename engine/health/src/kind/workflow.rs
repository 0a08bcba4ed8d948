//! Argo Workflow, in any version: its phase is its health.

use argosy_object::Value;

use crate::fields::{Fields, Malformed};
use crate::status::{Health, Status};

pub(crate) fn assess(live: &Value) -> Result<Health, Malformed> {
    let object = Fields::of("Workflow", live);
    let message = object.text(&["status", "message"])?;
    Ok(match object.text(&["status", "phase"])? {
        "" | "Pending" | "Running" => Health::progressing(message),
        "Succeeded" => Health::new(Status::Healthy, message),
        "Failed" | "Error" => Health::degraded(message),
        _ => Health::unknown(message),
    })
}
