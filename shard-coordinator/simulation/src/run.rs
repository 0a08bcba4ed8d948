//! One run: faults for a while, then peace, and a look at what has become of it.

use std::collections::BTreeMap;

use argosy_shard_coordinator::node::{Event, Wanted};
use argosy_shard_coordinator::object::{ClusterId, Key, Object, Pin, RecordState};

use crate::check::{AT_REST, Broken, OWNED};
use crate::coverage::Coverage;
use crate::process::Micros;
use crate::world::{Action, Begin, World};

const SECOND: Micros = 1_000_000;
/// Peace after the faults, in which everything must come to rest.
const CALM: Micros = 150 * SECOND;
/// Then nothing may change for so long.
const REST: Micros = 30 * SECOND;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of shards.
    pub shards: usize,
    /// Number of clusters at the beginning.
    pub clusters: usize,
    /// Seconds of faults.
    pub chaos: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            shards: 3,
            clusters: 4,
            chaos: 180,
        }
    }
}

/// What came of it.
pub struct Outcome {
    /// The first invariant that broke.
    pub broken: Option<Broken>,
    /// What happened on the way.
    pub coverage: Coverage,
}

/// Runs a seed. The same seed and plan give the same run.
pub fn run(seed: u64, plan: Plan) -> Outcome {
    let mut world = World::new(seed, plan.shards, plan.clusters, true);
    advance(&mut world, plan.chaos * SECOND);
    calm(&mut world);
    advance(&mut world, CALM);
    owned(&mut world);
    let before = records(&world);
    let writes = world.store.writes;
    advance(&mut world, REST);
    owned(&mut world);
    at_rest(&mut world, &before, writes);
    Outcome {
        broken: world.checker.broken,
        coverage: world.coverage,
    }
}

/// How a shard is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its process is killed.
    Killed,
    /// Its process is told to end.
    Ended,
    /// A person wants it to own nothing; its process goes on.
    Drained,
}

/// The figures of one shard's loss.
#[derive(Clone, Debug)]
pub struct Failover {
    /// Clusters that the lost shard owned.
    pub owned: usize,
    /// Clusters that have another owner afterwards.
    pub moved: usize,
    /// The heaviest load as a multiple of the mean, afterwards.
    pub over_mean: f64,
    /// The same as a multiple of what no division can be below: the mean, or the heaviest cluster if that is more.
    pub over_least: f64,
    /// For each of the lost clusters, seconds from the loss, or from the word to end, until another owned it.
    pub taken: Vec<f64>,
    /// For each of them, seconds in which nobody could begin a write: from the loss, or, in a hand-over, from when its
    /// owner let go.
    pub unowned: Vec<f64>,
    /// Writes to the store a second and shard, at rest.
    pub writes_at_rest: f64,
}

/// Costs of clusters as fleets have them: log-normal with a standard deviation of 1, around 1000.
pub fn log_normal(seed: u64, count: usize) -> Vec<u64> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut normal = || {
        let (u, v) = (rng.f64().max(1e-12), rng.f64());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    };
    (0..count).map(|_| (normal().exp() * 1000.0) as u64 + 1).collect()
}

/// Loses one of `shards` shards without any other fault. Targets answer every write within 51 ms, and a cluster is listed
/// within 3.1 s.
pub fn failover(seed: u64, shards: usize, costs: &[u64], loss: Loss) -> Failover {
    let mut world = World::new(seed, shards, 0, false);
    world.wanted = costs
        .iter()
        .enumerate()
        .map(|(at, cost)| {
            let wanted = Wanted {
                pin: None,
                cost: *cost,
            };
            (ClusterId::new(&format!("c{at}")), wanted)
        })
        .collect();
    advance(&mut world, 120 * SECOND);
    let writes = world.store.writes;
    advance(&mut world, 60 * SECOND);
    let writes_at_rest = (world.store.writes - writes) as f64 / 60.0 / shards as f64;
    let before = owners(&world);
    let lost = world.rng.usize(..shards);
    let pid = world.slots[lost].running.unwrap_or_default();
    let name = world.processes[&pid].node.own().map(|own| own.shard.clone());
    let at = world.now;
    match loss {
        Loss::Killed => drop(world.processes.remove(&pid)),
        Loss::Ended => world.event(pid, Event::Stop),
        Loss::Drained => world.drain(pid),
    }
    advance(&mut world, 120 * SECOND);
    let after = owners(&world);
    let of_lost: Vec<&ClusterId> = before
        .iter()
        .filter(|(_, owner)| Some(*owner) == name.as_ref())
        .map(|(cluster, _)| cluster)
        .collect();
    let seconds = |from: Micros, until: Micros| (until - from) as f64 / SECOND as f64;
    let (mut taken, mut unowned) = (Vec::new(), Vec::new());
    for cluster in &of_lost {
        let next = world
            .owned
            .iter()
            .find(|(when, owned, shard)| *when > at && owned == *cluster && Some(shard) != name.as_ref());
        if let Some((until, ..)) = next {
            let drained = world
                .drained
                .iter()
                .find(|(when, drained)| (at..=*until).contains(when) && drained == *cluster);
            taken.push(seconds(at, *until));
            unowned.push(seconds(drained.map_or(at, |(when, _)| *when), *until));
        }
    }
    let mut loads: BTreeMap<_, u64> = BTreeMap::new();
    for process in world.processes.values() {
        if let Some(own) = process.node.own().filter(|own| Some(&own.shard) != name.as_ref()) {
            loads.entry(own.shard.clone()).or_default();
        }
    }
    for (cluster, owner) in &after {
        *loads.entry(owner.clone()).or_default() += world.wanted[cluster].cost;
    }
    let mean = loads.values().sum::<u64>() as f64 / loads.len().max(1) as f64;
    let heaviest = costs.iter().copied().max().unwrap_or(0) as f64;
    let most = loads.values().max().copied().unwrap_or(0) as f64;
    Failover {
        owned: of_lost.len(),
        moved: before
            .iter()
            .filter(|(cluster, owner)| after.get(*cluster) != Some(*owner))
            .count(),
        over_mean: most / mean,
        over_least: most / mean.max(heaviest),
        taken,
        unowned,
        writes_at_rest,
    }
}

fn advance(world: &mut World, by: Micros) {
    let end = world.now + by;
    while world.checker.broken.is_none() && world.step(end) {}
}

/// Nothing goes wrong from now on, and every place has its process.
fn calm(world: &mut World) {
    world.faults = false;
    world.outage = 0;
    for process in world.processes.values_mut() {
        process.frozen = process.frozen.min(world.now);
        process.cut = 0;
        process.lag = 0;
    }
    let pids: Vec<usize> = world.processes.keys().copied().collect();
    for pid in pids {
        // After the last of what may be on its way.
        let wanted = world.wanted.clone();
        world.after(60 * SECOND, Action::Answer(pid, Event::Clusters(wanted)));
    }
    for slot in 0..world.slots.len() {
        world.after(SECOND, Action::Start(slot, Begin::NewPod));
    }
    // A shard that a person has emptied is taken into service again.
    let drained: Vec<_> = world
        .store
        .objects()
        .filter_map(|object| match object {
            Object::Shard(lease) if lease.drain => Some(lease.clone()),
            _ => None,
        })
        .collect();
    for mut lease in drained {
        lease.drain = false;
        lease.revision += 1;
        let key = Key::Shard(lease.holder.shard.clone());
        let version = world.store.get(&key).map(|(_, version)| version.clone());
        world.store.put(Object::Shard(lease), version.as_ref());
    }
}

fn owners(world: &World) -> BTreeMap<ClusterId, argosy_shard_coordinator::object::ShardId> {
    world
        .store
        .objects()
        .filter_map(|object| match object {
            Object::Record(record) => Some((record.cluster.clone(), record.owner.as_ref()?.shard.clone())),
            _ => None,
        })
        .collect()
}

/// Every wanted cluster is held by exactly one process, which may write.
fn owned(world: &mut World) {
    for process in world.processes.values() {
        if process.node.authority().is_none() {
            let detail = format!("a process has no lease: {:?}", process.node);
            world.checker.broke(world.now, OWNED, detail);
            return;
        }
    }
    let clusters: Vec<ClusterId> = world.wanted.keys().cloned().collect();
    for cluster in clusters {
        let writers = world
            .processes
            .values()
            .filter(|process| process.may_write(world.now, &cluster))
            .count();
        if writers != 1 {
            let record = world.store.get(&Key::Cluster(cluster.clone()));
            let held: Vec<String> = world
                .processes
                .values()
                .map(|process| {
                    let places: Vec<_> = process.node.places().collect();
                    format!(
                        "{:?} holds {places:?}",
                        process.node.own().map(ToString::to_string)
                    )
                })
                .collect();
            let detail = format!(
                "{cluster} has {writers} owners; its record: {record:?}; {}",
                held.join("; ")
            );
            world.checker.broke(world.now, OWNED, detail);
        }
    }
}

fn records(world: &World) -> Vec<Object> {
    world
        .store
        .objects()
        .filter(|object| matches!(object, Object::Record(_)))
        .cloned()
        .collect()
}

/// No record has changed, none is in between, and the store was written to seldom enough.
fn at_rest(world: &mut World, before: &[Object], writes: u64) {
    let after = records(world);
    let restless = after.iter().any(|object| match object {
        Object::Record(record) => {
            record.state() != RecordState::Assigned || !world.wanted.contains_key(&record.cluster)
        }
        _ => false,
    });
    let rate = (world.store.writes - writes) as f64 / (REST / SECOND) as f64 / world.slots.len() as f64;
    if after != before || restless || rate > 1.0 {
        let detail = format!("{rate:.2} writes a second and shard; before {before:?}; after {after:?}");
        world.checker.broke(world.now, AT_REST, detail);
    }
}

impl World {
    /// One more thing goes wrong.
    pub(crate) fn fault(&mut self) {
        if !self.faults {
            return;
        }
        let wait = SECOND + self.rng.u64(..14 * SECOND);
        self.after(wait, Action::Fault);
        let pids: Vec<usize> = self.processes.keys().copied().collect();
        if pids.is_empty() {
            return;
        }
        let pid = pids[self.rng.usize(..pids.len())];
        let long = SECOND + self.rng.u64(..60 * SECOND);
        let until = self.now + long;
        let past = self.rng.usize(..=self.store.len());
        let kind = self.rng.u32(..13);
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        match kind {
            0 => self.crash(pid),
            1 | 2 => {
                process.frozen = until;
                self.coverage.fault("process frozen");
            }
            3 | 4 => {
                process.cut = until;
                self.coverage.fault("cut off from the store");
            }
            5 => {
                self.outage = self.now + long / 2;
                self.coverage.fault("store unreachable for all");
            }
            6 => {
                process.lag = until;
                self.coverage.fault("watch lags");
            }
            7 if past < process.cursor => {
                process.cursor = past;
                self.coverage.fault("watch goes back in time");
            }
            7 => {
                process.cursor = past;
                self.coverage.fault("watch loses changes");
            }
            8 => {
                process.listed = false;
                let known = self.store.list(self.store.len());
                let then = self.store.list(past);
                // What the past did not have yet is told as gone.
                for key in known.into_keys().filter(|key| !then.contains_key(key)) {
                    self.event(pid, Event::Gone(key));
                }
                self.coverage.fault("list of the past");
            }
            9 => {
                process.stopping = true;
                self.event(pid, Event::Stop);
                self.coverage.fault("process told to end");
            }
            // How long a lease is in force stands in it alone.
            10 if self.uneven.is_some() => {}
            10 if self.rng.u32(..4) == 0 => {
                let keys: Vec<Key> = self.store.objects().map(Object::key).collect();
                for key in keys {
                    self.store.delete(&key, None);
                }
                self.checker.wiped = true;
                self.coverage.fault("all leases deleted by a person");
            }
            10 => {
                if let Some(own) = process.node.own() {
                    let key = Key::Shard(own.shard.clone());
                    self.store.delete(&key, None);
                    self.coverage.fault("lease deleted by a person");
                }
            }
            11 => self.person(pid),
            _ => self.clusters(),
        }
    }

    /// A person drains a shard or pins a cluster, by an ordinary write.
    fn person(&mut self, pid: usize) {
        let own = self
            .processes
            .get(&pid)
            .and_then(|process| process.node.own())
            .cloned();
        let Some(own) = own else { return };
        if self.rng.bool() {
            self.drain(pid);
            return;
        }
        let records: Vec<_> = records(self);
        if records.is_empty() {
            return;
        }
        let at = self.rng.usize(..records.len());
        if let Object::Record(record) = &records[at] {
            let mut record = record.clone();
            let key = Key::Cluster(record.cluster.clone());
            record.pin = self.rng.bool().then_some(Pin::Shard(own.shard));
            record.revision += 1;
            let version = self.store.get(&key).map(|(_, version)| version.clone());
            self.store.put(Object::Record(record), version.as_ref());
            self.coverage.fault("cluster pinned by a person");
        }
    }

    /// A person writes into the lease of a shard that it should own nothing, or that it may again.
    fn drain(&mut self, pid: usize) {
        let own = self.processes.get(&pid).and_then(|process| process.node.own());
        let Some(key) = own.map(|own| Key::Shard(own.shard.clone())) else {
            return;
        };
        if let Some((Object::Shard(mut lease), version)) = self.store.get(&key).cloned()
            && !lease.over
        {
            lease.drain = !lease.drain;
            lease.revision += 1;
            self.store.put(Object::Shard(lease), Some(&version));
            self.coverage.fault("shard drained by a person");
        }
    }

    /// A cluster comes or goes; every process hears of it, sooner or later, or not before something else has happened.
    fn clusters(&mut self) {
        let number = self.rng.u32(..8);
        let cluster = ClusterId::new(&format!("c{number}"));
        if self.wanted.remove(&cluster).is_none() {
            let wanted = Wanted {
                pin: None,
                cost: 1 + self.rng.u64(..1000),
            };
            self.wanted.insert(cluster, wanted);
        }
        self.coverage.fault("cluster added or removed");
        let pids: Vec<usize> = self.processes.keys().copied().collect();
        for pid in pids {
            let wanted = self.wanted.clone();
            let wait = match self.rng.u32(..3) {
                0 => self.rng.u64(..60 * SECOND),
                _ => self.rng.u64(..SECOND),
            };
            self.after(wait, Action::Answer(pid, Event::Clusters(wanted)));
        }
    }
}
