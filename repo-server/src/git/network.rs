//! Asking the server of a repository by `git`: where it is now, at which addresses, with what credentials, how often.

use super::command::Command;
use super::{Access, Credentials, Git, GitUrl, Scheme};
use crate::egress::NamedBy;
use crate::error::{Error, Result};
use crate::identity::Use;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

impl Git {
    pub(super) async fn network(
        &self,
        access: &Access,
        git_dir: Option<&Path>,
        request: &'static str,
        deadline: Duration,
        attempted: &'static str,
        arguments: &[&str],
    ) -> Result<Vec<u8>> {
        let credentials = self.tokens.credentials(&access.credentials, Use::Git).await?;
        let known = {
            let moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
            moved.get(access.url.normal()).cloned()
        };
        let mut place = Place::of(access, known, &credentials);
        let mut wait = Duration::from_millis(250);
        let mut attempt = 1;
        loop {
            let started = Instant::now();
            let answer = self.at(&place, git_dir, deadline, attempted, arguments).await;
            self.metrics
                .git_request(access.url.normal(), request, started.elapsed());
            match answer {
                // `git` follows no redirects: it would show its credentials to whoever is at their end.
                Err(Error::Fetch { message, .. }) if place.moved.is_none() && is_redirect(&message) => {
                    let target = self.follow(access, &credentials).await?;
                    let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
                    moved.insert(access.url.normal().to_owned(), target.clone());
                    place = Place::of(access, Some(target), &credentials);
                }
                Err(Error::Fetch { .. }) if attempt < self.settings.attempts => {
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(Duration::from_secs(5));
                    attempt += 1;
                }
                other => {
                    if other.is_err() {
                        // It may be back where it was, or elsewhere again: the next call looks.
                        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
                        moved.remove(access.url.normal());
                        drop(moved);
                        self.metrics.git_failed(access.url.normal(), request);
                    }
                    return other;
                }
            }
        }
    }

    /// One run of git at a place, once its host is allowed.
    async fn at(
        &self,
        place: &Place,
        git_dir: Option<&Path>,
        deadline: Duration,
        attempted: &'static str,
        arguments: &[&str],
    ) -> Result<Vec<u8>> {
        let whom = place.credentials.fingerprint();
        if let Some(left) = self.http.patience().left(&place.url.origin(), &whom) {
            return Err(Error::Patience {
                url: place.url.normal().to_owned(),
                message: "it has been asked too often".into(),
                retry_after: left,
            });
        }
        let addresses = self.addresses(place).await?;
        let arguments: Vec<&str> = arguments
            .iter()
            .map(|argument| {
                if *argument == URL {
                    place.url.as_fetch()
                } else {
                    argument
                }
            })
            .collect();
        let command = Command {
            scratch: &self.scratch,
            git_dir,
            url: Some(&place.url),
            addresses: &addresses,
            credentials: &place.credentials,
            trust: &self.trust,
            patience: self.http.patience(),
            deadline,
            attempted,
        };
        command.run(&arguments).await
    }

    /// The addresses that git may connect to; empty where a proxy connects for it, or nothing is connected to.
    async fn addresses(&self, place: &Place) -> Result<Vec<SocketAddr>> {
        let rules = self.http.egress();
        if place.url.scheme() == Scheme::File {
            if rules.allows_files() {
                return Ok(Vec::new());
            }
            return Err(Error::Repository {
                url: place.url.normal().to_owned(),
                message: "it is a directory of the repo-server; an operator can allow that".into(),
            });
        }
        let port = place.url.port();
        let (host, named_by) = (place.url.host(), place.named_by);
        // SSH goes its own way, whatever proxy there is for HTTP.
        if place.url.scheme() == Scheme::Ssh {
            return rules.resolve(host, port, named_by).await;
        }
        let encrypted = place.url.scheme() == Scheme::Https;
        rules
            .addresses(host, port, named_by, &place.credentials, encrypted)
            .await
    }

    /// Asks where a repository that answers with a redirect is now.
    async fn follow(&self, access: &Access, credentials: &Credentials) -> Result<GitUrl> {
        const ADVERTISEMENT: &str = "/info/refs?service=git-upload-pack";
        let from = access.url.as_fetch().trim_end_matches('/');
        let target = self
            .http
            .target(&format!("{from}{ADVERTISEMENT}"), from, credentials)
            .await?;
        match target.as_str().strip_suffix(ADVERTISEMENT) {
            Some(repository) => GitUrl::parse(repository),
            None => Err(Error::Fetch {
                attempted: "failed to follow a redirect of",
                url: access.url.normal().to_owned(),
                message: "it does not lead to a repository".into(),
            }),
        }
    }
}

/// Stands for the place of the repository in arguments of git.
pub(super) const URL: &str = "\0url";

/// Where a repository is asked, and with what.
struct Place {
    url: GitUrl,
    credentials: Credentials,
    named_by: NamedBy,
    moved: Option<GitUrl>,
}

impl Place {
    /// The repository itself, or where it moved to; credentials stay with their origin.
    fn of(access: &Access, moved: Option<GitUrl>, credentials: &Credentials) -> Place {
        let Some(url) = moved else {
            return Place {
                url: access.url.clone(),
                credentials: credentials.clone(),
                named_by: access.named_by,
                moved: None,
            };
        };
        let same = url.origin_or_host() == access.url.origin_or_host();
        Place {
            credentials: if same {
                credentials.clone()
            } else {
                credentials.without_secrets()
            },
            named_by: if same { access.named_by } else { NamedBy::Content },
            moved: Some(url.clone()),
            url,
        }
    }
}

fn is_redirect(message: &str) -> bool {
    ["301", "302", "303", "307", "308"]
        .iter()
        .any(|code| message.contains(&format!("returned error: {code}")))
}
