//! The clusters that Applications deploy to: which there are, which are followed, and what is known of each.
//!
//! The registry follows the cluster Secrets of the control plane's namespace, plus the cluster that the control plane
//! runs in. A cluster is followed from the moment that an Application first needs it ([`Clusters::resolve`]) until its
//! Secret goes or it is not ours any longer. A Secret that changes its address or credentials starts its cluster anew and
//! leaves the others alone; one that cannot be read is an error for those who want that cluster.
//!
//! `secret` is what a Secret says, `cluster` what is known of one cluster, `failure` what is not.

mod cluster;
mod failure;
mod secret;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use argosy_api::settings::RespectRbac;
use argosy_api::v1alpha1::{ApplicationDestination, ClusterConfig};
use argosy_kube_io::api::{Change, Place, TypedWatch};
use argosy_kube_io::auth::{IN_CLUSTER_NAME, IN_CLUSTER_SERVER, Policy};
use argosy_kube_io::fence::Fence;
use argosy_kube_io::list_watch;
use argosy_kube_io::target::Selection;
use argosy_kube_io::{Budget, Client, ClusterAuth};
use argosy_object::{ContentHash, GroupKind, Value, meta};
use argosy_runtime::clock::Clock;
use argosy_runtime::tasks::Tasks;
use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use failure::{Cause, KindFailure};

use crate::context::DirtySink;
use crate::watch::{self as runtime, Shared};

/// The label by which cluster Secrets are known.
const SECRET_SELECTOR: &str = "argocd.argoproj.io/secret-type=cluster";
/// Bytes of lists in flight in the whole process: 16 lists at a time.
const LISTS_BYTES: usize = 16 * Budget::LIST;
/// Lists of one cluster at a time: a few slow clusters leave something to the others.
const LISTS_OF_CLUSTER: usize = 4;

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

    /// Whether Applications with this destination are ours to write to: those of a cluster that we look after, or those without one.
    pub fn owns_destination(&self, destination: &ApplicationDestination) -> bool {
        let holder = self.holder_of(destination);
        if holder == NO_CLUSTER {
            self.owns_homeless()
        } else {
            self.owns(&holder)
        }
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
                        parsed: secret::read(&object),
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
        if changed.is_empty() {
            return;
        }
        for server in changed {
            self.sink.cluster_changed(&server);
        }
        // A Secret may ask for another shard than before.
        self.ownership_changed();
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
