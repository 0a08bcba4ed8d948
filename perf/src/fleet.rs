//! Live state of simulated clusters in this process, fed the bytes that an API server would send.

use std::hint::black_box;

use anyhow::{Context, Result};
use argosy_livestate::{ClusterState, Event, Resource, Touched};
use argosy_object::Document;
use serde_json::Value;

use crate::population::{Population, app_of};

/// One cluster and what feeds it.
pub(crate) struct Feed {
    pub(crate) state: ClusterState,
    pub(crate) population: Population,
    next: usize,
    /// Bytes of JSON fed so far.
    pub(crate) bytes: usize,
    /// CPU seconds that taking over took, without making the objects.
    pub(crate) cpu_seconds: f64,
}

impl Feed {
    pub(crate) fn new(seed: u64, unique: bool) -> Self {
        Feed {
            state: ClusterState::new(),
            population: Population::new(seed, unique),
            next: usize::try_from(seed).unwrap_or(0) * 1000,
            bytes: 0,
            cpu_seconds: 0.0,
        }
    }

    /// Adds workloads until there are `objects` objects.
    pub(crate) fn fill(&mut self, objects: usize) -> Result<()> {
        while self.state.len() < objects {
            let texts: Vec<String> = self
                .population
                .workload(self.next)
                .iter()
                .map(Value::to_string)
                .collect();
            self.next += 1;
            let before = thread_cpu_seconds()?;
            for text in &texts {
                self.bytes += text.len();
                black_box(take(&mut self.state, text.as_bytes())?);
            }
            self.cpu_seconds += thread_cpu_seconds()? - before;
        }
        Ok(())
    }
}

/// What the watch does with the bytes of one object.
pub(crate) fn take(state: &mut ClusterState, bytes: &[u8]) -> Result<Touched> {
    let resource = Document::read(bytes, |object| {
        let label = object.label();
        Resource::arrived(&object, &label, app_of(&label))
    })?;
    Ok(state.apply(Event::Upsert(Box::new(resource))))
}

/// CPU seconds of this thread.
pub(crate) fn thread_cpu_seconds() -> Result<f64> {
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").context("read the thread's CPU time")?;
    let nanoseconds: f64 = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(nanoseconds / 1e9)
}

/// Bytes that the program has allocated now, as the allocator counts them.
pub(crate) fn allocated() -> Result<f64> {
    tikv_jemalloc_ctl::epoch::advance()
        .map_err(|error| anyhow::anyhow!("advance the allocator's epoch: {error}"))?;
    let bytes = tikv_jemalloc_ctl::stats::allocated::read()
        .map_err(|error| anyhow::anyhow!("read the allocator's figures: {error}"))?;
    #[allow(clippy::cast_precision_loss)]
    Ok(bytes as f64)
}
