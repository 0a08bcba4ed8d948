//! Who stands at each connection: lets writes go wrong by chance, and shows those that land to the checker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use argosy_object::Value;
use argosy_simulation::serve::{Fate, Reply, Witness};
use argosy_simulation::{Answer, Request};
use http::Method;
use parking_lot::Mutex;

use crate::check::{Checker, Write};
use crate::network::{Network, ProcessId};

/// What is on its way for longer than this is later than leases allow for.
const LATE: Duration = Duration::from_secs(4);
/// Of so many writes one goes wrong; of renewals, of which there are many more, fewer.
const RARITY: u32 = 7;
const RARITY_OF_LEASES: u32 = 30;

const LEASE: &str = "a lease";
const EVENT: &str = "an Event";

/// What is to be done with a process once the servers have had their turn.
pub(crate) enum Command {
    /// It is killed.
    Kill {
        process: ProcessId,
        lost: bool,
        new_pod: bool,
        pause: Duration,
    },
    /// Its machine stands still.
    Stop { process: ProcessId, pause: Duration },
}

/// What befalls one write of a scenario in which nothing else goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// Its process dies, and it never arrives.
    CrashBefore,
    /// It is done, and its process dies before it hears of it.
    CrashAfter,
    /// It is done, and its process hears that it was broken off.
    AnswerLost,
    /// It is done, and its process sleeps for longer than its lease.
    Sleep,
}

impl Blow {
    /// All of them.
    pub const ALL: [Blow; 4] = [Blow::CrashBefore, Blow::CrashAfter, Blow::AnswerLost, Blow::Sleep];
}

/// A blow on one of the writes to Applications and targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// Which write, counted from zero.
    pub nth: u64,
    /// What befalls it.
    pub blow: Blow,
}

/// Chance, and what came of it.
pub(crate) struct Dice {
    /// Writes go wrong by chance.
    pub(crate) on: bool,
    /// One write goes wrong: this one, counted from now.
    pub(crate) strike: Option<Strike>,
    chance: fastrand::Rng,
    pub(crate) commands: Vec<Command>,
    /// How often which kind of write met which fate.
    pub(crate) met: BTreeMap<(&'static str, &'static str), u64>,
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice {
            on: false,
            strike: None,
            chance: fastrand::Rng::with_seed(seed),
            commands: Vec::new(),
            met: BTreeMap::new(),
        }
    }

    fn seconds(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.chance.u64(range.start * 1000..range.end * 1000))
    }

    /// What befalls a write of a process.
    fn throw(&mut self, process: ProcessId, kind: &'static str) -> Fate {
        if kind != LEASE
            && kind != EVENT
            && let Some(strike) = &mut self.strike
        {
            let Some(left) = strike.nth.checked_sub(1) else {
                let (name, fate) = self.struck(process);
                *self.met.entry((kind, name)).or_default() += 1;
                return fate;
            };
            strike.nth = left;
        }
        let rarity = if kind == LEASE { RARITY_OF_LEASES } else { RARITY };
        let wrong = self.on && self.chance.u32(..rarity) == 0;
        let (name, fate) = if wrong {
            self.fate(process)
        } else {
            ("done", Fate::GOOD)
        };
        *self.met.entry((kind, name)).or_default() += 1;
        fate
    }

    /// The write that the blow was meant for has come.
    fn struck(&mut self, process: ProcessId) -> (&'static str, Fate) {
        let blow = self.strike.take().map(|strike| strike.blow);
        let kill = Command::Kill {
            process,
            lost: true,
            new_pod: false,
            pause: Duration::from_secs(1),
        };
        match blow {
            Some(Blow::CrashBefore) => {
                self.commands.push(kill);
                (
                    "crash before",
                    Fate {
                        handled: false,
                        reply: Reply::Broken,
                        ..Fate::GOOD
                    },
                )
            }
            Some(Blow::CrashAfter) => {
                self.commands.push(kill);
                ("crash after", Fate::GOOD)
            }
            Some(Blow::AnswerLost) => (
                "answer lost",
                Fate {
                    reply: Reply::Broken,
                    ..Fate::GOOD
                },
            ),
            Some(Blow::Sleep) => {
                let pause = Duration::from_secs(60);
                self.commands.push(Command::Stop { process, pause });
                ("sender stands still", Fate::GOOD)
            }
            None => ("done", Fate::GOOD),
        }
    }

    fn fate(&mut self, process: ProcessId) -> (&'static str, Fate) {
        let kill = |dice: &mut Dice| Command::Kill {
            process,
            lost: dice.chance.bool(),
            new_pod: dice.chance.bool(),
            pause: dice.seconds(0..5),
        };
        let lost = Fate {
            handled: false,
            reply: Reply::Broken,
            ..Fate::GOOD
        };
        match self.chance.u32(..8) {
            0 => ("lost on the way", lost),
            1 => (
                "answer lost",
                Fate {
                    reply: Reply::Broken,
                    ..Fate::GOOD
                },
            ),
            2 => (
                "never answered",
                Fate {
                    reply: Reply::Nothing,
                    ..Fate::GOOD
                },
            ),
            3 => {
                let kill = kill(self);
                self.commands.push(kill);
                ("crash before", lost)
            }
            4 => {
                let kill = kill(self);
                self.commands.push(kill);
                ("crash after", Fate::GOOD)
            }
            5 => {
                let pause = self.seconds(1..50);
                self.commands.push(Command::Stop { process, pause });
                ("sender stands still", Fate::GOOD)
            }
            6 => (
                "slow",
                Fate {
                    delay: self.seconds(0..3),
                    ..Fate::GOOD
                },
            ),
            _ => (
                "late",
                Fate {
                    delay: self.seconds(6..40),
                    ..Fate::GOOD
                },
            ),
        }
    }
}

/// One connection as its server sees it.
pub(crate) struct Look {
    /// A target, or the control plane.
    pub(crate) target: Option<usize>,
    pub(crate) from: ProcessId,
    pub(crate) network: Network,
    pub(crate) checker: Arc<Mutex<Checker>>,
    pub(crate) dice: Arc<Mutex<Dice>>,
}

impl Witness for Look {
    fn arrived(&self, request: &Request) -> Fate {
        match Write::of(request) {
            Some(write) => self.dice.lock().throw(self.from, kind(self.target, &write)),
            None => Fate::GOOD,
        }
    }

    fn handled(&self, request: &Request, fate: Fate, answer: &Answer) {
        let (Some(write), Answer::Document(response)) = (Write::of(request), answer) else {
            return;
        };
        let (at, code) = (self.network.now(), response.status().as_u16());
        let place = self.target.map_or(-1, |target| target as i64);
        let (process, method, name) = (self.from, write.method.as_str(), write.name);
        tracing::debug!(?at, process, target = place, method, plural = write.plural, name, code, delay = ?fate.delay, reply = ?fate.reply, "a write");
        if !response.status().is_success() {
            return;
        }
        let object: Value = serde_json::from_slice(response.body()).unwrap_or_default();
        if write.plural == "applications" {
            let status = &object["status"];
            tracing::debug!(sync = %status["sync"], health = %status["health"]["status"], operation = %status["operationState"]["phase"], epoch = %object["metadata"]["annotations"], "an Application");
        }
        let late = fate.delay > LATE;
        self.checker
            .lock()
            .landed(self.network.now(), self.from, self.target, &write, &object, late);
    }
}

fn kind(target: Option<usize>, write: &Write<'_>) -> &'static str {
    match (target, write.plural) {
        (None, "leases") => LEASE,
        (None, "applications") => "an Application",
        (None, _) => EVENT,
        (Some(_), "jobs") if *write.method == Method::POST => "a hook's creation",
        (Some(_), _) if *write.method == Method::POST => "a creation",
        (Some(_), _) if *write.method == Method::DELETE => "a deletion",
        (Some(_), _) => "an update",
    }
}
