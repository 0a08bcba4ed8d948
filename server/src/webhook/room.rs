//! Room for payloads that are being read. Anybody may send one, and as large as a host's largest, before it is known whether it is
//! signed: so all that are being read at the same time share a room. Most are small: what is beyond the first part of each has a
//! room of its own, so that a few large ones keep no small one out.

use std::sync::atomic::{AtomicUsize, Ordering};

use argosy_runtime::bounds::{self, Limit};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Payloads up to this are small.
const SMALL: usize = 256 << 10;
/// Room for all that is small.
const ROOM: usize = 32 << 20;
/// Room for the rest of those that are not, beside the largest that is taken.
const ROOM_OF_LARGE: usize = 16 << 20;

/// No payload is larger, whatever is set.
const LARGEST: usize = 1 << 30;

/// See the module's text.
pub(super) struct Room {
    small: Semaphore,
    large: Semaphore,
    /// The largest payload that there is room for.
    max: AtomicUsize,
}

/// A payload. It takes its room until it is dropped.
pub(super) struct Held<'a> {
    pub bytes: Bytes,
    _places: (SemaphorePermit<'a>, SemaphorePermit<'a>),
}

/// Why a payload was not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is larger than what is taken, or broke off.
    TooLarge,
    /// Too many are being read.
    NoRoom,
}

impl Room {
    /// Nobody is in it. It grows with the largest payload that is to be taken.
    pub(super) fn new() -> Self {
        Room {
            small: Semaphore::new(ROOM),
            large: Semaphore::new(ROOM_OF_LARGE),
            max: AtomicUsize::new(0),
        }
    }

    /// Reads a payload of at most `max` bytes.
    pub(super) async fn read<B>(&self, body: B, max: usize) -> Result<Held<'_>, Unread>
    where
        B: Body<Data = Bytes>,
    {
        let max = max.min(LARGEST);
        let before = self.max.fetch_max(max, Ordering::Relaxed);
        self.large.add_permits(max.saturating_sub(before));
        let mut body = std::pin::pin!(body);
        let (mut small, mut large) = (place(&self.small, 0)?, place(&self.large, 0)?);
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(chunk) = frame.map_err(|_| Unread::TooLarge)?.into_data() else {
                continue;
            };
            if bytes.len() + chunk.len() > max {
                bounds::exceeded(Limit::WebhookPayload);
                return Err(Unread::TooLarge);
            }
            let of_small = SMALL.saturating_sub(bytes.len()).min(chunk.len());
            for (room, taken, len) in [
                (&self.small, &mut small, of_small),
                (&self.large, &mut large, chunk.len() - of_small),
            ] {
                taken.merge(place(room, len)?);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Held {
            bytes: bytes.freeze(),
            _places: (small, large),
        })
    }
}

fn place(room: &Semaphore, len: usize) -> Result<SemaphorePermit<'_>, Unread> {
    let len = u32::try_from(len).map_err(|_| Unread::TooLarge)?;
    room.try_acquire_many(len).map_err(|_| Unread::NoRoom)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    const MAX: usize = 50 << 20;

    fn payload(len: usize) -> impl Body<Data = Bytes> {
        let chunks = (0..len.div_ceil(SMALL)).map(move |at| {
            let chunk = Bytes::from(vec![b' '; SMALL.min(len - at * SMALL)]);
            Ok::<_, std::io::Error>(Frame::data(chunk))
        });
        StreamBody::new(stream::iter(chunks))
    }

    #[tokio::test]
    async fn large_payloads_share_a_room_and_keep_no_small_one_out() {
        let room = Room::new();
        let first = room.read(payload(40 << 20), MAX).await.unwrap();
        assert_eq!(first.bytes.len(), 40 << 20);
        assert_eq!(
            room.read(payload(40 << 20), MAX).await.err(),
            Some(Unread::NoRoom)
        );
        assert!(room.read(payload(100_000), MAX).await.is_ok());
        drop(first);
        assert!(room.read(payload(40 << 20), MAX).await.is_ok());
        assert_eq!(
            room.read(payload(MAX + 1), MAX).await.err(),
            Some(Unread::TooLarge)
        );
        assert!(bounds::times_exceeded(Limit::WebhookPayload) > 0);
        assert!(
            room.read(payload(MAX), MAX).await.is_ok(),
            "what was refused has left"
        );
    }
}
