//! The gRPC of a plugin: files in, manifests, parameters or a yes out.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use argosy_api::services::plugin::config_management_plugin_service_server::ConfigManagementPluginService;
use argosy_api::services::plugin::{
    AppStreamRequest, CheckPluginConfigurationResponse, EnvEntry, ManifestResponse,
    ParametersAnnouncementResponse, RepositoryResponse,
};
use argosy_api::services::repository::ParameterAnnouncement;
use argosy_object::yaml;
use tonic::{Request, Response, Status, Streaming};

use crate::config::{Discovery, Plugin};
use crate::receive::{self, Received};
use crate::{command, discover};

/// So much before the caller's deadline we end by ourselves, so that it hears why.
const AHEAD: Duration = Duration::from_millis(200);

/// One plugin, served.
pub(crate) struct Service {
    pub(crate) plugin: Arc<Plugin>,
    /// Where files of requests are unpacked.
    pub(crate) folder: PathBuf,
    /// Of each command.
    pub(crate) limits: command::Limits,
}

/// A request that has arrived, and until when its caller waits.
struct Job {
    received: Received,
    until: Option<Instant>,
}

impl Service {
    async fn receive(&self, request: Request<Streaming<AppStreamRequest>>) -> Result<Job, Status> {
        let timeout = request
            .metadata()
            .get("grpc-timeout")
            .and_then(|value| value.to_str().ok());
        let until = timeout
            .and_then(argosy_api::duration::of_grpc)
            .map(|timeout| Instant::now() + timeout);
        let modes = self.plugin.spec.preserve_file_mode;
        let limits = receive::Limits::default();
        let received = receive::receive(request.into_inner(), &self.folder, modes, limits).await?;
        Ok(Job { received, until })
    }

    /// Runs a command in the folder of the source.
    async fn run(&self, line: &[String], source: &Path, job: &Job) -> Result<String, command::Failed> {
        let left = job.until.map(|until| {
            until
                .saturating_duration_since(Instant::now())
                .saturating_sub(AHEAD)
        });
        let limits = command::Limits {
            deadline: left.map_or(self.limits.deadline, |left| left.min(self.limits.deadline)),
            ..self.limits
        };
        let env: &[EnvEntry] = &job.received.metadata.env;
        command::run(line, &job.received.files, source, env, limits).await
    }

    async fn generate(&self, job: &Job) -> Result<Vec<String>, String> {
        let source = job
            .received
            .source()
            .map_err(|status| status.message().to_owned())?;
        let failed = |error: command::Failed| format!("error generating manifests: {error}");
        if let Some(init) = self.plugin.spec.init.as_ref().and_then(|init| init.line()) {
            self.run(&init, &source, job).await.map_err(failed)?;
        }
        let line = self.plugin.spec.generate.line().unwrap_or_default();
        let output = self.run(&line, &source, job).await.map_err(failed)?;
        if output.is_empty() {
            tracing::warn!(plugin = self.plugin.name(), "the plugin printed nothing");
        }
        split(&output)
            .map_err(|error| format!("error generating manifests: failed to unmarshal manifest: {error}"))
    }

    async fn matches(&self, job: &Job) -> Result<bool, String> {
        let source = job
            .received
            .source()
            .map_err(|status| status.message().to_owned())?;
        let look = |find: fn(&Path, &str) -> Result<bool, String>, pattern: &str| {
            let (folder, pattern) = (source.clone(), pattern.to_owned());
            tokio::task::spawn_blocking(move || find(&folder, &pattern))
        };
        let (found, what) = match self.plugin.discovery() {
            Discovery::None => return Ok(false),
            Discovery::FileName(pattern) => (look(discover::file_name, pattern).await, "filename"),
            Discovery::Glob(pattern) => (look(discover::glob, pattern).await, "glob"),
            Discovery::Command(command, args) => {
                let line: Vec<String> = command.iter().chain(args).cloned().collect();
                let found = self.run(&line, &source, job).await;
                let output = found.map_err(|error| format!("error running find command: {error}"))?;
                return Ok(!output.is_empty());
            }
        };
        let found = found.map_err(|error| error.to_string())?;
        found.map_err(|error| format!("error finding {what} match: {error}"))
    }

    async fn announce(&self, job: &Job) -> Result<Vec<ParameterAnnouncement>, String> {
        let source = job
            .received
            .source()
            .map_err(|status| status.message().to_owned())?;
        let (fixed, dynamic) = self.plugin.parameters();
        let Some(line) = dynamic.and_then(|dynamic| dynamic.line()) else {
            return Ok(fixed);
        };
        let output = self.run(&line, &source, job).await;
        let output =
            output.map_err(|error| format!("error executing dynamic parameter output command: {error}"))?;
        let printed: Option<Vec<ParameterAnnouncement>> = serde_json::from_str(&output).map_err(|error| {
            format!(
                "error unmarshaling dynamic parameter output into ParametersAnnouncementResponse: {error}"
            )
        })?;
        // Who reads them takes the later one of two with the same name, and what the author wrote down counts.
        Ok(printed.into_iter().flatten().chain(fixed).collect())
    }
}

/// The documents of what a plugin printed, each as JSON.
fn split(output: &str) -> Result<Vec<String>, yaml::Error> {
    let documents = yaml::parse_all(output.as_bytes(), &yaml::Limits::default())?;
    let values = documents.into_iter().map(|document| document.value);
    Ok(values
        .filter(|value| !value.is_null())
        .map(|value| value.to_string())
        .collect())
}

type Files = Request<Streaming<AppStreamRequest>>;

#[tonic::async_trait]
impl ConfigManagementPluginService for Service {
    async fn generate_manifest(&self, request: Files) -> Result<Response<ManifestResponse>, Status> {
        let job = self.receive(request).await?;
        let manifests = self.generate(&job).await.map_err(Status::unknown)?;
        let source_type = String::new();
        Ok(Response::new(ManifestResponse {
            manifests,
            source_type,
        }))
    }

    async fn check_plugin_configuration(
        &self,
        _: Request<()>,
    ) -> Result<Response<CheckPluginConfigurationResponse>, Status> {
        Ok(Response::new(CheckPluginConfigurationResponse {
            is_discovery_configured: self.plugin.discovery() != Discovery::None,
            provide_git_creds: self.plugin.spec.provide_git_creds,
        }))
    }

    async fn match_repository(&self, request: Files) -> Result<Response<RepositoryResponse>, Status> {
        let job = self.receive(request).await?;
        let found = self.matches(&job).await;
        let is_supported =
            found.map_err(|error| Status::unknown(format!("match repository error: {error}")))?;
        Ok(Response::new(RepositoryResponse {
            is_supported,
            is_discovery_enabled: self.plugin.discovery() != Discovery::None,
        }))
    }

    async fn get_parameters_announcement(
        &self,
        request: Files,
    ) -> Result<Response<ParametersAnnouncementResponse>, Status> {
        let job = self.receive(request).await?;
        let announced = self.announce(&job).await;
        let parameter_announcements = announced
            .map_err(|error| Status::unknown(format!("get parameters announcement error: {error}")))?;
        Ok(Response::new(ParametersAnnouncementResponse {
            parameter_announcements,
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_printed_becomes_one_text_a_document() {
        let output = "# a\na: 0644\n---\n---\nnull\n---\nb: yes\n";
        assert_eq!(split(output).unwrap(), ["{\"a\":420}", "{\"b\":true}"]);
        assert!(split("").unwrap().is_empty());
        assert!(split("a: [").is_err());
    }
}
