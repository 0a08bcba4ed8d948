//! YAML with the meaning Kubernetes tools give it: that of `sigs.k8s.io/yaml`, which reads YAML 1.1 by the rules of
//! `go.yaml.in/yaml/v2` and hands on JSON.
//!
//! What that means for a repository: `yes`, `on` and `y` are booleans (also as keys), `0644` is 420, `1.0` is the
//! integer 1, a repeated key is overwritten by the last, `<<` merges, and of several documents in one part only the
//! first is read, because files are cut into parts before ([`split`]).
//!
//! The way of a file: bytes → text → parts → events of the parser (`tree`) → scalars with a type
//! (`resolve`) → [`Value`] (`build`). Repositories are hostile, so each step has a budget ([`Limits`]).

mod build;
mod emit;
mod number;
mod resolve;
mod split;
mod tree;

use std::borrow::Cow;

use crate::Value;

pub use emit::to_string;
pub use split::{decode, split};

/// How much a text may ask for. Reaching a limit is an error with the place where it was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a text, and bytes of strings that come from aliases.
    pub bytes: usize,
    /// Scalars, lists and maps in one document, as written.
    pub nodes: usize,
    /// Lists and maps inside one another.
    pub depth: usize,
    /// Scalars, lists and maps in one document that come from aliases.
    pub alias_nodes: usize,
}

impl Default for Limits {
    /// Room for any honest manifest: the largest CRDs have 2 MB and 60,000 nodes.
    fn default() -> Self {
        Self {
            bytes: 32 << 20,
            nodes: 2_000_000,
            depth: 120,
            alias_nodes: 400_000,
        }
    }
}

/// Why a text could not be read, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct Error {
    /// Line in the whole file, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, in lower case and without the place.
    pub message: String,
    /// Whether the text may be right, and is more than [`Limits`] allow.
    pub is_limit: bool,
}

/// A part of a file: what stands between two `---` lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The text; every line ends with `\n`.
    pub text: Cow<'a, str>,
    /// Line of the file where the part starts, from 1.
    pub line: usize,
}

/// A document and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Located {
    /// The document.
    pub value: Value,
    /// Line of the file where its part starts, from 1.
    pub line: usize,
    /// Keys that stand twice in one map, of which the last counts: where, and which. Of very many only the first.
    pub repeated: Vec<Error>,
}

/// Reads the first document of a text. A text without one is null.
pub fn parse(text: &str, limits: &Limits) -> Result<Value, Error> {
    parse_part(text, 1, limits).map(|(value, _)| value)
}

/// Reads all documents of a file that are not null, YAML or JSON, as `kubectl` and Argo CD do: UTF-8 or UTF-16, parts
/// between `---` lines, or JSON objects one after the other.
pub fn parse_all(bytes: &[u8], limits: &Limits) -> Result<Vec<Located>, Error> {
    if bytes.len() > limits.bytes {
        return Err(Error::limit(
            1,
            1,
            format!("text is longer than {} bytes", limits.bytes),
        ));
    }
    let text = split::decode(bytes)?;
    let mut found = Vec::new();
    let (rest, line) = read_json_stream(&text, &mut found)?;
    for part in split::split_from(rest, line)? {
        let (value, repeated) = parse_part(&part.text, part.line, limits)?;
        found.push(Located {
            value,
            line: part.line,
            repeated,
        });
    }
    found.retain(|located| !located.value.is_null());
    Ok(found)
}

/// Reads a text that starts on `line` of its file, and finds the keys that it repeats.
fn parse_part(text: &str, line: usize, limits: &Limits) -> Result<(Value, Vec<Error>), Error> {
    if text.len() > limits.bytes {
        return Err(Error::limit(
            line,
            1,
            format!("text is longer than {} bytes", limits.bytes),
        ));
    }
    let tree = tree::read(text, line, limits)?;
    build::value(&tree, limits)
}

/// Takes JSON objects from the start of a text, and returns what remains to be read as YAML and its line.
///
/// A text that starts with `{` may be JSON or YAML. As in apimachinery's decoder, it is JSON until something else comes;
/// after more than one object, something else is an error.
fn read_json_stream<'a>(text: &'a str, found: &mut Vec<Located>) -> Result<(&'a str, usize), Error> {
    if !text.trim_start().starts_with('{') {
        return Ok((text, 1));
    }
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let mut read = 0;
    loop {
        let start = text.len() - text[read..].trim_start().len();
        match stream.next() {
            None => return Ok(("", 1)),
            Some(Ok(value)) => {
                read = stream.byte_offset();
                found.push(Located {
                    value,
                    line: line_at(text, start),
                    repeated: Vec::new(),
                });
            }
            Some(Err(error)) if found.len() > 1 => {
                let message = error.to_string();
                let message = message
                    .rsplit_once(" at line ")
                    .map_or(message.as_str(), |(text, _)| text);
                return Err(Error::new(error.line(), error.column(), message));
            }
            Some(Err(_)) => {
                // Space up to the end of this line belongs to the object before.
                let rest = &text[read..];
                let blank = rest.len() - rest.trim_start().len();
                let eaten = rest[..blank].find('\n').map_or(blank, |newline| newline + 1);
                return Ok((&rest[eaten..], line_at(text, read + eaten)));
            }
        }
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    text[..offset].bytes().filter(|byte| *byte == b'\n').count() + 1
}

impl Error {
    fn new(line: usize, column: usize, message: impl Into<String>) -> Self {
        Self {
            line,
            column,
            message: message.into(),
            is_limit: false,
        }
    }

    fn limit(line: usize, column: usize, message: impl Into<String>) -> Self {
        Self {
            is_limit: true,
            ..Self::new(line, column, message)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn all(text: &str) -> Vec<(Value, usize)> {
        let found = parse_all(text.as_bytes(), &Limits::default()).unwrap();
        found
            .into_iter()
            .map(|located| (located.value, located.line))
            .collect()
    }

    fn fails(text: &str) -> Error {
        parse_all(text.as_bytes(), &Limits::default()).unwrap_err()
    }

    #[test]
    fn documents_carry_the_line_where_they_start() {
        assert_eq!(
            all("a: 1\n---\n\nb: 2\n--- # c\nc: 3\n"),
            [(json!({"a": 1}), 1), (json!({"b": 2}), 3), (json!({"c": 3}), 6)]
        );
    }

    #[test]
    fn empty_documents_are_left_out() {
        assert_eq!(
            all("---\n---\n# only words\n---\na: 1\n---\n"),
            [(json!({"a": 1}), 5)]
        );
        assert_eq!(all(""), []);
        assert_eq!(all("null"), []);
    }

    #[test]
    fn json_comes_through_the_same_door() {
        assert_eq!(
            all("{\"a\": 1.0}\n{\"b\": 2}\n\n{\"c\": 3}"),
            [(json!({"a": 1.0}), 1), (json!({"b": 2}), 2), (json!({"c": 3}), 4)]
        );
        assert_eq!(
            all("{\"a\": 1}\n---\n{\"b\": 2}\n---\nc: 3\n"),
            [(json!({"a": 1}), 1), (json!({"b": 2}), 2), (json!({"c": 3}), 5)]
        );
        assert_eq!(all("{a: 1}\n"), [(json!({"a": 1}), 1)]);
    }

    #[test]
    fn errors_name_the_line_in_the_whole_file() {
        let error = fails("a: 1\n---\nb: 2\nc: [1, 2\nd: 3\n");
        assert!((4..=6).contains(&error.line), "{error}");
        let error = fails("a: 1\n--- b\n");
        assert_eq!((error.line, error.column), (2, 5), "{error}");
        let error = fails("a: 1\n---\n\nb: .inf\n");
        assert_eq!((error.line, error.column), (4, 4), "{error}");
    }

    #[test]
    fn byte_orders_are_understood() {
        let text = "a: ü\n---\nb: 2\n";
        let want = all(text);
        let marked = format!("\u{feff}{text}");
        let little: Vec<u8> = marked.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = marked.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for bytes in [marked.as_bytes(), &little, &big] {
            let found = parse_all(bytes, &Limits::default()).unwrap();
            let found: Vec<_> = found
                .into_iter()
                .map(|located| (located.value, located.line))
                .collect();
            assert_eq!(found, want);
        }
        let error = parse_all(b"a: 1\nb: \xff\n", &Limits::default()).unwrap_err();
        assert_eq!((error.line, error.column), (2, 4));
    }

    #[test]
    fn keys_that_stand_twice_are_told_with_their_lines() {
        let text = "a: 1\n---\nlabels:\n  app: x\n  tier: t\n  app: z\n";
        let found = parse_all(text.as_bytes(), &Limits::default()).unwrap();
        assert_eq!(found[0].repeated, []);
        assert_eq!(found[1].value, json!({"labels": {"app": "z", "tier": "t"}}));
        let told: Vec<String> = found[1].repeated.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            ["line 6, column 3: the key \"app\" stands here for the second time; the last one counts"]
        );
        // A key that says otherwise than what was merged is the reason to merge.
        let text = "base: &b {a: 1}\nx:\n  <<: *b\n  a: 2\n";
        assert_eq!(
            parse_all(text.as_bytes(), &Limits::default()).unwrap()[0].repeated,
            []
        );
    }

    #[test]
    fn budgets_are_kept() {
        let tight = Limits {
            bytes: 3000,
            nodes: 10,
            depth: 3,
            alias_nodes: 5,
        };
        for (text, why) in [
            ("a".repeat(3001), "longer than 3000 bytes"),
            ("[1,2,3,4,5,6,7,8,9,10]".to_owned(), "more than 10"),
            ("[[[[1]]]]".to_owned(), "deeper than 3"),
            ("[".repeat(1000), "deeper than 3"),
            ("- ".repeat(1000), "deeper than 3"),
            ("{a: ".repeat(700), "deeper than 3"),
            ("- &a [1, 2]\n- *a\n- *a\n".to_owned(), "aliases"),
        ] {
            let error = parse(&text, &tight).unwrap_err();
            assert!(error.message.contains(why), "{error}");
            assert!(error.is_limit, "{error}");
        }
        assert!(!parse("[1, 2", &tight).unwrap_err().is_limit);
    }

    #[test]
    fn expanding_aliases_without_end_is_refused() {
        let mut text = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
        for level in 1..12 {
            let one = format!("*a{}", level - 1);
            text.push_str(&format!("a{level}: &a{level} [{}]\n", vec![one; 9].join(", ")));
        }
        assert!(
            parse(&text, &Limits::default())
                .unwrap_err()
                .message
                .contains("aliases")
        );
        let large = format!(
            "a: &a {}\nb: [{}]\n",
            "x".repeat(1 << 20),
            vec!["*a"; 100].join(", ")
        );
        assert!(
            parse(&large, &Limits::default())
                .unwrap_err()
                .message
                .contains("aliases")
        );
        let own = parse("&a [*a]", &Limits::default()).unwrap_err();
        assert!(own.message.contains("contains itself"), "{own}");
    }
}
