//! The only place that a render worker can read: a directory of its own, into which each call's files are brought and
//! from which they are taken afterwards.
//!
//! The fence around a worker is set once, when it starts; what a call may see changes with each call. So the fence
//! names the slot, and the trees, value files and fetched charts of a call are linked into it (hard links: no copy, and
//! the cache keeps its own names). A worker never sees the files of another Application, nor those of its own last call.

use super::wire::{Call, ReadSet};
use crate::error::{Error, Result};
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// A directory that one worker can read. It is removed with the worker.
pub(super) struct Slot {
    dir: PathBuf,
    next: u64,
}

impl Slot {
    /// Makes a slot below `parent`, which only we can read.
    pub(super) fn new(parent: &Path) -> Result<Slot> {
        let failed = |e: std::io::Error| Error::io("failed to make the directory of a render worker", e);
        let dir = tempfile::Builder::new()
            .prefix("slot-")
            .tempdir_in(parent)
            .map_err(failed)?
            .keep();
        let slot = Slot { dir, next: 0 };
        for name in ["in", "tmp"] {
            private(&slot.dir.join(name)).map_err(failed)?;
        }
        Ok(slot)
    }

    /// What the worker may read.
    pub(super) fn readable(&self) -> PathBuf {
        self.dir.join("in")
    }

    /// What the worker may write.
    pub(super) fn scratch(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    /// Brings in all that a call names and makes it name the places in the slot. What lies below one of `open` is
    /// within reach already and stays where it is.
    pub(super) fn bring(&mut self, call: &mut Call, open: &[PathBuf]) -> Result<Brought> {
        self.next += 1;
        let mut brought = Brought {
            dir: self.readable().join(self.next.to_string()),
            places: Vec::new(),
        };
        private(&brought.dir).map_err(|e| Error::io("failed to bring files to a render worker", e))?;
        for path in roots(call) {
            brought.link(path, open)?;
        }
        for path in named(call) {
            if path.is_empty() {
                continue;
            }
            *path = brought.inside(path, open)?;
        }
        Ok(brought)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

/// The files of one call; they leave the slot when this is dropped.
pub(super) struct Brought {
    dir: PathBuf,
    /// Where a directory or file of ours is in the slot.
    places: Vec<(PathBuf, PathBuf)>,
}

impl Brought {
    /// Links a whole directory or file in.
    fn link(&mut self, path: &str, open: &[PathBuf]) -> Result<()> {
        let path = Path::new(path);
        if path.as_os_str().is_empty() || self.find(path).is_some() || is_below(path, open) {
            return Ok(());
        }
        let mut place = self.dir.join(self.places.len().to_string());
        let failed = |e: std::io::Error| Error::io("failed to bring files to a render worker", e);
        let kind = fs::metadata(path).map_err(failed)?;
        if kind.is_dir() {
            link_directory(path, &place).map_err(failed)?;
        } else {
            // Tools look at the end of a name: `.tgz` is a packed chart.
            if let Some(end) = path.extension() {
                place.set_extension(end);
            }
            link_file(path, &place).map_err(failed)?;
        }
        self.places.push((path.to_owned(), place));
        Ok(())
    }

    /// The name in the slot of a path of ours, which is linked alone if nothing above it is there.
    fn inside(&mut self, path: &str, open: &[PathBuf]) -> Result<String> {
        // `tree//part`: the part of a tree that is within reach as a whole.
        let (tree, part) = path.split_once("//").unwrap_or((path, ""));
        self.link(tree, open)?;
        let place = self
            .find(Path::new(tree))
            .unwrap_or_else(|| Path::new(tree).to_owned());
        let text = place.display();
        Ok(if part.is_empty() {
            text.to_string()
        } else {
            format!("{text}//{part}")
        })
    }

    fn find(&self, path: &Path) -> Option<PathBuf> {
        self.places.iter().find_map(|(ours, place)| {
            let rest = path.strip_prefix(ours).ok()?;
            Some(if rest.as_os_str().is_empty() {
                place.clone()
            } else {
                place.join(rest)
            })
        })
    }

    /// Names what was read by our names again.
    pub(super) fn translate(&self, reads: &mut ReadSet) {
        let lists = [&mut reads.files, &mut reads.trees, &mut reads.absent];
        for path in lists.into_iter().flatten() {
            let ours = self.places.iter().find_map(|(ours, place)| {
                let rest = Path::new(path.as_str()).strip_prefix(place).ok()?;
                Some(if rest.as_os_str().is_empty() {
                    ours.clone()
                } else {
                    ours.join(rest)
                })
            });
            if let Some(ours) = ours {
                *path = ours.display().to_string();
            }
        }
    }

    /// Takes the slot's names out of a message: of a directory nothing is left, of a single file our name.
    pub(super) fn clean(&self, message: &mut String) {
        // The last ones first: `…/1` is the beginning of `…/10`.
        for (ours, place) in self.places.iter().rev() {
            let name = place.display().to_string();
            if !message.contains(&name) {
                continue;
            }
            let plain = match ours.file_name().and_then(std::ffi::OsStr::to_str) {
                Some(file) if place.is_file() => file,
                _ => ".",
            };
            *message = message.replace(&format!("{name}/"), "").replace(&name, plain);
        }
    }
}

impl Drop for Brought {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

/// The trees of a call: they are brought first, so that what lies in them is found there.
fn roots(call: &Call) -> Vec<&str> {
    match call {
        Call::HelmTemplate(call) => vec![&call.tree_root],
        Call::HelmInspect(call) => vec![&call.tree_root],
        Call::KustomizeBuild(call) => vec![&call.root],
        Call::KustomizeInspect(call) => call.build.iter().map(|build| build.root.as_str()).collect(),
        Call::Version(_) => Vec::new(),
    }
}

/// Every path that a call names.
fn named(call: &mut Call) -> Vec<&mut String> {
    match call {
        Call::HelmTemplate(call) => {
            let files = call
                .parameters
                .iter_mut()
                .filter(|parameter| parameter.kind == super::wire::ParameterKind::SetFile as i32)
                .map(|parameter| &mut parameter.value);
            [&mut call.chart_dir, &mut call.tree_root]
                .into_iter()
                .chain(&mut call.values_files)
                .chain(&mut call.dependency_charts)
                .chain(files)
                .collect()
        }
        Call::HelmInspect(call) => [&mut call.chart_dir, &mut call.tree_root]
            .into_iter()
            .chain(&mut call.values_files)
            .collect(),
        Call::KustomizeBuild(build) => of_build(build),
        Call::KustomizeInspect(call) => call.build.as_mut().map(of_build).unwrap_or_default(),
        Call::Version(_) => Vec::new(),
    }
}

fn of_build(build: &mut super::wire::KustomizeBuild) -> Vec<&mut String> {
    std::iter::once(&mut build.root)
        .chain(build.remotes.values_mut())
        .collect()
}

fn is_below(path: &Path, open: &[PathBuf]) -> bool {
    open.iter().any(|dir| path.starts_with(dir))
}

fn private(path: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}

fn link_directory(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            link_directory(&from, &to)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
        } else if kind.is_file() {
            link_file(&from, &to)?;
        }
    }
    Ok(())
}

/// A hard link, or a copy where there cannot be one (another file system, too many links).
fn link_file(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop))
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_dir_all(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "removing the files of a render failed");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::wire::{HelmTemplate, KustomizeBuild};
    use super::*;

    #[test]
    fn a_call_finds_its_files_in_the_slot_and_the_next_call_does_not() {
        let ours = tempfile::tempdir().unwrap();
        let tree = ours.path().join("tree");
        fs::create_dir_all(tree.join("chart/templates")).unwrap();
        fs::write(tree.join("chart/Chart.yaml"), "name: a").unwrap();
        std::os::unix::fs::symlink("Chart.yaml", tree.join("chart/link")).unwrap();
        fs::write(ours.path().join("values.yaml"), "a: b").unwrap();
        let text = |path: PathBuf| path.display().to_string();
        let mut slot = Slot::new(ours.path()).unwrap();
        let mut call = Call::HelmTemplate(HelmTemplate {
            tree_root: text(tree.clone()),
            chart_dir: text(tree.join("chart")),
            values_files: vec![text(ours.path().join("values.yaml"))],
            ..HelmTemplate::default()
        });
        let brought = slot.bring(&mut call, &[]).unwrap();
        let Call::HelmTemplate(call) = call else { panic!() };
        for path in [&call.tree_root, &call.chart_dir, &call.values_files[0]] {
            assert!(Path::new(path).starts_with(slot.readable()), "{path}");
        }
        assert_eq!(
            fs::read_to_string(Path::new(&call.chart_dir).join("link")).unwrap(),
            "name: a"
        );
        assert!(call.values_files[0].ends_with(".yaml"));
        let mut reads = ReadSet {
            trees: vec![call.chart_dir.clone()],
            ..ReadSet::default()
        };
        brought.translate(&mut reads);
        assert_eq!(reads.trees, [text(tree.join("chart"))]);
        let mut message = format!("open {}/x: no", call.chart_dir);
        brought.clean(&mut message);
        assert_eq!(message, "open chart/x: no");
        let mut message = format!("failed to parse {}: no", call.values_files[0]);
        brought.clean(&mut message);
        assert_eq!(message, "failed to parse values.yaml: no");
        drop(brought);
        assert_eq!(fs::read_dir(slot.readable()).unwrap().count(), 0);
        let dir = slot.dir.clone();
        drop(slot);
        assert!(!dir.exists());
        assert!(tree.join("chart/Chart.yaml").exists(), "ours is untouched");
    }

    #[test]
    fn a_remote_tree_is_brought_whole_and_named_in_part() {
        let ours = tempfile::tempdir().unwrap();
        for dir in ["tree", "remote/base", "remote/overlay"] {
            fs::create_dir_all(ours.path().join(dir)).unwrap();
        }
        let mut slot = Slot::new(ours.path()).unwrap();
        let remote = format!("{}//overlay", ours.path().join("remote").display());
        let mut call = Call::KustomizeBuild(KustomizeBuild {
            root: ours.path().join("tree").display().to_string(),
            remotes: [("https://example.com/r//overlay".to_owned(), remote)].into(),
            ..KustomizeBuild::default()
        });
        let _brought = slot.bring(&mut call, &[]).unwrap();
        let Call::KustomizeBuild(call) = call else {
            panic!()
        };
        let (tree, part) = call.remotes.values().next().unwrap().split_once("//").unwrap();
        assert!(Path::new(tree).join("base").is_dir());
        assert_eq!(part, "overlay");
    }
}
