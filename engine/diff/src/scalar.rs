//! When two spellings of a scalar are the same value.

use argosy_object::schema::Type;
use argosy_object::{Value, duration, quantity};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Number;

/// Whether `left` and `right` mean the same where a field has the type `kind`.
pub(crate) fn same(kind: Type, left: &Value, right: &Value) -> bool {
    if left == right {
        return true;
    }
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => same_number(left, right),
        _ => match kind {
            Type::Quantity => same_quantity(left, right),
            Type::Duration => same_duration(left, right),
            Type::Bytes => same_bytes(left, right),
            _ => false,
        },
    }
}

/// `1` is `1.0`. Whole numbers are compared as such: as floating-point numbers, large ones that differ would be the same.
fn same_number(left: &Number, right: &Number) -> bool {
    let whole = |number: &Number| {
        let integer = number.as_i64().map(i128::from);
        integer.or_else(|| number.as_u64().map(i128::from))
    };
    let is = |number: &Number, whole: i128| {
        let float = number.as_f64();
        float.is_some_and(|float| float == whole as f64 && float as i128 == whole)
    };
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => left == right,
        (Some(left), None) => is(right, left),
        (None, Some(right)) => is(left, right),
        (None, None) => left.as_f64() == right.as_f64(),
    }
}

/// `1000m` is `1`, `"2"` is `2`; `1G` is not `1Gi`.
pub(crate) fn same_quantity(left: &Value, right: &Value) -> bool {
    match (text(left), text(right)) {
        (Some(left), Some(right)) => match (quantity::parse(&left), quantity::parse(&right)) {
            (Ok(left), Ok(right)) => left == right,
            _ => false,
        },
        _ => false,
    }
}

/// `60s` is `1m0s`.
pub(crate) fn same_duration(left: &Value, right: &Value) -> bool {
    match (left.as_str(), right.as_str()) {
        (Some(left), Some(right)) => match (duration::parse(left), duration::parse(right)) {
            (Ok(left), Ok(right)) => left == right,
            _ => false,
        },
        _ => false,
    }
}

/// Base64 may be folded over lines in Git; the bytes count.
fn same_bytes(left: &Value, right: &Value) -> bool {
    match (left.as_str().and_then(decode), right.as_str().and_then(decode)) {
        (Some(left), Some(right)) => left == right,
        _ => false,
    }
}

/// The bytes of base64 text, in which line ends do not count.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text: String = text
        .chars()
        .filter(|character| !matches!(character, '\r' | '\n'))
        .collect();
    STANDARD.decode(text).ok()
}

fn text(value: &Value) -> Option<std::borrow::Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.as_str().into()),
        Value::Number(number) => Some(number.to_string().into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_compare_by_amount() {
        for (left, right) in [
            ("1000m", "1"),
            ("1000M", "1G"),
            ("1024Mi", "1Gi"),
            ("0.1", "100m"),
        ] {
            assert!(
                same(Type::Quantity, &json!(left), &json!(right)),
                "{left} {right}"
            );
        }
        assert!(same(Type::Quantity, &json!(2), &json!("2")));
        assert!(same(Type::Quantity, &json!(0.5), &json!("500m")));
        assert!(!same(Type::Quantity, &json!("1G"), &json!("1Gi")));
        assert!(!same(Type::String, &json!("1000m"), &json!("1")));
    }

    #[test]
    fn numbers_compare_by_value_and_texts_by_letter() {
        assert!(same(Type::Integer, &json!(1), &json!(1.0)));
        assert!(!same(
            Type::Integer,
            &json!(9_007_199_254_740_993_i64),
            &json!(9_007_199_254_740_992_i64)
        ));
        assert!(!same(
            Type::Any,
            &json!(9_007_199_254_740_993_i64),
            &json!(9_007_199_254_740_992.0)
        ));
        assert!(!same(Type::Any, &json!(u64::MAX), &json!(u64::MAX - 1)));
        assert!(same(Type::Number, &json!(0.5), &json!(0.5)));
        assert!(!same(Type::IntOrString, &json!(80), &json!("80")));
        assert!(!same(Type::String, &json!("a"), &json!("A")));
    }

    #[test]
    fn durations_and_bytes_compare_by_what_they_stand_for() {
        assert!(same(Type::Duration, &json!("60s"), &json!("1m0s")));
        assert!(!same(Type::Duration, &json!("60s"), &json!("61s")));
        assert!(same(Type::Bytes, &json!("YWJj\nZGVm"), &json!("YWJjZGVm")));
        assert!(!same(Type::Bytes, &json!("!"), &json!("?")));
    }
}
