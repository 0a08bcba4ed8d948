//! Rendered manifests: looked up by the exact tree first, then by the content that an earlier render read.
//!
//! A commit that does not touch what a source read gives the same output, so the second level finds it without
//! running a tool: it compares ids of the paths that were read. Failures are kept for a short time too: a source
//! that cannot be rendered is asked for again and again.

use crate::error::{Class, Error};
use crate::path::TreePath;
use crate::source::detect::SourceType;
use crate::tree::{Node, RawKind, Tree};
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
}

/// A cached answer.
#[derive(Clone)]
pub(crate) enum Entry {
    Done(Arc<Rendered>),
    Failed { error: Error, until: Instant },
}

/// A render and the ids of what it read.
#[derive(Clone)]
struct Content {
    reads: Arc<Vec<(TreePath, String)>>,
    rendered: Arc<Rendered>,
}

/// The two levels.
pub(crate) struct ManifestCache {
    exact: moka::future::Cache<[u8; 32], Entry>,
    contents: moka::future::Cache<[u8; 32], Arc<Vec<Content>>>,
}

impl ManifestCache {
    pub(crate) fn new(max_bytes: u64, ttl: Duration) -> ManifestCache {
        let kib = |entry: &Entry| match entry {
            Entry::Done(rendered) => size(rendered),
            Entry::Failed { .. } => 1,
        };
        ManifestCache {
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
            Some(Entry::Failed { until, .. }) if until <= Instant::now() => {
                self.exact.invalidate(key).await;
                None
            }
            found => found,
        }
    }

    /// Renders once for all who ask for the key now.
    pub(crate) async fn get_or_render(
        &self,
        key: [u8; 32],
        render: impl Future<Output = Result<Arc<Rendered>, Error>>,
    ) -> Result<Arc<Rendered>, Error> {
        let entry = self.exact.get_with(key, async {
            match render.await {
                Ok(rendered) => Entry::Done(rendered),
                Err(error) => Entry::Failed {
                    until: Instant::now() + failure_ttl(&error),
                    error,
                },
            }
        });
        match entry.await {
            Entry::Done(rendered) => Ok(rendered),
            Entry::Failed { error, .. } => Err(error),
        }
    }

    /// Forgets the exact answer, for a caller that insists.
    pub(crate) async fn forget(&self, key: &[u8; 32]) {
        self.exact.invalidate(key).await;
    }

    /// Finds a render of the same parameters whose reads are unchanged in this tree.
    pub(crate) async fn by_content(&self, key: &[u8; 32], tree: &Tree) -> Option<Arc<Rendered>> {
        let contents = self.contents.get(key).await?;
        contents
            .iter()
            .find(|content| unchanged(content, tree))
            .map(|content| content.rendered.clone())
    }

    /// Remembers what a render read. Nothing is kept for trees without content ids.
    pub(crate) async fn remember(
        &self,
        key: [u8; 32],
        tree: &Tree,
        mut reads: Vec<TreePath>,
        rendered: &Arc<Rendered>,
    ) {
        reads.sort();
        reads.dedup();
        // What lies below a path that was read as a whole is covered by it.
        let mut kept: Vec<(TreePath, String)> = Vec::new();
        for path in reads {
            let covered = kept
                .iter()
                .rev()
                .take(64)
                .any(|(above, id)| path.is_below(above) && id != "absent");
            if covered {
                continue;
            }
            let Ok(Some(id)) = tree.content_id(&path) else {
                return;
            };
            kept.push((path, id));
        }
        // The id of a directory says what its links say, not what they lead to.
        let mut links = Vec::new();
        for (path, _) in &kept {
            if !linked(tree, path, &mut links, 0) {
                return;
            }
        }
        for path in links {
            let Ok(Some(id)) = tree.content_id(&path) else {
                return;
            };
            kept.push((path, id));
        }
        let content = Content {
            reads: Arc::new(kept),
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

fn unchanged(content: &Content, tree: &Tree) -> bool {
    content
        .reads
        .iter()
        .all(|(path, id)| tree.content_id(path).is_ok_and(|now| now.as_deref() == Some(id)))
}

fn size(rendered: &Rendered) -> u32 {
    let bytes: usize = rendered.manifests.iter().map(|text| text.len() + 48).sum();
    u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX)
}

/// How long a failure stands: what follows from the content alone will not go away by itself.
fn failure_ttl(error: &Error) -> Duration {
    match (error, error.class()) {
        (Error::Version { .. } | Error::Authentication { .. } | Error::Repository { .. }, _) => {
            Duration::from_secs(30)
        }
        (Error::Deadline { .. } | Error::Limit { .. } | Error::Worker { .. }, _) => Duration::from_secs(60),
        (_, Class::Stalled) => Duration::from_secs(600),
        (_, Class::Retry { .. } | Class::Bug) => Duration::from_secs(5),
    }
}
