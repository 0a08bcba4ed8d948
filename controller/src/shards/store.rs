//! The protocol's objects in the control plane's API server: a watch for views, guarded writes, reads past every cache.
//!
//! The connections are the leases' own, so that no list of Applications stands in the way of a renewal.

use std::sync::Arc;
use std::time::Duration;

use argosy_api::v1alpha1::Application;
use argosy_kube_io::api::{self, Change, TypedWatch};
use argosy_kube_io::target::{Delete, Propagation, Selection, Write};
use argosy_kube_io::{Client, Error, Target, list_watch};
use argosy_object::{Value, meta};
use argosy_runtime::clock::Clock;
use argosy_shard_coordinator::node::{Effect, Event, Outcome};
use argosy_shard_coordinator::object::{Key, Object, Version};
use argosy_shard_coordinator::wire;
use tokio::sync::mpsc::UnboundedSender;
use tracing::{debug, warn};

use crate::status;

/// A call that has not been answered after so long may be done or not.
const CALL_MAX: Duration = Duration::from_secs(10);

/// The store of one control plane.
#[derive(Clone)]
pub(super) struct Store {
    target: Target,
    namespace: String,
    /// What the Leases say to people about their duration.
    duration: Duration,
    clock: Arc<dyn Clock>,
}

impl Store {
    pub(super) fn new(client: Client, namespace: &str, duration: Duration, clock: Arc<dyn Clock>) -> Self {
        Store {
            target: Target::new(client).with_timeout(CALL_MAX),
            namespace: namespace.to_owned(),
            duration,
            clock,
        }
    }

    /// Does a write or read, and says what came of it.
    pub(super) async fn call(&self, effect: Effect) -> Option<Event> {
        Some(match effect {
            Effect::Put(object, expect, number) => {
                let key = object.key();
                let outcome = self.put(&object, expect.as_deref()).await;
                Event::Stored(key, number, outcome)
            }
            Effect::Delete(key, version, number) => {
                let outcome = self.delete(&key, &version).await;
                Event::Stored(key, number, outcome)
            }
            Effect::Read(key) => self.read(key).await,
            _ => return None,
        })
    }

    async fn put(&self, object: &Object, expect: Option<&str>) -> Outcome {
        let now = self.clock.now();
        let now = now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let lease = wire::encode(object, &self.namespace, expect, self.duration, &now);
        let (resource, write) = (api::leases(), Write::default());
        let written = match expect {
            Some(_) => self.target.replace(&resource, &lease, &write).await,
            None => self.target.create(&resource, &lease, &write).await,
        };
        match written {
            Ok(written) => Outcome::Done(version_of(&written.object)),
            Err(error) => outcome(&error),
        }
    }

    async fn delete(&self, key: &Key, version: &str) -> Outcome {
        let delete = Delete {
            resource_version: Some(version.to_owned()),
            propagation: Propagation::Background,
            ..Delete::default()
        };
        let name = wire::name(key);
        match self
            .target
            .delete(&api::leases(), &self.namespace, &name, &delete)
            .await
        {
            Ok(_) => Outcome::Done("".into()),
            Err(error) => outcome(&error),
        }
    }

    async fn read(&self, key: Key) -> Event {
        let name = wire::name(&key);
        match self.target.get(&api::leases(), &self.namespace, &name).await {
            Ok(None) => Event::Fetched(key, None),
            Ok(Some(lease)) => match wire::decode(&lease) {
                Ok(object) => Event::Fetched(key, Some((object, version_of(&lease)))),
                Err(error) => {
                    warn!(
                        error = argosy_runtime::log::chain(&error),
                        "a lease cannot be read: delete it"
                    );
                    Event::Unread(key)
                }
            },
            Err(error) => {
                debug!(%error, "read a lease");
                Event::Unread(key)
            }
        }
    }

    /// Says in an Application that nobody looks after its cluster. No fence covers that: its version does.
    pub(super) async fn report_unowned(&self, app: &Application, patch: Value) {
        if let Err(error) = status::report_over(&self.target, app, patch).await {
            debug!(app = app.metadata.name, %error, "report that nobody looks after its cluster");
        }
    }

    /// Tells everything that exists and then every change, for ever.
    pub(super) async fn follow(self, events: UnboundedSender<Event>) {
        let selection = Selection {
            namespace: self.namespace.clone(),
            labels: wire::LABEL.to_owned(),
            fields: String::new(),
        };
        let client = self.target.client().clone();
        let options = list_watch::Options {
            selection,
            // The protocol makes up for changes that are not told, and leases change all the time.
            audit_pause: Duration::MAX,
            ..list_watch::Options::default()
        };
        let mut watch: TypedWatch<Value> = TypedWatch::paced(client, api::leases(), options);
        // Deletions come with the name alone.
        let mut keys = std::collections::HashMap::new();
        loop {
            let event = match watch.next().await {
                Change::Applied(lease) => match wire::decode(&lease) {
                    Ok(object) => {
                        keys.insert(meta::name(&lease).to_owned(), object.key());
                        Event::Seen(object, version_of(&lease))
                    }
                    Err(error) => {
                        warn!(
                            error = argosy_runtime::log::chain(&error),
                            "a lease cannot be read"
                        );
                        continue;
                    }
                },
                Change::Deleted(place) => match keys.remove(&place.name) {
                    Some(key) => Event::Gone(key),
                    None => continue,
                },
                Change::Synced => Event::Listed,
                Change::Unreadable(bad) => {
                    warn!(
                        lease = bad.place.name,
                        reason = bad.message,
                        "a lease cannot be read"
                    );
                    continue;
                }
                Change::Failed(error) => {
                    warn!(%error, "leases cannot be followed");
                    continue;
                }
            };
            if events.send(event).is_err() {
                return;
            }
        }
    }
}

fn version_of(lease: &Value) -> Version {
    meta::resource_version(lease).into()
}

fn outcome(error: &Error) -> Outcome {
    if error.conflict() || error.already_exists() || error.not_found() {
        return Outcome::Conflict;
    }
    warn!(%error, "write a lease");
    Outcome::Unknown
}
