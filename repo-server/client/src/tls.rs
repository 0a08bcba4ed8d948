//! How a repo-server is believed to be one.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::Error;

/// Transport security of the connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// None.
    Plaintext,
    /// Encrypted, with any certificate: a repo-server makes its own at each start unless it is given one.
    #[default]
    Unverified,
    /// Encrypted, and the certificate must be of these authorities and for the name in the address.
    Strict {
        /// Authorities, in PEM.
        ca: Vec<u8>,
        /// Our own certificate and key, in PEM, if the server asks who we are.
        identity: Option<(Vec<u8>, Vec<u8>)>,
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
            Tls::Unverified => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
                .with_no_client_auth(),
            Tls::Strict { ca, identity } => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(ca)? {
                    roots.add(certificate).map_err(|e| Error::Config(e.to_string()))?;
                }
                let builder = builder.with_root_certificates(roots);
                match identity {
                    None => builder.with_no_client_auth(),
                    Some((certificate, key)) => builder
                        .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
                        .map_err(|e| Error::Config(e.to_string()))?,
                }
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Some(Arc::new(config)))
    }
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
