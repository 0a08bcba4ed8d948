//! One gRPC connection to an address, made when it is first needed: for servers that are not spread over.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

use crate::{Error, Tls};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to `host:port`.
///
/// # Errors
/// [`Error::Config`] for an address that is none, or certificates that cannot be read.
pub fn connect(address: &str, tls: &Tls) -> Result<Channel, Error> {
    let invalid = |why: String| Error::Config(format!("the address {address:?} cannot be used: {why}"));
    let config: Option<Arc<rustls::ClientConfig>> = tls.config()?;
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| invalid(error.to_string()))?
        .http2_keep_alive_interval(Duration::from_secs(20))
        .tcp_nodelay(true);
    let host = address
        .rsplit_once(':')
        .map_or(address, |(host, _)| host)
        .trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned()).map_err(|error| invalid(error.to_string()))?;
    let address = address.to_owned();
    Ok(
        endpoint.connect_with_connector_lazy(tower::service_fn(move |_: http::Uri| {
            let (address, config, name) = (address.clone(), config.clone(), name.clone());
            async move {
                let connect = async {
                    let stream = TcpStream::connect(&address).await?;
                    stream.set_nodelay(true)?;
                    let stream: Box<dyn Transport> = match config {
                        None => Box::new(stream),
                        Some(config) => Box::new(TlsConnector::from(config).connect(name, stream).await?),
                    };
                    Ok::<_, std::io::Error>(TokioIo::new(stream))
                };
                let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect).await;
                connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
            }
        })),
    )
}

/// What bytes go over.
trait Transport: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Transport for T {}
