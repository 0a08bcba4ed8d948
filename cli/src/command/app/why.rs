//! `app why`: the reasons that a status does not spell out. Which field of which resource differs and by which rule,
//! which resource makes the Application unhealthy, what an operation waits for, what keeps a sync from starting.

use std::fmt::Write as _;

use anyhow::Result;
use argosy_api::services::application::ApplicationSyncWindowsQuery;
use argosy_api::v1alpha1::{Application, ResourceDiff};

use super::manifests::{managed, state};
use super::resources::Wanted;
use super::{Named, qualified};
use crate::command::compared;
use crate::output::{self, field};
use crate::remote::{Remote, ask};

#[derive(clap::Args)]
pub(super) struct Why {
    #[command(flatten)]
    app: Named,
    /// Only of these: GROUP:KIND:NAME or GROUP:KIND:NAMESPACE/NAME.
    #[arg(long)]
    resource: Vec<String>,
}

pub(super) async fn why(remote: &Remote, args: Why) -> Result<()> {
    let wanted = Wanted::read(&args.resource)?;
    let app = args.app.get(remote).await?;
    let windows = ApplicationSyncWindowsQuery {
        name: app.metadata.name.clone(),
        app_namespace: Some(app.metadata.namespace.clone()),
        ..ApplicationSyncWindowsQuery::default()
    };
    let windows = ask!(remote, applications.get_application_sync_windows(windows));
    let mut text = field("Name", &qualified(&app));
    text += &field("Sync Status", &app.status.sync.status);
    text += &verdicts(&app, managed(remote, &args.app).await?, &wanted)?;
    text += &field("Health Status", &app.status.health.status);
    text += &health(&app, &wanted);
    text += &operation(&app);
    if !windows.can_sync {
        let active: Vec<_> = windows
            .active_windows
            .iter()
            .map(|window| format!("{} {} {}", window.kind, window.schedule, window.duration))
            .collect();
        writeln!(
            text,
            "  a sync is kept back by the project's windows: {}",
            output::or_none(active.join(", "))
        )
        .ok();
    }
    for condition in &app.status.conditions {
        writeln!(text, "{}: {}", condition.r#type, condition.message).ok();
    }
    output::text(&text)
}

/// Which resources are out of sync, and by which fields.
fn verdicts(app: &Application, managed: Vec<ResourceDiff>, wanted: &Wanted) -> Result<String> {
    let mut text = String::new();
    for item in managed
        .into_iter()
        .filter(|item| wanted.has(&item.group, &item.kind, &item.namespace, &item.name))
    {
        let (target, live) = (state(&item.target_state)?, state(&item.live_state)?);
        let title = format!("  {}/{} {}/{}", item.group, item.kind, item.namespace, item.name);
        match (&target, &live) {
            (Some(_), None) => writeln!(text, "{title}: in Git and not in the cluster").ok(),
            (None, Some(_)) => writeln!(
                text,
                "{title}: in the cluster and no longer in Git; a sync with --prune deletes it"
            )
            .ok(),
            (Some(_), Some(_)) if item.modified => {
                writeln!(text, "{title}:").ok();
                let compared = compared::of(
                    Some(app.clone()),
                    target.into_iter().collect(),
                    live.into_iter().collect(),
                )?;
                let differences: Vec<_> = compared
                    .pairs
                    .iter()
                    .flat_map(|pair| &pair.comparison.differences)
                    .collect();
                for difference in &differences {
                    let path = if difference.path.is_empty() {
                        "(the whole object)"
                    } else {
                        &difference.path
                    };
                    let by = match difference.owners.is_empty() {
                        true => String::new(),
                        false => format!(" (now as {} wrote it)", difference.owners.join(", ")),
                    };
                    writeln!(text, "    {path}: {}{by}", difference.why).ok();
                }
                if differences.is_empty() {
                    writeln!(text, "    in a value that is masked, or by a rule of the server's settings: argosy app diff shows both sides").ok();
                }
                None
            }
            _ => None,
        };
    }
    Ok(text)
}

/// Which resources make the Application less than healthy.
fn health(app: &Application, wanted: &Wanted) -> String {
    let mut text = String::new();
    for resource in &app.status.resources {
        let health = resource
            .health
            .as_ref()
            .filter(|health| !matches!(health.status.as_str(), "" | "Healthy"));
        let Some(health) = health.filter(|_| {
            wanted.has(
                &resource.group,
                &resource.kind,
                &resource.namespace,
                &resource.name,
            )
        }) else {
            continue;
        };
        let said = if health.message.is_empty() {
            String::new()
        } else {
            format!(": {}", health.message)
        };
        writeln!(
            text,
            "  {}/{} {}/{} is {}{said}",
            resource.group, resource.kind, resource.namespace, resource.name, health.status
        )
        .ok();
    }
    text
}

/// What the operation at work waits for, or how the last one ended.
fn operation(app: &Application) -> String {
    if app.operation.is_some() {
        return field("Operation", "asked for; the controller has not begun it");
    }
    let Some(state) = &app.status.operation_state else {
        return String::new();
    };
    let mut text = field("Operation", &format!("{}: {}", state.phase, state.message));
    let results = state
        .sync_result
        .as_ref()
        .map_or(&[][..], |result| &result.resources);
    for result in results {
        let open = match state.finished_at {
            None => !matches!(result.hook_phase.as_str(), "Succeeded" | ""),
            Some(_) => {
                matches!(result.hook_phase.as_str(), "Failed" | "Error") || result.status == "SyncFailed"
            }
        };
        if open {
            let hook = if result.hook_type.is_empty() {
                String::new()
            } else {
                format!(" ({} hook)", result.hook_type)
            };
            writeln!(
                text,
                "  {}/{} {}/{}{hook}: {}",
                result.group, result.kind, result.namespace, result.name, result.message
            )
            .ok();
        }
    }
    text
}
