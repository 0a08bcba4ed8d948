//! What this process knows of all shards, for metrics and probes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use argosy_runtime::clock::Clock;
use argosy_shard_coordinator::node::{Live, Node};
use argosy_shard_coordinator::object::{ClusterId, RecordState};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::Ownership;

/// One cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The owner.
    pub shard: String,
    /// Its epoch.
    pub epoch: u64,
    /// How the record stands.
    pub state: RecordState,
}

/// Everything, at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Clusters with an owner that lives.
    pub owned: BTreeMap<String, Owned>,
    /// Clusters without, and since when on this process's clock.
    pub unowned: BTreeMap<ClusterId, Duration>,
    /// Shards whose leases are renewed.
    pub alive: usize,
    /// Whether this process holds its lease.
    pub holds: bool,
    /// Whether this process coordinates.
    pub leads: bool,
    /// When this was seen.
    pub at: Duration,
}

/// The latest view.
pub struct Known {
    view: Mutex<View>,
    clock: Arc<dyn Clock>,
}

impl Known {
    /// Nothing is known yet; times are those of `clock`.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Known {
            view: Mutex::default(),
            clock,
        }
    }

    /// The latest view.
    pub fn view(&self) -> View {
        self.view.lock().clone()
    }

    /// The time, as the view has it.
    pub(super) fn now(&self) -> Duration {
        self.clock.since_boot()
    }

    pub(super) fn update(&self, node: &Node, now: Duration) {
        let mut view = self.view.lock();
        view.at = now;
        view.holds = node.authority().is_some_and(|authority| now < authority.start);
        view.leads = node.leads(now);
        view.alive = node.shards(now).filter(|(_, live)| *live == Live::Alive).count();
        let unowned = node.unowned();
        view.unowned.retain(|cluster, _| unowned.contains(cluster));
        for cluster in unowned {
            view.unowned.entry(cluster).or_insert(now);
        }
        view.owned = node
            .records()
            .filter(|record| !view.unowned.contains_key(&record.cluster))
            .filter_map(|record| {
                let owned = Owned {
                    shard: record.owner.as_ref()?.shard.to_string(),
                    epoch: record.epoch,
                    state: record.state(),
                };
                Some((record.cluster.to_string(), owned))
            })
            .collect();
    }
}

/// The metrics of ownership.
pub struct ShardsCollector {
    /// What is known.
    pub known: Arc<Known>,
    /// What stands in front of writes.
    pub ownership: Arc<Ownership>,
}

impl std::fmt::Debug for ShardsCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardsCollector").finish_non_exhaustive()
    }
}

impl Collector for ShardsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let view = self.known.view();
        let mut owners = encoder.encode_descriptor(
            "argosy_cluster_owner",
            "Epoch under which a shard owns a cluster",
            None,
            MetricType::Gauge,
        )?;
        for (cluster, owned) in &view.owned {
            owners
                .encode_family(&[("server", cluster.as_str()), ("shard", owned.shard.as_str())])?
                .encode_gauge(&i64::try_from(owned.epoch).unwrap_or(i64::MAX))?;
        }
        let mut unowned = encoder.encode_descriptor(
            "argosy_cluster_unowned_seconds",
            "For how long a cluster has had no owner that lives; 0 with one",
            None,
            MetricType::Gauge,
        )?;
        let now = self.known.now();
        for cluster in view.owned.keys() {
            unowned
                .encode_family(&[("server", cluster.as_str())])?
                .encode_gauge(&0_f64)?;
        }
        for (cluster, since) in &view.unowned {
            let seconds = now.saturating_sub(*since).as_secs_f64();
            unowned
                .encode_family(&[("server", &*cluster.0)])?
                .encode_gauge(&seconds)?;
        }
        for (name, help, value) in [
            (
                "argosy_shards",
                "Shards whose leases are renewed",
                view.alive as i64,
            ),
            (
                "argosy_shard_lease_held",
                "1 while this shard may begin writes",
                i64::from(view.holds),
            ),
            (
                "argosy_shard_coordinates",
                "1 on the shard that assigns clusters",
                i64::from(view.leads),
            ),
        ] {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let mut refused = encoder.encode_descriptor(
            "argosy_write_rejected",
            "Writes that did not leave this process",
            None,
            MetricType::Counter,
        )?;
        let count = ConstCounter::new(self.ownership.refused());
        count.encode(refused.encode_family(&[("reason", "deadline")])?)
    }
}
