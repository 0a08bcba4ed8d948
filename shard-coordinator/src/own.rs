//! Which shard this process is, from its environment.

use crate::assignment::Algorithm;

/// This process's place among the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
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

/// Reads the environment of this process and the name of its host.
pub fn from_env() -> Result<Own, Error> {
    let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let host = host
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .unwrap_or_default();
    read(|name| std::env::var(name).ok(), host.trim())
}

/// Reads `ARGOCD_CONTROLLER_REPLICAS`, `ARGOCD_CONTROLLER_SHARD` and `ARGOCD_CONTROLLER_SHARDING_ALGORITHM` through
/// `env`; a StatefulSet's pod finds its shard in the suffix of its host name.
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
    let (shard, guessed) = match (named, inferred) {
        (Some(shard), _) => (shard, false),
        (None, _) if replicas == 1 => (0, false),
        (None, Some(shard)) => (shard, false),
        (None, None) => (0, true),
    };
    if shard >= replicas {
        return Err(Error::Outside { shard, replicas });
    }
    Ok(Own {
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
        assert_eq!(
            own,
            Ok(Own {
                replicas: 5,
                shard: 1,
                algorithm: Algorithm::RoundRobin,
                guessed: false
            })
        );
    }

    #[test]
    fn a_name_without_a_number_is_shard_zero_and_says_that_it_is_a_guess() {
        let own = read(env(&[(REPLICAS, "2")]), "controller-x7k2p").map(|own| (own.shard, own.guessed));
        assert_eq!(own, Ok((0, true)));
    }

    #[test]
    fn a_shard_outside_the_replicas_is_refused() {
        let own = read(env(&[(REPLICAS, "2")]), "controller-2");
        assert_eq!(
            own,
            Err(Error::Outside {
                shard: 2,
                replicas: 2
            })
        );
    }
}
