//! `argosy app`: Applications through the API server, with Argo CD's verbs, flags and tables. Each group of verbs is a
//! file.

mod actions;
mod diff;
mod edit;
mod history;
mod list;
mod logs;
mod manifests;
mod options;
mod resources;
mod show;
mod sources;
mod sync;
mod upload;
mod wait;
mod why;

use std::process::ExitCode;

use anyhow::Result;
use argosy_api::services::application::ApplicationQuery;
use argosy_api::v1alpha1::{Application, ApplicationSource};

use crate::remote::{Connection, Remote, ask};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List Applications.
    List(list::List),
    /// Show one Application.
    Get(show::Get),
    /// Create an Application, from flags or from a manifest.
    Create(Box<edit::Create>),
    /// Change what an Application is made from, and how.
    Set(Box<edit::Set>),
    /// Take back what was set.
    Unset(Box<edit::Unset>),
    /// Add a source to an Application of several.
    AddSource(Box<sources::AddSource>),
    /// Take a source away from an Application of several.
    RemoveSource(sources::RemoveSource),
    /// Let happen what waits for a person: deletions and prunes that want to be confirmed.
    ConfirmDeletion(edit::ConfirmDeletion),
    /// Change the specification of an Application in an editor.
    Edit(edit::Edit),
    /// Change an Application by a patch.
    Patch(edit::Patch),
    /// Delete Applications, and what they deployed.
    Delete(edit::Delete),
    /// Show what differs between Git and the cluster.
    Diff(diff::Diff),
    /// Sync Applications and wait for the end.
    Sync(Box<sync::Sync>),
    /// Wait until Applications are as wanted.
    Wait(wait::Wait),
    /// Show what was deployed when.
    History(history::History),
    /// Deploy what was deployed before.
    Rollback(history::Rollback),
    /// End the operation at work.
    TerminateOp(sync::TerminateOp),
    /// List what an Application owns.
    Resources(resources::Resources),
    /// Show live objects of an Application.
    GetResource(resources::GetResource),
    /// Change a live object of an Application.
    PatchResource(resources::PatchResource),
    /// Delete a live object of an Application.
    DeleteResource(resources::DeleteResource),
    /// What can be done to live objects.
    Actions(actions::Actions),
    /// Show the logs of pods.
    Logs(logs::Logs),
    /// Show manifests, as they are in Git or in the cluster.
    Manifests(manifests::Manifests),
    /// Tell why an Application is as it is, and what it waits for.
    Why(why::Why),
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let remote = args.connection.remote()?;
    let remote = &remote;
    match args.command {
        Command::List(args) => list::list(remote, args).await?,
        Command::Get(args) => show::get(remote, args).await?,
        Command::Create(args) => edit::create(remote, *args).await?,
        Command::Set(args) => edit::set(remote, *args).await?,
        Command::Unset(args) => edit::unset(remote, *args).await?,
        Command::AddSource(args) => sources::add(remote, *args).await?,
        Command::RemoveSource(args) => sources::remove(remote, args).await?,
        Command::ConfirmDeletion(args) => edit::confirm_deletion(remote, args).await?,
        Command::Edit(args) => edit::edit(remote, args).await?,
        Command::Patch(args) => edit::patch(remote, args).await?,
        Command::Delete(args) => edit::delete(remote, args).await?,
        Command::Diff(args) => return diff::diff(remote, args).await,
        Command::Sync(args) => return sync::sync(remote, *args).await,
        Command::Wait(args) => return wait::wait(remote, args).await,
        Command::History(args) => history::history(remote, args).await?,
        Command::Rollback(args) => return history::rollback(remote, args).await,
        Command::TerminateOp(args) => sync::terminate(remote, args).await?,
        Command::Resources(args) => resources::resources(remote, args).await?,
        Command::GetResource(args) => resources::get(remote, args).await?,
        Command::PatchResource(args) => resources::patch(remote, args).await?,
        Command::DeleteResource(args) => resources::delete(remote, args).await?,
        Command::Actions(args) => actions::run(remote, args).await?,
        Command::Logs(args) => logs::logs(remote, args).await?,
        Command::Manifests(args) => manifests::manifests(remote, args).await?,
        Command::Why(args) => why::why(remote, args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// One Application.
#[derive(clap::Args, Clone)]
struct Named {
    /// Name, or namespace/name.
    name: String,
    /// Namespace of the Application.
    #[arg(long, short = 'N', default_value = "")]
    app_namespace: String,
}

impl Named {
    /// Namespace (empty for the control plane's) and name.
    fn place(&self) -> (&str, &str) {
        place(&self.name, &self.app_namespace)
    }

    fn query(&self) -> ApplicationQuery {
        let (namespace, name) = self.place();
        ApplicationQuery {
            name: Some(name.to_owned()),
            app_namespace: Some(namespace.to_owned()),
            ..ApplicationQuery::default()
        }
    }

    async fn get(&self, remote: &Remote) -> Result<Application> {
        Ok(ask!(remote, applications.get(self.query())))
    }
}

/// Applications, by name or by label.
#[derive(clap::Args)]
struct Several {
    /// Names, or namespace/name.
    names: Vec<String>,
    /// Those with these labels.
    #[arg(long, short = 'l', conflicts_with = "names")]
    selector: Option<String>,
    /// Namespace of the Applications.
    #[arg(long, short = 'N', default_value = "")]
    app_namespace: String,
}

impl Several {
    async fn resolve(&self, remote: &Remote, projects: Vec<String>) -> Result<Vec<Named>> {
        if self.selector.is_none() && projects.is_empty() {
            anyhow::ensure!(
                !self.names.is_empty(),
                "which Application? Give a name, or a --selector"
            );
            let named = |name: &String| Named {
                name: name.clone(),
                app_namespace: self.app_namespace.clone(),
            };
            return Ok(self.names.iter().map(named).collect());
        }
        let query = ApplicationQuery {
            selector: self.selector.clone(),
            projects,
            app_namespace: Some(self.app_namespace.clone()),
            ..ApplicationQuery::default()
        };
        let list = ask!(remote, applications.list(query));
        let found = list
            .items
            .into_iter()
            .filter(|app| self.names.is_empty() || self.names.contains(&app.metadata.name));
        Ok(found
            .map(|app| Named {
                name: app.metadata.name,
                app_namespace: app.metadata.namespace,
            })
            .collect())
    }
}

fn place<'a>(name: &'a str, namespace: &'a str) -> (&'a str, &'a str) {
    name.split_once('/').unwrap_or((namespace, name))
}

/// `namespace/name`, as everything prints it.
fn qualified(app: &Application) -> String {
    format!("{}/{}", app.metadata.namespace, app.metadata.name)
}

/// The source that stands for all in short forms.
fn first_source(app: &Application) -> ApplicationSource {
    app.spec
        .effective_sources()
        .into_iter()
        .next()
        .unwrap_or_default()
}

/// The cluster, by server or else by name.
fn cluster(app: &Application) -> &str {
    match app.spec.destination.server.as_str() {
        "" => &app.spec.destination.name,
        server => server,
    }
}
