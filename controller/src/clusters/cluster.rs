//! One cluster, for those who look at it: what it holds, how sure that is, and what was just written to it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use argosy_kube_io::{Discovery, Target};
use argosy_livestate::Snapshot;
use argosy_object::schema::Schemas;
use argosy_object::{ContentHash, GroupKind, ResourceKey, Value, meta};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{oneshot, watch};

use super::{Cluster, ClusterInfo, KindFailure, Status};
use crate::watch::writer::Message;

/// So long a look waits for the first list of a kind.
const FIRST_LIST_PATIENCE: Duration = Duration::from_secs(5);
const FIRST_LIST_POLL: Duration = Duration::from_millis(50);
/// A kind whose first list fails for longer is broken, and nobody waits for it.
const FIRST_LIST_GRACE: SignedDuration = SignedDuration::from_secs(10);

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
