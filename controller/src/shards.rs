//! Which clusters are this process's, and the proof of it.
//!
//! Three ways, chosen by [`Mode`]: alone (everything is ours), Argo CD's fixed shards (computed from the number of
//! replicas), or leases. With leases the decisions are `argosy_shard_coordinator`'s; here is its shell: [`store`] does
//! its reads and writes, [`ownership`] stands in front of every write to a target or an Application, and the task in this
//! file feeds the node with events and lets clusters start and stop.

mod ownership;
mod store;
pub(crate) mod unowned;
mod view;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use argosy_kube_io::Client;
use argosy_runtime::clock::Clock;
use argosy_runtime::metrics::Check;
use argosy_runtime::tasks::Tasks;
use argosy_shard_coordinator::assignment;
use argosy_shard_coordinator::node::{Effect, Event, Identity, Node, Wanted};
use argosy_shard_coordinator::object::{ClusterId, Pin, ShardId};
use argosy_shard_coordinator::own::{Mode, Own};
use argosy_shard_coordinator::timing::Timing;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clusters::{ClusterInfo, NO_CLUSTER, Owns, Status};
use crate::context::Context;
use crate::dirty::Marker;
pub use ownership::Ownership;
pub use view::{Known, ShardsCollector, View};

/// Time between two looks at clocks, warm clusters and writes under way.
const TICK: Duration = Duration::from_millis(100);
/// Clusters and their costs are counted this often.
const COUNT: Duration = Duration::from_secs(2);
/// The assignment to fixed shards is worked out anew this often, where it depends on all clusters.
const ASSIGN: Duration = Duration::from_secs(10);
/// The task does something ten times a second, from the moment that clusters are known.
const SILENT: Duration = Duration::from_secs(60);
/// What an Application costs, in units of a live object: looks, renders, status.
const COST_OF_APP: u64 = 20;

/// This process's part in sharding.
#[derive(Clone)]
pub struct Shards {
    own: Own,
    /// The shard of every cluster, where that depends on all of them and is computed.
    assigned: Arc<ArcSwap<BTreeMap<String, u32>>>,
    leases: Option<Leases>,
}

/// What it takes to hold leases.
#[derive(Clone)]
struct Leases {
    timing: Timing,
    identity: Identity,
    ownership: Arc<Ownership>,
    known: Arc<Known>,
}

impl Shards {
    /// As the environment says; leases are measured on `clock`.
    pub fn new(own: Own, clock: Arc<dyn Clock>) -> Self {
        let leases = (own.mode == Mode::Leases).then(|| {
            let timing = own.timing;
            Leases {
                timing,
                identity: identity(&own),
                ownership: Ownership::new(timing.margin, clock.clone()),
                known: Arc::new(Known::new(clock)),
            }
        });
        Shards {
            own,
            assigned: Arc::default(),
            leases,
        }
    }

    /// What stands in front of writes, if leases do.
    pub fn ownership(&self) -> Option<Arc<Ownership>> {
        Some(self.leases.as_ref()?.ownership.clone())
    }

    /// What is known of all shards, if there are leases.
    pub fn known(&self) -> Option<Arc<Known>> {
        Some(self.leases.as_ref()?.known.clone())
    }

    /// With leases: whether the task that renews them is at work. It asks nobody, so that a broken connection does not
    /// look like a broken process.
    pub fn live(&self) -> Option<Check> {
        let known = self.known()?;
        let started = known.now();
        Some(Arc::new(move || {
            let silent = known.now().saturating_sub(known.view().at.max(started));
            match silent > SILENT {
                true => Err(format!(
                    "the shards' task has not moved for {} s",
                    silent.as_secs()
                )),
                false => Ok(()),
            }
        }))
    }

    /// Decides whether a cluster is ours.
    pub fn owns(&self) -> Owns {
        if let Some(leases) = &self.leases {
            let ownership = leases.ownership.clone();
            return Arc::new(move |info: &ClusterInfo| ownership.owns(&info.server));
        }
        let (own, assigned) = (self.own.clone(), self.assigned.clone());
        Arc::new(move |info: &ClusterInfo| {
            if own.mode == Mode::Alone {
                return true;
            }
            if info.server == NO_CLUSTER {
                return own.shard == 0;
            }
            let shard = match own.algorithm {
                // Before the first assignment nobody's cluster is ours.
                assignment::Algorithm::Legacy => {
                    assignment::assign(own.algorithm, own.replicas, &[seen(info, 0)])
                        .get(&info.server)
                        .copied()
                }
                _ if unreadable(info) => Some(0),
                _ => assigned.load().get(&info.server).copied(),
            };
            shard == Some(own.shard)
        })
    }

    /// Starts what it takes: nothing for a controller that is alone.
    pub fn start(&self, tasks: &Tasks, ctx: &Arc<Context>, marker: &Arc<Marker>, client: Client) {
        match (&self.leases, self.own.mode) {
            (Some(leases), _) => leases.start(tasks, ctx, marker, client),
            (None, Mode::Fixed) if self.own.algorithm != assignment::Algorithm::Legacy => {
                self.follow(tasks, ctx);
            }
            (None, _) => {}
        }
    }

    /// Works the fixed assignment out again as clusters come and go. What has come to this shard by that is looked at, since
    /// whoever had it before goes on no longer.
    fn follow(&self, tasks: &Tasks, ctx: &Arc<Context>) {
        let (shards, ctx) = (self.clone(), ctx.clone());
        tasks.spawn("shards", async move {
            ctx.clusters.ready().await;
            loop {
                let clusters: Vec<_> = ctx
                    .clusters
                    .list()
                    .iter()
                    .filter(|info| !unreadable(info))
                    .map(|info| seen(info, ctx.apps.of_destination(&info.server).len() as u64))
                    .collect();
                let assigned = assignment::assign(shards.own.algorithm, shards.own.replicas, &clusters);
                let before = shards.assigned.load_full();
                if *before != assigned {
                    let come = come_to(shards.own.shard, &before, &assigned);
                    shards.assigned.store(Arc::new(assigned));
                    ctx.clusters.ownership_changed();
                    for server in come {
                        info!(cluster = server, "cluster is ours");
                        ctx.clusters.taken(&server);
                    }
                }
                tokio::time::sleep(ASSIGN).await;
            }
        });
    }
}

/// The clusters that the shard of this number has now and had not before.
fn come_to(shard: u32, before: &BTreeMap<String, u32>, now: &BTreeMap<String, u32>) -> Vec<String> {
    let new = now
        .iter()
        .filter(|(server, now)| **now == shard && before.get(*server) != Some(&shard));
    new.map(|(server, _)| server.clone()).collect()
}

/// Its Secret cannot be read but for the URL. Argo CD does not rank such a cluster, and what has no rank is the first shard's.
fn unreadable(info: &ClusterInfo) -> bool {
    info.secret.is_some() && info.id.is_empty()
}

/// As Argo CD sees it, where the cluster that it runs in has no uid unless a Secret names it.
fn seen(info: &ClusterInfo, apps: u64) -> assignment::Cluster {
    assignment::Cluster {
        id: match info.secret {
            Some(_) => info.id.clone(),
            None => String::new(),
        },
        server: info.server.clone(),
        shard: info.shard,
        apps,
    }
}

fn apps_of(ctx: &Context, info: &ClusterInfo) -> u64 {
    destinations(info)
        .map(|destination| ctx.apps.of_destination(destination).len() as u64)
        .sum()
}

/// How Applications name the cluster: a Secret without a name gives it its URL for one.
fn destinations(info: &ClusterInfo) -> impl Iterator<Item = &str> {
    let name = (info.name != info.server).then_some(&*info.name);
    std::iter::once(&*info.server).chain(name)
}

/// The pod's uid names a shard whose processes follow each other; a host's name may still be borne by an old one.
fn identity(own: &Own) -> Identity {
    let boot: String = (0..16).map(|_| fastrand::alphanumeric()).collect();
    Identity {
        shard: ShardId::new(&own.name),
        boot: boot.into(),
        ordinal: own.ordinal,
        alone: own.alone,
    }
}

impl Leases {
    fn start(&self, tasks: &Tasks, ctx: &Arc<Context>, marker: &Arc<Marker>, client: Client) {
        let store = store::Store::new(
            client,
            &ctx.options.namespace,
            self.timing.duration,
            ctx.clock.clone(),
        );
        let (events, inbox) = unbounded_channel();
        let task = Task {
            node: Node::new(self.identity.clone(), self.timing),
            leases: self.clone(),
            store,
            ctx: ctx.clone(),
            marker: marker.clone(),
            events,
            told: unbounded_channel().1,
            watch: CancellationToken::new(),
            warming: HashSet::new(),
            draining: HashMap::new(),
            wanted: BTreeMap::new(),
            reporting: None,
            left: false,
        };
        info!(shard = %self.identity.shard, ordinal = self.identity.ordinal, "clusters are held by leases");
        let stopping = tasks.stopping();
        tasks.spawn_finishing("shards", task.run(inbox, stopping));
    }
}

/// The task that feeds the node.
struct Task {
    node: Node,
    leases: Leases,
    store: store::Store,
    ctx: Arc<Context>,
    marker: Arc<Marker>,
    events: UnboundedSender<Event>,
    /// What the running watch of the store tells. One that was ended before has nothing more to say: its list is not the one
    /// that is waited for.
    told: UnboundedReceiver<Event>,
    /// Ends the running watch of the store.
    watch: CancellationToken,
    warming: HashSet<ClusterId>,
    draining: HashMap<ClusterId, u64>,
    wanted: BTreeMap<ClusterId, Wanted>,
    /// Applications of clusters that nobody takes are being told so.
    reporting: Option<tokio::task::JoinHandle<()>>,
    left: bool,
}

impl Task {
    async fn run(mut self, mut inbox: UnboundedReceiver<Event>, stopping: CancellationToken) {
        let mut waiting = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                () = self.ctx.clusters.ready() => break,
                () = stopping.cancelled() => return,
                _ = waiting.tick() => self.leases.known.update(&self.node, self.now()),
            }
        }
        self.follow_store();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut counted = None;
        let mut stopped = false;
        while !self.left {
            tokio::select! {
                biased;
                () = stopping.cancelled(), if !stopped => {
                    stopped = true;
                    info!("handing over this shard's clusters");
                    self.step(Event::Stop);
                }
                event = inbox.recv() => if let Some(event) = event {
                    self.step(event);
                },
                Some(event) = self.told.recv() => self.step(event),
                _ = tick.tick() => {
                    let now = self.now();
                    if counted.is_none_or(|at| now - at >= COUNT) {
                        counted = Some(now);
                        self.count();
                    }
                    self.look_at_warming();
                    self.look_at_draining();
                    self.look_at_unowned();
                    self.step(Event::Tick);
                }
            }
        }
        self.watch.cancel();
        info!("this shard's lease is given back");
    }

    /// The time on the clock that leases are measured on.
    fn now(&self) -> Duration {
        self.ctx.clock.since_boot()
    }

    fn step(&mut self, event: Event) {
        let now = self.now();
        let effects = self.node.step(now, event);
        // The deadline is known before anybody is let through.
        self.leases.ownership.set_authority(self.node.authority());
        for effect in effects {
            self.effect(effect);
        }
        self.leases.known.update(&self.node, now);
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Put(..) | Effect::Delete(..) | Effect::Read(..) => {
                let (store, events) = (self.store.clone(), self.events.clone());
                tokio::spawn(async move {
                    if let Some(event) = store.call(effect).await {
                        let _ = events.send(event);
                    }
                });
            }
            Effect::List => self.follow_store(),
            Effect::Own(cluster, epoch) => {
                info!(cluster = %cluster, epoch, "cluster is ours");
                self.warming.remove(&cluster);
                self.draining.remove(&cluster);
                self.leases.ownership.open(&cluster.0, epoch);
                self.ctx.clusters.taken(&cluster.0);
                self.marker.adopted(&self.keys_of(&cluster));
            }
            Effect::Warm(cluster) => {
                info!(cluster = %cluster, "cluster is listed for a hand-over");
                if self.needed(&cluster) && self.ctx.clusters.warm(&cluster.0) {
                    self.warming.insert(cluster);
                } else {
                    let _ = self.events.send(Event::Warmed(cluster));
                }
            }
            Effect::Drain(cluster, epoch) => {
                info!(cluster = %cluster, epoch, "cluster is being handed over");
                self.leases.ownership.close(&cluster.0);
                self.draining.insert(cluster, epoch);
            }
            Effect::Disown(cluster) => {
                info!(cluster = %cluster, "cluster is not ours");
                self.warming.remove(&cluster);
                self.draining.remove(&cluster);
                self.leases.ownership.forget(&cluster.0);
                self.ctx.clusters.left(&cluster.0);
            }
            Effect::Leave => self.left = true,
        }
    }

    /// Tells the node everything that the store holds, from the beginning.
    fn follow_store(&mut self) {
        self.watch.cancel();
        self.watch = CancellationToken::new();
        let (events, told) = unbounded_channel();
        self.told = told;
        let (store, stop) = (self.store.clone(), self.watch.clone());
        tokio::spawn(async move {
            let _ = stop.run_until_cancelled(store.follow(events)).await;
        });
    }

    /// Counts clusters, and what ours cost.
    fn count(&mut self) {
        let mut wanted: BTreeMap<ClusterId, Wanted> = BTreeMap::new();
        for info in self.ctx.clusters.list() {
            let pin = info.shard.and_then(|shard| u32::try_from(shard).ok());
            let wanting = Wanted {
                pin: pin.map(Pin::Number),
                cost: rounded(1 + COST_OF_APP * apps_of(&self.ctx, &info)),
            };
            wanted.insert(ClusterId::new(&info.server), wanting);
        }
        // Applications whose destination is no cluster are somebody's too.
        let nobodys = Wanted { pin: None, cost: 1 };
        wanted.insert(ClusterId::new(NO_CLUSTER), nobodys);
        if wanted != self.wanted {
            self.wanted = wanted.clone();
            self.step(Event::Clusters(wanted));
        }
        let costs = self
            .node
            .places()
            .map(|place| {
                let resources = self.ctx.clusters.get(&place.cluster.0);
                let resources = resources.map_or(0, |cluster| cluster.resource_count() as u64);
                let apps = self.wanted.get(&place.cluster).map_or(0, |wanted| wanted.cost);
                (place.cluster, rounded(1 + resources + apps))
            })
            .collect();
        self.step(Event::Costs(costs));
        let unseen = self.node.places().filter_map(|place| {
            // What no Application needs is not looked at.
            let cluster = self.ctx.clusters.get(&place.cluster.0)?;
            let since = match cluster.status() {
                Status::Synced { .. } => return None,
                Status::Failed { since, .. } if cluster.resource_count() > 0 => Some(since.as_second()),
                Status::Failed { .. } | Status::Syncing { .. } | Status::Stopped => None,
            };
            Some((place.cluster, since))
        });
        let unseen = unseen.collect();
        self.step(Event::Unseen(unseen));
    }

    fn look_at_warming(&mut self) {
        let ready: Vec<ClusterId> = self
            .warming
            .iter()
            .filter(|cluster| {
                let cluster = self.ctx.clusters.get(&cluster.0);
                // One that cannot be reached is not reached by waiting.
                cluster.is_none_or(|cluster| !matches!(cluster.status(), Status::Syncing { .. }))
            })
            .cloned()
            .collect();
        for cluster in ready {
            self.warming.remove(&cluster);
            self.step(Event::Warmed(cluster));
        }
    }

    fn look_at_draining(&mut self) {
        let now = self.now();
        let quiet: Vec<(ClusterId, u64)> = self
            .draining
            .iter()
            .filter(|(cluster, epoch)| self.leases.ownership.quiet(&cluster.0, **epoch, now))
            .map(|(cluster, epoch)| (cluster.clone(), *epoch))
            .collect();
        for (cluster, epoch) in quiet {
            self.draining.remove(&cluster);
            self.step(Event::Drained(cluster, epoch));
        }
    }

    /// Applications of clusters that nobody takes say so. One round at a time; a version in each patch sees to it that
    /// nothing newer is written over.
    fn look_at_unowned(&mut self) {
        let now = self.now();
        if !self.node.leads(now) || self.reporting.as_ref().is_some_and(|round| !round.is_finished()) {
            return;
        }
        let grace = unowned::grace(&self.leases.timing);
        let mut patches = Vec::new();
        for (cluster, since) in self.leases.known.view().unowned {
            let passed = now.saturating_sub(since);
            if passed < grace {
                continue;
            }
            let since = self.ctx.clock.now() - passed;
            for key in self.keys_of(&cluster) {
                let Some(app) = self.ctx.apps.get(&key) else {
                    continue;
                };
                if let Some(patch) = unowned::report(&app, &cluster.0, since) {
                    patches.push((app, patch));
                }
            }
        }
        if patches.is_empty() {
            return;
        }
        info!(
            applications = patches.len(),
            "applications of clusters that nobody takes become unknown"
        );
        let store = self.store.clone();
        self.reporting = Some(tokio::spawn(async move {
            for (app, patch) in patches {
                store.report_unowned(&app, patch).await;
            }
            // What was written comes back by the watch.
            tokio::time::sleep(COUNT).await;
        }));
    }

    /// A cluster that no Application deploys to is not listed before one does.
    fn needed(&self, cluster: &ClusterId) -> bool {
        !self.keys_of(cluster).is_empty() && *cluster.0 != *NO_CLUSTER
    }

    fn keys_of(&self, cluster: &ClusterId) -> Vec<crate::context::AppKey> {
        let (apps, clusters) = (&self.ctx.apps, &self.ctx.clusters);
        if *cluster.0 == *NO_CLUSTER {
            let homeless = |key: &crate::context::AppKey| {
                apps.get(key)
                    .is_some_and(|app| clusters.holder_of(&app.spec.destination) == NO_CLUSTER)
            };
            return apps.keys().into_iter().filter(homeless).collect();
        }
        match clusters.info(&cluster.0) {
            Some(info) => destinations(&info)
                .flat_map(|destination| apps.of_destination(destination))
                .collect(),
            None => {
                // Once the Secret is known, its Applications are marked.
                warn!(cluster = %cluster, "a cluster is ours whose secret is not known here");
                apps.of_destination(&cluster.0)
            }
        }
    }
}

/// To two leading digits, so that small changes are none.
fn rounded(cost: u64) -> u64 {
    let mut unit = 1;
    while cost / unit >= 100 {
        unit *= 10;
    }
    cost / unit * unit
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    #[test]
    fn what_another_shard_had_comes_to_this_one() {
        let of = |shards: &[(&str, u32)]| -> BTreeMap<String, u32> {
            let pair = |(server, shard): &(&str, u32)| ((*server).to_owned(), *shard);
            shards.iter().map(pair).collect()
        };
        let before = of(&[("https://a", 0), ("https://b", 1), ("https://c", 1)]);
        let now = of(&[
            ("https://a", 1),
            ("https://b", 1),
            ("https://c", 0),
            ("https://d", 1),
        ]);
        assert_eq!(super::come_to(1, &before, &now), ["https://a", "https://d"]);
    }

    #[test]
    fn costs_keep_two_digits() {
        let rounded: Vec<u64> = [1, 99, 100, 1_234, 98_765].map(super::rounded).to_vec();
        assert_eq!(rounded, [1, 99, 100, 1_200, 98_000]);
    }
}
