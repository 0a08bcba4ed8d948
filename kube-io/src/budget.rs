//! Bytes of lists in flight, over all kinds and clusters of the process.
//!
//! A list that its reader cannot keep up with holds what the server may send unasked (the window of its stream) and the
//! object that is being received. That much is taken from the budget before a list begins and given back at its end; who
//! finds nothing left waits. Lists that wait hold nothing, so they cannot wait for each other.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client::STREAM_WINDOW;

/// What API servers store of one object is at most 1.5 MiB. (Extension servers may send up to 32 MiB in one; what is
/// beyond this is outside the budget.)
const OBJECT_LEN: u32 = 2 << 20;

/// A number of bytes. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Semaphore>);

/// The bytes of one list; they are free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    _bytes: OwnedSemaphorePermit,
}

impl Budget {
    /// The bytes that one list takes.
    pub const LIST: usize = (STREAM_WINDOW + OBJECT_LEN) as usize;

    /// So many bytes, and at least those of one list.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Budget(Arc::new(Semaphore::new(
            bytes.clamp(Self::LIST, Semaphore::MAX_PERMITS),
        )))
    }

    /// Takes the bytes of a list, as soon as they are free.
    pub(crate) async fn list(&self) -> Share {
        let permits = u32::try_from(Self::LIST).expect("a list takes a few megabytes");
        let taken = self.0.clone().acquire_many_owned(permits).await;
        Share {
            _bytes: taken.expect("the semaphore is never closed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn lists_wait_for_bytes_and_the_smallest_budget_is_one_list() {
        let budget = Budget::new(2 * Budget::LIST + 1);
        let shares = [budget.list().now_or_never(), budget.list().now_or_never()];
        assert!(shares.iter().all(Option::is_some));
        assert!(budget.list().now_or_never().is_none());
        drop(shares);
        assert!(budget.list().now_or_never().is_some());
        assert!(Budget::new(0).list().now_or_never().is_some());
    }
}
