//! Ingress, in any version: healthy once a load balancer gave it an address.

use argosy_object::Value;

use crate::fields::{Fields, Malformed};
use crate::status::Health;

pub(crate) fn assess(live: &Value) -> Result<Health, Malformed> {
    let object = Fields::of("Ingress", live);
    match object.list(&["status", "loadBalancer", "ingress"])?.next() {
        Some(_) => Ok(Health::healthy()),
        None => Ok(Health::progressing("")),
    }
}
