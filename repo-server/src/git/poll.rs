//! One poller a repository and credential: its refs are asked for a while before the last answer is too old, and what has
//! moved is fetched, so that whoever looks at an Application waits for neither.
//!
//! A repository is polled as long as somebody asks for it. The times of different repositories are spread by their names.

use super::{Access, Git, List, Refs, Resolved, short_hash};
use crate::error::Result;
use futures::StreamExt as _;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Repositories asked at once.
const AT_ONCE: usize = 8;
/// A repository that nobody asked for during so many lifetimes of an answer is let go.
const FORGOTTEN_AFTER: u32 = 3;

/// What to do with a repository now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Wait,
    Ask,
    Forget,
}

/// Decides by how long ago it was asked for and asked, and how long an answer lasts; `spread` from 0 to 1.
fn next(wanted: Duration, listed: Option<Duration>, ttl: Duration, spread: f64) -> Next {
    if wanted > ttl * FORGOTTEN_AFTER {
        return Next::Forget;
    }
    // Between 70 and 95 hundredths of its life an answer is made new.
    match listed {
        Some(age) if age < ttl.mul_f64(0.70 + 0.25 * spread) => Next::Wait,
        _ => Next::Ask,
    }
}

impl Git {
    /// Polls until the future is dropped. An answer of no lifetime is asked for whenever somebody wants it: then there is
    /// nothing to poll.
    pub(crate) async fn poll(&self) {
        let ttl = self.settings.refs_ttl;
        if ttl.is_zero() {
            return std::future::pending().await;
        }
        let pause = (ttl / 50).clamp(Duration::from_millis(20), Duration::from_secs(5));
        loop {
            tokio::time::sleep(pause).await;
            let due = self.due(ttl);
            futures::stream::iter(due)
                .for_each_concurrent(AT_ONCE, |list| async move { self.renew(&list).await })
                .await;
        }
    }

    fn due(&self, ttl: Duration) -> Vec<Arc<List>> {
        let mut due = Vec::new();
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|_, list| {
            let wanted = list
                .wanted
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .at
                .elapsed();
            let listed = match list.last.try_lock() {
                Ok(last) => last.as_ref().map(|last| last.started.elapsed()),
                // It is being asked right now.
                Err(_) => Some(Duration::ZERO),
            };
            match next(wanted, listed, ttl, spread(&list.access)) {
                Next::Wait => true,
                Next::Ask => {
                    due.push(list.clone());
                    true
                }
                Next::Forget => false,
            }
        });
        due
    }

    async fn renew(&self, list: &List) {
        let before = list
            .last
            .lock()
            .await
            .as_ref()
            .and_then(|last| last.answer.clone().ok());
        let after = match self.refs_of(list, true).await {
            Ok(after) => after,
            Err(error) => {
                tracing::debug!(repo = list.access.url.normal(), %error, "polling a repository failed");
                return;
            }
        };
        if let Err(error) = self.fetch_moved(list, before.as_deref(), &after).await {
            tracing::debug!(repo = list.access.url.normal(), %error, "fetching what has moved failed");
        }
    }

    async fn fetch_moved(&self, list: &List, before: Option<&Refs>, after: &Refs) -> Result<()> {
        let wanted = list
            .wanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .references
            .clone();
        for reference in wanted {
            let Some(commit) = after.commits.get(&reference) else {
                continue;
            };
            if before.and_then(|before| before.commits.get(&reference)) != Some(commit) {
                let resolved = Resolved {
                    commit: commit.clone(),
                    reference: Some(reference),
                };
                self.commit(&list.access, &resolved).await?;
            }
        }
        Ok(())
    }
}

/// A number from 0 to 1 that stays the same for a repository.
fn spread(access: &Access) -> f64 {
    let hash = short_hash(&access.key().0);
    u32::from_str_radix(&hash[..8], 16).map_or(0.0, |number| f64::from(number) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_renewed_before_it_is_too_old_as_long_as_somebody_asks() {
        let (ttl, second) = (Duration::from_secs(180), Duration::from_secs(1));
        let of = |wanted: u32, listed: Option<u32>, spread| {
            next(second * wanted, listed.map(|age| second * age), ttl, spread)
        };
        assert_eq!(of(0, None, 0.5), Next::Ask);
        assert_eq!(of(100, Some(60), 0.0), Next::Wait);
        assert_eq!(of(100, Some(130), 0.0), Next::Ask);
        assert_eq!(of(100, Some(130), 1.0), Next::Wait);
        assert_eq!(of(100, Some(172), 1.0), Next::Ask);
        assert_eq!(of(541, Some(1), 0.0), Next::Forget);
    }

    #[test]
    fn repositories_are_asked_at_different_times() {
        let access = |n: u32| {
            let url = format!("https://example.com/{n}");
            Access::new(&url, super::super::Credentials::default(), 0)
        };
        let spreads: Vec<f64> = (0..200)
            .filter_map(|n| access(n).ok())
            .map(|access| spread(&access))
            .collect();
        for decile in 0..10 {
            let within = spreads.iter().filter(|at| (**at * 10.0) as u32 == decile).count();
            assert!((5..40).contains(&within), "{decile}: {within}");
        }
    }
}
