//! `argosy diff`

use std::process::ExitCode;

use anyhow::Result;
use argosy_diff::Difference;
use argosy_object::Value;
use argosy_sync::hook::Role;
use serde_json::json;

use super::compared::{self, Compared, Pair};
use crate::output::{self, Verdict};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    files: compared::Files,
    /// Format. JSON is `{"synced", "differences": [{"resource", "path", "desired", "live", "why", "owners"}]}`.
    #[arg(short, long, value_enum, default_value_t = Verdict::Text)]
    output: Verdict,
}

/// Exit code 0 if synced, 1 if different.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let compared = compared::compare(&args.files)?;
    let synced = compared.pairs.iter().all(is_synced);
    match args.output {
        Verdict::Json => output::json(&as_json(&compared, synced))?,
        Verdict::Text => output::text(&as_text(&compared, synced))?,
    }
    Ok(if synced {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// Hooks run and are not kept, and what is marked `Skip` is left alone: neither differs from anything.
fn is_synced(pair: &Pair) -> bool {
    let either = pair.desired.as_ref().or(pair.live.as_ref());
    let kept = either.is_none_or(|object| Role::of(object) == Role::Resource);
    !kept || (pair.desired.is_some() && !pair.comparison.modified)
}

fn as_json(compared: &Compared, synced: bool) -> Value {
    let mut differences = Vec::new();
    for pair in compared.pairs.iter().filter(|pair| !is_synced(pair)) {
        let resource = pair.key.to_string();
        if pair.desired.is_none() {
            let why = "in the cluster and not in Git";
            differences.push(
                json!({"resource": resource, "path": "", "desired": null, "live": pair.live, "why": why, "owners": []}),
            );
        }
        for difference in &pair.comparison.differences {
            differences.push(json!({
                "resource": resource,
                "path": difference.path,
                "desired": difference.desired,
                "live": difference.live,
                "why": difference.why,
                "owners": difference.owners,
            }));
        }
    }
    json!({"synced": synced, "differences": differences})
}

fn as_text(compared: &Compared, synced: bool) -> String {
    if synced {
        return "synced\n".to_owned();
    }
    let mut text = String::new();
    for pair in compared.pairs.iter().filter(|pair| !is_synced(pair)) {
        text.push_str(&format!("===== {}\n", pair.key));
        if pair.desired.is_none() {
            text.push_str("  in the cluster and not in Git\n");
        }
        for difference in &pair.comparison.differences {
            let path = if difference.path.is_empty() {
                "(the whole object)"
            } else {
                &difference.path
            };
            text.push_str(&format!("  {path}: {}\n", why(difference)));
            text.push_str(&format!("    live:    {}\n", shown(difference.live.as_ref())));
            text.push_str(&format!("    desired: {}\n", shown(difference.desired.as_ref())));
        }
    }
    text
}

/// The reason, and who set the present value as far as the object tells.
fn why(difference: &Difference) -> String {
    match difference.owners.as_slice() {
        [] => difference.why.clone(),
        owners => format!("{}; now set by {}", difference.why, owners.join(", ")),
    }
}

/// One line a value: the whole object is in the file already.
fn shown(value: Option<&Value>) -> String {
    const WIDTH: usize = 160;
    let Some(value) = value else {
        return "(absent)".to_owned();
    };
    let text = value.to_string();
    match text.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
