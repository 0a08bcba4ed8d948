//! One figure a line, for people or for programs.

use serde_json::json;

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
        let rounded = (value * 100.0).round() / 100.0;
        if self.json {
            println!(
                "{}",
                json!({"row": row, "who": "argosy", "metric": metric, "value": rounded, "unit": unit})
            );
        } else {
            println!("{row:<12} {metric:<28} {rounded:>10} {unit}");
        }
    }

    /// Tells a person what is under way; not part of the figures.
    pub(crate) fn progress(&self, text: &str) {
        eprintln!("{text}");
    }
}
