//! What a repository is and has: whether it can be read, its refs and tags, what a revision of it means, its charts.

use super::repo;
use crate::access::{self, RepoKind};
use crate::render::{Renderer, chart_repo};
use argosy_api::repository as wire;
use argosy_api::v1alpha1;
use std::sync::Arc;
use tonic::Status;

/// Whether a repository can be read with its credentials.
pub(super) async fn test(
    renderer: Arc<Renderer>,
    request: wire::TestRepositoryRequest,
) -> Result<wire::TestRepositoryResponse, Status> {
    let repo = repo(request.repo)?;
    match access::kind(&repo, "") {
        RepoKind::Git => {
            renderer.git.refs(&access::git(&repo)?, true).await?;
        }
        _ => {
            let repo = chart_repo(&repo)?;
            if repo.oci {
                renderer.charts.ping(&repo).await?;
            } else {
                renderer.charts.index(&repo, true).await?;
            }
        }
    }
    Ok(wire::TestRepositoryResponse {
        verified_repository: true,
    })
}

/// The commit, version or digest that a revision means.
pub(super) async fn resolve(
    renderer: Arc<Renderer>,
    request: wire::ResolveRevisionRequest,
) -> Result<wire::ResolveRevisionResponse, Status> {
    let repo = repo(request.repo)?;
    let source = request
        .app
        .map(|app| source_of(&app, request.source_index))
        .unwrap_or_default();
    let (wanted, fresh) = (request.ambiguous_revision, request.no_revision_cache);
    let revision = match access::kind(&repo, &source.chart) {
        RepoKind::Git => {
            renderer
                .git
                .resolve(&access::git(&repo)?, &wanted, &source.tag_prefix, fresh)
                .await?
                .commit
        }
        RepoKind::Helm => {
            renderer
                .charts
                .resolve(&chart_repo(&repo)?, &source.chart, &wanted, fresh)
                .await?
        }
        RepoKind::Oci => {
            renderer
                .charts
                .artifact(&chart_repo(&repo)?, &wanted, fresh)
                .await?
                .1
        }
    };
    let ambiguous_revision = if wanted == revision {
        revision.clone()
    } else {
        format!("{wanted} ({revision})")
    };
    Ok(wire::ResolveRevisionResponse {
        revision,
        ambiguous_revision,
    })
}

/// The source of an Application that a revision is asked for.
fn source_of(app: &v1alpha1::Application, index: i64) -> v1alpha1::ApplicationSource {
    let spec = &app.spec;
    if !spec.sources.is_empty() {
        return usize::try_from(index)
            .ok()
            .and_then(|index| spec.sources.get(index))
            .cloned()
            .unwrap_or_default();
    }
    spec.source.clone().unwrap_or_default()
}

/// Branches and tags of a Git repository.
pub(super) async fn refs(
    renderer: Arc<Renderer>,
    request: wire::ListRefsRequest,
) -> Result<wire::Refs, Status> {
    let repo = repo(request.repo)?;
    let refs = renderer.git.refs(&access::git(&repo)?, false).await?;
    Ok(wire::Refs {
        branches: refs.branches(),
        tags: refs.tags(),
    })
}

/// Tags of an OCI repository.
pub(super) async fn tags(
    renderer: Arc<Renderer>,
    request: wire::ListRefsRequest,
) -> Result<wire::Refs, Status> {
    let repo = repo(request.repo)?;
    let tags = renderer.charts.tags(&chart_repo(&repo)?, "", false).await?;
    Ok(wire::Refs {
        branches: Vec::new(),
        tags: tags.as_ref().clone(),
    })
}

/// Charts of a Helm repository, with their versions.
pub(super) async fn charts(
    renderer: Arc<Renderer>,
    request: wire::HelmChartsRequest,
) -> Result<wire::HelmChartsResponse, Status> {
    let repo = repo(request.repo)?;
    let index = renderer.charts.index(&chart_repo(&repo)?, true).await?;
    let items = index
        .charts()
        .map(|(name, entries)| wire::HelmChart {
            name: name.to_owned(),
            versions: entries.iter().map(|entry| entry.version.clone()).collect(),
        })
        .collect();
    Ok(wire::HelmChartsResponse { items })
}
