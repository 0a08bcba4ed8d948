//! `index.yaml` of a classic Helm repository.

use crate::error::{Error, Result};
use serde_json::Value;
use std::collections::BTreeMap;

/// Largest index read.
pub(super) const MAX_INDEX: u64 = 128 << 20;

/// Charts and their versions, as the index lists them.
#[derive(Clone, Debug, Default)]
pub struct Index {
    charts: BTreeMap<String, Vec<Entry>>,
}

/// One version of a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Version.
    pub version: String,
    /// Where the archive is, absolute or relative to the repository.
    pub urls: Vec<String>,
    /// SHA-256 of the archive, in hexadecimal; may be empty.
    pub digest: String,
    /// Description.
    pub description: String,
    /// Home page.
    pub home: String,
    /// `Name <mail>` of the maintainers.
    pub maintainers: Vec<String>,
}

impl Index {
    /// Reads an index. Entries that make no sense are passed over, as Helm does.
    ///
    /// # Errors
    /// [`Error::Manifest`] when it is neither JSON nor YAML.
    pub fn parse(text: &[u8]) -> Result<Index> {
        let bad = |message: String| Error::Manifest {
            file: "index.yaml".into(),
            line: None,
            message,
        };
        // Some repositories write JSON, which is faster to read.
        let document: Value = match serde_json::from_slice(text) {
            Ok(document) => document,
            Err(_) => {
                let text = std::str::from_utf8(text).map_err(|e| bad(e.to_string()))?;
                argosy_object::yaml::parse(text, &crate::manifest::index_limits())
                    .map_err(|e| bad(e.to_string()))?
            }
        };
        let Some(entries) = document.get("entries").and_then(Value::as_object) else {
            return if document.get("apiVersion").is_some() {
                Ok(Index::default())
            } else {
                Err(bad("it is not the index of a Helm repository".into()))
            };
        };
        let charts = entries
            .iter()
            .map(|(name, versions)| {
                let versions = versions.as_array().map(Vec::as_slice).unwrap_or_default();
                (name.clone(), versions.iter().filter_map(Entry::read).collect())
            })
            .collect();
        Ok(Index { charts })
    }

    /// The versions of a chart, in the order of the index.
    pub fn versions(&self, chart: &str) -> &[Entry] {
        self.charts.get(chart).map(Vec::as_slice).unwrap_or_default()
    }

    /// Every chart with its versions.
    pub fn charts(&self) -> impl Iterator<Item = (&str, &[Entry])> {
        self.charts
            .iter()
            .map(|(name, entries)| (name.as_str(), entries.as_slice()))
    }
}

impl Entry {
    fn read(value: &Value) -> Option<Entry> {
        let text = |key: &str| match value.get(key) {
            Some(Value::String(text)) => text.clone(),
            // A version that looks like a number was a text in the author's mind.
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let urls: Vec<String> = value
            .get("urls")
            .and_then(Value::as_array)
            .map(|urls| urls.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            .unwrap_or_default();
        let version = text("version");
        if version.is_empty() || urls.is_empty() {
            return None;
        }
        let maintainers = value
            .get("maintainers")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let maintainers = maintainers
            .iter()
            .filter_map(|one| {
                let name = one.get("name")?.as_str()?;
                Some(match one.get("email").and_then(Value::as_str) {
                    Some(mail) if !mail.is_empty() => format!("{name} <{mail}>"),
                    _ => name.to_owned(),
                })
            })
            .collect();
        Some(Entry {
            version,
            urls,
            digest: text("digest").trim_start_matches("sha256:").to_ascii_lowercase(),
            description: text("description"),
            home: text("home"),
            maintainers,
        })
    }
}
