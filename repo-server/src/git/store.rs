//! What becomes of object stores besides being read: leftovers of a git that was killed are removed, a damaged store is made anew,
//! and of those that nobody reads the ones unused for longest go when all together take too much.

use super::{Git, Repo};
use crate::error::Error;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// Depth of directories looked through for leftovers; names of refs may have slashes.
const MAX_DEPTH: usize = 8;

impl Git {
    /// Whether the same is worth another attempt: a damaged store was thrown away, and the next call makes it anew.
    pub(crate) fn mended(&self, error: &Error) -> bool {
        let Error::Store { url, message } = error else {
            return false;
        };
        tracing::warn!(
            repo = url,
            message,
            "the store of a repository is damaged and made anew"
        );
        self.discard(url);
        true
    }

    /// Forgets a store. Who reads it still may fail, and will find another one.
    fn discard(&self, url: &str) {
        let gone = self
            .repos
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(url);
        if let Some(repo) = gone {
            remove(&self.root, &repo.dir);
        }
    }

    /// Removes stores that nobody reads until the rest fits.
    pub(super) fn keep_within_quota(&self) {
        let mut repos = self.repos.lock().unwrap_or_else(PoisonError::into_inner);
        let mut strays = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stores: Vec<Store> = repos.values().map(|repo| repo.as_store()).collect();
        stores.extend(strays.iter().map(|(dir, bytes)| Store {
            dir: dir.clone(),
            bytes: *bytes,
            used: None,
            idle: true,
        }));
        let gone = surplus(stores, self.settings.store_bytes);
        if gone.is_empty() {
            return;
        }
        repos.retain(|_, repo| !gone.contains(&repo.dir));
        strays.retain(|dir, _| !gone.contains(dir));
        drop((repos, strays));
        for dir in gone {
            tracing::info!(store = %dir.display(), "the store of a repository is removed to make room");
            remove(&self.root, &dir);
        }
    }
}

/// The stores that are there when a process starts, with their bytes: nobody has asked for them yet.
pub(super) fn strays(root: &Path) -> HashMap<PathBuf, u64> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut found = HashMap::new();
    for dir in entries.map(|entry| entry.path()) {
        // What was being made or removed when the last process ended.
        if dir
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'))
        {
            let _ = fs::remove_dir_all(&dir);
        } else {
            found.insert(dir.clone(), bytes(&dir));
        }
    }
    found
}

struct Store {
    dir: PathBuf,
    bytes: u64,
    /// Nothing: not since the process began.
    used: Option<Instant>,
    idle: bool,
}

/// The stores to remove, unused for longest first.
fn surplus(mut stores: Vec<Store>, quota: u64) -> Vec<PathBuf> {
    let mut total: u64 = stores.iter().map(|store| store.bytes).sum();
    stores.retain(|store| store.idle);
    stores.sort_by_key(|store| store.used);
    let mut gone = Vec::new();
    for store in stores {
        if total <= quota {
            break;
        }
        total -= store.bytes;
        gone.push(store.dir);
    }
    gone
}

impl Repo {
    pub(super) fn use_now(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Looks how large the store is now.
    pub(super) fn measure(&self) {
        self.bytes.store(bytes(&self.dir), Ordering::Relaxed);
    }

    fn as_store(self: &Arc<Self>) -> Store {
        Store {
            dir: self.dir.clone(),
            bytes: self.bytes.load(Ordering::Relaxed),
            used: Some(*self.used.lock().unwrap_or_else(PoisonError::into_inner)),
            // The table's own hold is one.
            idle: Arc::strong_count(self) == 1,
        }
    }
}

/// Bytes of a store: its packs (all that is fetched is packed) and LFS objects.
pub(super) fn bytes(dir: &Path) -> u64 {
    let packs = fs::read_dir(dir.join("objects/pack"))
        .into_iter()
        .flatten()
        .flatten();
    packs
        .filter_map(|file| file.metadata().ok())
        .map(|file| file.len())
        .sum::<u64>()
        + super::lfs::bytes(dir)
}

/// Removes what a git that was killed leaves behind: locks, and packs that were not finished. Only for a store that no git
/// works in.
pub(super) fn tidy(dir: &Path) {
    let mut pending = vec![(dir.to_owned(), 0)];
    while let Some((dir, depth)) = pending.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if kind.is_dir() && depth < MAX_DEPTH {
                pending.push((entry.path(), depth + 1));
            } else if name.ends_with(".lock") || name.starts_with("tmp_") || name.starts_with(".tmp-") {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Takes a directory away at once and removes it then.
pub(super) fn remove(root: &Path, dir: &Path) {
    let gone = tempfile::Builder::new().prefix(".gone-").tempdir_in(root);
    let moved = gone
        .as_ref()
        .is_ok_and(|gone| fs::rename(dir, gone.path().join("git")).is_ok());
    // Where nothing can be made (a full disk), it is removed where it is.
    if !moved && let Err(error) = fs::remove_dir_all(dir) {
        tracing::warn!(path = %dir.display(), %error, "removing a store failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn idle_stores_go_oldest_first_until_the_rest_fits() {
        let now = Instant::now();
        let store = |name: &str, age: Option<u64>, idle| Store {
            dir: name.into(),
            bytes: 10,
            used: age.map(|age| now - Duration::from_secs(age)),
            idle,
        };
        let gone = |quota| {
            let stores = vec![
                store("new", Some(1), true),
                store("read", Some(9), false),
                store("old", Some(8), true),
                store("stray", None, true),
            ];
            let gone = surplus(stores, quota).into_iter();
            gone.map(|dir| dir.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(gone(40), Vec::<String>::new());
        assert_eq!(gone(25), ["stray", "old"]);
        assert_eq!(gone(0), ["stray", "old", "new"]);
    }
}
