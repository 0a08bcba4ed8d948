//! The files that a plugin is sent: parts of a tree as a `.tgz`, under the paths that they have in the repository.
//!
//! A link whose target is sent too stays a link; one that leads to other places of the tree is replaced by what it leads
//! to; one that leaves the tree is left out.

use crate::error::{Error, Result};
use crate::path::TreePath;
use crate::tree::{Node, RawEntry, RawKind, Tree};
use argosy_api::glob::Glob;
use aws_lc_rs::digest;
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Sum of the files of one archive.
const MAX_BYTES: u64 = 1 << 30;
/// Files, directories and links of one archive.
const MAX_ENTRIES: usize = 500_000;
/// Links that lead to directories with links that lead …
const MAX_DEPTH: usize = 8;

/// A packed archive.
pub(super) struct Packed {
    pub(super) file: File,
    /// SHA-256 in hexadecimal.
    pub(super) checksum: String,
    pub(super) size: u64,
}

/// Packs what lies at the paths, each with everything below it, except what the patterns exclude.
pub(super) fn pack(tree: &Tree, parts: &[TreePath], exclusions: &[Glob], scratch: &Path) -> Result<Packed> {
    let file = tempfile::tempfile_in(scratch).map_err(|e| Error::io("failed to create an archive", e))?;
    let hashed = Hashed {
        file,
        digest: digest::Context::new(&digest::SHA256),
        size: 0,
    };
    let encoder = flate2::write::GzEncoder::new(hashed, flate2::Compression::fast());
    let mut packer = Packer {
        tree,
        parts,
        exclusions,
        builder: tar::Builder::new(encoder),
        seen: HashSet::new(),
        left: MAX_BYTES,
    };
    for part in parts {
        if let Some(node) = tree.lookup(part)? {
            if exclusions.is_empty() {
                tree.expect_below(&node, MAX_BYTES);
            }
            packer.add(part, &node, 0)?;
        }
    }
    if packer.seen.is_empty() {
        return Err(Error::Source(
            "there are no files to send to the config management plugin".into(),
        ));
    }
    let hashed = packer
        .builder
        .into_inner()
        .and_then(flate2::write::GzEncoder::finish);
    let hashed = hashed.map_err(|e| Error::io("failed to write an archive", e))?;
    Ok(Packed {
        file: hashed.file,
        checksum: crate::chart::hex(hashed.digest.finish().as_ref()),
        size: hashed.size,
    })
}

/// A file, and the digest of what was written to it.
struct Hashed {
    file: File,
    digest: digest::Context,
    size: u64,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.digest.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

struct Packer<'a> {
    tree: &'a Tree,
    parts: &'a [TreePath],
    exclusions: &'a [Glob],
    builder: tar::Builder<flate2::write::GzEncoder<Hashed>>,
    /// Paths that are in the archive.
    seen: HashSet<TreePath>,
    /// Bytes that may still come.
    left: u64,
}

impl Packer<'_> {
    /// Adds a node under a path, which is not its own if a link led to it.
    fn add(&mut self, at: &TreePath, node: &Node, depth: usize) -> Result<()> {
        if self.exclusions.iter().any(|pattern| pattern.matches(at.as_str())) || !self.claim(at)? {
            return Ok(());
        }
        if !node.is_dir {
            let data = self.tree.read_node(node, self.left)?;
            self.left -= data.len() as u64;
            let mode = if node.executable { 0o755 } else { 0o644 };
            return self.write(at, tar::EntryType::Regular, mode, &data);
        }
        if !at.is_root() {
            self.write(at, tar::EntryType::Directory, 0o755, &[])?;
        }
        for entry in self.tree.list(node)?.iter() {
            let (at, path) = (at.child(&entry.name), node.path.child(&entry.name));
            let (is_dir, executable) = match entry.kind {
                RawKind::File { executable } => (false, executable),
                RawKind::Directory => (true, false),
                // An empty directory, as where nobody has fetched it.
                RawKind::Submodule => (true, false),
                RawKind::Link => {
                    self.link(&at, &path, entry, depth)?;
                    continue;
                }
            };
            let id = match entry.kind {
                RawKind::Submodule => String::new(),
                _ => entry.id.clone(),
            };
            let child = Node {
                path,
                is_dir,
                executable,
                id,
            };
            self.add(&at, &child, depth)?;
        }
        Ok(())
    }

    fn link(&mut self, at: &TreePath, path: &TreePath, entry: &RawEntry, depth: usize) -> Result<()> {
        let Ok(Some(target)) = self.tree.lookup(path) else {
            return Ok(());
        };
        if at == path && self.parts.iter().any(|part| target.path.is_below(part)) {
            if self.exclusions.iter().any(|pattern| pattern.matches(at.as_str())) || !self.claim(at)? {
                return Ok(());
            }
            use std::os::unix::ffi::OsStrExt as _;
            let text = self.tree.read_link(entry)?;
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_mode(0o777);
            header.set_size(0);
            let text = Path::new(std::ffi::OsStr::from_bytes(&text));
            return self
                .builder
                .append_link(&mut header, at.as_str(), text)
                .map_err(failed);
        }
        if depth >= MAX_DEPTH {
            return Err(Error::path(at.as_str(), "too many levels of symbolic links"));
        }
        self.add(at, &target, depth + 1)
    }

    /// Takes a path for the archive; false if it has one already.
    fn claim(&mut self, at: &TreePath) -> Result<bool> {
        if self.seen.len() >= MAX_ENTRIES {
            return Err(Error::Limit {
                which: "files for the config management plugin".into(),
                limit: MAX_ENTRIES.to_string(),
            });
        }
        Ok(self.seen.insert(at.clone()))
    }

    fn write(&mut self, at: &TreePath, kind: tar::EntryType, mode: u32, data: &[u8]) -> Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(data.len() as u64);
        self.builder
            .append_data(&mut header, at.as_str(), data)
            .map_err(failed)
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::io("failed to write an archive", error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::{Read as _, Seek as _};
    use std::os::unix::fs::symlink;

    /// The entries of an archive: name, and content or `→ target`.
    fn entries(packed: Packed) -> Vec<String> {
        let mut file = packed.file;
        file.rewind().unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(packed.size, bytes.len() as u64);
        assert_eq!(packed.checksum, crate::chart::hex_sha256(&bytes));
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
        let shown = tar.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            match entry.link_name().unwrap() {
                Some(target) => format!("{name} → {}", target.display()),
                None => {
                    let mut text = String::new();
                    entry.read_to_string(&mut text).unwrap();
                    format!("{name} {text}").trim_end().to_owned()
                }
            }
        });
        shown.collect()
    }

    fn packed(
        files: &[(&str, &str)],
        links: &[(&str, &str)],
        parts: &[&str],
        exclusions: &[&str],
    ) -> Result<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        for (path, target) in links {
            symlink(target, dir.path().join(path)).unwrap();
        }
        let tree = Tree::disk(dir.path()).unwrap();
        let parts: Vec<TreePath> = parts.iter().map(|part| TreePath::parse(part).unwrap()).collect();
        let exclusions: Vec<Glob> = exclusions.iter().map(|text| Glob::path(text).unwrap()).collect();
        let scratch = tempfile::tempdir().unwrap();
        pack(&tree, &parts, &exclusions, scratch.path()).map(entries)
    }

    const FILES: [(&str, &str); 4] = [
        ("app/a.cue", "1"),
        ("app/sub/b.cue", "2"),
        ("lib/c.cue", "3"),
        ("other/d", "4"),
    ];

    #[test]
    fn parts_are_sent_with_what_is_below_them() {
        assert_eq!(
            packed(&FILES, &[], &["app", "lib/c.cue", "app/sub", "none"], &[]).unwrap(),
            ["app", "app/a.cue 1", "app/sub", "app/sub/b.cue 2", "lib/c.cue 3"]
        );
        assert_eq!(
            packed(&FILES, &[], &[""], &["*/sub", "other/*", "lib"]).unwrap(),
            ["app", "app/a.cue 1", "other"]
        );
    }

    #[test]
    fn links_stay_links_only_where_their_target_is_sent() {
        let links = [
            ("app/in", "sub/b.cue"),
            ("app/out", "../lib"),
            ("app/gone", "nowhere"),
            ("app/evil", "../../../etc"),
        ];
        assert_eq!(
            packed(&FILES, &links, &["app"], &[]).unwrap(),
            [
                "app",
                "app/a.cue 1",
                "app/in → sub/b.cue",
                "app/out",
                "app/out/c.cue 3",
                "app/sub",
                "app/sub/b.cue 2"
            ]
        );
    }

    #[test]
    fn a_link_to_what_holds_it_is_no_endless_archive() {
        let error = packed(&FILES, &[("app/up", "..")], &["app"], &[]).unwrap_err();
        assert!(
            error.to_string().contains("too many levels of symbolic links"),
            "{error}"
        );
        assert_eq!(
            packed(&FILES, &[("app/up", "..")], &[""], &["lib", "other"])
                .unwrap()
                .len(),
            5
        );
    }
}
