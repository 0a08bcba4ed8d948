//! `proj windows`

use anyhow::{Context as _, Result, ensure};
use argosy_api::sync_window;
use argosy_api::v1alpha1::{AppProject, SyncWindow};

use super::{get, update};
use crate::output;
use crate::remote::Remote;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

/// A window of a project.
#[derive(clap::Args)]
struct Window {
    /// Name of the project.
    project: String,
    /// Number of the window, as `list` shows it.
    id: usize,
}

/// What a window is like.
#[derive(clap::Args)]
struct Options {
    /// When it begins, as for cron: `0 22 * * *`.
    #[arg(long)]
    schedule: Option<String>,
    /// How long it lasts, such as 1h.
    #[arg(long)]
    duration: Option<String>,
    /// Applications that it is for; globs.
    #[arg(long, value_delimiter = ',')]
    applications: Vec<String>,
    /// Namespaces that it is for; globs.
    #[arg(long, value_delimiter = ',')]
    namespaces: Vec<String>,
    /// Clusters that it is for; globs.
    #[arg(long, value_delimiter = ',')]
    clusters: Vec<String>,
    /// Time zone of the schedule.
    #[arg(long)]
    time_zone: Option<String>,
    /// What it is for.
    #[arg(long)]
    description: Option<String>,
}

impl Options {
    fn apply(&self, window: &mut SyncWindow) -> Result<()> {
        for (given, place) in [
            (&self.schedule, &mut window.schedule),
            (&self.duration, &mut window.duration),
            (&self.time_zone, &mut window.time_zone),
            (&self.description, &mut window.description),
        ] {
            if let Some(text) = given {
                place.clone_from(text);
            }
        }
        for (given, place) in [
            (&self.applications, &mut window.applications),
            (&self.namespaces, &mut window.namespaces),
            (&self.clusters, &mut window.clusters),
        ] {
            if !given.is_empty() {
                place.clone_from(given);
            }
        }
        sync_window::validate(window).map_err(anyhow::Error::msg)
    }
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the windows of a project.
    List {
        /// Name of the project.
        project: String,
        /// How to print them.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "json", "yaml"])]
        output: String,
    },
    /// Add a window.
    Add {
        /// Name of the project.
        project: String,
        /// Whether syncs are allowed in it, or denied.
        #[arg(long, short, value_parser = ["allow", "deny"])]
        kind: String,
        /// People may sync at any time.
        #[arg(long)]
        manual_sync: bool,
        /// A sync that has begun goes on.
        #[arg(long)]
        sync_overrun: bool,
        /// Applications, namespaces and clusters must all fit.
        #[arg(long)]
        use_and_operator: bool,
        #[command(flatten)]
        options: Options,
    },
    /// Change a window.
    Update {
        #[command(flatten)]
        window: Window,
        #[command(flatten)]
        options: Options,
    },
    /// Delete a window.
    Delete(Window),
    /// Let people sync at any time.
    EnableManualSync(Window),
    /// Let nobody sync against the window.
    DisableManualSync(Window),
    /// Let a sync that has begun go on.
    EnableSyncOverrun(Window),
    /// Stop syncs where the window says so.
    DisableSyncOverrun(Window),
}

pub(super) async fn run(remote: &Remote, args: Args) -> Result<()> {
    match args.command {
        Command::List { project, output } => list(&get(remote, &project).await?, &output),
        Command::Add {
            project,
            kind,
            manual_sync,
            sync_overrun,
            use_and_operator,
            options,
        } => {
            let mut window = SyncWindow {
                kind,
                manual_sync,
                sync_overrun,
                and_operator: use_and_operator,
                time_zone: "UTC".to_owned(),
                ..SyncWindow::default()
            };
            let chosen = [&options.applications, &options.namespaces, &options.clusters];
            ensure!(
                chosen.iter().any(|list| !list.is_empty()),
                "which Applications? Give --applications, --namespaces or --clusters; '*' is all"
            );
            options.apply(&mut window)?;
            update(remote, &project, |project| {
                project.spec.sync_windows.push(window);
                Ok(())
            })
            .await
        }
        Command::Update { window, options } => change(remote, &window, |window| options.apply(window)).await,
        Command::Delete(window) => {
            update(remote, &window.project, |project| {
                ensure!(
                    window.id < project.spec.sync_windows.len(),
                    "window with id '{}' not found",
                    window.id
                );
                project.spec.sync_windows.remove(window.id);
                Ok(())
            })
            .await
        }
        Command::EnableManualSync(window) => set(remote, &window, |window| window.manual_sync = true).await,
        Command::DisableManualSync(window) => set(remote, &window, |window| window.manual_sync = false).await,
        Command::EnableSyncOverrun(window) => set(remote, &window, |window| window.sync_overrun = true).await,
        Command::DisableSyncOverrun(window) => {
            set(remote, &window, |window| window.sync_overrun = false).await
        }
    }
}

async fn set(remote: &Remote, of: &Window, set: impl FnOnce(&mut SyncWindow)) -> Result<()> {
    change(remote, of, |window| {
        set(window);
        Ok(())
    })
    .await
}

async fn change(
    remote: &Remote,
    of: &Window,
    change: impl FnOnce(&mut SyncWindow) -> Result<()>,
) -> Result<()> {
    update(remote, &of.project, |project| {
        let found = project.spec.sync_windows.get_mut(of.id);
        change(found.with_context(|| format!("window with id '{}' not found", of.id))?)
    })
    .await
}

fn list(project: &AppProject, format: &str) -> Result<()> {
    let windows = &project.spec.sync_windows;
    if output::structured(format, windows)? {
        return Ok(());
    }
    let or_dash = |texts: &[String]| {
        if texts.is_empty() {
            "-".to_owned()
        } else {
            texts.join(",")
        }
    };
    let enabled = |on: bool| if on { "Enabled" } else { "Disabled" }.to_owned();
    let now = jiff::Timestamp::now();
    let rows = windows.iter().enumerate().map(|(at, window)| {
        vec![
            at.to_string(),
            if sync_window::is_open(window, now) {
                "Active"
            } else {
                "Inactive"
            }
            .to_owned(),
            window.kind.clone(),
            window.schedule.clone(),
            window.duration.clone(),
            or_dash(&window.applications),
            or_dash(&window.namespaces),
            or_dash(&window.clusters),
            enabled(window.manual_sync),
            enabled(window.sync_overrun),
            window.time_zone.clone(),
            enabled(window.and_operator),
        ]
    });
    let headings = [
        "ID",
        "STATUS",
        "KIND",
        "SCHEDULE",
        "DURATION",
        "APPLICATIONS",
        "NAMESPACES",
        "CLUSTERS",
        "MANUALSYNC",
        "SYNCOVERRUN",
        "TIMEZONE",
        "USEANDOPERATOR",
    ];
    output::table(&headings, rows)
}
