//! Many clusters full of workloads, by a seed.
//!
//! The objects are the mix that Argosy's measurements use ([`mix`]). They are made when somebody reads them, so that a fleet of a hundred
//! clusters with thousands of objects each is there within seconds and costs little until then; what is written is kept.

mod churn;
mod mix;

use std::sync::Arc;

use anyhow::Result;
use jiff::Timestamp;

use crate::api_server::{ApiServer, Options};
use crate::serve::{Cluster, Transport};
use crate::store::Population;

pub use mix::{Mix, Slot};

/// What a fleet is made of.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// How many clusters.
    pub clusters: u32,
    /// Objects in each, to the nearest whole workload.
    pub objects: u32,
    /// Custom kinds beside those of the workloads, without objects.
    pub extra_kinds: u32,
    /// Every workload has a template and texts of its own, so that nothing can be shared.
    pub unique: bool,
    /// The same seed makes the same objects.
    pub seed: u64,
    /// Changes a second in each cluster.
    pub churn: u32,
    /// Seconds between the bookmarks of a watch.
    pub bookmark_seconds: u32,
    /// How clusters are spoken to.
    pub transport: Transport,
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            clusters: 1,
            objects: 1000,
            extra_kinds: 0,
            unique: false,
            seed: 1,
            churn: 0,
            bookmark_seconds: 60,
            transport: Transport::Plain,
        }
    }
}

impl Fleet {
    /// Starts all clusters.
    ///
    /// # Errors
    /// When the system has no ports left.
    pub async fn start(&self) -> Result<Vec<Cluster>> {
        let now = Timestamp::now();
        let mut clusters = Vec::new();
        for number in 0..self.clusters {
            let cluster = Cluster::serve(self.server(number, now), self.transport).await?;
            if self.churn > 0 {
                cluster.churn(self.churn);
            }
            clusters.push(cluster);
        }
        Ok(clusters)
    }

    /// One cluster of the fleet, without a port.
    #[must_use]
    pub fn server(&self, number: u32, now: Timestamp) -> ApiServer {
        let seed = self
            .seed
            .wrapping_mul(0x9E37_79B9)
            .wrapping_add(u64::from(number));
        // Nobody looks after objects that are only described.
        let options = Options {
            seed,
            controllers: false,
            bookmark_seconds: self.bookmark_seconds,
            ..Options::default()
        };
        let mut server = ApiServer::new(options, now);
        for definition in mix::definitions(self.extra_kinds) {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            server.create_own(path, &definition, now);
        }
        let mix = Arc::new(Mix::new(seed, number, self.unique, now));
        let workloads = mix::workloads_of(self.objects);
        for (namespace, index) in mix.namespaces(workloads) {
            let population: Arc<dyn Population> = mix.clone();
            server.seed(&Slot::Namespace.resource(), "", &namespace, &population, index);
        }
        for workload in 0..workloads {
            let population: Arc<dyn Population> = mix.clone();
            for (slot, namespace, name, index) in mix.objects(workload) {
                server.seed(&slot.resource(), &namespace, &name, &population, index);
            }
        }
        server
    }
}
