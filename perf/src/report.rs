//! One figure a line, for people or for programs.

use serde_json::json;

/// Whose figure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Argosy,
    /// What `--peer` names.
    Peer,
}

/// Where figures go.
pub(crate) struct Report {
    json: bool,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints one figure of Argosy.
    pub(crate) fn figure(&self, row: &str, metric: &str, value: f64, unit: &str) {
        self.of(Who::Argosy, row, metric, value, unit);
    }

    /// Prints one figure.
    pub(crate) fn of(&self, who: Who, row: &str, metric: &str, value: f64, unit: &str) {
        let rounded = (value * 100.0).round() / 100.0;
        let who = match who {
            Who::Argosy => "argosy",
            Who::Peer => "peer",
        };
        if self.json {
            println!(
                "{}",
                json!({"row": row, "who": who, "metric": metric, "value": rounded, "unit": unit})
            );
        } else if who == "argosy" {
            println!("{row:<12} {metric:<28} {rounded:>10} {unit}");
        } else {
            println!("{row:<12} {metric:<28} {rounded:>10} {unit} ({who})");
        }
    }

    /// Tells a person what is under way; not part of the figures.
    pub(crate) fn progress(&self, text: &str) {
        eprintln!("{text}");
    }
}
