//! Which replica answers for a repository: the same one while it can, so that its caches are warm; the next one when
//! it is busy or gone. Rendezvous hashing: a replica that leaves moves only its own repositories.

use std::net::SocketAddr;

/// A replica takes at most this many times the average number of calls before the next one is asked.
const BOUND: f64 = 1.25;

/// Orders replicas for a key, best first.
pub(crate) fn rank(key: &str, replicas: &[SocketAddr]) -> Vec<SocketAddr> {
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
pub(crate) fn balance(ranked: Vec<SocketAddr>, in_flight: impl Fn(&SocketAddr) -> usize) -> Vec<SocketAddr> {
    let total: usize = ranked.iter().map(&in_flight).sum();
    let share = ((total + 1) as f64 / ranked.len().max(1) as f64 * BOUND).ceil() as usize;
    let (free, busy): (Vec<_>, Vec<_>) = ranked.into_iter().partition(|replica| in_flight(replica) < share);
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
    fn a_hot_repository_spills_to_its_next_replica() {
        let ranked = rank("https://example.com/monorepo", &replicas(3));
        let idle = balance(ranked.clone(), |_| 0);
        assert_eq!(idle, ranked);
        let busy = balance(
            ranked.clone(),
            |replica| if *replica == ranked[0] { 10 } else { 0 },
        );
        assert_eq!(busy, [ranked[1], ranked[2], ranked[0]]);
    }
}
