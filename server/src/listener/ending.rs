//! Answers that go on for as long as anybody listens, and the end of the process: they end with it, in order. Those that have an
//! end of their own are given to the end.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Response, header};
use hyper::body::{Body as _, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;
use tonic::body::Body;

/// A body that ends when the process stops and nothing of it is left to be given.
pub(super) fn body(inner: Body, stopping: CancellationToken) -> Body {
    // What is all there is given at once.
    if inner.is_end_stream() || inner.size_hint().exact().is_some() {
        return inner;
    }
    Body::new(Ending {
        inner,
        stopping: Some(Box::pin(stopping.cancelled_owned())),
    })
}

struct Ending {
    inner: Body,
    /// Nothing once it has ended.
    stopping: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl hyper::body::Body for Ending {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(stopping) = &mut self.stopping else {
            return Poll::Ready(None);
        };
        let stopped = stopping.as_mut().poll(context).is_ready();
        match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Pending if stopped => {
                self.stopping = None;
                Poll::Ready(Some(Ok(Frame::trailers(trailers()))))
            }
            polled => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stopping.is_none() || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// What gRPC's clients take for a reason to ask again, and others pass over.
fn trailers() -> HeaderMap {
    let end: Response<Body> = Status::unavailable("the server is stopping").into_http();
    let mut headers = end.into_parts().0.headers;
    headers.remove(header::CONTENT_TYPE);
    headers
}
