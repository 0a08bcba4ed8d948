//! Bytes of lists in flight, over all kinds and clusters of the process.
//!
//! A list that its reader cannot keep up with holds what the server may send unasked (the window of its stream) and the
//! object that is being received. That much is taken from the budget before a list begins and given back at its end; who
//! finds nothing left waits. Lists that wait hold nothing, so they cannot wait for each other. Nor does a list of which nothing comes
//! hold anything: a server that takes requests and never answers would have everybody wait ([`answered`]). One whose answers
//! only trickle has its own share at most ([`Budget::for_server`]).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client::STREAM_WINDOW;

/// What API servers store of one object is at most 1.5 MiB. (Extension servers may send up to 32 MiB in one; what is
/// beyond this is outside the budget.)
const OBJECT_LEN: u32 = 2 << 20;
/// A list of which nothing has come for so long gives back its bytes until something does.
const UNANSWERED_MAX: Duration = Duration::from_millis(500);

/// A number of bytes. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget {
    bytes: Arc<Semaphore>,
    /// Lists that one server may have of it at a time.
    own: Arc<Semaphore>,
}

/// The bytes of one list; they are free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    _own: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

impl Budget {
    /// The bytes that one list takes.
    pub const LIST: usize = (STREAM_WINDOW + OBJECT_LEN) as usize;

    /// So many bytes, and at least those of one list.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Budget {
            bytes: Arc::new(Semaphore::new(bytes.clamp(Self::LIST, Semaphore::MAX_PERMITS))),
            own: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        }
    }

    /// The same bytes for one server, which may have so many lists (at least one) of them at a time.
    #[must_use]
    pub fn for_server(&self, lists: usize) -> Self {
        Budget {
            bytes: self.bytes.clone(),
            own: Arc::new(Semaphore::new(lists.clamp(1, Semaphore::MAX_PERMITS))),
        }
    }

    /// Takes the bytes of a list, as soon as they are free.
    pub(crate) async fn list(&self) -> Share {
        const OPEN: &str = "the semaphore is never closed";
        let permits = u32::try_from(Self::LIST).expect("a list takes a few megabytes");
        // Its own first: who waits for the others must not stand in their way.
        let own = self.own.clone().acquire_owned().await;
        let bytes = self.bytes.clone().acquire_many_owned(permits).await;
        Share {
            _own: own.expect(OPEN),
            _bytes: bytes.expect(OPEN),
        }
    }
}

/// Waits for something of a list to come, without its share if that takes long.
pub(crate) async fn answered<T, E>(
    budget: &Budget,
    share: Share,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<(T, Share), E> {
    tokio::pin!(answer);
    tokio::select! {
        biased;
        out = &mut answer => return out.map(|out| (out, share)),
        () = tokio::time::sleep(UNANSWERED_MAX) => drop(share),
    }
    let out = answer.await?;
    Ok((out, budget.list().await))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::FutureExt as _;
    use tokio::sync::oneshot;

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

    #[test]
    fn one_server_leaves_something_to_the_others() {
        let budget = Budget::new(3 * Budget::LIST);
        let (one, other) = (budget.for_server(2), budget.for_server(2));
        let shares = [one.list().now_or_never(), one.list().now_or_never()];
        assert!(shares.iter().all(Option::is_some));
        assert!(one.list().now_or_never().is_none());
        let of_other = other.list().now_or_never();
        assert!(of_other.is_some());
        drop(shares);
        assert!(one.list().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_of_which_nothing_comes_holds_nothing() {
        let budget = Budget::new(0);
        let (answer, comes) = oneshot::channel::<()>();
        let share = budget.list().await;
        let (mine, waiting) = (budget.clone(), async { Ok::<_, Infallible>(comes.await) });
        let hanging = tokio::spawn(async move { answered(&mine, share, waiting).await });
        let other = budget.list().await;
        let _ = answer.send(());
        tokio::task::yield_now().await;
        assert!(!hanging.is_finished(), "there is nothing left for it");
        drop(other);
        assert!(hanging.await.is_ok());
    }
}
