//! The only code that patches Applications.
//!
//! A pass works out the whole new status; [`patch_between`] reduces it to what differs from the known one, and nothing
//! is sent when nothing differs. What the server answers is in the local store before the write returns.
//!
//! Application has no status subresource: patches go to the main object and name only fields that are the
//! controller's (`status`, `operation`, our own annotations and finalizers), so they merge with what people write at
//! the same time.

use std::sync::Arc;
use std::time::Duration;

use argosy_api::condition::ConditionType;
use argosy_api::v1alpha1::{Application, ApplicationStatus, OperationState, Stored as _};
use argosy_kube_io::api::{self, Unreadable};
use argosy_kube_io::target::{Patch, Write};
use argosy_kube_io::{Class, Error, Target};
use argosy_object::{Value, meta};
use argosy_runtime::bounds::{self, Limit};
use argosy_runtime::clock::{Clock, rfc3339};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::json;

use crate::apps;
use crate::clusters::Clusters;
use crate::context::{AppKey, StatusWriter, WriteError};
use crate::dirty::Marker;
use crate::shards::Ownership;

/// Under which epoch of its cluster's record the state of an Application's operation was written last.
const EPOCH: &str = "argosy.dev/epoch";
/// A write is tried so often before the pass is given up; the pass itself is tried again later.
const ATTEMPTS: u32 = 5;
/// The first wait between two tries; it doubles.
const WAIT: Duration = Duration::from_millis(100);

/// Writes to the control plane's API server.
pub struct Writer {
    target: Target,
    apps: Arc<apps::Store>,
    marker: Arc<Marker>,
    fenced: Option<Fenced>,
}

/// Writes are covered by the lease and stand under an epoch.
struct Fenced {
    ownership: Arc<Ownership>,
    clusters: Arc<Clusters>,
}

impl Writer {
    /// Writes through `target`; the answers go into `apps`, and what they mean for others to `marker`.
    pub fn new(target: Target, apps: Arc<apps::Store>, marker: Arc<Marker>) -> Self {
        Writer {
            target,
            apps,
            marker,
            fenced: None,
        }
    }

    /// The same with every write behind the fence of the Application's cluster, and the epoch noted beside the state of
    /// operations.
    pub fn behind(mut self, ownership: Arc<Ownership>, clusters: Arc<Clusters>) -> Self {
        self.fenced = Some(Fenced { ownership, clusters });
        self
    }

    fn target(&self, app: &Application) -> Target {
        let Some(fenced) = &self.fenced else {
            return self.target.clone();
        };
        let server = fenced.clusters.holder_of(&app.spec.destination);
        self.target.clone().with_fence(fenced.ownership.fence(&server))
    }

    /// The epoch under which this process holds the Application's cluster, with leases.
    fn epoch(&self, app: &Application) -> Option<u64> {
        let fenced = self.fenced.as_ref()?;
        let server = fenced.clusters.holder_of(&app.spec.destination);
        fenced.ownership.epoch(&server)
    }

    /// Writes over the very object whose operation is known, and notes the epoch beside it. Where somebody else has written
    /// something else meanwhile, the write is repeated over that; where the state of the operation itself has changed, somebody
    /// has gone on with it or wants it ended, and no write may take that back.
    async fn over_the_same_operation(
        &self,
        app: &Application,
        mut patch: Value,
        epoch: Option<u64>,
    ) -> Result<Arc<Application>, WriteError> {
        if let Some(epoch) = epoch {
            patch["metadata"]["annotations"][EPOCH] = epoch.to_string().into();
        }
        let mut version = app.metadata.resource_version.clone();
        for _ in 0..ATTEMPTS {
            patch["metadata"]["resourceVersion"] = version.into();
            let error = match self.send(app, patch.clone()).await {
                Err(WriteError::Api { app, source }) if source.conflict() => WriteError::Api { app, source },
                other => return other,
            };
            let key = AppKey::of(app);
            let live = self
                .target
                .get(&api::applications(), &key.namespace, &key.name)
                .await
                .map_err(|source| WriteError::Api {
                    app: key.clone(),
                    source,
                })?;
            let live = live.ok_or(WriteError::Gone { app: key.clone() })?;
            let live = Application::from_document(&live).map_err(|error| WriteError::Answer {
                app: key,
                message: argosy_runtime::log::chain(&error),
            })?;
            if has_gone_on(app, &live, epoch) {
                // The next try begins with it, however far behind the watch is.
                self.told(live);
                return Err(error);
            }
            version = live.metadata.resource_version;
        }
        Err(WriteError::Answer {
            app: AppKey::of(app),
            message: "it keeps changing".to_owned(),
        })
    }

    async fn send(&self, app: &Application, mut patch: Value) -> Result<Arc<Application>, WriteError> {
        let key = AppKey::of(app);
        let resource = api::applications();
        let target = self.target(app);
        // The uid cannot be changed, so another object of the same name refuses the patch.
        patch["metadata"]["uid"] = app.metadata.uid.clone().into();
        // With a version in it, a conflict means that the pass has to look again.
        let versioned = patch.pointer("/metadata/resourceVersion").is_some();
        let mut wait = WAIT;
        let mut attempt = 1;
        let object = loop {
            let write = Write::default();
            let sent = target
                .patch(&resource, &key.namespace, &key.name, Patch::Merge(&patch), &write)
                .await;
            match sent {
                Ok(written) => break written.object,
                Err(error) if error.not_found() || refused_uid(&error) => {
                    return Err(WriteError::Gone { app: key });
                }
                Err(error) if too_large(&error) => {
                    bounds::exceeded(Limit::Application);
                    return Err(WriteError::TooLarge { app: key });
                }
                Err(error) => {
                    let pause = match error.class() {
                        _ if versioned && error.conflict() => {
                            return Err(WriteError::Api {
                                app: key,
                                source: error,
                            });
                        }
                        Class::Retry { after } => after.unwrap_or(wait),
                        _ if error.conflict() => wait,
                        _ => {
                            return Err(WriteError::Api {
                                app: key,
                                source: error,
                            });
                        }
                    };
                    if attempt == ATTEMPTS {
                        return Err(WriteError::Api {
                            app: key,
                            source: error,
                        });
                    }
                    tokio::time::sleep(pause).await;
                    wait *= 2;
                    attempt += 1;
                }
            }
        };
        let app = Application::from_document(&object).map_err(|error| WriteError::Answer {
            app: key.clone(),
            message: argosy_runtime::log::chain(&error),
        })?;
        // Otherwise the watch was faster, or someone wrote after us: what is known is at least as new.
        self.told(app)
            .or_else(|| self.apps.get(&key))
            .ok_or(WriteError::Gone { app: key })
    }

    /// Takes over what the server has told, if it is news, and lets whom it concerns know.
    fn told(&self, app: Application) -> Option<Arc<Application>> {
        let (before, app) = self.apps.observed(app)?;
        self.marker.application(before.as_deref(), &app);
        Some(app)
    }
}

impl StatusWriter for Writer {
    fn patch<'a>(
        &'a self,
        app: &'a Application,
        patch: Value,
    ) -> BoxFuture<'a, Result<Arc<Application>, WriteError>> {
        self.send(app, patch).boxed()
    }

    fn operation<'a>(
        &'a self,
        app: &'a Application,
        state: &'a OperationState,
        extra: Option<Value>,
    ) -> BoxFuture<'a, Result<Arc<Application>, WriteError>> {
        let mut patch = extra.unwrap_or_else(|| json!({}));
        patch["status"]["operationState"] = operation_patch(app.status.operation_state.as_ref(), state);
        if completed(state) {
            patch["operation"] = Value::Null;
        }
        self.over_the_same_operation(app, patch, self.epoch(app)).boxed()
    }

    fn adopt<'a>(&'a self, app: &'a Application) -> BoxFuture<'a, Result<Arc<Application>, WriteError>> {
        self.over_the_same_operation(app, json!({}), self.epoch(app))
            .boxed()
    }
}

/// Whether another process has gone on with the operation since `known` was seen, or somebody has asked for something else
/// before it began.
fn has_gone_on(known: &Application, live: &Application, epoch: Option<u64>) -> bool {
    let written = live.metadata.annotations.get(EPOCH);
    let written: Option<u64> = written.and_then(|written| written.parse().ok());
    let newer = written.zip(epoch).is_some_and(|(written, epoch)| written > epoch);
    let state = known.status.operation_state.as_ref();
    let runs = state.is_some_and(|state| !completed(state));
    newer
        || live.metadata.uid != known.metadata.uid
        || live.status.operation_state != known.status.operation_state
        || (!runs && live.operation != known.operation)
}

fn completed(state: &OperationState) -> bool {
    state
        .phase
        .parse()
        .is_ok_and(argosy_api::v1alpha1::OperationPhase::completed)
}

/// The patch of an operation state: all of the new one, and null for what only the old one had.
fn operation_patch(old: Option<&OperationState>, new: &OperationState) -> Value {
    let new = value_of(new);
    let Some(old) = old else { return new };
    merge_between(&value_of(old), &new).unwrap_or_else(|| json!({}))
}

/// The JSON merge patch that turns the known status into `status`; nothing if they are the same.
pub(crate) fn patch_between(known: &ApplicationStatus, status: &ApplicationStatus) -> Option<Value> {
    if known == status {
        return None;
    }
    let changed = merge_between(&value_of(known), &value_of(status))?;
    Some(json!({ "status": changed }))
}

fn value_of<T: serde::Serialize>(part: &T) -> Value {
    serde_json::to_value(part).expect("invariant: API types have text keys and valid raw JSON")
}

/// The JSON merge patch (RFC 7386) from `old` to `new`; nothing if they are equal. Lists are replaced whole, as merge
/// patches do.
pub(crate) fn merge_between(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = serde_json::Map::new();
    for (key, value) in after {
        match before.get(key) {
            Some(known) => {
                if let Some(change) = merge_between(known, value) {
                    patch.insert(key.clone(), change);
                }
            }
            None => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// The precondition on the uid was not met.
fn refused_uid(error: &Error) -> bool {
    (error.conflict() || error.invalid()) && error.message().to_lowercase().contains("uid")
}

/// The object is larger than etcd, or the request than the API server, takes.
fn too_large(error: &Error) -> bool {
    error.code() == Some(413)
        || error.message().contains("etcdserver: request is too large")
        || error.message().contains("Request entity too large")
}

/// Patches an Application of a cluster that this process does not hold, if nobody has written it since it was seen.
pub(crate) async fn report_over(target: &Target, app: &Application, mut patch: Value) -> Result<(), Error> {
    let metadata = &app.metadata;
    patch["metadata"] = json!({"uid": metadata.uid, "resourceVersion": metadata.resource_version});
    let resource = api::applications();
    let write = Write::default();
    target
        .patch(
            &resource,
            &metadata.namespace,
            &metadata.name,
            Patch::Merge(&patch),
            &write,
        )
        .await?;
    Ok(())
}

/// Says in the status of an Application that cannot be read what is wrong with it. The object is known by its place
/// alone, and only the very version that could not be read is written over: it may have been mended since. An equal report is not
/// written again, as the patch would change nothing but the time.
pub(crate) async fn report_unreadable(target: &Target, unreadable: &Unreadable) -> Result<(), Error> {
    let Unreadable {
        place,
        resource_version,
        message,
    } = unreadable;
    let resource = api::applications();
    let message = format!("The Application cannot be read: {message}");
    let known = target.get(&resource, &place.namespace, &place.name).await?;
    let Some(known) = known.filter(|known| meta::resource_version(known) == resource_version) else {
        return Ok(());
    };
    let conditions = known.pointer("/status/conditions").and_then(Value::as_array);
    let reported = |condition: &Value| {
        condition["type"] == ConditionType::UnknownError.as_str() && condition["message"] == message.as_str()
    };
    if conditions.is_some_and(|conditions| conditions.iter().any(reported)) {
        return Ok(());
    }
    let now = rfc3339(argosy_runtime::clock::System.now());
    let condition =
        json!({"type": ConditionType::UnknownError.as_str(), "message": message, "lastTransitionTime": now});
    let patch =
        json!({"metadata": {"resourceVersion": resource_version}, "status": {"conditions": [condition]}});
    let written = target
        .patch(
            &resource,
            &place.namespace,
            &place.name,
            Patch::Merge(&patch),
            &Write::default(),
        )
        .await;
    match written {
        // Whatever was written instead is told by the watch, and looked at as what it is.
        Err(error) if error.conflict() || error.not_found() => Ok(()),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_patch_names_only_what_differs() {
        let old = json!({"a": 1, "b": {"c": [1], "d": 2}, "gone": "x"});
        let new = json!({"a": 1, "b": {"c": [1, 2], "d": 2}, "new": {"e": 1}});
        let patch = merge_between(&old, &new).unwrap();
        assert_eq!(patch, json!({"b": {"c": [1, 2]}, "gone": null, "new": {"e": 1}}));
        assert_eq!(merge_between(&new, &new), None);
    }

    #[test]
    fn an_equal_status_is_not_written() {
        let mut status = ApplicationStatus::default();
        status.sync.status = "Synced".into();
        assert_eq!(patch_between(&status, &status.clone()), None);
        let mut other = status.clone();
        other.sync.status = "OutOfSync".into();
        assert_eq!(
            patch_between(&status, &other),
            Some(json!({"status": {"sync": {"status": "OutOfSync"}}}))
        );
    }

    #[test]
    fn an_operation_is_written_over_only_as_it_is_known() {
        let with = |phase: &str| {
            let mut app = Application {
                operation: Some(Default::default()),
                ..Application::default()
            };
            app.status.operation_state = (!phase.is_empty()).then(|| OperationState {
                phase: phase.into(),
                ..OperationState::default()
            });
            app
        };
        let without_request = |phase| Application {
            operation: None,
            ..with(phase)
        };
        for phase in ["", "Running", "Succeeded"] {
            assert!(!has_gone_on(&with(phase), &with(phase), None), "{phase}");
        }
        assert!(has_gone_on(&with("Running"), &with("Terminating"), None));
        assert!(has_gone_on(
            &with("Succeeded"),
            &without_request("Succeeded"),
            None
        ));
        assert!(has_gone_on(&with(""), &without_request(""), None));
        // What runs has its request in its state.
        assert!(!has_gone_on(&with("Running"), &without_request("Running"), None));
    }

    #[test]
    fn an_operation_that_a_later_owner_has_written_is_left_to_it() {
        let known = Application::default();
        let mut live = Application::default();
        live.metadata.annotations.insert(EPOCH.into(), "3".into());
        assert!(has_gone_on(&known, &live, Some(2)));
        assert!(!has_gone_on(&known, &live, Some(3)));
        assert!(!has_gone_on(&known, &live, None));
    }

    #[test]
    fn an_operation_state_drops_what_the_old_one_had() {
        let old = OperationState {
            phase: "Running".into(),
            message: "waiting".into(),
            retry_count: 2,
            ..Default::default()
        };
        let new = OperationState {
            phase: "Succeeded".into(),
            ..Default::default()
        };
        let patch = operation_patch(Some(&old), &new);
        assert_eq!(patch["phase"], "Succeeded");
        assert_eq!(
            (&patch["message"], &patch["retryCount"]),
            (&Value::Null, &Value::Null)
        );
    }
}
