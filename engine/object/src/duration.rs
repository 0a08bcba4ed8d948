//! Durations as Go writes them (`1h30m`, `1.5s`), which is how `metav1.Duration` fields are kept: the API server reads
//! `90m` and prints `1h30m0s`.

use std::fmt::Write as _;

/// Nanoseconds of each unit, longest first; a text may name them in any order.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000), // U+00B5
    ("μs", 1_000), // U+03BC
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not a sequence of numbers with units.
    #[error("duration is not a sequence of numbers with units such as 1h30m")]
    Malformed,
    /// The duration does not fit 64 bits of nanoseconds (about 292 years).
    #[error("duration is longer than 64 bits of nanoseconds")]
    TooLong,
}

/// Reads a duration into nanoseconds, as Go's `time.ParseDuration`.
pub fn parse(text: &str) -> Result<i64, Error> {
    const LIMIT: u64 = 1 << 63;
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(Error::Malformed);
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count());
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(after.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(Error::Malformed);
        }
        let unit_len = after
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let (_, unit) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or(Error::Malformed)?;
        let whole: u64 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| Error::TooLong)?
        };
        let mut part = whole
            .checked_mul(*unit)
            .filter(|part| *part <= LIMIT)
            .ok_or(Error::TooLong)?;
        part += fraction_of(fraction, *unit);
        total = total
            .checked_add(part)
            .filter(|total| *total <= LIMIT)
            .ok_or(Error::TooLong)?;
        rest = after;
    }
    match (negative, total) {
        (true, LIMIT) => Ok(i64::MIN),
        (_, LIMIT) => Err(Error::TooLong),
        (true, _) => Ok(-(total as i64)),
        (false, _) => Ok(total as i64),
    }
}

/// The text Go prints for nanoseconds: `1h30m0s`, `1.5s`, `250ms`, `0s`.
pub fn to_text(nanoseconds: i64) -> String {
    let mut text = String::new();
    if nanoseconds < 0 {
        text.push('-');
    }
    let size = nanoseconds.unsigned_abs();
    // Below a second, the one unit that leaves no leading zero.
    for (unit, name) in [(1_000, "ns"), (1_000_000, "µs"), (1_000_000_000, "ms")] {
        if size == 0 {
            return "0s".to_owned();
        }
        if size < unit {
            push_decimal(&mut text, size, unit / 1_000);
            text.push_str(name);
            return text;
        }
    }
    let (seconds, nanos) = (size / 1_000_000_000, size % 1_000_000_000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        let _ = write!(text, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(text, "{minutes}m");
    }
    push_decimal(&mut text, seconds * 1_000_000_000 + nanos, 1_000_000_000);
    text.push('s');
    text
}

/// The text the API server prints for a duration: `90m` → `1h30m0s`.
pub fn canonical(text: &str) -> Result<String, Error> {
    parse(text).map(to_text)
}

/// Nanoseconds of a fraction (digits after the point) of a unit, cut off below one.
fn fraction_of(digits: &str, unit: u64) -> u64 {
    // Like Go: digits beyond 63 bits are dropped, the rest is scaled in floating point.
    let (mut value, mut scale) = (0u64, 1f64);
    for digit in digits.bytes() {
        let Some(next) = value
            .checked_mul(10)
            .and_then(|v| v.checked_add(u64::from(digit - b'0')))
        else {
            break;
        };
        if next > i64::MAX as u64 {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    if value == 0 {
        0
    } else {
        (value as f64 * (unit as f64 / scale)) as u64
    }
}

/// `size / unit` with the decimals that are needed.
fn push_decimal(text: &mut String, size: u64, unit: u64) {
    let _ = write!(text, "{}", size / unit);
    if !size.is_multiple_of(unit) {
        let width = unit.ilog10() as usize;
        let decimals = format!("{:0width$}", size % unit);
        text.push('.');
        text.push_str(decimals.trim_end_matches('0'));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values printed by Go's `time.ParseDuration(x)` and `String()`.
    #[test]
    fn texts_print_as_go_prints_them() {
        for (text, want) in [
            ("0", "0s"),
            ("90m", "1h30m0s"),
            ("1h", "1h0m0s"),
            ("1.5h", "1h30m0s"),
            ("60s", "1m0s"),
            ("1500ms", "1.5s"),
            ("0.5s", "500ms"),
            ("1us", "1µs"),
            ("1µs", "1µs"),
            ("1100ns", "1.1µs"),
            ("-1m30s", "-1m30s"),
            ("+5s", "5s"),
            (".5s", "500ms"),
            ("1s1m", "1m1s"),
            ("720h", "720h0m0s"),
            ("1h0m0.25s", "1h0m0.25s"),
            ("-2540400h10m10.000000000s", "-2540400h10m10s"),
            ("0.3333333333333333333h", "20m0s"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "3", "-", "s", ".", "-.", ".s", "+.s", "1d", "1h 30m", "5y"] {
            assert_eq!(parse(text), Err(Error::Malformed), "{text}");
        }
        assert_eq!(parse("9223372036854775808ns"), Err(Error::TooLong));
        assert_eq!(parse("-9223372036854775808ns"), Ok(i64::MIN));
        assert_eq!(parse("3000000h"), Err(Error::TooLong));
    }
}
