//! Directories for tools that need files (Helm, Kustomize): one per tree id, made once, read-only, thrown
//! away by last use.
//!
//! A directory is filled under a private name and then renamed, so that what stands under its final name is
//! whole. Links that leave the tree are left out: nothing can be read through them.

use crate::error::{Error, Result};
use crate::git::tree::GitTree;
use crate::path::TreePath;
use crate::tree::{Node, RawKind, Tree};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Largest single file written.
const MAX_FILE: u64 = 512 << 20;

/// The cache of directories.
pub struct Materialiser {
    root: PathBuf,
    max_bytes: u64,
    max_tree_bytes: u64,
    entries: Mutex<HashMap<String, Entry>>,
    making: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// Directories that were put aside to be removed.
    set_aside: AtomicU64,
}

struct Entry {
    directory: Arc<Directory>,
    bytes: u64,
    used: Instant,
}

/// A directory that stays as long as somebody holds it.
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// A directory that belongs to somebody else and is never removed.
    pub(crate) fn borrowed(path: &Path) -> Directory {
        Directory {
            path: path.to_owned(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Materialiser {
    /// Uses `root`, forgetting what an earlier process left there; keeps at most `max_bytes` that nobody uses.
    ///
    /// # Errors
    /// [`Error::Io`] when the directory cannot be made.
    pub fn new(root: PathBuf, max_bytes: u64, max_tree_bytes: u64) -> Result<Materialiser> {
        if root.exists() {
            remove(&root);
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&root)
            .map_err(|e| Error::io(format!("failed to create {}", root.display()), e))?;
        Ok(Materialiser {
            root,
            max_bytes,
            max_tree_bytes,
            entries: Mutex::default(),
            making: Mutex::default(),
            set_aside: AtomicU64::new(0),
        })
    }

    /// The directory of a whole tree.
    ///
    /// # Errors
    /// [`Error::Limit`] for a tree over its budget, [`Error::Io`].
    pub async fn tree(self: &Arc<Self>, tree: &GitTree) -> Result<Arc<Directory>> {
        let tree = tree.clone();
        let limit = self.max_tree_bytes;
        self.directory(&format!("git-{}", tree.root_id()), move |path| {
            let tree = Tree::Git(tree);
            let Some(root) = tree.lookup(&TreePath::root())? else {
                return Err(Error::io("failed to materialise a tree", "it has no root"));
            };
            write_tree(&tree, vec![root], path, limit)
        })
        .await
    }

    /// The directory of parts of a tree, each in its place: what a build needs of a large repository is mostly little.
    ///
    /// # Errors
    /// As [`Materialiser::tree`].
    pub(crate) async fn parts(
        self: &Arc<Self>,
        tree: &GitTree,
        parts: &[TreePath],
    ) -> Result<Arc<Directory>> {
        let whole = Tree::Git(tree.clone());
        let mut nodes = Vec::new();
        // The parts' places and contents: the same in all commits that have not changed them.
        let mut name = blake3::Hasher::new();
        for part in parts {
            let Some(node) = whole.lookup(part)? else {
                return Err(Error::io(
                    "failed to materialise a tree",
                    format!("it has no {part}"),
                ));
            };
            let id = if node.is_dir {
                tree.subtree(&node)?.root_id()
            } else {
                format!("{} {} {}", node.id, node.executable, tree.reads_lfs())
            };
            for text in [part.as_str(), &id] {
                name.update(&(text.len() as u64).to_le_bytes());
                name.update(text.as_bytes());
            }
            nodes.push(node);
        }
        let limit = self.max_tree_bytes;
        self.directory(&format!("parts-{}", name.finalize().to_hex()), move |path| {
            write_tree(&whole, nodes, path, limit)
        })
        .await
    }

    /// The directory under `key`, filled by `fill` (which returns its size in bytes) if it is not there yet.
    /// Calls with one key fill once.
    ///
    /// # Errors
    /// What `fill` returns.
    pub async fn directory<F>(self: &Arc<Self>, key: &str, fill: F) -> Result<Arc<Directory>>
    where
        F: FnOnce(&Path) -> Result<u64> + Send + 'static,
    {
        if let Some(found) = self.find(key) {
            return Ok(found);
        }
        let lock = self
            .making
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(key.to_owned())
            .or_default()
            .clone();
        let guard = lock.lock().await;
        let made = match self.find(key) {
            Some(found) => Ok(found),
            None => {
                let this = self.clone();
                let key = key.to_owned();
                tokio::task::spawn_blocking(move || this.make(&key, fill))
                    .await
                    .unwrap_or_else(|e| Err(Error::io("failed to materialise a tree", e)))
            }
        };
        drop(guard);
        let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::strong_count(&lock) <= 2 {
            making.remove(key);
        }
        made
    }

    fn find(&self, key: &str) -> Option<Arc<Directory>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get_mut(key)?;
        entry.used = Instant::now();
        Some(entry.directory.clone())
    }

    fn make(&self, key: &str, fill: impl FnOnce(&Path) -> Result<u64>) -> Result<Arc<Directory>> {
        let partial = self.root.join(format!(".partial-{key}"));
        remove(&partial);
        let failed = |e: std::io::Error| Error::io("failed to materialise a tree", e);
        fs::DirBuilder::new()
            .mode(0o755)
            .create(&partial)
            .map_err(failed)?;
        let bytes = match fill(&partial) {
            Ok(bytes) => bytes,
            Err(error) => {
                remove(&partial);
                return Err(error);
            }
        };
        let path = self.root.join(key);
        fs::rename(&partial, &path).map_err(failed)?;
        let directory = Arc::new(Directory { path });
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.insert(
            key.to_owned(),
            Entry {
                directory: directory.clone(),
                bytes,
                used: Instant::now(),
            },
        );
        let gone = evict(&mut entries, self.max_bytes);
        // Out of the way at once: somebody may make the same again before they are removed.
        let gone: Vec<PathBuf> = gone.iter().map(|old| self.aside(&old.path)).collect();
        drop(entries);
        for path in gone {
            remove(&path);
        }
        Ok(directory)
    }

    /// Gives a directory a name that nobody looks for.
    fn aside(&self, path: &Path) -> PathBuf {
        let number = self.set_aside.fetch_add(1, Ordering::Relaxed);
        let aside = self.root.join(format!(".gone-{number}"));
        match fs::rename(path, &aside) {
            Ok(()) => aside,
            Err(_) => path.to_owned(),
        }
    }
}

/// Takes out what nobody holds, oldest use first, until the rest fits.
fn evict(entries: &mut HashMap<String, Entry>, max_bytes: u64) -> Vec<Arc<Directory>> {
    let mut total: u64 = entries.values().map(|entry| entry.bytes).sum();
    let mut idle: Vec<(Instant, String)> = entries
        .iter()
        .filter(|(_, entry)| Arc::strong_count(&entry.directory) == 1)
        .map(|(key, entry)| (entry.used, key.clone()))
        .collect();
    idle.sort();
    let mut gone = Vec::new();
    for (_, key) in idle {
        if total <= max_bytes {
            break;
        }
        if let Some(entry) = entries.remove(&key) {
            total -= entry.bytes;
            gone.push(entry.directory);
        }
    }
    gone
}

/// Writes directories of a tree with all below, and files, into an empty directory, each in its place; returns their size.
fn write_tree(tree: &Tree, nodes: Vec<Node>, into: &Path, limit: u64) -> Result<u64> {
    let mut total = 0_u64;
    let mut pending = Vec::new();
    for node in nodes {
        let target = into.join(node.path.as_str());
        let failed = |e: std::io::Error| Error::io(format!("failed to write {}", node.path), e);
        if node.is_dir {
            tree.expect_below(&node, limit);
            fs::create_dir_all(&target).map_err(failed)?;
            pending.push(node);
        } else {
            let parent = target.parent().unwrap_or(into);
            fs::create_dir_all(parent).map_err(failed)?;
            write_node(tree, &node, &target, &mut total, limit)?;
        }
    }
    while let Some(dir) = pending.pop() {
        let here = into.join(dir.path.as_str());
        for entry in tree.list(&dir)?.iter() {
            let path = dir.path.child(&entry.name);
            let target = here.join(&entry.name);
            let failed = |e: std::io::Error| Error::io(format!("failed to write {path}"), e);
            match entry.kind {
                RawKind::Directory | RawKind::Submodule => {
                    fs::create_dir(&target).map_err(failed)?;
                    if entry.kind == RawKind::Directory {
                        let id = entry.id.clone();
                        pending.push(Node {
                            path,
                            is_dir: true,
                            executable: false,
                            id,
                        });
                    }
                }
                RawKind::File { executable } => {
                    let node = Node {
                        path,
                        is_dir: false,
                        executable,
                        id: entry.id.clone(),
                    };
                    write_node(tree, &node, &target, &mut total, limit)?;
                }
                RawKind::Link => {
                    if !matches!(tree.lookup(&path), Ok(Some(_))) {
                        continue;
                    }
                    let text = tree.read_link(entry)?;
                    use std::os::unix::ffi::OsStrExt as _;
                    std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&text), &target)
                        .map_err(failed)?;
                    total += 512;
                }
            }
        }
    }
    Ok(total)
}

/// Writes one file, and adds its size to the `total` that may not be over `limit`.
fn write_node(tree: &Tree, node: &Node, target: &Path, total: &mut u64, limit: u64) -> Result<()> {
    let data = tree.read_node(node, MAX_FILE)?;
    *total += data.len() as u64 + 512;
    if *total > limit {
        return Err(Error::Limit {
            which: "size of the repository's files".into(),
            limit: format!("{limit} bytes"),
        });
    }
    let mode = if node.executable { 0o555 } else { 0o444 };
    write_file(target, &data, mode).map_err(|e| Error::io(format!("failed to write {}", node.path), e))
}

pub(crate) fn write_file(path: &Path, data: &[u8], mode: u32) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(data)
}

/// Removes a directory however its modes are set; failures are left for the next start.
fn remove(path: &Path) {
    if fs::remove_dir_all(path).is_err() && path.exists() {
        let mut pending = vec![path.to_owned()];
        while let Some(dir) = pending.pop() {
            let _ = fs::set_permissions(&dir, fs::Permissions::from_mode(0o700));
            let Ok(entries) = fs::read_dir(&dir) else { continue };
            pending.extend(
                entries
                    .flatten()
                    .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
                    .map(|e| e.path()),
            );
        }
        if let Err(error) = fs::remove_dir_all(path)
            && path.exists()
        {
            tracing::warn!(path = %path.display(), %error, "removing a directory failed");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn what_has_made_room_can_be_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("trees");
        let files = Arc::new(Materialiser::new(root.clone(), 10, 10).unwrap());
        for key in ["a", "b", "a"] {
            let made = files.directory(key, move |path| {
                write_file(&path.join(key), b"", 0o444).map_err(|e| Error::io("failed to write", e))?;
                Ok(10)
            });
            assert!(made.await.unwrap().path().join(key).is_file());
            let names = fs::read_dir(&root)
                .unwrap()
                .map(|entry| entry.unwrap().file_name());
            assert_eq!(names.collect::<Vec<_>>(), [key]);
        }
    }
}
