//! What must hold.

use std::collections::BTreeMap;

use argosy_object::Value;

use super::path::Path;
use super::scalar;

/// Where conditions are, by the name that tests use; the empty name is `.status.conditions`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions(pub(crate) BTreeMap<String, Path>);

/// Tests that must all hold; none always hold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tests(pub(super) Vec<Test>);

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Test {
    pub(super) negated: bool,
    pub(super) what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum What {
    Field(Comparison),
    Condition {
        source: String,
        kind: Pattern,
        status: Option<(Operator, Vec<Operand>)>,
        /// With the opposite meant where it is marked.
        filters: Vec<(bool, Comparison)>,
    },
}

/// `left` alone asks whether it is there.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Comparison {
    pub(super) left: Operand,
    pub(super) right: Option<(Operator, Vec<Operand>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A number worked out from an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Number(pub(super) Operand);

impl Number {
    /// The number; `None` if something it needs is not there.
    pub(crate) fn of(&self, object: &Value) -> Option<f64> {
        self.0.values(object).first()?.parse().ok()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Operand {
    Path {
        reading: Reading,
        path: Path,
        default: Option<String>,
    },
    Text(Pattern),
    /// Terms added up; `true` stands for minus.
    Terms(Vec<(bool, Operand)>),
}

/// What of the values at a path is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Each of them.
    Each,
    /// How many items or characters they have together.
    Count,
    /// Their sum.
    Sum,
    /// Of each this piece, counted from 0, of those that `/` separates.
    Piece(usize),
}

/// A text, or one with `*` for anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pattern {
    Exact(String),
    Glob(Vec<String>),
}

/// The condition that made a test hold, and the object whose list it is in.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Found<'a> {
    pub(crate) condition: Option<&'a Value>,
    pub(crate) container: Option<&'a Value>,
}

impl Tests {
    /// If they all hold: the first condition that one of them found.
    pub(crate) fn hold<'a>(&self, object: &'a Value, conditions: &Conditions) -> Option<Found<'a>> {
        let mut found = Found::default();
        for test in &self.0 {
            match (test.what.holds(object, conditions), test.negated) {
                (Some(one), false) => {
                    if found.condition.is_none() {
                        found = one;
                    }
                }
                (None, true) => {}
                _ => return None,
            }
        }
        Some(found)
    }
}

impl Conditions {
    /// The conditions of one list, with what contains them, in order.
    pub(super) fn of<'a>(&self, source: &str, object: &'a Value) -> Vec<(&'a Value, &'a Value)> {
        let default = || {
            Path(
                ["status", "conditions"]
                    .map(|name| super::path::Step::Field(name.into()))
                    .into(),
            )
        };
        let path = self.0.get(source).cloned().unwrap_or_else(default);
        let (last, way) = match path.0.split_last() {
            Some((super::path::Step::Field(last), way)) => (last, way),
            _ => return Vec::new(),
        };
        let containers = Path(way.to_vec()).all(object);
        containers
            .into_iter()
            .flat_map(|container| {
                let list = container.get(last).and_then(Value::as_array);
                list.into_iter()
                    .flatten()
                    .map(move |condition| (condition, container))
            })
            .collect()
    }
}

impl What {
    fn holds<'a>(&self, object: &'a Value, conditions: &Conditions) -> Option<Found<'a>> {
        match self {
            What::Field(comparison) => comparison.holds(object, object).then(Found::default),
            What::Condition {
                source,
                kind,
                status,
                filters,
            } => conditions
                .of(source, object)
                .into_iter()
                .find(|(condition, _)| {
                    let text = |name| condition.get(name).and_then(scalar).unwrap_or_default();
                    kind.matches(&text("type"))
                        && status.as_ref().is_none_or(|(operator, values)| {
                            holds(*operator, &text("status"), values, object)
                        })
                        && filters
                            .iter()
                            .all(|(negated, filter)| filter.holds(condition, object) != *negated)
                })
                .map(|(condition, container)| Found {
                    condition: Some(condition),
                    container: Some(container),
                }),
        }
    }
}

impl Comparison {
    /// The left side is looked up in `here`, the right one in `object`. With several values on the left one has to fit.
    fn holds(&self, here: &Value, object: &Value) -> bool {
        let Some((operator, right)) = &self.right else {
            return match &self.left {
                Operand::Path {
                    reading: Reading::Each,
                    path,
                    ..
                } => path.first(here).is_some(),
                other => !other.values(here).is_empty(),
            };
        };
        let left = self.left.values(here);
        if *operator == Operator::NotEqual && right.iter().any(|right| right.values(object).is_empty()) {
            return false;
        }
        if left.is_empty() {
            return *operator == Operator::NotEqual;
        }
        left.iter().any(|left| holds(*operator, left, right, object))
    }
}

/// `=` wants one of the values, `!=` none of them, the others all.
fn holds(operator: Operator, left: &str, right: &[Operand], object: &Value) -> bool {
    let equal = |operand: &Operand| match operand {
        Operand::Text(pattern) => pattern.matches(left) || same_number(left, pattern.as_str()),
        other => other
            .values(object)
            .iter()
            .any(|right| left == right || same_number(left, right)),
    };
    match operator {
        Operator::Equal => right.iter().any(equal),
        Operator::NotEqual => !right.iter().any(equal),
        _ => right.iter().all(|operand| {
            let values = operand.values(object);
            !values.is_empty() && values.iter().all(|right| ordered(operator, left, right))
        }),
    }
}

fn same_number(left: &str, right: &str) -> bool {
    match (left.parse::<f64>(), right.parse::<f64>()) {
        (Ok(left), Ok(right)) => left == right,
        _ => false,
    }
}

fn ordered(operator: Operator, left: &str, right: &str) -> bool {
    let order = match (left.parse::<f64>(), right.parse::<f64>()) {
        (Ok(left), Ok(right)) => left.partial_cmp(&right),
        (Err(_), Err(_)) => Some(left.cmp(right)),
        // A number and something else have no order.
        _ => None,
    };
    order.is_some_and(|order| match operator {
        Operator::Less => order.is_lt(),
        Operator::LessOrEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        Operator::GreaterOrEqual => order.is_ge(),
        Operator::Equal => order.is_eq(),
        Operator::NotEqual => order.is_ne(),
    })
}

impl Operand {
    fn values(&self, from: &Value) -> Vec<String> {
        match self {
            Operand::Text(pattern) => vec![pattern.as_str().to_owned()],
            Operand::Path {
                reading,
                path,
                default,
            } => {
                let values = reading.of(path, from);
                match default {
                    Some(default) if values.is_empty() => vec![default.clone()],
                    _ => values,
                }
            }
            Operand::Terms(terms) => {
                let mut sum = 0.0;
                for (minus, term) in terms {
                    let Some(number) = term
                        .values(from)
                        .first()
                        .and_then(|text| text.parse::<f64>().ok())
                    else {
                        return Vec::new();
                    };
                    sum += if *minus { -number } else { number };
                }
                vec![sum.to_string()]
            }
        }
    }
}

impl Reading {
    pub(super) fn of(self, path: &Path, from: &Value) -> Vec<String> {
        let values = || path.all(from).into_iter().filter_map(scalar);
        match self {
            Reading::Each => values().collect(),
            Reading::Count => vec![count(path, from).to_string()],
            Reading::Sum => {
                let sum: f64 = values().filter_map(|value| value.parse::<f64>().ok()).sum();
                vec![sum.to_string()]
            }
            Reading::Piece(index) => values()
                .filter_map(|value| value.split('/').nth(index).map(str::to_owned))
                .collect(),
        }
    }
}

fn count(path: &Path, from: &Value) -> usize {
    path.all(from)
        .into_iter()
        .map(|value| match value {
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            Value::String(text) => text.chars().count(),
            _ => 1,
        })
        .sum()
}

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        if text.contains('*') {
            Pattern::Glob(text.split('*').map(str::to_owned).collect())
        } else {
            Pattern::Exact(text.to_owned())
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Pattern::Exact(text) => text,
            Pattern::Glob(_) => "",
        }
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let parts = match self {
            Pattern::Exact(exact) => return exact == text,
            Pattern::Glob(parts) => parts,
        };
        let (first, last) = (&parts[0], &parts[parts.len() - 1]);
        let Some(mut rest) = text.strip_prefix(first.as_str()) else {
            return false;
        };
        for part in &parts[1..parts.len() - 1] {
            match rest.find(part.as_str()) {
                Some(place) => rest = &rest[place + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last.as_str())
    }
}
