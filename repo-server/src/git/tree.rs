//! The files of one commit, read straight from the objects.

use super::Repo;
use super::lfs::{self, Lfs};
use super::submodule::{self, Modules};
use crate::error::{Error, Result};
use crate::tree::{Node, Raw, RawEntry, RawKind};
use std::sync::Arc;

/// A tree of the object store, seen as a directory. Cheap to clone.
#[derive(Clone)]
pub struct GitTree {
    repo: Arc<Repo>,
    root: gix::ObjectId,
    /// Fetched submodules by the commits that this tree, or one of them, names.
    modules: Arc<Modules>,
    /// Where the content of pointers is, if they are read as what they stand for.
    lfs: Option<Arc<Lfs>>,
}

type Listing = Arc<Vec<RawEntry>>;

/// Entries of directories that are kept decoded, of all repositories together: about 100 bytes each.
const MAX_ENTRIES: u64 = 400_000;

/// Directories that were decoded lately. An id names a content, so all commits and repositories may share them; who has
/// no right to a repository never comes by an id of it.
#[derive(Clone)]
pub(super) struct Listings(moka::sync::Cache<gix::ObjectId, Listing>);

impl Default for Listings {
    fn default() -> Listings {
        Listings(
            moka::sync::Cache::builder()
                .weigher(|_, listing: &Listing| u32::try_from(listing.len() + 1).unwrap_or(u32::MAX))
                .max_capacity(MAX_ENTRIES)
                .build(),
        )
    }
}

impl GitTree {
    pub(super) fn new(repo: Arc<Repo>, root: gix::ObjectId) -> GitTree {
        GitTree {
            repo,
            root,
            modules: submodule::none(),
            lfs: None,
        }
    }

    /// Id of the whole tree: equal trees have equal ids, in every commit and repository. A tree names the commits of
    /// submodules; which of them could be fetched is said elsewhere, if this is but a part of a commit's tree.
    pub fn root_id(&self) -> String {
        let mut id = self.root.to_hex().to_string();
        if self.reads_lfs() {
            id.push_str("-lfs");
        }
        if !self.modules.is_empty() {
            let mut commits: Vec<&str> = self.modules.keys().map(String::as_str).collect();
            commits.sort_unstable();
            id.push('-');
            id.push_str(&super::short_hash(&commits.concat()));
        }
        id
    }

    /// Whether pointers are read as what they stand for.
    pub fn reads_lfs(&self) -> bool {
        self.lfs.is_some()
    }

    pub(super) fn with_lfs(self, lfs: Lfs) -> GitTree {
        GitTree {
            lfs: Some(Arc::new(lfs)),
            ..self
        }
    }

    /// Gets what pointers among some files stand for, in few requests, before the files are read; no more than `limit` bytes.
    pub(crate) fn expect<'a>(&self, ids: impl Iterator<Item = &'a str>, limit: u64) {
        let mut wanted: Vec<(&Arc<Lfs>, Vec<lfs::Pointer>)> = Vec::new();
        let mut left = limit;
        for text in ids {
            let (tree, plain) = self.place(text);
            let Some(lfs) = &tree.lfs else { continue };
            let Some(pointer) = tree.pointer(plain, lfs) else {
                continue;
            };
            let Some(rest) = left.checked_sub(pointer.size) else {
                break;
            };
            left = rest;
            match wanted.iter_mut().find(|(known, _)| Arc::ptr_eq(known, lfs)) {
                Some((_, pointers)) => pointers.push(pointer),
                None => wanted.push((lfs, vec![pointer])),
            }
        }
        for (lfs, pointers) in wanted {
            lfs.gather(pointers);
        }
    }

    /// The pointer that a file is, if what it stands for is not in the store. What cannot be read will be found out when it is.
    fn pointer(&self, id: &str, lfs: &Lfs) -> Option<lfs::Pointer> {
        let (id, repo) = (self.id(id).ok()?, self.repo.local());
        let small = repo.find_header(id).ok()?.size() < lfs::MAX_POINTER as u64;
        small
            .then(|| lfs.missing(&repo.find_blob(id).ok()?.data))
            .flatten()
    }

    /// Whether anything of it may be a pointer that is read as what it stands for.
    pub(crate) fn has_pointers(&self) -> bool {
        self.reads_lfs() || self.modules.values().any(GitTree::reads_lfs)
    }

    /// A directory of this tree as a tree of its own.
    ///
    /// # Errors
    /// [`Error::Io`] when the node is not a directory of this tree.
    pub fn subtree(&self, node: &Node) -> Result<GitTree> {
        let (tree, id) = self.place(&node.id);
        Ok(GitTree {
            root: tree.id(id)?,
            modules: self.modules.clone(),
            ..tree.clone()
        })
    }

    /// The same tree with its submodules filled in.
    pub(super) fn with_modules(self, modules: Modules) -> GitTree {
        if modules.is_empty() {
            self
        } else {
            GitTree {
                modules: Arc::new(modules),
                ..self
            }
        }
    }

    /// Ids of what lies in a submodule are `COMMIT:ID`; gives the tree that knows the id.
    fn place<'a>(&'a self, text: &'a str) -> (&'a GitTree, &'a str) {
        match text
            .split_once(':')
            .and_then(|(commit, id)| Some((self.modules.get(commit)?, id)))
        {
            Some(found) => found,
            None => (self, text),
        }
    }

    fn listing(&self, id: gix::ObjectId) -> Result<Listing> {
        if let Some(found) = self.repo.listings.0.get(&id) {
            return Ok(found);
        }
        let broken = |e: &dyn std::fmt::Display| self.repo.damaged(format!("tree {id}"), e);
        let repo = self.repo.local();
        let tree = repo.find_tree(id).map_err(|e| broken(&e))?;
        let mut entries = Vec::new();
        for entry in tree.iter() {
            let entry = entry.map_err(|e| broken(&e))?;
            // A name that is not UTF-8 cannot be written in a source; `.git` in a tree is an attack.
            let Ok(name) = std::str::from_utf8(entry.filename()) else {
                continue;
            };
            if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
                continue;
            }
            if name.eq_ignore_ascii_case(".git") {
                continue;
            }
            use gix::objs::tree::EntryKind;
            let kind = match entry.kind() {
                EntryKind::Tree => RawKind::Directory,
                EntryKind::Blob => RawKind::File { executable: false },
                EntryKind::BlobExecutable => RawKind::File { executable: true },
                EntryKind::Link => RawKind::Link,
                EntryKind::Commit => RawKind::Submodule,
            };
            entries.push(RawEntry {
                name: name.to_owned(),
                kind,
                id: entry.object_id().to_hex().to_string(),
            });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let listing = Arc::new(entries);
        self.repo.listings.0.insert(id, listing.clone());
        Ok(listing)
    }

    fn id(&self, text: &str) -> Result<gix::ObjectId> {
        if text.is_empty() {
            return Ok(self.root);
        }
        gix::ObjectId::from_hex(text.as_bytes())
            .map_err(|e| Error::io(format!("failed to read object {text}"), e))
    }
}

impl Raw for GitTree {
    fn root(&self) -> String {
        self.root.to_hex().to_string()
    }

    fn list(&self, id: &str) -> Result<Listing> {
        let (tree, plain) = self.place(id);
        let listing = tree.listing(tree.id(plain)?)?;
        if self.modules.is_empty() {
            return Ok(listing);
        }
        // Entries of a submodule say which one; a submodule that was fetched is a directory.
        let prefix = id.split_once(':').map(|(commit, _)| commit);
        let entries = listing
            .iter()
            .map(|entry| match (entry.kind, self.modules.get(&entry.id)) {
                (RawKind::Submodule, Some(module)) => RawEntry {
                    kind: RawKind::Directory,
                    id: format!("{}:{}", entry.id, module.root()),
                    name: entry.name.clone(),
                },
                _ => RawEntry {
                    id: prefix.map_or_else(|| entry.id.clone(), |commit| format!("{commit}:{}", entry.id)),
                    ..entry.clone()
                },
            });
        Ok(Arc::new(entries.collect()))
    }

    fn read(&self, id: &str, limit: u64, shown: &str) -> Result<Vec<u8>> {
        let (tree, plain) = self.place(id);
        let id = tree.id(plain)?;
        let repo = tree.repo.local();
        let broken = |e: &dyn std::fmt::Display| tree.repo.damaged(shown, e);
        let size = repo.find_header(id).map_err(|e| broken(&e))?.size();
        if size > limit {
            return Err(Error::Limit {
                which: format!("size of {shown}"),
                limit: format!("{limit} bytes"),
            });
        }
        let mut blob = repo.find_blob(id).map_err(|e| broken(&e))?;
        let data = blob.take_data();
        match &tree.lfs {
            Some(lfs) => lfs.content(data, limit, shown),
            None => Ok(data),
        }
    }
}
