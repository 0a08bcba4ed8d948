//! The hand-over of a cluster, every way that it can go.
//!
//! Two shards and one cluster: the real [`Node`] twice, a store, their watches and calls, and a target that they write to.
//! From a [`Begin`] the model checker tries every order in which things can happen: time passes or a process sleeps
//! through it, and, each so often as [`Bounds`] says, a call arrives late, never or without an answer, a watch falls
//! behind, a process dies and another follows in its pod. What is not delayed happens at once. Time is in whole units
//! and the same for all; clocks that differ are the simulation's, and so is everything that needs more shards, more
//! clusters or more time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use argosy_shard_coordinator::node::{Effect, Event, Identity, Node, Outcome, Wanted};
use argosy_shard_coordinator::object::{ClusterId, Key, Object, ShardId, Version};
use argosy_shard_coordinator::timing::Timing;
use stateright::{Model, Property};

const CLUSTER: &str = "c";
const SHARDS: [&str; 2] = ["a", "b"];
/// Calls that follow from one look at the clock, of which one may be delayed.
const CALLS: usize = 5;

/// How far to look.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Units of time; a lease lasts three and is waited for one more.
    pub time: u64,
    /// Calls that arrive late, never or without an answer.
    pub delays: u8,
    /// Watches that fall behind.
    pub lags: u8,
    /// Processes that die.
    pub crashes: u8,
    /// Writes to the target.
    pub writes: u8,
}

/// What is the case when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// A person has just said that the owner is to own nothing.
    Emptied,
    /// The owner has slept, its last renewal on the way, until just before others may take its lease.
    Asleep,
}

/// The model.
#[derive(Clone, Debug)]
pub struct HandOver {
    /// How far to look.
    pub bounds: Bounds,
    /// From where.
    pub begin: Begin,
    /// The times of the protocol.
    pub timing: Timing,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    node: Node,
    /// What its watch is going to tell, and whether it does not for now.
    told: VecDeque<Event>,
    lags: bool,
    /// The cluster, if it holds it: under which epoch, and whether writes may begin.
    hold: Option<(u64, bool)>,
}

/// A call to the store, and who waits for the answer.
type Call = (usize, u8, Effect);

/// A write on its way to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flight {
    shard: usize,
    boot: u8,
    epoch: u64,
    /// The target drops it after that.
    until: u64,
}

/// Everything there is at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: u64,
    start: u64,
    processes: Vec<Option<Process>>,
    boots: Vec<u8>,
    store: BTreeMap<Key, (Object, Version)>,
    versions: u64,
    /// Calls to the store that have just left.
    calls: VecDeque<Call>,
    /// Calls that are long on their way.
    delayed: Vec<Call>,
    flights: Vec<Flight>,
    delays: u8,
    lags: u8,
    crashes: u8,
    writes: u8,
    /// The newest epoch that somebody owned, and whose it was.
    owned: (u64, usize),
    /// Who owned the cluster when it began.
    first: usize,
    /// A write landed under an older epoch than that.
    late: bool,
}

/// What can happen next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Pass,
    /// A process looks at its clock; the call of that number which follows is delayed.
    Look(usize, Option<usize>),
    /// A watch falls behind.
    Lag(usize),
    /// It tells what there is to tell.
    Tell(usize),
    /// A delayed call arrives and is answered.
    Arrive(usize),
    /// It arrives; the answer does not, and the caller gives up.
    Unanswered(usize),
    /// The caller gives it up, and it never arrives.
    Lose(usize),
    /// A process dies.
    Crash(usize),
    /// Another one begins in its pod.
    Follow(usize),
    /// The owner begins a write.
    Write(usize),
    /// It reaches the target.
    Land(usize),
}

impl HandOver {
    /// Short times: a lease of three units, of which writes may begin in two.
    pub fn new(bounds: Bounds, begin: Begin) -> Self {
        let unit = Duration::from_secs(1);
        let timing = Timing {
            renew: unit,
            attempt: unit,
            write: unit * 2,
            duration: unit * 3,
            margin: unit,
            gather: Duration::ZERO,
            warm: unit * 2,
            leave: unit * 2,
            forget: unit * 1000,
            relist: unit * 1000,
            longest: Duration::ZERO,
        };
        HandOver {
            bounds,
            begin,
            timing,
        }
    }

    /// Both shards run, and one owns the cluster.
    fn begun(&self) -> State {
        let mut state = State {
            now: 10,
            start: 10,
            processes: vec![None; SHARDS.len()],
            boots: vec![0; SHARDS.len()],
            store: BTreeMap::new(),
            versions: 0,
            calls: VecDeque::new(),
            delayed: Vec::new(),
            flights: Vec::new(),
            delays: 0,
            lags: 0,
            crashes: 0,
            writes: 0,
            owned: (0, 0),
            first: 0,
            late: false,
        };
        for shard in 0..SHARDS.len() {
            self.start(&mut state, shard);
        }
        for _ in 0..20 {
            state.now += 1;
            for shard in 0..SHARDS.len() {
                self.event(&mut state, shard, Event::Tick);
            }
            self.run(&mut state, None);
        }
        let owner = state.owned.1;
        match self.begin {
            Begin::Emptied => {
                let key = Key::Shard(ShardId::new(SHARDS[owner]));
                if let Some((Object::Shard(mut lease), _)) = state.store.get(&key).cloned() {
                    lease.drain = true;
                    lease.revision += 1;
                    state.store_put(Object::Shard(lease));
                }
                self.run(&mut state, None);
            }
            Begin::Asleep => {
                state.now += 1;
                self.event(&mut state, owner, Event::Tick);
                state.delayed = std::mem::take(&mut state.calls).into();
                if let Some(process) = &mut state.processes[owner] {
                    process.lags = true;
                }
                for _ in 0..self.timing.expiry().as_secs() - 1 {
                    self.event(&mut state, 1 - owner, Event::Tick);
                    self.run(&mut state, None);
                    state.now += 1;
                }
            }
        }
        state.start = state.now;
        state.first = owner;
        state
    }

    /// What has left arrives and is answered, and watches tell of it, until nothing is left; all but the call of that
    /// number, which is delayed. False if there are not so many.
    fn run(&self, state: &mut State, delay: Option<usize>) -> bool {
        let mut count = 0;
        loop {
            if let Some(call) = state.calls.pop_front() {
                if delay == Some(count) {
                    state.delayed.push(call);
                } else {
                    self.arrive(state, call, true);
                }
                count += 1;
                continue;
            }
            let speaks = |one: &Process| !one.lags && !one.told.is_empty();
            match (0..SHARDS.len()).find(|shard| state.process(*shard).is_some_and(speaks)) {
                Some(shard) => self.tell(state, shard),
                None => return delay.is_none_or(|delay| delay < count),
            }
        }
    }

    fn start(&self, state: &mut State, shard: usize) {
        state.boots[shard] += 1;
        let identity = Identity {
            shard: ShardId::new(SHARDS[shard]),
            boot: state.boots[shard].to_string().into(),
            ordinal: None,
            alone: true,
        };
        let known = state.store.values().cloned();
        let told = known.map(|(object, version)| Event::Seen(object, version));
        let process = Process {
            node: Node::new(identity, self.timing),
            told: told.chain([Event::Listed]).collect(),
            lags: false,
            hold: None,
        };
        state.processes[shard] = Some(process);
        let wanted = Wanted { pin: None, cost: 1 };
        let clusters = BTreeMap::from([(ClusterId::new(CLUSTER), wanted)]);
        self.event(state, shard, Event::Clusters(clusters));
    }

    fn event(&self, state: &mut State, shard: usize, event: Event) {
        let now = Duration::from_secs(state.now);
        let boot = state.boots[shard];
        let Some(process) = &mut state.processes[shard] else {
            return;
        };
        for effect in process.node.step(now, event) {
            match effect {
                Effect::Put(..) | Effect::Delete(..) | Effect::Read(..) => {
                    state.calls.push_back((shard, boot, effect));
                }
                Effect::List => {
                    let known = state.store.values().cloned();
                    let told = known.map(|(object, version)| Event::Seen(object, version));
                    process.told = told.chain([Event::Listed]).collect();
                }
                Effect::Own(_, epoch) => {
                    process.hold = Some((epoch, true));
                    // A process that follows another in its pod goes on at once: preconditions stand against the dead one.
                    let follows = state.owned.1 == shard && boot > 1;
                    if epoch > state.owned.0 && !follows {
                        state.owned = (epoch, shard);
                    }
                }
                Effect::Drain(_, epoch) => process.hold = Some((epoch, false)),
                Effect::Disown(_) => process.hold = None,
                Effect::Warm(cluster) => process.told.push_front(Event::Warmed(cluster)),
                Effect::Leave => {}
            }
        }
    }

    fn tell(&self, state: &mut State, shard: usize) {
        let told = state.processes[shard]
            .as_mut()
            .map(|one| std::mem::take(&mut one.told));
        for event in told.into_iter().flatten() {
            self.event(state, shard, event);
        }
    }

    /// A call reaches the store. Its answer is heard at once, or never.
    fn arrive(&self, state: &mut State, (shard, boot, effect): Call, heard: bool) {
        let unheard = unheard(&effect);
        let answer = match effect {
            Effect::Put(object, expect, number) => {
                let key = object.key();
                let known = state.store.get(&key).map(|(_, version)| version);
                let outcome = match known == expect.as_ref() {
                    true => Outcome::Done(state.store_put(object)),
                    false => Outcome::Conflict,
                };
                Event::Stored(key, number, outcome)
            }
            Effect::Read(key) => Event::Fetched(key.clone(), state.store.get(&key).cloned()),
            // Within the bounds nothing is old enough to be deleted.
            _ => return,
        };
        if state.boots[shard] == boot {
            self.event(state, shard, if heard { answer } else { unheard });
        }
    }
}

/// What a caller makes of silence.
fn unheard(effect: &Effect) -> Event {
    match effect {
        Effect::Put(object, _, number) => Event::Stored(object.key(), *number, Outcome::Unknown),
        Effect::Read(key) => Event::Unread(key.clone()),
        _ => Event::Tick,
    }
}

impl State {
    fn process(&self, shard: usize) -> Option<&Process> {
        self.processes[shard].as_ref()
    }

    fn store_put(&mut self, object: Object) -> Version {
        self.versions += 1;
        let version: Version = self.versions.to_string().into();
        self.store.insert(object.key(), (object.clone(), version.clone()));
        for process in self.processes.iter_mut().flatten() {
            process
                .told
                .push_back(Event::Seen(object.clone(), version.clone()));
        }
        version
    }

    /// The epoch under which a shard may begin a write now, and when that must be over.
    fn may_write(&self, shard: usize) -> Option<(u64, u64)> {
        let process = self.process(shard)?;
        let (epoch, true) = process.hold? else { return None };
        let authority = process.node.authority()?;
        (Duration::from_secs(self.now) < authority.start).then_some((epoch, authority.end.as_secs()))
    }
}

impl Model for HandOver {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.begun()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < state.start + self.bounds.time {
            actions.push(Action::Pass);
        }
        for at in 0..state.delayed.len() {
            actions.extend([Action::Arrive(at), Action::Unanswered(at), Action::Lose(at)]);
        }
        actions.extend((0..state.flights.len()).map(Action::Land));
        for shard in 0..SHARDS.len() {
            let Some(process) = state.process(shard) else {
                actions.push(Action::Follow(shard));
                continue;
            };
            actions.push(Action::Look(shard, None));
            if state.delays < self.bounds.delays {
                actions.extend((0..CALLS).map(|call| Action::Look(shard, Some(call))));
            }
            if process.lags {
                actions.push(Action::Tell(shard));
            } else if state.lags < self.bounds.lags {
                actions.push(Action::Lag(shard));
            }
            if state.crashes < self.bounds.crashes {
                actions.push(Action::Crash(shard));
            }
            if state.writes < self.bounds.writes && state.may_write(shard).is_some() {
                actions.push(Action::Write(shard));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Pass => {
                state.now += 1;
                let margin = self.timing.margin.as_secs();
                let now = state.now;
                state.flights.retain(|flight| now <= flight.until + margin);
            }
            Action::Look(shard, delay) => {
                state.delays += u8::from(delay.is_some());
                self.event(&mut state, shard, Event::Tick);
                if !self.run(&mut state, delay) {
                    return None;
                }
            }
            Action::Lag(shard) => {
                state.lags += 1;
                state.processes[shard].as_mut()?.lags = true;
            }
            Action::Tell(shard) => {
                state.processes[shard].as_mut()?.lags = false;
            }
            Action::Arrive(at) => {
                let call = state.delayed.remove(at);
                self.arrive(&mut state, call, true);
            }
            Action::Unanswered(at) => {
                let call = state.delayed.remove(at);
                self.arrive(&mut state, call, false);
            }
            Action::Lose(at) => {
                let (shard, boot, effect) = state.delayed.remove(at);
                if state.boots[shard] == boot {
                    self.event(&mut state, shard, unheard(&effect));
                }
            }
            // Calls that have left go on.
            Action::Crash(shard) => {
                state.crashes += 1;
                state.processes[shard] = None;
            }
            Action::Follow(shard) => self.start(&mut state, shard),
            Action::Write(shard) => {
                let (epoch, until) = state.may_write(shard)?;
                state.writes += 1;
                let boot = state.boots[shard];
                state.flights.push(Flight {
                    shard,
                    boot,
                    epoch,
                    until,
                });
            }
            Action::Land(at) => {
                let flight = state.flights.remove(at);
                if state.now > flight.until {
                    return None;
                }
                state.late |= flight.epoch < state.owned.0;
            }
        }
        self.run(&mut state, None);
        self.drained(&mut state);
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one writer at a time", |_, state: &State| {
                (0..SHARDS.len())
                    .filter(|shard| state.may_write(*shard).is_some())
                    .count()
                    <= 1
            }),
            Property::always(
                "no write lands after a newer owner has begun",
                |_, state: &State| !state.late,
            ),
            Property::sometimes("the cluster moves", |_, state: &State| {
                state.owned.1 != state.first && state.may_write(state.owned.1).is_some()
            }),
        ]
    }
}

impl HandOver {
    /// Who has let go hears of it when none of its writes is under way.
    fn drained(&self, state: &mut State) {
        for shard in 0..SHARDS.len() {
            let hold = state.process(shard).and_then(|process| process.hold);
            let boot = state.boots[shard];
            let flies = |flight: &Flight| flight.shard == shard && flight.boot == boot;
            if let Some((epoch, false)) = hold
                && !state.flights.iter().any(flies)
            {
                self.event(state, shard, Event::Drained(ClusterId::new(CLUSTER), epoch));
                self.run(state, None);
            }
        }
    }
}
