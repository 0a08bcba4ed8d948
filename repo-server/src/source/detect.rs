//! Which tool renders a source.

use crate::error::{Error, Result};
use crate::tree::{Node, RawKind, Tree};
use argosy_api::v1alpha1::ApplicationSource;
use std::collections::BTreeMap;

/// The tools, under the names of Argo CD's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SourceType {
    /// A Helm chart.
    Helm,
    /// A kustomization.
    Kustomize,
    /// Plain manifests and Jsonnet.
    Directory,
    /// A config management plugin.
    Plugin,
}

impl SourceType {
    /// Reads the name in status and on the wire.
    pub(crate) fn parse(name: &str) -> Option<SourceType> {
        [
            SourceType::Helm,
            SourceType::Kustomize,
            SourceType::Directory,
            SourceType::Plugin,
        ]
        .into_iter()
        .find(|kind| kind.as_str() == name)
    }

    /// The name in status and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            SourceType::Helm => "Helm",
            SourceType::Kustomize => "Kustomize",
            SourceType::Directory => "Directory",
            SourceType::Plugin => "Plugin",
        }
    }
}

/// Decides by what the source says, then by what the directory holds. A tool that is switched off is passed over: what it
/// would have rendered is plain manifests.
///
/// # Errors
/// [`Error::Source`] when the source names several tools.
pub fn detect(
    source: &ApplicationSource,
    tree: &Tree,
    dir: &Node,
    enabled: &BTreeMap<String, bool>,
) -> Result<SourceType> {
    if let Some(explicit) = explicit(source)? {
        return Ok(if is_on(explicit, enabled) {
            explicit
        } else {
            SourceType::Directory
        });
    }
    Ok(discover(tree, dir, enabled)?.unwrap_or(SourceType::Directory))
}

/// Whether a tool is not switched off.
pub(crate) fn is_on(kind: SourceType, enabled: &BTreeMap<String, bool>) -> bool {
    enabled.get(kind.as_str()).copied().unwrap_or(true)
}

/// The tool that the source names itself.
///
/// # Errors
/// [`Error::Source`] when it names several.
pub fn explicit(source: &ApplicationSource) -> Result<Option<SourceType>> {
    let named: Vec<SourceType> = [
        (source.kustomize.is_some(), SourceType::Kustomize),
        (source.helm.is_some(), SourceType::Helm),
        (source.directory.is_some(), SourceType::Directory),
        (source.plugin.is_some(), SourceType::Plugin),
    ]
    .into_iter()
    .filter_map(|(named, kind)| named.then_some(kind))
    .collect();
    match named.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        several => {
            let names: Vec<&str> = several.iter().map(|kind| kind.as_str()).collect();
            Err(Error::Source(format!(
                "multiple application sources defined: {}",
                names.join(",")
            )))
        }
    }
}

/// The tool whose marker file lies in a directory.
///
/// # Errors
/// When the directory cannot be read.
pub fn discover(tree: &Tree, dir: &Node, enabled: &BTreeMap<String, bool>) -> Result<Option<SourceType>> {
    let on = |kind: SourceType| is_on(kind, enabled);
    let entries = tree.list(dir)?;
    let has = |name: &str| {
        entries
            .iter()
            .any(|entry| entry.name == name && !matches!(entry.kind, RawKind::Directory | RawKind::Submodule))
    };
    if on(SourceType::Helm) && has("Chart.yaml") {
        return Ok(Some(SourceType::Helm));
    }
    if on(SourceType::Kustomize) && KUSTOMIZATIONS.iter().any(|name| has(name)) {
        return Ok(Some(SourceType::Kustomize));
    }
    Ok(None)
}

/// Names a kustomization may have.
pub(crate) const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
