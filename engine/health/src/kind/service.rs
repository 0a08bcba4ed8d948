//! Service: only a load balancer can be waited for.

use argosy_object::Value;

use crate::fields::{Fields, Malformed};
use crate::status::Health;

pub(crate) fn assess(live: &Value) -> Result<Health, Malformed> {
    let object = Fields::of("Service", live);
    if object.text(&["spec", "type"])? == "LoadBalancer"
        && object
            .list(&["status", "loadBalancer", "ingress"])?
            .next()
            .is_none()
    {
        return Ok(Health::progressing(""));
    }
    Ok(Health::healthy())
}
