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

    /// A write is about to be sent. What is returned is called when it is over: with true if the server has answered, with
    /// false if it may still arrive.
    fn begun(&self) -> Box<dyn FnOnce(bool) + Send> {
        Box::new(|_| {})
    }

    /// A write was refused.
    fn refused(&self) {}
}

/// A write on its way. Dropped before it is told to be answered, it counts as lost: also when its caller has gone.
pub(crate) struct Flight(Option<Box<dyn FnOnce(bool) + Send>>);

impl Flight {
    pub(crate) fn begin(fence: &Arc<dyn Fence>) -> Self {
        Flight(Some(fence.begun()))
    }

    /// The server has answered, or nothing has left.
    pub(crate) fn over(mut self) {
        if let Some(end) = self.0.take() {
            end(true);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end(false);
        }
    }
}

/// A fence that a request carries to the connector.
#[derive(Clone)]
pub(crate) struct Carried(pub(crate) Arc<dyn Fence>);

/// The connector refused a write.
#[derive(Debug, thiserror::Error)]
#[error("this process does not hold the cluster any longer")]
pub(crate) struct Refused;
