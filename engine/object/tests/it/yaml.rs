//! Texts on the edge, with the answers of sigs.k8s.io/yaml v1.6.0 (`YAMLToJSON`).
#![allow(clippy::unwrap_used)]

use argosy_object::Value;
use argosy_object::yaml::{Limits, parse, to_string};

/// One case a line: `{"yaml": text, "json": answer}`, or `{"yaml": text, "error": true}`.
const ANSWERS: &str = include_str!("../yaml/go.jsonl");

/// What the reference refuses and this crate reads, known and accepted: tabs as indentation, escapes of JSON, directives
/// nobody knows, letters in anchors, and characters that cannot be seen.
const READ_ALTHOUGH_REFUSED: [&str; 13] = [
    "...\n",
    "%FOO bar\n---\na: 1\n",
    "a: &é 1\n",
    r#"a: "\/""#,
    r#"a: "\ud83d\ude00""#,
    "\ta: b\n",
    "a:\n \tb: 1\n",
    "-\ta\n",
    "- a\n-\tb\n",
    "a: \u{85}b\n",
    "a: x\u{2028}y\n",
    "a: \u{2028}b\n",
    "a: \u{7f}\n",
];

/// What the reference reads otherwise: a comment right after a quote is refused here, and a raw NEL does not end a line.
const READ_OTHERWISE: [&str; 2] = ["a: 'x'# y\n", "a: x\u{85}  y\n"];

#[test]
fn texts_read_as_the_reference_reads_them() {
    let mut wrong = Vec::new();
    for line in ANSWERS.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let text = case["yaml"].as_str().unwrap();
        let read = parse(text, &Limits::default());
        let agrees = match (&read, case.get("json")) {
            (Ok(value), Some(answer)) => same(value, answer),
            (Err(_), None) => true,
            _ => false,
        };
        let known = READ_OTHERWISE.contains(&text) || (READ_ALTHOUGH_REFUSED.contains(&text) && read.is_ok());
        if agrees == known {
            wrong.push(format!("{text:?}: {read:?}, reference {:?}", case.get("json")));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        ANSWERS.lines().count(),
        wrong.join("\n")
    );
}

#[test]
fn answers_are_written_so_that_they_read_the_same() {
    for line in ANSWERS.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let Some(answer) = case.get("json") else { continue };
        let read = parse(&to_string(answer), &Limits::default());
        assert!(
            read.as_ref().is_ok_and(|read| same(read, answer)),
            "{answer} was read as {read:?}"
        );
    }
}

/// Go prints a negative zero as `-0`, which is the integer 0 for Kubernetes and a float for serde.
fn same(value: &Value, answer: &Value) -> bool {
    match (value, answer) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || (a.as_f64() == Some(0.0) && b.as_f64() == Some(0.0))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}
