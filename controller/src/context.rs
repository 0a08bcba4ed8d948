//! What every stage is handed: the stores, the ways out of the process, and the options of this process.
//!
//! The two traits are the seams between the parts: watches mark Applications through [`DirtySink`] without knowing
//! the queue, and operations write through [`StatusWriter`] without knowing how Applications are stored.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use argosy_api::v1alpha1::{Application, OperationState};
use argosy_object::{ResourceKey, Value};
use argosy_repo_client::RepoClient;
use argosy_runtime::clock::Clock;
use futures::future::BoxFuture;

use crate::apps;
use crate::clusters::Clusters;
use crate::events::Recorder;
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::reconcile::Memos;
use crate::settings;
use crate::shards::Ownership;

/// An Application's place in the control plane: namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AppKey {
    /// The namespace of the Application object.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl AppKey {
    /// The key of `namespace/name`.
    pub fn new(namespace: &str, name: &str) -> Self {
        AppKey {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of this Application.
    pub fn of(app: &Application) -> Self {
        AppKey::new(&app.metadata.namespace, &app.metadata.name)
    }

    /// The instance name that resources of this Application carry: its name, or `namespace_name` outside the
    /// control plane's namespace.
    pub fn instance(&self, control_plane_namespace: &str) -> String {
        if self.namespace.is_empty() || *self.namespace == *control_plane_namespace {
            self.name.to_string()
        } else {
            format!("{}_{}", self.namespace, self.name)
        }
    }

    /// The Application an instance name stands for, the inverse of [`AppKey::instance`].
    pub fn from_instance(instance: &str, control_plane_namespace: &str) -> Self {
        match instance.split_once('_') {
            Some((namespace, name)) => AppKey::new(namespace, name),
            None => AppKey::new(control_plane_namespace, instance),
        }
    }
}

impl fmt::Display for AppKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where watches say that something has changed. Calls are cheap, never block and may be repeated at will.
pub trait DirtySink: Send + Sync {
    /// A live resource that belongs to the Application with instance name `app` changed, appeared or went.
    /// `server` is the URL of its cluster.
    fn touched(&self, server: &str, app: &str, key: &ResourceKey);

    /// Live resources of a namespace that belong to no Application appeared or went: they are orphans to those that look for such.
    fn untracked(&self, server: &str, namespace: &str);

    /// Something changed that concerns every Application of a cluster: it was added, removed, became synced,
    /// lost its connection, or its kinds or schemas changed. `server` is its URL.
    fn cluster_changed(&self, server: &str);
}

/// Why a write to an Application did not happen.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The Application is gone, or another object has taken its name.
    #[error("patch application {app}: it no longer exists")]
    Gone {
        /// Which one.
        app: AppKey,
    },
    /// The status no longer fits into one object of the API server.
    #[error("patch application {app}: the status is too large to be stored")]
    TooLarge {
        /// Which one.
        app: AppKey,
    },
    /// The API server refused or could not be reached, also after the retries that make sense.
    #[error("patch application {app}")]
    Api {
        /// Which one.
        app: AppKey,
        /// What the call answered.
        #[source]
        source: argosy_kube_io::Error,
    },
    /// The server's answer is not an Application that can be read.
    #[error("patch application {app}: read the answer: {message}")]
    Answer {
        /// Which one.
        app: AppKey,
        /// What was wrong with it.
        message: String,
    },
}

/// The only way to write an Application. Each write is in the local store before the call returns, so that the next
/// pass reads it (read your writes).
pub trait StatusWriter: Send + Sync {
    /// Applies a JSON merge patch to the whole object (Application has no status subresource). Conflicts, throttling
    /// and passing failures are retried inside. `uid` guards against an object that was deleted and created again.
    fn patch<'a>(
        &'a self,
        app: &'a Application,
        patch: Value,
    ) -> BoxFuture<'a, Result<Arc<Application>, WriteError>>;

    /// Writes `status.operationState`. The request field `operation` is removed when `state` is completed (phase
    /// Succeeded, Failed or Error), in the same write. Fields of `extra` (a merge patch, for instance
    /// `{"status":{"history":[…]}}`) go along, so that an operation ends in one write.
    fn operation<'a>(
        &'a self,
        app: &'a Application,
        state: &'a OperationState,
        extra: Option<Value>,
    ) -> BoxFuture<'a, Result<Arc<Application>, WriteError>>;

    /// Takes over an operation that another process has begun, before anything is done for it. An error if the API server knows
    /// it in another state than this process: it has gone on, or ended, and what is known here is of the past.
    fn adopt<'a>(&'a self, app: &'a Application) -> BoxFuture<'a, Result<Arc<Application>, WriteError>>;
}

/// The options of this process that stages read. Flags and environment fill it (`Args`).
#[derive(Clone, Debug)]
pub struct Options {
    /// The control plane's namespace: Applications here have a plain instance name, ConfigMaps and Secrets live here.
    pub namespace: String,
    /// Time between two looks at an Application that nothing has touched.
    pub resync: Duration,
    /// At most so much is added to `resync`, by chance of the Application's name.
    pub resync_jitter: Duration,
    /// Time after which a look bypasses the manifest cache; zero for never.
    pub hard_resync: Duration,
    /// How long an error of the repo-server leaves the old sync status standing.
    pub repo_error_grace: Duration,
    /// The pauses between self-heals of one revision.
    pub self_heal: argosy_sync::autosync::SelfHealBackoff,
    /// Wait between two sync waves.
    pub sync_wave_delay: Duration,
    /// An operation that runs longer is terminated; zero for never.
    pub sync_timeout: Duration,
    /// Calls to target clusters that one operation may have in flight.
    pub kubectl_parallelism: usize,
    /// Keep each resource's health in `status.resources` (`controller.resource.health.persist`).
    pub persist_resource_health: bool,
    /// Server-side diff for every Application that does not say otherwise.
    pub server_side_diff: bool,
}

/// Everything a stage may use. One a process, shared.
pub struct Context {
    /// The options of this process.
    pub options: Options,
    /// Applications and projects as the control plane has them.
    pub apps: Arc<apps::Store>,
    /// `argocd-cm`, repositories and their credentials: `ctx.settings.get()` is an immutable snapshot.
    pub settings: Arc<settings::Store>,
    /// The clusters this process looks after.
    pub clusters: Arc<Clusters>,
    /// What this process may write to, if leases prove it.
    pub ownership: Option<Arc<Ownership>>,
    /// Renders sources into manifests.
    pub repo: RepoClient,
    /// The only writer of Applications.
    pub status: Arc<dyn StatusWriter>,
    /// What is to be looked at, and how deep: ask for another look here.
    pub queue: Arc<Queue>,
    /// What is remembered of Applications between looks.
    pub memos: Memos,
    /// Kubernetes Events on Applications.
    pub events: Recorder,
    /// Where looks are noted for Argo CD's API server, if it reads over this controller.
    pub looked: Option<crate::redis::Looked>,
    /// The numbers of this process.
    pub metrics: Arc<Metrics>,
    /// Wall clock time (waiting is tokio's, which tests pause).
    pub clock: Arc<dyn Clock>,
}

impl Context {
    /// The epoch under which this process looks after an Application's cluster; nothing without leases, and where the
    /// cluster is another's.
    pub fn epoch(&self, app: &Application) -> Option<u64> {
        self.ownership
            .as_ref()?
            .epoch(&self.clusters.holder_of(&app.spec.destination))
    }
}
