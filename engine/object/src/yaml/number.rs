//! Numbers as Go prints them.

use crate::Value;

/// The JSON number of a float: Go writes it in its shortest form, whole numbers below 1e21 without point or exponent, so
/// that `1e3` becomes an integer. None for what JSON cannot hold.
pub(super) fn from_f64(number: f64) -> Option<Value> {
    if number.fract() == 0.0 && number.abs() < 1e21 {
        let digits = number.to_string();
        let whole = digits
            .parse::<i64>()
            .map(Value::from)
            .or_else(|_| digits.parse::<u64>().map(Value::from));
        if let Ok(whole) = whole {
            return Some(whole);
        }
    }
    serde_json::Number::from_f64(number).map(Value::Number)
}

/// Go's `%g` in the shortest form: `0.5`, `1.5e+06`, `1e-07`.
pub(super) fn shortest_f64(number: f64) -> String {
    general(&format!("{number:e}"))
}

/// The same for a number that is a map's key, which the reference prints with 32 bits.
pub(super) fn shortest_f32(number: f64) -> String {
    match number as f32 {
        number if number.is_nan() => ".nan".to_owned(),
        f32::INFINITY => ".inf".to_owned(),
        f32::NEG_INFINITY => "-.inf".to_owned(),
        number => general(&format!("{number:e}")),
    }
}

/// Turns `-1.25e3` into Go's choice between plain and exponent form.
fn general(scientific: &str) -> String {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa
        .strip_prefix('-')
        .map_or(("", mantissa), |rest| ("-", rest));
    let digits = mantissa.replace('.', "");
    if !(-4..6).contains(&exponent) {
        let mark = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{mantissa}e{mark}{:02}", exponent.abs());
    }
    if exponent < 0 {
        return format!("{sign}0.{}{digits}", "0".repeat((-exponent - 1) as usize));
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        format!("{sign}{digits}{}", "0".repeat(whole - digits.len()))
    } else {
        format!("{sign}{}.{}", &digits[..whole], &digits[whole..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Right sides were printed by Go's `strconv.FormatFloat(x, 'g', -1, bits)`.
    #[test]
    fn floats_print_as_go_prints_them() {
        for (number, want) in [
            (0.5, "0.5"),
            (-0.25, "-0.25"),
            (123456.5, "123456.5"),
            (1234567.5, "1.2345675e+06"),
            (1e21, "1e+21"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e100, "1e+100"),
            (100.0, "100"),
        ] {
            assert_eq!(shortest_f64(number), want);
        }
        assert_eq!(shortest_f32(1e39), ".inf");
        assert_eq!(shortest_f32(0.1), "0.1");
        assert_eq!(shortest_f32(16777217.0), "1.6777216e+07");
    }

    #[test]
    fn whole_floats_become_integers() {
        assert_eq!(from_f64(1e3), Some(Value::from(1000)));
        assert_eq!(from_f64(-0.0), Some(Value::from(0)));
        assert_eq!(from_f64(1e20), Some(Value::from(1e20)));
        assert_eq!(from_f64(1e21), Some(Value::from(1e21)));
        assert_eq!(from_f64(0.5), Some(Value::from(0.5)));
        assert_eq!(from_f64(f64::NAN), None);
    }
}
