//! Strings that are something else written down: ids, times, digests, addresses, numbers, bytes in base64.
//!
//! A reading counts only if writing it gives the same text again, so `007` or a time in another spelling stays text.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Digests shorter than this (16 bytes) are not worth it.
const HEX_LEN_MIN: usize = 32;
const BASE64_LEN_MIN: usize = 24;

#[derive(Debug, PartialEq)]
pub(super) enum Typed<'a> {
    /// `8-4-4-4-12` in lower case.
    Uuid([u8; 16]),
    /// Seconds since 1970, RFC 3339 in UTC without fractions.
    Time(i64),
    /// A decimal number.
    Digits(u64),
    Ipv4([u8; 4]),
    /// Something, then lower-case hexadecimal: `containerd://…`, `image@sha256:…`.
    Hex(&'a str, Vec<u8>),
    Base64(Vec<u8>),
}

/// What a text is, if it is one of these.
pub(super) fn read(text: &str) -> Option<Typed<'_>> {
    let bytes = text.as_bytes();
    let (first, last) = (*bytes.first()?, *bytes.last()?);
    if bytes.len() == 20 && last == b'Z' && bytes[10] == b'T' {
        return time(bytes).map(Typed::Time);
    }
    if bytes.len() == 36 && bytes[8] == b'-' {
        return uuid(bytes).map(Typed::Uuid);
    }
    if first.is_ascii_digit() && last.is_ascii_digit() {
        if (4..=19).contains(&bytes.len()) && first != b'0' && bytes.iter().all(u8::is_ascii_digit) {
            return text.parse().ok().map(Typed::Digits);
        }
        if (7..=15).contains(&bytes.len()) && bytes.contains(&b'.') {
            // There is one spelling only: zeros in front are refused.
            let address: Option<std::net::Ipv4Addr> = text.parse().ok();
            return address.map(|address| Typed::Ipv4(address.octets()));
        }
    }
    if bytes.len() >= HEX_LEN_MIN && hex_digit(last).is_some() {
        let digits = bytes
            .iter()
            .rev()
            .take_while(|byte| hex_digit(**byte).is_some())
            .count();
        let digits = digits - digits % 2;
        if digits >= HEX_LEN_MIN {
            let (prefix, tail) = text.split_at(bytes.len() - digits);
            return unhex(tail.as_bytes()).map(|bytes| Typed::Hex(prefix, bytes));
        }
    }
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    if bytes.len() >= BASE64_LEN_MIN && bytes.len().is_multiple_of(4) && bytes.iter().all(is_base64) {
        return STANDARD.decode(bytes).ok().map(Typed::Base64);
    }
    None
}

pub(super) fn uuid_text(bytes: &[u8]) -> String {
    let hex = hex_text(bytes);
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

pub(super) fn hex_text(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    out
}

pub(super) fn base64_text(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn ipv4_text(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(15);
    for (at, byte) in bytes.iter().enumerate() {
        let dot = if at == 0 { "" } else { "." };
        let _ = write!(out, "{dot}{byte}");
    }
    out
}

/// Days and dates of the Gregorian calendar, in eras of 400 years that begin in March.
pub(super) fn time_text(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Of 20 bytes, of which `T` and `Z` are known to be there. What is taken is written the same way again.
fn time(text: &[u8]) -> Option<i64> {
    if [text[4], text[7], text[13], text[16]] != *b"--::" {
        return None;
    }
    let number = |from: usize, to: usize| {
        text[from..to].iter().try_fold(0i64, |number, byte| {
            byte.is_ascii_digit()
                .then(|| number * 10 + i64::from(byte - b'0'))
        })
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    let mut digits = [0; 32];
    let mut at = 0;
    for (place, byte) in text.iter().enumerate() {
        if matches!(place, 8 | 13 | 18 | 23) {
            if *byte != b'-' {
                return None;
            }
        } else {
            digits[at] = *byte;
            at += 1;
        }
    }
    let mut out = [0; 16];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
    }
    Some(out)
}

fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    digits
        .chunks_exact(2)
        .map(|pair| Some(hex_digit(pair[0])? << 4 | hex_digit(pair[1])?))
        .collect()
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn times_of_all_kinds_of_years_come_back() {
        // Seconds since 1970 as `date -u -d … +%s` tells them.
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2026-11-29T18:36:14Z", 1_795_977_374),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
            ("1969-12-31T23:59:59Z", -1),
        ] {
            assert_eq!(read(text), Some(Typed::Time(seconds)));
            assert_eq!(time_text(seconds), text);
        }
        for text in [
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01t00:00:00Z",
            "2025-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:60Z",
            "2026/01/01T00:00:00Z",
            "2026-01-01T00.00.00Z",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_of_four_hundred_years_comes_back() {
        for day in -400..146_100 {
            let seconds = day * 86_400 + 86_399;
            assert_eq!(read(&time_text(seconds)), Some(Typed::Time(seconds)));
        }
    }

    #[test]
    fn what_would_not_come_back_the_same_stays_text() {
        for text in [
            "",
            "007",
            "1.2.3",
            "10.0.0.01",
            "10.0.0.256",
            "0123456789ABCDEF0123456789ABCDEF+",
            "-1",
            "ü",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read("8A2B0000-0000-4000-a000-000000000000"), None);
        // The last digit of this base64 has bits that are lost.
        assert_eq!(read("AAAAAAAAAAAAAAAAAAAAAAAB+B=="), None);
    }

    #[test]
    fn ids_digests_numbers_and_addresses_are_recognised() {
        let uuid = "8a2b0000-0000-4000-a000-00000000000f";
        let Some(Typed::Uuid(bytes)) = read(uuid) else {
            panic!()
        };
        assert_eq!(uuid_text(&bytes), uuid);
        let digest = "0123456789abcdef".repeat(4);
        let image = format!("registry/x@sha256:{digest}");
        let Some(Typed::Hex(prefix, bytes)) = read(&image) else {
            panic!()
        };
        assert_eq!((prefix, hex_text(&bytes)), ("registry/x@sha256:", digest));
        assert_eq!(read("18446744073709551615"), None);
        assert_eq!(read("1234567"), Some(Typed::Digits(1_234_567)));
        assert_eq!(read("10.0.0.1"), Some(Typed::Ipv4([10, 0, 0, 1])));
        let Some(Typed::Base64(bytes)) = read("aGVsbG8gd29ybGQsIGhlbGxv") else {
            panic!()
        };
        assert_eq!(bytes, b"hello world, hello");
    }
}
