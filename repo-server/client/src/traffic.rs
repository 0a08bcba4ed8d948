//! How much of the calls each repository takes lately, and over how many replicas that is to be spread.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// A replica's calls over the average, if only one repository is hot. Less than what [`crate::ring`] puts up with: the
/// calls of the other repositories are never quite even.
const BOUND: f64 = 1.1;
/// After this long a call counts half.
const HALF_LIFE: Duration = Duration::from_secs(60);
/// Calls below which nothing is said about shares.
const ENOUGH: f64 = 64.0;
/// A repository leaves a replica only if this much more traffic would still not need it.
const RELUCTANCE: f64 = 1.25;

/// Calls by repository, older ones counting less.
#[derive(Default)]
pub(crate) struct Traffic {
    repos: HashMap<String, Repo>,
    total: f64,
    halved: Option<Instant>,
}

#[derive(Default)]
struct Repo {
    calls: f64,
    spread: usize,
}

impl Traffic {
    /// Counts a call and tells over how many of `replicas` its repository is spread.
    pub(crate) fn count(&mut self, repo: &str, replicas: usize, now: Instant) -> usize {
        self.age(now);
        self.total += 1.0;
        let total = self.total;
        let entry = match self.repos.get_mut(repo) {
            Some(entry) => entry,
            None => self.repos.entry(repo.to_owned()).or_default(),
        };
        entry.calls += 1.0;
        if total >= ENOUGH {
            let share = entry.calls / total;
            let reluctant = needed((share * RELUCTANCE).min(1.0), replicas);
            entry.spread = needed(share, replicas).max(entry.spread.min(reluctant));
        }
        entry.spread.clamp(1, replicas.max(1))
    }

    fn age(&mut self, now: Instant) {
        let since = *self.halved.get_or_insert(now);
        let halvings = now.saturating_duration_since(since).as_secs() / HALF_LIFE.as_secs();
        if halvings == 0 {
            return;
        }
        let factor = 0.5_f64.powi(i32::try_from(halvings).unwrap_or(i32::MAX));
        for repo in self.repos.values_mut() {
            repo.calls *= factor;
        }
        self.repos.retain(|_, repo| repo.calls >= 0.5);
        self.total = self.repos.values().map(|repo| repo.calls).sum();
        self.halved = Some(now);
    }
}

/// The fewest replicas over which a repository with this share of the calls can be spread so that, with the others' calls
/// even, none takes more than its bound: share/k + (1 − share)/n ≤ BOUND/n.
fn needed(share: f64, replicas: usize) -> usize {
    let spread = (share * replicas as f64 / (share + (BOUND - 1.0))).ceil();
    (spread as usize).clamp(1, replicas.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_replica_gets_more_than_its_bound() {
        for replicas in 1..8_usize {
            for percent in 1..=100_usize {
                let share = percent as f64 / 100.0;
                let spread = needed(share, replicas) as f64;
                let most = share / spread + (1.0 - share) / replicas as f64;
                assert!(most <= BOUND / replicas as f64 + 1e-9, "{share} of {replicas}");
            }
        }
    }

    #[test]
    fn a_hot_repository_is_spread_and_others_are_not() {
        let (mut traffic, now) = (Traffic::default(), Instant::now());
        assert_eq!(traffic.count("hot", 3, now), 1, "one call says nothing");
        let mut last = (0, 0);
        for n in 0..400 {
            last = (
                traffic.count("hot", 3, now),
                traffic.count(&format!("cold-{}", n % 50), 3, now),
            );
        }
        assert_eq!(last, (3, 1));
        // An hour later it is like the others.
        let later = now + Duration::from_secs(3600);
        for n in 0..400 {
            last.0 = traffic.count(&format!("cold-{}", n % 50), 3, later);
        }
        assert_eq!((traffic.count("hot", 3, later), last.0), (1, 1));
    }

    #[test]
    fn a_share_that_wavers_moves_nothing() {
        let (mut traffic, now) = (Traffic::default(), Instant::now());
        let spreads: std::collections::BTreeSet<usize> = (0..2000)
            .map(|n| {
                // Now more and now less than three tenths of the calls: the border between three and four of four replicas.
                let others = if n / 100 % 2 == 0 { 27 } else { 29 };
                (0..others).for_each(|other| {
                    traffic.count(&format!("cold-{other}"), 4, now);
                });
                (0..12).map(|_| traffic.count("hot", 4, now)).max().unwrap_or(0)
            })
            .skip(100)
            .collect();
        assert_eq!(spreads.len(), 1, "{spreads:?}");
    }
}
