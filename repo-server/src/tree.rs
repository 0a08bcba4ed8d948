//! A tree of files, whether it lies in a git object store or on disk, with symbolic links resolved inside it.
//!
//! No reader of this crate opens a path of the machine by itself: it asks a [`Tree`], and a tree answers only
//! for what is below its root. A link that leaves the root is an error with its name.

mod content_ids;

pub use content_ids::ContentIds;

use crate::error::{Error, Result};
use crate::git::tree::GitTree;
use crate::path::TreePath;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Links followed while one path is resolved.
const MAX_LINKS: usize = 40;
/// Longest link target.
const MAX_LINK_BYTES: u64 = 4096;

/// A directory tree that is only read.
#[derive(Clone)]
pub enum Tree {
    /// A commit.
    Git(GitTree),
    /// A directory of this machine, such as a fetched chart or a person's working tree.
    Disk(DiskTree),
}

/// What a directory entry is, links not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawKind {
    /// A file.
    File {
        /// Whether its mode has an execute bit.
        executable: bool,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A submodule, which appears as an empty directory.
    Submodule,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawEntry {
    /// Plain name.
    pub name: String,
    /// What it is.
    pub kind: RawKind,
    /// By what the tree finds it again: an object id or a path.
    pub id: String,
}

/// What a kind of tree has to offer; link resolution is built on it once.
pub(crate) trait Raw {
    /// Id of the root directory.
    fn root(&self) -> String;
    /// Entries of a directory by its id, sorted by name.
    fn list(&self, id: &str) -> Result<Arc<Vec<RawEntry>>>;
    /// Content of a file or text of a link by its id.
    fn read(&self, id: &str, limit: u64, shown: &str) -> Result<Vec<u8>>;
}

/// What a path names after all links are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The path without links.
    pub path: TreePath,
    /// File or directory.
    pub is_dir: bool,
    /// Whether a file has an execute bit.
    pub executable: bool,
    /// The tree's id for it.
    pub id: String,
}

impl Tree {
    /// Opens a directory of this machine.
    ///
    /// # Errors
    /// [`Error::Path`] when it is not a directory.
    pub fn disk(root: &Path) -> Result<Tree> {
        Ok(Tree::Disk(DiskTree::open(root)?))
    }

    fn raw(&self) -> &dyn Raw {
        match self {
            Tree::Git(tree) => tree,
            Tree::Disk(tree) => tree,
        }
    }

    /// Finds what a path names, following links inside the tree. `None`: nothing is there.
    ///
    /// # Errors
    /// [`Error::Path`] for a link that leaves the tree or loops.
    pub fn lookup(&self, path: &TreePath) -> Result<Option<Node>> {
        let raw = self.raw();
        let mut pending: Vec<String> = path.components().map(str::to_owned).collect();
        pending.reverse();
        let mut stack = vec![Node {
            path: TreePath::root(),
            is_dir: true,
            executable: false,
            id: raw.root(),
        }];
        let mut links = 0;
        while let Some(name) = pending.pop() {
            if name == ".." {
                if stack.len() == 1 {
                    return Err(outside(path));
                }
                stack.pop();
                continue;
            }
            let Some(here) = stack.last() else { return Ok(None) };
            if !here.is_dir {
                return Ok(None);
            }
            if here.id.is_empty() {
                return Ok(None);
            }
            let entries = raw.list(&here.id)?;
            let Ok(at) = entries.binary_search_by(|entry| entry.name.as_str().cmp(&name)) else {
                return Ok(None);
            };
            let entry = &entries[at];
            let child = here.path.child(&name);
            match entry.kind {
                RawKind::File { executable } => {
                    stack.push(Node {
                        path: child,
                        is_dir: false,
                        executable,
                        id: entry.id.clone(),
                    });
                }
                RawKind::Directory => {
                    stack.push(Node {
                        path: child,
                        is_dir: true,
                        executable: false,
                        id: entry.id.clone(),
                    });
                }
                RawKind::Submodule => {
                    stack.push(Node {
                        path: child,
                        is_dir: true,
                        executable: false,
                        id: String::new(),
                    });
                }
                RawKind::Link => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Error::path(path.as_str(), "too many levels of symbolic links"));
                    }
                    let target = raw.read(&entry.id, MAX_LINK_BYTES, child.as_str())?;
                    let Ok(target) = String::from_utf8(target) else {
                        return Ok(None);
                    };
                    if target.starts_with('/') || target.contains('\0') {
                        return Err(outside(&child));
                    }
                    let parts = target.split('/').filter(|part| !part.is_empty() && *part != ".");
                    let parts: Vec<String> = parts.map(str::to_owned).collect();
                    pending.extend(parts.into_iter().rev());
                }
            }
        }
        Ok(stack.pop())
    }

    /// The directory of an Application's source.
    ///
    /// # Errors
    /// [`Error::Path`] in Argo CD's words.
    pub fn app_dir(&self, path: &TreePath) -> Result<Node> {
        match self.lookup(path)? {
            None => Err(Error::path(path.to_string(), "app path does not exist")),
            Some(node) if !node.is_dir => Err(Error::path(path.to_string(), "app path is not a directory")),
            Some(node) => Ok(node),
        }
    }

    /// Entries of a directory, links not followed, sorted by name.
    ///
    /// # Errors
    /// [`Error::Path`] when it is not a directory.
    pub fn list(&self, directory: &Node) -> Result<Arc<Vec<RawEntry>>> {
        if !directory.is_dir {
            return Err(Error::path(directory.path.to_string(), "is not a directory"));
        }
        if directory.id.is_empty() {
            return Ok(Arc::default());
        }
        self.raw().list(&directory.id)
    }

    /// Content of a file, at most `limit` bytes.
    ///
    /// # Errors
    /// [`Error::Path`] when there is no such file, [`Error::Limit`] when it is larger.
    pub fn read(&self, path: &TreePath, limit: u64) -> Result<Vec<u8>> {
        match self.lookup(path)? {
            None => Err(Error::path(path.to_string(), "file does not exist")),
            Some(node) => self.read_node(&node, limit),
        }
    }

    /// Content of a file that was looked up before.
    ///
    /// # Errors
    /// As [`Tree::read`].
    pub fn read_node(&self, node: &Node, limit: u64) -> Result<Vec<u8>> {
        if node.is_dir {
            return Err(Error::path(node.path.to_string(), "is a directory"));
        }
        self.raw().read(&node.id, limit, node.path.as_str())
    }

    /// Says that files will be read, at most `limit` bytes of them: what lies elsewhere is got in few requests.
    pub(crate) fn expect<'a>(&self, files: impl Iterator<Item = &'a Node>, limit: u64) {
        if let Tree::Git(tree) = self
            && tree.has_pointers()
        {
            tree.expect(files.map(|node| node.id.as_str()), limit);
        }
    }

    /// As [`Tree::expect`], of all files below a directory.
    pub(crate) fn expect_below(&self, directory: &Node, limit: u64) {
        let Tree::Git(tree) = self else { return };
        if !tree.has_pointers() {
            return;
        }
        let (mut pending, mut files) = (vec![directory.id.clone()], Vec::new());
        while let Some(id) = pending.pop() {
            // What cannot be listed will be found out when it is read.
            let Ok(entries) = tree.list(&id) else { return };
            for entry in entries.iter() {
                match entry.kind {
                    RawKind::Directory => pending.push(entry.id.clone()),
                    RawKind::File { .. } => files.push(entry.id.clone()),
                    RawKind::Link | RawKind::Submodule => {}
                }
            }
        }
        tree.expect(files.iter().map(String::as_str), limit);
    }

    /// Text of a link, by the entry that names it.
    pub(crate) fn read_link(&self, entry: &RawEntry) -> Result<Vec<u8>> {
        self.raw().read(&entry.id, MAX_LINK_BYTES, &entry.name)
    }

    /// A name for all that is below a path, equal only for equal content; `None` where the tree has no such names.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    pub fn content_id(&self, path: &TreePath) -> Result<Option<String>> {
        match self {
            Tree::Disk(_) => Ok(None),
            Tree::Git(_) => Ok(Some(match self.lookup(path)? {
                Some(node) if node.executable => format!("{}x", node.id),
                Some(node) => node.id,
                None => "absent".into(),
            })),
        }
    }

    /// The same for many paths.
    pub fn content_ids(&self) -> ContentIds<'_> {
        ContentIds::new(self)
    }

    /// Refuses links below `directory` that leave the tree, in Argo CD's words.
    ///
    /// # Errors
    /// [`Error::Path`] naming the link.
    pub fn check_links(&self, directory: &Node) -> Result<()> {
        let mut pending = vec![directory.clone()];
        let mut seen = 0_usize;
        while let Some(dir) = pending.pop() {
            for entry in self.list(&dir)?.iter() {
                seen += 1;
                if seen > MAX_ENTRIES {
                    return Err(Error::Limit {
                        which: "files below the path".into(),
                        limit: MAX_ENTRIES.to_string(),
                    });
                }
                let path = dir.path.child(&entry.name);
                match entry.kind {
                    RawKind::Directory => {
                        pending.push(Node {
                            path,
                            is_dir: true,
                            executable: false,
                            id: entry.id.clone(),
                        });
                    }
                    RawKind::Link => {
                        self.lookup(&path).map(drop)?;
                    }
                    RawKind::File { .. } | RawKind::Submodule => {}
                }
            }
        }
        Ok(())
    }

    /// All files below a directory, links to files followed, links to directories not; in the order of a walk, which
    /// finishes each directory before what comes after its name.
    ///
    /// # Errors
    /// [`Error::Limit`] for more than a million entries.
    pub fn walk(&self, directory: &Node) -> Result<Vec<Node>> {
        let mut files = Vec::new();
        let mut pending = vec![directory.clone()];
        let mut seen = 0_usize;
        while let Some(dir) = pending.pop() {
            for entry in self.list(&dir)?.iter() {
                seen += 1;
                if seen > MAX_ENTRIES {
                    return Err(Error::Limit {
                        which: "files below the path".into(),
                        limit: MAX_ENTRIES.to_string(),
                    });
                }
                let path = dir.path.child(&entry.name);
                match entry.kind {
                    RawKind::File { executable } => {
                        files.push(Node {
                            path,
                            is_dir: false,
                            executable,
                            id: entry.id.clone(),
                        });
                    }
                    RawKind::Directory => {
                        pending.push(Node {
                            path,
                            is_dir: true,
                            executable: false,
                            id: entry.id.clone(),
                        });
                    }
                    RawKind::Link => {
                        // One that leaves the tree is nothing to see here; who must refuse it asks `check_links`.
                        if let Ok(Some(node)) = self.lookup(&path)
                            && !node.is_dir
                        {
                            files.push(Node { path, ..node });
                        }
                    }
                    RawKind::Submodule => {}
                }
            }
        }
        files.sort_by(|a, b| a.path.components().cmp(b.path.components()));
        Ok(files)
    }
}

/// Most entries a walk looks at.
const MAX_ENTRIES: usize = 1_000_000;

fn outside(path: &TreePath) -> Error {
    Error::path(
        path.to_string(),
        format!("repository contains out-of-bounds symlinks. file: {path}"),
    )
}

/// A directory of this machine. Every open is relative to one descriptor and cannot leave it.
#[derive(Clone)]
pub struct DiskTree {
    root: PathBuf,
    handle: Arc<OwnedFd>,
}

impl DiskTree {
    fn open(root: &Path) -> Result<DiskTree> {
        use rustix::fs::{Mode, OFlags};
        let shown = root.display().to_string();
        let root = root
            .canonicalize()
            .map_err(|e| Error::path(shown.clone(), e.to_string()))?;
        let handle = rustix::fs::open(&root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| Error::path(shown, e.to_string()))?;
        Ok(DiskTree {
            root,
            handle: Arc::new(handle),
        })
    }

    /// Where it is, for tools that need files.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Opens below the root without following any link; `id` is a path whose links were resolved already.
    fn open_beneath(&self, id: &str, flags: rustix::fs::OFlags) -> rustix::io::Result<OwnedFd> {
        use rustix::fs::{Mode, OFlags, ResolveFlags};
        rustix::fs::openat2(
            &*self.handle,
            id,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS,
        )
    }
}

impl Raw for DiskTree {
    fn root(&self) -> String {
        ".".into()
    }

    fn list(&self, id: &str) -> Result<Arc<Vec<RawEntry>>> {
        use rustix::fs::{AtFlags, FileType, OFlags};
        let failed = |e: rustix::io::Errno| Error::io(format!("failed to list {id}"), e);
        let dir = self
            .open_beneath(id, OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(failed)?;
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name == "." || name == ".." || name == ".git" {
                continue;
            }
            let stat = match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(rustix::io::Errno::NOENT) => continue,
                Err(e) => return Err(failed(e)),
            };
            let kind = match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => RawKind::File {
                    executable: stat.st_mode & 0o111 != 0,
                },
                FileType::Directory => RawKind::Directory,
                FileType::Symlink => RawKind::Link,
                _ => continue,
            };
            let id = if id == "." {
                name.to_owned()
            } else {
                format!("{id}/{name}")
            };
            entries.push(RawEntry {
                name: name.to_owned(),
                kind,
                id,
            });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Arc::new(entries))
    }

    fn read(&self, id: &str, limit: u64, shown: &str) -> Result<Vec<u8>> {
        use rustix::fs::OFlags;
        use std::io::Read as _;
        let failed = |e: &dyn std::fmt::Display| Error::io(format!("failed to read {shown}"), e);
        let file = match self.open_beneath(id, OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(file) => std::fs::File::from(file),
            // A link: its text is its content, as in a git tree.
            Err(rustix::io::Errno::LOOP) => return self.link_text(id).map_err(|e| failed(&e)),
            Err(e) => return Err(failed(&e)),
        };
        let mut data = Vec::new();
        file.take(limit.saturating_add(1))
            .read_to_end(&mut data)
            .map_err(|e| failed(&e))?;
        if data.len() as u64 > limit {
            return Err(Error::Limit {
                which: format!("size of {shown}"),
                limit: format!("{limit} bytes"),
            });
        }
        Ok(data)
    }
}

impl DiskTree {
    fn link_text(&self, id: &str) -> rustix::io::Result<Vec<u8>> {
        use rustix::fs::OFlags;
        let (dir, name) = id.rsplit_once('/').unwrap_or((".", id));
        let dir = self.open_beneath(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(rustix::fs::readlinkat(&dir, name, Vec::new())?.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn hostile() -> (tempfile::TempDir, Tree) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("canary"), "CANARY").unwrap();
        let root = dir.path().join("repo");
        std::fs::create_dir_all(root.join("app/sub")).unwrap();
        std::fs::write(root.join("shared.yaml"), "shared").unwrap();
        let link = |target: &str, at: &str| std::os::unix::fs::symlink(target, root.join(at)).unwrap();
        link("../shared.yaml", "app/inside");
        link("../../canary", "app/outside");
        link("/etc/passwd", "app/absolute");
        link("loop", "app/loop");
        link("../app/sub", "app/dir");
        link("/proc/self", "app/sub/magic");
        let tree = Tree::disk(&root).unwrap();
        (dir, tree)
    }

    #[test]
    fn links_resolve_inside_the_tree_and_nowhere_else() {
        let (_dir, tree) = hostile();
        let read = |path: &str| tree.read(&TreePath::parse(path).unwrap(), 1024);
        assert_eq!(read("app/inside").unwrap(), b"shared");
        for path in ["app/outside", "app/absolute", "app/loop", "app/sub/magic/environ"] {
            let error = read(path).unwrap_err();
            assert!(matches!(error, Error::Path { .. }), "{path}: {error}");
            assert!(!error.to_string().contains("CANARY"));
        }
        assert!(
            tree.lookup(&TreePath::parse("app/dir").unwrap())
                .unwrap()
                .unwrap()
                .is_dir
        );
        assert!(
            tree.lookup(&TreePath::parse("app/none").unwrap())
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_leaving_link_below_the_source_is_refused_by_name() {
        let (_dir, tree) = hostile();
        let app = tree.app_dir(&TreePath::parse("app").unwrap()).unwrap();
        let text = tree.check_links(&app).unwrap_err().to_string();
        assert!(
            text.contains("out-of-bounds symlinks") || text.contains("symbolic links"),
            "{text}"
        );
        let error = tree.app_dir(&TreePath::parse("nope").unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "nope: app path does not exist");
        let error = tree
            .app_dir(&TreePath::parse("shared.yaml").unwrap())
            .unwrap_err();
        assert_eq!(error.to_string(), "shared.yaml: app path is not a directory");
    }

    #[test]
    fn a_file_over_its_budget_is_an_error() {
        let (_dir, tree) = hostile();
        assert!(matches!(
            tree.read(&TreePath::parse("shared.yaml").unwrap(), 3),
            Err(Error::Limit { .. })
        ));
    }
}
