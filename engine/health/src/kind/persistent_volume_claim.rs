//! PersistentVolumeClaim: its phase is its health.

use argosy_object::Value;

use crate::fields::{Fields, Malformed};
use crate::status::Health;

pub(crate) fn assess(live: &Value) -> Result<Health, Malformed> {
    let object = Fields::of("PersistentVolumeClaim", live);
    Ok(match object.text(&["status", "phase"])? {
        "Lost" => Health::degraded(""),
        "Pending" => Health::progressing(""),
        "Bound" => Health::healthy(),
        _ => Health::unknown(""),
    })
}
