//! The calls of one plugin: over its socket, with a deadline and a budget for the answer.

use super::archive::Packed;
use crate::error::{Error, Result};
use crate::path::TreePath;
use argosy_api::services::plugin::app_stream_request::Request as Part;
use argosy_api::services::plugin::config_management_plugin_service_client::ConfigManagementPluginServiceClient;
use argosy_api::services::plugin::{AppStreamRequest, EnvEntry, File as Chunk, ManifestRequestMetadata};
use argosy_api::services::repository::ParameterAnnouncement;
use hyper_util::rt::TokioIo;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

/// Bytes of the archive in one message.
const CHUNK: usize = 64 << 10;

/// What of a plugin's configuration matters to who asks it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Configuration {
    /// Whether it says which directories are its own.
    pub(super) discovers: bool,
    /// Whether it wants to know how to reach the repository.
    pub(super) git_credentials: bool,
}

/// The files of one call, and what goes with them.
pub(super) struct Files {
    pub(super) packed: Arc<Packed>,
    pub(super) path: TreePath,
    pub(super) env: Vec<EnvEntry>,
}

/// A plugin, by its socket.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    /// The name that Applications call it by.
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) deadline: Duration,
    pub(super) max_output: usize,
}

impl Socket {
    fn client(&self) -> ConfigManagementPluginServiceClient<Channel> {
        let path = self.path.clone();
        // The name is never looked up: the connector knows where to go.
        let channel = Endpoint::from_static("http://plugin")
            .connect_with_connector_lazy(tower::service_fn(move |_: http::Uri| connect(path.clone())));
        ConfigManagementPluginServiceClient::new(channel)
            .max_decoding_message_size(self.max_output)
            .max_encoding_message_size(self.max_output)
    }

    pub(super) async fn configuration(&self) -> Result<Configuration> {
        let outcome = self.bounded(self.client().check_plugin_configuration(())).await?;
        match outcome {
            Ok(answer) => Ok(Configuration {
                discovers: answer.is_discovery_configured,
                git_credentials: answer.provide_git_creds,
            }),
            // Of before Argo CD 2.6, when discovery was asked for by trying.
            Err(status) if status.code() == Code::Unimplemented => Ok(Configuration {
                discovers: true,
                git_credentials: false,
            }),
            Err(status) => Err(self.unreachable(&status)),
        }
    }

    /// Whether a plugin takes a directory, or what it says went wrong; it does not take it then.
    pub(super) async fn matches(&self, files: Files) -> Result<Result<bool, Status>> {
        let call = self.request(files);
        let outcome = self.bounded(self.client().match_repository(call)).await?;
        self.told(outcome)
            .map(|told| told.map(|answer| answer.is_supported))
    }

    /// The manifests, or what the plugin says went wrong.
    pub(super) async fn generate(&self, files: Files) -> Result<Result<Vec<String>, Status>> {
        let call = self.request(files);
        let outcome = self.bounded(self.client().generate_manifest(call)).await?;
        self.told(outcome).map(|told| told.map(|answer| answer.manifests))
    }

    /// The parameters that it takes, or what the plugin says went wrong.
    pub(super) async fn announce(&self, files: Files) -> Result<Result<Vec<ParameterAnnouncement>, Status>> {
        let call = self.request(files);
        let outcome = self
            .bounded(self.client().get_parameters_announcement(call))
            .await?;
        self.told(outcome)
            .map(|told| told.map(|answer| answer.parameter_announcements))
    }

    /// Takes apart what the plugin said and what kept it from saying anything.
    fn told<T>(&self, outcome: Result<T, Status>) -> Result<Result<T, Status>> {
        match outcome {
            Err(status) if status.code() == Code::Unavailable => Err(self.unreachable(&status)),
            Err(status) if status.code() == Code::OutOfRange => Err(Error::Limit {
                which: format!("output of the config management plugin {}", self.name),
                limit: format!("{} bytes", self.max_output),
            }),
            told => Ok(told),
        }
    }

    /// Waits a little longer than the plugin is told that we do, so that it can say what took so long.
    async fn bounded<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<Result<T, Status>> {
        let late = || Error::Deadline {
            what: format!("the config management plugin {}", self.name),
            after: self.deadline,
        };
        match tokio::time::timeout(self.deadline + Duration::from_secs(1), call).await {
            Ok(Err(status)) if status.code() == Code::DeadlineExceeded => Err(late()),
            // By our own end of the connection.
            Ok(Err(status)) if status.code() == Code::Cancelled => Err(late()),
            Ok(outcome) => Ok(outcome.map(Response::into_inner)),
            Err(_) => Err(late()),
        }
    }

    fn unreachable(&self, status: &Status) -> Error {
        let attempted = format!("failed to ask the config management plugin {}", self.name);
        Error::io(attempted, crate::http::chain(status))
    }

    fn request(
        &self,
        files: Files,
    ) -> Request<impl tokio_stream::Stream<Item = AppStreamRequest> + Send + 'static> {
        let Files { packed, path, env } = files;
        let metadata = ManifestRequestMetadata {
            app_name: path.file_name().to_owned(),
            app_rel_path: if path.is_root() {
                ".".into()
            } else {
                path.to_string()
            },
            checksum: packed.checksum.clone(),
            size: i64::try_from(packed.size).unwrap_or(i64::MAX),
            env,
        };
        let mut offset = 0;
        let chunks = std::iter::from_fn(move || {
            let mut chunk = vec![0; CHUNK];
            // A file that cannot be read ends early, and its checksum says so at the other end.
            let read = packed
                .file
                .read_at(&mut chunk, offset)
                .ok()
                .filter(|read| *read > 0)?;
            offset += read as u64;
            chunk.truncate(read);
            Some(Part::File(Chunk { chunk }))
        });
        let parts = std::iter::once(Part::Metadata(metadata)).chain(chunks);
        let messages = parts.map(|part| AppStreamRequest { request: Some(part) });
        let mut request = Request::new(tokio_stream::iter(messages));
        request.set_timeout(self.deadline);
        request
    }
}

async fn connect(path: PathBuf) -> std::io::Result<TokioIo<UnixStream>> {
    UnixStream::connect(&path).await.map(TokioIo::new)
}

/// The sockets of a directory by the names of their plugins.
pub(super) fn names(folder: &Path) -> impl Iterator<Item = String> {
    use std::os::unix::fs::FileTypeExt as _;
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let sockets = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    sockets.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".sock")?.to_owned()))
}
