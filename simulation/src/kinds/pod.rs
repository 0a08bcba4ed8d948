//! What a Pod's resources say of it.

use argosy_object::{Value, meta, quantity};

/// The quality of service that the resources of its containers give a Pod.
pub(super) fn quality(pod: &Value) -> &'static str {
    let all = |field: &str| meta::array_field(pod, &["spec", field]).to_vec();
    let containers: Vec<Value> = all("containers")
        .into_iter()
        .chain(all("initContainers"))
        .collect();
    let states = |container: &Value, side: &str, resource: &str| {
        let value = meta::field(container, &["resources", side, resource])?;
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        quantity::parse(&text)
            .ok()
            .filter(|quantity| !quantity.is_zero())
            .map(|_| text)
    };
    let any = |container: &Value| {
        ["requests", "limits"].iter().any(|side| {
            ["cpu", "memory"]
                .iter()
                .any(|resource| states(container, side, resource).is_some())
        })
    };
    if !containers.iter().any(any) {
        return "BestEffort";
    }
    let guaranteed = |container: &Value| {
        ["cpu", "memory"].iter().all(|resource| {
            let limit = states(container, "limits", resource);
            limit.is_some()
                && states(container, "requests", resource).is_none_or(|request| Some(request) == limit)
        })
    };
    if containers.iter().all(guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}
