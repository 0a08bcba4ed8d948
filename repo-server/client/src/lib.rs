//! The client of the repo-server: one for the whole process, used by whoever needs manifests.
//!
//! All addresses behind the configured name are known; a repository goes to the same replica while that is well
//! and not busier than the others ([`ring`]), else to the next; one that takes much of the calls is spread over several
//! ([`traffic`]). Calls for the same at the same time go to the same replica, which answers them with one render. What did
//! not reach a replica, or found it with too much to do, is tried with the next, within a [`budget`]; where all have too much to do it
//! is tried once they said that it may be, if the caller's time allows. The wire is Argo CD's, so either end may be theirs.

mod budget;
mod channel;
mod flags;
mod pool;
mod ring;
mod tls;
mod traffic;

use std::sync::Arc;
use std::time::Duration;

use argosy_api::repository::manifest_request_with_files::Part;
use argosy_api::repository::repo_server_service_client::RepoServerServiceClient;
use argosy_api::repository::{
    AppList, GitDirectoriesRequest, GitDirectoriesResponse, GitFilesRequest, GitFilesResponse,
    HelmChartsRequest, HelmChartsResponse, ListAppsRequest, ListRefsRequest, ManifestFileChunk,
    ManifestFileMetadata, ManifestRequest, ManifestRequestWithFiles, ManifestResponse, PluginList,
    RETRY_AFTER, Refs, RepoAppDetailsResponse, RepoServerAppDetailsQuery,
    RepoServerRevisionChartDetailsRequest, RepoServerRevisionMetadataRequest, ResolveRevisionRequest,
    ResolveRevisionResponse, TestRepositoryRequest, TestRepositoryResponse, UpdateRevisionForPathsRequest,
    UpdateRevisionForPathsResponse,
};
use argosy_api::v1alpha1::{ApplicationSource, ChartDetails, OciMetadata, Repository, RevisionMetadata};
use argosy_runtime::dial::Dial;
use pool::About;
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};

pub use channel::connect;
pub use flags::Flags;
pub use pool::{Pool, Replica};
pub use tls::Tls;

/// So much longer than we wait a replica is told that we do: it shall not be the one to give up.
const MARGIN: Duration = Duration::from_secs(1);
/// Bytes of one chunk of files that are sent along.
const CHUNK: usize = 64 << 10;

/// Where replicas are that are ready, as somebody knows who follows them; nothing before he knows.
pub type Told = tokio::sync::watch::Receiver<Option<Vec<std::net::SocketAddr>>>;

/// How to reach the repo-server.
#[derive(Clone, Debug)]
pub struct Config {
    /// `host:port`; the host may stand for several replicas. Several, separated by commas, are replicas of the same.
    pub address: String,
    /// Transport security.
    pub tls: Tls,
    /// Addresses that somebody tells, instead of those that the name stands for, once he does.
    pub told: Option<Told>,
    /// Deadline of one call.
    pub timeout: Duration,
    /// Largest message either way, in bytes.
    pub max_message: usize,
    /// How connections are made, if not by TCP.
    pub dial: Option<Dial>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            address: "argocd-repo-server:8081".into(),
            tls: Tls::default(),
            told: None,
            timeout: Duration::from_secs(60),
            max_message: 100 << 20,
            dial: None,
        }
    }
}

/// Whose turn it is after a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The same call may succeed after this long.
    Retry {
        /// How long to wait.
        after: Duration,
    },
    /// A person has to change the source, the repository or a credential.
    Stalled,
    /// The two ends do not understand each other.
    Bug,
}

/// Why a call gave no answer.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The client is configured in a way that cannot work.
    #[error("configure the repo-server client: {0}")]
    Config(String),
    /// No replica could be reached.
    #[error("connect to the repo-server at {address}: {message}")]
    Connect {
        /// Where it should be.
        address: String,
        /// What the network said.
        message: String,
    },
    /// The call was refused or failed. The text is the repo-server's alone, for conditions.
    #[error("rpc error: code = {code:?} desc = {message}")]
    Call {
        /// The status of the call.
        code: Code,
        /// The repo-server's words.
        message: String,
        /// After how long the same call may succeed, if the repo-server says so.
        retry_after: Option<Duration>,
    },
}

impl Error {
    /// Whose turn it is.
    pub fn class(&self) -> Class {
        let retry = |seconds| Class::Retry {
            after: Duration::from_secs(seconds),
        };
        match self {
            Error::Config(_) => Class::Bug,
            Error::Connect { .. } => retry(5),
            Error::Call {
                retry_after: Some(after),
                ..
            } => Class::Retry { after: *after },
            Error::Call { code, .. } => match code {
                // Not known is who has no certificate yet, or whose authority the other side has not: it is never about the source.
                Code::Unavailable | Code::Aborted | Code::Cancelled | Code::Unauthenticated => retry(10),
                Code::ResourceExhausted | Code::DeadlineExceeded => retry(30),
                Code::Unimplemented | Code::DataLoss => Class::Bug,
                // A stock repo-server answers everything with Unknown, most of it about the source.
                _ => Class::Stalled,
            },
        }
    }

    /// The repo-server's words, or the whole error if it did not speak.
    pub fn message(&self) -> String {
        match self {
            Error::Call { message, .. } => message.clone(),
            other => other.to_string(),
        }
    }
}

/// The client. Clones share their connections.
#[derive(Clone)]
pub struct RepoClient {
    pool: Arc<pool::Pool>,
    max_message: usize,
    timeout: Duration,
}

impl RepoClient {
    /// Connects at the first call, not now.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn new(config: Config) -> Result<RepoClient, Error> {
        Ok(RepoClient {
            pool: Arc::new(pool::Pool::new(&config)?),
            max_message: config.max_message,
            timeout: config.timeout,
        })
    }

    /// Manifests of one source.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn generate_manifest(&self, mut request: ManifestRequest) -> Result<ManifestResponse, Error> {
        let mut key =
            Key::of(request.repo.as_ref()).part(&request.app_name, request.application_source.as_ref());
        // What the caller has already does not change what is rendered.
        let known = std::mem::take(&mut request.known_digest);
        key.digest = Some(digest(&request));
        request.known_digest = known;
        self.call(&key, request, async |mut client, request| {
            client.generate_manifest(request).await
        })
        .await
    }

    /// Manifests of files that are sent along: a `.tgz`, whose folder `path` of the source is rendered.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn generate_manifest_with_files(
        &self,
        request: ManifestRequest,
        archive: Vec<u8>,
        checksum: String,
    ) -> Result<ManifestResponse, Error> {
        let key = Key::of(request.repo.as_ref()).part(&request.app_name, request.application_source.as_ref());
        let metadata = ManifestFileMetadata {
            size: i64::try_from(archive.len()).unwrap_or(i64::MAX),
            checksum,
        };
        let parts: Vec<ManifestRequestWithFiles> = [Part::Request(request.clone()), Part::Metadata(metadata)]
            .into_iter()
            .chain(archive.chunks(CHUNK).map(|chunk| {
                Part::Chunk(ManifestFileChunk {
                    chunk: chunk.to_vec(),
                })
            }))
            .map(|part| ManifestRequestWithFiles { part: Some(part) })
            .collect();
        // A closure that gives a future of its own: what an async closure borrows keeps callers from being Send.
        self.call(
            &key,
            request,
            move |mut client: RepoServerServiceClient<tonic::transport::Channel>,
                  request: Request<ManifestRequest>| {
                let parts = tokio_stream::iter(parts.clone());
                let request = request.map(|_| parts);
                async move { client.generate_manifest_with_files(request).await }
            },
        )
        .await
    }

    /// What the manifest of an OCI artifact says about it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get_oci_metadata(
        &self,
        request: RepoServerRevisionChartDetailsRequest,
    ) -> Result<OciMetadata, Error> {
        let key = Key::of(request.repo.as_ref());
        self.call(&key, request, async |mut client, request| {
            client.get_oci_metadata(request).await
        })
        .await
    }

    /// The commit or version that a revision means.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn resolve_revision(
        &self,
        request: ResolveRevisionRequest,
    ) -> Result<ResolveRevisionResponse, Error> {
        let key = Key::of(request.repo.as_ref());
        self.call(&key, request, async |mut client, request| {
            client.resolve_revision(request).await
        })
        .await
    }

    /// Author, date and message of a commit.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get_revision_metadata(
        &self,
        request: RepoServerRevisionMetadataRequest,
    ) -> Result<RevisionMetadata, Error> {
        let key = Key::of(request.repo.as_ref());
        self.call(&key, request, async |mut client, request| {
            client.get_revision_metadata(request).await
        })
        .await
    }

    /// Description and maintainers of a chart.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get_revision_chart_details(
        &self,
        request: RepoServerRevisionChartDetailsRequest,
    ) -> Result<ChartDetails, Error> {
        let key = Key::of(request.repo.as_ref());
        self.call(&key, request, async |mut client, request| {
            client.get_revision_chart_details(request).await
        })
        .await
    }

    /// What the tool of a source can be told.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get_app_details(
        &self,
        request: RepoServerAppDetailsQuery,
    ) -> Result<RepoAppDetailsResponse, Error> {
        let key = Key::of(request.repo.as_ref()).part(&request.app_name, request.source.as_ref());
        self.call(&key, request, async |mut client, request| {
            client.get_app_details(request).await
        })
        .await
    }

    /// Directories that could be sources, with their types.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_apps(&self, request: ListAppsRequest) -> Result<AppList, Error> {
        let key = Key::of(request.repo.as_ref());
        self.call(&key, request, async |mut client, request| {
            client.list_apps(request).await
        })
        .await
    }

    /// The names of the config management plugins.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_plugins(&self) -> Result<PluginList, Error> {
        // Any replica has the same sidecars.
        self.call(&Key::of(None), (), async |mut client, request| {
            client.list_plugins(request).await
        })
        .await
    }

    /// Branches and tags.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_refs(&self, request: ListRefsRequest) -> Result<Refs, Error> {
        let key = Key::of(request.repo.as_ref());
        self.call(&key, request, async |mut client, request| {
            client.list_refs(request).await
        })
        .await
    }

    /// The tags of an OCI repository.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_oci_tags(&self, request: ListRefsRequest) -> Result<Refs, Error> {
        let key = Key::of(request.repo.as_ref());
        self.call(&key, request, async |mut client, request| {
            client.list_oci_tags(request).await
        })
        .await
    }

    /// Whether a repository can be read with these credentials.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn test_repository(
        &self,
        request: TestRepositoryRequest,
    ) -> Result<TestRepositoryResponse, Error> {
        let key = Key::of(request.repo.as_ref());
        self.call(&key, request, async |mut client, request| {
            client.test_repository(request).await
        })
        .await
    }

    /// Charts of a Helm repository with their versions.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get_helm_charts(&self, request: HelmChartsRequest) -> Result<HelmChartsResponse, Error> {
        let key = Key::of(request.repo.as_ref());
        self.call(&key, request, async |mut client, request| {
            client.get_helm_charts(request).await
        })
        .await
    }

    /// Files of a repository that match a pattern.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get_git_files(&self, request: GitFilesRequest) -> Result<GitFilesResponse, Error> {
        let key = Key::of(request.repo.as_ref());
        self.call(&key, request, async |mut client, request| {
            client.get_git_files(request).await
        })
        .await
    }

    /// Directories of a repository.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get_git_directories(
        &self,
        request: GitDirectoriesRequest,
    ) -> Result<GitDirectoriesResponse, Error> {
        let key = Key::of(request.repo.as_ref());
        self.call(&key, request, async |mut client, request| {
            client.get_git_directories(request).await
        })
        .await
    }

    /// Whether anything under some paths changed between two revisions.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn update_revision_for_paths(
        &self,
        request: UpdateRevisionForPathsRequest,
    ) -> Result<UpdateRevisionForPathsResponse, Error> {
        let key = Key::of(request.repo.as_ref());
        self.call(&key, request, async |mut client, request| {
            client.update_revision_for_paths(request).await
        })
        .await
    }

    /// Asks the best replica; goes on to the next one only when a replica could not be asked at all, or has too much to do.
    async fn call<Q: Clone + prost::Message, R>(
        &self,
        key: &Key,
        request: Q,
        ask: impl AsyncFn(
            RepoServerServiceClient<tonic::transport::Channel>,
            Request<Q>,
        ) -> Result<Response<R>, Status>,
    ) -> Result<R, Error> {
        let until = Instant::now() + self.timeout;
        let about = About {
            repo: &key.repo,
            part: &key.part,
            digest: key.digest.unwrap_or_else(|| digest(&request)),
        };
        // Boxed, here and below: messages may hold a whole Application, and each future that is not holds several of them.
        let all = Box::pin(async {
            let (mut tried, mut last, mut wait) = (Vec::new(), None, None);
            loop {
                let Some(replica) = self.pool.choose(&about, &tried).await? else {
                    // All have been asked. Who has too much to do says when to come back.
                    let pause = wait.take().map(|wait| apart(wait, &about.digest));
                    let in_time = pause.filter(|pause| Instant::now() + *pause * 2 < until);
                    match in_time {
                        Some(pause) if self.pool.may_retry() => {
                            tokio::time::sleep(pause).await;
                            tried.clear();
                            continue;
                        }
                        _ => break,
                    }
                };
                let client = RepoServerServiceClient::new(replica.channel.clone())
                    .max_decoding_message_size(self.max_message)
                    .max_encoding_message_size(self.max_message);
                let mut request = Request::new(request.clone());
                request.set_timeout(until.saturating_duration_since(Instant::now()) + MARGIN);
                let status = match Box::pin(ask(client, request)).await {
                    Ok(answer) => return Ok(answer.into_inner()),
                    Err(status) => status,
                };
                let retry_after = retry_after(&status);
                if unreachable(&status) {
                    self.pool.suspect(replica.address);
                    last = Some(Error::Connect {
                        address: replica.address.to_string(),
                        message: text(&status),
                    });
                } else {
                    let error = Error::Call {
                        code: status.code(),
                        message: text(&status),
                        retry_after,
                    };
                    match retry_after {
                        Some(after) if status.code() == Code::ResourceExhausted => {
                            wait = Some(wait.unwrap_or(after).min(after));
                            last = Some(error);
                        }
                        _ => return Err(error),
                    }
                }
                tried.push(replica.address);
            }
            Err(last.unwrap_or_else(|| Error::Connect {
                address: String::new(),
                message: "there is no replica".into(),
            }))
        });
        // The deadline is the caller's, however many replicas were asked within it.
        tokio::time::timeout(self.timeout, all).await.unwrap_or_else(|_| {
            let message = format!("no answer within {} s", self.timeout.as_secs());
            Err(Error::Call {
                code: Code::DeadlineExceeded,
                message,
                retry_after: None,
            })
        })
    }
}

/// What of what a call is about.
struct Key {
    repo: String,
    part: String,
    /// Of what the answer follows from, if that is not the whole request.
    digest: Option<[u8; 32]>,
}

fn digest(request: &impl prost::Message) -> [u8; 32] {
    *blake3::hash(&request.encode_to_vec()).as_bytes()
}

impl Key {
    fn of(repo: Option<&Repository>) -> Key {
        Key {
            repo: repo.map(|repo| repo.repo.clone()).unwrap_or_default(),
            part: String::new(),
            digest: None,
        }
    }

    fn part(self, app: &str, source: Option<&ApplicationSource>) -> Key {
        let (path, chart) = source.map_or(("", ""), |source| (&source.path, &source.chart));
        Key {
            part: format!("{app}\0{path}\0{chart}"),
            ..self
        }
    }
}

/// After how long the same call may succeed, as a replica says.
fn retry_after(status: &Status) -> Option<Duration> {
    let text = status.metadata().get(RETRY_AFTER)?.to_str().ok()?;
    text.parse().ok().map(Duration::from_millis)
}

/// A wait, longer by up to a half, for each request by another part of it: who is sent away together shall not come back together.
fn apart(wait: Duration, digest: &[u8; 32]) -> Duration {
    wait + wait.mul_f64(f64::from(digest[0]) / 510.0)
}

/// Whether a call never arrived, or its replica is on its way out: another one may be asked, for all calls only read.
fn unreachable(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable => true,
        // Said on this side, of a connection that closed or broke at that moment; a replica's own word has no cause behind it.
        Code::Cancelled | Code::Internal | Code::Unknown => std::error::Error::source(status).is_some(),
        _ => false,
    }
}

/// A status with the causes that the transport hides behind it.
fn text(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn send<T: Send>(future: T) -> T {
        future
    }

    #[test]
    fn a_call_that_its_connection_took_along_may_go_to_another_replica() {
        assert!(unreachable(&Status::unavailable("going away")));
        for mut closed in [
            Status::cancelled("operation was canceled"),
            Status::internal("h2 protocol error: http2 error"),
            Status::unknown("transport error"),
        ] {
            assert!(!unreachable(&closed), "the replica's own word: {closed}");
            closed.set_source(Arc::new(std::io::Error::from(
                std::io::ErrorKind::ConnectionReset,
            )));
            assert!(unreachable(&closed), "{closed}");
        }
        assert!(!unreachable(&Status::deadline_exceeded("")));
    }

    #[test]
    fn who_is_not_known_yet_tries_again() {
        let said = |code| Error::Call {
            code,
            message: String::new(),
            retry_after: None,
        };
        assert!(matches!(said(Code::Unauthenticated).class(), Class::Retry { .. }));
        assert!(matches!(said(Code::Unknown).class(), Class::Stalled));
    }

    #[test]
    fn a_replicas_word_on_when_to_come_back_is_kept_and_callers_come_back_apart() {
        let mut status = Status::aborted("the host asks for patience");
        assert_eq!(retry_after(&status), None);
        status.metadata_mut().insert(RETRY_AFTER, 90_000_u64.into());
        let after = retry_after(&status);
        assert_eq!(after, Some(Duration::from_secs(90)));
        let error = Error::Call {
            code: status.code(),
            message: String::new(),
            retry_after: after,
        };
        assert_eq!(
            error.class(),
            Class::Retry {
                after: Duration::from_secs(90)
            }
        );
        let second = Duration::from_secs(1);
        assert_eq!(apart(second, &[0; 32]), second);
        assert_eq!(apart(second, &[255; 32]), second * 3 / 2);
    }

    #[tokio::test]
    async fn a_name_that_cannot_be_reached_is_for_a_later_try() {
        let config = Config {
            address: "127.0.0.1:1".into(),
            tls: Tls::Plaintext,
            ..Config::default()
        };
        let client = RepoClient::new(config).unwrap();
        let error = send(client.generate_manifest(ManifestRequest::default()))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Connect { .. }), "{error}");
        assert!(matches!(error.class(), Class::Retry { .. }));
        assert!(
            RepoClient::new(Config {
                address: "no-port".into(),
                ..Config::default()
            })
            .is_err()
        );
    }
}
