//! `argosy plan`

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use argosy_api::v1alpha1::Application;
use argosy_object::{Value, meta};
use argosy_sync::{Hold, Options, Resource, plan};

use super::compared::{self, Compared};
use crate::output::{self, Verdict};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    files: compared::Files,
    /// Delete what is live and no longer desired [default: as the Application's automated policy says].
    #[arg(long)]
    prune: bool,
    /// Format. JSON is a list of `{"phase", "wave", "kind", "name", "namespace", "action"}` in order.
    #[arg(short, long, value_enum, default_value_t = Verdict::Text)]
    output: Verdict,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let compared = compared::compare(&args.files)?;
    let options = options(&compared, args.prune);
    let resources: Vec<Resource> = compared.pairs.into_iter().map(resource).collect();
    let rows = plan(&resources, &options)?.rows();
    match args.output {
        Verdict::Json => output::json(&serde_json::to_value(rows)?)?,
        Verdict::Text => output::text(&as_text(&serde_json::to_value(rows)?))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn resource(pair: compared::Pair) -> Resource {
    let named = pair.desired.as_ref().or(pair.live.as_ref());
    Resource {
        gvk: named.map(meta::gvk).unwrap_or_default(),
        key: pair.key,
        out_of_sync: pair.comparison.modified || pair.desired.is_none(),
        doubtful: false,
        desired: pair.desired.map(Arc::new),
        live: pair.live.map(Arc::new),
    }
}

fn options(compared: &Compared, prune: bool) -> Options {
    let application = compared.application.as_ref();
    Options {
        namespace: application
            .map(|app| app.spec.destination.namespace.clone())
            .unwrap_or_default(),
        prune: prune || application.is_some_and(prunes),
        hooks: true,
        // As in a cluster without settings of its own; who says --prune is a person.
        hold: (!prune && application.is_some_and(prunes)).then(Hold::default),
        sync_options: compared::application_options(application),
        ..Options::default()
    }
}

fn prunes(application: &Application) -> bool {
    let automated = application
        .spec
        .sync_policy
        .as_ref()
        .and_then(|policy| policy.automated.as_ref());
    automated.is_some_and(|automated| automated.prune == Some(true))
}

fn as_text(rows: &Value) -> String {
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let mut lines = String::from("PHASE     WAVE  ACTION            RESOURCE\n");
    for row in rows.as_array().into_iter().flatten() {
        lines.push_str(&format!(
            "{:<9} {:>4}  {:<17} {}\n",
            text(row, "phase"),
            row["wave"].to_string(),
            text(row, "action"),
            about(
                &text(row, "kind"),
                &text(row, "name"),
                &text(row, "namespace"),
                &text(row, "detail")
            ),
        ));
    }
    lines
}

/// What a step is about: a wait is about no one resource.
fn about(kind: &str, name: &str, namespace: &str, detail: &str) -> String {
    let resource = [kind, name].join(" ");
    let place = if namespace.is_empty() {
        String::new()
    } else {
        format!("in {namespace}")
    };
    let detail = if detail.is_empty() {
        String::new()
    } else {
        format!("({detail})")
    };
    [resource.trim(), &place, &detail]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}
