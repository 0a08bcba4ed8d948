//! How much this process knows, how sure it is of that, and how old it is.
//!
//! Series are bounded: one for each cluster and state, one for each kind that is *not* followed, none for each Application.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use argosy_runtime::clock::Clock;
use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use tokio::time::Instant;

use super::Metrics;
use crate::apps;
use crate::clusters::Clusters;
use crate::queue::Queue;

/// Writes it when it is asked for.
pub(crate) struct KnowledgeCollector {
    pub metrics: Arc<Metrics>,
    pub apps: Arc<apps::Store>,
    pub clusters: Arc<Clusters>,
    /// The queues, by the names that `workqueue_depth` has for them.
    pub queues: [(&'static str, Arc<Queue>); 2],
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for KnowledgeCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KnowledgeCollector").finish_non_exhaustive()
    }
}

impl Collector for KnowledgeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        self.caches(&mut encoder)?;
        self.kinds(&mut encoder)?;
        self.applications(&mut encoder)?;
        self.queues(&mut encoder)
    }
}

impl KnowledgeCollector {
    fn caches(&self, encoder: &mut DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let clusters = self.clusters.running();
        {
            let help = "Looks at the API server that did not agree with what was known; each time the kind was listed anew";
            let name = "argosy_cache_mismatch";
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for cluster in &clusters {
                let count = ConstCounter::new(cluster.audit_mismatches() as u64);
                count.encode(metric.encode_family(&[("server", cluster.server())])?)?;
            }
        }
        let help = "Since when every kind of the cluster has been listed, or has agreed with a look at its API server";
        let name = "argosy_cache_verified_timestamp_seconds";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for cluster in &clusters {
            if let Some(at) = cluster.verified() {
                metric
                    .encode_family(&[("server", cluster.server())])?
                    .encode_gauge(&at.as_second())?;
            }
        }
        Ok(())
    }

    fn kinds(&self, encoder: &mut DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let clusters = self.clusters.running();
        let failures: Vec<_> = clusters.iter().map(|cluster| cluster.kind_failures()).collect();
        {
            let help = "Kinds by how they are followed: live, being listed for the first time, or failed";
            let mut metric =
                encoder.encode_descriptor("argosy_watch_state", help, None, MetricType::Gauge)?;
            for (cluster, failures) in clusters.iter().zip(&failures) {
                let pending = failures.iter().filter(|failure| failure.cause.is_none()).count();
                let failed = failures.len() - pending;
                let live = cluster.watched_kinds().saturating_sub(failures.len());
                for (state, count) in [("live", live), ("listing", pending), ("failed", failed)] {
                    metric
                        .encode_family(&[("server", cluster.server()), ("state", state)])?
                        .encode_gauge(&(count as i64))?;
                }
            }
        }
        let help =
            "1 for a kind that cannot be followed: what is known of it may be old, and absence means nothing";
        let mut metric = encoder.encode_descriptor("argosy_kind_degraded", help, None, MetricType::Gauge)?;
        for (cluster, failures) in clusters.iter().zip(&failures) {
            // Namespaces fail alike, and are told as one.
            let kinds: BTreeMap<(&str, &str), &str> = failures
                .iter()
                .filter_map(|failure| {
                    Some(((&*failure.kind.group, &*failure.kind.kind), failure.cause?.word()))
                })
                .collect();
            for ((group, kind), reason) in kinds {
                let labels = [
                    ("server", cluster.server()),
                    ("group", group),
                    ("kind", kind),
                    ("reason", reason),
                ];
                metric.encode_family(&labels)?.encode_gauge(&1_i64)?;
            }
        }
        Ok(())
    }

    fn applications(&self, encoder: &mut DescriptorEncoder) -> Result<(), std::fmt::Error> {
        {
            let help =
                "Objects of the control plane that cannot be read: each is told of, and hurts no other";
            let mut metric =
                encoder.encode_descriptor("argosy_poison_items", help, None, MetricType::Gauge)?;
            let (applications, projects) = self.apps.unreadable();
            for (kind, count) in [("Application", applications), ("AppProject", projects)] {
                metric
                    .encode_family(&[("kind", kind)])?
                    .encode_gauge(&(count as i64))?;
            }
        }
        let mut oldest: BTreeMap<String, Timestamp> = BTreeMap::new();
        for app in self.apps.all() {
            let Some(at) = app.status.reconciled_at else {
                continue;
            };
            let at = at.to_timestamp();
            let known = oldest.entry(self.metrics.server(&app)).or_insert(at);
            *known = at.min(*known);
        }
        let help = "As of when the Application of the cluster was compared whose last full comparison is the longest ago";
        let name = "argosy_app_status_observed_timestamp_seconds";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (server, at) in oldest {
            metric
                .encode_family(&[("dest_server", server)])?
                .encode_gauge(&at.as_second())?;
        }
        Ok(())
    }

    fn queues(&self, encoder: &mut DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let help = "Since when the first of those that wait for a worker does; now if nobody waits";
        let name = "argosy_workqueue_oldest_item_timestamp_seconds";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        let now = Instant::now();
        for (name, queue) in &self.queues {
            let waited = queue.oldest().map_or(Duration::ZERO, |since| now - since);
            let since = self.clock.now() - waited;
            metric
                .encode_family(&[("name", *name)])?
                .encode_gauge(&since.as_second())?;
        }
        Ok(())
    }
}
