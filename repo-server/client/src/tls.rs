//! How a repo-server is believed to be one.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::Error;

/// A certificate and its key, in PEM.
pub type Identity = (Vec<u8>, Vec<u8>);

/// Transport security of the connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// None.
    Plaintext,
    /// Encrypted, with any certificate: a repo-server makes its own at each start unless it is given one.
    #[default]
    Unverified,
    /// The same, and we say who we are.
    UnverifiedAs {
        /// Our own certificate and key, in PEM.
        identity: Identity,
    },
    /// Encrypted, and the certificate must be of these authorities and for the name in the address.
    Strict {
        /// Authorities, in PEM.
        ca: Vec<u8>,
        /// Our own certificate and key, in PEM, if the server asks who we are.
        identity: Option<Identity>,
    },
}

impl Tls {
    /// What connections are made with; nothing for plaintext.
    ///
    /// # Errors
    /// When a certificate or key cannot be read.
    pub fn config(&self) -> Result<Option<Arc<ClientConfig>>, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| Error::Config(e.to_string()))?;
        let mut config = match self {
            Tls::Plaintext => return Ok(None),
            Tls::Unverified | Tls::UnverifiedAs { .. } => {
                let builder = builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)));
                match self {
                    Tls::UnverifiedAs { identity } => with_identity(builder, identity)?,
                    _ => builder.with_no_client_auth(),
                }
            }
            Tls::Strict { ca, identity } => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(ca)? {
                    roots.add(certificate).map_err(|e| Error::Config(e.to_string()))?;
                }
                let builder = builder.with_root_certificates(roots);
                match identity {
                    None => builder.with_no_client_auth(),
                    Some(identity) => with_identity(builder, identity)?,
                }
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Some(Arc::new(config)))
    }
}

/// Our own certificate and key, if there are any at these paths: where nobody set them up, nobody asks for them.
///
/// # Errors
/// When one of them is there and cannot be read.
pub fn identity(certificate: &Path, key: &Path) -> Result<Option<Identity>, Error> {
    if !certificate.exists() && !key.exists() {
        return Ok(None);
    }
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| Error::Config(format!("read {}: {error}", path.display())))
    };
    Ok(Some((read(certificate)?, read(key)?)))
}

fn with_identity(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    (certificate, key): &Identity,
) -> Result<ClientConfig, Error> {
    builder
        .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
        .map_err(|e| Error::Config(e.to_string()))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    rustls_pemfile::certs(&mut &*pem)
        .collect::<Result<_, _>>()
        .map_err(|e| Error::Config(format!("a certificate is not valid: {e}")))
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, Error> {
    rustls_pemfile::private_key(&mut &*pem)
        .ok()
        .flatten()
        .ok_or_else(|| Error::Config("the key of the client certificate is not valid".into()))
}

/// Takes any certificate, but insists that the server holds its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
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
            &self.0.signature_verification_algorithms,
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
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
