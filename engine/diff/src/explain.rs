//! A comparison as text for a person.

use std::fmt::Write as _;

use argosy_object::Value;

use crate::compare::{Comparison, Difference};

/// What a line of the text is; colours are the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// The path of a difference.
    Path,
    /// What is in the cluster and will not be.
    Live,
    /// What will be.
    Desired,
    /// Why, and what could not be taken into account.
    Note,
}

/// The lines of the text, each with what it is.
#[must_use]
pub fn lines(comparison: &Comparison) -> Vec<(Line, String)> {
    let mut lines = Vec::new();
    for difference in &comparison.differences {
        one(difference, &mut lines);
    }
    for finding in &comparison.findings {
        lines.push((Line::Note, format!("not taken into account: {finding}")));
    }
    lines
}

/// The same as one text: the path, the live value behind `-`, the desired one behind `+`, the reason in brackets.
#[must_use]
pub fn render(comparison: &Comparison) -> String {
    let mut text = String::new();
    for (kind, line) in lines(comparison) {
        let mark = match kind {
            Line::Path => "",
            Line::Live => "  - ",
            Line::Desired => "  + ",
            Line::Note => "  ",
        };
        let _ = writeln!(text, "{mark}{line}");
    }
    text
}

fn one(difference: &Difference, lines: &mut Vec<(Line, String)>) {
    let path = if difference.path.is_empty() {
        "(the whole object)"
    } else {
        &difference.path
    };
    lines.push((Line::Path, path.to_owned()));
    for (kind, value) in [
        (Line::Live, &difference.live),
        (Line::Desired, &difference.desired),
    ] {
        if let Some(value) = value {
            lines.extend(shown(value).lines().map(|line| (kind, line.to_owned())));
        }
    }
    let mut why = difference.why.clone();
    if !difference.owners.is_empty() {
        why.push_str("; now set by ");
        why.push_str(&difference.owners.join(", "));
    }
    lines.push((Line::Note, format!("({why})")));
}

/// Texts without quotes unless they would be misread, short values on one line, others indented.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() && text.trim() == text => text.clone(),
        Value::Object(_) | Value::Array(_) => {
            let short = value.to_string();
            if short.len() <= 60 {
                short
            } else {
                serde_json::to_string_pretty(value).unwrap_or(short)
            }
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_difference_reads_top_down_path_live_git_reason() {
        let comparison = Comparison {
            modified: true,
            differences: vec![
                Difference {
                    path: "spec.replicas".into(),
                    desired: Some(json!(5)),
                    live: Some(json!(3)),
                    why: "set in Git to another value".into(),
                    owners: vec!["hpa".into(), "kubectl-edit".into()],
                },
                Difference {
                    path: "spec.paused".into(),
                    desired: None,
                    live: Some(json!(true)),
                    why: "removed".into(),
                    owners: Vec::new(),
                },
            ],
            normalized_live: Value::Null,
            applied: None,
            findings: Vec::new(),
        };
        assert_eq!(
            render(&comparison),
            "spec.replicas\n  - 3\n  + 5\n  (set in Git to another value; now set by hpa, kubectl-edit)\nspec.paused\n  - true\n  (removed)\n"
        );
    }
}
