//! What lies in a revision of a Git repository: files, directories, sources.

use super::repo;
use crate::access;
use crate::env::BuildEnv;
use crate::error::{Error, Result};
use crate::path::TreePath;
use crate::render::Renderer;
use crate::source::detect::{self, SourceType};
use crate::source::plugin;
use crate::tree::{Node, RawKind, Tree};
use argosy_api::repository as wire;
use argosy_api::v1alpha1::{ApplicationSource, Repository, SourceIntegrity};
use std::collections::BTreeMap;
use std::sync::Arc;
use tonic::Status;

/// Sum of the files that one request may be answered with.
const MAX_FILES: u64 = 64 << 20;

/// The files that match a pattern.
pub(super) async fn matching(
    renderer: Arc<Renderer>,
    (request, integrity): (wire::GitFilesRequest, Option<SourceIntegrity>),
) -> Result<wire::GitFilesResponse, Status> {
    let repo = repo(request.repo)?;
    let named = (request.revision.as_str(), request.no_revision_cache);
    let tree = tree(&renderer, &repo, named, integrity.as_ref()).await?;
    // The old way is git's, whose star crosses directories.
    let matcher = globset::GlobBuilder::new(request.path.trim_start_matches('/'))
        .literal_separator(request.new_git_file_globbing_enabled)
        .build()
        .map_err(|e| {
            Error::Source(format!(
                "failed to parse the pattern {:?}: {}",
                request.path,
                e.kind()
            ))
        })?
        .compile_matcher();
    let root = tree.app_dir(&TreePath::root())?;
    let mut left = MAX_FILES;
    let mut files = Vec::new();
    for node in tree.walk(&root)? {
        if !matcher.is_match(node.path.as_str()) {
            continue;
        }
        let content = tree.read_node(&node, left)?;
        left -= content.len() as u64;
        files.push((node.path.as_str().to_owned(), content));
    }
    Ok(wire::GitFilesResponse {
        map: files.into_iter().collect(),
    })
}

/// All directories; those that begin with a dot where an operator wants them.
pub(super) async fn directories(
    renderer: Arc<Renderer>,
    (request, integrity, hidden): (wire::GitDirectoriesRequest, Option<SourceIntegrity>, bool),
) -> Result<wire::GitDirectoriesResponse, Status> {
    let repo = repo(request.repo)?;
    let named = (request.revision.as_str(), request.no_revision_cache);
    let tree = tree(&renderer, &repo, named, integrity.as_ref()).await?;
    let all = below(&tree, hidden)?;
    let paths = all
        .iter()
        .filter(|dir| !dir.path.is_root())
        .map(|dir| dir.path.as_str().to_owned())
        .collect();
    Ok(wire::GitDirectoriesResponse { paths })
}

/// The directories that could be sources, with what would render them.
pub(super) async fn sources(
    renderer: Arc<Renderer>,
    request: wire::ListAppsRequest,
) -> Result<wire::AppList, Status> {
    let repo = repo(request.repo)?;
    let enabled: BTreeMap<String, bool> = request.enabled_source_types.into_iter().collect();
    let tree = tree(&renderer, &repo, (&request.revision, false), None).await?;
    let root = tree.app_dir(&TreePath::root())?;
    let of_plugin = plugin::Request {
        tree: &tree,
        dir: &root,
        source: &ApplicationSource::default(),
        app: "",
        env: BuildEnv::default(),
        paths: "",
    };
    // As in Argo CD, a repository that a plugin takes is one application, the plugin's.
    if renderer.plugins.choose(None, &of_plugin).await?.plugin.is_some() {
        let kind = SourceType::Plugin.as_str().to_owned();
        return Ok(wire::AppList {
            apps: [(root.path.to_string(), kind)].into(),
        });
    }
    let mut apps = Vec::new();
    for dir in below(&tree, false)? {
        if let Some(kind) = detect::discover(&tree, &dir, &enabled)? {
            apps.push((dir.path.to_string(), kind.as_str().to_owned()));
        }
    }
    Ok(wire::AppList {
        apps: apps.into_iter().collect(),
    })
}

/// The files of a revision, if it is signed as demanded; `named` is the revision, and whether it has to be asked for anew.
async fn tree(
    renderer: &Renderer,
    repo: &Repository,
    named: (&str, bool),
    integrity: Option<&SourceIntegrity>,
) -> Result<Tree> {
    let (revision, fresh) = named;
    let commit = renderer.commit(&access::git(repo)?, revision, fresh).await?;
    if let Some(integrity) = integrity {
        renderer.require(repo, &commit.sha(), revision, integrity).await?;
    }
    Ok(Tree::Git(commit.tree()))
}

/// All directories of a tree, the root first, sorted.
fn below(tree: &Tree, hidden: bool) -> Result<Vec<Node>> {
    let mut all = vec![tree.app_dir(&TreePath::root())?];
    let mut at = 0;
    while let Some(dir) = all.get(at).cloned() {
        at += 1;
        for entry in tree.list(&dir)?.iter() {
            if entry.kind == RawKind::Directory && (hidden || !entry.name.starts_with('.')) {
                let path = dir.path.child(&entry.name);
                all.push(Node {
                    path,
                    is_dir: true,
                    executable: false,
                    id: entry.id.clone(),
                });
            }
        }
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(all)
}
