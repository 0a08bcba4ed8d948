//! Charts from Helm repositories: classic ones by `index.yaml`, registries by OCI. A chart is unpacked once per
//! digest and then only read.

pub(crate) mod archive;
pub mod index;
mod oci;

pub use archive::Limits;
pub use index::{Entry, Index};

use crate::egress::NamedBy;
use crate::error::{Error, Result};
use crate::git::{Credentials, short_hash};
use crate::http::Http;
use crate::materialise::{Directory, Materialiser};
use crate::metrics::Metrics;
use crate::version;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Largest packed chart.
const MAX_ARCHIVE: u64 = 100 << 20;
/// Answers of one kind that are remembered at most.
const MAX_ANSWERS: usize = 10_000;

/// A repository of charts together with the right to read it.
#[derive(Clone, Debug)]
pub struct ChartRepo {
    /// URL without a trailing slash; for registries without `oci://`.
    pub url: String,
    /// Whether it is a registry.
    pub oci: bool,
    /// Speak HTTP to the registry.
    pub plain_http: bool,
    /// How to ask.
    pub credentials: Arc<Credentials>,
    /// Send credentials to other hosts that the index names.
    pub pass_credentials: bool,
    /// Who named the repository, which decides what addresses it may have.
    pub named_by: NamedBy,
}

impl ChartRepo {
    /// Reads the URL of a chart repository.
    pub fn new(
        url: &str,
        oci: bool,
        plain_http: bool,
        credentials: Credentials,
        pass_credentials: bool,
    ) -> ChartRepo {
        let trimmed = url.trim().trim_end_matches('/');
        let without = trimmed.strip_prefix("oci://");
        ChartRepo {
            url: without.unwrap_or(trimmed).to_owned(),
            oci: oci || without.is_some(),
            plain_http,
            credentials: Arc::new(credentials),
            pass_credentials,
            named_by: NamedBy::Operator,
        }
    }

    fn key(&self, chart: &str) -> (String, String) {
        let name = if self.oci {
            format!("{}/{chart}", self.url)
        } else {
            self.url.clone()
        };
        let (whom, who) = (self.credentials.fingerprint(), self.named_by);
        (name, format!("{whom}/{who:?}/{}", self.plain_http))
    }

    /// For whose URL credentials and the right to an inner address are given.
    fn owner(&self) -> &str {
        match self.named_by {
            NamedBy::Operator => &self.url,
            NamedBy::Content => "",
        }
    }

    /// The URL for people.
    pub fn shown(&self) -> String {
        if self.oci {
            format!("oci://{}", self.url)
        } else {
            crate::git::url::display(&self.url)
        }
    }
}

/// A chart that lies on disk.
#[derive(Clone)]
pub struct Chart {
    /// Keeps the files.
    pub directory: Arc<Directory>,
    /// The directory with `Chart.yaml`.
    pub path: PathBuf,
    /// Names the content: a digest.
    pub digest: String,
}

/// Finds and fetches charts.
pub struct Charts {
    http: Arc<Http>,
    files: Arc<Materialiser>,
    limits: Limits,
    ttl: Duration,
    oci: oci::Registries,
    indexes: Answers<Arc<Index>>,
    tags: Answers<Arc<Vec<String>>>,
    artifacts: Answers<Artifact>,
    /// What a version was found to be, so that a chart that was unpacked is not downloaded again to learn its digest.
    digests: Mutex<HashMap<(String, String, String, String), String>>,
}

/// What a reference to an artifact was found to be.
#[derive(Clone)]
struct Artifact {
    /// Of its manifest.
    digest: String,
    /// Name of the directory that it is unpacked in.
    unpacked: String,
}

type Cell<T> = Arc<tokio::sync::Mutex<Option<(Instant, T)>>>;
/// Answers by repository and credentials.
type Answers<T> = Mutex<HashMap<(String, String), Cell<T>>>;

/// Where the answer about something is, or will be. With each new one those go that are too old to be given, and that nobody waits
/// for: of repositories that are asked no more, or no more as the same.
fn cell_of<T>(answers: &Answers<T>, key: (String, String), ttl: Duration) -> Cell<T> {
    let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
    if !answers.contains_key(&key) {
        answers.retain(|_, cell| {
            let is_fresh = |held: tokio::sync::MutexGuard<'_, Option<(Instant, T)>>| {
                held.as_ref().is_some_and(|(at, _)| at.elapsed() < ttl)
            };
            Arc::strong_count(cell) > 1 || cell.try_lock().is_ok_and(is_fresh)
        });
        if answers.len() >= MAX_ANSWERS {
            answers.clear();
        }
    }
    answers.entry(key).or_default().clone()
}

impl Charts {
    /// Keeps unpacked charts in `files`; answers of repositories for `ttl`.
    pub fn new(
        http: Arc<Http>,
        files: Arc<Materialiser>,
        limits: Limits,
        ttl: Duration,
        metrics: Metrics,
    ) -> Charts {
        let oci = oci::Registries::new(http.clone(), metrics);
        Charts {
            http,
            files,
            limits,
            ttl,
            oci,
            indexes: Mutex::default(),
            tags: Mutex::default(),
            artifacts: Mutex::default(),
            digests: Mutex::default(),
        }
    }

    /// The version that a version or constraint means.
    ///
    /// # Errors
    /// [`Error::Version`] if none fits; else as [`Charts::index`].
    pub async fn resolve(
        &self,
        repo: &ChartRepo,
        chart: &str,
        revision: &str,
        fresh: bool,
    ) -> Result<String> {
        if version::is_whole(revision) {
            return Ok(revision.to_owned());
        }
        let wanted = if revision.is_empty() { "*" } else { revision };
        let available: Vec<String> = if repo.oci {
            // A registry cannot hold `+` in a tag; Helm writes `_` for it.
            self.tags(repo, chart, fresh)
                .await?
                .iter()
                .map(|tag| tag.replace('_', "+"))
                .collect()
        } else {
            let index = self.index(repo, fresh).await?;
            let entries = index.versions(chart);
            if entries.is_empty() {
                return Err(Error::Version {
                    message: format!("chart \"{chart}\" not found in repository {}", repo.shown()),
                });
            }
            entries.iter().map(|entry| entry.version.clone()).collect()
        };
        // To Helm `1.2` is all of 1.2.x, unless a registry has just that as a tag.
        let wanted = match version::parse(wanted) {
            Some(_) if !available.iter().any(|tag| tag == wanted) => format!("={wanted}"),
            _ => wanted.to_owned(),
        };
        version::select(&wanted, &available).map_err(|e| Error::Version {
            message: format!("invalid revision for chart \"{chart}\": {e}"),
        })
    }

    /// Fetches a version of a chart (or finds it fetched).
    ///
    /// # Errors
    /// [`Error::Version`], [`Error::Fetch`], [`Error::Authentication`], [`Error::Limit`].
    pub async fn fetch(&self, repo: &ChartRepo, chart: &str, version: &str) -> Result<Chart> {
        let (name, fingerprint) = repo.key(chart);
        let known = (name, fingerprint, chart.to_owned(), version.to_owned());
        let digest = self
            .digests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&known)
            .cloned();
        if let Some(digest) = digest
            && let Ok(directory) = self
                .files
                .directory(&format!("chart-{digest}"), |_| Err(absent()))
                .await
        {
            return open(directory, digest, chart);
        }
        let archive = if repo.oci {
            self.oci.pull(repo, chart, version, MAX_ARCHIVE).await?
        } else {
            self.download(repo, chart, version).await?
        };
        let digest = hex_sha256(&archive);
        let limits = self.limits;
        let directory = self
            .files
            .directory(&format!("chart-{digest}"), move |path| {
                archive::unpack(&archive, path, limits)
            })
            .await?;
        let mut digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        if digests.len() > 50_000 {
            digests.clear();
        }
        digests.insert(known, digest.clone());
        drop(digests);
        open(directory, digest, chart)
    }

    async fn download(&self, repo: &ChartRepo, chart: &str, version: &str) -> Result<Vec<u8>> {
        let index = self.index(repo, false).await?;
        let mut entry = find(&index, chart, version).cloned();
        if entry.is_none() {
            // The version may have been published since.
            let index = self.index(repo, true).await?;
            entry = find(&index, chart, version).cloned();
        }
        let Some(entry) = entry else {
            return Err(Error::Version {
                message: format!(
                    "chart \"{chart}\" version \"{version}\" not found in {} repository",
                    repo.shown()
                ),
            });
        };
        let base = format!("{}/", repo.url);
        let base = url::Url::parse(&base).map_err(|e| Error::Repository {
            url: repo.shown(),
            message: format!("the URL is not valid: {e}"),
        })?;
        let mut last = None;
        for location in &entry.urls {
            let Ok(location) = base.join(location) else {
                continue;
            };
            match self
                .http
                .get(
                    location.as_str(),
                    repo.owner(),
                    &repo.credentials,
                    repo.pass_credentials,
                    MAX_ARCHIVE,
                )
                .await
            {
                Ok(fetched) => {
                    let found = hex_sha256(&fetched.body);
                    if !entry.digest.is_empty() && entry.digest != found {
                        return Err(Error::Fetch {
                            attempted: "failed to verify",
                            url: crate::git::url::display(location.as_str()),
                            message: format!("its digest is {found}, the index says {}", entry.digest),
                        });
                    }
                    return Ok(fetched.body);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::Version {
            message: format!("chart \"{chart}\" has no usable URL"),
        }))
    }

    /// The index of a classic repository.
    ///
    /// # Errors
    /// As [`Http::get`]; [`Error::Manifest`] when it cannot be read.
    pub async fn index(&self, repo: &ChartRepo, fresh: bool) -> Result<Arc<Index>> {
        let asked = Instant::now();
        let cell = cell_of(&self.indexes, repo.key(""), self.ttl);
        let mut cached = cell.lock().await;
        if let Some((at, index)) = &*cached
            && (*at >= asked || !fresh && at.elapsed() < self.ttl)
        {
            return Ok(index.clone());
        }
        let started = Instant::now();
        let url = format!("{}/index.yaml", repo.url);
        let fetched = self
            .http
            .get(&url, repo.owner(), &repo.credentials, false, index::MAX_INDEX)
            .await?;
        let index = tokio::task::spawn_blocking(move || Index::parse(&fetched.body))
            .await
            .unwrap_or_else(|e| Err(Error::io("failed to read an index", e)))?;
        let index = Arc::new(index);
        *cached = Some((started, index.clone()));
        Ok(index)
    }

    /// The tags of a chart in a registry.
    ///
    /// # Errors
    /// [`Error::Fetch`], [`Error::Authentication`].
    pub async fn tags(&self, repo: &ChartRepo, chart: &str, fresh: bool) -> Result<Arc<Vec<String>>> {
        let asked = Instant::now();
        let cell = cell_of(&self.tags, repo.key(chart), self.ttl);
        let mut cached = cell.lock().await;
        if let Some((at, tags)) = &*cached
            && (*at >= asked || !fresh && at.elapsed() < self.ttl)
        {
            return Ok(tags.clone());
        }
        let started = Instant::now();
        let tags = Arc::new(self.oci.tags(repo, chart).await?);
        *cached = Some((started, tags.clone()));
        Ok(tags)
    }

    /// Fetches an OCI artifact that is no chart: one layer, unpacked, with the digest of its manifest.
    ///
    /// # Errors
    /// As [`Charts::fetch`].
    pub async fn artifact(
        &self,
        repo: &ChartRepo,
        revision: &str,
        fresh: bool,
    ) -> Result<(Arc<Directory>, String)> {
        let revision = if revision.is_empty() || revision == "HEAD" {
            "latest"
        } else {
            revision
        };
        let reference = if revision.starts_with("sha256:") || version::parse(revision).is_some() {
            revision.to_owned()
        } else if version::Constraint::parse(revision).is_some() {
            let tags = self.tags(repo, "", fresh).await?;
            version::select(revision, &tags).map_err(|message| Error::Version { message })?
        } else {
            revision.to_owned()
        };
        let asked = Instant::now();
        // Small, and what a digest says is never too old.
        let cell = cell_of(&self.artifacts, repo.key(&reference), Duration::MAX);
        let mut cached = cell.lock().await;
        let held = match &*cached {
            Some((at, artifact)) => {
                let directory = self.files.directory(&artifact.unpacked, |_| Err(absent())).await;
                directory.ok().map(|directory| (*at, artifact.clone(), directory))
            }
            None => None,
        };
        // A digest says the same for ever, a tag as long as anything that a registry says.
        if let Some((at, artifact, directory)) = &held
            && (reference.starts_with("sha256:") || *at >= asked || !fresh && at.elapsed() < self.ttl)
        {
            return Ok((directory.clone(), artifact.digest.clone()));
        }
        let started = Instant::now();
        let have = held.as_ref().map(|(_, artifact, _)| artifact.digest.as_str());
        let (archive, digest) = self.oci.artifact(repo, &reference, MAX_ARCHIVE, have).await?;
        if let (None, Some((_, artifact, directory))) = (&archive, held) {
            *cached = Some((started, artifact));
            return Ok((directory, digest));
        }
        let archive = archive.unwrap_or_default();
        let limits = self.limits;
        let unpacked = format!("oci-{}", hex_sha256(&archive));
        let directory = self
            .files
            .directory(&unpacked, move |path| archive::unpack(&archive, path, limits))
            .await?;
        *cached = Some((
            started,
            Artifact {
                digest: digest.clone(),
                unpacked,
            },
        ));
        Ok((directory, digest))
    }

    /// Whether a registry can be reached with its credentials.
    ///
    /// # Errors
    /// [`Error::Fetch`], [`Error::Authentication`].
    pub async fn ping(&self, repo: &ChartRepo) -> Result<()> {
        self.oci.ping(repo).await
    }

    /// Budgets of archives.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// What the manifest of an artifact says about it.
    ///
    /// # Errors
    /// As [`Charts::fetch`].
    pub(crate) async fn annotations(
        &self,
        repo: &ChartRepo,
        revision: &str,
    ) -> Result<BTreeMap<String, String>> {
        self.oci.annotations(repo, revision).await
    }

    /// Unpacked copies; shared with materialised trees.
    pub fn files(&self) -> &Arc<Materialiser> {
        &self.files
    }

    /// HTTP, for value files by URL.
    pub fn http(&self) -> &Arc<Http> {
        &self.http
    }
}

fn absent() -> Error {
    Error::io("failed to find an unpacked chart", "it was evicted")
}

fn find<'a>(index: &'a Index, chart: &str, version: &str) -> Option<&'a Entry> {
    let entries = index.versions(chart);
    let exact = entries.iter().find(|entry| entry.version == version);
    // `1.2.3` and `v1.2.3` are one version to Helm.
    exact.or_else(|| {
        let wanted = version::parse(version)?;
        entries
            .iter()
            .find(|entry| version::parse(&entry.version).is_some_and(|found| found == wanted))
    })
}

/// Finds the chart inside its archive: the directory of its name, or else the only one with a `Chart.yaml`.
fn open(directory: Arc<Directory>, digest: String, chart: &str) -> Result<Chart> {
    let root = directory.path();
    let name = chart.rsplit('/').next().unwrap_or(chart);
    let named = root.join(name);
    let path = if named.join("Chart.yaml").is_file() {
        named
    } else {
        let found = std::fs::read_dir(root)
            .map_err(|e| Error::io("failed to read an unpacked chart", e))?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.join("Chart.yaml").is_file());
        found.ok_or_else(|| Error::Source(format!("the archive of chart \"{chart}\" holds no Chart.yaml")))?
    };
    Ok(Chart {
        directory,
        path,
        digest,
    })
}

pub(crate) fn hex_sha256(data: &[u8]) -> String {
    hex(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, data).as_ref())
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let text = String::with_capacity(2 * bytes.len());
    bytes.iter().fold(text, |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A file name for any text.
pub(crate) fn key(text: &str) -> String {
    short_hash(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn answers_that_are_too_old_make_room_for_others() {
        let answers: Answers<u8> = Mutex::default();
        let of = |name: &str, ttl| cell_of(&answers, (name.to_owned(), String::new()), ttl);
        let known = || answers.lock().unwrap().len();
        *of("one", Duration::MAX).try_lock().unwrap() = Some((Instant::now(), 1));
        *of("two", Duration::MAX).try_lock().unwrap() = Some((Instant::now(), 2));
        assert_eq!(known(), 2);
        let waits = of("three", Duration::MAX);
        // For these all of the answers are too old; somebody waits for the third.
        assert!(of("four", Duration::ZERO).try_lock().unwrap().is_none());
        assert_eq!(known(), 2);
        drop(waits);
        let four = of("four", Duration::ZERO);
        *four.try_lock().unwrap() = Some((Instant::now(), 4));
        drop(four);
        assert!(of("five", Duration::MAX).try_lock().unwrap().is_none());
        assert_eq!(known(), 2);
    }
}
