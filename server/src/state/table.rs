//! One kind of the control plane, as its watch tells it: [`Table`].
//!
//! Writers are the watch and the answers of our own writes, so that whoever wrote reads what they wrote. A version that
//! is older than the one known is passed over.

use std::collections::{BTreeMap, VecDeque};
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
    /// The group that it is found in as well; empty for none.
    fn group(&self) -> &str {
        ""
    }
    /// So many rows that went are remembered, for those who watch again.
    const GONE_MAX: usize = 0;
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

/// The rows of one kind.
pub(crate) struct Rows<T> {
    by_place: BTreeMap<Key, Arc<T>>,
    by_group: BTreeMap<String, BTreeMap<Key, Arc<T>>>,
    /// The newest version that was ever seen.
    newest: u64,
    /// Goes up at every change.
    generation: u64,
    /// Rows that went, with the newest version known then; the last one last.
    gone: VecDeque<(u64, Arc<T>)>,
    /// What went before this version is not known.
    gone_from: u64,
}

impl<T: Row> Rows<T> {
    /// The groups and the rows of each.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = &Arc<T>>)> {
        self.by_group
            .iter()
            .map(|(group, rows)| (group.as_str(), rows.values()))
    }

    /// All rows, by place.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.by_place.values().cloned().collect()
    }

    /// The newest version that was ever seen: whoever knows it can go on from there.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// The rows that went since a version and are not there again; whether these are all.
    pub(crate) fn gone_since(&self, version: u64) -> (impl Iterator<Item = &Arc<T>>, bool) {
        let after = self.gone.iter().filter(move |(at, _)| *at >= version);
        let gone = after
            .map(|(_, row)| row)
            .filter(|row| !self.by_place.contains_key(&place::<T>(row)));
        (gone, version >= self.gone_from)
    }

    fn put(&mut self, row: Arc<T>) {
        let key = place(&*row);
        self.newest = self.newest.max(version(row.meta()).unwrap_or_default());
        self.generation += 1;
        let group = self.by_group.entry(row.group().to_owned()).or_default();
        group.insert(key.clone(), row.clone());
        if let Some(before) = self.by_place.insert(key, row.clone())
            && before.group() != row.group()
        {
            self.leave_group(&before);
        }
    }

    fn take(&mut self, key: &Key) -> Option<Arc<T>> {
        let row = self.by_place.remove(key)?;
        self.generation += 1;
        self.leave_group(&row);
        if T::GONE_MAX > 0 {
            if self.gone.len() == T::GONE_MAX
                && let Some((at, _)) = self.gone.pop_front()
            {
                self.gone_from = self.gone_from.max(at + 1);
            }
            self.gone.push_back((self.newest, row.clone()));
        }
        Some(row)
    }

    fn leave_group(&mut self, row: &T) {
        if let Some(group) = self.by_group.get_mut(row.group()) {
            group.remove(&place(row));
            if group.is_empty() {
                self.by_group.remove(row.group());
            }
        }
    }
}

fn place<T: Row>(row: &T) -> Key {
    (row.meta().namespace.clone(), row.meta().name.clone())
}

/// Versions of the API servers of today are numbers that grow.
fn version(meta: &ObjectMeta) -> Option<u64> {
    meta.resource_version.parse().ok()
}

/// The rows of one kind, by namespace and name.
pub(crate) struct Table<T> {
    rows: RwLock<Rows<T>>,
    events: broadcast::Sender<Event<T>>,
    listed: watch::Sender<bool>,
}

impl<T: Row> Table<T> {
    /// No rows yet.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Table {
            rows: RwLock::new(Rows {
                by_place: BTreeMap::new(),
                by_group: BTreeMap::new(),
                newest: 0,
                generation: 0,
                gone: VecDeque::new(),
                gone_from: 0,
            }),
            events: broadcast::Sender::new(BEHIND_MAX),
            listed: watch::Sender::new(false),
        })
    }

    /// The row of this place.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.rows.read().by_place.get(&key).cloned()
    }

    /// All rows, by place.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.rows.read().all()
    }

    /// All rows, and every event after them.
    pub(crate) fn all_and_events(&self) -> (Vec<Arc<T>>, broadcast::Receiver<Event<T>>) {
        self.read_and_events(Rows::all)
    }

    /// What somebody reads.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&Rows<T>) -> R) -> R {
        read(&self.rows.read())
    }

    /// The same, and every event after it.
    pub(crate) fn read_and_events<R>(
        &self,
        read: impl FnOnce(&Rows<T>) -> R,
    ) -> (R, broadcast::Receiver<Event<T>>) {
        // Under the lock, so that no event falls between the two.
        let rows = self.rows.read();
        (read(&rows), self.events.subscribe())
    }

    /// A number that is another one after every change.
    pub(crate) fn generation(&self) -> u64 {
        self.rows.read().generation
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
        let before = rows.by_place.get(&key);
        if let Some(before) = before.filter(|before| !newer(row.meta(), before.meta())) {
            return before.clone();
        }
        let row = Arc::new(row);
        let event = match before {
            Some(_) => Event::Modified(row.clone()),
            None => Event::Added(row.clone()),
        };
        rows.put(row.clone());
        // Nobody listening is no error.
        let _ = self.events.send(event);
        row
    }

    /// Everything has been listed. What went before that, and when, cannot be known.
    fn was_listed(&self) {
        let mut rows = self.rows.write();
        rows.gone_from = rows.newest;
        rows.gone.clear();
        self.listed.send_replace(true);
    }

    /// Forgets a row.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        let mut rows = self.rows.write();
        if let Some(row) = rows.take(&(namespace.to_owned(), name.to_owned())) {
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
                        Change::Synced => table.was_listed(),
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

/// What is no number is taken as newer: it was told later.
fn newer(row: &ObjectMeta, before: &ObjectMeta) -> bool {
    if row.uid != before.uid {
        return true;
    }
    match (version(row), version(before)) {
        (Some(now), Some(before)) => now > before,
        _ => row.resource_version != before.resource_version,
    }
}

#[cfg(test)]
mod tests {
    use argosy_api::v1alpha1::Application;

    use super::*;

    fn app(name: &str, project: &str, version: u64) -> Application {
        let mut app = Application::default();
        app.metadata.name = name.to_owned();
        app.metadata.resource_version = version.to_string();
        app.metadata.uid = name.to_owned();
        app.spec.project = project.to_owned();
        app
    }

    fn groups(table: &Table<Application>) -> Vec<(String, Vec<String>)> {
        let names = |apps: &mut dyn Iterator<Item = &Arc<Application>>| {
            apps.map(|app| app.metadata.name.clone()).collect()
        };
        table.read(|rows| {
            rows.groups()
                .map(|(group, mut apps)| (group.to_owned(), names(&mut apps)))
                .collect()
        })
    }

    #[test]
    fn a_row_is_found_in_the_group_that_it_is_in_now() {
        let table = Table::new();
        table.observe(app("a", "one", 1));
        table.observe(app("b", "", 2));
        assert_eq!(
            groups(&table),
            [
                ("default".into(), vec!["b".into()]),
                ("one".into(), vec!["a".into()])
            ]
        );
        table.observe(app("a", "two", 3));
        table.forget("", "b");
        assert_eq!(groups(&table), [("two".into(), vec!["a".into()])]);
        assert_eq!(table.read(Rows::newest), 3);
    }

    #[test]
    fn what_went_is_remembered_for_those_who_watch_again() {
        let table = Table::new();
        table.observe(app("before", "p", 4));
        table.was_listed();
        let gone = |since| {
            table.read(|rows| {
                let (gone, complete) = rows.gone_since(since);
                (
                    gone.map(|app| app.metadata.name.clone()).collect::<Vec<_>>(),
                    complete,
                )
            })
        };
        assert_eq!(
            gone(3),
            (vec![], false),
            "what went before the first list is not known"
        );
        assert_eq!(gone(4), (vec![], true));
        table.observe(app("a", "p", 5));
        table.observe(app("b", "p", 6));
        table.forget("", "a");
        assert_eq!(gone(6), (vec!["a".into()], true));
        table.observe(app("c", "p", 7));
        assert_eq!(
            gone(7),
            (vec![], true),
            "who has seen later things has seen it go"
        );
        table.observe(app("a", "p", 8));
        assert_eq!(gone(5), (vec![], true), "it is there again");
        for at in 0..Application::GONE_MAX {
            table.observe(app("x", "p", 100 + at as u64));
            table.forget("", "x");
        }
        assert!(!gone(6).1, "the oldest is forgotten");
    }
}
