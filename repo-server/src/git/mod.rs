//! Git repositories as object stores: one bare store per repository, no working tree, any number of
//! revisions read at once. The `git` program moves objects over the network; everything is read in process.
//!
//! - [`url`]: which URLs are allowed and which are equal; - [`credential`]: what `git` may show to whom;
//! - `command`: one run of `git`; - `network`: asking a server with it;
//! - `refs`: which commit a revision means; - `fetch`: getting commits; - `objects`: what is there of them;
//! - [`tree`]: reading a commit; - `submodule`, `lfs`: files of it that lie elsewhere;
//! - `poll`: asking before somebody waits for the answer; - `signature`: who signed a commit;
//! - `store`: what becomes of object stores that are damaged, left in a mess, or too many.

mod command;
pub mod credential;
mod fetch;
mod lfs;
mod network;
mod objects;
mod poll;
mod refs;
mod signature;
mod store;
mod submodule;
pub mod tree;
pub mod url;

pub use command::redact;
pub use credential::{Credentials, Secret, TrustStore};
pub use objects::{Commit, CommitInfo, Repo};
pub use refs::{Refs, Resolved, resolve};
pub use url::{GitUrl, Scheme};

use crate::egress::NamedBy;
use crate::error::{Error, Result};
use crate::http::Http;
use crate::identity::{Tokens, Use};
use crate::metrics::Metrics;
use network::URL;
use refs::is_sha;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A repository together with the right to read it.
#[derive(Clone, Debug)]
pub struct Access {
    /// Where it is.
    pub url: GitUrl,
    /// How to ask.
    pub credentials: Arc<Credentials>,
    /// Number of commits to fetch; 0 for all.
    pub depth: u32,
    /// Whether files that are LFS pointers are read as what they stand for.
    pub lfs: bool,
    /// Who named the repository, which decides what addresses it may have.
    pub named_by: NamedBy,
}

impl Access {
    /// Reads the URL.
    ///
    /// # Errors
    /// As [`GitUrl::parse`].
    pub fn new(url: &str, credentials: Credentials, depth: u32) -> Result<Access> {
        let url = GitUrl::parse(url)?;
        let mut credentials = credentials;
        // What stands in the URL is who asks, as much as what is configured; the configured one wins.
        if let Some((username, password)) = url.embedded()
            && credentials.username.is_empty()
            && credentials.password.is_empty()
        {
            credentials.username.clone_from(username);
            credentials.password = Secret::new(password.clone());
        }
        Ok(Access {
            url,
            credentials: Arc::new(credentials),
            depth,
            lfs: false,
            named_by: NamedBy::Operator,
        })
    }

    /// For a repository that content of another one names: its credentials are for its own server. Their way to the
    /// network is the same.
    pub(crate) fn take_over(&mut self, from: &Access) {
        let one_server =
            self.url.scheme() == from.url.scheme() && self.url.origin_or_host() == from.url.origin_or_host();
        if one_server {
            self.credentials = from.credentials.clone();
            self.named_by = from.named_by;
        } else {
            let own = std::mem::take(Arc::make_mut(&mut self.credentials));
            self.credentials = Arc::new(Credentials {
                proxy: from.credentials.proxy.clone(),
                no_proxy: from.credentials.no_proxy.clone(),
                ..own
            });
            self.named_by = NamedBy::Content;
        }
    }

    fn key(&self) -> (String, String) {
        (self.url.normal().to_owned(), self.identity())
    }

    /// As whom the repository is asked: the credentials, the user of an SSH URL, which its normal form leaves out, and who
    /// named it: what an operator may reach is no answer for content, and what is refused to content none for an operator.
    fn identity(&self) -> String {
        format!(
            "{}/{}/{:?}",
            self.credentials.fingerprint(),
            short_hash(self.url.as_fetch()),
            self.named_by
        )
    }
}

/// How long to wait for the network, and how often to ask again.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Deadline of `git ls-remote`.
    pub list_timeout: Duration,
    /// Deadline of `git fetch`.
    pub fetch_timeout: Duration,
    /// How long a list of refs may be used again.
    pub refs_ttl: Duration,
    /// Attempts for one network call.
    pub attempts: u32,
    /// Whether submodules are fetched and read.
    pub submodules: bool,
    /// Bytes that all stores together may take; those unused for longest go first.
    pub store_bytes: u64,
    /// Directory of the keys that signatures are verified with, a file each.
    pub keys: PathBuf,
}

/// All repositories below one cache directory.
pub struct Git {
    root: PathBuf,
    scratch: PathBuf,
    trust: TrustStore,
    settings: Settings,
    metrics: Metrics,
    repos: Mutex<HashMap<String, Arc<Repo>>>,
    /// Stores of an earlier process that nobody has asked for yet, with their bytes.
    strays: Mutex<HashMap<PathBuf, u64>>,
    listings: tree::Listings,
    keyring: signature::Keyring,
    lists: Mutex<HashMap<(String, String), Arc<List>>>,
    tokens: Tokens,
    http: Arc<Http>,
    /// Where repositories that moved are now.
    moved: Mutex<HashMap<String, GitUrl>>,
}

/// What a repository advertises to one credential.
struct List {
    access: Access,
    /// The last answer, held while a new one is on its way.
    last: tokio::sync::Mutex<Option<Listed>>,
    wanted: Mutex<Wanted>,
}

/// What is asked for of a repository.
struct Wanted {
    /// When, last.
    at: Instant,
    /// The refs, by full name.
    references: BTreeSet<String>,
}

/// Refs of one repository that are fetched before they are asked for.
const MAX_WANTED: usize = 100;

/// The last answer of a repository to one credential.
struct Listed {
    started: Instant,
    answer: Result<Arc<Refs>>,
}

impl List {
    fn want(&self, reference: &str) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.references.len() < MAX_WANTED && !wanted.references.contains(reference) {
            wanted.references.insert(reference.to_owned());
        }
    }
}

/// How long a failure to list refs is remembered for callers that did not ask for a fresh answer.
const FAILURE_TTL: Duration = Duration::from_secs(5);

impl Git {
    /// Opens (or makes) the cache below `root`; `scratch` holds short-lived private files.
    ///
    /// # Errors
    /// [`Error::Io`] when a directory cannot be made.
    pub fn new(
        root: PathBuf,
        scratch: PathBuf,
        http: Arc<Http>,
        settings: Settings,
        metrics: Metrics,
    ) -> Result<Git> {
        for dir in [&root, &scratch] {
            std::fs::create_dir_all(dir)
                .map_err(|e| Error::io(format!("failed to create {}", dir.display()), e))?;
        }
        let trust = http.trust().clone();
        let tokens = Tokens::new(http.clone());
        let keyring = signature::Keyring::new(settings.keys.clone(), scratch.clone());
        Ok(Git {
            strays: Mutex::new(store::strays(&root)),
            root,
            scratch,
            trust,
            settings,
            metrics,
            repos: Mutex::default(),
            listings: tree::Listings::default(),
            keyring,
            lists: Mutex::default(),
            tokens,
            http,
            moved: Mutex::default(),
        })
    }

    /// The refs of a repository; `fresh` insists on an answer that began after this call.
    ///
    /// # Errors
    /// [`Error::Fetch`], [`Error::Authentication`], [`Error::Deadline`].
    pub async fn refs(&self, access: &Access, fresh: bool) -> Result<Arc<Refs>> {
        let list = self.listed(access);
        list.wanted.lock().unwrap_or_else(PoisonError::into_inner).at = Instant::now();
        self.refs_of(&list, fresh).await
    }

    fn listed(&self, access: &Access) -> Arc<List> {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if lists.len() > 20_000 {
            lists.retain(|_, list| Arc::strong_count(list) > 1);
        }
        let list = lists.entry(access.key()).or_insert_with(|| {
            Arc::new(List {
                access: access.clone(),
                last: tokio::sync::Mutex::default(),
                wanted: Mutex::new(Wanted {
                    at: Instant::now(),
                    references: BTreeSet::new(),
                }),
            })
        });
        list.clone()
    }

    async fn refs_of(&self, list: &List, fresh: bool) -> Result<Arc<Refs>> {
        let asked = Instant::now();
        let mut listed = list.last.lock().await;
        if let Some(last) = &*listed {
            let ttl = if last.answer.is_ok() {
                self.settings.refs_ttl
            } else {
                FAILURE_TTL
            };
            if last.started >= asked || !fresh && last.started.elapsed() < ttl {
                return last.answer.clone();
            }
        }
        let started = Instant::now();
        let access = &list.access;
        let answer = self.list(access).await.map(Arc::new);
        if answer.is_ok() {
            self.repo(&access.url).await?.prove(access);
        }
        *listed = Some(Listed {
            started,
            answer: answer.clone(),
        });
        answer
    }

    async fn list(&self, access: &Access) -> Result<Refs> {
        let output = self
            .network(
                access,
                None,
                "ls-remote",
                self.settings.list_timeout,
                "failed to list refs of",
                &["ls-remote", "--symref", "--", URL],
            )
            .await?;
        Ok(Refs::parse(&String::from_utf8_lossy(&output)))
    }

    /// Variables by which somebody else's `git` reaches a repository, and the others of its origin, as whom we do.
    ///
    /// # Errors
    /// [`Error::Authentication`] and others of an app whose token is asked for.
    pub(crate) async fn environment(&self, access: &Access) -> Result<Vec<(String, String)>> {
        let credentials = self.tokens.credentials(&access.credentials, Use::Git).await?;
        Ok(credential::environment(&access.url, &credentials, &self.trust))
    }

    /// Resolves a revision to a full commit SHA, asking the repository where the text does not say it all.
    ///
    /// # Errors
    /// As [`Git::refs`] and [`resolve`].
    pub async fn resolve(
        &self,
        access: &Access,
        revision: &str,
        tag_prefix: &str,
        fresh: bool,
    ) -> Result<Resolved> {
        if is_sha(revision) && self.repo(&access.url).await?.is_proven(access) {
            return Ok(Resolved {
                commit: revision.to_ascii_lowercase(),
                reference: None,
            });
        }
        let refs = self.refs(access, fresh).await?;
        let mut resolved = resolve(&refs, revision, tag_prefix)?;
        if let Some(reference) = &resolved.reference {
            self.listed(access).want(reference);
        }
        if !is_sha(&resolved.commit) {
            let repo = self.repo(&access.url).await?;
            let full = match repo.complete(&resolved.commit) {
                Some(full) => full,
                None => {
                    let _fetching = repo.fetching.lock().await;
                    self.fetch_everything(access, &repo).await?;
                    repo.complete(&resolved.commit).ok_or(Error::Revision {
                        revision: revision.into(),
                    })?
                }
            };
            resolved.commit = full;
        }
        Ok(resolved)
    }
}

pub(crate) fn short_hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn access(url: &str) -> Access {
        let credentials = Credentials {
            password: Secret::new("canary"),
            proxy: "http://proxy.example.com".into(),
            ..Credentials::default()
        };
        Access::new(url, credentials, 0).unwrap()
    }

    #[test]
    fn who_named_a_repository_is_answered_by_himself() {
        let operator = access("https://git.example.com/a");
        let content = Access {
            named_by: NamedBy::Content,
            ..operator.clone()
        };
        assert_ne!(operator.key(), content.key());
    }

    #[test]
    fn credentials_go_to_their_own_server_and_the_proxy_is_for_all() {
        let own = access("https://git.example.com/team/app.git");
        for (url, theirs) in [
            ("https://git.example.com/other/base", true),
            ("https://git.example.com:8443/other/base", false),
            ("http://git.example.com/other/base", false),
            ("https://git.example.com.evil.org/other/base", false),
            ("ssh://git@git.example.com/other/base", false),
        ] {
            let mut named = Access::new(url, Credentials::default(), 0).unwrap();
            named.take_over(&own);
            assert_eq!(!named.credentials.password.is_empty(), theirs, "{url}");
            assert_eq!(named.named_by == NamedBy::Operator, theirs, "{url}");
            assert_eq!(named.credentials.proxy, "http://proxy.example.com", "{url}");
        }
    }
}
