//! jq path expressions, run for the paths they lead to; deleting is done by us.
//!
//! Expressions are written by tenants and evaluated in the controller, so that they must end. They are made only of what walks a document
//! and asks about it ([`language`]), and each step of a walk is counted: one that takes too many is given up, and reported.

mod language;

use std::cell::Cell;

use argosy_object::Value;
use jaq_core::load::parse::Def;
use jaq_core::load::{Arena, File, Loader};
use jaq_core::native::{Fun, bome, run, v};
use jaq_core::{Ctx, DataT, Error, Lut, RunPtr, Vars, data, unwrap_valr};
use jaq_json::{Num, Val};

use super::path::{Step, Steps};
use super::plain::Walk;

/// What jaq lacks of jq, the step that is counted, and the test of what may be kept.
const PRELUDE: &str = "def IN(s): any(s == .; .); def IN(src; s): any(src == s; .); \
    def step: if tick then . else . end; def small: if is_small then . else . end;";

/// Paths one expression may lead to in one document.
const PATHS_MAX: usize = 10_000;
/// Steps one expression may take in one document: some tenths of a second. What people write takes less than a thousand.
const STEPS_MAX: u32 = 100_000;
/// Longest text that a variable, a computed list or a sum may hold, in bytes.
const KEPT_MAX: usize = 1_024;
/// Longest expression.
const TEXT_MAX: usize = 4_096;

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

/// What a running expression has at hand.
struct Run<'a> {
    lut: &'a Lut<Metered>,
    left: Cell<u32>,
}

/// Expressions over JSON whose steps are counted.
struct Metered;

impl DataT for Metered {
    type V<'a> = Val;
    type Data<'a> = &'a Run<'a>;
}

impl<'a> data::HasLut<'a, Metered> for &'a Run<'a> {
    fn lut(&self) -> &'a Lut<Metered> {
        self.lut
    }
}

/// `tick`: an error once the steps are used up.
fn tick() -> Fun<Metered> {
    let count: RunPtr<Metered> = |(ctx, _)| {
        let left = &ctx.data().left;
        bome(match left.get() {
            0 => Err(Error::str("too many steps")),
            steps => {
                left.set(steps - 1);
                Ok(Val::Bool(true))
            }
        })
    };
    run::<Metered>(("tick", v(0), count))
}

/// `is_small`: an error for what is no scalar, or a long text.
fn is_small() -> Fun<Metered> {
    let ask: RunPtr<Metered> = |(_, value)| {
        bome(match &value {
            Val::Arr(_) | Val::Obj(_) => Err(Error::str("keeps a list or an object")),
            Val::TStr(text) | Val::BStr(text) if text.len() > KEPT_MAX => {
                Err(Error::str(format!("keeps a text of more than {KEPT_MAX} bytes")))
            }
            _ => Ok(Val::Bool(true)),
        })
    };
    run::<Metered>(("is_small", v(0), ask))
}

/// An expression that needs the interpreter.
pub(super) struct Interpreted {
    filter: jaq_core::Filter<Metered>,
}

impl Interpreted {
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        if text.len() > TEXT_MAX {
            return Err(format!("is longer than {TEXT_MAX} bytes"));
        }
        let term = jaq_core::load::parse(text, |parser| parser.term()).ok_or("is no jq expression")?;
        let expression = Def {
            name: "expression",
            args: Vec::new(),
            body: language::metered(term)?,
        };
        let prelude = jaq_core::load::parse(PRELUDE, |parser| parser.defs()).unwrap_or_default();
        let known = jaq_core::defs()
            .chain(jaq_std::defs())
            .chain(jaq_json::defs())
            .chain(prelude);
        let mut defs: Vec<Def<&str>> = vec![expression];
        for def in known {
            defs.push(def);
        }
        // A definition sees those before it.
        defs.rotate_left(1);
        let funs = jaq_core::funs()
            .chain(jaq_std::funs())
            .chain(jaq_json::funs())
            .chain([tick(), is_small()]);
        let arena = Arena::default();
        let main = File {
            code: "path(expression)",
            path: (),
        };
        let modules = Loader::new(defs)
            .load(&arena, main)
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
        let run = Run {
            lut: &self.filter.lut,
            left: Cell::new(STEPS_MAX),
        };
        let ctx = Ctx::<Metered>::new(&run, Vars::new([]));
        let mut paths = Vec::new();
        let mut problem = None;
        for path in self.filter.id.run((ctx, to_jq(document))).map(unwrap_valr) {
            match path {
                Ok(path) => paths.extend(steps(&path, document)),
                Err(error) => {
                    // A text is shown as jq would write it down.
                    problem = Some(error.to_string().trim_matches('"').to_owned());
                    break;
                }
            }
            if paths.len() > PATHS_MAX {
                return Err(format!("leads to more than {PATHS_MAX} places"));
            }
        }
        match problem {
            // The expression may have caught the error and gone on without what it was about.
            _ if run.left.get() == 0 => Err(format!("takes more than {STEPS_MAX} steps")),
            None => Ok(paths),
            Some(text) if text.contains("null") => Ok(Vec::new()),
            Some(text) => Err(text),
        }
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
