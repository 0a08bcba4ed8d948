//! What a path expression may be made of: what walks a document and asks about it.
//!
//! What makes large values or goes round (`reduce`, own definitions, multiplication, computed objects) is refused, and so is what looks outside
//! (`input`, `env`, `now`). What is kept in a variable, added, or put into a list or text has to be a short scalar. So every value at hand is a
//! part of the document or small, which bounds the memory and the cost of a step; and [`metered`] puts a counted step everywhere where a walk
//! goes on, which bounds the time.

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Pattern, Term};
use jaq_core::ops::Math;
use jaq_core::path::{Part, Path};

/// Functions that may be used.
const ALLOWED: &[&str] = &[
    "IN",
    "abs",
    "all",
    "any",
    "arrays",
    "ascii_downcase",
    "ascii_upcase",
    "booleans",
    "contains",
    "empty",
    "endswith",
    "error",
    "false",
    "first",
    "floor",
    "getpath",
    "has",
    "in",
    "index",
    "inside",
    "iterables",
    "keys",
    "keys_unsorted",
    "last",
    "length",
    "ltrimstr",
    "max",
    "max_by",
    "min",
    "min_by",
    "not",
    "nth",
    "null",
    "nulls",
    "numbers",
    "objects",
    "recurse",
    "rindex",
    "rtrimstr",
    "scalars",
    "select",
    "split",
    "startswith",
    "strings",
    "test",
    "tonumber",
    "tostring",
    "trim",
    "true",
    "type",
    "unique",
    "values",
];

/// A text that is made of a value holds its quotes escaped; made of a text again and again it would grow without end.
const TO_TEXT_MAX: usize = 2;

/// The expression with its steps counted, or what in it is not allowed.
pub(super) fn metered(term: Term<&str>) -> Result<Term<&str>, String> {
    let mut to_text = 0;
    let term = rewrite(term, &mut to_text)?;
    if to_text > TO_TEXT_MAX {
        return Err(format!("uses tostring more than {TO_TEXT_MAX} times"));
    }
    Ok(term)
}

fn rewrite<'s>(term: Term<&'s str>, to_text: &mut usize) -> Result<Term<&'s str>, String> {
    if is_literal(&term) {
        return Ok(term);
    }
    let mut all = |terms: Vec<Term<&'s str>>| -> Result<Vec<_>, String> {
        terms
            .into_iter()
            .map(|term| Ok(stepping(rewrite(term, to_text)?)))
            .collect()
    };
    Ok(match term {
        Term::Id => Term::Id,
        Term::Recurse => then_step(Term::Recurse),
        Term::Neg(term) => Term::Neg(Box::new(rewrite(*term, to_text)?)),
        Term::BinOp(left, op, right) => {
            allow(&op)?;
            let left = rewrite(*left, to_text)?;
            let right = stepping(rewrite(*right, to_text)?);
            let (left, right) = match op {
                BinaryOp::Pipe(Some(_)) => (small(left), right),
                BinaryOp::Math(Math::Add) => (small(left), small(right)),
                _ => (left, right),
            };
            Term::BinOp(Box::new(left), op, Box::new(right))
        }
        Term::TryCatch(tried, caught) => {
            let caught = caught.map(|caught| rewrite(*caught, to_text).map(Box::new));
            Term::TryCatch(Box::new(rewrite(*tried, to_text)?), caught.transpose()?)
        }
        Term::IfThenElse(branches, otherwise) => {
            let mut rewritten = Vec::with_capacity(branches.len());
            for (condition, then) in branches {
                rewritten.push((rewrite(condition, to_text)?, stepping(rewrite(then, to_text)?)));
            }
            let otherwise =
                otherwise.map(|term| rewrite(*term, to_text).map(|term| Box::new(stepping(term))));
            Term::IfThenElse(rewritten, otherwise.transpose()?)
        }
        // With a step of its own it may walk in a circle.
        Term::Call("recurse", args) if !args.is_empty() => return Err(refused("recurse with an argument")),
        Term::Call(name, args) if ALLOWED.contains(&name) => {
            let args = all(args)?;
            *to_text += usize::from(name == "tostring");
            then_step(Term::Call(name, args))
        }
        Term::Path(start, Path(parts)) => {
            let start = rewrite(*start, to_text)?;
            let mut rewritten = Vec::with_capacity(parts.len());
            for (part, lenient) in parts {
                let bound = |term: Option<Term<&'s str>>, to_text: &mut usize| {
                    term.map(|term| rewrite(term, to_text)).transpose()
                };
                let part = match part {
                    Part::Index(index) => Part::Index(rewrite(index, to_text)?),
                    Part::Range(from, to) => Part::Range(bound(from, to_text)?, bound(to, to_text)?),
                };
                rewritten.push((part, lenient));
            }
            then_step(Term::Path(Box::new(start), Path(rewritten)))
        }
        Term::Call(name, _) => return Err(refused(name)),
        Term::Var(name) => Term::Var(name),
        Term::Str(None, parts) => {
            let rewrite = |part| match part {
                StrPart::Term(term) => rewrite(term, to_text).map(|term| StrPart::Term(small(term))),
                other => Ok(other),
            };
            Term::Str(None, parts.into_iter().map(rewrite).collect::<Result<_, _>>()?)
        }
        Term::Str(Some(format), _) => return Err(refused(format)),
        Term::Arr(items) => {
            let items =
                items.map(|items| Ok::<_, String>(Box::new(small(stepping(rewrite(*items, to_text)?)))));
            Term::Arr(items.transpose()?)
        }
        Term::Obj(_) => return Err(refused("a computed object")),
        Term::Fold(name, ..) => return Err(refused(name)),
        Term::Def(..) => return Err(refused("def")),
        Term::Label(..) | Term::Break(_) => return Err(refused("label")),
        // A literal.
        number @ Term::Num(_) => number,
    })
}

fn allow(op: &BinaryOp<&str>) -> Result<(), String> {
    match op {
        BinaryOp::Pipe(None)
        | BinaryOp::Comma
        | BinaryOp::Alt
        | BinaryOp::Or
        | BinaryOp::And
        | BinaryOp::Cmp(_)
        | BinaryOp::Pipe(Some(Pattern::Var(_)))
        | BinaryOp::Math(Math::Add | Math::Sub | Math::Rem) => Ok(()),
        BinaryOp::Pipe(Some(_)) => Err(refused("a pattern of variables")),
        BinaryOp::Math(math) => Err(refused(math.as_str())),
        BinaryOp::Assign | BinaryOp::Update | BinaryOp::UpdateMath(_) | BinaryOp::UpdateAlt => {
            Err(refused("an assignment"))
        }
    }
}

fn refused(what: &str) -> String {
    format!("uses {what}, which is not allowed here")
}

/// Whether a value is written down as it is.
fn is_literal(term: &Term<&str>) -> bool {
    match term {
        Term::Num(_) | Term::Arr(None) => true,
        Term::Str(None, parts) => parts.iter().all(|part| !matches!(part, StrPart::Term(_))),
        Term::Neg(term) => is_literal(term),
        Term::Arr(Some(items)) => is_literal(items),
        Term::BinOp(left, BinaryOp::Comma, right) => is_literal(left) && is_literal(right),
        Term::Obj(fields) => fields
            .iter()
            .all(|(name, value)| is_literal(name) && value.as_ref().is_some_and(is_literal)),
        _ => false,
    }
}

fn step<'s>() -> Term<&'s str> {
    Term::Call("step", Vec::new())
}

fn stepping(term: Term<&str>) -> Term<&str> {
    Term::BinOp(Box::new(step()), BinaryOp::Pipe(None), Box::new(term))
}

fn then_step(term: Term<&str>) -> Term<&str> {
    Term::BinOp(Box::new(term), BinaryOp::Pipe(None), Box::new(step()))
}

fn small(term: Term<&str>) -> Term<&str> {
    let small = Term::Call("small", Vec::new());
    Term::BinOp(Box::new(term), BinaryOp::Pipe(None), Box::new(small))
}
