//! The clusters that Applications deploy to: which there are, which are followed, and what is known of each.
//!
//! The registry follows the cluster Secrets of the control plane's namespace, plus the cluster that the control plane
//! runs in. A cluster is followed from the moment that an Application first needs it ([`Clusters::resolve`]) until its
//! Secret goes or it is not ours any longer. A Secret that changes its address or credentials starts its cluster anew and
//! leaves the others alone; one that cannot be read is an error for those who want that cluster.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use argosy_api::cluster_secret;
use argosy_api::settings::RespectRbac;
use argosy_api::v1alpha1::{ApplicationDestination, ClusterConfig};
use argosy_kube_io::api::{Change, Place, TypedWatch};
use argosy_kube_io::auth::{IN_CLUSTER_NAME, IN_CLUSTER_SERVER, Policy};
use argosy_kube_io::fence::Fence;
use argosy_kube_io::list_watch;
use argosy_kube_io::target::Selection;
use argosy_kube_io::{Budget, Client, ClusterAuth, Discovery, Target};
use argosy_livestate::Snapshot;
use argosy_object::schema::Schemas;
use argosy_object::{ContentHash, GroupKind, ResourceKey, Value, meta};
use argosy_runtime::clock::Clock;
use argosy_runtime::tasks::Tasks;
use base64::Engine as _;
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::context::DirtySink;
use crate::watch::writer::Message;
use crate::watch::{self as runtime, Shared};

/// The label by which cluster Secrets are known.
const SECRET_SELECTOR: &str = "argocd.argoproj.io/secret-type=cluster";
/// Bytes of lists in flight in the whole process: 16 lists at a time.
const LISTS_BYTES: usize = 16 * Budget::LIST;
/// Lists of one cluster at a time: a few slow clusters leave something to the others.
const LISTS_OF_CLUSTER: usize = 4;
/// So long a look waits for the first list of a kind.
const FIRST_LIST_PATIENCE: Duration = Duration::from_secs(5);
const FIRST_LIST_POLL: Duration = Duration::from_millis(50);
/// A kind whose first list fails for longer is broken, and nobody waits for it.
const FIRST_LIST_GRACE: SignedDuration = SignedDuration::from_secs(10);

/// Tells the instance name of the Application that tracks a live object. It is asked with what identifies the object, which has no
/// `managedFields`; where that does not tell, it may ask for the whole object, which costs more.
pub type OwnerOf = Arc<dyn Fn(&Value, &dyn Fn() -> Value) -> Option<Arc<str>> + Send + Sync>;
/// Tells whether a kind is looked at on a cluster (by its URL).
pub type Watched = Arc<dyn Fn(&str, &GroupKind) -> bool + Send + Sync>;

/// What the settings say about live state.
#[derive(Clone)]
pub struct Rules {
    /// The instance name of the Application that tracks a live object, if any.
    pub owner: OwnerOf,
    /// Whether a kind is looked at on a cluster (by its URL): `resource.exclusions` and `resource.inclusions`.
    pub watched: Watched,
    /// Whether a change of a tracked object matters to its Application: `ignoreResourceUpdates`.
    pub matters: Matters,
    /// What becomes of kinds that the account may not list: `resource.respectRBAC`.
    pub respect_rbac: RespectRbac,
    /// Whether the control plane's own cluster may be deployed to (`cluster.inClusterEnabled`).
    pub in_cluster_enabled: bool,
}

/// Compares what an object was and what it is.
pub type Matters = Arc<dyn Fn(&Value, &Value) -> bool + Send + Sync>;

/// Stands for a cluster where an Application's destination is none: somebody has to say so in its status.
pub const NO_CLUSTER: &str = "argosy:no-cluster";

/// Decides whether this process looks after a cluster.
pub type Owns = Arc<dyn Fn(&ClusterInfo) -> bool + Send + Sync>;
/// Makes the fence that writes to a cluster (by its URL) stand behind.
pub type FenceOf = Arc<dyn Fn(&str) -> Arc<dyn Fence> + Send + Sync>;

/// What [`Clusters::start`] needs.
pub struct Setup {
    /// The control plane's API server. It is also the in-cluster target.
    pub client: Client,
    /// The control plane's namespace, where cluster Secrets are.
    pub namespace: String,
    /// Whom to tell of changes.
    pub sink: Arc<dyn DirtySink>,
    /// The settings as they are now; see [`Clusters::set_rules`].
    pub rules: Rules,
    /// Which clusters are ours; see [`Clusters::ownership_changed`].
    pub owns: Owns,
    /// Fences for writes, if ownership is proven by leases.
    pub fence: Option<FenceOf>,
    /// What Secrets may make this process do.
    pub policy: Policy,
    /// How patiently clusters are followed.
    pub pace: Pace,
    /// Where tasks run.
    pub tasks: Tasks,
    /// What times are told by.
    pub clock: Arc<dyn Clock>,
}

/// How patiently clusters are followed. Production takes the defaults; tests and measurements make time pass faster.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Waits and times of each kind; its selection is not used.
    pub kinds: list_watch::Options,
    /// Kinds are asked for anew after this time even if nothing says that they have changed: an account may not see CRDs.
    pub discovery: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            kinds: list_watch::Options::default(),
            discovery: Duration::from_secs(600),
        }
    }
}

/// What the registry knows of a cluster without talking to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterInfo {
    /// URL of the API server, without a slash at the end.
    pub server: String,
    /// The name to show and to deploy to.
    pub name: String,
    /// What sharding counts by: the uid of the Secret; the URL for the in-cluster without Secret.
    pub id: String,
    /// Only these namespaces are looked at; empty for all.
    pub namespaces: Vec<String>,
    /// With `namespaces`: cluster-scoped kinds all the same.
    pub cluster_resources: bool,
    /// The project whose own cluster it is; empty for everyone's.
    pub project: String,
    /// A shard chosen by hand.
    pub shard: Option<i64>,
    /// The controller leaves the cluster alone.
    pub skip_reconcile: bool,
    /// Labels of the Secret.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Secret.
    pub annotations: BTreeMap<String, String>,
    /// Name of the Secret; `None` for the in-cluster without one.
    pub secret: Option<String>,
}

/// Why an Application's destination is not a cluster that we can speak to.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DestinationError {
    /// Both ways to name a cluster are used.
    #[error("application destination can't have both name and server defined: {name} {server}")]
    Both {
        /// `destination.name`.
        name: String,
        /// `destination.server`.
        server: String,
    },
    /// Neither is.
    #[error("Destination server missing from app spec")]
    Missing,
    /// No cluster has this name.
    #[error("there are no clusters with this name: {name}")]
    UnknownName {
        /// `destination.name`.
        name: String,
    },
    /// Several have.
    #[error("there are {} clusters with the same name: [{}]", .servers.len(), .servers.join(" "))]
    AmbiguousName {
        /// `destination.name`.
        name: String,
        /// Their URLs, sorted.
        servers: Vec<String>,
    },
    /// No cluster has this URL.
    #[error("error getting cluster by server {server:?}: cluster {server:?} not found")]
    UnknownServer {
        /// `destination.server`.
        server: String,
    },
    /// Its Secret cannot be used.
    #[error("cluster {server:?}: {message}")]
    Unusable {
        /// URL of the cluster.
        server: String,
        /// What is wrong with the Secret and how to mend it.
        message: String,
    },
    /// Another shard looks after it. Not an error of the Application.
    #[error("cluster {server:?} is looked after by another shard")]
    NotOwned {
        /// URL of the cluster.
        server: String,
    },
}

impl DestinationError {
    /// There is no cluster that somebody could own.
    pub fn homeless(&self) -> bool {
        !matches!(
            self,
            DestinationError::Unusable { .. } | DestinationError::NotOwned { .. }
        )
    }
}

/// How a cluster as a whole stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// First lists are under way: absence means nothing yet.
    Syncing {
        /// Since when.
        since: Timestamp,
    },
    /// Every kind has been listed and is followed, but for those in [`Cluster::kind_failures`].
    Synced {
        /// Since when.
        at: Timestamp,
    },
    /// Nothing new can be learnt. What is known is as old as this.
    Failed {
        /// Why.
        message: String,
        /// Since when.
        since: Timestamp,
    },
    /// The cluster is not ours any longer, or its Secret has changed or gone: resolve it again.
    Stopped,
}

/// A kind of which not everything is known: absence of its objects means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindFailure {
    /// The kind.
    pub kind: GroupKind,
    /// The namespace concerned; empty for all.
    pub namespace: String,
    /// What the server said.
    pub message: String,
    /// What that comes down to; nothing while it is being listed for the first time.
    pub cause: Option<Cause>,
    /// Since when.
    pub since: Timestamp,
    /// Whether it was known completely before.
    pub listed: bool,
    /// The account may not list the kind, and the settings say that such kinds are to be left out (`resource.respectRBAC`): a fault
    /// for those who want its objects, and none of the cluster.
    pub left_out: bool,
}

/// Why a kind cannot be followed, in one of few words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The account may not list or watch it.
    Forbidden,
    /// It is not served any more.
    NotServed,
    /// The server refuses for another reason: a conversion webhook that is down, for one.
    Refused,
    /// The server is not reached, or does not answer.
    Unreachable,
    /// What it answers cannot be read.
    Unreadable,
}

impl Cause {
    /// What an error comes down to.
    pub(crate) fn of(error: &argosy_kube_io::Error) -> Self {
        use argosy_kube_io::Error;
        match error {
            _ if error.forbidden() || error.unauthorized() => Cause::Forbidden,
            _ if error.kind_unknown() => Cause::NotServed,
            Error::Answer { .. } => Cause::Unreadable,
            _ if error.status().is_some() => Cause::Refused,
            _ => Cause::Unreachable,
        }
    }

    /// The word, as metrics have it.
    pub fn word(self) -> &'static str {
        match self {
            Cause::Forbidden => "forbidden",
            Cause::NotServed => "not_served",
            Cause::Refused => "refused",
            Cause::Unreachable => "unreachable",
            Cause::Unreadable => "unreadable",
        }
    }
}

impl KindFailure {
    /// Why and since when, in a few words.
    pub fn reason(&self) -> String {
        format!("{} (since {:.0})", self.message, self.since)
    }
}

/// A cluster that is followed. Clones are the same cluster.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
}

/// All clusters. Made by [`Clusters::start`].
pub struct Clusters {
    client: Client,
    namespace: String,
    sink: Arc<dyn DirtySink>,
    rules: watch::Sender<Arc<Rules>>,
    owns: Owns,
    fence: Option<FenceOf>,
    policy: Policy,
    tasks: Tasks,
    clock: Arc<dyn Clock>,
    lists: Budget,
    pace: Pace,
    registry: RwLock<Registry>,
    ready: watch::Sender<bool>,
}

#[derive(Default)]
struct Registry {
    /// The Secrets as they were read, by name.
    secrets: BTreeMap<String, Secret>,
    entries: HashMap<String, Entry>,
    names: HashMap<String, Vec<String>>,
}

struct Secret {
    created: String,
    parsed: Result<(ClusterInfo, ClusterConfig), (String, String)>,
}

struct Entry {
    info: ClusterInfo,
    auth: Result<ClusterAuth, String>,
    /// Of all that a running cluster depends on.
    digest: ContentHash,
    running: Option<Running>,
    /// It is followed for a hand-over, although it is not ours yet.
    warm: bool,
}

struct Running {
    cluster: Cluster,
    stop: CancellationToken,
}

impl Clusters {
    /// Begins to follow the cluster Secrets. Clusters themselves are started when they are first needed.
    pub fn start(setup: Setup) -> Arc<Clusters> {
        let clusters = Arc::new(Clusters {
            client: setup.client,
            namespace: setup.namespace,
            sink: setup.sink,
            rules: watch::Sender::new(Arc::new(setup.rules)),
            owns: setup.owns,
            fence: setup.fence,
            policy: setup.policy,
            pace: setup.pace,
            tasks: setup.tasks,
            clock: setup.clock,
            lists: Budget::new(LISTS_BYTES),
            registry: RwLock::new(Registry::default()),
            ready: watch::Sender::new(false),
        });
        let following = clusters.clone();
        clusters
            .tasks
            .spawn_restarting("cluster secrets", move || following.clone().follow_secrets());
        clusters
    }

    /// Returns when the cluster Secrets have been read once.
    pub async fn ready(&self) {
        // The sender lives in `self`.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// The cluster of an Application's destination. Starts to follow it if nobody has needed it before.
    pub fn resolve(&self, destination: &ApplicationDestination) -> Result<Cluster, DestinationError> {
        let server = destination.server.trim_end_matches('/');
        match (server.is_empty(), destination.name.is_empty()) {
            (false, false) => Err(DestinationError::Both {
                name: destination.name.clone(),
                server: destination.server.clone(),
            }),
            (true, true) => Err(DestinationError::Missing),
            (false, true) => self.open(server),
            (true, false) => {
                let servers = self
                    .registry
                    .read()
                    .names
                    .get(&destination.name)
                    .cloned()
                    .unwrap_or_default();
                match &*servers {
                    [] => Err(DestinationError::UnknownName {
                        name: destination.name.clone(),
                    }),
                    [server] => self.open(server),
                    _ => Err(DestinationError::AmbiguousName {
                        name: destination.name.clone(),
                        servers,
                    }),
                }
            }
        }
    }

    /// The URL that a destination means, without starting anything.
    pub fn server_of(&self, destination: &ApplicationDestination) -> Option<String> {
        if !destination.server.is_empty() {
            return Some(destination.server.trim_end_matches('/').to_owned());
        }
        match self.registry.read().names.get(&destination.name)?.as_slice() {
            [server] => Some(server.clone()),
            _ => None,
        }
    }

    /// What somebody has to own to write to Applications with this destination: the URL of the cluster, or
    /// [`NO_CLUSTER`].
    pub fn holder_of(&self, destination: &ApplicationDestination) -> String {
        let both = !destination.server.is_empty() && !destination.name.is_empty();
        let server = if both { None } else { self.server_of(destination) };
        let known = server.filter(|server| self.registry.read().entries.contains_key(server));
        known.unwrap_or_else(|| NO_CLUSTER.to_owned())
    }

    /// A cluster that is being followed.
    pub fn get(&self, server: &str) -> Option<Cluster> {
        let registry = self.registry.read();
        registry
            .entries
            .get(server)?
            .running
            .as_ref()
            .map(|running| running.cluster.clone())
    }

    /// Whether a cluster of the registry is ours.
    pub fn owns(&self, server: &str) -> bool {
        let registry = self.registry.read();
        registry
            .entries
            .get(server)
            .is_some_and(|entry| (self.owns)(&entry.info))
    }

    /// All clusters that are being followed.
    pub fn running(&self) -> Vec<Cluster> {
        let registry = self.registry.read();
        registry
            .entries
            .values()
            .filter_map(|entry| Some(entry.running.as_ref()?.cluster.clone()))
            .collect()
    }

    /// Everything in the registry, followed or not, sorted by URL.
    pub fn list(&self) -> Vec<ClusterInfo> {
        let mut all: Vec<_> = self
            .registry
            .read()
            .entries
            .values()
            .map(|entry| entry.info.clone())
            .collect();
        all.sort_by(|a, b| a.server.cmp(&b.server));
        all
    }

    /// What the registry knows of a cluster.
    pub fn info(&self, server: &str) -> Option<ClusterInfo> {
        self.registry
            .read()
            .entries
            .get(server)
            .map(|entry| entry.info.clone())
    }

    /// The settings have changed: kinds and owners are worked out anew, without a new list of what stays.
    pub fn set_rules(&self, rules: Rules) {
        let toggled = self.rules.borrow().in_cluster_enabled != rules.in_cluster_enabled;
        self.rules.send_replace(Arc::new(rules));
        if toggled {
            self.rebuild();
        }
    }

    /// Ownership has changed: clusters that are not ours any longer are stopped. New ones start when they are needed.
    pub fn ownership_changed(&self) {
        let mut stopped = Vec::new();
        for entry in self.registry.write().entries.values_mut() {
            if entry.running.is_some() && !entry.warm && !(self.owns)(&entry.info) {
                entry.stop();
                stopped.push(entry.info.server.clone());
            }
        }
        for server in stopped {
            info!(cluster = server, "cluster is not ours any longer");
            self.sink.cluster_changed(&server);
        }
    }

    /// Whether Applications whose destination is no cluster are ours.
    pub fn owns_homeless(&self) -> bool {
        let nowhere = ClusterInfo {
            server: NO_CLUSTER.to_owned(),
            ..ClusterInfo::default()
        };
        (self.owns)(&nowhere)
    }

    /// Follows a cluster that is about to be ours. False if that cannot be.
    pub fn warm(&self, server: &str) -> bool {
        let mut registry = self.registry.write();
        let Some(entry) = registry.entries.get_mut(server) else {
            return false;
        };
        entry.warm = self.begin(entry).is_ok();
        entry.warm
    }

    /// The cluster is ours now: its Applications are looked at.
    pub fn taken(&self, server: &str) {
        if let Some(entry) = self.registry.write().entries.get_mut(server) {
            entry.warm = false;
        }
        self.sink.cluster_changed(server);
    }

    /// The cluster is not ours, and is not going to be.
    pub fn left(&self, server: &str) {
        if let Some(entry) = self.registry.write().entries.get_mut(server) {
            entry.warm = false;
        }
        self.ownership_changed();
    }

    fn open(&self, server: &str) -> Result<Cluster, DestinationError> {
        let unknown = || DestinationError::UnknownServer {
            server: server.to_owned(),
        };
        {
            let registry = self.registry.read();
            let entry = registry.entries.get(server).ok_or_else(unknown)?;
            if !(self.owns)(&entry.info) {
                return Err(DestinationError::NotOwned {
                    server: server.to_owned(),
                });
            }
            if let Some(running) = &entry.running {
                return Ok(running.cluster.clone());
            }
        }
        let mut registry = self.registry.write();
        let entry = registry.entries.get_mut(server).ok_or_else(unknown)?;
        self.begin(entry)
    }

    /// Starts a cluster that is not running yet.
    fn begin(&self, entry: &mut Entry) -> Result<Cluster, DestinationError> {
        if let Some(running) = &entry.running {
            return Ok(running.cluster.clone());
        }
        let server = entry.info.server.clone();
        let auth = entry.auth.clone().map_err(|message| DestinationError::Unusable {
            server: server.clone(),
            message,
        })?;
        let fence = self.fence.as_ref().map(|make| make(&server));
        let (shared, messages) = Shared::new(
            entry.info.clone(),
            self.sink.clone(),
            self.rules.subscribe(),
            fence,
            self.lists.for_server(LISTS_OF_CLUSTER),
            self.pace.clone(),
            self.clock.clone(),
        );
        let stop = CancellationToken::new();
        let (writer, stopped) = (shared.clone(), stop.clone());
        self.tasks.spawn(format!("live state of {server}"), async move {
            let _ = stopped
                .run_until_cancelled(runtime::writer::run(writer, messages))
                .await;
        });
        let (following, stopped) = (shared.clone(), stop.clone());
        self.tasks.spawn(format!("watches of {server}"), async move {
            let _ = stopped.run_until_cancelled(runtime::run(following, auth)).await;
        });
        info!(cluster = server, name = entry.info.name, "cluster is followed");
        let cluster = Cluster { shared };
        entry.running = Some(Running {
            cluster: cluster.clone(),
            stop,
        });
        Ok(cluster)
    }

    async fn follow_secrets(self: Arc<Self>) {
        let selection = Selection {
            namespace: self.namespace.clone(),
            labels: SECRET_SELECTOR.to_owned(),
            fields: String::new(),
        };
        let mut secrets: TypedWatch<Value> =
            TypedWatch::new(self.client.clone(), argosy_kube_io::api::secrets(), selection);
        // What was read by an earlier run may be gone by now.
        self.registry.write().secrets.clear();
        let mut listed = false;
        loop {
            match secrets.next().await {
                Change::Applied(object) => {
                    let secret = Secret {
                        created: meta::creation_timestamp(&object).unwrap_or_default().to_owned(),
                        parsed: read_secret(&object),
                    };
                    self.registry
                        .write()
                        .secrets
                        .insert(meta::name(&object).to_owned(), secret);
                }
                Change::Deleted(Place { name, .. }) => {
                    self.registry.write().secrets.remove(&name);
                }
                Change::Synced => {
                    listed = true;
                    self.rebuild();
                    self.ready.send_replace(true);
                    continue;
                }
                Change::Unreadable(bad) => warn!(
                    secret = bad.place.name,
                    reason = bad.message,
                    "unreadable cluster secret"
                ),
                Change::Failed(error) => {
                    warn!(error = %error, "cluster secrets cannot be followed");
                    continue;
                }
            }
            // Within the first list the registry would only be half of it.
            if listed {
                self.rebuild();
            }
        }
    }

    /// Works out the registry from the Secrets. Running clusters that nothing has changed for stay as they are.
    fn rebuild(&self) {
        let mut changed = Vec::new();
        {
            let mut registry = self.registry.write();
            let registry = &mut *registry;
            let mut wanted = self.wanted(&registry.secrets);
            let in_cluster = self.rules.borrow().in_cluster_enabled;
            if !in_cluster {
                wanted.remove(IN_CLUSTER_SERVER);
            }
            let gone: Vec<String> = registry
                .entries
                .keys()
                .filter(|server| !wanted.contains_key(*server))
                .cloned()
                .collect();
            for server in gone {
                if let Some(mut entry) = registry.entries.remove(&server) {
                    entry.stop();
                    changed.push(server);
                }
            }
            for (server, (info, auth, digest)) in wanted {
                match registry.entries.get_mut(&server) {
                    Some(entry) if entry.digest == digest => {
                        if entry.info != info {
                            if let Some(running) = &entry.running {
                                running.cluster.shared.info.store(Arc::new(info.clone()));
                            }
                            entry.info = info;
                            changed.push(server);
                        }
                    }
                    Some(entry) => {
                        let was_running = entry.stop();
                        *entry = Entry {
                            info,
                            auth,
                            digest,
                            running: None,
                            warm: entry.warm,
                        };
                        if was_running && (self.owns)(&entry.info) && self.begin(entry).is_err() {
                            warn!(cluster = server, "the changed cluster cannot be followed");
                        }
                        changed.push(server);
                    }
                    None => {
                        registry.entries.insert(
                            server.clone(),
                            Entry {
                                info,
                                auth,
                                digest,
                                running: None,
                                warm: false,
                            },
                        );
                        changed.push(server);
                    }
                }
            }
            registry.names.clear();
            for entry in registry.entries.values() {
                registry
                    .names
                    .entry(entry.info.name.clone())
                    .or_default()
                    .push(entry.info.server.clone());
            }
            for servers in registry.names.values_mut() {
                servers.sort();
            }
        }
        for server in changed {
            self.sink.cluster_changed(&server);
        }
    }

    /// What the Secrets say, by URL. Of two Secrets for one URL the older counts.
    #[allow(clippy::type_complexity)]
    fn wanted(
        &self,
        secrets: &BTreeMap<String, Secret>,
    ) -> BTreeMap<String, (ClusterInfo, Result<ClusterAuth, String>, ContentHash)> {
        let local = self.client.auth();
        let mut by_age: Vec<_> = secrets.iter().collect();
        by_age.sort_by(|a, b| (&a.1.created, a.0).cmp(&(&b.1.created, b.0)));
        let mut wanted: BTreeMap<String, (ClusterInfo, Result<ClusterAuth, String>, ContentHash)> =
            BTreeMap::new();
        for (name, secret) in by_age {
            let (info, auth, digest) = match &secret.parsed {
                Ok((info, config)) => {
                    let auth = ClusterAuth::cluster(&info.server, config, local, self.policy)
                        .map_err(|error| error.to_string());
                    let config = serde_json::to_value(config).unwrap_or_default();
                    let depends =
                        serde_json::json!([info.server, config, info.namespaces, info.cluster_resources]);
                    (info.clone(), auth, ContentHash::of_value(&depends))
                }
                Err((server, message)) if server.is_empty() => {
                    warn!(secret = name, reason = message, "cluster secret cannot be used");
                    continue;
                }
                Err((server, message)) => {
                    let info = ClusterInfo {
                        server: server.clone(),
                        name: server.clone(),
                        secret: Some(name.clone()),
                        ..ClusterInfo::default()
                    };
                    (info, Err(message.clone()), ContentHash::of(message.as_bytes()))
                }
            };
            if let Some((first, ..)) = wanted.get(&info.server) {
                warn!(
                    secret = name,
                    first = first.secret,
                    cluster = info.server,
                    "two secrets for one cluster, the older counts"
                );
                continue;
            }
            wanted.insert(info.server.clone(), (info, auth, digest));
        }
        wanted.entry(IN_CLUSTER_SERVER.to_owned()).or_insert_with(|| {
            let auth = ClusterAuth::cluster(IN_CLUSTER_SERVER, &ClusterConfig::default(), local, self.policy)
                .map_err(|error| error.to_string());
            let info = ClusterInfo {
                server: IN_CLUSTER_SERVER.to_owned(),
                name: IN_CLUSTER_NAME.to_owned(),
                id: IN_CLUSTER_SERVER.to_owned(),
                ..ClusterInfo::default()
            };
            (info, auth, ContentHash::of(IN_CLUSTER_SERVER.as_bytes()))
        });
        wanted
    }
}

impl Entry {
    /// Ends what runs and says whether something did.
    fn stop(&mut self) -> bool {
        let Some(running) = self.running.take() else {
            return false;
        };
        running.stop.cancel();
        running.cluster.shared.status.send_replace(Status::Stopped);
        true
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("server", &self.server())
            .field("status", &self.status())
            .finish()
    }
}

impl Cluster {
    /// URL of the API server, as destinations name it.
    pub fn server(&self) -> &str {
        &self.shared.server
    }

    /// The name to show.
    pub fn name(&self) -> String {
        self.info().name.clone()
    }

    /// What the registry knows.
    pub fn info(&self) -> Arc<ClusterInfo> {
        self.shared.info.load_full()
    }

    /// How the cluster stands.
    pub fn status(&self) -> Status {
        self.shared.status.borrow().clone()
    }

    /// Changes of [`Cluster::status`].
    pub fn status_changes(&self) -> watch::Receiver<Status> {
        self.shared.status.subscribe()
    }

    /// Returns true when the cluster is synced, false when it is not followed any longer.
    pub async fn synced(&self) -> bool {
        let mut status = self.shared.status.subscribe();
        let found = status
            .wait_for(|status| matches!(status, Status::Synced { .. } | Status::Stopped))
            .await;
        found.is_ok_and(|status| matches!(*status, Status::Synced { .. }))
    }

    /// What the cluster holds now, as far as is known.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::clone(&self.shared.snapshot.load())
    }

    /// The schemas of its kinds.
    pub fn schemas(&self) -> Arc<Schemas> {
        self.shared.schemas.load_full()
    }

    /// The kinds that it serves.
    pub fn discovery(&self) -> Discovery {
        Discovery::clone(&self.shared.discovery.load())
    }

    /// Calls on it; `None` before the first connection. Writes stand behind the cluster's fence.
    pub fn target(&self) -> Option<Target> {
        self.shared
            .target
            .load_full()
            .map(|target| Target::clone(&target))
    }

    /// Version of its API server, such as `v1.36.3`.
    pub fn kube_version(&self) -> Option<String> {
        self.shared
            .version
            .load_full()
            .map(|version| version.git_version.clone())
    }

    /// What renderers are told that it serves: `group/version` and `group/version/Kind`, sorted.
    pub fn api_versions(&self) -> Arc<Vec<String>> {
        self.shared.api_versions.load().list.clone()
    }

    /// Identity of [`Cluster::api_versions`].
    pub fn api_versions_id(&self) -> ContentHash {
        self.shared.api_versions.load().id
    }

    /// Kinds of which not everything is known, those included that are being listed for the first time.
    pub fn kind_failures(&self) -> Vec<KindFailure> {
        let mut all: Vec<KindFailure> = self.shared.failures.read().values().cloned().collect();
        let pending = self.shared.pending.read();
        for scope in pending.iter() {
            if !all
                .iter()
                .any(|known| known.kind == scope.kind && known.namespace == scope.namespace)
            {
                all.push(self.pending(scope));
            }
        }
        all
    }

    /// Waits a moment for those of the `wanted` kinds that the cluster serves only since just now. For a second or so
    /// after a kind came, its API server refuses to list it, which says nothing about its objects.
    pub async fn first_lists(&self, wanted: impl Fn(&GroupKind) -> bool) {
        let deadline = tokio::time::Instant::now() + FIRST_LIST_PATIENCE;
        while self.any_new(&wanted) && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(FIRST_LIST_POLL).await;
        }
    }

    /// Almost always nothing is pending, and then no look pays for the question.
    fn any_new(&self, wanted: impl Fn(&GroupKind) -> bool) -> bool {
        let pending = self.shared.pending.read();
        if pending.is_empty() {
            return false;
        }
        let now = self.shared.clock.now();
        let failures = self.shared.failures.read();
        let young = |failure: &KindFailure| now.duration_since(failure.since) < FIRST_LIST_GRACE;
        pending
            .iter()
            .any(|scope| failures.get(scope).is_none_or(young) && wanted(&scope.kind))
    }

    /// Why not everything is known of a kind; `None` if absence of its objects means that they do not exist.
    ///
    /// Kinds that are excluded by settings, or not served, are not failures: see [`Cluster::follows`].
    pub fn kind_failure(&self, kind: &GroupKind) -> Option<KindFailure> {
        if let Some(known) = self
            .shared
            .failures
            .read()
            .values()
            .find(|known| known.kind == *kind)
        {
            return Some(known.clone());
        }
        self.shared
            .pending
            .read()
            .iter()
            .find(|scope| scope.kind == *kind)
            .map(|scope| self.pending(scope))
    }

    /// Whether live state is kept for this kind.
    pub fn follows(&self, kind: &GroupKind) -> bool {
        self.shared.wants(kind)
            && self
                .shared
                .discovery
                .load()
                .preferred(kind)
                .is_some_and(|found| found.watchable())
    }

    /// How many objects are known.
    pub fn resource_count(&self) -> usize {
        self.shared.snapshot.load().len()
    }

    /// How many kinds are followed.
    pub fn watched_kinds(&self) -> usize {
        let left_out = |failure: &&KindFailure| failure.left_out;
        let left_out = self.shared.failures.read().values().filter(left_out).count();
        let kinds = self.shared.kinds.load(Ordering::Relaxed);
        kinds.saturating_sub(left_out)
    }

    /// How often a count of the server's objects did not agree with what was known. Each time the kind was listed anew.
    pub fn audit_mismatches(&self) -> usize {
        self.shared.mismatches.load(Ordering::Relaxed)
    }

    /// Since when every kind has been listed, or has agreed with a look at the server. Nothing before all are listed.
    pub fn verified(&self) -> Option<Timestamp> {
        if !self.shared.pending.read().is_empty() {
            return None;
        }
        self.shared.verified.read().values().min().copied()
    }

    /// Asks for the kinds anew, for instance because a write was answered that a kind is not served.
    pub fn rediscover(&self) {
        self.shared.rediscover.notify_one();
    }

    /// Feeds an object that a write returned into live state. When this returns, snapshots show it or something newer.
    pub async fn observe(&self, object: Value) {
        let kind = meta::gvk(&object).group_kind();
        if !self.holds(&kind, meta::namespace(&object)) || meta::uid(&object).is_empty() {
            return;
        }
        let (answer, done) = oneshot::channel();
        let resource = self.shared.resource(&object);
        if self
            .shared
            .inbox
            .send(Message::Observe(resource, answer))
            .await
            .is_ok()
        {
            let _ = done.await;
        }
    }

    /// Whether live state may hold objects of this kind in this namespace.
    fn holds(&self, kind: &GroupKind, namespace: &str) -> bool {
        let info = self.info();
        let ours = info.namespaces.is_empty()
            || info.namespaces.iter().any(|known| known == namespace)
            || (namespace.is_empty() && info.cluster_resources);
        ours && self.shared.wants(kind)
    }

    /// Tells live state that this incarnation is gone. When this returns, snapshots do not show it.
    pub async fn observe_deleted(&self, key: &ResourceKey, uid: &str) {
        // Of what nobody watches the end is never told, and would be waited for for ever.
        if !self.holds(&key.group_kind(), &key.namespace) {
            return;
        }
        let (answer, done) = oneshot::channel();
        let message = Message::ObserveDeleted(key.clone(), uid.to_owned(), answer);
        if self.shared.inbox.send(message).await.is_ok() {
            let _ = done.await;
        }
    }

    fn pending(&self, scope: &argosy_livestate::Scope) -> KindFailure {
        KindFailure {
            kind: scope.kind.clone(),
            namespace: scope.namespace.clone(),
            message: "the kind is being listed for the first time".to_owned(),
            cause: None,
            since: match self.status() {
                Status::Syncing { since } | Status::Failed { since, .. } | Status::Synced { at: since } => {
                    since
                }
                Status::Stopped => self.shared.clock.now(),
            },
            listed: false,
            left_out: false,
        }
    }
}

/// Reads a cluster Secret. The error carries the URL too, if that much can be read.
fn read_secret(secret: &Value) -> Result<(ClusterInfo, ClusterConfig), (String, String)> {
    let mut data = BTreeMap::new();
    if let Some(fields) = meta::field(secret, &["data"]).and_then(Value::as_object) {
        for (key, encoded) in fields {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(encoded.as_str().unwrap_or_default())
                .map_err(|error| (String::new(), format!("read {key}: {error}")))?;
            data.insert(key.clone(), bytes);
        }
    }
    let map = |field: &str| -> BTreeMap<String, String> {
        meta::field(secret, &["metadata", field])
            .and_then(|map| serde_json::from_value(map.clone()).ok())
            .unwrap_or_default()
    };
    let server = || {
        let server = data.get("server").map(Vec::as_slice).unwrap_or_default();
        String::from_utf8_lossy(server).trim_end_matches('/').to_owned()
    };
    let registered = cluster_secret::read(cluster_secret::Secret {
        name: meta::name(secret),
        uid: meta::uid(secret),
        labels: &map("labels"),
        annotations: &map("annotations"),
        data: &data,
    })
    .map_err(|error| (server(), with_sources(&error)))?;
    for finding in &registered.findings {
        warn!(
            secret = meta::name(secret),
            reason = finding,
            "odd cluster secret"
        );
    }
    let cluster = registered.cluster;
    Ok((
        ClusterInfo {
            name: if cluster.name.is_empty() {
                cluster.server.clone()
            } else {
                cluster.name
            },
            server: cluster.server,
            id: registered.uid,
            namespaces: cluster.namespaces,
            cluster_resources: cluster.cluster_resources,
            project: cluster.project,
            shard: cluster.shard,
            skip_reconcile: registered.skip_reconcile,
            labels: map("labels"),
            annotations: map("annotations"),
            secret: Some(meta::name(secret).to_owned()),
        },
        cluster.config,
    ))
}

fn with_sources(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn secret(fields: &[(&str, &str)]) -> Value {
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let data: serde_json::Map<String, Value> = fields
            .iter()
            .map(|(key, text)| ((*key).to_owned(), Value::String(encode(text))))
            .collect();
        serde_json::json!({
            "metadata": {"name": "prod", "uid": "u1", "labels": {"env": "prod"}},
            "data": data,
        })
    }

    #[test]
    fn a_cluster_secret_is_read_as_argo_cd_reads_it() {
        let (info, config) = read_secret(&secret(&[
            ("name", "prod"),
            ("server", "https://prod.example.com/"),
            (
                "config",
                r#"{"bearerToken":"t","tlsClientConfig":{"insecure":true}}"#,
            ),
            ("namespaces", "a,b"),
            ("clusterResources", "true"),
            ("shard", "2"),
            ("project", "shop"),
        ]))
        .unwrap();
        assert_eq!(info.server, "https://prod.example.com");
        assert_eq!(info.namespaces, ["a", "b"]);
        assert!(info.cluster_resources);
        assert_eq!(
            (info.shard, info.project.as_str(), info.id.as_str()),
            (Some(2), "shop", "u1")
        );
        assert_eq!(config.bearer_token, "t");
        assert!(config.tls_client_config.insecure);
    }

    #[test]
    fn a_broken_config_is_an_error_of_that_cluster() {
        let (server, message) =
            read_secret(&secret(&[("server", "https://a"), ("config", "{not json")])).unwrap_err();
        assert_eq!(server, "https://a");
        assert!(
            message.starts_with("read config of cluster secret prod: "),
            "{message}"
        );
    }

    #[test]
    fn a_cluster_without_a_name_is_called_by_its_url() {
        assert_eq!(
            read_secret(&secret(&[("server", "https://a")])).unwrap().0.name,
            "https://a"
        );
    }
}
