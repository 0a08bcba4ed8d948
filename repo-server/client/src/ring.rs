//! Which replica answers a call: for a repository the same one while it can, so that its caches are warm; for a repository
//! that takes more than its share of the calls several, each for the same Applications every time; the next one when one
//! is busy or gone. Rendezvous hashing: a replica that leaves moves only what was its own.

use std::net::SocketAddr;

/// A replica takes at most this many times the average before the next one is asked.
const BOUND: f64 = 1.25;
/// Renders that any replica may be asked for at once, however few the others have.
const FREE: usize = 8;

/// Orders the replicas for a call, best first. `spread` replicas share the repository; `load` is what a replica is busy with.
pub(crate) fn order(
    repo: &str,
    part: &str,
    replicas: &[SocketAddr],
    spread: usize,
    load: impl Fn(&SocketAddr) -> usize,
) -> Vec<SocketAddr> {
    let ranked = rank(repo, replicas);
    let (own, others) = ranked.split_at(spread.clamp(1, ranked.len().max(1)).min(ranked.len()));
    let mut order = if own.len() > 1 {
        rank(part, own)
    } else {
        own.to_vec()
    };
    order.extend(others);
    balance(order, load)
}

fn rank(key: &str, replicas: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut scored: Vec<(u64, SocketAddr)> = replicas
        .iter()
        .map(|replica| {
            let mut hasher = blake3::Hasher::new();
            hasher.update(key.as_bytes());
            hasher.update(&[0]);
            hasher.update(replica.to_string().as_bytes());
            let mut score = [0; 8];
            hasher.finalize_xof().fill(&mut score);
            (u64::from_le_bytes(score), *replica)
        })
        .collect();
    scored.sort_by(|a, b| b.cmp(a));
    scored.into_iter().map(|(_, replica)| replica).collect()
}

/// Moves replicas that carry more than their share behind those that do not, each group in its order.
fn balance(ranked: Vec<SocketAddr>, load: impl Fn(&SocketAddr) -> usize) -> Vec<SocketAddr> {
    let total: usize = ranked.iter().map(&load).sum();
    let share = ((total + 1) as f64 / ranked.len().max(1) as f64 * BOUND).ceil() as usize;
    let share = share.max(FREE);
    let (free, busy): (Vec<_>, Vec<_>) = ranked.into_iter().partition(|replica| load(replica) < share);
    free.into_iter().chain(busy).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn replicas(count: u8) -> Vec<SocketAddr> {
        (1..=count)
            .map(|n| SocketAddr::from(([10, 0, 0, n], 8081)))
            .collect()
    }

    #[test]
    fn a_replica_that_leaves_moves_only_its_own_repositories() {
        let (all, fewer) = (replicas(4), replicas(3));
        for n in 0..200 {
            let key = format!("https://example.com/{n}");
            let before = rank(&key, &all)[0];
            if before != all[3] {
                assert_eq!(rank(&key, &fewer)[0], before);
            }
        }
    }

    #[test]
    fn repositories_spread_over_the_replicas() {
        let all = replicas(4);
        let mut counts = [0; 4];
        for n in 0..1000 {
            let first = rank(&format!("https://example.com/{n}"), &all)[0];
            counts[all.iter().position(|replica| *replica == first).unwrap()] += 1;
        }
        assert!(
            counts.iter().all(|count| (150..350).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_busy_replica_is_passed_over() {
        let repo = "https://example.com/monorepo";
        let idle = order(repo, "web", &replicas(3), 1, |_| 0);
        assert_eq!(order(repo, "web", &replicas(3), 1, |_| FREE - 1), idle);
        let busy = order(repo, "web", &replicas(3), 1, |replica| {
            if *replica == idle[0] { 40 } else { 0 }
        });
        assert_eq!(busy, [idle[1], idle[2], idle[0]]);
    }

    #[test]
    fn the_applications_of_a_shared_repository_stay_where_they_are() {
        let (repo, all) = ("https://example.com/monorepo", replicas(4));
        let first = |app: &str, spread| order(repo, app, &all, spread, |_| 0)[0];
        let apps: Vec<String> = (0..300).map(|n| format!("app-{n}")).collect();
        let mut counts = std::collections::BTreeMap::new();
        for app in &apps {
            *counts.entry(first(app, 3)).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 3);
        assert!(
            counts.values().all(|count| (70..130).contains(count)),
            "{counts:?}"
        );
        // One replica more takes its share from the others and moves nothing between them.
        let moved = apps.iter().filter(|app| first(app, 4) != first(app, 3));
        let to: std::collections::BTreeSet<SocketAddr> = moved.map(|app| first(app, 4)).collect();
        assert_eq!(to.len(), 1);
    }
}
