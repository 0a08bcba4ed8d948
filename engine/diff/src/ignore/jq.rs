//! jq path expressions, run for the paths they lead to; deleting is done by us.
//!
//! Expressions are written by tenants and evaluated in the controller, so that they must end: what can run for ever (own definitions,
//! `repeat`, `range`…) is refused, the rest is bounded by the document, and the number of results is bounded too.

use argosy_object::Value;
use jaq_core::load::{Arena, File, Loader};
use jaq_core::{Ctx, Vars, data, unwrap_valr};
use jaq_json::{Num, Val};

use super::path::{Step, Steps};
use super::plain::Walk;

/// What jaq lacks of jq.
const PRELUDE: &str = "def IN(s): any(s == .; .); def IN(src; s): any(src == s; .);";

/// Names that an expression may not use: they need not end, or they look outside.
const REFUSED: &[&str] = &[
    "combinations",
    "debug",
    "def",
    "env",
    "foreach",
    "getpath",
    "halt",
    "halt_error",
    "import",
    "include",
    "input",
    "inputs",
    "input_filename",
    "limit",
    "localtime",
    "mktime",
    "now",
    "range",
    "repeat",
    "stderr",
    "until",
    "while",
];

/// Paths one expression may lead to in one document.
const PATHS_MAX: usize = 10_000;
/// Longest expression.
const TEXT_MAX: usize = 4_096;

type Filter = jaq_core::Filter<data::JustLut<Val>>;

/// A compiled expression.
pub(super) struct Expression {
    pub(super) text: String,
    way: Way,
}

enum Way {
    Walk(Walk),
    Interpreted(Interpreted),
}

impl Expression {
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        let way = match Walk::read(text) {
            Some(walk) => Way::Walk(walk),
            None => Way::Interpreted(Interpreted::compile(text)?),
        };
        Ok(Self {
            text: text.to_owned(),
            way,
        })
    }

    /// The places the expression leads to in `document`.
    ///
    /// An expression that walks into nothing leads nowhere; any other failure is an error, and nothing is removed then.
    pub(super) fn paths(&self, document: &Value) -> Result<Vec<Steps>, String> {
        match &self.way {
            Way::Walk(walk) => walk.paths(document),
            Way::Interpreted(interpreted) => interpreted.paths(document),
        }
    }
}

/// An expression that needs the interpreter.
pub(super) struct Interpreted {
    filter: Filter,
}

impl Interpreted {
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        if text.len() > TEXT_MAX {
            return Err(format!("is longer than {TEXT_MAX} bytes"));
        }
        if let Some(word) = refused_word(text) {
            return Err(format!("uses {word}, which is not allowed here"));
        }
        let code = format!("{PRELUDE} path({text})");
        let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let funs = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
        let arena = Arena::default();
        let modules = Loader::new(defs)
            .load(
                &arena,
                File {
                    code: code.as_str(),
                    path: (),
                },
            )
            .map_err(|_| "is no jq expression".to_owned())?;
        let filter = jaq_core::Compiler::default()
            .with_funs(funs)
            .compile(modules)
            .map_err(|errors| {
                let names: Vec<&str> = errors
                    .iter()
                    .flat_map(|(_, undefined)| undefined.iter().map(|(name, _)| *name))
                    .collect();
                format!("uses what is not defined: {}", names.join(", "))
            })?;
        Ok(Self { filter })
    }

    pub(super) fn paths(&self, document: &Value) -> Result<Vec<Steps>, String> {
        let input = to_jq(document);
        let ctx = Ctx::<data::JustLut<Val>>::new(&self.filter.lut, Vars::new([]));
        let mut paths = Vec::new();
        for path in self.filter.id.run((ctx, input)).map(unwrap_valr) {
            match path {
                Ok(path) => paths.extend(steps(&path, document)),
                Err(error) => {
                    let text = error.to_string();
                    return if text.contains("null") {
                        Ok(Vec::new())
                    } else {
                        Err(text)
                    };
                }
            }
            if paths.len() > PATHS_MAX {
                return Err(format!("leads to more than {PATHS_MAX} places"));
            }
        }
        Ok(paths)
    }
}

fn to_jq(value: &Value) -> Val {
    match value {
        Value::Null => Val::Null,
        Value::Bool(truth) => Val::Bool(*truth),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Val::Num(Num::from_integral(integer)),
            None => Val::Num(Num::Float(number.as_f64().unwrap_or(f64::NAN))),
        },
        Value::String(text) => Val::utf8_str(text.clone().into_bytes()),
        Value::Array(items) => items.iter().map(to_jq).collect(),
        Value::Object(fields) => Val::obj(
            fields
                .iter()
                .map(|(name, field)| (Val::utf8_str(name.clone().into_bytes()), to_jq(field)))
                .collect(),
        ),
    }
}

/// The steps of a path that jq gave, with positions counted from the front; several if it ends in a slice, none if it leads nowhere.
fn steps(path: &Val, document: &Value) -> Vec<Steps> {
    let Val::Arr(items) = path else { return Vec::new() };
    let mut taken: Vec<(Steps, Option<&Value>)> = vec![(Vec::new(), Some(document))];
    for item in items.iter() {
        let mut next = Vec::new();
        for (steps, at) in taken {
            for step in one_step(item, at) {
                let below = match (&step, at) {
                    (Step::Field(name), Some(at)) => at.get(name),
                    (Step::Index(index), Some(at)) => at.get(index),
                    (_, None) => None,
                };
                let mut steps = steps.clone();
                steps.push(step);
                next.push((steps, below));
            }
        }
        taken = next;
    }
    taken
        .into_iter()
        .filter(|(steps, at)| !steps.is_empty() && at.is_some())
        .map(|(steps, _)| steps)
        .collect()
}

fn one_step(item: &Val, at: Option<&Value>) -> Vec<Step> {
    let len = at.and_then(Value::as_array).map_or(0, Vec::len);
    let counted = |position: i64| {
        if position < 0 {
            position + len as i64
        } else {
            position
        }
    };
    let number = |value: &Val| match value {
        Val::Num(number) => number.to_string().parse::<f64>().ok().map(|number| number as i64),
        _ => None,
    };
    match item {
        Val::TStr(bytes) | Val::BStr(bytes) => vec![Step::Field(String::from_utf8_lossy(bytes).into_owned())],
        Val::Num(_) => {
            let position = number(item)
                .map(counted)
                .and_then(|position| usize::try_from(position).ok());
            position.map(Step::Index).into_iter().collect()
        }
        Val::Obj(slice) => {
            let bound = |name: &str| {
                slice
                    .get(&Val::utf8_str(name.as_bytes().to_vec()))
                    .and_then(number)
                    .map(counted)
            };
            let from = bound("start").unwrap_or(0).clamp(0, len as i64) as usize;
            let to = bound("end").unwrap_or(len as i64).clamp(0, len as i64) as usize;
            (from..to.max(from)).map(Step::Index).collect()
        }
        _ => Vec::new(),
    }
}

/// The first word of the expression that is refused. Names of fields (`.range`) and plain texts are no words of the language.
fn refused_word(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                let start = at + 1;
                at = start;
                while at < bytes.len() && bytes[at] != b'"' {
                    // Code inside a text is rare enough in a path to be refused as a whole.
                    if bytes[at] == b'\\' {
                        if bytes.get(at + 1) == Some(&b'(') {
                            return Some("code inside a text".to_owned());
                        }
                        at += 1;
                    }
                    at += 1;
                }
                at += 1;
            }
            b'$' if text[at..].starts_with("$ENV") => return Some("$ENV".to_owned()),
            b'#' => return Some("a comment".to_owned()),
            byte if byte.is_ascii_alphabetic() || byte == b'_' => {
                let start = at;
                while at < bytes.len() && (bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_') {
                    at += 1;
                }
                let word = &text[start..at];
                let is_field = start > 0 && (bytes[start - 1] == b'.' || bytes[start - 1] == b'$');
                // `recurse` walks the document; with an own step it may walk in a circle.
                let circles = word == "recurse" && text[at..].trim_start().starts_with('(');
                if !is_field && (REFUSED.contains(&word) || circles) {
                    return Some(word.to_owned());
                }
            }
            _ => at += 1,
        }
    }
    None
}
