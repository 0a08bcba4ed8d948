//! The embedded schemas of the built-in kinds, remade from the OpenAPI v3 documents of a Kubernetes release
//! (`api/openapi-spec/v3` in its sources, or `/openapi/v3` of a server).

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;

const EMBEDDED: &str = "engine/object/src/schema/builtin.json";

/// Remakes the embedded schemas from the JSON files of a folder.
///
/// # Errors
/// When a file cannot be read, or the folder holds no OpenAPI document.
pub(crate) fn run(folder: &Path) -> Result<()> {
    let documents = read(folder)?;
    let facts = argosy_object::schema::compact(&documents);
    if facts["schemas"].as_object().is_none_or(serde_json::Map::is_empty) {
        bail!("no OpenAPI v3 document with resources in {}", folder.display());
    }
    let target = shell::root().join(EMBEDDED);
    fs::write(&target, lines(&facts)).with_context(|| format!("write {EMBEDDED}"))?;
    eprintln!("  wrote {EMBEDDED}");
    Ok(())
}

fn read(folder: &Path) -> Result<Vec<Value>> {
    let entries = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let mut files = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let parse = |file: &std::path::PathBuf| {
        let text = fs::read(file).with_context(|| format!("read {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("read {} as JSON", file.display()))
    };
    files.iter().map(parse).collect()
}

/// One definition a line, so that a new release shows as a diff that can be read.
fn lines(facts: &Value) -> String {
    let mut text = String::from("{");
    for (at, (part, entries)) in facts.as_object().into_iter().flatten().enumerate() {
        let _ = write!(text, "{}\n\"{part}\":{{", if at > 0 { "," } else { "" });
        for (at, (name, entry)) in entries.as_object().into_iter().flatten().enumerate() {
            let _ = write!(
                text,
                "{}\n{}:{entry}",
                if at > 0 { "," } else { "" },
                Value::from(name.as_str())
            );
        }
        text.push('}');
    }
    text.push_str("}\n");
    text
}
