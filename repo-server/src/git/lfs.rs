//! Git LFS: a file of a tree may be a pointer, which names the content by its digest; the content is asked of a server beside
//! the repository when the file is read, and kept by that digest in the repository's store. Of files that will be read together the
//! contents are asked for together.
//!
//! What is read is as much a function of the commit as any other file: the digest stands in the blob. An object is taken over
//! only if it has the digest and size of its pointer, whoever sent it.

use super::command::Command;
use super::{Access, Credentials, Repo, Scheme, TrustStore};
use crate::chart::hex_sha256;
use crate::egress::NamedBy;
use crate::error::{Error, Result};
use crate::http::{Call, Http};
use crate::metrics::Metrics;
use futures::{StreamExt as _, TryStreamExt as _};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// A pointer is smaller than this.
pub(super) const MAX_POINTER: usize = 1024;
/// Largest answer of a server about objects.
const MAX_ANSWER: u64 = 4 << 20;
/// Objects that are asked for in one request, as `git lfs` does it.
const BATCH: usize = 100;
/// Largest `.lfsconfig` that is read.
const MAX_CONFIG: u64 = 64 << 10;
/// So many objects of the process are on their way at the same time: each is held whole until it is stored.
static IN_FLIGHT: Semaphore = Semaphore::const_new(16);
/// And so many of one request.
const AT_ONCE: usize = 8;
/// The media type of the protocol.
const MEDIA_TYPE: &str = "application/vnd.git-lfs+json";

/// What a file says of the content that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    /// SHA-256 in lower-case hex.
    oid: String,
    pub(super) size: u64,
}

impl Pointer {
    /// Reads a file, if it is a pointer.
    fn parse(data: &[u8]) -> Option<Pointer> {
        if data.len() >= MAX_POINTER {
            return None;
        }
        let mut lines = std::str::from_utf8(data).ok()?.lines();
        if lines.next()? != "version https://git-lfs.github.com/spec/v1" {
            return None;
        }
        let (mut oid, mut size) = (None, None);
        for line in lines {
            match line.split_once(' ')? {
                ("oid", value) => oid = value.strip_prefix("sha256:"),
                ("size", value) => size = value.parse().ok(),
                _ => {}
            }
        }
        let oid =
            oid.filter(|oid| oid.len() == 64 && oid.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))?;
        Some(Pointer {
            oid: oid.to_owned(),
            size: size?,
        })
    }

    fn is_of(&self, data: &[u8]) -> bool {
        data.len() as u64 == self.size && hex_sha256(data) == self.oid
    }
}

/// The way to the objects of one repository, as somebody who may read it.
pub(super) struct Lfs {
    pub(super) repo: Arc<Repo>,
    pub(super) access: Access,
    /// Those of the access, ready to be shown: an app's token is bought.
    pub(super) credentials: Arc<Credentials>,
    pub(super) http: Arc<Http>,
    pub(super) trust: TrustStore,
    pub(super) scratch: PathBuf,
    /// How long all objects of the tree may take together.
    pub(super) deadline: Duration,
    /// When that is over; known once the first one is fetched.
    pub(super) until: OnceLock<tokio::time::Instant>,
    pub(super) metrics: Metrics,
    /// `lfs.url` of the tree's `.lfsconfig`.
    pub(super) configured: Option<String>,
}

/// Where objects are asked for, and with what.
struct Endpoint {
    url: String,
    /// Headers that the server wants to see.
    headers: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Authenticated {
    href: String,
    #[serde(default)]
    header: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Batch {
    objects: Vec<Object>,
}

#[derive(Deserialize)]
struct Object {
    oid: String,
    #[serde(default)]
    actions: Option<Actions>,
    #[serde(default)]
    error: Option<Refused>,
}

#[derive(Deserialize)]
struct Actions {
    download: Option<Authenticated>,
}

#[derive(Deserialize)]
struct Refused {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
}

impl Lfs {
    /// The content of a file: what its pointer stands for, or itself if it is none. Waits for the network where the object is not
    /// in the store, on a thread that may.
    pub(super) fn content(&self, data: Vec<u8>, limit: u64, shown: &str) -> Result<Vec<u8>> {
        let Some(pointer) = Pointer::parse(&data) else {
            return Ok(data);
        };
        if pointer.size > limit {
            return Err(Error::Limit {
                which: format!("size of {shown}"),
                limit: format!("{limit} bytes"),
            });
        }
        let path = self.path(&pointer);
        match std::fs::read(&path) {
            Ok(data) if pointer.is_of(&data) => return Ok(data),
            Ok(_) => tracing::warn!(
                repo = self.repo.url,
                oid = pointer.oid,
                "a stored LFS object is damaged"
            ),
            Err(_) => {}
        }
        let handle = tokio::runtime::Handle::try_current()
            .map_err(|error| Error::io(format!("failed to get the LFS object of {shown}"), error))?;
        let fetched = tokio::task::block_in_place(|| handle.block_on(self.fetch(&pointer)));
        let data = fetched.map_err(|error| about(error, shown, &pointer))?;
        if !pointer.is_of(&data) {
            return Err(about(
                self.failed("what the server sent has another digest or size".into()),
                shown,
                &pointer,
            ));
        }
        self.keep(&path, &data)?;
        Ok(data)
    }

    fn path(&self, pointer: &Pointer) -> PathBuf {
        let oid = &pointer.oid;
        self.repo.dir.join("lfs").join(&oid[..2]).join(oid)
    }

    /// Whole under its final name, or not at all.
    fn keep(&self, path: &Path, data: &[u8]) -> Result<()> {
        use std::io::Write as _;
        let failed = |e: std::io::Error| Error::io("failed to store an LFS object", e);
        let Some(dir) = path.parent() else { return Ok(()) };
        std::fs::create_dir_all(dir).map_err(failed)?;
        let mut file = tempfile::Builder::new()
            .prefix(".tmp-")
            .tempfile_in(dir)
            .map_err(failed)?;
        file.write_all(data).map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        self.repo.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The pointer that a file is, if what it stands for is not here yet.
    pub(super) fn missing(&self, data: &[u8]) -> Option<Pointer> {
        Pointer::parse(data).filter(|pointer| !self.path(pointer).exists())
    }

    /// Gets many objects that will be read. One that cannot be had is left to whoever reads its file: he can say which it is.
    pub(super) fn gather(&self, mut pointers: Vec<Pointer>) {
        pointers.sort_by(|a, b| a.oid.cmp(&b.oid));
        pointers.dedup();
        let Ok(handle) = tokio::runtime::Handle::try_current() else {
            return;
        };
        // A single one is asked for as well when it is read.
        for pointers in pointers.chunks(BATCH).filter(|pointers| pointers.len() > 1) {
            let gathered =
                tokio::task::block_in_place(|| handle.block_on(self.in_time(self.batch(pointers))));
            if let Err(error) = gathered {
                tracing::debug!(repo = self.repo.url, %error, "getting LFS objects ahead of their files failed");
                return;
            }
        }
    }

    async fn batch(&self, pointers: &[Pointer]) -> Result<()> {
        let objects = self.ask(pointers).await?;
        let downloads = pointers.iter().filter_map(|pointer| {
            let object = objects.iter().find(|object| object.oid == pointer.oid)?;
            Some(async move {
                let data = self.download(pointer, object).await?;
                if pointer.is_of(&data) {
                    self.keep(&self.path(pointer), &data)?;
                }
                Ok::<(), Error>(())
            })
        });
        let all = futures::stream::iter(downloads).buffer_unordered(AT_ONCE);
        all.try_collect().await
    }

    async fn fetch(&self, pointer: &Pointer) -> Result<Vec<u8>> {
        self.in_time(async {
            let objects = self.ask(std::slice::from_ref(pointer)).await?;
            let object = objects.iter().find(|object| object.oid == pointer.oid);
            let object = object.ok_or_else(|| self.failed("the answer does not speak of it".into()))?;
            self.download(pointer, object).await
        })
        .await
    }

    /// Talks to servers as long as the objects of the tree have time.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let started = Instant::now();
        let until = self
            .until
            .get_or_init(|| tokio::time::Instant::now() + self.deadline);
        let done = tokio::time::timeout_at(*until, work).await;
        let done = done.unwrap_or_else(|_| {
            let after = self.deadline.as_secs();
            Err(self.failed(format!("the LFS objects of the tree took longer than {after} s")))
        });
        let url = self.access.url.normal();
        self.metrics.git_request(url, "lfs", started.elapsed());
        if done.is_err() {
            self.metrics.git_failed(url, "fetch");
        }
        done
    }

    /// Asks where objects are.
    async fn ask(&self, pointers: &[Pointer]) -> Result<Vec<Object>> {
        let endpoint = self.endpoint().await?;
        let objects = pointers
            .iter()
            .map(|pointer| serde_json::json!({"oid": pointer.oid, "size": pointer.size}));
        let question = serde_json::json!({
            "operation": "download",
            "transfers": ["basic"],
            "hash_algo": "sha256",
            "objects": objects.collect::<Vec<_>>(),
        });
        let answer = self
            .http
            .call(Call {
                owner: &self.owner(),
                credentials: &self.credentials,
                headers: &endpoint.headers,
                post: Some((MEDIA_TYPE, question.to_string())),
                limit: MAX_ANSWER,
                ..Call::to(&format!("{}/objects/batch", endpoint.url))
            })
            .await?;
        let batch: Batch = serde_json::from_slice(&answer.body)
            .map_err(|error| self.failed(format!("the answer about it cannot be read: {error}")))?;
        Ok(batch.objects)
    }

    async fn download(&self, pointer: &Pointer, object: &Object) -> Result<Vec<u8>> {
        if let Some(refused) = &object.error {
            return Err(self.failed(format!(
                "the server refused it: {} ({})",
                refused.message, refused.code
            )));
        }
        let download = object
            .actions
            .as_ref()
            .and_then(|actions| actions.download.as_ref());
        let Some(download) = download else {
            return Err(self.failed("the server does not say where it is".into()));
        };
        // Never closed, so that this is a place.
        let _place = IN_FLIGHT.acquire().await;
        let answer = self
            .http
            .call(Call {
                owner: &self.owner(),
                credentials: &self.credentials,
                headers: &download.header,
                limit: pointer.size,
                ..Call::to(&download.href)
            })
            .await;
        match answer {
            Ok(answer) => Ok(answer.body),
            Err(Error::Limit { .. }) => {
                Err(self.failed(format!("the server sent more than {} bytes", pointer.size)))
            }
            Err(error) => Err(error),
        }
    }

    /// The repository for which the credentials are, as HTTP knows it; over SSH there are none for HTTP, nor is there a right to
    /// an inner address where content names the repository.
    fn owner(&self) -> String {
        match self.access.url.scheme() {
            _ if self.access.named_by == NamedBy::Content => String::new(),
            Scheme::Ssh => format!("ssh-host://{}", self.access.url.host()),
            _ => self.access.url.as_fetch().to_owned(),
        }
    }

    async fn endpoint(&self) -> Result<Endpoint> {
        if let Some(url) = &self.configured {
            return Ok(Endpoint {
                url: url.trim_end_matches('/').to_owned(),
                headers: BTreeMap::new(),
            });
        }
        let fetch = self.access.url.as_fetch();
        match self.access.url.scheme() {
            Scheme::Http | Scheme::Https => {
                let repository = fetch.trim_end_matches('/');
                let suffix = if repository.ends_with(".git") { "" } else { ".git" };
                Ok(Endpoint {
                    url: format!("{repository}{suffix}/info/lfs"),
                    headers: BTreeMap::new(),
                })
            }
            Scheme::Ssh => self.authenticate(fetch).await,
            Scheme::File => {
                Err(self.failed("a repository that is a directory has no server for them".into()))
            }
        }
    }

    /// Asks the host of an SSH repository where its objects are and what to show there.
    async fn authenticate(&self, fetch: &str) -> Result<Endpoint> {
        let url = &self.access.url;
        let (user_host, path) = match fetch.strip_prefix("ssh://") {
            Some(rest) => rest
                .split_once('/')
                .map(|(host, path)| (host, format!("/{path}"))),
            None => fetch.split_once(':').map(|(host, path)| (host, path.to_owned())),
        }
        .ok_or_else(|| self.failed("the URL has no path".into()))?;
        let host = user_host.rsplit_once(':').map_or(user_host, |(host, _)| host);
        let egress = self.http.egress();
        let addresses = egress
            .resolve(url.host(), url.port(), self.access.named_by)
            .await?;
        let command = Command {
            scratch: &self.scratch,
            git_dir: None,
            url: Some(url),
            addresses: &addresses,
            credentials: &self.credentials,
            trust: &self.trust,
            patience: self.http.patience(),
            deadline: self.deadline,
            attempted: "failed to ask for the LFS server of",
        };
        let question = format!(
            "git-lfs-authenticate {} download",
            super::credential::shell_quote(&path)
        );
        let answer = command.ssh(url.port(), host, &question).await?;
        let answer: Authenticated = serde_json::from_slice(&answer).map_err(|error| {
            self.failed(format!("git-lfs-authenticate said what cannot be read: {error}"))
        })?;
        Ok(Endpoint {
            url: answer.href.trim_end_matches('/').to_owned(),
            headers: answer.header,
        })
    }

    fn failed(&self, message: String) -> Error {
        Error::Fetch {
            attempted: "failed to get from",
            url: self.access.url.normal().to_owned(),
            message,
        }
    }
}

/// Says of which file and object an error is.
fn about(error: Error, shown: &str, pointer: &Pointer) -> Error {
    let what = format!("{shown}, LFS object {}", pointer.oid);
    match error {
        Error::Fetch {
            attempted,
            url,
            message,
        } => Error::Fetch {
            attempted,
            url,
            message: format!("{what}: {message}"),
        },
        Error::Authentication { url, message } => Error::Authentication {
            url,
            message: format!("{what}: {message}"),
        },
        Error::Repository { url, message } => Error::Repository {
            url,
            message: format!("{what}: {message}"),
        },
        other => other,
    }
}

/// `lfs.url` of a `.lfsconfig`: the one key of it that may come with a repository.
pub(super) fn configured(text: &str) -> Option<String> {
    let (mut inside, mut url) = (false, None);
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line.eq_ignore_ascii_case("[lfs]");
        } else if inside
            && let Some((key, value)) = line.split_once('=')
            && key.trim().eq_ignore_ascii_case("url")
        {
            url = Some(value.trim().trim_matches('"').to_owned());
        }
    }
    url.filter(|url| !url.is_empty())
}

/// Bytes of the objects in a store.
pub(super) fn bytes(dir: &Path) -> u64 {
    let folders = std::fs::read_dir(dir.join("lfs")).into_iter().flatten().flatten();
    folders
        .filter_map(|folder| std::fs::read_dir(folder.path()).ok())
        .flat_map(|files| files.flatten())
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum()
}

/// The largest `.lfsconfig`, and where it is.
pub(super) const CONFIG: (&str, u64) = (".lfsconfig", MAX_CONFIG);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_known_and_everything_else_is_itself() {
        let oid = "a".repeat(64);
        let text = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 12\n");
        assert_eq!(
            Pointer::parse(text.as_bytes()),
            Some(Pointer {
                oid: oid.clone(),
                size: 12
            })
        );
        let extended = text.replace("oid", "ext-0-x sha256:b\noid");
        assert!(Pointer::parse(extended.as_bytes()).is_some());
        for other in [
            String::new(),
            "kind: ConfigMap\n".to_owned(),
            text.replace("size 12", "size many"),
            text.replace("sha256:a", "sha256:A"),
            text.replace("sha256:", "sha256:../"),
            format!("{text}{}", "x".repeat(MAX_POINTER)),
        ] {
            assert_eq!(Pointer::parse(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_repository_may_name_its_server() {
        let text = "[core]\n\turl = no\n[lfs]\n\tfetchexclude = x\n\turl = https://lfs.example.com/org/app\n";
        assert_eq!(
            configured(text).as_deref(),
            Some("https://lfs.example.com/org/app")
        );
        assert_eq!(configured("[lfs]\n"), None);
    }
}
