//! Requests that go wrong, by rule.

use std::time::Duration;

use crate::refusal::Refusal;
use crate::request::{Place, Query, Request, verb};

/// Which requests a rule is about, and what happens to them.
#[derive(Clone, Debug)]
pub struct Rule {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`; empty for all, and for documents such as discovery.
    pub verb: String,
    /// The plural name, such as `deployments`; empty for all.
    pub plural: String,
    /// How the path begins, such as `/openapi/v3`; empty for all.
    pub path: String,
    /// Of a hundred such requests so many, by chance; 100 for all.
    pub percent: u8,
    /// After so many have been hit the rule rests; None for never.
    pub times: Option<u32>,
    /// What happens.
    pub fault: Fault,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The answer comes later.
    Delay(Duration),
    /// The connection breaks without an answer.
    Reset,
    /// An HTTP error, with seconds to wait if it says so.
    Error(u16, Option<u32>),
    /// The server forgets its history first: watches and continued lists find their version gone.
    Forget,
    /// A watch ends after so many events, in the middle of a line if asked.
    CutWatch {
        /// Events until then.
        events: u64,
        /// Whether the last line stays incomplete.
        torn: bool,
    },
    /// A watch ends with an error after so many events.
    FailWatch {
        /// Events until then.
        events: u64,
        /// The error's HTTP code.
        code: u16,
    },
    /// A watch stays open and tells nothing more after so many events.
    SilenceWatch {
        /// Events until then.
        events: u64,
    },
    /// After so many changes a watch leaves some out, and goes on with those that follow, and with how far it is, as though there
    /// had been none. Watches that tell metadata alone tell all.
    LoseChanges {
        /// Changes until then.
        after: u64,
        /// So many are left out.
        count: u64,
    },
    /// A watch tells nothing more, but goes on to say that it is where it began: the server's cache no longer follows its store.
    StallWatch,
    /// A read answers with the state of so many changes ago, if that is still remembered.
    Stale {
        /// How many changes.
        changes: u64,
    },
}

/// What the core of the server has to do about a request.
pub(crate) enum Injury {
    Refuse(Refusal),
    Break,
    Compact,
}

/// The rules of a server.
#[derive(Debug)]
pub struct Faults {
    rules: Vec<Rule>,
    random: fastrand::Rng,
}

impl Faults {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rules: Vec::new(),
            random: fastrand::Rng::with_seed(seed ^ 0xFA17),
        }
    }

    /// Adds a rule. Of several that fit a request the first one is taken.
    pub fn add(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Drops all rules.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    pub(crate) fn injure(&mut self, request: &Request) -> Option<Injury> {
        let fault = self.take(request, |fault| {
            matches!(fault, Fault::Reset | Fault::Error(..) | Fault::Forget)
        })?;
        Some(match fault {
            Fault::Error(code, retry_after) => Injury::Refuse(Refusal::fault(code, retry_after)),
            Fault::Forget => Injury::Compact,
            _ => Injury::Break,
        })
    }

    pub(crate) fn delay(&mut self, request: &Request) -> Duration {
        match self.take(request, |fault| matches!(fault, Fault::Delay(_))) {
            Some(Fault::Delay(delay)) => delay,
            _ => Duration::ZERO,
        }
    }

    /// What befalls a watch that begins with this request.
    pub(crate) fn of_watch(&mut self, request: &Request) -> Option<Fault> {
        self.take(request, |fault| {
            matches!(
                fault,
                Fault::CutWatch { .. }
                    | Fault::FailWatch { .. }
                    | Fault::SilenceWatch { .. }
                    | Fault::LoseChanges { .. }
                    | Fault::StallWatch
            )
        })
    }

    /// How many changes ago the state is that a read shows.
    pub(crate) fn staleness(&mut self, request: &Request) -> u64 {
        match self.take(request, |fault| matches!(fault, Fault::Stale { .. })) {
            Some(Fault::Stale { changes }) => changes,
            _ => 0,
        }
    }

    fn take(&mut self, request: &Request, kind: impl Fn(&Fault) -> bool) -> Option<Fault> {
        if self.rules.is_empty() {
            return None;
        }
        let place = Place::parse(request.uri().path());
        let asked = place
            .as_ref()
            .and_then(|place| verb(request.method(), place, &Query::of(request)).ok());
        let at = self.rules.iter().position(|rule| {
            let fits = (rule.verb.is_empty() || asked == Some(rule.verb.as_str()))
                && (rule.plural.is_empty()
                    || place.as_ref().is_some_and(|place| place.plural == rule.plural))
                && request.uri().path().starts_with(&rule.path);
            fits && rule.times != Some(0) && kind(&rule.fault)
        })?;
        let rule = &mut self.rules[at];
        if rule.percent < 100 && self.random.u8(..100) >= rule.percent {
            return None;
        }
        if let Some(times) = &mut rule.times {
            *times -= 1;
        }
        Some(rule.fault.clone())
    }
}
