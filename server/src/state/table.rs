//! One kind of the control plane, as its watch tells it: [`Table`].
//!
//! Writers are the watch and the answers of our own writes, so that whoever wrote reads what they wrote. A version that
//! is older than the one known is passed over.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_api::meta::ObjectMeta;
use argosy_kube_io::api::{Change, TypedWatch};
use argosy_kube_io::target::Selection;
use argosy_kube_io::{ApiResource, Client};
use argosy_runtime::tasks::Tasks;
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::{broadcast, watch};
use tracing::warn;

/// Changes that a slow reader may be behind before it has to read the table anew.
const BEHIND_MAX: usize = 4096;

/// An object with metadata.
pub(crate) trait Row: DeserializeOwned + Send + Sync + 'static {
    /// The metadata.
    fn meta(&self) -> &ObjectMeta;
    /// The metadata, to change.
    fn meta_mut(&mut self) -> &mut ObjectMeta;
}

/// Namespace and name.
pub(crate) type Key = (String, String);

/// What happened to a row.
#[derive(Debug)]
pub(crate) enum Event<T> {
    /// It appeared.
    Added(Arc<T>),
    /// It changed.
    Modified(Arc<T>),
    /// It went; this is how it was known last.
    Deleted(Arc<T>),
}

impl<T> Clone for Event<T> {
    fn clone(&self) -> Self {
        match self {
            Event::Added(row) => Event::Added(row.clone()),
            Event::Modified(row) => Event::Modified(row.clone()),
            Event::Deleted(row) => Event::Deleted(row.clone()),
        }
    }
}

impl<T> Event<T> {
    /// The row.
    pub(crate) fn row(&self) -> &Arc<T> {
        match self {
            Event::Added(row) | Event::Modified(row) | Event::Deleted(row) => row,
        }
    }

    /// The word for it on the wire.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Event::Added(_) => "ADDED",
            Event::Modified(_) => "MODIFIED",
            Event::Deleted(_) => "DELETED",
        }
    }
}

/// The rows of one kind, by namespace and name.
pub(crate) struct Table<T> {
    rows: RwLock<BTreeMap<Key, Arc<T>>>,
    events: broadcast::Sender<Event<T>>,
    listed: watch::Sender<bool>,
}

impl<T: Row> Table<T> {
    /// No rows yet.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Table {
            rows: RwLock::default(),
            events: broadcast::Sender::new(BEHIND_MAX),
            listed: watch::Sender::new(false),
        })
    }

    /// The row of this place.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.rows.read().get(&key).cloned()
    }

    /// All rows, by place.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.rows.read().values().cloned().collect()
    }

    /// All rows, and every event after them.
    pub(crate) fn all_and_events(&self) -> (Vec<Arc<T>>, broadcast::Receiver<Event<T>>) {
        // Under the lock, so that no event falls between the two.
        let rows = self.rows.read();
        (rows.values().cloned().collect(), self.events.subscribe())
    }

    /// Every event from now on.
    pub(crate) fn events(&self) -> broadcast::Receiver<Event<T>> {
        self.events.subscribe()
    }

    /// Has everything been listed once?
    pub(crate) fn is_listed(&self) -> bool {
        *self.listed.borrow()
    }

    /// Waits until everything has been listed once.
    pub(crate) async fn listed(&self) {
        // The sender lives as long as the table.
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// Takes a row in; gives it back as it is known now.
    pub(crate) fn observe(&self, mut row: T) -> Arc<T> {
        // Who manages which field is of no use here, and often the largest part of the object.
        row.meta_mut().managed_fields = Vec::new();
        let key = (row.meta().namespace.clone(), row.meta().name.clone());
        let mut rows = self.rows.write();
        let before = rows.get(&key);
        if let Some(before) = before.filter(|before| !newer(row.meta(), before.meta())) {
            return before.clone();
        }
        let row = Arc::new(row);
        let event = match before {
            Some(_) => Event::Modified(row.clone()),
            None => Event::Added(row.clone()),
        };
        rows.insert(key, row.clone());
        // Nobody listening is no error.
        let _ = self.events.send(event);
        row
    }

    /// Forgets a row.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        let mut rows = self.rows.write();
        if let Some(row) = rows.remove(&(namespace.to_owned(), name.to_owned())) {
            let _ = self.events.send(Event::Deleted(row));
        }
    }

    /// Follows the kind for ever, as the task `name`. Namespaces that `wanted` refuses are passed over.
    pub(crate) fn follow(
        self: &Arc<Self>,
        tasks: &Tasks,
        name: &'static str,
        client: &Client,
        resource: ApiResource,
        selection: Selection,
        wanted: impl Fn(&str) -> bool + Clone + Send + Sync + 'static,
    ) {
        let (table, client) = (self.clone(), client.clone());
        tasks.spawn_restarting(name, move || {
            let mut watch = TypedWatch::<T>::new(client.clone(), resource.clone(), selection.clone());
            let (table, wanted) = (table.clone(), wanted.clone());
            async move {
                loop {
                    match watch.next().await {
                        Change::Applied(row) => {
                            if wanted(&row.meta().namespace) {
                                table.observe(row);
                            }
                        }
                        Change::Deleted(place) => table.forget(&place.namespace, &place.name),
                        Change::Unreadable(bad) => {
                            warn!(
                                kind = name,
                                name = bad.place.name,
                                error = bad.message,
                                "an object cannot be read"
                            );
                            table.forget(&bad.place.namespace, &bad.place.name);
                        }
                        Change::Synced => _ = table.listed.send_replace(true),
                        Change::Failed(error) => {
                            warn!(
                                kind = name,
                                error = argosy_runtime::log::chain(&error),
                                "follow the control plane"
                            );
                        }
                    }
                }
            }
        });
    }
}

/// Versions of the API servers of today are numbers that grow. Anything else is taken as newer: it was told later.
fn newer(row: &ObjectMeta, before: &ObjectMeta) -> bool {
    if row.uid != before.uid {
        return true;
    }
    match (
        row.resource_version.parse::<u64>(),
        before.resource_version.parse::<u64>(),
    ) {
        (Ok(now), Ok(before)) => now > before,
        _ => row.resource_version != before.resource_version,
    }
}
