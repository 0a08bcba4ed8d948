//! Connections to the replicas behind one name.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

use crate::{Config, Error, ring};

/// How long the addresses of a name may be used again.
const ADDRESSES_TTL: Duration = Duration::from_secs(5);
/// How long a connection may take to stand.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The replicas behind one name, `host:port`: each address that the name stands for is one, connected to at its first call.
pub struct Pool {
    address: String,
    /// For the certificate: the host of the address.
    host: String,
    tls: Option<Arc<ClientConfig>>,
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    resolved: Option<(Instant, Vec<SocketAddr>)>,
    replicas: HashMap<SocketAddr, Replica>,
}

/// One of them.
#[derive(Clone)]
pub struct Replica {
    /// Where it is.
    pub address: SocketAddr,
    /// The way to it.
    pub channel: Channel,
    in_flight: Arc<AtomicUsize>,
}

/// One call under way to a replica.
pub(crate) struct InFlight(Arc<AtomicUsize>);

impl Replica {
    pub(crate) fn enter(&self) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(self.in_flight.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// Resolves and connects at the first call, not now.
    ///
    /// # Errors
    /// [`Error::Config`] for an address without a host or port, or certificates that cannot be read.
    pub fn new(config: &Config) -> Result<Pool, Error> {
        let address = config.address.trim_start_matches("dns:///").to_owned();
        let host = address
            .rsplit_once(':')
            .map_or(address.as_str(), |(host, _)| host);
        let host = host.trim_matches(['[', ']']).to_owned();
        if host.is_empty() || !address.contains(':') {
            return Err(Error::Config(format!(
                "{:?} is not an address like argocd-repo-server:8081",
                config.address
            )));
        }
        Ok(Pool {
            address,
            host,
            tls: config.tls.config()?,
            timeout: config.timeout,
            state: Mutex::default(),
        })
    }

    /// The replicas for a key, best first.
    ///
    /// # Errors
    /// [`Error::Connect`] if the name has no address and never had one.
    pub async fn replicas(&self, key: &str) -> Result<Vec<Replica>, Error> {
        let addresses = self.addresses().await?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.replicas.retain(|address, replica| {
            addresses.contains(address) || replica.in_flight.load(Ordering::Relaxed) > 0
        });
        for address in &addresses {
            if !state.replicas.contains_key(address) {
                let replica = Replica {
                    address: *address,
                    channel: self.connect_lazy(*address)?,
                    in_flight: Arc::default(),
                };
                state.replicas.insert(*address, replica);
            }
        }
        let load = |address: &SocketAddr| {
            state
                .replicas
                .get(address)
                .map_or(0, |replica| replica.in_flight.load(Ordering::Relaxed))
        };
        let order = ring::balance(ring::rank(key, &addresses), load);
        Ok(order
            .iter()
            .filter_map(|address| state.replicas.get(address).cloned())
            .collect())
    }

    /// Looks at the name again at the next call: a replica did not answer.
    pub(crate) fn suspect(&self) {
        if let Some((at, _)) = &mut self.state.lock().unwrap_or_else(PoisonError::into_inner).resolved
            && let Some(earlier) = at.checked_sub(ADDRESSES_TTL)
        {
            *at = earlier;
        }
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, Error> {
        let known = self
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .resolved
            .clone();
        if let Some((at, addresses)) = &known
            && at.elapsed() < ADDRESSES_TTL
        {
            return Ok(addresses.clone());
        }
        let found = tokio::net::lookup_host(&self.address).await;
        let mut addresses: Vec<SocketAddr> = match (found, known) {
            (Ok(found), _) => found.collect(),
            // Better the old addresses than none.
            (Err(error), Some((_, old))) => {
                tracing::debug!(address = self.address, %error, "resolving the repo-server failed");
                old
            }
            (Err(error), None) => {
                return Err(Error::Connect {
                    address: self.address.clone(),
                    message: error.to_string(),
                });
            }
        };
        addresses.sort();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(Error::Connect {
                address: self.address.clone(),
                message: "the name has no address".into(),
            });
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.resolved = Some((Instant::now(), addresses.clone()));
        Ok(addresses)
    }

    fn connect_lazy(&self, address: SocketAddr) -> Result<Channel, Error> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|e| Error::Config(e.to_string()))?
            .timeout(self.timeout)
            .http2_keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(true)
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20);
        let tls = self.tls.clone();
        let name = ServerName::try_from(self.host.clone()).map_err(|e| Error::Config(e.to_string()))?;
        // We encrypt ourselves: the certificate is for the name, the connection to one address behind it.
        Ok(
            endpoint.connect_with_connector_lazy(tower::service_fn(move |_: http::Uri| {
                let (tls, name) = (tls.clone(), name.clone());
                async move {
                    let connect = async {
                        let stream = TcpStream::connect(address).await?;
                        stream.set_nodelay(true)?;
                        Ok::<_, std::io::Error>(match tls {
                            None => TokioIo::new(Stream::Plain(stream)),
                            Some(tls) => {
                                let stream = TlsConnector::from(tls).connect(name, stream).await?;
                                TokioIo::new(Stream::Encrypted(Box::new(stream)))
                            }
                        })
                    };
                    tokio::time::timeout(CONNECT_TIMEOUT, connect)
                        .await
                        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
                }
            })),
        )
    }
}

/// A connection with or without encryption.
enum Stream {
    Plain(TcpStream),
    Encrypted(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

mod io {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::Stream;

    impl AsyncRead for Stream {
        fn poll_read(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            match self.get_mut() {
                Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
                Stream::Encrypted(stream) => Pin::new(stream).poll_read(cx, buf),
            }
        }
    }

    impl AsyncWrite for Stream {
        fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            match self.get_mut() {
                Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
                Stream::Encrypted(stream) => Pin::new(stream).poll_write(cx, buf),
            }
        }

        fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            match self.get_mut() {
                Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
                Stream::Encrypted(stream) => Pin::new(stream).poll_flush(cx),
            }
        }

        fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            match self.get_mut() {
                Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
                Stream::Encrypted(stream) => Pin::new(stream).poll_shutdown(cx),
            }
        }
    }
}
