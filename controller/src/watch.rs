//! One target cluster, from its address to live state.
//!
//! The recipe of a cluster's life:
//!
//! 1. connect, again and again until it works;
//! 2. find out which kinds are served ([`discover`]);
//! 3. follow every kind that can be listed and watched and is not excluded, one task a kind ([`kind`]);
//! 4. one task writes what they say into live state and tells whom it touches ([`writer`]);
//! 5. whenever a CustomResourceDefinition or APIService changes, or a kind turns out not to be served any longer, go to 2.
//!
//! A kind that cannot be followed is a [`KindFailure`] and hurts nothing else. What was known of it last stays readable,
//! and the failure says that it is not to be relied on. Nothing is ever deleted from live state for want of knowledge.

pub(crate) mod kind;
pub(crate) mod schemas;
pub(crate) mod writer;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use argosy_kube_io::client::{self, Client, Version};
use argosy_kube_io::fence::Fence;
use argosy_kube_io::{ApiResource, Budget, ClusterAuth, Discovery, Target, connect, discover};
use argosy_livestate::{Scope, Snapshot};
use argosy_object::schema::Schemas;
use argosy_object::{ContentHash, GroupKind};
use argosy_runtime::clock::Clock;
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tracing::{debug, info, warn};

use crate::clusters::{ClusterInfo, KindFailure, Pace, Rules, Status};
use crate::context::DirtySink;
use schemas::Definitions;
use writer::Message;

/// Kinds that are never followed, whatever the settings say: their objects change all the time and nobody deploys them.
const NEVER_GROUPS: [&str; 2] = ["events.k8s.io", "metrics.k8s.io"];
const NEVER_KINDS: [(&str, &str); 2] = [("", "Event"), ("coordination.k8s.io", "Lease")];

/// Waits between attempts to connect.
const CONNECT_WAIT_MIN: Duration = Duration::from_secs(1);
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(30);
/// News about kinds are gathered for so long, as CRDs rarely come alone.
const DISCOVERY_PAUSE: Duration = Duration::from_millis(300);
/// A kind that a CRD announces or takes back is looked for again after this time, so often.
const CATCH_UP_WAIT: Duration = Duration::from_secs(1);
const CATCH_UP_TRIES: u32 = 30;
/// Messages on their way to the writer. Each holds one object (a few KB): full, the queue holds some MB, and lists wait.
const INBOX_LEN: usize = 1024;

/// What one cluster's tasks and handles share.
pub(crate) struct Shared {
    pub(crate) server: String,
    pub(crate) info: ArcSwap<ClusterInfo>,
    pub(crate) sink: Arc<dyn DirtySink>,
    pub(crate) rules: watch::Receiver<Arc<Rules>>,
    pub(crate) fence: Option<Arc<dyn Fence>>,
    /// Bytes of lists in flight in this process.
    pub(crate) lists: Budget,
    pub(crate) pace: Pace,
    pub(crate) clock: Arc<dyn Clock>,

    pub(crate) status: watch::Sender<Status>,
    pub(crate) snapshot: ArcSwap<Snapshot>,
    pub(crate) schemas: ArcSwap<Schemas>,
    /// What was made of the cluster's CRDs, as long as they do not change.
    pub(crate) definitions: Mutex<Arc<Definitions>>,
    /// Documents of schemas that could not be had.
    pub(crate) broken_documents: Mutex<BTreeSet<String>>,
    pub(crate) discovery: ArcSwap<Discovery>,
    pub(crate) api_versions: ArcSwap<ApiVersions>,
    pub(crate) version: ArcSwapOption<Version>,
    pub(crate) client: ArcSwapOption<Client>,
    pub(crate) target: ArcSwapOption<Target>,
    pub(crate) failures: RwLock<BTreeMap<Scope, KindFailure>>,
    /// Kinds that have never been listed completely.
    pub(crate) pending: RwLock<BTreeSet<Scope>>,
    pub(crate) kinds: AtomicUsize,
    /// When each kind was listed completely, or agreed with a look at the server, last.
    pub(crate) verified: RwLock<BTreeMap<Scope, Timestamp>>,
    /// Counts of the server that did not agree with live state.
    pub(crate) mismatches: AtomicUsize,

    pub(crate) inbox: mpsc::Sender<Message>,
    /// Kinds may have changed.
    pub(crate) rediscover: Notify,
}

/// What renderers are told that a cluster serves.
pub(crate) struct ApiVersions {
    pub(crate) list: Arc<Vec<String>>,
    /// Identity of the list.
    pub(crate) id: ContentHash,
}

impl ApiVersions {
    fn new(list: Vec<String>) -> Self {
        ApiVersions {
            id: ContentHash::of(list.join("\n").as_bytes()),
            list: Arc::new(list),
        }
    }
}

impl Shared {
    /// Nothing is known yet. The receiver belongs to [`writer::run`].
    pub(crate) fn new(
        info: ClusterInfo,
        sink: Arc<dyn DirtySink>,
        rules: watch::Receiver<Arc<Rules>>,
        fence: Option<Arc<dyn Fence>>,
        lists: Budget,
        pace: Pace,
        clock: Arc<dyn Clock>,
    ) -> (Arc<Self>, mpsc::Receiver<Message>) {
        let (inbox, messages) = mpsc::channel(INBOX_LEN);
        let shared = Shared {
            server: info.server.clone(),
            info: ArcSwap::from_pointee(info),
            sink,
            rules,
            fence,
            lists,
            pace,
            status: watch::Sender::new(Status::Syncing { since: clock.now() }),
            clock,
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            schemas: ArcSwap::new(Schemas::builtin()),
            definitions: Mutex::default(),
            broken_documents: Mutex::default(),
            discovery: ArcSwap::from_pointee(Discovery::default()),
            api_versions: ArcSwap::from_pointee(ApiVersions::new(Vec::new())),
            version: ArcSwapOption::empty(),
            client: ArcSwapOption::empty(),
            target: ArcSwapOption::empty(),
            failures: RwLock::new(BTreeMap::new()),
            pending: RwLock::new(BTreeSet::new()),
            kinds: AtomicUsize::new(0),
            verified: RwLock::new(BTreeMap::new()),
            mismatches: AtomicUsize::new(0),
            inbox,
            rediscover: Notify::new(),
        };
        (Arc::new(shared), messages)
    }

    /// Whether live state may hold objects of this kind.
    pub(crate) fn wants(&self, kind: &GroupKind) -> bool {
        let never = NEVER_GROUPS.contains(&kind.group.as_str())
            || NEVER_KINDS.contains(&(kind.group.as_str(), kind.kind.as_str()));
        let rules = self.rules.borrow().clone();
        !never && (rules.watched)(&self.server, kind)
    }

    /// Changes the status, if it is another kind of status than before, and tells the Applications.
    pub(crate) fn set_status(&self, status: Status) {
        let changed = self.status.send_if_modified(|known| {
            let same = match (&*known, &status) {
                (Status::Syncing { .. }, Status::Syncing { .. })
                | (Status::Synced { .. }, Status::Synced { .. })
                | (Status::Stopped, _) => true,
                (Status::Failed { message: old, .. }, Status::Failed { message: new, .. }) => old == new,
                _ => false,
            };
            if !same {
                *known = status.clone();
            }
            !same
        });
        if changed {
            match &status {
                Status::Failed { message, .. } => warn!(
                    cluster = self.server,
                    reason = message,
                    "cluster cannot be reached"
                ),
                Status::Synced { .. } => info!(
                    cluster = self.server,
                    resources = self.snapshot.load().len(),
                    kinds = self.kinds.load(Ordering::Relaxed),
                    failures = self.failures.read().len(),
                    "cluster is synced"
                ),
                other => debug!(cluster = self.server, status = ?other, "cluster"),
            }
            self.sink.cluster_changed(&self.server);
        }
    }
}

/// Follows the cluster until it is dropped.
pub(crate) async fn run(shared: Arc<Shared>, auth: ClusterAuth) {
    let client = connected(&shared, auth).await;
    let mut target = Target::new(client.clone());
    if let Some(fence) = &shared.fence {
        target = target.with_fence(fence.clone());
    }
    shared.target.store(Some(Arc::new(target)));
    shared.client.store(Some(Arc::new(client.clone())));

    // Side by side: the connection may go while kinds are being asked for.
    tokio::select! {
        () = keep_kinds(&shared, &client) => {}
        () = keep_reachability(&shared, &client) => {}
    }
}

/// Tells the writer whether the server can be reached.
async fn keep_reachability(shared: &Shared, client: &Client) {
    let mut reachable = client.reachability();
    while reachable.changed().await.is_ok() {
        let down = reachable.borrow_and_update().is_some();
        let _ = shared.inbox.send(Message::Reachable(!down)).await;
    }
}

/// Follows the kinds that are served.
async fn keep_kinds(shared: &Arc<Shared>, client: &Client) {
    let mut rules = shared.rules.clone();
    let mut kinds = Kinds {
        shared: shared.clone(),
        client: client.clone(),
        running: HashMap::new(),
        tasks: JoinSet::new(),
    };
    let mut catch_up = 0;
    let mut wait = CONNECT_WAIT_MIN;
    loop {
        match look(shared, client, &mut kinds).await {
            Ok(behind) if behind => catch_up += 1,
            Ok(_) => catch_up = 0,
            Err(error) => {
                warn!(cluster = shared.server, error = %error, "discovery failed");
                if shared.discovery.load().resources().is_empty() {
                    shared.set_status(Status::Failed {
                        message: error.to_string(),
                        since: shared.clock.now(),
                    });
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(CONNECT_WAIT_MAX);
                client.wait_until_reachable(Duration::ZERO).await;
                continue;
            }
        }
        wait = CONNECT_WAIT_MIN;

        let age = if catch_up > 0 && catch_up <= CATCH_UP_TRIES {
            CATCH_UP_WAIT
        } else {
            shared.pace.discovery
        };
        let due = tokio::time::sleep(age.mul_f64(0.9 + fastrand::f64() / 5.0));
        tokio::pin!(due);
        // Until kinds may have changed, keep the books on tasks that died.
        loop {
            tokio::select! {
                () = &mut due => break,
                () = shared.rediscover.notified() => {
                    catch_up = 0;
                    if matches!(*shared.status.borrow(), Status::Synced { .. }) {
                        tokio::time::sleep(DISCOVERY_PAUSE).await;
                    }
                    break;
                }
                changed = rules.changed() => {
                    if changed.is_err() { return }
                    let _ = shared.inbox.send(Message::Retag).await;
                    break;
                }
                Some(ended) = kinds.tasks.join_next_with_id(), if !kinds.tasks.is_empty() => {
                    if let Err(error) = ended && error.is_panic() {
                        tracing::error!(cluster = shared.server, error = %error, "following a kind panicked, it is started again");
                        kinds.running.retain(|_, running| running.abort.id() != error.id());
                        tokio::time::sleep(CONNECT_WAIT_MIN).await;
                        break;
                    }
                }
            }
        }
    }
}

async fn connected(shared: &Arc<Shared>, auth: ClusterAuth) -> Client {
    let mut wait = CONNECT_WAIT_MIN;
    loop {
        match connect(auth.clone(), client::Options::default()).await {
            Ok(client) => {
                info!(cluster = shared.server, http2 = client.is_http2(), "connected");
                return client;
            }
            Err(error) => shared.set_status(Status::Failed {
                message: error.to_string(),
                since: shared.clock.now(),
            }),
        }
        tokio::time::sleep(wait.mul_f64(0.75 + fastrand::f64() / 4.0)).await;
        wait = (wait * 2).min(CONNECT_WAIT_MAX);
    }
}

/// One look at what the server serves. True if CRDs say something else than discovery, which follows them a little
/// later.
async fn look(
    shared: &Arc<Shared>,
    client: &Client,
    kinds: &mut Kinds,
) -> Result<bool, argosy_kube_io::Error> {
    shared.version.store(Some(Arc::new(client.version().await?)));
    let discovery = discover(client).await?;
    let api_versions = discovery.api_versions();
    let changed = *shared.api_versions.load().list != api_versions;
    for finding in discovery.findings() {
        debug!(
            cluster = shared.server,
            group = finding.group,
            version = finding.version,
            reason = finding.message,
            "incomplete discovery"
        );
    }
    if changed {
        shared
            .api_versions
            .store(Arc::new(ApiVersions::new(api_versions)));
    }
    shared.discovery.store(Arc::new(discovery.clone()));
    kinds.adjust(&discovery).await;
    schemas::refresh(shared, client, &discovery).await;
    let _ = shared.inbox.send(Message::Looked).await;
    if changed {
        shared.sink.cluster_changed(&shared.server);
    }
    let definitions = Definitions::of(shared);
    let mut announced = definitions.announced.iter();
    Ok(announced.any(|(gvk, served)| discovery.exact(gvk).is_some() != *served))
}

/// The kinds that are followed, one task each (and one a namespace, if only some are ours).
struct Kinds {
    shared: Arc<Shared>,
    client: Client,
    running: HashMap<Scope, Running>,
    tasks: JoinSet<()>,
}

/// Whether two descriptions of a kind lead to the same place: a definition may go and come back with another name for URLs.
fn is_followed_alike(one: &ApiResource, other: &ApiResource) -> bool {
    let place = |resource: &ApiResource| {
        (
            resource.version.clone(),
            resource.plural.clone(),
            resource.namespaced,
        )
    };
    place(one) == place(other)
}

struct Running {
    resource: ApiResource,
    abort: AbortHandle,
    ended: tokio::sync::oneshot::Receiver<()>,
}

impl Kinds {
    /// Starts what is missing and stops what is not wanted any longer. Everything else goes on undisturbed.
    async fn adjust(&mut self, discovery: &Discovery) {
        let wanted = self.wanted(discovery);
        let stop: Vec<Scope> = self
            .running
            .iter()
            .filter(|(scope, running)| {
                wanted
                    .get(*scope)
                    .is_none_or(|resource| !is_followed_alike(resource, &running.resource))
            })
            .map(|(scope, _)| scope.clone())
            .collect();
        // Discovery follows definitions a little later, and has none of them in the first seconds of an API server.
        let definitions = Definitions::of(&self.shared);
        for scope in stop {
            let kind = &scope.kind;
            let is_announced = || {
                let mut announced = definitions.announced.iter();
                announced.any(|(gvk, served)| *served && gvk.group_kind() == *kind)
            };
            // The kinds of a group whose server is down are not gone.
            let is_uncertain = || {
                discovery.group_is_broken(&kind.group)
                    || (discovery.preferred(kind).is_none() && is_announced() && self.shared.wants(kind))
            };
            if !wanted.contains_key(&scope) && is_uncertain() {
                continue;
            }
            if let Some(running) = self.running.remove(&scope) {
                running.abort.abort();
                // Nothing of it may reach the writer after this.
                let _ = running.ended.await;
                if !wanted.contains_key(&scope) {
                    info!(cluster = self.shared.server, kind = %scope.kind, "kind is no longer followed");
                    self.shared.failures.write().remove(&scope);
                }
            }
        }
        let mut expected: BTreeSet<Scope> = self.running.keys().cloned().collect();
        expected.extend(wanted.keys().cloned());
        self.shared.kinds.store(expected.len(), Ordering::Relaxed);
        // Before the tasks start, so that nothing is synced before everything is expected.
        let _ = self.shared.inbox.send(Message::Expect(expected)).await;
        for (scope, resource) in wanted {
            if self.running.contains_key(&scope) {
                continue;
            }
            debug!(cluster = self.shared.server, kind = %scope.kind, version = resource.version, "kind is followed");
            let (guard, ended) = tokio::sync::oneshot::channel();
            let follow = kind::follow(
                self.shared.clone(),
                self.client.clone(),
                resource.clone(),
                scope.clone(),
            );
            let abort = self.tasks.spawn(async move {
                // Dropped with the task, however it ends.
                let _guard: tokio::sync::oneshot::Sender<()> = guard;
                follow.await;
            });
            self.running.insert(
                scope,
                Running {
                    resource,
                    abort,
                    ended,
                },
            );
        }
    }

    fn wanted(&self, discovery: &Discovery) -> BTreeMap<Scope, ApiResource> {
        let info = self.shared.info.load();
        let mut wanted = BTreeMap::new();
        for resource in discovery.kinds() {
            let kind = resource.group_kind();
            // The preferred version may lack verbs that another has; then the kind is not for live state.
            if !resource.watchable() || !self.shared.wants(&kind) {
                continue;
            }
            if info.namespaces.is_empty() {
                wanted.insert(Scope::all(kind), resource.clone());
            } else if resource.namespaced {
                for namespace in &info.namespaces {
                    let scope = Scope {
                        kind: kind.clone(),
                        namespace: namespace.clone(),
                    };
                    wanted.insert(scope, resource.clone());
                }
            } else if info.cluster_resources {
                wanted.insert(Scope::all(kind), resource.clone());
            }
        }
        wanted
    }
}
