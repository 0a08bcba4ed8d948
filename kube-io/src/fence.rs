//! Ownership of writes, as the connector sees it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use kube::client::Body;
use tower::BoxError;

/// Says whether a write may still leave this process.
///
/// A shard writes to a cluster only while it holds it. The question is asked when a call is prepared, so that the server gets a
/// time limit that ends within the lease, in the connector, and once more when the bytes are about to leave, after all queueing.
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

/// A fence that a request carries to the connector, and how long the server has been given.
#[derive(Clone)]
pub(crate) struct Carried {
    pub(crate) fence: Arc<dyn Fence>,
    pub(crate) given: Duration,
}

impl Carried {
    /// Whether the write may leave now and is over within the hold: also if it has been waiting until now for a connection, or for a
    /// place on one.
    pub(crate) fn passes(&self) -> bool {
        self.fence.remaining().is_some_and(|left| left >= self.given)
    }
}

/// The connector refused a write.
#[derive(Debug, thiserror::Error)]
#[error("this process does not hold the cluster any longer")]
pub(crate) struct Refused;

/// The body of a call, which leaves when a connection has been made and has a place for it, behind all that queues. A fence that it
/// carries is asked then: every write has a body, and without it no server does anything.
pub(crate) struct Fenced {
    body: Body,
    carried: Option<Carried>,
    refused: Arc<AtomicBool>,
}

impl Fenced {
    /// The body, and what becomes true once it was refused.
    pub(crate) fn new(body: Body, carried: Option<Carried>) -> (Self, Arc<AtomicBool>) {
        let refused = Arc::new(AtomicBool::new(false));
        let fenced = Fenced {
            body,
            carried,
            refused: refused.clone(),
        };
        (fenced, refused)
    }
}

impl hyper::body::Body for Fenced {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.carried.take().is_some_and(|carried| !carried.passes()) {
            self.refused.store(true, Ordering::SeqCst);
        }
        if self.refused.load(Ordering::SeqCst) {
            return Poll::Ready(Some(Err(Refused.into())));
        }
        Pin::new(&mut self.body).poll_frame(cx).map_err(BoxError::from)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
