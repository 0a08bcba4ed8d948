//! From "something changed" to "look at this Application": which, how deep, and why.
//!
//! Live changes are gathered for [`BATCH`], so that a sync that touches twenty objects is looked at once and not
//! twenty times. Marks go to two queues: the refresh queue always, the operation queue only when an operation of the
//! Application waits for something ([`crate::run`] keeps it informed).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use argosy_api::v1alpha1::Application;
use argosy_object::ResourceKey;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::apps;
use crate::context::{AppKey, DirtySink};
use crate::queue::{Queue, Reason, Refresh};
use crate::shards::unowned;

/// Live changes of one Application are gathered for so long (Argo CD gathers for the same time).
const BATCH: Duration = Duration::from_millis(100);
/// An operation that waits is woken so soon after a change: hooks and waves wait for single objects.
const OPERATION_BATCH: Duration = Duration::from_millis(20);

/// Marks Applications in the queues.
pub struct Marker {
    apps: Arc<apps::Store>,
    refreshes: Arc<Queue>,
    operations: Arc<Queue>,
    resync: Duration,
    jitter: Duration,
    /// Clusters that changed as a whole, for [`Marker::follow_clusters`].
    changed_clusters: UnboundedSender<String>,
    changes: Mutex<Option<UnboundedReceiver<String>>>,
}

impl Marker {
    /// Marks Applications of `apps` in the two queues; `resync` and `jitter` space out periodic looks.
    pub fn new(
        apps: Arc<apps::Store>,
        refreshes: Arc<Queue>,
        operations: Arc<Queue>,
        resync: Duration,
        jitter: Duration,
    ) -> Self {
        let (changed_clusters, changes) = tokio::sync::mpsc::unbounded_channel();
        Marker {
            apps,
            refreshes,
            operations,
            resync,
            jitter,
            changed_clusters,
            changes: Mutex::new(Some(changes)),
        }
    }

    /// Marks the Applications of clusters that changed, by URL and by name. Run it once, as a task. `name_of` tells the
    /// name of a cluster; those that it had before are remembered. With a cluster's Secret its Applications come to another
    /// owner, or go to who has those without a cluster: what is going on is theirs to take up.
    pub async fn follow_clusters(&self, name_of: impl Fn(&str) -> Option<String>) {
        let Some(mut changes) = self.changes.lock().take() else {
            return;
        };
        let mut names: HashMap<String, String> = HashMap::new();
        while let Some(server) = changes.recv().await {
            let name = name_of(&server);
            // Under another name than before, those that know it by the old one have no cluster any more.
            let before = match &name {
                Some(name) => names.insert(server.clone(), name.clone()),
                None => names.get(&server).cloned(),
            };
            let before = before.filter(|before| Some(before) != name.as_ref());
            let known_by = [Some(server), name, before];
            for key in known_by
                .iter()
                .flatten()
                .flat_map(|destination| self.apps.of_destination(destination))
            {
                self.refreshes.mark(&key, Refresh::Nothing, Reason::Cluster);
                self.take_up(&key);
            }
        }
    }

    /// An operation, or a deletion, that is going on has a pass.
    fn take_up(&self, key: &AppKey) {
        if self.apps.get(key).is_some_and(|app| wants_operation(&app)) {
            self.operations.mark(key, Refresh::Nothing, Reason::Person);
        }
    }

    /// An Application appeared or changed, `before` is how it was known.
    pub fn application(&self, before: Option<&Application>, app: &Application) {
        let key = AppKey::of(app);
        let asked = argosy_api::annotation::REFRESH;
        let refresh_asked = app.metadata.annotations.contains_key(asked);
        let spec_changed = before.is_none_or(|before| before.spec != app.spec);
        if refresh_asked && before.is_none_or(|before| !before.metadata.annotations.contains_key(asked)) {
            self.refreshes.mark(&key, Refresh::ForceResolve, Reason::Person);
        } else if spec_changed {
            match before {
                Some(_) => self.refreshes.mark(&key, Refresh::ForceResolve, Reason::Person),
                None => self.refreshes.mark(&key, Refresh::Latest, Reason::Application),
            }
        } else if before.is_some_and(|before| {
            before.metadata.annotations != app.metadata.annotations
                || before.metadata.labels != app.metadata.labels
                || before.metadata.deletion_timestamp != app.metadata.deletion_timestamp
        }) {
            self.refreshes.mark(&key, Refresh::Recent, Reason::Application);
        } else if unowned::is_reported(app) && !before.is_some_and(unowned::is_reported) {
            // Whoever owns the cluster by now may have looked before that was written, and found nothing new.
            self.refreshes.mark(&key, Refresh::Nothing, Reason::Cluster);
        }
        if wants_operation(app) && before.is_none_or(|before| operation_changed(before, app)) {
            self.operations.mark(&key, Refresh::Nothing, Reason::Person);
        }
    }

    /// These Applications are ours from now on: each is looked at afresh, and what is going on is taken up.
    pub fn adopted(&self, keys: &[AppKey]) {
        for key in keys {
            self.refreshes.mark(key, Refresh::Latest, Reason::Cluster);
            self.take_up(key);
        }
    }

    /// An Application is gone: one last look at it, in which everybody forgets what they remember of it.
    pub fn gone(&self, key: &AppKey) {
        for queue in [&self.refreshes, &self.operations] {
            queue.forget(key);
            queue.mark(key, Refresh::Nothing, Reason::Application);
        }
    }

    /// A project appeared, changed or went: its Applications are looked at.
    pub fn project(&self, name: &str) {
        for key in self.apps.of_project(name) {
            self.refreshes.mark(&key, Refresh::Recent, Reason::Project);
        }
    }

    /// Settings changed in a way that may change every verdict.
    pub fn settings(&self) {
        for key in self.apps.keys() {
            self.refreshes.mark(&key, Refresh::Recent, Reason::Settings);
        }
    }

    /// The next periodic look at `key`, counted from now.
    pub fn periodic(&self, key: &AppKey) {
        let delay = self.resync + jitter(key, self.jitter);
        if !self.resync.is_zero() {
            self.refreshes
                .reschedule(key, delay, Refresh::Latest, Reason::Periodic);
        }
    }
}

impl DirtySink for Marker {
    fn touched(&self, _server: &str, app: &str, _key: &ResourceKey) {
        let Some(key) = self.apps.by_instance(app) else {
            return;
        };
        self.refreshes
            .mark_after(&key, BATCH, Refresh::Nothing, Reason::Live);
        if self.apps.get(&key).is_some_and(|app| wants_operation(&app)) {
            self.operations
                .mark_after(&key, OPERATION_BATCH, Refresh::Nothing, Reason::Live);
        }
    }

    fn untracked(&self, server: &str, namespace: &str) {
        for key in self.apps.of_namespace(namespace) {
            let Some(app) = self.apps.get(&key) else { continue };
            let destination = &app.spec.destination;
            let known = destination.server.trim_end_matches('/');
            // By name it may be the cluster.
            let elsewhere = !known.is_empty() && known != server;
            let looks = match self.apps.project(apps::project_name(&app)) {
                apps::Project::Found(project) => project.spec.orphaned_resources.is_some(),
                _ => false,
            };
            if looks && !elsewhere {
                self.refreshes
                    .mark_after(&key, BATCH, Refresh::Nothing, Reason::Live);
            }
        }
    }

    fn cluster_changed(&self, server: &str) {
        // Names are looked up by a task: the caller may hold what knows them.
        let _ = self.changed_clusters.send(server.to_owned());
    }
}

/// Is there an operation to begin or to go on with, or a deletion?
pub(crate) fn wants_operation(app: &Application) -> bool {
    let going_on = app.status.operation_state.as_ref().is_some_and(|state| {
        state.phase == argosy_api::v1alpha1::OperationPhase::Running.as_str()
            || state.phase == argosy_api::v1alpha1::OperationPhase::Terminating.as_str()
    });
    app.operation.is_some() || going_on || deleting(app)
}

/// Is it being deleted, with something left for us to do?
pub(crate) fn deleting(app: &Application) -> bool {
    app.metadata.deletion_timestamp.is_some()
        && app
            .metadata
            .finalizers
            .iter()
            .any(|finalizer| finalizer.contains("argocd.argoproj.io"))
}

fn operation_changed(before: &Application, app: &Application) -> bool {
    let phase = |app: &Application| {
        app.status
            .operation_state
            .as_ref()
            .map(|state| state.phase.clone())
    };
    before.operation != app.operation
        // Another shard may own what it goes to now.
        || before.spec.destination != app.spec.destination
        || phase(before) != phase(app)
        || before.metadata.deletion_timestamp != app.metadata.deletion_timestamp
        || before.metadata.annotations != app.metadata.annotations
        // A newer revision may supersede the one an operation goes to.
        || before.status.sync.revision != app.status.sync.revision
        || before.status.sync.revisions != app.status.sync.revisions
}

/// A share of `most` that is always the same for one Application, and spreads over many.
fn jitter(key: &AppKey, most: Duration) -> Duration {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::hash::DefaultHasher::new();
    key.hash(&mut hasher);
    let share = hasher.finish() % 1000;
    most.mul_f64(share as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_looks_for_orphans_is_told_of_what_belongs_to_nobody() {
        let (refreshes, operations) = (Queue::new(), Queue::new());
        let apps = apps::Store::new("argocd");
        for (name, settings) in [("looks", json!({})), ("other", json!(null))] {
            let project = json!({"metadata": {"name": name}, "spec": {"orphanedResources": settings}});
            apps.project_observed(serde_json::from_value(project).unwrap());
        }
        for (name, project, server, namespace) in [
            ("one", "looks", "https://a/", "shop"),
            ("other-project", "other", "https://a", "shop"),
            ("other-cluster", "looks", "https://b", "shop"),
            ("other-namespace", "looks", "https://a", "web"),
        ] {
            let app = json!({
                "metadata": {"name": name, "namespace": "argocd", "resourceVersion": "1"},
                "spec": {"project": project, "destination": {"server": server, "namespace": namespace}},
            });
            apps.observed(serde_json::from_value(app).unwrap());
        }
        let marker = Marker::new(
            apps,
            refreshes.clone(),
            operations,
            Duration::ZERO,
            Duration::ZERO,
        );
        marker.untracked("https://a", "shop");
        let work = refreshes.next().await;
        assert_eq!(work.key, AppKey::new("argocd", "one"));
        assert!(work.reasons.only_live());
        refreshes.done(&work.key);
        tokio::time::sleep(BATCH).await;
        assert!(refreshes.next().now_or_never().is_none());
    }

    fn running(server: &str, version: &str) -> Application {
        let app = json!({
            "metadata": {"name": "app", "namespace": "argocd", "resourceVersion": version},
            "spec": {"destination": {"name": server}},
            "status": {"operationState": {"phase": "Running"}},
        });
        serde_json::from_value(app).unwrap()
    }

    /// Nobody else tells the new owner: a pass of a process that does not own the cluster ends without another.
    #[tokio::test]
    async fn what_is_going_on_is_taken_up_where_the_cluster_has_changed_or_is_another() {
        let (refreshes, operations) = (Queue::new(), Queue::new());
        let apps = apps::Store::new("argocd");
        let (before, first) = apps.observed(running("one", "1")).unwrap();
        let marker = Marker::new(
            apps.clone(),
            refreshes,
            operations.clone(),
            Duration::ZERO,
            Duration::ZERO,
        );
        marker.application(before.as_deref(), &first);
        let key = AppKey::new("argocd", "app");
        let passed = async |operations: &Queue| {
            let work = operations.next().await;
            assert_eq!(work.key, key);
            operations.done(&key);
            assert!(operations.next().now_or_never().is_none());
        };
        passed(&operations).await;

        // The Secret of its cluster comes, changes or goes.
        marker.cluster_changed("https://one");
        let name = |_: &str| Some("one".to_owned());
        assert!(
            marker.follow_clusters(name).now_or_never().is_none(),
            "it goes on"
        );
        passed(&operations).await;

        // A person sends it elsewhere.
        let (before, moved) = apps.observed(running("two", "2")).unwrap();
        marker.application(before.as_deref(), &moved);
        passed(&operations).await;
    }

    #[tokio::test]
    async fn who_is_told_that_nobody_owns_its_cluster_looks_again() {
        let (refreshes, operations) = (Queue::new(), Queue::new());
        let apps = apps::Store::new("argocd");
        let marker = Marker::new(
            apps.clone(),
            refreshes.clone(),
            operations,
            Duration::ZERO,
            Duration::ZERO,
        );
        let mut app = Application::default();
        app.metadata.namespace = "argocd".into();
        app.metadata.name = "app".into();
        app.status.sync.status = "Synced".into();
        let known = app.clone();
        let patch = unowned::report(&app, "https://a", jiff::Timestamp::UNIX_EPOCH).unwrap();
        app.status = serde_json::from_value(patch["status"].clone()).unwrap();
        marker.application(Some(&known), &app);
        let work = refreshes.next().await;
        assert_eq!(work.key, AppKey::new("argocd", "app"));
        refreshes.done(&work.key);
        marker.application(Some(&app), &app);
        assert!(refreshes.next().now_or_never().is_none(), "once");
    }

    #[tokio::test]
    async fn what_has_gone_is_looked_at_once_more_to_be_forgotten() {
        let (refreshes, operations) = (Queue::new(), Queue::new());
        let (resync, jitter) = (Duration::from_secs(120), Duration::ZERO);
        let apps = apps::Store::new("argocd");
        let marker = Marker::new(apps, refreshes.clone(), operations.clone(), resync, jitter);
        let key = AppKey::new("argocd", "gone");
        refreshes.mark(&key, Refresh::Latest, Reason::Person);
        marker.gone(&key);
        for queue in [refreshes, operations] {
            let work = queue.next().await;
            assert_eq!((&work.key, work.refresh), (&key, Refresh::Nothing));
            queue.done(&key);
            assert!(queue.next().now_or_never().is_none());
        }
    }
}
