//! Follows one kind: bytes in, messages to the writer out.

use std::sync::Arc;

use argosy_api::settings::RespectRbac;
use argosy_kube_io::api;
use argosy_kube_io::list_watch::{Event, ListWatch, Looks, Options, Sighting};
use argosy_kube_io::target::Selection;
use argosy_kube_io::{ApiResource, Client, Error};
use argosy_livestate::{Deletion, Looked, Resource, Scope};
use argosy_object::{Document, ResourceKey, Value};
use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::Shared;
use super::writer::Message;

/// Follows `resource` within `scope` until it is dropped or the writer is gone.
pub(crate) async fn follow(shared: Arc<Shared>, client: Client, resource: ApiResource, scope: Scope) {
    let options = Options {
        selection: Selection::namespace(&scope.namespace),
        ..shared.pace.kinds.clone()
    };
    let lists = shared.lists.clone();
    let mut events = ListWatch::new(client.clone(), resource.clone(), options, lists);
    // An object of the running list could not be read, so the list does not say what is missing.
    let mut torn = None;
    let mut looks = Looks::default();
    loop {
        let event = events.next().await;
        let mut missed = false;
        for looked in looks.due(&event) {
            let (answer, agrees) = oneshot::channel();
            let looked = Looked {
                at: looked.at,
                count: looked.count,
                seen: looked.seen,
                strangers: looked.strangers,
            };
            let message = Message::Audit(scope.clone(), looked, answer);
            if shared.inbox.send(message).await.is_err() {
                return;
            }
            missed |= agrees.await == Ok(false);
        }
        if missed || looks.list_is_due() {
            // What else was missed is not known: the whole list says it.
            events.relist();
            continue;
        }
        let message = match event {
            Event::Progress { .. } | Event::Audit { .. } => continue,
            Event::Seen { object, how } => {
                shared.look_at(&object, how, &scope, &mut looks);
                continue;
            }
            Event::ListStart => {
                torn = None;
                Message::ListStart(scope.clone())
            }
            Event::Listed(bytes) => match shared.read(&bytes, &resource) {
                Ok(resource) => Message::Listed(scope.clone(), resource),
                Err(error) => {
                    torn = Some(error);
                    continue;
                }
            },
            Event::ListEnd { resource_version } => {
                looks.listed(torn.is_none());
                match torn.take() {
                    None => Message::ListEnd(scope.clone(), resource_version),
                    Some(error) => Message::Unreadable(scope.clone(), error),
                }
            }
            Event::Live => Message::Live(scope.clone()),
            Event::Applied(bytes) => match shared.read(&bytes, &resource) {
                Ok(resource) => Message::Upsert(resource),
                Err(error) => {
                    warn!(cluster = shared.server, kind = %scope.kind, error = %error, "unreadable object");
                    looks.unreadable();
                    Message::Unreadable(scope.clone(), error)
                }
            },
            Event::Deleted(bytes) => match shared.read_deleted(&bytes, &resource) {
                Ok(deletion) => Message::Delete(deletion),
                Err(error) => {
                    looks.unreadable();
                    Message::Unreadable(scope.clone(), error)
                }
            },
            Event::Failed(error) => {
                debug!(cluster = shared.server, kind = %scope.kind, error = %error, "following a kind failed");
                if error.kind_unknown() {
                    shared.rediscover.notify_one();
                }
                match shared.left_out(&client, &resource, &scope, &error).await {
                    true => Message::LeftOut(scope.clone(), error),
                    false => Message::Failed(scope.clone(), error),
                }
            }
        };
        if shared.inbox.send(message).await.is_err() {
            return;
        }
    }
}

/// Who an object is.
#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
}

impl Metadata {
    /// Reads it alone: the rest may be what it will, nested deeper than can be read for instance.
    fn read(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(serde::Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        serde_json::from_slice::<Object>(bytes).map(|object| object.metadata)
    }
}

impl Shared {
    /// Whether a refusal means that the kind is to be left out. Where the settings are strict, the server is asked once more: a list may
    /// be refused for other reasons than the account's rights.
    async fn left_out(&self, client: &Client, resource: &ApiResource, scope: &Scope, error: &Error) -> bool {
        if !(error.forbidden() || error.unauthorized()) {
            return false;
        }
        let respect = self.rules.borrow().respect_rbac;
        match respect {
            RespectRbac::Off => false,
            RespectRbac::Normal => true,
            RespectRbac::Strict => {
                let asked = api::may_list(client, resource, &scope.namespace).await;
                if let Err(error) = &asked {
                    warn!(cluster = self.server, kind = %scope.kind, error = %error, "permissions cannot be checked");
                }
                asked.is_ok_and(|allowed| !allowed)
            }
        }
    }

    /// Reads one object and finds the Application that tracks it.
    fn read(&self, bytes: &[u8], resource: &ApiResource) -> Result<Box<Resource>, Error> {
        let rules = self.rules.borrow().clone();
        let api_version = resource.api_version();
        Document::read(bytes, |object| {
            // Lists of built-in kinds leave the kind out of their items.
            let object = object.stamped(&api_version, &resource.kind);
            let label = object.label();
            let app = (rules.owner)(&label, &|| object.document().value());
            Box::new(Resource::arrived(&object, &label, app))
        })
        .map_err(|error| {
            let Metadata { namespace, name, .. } = Metadata::read(bytes).unwrap_or_default();
            let place = if namespace.is_empty() {
                name
            } else {
                format!("{namespace}/{name}")
            };
            Error::Answer {
                call: format!("{} {place} of {}", resource.kind, self.server),
                message: argosy_runtime::log::chain(&error),
            }
        })
    }

    /// Reads who is gone. Whatever else the object is, it need not be understood for that.
    fn read_deleted(&self, bytes: &[u8], resource: &ApiResource) -> Result<Deletion, Error> {
        let gone = Metadata::read(bytes).map_err(|error| Error::Answer {
            call: format!("watch {} of {}", resource.kind, self.server),
            message: error.to_string(),
        })?;
        Ok(Deletion {
            key: ResourceKey::new(&*resource.group, &*resource.kind, gone.namespace, gone.name),
            uid: gone.uid,
            resource_version: gone.resource_version,
        })
    }

    /// Remembers an object that a look has told of, if it is known in an older version or, listed, not at all. News of it may be on
    /// their way.
    fn look_at(&self, bytes: &[u8], how: Sighting, scope: &Scope, looks: &mut Looks<ResourceKey>) {
        let Ok(seen) = Metadata::read(bytes) else { return };
        let kind = &scope.kind;
        let key = ResourceKey::new(&*kind.group, &*kind.kind, seen.namespace, seen.name);
        let snapshot = self.snapshot.load();
        if snapshot.is_behind(&key, &seen.resource_version) {
            looks.unlike((key, seen.resource_version));
        } else if how == Sighting::Listed && !snapshot.contains(&key) {
            looks.stranger((key, seen.uid));
        }
    }

    /// What live state keeps of an object.
    pub(crate) fn resource(&self, object: &Value) -> Box<Resource> {
        let rules = self.rules.borrow().clone();
        Box::new(Resource::new(object, (rules.owner)(object, &|| object.clone())))
    }
}
