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

/// Prints a value if the format is one for programs; false for the formats that people read.
pub(crate) fn structured(format: &str, value: &impl serde::Serialize) -> Result<bool> {
    let value = || serde_json::to_value(value).context("write as JSON");
    match format {
        "json" => json(&value()?)?,
        "yaml" => text(&yaml::to_string(&value()?))?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Prints one text a line.
pub(crate) fn lines(lines: impl IntoIterator<Item = impl std::fmt::Display>) -> Result<()> {
    text(
        &lines
            .into_iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>(),
    )
}

/// Prints rows under headings, as wide as they need be.
pub(crate) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Result<()> {
    text(&table_text(headings, rows))
}

/// The text of a table: two blanks between columns, as of Go's tabwriter in Argo CD.
pub(crate) fn table_text(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let headings: Vec<String> = headings.iter().map(|text| (*text).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(headings).chain(rows).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns)
        .map(|at| {
            rows.iter()
                .filter_map(|row| row.get(at))
                .map(|cell| cell.chars().count())
                .max()
        })
        .map(Option::unwrap_or_default)
        .collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let pad = width + 2 - cell.chars().count();
            line += &format!("{cell}{:pad$}", "");
        }
        line.trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// A line of a summary: what it is, then the value in its column.
pub(crate) fn field(name: &str, value: &str) -> String {
    format!("{:<20}{value}", format!("{name}:")).trim_end().to_owned() + "\n"
}

/// `<none>` for nothing.
pub(crate) fn or_none(text: String) -> String {
    match text.as_str() {
        "" => "<none>".to_owned(),
        _ => text,
    }
}

/// A list in a few words: nothing, the one, or how many of what.
pub(crate) fn counted(texts: &[String], what: &str) -> String {
    match texts {
        [] => "<none>".to_owned(),
        [one] => one.clone(),
        more => format!("{} {what}", more.len()),
    }
}

/// A time, as people and programs read it; empty for none.
pub(crate) fn time(at: Option<argosy_api::meta::Time>) -> String {
    at.map(|at| at.to_timestamp().to_string()).unwrap_or_default()
}

/// Seconds since 1970 as a time; `none` for 0.
pub(crate) fn unix_time(seconds: i64, none: &str) -> String {
    match seconds {
        0 => none.to_owned(),
        seconds => time(Some(argosy_api::meta::Time { seconds, nanos: 0 })),
    }
}

/// Prints text as it is.
pub(crate) fn text(text: &str) -> Result<()> {
    // All at once: a reader that goes away (`| head`) is no panic.
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("write to stdout"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            vec!["a".to_owned(), "long".to_owned()],
            vec!["longer".to_owned(), String::new()],
        ];
        assert_eq!(
            table_text(&["NAME", "X"], rows),
            "NAME    X\na       long\nlonger\n"
        );
    }
}
