//! Bytes to text, and text to parts, as apimachinery's `YAMLReader` cuts files.

use std::borrow::Cow;

use super::{Error, Part};

/// Cuts a file at its `---` lines.
///
/// A separator stands at the start of a line and is followed by nothing but space and a comment; anything else after it
/// is an error. A separator that starts a part belongs to it, so two in a row make a part that holds one.
/// Lines end with `\n` in the parts, however they end in the file, also the last.
pub fn split(text: &str) -> Result<Vec<Part<'_>>, Error> {
    split_from(text, 1)
}

/// The same for a text that starts on `first_line` of its file.
pub(super) fn split_from(text: &str, first_line: usize) -> Result<Vec<Part<'_>>, Error> {
    let mut parts = Vec::new();
    // Byte range and first line of the part that is being read.
    let (mut start, mut end, mut start_line) = (0, 0, first_line);
    for (line, content) in text.split_inclusive('\n').enumerate() {
        if let Some(after) = content.strip_prefix("---") {
            let rest = after.trim();
            if !rest.is_empty() && !rest.starts_with('#') {
                let column = content.len() - after.trim_start().len() + 1;
                let message = format!("a document separator is followed by {:?}", shortened(rest));
                return Err(Error::new(first_line + line, column, message));
            }
            if end > start {
                parts.push(Part {
                    text: with_newlines(&text[start..end]),
                    line: start_line,
                });
                end += content.len();
                (start, start_line) = (end, first_line + line + 1);
                continue;
            }
        }
        end += content.len();
    }
    if end > start {
        parts.push(Part {
            text: with_newlines(&text[start..end]),
            line: start_line,
        });
    }
    Ok(parts)
}

/// The text of a file. A byte order mark says which encoding it has; without one it is UTF-8.
///
/// # Errors
/// When it is not valid in that encoding.
pub fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, Error> {
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes
            .chunks(2)
            .map(|pair| unit([pair[0], *pair.get(1).unwrap_or(&0)]))
            .collect();
        String::from_utf16(&units)
            .map(Cow::Owned)
            .map_err(|_| Error::new(1, 1, "text starts as UTF-16 but is not valid UTF-16"))
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        _ => {
            let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
            let invalid = |error: std::str::Utf8Error| {
                let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
                let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                Error::new(line, column, "text is not valid UTF-8")
            };
            std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(invalid)
        }
    }
}

fn with_newlines(text: &str) -> Cow<'_, str> {
    let unix = if text.contains("\r\n") {
        Cow::Owned(text.replace("\r\n", "\n"))
    } else {
        Cow::Borrowed(text)
    };
    if unix.ends_with('\n') {
        unix
    } else {
        Cow::Owned(unix.into_owned() + "\n")
    }
}

fn shortened(text: &str) -> &str {
    text.char_indices().nth(40).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        split(text)
            .unwrap()
            .into_iter()
            .map(|part| part.text.into_owned())
            .collect()
    }

    /// The parts are those that apimachinery v0.36.3 `YAMLReader` returns for the same texts.
    #[test]
    fn files_are_cut_as_apimachinery_cuts_them() {
        assert_eq!(texts("a: 1\n---\nb: 2"), ["a: 1\n", "b: 2\n"]);
        assert_eq!(texts("---\na: 1\n--- # words\nb: 2\n"), ["---\na: 1\n", "b: 2\n"]);
        assert_eq!(texts("---\n---\n"), ["---\n"]);
        assert_eq!(texts("---\n---\n---\na: 1"), ["---\n", "---\na: 1\n"]);
        assert_eq!(
            texts("a: 1\r\n---  \r\nb: |\r\n  x\r\n"),
            ["a: 1\n", "b: |\n  x\n"]
        );
        assert_eq!(texts("a: |\n  ---\n ---\n"), ["a: |\n  ---\n ---\n"]);
        assert_eq!(texts(""), Vec::<String>::new());
        assert!(split("a: 1\n----\n").is_err());
        assert!(split("--- {a: 1}\n").is_err());
    }
}
