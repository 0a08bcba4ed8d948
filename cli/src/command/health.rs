//! `argosy health`

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use argosy_health::{Customizations, assess};
use argosy_object::{Value, meta};
use serde_json::json;

use crate::input;
use crate::output::{self, Verdict};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The live object, or several (`-` is stdin).
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Health scripts, laid out as GROUP/KIND/health.lua.
    #[arg(long, value_name = "DIR")]
    customizations: Option<PathBuf>,
    /// Format. JSON of one object is `{"status", "message"}`, of several a list of these with `resource`.
    #[arg(short, long, value_enum, default_value_t = Verdict::Text)]
    output: Verdict,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let customizations = match &args.customizations {
        Some(dir) => read_customizations(dir)?,
        None => Customizations::none(),
    };
    let documents = input::documents(&args.file)?;
    if documents.is_empty() {
        bail!("{}: no object in it", args.file.display());
    }
    match args.output {
        Verdict::Json => output::json(&as_json(&documents, &customizations))?,
        Verdict::Text => output::text(&as_text(&documents, &customizations))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A kind that nobody has a health rule for has no health: an empty status.
fn verdict(document: &Value, customizations: &Customizations) -> (String, String) {
    match assess(document, customizations) {
        Some(health) => (health.status.to_string(), health.message),
        None => (String::new(), String::new()),
    }
}

fn as_json(documents: &[Value], customizations: &Customizations) -> Value {
    let one = |document| {
        let (status, message) = verdict(document, customizations);
        json!({"status": status, "message": message})
    };
    if let [document] = documents {
        return one(document);
    }
    let with_name = documents.iter().map(|document| {
        let mut entry = one(document);
        entry["resource"] = meta::key(document).to_string().into();
        entry
    });
    with_name.collect()
}

fn as_text(documents: &[Value], customizations: &Customizations) -> String {
    let lines = documents.iter().map(|document| {
        let (status, message) = verdict(document, customizations);
        let status = if status.is_empty() {
            "(no health rule)"
        } else {
            &status
        };
        let gap = if message.is_empty() { "" } else { ": " };
        format!("{}  {status}{gap}{message}\n", meta::key(document))
    });
    lines.collect()
}

fn read_customizations(dir: &Path) -> Result<Customizations> {
    let mut files = Vec::new();
    collect(dir, dir, &mut files)?;
    Customizations::from_files(files).with_context(|| format!("read the health scripts of {}", dir.display()))
}

fn collect(root: &Path, dir: &Path, files: &mut Vec<(String, String)>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
        } else if path.file_name().is_some_and(|name| name == "health.lua") {
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let relative = path.strip_prefix(root).unwrap_or(&path);
            files.push((relative.to_string_lossy().into_owned(), text));
        }
    }
    Ok(())
}
