//! The side that calls: the identity that counts when a connection is made, and how the other side is believed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use crate::live::provider;
use crate::{Component, Error, Live};

/// A server that has shown a certificate of the authority may show another one for so long: its replicas learn of the
/// authority one after the other.
const SETTLING: Duration = Duration::from_secs(600);

/// How the other side is believed to be who it should be.
#[derive(Clone, Debug)]
pub enum Server {
    /// Anybody is.
    Anybody,
    /// The authority vouches for the component, from ten minutes after it first did: until then any certificate is taken,
    /// since a server makes its own as long as it is given none.
    Component {
        /// Whose authority counts.
        live: Arc<Live>,
        /// Who it should be.
        component: Component,
    },
    /// The authority vouches for the name in the address.
    Named {
        /// Whose authority counts.
        live: Arc<Live>,
    },
}

/// What connections are made with: they show who `me` is, where there is an identity and the server asks for it.
///
/// # Errors
/// When the name of a component is none, which is a defect.
pub fn config(server: Server, me: Option<Arc<Live>>) -> Result<Arc<ClientConfig>, Error> {
    let provider = provider();
    let server = match server {
        Server::Anybody => Belief::Anybody,
        Server::Component { live, component } => Belief::Component {
            live,
            component,
            name: ServerName::try_from(component.name()).map_err(|error| Error(error.to_string()))?,
            first: Mutex::default(),
        },
        Server::Named { live } => Belief::Named(live),
    };
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { provider, server }))
        .with_client_cert_resolver(Arc::new(Me(me)));
    // A resumed session would show and believe what was shown and believed when it began.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct Me(Option<Arc<Live>>);

impl ResolvesClientCert for Me {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.as_ref()?.state().key.clone()
    }

    fn has_certs(&self) -> bool {
        self.0.as_ref().is_some_and(|live| live.state().key.is_some())
    }
}

#[derive(Debug)]
enum Belief {
    Anybody,
    Component {
        live: Arc<Live>,
        component: Component,
        name: ServerName<'static>,
        /// When a certificate of the authority was first seen.
        first: Mutex<Option<Instant>>,
    },
    Named(Arc<Live>),
}

/// Whatever it believes, it insists that the server holds the key of its certificate.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    server: Belief,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        address: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let by = |live: &Live, name: &ServerName<'_>| {
            let state = live.state();
            let authority = state.servers.as_ref()?;
            Some(authority.verify_server_cert(own, others, name, ocsp, now))
        };
        match &self.server {
            Belief::Anybody => Ok(ServerCertVerified::assertion()),
            Belief::Named(live) => by(live, address).unwrap_or_else(|| {
                Err(rustls::Error::General(
                    "there are no certificates to verify the server with".into(),
                ))
            }),
            Belief::Component {
                live,
                component,
                name,
                first,
            } => {
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                if *component == Component::RepoServer && live.has_other_repo_server() {
                    *first = None;
                    return Ok(ServerCertVerified::assertion());
                }
                match by(live, name) {
                    None => Ok(ServerCertVerified::assertion()),
                    Some(Ok(verified)) => {
                        first.get_or_insert_with(Instant::now);
                        Ok(verified)
                    }
                    Some(Err(error)) if first.is_some_and(|first| first.elapsed() > SETTLING) => Err(error),
                    Some(Err(_)) => Ok(ServerCertVerified::assertion()),
                }
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Material;

    #[test]
    fn a_repo_server_with_a_certificate_of_others_is_not_held_to_our_authority() {
        let make = || rcgen::generate_simple_self_signed(vec!["argocd-repo-server".to_owned()]).unwrap();
        let (ours, theirs) = (make(), make());
        let live = Live::of(Material {
            identity: None,
            authority: Some(ours.cert.pem().into_bytes()),
        })
        .unwrap();
        let takes = |component: Component| {
            let settled = Instant::now().checked_sub(SETTLING + Duration::from_secs(1));
            let verifier = Verifier {
                provider: provider(),
                server: Belief::Component {
                    live: live.clone(),
                    component,
                    name: ServerName::try_from(component.name()).unwrap(),
                    first: Mutex::new(settled),
                },
            };
            let address = ServerName::try_from("argocd-repo-server").unwrap();
            verifier
                .verify_server_cert(theirs.cert.der(), &[], &address, &[], UnixTime::now())
                .is_ok()
        };
        assert!(!takes(Component::RepoServer));
        live.set_other_repo_server(true);
        assert!(takes(Component::RepoServer));
        assert!(!takes(Component::Controller));
    }
}
