//! The numbers of this process, under Argo CD's names.
//!
//! What is a state (`argocd_app_info`, `argocd_cluster_info`, queues) is written from the stores when it is asked for:
//! no gauge is kept for each Application. What is counted is counted where it happens.

mod knowledge;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use argosy_api::v1alpha1::Application;
use argosy_runtime::clock::Clock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::apps::{self, project_name};
use crate::clusters::{Clusters, Status};
use crate::queue::Queue;
pub(crate) use knowledge::KnowledgeCollector;

/// Buckets of times in a queue and in a worker's hand, in seconds.
const QUEUE_BUCKETS: [f64; 10] = [0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Buckets of `argocd_app_reconcile`, in seconds.
const RECONCILE_BUCKETS: [f64; 7] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];

/// The names of the queues, as Argo CD has them.
pub(crate) const LOOKS: &str = "app_reconciliation_queue";
pub(crate) const OPERATIONS: &str = "app_operation_processing_queue";
const QUEUES: [&str; 2] = [LOOKS, OPERATIONS];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reconcile {
    namespace: String,
    dest_server: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Synced {
    namespace: String,
    name: String,
    project: String,
    dest_server: String,
    phase: String,
    dry_run: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SyncTime {
    namespace: String,
    name: String,
    project: String,
    dest_server: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct QueueName {
    name: &'static str,
}

type Histograms = Family<Reconcile, Histogram, fn() -> Histogram>;
type QueueTimes = Family<QueueName, Histogram, fn() -> Histogram>;

/// What is counted.
pub struct Metrics {
    reconcile: Histograms,
    synced: Family<Synced, Counter>,
    sync_seconds: Family<SyncTime, Counter>,
    queue_waits: QueueTimes,
    queue_work: QueueTimes,
    panics: Counter,
    /// The clusters, to find the server behind a destination's name.
    clusters: OnceLock<Arc<Clusters>>,
}

impl Metrics {
    /// Everything at zero, registered.
    pub fn new(registry: &mut Registry) -> Arc<Self> {
        let metrics = Metrics {
            reconcile: Family::new_with_constructor(|| Histogram::new(RECONCILE_BUCKETS)),
            synced: Family::default(),
            sync_seconds: Family::default(),
            queue_waits: Family::new_with_constructor(|| Histogram::new(QUEUE_BUCKETS)),
            queue_work: Family::new_with_constructor(|| Histogram::new(QUEUE_BUCKETS)),
            panics: Counter::default(),
            clusters: OnceLock::new(),
        };
        registry.register(
            "argocd_app_reconcile",
            "Application reconciliation performance in seconds",
            metrics.reconcile.clone(),
        );
        registry.register(
            "argocd_app_sync",
            "Number of application syncs",
            metrics.synced.clone(),
        );
        registry.register(
            "argocd_app_sync_duration_seconds",
            "Application sync performance in seconds",
            metrics.sync_seconds.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            metrics.queue_waits.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes",
            metrics.queue_work.clone(),
        );
        for name in QUEUES {
            // There from the beginning, so that the first item is an increase.
            drop(metrics.queue_waits.get_or_create(&QueueName { name }));
            drop(metrics.queue_work.get_or_create(&QueueName { name }));
        }
        registry.register(
            "argosy_app_panics",
            "Passes over an application that panicked",
            metrics.panics.clone(),
        );
        Arc::new(metrics)
    }

    /// A look at `app` is over.
    pub fn reconciled(&self, app: &Application, took: Duration) {
        let labels = Reconcile {
            namespace: app.metadata.namespace.clone(),
            dest_server: self.server(app),
        };
        self.reconcile.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// The operation in the status of `app` has ended.
    pub fn operation_ended(&self, app: &Application) {
        let Some(state) = &app.status.operation_state else {
            return;
        };
        let (namespace, name) = (app.metadata.namespace.clone(), app.metadata.name.clone());
        let (project, dest_server) = (project_name(app).to_owned(), self.server(app));
        let dry_run = state.operation.sync.as_ref().is_some_and(|sync| sync.dry_run);
        let time = SyncTime {
            namespace,
            name,
            project,
            dest_server,
        };
        if let (Some(started), Some(finished)) = (state.started_at, state.finished_at) {
            let seconds = finished.to_timestamp().as_second() - started.to_timestamp().as_second();
            self.sync_seconds
                .get_or_create(&time)
                .inc_by(u64::try_from(seconds).unwrap_or_default());
        }
        let SyncTime {
            namespace,
            name,
            project,
            dest_server,
        } = time;
        let phase = state.phase.clone();
        let labels = Synced {
            namespace,
            name,
            project,
            dest_server,
            phase,
            dry_run: dry_run.to_string(),
        };
        self.synced.get_or_create(&labels).inc();
    }

    /// An Application is taken from the queue of this name, after so long.
    pub(crate) fn taken(&self, name: &'static str, waited: Duration) {
        let times = self.queue_waits.get_or_create(&QueueName { name });
        times.observe(waited.as_secs_f64());
    }

    /// The worker that took it is done after so long.
    pub(crate) fn worked(&self, name: &'static str, took: Duration) {
        let times = self.queue_work.get_or_create(&QueueName { name });
        times.observe(took.as_secs_f64());
    }

    /// A pass over an Application panicked.
    pub fn panicked(&self) {
        self.panics.inc();
    }

    fn server(&self, app: &Application) -> String {
        let destination = &app.spec.destination;
        if destination.server.is_empty()
            && let Some(server) = self
                .clusters
                .get()
                .and_then(|clusters| clusters.server_of(destination))
        {
            return server;
        }
        destination.server.clone()
    }

    /// The clusters are known now.
    pub(crate) fn set_clusters(&self, clusters: Arc<Clusters>) {
        let _ = self.clusters.set(clusters);
    }
}

/// Writes states when they are asked for.
pub(crate) struct StateCollector {
    pub metrics: Arc<Metrics>,
    pub apps: Arc<apps::Store>,
    pub clusters: Arc<Clusters>,
    pub refreshes: Arc<Queue>,
    pub operations: Arc<Queue>,
    pub clock: Arc<dyn Clock>,
    /// Labels of Applications that become labels of `argocd_app_labels`.
    pub labels: Vec<String>,
    /// Conditions that `argocd_app_condition` tells.
    pub conditions: Vec<String>,
}

impl std::fmt::Debug for StateCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StateCollector")
    }
}

impl Collector for StateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let apps = self.apps.all();
        self.app_info(&mut encoder, &apps)?;
        if !self.labels.is_empty() {
            self.app_labels(&mut encoder, &apps)?;
        }
        if !self.conditions.is_empty() {
            self.app_conditions(&mut encoder, &apps)?;
        }
        self.cluster_info(&mut encoder)?;
        let mut depth = encoder.encode_descriptor(
            "workqueue_depth",
            "Current depth of workqueue",
            None,
            MetricType::Gauge,
        )?;
        for (name, queue) in [(LOOKS, &self.refreshes), (OPERATIONS, &self.operations)] {
            depth
                .encode_family(&[("name", name)])?
                .encode_gauge(&(queue.len() as i64))?;
        }
        Ok(())
    }
}

impl StateCollector {
    fn app_info(
        &self,
        encoder: &mut DescriptorEncoder,
        apps: &[Arc<Application>],
    ) -> Result<(), std::fmt::Error> {
        let mut metric = encoder.encode_descriptor(
            "argocd_app_info",
            "Information about application",
            None,
            MetricType::Gauge,
        )?;
        for app in apps {
            let automated = app
                .spec
                .sync_policy
                .as_ref()
                .and_then(|policy| policy.automated.as_ref());
            let automated = automated.is_some_and(|automated| automated.enabled.unwrap_or(true));
            let operation = if app.metadata.deletion_timestamp.is_some() {
                "delete"
            } else if app
                .operation
                .as_ref()
                .is_some_and(|operation| operation.sync.is_some())
            {
                "sync"
            } else {
                ""
            };
            let source = app
                .spec
                .effective_sources()
                .into_iter()
                .next()
                .unwrap_or_default();
            let or_unknown = |text: &str| {
                if text.is_empty() {
                    "Unknown".to_owned()
                } else {
                    text.to_owned()
                }
            };
            let labels = [
                ("namespace", app.metadata.namespace.clone()),
                ("name", app.metadata.name.clone()),
                ("project", project_name(app).to_owned()),
                ("autosync_enabled", automated.to_string()),
                ("repo", source.repo_url),
                ("dest_server", self.metrics.server(app)),
                ("dest_namespace", app.spec.destination.namespace.clone()),
                ("sync_status", or_unknown(&app.status.sync.status)),
                ("health_status", or_unknown(&app.status.health.status)),
                ("operation", operation.to_owned()),
            ];
            metric.encode_family(&labels)?.encode_gauge(&1_i64)?;
        }
        Ok(())
    }

    fn app_labels(
        &self,
        encoder: &mut DescriptorEncoder,
        apps: &[Arc<Application>],
    ) -> Result<(), std::fmt::Error> {
        let help = "Argo Application labels converted to Prometheus labels";
        let mut metric = encoder.encode_descriptor("argocd_app_labels", help, None, MetricType::Gauge)?;
        for app in apps {
            let mut labels = identity(app).to_vec();
            for key in &self.labels {
                let value = app.metadata.labels.get(key).cloned().unwrap_or_default();
                labels.push((format!("label_{}", label_name(key)), value));
            }
            metric.encode_family(&labels)?.encode_gauge(&1_i64)?;
        }
        Ok(())
    }

    fn app_conditions(
        &self,
        encoder: &mut DescriptorEncoder,
        apps: &[Arc<Application>],
    ) -> Result<(), std::fmt::Error> {
        let help = "Report application conditions";
        let mut metric = encoder.encode_descriptor("argocd_app_condition", help, None, MetricType::Gauge)?;
        for app in apps {
            for condition in &self.conditions {
                let count = app
                    .status
                    .conditions
                    .iter()
                    .filter(|found| found.r#type == *condition)
                    .count();
                if count > 0 {
                    let mut labels = identity(app).to_vec();
                    labels.push(("condition".to_owned(), condition.clone()));
                    metric.encode_family(&labels)?.encode_gauge(&(count as i64))?;
                }
            }
        }
        Ok(())
    }

    fn cluster_info(&self, encoder: &mut DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let clusters = self.clusters.running();
        let version = |cluster: &crate::clusters::Cluster| cluster.kube_version().unwrap_or_default();
        {
            let help = "Information about cluster";
            let mut metric =
                encoder.encode_descriptor("argocd_cluster_info", help, None, MetricType::Gauge)?;
            for cluster in &clusters {
                let labels = [
                    ("server", cluster.server().to_owned()),
                    ("k8s_version", version(cluster)),
                    ("name", cluster.name()),
                ];
                metric.encode_family(&labels)?.encode_gauge(&1_i64)?;
            }
        }
        {
            let help = "The k8s cluster current connection status";
            let mut metric = encoder.encode_descriptor(
                "argocd_cluster_connection_status",
                help,
                None,
                MetricType::Gauge,
            )?;
            for cluster in &clusters {
                let connected = i64::from(!matches!(cluster.status(), Status::Failed { .. }));
                let labels = [
                    ("server", cluster.server().to_owned()),
                    ("k8s_version", version(cluster)),
                ];
                metric.encode_family(&labels)?.encode_gauge(&connected)?;
            }
        }
        {
            let help = "As of when the cluster is known: now while it is watched, the loss of the connection without";
            let name = "argosy_cluster_observed_timestamp_seconds";
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for cluster in &clusters {
                let at = match cluster.status() {
                    Status::Synced { .. } => self.clock.now(),
                    Status::Failed { since, .. } => since,
                    Status::Syncing { .. } | Status::Stopped => continue,
                };
                metric
                    .encode_family(&[("server", cluster.server())])?
                    .encode_gauge(&at.as_second())?;
            }
        }
        type Number = fn(&crate::clusters::Cluster) -> usize;
        let numbers: [(&str, &str, Number); 2] = [
            (
                "argocd_cluster_api_resource_objects",
                "Number of k8s resource objects in the cache",
                |cluster| cluster.resource_count(),
            ),
            (
                "argocd_cluster_api_resources",
                "Number of monitored kubernetes API resources",
                |cluster| cluster.watched_kinds(),
            ),
        ];
        for (name, help, number) in numbers {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for cluster in &clusters {
                let labels = [("server", cluster.server().to_owned())];
                metric
                    .encode_family(&labels)?
                    .encode_gauge(&(number(cluster) as i64))?;
            }
        }
        Ok(())
    }
}

fn identity(app: &Application) -> [(String, String); 3] {
    [
        ("namespace".to_owned(), app.metadata.namespace.clone()),
        ("name".to_owned(), app.metadata.name.clone()),
        ("project".to_owned(), project_name(app).to_owned()),
    ]
}

/// A Kubernetes label as Prometheus takes it.
fn label_name(key: &str) -> String {
    key.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '_'
            }
        })
        .collect()
}
