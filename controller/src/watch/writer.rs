//! The one writer of a cluster's live state.
//!
//! Messages are taken in batches. After each batch readers get a new snapshot, then whoever waits for an observation is
//! answered, then Applications are told: each once for each object, however often it changed within the batch. While
//! the first lists are under way nobody is told of single objects; the end of it concerns everyone at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use argosy_kube_io::Error;
use argosy_livestate::{Change, ClusterState, Deletion, Event, Looked, Resource, Scope, Touched, Update};
use argosy_object::{Name, ResourceKey};
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use super::Shared;
use crate::clusters::{Cause, KindFailure, Status};

/// Messages taken at once. A batch of changes takes some ms, which bounds how old a snapshot can be under load.
const BATCH_LEN: usize = 512;
/// A watch that breaks so often in a row is a failure; less is everyday life and resumed without a gap.
const BREAKS_MAX: u32 = 3;

/// What the writer is told.
pub(crate) enum Message {
    /// These lists make up the cluster.
    Expect(BTreeSet<Scope>),
    /// Kinds and schemas have been looked at.
    Looked,
    /// A list begins.
    ListStart(Scope),
    /// An object of it.
    Listed(Scope, Box<Resource>),
    /// It is complete and true for this version.
    ListEnd(Scope, String),
    /// Changes are being followed.
    Live(Scope),
    /// The last step with this kind did not work.
    Failed(Scope, Error),
    /// The account may not list the kind, and such kinds are to be left out.
    LeftOut(Scope, Error),
    /// An object of the kind cannot be read; a list under way is void.
    Unreadable(Scope, Error),
    /// An object appeared or changed.
    Upsert(Box<Resource>),
    /// An object went.
    Delete(Deletion),
    /// A look at the server has told this, and the watch everything up to its version. The answer is whether that is what is known.
    Audit(Scope, Looked, oneshot::Sender<bool>),
    /// The server is reachable, or not any longer.
    Reachable(bool),
    /// The rules about which Application tracks what have changed.
    Retag,
    /// An answer to a write of ours shows the object like this.
    Observe(Box<Resource>, oneshot::Sender<()>),
    /// A read of ours shows that this incarnation is gone.
    ObserveDeleted(ResourceKey, String, oneshot::Sender<()>),
}

/// How far one kind has come.
#[derive(Clone, Copy, Default)]
struct Progress {
    /// Was listed completely at least once.
    listed: bool,
    /// Is being followed, or is known not to be possible.
    settled: bool,
    /// Failures in a row, since it was last followed.
    failures: u32,
    /// There is an object that could not be read, and no list since that could be read whole.
    torn: bool,
}

struct Writer {
    shared: Arc<Shared>,
    state: ClusterState,
    progress: BTreeMap<Scope, Progress>,
    looked: bool,
    reachable: bool,
    /// Applications to tell, and of what.
    touched: BTreeMap<Name, BTreeSet<Arc<ResourceKey>>>,
    /// Namespaces in which something appeared or went that belongs to no Application.
    untracked: BTreeSet<String>,
    everyone: bool,
}

/// Writes until the last sender is gone or it is dropped.
pub(crate) async fn run(shared: Arc<Shared>, mut messages: mpsc::Receiver<Message>) {
    let mut writer = Writer {
        shared,
        state: ClusterState::new(),
        progress: BTreeMap::new(),
        looked: false,
        reachable: true,
        touched: BTreeMap::new(),
        untracked: BTreeSet::new(),
        everyone: false,
    };
    let mut batch = Vec::with_capacity(BATCH_LEN);
    while messages.recv_many(&mut batch, BATCH_LEN).await > 0 {
        let mut waiting = Vec::new();
        for message in batch.drain(..) {
            writer.take(message, &mut waiting);
        }
        writer.publish();
        for one in waiting {
            let _ = one.send(());
        }
        writer.tell();
        writer.judge();
    }
}

impl Writer {
    fn take(&mut self, message: Message, waiting: &mut Vec<oneshot::Sender<()>>) {
        match message {
            Message::Expect(scopes) => self.expect(scopes),
            Message::Looked => self.looked = true,
            Message::ListStart(scope) => self.state.begin_relist(&scope),
            Message::Listed(scope, resource) => {
                let touched = self.state.relist(&scope, *resource);
                self.note(touched);
            }
            Message::ListEnd(scope, version) => {
                for touched in self.state.end_relist(&scope, &version) {
                    self.note(touched);
                }
                if let Some(progress) = self.progress.get_mut(&scope) {
                    // Applications that want objects of this kind could not be judged so far.
                    self.everyone |= !progress.listed && progress.settled;
                    *progress = Progress {
                        listed: true,
                        settled: true,
                        failures: 0,
                        torn: false,
                    };
                }
                self.shared.pending.write().remove(&scope);
                self.verified(&scope);
                self.recovered(&scope);
            }
            Message::Live(scope) => {
                if let Some(progress) = self.progress.get_mut(&scope) {
                    progress.settled = true;
                    progress.failures = 0;
                }
                self.recovered(&scope);
            }
            Message::Failed(scope, error) => self.failed(scope, error),
            Message::LeftOut(scope, error) => self.left_out(scope, error),
            Message::Unreadable(scope, error) => self.unreadable(scope, error),
            Message::Upsert(resource) => {
                let touched = self.state.apply(Event::Upsert(resource));
                self.note(touched);
            }
            Message::Delete(deletion) => {
                let touched = self.state.apply(Event::Delete(deletion));
                self.note(touched);
            }
            Message::Reachable(reachable) => {
                self.reachable = reachable;
                if reachable {
                    self.after_outage();
                }
            }
            Message::Audit(scope, looked, answer) => {
                let missed = self.state.missed(&scope, &looked);
                match &missed {
                    Some(missed) => {
                        self.shared.mismatches.fetch_add(1, Ordering::Relaxed);
                        warn!(cluster = self.shared.server, kind = %scope.kind, ?missed, count = looked.count, "live state has missed a change, the kind is listed anew");
                    }
                    None => self.verified(&scope),
                }
                let _ = answer.send(missed.is_none());
            }
            Message::Retag => {
                let owner = self.shared.rules.borrow().owner.clone();
                for touched in self.state.retag(|row| owner(&row.label(), &|| row.value())) {
                    self.note(touched);
                }
            }
            Message::Observe(resource, answer) => {
                let touched = self.state.apply(Event::Upsert(resource));
                self.note(touched);
                waiting.push(answer);
            }
            Message::ObserveDeleted(key, uid, answer) => {
                let touched = self.state.confirm_deleted(&key, &uid);
                self.note(touched);
                waiting.push(answer);
            }
        }
    }

    /// A kind whose watch has broken must show that it goes on. One whose watch has held has missed nothing, and will say no more
    /// than it ever does: where there are several connections, or several servers behind one address, an outage is of some of them.
    /// Who was refused before is not waited for either.
    fn after_outage(&mut self) {
        let failures = self.shared.failures.read();
        for (scope, progress) in &mut self.progress {
            progress.settled &= progress.failures == 0 || failures.contains_key(scope);
        }
    }

    fn expect(&mut self, scopes: BTreeSet<Scope>) {
        self.progress.retain(|scope, _| scopes.contains(scope));
        self.shared
            .verified
            .write()
            .retain(|scope, _| scopes.contains(scope));
        let kinds: Vec<_> = self.state.snapshot().kinds().collect();
        for kind in kinds {
            if !scopes.iter().any(|scope| scope.kind == kind) {
                for touched in self.state.remove_kind(&kind) {
                    self.note(touched);
                }
            }
        }
        for scope in scopes {
            self.progress.entry(scope).or_default();
        }
        let unlisted = self.progress.iter().filter(|(_, progress)| !progress.listed);
        *self.shared.pending.write() = unlisted.map(|(scope, _)| scope.clone()).collect();
    }

    /// Remembers whom a change concerns.
    fn note(&mut self, touched: Touched) {
        if touched.change == Change::Nothing {
            return;
        }
        let key = &touched.key;
        if matches!(
            (key.group.as_str(), key.kind.as_str()),
            ("apiextensions.k8s.io", "CustomResourceDefinition") | ("apiregistration.k8s.io", "APIService")
        ) {
            // Not synced before kinds and schemas have been looked at with this in view.
            self.looked &= matches!(*self.shared.status.borrow(), Status::Synced { .. });
            self.shared.rediscover.notify_one();
        }
        let moved = touched.update.as_ref().is_none_or(|update| update.moved);
        if touched.apps.is_empty() {
            if moved && !key.namespace.is_empty() {
                self.untracked.insert(key.namespace.clone());
            }
            return;
        }
        if !moved && touched.update.is_some_and(|update| !self.matters(&update)) {
            return;
        }
        for app in touched.apps {
            self.touched.entry(app).or_default().insert(touched.key.clone());
        }
    }

    /// Rules about what does not matter are for what an Application tracks itself, and for what asks for them.
    fn matters(&self, update: &Update) -> bool {
        let asks = || {
            let path = [
                "metadata",
                "annotations",
                argosy_api::annotation::IGNORE_RESOURCE_UPDATES,
            ];
            update.after.str_at(&path).as_deref() == Some("true")
        };
        if !update.tracked && !asks() {
            return true;
        }
        let matters = self.shared.rules.borrow().matters.clone();
        matters(&update.before.value(), &update.after.value())
    }

    fn failed(&mut self, scope: Scope, error: Error) {
        // A list under way is void; what was known before stays.
        self.state.abandon_relist(&scope);
        let Some(progress) = self.progress.get_mut(&scope) else {
            return;
        };
        progress.failures += 1;
        // Who says no, and who says nothing at all, is not about to say something else.
        let refused = error.status().is_some() || matches!(error, Error::Timeout { .. });
        if refused || progress.failures >= BREAKS_MAX {
            // What is wrong is wrong with this kind; the others need not wait for it.
            progress.settled = true;
        }
        if progress.torn || progress.listed && !refused && progress.failures < BREAKS_MAX {
            return;
        }
        let listed = progress.listed;
        self.doubt(scope, &error, listed, false);
    }

    /// The account has no business with the kind. It is tried again all the same, in case that changes.
    fn left_out(&mut self, scope: Scope, error: Error) {
        self.state.abandon_relist(&scope);
        let Some(progress) = self.progress.get_mut(&scope) else {
            return;
        };
        progress.failures += 1;
        progress.settled = true;
        let listed = progress.listed;
        self.doubt(scope, &error, listed, true);
    }

    /// What is known of the kind is not all there is. Changes are followed all the same.
    fn unreadable(&mut self, scope: Scope, error: Error) {
        self.state.abandon_relist(&scope);
        let Some(progress) = self.progress.get_mut(&scope) else {
            return;
        };
        progress.torn = true;
        progress.settled = true;
        let listed = progress.listed;
        self.doubt(scope, &error, listed, false);
    }

    /// The kind is not to be relied on.
    fn doubt(&mut self, scope: Scope, error: &Error, listed: bool, left_out: bool) {
        let failure = KindFailure {
            kind: scope.kind.clone(),
            namespace: scope.namespace.clone(),
            message: error.message(),
            cause: Some(Cause::of(error)),
            since: self.shared.clock.now(),
            listed,
            left_out,
        };
        let mut failures = self.shared.failures.write();
        match failures.get_mut(&scope) {
            Some(known) => {
                (known.message, known.cause) = (failure.message, failure.cause);
                known.left_out = left_out;
            }
            None => {
                if left_out {
                    info!(cluster = self.shared.server, kind = %scope.kind, reason = failure.message, "kind is left out");
                } else {
                    warn!(cluster = self.shared.server, kind = %scope.kind, reason = failure.message, "kind cannot be followed");
                }
                failures.insert(scope.clone(), failure);
                drop(failures);
                self.note_kind(&scope);
            }
        }
    }

    /// What is known of a kind is what the server tells.
    fn verified(&self, scope: &Scope) {
        if self.progress.contains_key(scope) {
            let now = self.shared.clock.now();
            self.shared.verified.write().insert(scope.clone(), now);
        }
    }

    fn recovered(&mut self, scope: &Scope) {
        let progress = self.progress.get(scope);
        let known = progress.is_some_and(|progress| progress.listed && !progress.torn);
        if known && self.shared.failures.write().remove(scope).is_some() {
            info!(cluster = self.shared.server, kind = %scope.kind, "kind is followed again");
            self.note_kind(scope);
        }
    }

    /// Whatever is known of the kind has become reliable or unreliable.
    fn note_kind(&mut self, scope: &Scope) {
        let snapshot = self.state.snapshot();
        for row in snapshot.by_kind(&scope.kind) {
            for app in snapshot.apps_of(&row) {
                self.touched.entry(app).or_default().insert(row.key.clone());
            }
        }
    }

    fn publish(&self) {
        let snapshot = self.state.snapshot();
        if self.shared.snapshot.load().revision() != snapshot.revision() {
            self.shared.snapshot.store(Arc::new(snapshot));
        }
    }

    fn tell(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        let untracked = std::mem::take(&mut self.untracked);
        let everyone = std::mem::take(&mut self.everyone);
        if !matches!(*self.shared.status.borrow(), Status::Synced { .. }) {
            // Becoming synced concerns everyone anyhow.
            return;
        }
        if everyone {
            self.shared.sink.cluster_changed(&self.shared.server);
            return;
        }
        for (app, keys) in touched {
            for key in keys {
                self.shared.sink.touched(&self.shared.server, &app, &key);
            }
        }
        for namespace in untracked {
            self.shared.sink.untracked(&self.shared.server, &namespace);
        }
    }

    /// Says how the cluster as a whole stands.
    fn judge(&self) {
        if !self.reachable {
            self.shared.set_status(Status::Failed {
                message: format!("the API server {} cannot be reached", self.shared.server),
                since: self.shared.clock.now(),
            });
            return;
        }
        if !self.looked || self.progress.values().any(|progress| !progress.settled) {
            return;
        }
        self.shared.set_status(Status::Synced {
            at: self.shared.clock.now(),
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use argosy_api::settings::RespectRbac;
    use argosy_kube_io::Budget;
    use argosy_object::{GroupKind, Value, meta};
    use argosy_runtime::clock;
    use parking_lot::Mutex;
    use serde_json::json;
    use tokio::sync::watch;

    use super::*;
    use crate::clusters::{ClusterInfo, Pace, Rules};
    use crate::context::DirtySink;

    #[derive(Default)]
    struct Told {
        apps: Mutex<Vec<String>>,
        namespaces: Mutex<Vec<String>>,
    }

    impl DirtySink for Told {
        fn touched(&self, _: &str, app: &str, _: &ResourceKey) {
            self.apps.lock().push(app.to_owned());
        }
        fn untracked(&self, _: &str, namespace: &str) {
            self.namespaces.lock().push(namespace.to_owned());
        }
        fn cluster_changed(&self, _: &str) {}
    }

    struct World {
        shared: Arc<Shared>,
        told: Arc<Told>,
        rules: watch::Sender<Arc<Rules>>,
    }

    /// The label `label` names the Application, and no change of an object matters.
    fn rules(label: &'static str) -> Arc<Rules> {
        Arc::new(Rules {
            owner: Arc::new(move |object, _| meta::label(object, label).map(Arc::from)),
            watched: Arc::new(|_, _| true),
            matters: Arc::new(|_, _| false),
            respect_rbac: RespectRbac::Off,
            in_cluster_enabled: true,
        })
    }

    fn scope(kind: &str) -> Scope {
        Scope::all(GroupKind::new("", kind))
    }

    fn map(name: &str, version: u64, labels: Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "shop", "name": name, "uid": name, "resourceVersion": version.to_string(), "labels": labels},
        })
    }

    fn broken() -> Error {
        Error::Answer {
            call: "watch".to_owned(),
            message: "it broke".to_owned(),
        }
    }

    impl World {
        /// ConfigMaps and Secrets have been listed and are followed.
        async fn new() -> World {
            let told = Arc::new(Told::default());
            let (rules, follows) = watch::channel(rules("app"));
            let (shared, messages) = Shared::new(
                ClusterInfo::default(),
                told.clone(),
                follows,
                None,
                Budget::new(0),
                Pace::default(),
                Arc::new(clock::System),
            );
            tokio::spawn(run(shared.clone(), messages));
            let world = World { shared, told, rules };
            let kinds = ["ConfigMap", "Secret"].map(scope);
            world.says(Message::Expect(kinds.iter().cloned().collect())).await;
            world.says(Message::Looked).await;
            for kind in kinds {
                world.lists(kind).await;
            }
            assert!(world.is_synced());
            world
        }

        /// Returns when it has been taken in, and what follows from it.
        async fn says(&self, message: Message) {
            assert!(self.shared.inbox.send(message).await.is_ok());
            // The first answer comes with the batch of the message, before Applications are told of that.
            for _ in 0..2 {
                let (answer, done) = oneshot::channel();
                let nobody = ResourceKey::new("", "Nothing", "", "");
                let read = Message::ObserveDeleted(nobody, String::new(), answer);
                assert!(self.shared.inbox.send(read).await.is_ok());
                done.await.unwrap();
            }
        }

        async fn lists(&self, kind: Scope) {
            self.says(Message::ListStart(kind.clone())).await;
            self.says(Message::ListEnd(kind.clone(), "9".to_owned())).await;
            self.says(Message::Live(kind)).await;
        }

        async fn applies(&self, object: &Value) {
            self.says(Message::Upsert(self.shared.resource(object))).await;
        }

        fn is_synced(&self) -> bool {
            matches!(*self.shared.status.borrow(), Status::Synced { .. })
        }

        fn failures(&self) -> Vec<String> {
            let failures = self.shared.failures.read();
            failures
                .values()
                .map(|failure| failure.kind.kind.clone())
                .collect()
        }

        fn told(&self) -> Vec<String> {
            std::mem::take(&mut *self.told.apps.lock())
        }
    }

    #[tokio::test]
    async fn after_an_outage_only_watches_that_have_broken_are_waited_for() {
        let world = World::new().await;
        world.says(Message::Reachable(false)).await;
        assert!(!world.is_synced());
        world.says(Message::Reachable(true)).await;
        assert!(world.is_synced(), "no watch has broken");

        world.says(Message::Failed(scope("Secret"), broken())).await;
        world.says(Message::Reachable(false)).await;
        world.says(Message::Reachable(true)).await;
        assert!(!world.is_synced());
        world.says(Message::Live(scope("Secret"))).await;
        assert!(world.is_synced());
    }

    #[tokio::test]
    async fn a_kind_that_was_refused_before_an_outage_is_not_waited_for() {
        let world = World::new().await;
        for _ in 0..BREAKS_MAX {
            world.says(Message::Failed(scope("Secret"), broken())).await;
        }
        assert_eq!(world.failures(), ["Secret"]);
        world.says(Message::Reachable(false)).await;
        world.says(Message::Reachable(true)).await;
        assert!(world.is_synced());
    }

    #[tokio::test]
    async fn an_unreadable_object_is_told_until_a_list_is_whole() {
        let world = World::new().await;
        let kind = scope("ConfigMap");
        world.says(Message::Unreadable(kind.clone(), broken())).await;
        assert_eq!(world.failures(), ["ConfigMap"]);
        world.says(Message::Live(kind.clone())).await;
        world.says(Message::ListStart(kind.clone())).await;
        world.says(Message::Unreadable(kind.clone(), broken())).await;
        world.says(Message::Live(kind.clone())).await;
        assert_eq!(world.failures(), ["ConfigMap"]);
        assert!(world.is_synced());
        world.lists(kind).await;
        assert!(world.failures().is_empty());
    }

    #[tokio::test]
    async fn who_tracks_an_object_matters_whatever_else_does_not() {
        let world = World::new().await;
        let labels = |app: &str| json!({"app": app, "other": "b"});
        world.applies(&map("one", 10, labels("a"))).await;
        assert_eq!(world.told(), ["a"]);
        world.applies(&map("one", 11, labels("a"))).await;
        assert!(world.told().is_empty(), "by the rules");
        world.applies(&map("one", 12, labels("c"))).await;
        assert_eq!(world.told(), ["a", "c"]);
        world.rules.send_replace(rules("other"));
        world.says(Message::Retag).await;
        assert_eq!(world.told(), ["b", "c"]);
    }

    #[tokio::test]
    async fn what_belongs_to_nobody_is_told_where_it_comes_and_goes() {
        let world = World::new().await;
        let told = || std::mem::take(&mut *world.told.namespaces.lock());
        world.applies(&map("nobodys", 10, json!({}))).await;
        assert_eq!(told(), ["shop"]);
        world.applies(&map("nobodys", 11, json!({}))).await;
        assert!(told().is_empty());
        let key = ResourceKey::new("", "ConfigMap", "shop", "nobodys");
        let deletion = Deletion {
            key,
            uid: "nobodys".to_owned(),
            resource_version: "12".to_owned(),
        };
        world.says(Message::Delete(deletion)).await;
        assert_eq!(told(), ["shop"]);
        assert!(world.told().is_empty());
    }
}
