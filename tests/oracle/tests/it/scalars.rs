//! Quantities and scalars of YAML.

use argosy_object::{Value, quantity, yaml};
use argosy_oracle::{Dice, Oracle};
use serde_json::json;

use crate::{Tally, objects, seed};

const BATCH: usize = 500;

#[test]
fn quantities_are_read_printed_and_ordered_as_in_apimachinery() {
    let Some(mut oracle) = Oracle::start().unwrap() else {
        return;
    };
    let (mut dice, mut tally) = (Dice::new(seed()), Tally::default());
    for _ in 0..(objects() * 4).div_ceil(BATCH) {
        let texts: Vec<String> = (0..BATCH).map(|_| quantity_text(&mut dice)).collect();
        let answers = oracle.ask("quantity", json!({"texts": texts})).unwrap().unwrap();
        for (at, text) in texts.iter().enumerate() {
            let answer = &answers[at];
            let ours = quantity::canonical(text).ok();
            if ours.as_deref() != answer["canonical"].as_str() {
                tally.fault(format!("{text:?}: {ours:?}, reference {}", answer["canonical"]));
                continue;
            }
            let Ok(parsed) = quantity::parse(text) else {
                tally.agree();
                continue;
            };
            let order = texts
                .get(at + 1)
                .and_then(|next| quantity::parse(next).ok())
                .map(|next| parsed.cmp(&next) as i64);
            if order != answer["order"].as_i64() {
                tally.fault(format!("{text:?} against {:?}: {order:?}", texts[at + 1]));
            } else if [parsed.value(), parsed.milli_value()]
                .iter()
                .any(|number| number.unsigned_abs() >= i64::MAX as u64)
            {
                // Ours stop at the largest number; the reference overflows.
                tally.settle("numbers-beyond-64-bits");
            } else if answer["value"] != parsed.value() && text.starts_with('-') {
                tally.settle("negative-quantities-round-away-from-zero");
            } else if answer["value"] != parsed.value() || answer["milli"] != parsed.milli_value() {
                tally.fault(format!(
                    "{text:?} rounds to {} and {}, reference {} and {}",
                    parsed.value(),
                    parsed.milli_value(),
                    answer["value"],
                    answer["milli"]
                ));
            } else {
                tally.agree();
            }
        }
    }
    tally.close("quantities", objects());
}

fn quantity_text(dice: &mut Dice) -> String {
    let mut text = dice.text(&["", "", "", "", "-", "+"]).to_owned();
    for _ in 0..dice.below(6) {
        text.push_str(dice.text(&["0", "00", "1", "5", "9", "12", "1024", "999999999"]));
    }
    if dice.chance(40) {
        text.push('.');
        for _ in 0..dice.below(4) {
            text.push_str(dice.text(&["0", "5", "1", "25", "000000001", "999"]));
        }
    }
    text.push_str(dice.text(&[
        "", "", "", "m", "u", "n", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3",
        "E3", "e-3", "e0", "e18", "e", "K", "i", "x", "mm", "e+2", "E-9",
    ]));
    text
}

#[test]
fn yaml_is_read_as_by_the_library_of_kubernetes() {
    let Some(mut oracle) = Oracle::start().unwrap() else {
        return;
    };
    let (mut dice, mut tally) = (Dice::new(seed()), Tally::default());
    for _ in 0..(objects() * 4).div_ceil(BATCH) {
        let texts: Vec<String> = (0..BATCH).map(|_| yaml_text(&mut dice)).collect();
        let answers = oracle.ask("yaml", json!({"texts": texts})).unwrap().unwrap();
        for (text, answer) in texts.iter().zip(answers.as_array().unwrap()) {
            let ours = yaml::parse(text, &yaml::Limits::default());
            match (&ours, answer.get("json")) {
                (Ok(value), Some(json)) if same(value, json) => tally.agree(),
                (Err(_), None) => tally.agree(),
                _ if is_indicator_in_flow(text) => tally.settle("indicators-in-flow"),
                (Err(error), _)
                    if error.message.contains("a map cannot be a key")
                        || error.message.contains("a list cannot be a key") =>
                {
                    tally.settle("maps-as-keys");
                }
                (Err(error), _) if error.message.contains("invalid trailing content after") => {
                    tally.settle("text-after-a-quote");
                }
                (ours, json) => tally.fault(format!(
                    "{text:?}: {}, reference {}",
                    ours.as_ref()
                        .map_or_else(|error| format!("error {error}"), Value::to_string),
                    json.map_or_else(|| answer["error"].to_string(), Value::to_string)
                )),
            }
        }
    }
    tally.close("yaml", objects());
}

/// `-0` is a float for serde and an integer for Kubernetes; the number is the same.
fn same(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(a), Value::Number(b)) => {
            a == b
                || a.as_f64()
                    .zip(b.as_f64())
                    .is_some_and(|(a, b)| a == b && a == 0.0)
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Whether a scalar inside brackets starts or ends with what elsewhere separates or lists.
fn is_indicator_in_flow(text: &str) -> bool {
    let Some(start) = text.find(['[', '{']) else {
        return false;
    };
    text[start..].split(['[', ']', '{', '}', ',']).any(|part| {
        let part = part.trim();
        let value = part.split_once(": ").map_or(part, |(_, value)| value.trim());
        [part, value].iter().any(|scalar| {
            scalar.starts_with([':', '-', '?']) || scalar.ends_with(':') || scalar.contains(" :")
        })
    })
}

/// A small document around scalars that look like something.
fn yaml_text(dice: &mut Dice) -> String {
    let scalar = |dice: &mut Dice| {
        if dice.chance(35) {
            return dice
                .text(&[
                    "yes",
                    "No",
                    "on",
                    "OFF",
                    "y",
                    "n",
                    "true",
                    "True",
                    "~",
                    "null",
                    "Null",
                    "",
                    ".inf",
                    "-.Inf",
                    ".nan",
                    "0o17",
                    "017",
                    "0x1F",
                    "0b101",
                    "1_000",
                    "1e3",
                    "1E+3",
                    "+1",
                    "-1",
                    "1.",
                    ".5",
                    "1.5e",
                    "0644",
                    "0888",
                    "-0644",
                    "12345678901234567890",
                    "-9223372036854775809",
                    "18446744073709551616",
                    "2026-01-01",
                    "2026-01-01T00:00:00Z",
                    "1:30",
                    "190:20:30",
                    "=",
                    "<<",
                    "'a'",
                    "\"a\\n\"",
                    "a: b",
                    "a #b",
                    "@a",
                    "`a`",
                    "%a",
                    "!!str 1",
                    "!!int \"1\"",
                    "!!float 1",
                    "!!binary YQ==",
                    "!a b",
                    "&a b",
                    "*a",
                    "|",
                    ">-",
                    "- a",
                    "? a",
                    "a:b",
                    "{}",
                    "[]",
                    "0.0",
                    "-0",
                    "-0.0",
                    "1e400",
                    "_1",
                    "1__0",
                    "0x_1",
                    "0b2",
                    "0o8",
                    "08",
                    "1.2.3",
                    "1_0.5",
                    "+.5",
                    "-.5",
                    ".",
                    "-",
                    "+",
                    "e1",
                ])
                .to_owned();
        }
        let mut text = String::new();
        for _ in 0..1 + dice.below(7) {
            text.push_str(dice.text(&[
                "0", "1", "7", "9", "a", "e", "x", "o", "b", "_", ".", "+", "-", ":", "E", "i", "n", "f",
                "T", "Z", " ", "'", "\"",
            ]));
        }
        text
    };
    let (one, two) = (scalar(dice), scalar(dice));
    match dice.below(6) {
        0 => format!("a: {one}\n"),
        1 => format!("- {one}\n- {two}\n"),
        2 => format!("a: [{one}, {two}]\n"),
        3 => format!("{{a: {one}, b: {two}}}\n"),
        4 => format!("{one}: {two}\n"),
        _ => format!("a: {one}\nb:\n  c: {two}\n"),
    }
}
