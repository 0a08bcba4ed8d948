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
    /// `--repo-server-strict-tls`; a file of certificates that is named asks for the same.
    pub strict: bool,
    /// `--repo-server-ca-cert-path`, if it was given.
    pub authority: Option<PathBuf>,
    /// Where these certificates are if nobody says.
    pub usual_authority: &'static str,
    /// `--repo-server-client-cert-path`.
    pub certificate: PathBuf,
    /// `--repo-server-client-cert-key-path`.
    pub key: PathBuf,
    /// `--repo-server-timeout-seconds`.
    pub timeout: Duration,
}

impl Flags {
    /// The way: with the certificates of these files, read again as they change, where somebody has set them up; else with those
    /// that are `kept`. Who shows the certificate of a file believes the kept authority all the same.
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
        let files = Files {
            identity: Some((self.certificate, self.key)),
            authority: None,
        };
        let own = files.read().map_err(unusable("--repo-server-client-cert-path"))?;
        let identity = match own.identity {
            Some(_) => followed(files, own).map_err(unusable("--repo-server-client-cert-path"))?,
            None => kept.clone(),
        };
        let tls = if self.plaintext {
            Tls::Plaintext
        } else if self.strict || self.authority.is_some() {
            let path = self.authority.unwrap_or_else(|| self.usual_authority.into());
            let files = Files {
                identity: None,
                authority: Some(path.clone()),
            };
            let read = files.read().map_err(unusable("--repo-server-ca-cert-path"))?;
            if read.authority.is_none() {
                return Err(Error::Config(format!(
                    "there are no certificates to verify the repo-server with at {} (--repo-server-ca-cert-path)",
                    path.display()
                )));
            }
            Tls::Strict {
                authority: followed(files, read).map_err(unusable("--repo-server-ca-cert-path"))?,
                identity: Some(identity),
            }
        } else {
            Tls::Component {
                authority: kept.clone(),
                identity,
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

    fn flags(strict: bool, authority: Option<&str>) -> Flags {
        Flags {
            address: "argocd-repo-server:8081".into(),
            plaintext: false,
            strict,
            authority: authority.map(PathBuf::from),
            usual_authority: "/no/such/usual.crt",
            certificate: "/no/such/client.crt".into(),
            key: "/no/such/client.key".into(),
            timeout: Duration::from_secs(60),
        }
    }

    #[tokio::test]
    async fn trust_that_cannot_be_read_is_an_error_and_never_no_trust() {
        for (strict, authority, named) in [
            (true, Some("/no/such/ca.crt"), "/no/such/ca.crt"),
            (false, Some("/no/such/ca.crt"), "/no/such/ca.crt"),
            (true, None, "/no/such/usual.crt"),
        ] {
            let flags = flags(strict, authority);
            let error = flags.config(&Tasks::new(), &Arc::default()).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains(&format!("{named} (--repo-server-ca-cert-path)")),
                "{error}"
            );
        }
    }
}
