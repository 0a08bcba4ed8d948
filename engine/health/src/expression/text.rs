//! What is said.

use std::collections::BTreeMap;

use argosy_object::Value;

use super::path::Path;
use super::test::{Conditions, Found, Reading};
use super::{scalar, time};

/// A text with places to fill in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Text(pub(super) Vec<Part>);

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    Fixed(String),
    Choices(Vec<Choice>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Choice {
    Path(Reading, Path),
    Matched(String),
    Container(Path),
    Condition {
        source: String,
        kind: String,
        field: String,
    },
    Param(String),
    Now(String),
    Fixed(String),
}

/// What a text is filled in from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene<'a> {
    /// The live object.
    pub(crate) object: &'a Value,
    /// Where its conditions are.
    pub(crate) conditions: &'a Conditions,
    /// What the tests found.
    pub(crate) found: Found<'a>,
    /// Parameters of an action.
    pub(crate) params: Option<&'a BTreeMap<String, String>>,
    /// Unix seconds.
    pub(crate) now: i64,
}

impl Text {
    /// The text with everything filled in; what is not there is empty.
    pub(crate) fn fill(&self, scene: &Scene<'_>) -> String {
        let part = |part: &Part| match part {
            Part::Fixed(text) => text.clone(),
            Part::Choices(choices) => choices
                .iter()
                .map(|choice| choice.fill(scene))
                .find(|text| !text.is_empty())
                .unwrap_or_default(),
        };
        self.0.iter().map(part).collect()
    }
}

impl Choice {
    fn fill(&self, scene: &Scene<'_>) -> String {
        let field = |value: Option<&Value>, name: &str| {
            value
                .and_then(|value| value.get(name))
                .and_then(scalar)
                .unwrap_or_default()
        };
        match self {
            Choice::Path(reading, path) => reading.of(path, scene.object).join(", "),
            Choice::Matched(name) => field(scene.found.condition, name),
            Choice::Container(path) => scene
                .found
                .container
                .map(|container| Reading::Each.of(path, container).join(", "))
                .unwrap_or_default(),
            Choice::Condition {
                source,
                kind,
                field: name,
            } => {
                let conditions = scene.conditions.of(source, scene.object);
                let of_kind =
                    |condition: &&Value| condition.get("type").and_then(Value::as_str) == Some(kind);
                field(
                    conditions
                        .into_iter()
                        .map(|(condition, _)| condition)
                        .find(of_kind),
                    name,
                )
            }
            Choice::Param(name) => scene
                .params
                .and_then(|params| params.get(name))
                .cloned()
                .unwrap_or_default(),
            Choice::Now(format) => time::format(format, scene.now),
            Choice::Fixed(text) => text.clone(),
        }
    }
}
