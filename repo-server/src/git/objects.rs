//! One bare store of objects, and the commits in it: read in process, any number at once.

use super::{Access, tree};
use crate::error::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

/// Commits that are remembered of one store.
const MAX_OPENED: usize = 10_000;

/// One bare object store.
pub struct Repo {
    pub(super) url: String,
    pub(super) dir: PathBuf,
    pub(super) objects: RwLock<gix::ThreadSafeRepository>,
    pub(super) listings: tree::Listings,
    /// Commits and their trees by the ids that they were opened by: each call opens one, mostly the same.
    pub(super) opened: Mutex<HashMap<gix::ObjectId, (gix::ObjectId, gix::ObjectId)>>,
    /// Held while objects are added: concurrent requests for one repository fetch once.
    pub(super) fetching: tokio::sync::Mutex<()>,
    /// Fingerprints of credentials that the repository has answered: knowing a SHA is not the right to read it.
    pub(super) proven: Mutex<HashSet<String>>,
    pub(super) used: Mutex<Instant>,
    pub(super) bytes: AtomicU64,
}

pub(super) fn open_objects(dir: &Path) -> Result<gix::ThreadSafeRepository> {
    gix::open::Options::isolated()
        .open_path_as_is(true)
        .object_store_slots(gix::odb::store::init::Slots::Given(2048))
        .with(gix::sec::Trust::Full)
        .open(dir)
        .map_err(|e| Error::io(format!("failed to open {}", dir.display()), e))
}

impl Repo {
    pub(super) fn prove(&self, access: &Access) {
        self.proven
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(access.identity());
    }

    pub(super) fn is_proven(&self, access: &Access) -> bool {
        self.proven
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&access.identity())
    }

    /// Something that should be in the store cannot be read.
    pub(super) fn damaged(&self, what: impl std::fmt::Display, error: &dyn std::fmt::Display) -> Error {
        Error::Store {
            url: self.url.clone(),
            message: format!("failed to read {what}: {error}"),
        }
    }

    pub(super) fn packs(&self) -> usize {
        std::fs::read_dir(self.dir.join("objects/pack")).map_or(0, |entries| {
            entries
                .flatten()
                .filter(|entry| entry.path().extension().is_some_and(|ext| ext == "pack"))
                .count()
        })
    }

    pub(crate) fn local(&self) -> gix::Repository {
        let mut repo = self
            .objects
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .to_thread_local();
        repo.object_cache_size_if_unset(4 << 20);
        repo
    }

    /// Completes a SHA prefix, if the objects hold exactly one such commit.
    pub(super) fn complete(&self, prefix: &str) -> Option<String> {
        let repo = self.local();
        let id = repo
            .rev_parse_single(format!("{prefix}^{{commit}}").as_str())
            .ok()?;
        Some(id.to_hex().to_string())
    }

    pub(super) fn open(self: &Arc<Self>, sha: &str) -> Result<Option<Commit>> {
        let Ok(id) = gix::ObjectId::from_hex(sha.as_bytes()) else {
            return Err(Error::Revision { revision: sha.into() });
        };
        if let Some((commit, tree)) = self.opened().get(&id) {
            return Ok(Some(self.commit(*commit, *tree)));
        }
        let repo = self.local();
        let broken = |e: &dyn std::fmt::Display| self.damaged(format!("commit {sha}"), e);
        let Some(object) = repo.try_find_object(id).map_err(|e| broken(&e))? else {
            return Ok(None);
        };
        let commit = object.peel_to_commit().map_err(|e| broken(&e))?;
        let tree = commit.tree_id().map_err(|e| broken(&e))?.detach();
        let mut opened = self.opened();
        if opened.len() >= MAX_OPENED {
            opened.clear();
        }
        opened.insert(id, (commit.id, tree));
        Ok(Some(self.commit(commit.id, tree)))
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<gix::ObjectId, (gix::ObjectId, gix::ObjectId)>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn commit(self: &Arc<Self>, id: gix::ObjectId, tree: gix::ObjectId) -> Commit {
        Commit {
            repo: self.clone(),
            id,
            files: tree::GitTree::new(self.clone(), tree),
        }
    }
}

/// A commit that is in the store.
#[derive(Clone)]
pub struct Commit {
    pub(super) repo: Arc<Repo>,
    pub(super) id: gix::ObjectId,
    pub(super) files: tree::GitTree,
}

/// What a commit says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitInfo {
    /// `Name <mail>`.
    pub author: String,
    /// Author time, seconds since the epoch.
    pub seconds: i64,
    /// The whole message, without the final line break.
    pub message: String,
}

impl Commit {
    /// Full SHA.
    pub fn sha(&self) -> String {
        self.id.to_hex().to_string()
    }

    /// Its files.
    pub fn tree(&self) -> tree::GitTree {
        self.files.clone()
    }

    /// Author, time and message.
    ///
    /// # Errors
    /// [`Error::Io`] when the object is broken.
    pub fn info(&self) -> Result<CommitInfo> {
        let repo = self.repo.local();
        let broken = |e: &dyn std::fmt::Display| self.repo.damaged(format!("commit {}", self.sha()), e);
        let commit = repo.find_commit(self.id).map_err(|e| broken(&e))?;
        let author = commit.author().map_err(|e| broken(&e))?;
        let seconds = author.time().map_err(|e| broken(&e))?.seconds;
        Ok(CommitInfo {
            author: format!("{} <{}>", author.name, author.email),
            seconds,
            message: commit.message_raw_sloppy().to_string().trim_end().to_owned(),
        })
    }
}
