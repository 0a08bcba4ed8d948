//! Kubernetes quantities: `500m`, `1Gi`, `12e6`.
//!
//! The API server reads a quantity and prints it back in its own spelling, so `1000m` in Git is `1` in the cluster.
//! [`canonical`] gives that spelling and [`parse`] a value to compare. The rules are apimachinery's `resource.Quantity`:
//! among them that at most nine decimals are kept, rounding away from zero; that binary quantities stop at 2^63-1; and
//! that a text that is canonical already by a quick look is kept as it is (`1.500` stays, `1.5` becomes `1500m`).

use std::cmp::Ordering;
use std::fmt;

use crate::Value;

/// A quantity: an exact decimal number and the family of suffixes it was written with.
///
/// Equality and order are those of the number: `1000m == 1`.
#[derive(Clone, Debug)]
pub struct Quantity {
    negative: bool,
    /// Decimal digits without leading or trailing zeros; empty for zero.
    digits: String,
    /// The number is `digits` × 10^`exponent`.
    exponent: i64,
    format: Format,
    /// The text it came from, where that is printed again.
    text: Option<Box<str>>,
}

/// How a quantity is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `12M`, in powers of 1000.
    DecimalSi,
    /// `12Mi`, in powers of 1024.
    BinarySi,
    /// `12e6`.
    DecimalExponent,
}

/// Why a text is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not a number with a suffix.
    #[error("quantity is not a number followed by a suffix")]
    Malformed,
    /// The suffix is unknown.
    #[error("quantity has an unknown suffix")]
    Suffix,
}

/// Decimals that the API server keeps.
const SMALLEST_EXPONENT: i64 = -9;
/// Digits that the API server handles as a 64-bit integer.
const INT64_DIGITS: i64 = 18;
const LARGEST_BINARY: &str = "9223372036854775807";

/// Reads a quantity. Space around it is ignored.
pub fn parse(text: &str) -> Result<Quantity, Error> {
    let text = text.trim();
    let parts = Parts::split(text)?;
    let (base, suffix_exponent, format) = suffix(parts.suffix)?;
    let mut number = Quantity {
        negative: parts.negative,
        digits: format!("{}{}", parts.whole, parts.fraction),
        exponent: -(parts.fraction.len() as i64),
        format,
        text: None,
    };
    let written = (parts.whole.len().max(1) + parts.fraction.len()) as i64;
    let scale = i64::from(suffix_exponent) - parts.fraction.len() as i64;

    if base == 10 {
        number.exponent += i64::from(suffix_exponent);
        let quick = written <= INT64_DIGITS && scale >= SMALLEST_EXPONENT;
        if quick {
            if scale % 3 == 0 && !parts.whole.is_empty() && !number.digits.ends_with("000") {
                number.text = Some(text.into());
            }
        } else {
            number.round_up(SMALLEST_EXPONENT);
        }
    } else {
        let low_bits = number
            .digits
            .bytes()
            .rev()
            .take(3)
            .rev()
            .fold(0, |n, d| n * 10 + u32::from(d - b'0'))
            & 7;
        let room = 15 - written - i64::from(suffix_exponent) * 3 / 10 - 1;
        number.multiply_by_power_of_two(suffix_exponent);
        if parts.fraction.is_empty() && room >= 0 {
            if low_bits != 0 {
                number.text = Some(text.into());
            }
        } else {
            // Of a large binary suffix alone the API server makes nothing.
            if !text.bytes().any(|byte| byte.is_ascii_digit()) {
                return Err(Error::Malformed);
            }
            number.round_up(SMALLEST_EXPONENT);
            number.cap();
        }
    }
    number.normalize();
    if number.digits.is_empty() {
        number.text = None;
    } else if number.format == Format::BinarySi && number.magnitude() <= 0 {
        // Below one there is no binary suffix; say it in decimals rather than round.
        number.format = Format::DecimalSi;
    }
    Ok(number)
}

/// The text that the API server prints for a quantity: `1000m` → `1`, `1024Mi` → `1Gi`, `0.5` → `500m`.
pub fn canonical(text: &str) -> Result<String, Error> {
    parse(text).map(|quantity| quantity.to_string())
}

/// The same for a value of a document: quantities may also be written as numbers, and null is zero.
/// None if the value is something else, or no quantity.
pub fn canonical_value(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => canonical(text).ok(),
        Value::Number(number) => canonical(&number.to_string()).ok(),
        Value::Null => Some("0".to_owned()),
        _ => None,
    }
}

impl Quantity {
    /// The suffix family.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether the number is zero.
    pub fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// The number as an integer, rounded away from zero and held inside 64 bits.
    pub fn value(&self) -> i64 {
        self.scaled(0)
    }

    /// Thousandths, rounded away from zero and held inside 64 bits: `100m` is 100.
    pub fn milli_value(&self) -> i64 {
        self.scaled(-3)
    }

    /// Units of 10^`scale`.
    fn scaled(&self, scale: i64) -> i64 {
        let mut number = self.clone();
        number.round_up(scale);
        number.normalize();
        let zeros = number.exponent - scale;
        let size = if number.is_zero() {
            0
        } else if number.digits.len() as i64 + zeros > 19 {
            i64::MAX
        } else {
            let text = number.digits + &"0".repeat(zeros.max(0) as usize);
            text.parse().unwrap_or(i64::MAX)
        };
        if self.negative { -size } else { size }
    }

    /// Power of ten just above the number's size: 0.5 → 0, 5 → 1, 50 → 2.
    fn magnitude(&self) -> i64 {
        self.digits.len() as i64 + self.exponent
    }

    fn normalize(&mut self) {
        let kept = self.digits.trim_end_matches('0').len();
        self.exponent += (self.digits.len() - kept) as i64;
        self.digits.truncate(kept);
        let zeros = kept - self.digits.trim_start_matches('0').len();
        self.digits.drain(..zeros);
        if self.digits.is_empty() {
            self.exponent = 0;
            self.negative = false;
        }
    }

    /// Drops what is smaller than 10^`smallest`, and adds one of that if anything was dropped.
    fn round_up(&mut self, smallest: i64) {
        self.normalize();
        if self.is_zero() || self.exponent >= smallest {
            return;
        }
        let kept = self.digits.len() as i64 - (smallest - self.exponent);
        self.digits.truncate(kept.max(0) as usize);
        self.digits = plus_one(&self.digits);
        self.exponent = smallest;
    }

    fn multiply_by_power_of_two(&mut self, power: i32) {
        for _ in 0..power / 10 {
            let mut carry = 0;
            let mut product: Vec<u8> = Vec::with_capacity(self.digits.len() + 4);
            for digit in self.digits.bytes().rev() {
                carry += u32::from(digit - b'0') * 1024;
                product.push(b'0' + (carry % 10) as u8);
                carry /= 10;
            }
            while carry > 0 {
                product.push(b'0' + (carry % 10) as u8);
                carry /= 10;
            }
            self.digits = product.into_iter().rev().map(char::from).collect();
        }
    }

    /// Binary quantities that were not small stop at the largest 64-bit integer.
    fn cap(&mut self) {
        let largest = Self {
            negative: self.negative,
            digits: LARGEST_BINARY.to_owned(),
            exponent: 0,
            format: self.format,
            text: None,
        };
        self.normalize();
        if self.cmp_size(&largest) == Ordering::Greater {
            *self = largest;
        }
    }

    fn cmp_size(&self, other: &Self) -> Ordering {
        match (self.is_zero(), other.is_zero()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            // Digits have no trailing zeros, so at one magnitude they compare as texts.
            (false, false) => self
                .magnitude()
                .cmp(&other.magnitude())
                .then_with(|| self.digits.cmp(&other.digits)),
        }
    }

    fn write_decimal(&self, f: &mut fmt::Formatter<'_>, format: Format) -> fmt::Result {
        let zeros = self.exponent.rem_euclid(3);
        let exponent = self.exponent - zeros;
        let sign = if self.negative { "-" } else { "" };
        write!(f, "{sign}{}{}", self.digits, &"00"[..zeros as usize])?;
        match (format, exponent) {
            (_, 0) => Ok(()),
            (Format::DecimalExponent, _) => write!(f, "e{exponent}"),
            // A power without a suffix is printed without one; so does the API server.
            _ => f.write_str(
                DECIMAL_SUFFIXES
                    .iter()
                    .find(|(_, power)| i64::from(*power) == exponent)
                    .map_or("", |(suffix, _)| suffix),
            ),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        let whole = (self.exponent >= 0 && self.magnitude() <= 19)
            .then(|| {
                format!("{}{}", self.digits, "0".repeat(self.exponent as usize))
                    .parse::<u64>()
                    .ok()
            })
            .flatten();
        match (self.format, whole) {
            (Format::BinarySi, Some(mut number)) if number >= 1024 => {
                let mut power = 0;
                while number.is_multiple_of(1024) {
                    number /= 1024;
                    power += 1;
                }
                let sign = if self.negative { "-" } else { "" };
                write!(
                    f,
                    "{sign}{number}{}",
                    ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]
                )
            }
            (Format::DecimalExponent, _) => self.write_decimal(f, Format::DecimalExponent),
            _ => self.write_decimal(f, Format::DecimalSi),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.cmp_size(other),
            (true, true) => other.cmp_size(self),
        }
    }
}

/// The text of a quantity, cut up.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point without leading zeros; empty for none.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(Error::Malformed);
        }
        let negative = text.starts_with('-');
        let rest = text
            .strip_prefix(['-', '+'])
            .unwrap_or(text)
            .trim_start_matches('0');
        let (whole, rest) = rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count());
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", rest),
        };
        let after = suffix.trim_start_matches(['e', 'E', 'i', 'n', 'u', 'm', 'k', 'K', 'M', 'G', 'T', 'P']);
        let after = after.strip_prefix(['-', '+']).unwrap_or(after);
        if !after.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Error::Malformed);
        }
        Ok(Self {
            negative,
            whole,
            fraction,
            suffix,
        })
    }
}

const DECIMAL_SUFFIXES: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY_SUFFIXES: [(&str, i32); 6] = [
    ("Ki", 10),
    ("Mi", 20),
    ("Gi", 30),
    ("Ti", 40),
    ("Pi", 50),
    ("Ei", 60),
];

fn suffix(text: &str) -> Result<(u32, i32, Format), Error> {
    if let Some((_, power)) = DECIMAL_SUFFIXES.iter().find(|(suffix, _)| *suffix == text) {
        return Ok((10, *power, Format::DecimalSi));
    }
    if let Some((_, power)) = BINARY_SUFFIXES.iter().find(|(suffix, _)| *suffix == text) {
        return Ok((2, *power, Format::BinarySi));
    }
    let power = text
        .strip_prefix(['e', 'E'])
        .and_then(|digits| digits.parse::<i64>().ok())
        .ok_or(Error::Suffix)?;
    // The API server keeps 32 bits of it.
    Ok((10, power as i32, Format::DecimalExponent))
}

/// The digits of a number one larger.
fn plus_one(digits: &str) -> String {
    let nines = digits.len() - digits.trim_end_matches('9').len();
    let (head, _) = digits.split_at(digits.len() - nines);
    let mut next = match head.as_bytes().last() {
        Some(last) => format!("{}{}", &head[..head.len() - 1], char::from(last + 1)),
        None => "1".to_owned(),
    };
    next.push_str(&"0".repeat(nines));
    next
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Right sides were printed by k8s.io/apimachinery v0.36.3 (`ParseQuantity(x).String()`).
    const PRINTED: &str = include_str!("../tests/quantity.txt");

    #[test]
    fn texts_print_as_the_api_server_prints_them() {
        for line in PRINTED.lines().filter(|line| !line.is_empty()) {
            let (text, want) = line.split_once(" => ").unwrap();
            let got = canonical(text).unwrap_or_else(|_| "error".to_owned());
            assert_eq!(got, want, "canonical text of {text:?}");
        }
    }

    #[test]
    fn a_large_binary_suffix_alone_is_no_quantity() {
        assert_eq!(parse("Pi"), Err(Error::Malformed));
        assert_eq!(parse(".Ei"), Err(Error::Malformed));
        assert!(parse("Mi").unwrap().is_zero());
        assert!(parse("0Ki").unwrap().is_zero());
    }

    #[test]
    fn printing_is_stable() {
        for line in PRINTED
            .lines()
            .filter(|line| !line.is_empty() && !line.ends_with("error"))
        {
            let (_, want) = line.split_once(" => ").unwrap();
            assert_eq!(canonical(want).unwrap(), want);
        }
    }

    #[test]
    fn quantities_compare_as_numbers() {
        let ascending = [
            "-2Gi", "-1", "-1m", "0", "1n", "0.5m", "999m", "1", "1001m", "1k", "1Ki", "1e6", "1Mi", "2G",
            "2Gi", "1E", "1Ei",
        ];
        for pair in ascending.windows(2) {
            assert!(parse(pair[0]).unwrap() < parse(pair[1]).unwrap(), "{pair:?}");
        }
        assert_eq!(parse("1000m").unwrap(), parse("1").unwrap());
        assert_eq!(parse("1Gi").unwrap(), parse("1073741824").unwrap());
        assert_eq!(parse("-0").unwrap(), parse("0Ki").unwrap());
    }

    #[test]
    fn integers_are_rounded_up() {
        assert_eq!(parse("1.5").unwrap().value(), 2);
        assert_eq!(parse("-1.5").unwrap().value(), -2);
        assert_eq!(parse("250m").unwrap().milli_value(), 250);
        assert_eq!(parse("2").unwrap().milli_value(), 2000);
        assert_eq!(parse("1Gi").unwrap().value(), 1 << 30);
        assert_eq!(parse("1n").unwrap().milli_value(), 1);
        assert_eq!(parse("1e40").unwrap().value(), i64::MAX);
        assert_eq!(parse("0").unwrap().value(), 0);
    }

    #[test]
    fn numbers_in_documents_are_quantities_too() {
        use serde_json::json;
        assert_eq!(canonical_value(&json!(1)).unwrap(), "1");
        assert_eq!(canonical_value(&json!(0.5)).unwrap(), "500m");
        assert_eq!(canonical_value(&json!("1024Mi")).unwrap(), "1Gi");
        assert_eq!(canonical_value(&json!(true)), None);
    }
}
