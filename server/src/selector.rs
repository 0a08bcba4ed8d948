//! Label selectors as texts.

use std::collections::BTreeMap;

use argosy_api::meta::{LabelSelector, LabelSelectorRequirement};
use tonic::Status;

/// Reads `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`, joined by commas. Empty selects everything.
pub(crate) fn parse(text: &str) -> Result<LabelSelector, Status> {
    let mut selector = LabelSelector::default();
    for part in parts(text) {
        let bad = || Status::invalid_argument(format!("selector: cannot read {part:?} of {text:?}"));
        selector
            .match_expressions
            .push(requirement(part).ok_or_else(bad)?);
    }
    Ok(selector)
}

/// Does a parsed selector select these labels? `!=` and `notin` hold for labels that are not there.
pub(crate) fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    selector.matches(labels)
}

/// Splits at commas outside of parentheses.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0_i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

fn requirement(part: &str) -> Option<LabelSelectorRequirement> {
    let part = part.trim();
    let make = |key: &str, operator: &str, values: Vec<String>| {
        let key = key.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        (!key.is_empty() && key.chars().all(plain)).then(|| LabelSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values,
        })
    };
    let one = |value: &str| vec![value.trim().to_owned()];
    if let Some((key, value)) = part.split_once("!=") {
        return make(key, "NotIn", one(value));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return make(key, "In", one(value));
    }
    if let Some(key) = part.strip_prefix('!') {
        return make(key, "DoesNotExist", Vec::new());
    }
    if let Some((head, values)) = part.split_once('(') {
        let values = values
            .strip_suffix(')')?
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        return match operator {
            "in" => make(key, "In", values),
            "notin" => make(key, "NotIn", values),
            _ => None,
        };
    }
    make(part, "Exists", Vec::new())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_form_of_requirement_selects_what_kubernetes_selects() {
        let labels = BTreeMap::from([
            ("app".to_owned(), "web".to_owned()),
            ("tier".to_owned(), "front".to_owned()),
        ]);
        for (text, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier", true),
            ("app!=web", false),
            ("other!=x", true),
            ("app in (api, web)", true),
            ("app notin (api,web)", false),
            ("tier in (back),app=web", false),
            ("!app", false),
            ("!other", true),
        ] {
            assert_eq!(selects(&parse(text).unwrap(), &labels), expected, "{text}");
        }
    }

    #[test]
    fn nonsense_is_named() {
        for text in ["app in web", "=x", "a b", "app in (x"] {
            assert!(parse(text).unwrap_err().message().contains("selector"), "{text}");
        }
    }
}
