//! Job: its conditions decide; a failure outweighs all others.

use argosy_object::Value;

use crate::fields::{Fields, Malformed};
use crate::status::{Health, Status};

pub(crate) fn assess(live: &Value) -> Result<Health, Malformed> {
    let object = Fields::of("Job", live);
    let (mut settled, mut suspended) = (false, false);
    let mut failure = None;
    let mut message = "";
    for condition in object.list(&["status", "conditions"])? {
        let text = condition.text(&["message"])?;
        match condition.text(&["type"])? {
            "Failed" => failure = Some(text),
            "Complete" => (settled, message) = (true, text),
            "Suspended" => {
                (settled, message) = (true, text);
                suspended |= condition.text(&["status"])? == "True";
            }
            _ => {}
        }
    }
    Ok(match failure {
        Some(text) => Health::degraded(text),
        None if !settled => Health::progressing(message),
        None if suspended => Health::suspended(message),
        None => Health::new(Status::Healthy, message),
    })
}
