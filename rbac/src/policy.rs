//! The text of a policy, and what becomes of it.

use std::collections::HashMap;
use std::sync::Arc;

use argosy_api::glob::{Glob, Share};
use regex::Regex;

use crate::Request;

/// How resources, actions and objects are compared (`policy.matchMode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchMode {
    /// Globs over the whole text.
    #[default]
    Glob,
    /// Regular expressions, not anchored.
    Regex,
}

/// A line that is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read line {line} of the policy, {text:?}: {why}")]
pub struct Error {
    /// Counted from 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

/// One `p` line.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The line, for explanations.
    pub text: String,
    pub(crate) resource: Pattern,
    pub(crate) action: Pattern,
    pub(crate) object: Pattern,
    pub(crate) allow: bool,
}

impl Rule {
    pub(crate) fn fits(&self, request: Request<'_>) -> bool {
        self.resource.matches(request.resource)
            && self.action.matches(request.action)
            && self.object.matches(request.object)
    }
}

/// What a text is compared with.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    Anything,
    Exactly(Box<str>),
    Glob(Box<Glob>),
    Regex(Box<Regex>),
}

impl Pattern {
    fn read(text: &str, mode: MatchMode) -> Result<Self, String> {
        match mode {
            MatchMode::Glob if text == "*" => Ok(Pattern::Anything),
            MatchMode::Glob if !text.contains(['*', '?', '[', '{', '\\']) => {
                Ok(Pattern::Exactly(text.into()))
            }
            MatchMode::Glob => Glob::new(text, None)
                .map(|glob| Pattern::Glob(Box::new(glob)))
                .map_err(|error| error.to_string()),
            MatchMode::Regex => Regex::new(text)
                .map(|regex| Pattern::Regex(Box::new(regex)))
                .map_err(|error| format!("read the regular expression {text:?}: {error}")),
        }
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        match self {
            Pattern::Anything => true,
            Pattern::Exactly(own) => **own == *text,
            Pattern::Glob(glob) => glob.matches(text),
            Pattern::Regex(regex) => regex.is_match(text),
        }
    }

    /// What of the texts that begin with `prefix` matches. A regular expression may match any of them.
    pub(crate) fn beginning_with(&self, prefix: &str) -> Share {
        match self {
            Pattern::Anything => Share::Everything,
            Pattern::Exactly(own) if own.starts_with(prefix) => Share::Something,
            Pattern::Exactly(_) => Share::Nothing,
            Pattern::Glob(glob) => glob.beginning_with(prefix),
            Pattern::Regex(_) => Share::Something,
        }
    }
}

/// A text of rules, compiled.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: HashMap<String, Vec<Arc<Rule>>>,
    roles: HashMap<String, Vec<String>>,
}

impl Policy {
    /// Reads a text.
    ///
    /// # Errors
    /// At the first line that is wrong. A policy counts as a whole or not at all: half of it might be the half that
    /// allows.
    pub fn parse(text: &str, mode: MatchMode) -> Result<Self, Error> {
        let mut policy = Policy::default();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            policy.line(line, mode).map_err(|why| Error {
                line: at + 1,
                text: line.to_owned(),
                why,
            })?;
        }
        Ok(policy)
    }

    fn line(&mut self, line: &str, mode: MatchMode) -> Result<(), String> {
        let fields = fields(line);
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        match fields[..] {
            ["p", subject, resource, action, object, effect] => {
                let allow = match effect {
                    "allow" => true,
                    "deny" => false,
                    other => return Err(format!("the effect must be allow or deny, not {other:?}")),
                };
                let rule = Rule {
                    text: line.to_owned(),
                    resource: Pattern::read(resource, mode)?,
                    action: Pattern::read(action, mode)?,
                    object: Pattern::read(object, mode)?,
                    allow,
                };
                self.rules
                    .entry(subject.to_owned())
                    .or_default()
                    .push(Arc::new(rule));
            }
            ["g", subject, role] => self
                .roles
                .entry(subject.to_owned())
                .or_default()
                .push(role.to_owned()),
            ["p", ..] => {
                return Err(
                    "a p line has six fields: p, subject, resource, action, object, allow|deny".into(),
                );
            }
            ["g", ..] => return Err("a g line has three fields: g, subject, role".into()),
            _ => return Err("a line begins with p or g".into()),
        }
        Ok(())
    }

    pub(crate) fn rules_of(&self, subject: &str) -> &[Arc<Rule>] {
        self.rules.get(subject).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn roles_of(&self, subject: &str) -> &[String] {
        self.roles.get(subject).map_or(&[], Vec::as_slice)
    }
}

/// The fields of a line of CSV: separated by commas outside of quotes, without the spaces around them. What follows a
/// `#` after the last field is a remark.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field).trim().to_owned()),
            '#' if !quoted && field.ends_with(char::is_whitespace) => break,
            c => field.push(c),
        }
    }
    fields.push(field.trim().to_owned());
    fields
}
