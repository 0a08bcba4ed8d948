//! Kubernetes Events on Applications, with Argo CD's reasons.
//!
//! Events are for people and may be lost: they are handed to one task through a bounded queue and dropped, counted,
//! when it is full. Nothing waits for them.

use std::collections::HashSet;
use std::sync::Arc;

use argosy_api::v1alpha1::{API_VERSION, Application};
use argosy_kube_io::target::Write;
use argosy_kube_io::{Target, api};
use argosy_object::Value;
use argosy_runtime::bounds::{self, Class};
use argosy_runtime::clock::{Clock, rfc3339};
use serde_json::json;
use tokio::sync::mpsc;
use tracing::debug;

/// Events that wait to be written: a sync of 1,000 Applications writes about four each; beyond that they are dropped.
const WAITING_MAX: usize = 4096;
/// Who reports, as Argo CD's controller calls itself.
const COMPONENT: &str = "argocd-application-controller";

/// Why an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A refresh was asked for.
    StatusRefreshed,
    /// The Application was created.
    ResourceCreated,
    /// Sync or health status changed.
    ResourceUpdated,
    /// The Application, or resources of it, were deleted.
    ResourceDeleted,
    /// An action ran on a resource.
    ResourceActionRan,
    /// A sync began.
    OperationStarted,
    /// A sync ended.
    OperationCompleted,
}

impl Reason {
    /// The word in the event.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::StatusRefreshed => "StatusRefreshed",
            Reason::ResourceCreated => "ResourceCreated",
            Reason::ResourceUpdated => "ResourceUpdated",
            Reason::ResourceDeleted => "ResourceDeleted",
            Reason::ResourceActionRan => "ResourceActionRan",
            Reason::OperationStarted => "OperationStarted",
            Reason::OperationCompleted => "OperationCompleted",
        }
    }
}

/// How an event is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As it should be.
    Normal,
    /// Something went wrong.
    Warning,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Normal => "Normal",
            Kind::Warning => "Warning",
        }
    }
}

/// Which reasons are written (`ARGOCD_ENABLE_K8S_EVENT`): `all`, `none`, or a list.
#[derive(Clone, Debug)]
pub enum Filter {
    /// Every reason.
    All,
    /// These reasons.
    Only(HashSet<String>),
}

impl Filter {
    /// Reads the text of the variable.
    pub fn parse(text: &str) -> Self {
        match text.trim() {
            "" | "all" => Filter::All,
            "none" => Filter::Only(HashSet::new()),
            list => Filter::Only(list.split(',').map(|reason| reason.trim().to_owned()).collect()),
        }
    }

    fn passes(&self, reason: Reason) -> bool {
        match self {
            Filter::All => true,
            Filter::Only(reasons) => reasons.contains(reason.as_str()),
        }
    }
}

/// Takes events. Clones write to the same place.
#[derive(Clone)]
pub struct Recorder {
    waiting: mpsc::Sender<(String, Value)>,
    filter: Arc<Filter>,
    clock: Arc<dyn Clock>,
}

/// Writes what recorders take. Run it as a task.
pub struct Writer {
    waiting: mpsc::Receiver<(String, Value)>,
    target: Target,
}

/// A recorder, and the writer behind it.
pub fn recorder(target: Target, filter: Filter, clock: Arc<dyn Clock>) -> (Recorder, Writer) {
    let (tx, rx) = mpsc::channel(WAITING_MAX);
    let recorder = Recorder {
        waiting: tx,
        filter: Arc::new(filter),
        clock,
    };
    (recorder, Writer { waiting: rx, target })
}

impl Recorder {
    /// Writes an event on `app`, sooner or later.
    pub fn record(&self, app: &Application, reason: Reason, message: &str, kind: Kind) {
        if !self.filter.passes(reason) {
            return;
        }
        let event = event(app, reason, message, kind, self.clock.now());
        if self
            .waiting
            .try_send((app.metadata.namespace.clone(), event))
            .is_err()
        {
            bounds::shed(Class::Event);
        }
    }
}

impl Writer {
    /// Writes until every recorder is gone.
    pub async fn run(mut self) {
        let resource = api::events();
        while let Some((namespace, event)) = self.waiting.recv().await {
            if let Err(error) = self.target.create(&resource, &event, &Write::default()).await {
                debug!(
                    namespace,
                    error = argosy_runtime::log::chain(&error),
                    "write an event"
                );
            }
        }
    }
}

fn event(app: &Application, reason: Reason, message: &str, kind: Kind, now: jiff::Timestamp) -> Value {
    let meta = &app.metadata;
    let time = rfc3339(now);
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": meta.namespace,
            "name": format!("{}.{:x}", meta.name, now.as_nanosecond()),
            "annotations": meta.annotations.get("event.labels").map(|labels| json!({"event.labels": labels})),
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": "Application",
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
        },
        "source": {"component": COMPONENT},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
        "type": kind.as_str(),
        "reason": reason.as_str(),
        "message": message,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_event_points_to_its_application() {
        let mut app = Application::default();
        app.metadata.namespace = "argocd".into();
        app.metadata.name = "guestbook".into();
        app.metadata.uid = "u".into();
        let now = "2026-11-29T15:00:00Z".parse().unwrap();
        let event = event(
            &app,
            Reason::OperationStarted,
            "x initiated sync to HEAD",
            Kind::Normal,
            now,
        );
        assert_eq!(event["involvedObject"]["kind"], "Application");
        assert_eq!(event["involvedObject"]["uid"], "u");
        assert_eq!(
            (&event["reason"], &event["type"]),
            (&"OperationStarted".into(), &"Normal".into())
        );
        assert!(
            event["metadata"]["name"]
                .as_str()
                .unwrap()
                .starts_with("guestbook.")
        );
    }

    #[test]
    fn the_filter_is_all_none_or_a_list() {
        assert!(Filter::parse("all").passes(Reason::ResourceUpdated));
        assert!(!Filter::parse("none").passes(Reason::ResourceUpdated));
        let list = Filter::parse("OperationStarted, OperationCompleted");
        assert!(list.passes(Reason::OperationCompleted) && !list.passes(Reason::ResourceUpdated));
    }
}
