//! What is known of one revision: its author, its signatures, what a chart says of itself, and whether it changes anything for an
//! Application.

use super::repo;
use crate::access;
use crate::error::{Error, Result};
use crate::path::TreePath;
use crate::render::{Renderer, chart_repo};
use crate::source::helm;
use crate::tree::Tree;
use argosy_api::integrity::{Signature, Verdict};
use argosy_api::meta::Time;
use argosy_api::repository as wire;
use argosy_api::v1alpha1::{ChartDetails, OciMetadata, RevisionMetadata, SourceIntegrity};
use std::sync::Arc;
use tonic::Status;

/// Author, time, message and tags of a commit, and what its signature is worth where that is demanded.
pub(super) async fn metadata(
    renderer: Arc<Renderer>,
    (request, integrity): (wire::RepoServerRevisionMetadataRequest, Option<SourceIntegrity>),
) -> Result<RevisionMetadata, Status> {
    let repo = repo(request.repo)?;
    let access = access::git(&repo)?;
    let commit = renderer.commit(&access, &request.revision, false).await?;
    let info = commit.info()?;
    let checked = match &integrity {
        Some(integrity) => {
            let named = (request.revision.as_str(), "");
            renderer.check(&repo, &commit.sha(), named, integrity).await?
        }
        None => None,
    };
    let (result, signatures) = checked.unzip();
    let tags = renderer
        .git
        .refs(&access, false)
        .await
        .map(|refs| refs.tags_at(&commit.sha()))
        .unwrap_or_default();
    Ok(RevisionMetadata {
        author: info.author,
        date: Some(Time {
            seconds: info.seconds,
            nanos: 0,
        }),
        tags,
        message: info.message,
        signature_info: signatures
            .and_then(|signatures| signatures.first().map(signature_info))
            .unwrap_or_default(),
        source_integrity_result: result,
        ..RevisionMetadata::default()
    })
}

/// A signature in the words that Argo CD's UI shows.
fn signature_info(signature: &Signature) -> String {
    let quality = match signature.verdict {
        Verdict::Unsigned => return "Revision is not signed.".into(),
        Verdict::Good => "Good",
        Verdict::Bad => "Bad",
        _ => "Invalid",
    };
    format!(
        "{quality} signature from {} key {}",
        signature.author, signature.key
    )
}

/// What the manifest of an OCI artifact says about it.
pub(super) async fn artifact(
    renderer: Arc<Renderer>,
    request: wire::RepoServerRevisionChartDetailsRequest,
) -> Result<OciMetadata, Status> {
    let repo = repo(request.repo)?;
    let annotations = renderer
        .charts
        .annotations(&chart_repo(&repo)?, &request.revision)
        .await?;
    let of = |name: &str| {
        annotations
            .get(&format!("org.opencontainers.image.{name}"))
            .cloned()
            .unwrap_or_default()
    };
    Ok(OciMetadata {
        created_at: of("created"),
        authors: of("authors"),
        image_url: of("url"),
        docs_url: of("documentation"),
        source_url: of("source"),
        version: of("version"),
        description: of("description"),
    })
}

/// What a chart says of itself: its repository's index, where there is one, knows without the chart.
pub(super) async fn chart(
    renderer: Arc<Renderer>,
    request: wire::RepoServerRevisionChartDetailsRequest,
) -> Result<ChartDetails, Status> {
    let repo = chart_repo(&repo(request.repo)?)?;
    let version = renderer
        .charts
        .resolve(&repo, &request.name, &request.revision, false)
        .await?;
    if !repo.oci {
        let index = renderer.charts.index(&repo, false).await?;
        if let Some(entry) = index
            .versions(&request.name)
            .iter()
            .find(|entry| entry.version == version)
        {
            return Ok(ChartDetails {
                description: entry.description.clone(),
                home: entry.home.clone(),
                maintainers: entry.maintainers.clone(),
            });
        }
    }
    let chart = renderer.charts.fetch(&repo, &request.name, &version).await?;
    let tree = Tree::disk(&chart.path)?;
    let dir = tree.app_dir(&TreePath::root())?;
    let files = Arc::new(crate::materialise::Directory::borrowed(&chart.path));
    let location = helm::Location {
        tree: &tree,
        dir: &dir,
        files: &files,
        base: &TreePath::root(),
        parts: &[],
    };
    let details = helm::inspect(&location, &[], &renderer.workers).await?;
    Ok(ChartDetails {
        description: details.description,
        home: details.home,
        maintainers: details.maintainers,
    })
}

/// Whether anything under the paths of an Application differs between what is synced and a revision.
pub(super) async fn changes(
    renderer: Arc<Renderer>,
    request: wire::UpdateRevisionForPathsRequest,
) -> Result<wire::UpdateRevisionForPathsResponse, Status> {
    let access = access::git(&repo(request.repo)?)?;
    let prefix = request
        .application_source
        .map(|source| source.tag_prefix)
        .unwrap_or_default();
    let resolved = renderer
        .git
        .resolve(&access, &request.revision, &prefix, request.no_revision_cache)
        .await?;
    let revision = resolved.commit.clone();
    let answer = |changes| Ok(wire::UpdateRevisionForPathsResponse { changes, revision });
    // Refs point at other repositories, whose changes the paths do not describe.
    if request.paths.is_empty() || !request.ref_sources.is_empty() {
        return answer(true);
    }
    if resolved.commit == request.synced_revision {
        return answer(false);
    }
    let new = Tree::Git(renderer.git.commit(&access, &resolved).await?.tree());
    let synced = match renderer.commit(&access, &request.synced_revision, false).await {
        Ok(synced) => synced,
        // Its branch was written anew, and nobody can say what that changed.
        Err(Error::Revision { .. }) => return answer(true),
        Err(error) => return Err(error.into()),
    };
    // Nothing is carried over: a render finds unchanged content by itself.
    answer(differ(&Tree::Git(synced.tree()), &new, &request.paths)?)
}

/// Whether anything under the paths differs between two trees; a path may be a glob.
fn differ(old: &Tree, new: &Tree, paths: &[String]) -> Result<bool> {
    for text in paths {
        let Ok(path) = TreePath::parse(text.trim_start_matches('/')) else {
            return Ok(true);
        };
        if !text.contains(['*', '?', '[', '{']) {
            if old.content_id(&path)? != new.content_id(&path)? {
                return Ok(true);
            }
            continue;
        }
        let matcher = globset::GlobBuilder::new(path.as_str())
            .literal_separator(true)
            .build();
        let Ok(matcher) = matcher.map(|glob| glob.compile_matcher()) else {
            return Ok(true);
        };
        let matching = |tree: &Tree| -> Result<Vec<(TreePath, String)>> {
            let root = tree.app_dir(&TreePath::root())?;
            let files = tree
                .walk(&root)?
                .into_iter()
                .filter(|node| matcher.is_match(node.path.as_str()));
            Ok(files.map(|node| (node.path, node.id)).collect())
        };
        if matching(old)? != matching(new)? {
            return Ok(true);
        }
    }
    Ok(false)
}
