//! Submodules: commits of other repositories that a tree names. They are fetched when the commit that names them
//! is opened, and then read as directories of its tree.

use super::tree::GitTree;
use super::{Access, Credentials, Git, Resolved};
use crate::error::{Error, Result};
use crate::path::TreePath;
use crate::tree::{RawKind, Tree};
use std::collections::HashMap;
use std::sync::Arc;

/// Submodules of one commit, nested ones included.
const MAX_MODULES: usize = 200;
/// Depth of nesting.
const MAX_DEPTH: usize = 8;

/// What `.gitmodules` says of one submodule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Module {
    path: String,
    url: String,
}

/// Trees by the commit that the parent names.
pub(super) type Modules = HashMap<String, GitTree>;

impl Git {
    /// Fetches what `tree` names in `.gitmodules`, as far as the tree really holds it.
    pub(super) async fn modules(&self, access: &Access, tree: &GitTree) -> Result<Modules> {
        let mut found = Modules::new();
        let mut pending = vec![(access.clone(), tree.clone(), 0)];
        while let Some((access, tree, depth)) = pending.pop() {
            for (module, commit) in named(&tree)? {
                if found.contains_key(&commit) {
                    continue;
                }
                if found.len() >= MAX_MODULES || depth >= MAX_DEPTH {
                    return Err(Error::Limit {
                        which: "submodules".into(),
                        limit: MAX_MODULES.to_string(),
                    });
                }
                let url = absolute(&access, &module.url)?;
                let mut inner = Access::new(&url, Credentials::default(), access.depth)?;
                inner.lfs = access.lfs;
                inner.take_over(&access);
                // Otherwise a repository could read files of this machine through its submodules.
                if inner.url.scheme() == super::Scheme::File && access.url.scheme() != super::Scheme::File {
                    return Err(Error::Source(format!(
                        "submodule {} is a file of the repo-server",
                        module.path
                    )));
                }
                let resolved = Resolved {
                    commit: commit.clone(),
                    reference: None,
                };
                // Boxed: opening a commit opens submodules, which opens commits.
                let opened =
                    Box::pin(self.plain_commit(&inner, &resolved))
                        .await
                        .map_err(|error| match error {
                            Error::Revision { revision } => Error::Source(format!(
                                "submodule {} names the commit {revision}, which {url} does not have",
                                module.path
                            )),
                            other => other,
                        })?;
                let mut subtree = opened.tree();
                if inner.lfs {
                    subtree = self.with_lfs(&inner, subtree, &opened.repo).await?;
                }
                pending.push((inner, subtree.clone(), depth + 1));
                found.insert(commit, subtree);
            }
        }
        Ok(found)
    }
}

/// The submodules of a tree with the commits it names, without nested ones.
fn named(tree: &GitTree) -> Result<Vec<(Module, String)>> {
    let view = Tree::Git(tree.clone());
    let Some(file) = view
        .lookup(&TreePath::parse(".gitmodules")?)
        .ok()
        .flatten()
        .filter(|node| !node.is_dir)
    else {
        return Ok(Vec::new());
    };
    let text = view.read_node(&file, 1 << 20)?;
    let mut modules = Vec::new();
    for module in parse(&String::from_utf8_lossy(&text)) {
        let Ok(path) = TreePath::parse(&module.path) else {
            continue;
        };
        let Some(parent) = path.parent() else { continue };
        let Ok(Some(dir)) = view.lookup(&parent) else {
            continue;
        };
        let entries = view.list(&dir)?;
        if let Some(entry) = entries
            .iter()
            .find(|entry| entry.name == path.file_name() && entry.kind == RawKind::Submodule)
        {
            modules.push((module, entry.id.clone()));
        }
    }
    Ok(modules)
}

/// Reads the two keys that matter of git's configuration format.
fn parse(text: &str) -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::new();
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line.starts_with("[submodule");
            if inside {
                modules.push(Module::default());
            }
        } else if inside
            && let Some((key, value)) = line.split_once('=')
            && let Some(module) = modules.last_mut()
        {
            let value = value.trim().trim_matches('"').to_owned();
            match key.trim().to_ascii_lowercase().as_str() {
                "path" => module.path = value,
                "url" => module.url = value,
                _ => {}
            }
        }
    }
    modules.retain(|module| !module.path.is_empty() && !module.url.is_empty());
    modules
}

/// Resolves `./x` and `../x` against the parent's URL.
fn absolute(parent: &Access, url: &str) -> Result<String> {
    if !url.starts_with("./") && !url.starts_with("../") {
        return Ok(url.to_owned());
    }
    let mut base = parent.url.as_fetch().trim_end_matches('/').to_owned();
    let mut rest = url;
    loop {
        if let Some(after) = rest.strip_prefix("../") {
            let cut = base
                .rfind(['/', ':'])
                .ok_or_else(|| Error::Source(format!("submodule URL {url} leads nowhere")))?;
            let keep = if base[cut..].starts_with(':') {
                cut + 1
            } else {
                cut
            };
            base.truncate(keep);
            if base.ends_with(":/") || base.ends_with('/') {
                return Err(Error::Source(format!("submodule URL {url} leads nowhere")));
            }
            rest = after;
        } else if let Some(after) = rest.strip_prefix("./") {
            rest = after;
        } else {
            let separator = if base.ends_with(':') { "" } else { "/" };
            return Ok(format!("{base}{separator}{rest}"));
        }
    }
}

/// Shared by trees of one commit.
pub(super) fn none() -> Arc<Modules> {
    Arc::default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn gitmodules_are_read() {
        let text = "[submodule \"lib\"]\n\tpath = vendor/lib\n\turl = ../lib.git\n[core]\n\tpath = no\n";
        assert_eq!(
            parse(text),
            [Module {
                path: "vendor/lib".into(),
                url: "../lib.git".into()
            }]
        );
    }

    #[test]
    fn relative_urls_start_at_the_parent() {
        let of = |parent: &str, url: &str| {
            absolute(&Access::new(parent, Credentials::default(), 0).unwrap(), url).map_err(|e| e.to_string())
        };
        assert_eq!(
            of("https://example.com/org/app.git", "../lib.git").unwrap(),
            "https://example.com/org/lib.git"
        );
        assert_eq!(
            of("git@example.com:org/app.git", "../lib.git").unwrap(),
            "git@example.com:org/lib.git"
        );
        assert_eq!(
            of("git@example.com:app.git", "../lib.git").unwrap(),
            "git@example.com:lib.git"
        );
        assert_eq!(
            of("https://example.com/a.git", "https://other.org/x").unwrap(),
            "https://other.org/x"
        );
        assert!(of("https://example.com/a", "../../../../etc").is_err());
    }
}
