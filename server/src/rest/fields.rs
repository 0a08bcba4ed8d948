//! The `fields` of a query: which parts of an answer are wanted.

use serde_json::{Map, Value};

/// Paths to keep, or to drop. Lists are gone through: `items.metadata.name` is the name of each item.
#[derive(Debug)]
pub(super) struct Selection {
    paths: Vec<Vec<String>>,
    drop: bool,
}

impl Selection {
    /// Reads a comma list of paths; a leading `-` turns keeping into dropping.
    pub(super) fn parse(text: &str) -> Self {
        let (text, drop) = text.strip_prefix('-').map_or((text, false), |rest| (rest, true));
        let path = |path: &str| path.trim().split('.').map(str::to_owned).collect();
        Selection {
            paths: text
                .split(',')
                .filter(|path| !path.trim().is_empty())
                .map(path)
                .collect(),
            drop,
        }
    }

    /// What is left of a value.
    pub(super) fn apply(&self, value: Value) -> Value {
        let paths: Vec<&[String]> = self.paths.iter().map(Vec::as_slice).collect();
        if paths.is_empty() {
            return value;
        }
        match self.drop {
            true => without(value, &paths),
            false => only(value, &paths),
        }
    }
}

/// The rests of the paths that begin with a key; an empty rest means that the path ends there.
fn below<'a>(paths: &[&'a [String]], key: &str) -> Vec<&'a [String]> {
    let of_key = |path: &&'a [String]| {
        path.split_first()
            .filter(|(head, _)| *head == key)
            .map(|(_, rest)| rest)
    };
    paths.iter().filter_map(of_key).collect()
}

fn only(value: Value, paths: &[&[String]]) -> Value {
    match value {
        Value::Object(object) => {
            let kept = object.into_iter().filter_map(|(key, value)| {
                let below = below(paths, &key);
                match below.iter().any(|rest| rest.is_empty()) {
                    true => Some((key, value)),
                    false if below.is_empty() => None,
                    false => Some((key, only(value, &below))),
                }
            });
            Value::Object(kept.collect::<Map<_, _>>())
        }
        Value::Array(list) => list.into_iter().map(|value| only(value, paths)).collect(),
        other => other,
    }
}

fn without(value: Value, paths: &[&[String]]) -> Value {
    match value {
        Value::Object(object) => {
            let kept = object.into_iter().filter_map(|(key, value)| {
                let below = below(paths, &key);
                match below.iter().any(|rest| rest.is_empty()) {
                    true => None,
                    false if below.is_empty() => Some((key, value)),
                    false => Some((key, without(value, &below))),
                }
            });
            Value::Object(kept.collect::<Map<_, _>>())
        }
        Value::Array(list) => list.into_iter().map(|value| without(value, paths)).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_gone_through() {
        let value = json!({"metadata": {"resourceVersion": "5"}, "items": [
            {"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"project": "p"}}]});
        let kept = Selection::parse("items.metadata.name,items.spec").apply(value.clone());
        assert_eq!(
            kept,
            json!({"items": [{"metadata": {"name": "a"}, "spec": {"project": "p"}}]})
        );
        let kept = Selection::parse("-items.metadata.labels,metadata").apply(value.clone());
        assert_eq!(
            kept,
            json!({"items": [{"metadata": {"name": "a"}, "spec": {"project": "p"}}]})
        );
        assert_eq!(Selection::parse("").apply(value.clone()), value);
    }
}
