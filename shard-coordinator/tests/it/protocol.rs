//! The node against a store that answers at once: what a person can read off step by step. Everything that goes wrong is
//! the simulation's.

use std::collections::BTreeMap;
use std::time::Duration;

use argosy_shard_coordinator::node::{Effect, Event, Identity, Live, Node, Outcome, Wanted};
use argosy_shard_coordinator::object::{ClusterId, Key, Object, Record, ShardId, Version};
use argosy_shard_coordinator::timing::Timing;

const SECOND: Duration = Duration::from_secs(1);

/// A few nodes and the store between them; time moves for all at once.
struct World {
    nodes: BTreeMap<&'static str, Node>,
    store: BTreeMap<Key, (Object, Version)>,
    versions: u64,
    now: Duration,
    /// Whose watch tells nothing.
    silent: Option<&'static str>,
    /// Lists do not come to their end.
    slow: bool,
    /// What nodes did, besides calls.
    log: Vec<String>,
}

impl World {
    fn new(names: &[&'static str]) -> Self {
        let mut world = World {
            nodes: BTreeMap::new(),
            store: BTreeMap::new(),
            versions: 0,
            now: Duration::from_secs(1000),
            silent: None,
            slow: false,
            log: Vec::new(),
        };
        names.iter().for_each(|name| world.start(name));
        world
    }

    fn start(&mut self, name: &'static str) {
        self.start_with(name, Timing::default());
    }

    fn start_with(&mut self, name: &'static str, timing: Timing) {
        let identity = Identity {
            shard: ShardId::new(name),
            boot: format!("{name}-{}", self.versions).into(),
            ordinal: None,
            alone: true,
        };
        self.nodes.insert(name, Node::new(identity, timing));
        let clusters = ["c1", "c2"].map(|cluster| (ClusterId::new(cluster), Wanted { pin: None, cost: 1 }));
        self.tell(name, Event::Clusters(BTreeMap::from(clusters)));
        for (object, version) in self.store.clone().into_values() {
            self.tell(name, Event::Seen(object, version));
        }
        self.tell(name, Event::Listed);
    }

    fn tell(&mut self, name: &'static str, event: Event) {
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        for effect in node.step(self.now, event) {
            match effect {
                Effect::Put(object, expect, number) => {
                    let key = object.key();
                    let known = self.store.get(&key).map(|(_, version)| version);
                    let outcome = if known == expect.as_ref() {
                        self.versions += 1;
                        let version: Version = self.versions.to_string().into();
                        self.store.insert(key.clone(), (object.clone(), version.clone()));
                        // Of what it has written itself each is told its lease alone: the rest may have gone on since.
                        let lease = Key::Shard(ShardId::new(name));
                        let hears =
                            |one: &&str| self.silent != Some(*one) && (**one != *name || key == lease);
                        let told: Vec<_> = self.nodes.keys().copied().filter(hears).collect();
                        self.tell(name, Event::Stored(key, number, Outcome::Done(version.clone())));
                        for one in told {
                            self.tell(one, Event::Seen(object.clone(), version.clone()));
                        }
                        continue;
                    } else {
                        Outcome::Conflict
                    };
                    self.tell(name, Event::Stored(key, number, outcome));
                }
                Effect::Delete(key, _, number) => {
                    self.store.remove(&key);
                    self.tell(name, Event::Stored(key, number, Outcome::Done("".into())));
                }
                Effect::Read(key) => {
                    let found = self.store.get(&key).cloned();
                    self.tell(name, Event::Fetched(key, found));
                }
                Effect::List => {
                    self.log.push(format!("{name} lists anew"));
                    if self.slow {
                        continue;
                    }
                    for (object, version) in self.store.clone().into_values() {
                        self.tell(name, Event::Seen(object, version));
                    }
                    self.tell(name, Event::Listed);
                }
                Effect::Warm(cluster) => {
                    self.log.push(format!("{name} warms {cluster}"));
                    self.tell(name, Event::Warmed(cluster));
                }
                Effect::Drain(cluster, epoch) => {
                    self.log.push(format!("{name} drains {cluster}"));
                    self.tell(name, Event::Drained(cluster, epoch));
                }
                Effect::Own(cluster, _) => self.log.push(format!("{name} owns {cluster}")),
                Effect::Disown(cluster) => self.log.push(format!("{name} drops {cluster}")),
                Effect::Leave => self.log.push(format!("{name} leaves")),
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += SECOND;
            let names: Vec<_> = self.nodes.keys().copied().collect();
            for name in names {
                self.tell(name, Event::Tick);
            }
        }
    }

    fn record(&self, cluster: &str) -> Record {
        match &self.store[&Key::Cluster(ClusterId::new(cluster))].0 {
            Object::Record(record) => record.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn owner(&self, cluster: &str) -> String {
        self.record(cluster)
            .owner
            .map_or_else(|| "-".to_owned(), |owner| owner.to_string())
    }
}

#[test]
fn an_empty_store_is_settled_before_clusters_are_given_away() {
    let mut world = World::new(&["a"]);
    world.pass(20 * SECOND);
    assert!(
        world.log.is_empty(),
        "leases that were deleted may still be in force: {:?}",
        world.log
    );
    world.pass(20 * SECOND);
    assert_eq!(
        (world.owner("c1"), world.owner("c2")),
        ("a#1".to_owned(), "a#1".to_owned())
    );
}

#[test]
fn two_shards_share_and_the_killed_ones_clusters_move_after_its_lease() {
    let mut world = World::new(&["a", "b"]);
    world.pass(60 * SECOND);
    let (one, two) = (world.owner("c1"), world.owner("c2"));
    assert_ne!(one, two, "each has one");
    let epoch = world.record("c1").epoch;
    let lost = if one == "a#1" { "a" } else { "b" };
    world.nodes.remove(lost);
    world.pass(20 * SECOND);
    assert_eq!(world.owner("c1"), one, "its lease may still be in force");
    world.pass(20 * SECOND);
    assert_eq!(world.owner("c1"), two);
    assert_eq!(world.record("c1").epoch, epoch + 1);
}

#[test]
fn a_shard_with_a_shorter_heartbeat_waits_as_long_as_the_leases_of_others_say() {
    let slow = Timing::with_renewal(10 * SECOND);
    let mut world = World::new(&[]);
    world.start_with("a", slow);
    world.pass(80 * SECOND);
    assert_eq!(
        (world.owner("c1"), world.owner("c2")),
        ("a#1".into(), "a#1".into())
    );
    // The heartbeat is being shortened: the next pod renews each second, and would call a lease lost after five.
    world.log.clear();
    world.start_with("b", Timing::with_renewal(SECOND));
    for _ in 0..60 {
        world.pass(SECOND);
        let mut seen = world.nodes["b"].shards(world.now);
        assert!(
            seen.all(|(_, live)| live == Live::Alive),
            "both renew when they should"
        );
    }
    let lost = world
        .log
        .iter()
        .filter(|line| *line == "a drops c1" || *line == "a drops c2");
    assert!(
        lost.count() < 2,
        "at most one is handed over for balance: {:?}",
        world.log
    );
    assert_eq!(
        world.nodes["a"].own().map(ToString::to_string).as_deref(),
        Some("a#1")
    );
    // What has died is waited for as long as it may have written.
    let left = if world.owner("c1") == "a#1" { "c1" } else { "c2" };
    world.nodes.remove("a");
    world.pass(slow.duration);
    assert_eq!(world.owner(left), "a#1", "its lease may still be in force");
    world.pass(slow.margin + 20 * SECOND);
    assert!(world.owner(left).starts_with("b#"), "{}", world.owner(left));
}

#[test]
fn a_shard_whose_watch_has_fallen_silent_lists_anew_and_so_learns_what_is_its_own() {
    let mut world = World::new(&["a", "b", "c"]);
    world.pass(60 * SECOND);
    world.pass(60 * SECOND);
    assert!(
        !world.log.iter().any(|line| line.ends_with("lists anew")),
        "{:?}",
        world.log
    );
    world.silent = Some("c");
    world.pass(20 * SECOND);
    assert_eq!(
        world.log.iter().filter(|line| *line == "c lists anew").count(),
        1,
        "{:?}",
        world.log
    );
}

#[test]
fn a_list_that_takes_long_is_not_begun_anew_meanwhile() {
    let mut world = World::new(&["a", "b", "c"]);
    world.pass(60 * SECOND);
    (world.silent, world.slow) = (Some("c"), true);
    let lists = |world: &World| world.log.iter().filter(|line| *line == "c lists anew").count();
    world.pass(120 * SECOND);
    assert_eq!(lists(&world), 1, "{:?}", world.log);
    world.pass(Timing::default().relist);
    assert_eq!(lists(&world), 2, "it may have been lost");
}

#[test]
fn a_container_started_again_in_its_pod_takes_its_clusters_back_at_once() {
    let mut world = World::new(&["a", "b"]);
    world.pass(60 * SECOND);
    let cluster = if world.owner("c1") == "a#1" { "c1" } else { "c2" };
    let epoch = world.record(cluster).epoch;
    world.start("a");
    world.pass(2 * SECOND);
    assert_eq!(
        (world.owner(cluster), world.record(cluster).epoch),
        ("a#2".to_owned(), epoch + 1)
    );
}

#[test]
fn a_shard_that_is_told_to_end_hands_over_to_a_warm_successor_and_leaves() {
    let mut world = World::new(&["a", "b"]);
    world.pass(60 * SECOND);
    let (cluster, other) = match world.owner("c1").as_str() {
        "a#1" => ("c1", "c2"),
        _ => ("c2", "c1"),
    };
    let successor = world.owner(other);
    world.log.clear();
    world.tell("a", Event::Stop);
    world.pass(3 * SECOND);
    let expected = [
        format!("b warms {cluster}"),
        format!("a drains {cluster}"),
        format!("b owns {cluster}"),
        format!("a drops {cluster}"),
        "a leaves".to_owned(),
    ];
    let mut found = world.log.clone();
    found.sort();
    let mut sorted = expected.to_vec();
    sorted.sort();
    assert_eq!(found, sorted);
    assert!(
        world.log.iter().position(|line| *line == expected[0])
            < world.log.iter().position(|line| *line == expected[1])
    );
    assert_eq!(world.owner(cluster), successor);
}

#[test]
fn without_renewals_the_authority_ends_by_itself() {
    let mut world = World::new(&["a"]);
    world.pass(60 * SECOND);
    let renewed = world.now;
    let authority = world.nodes["a"].authority().unwrap();
    assert!(authority.start <= renewed + Timing::default().write);
    assert!(authority.end <= renewed + Timing::default().duration);
}

#[test]
fn a_lease_that_was_marked_over_is_not_renewed_over() {
    let mut world = World::new(&["a", "b"]);
    world.pass(60 * SECOND);
    let key = Key::Shard(ShardId::new("a"));
    let Object::Shard(mut lease) = world.store[&key].0.clone() else {
        panic!("a lease");
    };
    lease.over = true;
    lease.revision += 1;
    let version: Version = "marked".into();
    world
        .store
        .insert(key.clone(), (Object::Shard(lease.clone()), version.clone()));
    world.tell("a", Event::Seen(Object::Shard(lease), version));
    assert!(
        world.nodes["a"].authority().is_none(),
        "nothing is written under it"
    );
    world.pass(20 * SECOND);
    assert_eq!(
        world.store[&key].1,
        "marked".into(),
        "writes may be under way until a lease has passed"
    );
    world.pass(20 * SECOND);
    assert_eq!(
        world.nodes["a"].own().unwrap().term,
        2,
        "then it is taken under another term"
    );
}

#[test]
fn epochs_rise_over_the_removal_of_a_cluster() {
    let mut world = World::new(&["a", "b"]);
    world.pass(60 * SECOND);
    let before = world.record("c2").epoch;
    let clusters = |names: &[&str]| {
        let wanted = |name: &&str| (ClusterId::new(name), Wanted { pin: None, cost: 1 });
        Event::Clusters(names.iter().map(wanted).collect())
    };
    for name in ["a", "b"] {
        world.tell(name, clusters(&["c1"]));
    }
    world.pass(2 * SECOND);
    assert!(!world.store.contains_key(&Key::Cluster(ClusterId::new("c2"))));
    for name in ["a", "b"] {
        world.tell(name, clusters(&["c1", "c2"]));
    }
    world.pass(10 * SECOND);
    assert!(
        world.record("c2").epoch > before + 1,
        "the last one was {}",
        before + 1
    );
}

/// The watch of the coordinator may be behind, or have lost what it was told.
#[test]
fn a_cluster_that_its_owner_knows_of_is_not_let_go_because_the_coordinator_does_not() {
    let mut world = World::new(&["a", "b"]);
    world.pass(60 * SECOND);
    let clusters = |names: &[&str]| {
        let wanted = |name: &&str| (ClusterId::new(name), Wanted { pin: None, cost: 1 });
        Event::Clusters(names.iter().map(wanted).collect())
    };
    let Object::Election(election) = world.store[&Key::Election].0.clone() else {
        panic!("a lease");
    };
    let leader = match election.holder.unwrap().shard.0.as_ref() {
        "a" => "a",
        _ => "b",
    };
    let owned = ["c1", "c2"].map(|cluster| (cluster, world.owner(cluster)));
    let others = owned.iter().find(|(_, owner)| !owner.starts_with(leader));
    let (cluster, owner) = others.unwrap().clone();
    let rest = if cluster == "c1" { "c2" } else { "c1" };
    world.log.clear();
    world.tell(leader, clusters(&[rest]));
    world.pass(120 * SECOND);
    assert_eq!(world.owner(cluster), owner);
    assert!(world.log.is_empty(), "its owner goes on: {:?}", world.log);
    world.tell(leader, clusters(&["c1", "c2"]));
    world.pass(2 * SECOND);
    assert_eq!(world.record(cluster).handover, None, "it is called off");
    for name in ["a", "b"] {
        world.tell(name, clusters(&[rest]));
    }
    world.pass(2 * SECOND);
    assert!(!world.store.contains_key(&Key::Cluster(ClusterId::new(cluster))));
}

#[test]
fn a_view_of_the_past_makes_no_owner() {
    let mut world = World::new(&["a", "b"]);
    world.pass(60 * SECOND);
    let mine = if world.owner("c1") == "a#1" { "c1" } else { "c2" };
    let old = world.record(mine);
    world.tell("a", Event::Stop);
    world.pass(3 * SECOND);
    world.start("a");
    world.pass(SECOND);
    world.log.clear();
    // Its watch goes back to when a process of this name owned the cluster.
    let own = world.nodes["a"].own().cloned();
    world.tell("a", Event::Gone(Key::Cluster(old.cluster.clone())));
    let past = Object::Record(Record { owner: own, ..old });
    world.tell("a", Event::Seen(past, "past".into()));
    assert!(world.log.is_empty(), "the store was asked first: {:?}", world.log);
}

/// `b` owns both clusters, and the lease of `a`, whose second process has died, is there no more.
fn without_the_lease_of_a() -> (World, Object) {
    let mut world = World::new(&["a", "b"]);
    world.pass(60 * SECOND);
    world.start("a");
    world.pass(20 * SECOND);
    let key = Key::Shard(ShardId::new("a"));
    let (old, _) = world.store[&key].clone();
    world.nodes.remove("a");
    world.pass(40 * SECOND);
    assert_eq!(world.owner("c1"), world.owner("c2"), "b has both");
    world.store.remove(&key);
    world.tell("b", Event::Gone(key));
    (world, old)
}

#[test]
fn a_deleted_lease_comes_again_with_higher_counts_so_no_view_of_the_past_ends_it() {
    let (mut world, old) = without_the_lease_of_a();
    world.start("a");
    world.pass(60 * SECOND);
    let own = world.nodes["a"].own().cloned().unwrap();
    let (Object::Shard(lease), _) = &world.store[&Key::Shard(own.shard.clone())] else {
        panic!("a lease");
    };
    let Object::Shard(before) = &old else {
        panic!("a lease");
    };
    assert!(own.term > before.holder.term, "{own} after {}", before.holder);
    assert!(lease.revision - lease.renewals > before.revision);
    let own = own.to_string();
    let cluster = if world.owner("c1") == own { "c1" } else { "c2" };
    assert_eq!(world.owner(cluster), own, "it has been given one again");
    world.log.clear();
    world.tell("b", Event::Seen(old, "old".into()));
    world.pass(2 * SECOND);
    assert!(world.log.is_empty(), "{:?}", world.log);
    assert_eq!(world.owner(cluster), own);
}

#[test]
fn that_somebody_is_over_is_the_stores_own_word() {
    let mut world = World::new(&["a", "b"]);
    world.pass(60 * SECOND);
    let coordinator = |world: &World| match &world.store[&Key::Election].0 {
        Object::Election(election) => election.holder.clone(),
        other => panic!("{other:?}"),
    };
    let before = coordinator(&world);
    world.log.clear();
    for (name, other) in [("a", "b"), ("b", "a")] {
        let own = world.nodes[name].own().cloned().unwrap();
        let Object::Shard(mut past) = world.store[&Key::Shard(own.shard)].0.clone() else {
            panic!("a lease");
        };
        // Of before somebody had deleted everything, counts included: names come again.
        (past.revision, past.over) = (past.revision + 1000, true);
        world.tell(other, Event::Seen(Object::Shard(past), "past".into()));
        world.pass(3 * SECOND);
        assert!(world.log.is_empty(), "{name} holds its lease: {:?}", world.log);
        assert_eq!(coordinator(&world), before);
    }
}

#[test]
fn counts_of_before_a_deletion_of_everything_hold_no_cluster_up() {
    let mut world = World::new(&["a", "b"]);
    world.pass(60 * SECOND);
    let key = Key::Cluster(ClusterId::new("c1"));
    // A record as it was a year ago; then somebody deleted everything, the coordinator's lease and its count included.
    let past = Record {
        revision: 1_000_000,
        epoch: 1_000_000,
        ..world.record("c1")
    };
    world.store.remove(&key);
    for name in ["a", "b"] {
        world.tell(name, Event::Gone(key.clone()));
        world.tell(name, Event::Seen(Object::Record(past.clone()), "past".into()));
        world.tell(name, Event::Gone(key.clone()));
    }
    world.pass(60 * SECOND);
    assert!(
        world.record("c1").epoch > past.epoch,
        "whoever knows of it must not take the new one for old"
    );
}
