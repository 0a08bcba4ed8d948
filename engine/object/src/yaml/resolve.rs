//! What a scalar means: the table and the order of tries of `go.yaml.in/yaml/v2`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A scalar with its type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer above the range of `i64`.
    Uint(u64),
    Float(f64),
    /// The text as it stands.
    Text,
    /// Another text than the one that stands there.
    Decoded(String),
}

const PREFIX: &str = "tag:yaml.org,2002:";

/// Gives a scalar its type. `tag` is the full tag, empty for none. The error says why the text does not fit the tag.
pub(super) fn resolve(text: &str, tag: &str, plain: bool) -> Result<Scalar, String> {
    let core = tag.strip_prefix(PREFIX);
    if tag.is_empty() {
        return Ok(if plain { untagged(text) } else { Scalar::Text });
    }
    let found = match core {
        Some("str") => Scalar::Text,
        Some("binary") => return decode_base64(text).map(Scalar::Decoded),
        Some("bool" | "int" | "float" | "null") => untagged(text),
        Some("timestamp") if is_timestamp(text) => return Ok(Scalar::Text),
        Some("timestamp") => return Err(format!("{text:?} is not a timestamp")),
        // Tags that are not known say nothing.
        _ => return Ok(Scalar::Text),
    };
    match (core, found) {
        (Some("str"), found) => Ok(found),
        (Some("bool"), found @ Scalar::Bool(_))
        | (Some("int"), found @ (Scalar::Int(_) | Scalar::Uint(_)))
        | (Some("float"), found @ Scalar::Float(_))
        | (Some("null"), found @ Scalar::Null) => Ok(found),
        (Some("float"), Scalar::Int(number)) => Ok(Scalar::Float(number as f64)),
        (core, _) => Err(format!(
            "{text:?} cannot be read as !!{}",
            core.unwrap_or_default()
        )),
    }
}

/// Whether a text would not stay a text if it were written plainly.
pub(super) fn needs_quotes(text: &str) -> bool {
    untagged(text) != Scalar::Text || is_timestamp(text) || is_base60(text)
}

fn untagged(text: &str) -> Scalar {
    let Some(first) = text.bytes().next() else {
        return Scalar::Null;
    };
    match text {
        "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Scalar::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    match first {
        // Here the reference takes underscores only between digits.
        b'.' if text.contains("__") || text.ends_with('_') || text.contains("._") || text.contains("_e") => {
            Scalar::Text
        }
        b'.' => float(&text.replace('_', "")).map_or(Scalar::Text, Scalar::Float),
        b'+' | b'-' | b'0'..=b'9' => number(text),
        _ => Scalar::Text,
    }
}

fn number(text: &str) -> Scalar {
    let stripped;
    let digits = if text.contains('_') {
        stripped = text.replace('_', "");
        &stripped
    } else {
        text
    };
    if let Some(number) = integer(digits) {
        return number;
    }
    if let Some(number) = float(digits) {
        return Scalar::Float(number);
    }
    // The reference takes a second look at binary numbers and accepts a sign after the prefix.
    if let Some(bits) = digits.strip_prefix("0b") {
        return i64::from_str_radix(bits, 2).map_or(Scalar::Text, Scalar::Int);
    }
    Scalar::Text
}

/// Go's `ParseInt` and `ParseUint` with base 0: the prefix tells the base, a leading zero alone is octal.
fn integer(text: &str) -> Option<Scalar> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (base, digits) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &unsigned[2..]),
        [b'0', b'o' | b'O', ..] => (8, &unsigned[2..]),
        [b'0', b'b' | b'B', ..] => (2, &unsigned[2..]),
        [b'0', _, ..] => (8, &unsigned[1..]),
        _ => (10, unsigned),
    };
    if !digits.bytes().all(|byte| char::from(byte).is_digit(base)) {
        return None;
    }
    let size = u64::from_str_radix(digits, base).ok()?;
    if text.starts_with('-') {
        return 0i64.checked_sub_unsigned(size).map(Scalar::Int);
    }
    match i64::try_from(size) {
        Ok(size) => Some(Scalar::Int(size)),
        Err(_) if text.starts_with('+') => None,
        Err(_) => Some(Scalar::Uint(size)),
    }
}

/// A decimal number with point or exponent that 64 bits can hold.
fn float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = unsigned
        .split_once(['e', 'E'])
        .map_or((unsigned, None), |(m, e)| (m, Some(e)));
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        None => all_digits(mantissa),
        Some(("", fraction)) => all_digits(fraction),
        Some((whole, fraction)) => all_digits(whole) && (fraction.is_empty() || all_digits(fraction)),
    };
    let exponent_fits = exponent.is_none_or(|text| all_digits(text.strip_prefix(['+', '-']).unwrap_or(text)));
    if !(mantissa_fits && exponent_fits) {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// The forms that the reference takes for a timestamp: RFC 3339 with `T`, `t` or one space and no zone, or a date.
fn is_timestamp(text: &str) -> bool {
    let date_end = text.find(['T', 't', ' ']).unwrap_or(text.len());
    let (date, time) = text.split_at(date_end);
    let mut fields = date.split('-');
    let (Some(year), Some(month), Some(day), None) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return false;
    };
    let number = |text: &str, low: u32, high: u32| {
        matches!(text.len(), 1 | 2)
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && text.parse().is_ok_and(|number| (low..=high).contains(&number))
    };
    let year_fits = year.len() == 4 && year.bytes().all(|byte| byte.is_ascii_digit());
    if !(year_fits && number(month, 1, 12)) {
        return false;
    }
    let (year, month): (u32, u32) = (year.parse().unwrap_or(0), month.parse().unwrap_or(0));
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !number(day, 1, days) {
        return false;
    }
    let Some(separator) = time.chars().next() else {
        return true;
    };
    let clock = &time[1..];
    let clock = if separator == ' ' {
        clock
    } else if let Some(clock) = clock.strip_suffix('Z') {
        clock
    } else {
        let Some(at) = clock.rfind(['+', '-']) else {
            return false;
        };
        let zone = &clock[at + 1..];
        let zone_fits = zone.len() == 5
            && zone.split_once(':').is_some_and(|(hours, minutes)| {
                hours.len() == 2 && number(hours, 0, 24) && minutes.len() == 2 && number(minutes, 0, 60)
            });
        if !zone_fits {
            return false;
        }
        &clock[..at]
    };
    let (clock, fraction) = clock
        .split_once(['.', ','])
        .map_or((clock, None), |(c, f)| (c, Some(f)));
    let mut fields = clock.split(':');
    let (Some(hour), Some(minute), Some(second), None) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return false;
    };
    number(hour, 0, 23)
        && number(minute, 0, 59)
        && number(second, 0, 59)
        && fraction.is_none_or(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Sexagesimal numbers (`1:20:30`) are texts here but numbers for other YAML 1.1 readers, so they are written quoted.
fn is_base60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit()) || !unsigned.contains(':') {
        return false;
    }
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut groups = whole.split(':');
    let first = groups.next().unwrap_or_default();
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    digits(first)
        && groups.all(|group| {
            matches!(group.len(), 1 | 2) && digits(group) && group.parse().is_ok_and(|n: u32| n < 60)
        })
        && digits(fraction)
}

/// Bytes that are no UTF-8 read as replacement characters, one each, because they end up in JSON.
fn decode_base64(text: &str) -> Result<String, String> {
    let compact: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let bytes = STANDARD
        .decode(compact)
        .map_err(|_| "!!binary value is not valid base64".to_owned())?;
    let mut decoded = String::with_capacity(bytes.len());
    let mut rest = bytes.as_slice();
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                decoded.push_str(valid);
                return Ok(decoded);
            }
            Err(error) => {
                let (valid, invalid) = rest.split_at(error.valid_up_to());
                decoded.push_str(&String::from_utf8_lossy(valid));
                decoded.push(char::REPLACEMENT_CHARACTER);
                rest = &invalid[1..];
            }
        }
    }
}
