//! Follows one kind: bytes in, messages to the writer out.

use std::sync::Arc;

use argosy_kube_io::list_watch::{Event, ListWatch, Looks, Options};
use argosy_kube_io::target::Selection;
use argosy_kube_io::{ApiResource, Client, Error};
use argosy_livestate::{Deletion, Looked, Resource, Scope};
use argosy_object::{Document, ResourceKey, Value, meta};
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
    let mut events = ListWatch::new(client, resource.clone(), options, shared.lists.clone());
    // An object of the running list could not be read, so the list does not say what is missing.
    let mut torn = None;
    let mut looks = Looks::default();
    loop {
        let event = events.next().await;
        let mut missed = false;
        for looked in looks.due(&event) {
            let looked = Looked {
                at: looked.at,
                count: looked.count,
                seen: looked.seen,
            };
            let (answer, agrees) = oneshot::channel();
            let message = Message::Audit(scope.clone(), looked, answer);
            if shared.inbox.send(message).await.is_err() {
                return;
            }
            missed |= agrees.await == Ok(false);
        }
        if missed {
            // What else was missed is not known: the whole list says it.
            events.relist();
            continue;
        }
        let message = match event {
            Event::Progress { .. } | Event::Audit { .. } => continue,
            Event::Seen { object, .. } => {
                shared
                    .unlike(&object, &scope)
                    .into_iter()
                    .for_each(|seen| looks.unlike(seen));
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
                    Some(error) => Message::Failed(scope.clone(), error),
                }
            }
            Event::Live => Message::Live(scope.clone()),
            Event::Applied(bytes) => match shared.read(&bytes, &resource) {
                Ok(resource) => Message::Upsert(resource),
                Err(error) => {
                    warn!(cluster = shared.server, kind = %scope.kind, error = %error, "unreadable object");
                    Message::Failed(scope.clone(), error)
                }
            },
            Event::Deleted(bytes) => match shared.read_deleted(&bytes, &resource) {
                Ok(deletion) => Message::Delete(deletion),
                Err(error) => Message::Failed(scope.clone(), error),
            },
            Event::Failed(error) => {
                debug!(cluster = shared.server, kind = %scope.kind, error = %error, "following a kind failed");
                if error.kind_unknown() {
                    shared.rediscover.notify_one();
                }
                Message::Failed(scope.clone(), error)
            }
        };
        if shared.inbox.send(message).await.is_err() {
            return;
        }
    }
}

impl Shared {
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
        .map_err(|error| Error::Answer {
            call: format!("read a {} of {}", resource.kind, self.server),
            message: error.to_string(),
        })
    }

    /// Reads who is gone.
    fn read_deleted(&self, bytes: &[u8], resource: &ApiResource) -> Result<Deletion, Error> {
        let api_version = resource.api_version();
        Document::read(bytes, |object| {
            let label = object.stamped(&api_version, &resource.kind).label();
            Deletion {
                key: meta::key(&label),
                uid: meta::uid(&label).to_owned(),
                resource_version: meta::resource_version(&label).to_owned(),
            }
        })
        .map_err(|error| Error::Answer {
            call: format!("watch {} of {}", resource.kind, self.server),
            message: error.to_string(),
        })
    }

    /// The place and version of an object that was there, if it is known in an older version. News of it may be on their way.
    fn unlike(&self, bytes: &[u8], scope: &Scope) -> Option<(ResourceKey, String)> {
        let seen = Document::read(bytes, |object| {
            let text = |name| object.str_at(&["metadata", name]).unwrap_or_default().to_owned();
            let key = ResourceKey::new(
                &*scope.kind.group,
                &*scope.kind.kind,
                text("namespace"),
                text("name"),
            );
            (key, text("resourceVersion"))
        });
        let (key, version) = seen.ok()?;
        self.snapshot
            .load()
            .is_behind(&key, &version)
            .then_some((key, version))
    }

    /// What live state keeps of an object.
    pub(crate) fn resource(&self, object: &Value) -> Box<Resource> {
        let rules = self.rules.borrow().clone();
        Box::new(Resource::new(object, (rules.owner)(object, &|| object.clone())))
    }
}
