//! Getting commits, their submodules and their LFS objects into the store of a repository.

use super::command::Command;
use super::network::URL;
use super::objects::{Commit, Repo, open_objects};
use super::refs::Resolved;
use super::{Access, Credentials, Git, GitUrl, lfs, short_hash, store, tree};
use crate::error::{Error, Result};
use crate::identity::Use;
use crate::path::TreePath;
use crate::tree::Tree;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Packs above which a store is repacked; each fetch adds one.
const MAX_PACKS: usize = 48;

impl Git {
    /// Makes sure that a commit and its submodules are in the store, and opens it.
    ///
    /// # Errors
    /// As [`Git::refs`]; [`Error::Revision`] when the repository does not hand the commit out.
    pub async fn commit(&self, access: &Access, resolved: &Resolved) -> Result<Commit> {
        let mut commit = self.plain_commit(access, resolved).await?;
        if self.settings.submodules {
            let modules = self.modules(access, &commit.tree()).await?;
            commit.files = commit.files.with_modules(modules);
        }
        if access.lfs {
            commit.files = self.with_lfs(access, commit.files, &commit.repo).await?;
        }
        Ok(commit)
    }

    /// The same tree, whose pointers are read as what they stand for.
    pub(super) async fn with_lfs(
        &self,
        access: &Access,
        files: tree::GitTree,
        repo: &Arc<Repo>,
    ) -> Result<tree::GitTree> {
        // Objects come while a tree is read, so that there is no better moment.
        self.keep_within_quota();
        let (name, limit) = lfs::CONFIG;
        let config = Tree::Git(files.clone()).read(&TreePath::parse(name)?, limit);
        let lfs = lfs::Lfs {
            repo: repo.clone(),
            access: access.clone(),
            credentials: self.tokens.credentials(&access.credentials, Use::Git).await?,
            http: self.http.clone(),
            trust: self.trust.clone(),
            scratch: self.scratch.clone(),
            deadline: self.settings.fetch_timeout,
            until: std::sync::OnceLock::new(),
            metrics: self.metrics.clone(),
            configured: config
                .ok()
                .and_then(|text| lfs::configured(&String::from_utf8_lossy(&text))),
        };
        Ok(files.with_lfs(lfs))
    }

    pub(super) async fn plain_commit(&self, access: &Access, resolved: &Resolved) -> Result<Commit> {
        let repo = self.repo(&access.url).await?;
        if !repo.is_proven(access) {
            self.refs(access, false).await?;
        }
        if let Some(commit) = repo.open(&resolved.commit)? {
            return Ok(commit);
        }
        let _fetching = repo.fetching.lock().await;
        if let Some(commit) = repo.open(&resolved.commit)? {
            return Ok(commit);
        }
        let mut attempts = Vec::new();
        if let Some(name) = &resolved.reference {
            attempts.push(format!("+{name}:refs/argosy/{}", short_hash(name)));
        }
        attempts.push(format!("+{sha}:refs/argosy/{sha}", sha = resolved.commit));
        for (nth, refspec) in attempts.iter().enumerate() {
            match self.fetch(access, &repo, &[refspec.as_str()]).await {
                Ok(()) => {
                    if let Some(commit) = repo.open(&resolved.commit)? {
                        return Ok(commit);
                    }
                }
                // A server need not hand out a bare SHA; only the ref's own failure is final.
                Err(error) if nth + 1 < attempts.len() && !is_missing_ref(&error) => return Err(error),
                Err(error @ (Error::Authentication { .. } | Error::Deadline { .. })) => return Err(error),
                Err(_) => {}
            }
        }
        self.fetch_everything(access, &repo).await?;
        repo.open(&resolved.commit)?.ok_or_else(|| Error::Revision {
            revision: resolved.commit.clone(),
        })
    }

    pub(super) async fn fetch_everything(&self, access: &Access, repo: &Arc<Repo>) -> Result<()> {
        self.fetch(
            access,
            repo,
            &[
                "--prune",
                "+refs/heads/*:refs/remotes/heads/*",
                "+refs/tags/*:refs/remotes/tags/*",
            ],
        )
        .await
    }

    pub(super) async fn fetch(&self, access: &Access, repo: &Arc<Repo>, what: &[&str]) -> Result<()> {
        let depth = format!("--depth={}", access.depth);
        let (options, refspecs): (Vec<&str>, Vec<&str>) =
            what.iter().copied().partition(|part| part.starts_with("--"));
        let mut arguments = vec![
            "fetch",
            "--quiet",
            "--no-tags",
            "--force",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--no-auto-maintenance",
        ];
        if access.depth > 0 {
            arguments.push(&depth);
        }
        arguments.extend(options);
        arguments.extend(["--", URL]);
        arguments.extend(refspecs);
        let fetched = self
            .network(
                access,
                Some(&repo.dir),
                "fetch",
                self.settings.fetch_timeout,
                "failed to fetch",
                &arguments,
            )
            .await;
        if let Err(error) = fetched {
            // A git that was killed leaves its locks behind, and nobody else writes here.
            store::tidy(&repo.dir);
            return Err(error);
        }
        repo.prove(access);
        if repo.packs() > MAX_PACKS {
            self.repack(access, repo).await;
        }
        repo.measure();
        self.keep_within_quota();
        Ok(())
    }

    /// Folds small packs together. Nothing is pruned: a render may still read an old commit.
    async fn repack(&self, access: &Access, repo: &Arc<Repo>) {
        let command = Command {
            scratch: &self.scratch,
            git_dir: Some(&repo.dir),
            url: None,
            addresses: &[],
            credentials: &access.credentials,
            trust: &self.trust,
            patience: self.http.patience(),
            deadline: self.settings.fetch_timeout,
            attempted: "failed to repack",
        };
        match command.run(&["repack", "-d", "-q", "--geometric=2"]).await {
            Ok(_) => {
                if let Ok(objects) = open_objects(&repo.dir) {
                    *repo.objects.write().unwrap_or_else(PoisonError::into_inner) = objects;
                }
            }
            Err(error) => tracing::warn!(repo = repo.url, %error, "repacking a repository failed"),
        }
    }

    pub(super) async fn repo(&self, url: &GitUrl) -> Result<Arc<Repo>> {
        let name = url.normal();
        if let Some(repo) = self
            .repos
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
        {
            repo.use_now();
            return Ok(repo.clone());
        }
        let dir = self.root.join(short_hash(name));
        if !dir.join("HEAD").exists() {
            let partial = tempfile::Builder::new()
                .prefix(".new-")
                .tempdir_in(&self.root)
                .map_err(|e| Error::io("failed to create a repository", e))?;
            let none = Credentials::default();
            let command = Command {
                scratch: &self.scratch,
                git_dir: None,
                url: None,
                addresses: &[],
                credentials: &none,
                trust: &self.trust,
                patience: self.http.patience(),
                deadline: Duration::from_secs(30),
                attempted: "failed to initialise a repository",
            };
            let path = partial.path().join("git").display().to_string();
            command
                .run(&[
                    "init",
                    "--quiet",
                    "--bare",
                    "--template=",
                    "--initial-branch=none",
                    "--",
                    &path,
                ])
                .await?;
            // Losing the race to another caller is as good as winning it.
            if let Err(error) = std::fs::rename(&path, &dir)
                && !dir.join("HEAD").exists()
            {
                return Err(Error::io("failed to create a repository", error));
            }
        }
        store::tidy(&dir);
        let objects = match open_objects(&dir) {
            Ok(objects) => objects,
            Err(error) => {
                // What cannot even be opened is made anew by the next call.
                store::remove(&self.root, &dir);
                return Err(error);
            }
        };
        let bytes = store::bytes(&dir);
        let mut repos = self.repos.lock().unwrap_or_else(PoisonError::into_inner);
        self.strays
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&dir);
        let repo = repos.entry(name.to_owned()).or_insert_with(|| {
            Arc::new(Repo {
                url: name.to_owned(),
                dir,
                objects: RwLock::new(objects),
                listings: self.listings.clone(),
                opened: Mutex::default(),
                fetching: tokio::sync::Mutex::default(),
                proven: Mutex::default(),
                used: Mutex::new(Instant::now()),
                bytes: AtomicU64::new(bytes),
            })
        });
        Ok(repo.clone())
    }
}

fn is_missing_ref(error: &Error) -> bool {
    matches!(error, Error::Fetch { message, .. } if message.contains("couldn't find remote ref") || message.contains("not our ref"))
}
