//! Where a value is.

use argosy_object::Value;

/// A path from some object down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path(pub(super) Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Field(String),
    Each,
    Last,
}

impl Path {
    /// Every value it leads to, nulls left out.
    pub(crate) fn all<'a>(&self, from: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![from];
        for step in &self.0 {
            found = match step {
                Step::Field(name) => found.into_iter().filter_map(|value| value.get(name)).collect(),
                Step::Each => found.into_iter().flat_map(children).collect(),
                Step::Last => found
                    .into_iter()
                    .filter_map(|value| value.as_array()?.last())
                    .collect(),
            };
        }
        found.retain(|value| !value.is_null());
        found
    }

    /// The first of these.
    pub(crate) fn first<'a>(&self, from: &'a Value) -> Option<&'a Value> {
        self.all(from).into_iter().next()
    }

    /// The names on the way, for a path that is written to; `None` if it leads to several places.
    pub(crate) fn fields(&self) -> Option<Vec<&str>> {
        self.0
            .iter()
            .map(|step| match step {
                Step::Field(name) => Some(name.as_str()),
                Step::Each | Step::Last => None,
            })
            .collect()
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}
