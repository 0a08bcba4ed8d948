//! What goes to stdout: one format for people, one for programs.

use std::io::Write;

use anyhow::{Context, Result};
use argosy_object::{Value, yaml};

/// `-o` of commands that print documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Documents {
    /// YAML documents, `---` between them.
    Yaml,
    /// One JSON list.
    Json,
}

/// `-o` of commands that print a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Verdict {
    /// For people.
    Text,
    /// One JSON value.
    Json,
}

/// Prints documents in order.
pub(crate) fn documents(documents: &[Value], format: Documents) -> Result<()> {
    match format {
        Documents::Json => json(&Value::from(documents.to_vec())),
        Documents::Yaml => {
            let parts: Vec<String> = documents.iter().map(yaml::to_string).collect();
            text(&parts.join("---\n"))
        }
    }
}

/// Prints one JSON value, indented.
pub(crate) fn json(value: &Value) -> Result<()> {
    text(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Prints text as it is.
pub(crate) fn text(text: &str) -> Result<()> {
    // All at once: a reader that goes away (`| head`) is no panic.
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("write to stdout"),
    }
}
