//! Which script answers for which kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use globset::{GlobBuilder, GlobMatcher};

use crate::action::Definitions;
use crate::lua::Script;

/// Lua scripts by kind, for health and for actions: an operator's overrides, and a bundled set that they shadow.
///
/// Looked up in this order: override for exactly this kind, first override whose pattern matches, bundled script for exactly this kind,
/// first bundled pattern that matches. Patterns are tried in sorted order, so that the answer does not depend on how they were read.
#[derive(Debug, Clone, Default)]
pub struct Customizations {
    overrides: Layer,
    bundled: Layer,
    /// Of the settings, by exact kind.
    actions: BTreeMap<String, Definitions>,
    /// Of a bundled set, by exact kind.
    bundled_actions: BTreeMap<String, Definitions>,
}

/// A pattern that is no glob.
#[derive(Debug, thiserror::Error)]
#[error("read resource customization pattern {pattern:?}")]
pub struct PatternError {
    /// The pattern as written.
    pub pattern: String,
    /// What is wrong with it.
    #[source]
    pub source: globset::Error,
}

#[derive(Debug, Clone, Default)]
struct Layer {
    exact: BTreeMap<String, Arc<Script>>,
    patterns: BTreeMap<String, (GlobMatcher, Arc<Script>)>,
}

impl Customizations {
    /// No scripts: native rules only.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// A bundled set from files laid out as `GROUP/KIND/health.lua` (`Kind/health.lua` for the core group), and for actions
    /// `GROUP/KIND/actions/discovery.lua` and `GROUP/KIND/actions/NAME/action.lua`, given as relative path and text. `_` in a group or kind stands for any text, since a folder cannot be called `*`. Other files are passed over. Bundled
    /// scripts for health see the open libraries, those for actions do not: so it is on Argo CD's API server.
    ///
    /// # Errors
    /// A folder name that makes no valid pattern.
    pub fn from_files<P, T>(files: impl IntoIterator<Item = (P, T)>) -> Result<Self, PatternError>
    where
        P: AsRef<str>,
        T: AsRef<str>,
    {
        let mut customizations = Self::none();
        for (path, text) in files {
            let path = path.as_ref().trim_start_matches("./");
            let script = |open_libs| Script::new(text.as_ref(), open_libs);
            if let Some(kind) = path.strip_suffix("/actions/discovery.lua") {
                customizations
                    .bundled_actions
                    .entry(kind.to_owned())
                    .or_default()
                    .discovery = Some(script(false));
            } else if let Some((kind, action)) = path
                .strip_suffix("/action.lua")
                .and_then(|path| path.split_once("/actions/"))
            {
                let definitions = customizations.bundled_actions.entry(kind.to_owned()).or_default();
                definitions.actions.insert(action.to_owned(), script(false));
            } else if let Some(folder) = path.strip_suffix("/health.lua") {
                customizations
                    .bundled
                    .insert(&folder.replace('_', "*"), script(true))?;
            }
        }
        Ok(customizations)
    }

    /// Adds or replaces an override. `pattern` is `group/Kind`, `Kind` for the core group, with `*`, `?` and `[…]` as in `argocd-cm`
    /// (where `_` stands between group and kind: that is the caller's reading). `open_libs` lets the script use the string and math
    /// libraries.
    ///
    /// # Errors
    /// A pattern that is no glob.
    pub fn insert(&mut self, pattern: &str, lua: &str, open_libs: bool) -> Result<(), PatternError> {
        self.overrides.insert(pattern, Script::new(lua, open_libs))
    }

    /// Adds or replaces the actions of one kind, `group/Kind` or `Kind`. They stand for the built-in ones unless they say that both count.
    pub fn insert_actions(&mut self, kind: &str, definitions: Definitions) {
        self.actions.insert(kind.to_owned(), definitions);
    }

    /// The discovery scripts for a kind, most important first, and whether the built-in actions count besides.
    pub(crate) fn discovery(&self, group: &str, kind: &str) -> (Vec<&Script>, bool) {
        let key = key(group, kind);
        let own = self.actions.get(&key);
        let bundled = self.bundled_actions.get(&key);
        let more = own.is_none_or(|definitions| definitions.merge_builtin);
        let scripts = own.into_iter().chain(bundled.filter(|_| more));
        (
            scripts
                .filter_map(|definitions| definitions.discovery.as_ref())
                .collect(),
            more && bundled.is_none(),
        )
    }

    /// The script of an action, if one is given.
    pub(crate) fn action(&self, group: &str, kind: &str, name: &str) -> Option<&Script> {
        let key = key(group, kind);
        self.actions
            .get(&key)
            .and_then(|definitions| definitions.actions.get(name))
            .or_else(|| self.bundled_actions.get(&key)?.actions.get(name))
    }

    /// The script for a kind, if any.
    pub(crate) fn script(&self, group: &str, kind: &str) -> Option<&Script> {
        if self.overrides.is_empty() && self.bundled.is_empty() {
            return None;
        }
        let key = key(group, kind);
        self.overrides.find(&key).or_else(|| self.bundled.find(&key))
    }

    /// Whether a script answers for this kind.
    #[must_use]
    pub fn covers(&self, group: &str, kind: &str) -> bool {
        self.script(group, kind).is_some()
    }
}

fn key(group: &str, kind: &str) -> String {
    if group.is_empty() {
        kind.to_owned()
    } else {
        format!("{group}/{kind}")
    }
}

impl Layer {
    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.patterns.is_empty()
    }

    fn insert(&mut self, pattern: &str, script: Script) -> Result<(), PatternError> {
        let script = Arc::new(script);
        if pattern.contains(['*', '?', '[', '{']) {
            let glob = GlobBuilder::new(pattern)
                .literal_separator(false)
                .build()
                .map_err(|source| PatternError {
                    pattern: pattern.to_owned(),
                    source,
                })?;
            self.patterns
                .insert(pattern.to_owned(), (glob.compile_matcher(), script));
        } else {
            self.exact.insert(pattern.to_owned(), script);
        }
        Ok(())
    }

    fn find(&self, key: &str) -> Option<&Script> {
        if let Some(script) = self.exact.get(key) {
            return Some(script);
        }
        self.patterns
            .values()
            .find(|(glob, _)| glob.is_match(key))
            .map(|(_, script)| &**script)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn source(customizations: &Customizations, group: &str, kind: &str) -> Option<String> {
        customizations
            .script(group, kind)
            .map(|script| script.source.to_string())
    }

    #[test]
    fn overrides_come_before_bundled_and_exact_before_pattern() {
        let mut customizations = Customizations::from_files([
            ("cert-manager.io/Certificate/health.lua", "bundled exact"),
            ("_.crossplane.io/_/health.lua", "bundled pattern"),
            ("ConfigMap/health.lua", "bundled core"),
            ("ConfigMap/actions/discovery.lua", "no health script"),
        ])
        .unwrap();
        assert_eq!(
            source(&customizations, "cert-manager.io", "Certificate").unwrap(),
            "bundled exact"
        );
        assert_eq!(
            source(&customizations, "pkg.crossplane.io", "Provider").unwrap(),
            "bundled pattern"
        );
        assert_eq!(source(&customizations, "", "ConfigMap").unwrap(), "bundled core");
        assert_eq!(source(&customizations, "crossplane.io", "Provider"), None);

        customizations
            .insert("*.io/Certificate", "override pattern", false)
            .unwrap();
        assert_eq!(
            source(&customizations, "cert-manager.io", "Certificate").unwrap(),
            "override pattern"
        );
        customizations
            .insert("cert-manager.io/Certificate", "override exact", false)
            .unwrap();
        assert_eq!(
            source(&customizations, "cert-manager.io", "Certificate").unwrap(),
            "override exact"
        );
    }

    #[test]
    fn a_pattern_that_is_no_glob_is_refused_by_name() {
        let error = Customizations::none().insert("apps/[", "", false).unwrap_err();
        assert_eq!(error.pattern, "apps/[");
    }
}
