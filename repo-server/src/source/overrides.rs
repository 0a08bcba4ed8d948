//! `.argocd-source.yaml` and `.argocd-source-<app>.yaml`: parameters that live beside the manifests.

use crate::error::{Error, Result};
use crate::path::TreePath;
use crate::tree::{Node, Tree};
use argosy_api::v1alpha1::ApplicationSource;
use serde_json::Value;

/// Largest override file.
const MAX_BYTES: u64 = 1 << 20;

/// The files that are looked for, in the order in which they apply.
pub fn files(dir: &TreePath, app: &str) -> Vec<TreePath> {
    let mut files = vec![dir.child(".argocd-source.yaml")];
    // An instance name is a Kubernetes name, perhaps with a namespace in front; anything else names no file.
    if !app.is_empty() && !app.contains('/') {
        files.push(dir.child(&format!(".argocd-source-{app}.yaml")));
    }
    files
}

/// Merges the override files of a directory into the source. What decides where the files come from cannot be
/// overridden.
///
/// # Errors
/// [`Error::Manifest`] when a file cannot be read as an override.
pub fn apply(source: &ApplicationSource, tree: &Tree, dir: &Node, app: &str) -> Result<ApplicationSource> {
    let mut merged: Option<Value> = None;
    for file in files(&dir.path, app) {
        let Some(node) = tree.lookup(&file)? else { continue };
        if node.is_dir {
            continue;
        }
        let bad = |message: String| Error::Manifest {
            file: file.as_str().to_owned(),
            line: None,
            message,
        };
        let text = tree.read_node(&node, MAX_BYTES)?;
        let text = String::from_utf8(text).map_err(|e| bad(e.to_string()))?;
        let patch =
            argosy_object::yaml::parse(&text, &crate::manifest::limits()).map_err(|e| bad(e.to_string()))?;
        if patch.is_null() {
            continue;
        }
        if merged.is_none() {
            merged = Some(serde_json::to_value(source).map_err(|e| bad(e.to_string()))?);
        }
        if let Some(target) = &mut merged {
            merge(target, &patch);
        }
    }
    let Some(merged) = merged else {
        return Ok(source.clone());
    };
    let mut result: ApplicationSource = serde_json::from_value(merged).map_err(|e| Error::Manifest {
        file: dir.path.child(".argocd-source.yaml").as_str().to_owned(),
        line: None,
        message: e.to_string(),
    })?;
    result.repo_url.clone_from(&source.repo_url);
    result.path.clone_from(&source.path);
    result.chart.clone_from(&source.chart);
    result.target_revision.clone_from(&source.target_revision);
    result.r#ref.clone_from(&source.r#ref);
    result.name.clone_from(&source.name);
    Ok(result)
}

/// JSON merge patch (RFC 7386).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
