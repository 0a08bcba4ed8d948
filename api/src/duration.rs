//! Durations as Go writes them: `1h30m`, `1.5s`, `100ms`.

use std::time::Duration;

/// A text that is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read duration {text:?}: {why}")]
pub struct Invalid {
    /// What was read.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// Reads what Go's `time.ParseDuration` reads, as long as it is not negative.
///
/// # Errors
/// When it is no duration, is negative, or lies beyond about 292 years.
pub fn parse(text: &str) -> Result<Duration, Invalid> {
    let invalid = |why| Invalid {
        text: text.to_owned(),
        why,
    };
    let mut rest = text;
    if let Some(after) = rest.strip_prefix('-') {
        if after != "0" {
            return Err(invalid("it is negative"));
        }
        rest = after;
    } else if let Some(after) = rest.strip_prefix('+') {
        rest = after;
    }
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid("it is empty"));
    }

    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (whole, after) = rest.split_at(digits(rest));
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid("a number is missing"));
        }
        let end = after
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let unit: u128 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "" => return Err(invalid("a unit is missing")),
            _ => return Err(invalid("a unit is unknown")),
        };
        let too_long = || invalid("it is too long");
        let whole: u128 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| too_long())?
        };
        nanos = whole
            .checked_mul(unit)
            .and_then(|part| nanos.checked_add(part))
            .ok_or_else(too_long)?;
        // Eighteen digits are finer than a nanosecond of an hour; what follows them changes nothing.
        let fraction = &fraction[..fraction.len().min(18)];
        if !fraction.is_empty() {
            let scale = 10_u128.pow(fraction.len().try_into().unwrap_or(18));
            nanos += fraction.parse::<u128>().map_err(|_| too_long())? * unit / scale;
        }
        if nanos > i64::MAX as u128 {
            return Err(too_long());
        }
        rest = after;
    }
    let nanos = u64::try_from(nanos).map_err(|_| invalid("it is too long"))?;
    Ok(Duration::from_nanos(nanos))
}

/// The same, or a bare number of seconds, as retry backoffs allow.
///
/// # Errors
/// As [`parse`].
pub fn parse_or_seconds(text: &str) -> Result<Duration, Invalid> {
    text.parse().map(Duration::from_secs).or_else(|_| parse(text))
}

/// Reads what settings allow: a Go duration, or days as `7d`.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_days(text: &str) -> Result<Duration, Invalid> {
    match text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok()) {
        Some(days) => Ok(Duration::from_secs(u64::from(days) * 86_400)),
        None => parse(text),
    }
}

/// Reads the time that a caller of gRPC gives: digits and a unit.
pub fn of_grpc(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count.checked_mul(3600)?),
        "M" => Duration::from_secs(count.checked_mul(60)?),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

/// Writes what Go's `Duration.String` writes: `1h0m0s`, `1.5s`, `100ms`, `0s`.
pub fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    for (unit, size) in [("ns", 1_u128), ("µs", 1_000), ("ms", 1_000_000)] {
        if nanos < size * 1_000 {
            return format!("{}{unit}", decimal(nanos, size));
        }
    }
    let seconds = duration.as_secs();
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    let rest = decimal(nanos - u128::from(seconds / 60) * 60_000_000_000, 1_000_000_000);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

/// `nanos` in units of `size` nanoseconds, without trailing zeros.
fn decimal(nanos: u128, size: u128) -> String {
    let width = size.ilog10() as usize;
    let fraction = format!("{:0width$}", nanos % size);
    let fraction = if width == 0 {
        ""
    } else {
        fraction.trim_end_matches('0')
    };
    if fraction.is_empty() {
        (nanos / size).to_string()
    } else {
        format!("{}.{fraction}", nanos / size)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reads_what_go_reads() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("5s", 5_000_000_000),
            ("+5s", 5_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("100ms", 100_000_000),
            ("1µs", 1_000),
            ("3m2.5s", 182_500_000_000),
            ("0.100000000000000000000h", 360_000_000_000),
        ] {
            assert_eq!(parse(text).unwrap(), Duration::from_nanos(nanos), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in [
            "",
            "5",
            "s",
            ".s",
            "-",
            "5 s",
            "1d",
            "1.2.3s",
            "9999999999h",
            "abc",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("-5s").unwrap_err().why, "it is negative");
    }

    #[test]
    fn backoffs_may_be_bare_seconds_and_settings_may_be_days() {
        assert_eq!(parse_or_seconds("90").unwrap(), Duration::from_secs(90));
        assert_eq!(parse_or_seconds("3m").unwrap(), Duration::from_secs(180));
        assert_eq!(parse_with_days("2d").unwrap(), Duration::from_secs(172_800));
        assert_eq!(parse_with_days("180s").unwrap(), Duration::from_secs(180));
    }

    #[test]
    fn writes_what_go_writes() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (3_300_000_000, "3.3s"),
            (245_000_000_000, "4m5s"),
            (245_001_000_000, "4m5.001s"),
            (18_367_001_000_000, "5h6m7.001s"),
            (3_600_000_000_000, "1h0m0s"),
            (60_000_000_000, "1m0s"),
        ] {
            assert_eq!(format(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn a_callers_timeout_is_read() {
        assert_eq!(of_grpc("90S"), Some(Duration::from_secs(90)));
        assert_eq!(of_grpc("59999900u"), Some(Duration::from_micros(59_999_900)));
        assert_eq!(of_grpc("1H"), Some(Duration::from_secs(3600)));
        for bad in ["", "S", "9", "9x", "ü"] {
            assert_eq!(of_grpc(bad), None, "{bad}");
        }
    }
}
