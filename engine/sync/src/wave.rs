//! The wave of a resource: the steps inside a phase.

use argosy_object::Value;

use crate::marks::Marks;

/// Annotation with the wave, a signed decimal integer.
pub const ANNOTATION: &str = "argocd.argoproj.io/sync-wave";
const HELM_WEIGHT: &str = "helm.sh/hook-weight";

/// The wave written on an object: its own annotation, else Helm's hook weight, else 0. What is no integer counts as absent.
pub fn of(object: &Value) -> i64 {
    let marks = Marks::of(object);
    let integer = |key| marks.text(key).and_then(parse);
    integer(ANNOTATION).or_else(|| integer(HELM_WEIGHT)).unwrap_or(0)
}

/// Go's `Atoi`: an optional sign and decimal digits, nothing else.
fn parse(text: &str) -> Option<i64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn annotated(pairs: &[(&str, &str)]) -> Value {
        let annotations: serde_json::Map<String, Value> = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        json!({"kind": "ConfigMap", "metadata": {"name": "a", "annotations": annotations}})
    }

    #[test]
    fn the_own_annotation_beats_the_hook_weight_of_helm() {
        assert_eq!(of(&annotated(&[(ANNOTATION, "3"), (HELM_WEIGHT, "7")])), 3);
        assert_eq!(of(&annotated(&[(HELM_WEIGHT, "-7")])), -7);
        assert_eq!(of(&annotated(&[])), 0);
    }

    #[test]
    fn what_is_no_integer_is_as_if_it_were_absent() {
        assert_eq!(of(&annotated(&[(ANNOTATION, "first"), (HELM_WEIGHT, "5")])), 5);
        assert_eq!(of(&annotated(&[(ANNOTATION, "1.5")])), 0);
        assert_eq!(of(&annotated(&[(ANNOTATION, " 1")])), 0);
        assert_eq!(of(&annotated(&[(ANNOTATION, "+2")])), 2);
    }
}
