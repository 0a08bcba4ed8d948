//! Manifests of a source, of a repository or of files that are sent along.

use super::repo;
use crate::error::Result;
use crate::render::{Manifests, Renderer, Request, Tracking};
use crate::upload::Upload;
use argosy_api::integrity;
use argosy_api::repository as wire;
use argosy_api::v1alpha1::SourceIntegrity;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::metadata::MetadataMap;
use tonic::{Status, Streaming};

/// A request for manifests, taken apart.
pub(super) struct Asked {
    request: Request,
    integrity: Option<SourceIntegrity>,
    /// Digest of the answer that the caller still has.
    known: String,
    /// Whether objects with faults are wanted too.
    faulty_too: bool,
}

impl Asked {
    /// Takes a message apart; what it demands of signatures has been looked at.
    pub(super) fn of(
        message: wire::ManifestRequest,
        integrity: Option<SourceIntegrity>,
    ) -> Result<Asked, Status> {
        let source = message
            .application_source
            .ok_or_else(|| Status::invalid_argument("the request names no source"))?;
        let request = Request {
            repo: repo(message.repo)?,
            revision: message.revision,
            no_cache: message.no_cache,
            no_revision_cache: message.no_revision_cache,
            app_name: message.app_name,
            namespace: message.namespace,
            project: message.project_name,
            source,
            multiple_sources: message.has_multiple_sources,
            ref_sources: message.ref_sources.into_iter().collect(),
            repos: message.repos,
            repo_creds: message.helm_repo_creds,
            permitted_repos: message.project_source_repos,
            kustomize_options: message.kustomize_options.unwrap_or_default(),
            helm_options: message.helm_options.unwrap_or_default(),
            kube_version: message.kube_version,
            api_versions: message.api_versions,
            tracking: Some(Tracking {
                label_key: message.app_label_key,
                method: message.tracking_method,
                installation_id: message.installation_id,
            }),
            generate_paths: message.annotation_manifest_generate_paths,
            enabled_types: message.enabled_source_types.into_iter().collect(),
            patience: None,
        };
        Ok(Asked {
            request,
            integrity,
            known: message.known_digest,
            faulty_too: message.faulty_too,
        })
    }

    /// The same, by somebody who waits only so long.
    pub(super) fn within(mut self, patience: Option<Duration>) -> Asked {
        self.request.patience = patience;
        self
    }
}

/// How long a caller waits, if it says so.
pub(super) fn patience(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    argosy_api::duration::of_grpc(text)
}

/// Manifests of a source in a repository.
pub(super) async fn generate(
    renderer: Arc<Renderer>,
    asked: Asked,
) -> Result<wire::ManifestResponse, Status> {
    let started = Instant::now();
    let answer = answered(&renderer, &asked).await;
    let took = started.elapsed().as_millis() as u64;
    let app = asked.request.app_name;
    let repo = crate::git::url::display(&asked.request.repo.repo);
    match &answer {
        Ok(answer) => tracing::debug!(
            app,
            repo,
            revision = answer.revision,
            manifests = answer.manifests.len(),
            took,
            "rendered"
        ),
        Err(error) => tracing::info!(app, repo, %error, took, "rendering failed"),
    }
    Ok(answer?)
}

async fn answered(renderer: &Renderer, asked: &Asked) -> Result<wire::ManifestResponse> {
    let request = &asked.request;
    let manifests = renderer.manifests(request).await?;
    if !asked.faulty_too {
        manifests.rendered.notes.faultless()?;
    }
    let mut answer = answer(&manifests, &asked.known);
    if let Some(integrity) = &asked.integrity {
        answer.source_integrity_result = renderer.verify(request, &manifests.revision, integrity).await?;
    }
    Ok(answer)
}

/// The answer to a request; one that the caller still has is told by its digest alone.
fn answer(manifests: &Manifests, known: &str) -> wire::ManifestResponse {
    let rendered = &manifests.rendered;
    let unchanged = !known.is_empty() && known == rendered.digest;
    let (texts, commands) = if unchanged {
        (Vec::new(), Vec::new())
    } else {
        (rendered.manifests.clone(), rendered.commands.clone())
    };
    wire::ManifestResponse {
        manifests: texts,
        revision: manifests.revision.clone(),
        source_type: rendered.source_type.as_str().to_owned(),
        commands,
        digest: rendered.digest.clone(),
        unchanged,
        warnings: rendered.notes.warnings.clone(),
        faults: rendered.notes.faults.clone(),
        open_inputs: rendered.notes.open.clone(),
        ..wire::ManifestResponse::default()
    }
}

/// What comes with files: the request, and the archive under its digest.
pub(super) async fn receive(
    mut parts: Streaming<wire::ManifestRequestWithFiles>,
) -> Result<(wire::ManifestRequest, Vec<u8>), Status> {
    use wire::manifest_request_with_files::Part;
    let (mut message, mut checksum, mut upload) = (None, String::new(), Upload::default());
    while let Some(part) = parts.message().await? {
        match part.part {
            Some(Part::Request(request)) => message = Some(request),
            Some(Part::Metadata(metadata)) => checksum = metadata.checksum,
            Some(Part::Chunk(chunk)) => upload.take(&chunk.chunk)?,
            None => {}
        }
    }
    let message = message.ok_or_else(|| Status::invalid_argument("the files came without a request"))?;
    Ok((message, upload.finish(&checksum)?))
}

/// Manifests of files that were sent along.
pub(super) async fn of_files(
    renderer: Arc<Renderer>,
    (asked, archive): (Asked, Vec<u8>),
) -> Result<wire::ManifestResponse, Status> {
    let request = asked.request;
    if integrity::is_demanded(asked.integrity.as_ref(), &request.source) {
        return Err(Status::failed_precondition(
            "Cannot use local manifests when source integrity is enforced",
        ));
    }
    let rendered = Arc::new(renderer.uploaded(&request, archive).await?);
    let manifests = Manifests {
        rendered,
        revision: request.revision,
        ran: true,
    };
    Ok(answer(&manifests, ""))
}
