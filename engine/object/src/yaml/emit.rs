//! A value as YAML text, in the manner of `sigs.k8s.io/yaml`: sorted keys, block style, lists not indented below their
//! key, and quotes exactly where a YAML 1.1 reader would take a text for something else.

use std::fmt::Write as _;

use super::number;
use super::resolve::needs_quotes;
use crate::{Map, Value};

/// Longer keys are written with an explicit `?`.
const SIMPLE_KEY_LEN: usize = 128;

/// The YAML text of a value, ending with a newline. Reading it gives the value back, except that YAML has no floats that
/// are whole numbers: `1.0` is written as `1`.
pub fn to_string(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => write_map(&mut text, map, 0),
        Value::Array(items) if !items.is_empty() => write_list(&mut text, items, 0),
        scalar => {
            write_scalar(&mut text, scalar, 0);
            text.push('\n');
        }
    }
    text
}

/// Entries of a map; the first stands where the text is now, the others on lines indented by `indent`.
fn write_map(text: &mut String, map: &Map, indent: usize) {
    for (at, (key, value)) in map.iter().enumerate() {
        if at > 0 {
            push_spaces(text, indent);
        }
        let key = key_text(key);
        if key.len() > SIMPLE_KEY_LEN {
            text.push_str("? ");
            text.push_str(&key);
            text.push('\n');
            push_spaces(text, indent);
        } else {
            text.push_str(&key);
        }
        text.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                text.push('\n');
                push_spaces(text, indent + 2);
                write_map(text, inner, indent + 2);
            }
            Value::Array(items) if !items.is_empty() => {
                text.push('\n');
                push_spaces(text, indent);
                write_list(text, items, indent);
            }
            scalar => {
                text.push(' ');
                write_scalar(text, scalar, indent + 2);
                text.push('\n');
            }
        }
    }
}

/// Items of a list, in the same way.
fn write_list(text: &mut String, items: &[Value], indent: usize) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            push_spaces(text, indent);
        }
        text.push_str("- ");
        match item {
            Value::Object(inner) if !inner.is_empty() => write_map(text, inner, indent + 2),
            Value::Array(inner) if !inner.is_empty() => write_list(text, inner, indent + 2),
            scalar => {
                write_scalar(text, scalar, indent + 2);
                text.push('\n');
            }
        }
    }
}

/// A scalar or an empty collection, without a newline at its end. Lines of a block are indented by `indent`.
fn write_scalar(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(truth) => text.push_str(if *truth { "true" } else { "false" }),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => text.push_str(&number::shortest_f64(float)),
            _ => {
                let _ = write!(text, "{number}");
            }
        },
        Value::Array(_) => text.push_str("[]"),
        Value::Object(_) => text.push_str("{}"),
        Value::String(string) => match style(string) {
            Style::Plain => text.push_str(string),
            Style::Single => push_single_quoted(text, string),
            Style::Double => push_double_quoted(text, string),
            Style::Literal => push_literal(text, string, indent.max(2)),
        },
    }
}

fn key_text(key: &str) -> String {
    let mut text = String::with_capacity(key.len() + 2);
    match style(key) {
        Style::Plain => text.push_str(key),
        Style::Single => push_single_quoted(&mut text, key),
        Style::Double | Style::Literal => push_double_quoted(&mut text, key),
    }
    text
}

enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

/// How a string is written: plainly if that is read back as the same string, as a block if it has several lines.
fn style(string: &str) -> Style {
    let lines = string.contains('\n');
    // A reader of YAML 1.1 ends lines at these too, and what cannot be seen is better escaped.
    let special = string.chars().any(|c| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
    });
    if lines {
        let trailing_space = string.ends_with(' ') || string.contains(" \n");
        return if special || trailing_space {
            Style::Double
        } else {
            Style::Literal
        };
    }
    // As a key, `<<` would merge.
    if special || needs_quotes(string) || string == "<<" {
        return Style::Double;
    }
    if reads_as_syntax(string) {
        Style::Single
    } else {
        Style::Plain
    }
}

/// Whether a one-line string would be taken for something else than a plain scalar.
fn reads_as_syntax(string: &str) -> bool {
    let followed_by_space = |at: usize| string[at + 1..].chars().next().is_none_or(|c| c == ' ');
    let first = string.chars().next().unwrap_or(' ');
    string.starts_with("---")
        || string.starts_with("...")
        || string.starts_with(' ')
        || string.ends_with(' ')
        || "#,[]{}&*!|>'\"%@`".contains(first)
        || ("?:-".contains(first) && followed_by_space(0))
        || string.match_indices(':').any(|(at, _)| followed_by_space(at))
        || string.contains(" #")
}

fn push_single_quoted(text: &mut String, string: &str) {
    text.push('\'');
    text.push_str(&string.replace('\'', "''"));
    text.push('\'');
}

fn push_double_quoted(text: &mut String, string: &str) {
    text.push('"');
    for c in string.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            '\r' => text.push_str("\\r"),
            '\0' => text.push_str("\\0"),
            '\u{7}' => text.push_str("\\a"),
            '\u{8}' => text.push_str("\\b"),
            '\u{b}' => text.push_str("\\v"),
            '\u{c}' => text.push_str("\\f"),
            '\u{1b}' => text.push_str("\\e"),
            '\u{85}' => text.push_str("\\N"),
            '\u{2028}' => text.push_str("\\L"),
            '\u{2029}' => text.push_str("\\P"),
            c if c.is_control() && (c as u32) < 0x100 => {
                let _ = write!(text, "\\x{:02X}", c as u32);
            }
            '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(text, "\\u{:04X}", c as u32);
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

/// `|` for text that ends with one newline, `|-` with none, `|+` with more; `2` when the first line starts with space.
fn push_literal(text: &mut String, string: &str, indent: usize) {
    text.push('|');
    if string.starts_with([' ', '\n']) {
        text.push('2');
    }
    let body = match string.strip_suffix('\n') {
        None => {
            text.push('-');
            string
        }
        Some(body) if body.is_empty() || body.ends_with('\n') => {
            text.push('+');
            body
        }
        Some(body) => body,
    };
    for line in body.split('\n') {
        text.push('\n');
        if !line.is_empty() {
            push_spaces(text, indent);
            text.push_str(line);
        }
    }
}

fn push_spaces(text: &mut String, count: usize) {
    text.extend(std::iter::repeat_n(' ', count));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Limits, parse};
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// The text is what sigs.k8s.io/yaml v1.6.0 `Marshal` prints for the same value.
    #[test]
    fn documents_read_as_go_writes_them() {
        let value = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "labels": {}, "annotations": null},
            "data": {
                "y": "y", "on": "on", "octal": "0777", "number": "1", "float": "1.5", "empty": "", "null": "null",
                "date": "2001-01-01", "base60": "1:20", "text": "a\nb\n", "cut": "a\nb", "more": "a\n\n", "hash": "a #b",
                "colon": "a: b", "star": "*a", "quote": "it's", "tab": "a\tb", "space": " a", "url": "http://x:80/y",
                "indented": "  a\nb\n", "percent": "%x", "dash": "-", "tilde": "~"
            },
            "list": [1, "a", {"b": [2, {"c": 3}], "d": 4}, [5, [6]], [], {}],
            "true": true, "n": 0.5, "large": 1234567.5
        });
        let want = include_str!("../../tests/yaml/emitted.yaml");
        assert_eq!(to_string(&value), want);
    }

    #[test]
    fn long_keys_are_read_back() {
        let value = json!({"x".repeat(3000): {"y".repeat(200): [1]}, "a\nb": 1, "": 2});
        assert_eq!(parse(&to_string(&value), &Limits::default()).unwrap(), value);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            any::<String>().prop_map(|text| text.chars().take(40).collect::<String>()),
            "[ a-c:#\\-?,\\[\\]{}&*!|>'\"%@`~\\n\\t.0-9_+eExyon]{0,14}",
            "[ ab\\n]{0,10}",
            prop::sample::select(vec![
                "y",
                "NO",
                "on",
                "0777",
                "0o7",
                "08",
                "1_0",
                "1e3",
                ".5",
                "~",
                "null",
                "",
                "<<",
                "=",
                "2001-01-01",
                "---",
                "..."
            ])
            .prop_map(str::to_owned),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>()
                .prop_filter("a float with decimals", |f| f.is_finite() && f.fract() != 0.0)
                .prop_map(Value::from),
            text.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(text.clone(), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn what_is_written_is_read_back(value in any_value()) {
            let text = to_string(&value);
            let read = parse(&text, &Limits::default());
            prop_assert_eq!(read.as_ref(), Ok(&value), "written as\n{}", text);
        }
    }
}
