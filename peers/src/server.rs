//! The side that is called: connections with the certificate that counts now, and who is at their other end.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use crate::live::{certified, provider};
use crate::{Component, Error, Live, Mutual};

/// Who has not said who he is after so long is not listened to.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that have been accepted and not taken yet.
const ACCEPTED_MAX: usize = 64;
/// What was found out about a certificate is found out again after so long: it may have ended.
const KNOWN_FOR: Duration = Duration::from_secs(30);
/// So many certificates are remembered. An installation has a handful.
const KNOWN_MAX: usize = 256;

/// What connections are accepted with: the certificate that counts when they are made, or one of our own for these names as
/// long as there is none.
///
/// # Errors
/// When our own cannot be made.
pub fn config(live: &Arc<Live>, names: &[&str]) -> Result<Arc<ServerConfig>, Error> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let own = rcgen::generate_simple_self_signed(names)
        .map_err(|error| Error(format!("make a certificate: {error}")))?;
    let own = (
        own.cert.pem().into_bytes(),
        own.signing_key.serialize_pem().into_bytes(),
    );
    let provider = provider();
    let certificate = Certificate {
        live: live.clone(),
        own: Arc::new(certified(&own, &provider)?),
    };
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error(error.to_string()))?
        .with_client_cert_verifier(Arc::new(Asking(provider)))
        .with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// Connections: with TLS where there is a configuration for it, each once its handshake is over, and else as they come. One that
/// takes its time holds up no other.
pub fn incoming(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
) -> ReceiverStream<io::Result<Connection>> {
    let (tx, rx) = tokio::sync::mpsc::channel(ACCEPTED_MAX);
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = tx.closed() => return,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, mostly: others will be closed in a moment.
                    tracing::warn!(%error, "accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            // Without it answers wait for the acknowledgement of others.
            let _ = stream.set_nodelay(true);
            let Some(tls) = &tls else {
                if tx.send(Ok(Connection::Plain(stream))).await.is_err() {
                    return;
                }
                continue;
            };
            let (acceptor, tx) = (TlsAcceptor::from(tls.clone()), tx.clone());
            tokio::spawn(async move {
                match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => _ = tx.send(Ok(Connection::Tls(Box::new(stream)))).await,
                    Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake"),
                    Err(_) => tracing::debug!(%peer, "TLS handshake: it took too long"),
                }
            });
        }
    });
    ReceiverStream::new(rx)
}

/// A connection that was accepted.
#[derive(Debug)]
pub enum Connection {
    /// Anybody may read along, and nobody shows who they are.
    Plain(TcpStream),
    /// With TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

/// The certificates that the other side of a connection showed. Each request on it has them among its extensions.
#[derive(Clone, Debug, Default)]
pub struct Shown(Arc<Vec<CertificateDer<'static>>>);

impl Shown {
    /// The own one first; none where there is no TLS, or where the other side has none.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.0
    }
}

impl Connected for Connection {
    type ConnectInfo = Shown;

    fn connect_info(&self) -> Shown {
        let shown = match self {
            Connection::Plain(_) => None,
            Connection::Tls(stream) => stream.get_ref().1.peer_certificates(),
        };
        Shown(Arc::new(shown.unwrap_or_default().to_vec()))
    }
}

macro_rules! forward {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self.get_mut() {
            Connection::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Connection::Tls(stream) => Pin::new(&mut **stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        forward!(self.poll_read(context, buffer))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        forward!(self.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        forward!(self.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Connection::Plain(stream) => stream.is_write_vectored(),
            Connection::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self.poll_shutdown(context))
    }
}

/// The certificate that counts now.
#[derive(Debug)]
struct Certificate {
    live: Arc<Live>,
    own: Arc<CertifiedKey>,
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.live.state().key.clone().unwrap_or_else(|| self.own.clone()))
    }
}

/// Asks clients for a certificate and takes any, if they hold its key: what it is worth is looked at when they call.
#[derive(Debug)]
struct Asking(Arc<CryptoProvider>);

impl ClientCertVerifier for Asking {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Who made a call, as far as that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// There is no authority to know anybody by.
    Unasked,
    /// Somebody without a certificate.
    Nobody,
    /// Somebody whose certificate is not of the authority, or not valid now.
    Stranger(String),
    /// Somebody with a certificate of the authority, which names these components; none if several share it.
    Known(Vec<Component>),
}

impl Caller {
    /// Why the caller may not make a call that is these components', if he may not. A certificate without the name of a component
    /// makes all calls, as Argo CD's does.
    pub fn refusal(&self, mutual: Mutual, callers: &[Component]) -> Option<Refusal> {
        match self {
            Caller::Unasked => None,
            _ if mutual == Mutual::Off => None,
            Caller::Nobody | Caller::Stranger(_) if mutual == Mutual::Optional => None,
            Caller::Nobody => Some(Refusal::Unknown(
                "the caller showed no certificate: mutual TLS is required here (setting mutual.tls)".into(),
            )),
            Caller::Stranger(why) => Some(Refusal::Unknown(format!(
                "the certificate of the caller does not count: {why}"
            ))),
            Caller::Known(components) => {
                let may = components.is_empty() || components.iter().any(|each| callers.contains(each));
                let names: Vec<&str> = components.iter().map(|component| component.name()).collect();
                (!may).then(|| Refusal::NotTheirs(names.join(" or ")))
            }
        }
    }
}

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not known who calls; the text says why.
    Unknown(String),
    /// The call is not one of these components'.
    NotTheirs(String),
}

/// Tells callers apart by the certificates that they showed when they connected.
pub struct Callers {
    live: Arc<Live>,
    known: Mutex<HashMap<CertificateDer<'static>, Seen>>,
}

struct Seen {
    at: Instant,
    generation: u64,
    caller: Caller,
}

impl Callers {
    /// By the authority that counts at each call.
    pub fn new(live: Arc<Live>) -> Callers {
        Callers {
            live,
            known: Mutex::default(),
        }
    }

    /// Who showed these certificates, the own one first.
    pub fn who(&self, shown: &[CertificateDer<'static>]) -> Caller {
        let state = self.live.state();
        let Some(verifier) = &state.clients else {
            return Caller::Unasked;
        };
        let Some((own, others)) = shown.split_first() else {
            return Caller::Nobody;
        };
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |seen: &Seen| {
            seen.generation == state.generation && now.saturating_duration_since(seen.at) < KNOWN_FOR
        };
        if let Some(seen) = known.get(own).filter(|seen| fresh(seen)) {
            return seen.caller.clone();
        }
        let caller = match verifier.verify_client_cert(own, others, UnixTime::now()) {
            Ok(_) => Caller::Known(components(own)),
            Err(error) => Caller::Stranger(error.to_string()),
        };
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        let seen = Seen {
            at: now,
            generation: state.generation,
            caller: caller.clone(),
        };
        known.insert(own.clone(), seen);
        caller
    }
}

/// The components whose names a certificate carries.
fn components(certificate: &CertificateDer<'_>) -> Vec<Component> {
    let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else {
        return Vec::new();
    };
    let carries = |component: &Component| {
        let name = ServerName::try_from(component.name());
        name.is_ok_and(|name| certificate.verify_is_valid_for_subject_name(&name).is_ok())
    };
    Component::ALL.into_iter().filter(carries).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Component::{ApplicationSets, Controller, Notifications, Server};

    #[test]
    fn a_certificate_says_who_it_is_for() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let made = rcgen::generate_simple_self_signed(names).unwrap();
            components(made.cert.der())
        };
        assert_eq!(of(&["argocd-server"]), [Server]);
        assert_eq!(
            of(&["argocd-application-controller", "example.com"]),
            [Controller]
        );
        assert!(of(&["argocd"]).is_empty());
    }

    #[test]
    fn a_component_makes_its_own_calls_and_a_shared_certificate_all() {
        let refused = |components: &[Component], callers: &[Component]| {
            Caller::Known(components.to_vec())
                .refusal(Mutual::Required, callers)
                .is_some()
        };
        assert!(!refused(&[], &[Server]));
        assert!(!refused(&[Controller], &[Controller, Server]));
        assert!(refused(&[Controller], &[Server]));
        assert!(!refused(&[ApplicationSets, Server], &[Server]));
        assert!(refused(&[Notifications], &[]));
    }

    #[test]
    fn who_shows_nothing_is_refused_where_it_is_required_and_there_is_an_authority() {
        let refused = |caller: Caller, mutual| caller.refusal(mutual, &[Server]).is_some();
        for nobody in [Caller::Nobody, Caller::Stranger(String::new())] {
            assert!(refused(nobody.clone(), Mutual::Required));
            assert!(!refused(nobody.clone(), Mutual::Optional));
            assert!(!refused(nobody, Mutual::Off));
        }
        assert!(!refused(Caller::Unasked, Mutual::Required));
        let wrong = Caller::Known(vec![Notifications]);
        assert!(refused(wrong.clone(), Mutual::Optional));
        assert!(!refused(wrong, Mutual::Off));
    }
}
