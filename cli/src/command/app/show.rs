//! `app get`, and how an Application is shown after others.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use argosy_api::services::application::{ApplicationQuery, ApplicationSyncWindowsQuery, ResourcesQuery};
use argosy_api::v1alpha1::{Application, ApplicationTree, ResourceNode, Stored as _};

use super::{Named, cluster, first_source, qualified};
use crate::output::{self, field, table_text, time};
use crate::remote::{Remote, ask};

#[derive(clap::Args)]
pub(super) struct Get {
    #[command(flatten)]
    app: Named,
    /// Have it looked at first.
    #[arg(long)]
    refresh: bool,
    /// The same without the cache of manifests.
    #[arg(long)]
    hard_refresh: bool,
    /// Show the last operation.
    #[arg(long)]
    show_operation: bool,
    /// Show parameters of Helm.
    #[arg(long)]
    show_params: bool,
    /// Seconds to wait for an answer; 0 for ever.
    #[arg(long, default_value_t = 0)]
    timeout: u64,
    /// How to print it.
    #[arg(long, short, default_value = "wide", value_parser = FORMATS)]
    output: String,
}

/// `-o` of everything that shows an Application.
pub(super) const FORMATS: [&str; 5] = ["wide", "json", "yaml", "tree", "tree=detailed"];

pub(super) async fn get(remote: &Remote, args: Get) -> Result<()> {
    let refresh = match (args.hard_refresh, args.refresh) {
        (true, _) => Some("hard".to_owned()),
        (_, true) => Some("normal".to_owned()),
        _ => None,
    };
    let query = ApplicationQuery {
        refresh,
        ..args.app.query()
    };
    let asked = async { anyhow::Ok(ask!(remote, applications.get(query))) };
    let app = match args.timeout {
        0 => asked.await?,
        seconds => tokio::time::timeout(Duration::from_secs(seconds), asked)
            .await
            .with_context(|| format!("no answer within {seconds} s"))??,
    };
    show(remote, &app, &args.output).await?;
    if args.output != "wide" {
        return Ok(());
    }
    if args.show_operation {
        output::text(&format!("\n{}", operation(&app)))?;
    }
    if args.show_params {
        let sources = app.spec.effective_sources();
        let parameters = sources
            .iter()
            .filter_map(|source| source.helm.as_ref())
            .flat_map(|helm| &helm.parameters);
        let rows = parameters.map(|parameter| vec![parameter.name.clone(), parameter.value.clone()]);
        output::text(&format!("\n{}", table_text(&["NAME", "VALUE"], rows)))?;
    }
    Ok(())
}

/// Prints an Application in one of the [`FORMATS`].
pub(super) async fn show(remote: &Remote, app: &Application, format: &str) -> Result<()> {
    if output::structured(format, &app.to_document())? {
        return Ok(());
    }
    let mut text = summary(remote, app).await?;
    text.push('\n');
    match format {
        "wide" => text += &resources(app),
        _ => {
            let query = ResourcesQuery {
                application_name: app.metadata.name.clone(),
                app_namespace: Some(app.metadata.namespace.clone()),
                ..ResourcesQuery::default()
            };
            let tree = ask!(remote, applications.resource_tree(query));
            text += &branches(app, &tree, format == "tree=detailed");
        }
    }
    output::text(&text)
}

async fn summary(remote: &Remote, app: &Application) -> Result<String> {
    let (spec, status, source) = (&app.spec, &app.status, first_source(app));
    let project = if spec.project.is_empty() {
        "default"
    } else {
        &spec.project
    };
    let mut text = field("Name", &qualified(app));
    text += &field("Project", project);
    text += &field("Server", cluster(app));
    text += &field("Namespace", &spec.destination.namespace);
    text += &field(
        "URL",
        &format!("https://{}/applications/{}", remote.server, app.metadata.name),
    );
    text += if spec.sources.len() > 1 {
        "Sources:\n"
    } else {
        "Source:\n"
    };
    for source in spec.effective_sources() {
        text += &field("- Repo", &source.repo_url);
        text += &field("  Target", &source.target_revision);
        for (name, value) in [
            ("  Path", &source.path),
            ("  Chart", &source.chart),
            ("  Ref", &source.r#ref),
        ] {
            if !value.is_empty() {
                text += &field(name, value);
            }
        }
        let values = source
            .helm
            .map(|helm| helm.value_files.join(","))
            .unwrap_or_default();
        if !values.is_empty() {
            text += &field("  Helm Values", &values);
        }
        let prefix = source
            .kustomize
            .map(|kustomize| kustomize.name_prefix)
            .unwrap_or_default();
        if !prefix.is_empty() {
            text += &field("  Name Prefix", &prefix);
        }
    }
    let windows = ApplicationSyncWindowsQuery {
        name: app.metadata.name.clone(),
        app_namespace: Some(app.metadata.namespace.clone()),
        ..ApplicationSyncWindowsQuery::default()
    };
    let windows = ask!(remote, applications.get_application_sync_windows(windows));
    let closed = windows.active_windows.iter().any(|window| window.kind == "deny")
        || windows.active_windows.is_empty()
            && windows
                .assigned_windows
                .iter()
                .any(|window| window.kind == "allow");
    text += &field(
        "SyncWindow",
        match (closed, windows.can_sync) {
            (false, _) => "Sync Allowed",
            (true, true) => "Manual Allowed",
            (true, false) => "Sync Denied",
        },
    );
    if !windows.assigned_windows.is_empty() {
        let assigned = windows.assigned_windows.iter();
        let assigned =
            assigned.map(|window| format!("{}:{}:{}", window.kind, window.schedule, window.duration));
        text += &field("Assigned Windows", &assigned.collect::<Vec<_>>().join(","));
    }
    let automated = spec
        .sync_policy
        .as_ref()
        .and_then(|policy| policy.automated.as_ref());
    text += &field(
        "Sync Policy",
        match automated.filter(|automated| automated.enabled != Some(false)) {
            None => "Manual",
            Some(automated) if automated.prune == Some(true) => "Automated (Prune)",
            Some(_) => "Automated",
        },
    );
    let mut sync = match status.sync.status.as_str() {
        "Synced" => format!("Synced to {}", source.target_revision),
        "OutOfSync" => format!("OutOfSync from {}", source.target_revision),
        other => other.to_owned(),
    };
    if let Some(short) = status.sync.revision.get(..7)
        && !is_commit(&source.target_revision)
    {
        write!(sync, " ({short})").ok();
    }
    text += &field("Sync Status", &sync);
    text += &field("Health Status", &status.health.status);
    if !status.conditions.is_empty() {
        let rows = status.conditions.iter().map(|condition| {
            vec![
                condition.r#type.clone(),
                condition.message.clone(),
                time(condition.last_transition_time),
            ]
        });
        text += &format!(
            "\n{}",
            table_text(&["CONDITION", "MESSAGE", "LAST TRANSITION"], rows)
        );
    }
    Ok(text)
}

/// Is it a commit, whole or shortened?
fn is_commit(revision: &str) -> bool {
    (7..=40).contains(&revision.len()) && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What the Application manages, with what the last operation said of each.
fn resources(app: &Application) -> String {
    let state = app.status.operation_state.as_ref();
    let results = state.and_then(|state| state.sync_result.as_ref());
    let results = results.map_or(&[][..], |result| &result.resources);
    let mut rows = Vec::new();
    for resource in &app.status.resources {
        let result = results.iter().find(|result| {
            (&result.group, &result.kind, &result.namespace, &result.name)
                == (
                    &resource.group,
                    &resource.kind,
                    &resource.namespace,
                    &resource.name,
                )
        });
        rows.push(vec![
            resource.group.clone(),
            resource.kind.clone(),
            resource.namespace.clone(),
            resource.name.clone(),
            resource.status.clone(),
            resource
                .health
                .as_ref()
                .map(|health| health.status.clone())
                .unwrap_or_default(),
            result.map(|result| result.hook_type.clone()).unwrap_or_default(),
            result.map(|result| result.message.clone()).unwrap_or_default(),
        ]);
    }
    // Hooks are no resources of the Application: only the operation knows them.
    for hook in results.iter().filter(|result| !result.hook_type.is_empty()) {
        rows.push(vec![
            hook.group.clone(),
            hook.kind.clone(),
            hook.namespace.clone(),
            hook.name.clone(),
            hook.hook_phase.clone(),
            String::new(),
            hook.hook_type.clone(),
            hook.message.clone(),
        ]);
    }
    let headings = [
        "GROUP",
        "KIND",
        "NAMESPACE",
        "NAME",
        "STATUS",
        "HEALTH",
        "HOOK",
        "MESSAGE",
    ];
    table_text(&headings, rows)
}

/// The last operation.
pub(super) fn operation(app: &Application) -> String {
    let Some(state) = &app.status.operation_state else {
        return String::new();
    };
    let mut text = field("Operation", "Sync");
    if let Some(result) = &state.sync_result {
        let revision = match result.revisions.is_empty() {
            true => result.revision.clone(),
            false => result.revisions.join(", "),
        };
        text += &field("Sync Revision", &revision);
    }
    text += &field("Phase", &state.phase);
    text += &field("Start", &time(state.started_at));
    text += &field("Finished", &time(state.finished_at));
    let lasted = |end: argosy_api::meta::Time| Some(format!("{}s", end.seconds - state.started_at?.seconds));
    text += &field(
        "Duration",
        &state.finished_at.and_then(lasted).unwrap_or_default(),
    );
    if !state.message.is_empty() {
        text += &field("Message", &state.message);
    }
    text
}

/// A tree of resources, each below its owner.
fn branches(app: &Application, tree: &ApplicationTree, detailed: bool) -> String {
    let mut rows = Vec::new();
    for root in tree.nodes.iter().filter(|node| node.parent_refs.is_empty()) {
        branch(app, tree, root, "", "", detailed, &mut rows);
    }
    match detailed {
        true => table_text(
            &["KIND/NAME", "STATUS", "HEALTH", "AGE", "MESSAGE", "REASON"],
            rows,
        ),
        false => table_text(&["KIND/NAME", "STATUS", "HEALTH", "MESSAGE"], rows),
    }
}

fn branch(
    app: &Application,
    tree: &ApplicationTree,
    node: &ResourceNode,
    own: &str,
    below: &str,
    detailed: bool,
    rows: &mut Vec<Vec<String>>,
) {
    let found = &node.resource_ref;
    let managed = app.status.resources.iter().find(|resource| {
        (
            &resource.group,
            &resource.kind,
            &resource.namespace,
            &resource.name,
        ) == (&found.group, &found.kind, &found.namespace, &found.name)
    });
    let health = node.health.as_ref();
    let message = health.map(|health| health.message.clone()).unwrap_or_default();
    let mut row = vec![
        format!("{own}{}/{}", found.kind, found.name),
        managed
            .map(|resource| resource.status.clone())
            .unwrap_or_default(),
        health.map(|health| health.status.clone()).unwrap_or_default(),
    ];
    if detailed {
        let reason = node.info.iter().find(|item| item.name == "Status Reason");
        row.push(time(node.created_at));
        row.push(message);
        row.push(reason.map(|item| item.value.clone()).unwrap_or_default());
    } else {
        row.push(message);
    }
    rows.push(row);
    let children: Vec<_> = tree
        .nodes
        .iter()
        .filter(|child| {
            child
                .parent_refs
                .first()
                .is_some_and(|parent| parent.uid == found.uid)
        })
        .collect();
    for (at, child) in children.iter().enumerate() {
        let (own, more) = if at + 1 == children.len() {
            ("└─", "  ")
        } else {
            ("├─", "│ ")
        };
        branch(
            app,
            tree,
            child,
            &format!("{below}{own}"),
            &format!("{below}{more}"),
            detailed,
            rows,
        );
    }
}
