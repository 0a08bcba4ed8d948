//! `argocd-rbac-cm`: the policies of an installation, as people write them.

use std::collections::BTreeMap;

use crate::policy::{Error, MatchMode, Policy};

/// What the ConfigMap says.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The lines of people.
    pub policy: Policy,
    /// How they, and those of projects, are compared.
    pub mode: MatchMode,
    /// The role of everybody; empty for none.
    pub default_role: String,
    /// What it was read from.
    data: BTreeMap<String, String>,
}

impl Config {
    /// Reads the data of the ConfigMap: `policy.csv`, then every `policy.<anything>.csv` by name, `policy.matchMode` and
    /// `policy.default`.
    ///
    /// # Errors
    /// At the first line that is wrong; lines are counted through all texts.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Self, Error> {
        let mode = match data.get("policy.matchMode").map(String::as_str) {
            Some("regex") => MatchMode::Regex,
            _ => MatchMode::Glob,
        };
        let mut text = data.get("policy.csv").cloned().unwrap_or_default();
        for (key, more) in data {
            if key.starts_with("policy.") && key.ends_with(".csv") && key != "policy.csv" {
                text.push('\n');
                text.push_str(more);
            }
        }
        let default_role = data.get("policy.default").map(|text| text.trim().to_owned());
        Ok(Config {
            policy: Policy::parse(&text, mode)?,
            mode,
            default_role: default_role.unwrap_or_default(),
            data: data.clone(),
        })
    }

    /// Was it read from this? Then what was worked out by it holds still.
    pub fn is_of(&self, data: &BTreeMap<String, String>) -> bool {
        self.data == *data
    }
}
