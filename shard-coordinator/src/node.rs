//! One process's part of the protocol: [`Node::step`] takes what happened and the time, and says what to do.
//!
//! After every event the whole situation is settled again, stage by stage: the own lease ([`lease`]), what is owned,
//! handed over or taken ([`hold`]), and, in the one shard that coordinates, what others should do ([`coordinate`]). A
//! stage looks at the state alone, so events may be lost, repeated or late: what matters is in the store and comes again.

mod coordinate;
mod hold;
mod lease;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::object::{
    ClusterId, Election, Incarnation, Key, Object, Pin, REVISIONS, Record, ShardId, ShardLease, Version,
};
use crate::timing::{Time, Timing};
pub use views::{Live, Place};

/// Who this process is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Its shard.
    pub shard: ShardId,
    /// Different for every process that ever bears the shard's name.
    pub boot: Arc<str>,
    /// The number by which people pin clusters to it.
    pub ordinal: Option<u32>,
    /// No earlier process of this shard can be alive (the name is the uid of the pod): its clusters are taken over at
    /// once.
    pub alone: bool,
}

/// What the control plane says about a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// Where its Secret wants it.
    pub pin: Option<Pin>,
    /// What it costs, as long as no owner has measured.
    pub cost: u64,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// The watch of the store told this. It may be old, and repeated.
    Seen(Object, Version),
    /// The watch told that this object is gone. That may be old too.
    Gone(Key),
    /// The watch has told everything that exists.
    Listed,
    /// The write of this number was answered.
    Stored(Key, u64, Outcome),
    /// A read was answered, by the store itself and not by a cache.
    Fetched(Key, Option<(Object, Version)>),
    /// A read failed.
    Unread(Key),
    /// These clusters exist.
    Clusters(BTreeMap<ClusterId, Wanted>),
    /// What the owned clusters cost.
    Costs(BTreeMap<ClusterId, u64>),
    /// These of the owned clusters cannot be watched now, and are known as of then ([`ShardLease::unseen`]).
    Unseen(BTreeMap<ClusterId, Option<i64>>),
    /// A cluster that was to be warmed is listed and watched.
    Warmed(ClusterId),
    /// No write of this hold is under way any more: each was answered, or its time and the margin have passed.
    Drained(ClusterId, u64),
    /// The process is to end.
    Stop,
}

/// The answer to a write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Done; the object has this version.
    Done(Version),
    /// Not done: the object has another version, exists already, or does not exist.
    Conflict,
    /// It may be done or not.
    Unknown,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Write this object if the store has that version of it; without a version, if it does not exist. The number comes
    /// back with the answer.
    Put(Object, Option<Version>, u64),
    /// Delete this object if the store has that version of it.
    Delete(Key, Version, u64),
    /// Read this object from the store itself.
    Read(Key),
    /// Tell everything that exists anew, and [`Event::Listed`]: what is known is to be found out.
    List,
    /// The cluster is ours: writes may begin, as long as the lease lasts.
    Own(ClusterId, u64),
    /// List and watch the cluster, which is going to be ours. Say [`Event::Warmed`].
    Warm(ClusterId),
    /// Begin no more writes. When none is under way, say [`Event::Drained`].
    Drain(ClusterId, u64),
    /// The cluster is not ours (any more): stop everything about it.
    Disown(ClusterId),
    /// Everything is handed over; the process may end.
    Leave,
}

/// Until when writes are covered by the lease, on the process's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Authority {
    /// Writes begin before.
    pub start: Time,
    /// Writes are over by then.
    pub end: Time,
}

/// One process's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    timing: Timing,
    identity: Identity,
    lease: Lease,
    /// The highest term that this process has held its lease under.
    last_term: u64,
    /// What the process before this one in its pod has sent may be on the wire until then.
    wire: Time,
    shards: BTreeMap<ShardId, Seen<ShardLease>>,
    election: Option<Seen<Election>>,
    records: BTreeMap<ClusterId, Seen<Record>>,
    /// The first list is complete.
    listed: bool,
    /// What the list under way has told, and since when it is.
    listing: Option<(BTreeSet<Key>, Time)>,
    /// When the last list was complete.
    relisted: Time,
    /// The newest revision of the own lease that the watch has told.
    heard: u64,
    /// Since when the own lease is newer than that.
    behind: Option<Time>,
    /// The highest revision of the coordinator's lease that was ever seen, or that anything which was seen has been made under.
    elections: u64,
    /// The store itself was asked for that lease, since everything was listed.
    counted: bool,
    wanted: Option<BTreeMap<ClusterId, Wanted>>,
    costs: BTreeMap<ClusterId, u64>,
    unseen: BTreeMap<ClusterId, Option<i64>>,
    /// Writes so far.
    numbers: u64,
    pending: BTreeMap<Key, Pending>,
    /// Reads under way, when they left, and the version that was known then.
    reading: BTreeMap<Key, (Time, Option<Version>)>,
    /// A renewal over this version may still arrive, as it left then.
    doubt: Option<(Version, Time)>,
    /// Objects that a call failed for are left alone until then.
    rest: BTreeMap<Key, Time>,
    held: BTreeMap<ClusterId, Held>,
    /// The last epoch that was given up under this incarnation: older views of the record may still come.
    released: BTreeMap<ClusterId, u64>,
    /// Records that are gone, for as long as that matters.
    gone: BTreeMap<ClusterId, Gone>,
    /// Owners that a later process of their pod has followed at once, and since when that is known: what a dead process sent
    /// may still be on the wire.
    followed: BTreeMap<Incarnation, Time>,
    /// Clusters being listed for a hand-over, and whether they are.
    warming: BTreeMap<ClusterId, bool>,
    lead: Option<Lead>,
    /// Since when the process is to end.
    stop: Option<Time>,
    /// The lease is being given back: whatever is still given to this process is not taken.
    ending: bool,
    left: bool,
}

/// A record that there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Gone {
    /// The higher one of its counts.
    count: u64,
    /// Since when it is known to be gone.
    since: Time,
    /// It named an owner, who may not have noticed.
    owned: bool,
}

impl Gone {
    /// Another record may follow: it is newer in both counts, and whoever acted upon this one has noticed or has lost its
    /// lease.
    fn is_past(&self, now: Time, count: u64, wait: Duration) -> bool {
        self.count < count && (!self.owned || now - self.since >= wait)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Lease {
    /// Not held, and not to be taken before.
    Out { from: Time },
    /// Held; `sent` is when the last successful renewal left.
    Held {
        incarnation: Incarnation,
        sent: Time,
        next: Time,
    },
    /// Given back for good.
    Given,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Seen<T> {
    object: T,
    version: Version,
    /// When this version was first seen.
    since: Time,
    /// When the store itself was asked, by a read or a write, that has told so. A watch may be behind, and even go back.
    asked: Option<Time>,
}

impl<T> Seen<T> {
    fn new(object: T, version: Version, since: Time, asked: Option<Time>) -> Self {
        Seen {
            object,
            version,
            since,
            asked,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pending {
    number: u64,
    /// `None` for a deletion.
    object: Option<Object>,
    /// The version it replaces.
    expect: Option<Version>,
    /// When the first and the last attempt left.
    first: Time,
    last: Time,
    attempts: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    epoch: u64,
    phase: Phase,
    /// Since when the owner is asked to let go.
    asked: Option<Time>,
    /// The version of the record over which it was given away last: as long as the record has it, that may still be done.
    given: Option<Version>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Owned,
    Draining,
    Drained,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lead {
    since: Time,
    sent: Time,
}

type Out = Vec<Effect>;

impl Node {
    /// A process that has just started and knows nothing.
    pub fn new(identity: Identity, timing: Timing) -> Self {
        Node {
            timing,
            identity,
            lease: Lease::Out { from: Time::ZERO },
            last_term: 0,
            wire: Time::ZERO,
            shards: BTreeMap::new(),
            election: None,
            records: BTreeMap::new(),
            listed: false,
            listing: None,
            relisted: Time::ZERO,
            heard: 0,
            behind: None,
            elections: 0,
            counted: false,
            wanted: None,
            costs: BTreeMap::new(),
            unseen: BTreeMap::new(),
            numbers: 0,
            pending: BTreeMap::new(),
            reading: BTreeMap::new(),
            doubt: None,
            rest: BTreeMap::new(),
            held: BTreeMap::new(),
            released: BTreeMap::new(),
            gone: BTreeMap::new(),
            followed: BTreeMap::new(),
            warming: BTreeMap::new(),
            lead: None,
            stop: None,
            ending: false,
            left: false,
        }
    }

    /// Takes in what happened at `now` and says what to do. Calls come in the order of time.
    pub fn step(&mut self, now: Time, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        self.take_in(now, event, &mut out);
        if self.left {
            return out;
        }
        self.list_anew(now, &mut out);
        self.settle_lease(now, &mut out);
        self.settle_holds(now, &mut out);
        self.coordinate(now, &mut out);
        self.settle_end(now, &mut out);
        out
    }

    /// Until when writes are covered; nothing without a lease.
    pub fn authority(&self) -> Option<Authority> {
        match &self.lease {
            Lease::Held { sent, .. } => Some(Authority {
                start: *sent + self.timing.write,
                end: *sent + self.timing.duration,
            }),
            Lease::Out { .. } | Lease::Given => None,
        }
    }

    fn take_in(&mut self, now: Time, event: Event, out: &mut Out) {
        match event {
            Event::Tick => {}
            Event::Seen(object, version) => {
                let key = object.key();
                if self.is_own(&key) {
                    self.heard = self.heard.max(object.revision());
                }
                if let Some((told, _)) = &mut self.listing {
                    told.insert(key.clone());
                }
                let known = self.version(&key);
                let told = version.clone();
                let news = self.seen(now, object, version, None);
                // Old news, or what is known has been deleted without a word and made anew: the store knows.
                if !news && known != Some(told) && !self.is_own(&key) && self.idle(now, &key) {
                    self.read(now, key, out);
                }
            }
            Event::Gone(key) => self.forget(now, &key),
            Event::Listed => self.complete(now),
            Event::Stored(key, number, outcome) => self.stored(now, key, number, outcome, out),
            Event::Fetched(key, found) => self.fetched(now, key, found, out),
            Event::Unread(key) => {
                self.reading.remove(&key);
                self.rest.insert(key, now + self.pause());
            }
            Event::Clusters(wanted) => self.wanted = Some(wanted),
            Event::Costs(costs) => self.costs = costs,
            Event::Unseen(unseen) => self.unseen = unseen,
            Event::Warmed(cluster) => {
                if let Some(ready) = self.warming.get_mut(&cluster) {
                    *ready = true;
                }
            }
            Event::Drained(cluster, epoch) => {
                if let Some(held) = self.held.get_mut(&cluster)
                    && held.epoch == epoch
                    && held.phase == Phase::Draining
                {
                    held.phase = Phase::Drained;
                }
            }
            Event::Stop => {
                self.stop.get_or_insert(now);
            }
        }
    }

    /// Lists everything once in a while, and when the watch does not tell what this process itself has written: a watch that has
    /// fallen silent tells nothing of clusters that are given to it either. A list that is under way is silent for as long as it
    /// takes, and to begin anew would make it longer. What the list does not tell has gone.
    fn list_anew(&mut self, now: Time, out: &mut Out) {
        let since = self.listing.as_ref().map_or(self.relisted, |(_, since)| *since);
        let own = self.shards.get(&self.identity.shard);
        self.behind = own
            .filter(|seen| seen.object.revision > self.heard)
            .map(|_| self.behind.unwrap_or(now).max(since));
        let silent = self
            .behind
            .is_some_and(|behind| now - behind >= self.timing.write);
        let silent = silent && self.listing.is_none();
        if self.listed && (silent || now - since >= self.timing.relist) {
            self.listing = Some((BTreeSet::new(), now));
            out.push(Effect::List);
        }
    }

    fn complete(&mut self, now: Time) {
        self.listed = true;
        self.relisted = now;
        let Some((told, _)) = self.listing.take() else {
            return;
        };
        let shards = self.shards.keys().cloned().map(Key::Shard);
        let records = self.records.keys().cloned().map(Key::Cluster);
        let known: Vec<Key> = shards.chain(records).chain([Key::Election]).collect();
        for key in known.iter().filter(|key| !told.contains(key)) {
            self.forget(now, key);
        }
    }

    /// A view counts if it is newer than what is known. True if it is.
    fn seen(&mut self, now: Time, object: Object, version: Version, asked: Option<Time>) -> bool {
        let known = match object.key() {
            Key::Shard(id) => self.shards.get(&id).map(|seen| seen.object.revision),
            Key::Election => self.election.as_ref().map(|seen| seen.object.revision),
            Key::Cluster(id) => self.records.get(&id).map(|seen| seen.object.revision),
        };
        let news = known.is_none_or(|known| known < object.revision());
        if news {
            self.know(now, object, version, asked);
        }
        news
    }

    fn know(&mut self, now: Time, object: Object, version: Version, asked: Option<Time>) {
        let seen = |before: Option<(&Version, Time)>| match before {
            Some((before, since)) if *before == version => since,
            _ => now,
        };
        self.elections = self.elections.max(object.made_under());
        fn place<T>(seen: Option<&Seen<T>>) -> Option<(&Version, Time)> {
            seen.map(|seen| (&seen.version, seen.since))
        }
        match object {
            Object::Shard(lease) => {
                self.timing.heard_of(lease.expiry());
                let id = lease.holder.shard.clone();
                let since = seen(place(self.shards.get(&id)));
                self.shards.insert(id, Seen::new(lease, version, since, asked));
            }
            Object::Election(election) => {
                let since = seen(place(self.election.as_ref()));
                self.election = Some(Seen::new(election, version, since, asked));
            }
            Object::Record(record) => {
                let id = record.cluster.clone();
                let since = seen(place(self.records.get(&id)));
                self.records.insert(id, Seen::new(record, version, since, asked));
            }
        }
    }

    fn forget(&mut self, now: Time, key: &Key) {
        match key {
            Key::Shard(id) => drop(self.shards.remove(id)),
            Key::Election => self.election = None,
            Key::Cluster(id) => {
                if let Some(Seen { object, .. }) = self.records.remove(id) {
                    let gone = Gone {
                        count: object.revision.max(object.epoch),
                        since: now,
                        owned: object.owner.is_some(),
                    };
                    self.gone.insert(id.clone(), gone);
                }
            }
        }
    }

    /// Where the counts of a record or a shard's lease begin that is made now: above those of every one that was made under
    /// an earlier write of the coordinator's lease. So whoever was deleted does not come again under the same name.
    fn first_count(&self) -> u64 {
        self.elections * REVISIONS
    }

    fn stored(&mut self, now: Time, key: Key, number: u64, outcome: Outcome, out: &mut Out) {
        let own = self.is_own(&key);
        // An answer to a write that has been given up says nothing about the one that is under way now.
        let Some(pending) = self
            .pending
            .get_mut(&key)
            .filter(|pending| pending.number == number)
        else {
            return;
        };
        pending.attempts = pending.attempts.saturating_sub(1);
        match outcome {
            Outcome::Done(version) => {
                let Some(pending) = self.pending.remove(&key) else {
                    return;
                };
                // The watch may have told already what others made of it since.
                match pending.object {
                    Some(object) => {
                        self.seen(now, object.clone(), version, Some(pending.first));
                        self.written(pending.first, &object, out);
                    }
                    None if self.version(&key) == pending.expect => self.forget(now, &key),
                    None => {}
                }
            }
            // Another attempt at the same write is under way, or has made it: the answer to a read tells.
            Outcome::Conflict | Outcome::Unknown if own => self.read(now, key, out),
            Outcome::Conflict | Outcome::Unknown => {
                self.pending.remove(&key);
                self.read(now, key, out);
            }
        }
    }

    fn fetched(&mut self, now: Time, key: Key, found: Option<(Object, Version)>, out: &mut Out) {
        let (asked, before) = self.reading.remove(&key).unwrap_or((now, None));
        let known = self.version(&key);
        if known.is_some() && known != before && known != found.as_ref().map(|(_, version)| version.clone()) {
            // Something else was heard while the answer was on its way. Which of the two is newer, the store knows.
            self.read(now, key, out);
            return;
        }
        self.counted |= key == Key::Election;
        match found {
            Some((object, version)) => self.know(now, object, version, Some(asked)),
            None => {
                self.forget(now, &key);
                if let Key::Cluster(cluster) = &key
                    && self.held.remove(cluster).is_some()
                {
                    out.push(Effect::Disown(cluster.clone()));
                }
            }
        }
        if self.is_own(&key) {
            self.read_own(now, out);
        }
    }

    /// What follows from a write that is known to have been done; it left at `sent`.
    fn written(&mut self, sent: Time, object: &Object, out: &mut Out) {
        match object {
            Object::Shard(lease) if lease.holder.shard == self.identity.shard => {
                self.own_written(sent, &lease.clone(), out);
            }
            Object::Election(election) => self.election_written(sent, &election.clone()),
            Object::Shard(_) | Object::Record(_) => {}
        }
    }

    fn is_own(&self, key: &Key) -> bool {
        *key == Key::Shard(self.identity.shard.clone())
    }

    /// Nothing is under way for this object.
    fn idle(&self, now: Time, key: &Key) -> bool {
        !self.pending.contains_key(key)
            && !self.reading.contains_key(key)
            && self.rest.get(key).is_none_or(|until| *until <= now)
    }

    fn put(&mut self, now: Time, object: Object, out: &mut Out) {
        let key = object.key();
        if !self.idle(now, &key) {
            return;
        }
        let expect = self.version(&key);
        let first = match &self.doubt {
            Some((version, first)) if self.is_own(&key) && Some(version) == expect.as_ref() => *first,
            _ => now,
        };
        self.numbers += 1;
        let pending = Pending {
            number: self.numbers,
            object: Some(object.clone()),
            expect: expect.clone(),
            first,
            last: now,
            attempts: 1,
        };
        self.pending.insert(key, pending);
        out.push(Effect::Put(object, expect, self.numbers));
    }

    fn delete(&mut self, now: Time, key: Key, version: Version, out: &mut Out) {
        if !self.idle(now, &key) {
            return;
        }
        self.numbers += 1;
        let pending = Pending {
            number: self.numbers,
            object: None,
            expect: Some(version.clone()),
            first: now,
            last: now,
            attempts: 1,
        };
        self.pending.insert(key.clone(), pending);
        out.push(Effect::Delete(key, version, self.numbers));
    }

    fn read(&mut self, now: Time, key: Key, out: &mut Out) {
        if !self.reading.contains_key(&key) {
            self.reading.insert(key.clone(), (now, self.version(&key)));
            out.push(Effect::Read(key));
        }
    }

    /// The known version of an object.
    fn version(&self, key: &Key) -> Option<Version> {
        match key {
            Key::Shard(id) => self.shards.get(id).map(|seen| seen.version.clone()),
            Key::Election => self.election.as_ref().map(|seen| seen.version.clone()),
            Key::Cluster(id) => self.records.get(id).map(|seen| seen.version.clone()),
        }
    }

    /// After a failed call an object is left alone for so long.
    fn pause(&self) -> Time {
        self.timing.renew / 5
    }

    fn incarnation(&self) -> Option<&Incarnation> {
        match &self.lease {
            Lease::Held { incarnation, .. } => Some(incarnation),
            Lease::Out { .. } | Lease::Given => None,
        }
    }
}
