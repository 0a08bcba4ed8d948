//! Git repositories as object stores: one bare store per repository, no working tree, any number of
//! revisions read at once. The `git` program moves objects over the network; everything is read in process.
//!
//! - [`url`]: which URLs are allowed and which are equal; - [`credential`]: what `git` may show to whom;
//! - [`github_app`]: tokens of apps; - `command`: one run of `git`; - [`tree`]: reading a commit;
//! - `poll`: asking before somebody waits for the answer; - `signature`: who signed a commit;
//! - `store`: what becomes of object stores that are damaged, left in a mess, or too many.

mod command;
pub mod credential;
pub mod github_app;
mod poll;
mod signature;
mod store;
mod submodule;
pub mod tree;
pub mod url;

pub use command::redact;
pub use credential::{Credentials, Secret, TrustStore};
pub use url::{GitUrl, Scheme};

use crate::egress::NamedBy;
use crate::error::{Error, Result};
use crate::http::Http;
use crate::metrics::Metrics;
use crate::version;
use command::Command;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
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
            named_by: NamedBy::Operator,
        })
    }

    fn key(&self) -> (String, String) {
        (self.url.normal().to_owned(), self.identity())
    }

    /// As whom the repository is asked: the credentials, and the user of an SSH URL, which its normal form leaves out.
    fn identity(&self) -> String {
        format!(
            "{}/{}",
            self.credentials.fingerprint(),
            short_hash(self.url.as_fetch())
        )
    }
}

/// The refs a repository advertises.
#[derive(Clone, Debug, Default)]
pub struct Refs {
    /// Full ref name to commit SHA, annotated tags peeled.
    pub commits: BTreeMap<String, String>,
    /// Full name of an annotated tag to the SHA of its own object.
    pub annotated: BTreeMap<String, String>,
    /// The branch `HEAD` names, as a full ref name.
    pub head: Option<String>,
}

impl Refs {
    fn parse(text: &str) -> Refs {
        let mut refs = Refs::default();
        for line in text.lines() {
            let Some((value, name)) = line.split_once('\t') else {
                continue;
            };
            if let Some(target) = value.strip_prefix("ref: ") {
                if name == "HEAD" {
                    refs.head = Some(target.to_owned());
                }
            } else if let Some(tag) = name.strip_suffix("^{}") {
                if let Some(object) = refs.commits.insert(tag.to_owned(), value.to_owned()) {
                    refs.annotated.insert(tag.to_owned(), object);
                }
            } else {
                refs.commits
                    .entry(name.to_owned())
                    .or_insert_with(|| value.to_owned());
            }
        }
        refs
    }

    /// Short names of the branches, sorted.
    pub fn branches(&self) -> Vec<String> {
        self.short("refs/heads/")
    }

    /// Short names of the tags, sorted.
    pub fn tags(&self) -> Vec<String> {
        self.short("refs/tags/")
    }

    fn short(&self, prefix: &str) -> Vec<String> {
        self.commits
            .keys()
            .filter_map(|name| name.strip_prefix(prefix))
            .map(str::to_owned)
            .collect()
    }

    /// Tags that point at a commit.
    pub fn tags_at(&self, commit: &str) -> Vec<String> {
        self.commits
            .iter()
            .filter(|(_, sha)| *sha == commit)
            .filter_map(|(name, _)| name.strip_prefix("refs/tags/"))
            .map(str::to_owned)
            .collect()
    }
}

/// What a revision means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Full commit SHA, or a prefix of one that only the objects can complete.
    pub commit: String,
    /// The ref it came from, as a full name.
    pub reference: Option<String>,
}

/// Resolves a revision against advertised refs, by the rules of Argo CD: full SHA, semver constraint over
/// tags (restricted to `tag_prefix`), ref by full or short name, SHA prefix of at least seven digits.
///
/// # Errors
/// [`Error::Revision`] if it is none of these.
pub fn resolve(refs: &Refs, revision: &str, tag_prefix: &str) -> Result<Resolved> {
    let revision = if revision.is_empty() { "HEAD" } else { revision };
    let found = |name: &str| {
        refs.commits.get(name).map(|sha| Resolved {
            commit: sha.clone(),
            reference: Some(name.to_owned()),
        })
    };
    if is_sha(revision) {
        return Ok(Resolved {
            commit: revision.to_ascii_lowercase(),
            reference: None,
        });
    }
    if revision == "HEAD" {
        let head = refs.head.as_deref().and_then(found).or_else(|| found("HEAD"));
        return head.ok_or_else(|| Error::Revision {
            revision: revision.into(),
        });
    }
    let tags: Vec<String> = refs
        .tags()
        .into_iter()
        .filter_map(|tag| tag.strip_prefix(tag_prefix).map(str::to_owned))
        .collect();
    let wanted = revision.strip_prefix(tag_prefix).unwrap_or(revision);
    let is_range = version::parse(wanted).is_none() && version::Constraint::parse(wanted).is_some();
    if is_range && let Ok(tag) = version::select(wanted, &tags) {
        return found(&format!("refs/tags/{tag_prefix}{tag}")).ok_or(Error::Revision {
            revision: revision.into(),
        });
    }
    if revision.starts_with("refs/")
        && let Some(resolved) = found(revision)
    {
        return Ok(resolved);
    }
    for name in [
        format!("refs/heads/{revision}"),
        format!("refs/tags/{revision}"),
        format!("refs/tags/{tag_prefix}{revision}"),
        format!("refs/remotes/{revision}"),
        format!("refs/{revision}"),
    ] {
        if let Some(resolved) = found(&name) {
            return Ok(resolved);
        }
    }
    if (7..40).contains(&revision.len()) && revision.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(Resolved {
            commit: revision.to_ascii_lowercase(),
            reference: None,
        });
    }
    Err(Error::Revision {
        revision: revision.into(),
    })
}

fn is_sha(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit())
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
    tokens: github_app::Tokens,
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

/// Packs above which a store is repacked; each fetch adds one.
const MAX_PACKS: usize = 48;

/// One bare object store.
pub struct Repo {
    url: String,
    dir: PathBuf,
    objects: RwLock<gix::ThreadSafeRepository>,
    listings: tree::Listings,
    /// Held while objects are added: concurrent requests for one repository fetch once.
    fetching: tokio::sync::Mutex<()>,
    /// Fingerprints of credentials that the repository has answered: knowing a SHA is not the right to read it.
    proven: Mutex<HashSet<String>>,
    used: Mutex<Instant>,
    bytes: AtomicU64,
}

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
        let tokens = github_app::Tokens::new(http.clone());
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

    async fn network(
        &self,
        access: &Access,
        git_dir: Option<&Path>,
        request: &'static str,
        deadline: Duration,
        attempted: &'static str,
        arguments: &[&str],
    ) -> Result<Vec<u8>> {
        let credentials = self.tokens.credentials(&access.credentials).await?;
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
            deadline,
            attempted,
        };
        command.run(&arguments).await
    }

    /// The addresses that git may connect to; empty where a proxy connects for it, or nothing is connected to.
    async fn addresses(&self, place: &Place) -> Result<Vec<SocketAddr>> {
        let egress = self.http.egress();
        if place.url.scheme() == Scheme::File {
            if egress.allows_files() {
                return Ok(Vec::new());
            }
            return Err(Error::Repository {
                url: place.url.normal().to_owned(),
                message: "it is a directory of the repo-server; an operator can allow that".into(),
            });
        }
        if !place.credentials.proxy.is_empty() {
            return Ok(Vec::new());
        }
        let port = place.url.port();
        egress.resolve(place.url.host(), port, place.named_by).await
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

    /// Variables by which somebody else's `git` reaches a repository, and the others of its origin, as whom we do.
    ///
    /// # Errors
    /// [`Error::Authentication`] and others of an app whose token is asked for.
    pub(crate) async fn environment(&self, access: &Access) -> Result<Vec<(String, String)>> {
        let credentials = self.tokens.credentials(&access.credentials).await?;
        Ok(credential::environment(&access.url, &credentials))
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

    /// Makes sure that a commit and its submodules are in the store, and opens it.
    ///
    /// # Errors
    /// As [`Git::refs`]; [`Error::Revision`] when the repository does not hand the commit out.
    pub async fn commit(&self, access: &Access, resolved: &Resolved) -> Result<Commit> {
        let commit = self.plain_commit(access, resolved).await?;
        if !self.settings.submodules {
            return Ok(commit);
        }
        let modules = self.modules(access, &commit.tree()).await?;
        let files = commit.files.with_modules(modules);
        Ok(Commit { files, ..commit })
    }

    async fn plain_commit(&self, access: &Access, resolved: &Resolved) -> Result<Commit> {
        let repo = self.repo(&access.url).await?;
        if !repo.is_proven(access) {
            self.refs(access, false).await?;
        }
        if let Some(commit) = repo.open(&resolved.commit)? {
            return Ok(commit);
        }
        let _fetching = repo.fetching.lock().await;
        if let Some(commit) = repo.open(&resolved.commit)? {
            return Ok(commit);
        }
        let mut attempts = Vec::new();
        if let Some(name) = &resolved.reference {
            attempts.push(format!("+{name}:refs/argosy/{}", short_hash(name)));
        }
        attempts.push(format!("+{sha}:refs/argosy/{sha}", sha = resolved.commit));
        for (nth, refspec) in attempts.iter().enumerate() {
            match self.fetch(access, &repo, &[refspec.as_str()]).await {
                Ok(()) => {
                    if let Some(commit) = repo.open(&resolved.commit)? {
                        return Ok(commit);
                    }
                }
                // A server need not hand out a bare SHA; only the ref's own failure is final.
                Err(error) if nth + 1 < attempts.len() && !is_missing_ref(&error) => return Err(error),
                Err(error @ (Error::Authentication { .. } | Error::Deadline { .. })) => return Err(error),
                Err(_) => {}
            }
        }
        self.fetch_everything(access, &repo).await?;
        repo.open(&resolved.commit)?.ok_or_else(|| Error::Revision {
            revision: resolved.commit.clone(),
        })
    }

    async fn fetch_everything(&self, access: &Access, repo: &Arc<Repo>) -> Result<()> {
        self.fetch(
            access,
            repo,
            &[
                "--prune",
                "+refs/heads/*:refs/remotes/heads/*",
                "+refs/tags/*:refs/remotes/tags/*",
            ],
        )
        .await
    }

    async fn fetch(&self, access: &Access, repo: &Arc<Repo>, what: &[&str]) -> Result<()> {
        let depth = format!("--depth={}", access.depth);
        let (options, refspecs): (Vec<&str>, Vec<&str>) =
            what.iter().copied().partition(|part| part.starts_with("--"));
        let mut arguments = vec![
            "fetch",
            "--quiet",
            "--no-tags",
            "--force",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--no-auto-maintenance",
        ];
        if access.depth > 0 {
            arguments.push(&depth);
        }
        arguments.extend(options);
        arguments.extend(["--", URL]);
        arguments.extend(refspecs);
        let fetched = self
            .network(
                access,
                Some(&repo.dir),
                "fetch",
                self.settings.fetch_timeout,
                "failed to fetch",
                &arguments,
            )
            .await;
        if let Err(error) = fetched {
            // A git that was killed leaves its locks behind, and nobody else writes here.
            store::tidy(&repo.dir);
            return Err(error);
        }
        repo.prove(access);
        if repo.packs() > MAX_PACKS {
            self.repack(access, repo).await;
        }
        repo.measure();
        self.keep_within_quota();
        Ok(())
    }

    /// Folds small packs together. Nothing is pruned: a render may still read an old commit.
    async fn repack(&self, access: &Access, repo: &Arc<Repo>) {
        let command = Command {
            scratch: &self.scratch,
            git_dir: Some(&repo.dir),
            url: None,
            addresses: &[],
            credentials: &access.credentials,
            trust: &self.trust,
            deadline: self.settings.fetch_timeout,
            attempted: "failed to repack",
        };
        match command.run(&["repack", "-d", "-q", "--geometric=2"]).await {
            Ok(_) => {
                if let Ok(objects) = open_objects(&repo.dir) {
                    *repo.objects.write().unwrap_or_else(PoisonError::into_inner) = objects;
                }
            }
            Err(error) => tracing::warn!(repo = repo.url, %error, "repacking a repository failed"),
        }
    }

    async fn repo(&self, url: &GitUrl) -> Result<Arc<Repo>> {
        let name = url.normal();
        if let Some(repo) = self
            .repos
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
        {
            repo.use_now();
            return Ok(repo.clone());
        }
        let dir = self.root.join(short_hash(name));
        if !dir.join("HEAD").exists() {
            let partial = tempfile::Builder::new()
                .prefix(".new-")
                .tempdir_in(&self.root)
                .map_err(|e| Error::io("failed to create a repository", e))?;
            let none = Credentials::default();
            let command = Command {
                scratch: &self.scratch,
                git_dir: None,
                url: None,
                addresses: &[],
                credentials: &none,
                trust: &self.trust,
                deadline: Duration::from_secs(30),
                attempted: "failed to initialise a repository",
            };
            let path = partial.path().join("git").display().to_string();
            command
                .run(&[
                    "init",
                    "--quiet",
                    "--bare",
                    "--template=",
                    "--initial-branch=none",
                    "--",
                    &path,
                ])
                .await?;
            // Losing the race to another caller is as good as winning it.
            if let Err(error) = std::fs::rename(&path, &dir)
                && !dir.join("HEAD").exists()
            {
                return Err(Error::io("failed to create a repository", error));
            }
        }
        store::tidy(&dir);
        let objects = match open_objects(&dir) {
            Ok(objects) => objects,
            Err(error) => {
                // What cannot even be opened is made anew by the next call.
                store::remove(&self.root, &dir);
                return Err(error);
            }
        };
        let bytes = store::bytes(&dir);
        let mut repos = self.repos.lock().unwrap_or_else(PoisonError::into_inner);
        self.strays
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&dir);
        let repo = repos.entry(name.to_owned()).or_insert_with(|| {
            Arc::new(Repo {
                url: name.to_owned(),
                dir,
                objects: RwLock::new(objects),
                listings: self.listings.clone(),
                fetching: tokio::sync::Mutex::default(),
                proven: Mutex::default(),
                used: Mutex::new(Instant::now()),
                bytes: AtomicU64::new(bytes),
            })
        });
        Ok(repo.clone())
    }
}

/// Stands for the place of the repository in arguments of git.
const URL: &str = "\0url";

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

fn is_missing_ref(error: &Error) -> bool {
    matches!(error, Error::Fetch { message, .. } if message.contains("couldn't find remote ref") || message.contains("not our ref"))
}

fn open_objects(dir: &Path) -> Result<gix::ThreadSafeRepository> {
    gix::open::Options::isolated()
        .open_path_as_is(true)
        .object_store_slots(gix::odb::store::init::Slots::Given(2048))
        .with(gix::sec::Trust::Full)
        .open(dir)
        .map_err(|e| Error::io(format!("failed to open {}", dir.display()), e))
}

pub(crate) fn short_hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
}

impl Repo {
    fn prove(&self, access: &Access) {
        self.proven
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(access.identity());
    }

    fn is_proven(&self, access: &Access) -> bool {
        self.proven
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&access.identity())
    }

    /// Something that should be in the store cannot be read.
    fn damaged(&self, what: impl std::fmt::Display, error: &dyn std::fmt::Display) -> Error {
        Error::Store {
            url: self.url.clone(),
            message: format!("failed to read {what}: {error}"),
        }
    }

    fn packs(&self) -> usize {
        std::fs::read_dir(self.dir.join("objects/pack")).map_or(0, |entries| {
            entries
                .flatten()
                .filter(|entry| entry.path().extension().is_some_and(|ext| ext == "pack"))
                .count()
        })
    }

    pub(crate) fn local(&self) -> gix::Repository {
        let mut repo = self
            .objects
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .to_thread_local();
        repo.object_cache_size_if_unset(4 << 20);
        repo
    }

    /// Completes a SHA prefix, if the objects hold exactly one such commit.
    fn complete(&self, prefix: &str) -> Option<String> {
        let repo = self.local();
        let id = repo
            .rev_parse_single(format!("{prefix}^{{commit}}").as_str())
            .ok()?;
        Some(id.to_hex().to_string())
    }

    fn open(self: &Arc<Self>, sha: &str) -> Result<Option<Commit>> {
        let Ok(id) = gix::ObjectId::from_hex(sha.as_bytes()) else {
            return Err(Error::Revision { revision: sha.into() });
        };
        let repo = self.local();
        let broken = |e: &dyn std::fmt::Display| self.damaged(format!("commit {sha}"), e);
        let Some(object) = repo.try_find_object(id).map_err(|e| broken(&e))? else {
            return Ok(None);
        };
        let commit = object.peel_to_commit().map_err(|e| broken(&e))?;
        let tree = commit.tree_id().map_err(|e| broken(&e))?.detach();
        Ok(Some(Commit {
            repo: self.clone(),
            id: commit.id,
            files: tree::GitTree::new(self.clone(), tree),
        }))
    }
}

/// A commit that is in the store.
#[derive(Clone)]
pub struct Commit {
    repo: Arc<Repo>,
    id: gix::ObjectId,
    files: tree::GitTree,
}

/// What a commit says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitInfo {
    /// `Name <mail>`.
    pub author: String,
    /// Author time, seconds since the epoch.
    pub seconds: i64,
    /// The whole message, without the final line break.
    pub message: String,
}

impl Commit {
    /// Full SHA.
    pub fn sha(&self) -> String {
        self.id.to_hex().to_string()
    }

    /// Its files.
    pub fn tree(&self) -> tree::GitTree {
        self.files.clone()
    }

    /// Author, time and message.
    ///
    /// # Errors
    /// [`Error::Io`] when the object is broken.
    pub fn info(&self) -> Result<CommitInfo> {
        let repo = self.repo.local();
        let broken = |e: &dyn std::fmt::Display| self.repo.damaged(format!("commit {}", self.sha()), e);
        let commit = repo.find_commit(self.id).map_err(|e| broken(&e))?;
        let author = commit.author().map_err(|e| broken(&e))?;
        let seconds = author.time().map_err(|e| broken(&e))?.seconds;
        Ok(CommitInfo {
            author: format!("{} <{}>", author.name, author.email),
            seconds,
            message: commit.message_raw_sloppy().to_string().trim_end().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn refs() -> Refs {
        let sha = |n: u8| format!("{n:02x}").repeat(20);
        Refs::parse(&format!(
            "ref: refs/heads/main\tHEAD\n{}\tHEAD\n{}\trefs/heads/main\n{}\trefs/heads/feature/x\n{}\trefs/tags/v1.0.0\n\
             {}\trefs/tags/v1.0.0^{{}}\n{}\trefs/tags/v1.2.0\n{}\trefs/tags/web-2.0.0\n{}\trefs/pull/1/head\n",
            sha(1),
            sha(1),
            sha(2),
            sha(3),
            sha(4),
            sha(5),
            sha(6),
            sha(7)
        ))
    }

    fn commit(revision: &str, prefix: &str) -> String {
        resolve(&refs(), revision, prefix).map_or_else(|e| e.to_string(), |r| r.commit[..2].to_owned())
    }

    #[test]
    fn revisions_resolve_as_argo_cd_does() {
        assert_eq!(commit("", ""), "01");
        assert_eq!(commit("HEAD", ""), "01");
        assert_eq!(commit("feature/x", ""), "02");
        assert_eq!(commit("v1.0.0", ""), "04", "an annotated tag is peeled");
        assert_eq!(commit("v1.x", ""), "05");
        assert_eq!(commit("^1.0.0", ""), "05");
        assert_eq!(commit("2.x", "web-"), "06");
        assert_eq!(commit("refs/pull/1/head", ""), "07");
        assert_eq!(commit(&"ab".repeat(20), ""), "ab");
        assert_eq!(commit("abcdef1", ""), "ab");
        assert_eq!(commit("nope", ""), "unable to resolve 'nope' to a commit SHA");
    }
}
