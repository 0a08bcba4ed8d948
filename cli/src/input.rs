//! Files that people hand over. Every error names the file, and the line or field where it can.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use argosy_api::v1alpha1::Application;
use argosy_object::{Value, meta, yaml};

/// All documents of a file, `List` objects unfolded, empty documents left out.
pub(crate) fn documents(file: &Path) -> Result<Vec<Value>> {
    let bytes = read(file)?;
    let located = yaml::parse_all(&bytes, &yaml::Limits::default())
        .map_err(|error| anyhow!("{}: {error}", file.display()))?;
    let mut documents = Vec::new();
    for part in located {
        let line = part.line;
        for document in unfold(part.value) {
            check_identity(&document)
                .with_context(|| format!("{}: the document at line {line}", file.display()))?;
            documents.push(document);
        }
    }
    Ok(documents)
}

/// The one Application of a file.
pub(crate) fn application(file: &Path) -> Result<Application> {
    let mut documents = documents(file)?;
    documents
        .retain(|document| meta::kind(document) == "Application" && meta::group(document) == "argoproj.io");
    let [document] = <[Value; 1]>::try_from(documents).map_err(|found| {
        anyhow!(
            "{}: one Application is expected, found {}",
            file.display(),
            found.len()
        )
    })?;
    serde_json::from_value(document).map_err(|error| anyhow!("{}: {error}", file.display()))
}

/// A file's bytes; `-` is stdin.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::stdin().lock(), &mut bytes).context("read stdin")?;
        return Ok(bytes);
    }
    fs::read(file).with_context(|| format!("read {}", file.display()))
}

fn unfold(document: Value) -> Vec<Value> {
    if document.is_null() {
        return Vec::new();
    }
    let is_list = meta::is_list(&document) || meta::kind(&document) == "List";
    match document {
        Value::Object(mut list) if is_list => match list.remove("items") {
            Some(Value::Array(items)) => items.into_iter().flat_map(unfold).collect(),
            _ => Vec::new(),
        },
        other => vec![other],
    }
}

fn check_identity(document: &Value) -> Result<()> {
    for (field, text) in [
        ("apiVersion", meta::api_version(document)),
        ("kind", meta::kind(document)),
    ] {
        if text.is_empty() {
            bail!("`{field}` is missing or not a text: it is needed to know what the object is");
        }
    }
    if meta::name(document).is_empty() && meta::generate_name(document).is_empty() {
        bail!("`metadata.name` is missing or not a text");
    }
    Ok(())
}
