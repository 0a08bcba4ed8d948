//! The way to the repo-server as flags say it, for all processes that have them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use argosy_peers::files::Files;
use argosy_peers::{Component, Live, Material};
use argosy_runtime::tasks::Tasks;

use crate::{Config, Error, Tls};

/// What the flags say.
#[derive(Clone, Debug)]
pub struct Flags {
    /// `--repo-server`.
    pub address: String,
    /// `--repo-server-plaintext`.
    pub plaintext: bool,
    /// `--repo-server-strict-tls`.
    pub strict: bool,
    /// `--repo-server-ca-cert-path`.
    pub authority: PathBuf,
    /// `--repo-server-client-cert-path`.
    pub certificate: PathBuf,
    /// `--repo-server-client-cert-key-path`.
    pub key: PathBuf,
    /// `--repo-server-timeout-seconds`.
    pub timeout: Duration,
}

impl Flags {
    /// The way: with the certificates of these files, read again as they change, where somebody has set them up; else with those
    /// that are `kept`.
    ///
    /// # Errors
    /// When a file that is there, or that strict TLS needs, cannot be read or used.
    pub fn config(self, tasks: &Tasks, kept: &Arc<Live>) -> Result<Config, Error> {
        let unusable =
            |flag: &'static str| move |error: argosy_peers::Error| Error::Config(format!("{error} ({flag})"));
        let followed = |files: Files, read: Material| {
            let live = Live::of(read)?;
            tasks.spawn("certificates", files.follow(live.clone()));
            Ok(live)
        };
        let identity = Files {
            identity: Some((self.certificate, self.key)),
            authority: None,
        };
        let own = identity
            .read()
            .map_err(unusable("--repo-server-client-cert-path"))?;
        let live = match own.identity {
            Some(_) => followed(identity, own).map_err(unusable("--repo-server-client-cert-path"))?,
            None => kept.clone(),
        };
        let tls = if self.plaintext {
            Tls::Plaintext
        } else if self.strict {
            let files = Files {
                identity: None,
                authority: Some(self.authority.clone()),
            };
            let read = files.read().map_err(unusable("--repo-server-ca-cert-path"))?;
            if read.authority.is_none() {
                return Err(Error::Config(format!(
                    "there are no certificates to verify the repo-server with at {} (--repo-server-ca-cert-path)",
                    self.authority.display()
                )));
            }
            Tls::Strict {
                authority: followed(files, read).map_err(unusable("--repo-server-ca-cert-path"))?,
                identity: Some(live),
            }
        } else {
            Tls::Component {
                live,
                component: Component::RepoServer,
            }
        };
        Ok(Config {
            address: self.address,
            tls,
            timeout: self.timeout,
            ..Config::default()
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn trust_that_cannot_be_read_is_an_error_and_never_no_trust() {
        let flags = Flags {
            address: "argocd-repo-server:8081".into(),
            plaintext: false,
            strict: true,
            authority: "/no/such/ca.crt".into(),
            certificate: "/no/such/client.crt".into(),
            key: "/no/such/client.key".into(),
            timeout: Duration::from_secs(60),
        };
        let error = flags.config(&Tasks::new(), &Arc::default()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("/no/such/ca.crt (--repo-server-ca-cert-path)"),
            "{error}"
        );
    }
}
