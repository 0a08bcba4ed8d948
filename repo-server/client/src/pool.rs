//! The replicas behind the configured name: which of them is asked for a call, and the connections to them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use argosy_runtime::dial::Dial;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

use crate::budget::Budget;
use crate::channel::dial;
use crate::traffic::Traffic;
use crate::{Config, Error, Tls, Told, ring};

/// How long the addresses of a name may be used again.
const ADDRESSES_TTL: Duration = Duration::from_secs(5);
/// How long a replica is asked again for what it was asked for. Not longer: a replica that comes is to get its part.
const STAYS: Duration = Duration::from_secs(30);
/// How long a replica that did not answer is asked after all others.
const AVOIDED: Duration = Duration::from_secs(5);

/// What a call is about, as far as the choice of a replica goes.
pub(crate) struct About<'a> {
    /// URL of the repository.
    pub(crate) repo: &'a str,
    /// What of the repository: the same for the same Application at every commit.
    pub(crate) part: &'a str,
    /// Digest of the whole request: calls with the same one at the same time share an answer.
    pub(crate) digest: [u8; 32],
}

/// The replicas behind one or more names, `host:port`: each address that a name stands for is one, connected to at its first
/// call.
pub struct Pool {
    names: Vec<Name>,
    told: Option<Told>,
    security: Tls,
    tls: Option<Arc<ClientConfig>>,
    timeout: Duration,
    dial: Option<Dial>,
    state: Mutex<State>,
}

/// One `host:port` of the configuration.
struct Name {
    address: String,
    /// For the certificate.
    host: String,
}

#[derive(Default)]
struct State {
    resolved: Option<(Instant, Vec<Place>)>,
    replicas: HashMap<SocketAddr, Member>,
    traffic: Traffic,
    budget: Budget,
    shared: Shared,
}

/// Where requests were sent, by digest. A place stands while callers wait there, and a while longer: its answer is known
/// there, and whoever asks for the same next is not sent where it would have to be made again.
#[derive(Default)]
struct Shared {
    places: HashMap<[u8; 32], Sent>,
    /// When old places are looked for next.
    crowd: usize,
}

struct Sent {
    address: SocketAddr,
    /// Callers who wait for it.
    callers: usize,
    since: Instant,
}

impl Sent {
    fn stands(&self, now: Instant) -> bool {
        self.callers > 0 || now.saturating_duration_since(self.since) < STAYS
    }
}

impl Shared {
    /// Where a request is known, unless that is too long ago.
    fn place(&self, digest: &[u8; 32], now: Instant) -> Option<SocketAddr> {
        let sent = self.places.get(digest).filter(|sent| sent.stands(now))?;
        Some(sent.address)
    }

    /// Sends one more caller to an address; gives whether the others are there, and whether there were any.
    fn join(&mut self, digest: [u8; 32], address: SocketAddr, now: Instant) -> Joined {
        if self.places.len() >= self.crowd.max(1024) {
            self.places.retain(|_, sent| sent.stands(now));
            self.crowd = 2 * self.places.len();
        }
        match self.places.get_mut(&digest).filter(|sent| sent.stands(now)) {
            Some(sent) if sent.address == address => {
                sent.callers += 1;
                if sent.callers > 1 {
                    Joined::Others
                } else {
                    Joined::First
                }
            }
            Some(sent) if sent.callers > 0 => Joined::Elsewhere,
            _ => {
                let sent = Sent {
                    address,
                    callers: 1,
                    since: now,
                };
                self.places.insert(digest, sent);
                Joined::First
            }
        }
    }

    /// One caller less; whether it was the last.
    fn leave(&mut self, digest: &[u8; 32]) -> bool {
        let Some(sent) = self.places.get_mut(digest) else {
            return true;
        };
        sent.callers = sent.callers.saturating_sub(1);
        sent.callers == 0
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Joined {
    /// Nobody else waits for the same.
    First,
    /// Others wait for the same at the same replica.
    Others,
    /// Others wait for the same, at another replica.
    Elsewhere,
}

/// An address, and the name of the configuration that it stands behind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    address: SocketAddr,
    name: usize,
}

/// One replica.
#[derive(Clone)]
pub struct Replica {
    /// Where it is.
    pub address: SocketAddr,
    /// The way to it.
    pub channel: Channel,
}

/// What is known of a replica.
struct Member {
    channel: Channel,
    /// Of what was shown and believed when it was made.
    generation: u64,
    /// Different requests under way: callers who wait for the same answer are one.
    load: usize,
    avoided_until: Option<Instant>,
}

/// One call under way to a replica.
pub(crate) struct Chosen<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) channel: Channel,
    pool: &'a Pool,
    digest: [u8; 32],
    /// Whether it goes where others wait for the same answer, or somewhere of its own.
    joined: bool,
}

impl Drop for Chosen<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        if self.joined && !state.shared.leave(&self.digest) {
            return;
        }
        if let Some(replica) = state.replicas.get_mut(&self.address) {
            replica.load = replica.load.saturating_sub(1);
        }
    }
}

impl Pool {
    /// Resolves and connects at the first call, not now.
    ///
    /// # Errors
    /// [`Error::Config`] for an address without a host or port, or certificates that cannot be read.
    pub fn new(config: &Config) -> Result<Pool, Error> {
        let names = config.address.split(',').map(|text| {
            let address = text.trim().trim_start_matches("dns:///");
            let host = address.rsplit_once(':').map_or("", |(host, _)| host);
            let host = host.trim_matches(['[', ']']);
            if host.is_empty() {
                return Err(Error::Config(format!(
                    "{text:?} is not an address like argocd-repo-server:8081"
                )));
            }
            Ok(Name {
                address: address.to_owned(),
                host: host.to_owned(),
            })
        });
        Ok(Pool {
            names: names.collect::<Result<_, _>>()?,
            told: config.told.clone(),
            security: config.tls.clone(),
            tls: config.tls.config()?,
            timeout: config.timeout,
            dial: config.dial.clone(),
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All replicas, for who chooses by himself.
    ///
    /// # Errors
    /// [`Error::Connect`] if no name has an address and none ever had one.
    pub async fn replicas(&self) -> Result<Vec<Replica>, Error> {
        let places = self.places().await?;
        let mut state = self.lock();
        self.keep(&mut state.replicas, &places)?;
        let found = places.iter().filter_map(|place| {
            Some(Replica {
                address: place.address,
                channel: state.replicas.get(&place.address)?.channel.clone(),
            })
        });
        Ok(found.collect())
    }

    /// Knows the replicas at these places, and those that still work. A connection that showed another certificate than counts now
    /// is left to the calls that it carries.
    fn keep(&self, replicas: &mut HashMap<SocketAddr, Member>, places: &[Place]) -> Result<(), Error> {
        let generation = self.security.generation();
        replicas.retain(|address, replica| {
            replica.load > 0 || places.iter().any(|place| place.address == *address)
        });
        for place in places {
            match replicas.entry(place.address) {
                Entry::Vacant(entry) => {
                    entry.insert(Member {
                        channel: self.connect_lazy(*place)?,
                        generation,
                        load: 0,
                        avoided_until: None,
                    });
                }
                Entry::Occupied(mut entry) if entry.get().generation != generation => {
                    let replica = entry.get_mut();
                    replica.channel = self.connect_lazy(*place)?;
                    replica.generation = generation;
                }
                Entry::Occupied(_) => {}
            }
        }
        Ok(())
    }

    /// The best replica for a call that is not among those that were `tried` for it; nothing when all were, or when too many
    /// calls had to be tried again lately.
    pub(crate) async fn choose(
        &self,
        about: &About<'_>,
        tried: &[SocketAddr],
    ) -> Result<Option<Chosen<'_>>, Error> {
        let places = self.places().await?;
        let now = Instant::now();
        let mut state = self.lock();
        let State {
            replicas,
            traffic,
            budget,
            shared,
            ..
        } = &mut *state;
        self.keep(replicas, &places)?;
        let spread = if tried.is_empty() {
            budget.earn();
            traffic.count(about.repo, places.len(), now)
        } else if budget.spend() {
            places.len()
        } else {
            return Ok(None);
        };
        let addresses: Vec<SocketAddr> = places.iter().map(|place| place.address).collect();
        let load = |address: &SocketAddr| replicas.get(address).map_or(0, |replica| replica.load);
        let mut order = ring::order(about.repo, about.part, &addresses, spread, load);
        order.retain(|address| !tried.contains(address));
        order.sort_by_key(|address| {
            let replica = replicas.get(address);
            replica.is_some_and(|replica| replica.avoided_until.is_some_and(|until| until > now))
        });
        let well = |address: &SocketAddr| {
            let replica = replicas.get(address);
            replica.is_some_and(|replica| replica.avoided_until.is_none_or(|until| until <= now))
        };
        let known = shared
            .place(&about.digest, now)
            .filter(|address| !tried.contains(address) && well(address));
        let Some(address) = known.or_else(|| order.first().copied()) else {
            return Ok(None);
        };
        let Some(replica) = replicas.get_mut(&address) else {
            return Ok(None);
        };
        let joined = shared.join(about.digest, address, now);
        if joined != Joined::Others {
            replica.load += 1;
        }
        let joined = joined != Joined::Elsewhere;
        Ok(Some(Chosen {
            address,
            channel: replica.channel.clone(),
            pool: self,
            digest: about.digest,
            joined,
        }))
    }

    /// Whether a call that all replicas have refused may be made again.
    pub(crate) fn may_retry(&self) -> bool {
        self.lock().budget.spend()
    }

    /// A replica did not answer: others are asked first for a while, and the names are looked at again at the next call.
    pub(crate) fn suspect(&self, address: SocketAddr) {
        let mut state = self.lock();
        if let Some(replica) = state.replicas.get_mut(&address) {
            replica.avoided_until = Some(Instant::now() + AVOIDED);
        }
        if let Some((at, _)) = &mut state.resolved
            && let Some(earlier) = at.checked_sub(ADDRESSES_TTL)
        {
            *at = earlier;
        }
    }

    /// Who is told which replicas are ready knows better than a name.
    fn told(&self) -> Option<Result<Vec<Place>, Error>> {
        let told = self.told.as_ref()?.borrow();
        let addresses = told.as_ref()?;
        if addresses.is_empty() {
            return Some(Err(Error::Connect {
                address: self.names[0].address.clone(),
                message: "no replica is ready".into(),
            }));
        }
        let places = addresses.iter().map(|address| Place {
            address: *address,
            name: 0,
        });
        Some(Ok(places.collect()))
    }

    async fn places(&self) -> Result<Vec<Place>, Error> {
        if let Some(told) = self.told() {
            return told;
        }
        let known = self.lock().resolved.clone();
        if let Some((at, places)) = &known
            && at.elapsed() < ADDRESSES_TTL
        {
            return Ok(places.clone());
        }
        let mut places = Vec::new();
        let mut problem = None;
        for (nth, name) in self.names.iter().enumerate() {
            match tokio::net::lookup_host(&name.address).await {
                Ok(found) => places.extend(found.map(|address| Place { address, name: nth })),
                Err(error) => {
                    tracing::debug!(address = name.address, %error, "resolving the repo-server failed");
                    problem = Some((name.address.clone(), error.to_string()));
                    // Better the old addresses than none.
                    let old = known.iter().flat_map(|(_, places)| places);
                    places.extend(old.filter(|place| place.name == nth));
                }
            }
        }
        places.sort();
        places.dedup_by_key(|place| place.address);
        if places.is_empty() {
            let (address, message) = problem.unwrap_or_else(|| {
                let names: Vec<&str> = self.names.iter().map(|name| name.address.as_str()).collect();
                (names.join(","), "the name has no address".into())
            });
            return Err(Error::Connect { address, message });
        }
        self.lock().resolved = Some((Instant::now(), places.clone()));
        Ok(places)
    }

    fn connect_lazy(&self, place: Place) -> Result<Channel, Error> {
        let address = place.address;
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|e| Error::Config(e.to_string()))?
            .timeout(self.timeout)
            .http2_keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(true)
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20);
        let (tls, network) = (self.tls.clone(), self.dial.clone());
        let host = self.names[place.name].host.clone();
        let name = ServerName::try_from(host).map_err(|e| Error::Config(e.to_string()))?;
        // We encrypt ourselves: the certificate is for the name, the connection to one address behind it.
        Ok(
            endpoint.connect_with_connector_lazy(tower::service_fn(move |_: http::Uri| {
                dial(address.to_string(), tls.clone(), name.clone(), network.clone())
            })),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn a_request_goes_where_its_answer_is_known_and_after_a_while_wherever_it_belongs() {
        let (mut shared, now) = (Shared::default(), Instant::now());
        assert_eq!(shared.place(&KEY, now), None);
        assert!(shared.join(KEY, at(1), now) == Joined::First);
        assert!(shared.join(KEY, at(1), now) == Joined::Others);
        assert!(!shared.leave(&KEY), "one still waits");
        assert!(shared.leave(&KEY));
        let soon = now + STAYS / 2;
        assert_eq!(shared.place(&KEY, soon), Some(at(1)), "the answer is known there");
        assert!(
            shared.join(KEY, at(1), soon) == Joined::First,
            "it is work for the replica again"
        );
        let later = now + STAYS + Duration::from_secs(1);
        assert_eq!(shared.place(&KEY, later), Some(at(1)), "somebody waits there");
        shared.leave(&KEY);
        assert_eq!(
            shared.place(&KEY, later),
            None,
            "asking again and again does not keep it there"
        );
    }

    #[test]
    fn who_was_sent_elsewhere_is_nobodys_company() {
        let (mut shared, now) = (Shared::default(), Instant::now());
        shared.join(KEY, at(1), now);
        assert!(shared.join(KEY, at(2), now) == Joined::Elsewhere);
        assert_eq!(shared.place(&KEY, now), Some(at(1)));
        shared.leave(&KEY);
        assert!(
            shared.join(KEY, at(2), now) == Joined::First,
            "its replica did not answer"
        );
        assert_eq!(shared.place(&KEY, now), Some(at(2)));
    }

    #[test]
    fn what_is_remembered_stays_bounded() {
        let (mut shared, now) = (Shared::default(), Instant::now());
        for n in 0..20_000_u32 {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&n.to_le_bytes());
            shared.join(key, at(1), now + Duration::from_millis(n.into()) * 100);
            shared.leave(&key);
        }
        assert!(shared.places.len() < 2048, "{}", shared.places.len());
    }
}
