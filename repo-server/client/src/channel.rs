//! Connections, encrypted by us or not; and one to a single address, made when it is first needed.

use std::sync::Arc;
use std::time::Duration;

use argosy_runtime::dial::{Dial, Stream};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

use crate::{Error, Tls};

/// How long a connection may take to stand.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to `host:port`, for servers that are not spread over.
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
            dial(address.clone(), config.clone(), name.clone(), None)
        })),
    )
}

/// Connects to an address, by TCP unless there is another network; the certificate, if there is one, is for the name.
pub(crate) async fn dial(
    address: String,
    tls: Option<Arc<rustls::ClientConfig>>,
    name: ServerName<'static>,
    network: Option<Dial>,
) -> std::io::Result<TokioIo<Box<dyn Stream>>> {
    let connect = async {
        let stream: Box<dyn Stream> = match network {
            Some(network) => network.connect(&address).await?,
            None => {
                let stream = TcpStream::connect(&address).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        };
        let stream: Box<dyn Stream> = match tls {
            None => stream,
            Some(tls) => Box::new(TlsConnector::from(tls).connect(name, stream).await?),
        };
        Ok(TokioIo::new(stream))
    };
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect).await;
    connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}
