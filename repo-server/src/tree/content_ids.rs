//! Names of the content at many paths of one tree, asked one after another: neighbours share the way from the root.

use super::{Raw as _, RawEntry, RawKind, Tree};
use crate::error::Result;
use crate::git::tree::GitTree;
use crate::path::TreePath;
use std::sync::Arc;

/// Answers as [`Tree::content_id`] does, and cheaply if the paths come in order.
pub struct ContentIds<'a> {
    tree: &'a Tree,
    /// The path that was asked for last.
    last: String,
    /// Directories on the way to it, the root first.
    way: Vec<Level>,
}

/// A directory: how much of the last path names it, and its entries.
struct Level {
    end: usize,
    entries: Arc<Vec<RawEntry>>,
}

/// Where a walk that follows no links ends.
enum Found {
    Id(String),
    Absent,
    /// A link is in the way.
    Link,
}

impl<'a> ContentIds<'a> {
    pub(super) fn new(tree: &'a Tree) -> ContentIds<'a> {
        ContentIds {
            tree,
            last: String::new(),
            way: Vec::new(),
        }
    }

    /// The name of all that is at a path, equal only for equal content; `None` where the tree has no such names.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    pub fn of(&mut self, path: &TreePath) -> Result<Option<String>> {
        let Tree::Git(tree) = self.tree else {
            return Ok(None);
        };
        match self.walk(tree, path.as_str())? {
            Found::Id(id) => Ok(Some(id)),
            Found::Absent => Ok(Some("absent".into())),
            Found::Link => self.tree.content_id(path),
        }
    }

    fn walk(&mut self, tree: &GitTree, path: &str) -> Result<Found> {
        if path.is_empty() {
            return Ok(Found::Id(tree.root()));
        }
        let shared = |level: &Level| {
            let prefix = &self.last[..level.end];
            level.end == 0 || path.starts_with(prefix) && path.as_bytes().get(level.end) == Some(&b'/')
        };
        let keep = self.way.iter().take_while(|level| shared(level)).count();
        self.way.truncate(keep);
        self.last.clear();
        self.last.push_str(path);
        if self.way.is_empty() {
            let entries = tree.list(&tree.root())?;
            self.way.push(Level { end: 0, entries });
        }
        loop {
            let Some(level) = self.way.last() else {
                return Ok(Found::Absent);
            };
            let start = if level.end == 0 { 0 } else { level.end + 1 };
            let end = path[start..].find('/').map_or(path.len(), |at| start + at);
            let name = &path[start..end];
            let Ok(at) = level
                .entries
                .binary_search_by(|entry| entry.name.as_str().cmp(name))
            else {
                return Ok(Found::Absent);
            };
            let entry = &level.entries[at];
            match (entry.kind, end == path.len()) {
                (RawKind::Link, _) => return Ok(Found::Link),
                (RawKind::File { executable: true }, true) => return Ok(Found::Id(format!("{}x", entry.id))),
                (RawKind::File { .. } | RawKind::Directory, true) => return Ok(Found::Id(entry.id.clone())),
                // An empty directory.
                (RawKind::Submodule, true) => return Ok(Found::Id(String::new())),
                (RawKind::Directory, false) => {
                    let entries = tree.list(&entry.id)?;
                    self.way.push(Level { end, entries });
                }
                (RawKind::File { .. } | RawKind::Submodule, false) => return Ok(Found::Absent),
            }
        }
    }
}
