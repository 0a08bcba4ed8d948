//! Processes, store, targets and the queue of what happens next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use argosy_shard_coordinator::node::{Effect, Event, Identity, Node, Outcome, Wanted};
use argosy_shard_coordinator::object::{ClusterId, Election, Key, Object, Pin, ShardId, Version};
use argosy_shard_coordinator::timing::Timing;
use fastrand::Rng;

use crate::check::Checker;
use crate::coverage::{Coverage, Fate, WriteKind};
use crate::process::{Hold, Micros, Process};
use crate::store::Store;

const MS: Micros = 1000;
const SECOND: Micros = 1000 * MS;
/// A call without an answer is given up by its caller after so long.
const CALL_MAX: Micros = 10 * SECOND;
/// Time between two looks of a process at its clock.
const TICK: Micros = 500 * MS;
/// Between renewals, where others take the usual time: their leases are in force for longer than those of such a process last.
const SHORT: Duration = Duration::from_secs(2);
/// Clocks run so many thousandths apart from true time.
const APART: u64 = 100;

pub(crate) enum Action {
    Tick(usize),
    Watch(usize),
    /// A call reaches the store.
    Arrive(usize, Effect, Fate),
    Answer(usize, Event),
    /// The process begins to write to a target, again and again for as long as it holds it.
    Write(usize, ClusterId, u64),
    Lands(Landing),
    /// The process hears of it, or gives it up.
    Landed(usize, ClusterId, u64, Option<u64>),
    Start(usize, Begin),
    Fault,
}

/// A write on its way to a target.
pub(crate) struct Landing {
    pid: usize,
    cluster: ClusterId,
    epoch: u64,
    expect: u64,
    /// The server drops it after that.
    until: Micros,
    timely: bool,
}

/// How a process begins.
#[derive(Clone, Copy)]
pub(crate) enum Begin {
    /// In the same pod: it has the shard's name, and knows that its predecessor is dead.
    SamePod,
    NewPod,
}

/// A place for a process.
pub(crate) struct Slot {
    /// The shard's name; changes with the pod where pods have uids.
    name: ShardId,
    /// Named after its host: a new process has the old name and cannot know whether the old one is dead.
    by_host: bool,
    pods: u32,
    pub(crate) running: Option<usize>,
}

/// Everything there is.
pub(crate) struct World {
    pub(crate) now: Micros,
    pub(crate) rng: Rng,
    queue: BinaryHeap<Reverse<(Micros, u64)>>,
    actions: BTreeMap<u64, Action>,
    ordered: u64,
    pub(crate) store: Store,
    pub(crate) processes: BTreeMap<usize, Process>,
    pub(crate) slots: Vec<Slot>,
    next_pid: usize,
    targets: BTreeMap<ClusterId, u64>,
    pub(crate) wanted: BTreeMap<ClusterId, Wanted>,
    /// The store cannot be reached by anybody until then.
    pub(crate) outage: Micros,
    /// Things go wrong.
    pub(crate) faults: bool,
    /// Clocks differ by more than the margin allows for writes under way.
    pub(crate) wild_clocks: bool,
    /// The time between renewals is being changed: processes differ in it.
    pub(crate) uneven: Option<Rng>,
    pub(crate) checker: Checker,
    pub(crate) coverage: Coverage,
    /// When who was made owner: for measurements.
    pub(crate) owned: Vec<(Micros, ClusterId, ShardId)>,
    /// When an owner stopped beginning writes for a hand-over: for measurements.
    pub(crate) drained: Vec<(Micros, ClusterId)>,
}

impl World {
    pub(crate) fn new(seed: u64, shards: usize, clusters: usize, faults: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let slots = (0..shards)
            .map(|at| Slot {
                name: ShardId::new(&format!("shard-{at}")),
                by_host: faults && rng.u32(..4) == 0,
                pods: 0,
                running: None,
            })
            .collect();
        let wanted = (0..clusters)
            .map(|at| {
                let pin = (faults && rng.u32(..6) == 0).then(|| Pin::Number(rng.u32(..4)));
                let cost = 1 + rng.u64(..100) * rng.u64(..100);
                (ClusterId::new(&format!("c{at}")), Wanted { pin, cost })
            })
            .collect();
        let wild_clocks = faults && rng.u32(..5) == 0;
        // Of a chance of its own: what else befalls a seed does not depend on it.
        let mut chance = Rng::with_seed(!seed);
        let uneven = (faults && chance.u32(..5) == 0).then_some(chance);
        let mut world = World {
            now: SECOND,
            rng,
            queue: BinaryHeap::new(),
            actions: BTreeMap::new(),
            ordered: 0,
            store: Store::default(),
            processes: BTreeMap::new(),
            slots,
            next_pid: 0,
            targets: BTreeMap::new(),
            wanted,
            outage: 0,
            faults,
            wild_clocks,
            uneven,
            checker: Checker::default(),
            coverage: Coverage::default(),
            owned: Vec::new(),
            drained: Vec::new(),
        };
        for slot in 0..shards {
            let wait = world.rng.u64(..3 * SECOND);
            world.after(wait, Action::Start(slot, Begin::NewPod));
        }
        if faults {
            world.after(10 * SECOND, Action::Fault);
        }
        world
    }

    pub(crate) fn after(&mut self, wait: Micros, action: Action) {
        self.at(self.now + wait, action);
    }

    fn at(&mut self, when: Micros, action: Action) {
        self.ordered += 1;
        self.queue.push(Reverse((when, self.ordered)));
        self.actions.insert(self.ordered, action);
    }

    /// Does what is next; false at `end`.
    pub(crate) fn step(&mut self, end: Micros) -> bool {
        let Some(Reverse((when, id))) = self.queue.pop() else {
            return false;
        };
        if when > end {
            self.queue.push(Reverse((when, id)));
            self.now = end;
            return false;
        }
        self.now = when;
        if let Some(action) = self.actions.remove(&id) {
            self.act(action);
        }
        true
    }

    fn act(&mut self, action: Action) {
        let pid = match &action {
            Action::Tick(pid)
            | Action::Watch(pid)
            | Action::Answer(pid, _)
            | Action::Write(pid, ..)
            | Action::Landed(pid, ..) => Some(*pid),
            _ => None,
        };
        if let Some(pid) = pid {
            let Some(process) = self.processes.get(&pid) else {
                return;
            };
            if process.frozen > self.now {
                let later = process.frozen + self.rng.u64(..MS);
                self.at(later, action);
                return;
            }
        }
        match action {
            Action::Tick(pid) => {
                self.event(pid, Event::Tick);
                let wait = TICK + self.rng.u64(..TICK / 4);
                self.after(wait, Action::Tick(pid));
            }
            Action::Watch(pid) => self.watch(pid),
            Action::Arrive(pid, effect, fate) => self.arrive(pid, effect, fate),
            Action::Answer(pid, event) => self.event(pid, event),
            Action::Write(pid, cluster, epoch) => self.write(pid, cluster, epoch),
            Action::Lands(landing) => self.lands(landing),
            Action::Landed(pid, cluster, epoch, seen) => self.landed(pid, &cluster, epoch, seen),
            Action::Start(slot, begin) => self.start(slot, begin),
            Action::Fault => self.fault(),
        }
    }

    pub(crate) fn start(&mut self, slot: usize, begin: Begin) {
        let place = &mut self.slots[slot];
        if place.running.is_some() {
            return;
        }
        let same_pod = matches!(begin, Begin::SamePod) && place.pods > 0;
        if !same_pod {
            place.pods += 1;
            if !place.by_host {
                place.name = ShardId::new(&format!("shard-{slot}-{}", place.pods));
            }
        }
        if self.faults && place.pods > 1 {
            self.coverage.fault(match same_pod {
                true => "process started again in its pod",
                false => "process started in a new pod",
            });
        }
        let pid = self.next_pid;
        self.next_pid += 1;
        let identity = Identity {
            shard: place.name.clone(),
            boot: format!("boot-{pid}").into(),
            ordinal: place.by_host.then_some(slot as u32),
            alone: !place.by_host,
        };
        place.running = Some(pid);
        let spread = match (self.faults, self.wild_clocks) {
            (false, _) => 0,
            (true, false) => APART,
            (true, true) => 2 * APART,
        };
        let renew = match &mut self.uneven {
            Some(chance) => [SHORT, Timing::default().renew][chance.usize(..2)],
            None => Timing::default().renew,
        };
        if renew == SHORT {
            self.coverage.fault("shards with unequal times");
        }
        // Forgetting and listing happen within a run.
        let timing = Timing {
            forget: Timing::default().renew * 12,
            relist: Timing::default().renew * 12,
            ..Timing::with_renewal(renew)
        };
        let process = Process {
            slot,
            node: Node::new(identity, timing),
            margin: timing.margin,
            offset: self.rng.u64(..1200 * SECOND),
            rate: rate(&mut self.rng, spread),
            frozen: 0,
            cut: 0,
            lag: 0,
            cursor: 0,
            listed: false,
            holds: BTreeMap::new(),
            stopping: false,
        };
        self.processes.insert(pid, process);
        let wanted = self.wanted.clone();
        self.event(pid, Event::Clusters(wanted));
        self.after(20 * MS, Action::Watch(pid));
        self.after(TICK, Action::Tick(pid));
    }

    /// Hands an event to the node and does what it says.
    pub(crate) fn event(&mut self, pid: usize, event: Event) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let local = process.local(self.now);
        for effect in process.node.step(local, event) {
            // A crash ends it in the middle.
            if !self.processes.contains_key(&pid) {
                return;
            }
            self.effect(pid, effect);
        }
    }

    fn effect(&mut self, pid: usize, effect: Effect) {
        match effect {
            Effect::Put(..) | Effect::Delete(..) | Effect::Read(..) => self.call(pid, effect),
            Effect::Own(cluster, epoch) => self.own(pid, cluster, epoch),
            Effect::Warm(cluster) => {
                let wait = 100 * MS + self.rng.u64(..3 * SECOND);
                self.after(wait, Action::Answer(pid, Event::Warmed(cluster)));
            }
            Effect::Drain(cluster, epoch) => {
                self.drained.push((self.now, cluster.clone()));
                if let Some(process) = self.processes.get_mut(&pid)
                    && let Some(hold) = process.holds.get_mut(&cluster)
                {
                    hold.open = false;
                    if hold.flying == 0 {
                        self.after(MS, Action::Answer(pid, Event::Drained(cluster, epoch)));
                    }
                }
            }
            Effect::Disown(cluster) => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.holds.remove(&cluster);
                }
            }
            Effect::List => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.listed = false;
                }
            }
            Effect::Leave => {
                self.end(pid);
            }
        }
    }

    fn own(&mut self, pid: usize, cluster: ClusterId, epoch: u64) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let flying = process.holds.get(&cluster).map_or(0, |hold| hold.flying);
        process.holds.insert(
            cluster.clone(),
            Hold {
                epoch,
                open: true,
                flying,
                seen: None,
            },
        );
        if let Some(own) = process.node.own() {
            let shard = own.shard.clone();
            // A process that follows another in its pod takes over at once: what the dead one has on the wire may land, and
            // preconditions are what stands against it.
            let last = self.owned.iter().rev().find(|(_, owned, _)| *owned == cluster);
            let followed = last.is_some_and(|(.., last)| *last == shard);
            if !followed {
                self.checker.owns(&cluster, epoch);
            }
            self.owned.push((self.now, cluster.clone(), shard));
        }
        let processes = self.processes.iter().map(|(pid, process)| (*pid, process));
        self.checker.one_writer(self.now, &cluster, processes);
        let wait = 100 * MS + self.rng.u64(..SECOND);
        self.after(wait, Action::Write(pid, cluster, epoch));
    }

    /// Sends a call to the store, with whatever befalls it.
    fn call(&mut self, pid: usize, effect: Effect) {
        let mut fate = Fate::Done;
        if let Some(kind) = self.kind(pid, &effect) {
            if self.faults {
                fate = self.fate(kind);
            }
            if fate == Fate::CrashBefore {
                self.coverage.write(kind, fate);
                self.crash(pid);
                return;
            }
            if matches!(fate, Fate::LostOnTheWay | Fate::AnswerLost | Fate::CrashAfter) {
                self.coverage.write(kind, fate);
            }
            if self.faults {
                self.edit_election(kind);
            }
        }
        let cut = self
            .processes
            .get(&pid)
            .is_some_and(|process| process.cut > self.now);
        if cut || self.outage > self.now || fate == Fate::LostOnTheWay {
            self.unanswered(pid, &effect);
            return;
        }
        let slow = self.faults && self.rng.u32(..40) == 0;
        let wait = if slow {
            self.rng.u64(..9 * SECOND)
        } else {
            2 * MS + self.rng.u64(..40 * MS)
        };
        self.after(wait, Action::Arrive(pid, effect, fate));
    }

    /// A person annotates the coordinator's lease while a write of it is on its way.
    fn edit_election(&mut self, kind: WriteKind) {
        let one_in = match kind {
            WriteKind::GiveUpElection => 20,
            WriteKind::RenewElection => 1000,
            _ => return,
        };
        if self.rng.u32(..one_in) == 0
            && let Some((Object::Election(election), version)) = self.store.get(&Key::Election).cloned()
        {
            let edited = Election {
                revision: election.revision + 1,
                ..election
            };
            self.store.put(Object::Election(edited), Some(&version));
            self.coverage.fault("coordinator's lease edited by a person");
        }
    }

    fn fate(&mut self, kind: WriteKind) -> Fate {
        let rare = matches!(kind, WriteKind::RenewLease | WriteKind::RenewElection);
        match self.rng.u32(..if rare { 2000 } else { 100 }) {
            0..=2 => Fate::CrashBefore,
            3..=5 => Fate::CrashAfter,
            6..=9 => Fate::LostOnTheWay,
            10..=13 => Fate::AnswerLost,
            _ => Fate::Done,
        }
    }

    /// The caller hears nothing and gives up.
    fn unanswered(&mut self, pid: usize, effect: &Effect) {
        let event = match effect {
            Effect::Read(key) => Event::Unread(key.clone()),
            other => match other.writes() {
                Some(key) => Event::Stored(key, other.number(), Outcome::Unknown),
                None => return,
            },
        };
        let quick = self.rng.bool();
        let wait = if quick { 50 * MS } else { CALL_MAX };
        self.after(wait, Action::Answer(pid, event));
    }

    fn arrive(&mut self, pid: usize, effect: Effect, fate: Fate) {
        let kind = self.kind(pid, &effect);
        let (event, done) = match &effect {
            Effect::Put(object, expect, number) => {
                let version = self.store.put(object.clone(), expect.as_ref());
                (stored(object.key(), *number, version.clone()), version.is_some())
            }
            Effect::Delete(key, version, number) => {
                let done = self.store.delete(key, Some(version));
                let version = done.then(|| Version::from("0"));
                (stored(key.clone(), *number, version), done)
            }
            Effect::Read(key) => (Event::Fetched(key.clone(), self.store.get(key).cloned()), true),
            _ => return,
        };
        if let Some(kind) = kind
            && fate == Fate::Done
        {
            self.coverage
                .write(kind, if done { Fate::Done } else { Fate::Conflict });
        }
        match fate {
            Fate::CrashAfter => self.crash(pid),
            Fate::AnswerLost => self.unanswered(pid, &effect),
            _ => {
                let wait = 2 * MS + self.rng.u64(..40 * MS);
                self.after(wait, Action::Answer(pid, event));
            }
        }
    }

    /// Tells the next changes of the store, or, to begin with, everything.
    fn watch(&mut self, pid: usize) {
        let wait = 5 * MS + self.rng.u64(..100 * MS);
        self.after(wait, Action::Watch(pid));
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.lag > self.now || process.cut > self.now || self.outage > self.now {
            return;
        }
        if !process.listed {
            process.listed = true;
            // A list may come from a server that is behind.
            let behind = match self.faults && self.rng.u32(..3) == 0 {
                true => self.rng.usize(..=self.store.len()).min(60),
                false => 0,
            };
            let at = self.store.len() - behind.min(self.store.len());
            let told = self.store.list(process.cursor);
            process.cursor = at;
            let list = self.store.list(at);
            // What has gone since the last list is told by its absence.
            for key in told.into_keys().filter(|key| !list.contains_key(key)) {
                self.event(pid, Event::Gone(key));
            }
            for (object, version) in list.into_values() {
                self.event(pid, Event::Seen(object, version));
            }
            self.event(pid, Event::Listed);
            return;
        }
        let upto = self.store.len();
        let mut cursor = process.cursor;
        while cursor < upto {
            let change = self.store.change(cursor).clone();
            cursor += 1;
            match change.object {
                Some((object, version)) => self.event(pid, Event::Seen(object, version)),
                None => self.event(pid, Event::Gone(change.key)),
            }
        }
        if let Some(process) = self.processes.get_mut(&pid) {
            process.cursor = process.cursor.max(cursor);
        }
    }

    /// The process begins a write, if it may, and will begin another.
    fn write(&mut self, pid: usize, cluster: ClusterId, epoch: u64) {
        let now = self.now;
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let (may, left) = (process.may_write(now, &cluster), process.left(now));
        let margin = process.margin;
        let end = process
            .node
            .authority()
            .map(|authority| process.when(authority.end + margin));
        let Some(hold) = process.holds.get_mut(&cluster).filter(|hold| hold.epoch == epoch) else {
            return;
        };
        if let (true, Some(left), Some(end)) = (may, left, end) {
            match hold.seen {
                // It lists before it writes.
                None => hold.seen = Some(self.targets.get(&cluster).copied().unwrap_or(0)),
                Some(expect) => {
                    hold.flying += 1;
                    let gap = self.faults && self.rng.u32(..400) == 0;
                    let left = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
                    // Who is cut off from the store is often slow to reach the target, too.
                    let slow = if process.cut > now { 2 } else { 20 };
                    let mut wait = match self.rng.u32(..slow) {
                        0 if self.faults => self.rng.u64(..left + 5 * SECOND),
                        _ => MS + self.rng.u64(..50 * MS),
                    };
                    // The server measures what is left on a clock of its own.
                    let apart = if self.faults { APART } else { 0 };
                    let mut until = now + left * 1000 / rate(&mut self.rng, apart);
                    if gap {
                        // Frozen after the check and before the bytes leave: the server counts from their arrival.
                        let frozen = self.rng.u64(..60 * SECOND);
                        process.frozen = process.frozen.max(now + frozen);
                        wait += frozen;
                        until += frozen;
                        self.coverage.fault("process frozen between check and send");
                    } else {
                        self.checker.begins(now, &cluster, epoch);
                    }
                    let timely = !gap && !self.wild_clocks;
                    self.after(
                        wait,
                        Action::Lands(Landing {
                            pid,
                            cluster: cluster.clone(),
                            epoch,
                            expect,
                            until,
                            timely,
                        }),
                    );
                    // Without an answer the process counts it as under way until it must be over.
                    let unheard = self.faults && self.rng.u32(..30) == 0;
                    if wait > left || unheard {
                        self.at(end.max(now), Action::Landed(pid, cluster.clone(), epoch, None));
                    } else {
                        let heard = Action::Landed(pid, cluster.clone(), epoch, Some(0));
                        self.after(wait + 5 * MS, heard);
                    }
                }
            }
            let processes = self.processes.iter().map(|(pid, process)| (*pid, process));
            self.checker.one_writer(now, &cluster, processes);
        }
        let wait = 300 * MS + self.rng.u64(..2 * SECOND);
        self.after(wait, Action::Write(pid, cluster, epoch));
    }

    fn lands(&mut self, landing: Landing) {
        if self.now > landing.until {
            return;
        }
        let version = self.targets.entry(landing.cluster.clone()).or_default();
        if *version != landing.expect {
            if !landing.timely {
                self.coverage.fault("late write of an old owner refused");
            }
            return;
        }
        *version += 1;
        let version = *version;
        self.checker
            .accepts(self.now, &landing.cluster, landing.epoch, landing.timely);
        if let Some(process) = self.processes.get_mut(&landing.pid)
            && let Some(hold) = process.holds.get_mut(&landing.cluster)
            && hold.epoch == landing.epoch
        {
            // What a write returns is known before the next look.
            hold.seen = Some(version);
        }
    }

    fn landed(&mut self, pid: usize, cluster: &ClusterId, epoch: u64, heard: Option<u64>) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let Some(hold) = process.holds.get_mut(cluster) else {
            return;
        };
        hold.flying = hold.flying.saturating_sub(1);
        if hold.epoch != epoch {
            return;
        }
        if heard.is_some() && hold.seen != self.targets.get(cluster).copied() {
            // Refused: it looks again.
            hold.seen = None;
        }
        if !hold.open && hold.flying == 0 {
            let epoch = hold.epoch;
            self.event(pid, Event::Drained(cluster.clone(), epoch));
        }
    }

    /// The process dies; its calls that have left go on.
    pub(crate) fn crash(&mut self, pid: usize) {
        let Some(slot) = self.end(pid) else { return };
        let begin = if self.rng.bool() {
            Begin::SamePod
        } else {
            Begin::NewPod
        };
        let wait = SECOND + self.rng.u64(..30 * SECOND);
        self.after(wait, Action::Start(slot, begin));
    }

    fn end(&mut self, pid: usize) -> Option<usize> {
        let process = self.processes.remove(&pid)?;
        self.slots[process.slot].running = None;
        if process.stopping {
            let wait = SECOND + self.rng.u64(..20 * SECOND);
            self.after(wait, Action::Start(process.slot, Begin::NewPod));
        }
        Some(process.slot)
    }

    /// What a write is for, seen from what is in the store.
    fn kind(&self, pid: usize, effect: &Effect) -> Option<WriteKind> {
        let me = self
            .processes
            .get(&pid)
            .map(|process| &self.slots[process.slot].name);
        let known = effect.writes().and_then(|key| self.store.get(&key));
        Some(match effect {
            Effect::Delete(Key::Shard(_), ..) => WriteKind::ForgetLease,
            Effect::Delete(..) => WriteKind::RemoveRecord,
            Effect::Put(Object::Shard(lease), ..) => match () {
                () if lease.over && Some(&lease.holder.shard) == me => WriteKind::GiveBackLease,
                () if lease.over => WriteKind::EndLease,
                () if lease.boot.is_empty() => WriteKind::StandIn,
                () if lease.renewals == 0 => WriteKind::TakeLease,
                () => WriteKind::RenewLease,
            },
            Effect::Put(Object::Election(election), ..) => match (&election.holder, known) {
                (None, _) => WriteKind::GiveUpElection,
                (holder, Some((Object::Election(known), _))) if known.holder == *holder => {
                    WriteKind::RenewElection
                }
                _ => WriteKind::Elect,
            },
            Effect::Put(Object::Record(record), expect, _) => {
                let before = match known {
                    Some((Object::Record(before), _)) => before,
                    _ => return Some(WriteKind::CreateRecord),
                };
                let mine = before
                    .owner
                    .as_ref()
                    .is_some_and(|owner| Some(&owner.shard) == me);
                let to_me = record
                    .owner
                    .as_ref()
                    .is_some_and(|owner| Some(&owner.shard) == me);
                match (&record.owner, &record.handover) {
                    _ if expect.is_none() => WriteKind::CreateRecord,
                    (_, Some(handover)) if handover.warm => WriteKind::SayWarm,
                    (_, Some(_)) => WriteKind::AskToRelease,
                    (None, _) => WriteKind::Free,
                    _ if record.epoch == before.epoch => WriteKind::CallOff,
                    _ if mine && to_me => WriteKind::Adopt,
                    _ if mine => WriteKind::Give,
                    _ => WriteKind::Assign,
                }
            }
            _ => return None,
        })
    }
}

/// How many thousandths of true time a clock shows that runs up to `spread` of them apart. Every other one runs as far apart as that.
fn rate(rng: &mut Rng, spread: u64) -> u64 {
    match rng.u32(..4) {
        0 => 1000 - spread,
        1 => 1000 + spread,
        _ => 1000 - spread + rng.u64(..=2 * spread),
    }
}

fn stored(key: Key, number: u64, version: Option<Version>) -> Event {
    let outcome = match version {
        Some(version) => Outcome::Done(version),
        None => Outcome::Conflict,
    };
    Event::Stored(key, number, outcome)
}
