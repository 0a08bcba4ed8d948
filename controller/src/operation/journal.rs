//! What the plan of an attempt was made from and is gone once part of it has been done.
//!
//! The waves of deletions are mirrored among all that is deleted. A controller that takes an attempt over sees only what is left of that, and
//! would delete the rest in another order; so the waves are noted on the Application before the first deletion.

use argosy_object::Value;
use argosy_sync::Plan;
use serde_json::json;

use super::desk::Desk;

/// `<attempt>:<wave>,<wave>…`
const ANNOTATION: &str = "argosy.dev/prune-waves";

/// The waves that were noted for the attempt that is at work.
pub(super) fn prune_waves(desk: &Desk<'_>, attempt: &str) -> Vec<i64> {
    let noted = desk.app.metadata.annotations.get(ANNOTATION);
    noted.map_or_else(Vec::new, |text| read(text, attempt))
}

/// What has to be noted before the plan is carried out, as a patch. With less than two waves there is no order to lose.
pub(super) fn note(desk: &Desk<'_>, attempt: &str, plan: &Plan) -> Option<Value> {
    if plan.prune_waves.len() < 2 || prune_waves(desk, attempt) == plan.prune_waves {
        return None;
    }
    let waves: Vec<String> = plan.prune_waves.iter().map(ToString::to_string).collect();
    Some(annotated(json!(format!("{attempt}:{}", waves.join(",")))))
}

/// Takes the note away once the operation is over; `extra` is what else is written then.
pub(super) fn without_note(desk: &Desk<'_>, extra: Option<Value>) -> Option<Value> {
    if !desk.app.metadata.annotations.contains_key(ANNOTATION) {
        return extra;
    }
    let mut patch = extra.unwrap_or_else(|| json!({}));
    patch["metadata"] = annotated(Value::Null)["metadata"].take();
    Some(patch)
}

fn annotated(value: Value) -> Value {
    json!({"metadata": {"annotations": {ANNOTATION: value}}})
}

fn read(text: &str, attempt: &str) -> Vec<i64> {
    match text.split_once(':') {
        Some((of, waves)) if of == attempt => waves.split(',').filter_map(|wave| wave.parse().ok()).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_note_of_this_attempt_counts() {
        assert_eq!(read("1700000000-0:-1,1,2", "1700000000-0"), [-1, 1, 2]);
        assert!(read("1700000000-0:-1,1,2", "1700000000-1").is_empty());
        assert!(read("nonsense", "nonsense").is_empty());
    }
}
