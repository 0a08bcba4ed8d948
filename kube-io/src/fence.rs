//! Ownership of writes, as the connector sees it.

use std::sync::Arc;
use std::time::Duration;

/// Says whether a write may still leave this process.
///
/// A shard writes to a cluster only while it holds it. The question is asked twice: when a call is prepared, so that
/// the server gets a time limit that ends within the lease, and once more when the bytes are about to leave, after all
/// queueing.
pub trait Fence: Send + Sync {
    /// The time left in which a write may be started and must be over; `None` when no write may leave at all.
    fn remaining(&self) -> Option<Duration>;
}

/// A fence that a request carries to the connector.
#[derive(Clone)]
pub(crate) struct Carried(pub(crate) Arc<dyn Fence>);

/// The connector refused a write.
#[derive(Debug, thiserror::Error)]
#[error("this process does not hold the cluster any longer")]
pub(crate) struct Refused;
