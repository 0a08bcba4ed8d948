//! What a kustomization names by URL: a directory of another repository, or a file behind HTTP.

use crate::access;
use crate::egress::NamedBy;
use crate::error::{Error, Result};
use crate::git::Git;
use crate::http::Http;
use crate::materialise::{Directory, Materialiser, write_file};
use crate::path::TreePath;
use crate::tree::Tree;
use argosy_api::v1alpha1::{RepoCreds, Repository};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest remote file.
const MAX_FILE: u64 = 32 << 20;

/// A local copy; the files stay as long as it is held.
pub struct Copy {
    /// A file, or `tree//part`: a part of a tree, with the whole tree in reach.
    pub path: PathBuf,
    _files: Option<Arc<Directory>>,
}

/// Fetches with the credentials that came with a request.
pub struct Fetcher<'a> {
    /// For repositories.
    pub git: &'a Git,
    /// For files.
    pub http: &'a Http,
    /// Where trees are materialised.
    pub files: &'a Arc<Materialiser>,
    /// The source's own repository.
    pub own: &'a Repository,
    /// Configured repositories.
    pub repos: &'a [Repository],
    /// Credential templates.
    pub repo_creds: &'a [RepoCreds],
    /// Private directory of this render.
    pub scratch: &'a Path,
}

/// Where an entry points.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    repo: String,
    path: String,
    revision: String,
}

impl Fetcher<'_> {
    /// Fetches one entry, as it stands in the kustomization.
    ///
    /// # Errors
    /// As the fetchers; [`Error::Source`] for an entry that cannot be understood.
    pub async fn fetch(&self, entry: &str) -> Result<Copy> {
        if is_file(entry) {
            let (owner, credentials) = if access::is_configured(entry, self.repos, self.repo_creds) {
                let owner = access::find(entry, self.repos, self.repo_creds);
                let access = access::git(&owner);
                (
                    owner.repo,
                    access.map(|access| access.credentials).unwrap_or_default(),
                )
            } else {
                (String::new(), Arc::new(access::way(self.own)))
            };
            let fetched = self
                .http
                .get(entry, &owner, &credentials, false, MAX_FILE)
                .await?;
            let path = self
                .scratch
                .join(format!("remote-{}.yaml", crate::chart::key(entry)));
            if !path.exists() {
                write_file(&path, &fetched.body, 0o400)
                    .map_err(|e| Error::io("failed to write a remote file", e))?;
            }
            return Ok(Copy { path, _files: None });
        }
        let target = parse(entry).ok_or_else(|| {
            Error::Source(format!(
                "the remote {:?} is not understood",
                crate::git::url::display(entry)
            ))
        })?;
        let repo = access::find(&target.repo, self.repos, self.repo_creds);
        let mut access = access::git(&repo)?;
        if !access::is_configured(&target.repo, self.repos, self.repo_creds) {
            match access::git(self.own) {
                Ok(own) => access.take_over(&own),
                // The source is no git repository.
                Err(_) => {
                    access.credentials = Arc::new(access::way(self.own));
                    access.named_by = NamedBy::Content;
                }
            }
        }
        if access.url.scheme() == crate::git::Scheme::File {
            return Err(Error::Source(
                "a remote base cannot be a file of the repo-server".into(),
            ));
        }
        let resolved = self.git.resolve(&access, &target.revision, "", false).await?;
        let commit = self.git.commit(&access, &resolved).await?;
        let files = self.files.tree(&commit.tree()).await?;
        let part = TreePath::parse(&target.path)?;
        let tree = Tree::Git(commit.tree());
        if tree.lookup(&part)?.is_none() {
            return Err(Error::path(target.path, "the remote base has no such path"));
        }
        // The whole repository is within reach: a base may name its neighbours.
        let path = format!("{}//{}", files.path().display(), part.as_str()).into();
        Ok(Copy {
            path,
            _files: Some(files),
        })
    }
}

/// A URL of a file, not of a repository.
fn is_file(entry: &str) -> bool {
    let http = entry.starts_with("http://") || entry.starts_with("https://");
    let path = entry.split(['?', '#']).next().unwrap_or_default();
    http && !entry.contains("?ref=")
        && !entry.contains(".git/")
        && !path.trim_start_matches("https://").contains("//")
        && [".yaml", ".yml", ".json"].iter().any(|end| path.ends_with(end))
}

/// Reads the forms of Kustomize: `host/org/repo//path?ref=v1`, `https://…/repo.git/path`, `git@host:org/repo//path`.
fn parse(entry: &str) -> Option<Target> {
    let entry = entry.strip_prefix("git::").unwrap_or(entry);
    let (location, query) = entry.split_once('?').unwrap_or((entry, ""));
    let parameter = |name: &str| {
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
            .unwrap_or_default()
            .to_owned()
    };
    let revision = match parameter("ref") {
        empty if empty.is_empty() => parameter("version"),
        found => found,
    };
    let (scheme, rest) = match location.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None if location.contains('@') => (String::new(), location),
        None => ("https://".to_owned(), location),
    };
    let (repo, path) = if let Some((repo, path)) = rest.split_once("//") {
        (repo.to_owned(), path.to_owned())
    } else if let Some(at) = rest.find(".git/") {
        (rest[..at + 4].to_owned(), rest[at + 5..].to_owned())
    } else if rest.ends_with(".git") {
        (rest.to_owned(), String::new())
    } else {
        // host/org/repo/path: the form of the well known hosts.
        let separator = if scheme.is_empty() {
            rest.find(':').map(|at| at + 1)
        } else {
            rest.find('/').map(|at| at + 1)
        }?;
        let mut parts = rest[separator..].splitn(3, '/');
        let (org, name) = (parts.next()?, parts.next()?);
        (
            format!("{}{org}/{name}", &rest[..separator]),
            parts.next().unwrap_or_default().to_owned(),
        )
    };
    Some(Target {
        repo: format!("{scheme}{repo}"),
        path: path.trim_matches('/').to_owned(),
        revision,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_entries_are_read_as_kustomize_does() {
        for (entry, repo, path, revision) in [
            (
                "github.com/org/repo//deploy/base?ref=v1.0.0",
                "https://github.com/org/repo",
                "deploy/base",
                "v1.0.0",
            ),
            (
                "https://github.com/org/repo/deploy?ref=main",
                "https://github.com/org/repo",
                "deploy",
                "main",
            ),
            (
                "https://example.com/a/b.git/sub?ref=x",
                "https://example.com/a/b.git",
                "sub",
                "x",
            ),
            (
                "git@github.com:org/repo.git//p?ref=y",
                "git@github.com:org/repo.git",
                "p",
                "y",
            ),
            (
                "ssh://git@example.com/org/repo.git",
                "ssh://git@example.com/org/repo.git",
                "",
                "",
            ),
        ] {
            let want = Target {
                repo: repo.into(),
                path: path.into(),
                revision: revision.into(),
            };
            assert_eq!(parse(entry), Some(want), "{entry}");
        }
        assert!(is_file("https://raw.example.com/org/repo/main/crd.yaml"));
        assert!(!is_file("https://github.com/org/repo//x.yaml?ref=v1"));
    }
}
