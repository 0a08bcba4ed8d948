//! Transport security of the connections to a repo-server, or to another component.

use std::sync::Arc;

use argosy_peers::client::Server;
use argosy_peers::{Component, Live, client};
use rustls::ClientConfig;

use crate::Error;

/// How a connection is protected, and who is believed to be at its other end.
#[derive(Clone, Debug)]
pub enum Tls {
    /// Not at all.
    Plaintext,
    /// Encrypted, with any certificate.
    Unverified {
        /// What we show if the server asks.
        identity: Option<Arc<Live>>,
    },
    /// Encrypted between components: we show who we are, and the other side is the component once the authority has vouched for
    /// it. Where nobody has made certificates it is as [`Tls::Unverified`].
    Component {
        /// Whose word counts.
        authority: Arc<Live>,
        /// What we show if the server asks.
        identity: Arc<Live>,
        /// Who the other side should be.
        component: Component,
    },
    /// Encrypted, and the authority must vouch for the name in the address.
    Strict {
        /// Whose word counts.
        authority: Arc<Live>,
        /// What we show if the server asks.
        identity: Option<Arc<Live>>,
    },
}

impl Default for Tls {
    /// Encrypted, with any certificate, and we show none.
    fn default() -> Self {
        Tls::Unverified { identity: None }
    }
}

impl Tls {
    /// What connections are made with; nothing for plaintext.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn config(&self) -> Result<Option<Arc<ClientConfig>>, Error> {
        let (server, me) = match self {
            Tls::Plaintext => return Ok(None),
            Tls::Unverified { identity } => (Server::Anybody, identity.clone()),
            Tls::Component {
                authority,
                identity,
                component,
            } => (
                Server::Component {
                    live: authority.clone(),
                    component: *component,
                },
                Some(identity.clone()),
            ),
            Tls::Strict { authority, identity } => (
                Server::Named {
                    live: authority.clone(),
                },
                identity.clone(),
            ),
        };
        let config = client::config(server, me).map_err(|error| Error::Config(error.to_string()))?;
        Ok(Some(config))
    }

    /// Changes when what is shown or believed does: connections that stand then are of the past.
    pub(crate) fn generation(&self) -> u64 {
        match self {
            Tls::Plaintext => 0,
            Tls::Unverified { identity } => identity.as_ref().map_or(0, |live| live.generation()),
            Tls::Component {
                authority, identity, ..
            } => authority.generation() + identity.generation(),
            Tls::Strict { authority, identity } => {
                authority.generation() + identity.as_ref().map_or(0, |live| live.generation())
            }
        }
    }
}
