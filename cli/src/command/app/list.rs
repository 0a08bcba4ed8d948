//! `app list`

use anyhow::Result;
use argosy_api::services::application::ApplicationQuery;
use argosy_api::v1alpha1::{Application, Stored as _};
use serde_json::Value;

use super::{cluster, first_source, qualified};
use crate::output::{self, or_none};
use crate::remote::{Remote, ask};

#[derive(clap::Args)]
pub(super) struct List {
    /// Only of these projects.
    #[arg(long, short)]
    project: Vec<String>,
    /// Only with these labels.
    #[arg(long, short = 'l', default_value = "")]
    selector: String,
    /// Only from this repository.
    #[arg(long, short, default_value = "")]
    repo: String,
    /// Only from this path.
    #[arg(long, short = 'P', default_value = "")]
    path: String,
    /// Only on this cluster, by server or name.
    #[arg(long, short, default_value = "")]
    cluster: String,
    /// Only in this namespace.
    #[arg(long, short = 'N', default_value = "")]
    app_namespace: String,
    /// Only with this text in name, project, cluster, namespace, source or labels. Argosy's server alone heeds it.
    #[arg(long, default_value = "")]
    search: String,
    /// In this order: name, namespace, project, cluster, health, sync, createdAt, syncedAt; `-` turns it round. Argosy's
    /// server alone heeds it.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    sort_by: String,
    /// How to print them.
    #[arg(long, short, default_value = "wide", value_parser = ["wide", "name", "json", "yaml"])]
    output: String,
}

pub(super) async fn list(remote: &Remote, args: List) -> Result<()> {
    let query = ApplicationQuery {
        projects: args.project,
        selector: Some(args.selector),
        repo: Some(args.repo),
        app_namespace: Some(args.app_namespace),
        search: Some(args.search).filter(|text| !text.is_empty()),
        sort_by: Some(args.sort_by).filter(|text| !text.is_empty()),
        ..ApplicationQuery::default()
    };
    let mut apps = ask!(remote, applications.list(query)).items;
    apps.retain(|app| {
        let destination = &app.spec.destination;
        let on =
            args.cluster.is_empty() || destination.server == args.cluster || destination.name == args.cluster;
        let from = args.path.is_empty()
            || app
                .spec
                .effective_sources()
                .iter()
                .any(|source| source.path == args.path);
        on && from
    });
    print(&apps, &args.output)
}

fn print(apps: &[Application], format: &str) -> Result<()> {
    let documents: Vec<Value> = match format {
        "json" | "yaml" => apps.iter().map(|app| app.to_document()).collect(),
        _ => Vec::new(),
    };
    if output::structured(format, &documents)? {
        return Ok(());
    }
    if format == "name" {
        return output::lines(apps.iter().map(qualified));
    }
    let headings = [
        "NAME",
        "CLUSTER",
        "NAMESPACE",
        "PROJECT",
        "STATUS",
        "HEALTH",
        "SYNCPOLICY",
        "CONDITIONS",
        "REPO",
        "PATH",
        "TARGET",
    ];
    output::table(&headings, apps.iter().map(row))
}

fn row(app: &Application) -> Vec<String> {
    let (spec, status, source) = (&app.spec, &app.status, first_source(app));
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .map(|condition| condition.r#type.as_str())
        .collect();
    vec![
        qualified(app),
        cluster(app).to_owned(),
        spec.destination.namespace.clone(),
        match spec.project.as_str() {
            "" => "default".to_owned(),
            project => project.to_owned(),
        },
        status.sync.status.clone(),
        status.health.status.clone(),
        policy(app).to_owned(),
        or_none(conditions.join(",")),
        source.repo_url,
        if source.chart.is_empty() {
            source.path
        } else {
            source.chart
        },
        source.target_revision,
    ]
}

fn policy(app: &Application) -> &'static str {
    let policy = app.spec.sync_policy.as_ref();
    let automated = policy.and_then(|policy| policy.automated.as_ref());
    match automated.filter(|automated| automated.enabled != Some(false)) {
        None => "Manual",
        Some(automated) if automated.prune == Some(true) => "Auto-Prune",
        Some(_) => "Auto",
    }
}
