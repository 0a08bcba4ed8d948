//! Rendered manifests: looked up by the exact tree first, then by the content that an earlier render read.
//!
//! A commit that does not touch what a source read gives the same output, so the second level finds it without
//! running a tool: it compares ids of the paths that were read. Failures are kept for a short time too: a source
//! that cannot be rendered is asked for again and again. Behind both there may be a third that repo-servers share
//! ([`crate::shared_cache`]): it has what another one rendered of the exact tree.

use crate::error::{Class, Error};
use crate::path::TreePath;
use crate::shared_cache::{self, SharedCache};
use crate::source::detect::SourceType;
use crate::source::{Notes, Reads};
use crate::tree::{Node, RawKind, Tree};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Renders remembered for one set of parameters; each stands for another content.
const MAX_CONTENTS: usize = 8;

/// What a render gave.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// JSON texts with tracking, in order.
    pub manifests: Vec<String>,
    /// The tool.
    pub source_type: SourceType,
    /// Commands that would give the same.
    pub commands: Vec<String>,
    /// What is to be said about the files. With faults, this is no answer for somebody who would sync it.
    pub notes: Notes,
    /// Digest of all of this: equal for equal answers.
    pub digest: String,
}

impl Rendered {
    /// With its digest.
    pub(crate) fn new(
        manifests: Vec<String>,
        source_type: SourceType,
        commands: Vec<String>,
        notes: Notes,
    ) -> Rendered {
        let mut hasher = blake3::Hasher::new();
        hasher.update(source_type.as_str().as_bytes());
        for texts in [&manifests, &commands, &notes.warnings, &notes.faults] {
            hasher.update(&(texts.len() as u64).to_le_bytes());
            for text in texts {
                hasher.update(&(text.len() as u64).to_le_bytes());
                hasher.update(text.as_bytes());
            }
        }
        Rendered {
            manifests,
            source_type,
            commands,
            notes,
            digest: hasher.finalize().to_hex().to_string(),
        }
    }
}

/// The trees that a render may read.
pub(crate) struct Inputs<'a> {
    /// The source's own.
    pub(crate) own: &'a Tree,
    /// Those of other sources, by `$name`.
    pub(crate) refs: &'a BTreeMap<String, Tree>,
}

impl Inputs<'_> {
    fn tree(&self, name: Option<&str>) -> Option<&Tree> {
        match name {
            None => Some(self.own),
            Some(name) => self.refs.get(name),
        }
    }
}

/// A cached answer.
#[derive(Clone)]
pub(crate) enum Entry {
    Done(Arc<Rendered>),
    Failed(Failure),
}

/// A render that failed, how often in a row, and until when nobody tries again.
#[derive(Clone)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    until: Instant,
    attempts: u32,
}

/// A render and the ids of what it read.
#[derive(Clone)]
struct Content {
    reads: Arc<Vec<Read>>,
    rendered: Arc<Rendered>,
}

/// One path that was read: in which tree, and what was there.
pub(crate) struct Read {
    pub(crate) tree: Option<String>,
    pub(crate) path: TreePath,
    pub(crate) id: String,
}

/// The levels.
pub(crate) struct ManifestCache {
    shared: Option<SharedCache>,
    exact: moka::future::Cache<[u8; 32], Entry>,
    contents: moka::future::Cache<[u8; 32], Arc<Vec<Content>>>,
}

impl ManifestCache {
    pub(crate) fn new(max_bytes: u64, ttl: Duration, shared: Option<SharedCache>) -> ManifestCache {
        let kib = |entry: &Entry| match entry {
            Entry::Done(rendered) => size(rendered),
            Entry::Failed(_) => 1,
        };
        ManifestCache {
            shared,
            exact: moka::future::Cache::builder()
                .weigher(move |_, entry| kib(entry))
                .max_capacity(max_bytes / 1024)
                .time_to_live(ttl)
                .build(),
            contents: moka::future::Cache::builder()
                .weigher(|_, contents: &Arc<Vec<Content>>| {
                    // The manifests are mostly shared with the first level; the read sets are our own.
                    let own: usize = contents.iter().map(|content| content.reads.len() * 100).sum();
                    u32::try_from(own / 1024 + 1).unwrap_or(u32::MAX)
                })
                .max_capacity(max_bytes / 4 / 1024)
                .time_to_live(ttl)
                .build(),
        }
    }

    /// What is known under the exact key, unless it is a failure that has had its time.
    pub(crate) async fn get(&self, key: &[u8; 32]) -> Option<Entry> {
        match self.exact.get(key).await {
            Some(Entry::Failed(failure)) if failure.until <= Instant::now() => None,
            found => found,
        }
    }

    /// Renders once for all who ask for the key now.
    pub(crate) async fn get_or_render(
        &self,
        key: [u8; 32],
        render: impl Future<Output = Result<Arc<Rendered>, Error>>,
    ) -> Result<Arc<Rendered>, Error> {
        // A failure that has had its time makes room for one more attempt, and tells it how many there were.
        let attempts = match self.exact.get(&key).await {
            Some(Entry::Failed(failure)) if failure.until <= Instant::now() => {
                self.exact.invalidate(&key).await;
                failure.attempts
            }
            _ => 0,
        };
        let entry = self.exact.get_with(key, async {
            match render.await {
                Ok(rendered) => Entry::Done(rendered),
                Err(error) => Entry::Failed(Failure {
                    until: Instant::now() + failure_ttl(&error, attempts),
                    attempts: attempts + 1,
                    error,
                }),
            }
        });
        match entry.await {
            Entry::Done(rendered) => Ok(rendered),
            Entry::Failed(failure) => Err(failure.error),
        }
    }

    /// Forgets the exact answer, for a caller that insists.
    pub(crate) async fn forget(&self, key: &[u8; 32]) {
        self.exact.invalidate(key).await;
    }

    /// Finds a render of the same parameters whose reads are unchanged in these trees.
    pub(crate) async fn by_content(&self, key: &[u8; 32], inputs: &Inputs<'_>) -> Option<Arc<Rendered>> {
        let contents = self.contents.get(key).await?;
        contents
            .iter()
            .find(|content| unchanged(content, inputs))
            .map(|content| content.rendered.clone())
    }

    /// What another repo-server rendered of the exact trees; what that was made from is remembered under `content`.
    pub(crate) async fn by_others(&self, exact: &[u8; 32], content: [u8; 32]) -> Option<Arc<Rendered>> {
        let shared_cache::Entry { rendered, reads } = self.shared.as_ref()?.get(exact).await?;
        if let Some(reads) = reads {
            self.keep(content, reads, &rendered).await;
        }
        Some(rendered)
    }

    /// Lets others have what was rendered of the exact trees.
    pub(crate) fn share(&self, exact: &[u8; 32], rendered: &Arc<Rendered>, reads: Option<Arc<Vec<Read>>>) {
        if let Some(shared) = &self.shared {
            let rendered = rendered.clone();
            shared.put(exact, shared_cache::Entry { rendered, reads });
        }
    }

    /// Remembers what a render read, and gives it. Nothing is kept for trees without content ids.
    pub(crate) async fn remember(
        &self,
        key: [u8; 32],
        inputs: &Inputs<'_>,
        reads: Reads,
        rendered: &Arc<Rendered>,
    ) -> Option<Arc<Vec<Read>>> {
        let mut by_tree: BTreeMap<Option<String>, Vec<TreePath>> = BTreeMap::new();
        by_tree.insert(None, reads.paths);
        for (name, path) in reads.refs {
            by_tree.entry(Some(name)).or_default().push(path);
        }
        let mut kept = Vec::new();
        for (name, paths) in by_tree {
            let found = inputs
                .tree(name.as_deref())
                .and_then(|tree| identify(tree, paths))?;
            kept.extend(found.into_iter().map(|(path, id)| Read {
                tree: name.clone(),
                path,
                id,
            }));
        }
        let reads = Arc::new(kept);
        self.keep(key, reads.clone(), rendered).await;
        Some(reads)
    }

    async fn keep(&self, key: [u8; 32], reads: Arc<Vec<Read>>, rendered: &Arc<Rendered>) {
        let content = Content {
            reads,
            rendered: rendered.clone(),
        };
        let mut contents = self
            .contents
            .get(&key)
            .await
            .map(|known| known.as_ref().clone())
            .unwrap_or_default();
        contents.insert(0, content);
        contents.truncate(MAX_CONTENTS);
        self.contents.insert(key, Arc::new(contents)).await;
    }
}

/// The ids of all paths, and of what links below them lead to; `None` where there is no saying.
fn identify(tree: &Tree, mut paths: Vec<TreePath>) -> Option<Vec<(TreePath, String)>> {
    paths.sort();
    paths.dedup();
    // What lies below a path that was read as a whole is covered by it.
    let mut kept: Vec<(TreePath, String)> = Vec::new();
    let mut ids = tree.content_ids();
    for path in paths {
        let covered = kept
            .iter()
            .rev()
            .take(64)
            .any(|(above, id)| path.is_below(above) && id != "absent");
        if covered {
            continue;
        }
        let id = ids.of(&path).ok()??;
        kept.push((path, id));
    }
    // The id of a directory says what its links say, not what they lead to.
    let mut links = Vec::new();
    for (path, _) in &kept {
        if !linked(tree, path, &mut links, 0) {
            return None;
        }
    }
    for path in links {
        let id = ids.of(&path).ok()??;
        kept.push((path, id));
    }
    Some(kept)
}

/// Collects the links below a path; false when there is no end to them.
fn linked(tree: &Tree, path: &TreePath, links: &mut Vec<TreePath>, depth: usize) -> bool {
    if depth > 4 || links.len() > 10_000 {
        return false;
    }
    let Ok(Some(node)) = tree.lookup(path) else {
        return true;
    };
    if !node.is_dir {
        return true;
    }
    let mut pending = vec![node];
    while let Some(dir) = pending.pop() {
        let Ok(entries) = tree.list(&dir) else {
            return false;
        };
        for entry in entries.iter() {
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
                    links.push(path.clone());
                    if !linked(tree, &path, links, depth + 1) {
                        return false;
                    }
                }
                RawKind::File { .. } | RawKind::Submodule => {}
            }
        }
    }
    true
}

fn unchanged(content: &Content, inputs: &Inputs<'_>) -> bool {
    let of_one_tree = content.reads.chunk_by(|a, b| a.tree == b.tree);
    of_one_tree.into_iter().all(|reads| {
        let Some(tree) = reads.first().and_then(|read| inputs.tree(read.tree.as_deref())) else {
            return false;
        };
        let mut ids = tree.content_ids();
        reads
            .iter()
            .all(|read| ids.of(&read.path).ok().flatten().as_deref() == Some(read.id.as_str()))
    })
}

fn size(rendered: &Rendered) -> u32 {
    let bytes: usize = rendered.manifests.iter().map(|text| text.len() + 48).sum();
    u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX)
}

/// How long a failure stands: what follows from the content alone will not go away by itself, and what cost a worker its
/// life is tried less and less often.
fn failure_ttl(error: &Error, attempts: u32) -> Duration {
    match (error, error.class()) {
        (Error::Store { .. } | Error::Overloaded { .. }, _) => Duration::ZERO,
        // What another repository has or refuses may be otherwise soon.
        (
            Error::Version { .. }
            | Error::Revision { .. }
            | Error::Authentication { .. }
            | Error::Repository { .. },
            _,
        ) => Duration::from_secs(30),
        // A plugin may fail at the content or at what it asks elsewhere; it alone knows.
        (Error::Deadline { .. } | Error::Limit { .. } | Error::Worker { .. } | Error::Plugin { .. }, _) => {
            Duration::from_secs(60 << attempts.min(5)).min(Duration::from_secs(1800))
        }
        (_, Class::Stalled) => Duration::from_secs(600),
        (_, Class::Retry { .. } | Class::Bug) => Duration::from_secs(5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_render_that_costs_workers_is_tried_after_a_minute_and_then_ever_less_often() {
        let error = Error::Limit {
            which: "memory of helm template".into(),
            limit: "256 MiB".into(),
        };
        let minutes = [0, 1, 2, 3, 4, 5, 60].map(|attempts| failure_ttl(&error, attempts).as_secs() / 60);
        assert_eq!(minutes, [1, 2, 4, 8, 16, 30, 30]);
    }
}
