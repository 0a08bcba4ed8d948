//! What this process shows of itself and whom it believes, which may change while connections stand.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;

use crate::Error;

/// A certificate and its key, in PEM.
pub type Identity = (Vec<u8>, Vec<u8>);

/// What certificates are known from.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Material {
    /// What is shown to the other side.
    pub identity: Option<Identity>,
    /// Certificates of those who vouch for the other side, in PEM.
    pub authority: Option<Vec<u8>>,
}

/// What counts now. One writer sets it; each connection that is made and each call that comes reads it.
pub struct Live {
    state: ArcSwap<State>,
    /// The repo-server's certificate is somebody else's, of whom this authority knows nothing.
    other_repo_server: AtomicBool,
}

#[derive(Default)]
pub(crate) struct State {
    material: Material,
    /// Counts the changes.
    pub(crate) generation: u64,
    pub(crate) key: Option<Arc<CertifiedKey>>,
    pub(crate) clients: Option<Arc<dyn ClientCertVerifier>>,
    pub(crate) servers: Option<Arc<WebPkiServerVerifier>>,
}

impl Default for Live {
    /// Shows nothing and knows nobody.
    fn default() -> Self {
        Live {
            state: ArcSwap::from_pointee(State::default()),
            other_repo_server: AtomicBool::new(false),
        }
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Live")
            .field("generation", &state.generation)
            .field("identity", &state.key.is_some())
            .field("authority", &state.clients.is_some())
            .finish()
    }
}

impl Live {
    /// What does not change.
    ///
    /// # Errors
    /// When a certificate or key cannot be used.
    pub fn of(material: Material) -> Result<Arc<Live>, Error> {
        let live = Live::default();
        live.set(material)?;
        Ok(Arc::new(live))
    }

    /// Takes what there is now, and gives whether that is something else. What was there and is gone stays: nobody is let in
    /// because a file is missing.
    ///
    /// # Errors
    /// When a certificate or key cannot be used; what was there before stays in force.
    pub fn set(&self, material: Material) -> Result<bool, Error> {
        let old = self.state();
        let material = Material {
            identity: material.identity.or_else(|| old.material.identity.clone()),
            authority: material.authority.or_else(|| old.material.authority.clone()),
        };
        if material == old.material {
            return Ok(false);
        }
        let provider = provider();
        let key = match &material.identity {
            Some(identity) => Some(Arc::new(certified(identity, &provider)?)),
            None => None,
        };
        let (mut clients, mut servers) = (None, None);
        if let Some(pem) = &material.authority {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(pem)? {
                roots
                    .add(certificate)
                    .map_err(|error| Error(format!("use the authority: {error}")))?;
            }
            let roots = Arc::new(roots);
            let unusable = |error: &dyn fmt::Display| Error(format!("use the authority: {error}"));
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
            clients = Some(verifier.build().map_err(|error| unusable(&error))?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider);
            servers = Some(verifier.build().map_err(|error| unusable(&error))?);
        }
        self.state.store(Arc::new(State {
            material,
            generation: old.generation + 1,
            key,
            clients,
            servers,
        }));
        Ok(true)
    }

    /// Changes with each change: connections that were made under another one show and believe what no longer counts.
    pub fn generation(&self) -> u64 {
        self.state().generation
    }

    /// Whether it is known who vouches for the other side.
    pub fn knows_an_authority(&self) -> bool {
        self.state().clients.is_some()
    }

    /// Whether there is a certificate to show.
    pub fn shows_an_identity(&self) -> bool {
        self.state().key.is_some()
    }

    /// Says whether the repo-server's certificate was made by others than those who made what is shown and believed here. Then the
    /// repo-server is not held to this authority.
    pub fn set_other_repo_server(&self, other: bool) {
        self.other_repo_server.store(other, Ordering::Relaxed);
    }

    pub(crate) fn has_other_repo_server(&self) -> bool {
        self.other_repo_server.load(Ordering::Relaxed)
    }

    pub(crate) fn state(&self) -> Arc<State> {
        self.state.load_full()
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Reads certificate and key, and that they belong together.
pub(crate) fn certified(
    (certificate, key): &Identity,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, Error> {
    let key: PrivateKeyDer<'static> = rustls_pemfile::private_key(&mut &key[..])
        .ok()
        .flatten()
        .ok_or_else(|| Error("the key of the certificate is not valid".into()))?;
    CertifiedKey::from_der(certificates(certificate)?, key, provider)
        .map_err(|error| Error(format!("use the certificate with its key: {error}")))
}

pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found = rustls_pemfile::certs(&mut &*pem).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if found.is_empty() => Err(Error("there is no certificate in the PEM text".into())),
        Ok(found) => Ok(found),
        Err(error) => Err(Error(format!("a certificate is not valid: {error}"))),
    }
}
