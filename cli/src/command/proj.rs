//! `argosy proj`: projects through the API server. Roles, windows and policies of signatures are files of their own.

mod change;
mod integrity;
mod role;
mod show;
mod window;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use argosy_api::services::project::{ProjectCreateRequest, ProjectQuery, ProjectUpdateRequest};
use argosy_api::v1alpha1::AppProject;

use crate::remote::{Connection, Remote, ask};
use crate::{input, output};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List projects.
    List {
        /// How to print them.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "name", "json", "yaml"])]
        output: String,
    },
    /// Show one project.
    Get {
        /// Name.
        project: String,
        /// How to print it.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "json", "yaml"])]
        output: String,
    },
    /// Create a project, from flags or from a manifest.
    Create {
        /// Name [default: the manifest's].
        project: Option<String>,
        /// A manifest; `-` is stdin.
        #[arg(long, short)]
        file: Option<PathBuf>,
        /// Change it if it exists.
        #[arg(long)]
        upsert: bool,
        #[command(flatten)]
        options: Box<change::Options>,
    },
    /// Change a project by flags.
    Set {
        /// Name.
        project: String,
        #[command(flatten)]
        options: Box<change::Options>,
    },
    /// Change the specification of a project in an editor.
    Edit {
        /// Name.
        project: String,
    },
    /// Delete projects.
    Delete {
        /// Names.
        #[arg(required = true)]
        projects: Vec<String>,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
    /// Roles of projects, and their tokens.
    Role(role::Args),
    /// Sync windows of projects.
    Windows(window::Args),
    /// What a project demands of its sources.
    SourceIntegrity(integrity::Args),
    #[command(flatten)]
    Change(change::Verb),
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let remote = args.connection.remote()?;
    match args.command {
        Command::List { output } => {
            let list = ask!(remote, projects.list(ProjectQuery::default()));
            show::list(&list.items, &output)?;
        }
        Command::Get { project, output } => {
            let detailed = ask!(
                remote,
                projects.get_detailed_project(ProjectQuery { name: project })
            );
            show::one(&detailed, &output)?;
        }
        Command::Create {
            project,
            file,
            upsert,
            options,
        } => {
            let mut made = match &file {
                Some(file) => input::one::<AppProject>(file, "AppProject")?,
                None => AppProject::default(),
            };
            if let Some(name) = project {
                made.metadata.name = name;
            }
            anyhow::ensure!(
                !made.metadata.name.is_empty(),
                "which name? Give it, or a --file with an AppProject"
            );
            options.apply(&mut made)?;
            let request = ProjectCreateRequest {
                project: Some(made),
                upsert,
            };
            ask!(remote, projects.create(request));
        }
        Command::Set { project, options } => {
            update(&remote, &project, |project| options.apply(project)).await?;
        }
        Command::Edit { project } => {
            let mut found = get(&remote, &project).await?;
            match input::edited(&found.spec)? {
                None => output::text("Edit cancelled, no changes made.\n")?,
                Some(spec) => {
                    found.spec = spec;
                    put(&remote, found).await?;
                }
            }
        }
        Command::Delete { projects, yes } => {
            for name in projects {
                if input::confirmed(&format!("Are you sure you want to delete '{name}'?"), yes)? {
                    ask!(remote, projects.delete(ProjectQuery { name }));
                } else {
                    output::text(&format!("The command to delete {name} was cancelled.\n"))?;
                }
            }
        }
        Command::Role(args) => role::run(&remote, args).await?,
        Command::Windows(args) => window::run(&remote, args).await?,
        Command::SourceIntegrity(args) => integrity::run(&remote, args).await?,
        Command::Change(verb) => verb.run(&remote).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn get(remote: &Remote, name: &str) -> Result<AppProject> {
    Ok(ask!(
        remote,
        projects.get(ProjectQuery {
            name: name.to_owned()
        })
    ))
}

async fn put(remote: &Remote, project: AppProject) -> Result<()> {
    ask!(
        remote,
        projects.update(ProjectUpdateRequest {
            project: Some(project)
        })
    );
    Ok(())
}

/// Reads a project, changes it, writes it. What somebody else wrote in between makes the write fail, and is not lost.
async fn update(
    remote: &Remote,
    name: &str,
    change: impl FnOnce(&mut AppProject) -> Result<()>,
) -> Result<()> {
    let mut project = get(remote, name).await?;
    change(&mut project)?;
    put(remote, project)
        .await
        .with_context(|| format!("write project {name}"))
}
