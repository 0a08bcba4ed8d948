//! `deploy/crds`: the CustomResourceDefinitions as files, from the types of argosy-api.

use std::fs;

use anyhow::{Context, Result, bail};
use argosy_object::{Value, yaml};

use crate::shell;

/// Writes `deploy/crds`, or with `check` compares and writes nothing.
///
/// # Errors
/// With `check`, when a committed file differs from what would be written.
pub(crate) fn run(check: bool) -> Result<()> {
    let folder = shell::root().join("deploy/crds");
    for definition in argosy_api::crds() {
        let kind = definition
            .pointer("/spec/names/singular")
            .and_then(Value::as_str)
            .context("a CustomResourceDefinition names its kind")?;
        let name = format!("{kind}-crd.yaml");
        let text = yaml::to_string(&definition);
        let target = folder.join(&name);
        if !check {
            fs::create_dir_all(&folder)?;
            fs::write(&target, text).with_context(|| format!("write {}", target.display()))?;
        } else if fs::read_to_string(&target).ok().as_deref() != Some(&text) {
            bail!("deploy/crds/{name} is not what api/ makes: run `cargo xtask codegen`");
        }
    }
    Ok(())
}
