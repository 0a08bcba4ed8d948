//! APIService: available or on its way.

use argosy_object::Value;

use crate::fields::{Fields, Malformed};
use crate::status::{Health, Status};

pub(crate) fn assess(live: &Value) -> Result<Health, Malformed> {
    let object = Fields::of("APIService", live);
    for condition in object.list(&["status", "conditions"])? {
        if condition.text(&["type"])? == "Available" {
            let message = format!(
                "{}: {}",
                condition.text(&["reason"])?,
                condition.text(&["message"])?
            );
            return Ok(match condition.text(&["status"])? {
                "True" => Health::new(Status::Healthy, message),
                _ => Health::progressing(message),
            });
        }
    }
    Ok(Health::progressing("Waiting to be processed"))
}
