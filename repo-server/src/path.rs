//! The only way to name a file of a repository: a path that cannot leave it.

use crate::error::{Error, Result};
use std::fmt;

/// Longest path accepted, in bytes.
const MAX_BYTES: usize = 4096;
/// Most components accepted.
const MAX_COMPONENTS: usize = 64;

/// A relative, normalised path below some root: no empty component, no `.`, no `..`, no NUL, UTF-8.
/// The empty path is the root itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(String);

impl TreePath {
    /// The root.
    pub fn root() -> TreePath {
        TreePath(String::new())
    }

    /// Parses a path as users write it (`.`, `./charts/web/`, `a/../b`).
    ///
    /// # Errors
    /// [`Error::Path`] with Argo CD's words when it is absolute or leaves the root.
    pub fn parse(text: &str) -> Result<TreePath> {
        TreePath::root().join(text)
    }

    /// Resolves `text` relative to this path, as a directory. A leading `/` is refused.
    ///
    /// # Errors
    /// [`Error::Path`] as for [`TreePath::parse`].
    pub fn join(&self, text: &str) -> Result<TreePath> {
        if text.starts_with('/') {
            return Err(Error::path(text, "app path is absolute"));
        }
        if text.contains('\0') || text.contains('\\') && text.contains(':') {
            return Err(Error::path(
                text.replace('\0', "\\0"),
                "path contains a character that is not allowed",
            ));
        }
        let mut parts: Vec<&str> = self.components().collect();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    if parts.pop().is_none() {
                        return Err(Error::path(text, "app path outside root"));
                    }
                }
                name => parts.push(name),
            }
        }
        let joined = parts.join("/");
        if joined.len() > MAX_BYTES || parts.len() > MAX_COMPONENTS {
            return Err(Error::Limit {
                which: "length of a path".into(),
                limit: format!("{MAX_BYTES} bytes or {MAX_COMPONENTS} components"),
            });
        }
        Ok(TreePath(joined))
    }

    /// Resolves `text` as Helm value files are: relative to this directory, or to the root after a `/`.
    ///
    /// # Errors
    /// [`Error::Path`] when it leaves the root.
    pub fn join_rooted(&self, text: &str) -> Result<TreePath> {
        match text.strip_prefix('/') {
            Some(rest) => TreePath::root().join(rest.trim_start_matches('/')),
            None => self.join(text),
        }
    }

    /// One more component; `name` is a plain file name.
    pub(crate) fn child(&self, name: &str) -> TreePath {
        if self.0.is_empty() {
            TreePath(name.to_owned())
        } else {
            TreePath(format!("{}/{name}", self.0))
        }
    }

    /// The directory that holds this path; `None` for the root.
    pub fn parent(&self) -> Option<TreePath> {
        if self.0.is_empty() {
            return None;
        }
        Some(TreePath(
            self.0
                .rsplit_once('/')
                .map(|(dir, _)| dir.to_owned())
                .unwrap_or_default(),
        ))
    }

    /// Last component; empty for the root.
    pub fn file_name(&self) -> &str {
        self.0.rsplit_once('/').map_or(self.0.as_str(), |(_, name)| name)
    }

    /// The components from the root down.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|part| !part.is_empty())
    }

    /// Whether this path is `ancestor` or below it.
    pub fn is_below(&self, ancestor: &TreePath) -> bool {
        ancestor.0.is_empty()
            || self.0 == ancestor.0
            || self
                .0
                .strip_prefix(&ancestor.0)
                .is_some_and(|rest| rest.starts_with('/'))
    }

    /// The path relative to `ancestor`, if it is below it.
    pub fn relative_to(&self, ancestor: &TreePath) -> Option<&str> {
        if ancestor.0.is_empty() {
            return Some(&self.0);
        }
        if self.0 == ancestor.0 {
            return Some("");
        }
        self.0.strip_prefix(&ancestor.0)?.strip_prefix('/')
    }

    /// The text, `/`-separated; empty for the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "." } else { &self.0 })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn paths_of_users_are_normalised() {
        for (text, want) in [
            (".", ""),
            ("", ""),
            ("./a//b/", "a/b"),
            ("a/../b", "b"),
            ("a/./b/c/..", "a/b"),
        ] {
            assert_eq!(TreePath::parse(text).unwrap().as_str(), want, "{text}");
        }
    }

    #[test]
    fn a_path_cannot_leave_its_root() {
        assert_eq!(
            TreePath::parse("/etc").unwrap_err().to_string(),
            "/etc: app path is absolute"
        );
        assert_eq!(
            TreePath::parse("a/../../b").unwrap_err().to_string(),
            "a/../../b: app path outside root"
        );
        assert!(TreePath::parse("a\0b").is_err());
        assert!(TreePath::parse(&"a/".repeat(65)).is_err());
        let chart = TreePath::parse("charts/web").unwrap();
        assert_eq!(
            chart.join("../shared/values.yaml").unwrap().as_str(),
            "charts/shared/values.yaml"
        );
        assert_eq!(chart.join_rooted("/values.yaml").unwrap().as_str(), "values.yaml");
        assert!(chart.join("../../../x").is_err());
    }

    #[test]
    fn below_is_by_component() {
        let app = TreePath::parse("apps/web").unwrap();
        assert!(TreePath::parse("apps/web/x").unwrap().is_below(&app));
        assert!(!TreePath::parse("apps/web2").unwrap().is_below(&app));
    }
}
