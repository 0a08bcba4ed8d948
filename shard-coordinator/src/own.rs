//! Which shard this process is, from its environment.

use std::time::Duration;

use crate::assignment::Algorithm;
use crate::timing::{RENEW_MAX, Timing};

/// How clusters are divided among controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One controller looks after everything, and nothing is asked of anybody.
    Alone,
    /// Argo CD's way: the number of shards is fixed and each computes which clusters are its own.
    Fixed,
    /// Shards hold leases, and records say who owns which cluster.
    Leases,
}

/// This process's place among the shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// How clusters are divided.
    pub mode: Mode,
    /// With leases: the shard's name.
    pub name: String,
    /// With leases: no earlier process of that name can be alive.
    pub alone: bool,
    /// With leases: the number by which people pin clusters to this shard.
    pub ordinal: Option<u32>,
    /// With leases: how long they last.
    pub timing: Timing,
    /// Number of shards, at least one.
    pub replicas: u32,
    /// Which of them this process is, from zero.
    pub shard: u32,
    /// How clusters are spread.
    pub algorithm: Algorithm,
    /// Set when neither the environment nor the host name said which shard this is, and zero was taken.
    pub guessed: bool,
}

/// Why the environment does not name a shard.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A variable is not the number it should be.
    #[error("read {name}: {value:?} is not a number of a shard")]
    Number {
        /// The variable.
        name: &'static str,
        /// Its text.
        value: String,
    },
    /// The algorithm has no such name.
    #[error(
        "read {name}: there is no sharding algorithm {value:?} (legacy, round-robin, consistent-hashing)"
    )]
    Algorithm {
        /// The variable.
        name: &'static str,
        /// Its text.
        value: String,
    },
    /// There is no such way to divide clusters.
    #[error("read ARGOSY_SHARDING: {value:?} is not auto, alone, fixed or leases")]
    Mode {
        /// The text.
        value: String,
    },
    /// The number of this shard is not below the number of shards.
    #[error("take shard {shard}: there are only {replicas} shards")]
    Outside {
        /// The shard asked for.
        shard: u32,
        /// How many there are.
        replicas: u32,
    },
}

const REPLICAS: &str = "ARGOCD_CONTROLLER_REPLICAS";
const SHARD: &str = "ARGOCD_CONTROLLER_SHARD";
const ALGORITHM: &str = "ARGOCD_CONTROLLER_SHARDING_ALGORITHM";
const DYNAMIC: &str = "ARGOCD_ENABLE_DYNAMIC_CLUSTER_DISTRIBUTION";
const HEARTBEAT: &str = "ARGOCD_CONTROLLER_HEARTBEAT_TIME";
const MODE: &str = "ARGOSY_SHARDING";
/// The uid of the pod, by the downward API.
const POD_UID: &str = "POD_UID";
/// The shortest time between two renewals of a lease, in seconds: shorter ones write more than an API server should be asked for.
const HEARTBEAT_MIN: u64 = 1;

/// Reads the environment of this process and the name of its host.
pub fn from_env() -> Result<Own, Error> {
    let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let host = host
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .unwrap_or_default();
    read(|name| std::env::var(name).ok(), host.trim())
}

/// Reads, through `env`:
///
/// | variable | meaning |
/// |---|---|
/// | `ARGOSY_SHARDING` | `alone`, `fixed`, `leases`; `auto` (the default) takes leases where Argo CD would shard, else `alone` |
/// | `ARGOCD_CONTROLLER_REPLICAS` | number of shards; only `fixed` depends on it |
/// | `ARGOCD_CONTROLLER_SHARD`, the host's name | the number of this shard (a StatefulSet's pod ends with it) |
/// | `ARGOCD_CONTROLLER_SHARDING_ALGORITHM` | how `fixed` spreads clusters; leases go by cost |
/// | `ARGOCD_ENABLE_DYNAMIC_CLUSTER_DISTRIBUTION` | `auto` takes leases |
/// | `ARGOCD_CONTROLLER_HEARTBEAT_TIME` | seconds between two renewals, 1 to 10 (5); everything else is in proportion |
/// | `POD_UID` | the name of this shard; without it the host's name, which a successor may not take over at once |
pub fn read(env: impl Fn(&str) -> Option<String>, host: &str) -> Result<Own, Error> {
    let env = |name: &str| env(name).filter(|value| !value.is_empty());
    let number = |name: &'static str| match env(name) {
        None => Ok(None),
        Some(value) => value
            .parse::<i64>()
            .map(Some)
            .map_err(|_| Error::Number { name, value }),
    };
    let replicas = number(REPLICAS)?.unwrap_or(1).clamp(1, i64::from(u32::MAX)) as u32;
    let algorithm = match env(ALGORITHM) {
        None => Algorithm::Legacy,
        Some(value) => value.parse().map_err(|()| Error::Algorithm {
            name: ALGORITHM,
            value,
        })?,
    };
    // Argo CD writes -1 for "find out yourself".
    let named = number(SHARD)?
        .filter(|shard| *shard >= 0)
        .and_then(|shard| u32::try_from(shard).ok());
    let inferred = host
        .rsplit_once('-')
        .and_then(|(_, suffix)| suffix.parse::<u32>().ok());
    let dynamic = env(DYNAMIC).is_some_and(|value| value == "true" || value == "1");
    let mode = match env(MODE).as_deref() {
        Some("alone") => Mode::Alone,
        Some("fixed") => Mode::Fixed,
        Some("leases") => Mode::Leases,
        None | Some("auto") if replicas > 1 || dynamic => Mode::Leases,
        None | Some("auto") => Mode::Alone,
        Some(value) => {
            return Err(Error::Mode {
                value: value.to_owned(),
            });
        }
    };
    let (shard, guessed) = match (named, inferred) {
        (Some(shard), _) => (shard, false),
        (None, _) if replicas == 1 => (0, false),
        (None, Some(shard)) => (shard, false),
        (None, None) => (0, mode == Mode::Fixed),
    };
    if mode == Mode::Fixed && shard >= replicas {
        return Err(Error::Outside { shard, replicas });
    }
    let timing = match number(HEARTBEAT)? {
        None => Timing::default(),
        Some(seconds) => {
            let seconds = u64::try_from(seconds).unwrap_or(0).max(HEARTBEAT_MIN);
            Timing::with_renewal(Duration::from_secs(seconds).min(RENEW_MAX))
        }
    };
    let uid = env(POD_UID);
    Ok(Own {
        mode,
        alone: uid.is_some(),
        name: uid.unwrap_or_else(|| host.to_owned()),
        // The hash of a Deployment's pod may end with digits; the number of a StatefulSet's pod is a short one.
        ordinal: named.or(inferred.filter(|number| *number < replicas)),
        timing,
        replicas,
        shard,
        algorithm,
        guessed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env<'a>(values: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        move |name| {
            values
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        }
    }

    #[test]
    fn one_replica_is_shard_zero_whatever_its_host_is_called() {
        let own = read(env(&[]), "argocd-application-controller-7")
            .map(|own| (own.shard, own.replicas, own.guessed));
        assert_eq!(own, Ok((0, 1, false)));
    }

    #[test]
    fn a_stateful_set_pod_reads_its_shard_from_its_name() {
        let own = read(env(&[(REPLICAS, "5")]), "argocd-application-controller-3");
        assert_eq!(own.map(|own| own.shard), Ok(3));
    }

    #[test]
    fn the_variable_wins_over_the_name() {
        let vars = [(REPLICAS, "5"), (SHARD, "1"), (ALGORITHM, "round-robin")];
        let own = read(env(&vars), "argocd-application-controller-3");
        let own = own.map(|own| (own.replicas, own.shard, own.algorithm, own.ordinal));
        assert_eq!(own, Ok((5, 1, Algorithm::RoundRobin, Some(1))));
    }

    #[test]
    fn a_name_without_a_number_is_shard_zero_and_says_that_it_is_a_guess() {
        let own = read(env(&[(REPLICAS, "2"), (MODE, "fixed")]), "controller-x7k2p")
            .map(|own| (own.shard, own.guessed));
        assert_eq!(own, Ok((0, true)));
    }

    #[test]
    fn a_shard_outside_the_replicas_is_refused() {
        let own = read(env(&[(REPLICAS, "2"), (MODE, "fixed")]), "controller-2");
        let outside = Error::Outside {
            shard: 2,
            replicas: 2,
        };
        assert_eq!(own, Err(outside));
    }

    #[test]
    fn where_argo_cd_would_shard_there_are_leases() {
        let mode = |vars: &[(&str, &str)]| read(env(vars), "controller-0").map(|own| own.mode);
        assert_eq!(mode(&[]), Ok(Mode::Alone));
        assert_eq!(mode(&[(REPLICAS, "3")]), Ok(Mode::Leases));
        assert_eq!(mode(&[(DYNAMIC, "true")]), Ok(Mode::Leases));
        assert_eq!(mode(&[(REPLICAS, "3"), (MODE, "fixed")]), Ok(Mode::Fixed));
        assert!(matches!(mode(&[(MODE, "some")]), Err(Error::Mode { .. })));
    }

    #[test]
    fn a_pod_with_a_uid_is_known_by_it_and_follows_its_predecessor_at_once() {
        let vars = [(POD_UID, "0f6e"), (DYNAMIC, "true")];
        let own = read(env(&vars), "controller-5d9c8b7f6-12345");
        assert_eq!(
            own.map(|own| (own.name, own.alone, own.ordinal)),
            Ok(("0f6e".to_owned(), true, None))
        );
        let own = read(env(&[(REPLICAS, "3")]), "controller-2");
        assert_eq!(
            own.map(|own| (own.name, own.alone, own.ordinal)),
            Ok(("controller-2".to_owned(), false, Some(2)))
        );
    }

    #[test]
    fn the_heartbeat_sets_all_times_within_bounds() {
        let renew = |value: &str| {
            read(env(&[(HEARTBEAT, value)]), "")
                .map(|own| (own.timing.renew.as_secs(), own.timing.duration.as_secs()))
        };
        assert_eq!(renew("2"), Ok((2, 8)));
        assert_eq!(renew("60"), Ok((10, 40)));
        assert_eq!(renew("0"), Ok((1, 4)));
        let leave = read(env(&[(HEARTBEAT, "10")]), "").map(|own| own.timing.leave);
        assert!(
            leave.is_ok_and(|leave| leave <= Duration::from_secs(20)),
            "Kubernetes kills after 30 s, and what is under way has to end"
        );
    }
}
