//! One run: a start, faults, peace, rest, a target that is away, and the end.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use argosy_controller::clusters::Cluster;
use argosy_object::{Value, meta};
use argosy_simulation::fault::{Fault, Rule};

use crate::check::{Broken, application, call};
use crate::witness::Strike;
use crate::world::{CONTROL, NAMESPACE, State, World, address, app_of, url};

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Controllers. One alone holds no leases.
    pub pods: usize,
    /// Target clusters.
    pub targets: usize,
    /// Seconds of faults, in virtual time.
    pub chaos: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            pods: 3,
            targets: 2,
            chaos: 180,
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first invariant that did not hold.
    pub broken: Option<Broken>,
    /// How often which kind of write met which fate, and how often what else went wrong.
    pub met: BTreeMap<(&'static str, &'static str), u64>,
    /// Virtual time.
    pub lasted: Duration,
    /// Of all writes that landed, where and when: the same for the same run.
    pub trace: u64,
}

/// After the last fault everything is as Git says within so long.
const SETTLED: Duration = Duration::from_secs(300);
/// A cluster has an owner that lives within so long, whatever became of the one before.
const OWNED: Duration = Duration::from_secs(40);
/// What a watch has left out is known within so long: when it ends its kind is looked at, and it may be stale for a while before
/// that is believed.
const LOOKED: Duration = Duration::from_secs(540);
/// Nothing happens for so long, and writes are counted.
const REST: Duration = Duration::from_secs(40);
/// The Application of a target that is away is Unknown within so long.
const UNKNOWN: Duration = Duration::from_secs(75);
/// The time between two faults, in milliseconds.
const PAUSE: std::ops::Range<u64> = 500..7_000;

/// Runs a seed.
///
/// # Errors
/// When the world cannot be made.
pub fn run(seed: u64, plan: Plan) -> Result<Outcome> {
    let mut world = World::new(seed, plan.pods, plan.targets)?;
    if plan.chaos > 0 {
        chaos(&mut world, Duration::from_secs(plan.chaos))?;
    }
    for stage in [settle, rest, lose_a_target, settle, compare] {
        if world.checker.lock().broken.is_none() {
            stage(&mut world)?;
        }
    }
    Ok(outcome(&world))
}

fn outcome(world: &World) -> Outcome {
    let checker = world.checker.lock();
    Outcome {
        broken: checker.broken.clone(),
        met: world.dice.lock().met.clone(),
        lasted: world.now,
        trace: checker.trace,
    }
}

/// A commit is synced, and one of the writes that this takes is struck: the end is the same. Nothing if there are not so many.
///
/// # Errors
/// When the world cannot be made.
pub fn strike(seed: u64, strike: Strike) -> Result<Option<Outcome>> {
    let plan = Plan::default();
    let mut world = World::new(seed, plan.pods, 1)?;
    settle(&mut world)?;
    world.dice.lock().strike = Some(strike);
    world.git.commit();
    for stage in [settle, compare] {
        if world.checker.lock().broken.is_none() {
            stage(&mut world)?;
        }
    }
    let struck = world.dice.lock().strike.is_none();
    Ok(struck.then(|| outcome(&world)))
}

/// A shard starts in the middle of a sync, and its watch of Applications falls silent. When others have been synced since, it takes
/// the cluster over.
///
/// # Errors
/// When the world cannot be made.
pub fn taken_over_by_one_who_is_behind(seed: u64) -> Result<Outcome> {
    let mut world = World::new(seed, 2, 1)?;
    // The first shard keeps it for as long as it lives.
    let (secret, pin) = (
        format!("/api/v1/namespaces/{NAMESPACE}/secrets/cluster-0"),
        serde_json::json!({"data": {"shard": "MA=="}}),
    );
    let now = world.now;
    world
        .control
        .with(|server| call(server, http::Method::PATCH, &secret, &pin, now));
    world.pods[1].state = State::Down(Duration::MAX);
    settle(&mut world)?;
    world.git.commit();
    let path = application(&app_of(0));
    wait(&mut world, |world| {
        world.get(None, &path)["status"]["operationState"]["phase"] == "Running"
    })?;
    let silence = Rule {
        verb: "watch".to_owned(),
        plural: "applications".to_owned(),
        path: String::new(),
        percent: 100,
        times: Some(1),
        // The Application, and the end of the list.
        fault: Fault::SilenceWatch { events: 2 },
    };
    world.control.with(|server| server.faults().add(silence));
    world.pods[1].state = State::Down(world.now);
    settle(&mut world)?;
    world.git.commit();
    settle(&mut world)?;
    world.tell_to_end(0);
    wait(&mut world, |world| world.pods[0].state != State::Runs)?;
    world.pods[0].state = State::Down(world.now + Duration::from_secs(20));
    world.pass(Duration::from_secs(20))?;
    settle(&mut world)?;
    Ok(outcome(&world))
}

/// Watches have left changes out.
const LOST: &str = "watches lose changes";

/// What ends a fault.
enum Mend {
    Network(usize),
    Server(Option<usize>),
}

/// Writes go wrong, and everything else does now and then.
fn chaos(world: &mut World, time: Duration) -> Result<()> {
    let until = world.now + time;
    let mut mends: Vec<(Duration, Mend)> = Vec::new();
    world.dice.lock().on = true;
    while world.now < until && world.checker.lock().broken.is_none() {
        let pause = world.chance.u64(PAUSE);
        world.pass(Duration::from_millis(pause))?;
        let now = world.now;
        for (_, mend) in mends.extract_if(.., |(at, _)| *at <= now) {
            match mend {
                Mend::Network(pod) => world.connect(pod),
                Mend::Server(server) => world.server(server).with(|server| {
                    server.faults().clear();
                    server.lose_changes(0);
                }),
            }
        }
        if let Some(mend) = fault(world) {
            let after = world.chance.u64(1_000..60_000);
            mends.push((now + Duration::from_millis(after), mend));
        }
    }
    world.dice.lock().on = false;
    world.mend();
    if world.dice.lock().met.contains_key(&("what else", LOST)) {
        world.looked = world.now + LOOKED;
    }
    Ok(())
}

/// One thing goes wrong.
fn fault(world: &mut World) -> Option<Mend> {
    let pod = world.chance.usize(..world.pods.len());
    let target = world.chance.usize(..world.targets.len());
    let server = world.chance.bool().then_some(target);
    let pause = Duration::from_millis(world.chance.u64(500..50_000));
    let process = world.pods[pod].process;
    let (what, mend) = match world.chance.u32(..16) {
        0 => {
            let (lost, new_pod) = (world.chance.bool(), world.chance.bool());
            world.kill(pod, lost, new_pod, pause / 5);
            ("killed", None)
        }
        1 => {
            world.stand(pod, pause);
            ("stands still", None)
        }
        2 => {
            world.network.cut(process, CONTROL, true);
            ("cut off from the control plane", Some(Mend::Network(pod)))
        }
        3 => {
            world.network.cut(process, &address(target), true);
            ("cut off from a target", Some(Mend::Network(pod)))
        }
        4 => {
            world.tell_to_end(pod);
            ("told to end", None)
        }
        5..=9 => {
            world.git.commit();
            ("Git has a commit", None)
        }
        10 => {
            let changes = world.chance.u64(1..8);
            let verb = ["get", "list"][world.chance.usize(..2)];
            rule(world, server, verb, 40, Fault::Stale { changes });
            ("reads of the past", Some(Mend::Server(server)))
        }
        11 => {
            let (events, torn) = (world.chance.u64(..5), world.chance.bool());
            rule(world, server, "watch", 60, Fault::CutWatch { events, torn });
            ("watches are cut", Some(Mend::Server(server)))
        }
        12 => {
            let events = world.chance.u64(..5);
            rule(world, server, "watch", 30, Fault::SilenceWatch { events });
            ("watches fall silent", Some(Mend::Server(server)))
        }
        13 => {
            world.server(server).with(|server| server.lose_changes(30));
            (LOST, Some(Mend::Server(server)))
        }
        14 => {
            world.server(server).with(|server| server.compact());
            ("history is forgotten", None)
        }
        _ => {
            let code = [429, 500, 503, 504][world.chance.usize(..4)];
            rule(world, server, "", 30, Fault::Error(code, None));
            ("requests are refused", Some(Mend::Server(server)))
        }
    };
    let at = world.now;
    tracing::debug!(?at, pod, target, server, ?pause, what, "a fault");
    *world.dice.lock().met.entry(("what else", what)).or_default() += 1;
    mend
}

fn rule(world: &World, server: Option<usize>, verb: &str, percent: u8, fault: Fault) {
    let rule = Rule {
        verb: verb.to_owned(),
        plural: String::new(),
        path: String::new(),
        percent,
        times: None,
        fault,
    };
    world.server(server).with(|server| server.faults().add(rule));
}

/// Waits for something of which a run cannot do without.
fn wait(world: &mut World, there: impl Fn(&World) -> bool) -> Result<()> {
    let until = world.now + SETTLED;
    while !there(world) {
        let broken = world.checker.lock().broken.clone();
        anyhow::ensure!(
            broken.is_none() && world.now < until,
            "it does not come to pass: {broken:?}"
        );
        world.pass(Duration::from_millis(100))?;
    }
    Ok(())
}

/// Waits until everything is as Git says.
fn settle(world: &mut World) -> Result<()> {
    let until = world.looked.max(world.now) + SETTLED;
    loop {
        world.pass(Duration::from_secs(1))?;
        let unsettled = world.unsettled();
        if unsettled.is_empty() || world.checker.lock().broken.is_some() {
            return Ok(());
        }
        if world.now > until {
            let now = world.now;
            let detail = format!("not as Git says: {}", unsettled.join("; "));
            world.checker.lock().breaks("I6", now, detail);
            return Ok(());
        }
    }
}

/// Nothing happens: nobody writes more than one write a second and shard, and no Application is written at all.
fn rest(world: &mut World) -> Result<()> {
    // The last looks, Events and hand-overs.
    let looks = world.looked.saturating_sub(world.now);
    world.pass(looks.max(Duration::from_secs(60)))?;
    let before = world.checker.lock().writes.clone();
    world.pass(REST)?;
    let now = world.now;
    let mut checker = world.checker.lock();
    let since = |plural: &str| {
        let count = |writes: &BTreeMap<String, u64>| writes.get(plural).copied().unwrap_or(0);
        count(&checker.writes) - count(&before)
    };
    let (leases, apps) = (since("leases"), since("applications"));
    if leases > REST.as_secs() * world.pods.len() as u64 || apps > 0 {
        let detail = format!("at rest {leases} writes of leases and {apps} of Applications in {REST:?}");
        checker.breaks("I6", now, detail);
    }
    Ok(())
}

/// A target is away for everybody: its Application becomes Unknown in time and stays so until the target is back.
fn lose_a_target(world: &mut World) -> Result<()> {
    let target = world.chance.usize(..world.targets.len());
    let cut = |world: &mut World, cut: bool| {
        for pod in &world.pods {
            world.network.cut(pod.process, &address(target), cut);
        }
    };
    cut(world, true);
    world.pass(UNKNOWN)?;
    let status = world.get(None, &application(&app_of(target)))["status"].clone();
    if status["sync"]["status"] != "Unknown" {
        let detail = format!(
            "{} of {} says {} after {UNKNOWN:?} without the cluster",
            app_of(target),
            url(target),
            status["sync"]["status"]
        );
        let now = world.now;
        world.checker.lock().breaks("I4", now, detail);
    }
    cut(world, false);
    Ok(())
}

/// What the owner of a target, if it runs, knows of it.
fn followed(world: &World, target: usize) -> Option<Cluster> {
    let owner = world
        .owner(target)
        .filter(|pod| world.pods[*pod].state == State::Runs)?;
    world.context(owner)?.clusters.get(&url(target))
}

/// At the end what each owner knows of its cluster is what a list tells.
fn compare(world: &mut World) -> Result<()> {
    // Who owns a cluster may have fallen asleep over its very last write.
    let until = world.now + OWNED;
    while world.now < until && (0..world.targets.len()).any(|target| followed(world, target).is_none()) {
        world.pass(Duration::from_secs(1))?;
    }
    world.pass(Duration::from_secs(20))?;
    for target in 0..world.targets.len() {
        let known = followed(world, target);
        let now = world.now;
        let Some(cluster) = known else {
            let detail = format!("nobody follows {}", url(target));
            world.checker.lock().breaks("I5", now, detail);
            return Ok(());
        };
        let (snapshot, discovery) = (cluster.snapshot(), cluster.discovery());
        for kind in snapshot.kinds() {
            let Some(resource) = discovery.preferred(&kind) else {
                continue;
            };
            let group = match resource.group.as_str() {
                "" => format!("/api/{}", resource.version),
                group => format!("/apis/{group}/{}", resource.version),
            };
            let list = world.get(Some(target), &format!("{group}/{}", resource.plural));
            let items = list["items"].as_array().cloned().unwrap_or_default();
            let told = |object: &Value| {
                let place = format!("{}/{}", meta::namespace(object), meta::name(object));
                (place, meta::resource_version(object).to_owned())
            };
            let told: BTreeMap<String, String> = items.iter().map(told).collect();
            let known: BTreeMap<String, String> = snapshot
                .by_kind(&kind)
                .iter()
                .map(|row| {
                    let place = format!("{}/{}", row.key.namespace, row.key.name);
                    (place, row.resource_version.to_string())
                })
                .collect();
            if told != known {
                let detail = format!("{kind} of {}: known {known:?}, listed {told:?}", url(target));
                world.checker.lock().breaks("I7", now, detail);
            }
        }
    }
    Ok(())
}
