//! `argosy proj list`, `repo list`, `cluster list`.

use std::process::ExitCode;

use anyhow::Result;
use argosy_api::services::cluster::ClusterQuery;
use argosy_api::services::cluster::cluster_service_client::ClusterServiceClient;
use argosy_api::services::project::ProjectQuery;
use argosy_api::services::project::project_service_client::ProjectServiceClient;
use argosy_api::services::repository::RepoQuery;
use argosy_api::services::repository::repository_service_client::RepositoryServiceClient;

use crate::output;
use crate::remote::{Connection, said, table};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List them.
    List,
}

pub(crate) async fn projects(args: Args) -> Result<ExitCode> {
    let Command::List = args.command;
    let remote = args.connection.remote()?;
    let request = remote.request(ProjectQuery::default())?;
    let list = ProjectServiceClient::new(remote.channel.clone())
        .list(request)
        .await
        .map_err(said)?
        .into_inner();
    let rows = list.items.iter().map(|project| {
        let spec = &project.spec;
        let destinations = spec.destinations.iter().map(|destination| {
            let cluster = if destination.server.is_empty() {
                &destination.name
            } else {
                &destination.server
            };
            format!("{cluster},{}", destination.namespace)
        });
        vec![
            project.metadata.name.clone(),
            spec.description.clone(),
            some(destinations.collect::<Vec<_>>().join(";")),
            some(spec.source_repos.join(",")),
        ]
    });
    output::text(&table(
        &["NAME", "DESCRIPTION", "DESTINATIONS", "SOURCES"],
        &rows.collect::<Vec<_>>(),
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn some(text: String) -> String {
    if text.is_empty() {
        "<none>".to_owned()
    } else {
        text
    }
}

pub(crate) async fn repositories(args: Args) -> Result<ExitCode> {
    let Command::List = args.command;
    let remote = args.connection.remote()?;
    let request = remote.request(RepoQuery::default())?;
    let client = RepositoryServiceClient::new(remote.channel.clone());
    let list = client
        .max_decoding_message_size(64 << 20)
        .list_repositories(request)
        .await
        .map_err(said)?
        .into_inner();
    let rows = list.items.iter().map(|repository| {
        let credentials = if repository.inherited_creds {
            "inherited"
        } else {
            "false"
        };
        let credentials = if repository.username.is_empty() {
            credentials
        } else {
            "true"
        };
        vec![
            repository.r#type.clone(),
            repository.name.clone(),
            repository.repo.clone(),
            repository.insecure.to_string(),
            repository.enable_oci.to_string(),
            repository.enable_lfs.to_string(),
            credentials.to_owned(),
            repository.connection_state.status.clone(),
            repository.connection_state.message.clone(),
            repository.project.clone(),
        ]
    });
    let headings = [
        "TYPE", "NAME", "REPO", "INSECURE", "OCI", "LFS", "CREDS", "STATUS", "MESSAGE", "PROJECT",
    ];
    output::text(&table(&headings, &rows.collect::<Vec<_>>()))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn clusters(args: Args) -> Result<ExitCode> {
    let Command::List = args.command;
    let remote = args.connection.remote()?;
    let request = remote.request(ClusterQuery::default())?;
    let list = ClusterServiceClient::new(remote.channel.clone())
        .list(request)
        .await
        .map_err(said)?
        .into_inner();
    let rows = list.items.iter().map(|cluster| {
        vec![
            cluster.server.clone(),
            cluster.name.clone(),
            cluster.server_version.clone(),
            cluster.connection_state.status.clone(),
            cluster.connection_state.message.clone(),
            cluster.project.clone(),
        ]
    });
    let headings = ["SERVER", "NAME", "VERSION", "STATUS", "MESSAGE", "PROJECT"];
    output::text(&table(&headings, &rows.collect::<Vec<_>>()))?;
    Ok(ExitCode::SUCCESS)
}
