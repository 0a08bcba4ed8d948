//! `app history`, `app rollback`

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use argosy_api::services::application::ApplicationRollbackRequest;
use argosy_api::v1alpha1::{Application, ApplicationSource, RevisionHistory};

use super::Named;
use super::resources::Wanted;
use super::show::FORMATS;
use super::sync::outcome;
use super::wait::Until;
use crate::output::{self, table_text, time};
use crate::remote::{Remote, ask};

#[derive(clap::Args)]
pub(super) struct History {
    #[command(flatten)]
    app: Named,
    /// How to print it.
    #[arg(long, short, default_value = "wide", value_parser = ["wide", "id"])]
    output: String,
}

pub(super) async fn history(remote: &Remote, args: History) -> Result<()> {
    let app = args.app.get(remote).await?;
    if args.output == "id" {
        return output::lines(app.status.history.iter().map(|entry| entry.id));
    }
    // One table a repository, in the order in which repositories first appear.
    let mut order: Vec<String> = Vec::new();
    let mut rows: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for entry in &app.status.history {
        for (source, revision) in sources(entry) {
            let shown = match revision.get(..7) {
                Some(short) => format!("{} ({short})", source.target_revision),
                None => source.target_revision.clone(),
            };
            if !order.contains(&source.repo_url) {
                order.push(source.repo_url.clone());
            }
            let row = vec![entry.id.to_string(), time(entry.deployed_at), shown];
            rows.entry(source.repo_url.clone()).or_default().push(row);
        }
    }
    let tables = order.iter().map(|url| {
        let rows = rows.remove(url).unwrap_or_default();
        format!("SOURCE  {url}\n{}", table_text(&["ID", "DATE", "REVISION"], rows))
    });
    output::text(&tables.collect::<Vec<_>>().join("\n"))
}

fn sources(entry: &RevisionHistory) -> Vec<(&ApplicationSource, &str)> {
    if entry.sources.is_empty() {
        return vec![(&entry.source, &entry.revision)];
    }
    let revision = |at: usize| entry.revisions.get(at).map_or("", String::as_str);
    entry
        .sources
        .iter()
        .enumerate()
        .map(|(at, source)| (source, revision(at)))
        .collect()
}

#[derive(clap::Args)]
pub(super) struct Rollback {
    #[command(flatten)]
    app: Named,
    /// Id out of the history [default: the one before the last].
    id: Option<i64>,
    /// Delete what is no longer in Git.
    #[arg(long)]
    prune: bool,
    /// Seconds to wait; 0 for ever.
    #[arg(long, default_value_t = 0)]
    timeout: u64,
    /// How to print it afterwards.
    #[arg(long, short, default_value = "wide", value_parser = FORMATS)]
    output: String,
}

pub(super) async fn rollback(remote: &Remote, args: Rollback) -> Result<ExitCode> {
    let app = args.app.get(remote).await?;
    let id = entry(&app, args.id)?;
    let request = ApplicationRollbackRequest {
        name: app.metadata.name,
        app_namespace: Some(app.metadata.namespace),
        id,
        prune: Some(args.prune),
        ..ApplicationRollbackRequest::default()
    };
    ask!(remote, applications.rollback(request));
    let until = Until {
        operation: true,
        ..Until::default()
    };
    outcome(
        remote,
        &args.app,
        until,
        &Wanted::default(),
        args.timeout,
        &args.output,
        false,
    )
    .await
}

fn entry(app: &Application, id: Option<i64>) -> Result<i64> {
    let history = &app.status.history;
    match id {
        None => {
            let before = history.len().checked_sub(2).and_then(|at| history.get(at));
            let before = before.context(
                "there is nothing before what is deployed: the history has fewer than two entries",
            )?;
            Ok(before.id)
        }
        Some(id) if history.iter().any(|entry| entry.id == id) => Ok(id),
        Some(id) => bail!(
            "application '{}' does not have deployment id '{id}' in history",
            app.metadata.name
        ),
    }
}
