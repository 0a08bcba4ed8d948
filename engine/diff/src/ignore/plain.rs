//! The path expressions that people write, without jq: fields, all items, and a choice by one field.
//!
//! `.spec.template.spec.containers[] | select(.name == "a").image` and the like are walked directly in the document; for anything else the
//! interpreter is there ([`super::jq`]), which needs the document in a form of its own: ten times the work. Both give the same answers.

use argosy_object::Value;

use super::path::{Step, Steps};

/// One move of a walk.
#[derive(Debug, Clone, PartialEq)]
enum Move {
    Field(String),
    /// All items of a list or values of an object; `lenient` (`[]?`): none of what is neither.
    Each {
        lenient: bool,
    },
    /// Only if the field at the path has this value.
    Select {
        path: Vec<String>,
        value: Value,
    },
}

/// An expression of this kind.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Walk(Vec<Move>);

/// Why a walk ended.
enum End {
    /// It came to nothing where it wanted items: it leads nowhere.
    Nothing,
    Error(String),
}

impl Walk {
    /// Reads an expression; none if it is more than this.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut rest = text.trim();
        let mut moves = Vec::new();
        // At the start and behind a pipe stands a path or a choice.
        loop {
            if let Some(choice) = rest.strip_prefix("select(") {
                let (choice, behind) = read_choice(choice)?;
                moves.push(choice);
                rest = behind;
            } else if !rest.starts_with('.') {
                return None;
            } else if rest.starts_with(".[") {
                rest = &rest[1..];
            }
            rest = read_path(rest, &mut moves)?.trim_start();
            if rest.is_empty() {
                return Some(Self(moves));
            }
            rest = rest.strip_prefix('|')?.trim_start();
        }
    }

    /// The places it leads to.
    pub(super) fn paths(&self, document: &Value) -> Result<Vec<Steps>, String> {
        let mut paths = Vec::new();
        match go(&self.0, Some(document), &mut Vec::new(), &mut paths) {
            Ok(()) => Ok(paths),
            Err(End::Nothing) => Ok(Vec::new()),
            Err(End::Error(error)) => Err(error),
        }
    }
}

/// Fields and brackets up to something else.
fn read_path<'t>(mut rest: &'t str, moves: &mut Vec<Move>) -> Option<&'t str> {
    loop {
        if let Some(behind) = rest.strip_prefix("[]") {
            let lenient = behind.strip_prefix('?');
            moves.push(Move::Each {
                lenient: lenient.is_some(),
            });
            rest = lenient.unwrap_or(behind);
        } else if let Some(behind) = rest.strip_prefix("[\"") {
            let (name, behind) = behind.split_once("\"]")?;
            moves.push(Move::Field(literal(name)?));
            rest = behind;
        } else if let Some(behind) = rest.strip_prefix(".\"") {
            let (name, behind) = behind.split_once('"')?;
            moves.push(Move::Field(literal(name)?));
            rest = behind;
        } else if let Some(behind) = rest.strip_prefix('.') {
            let (name, behind) = word(behind)?;
            moves.push(Move::Field(name.to_owned()));
            rest = behind;
        } else {
            // A lenient field, a position, a slice and all operators are the interpreter's.
            let ends = rest.is_empty() || rest.starts_with([' ', '|', '=']);
            return ends.then_some(rest);
        }
    }
}

/// `.a.b == "text")`, and what stands behind it.
fn read_choice(text: &str) -> Option<(Move, &str)> {
    let mut moves = Vec::new();
    let rest = read_path(text.trim_start(), &mut moves)?;
    let path: Option<Vec<String>> = moves
        .into_iter()
        .map(|one| match one {
            Move::Field(name) => Some(name),
            _ => None,
        })
        .collect();
    let rest = rest.trim_start().strip_prefix("==")?.trim_start();
    let (text, rest) = rest.strip_prefix('"')?.split_once('"')?;
    let value = Value::from(literal(text)?);
    let rest = rest.trim_start().strip_prefix(')')?;
    let path = path.filter(|path| !path.is_empty())?;
    Some((Move::Select { path, value }, rest))
}

fn word(text: &str) -> Option<(&str, &str)> {
    let starts = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let end = text
        .find(|one: char| !(one.is_ascii_alphanumeric() || one == '_'))
        .unwrap_or(text.len());
    starts.then(|| text.split_at(end))
}

/// A text without escapes.
fn literal(text: &str) -> Option<String> {
    (!text.contains('\\')).then(|| text.to_owned())
}

fn go(moves: &[Move], at: Option<&Value>, steps: &mut Steps, paths: &mut Vec<Steps>) -> Result<(), End> {
    let Some((first, rest)) = moves.split_first() else {
        if at.is_some() && !steps.is_empty() {
            paths.push(steps.clone());
        }
        return Ok(());
    };
    match first {
        Move::Field(name) => {
            let below = field(at, name)?;
            steps.push(Step::Field(name.clone()));
            go(rest, below, steps, paths)?;
            steps.pop();
        }
        Move::Each { lenient } => match at {
            Some(Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    steps.push(Step::Index(index));
                    go(rest, Some(item), steps, paths)?;
                    steps.pop();
                }
            }
            Some(Value::Object(fields)) => {
                for (name, value) in fields {
                    steps.push(Step::Field(name.clone()));
                    go(rest, Some(value), steps, paths)?;
                    steps.pop();
                }
            }
            _ if *lenient => {}
            None | Some(Value::Null) => return Err(End::Nothing),
            Some(other) => return Err(End::Error(format!("cannot iterate over {other}"))),
        },
        Move::Select { path, value } => {
            let mut chosen = at;
            for name in path {
                chosen = field(chosen, name)?;
            }
            if chosen == Some(value) {
                go(rest, at, steps, paths)?;
            }
        }
    }
    Ok(())
}

fn field<'v>(at: Option<&'v Value>, name: &str) -> Result<Option<&'v Value>, End> {
    match at {
        Some(Value::Object(fields)) => Ok(fields.get(name)),
        None | Some(Value::Null) => Ok(None),
        Some(other) => Err(End::Error(format!("cannot index {other} with \"{name}\""))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::jq::Interpreted;
    use super::*;
    use serde_json::json;

    const PLAIN: [&str; 16] = [
        ".spec",
        ".spec.replicas",
        ".spec.none.deep",
        ".metadata.annotations.\"a/b\"",
        ".metadata.annotations[\"a/b\"]",
        ".metadata[\"annotations\"].x",
        ".spec.list[]",
        ".spec.list[].image",
        ".spec.list[]?.env[]?.value",
        ".spec.list[].env[].value",
        ".spec.none[].x",
        ".spec.list[] | select(.name == \"a\")",
        ".spec.list[]|select(.name==\"a\").image",
        ".spec.list[] | select(.deep.er == \"x\") | .image",
        ".spec.list[] | select(.name == \"a\").env[]? | select(.name == \"X\")",
        ".spec.map[].x",
    ];

    fn documents() -> Vec<Value> {
        vec![
            json!({}),
            json!({"spec": null}),
            json!({"spec": {"replicas": 1, "list": [], "map": {}}}),
            json!({"metadata": {"annotations": {"a/b": "1", "x": null}}, "spec": {"replicas": null, "map": {"k": {"x": 1}, "l": {}},
                "list": [{"name": "a", "image": "i", "env": [{"name": "X", "value": "1"}, {"name": "Y"}], "deep": {"er": "x"}}, {"name": "b", "image": null}]}}),
            json!({"spec": {"list": [{"name": "b", "env": []}, {"env": [{"name": "X"}], "name": "a"}], "map": []}}),
            json!({"spec": {"list": "text", "map": 1, "none": []}, "metadata": {"annotations": []}}),
            json!({"spec": {"list": ["text", {"name": "a"}]}}),
        ]
    }

    #[test]
    fn a_walk_leads_where_the_interpreter_leads() {
        for text in PLAIN {
            let walk = Walk::read(text).unwrap_or_else(|| panic!("{text} is plain"));
            let interpreted = Interpreted::compile(text).unwrap();
            for document in documents() {
                let (ours, theirs) = (walk.paths(&document), interpreted.paths(&document));
                match (&ours, &theirs) {
                    (Err(_), Err(_)) => {}
                    _ => assert_eq!(ours, theirs, "{text} in {document}"),
                }
            }
        }
    }

    #[test]
    fn what_is_more_than_a_walk_is_left_to_the_interpreter() {
        for text in [
            ".. | .x?",
            ".a, .b",
            ".a // .b",
            ".a[0]",
            ".a[-1]",
            ".a[1:2]",
            ".a?",
            ".a[] | select(.x | IN(\"a\", \"b\"))",
            ".a[] | select(.x != \"a\")",
            ".a[] | select(.x == 1)",
            ".a[] | select(.x == \"a\" and .y == \"b\")",
            ".a as $x | .b",
            ".a | del(.b)",
            ".\"a\\\"b\"",
            "del(.a)",
            ".",
            ".a-b",
            "select(.a == \"b\\n\").c",
        ] {
            assert_eq!(Walk::read(text), None, "{text}");
        }
    }
}
