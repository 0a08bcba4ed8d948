//! `argosy app`: Applications through the API server, with Argo CD's verbs and tables.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use argosy_api::services::application::application_service_client::ApplicationServiceClient;
use argosy_api::services::application::{
    ApplicationCreateRequest, ApplicationDeleteRequest, ApplicationPodLogsQuery, ApplicationQuery,
    ApplicationRollbackRequest, ApplicationSyncRequest, OperationTerminateRequest,
};
use argosy_api::v1alpha1::{Application, ApplicationSource, Stored as _, SyncOperationResource};
use serde_json::Value;
use tonic::transport::Channel;

use crate::remote::{Connection, Remote, said, table};
use crate::{input, output};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

/// `-o` of lists and objects.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Wide,
    Name,
    Json,
    Yaml,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List Applications.
    List {
        /// Only of these projects.
        #[arg(long, short)]
        project: Vec<String>,
        /// Only with these labels.
        #[arg(long, short = 'l', default_value = "")]
        selector: String,
        /// How to print them.
        #[arg(long, short, default_value = "wide")]
        output: Format,
    },
    /// Show one Application.
    Get {
        /// Name, or namespace/name.
        name: String,
        /// Have it looked at first.
        #[arg(long)]
        refresh: bool,
        /// The same without the cache of manifests.
        #[arg(long)]
        hard_refresh: bool,
        /// How to print it.
        #[arg(long, short, default_value = "wide")]
        output: Format,
    },
    /// Create an Application from a manifest.
    Create {
        /// The file; `-` is stdin.
        #[arg(long, short)]
        file: std::path::PathBuf,
        /// Change it if it exists.
        #[arg(long)]
        upsert: bool,
        /// Create it even if its repository cannot be read.
        #[arg(long)]
        no_validate: bool,
    },
    /// Sync an Application and wait for the end.
    Sync {
        /// Name, or namespace/name.
        name: String,
        /// To this revision.
        #[arg(long, default_value = "")]
        revision: String,
        /// Delete what is no longer in Git.
        #[arg(long)]
        prune: bool,
        /// Change nothing.
        #[arg(long)]
        dry_run: bool,
        /// Only these: `GROUP:KIND:NAME` or `GROUP:KIND:NAMESPACE/NAME`.
        #[arg(long)]
        resource: Vec<String>,
        /// Do not wait.
        #[arg(long = "async")]
        no_wait: bool,
        /// Seconds to wait; 0 for ever.
        #[arg(long, default_value_t = 0)]
        timeout: u64,
    },
    /// Wait until an Application is synced, healthy and without an operation.
    Wait {
        /// Name, or namespace/name.
        name: String,
        /// Until it is synced.
        #[arg(long)]
        sync: bool,
        /// Until it is healthy.
        #[arg(long)]
        health: bool,
        /// Until no operation is at work.
        #[arg(long)]
        operation: bool,
        /// Seconds to wait; 0 for ever.
        #[arg(long, default_value_t = 0)]
        timeout: u64,
    },
    /// Show what was deployed when.
    History {
        /// Name, or namespace/name.
        name: String,
    },
    /// Deploy what was deployed before.
    Rollback {
        /// Name, or namespace/name.
        name: String,
        /// Id out of the history.
        id: i64,
        /// Delete what is no longer in Git.
        #[arg(long)]
        prune: bool,
        /// Seconds to wait; 0 for ever.
        #[arg(long, default_value_t = 0)]
        timeout: u64,
    },
    /// End the operation at work.
    TerminateOp {
        /// Name, or namespace/name.
        name: String,
    },
    /// Show the logs of pods.
    Logs {
        /// Name, or namespace/name.
        name: String,
        /// Go on as more is written.
        #[arg(long, short)]
        follow: bool,
        /// Only the last lines.
        #[arg(long, default_value_t = 0)]
        tail: i64,
        /// Only of this container.
        #[arg(long, short, default_value = "")]
        container: String,
    },
    /// Delete an Application, and what it deployed.
    Delete {
        /// Name, or namespace/name.
        name: String,
        /// Delete what it deployed as well.
        #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
        cascade: bool,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
}

type Client = ApplicationServiceClient<Channel>;

/// Messages of large Applications.
const MESSAGE_LEN_MAX: usize = 200 << 20;

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let remote = args.connection.remote()?;
    let mut client = Client::new(remote.channel.clone()).max_decoding_message_size(MESSAGE_LEN_MAX);
    let client = &mut client;
    match args.command {
        Command::List {
            project,
            selector,
            output,
        } => {
            let query = ApplicationQuery {
                projects: project,
                selector: Some(selector),
                ..ApplicationQuery::default()
            };
            let list = client
                .list(remote.request(query)?)
                .await
                .map_err(said)?
                .into_inner();
            print_list(&list.items, output)?;
        }
        Command::Get {
            name,
            refresh,
            hard_refresh,
            output,
        } => {
            let refresh = match (hard_refresh, refresh) {
                (true, _) => Some("hard".to_owned()),
                (_, true) => Some("normal".to_owned()),
                _ => None,
            };
            let query = ApplicationQuery {
                refresh,
                ..query(&name)
            };
            let app = client
                .get(remote.request(query)?)
                .await
                .map_err(said)?
                .into_inner();
            print_app(&app, output)?;
        }
        Command::Create {
            file,
            upsert,
            no_validate,
        } => {
            let app = input::application(&file)?;
            let request = ApplicationCreateRequest {
                application: app,
                upsert: Some(upsert),
                validate: Some(!no_validate),
            };
            let app = client
                .create(remote.request(request)?)
                .await
                .map_err(said)?
                .into_inner();
            output::text(&format!("application '{}' created\n", app.metadata.name))?;
        }
        Command::Sync {
            name,
            revision,
            prune,
            dry_run,
            resource,
            no_wait,
            timeout,
        } => {
            let (namespace, short) = split(&name);
            let resources = resource
                .iter()
                .map(|text| resource_of(text))
                .collect::<Result<_>>()?;
            let request = ApplicationSyncRequest {
                name: short.to_owned(),
                app_namespace: Some(namespace.to_owned()),
                revision: Some(revision),
                prune: Some(prune),
                dry_run: Some(dry_run),
                resources,
                ..ApplicationSyncRequest::default()
            };
            client.sync(remote.request(request)?).await.map_err(said)?;
            if !no_wait {
                let app = wait(client, &remote, &name, timeout, |app| !in_operation(app)).await?;
                return print_operation(&app);
            }
        }
        Command::Wait {
            name,
            sync,
            health,
            operation,
            timeout,
        } => {
            let all = !(sync || health || operation);
            let done = |app: &Application| {
                (!(all || operation) || !in_operation(app))
                    && (!(all || sync) || app.status.sync.status == "Synced")
                    && (!(all || health) || app.status.health.status == "Healthy")
                    && !app
                        .metadata
                        .annotations
                        .contains_key(argosy_api::annotation::REFRESH)
            };
            let app = wait(client, &remote, &name, timeout, done).await?;
            print_app(&app, Format::Wide)?;
        }
        Command::History { name } => {
            let app = client
                .get(remote.request(query(&name))?)
                .await
                .map_err(said)?
                .into_inner();
            let rows = app.status.history.iter().map(|entry| {
                let date = entry
                    .deployed_at
                    .map(|at| at.to_timestamp().to_string())
                    .unwrap_or_default();
                let revision = if entry.revisions.is_empty() {
                    entry.revision.clone()
                } else {
                    entry.revisions.join(",")
                };
                vec![entry.id.to_string(), date, revision]
            });
            output::text(&table(&["ID", "DATE", "REVISION"], &rows.collect::<Vec<_>>()))?;
        }
        Command::Rollback {
            name,
            id,
            prune,
            timeout,
        } => {
            let (namespace, short) = split(&name);
            let request = ApplicationRollbackRequest {
                name: short.to_owned(),
                app_namespace: Some(namespace.to_owned()),
                id,
                prune: Some(prune),
                ..ApplicationRollbackRequest::default()
            };
            client.rollback(remote.request(request)?).await.map_err(said)?;
            let app = wait(client, &remote, &name, timeout, |app| !in_operation(app)).await?;
            return print_operation(&app);
        }
        Command::TerminateOp { name } => {
            let (namespace, short) = split(&name);
            let request = OperationTerminateRequest {
                name: short.to_owned(),
                app_namespace: Some(namespace.to_owned()),
                project: None,
            };
            client
                .terminate_operation(remote.request(request)?)
                .await
                .map_err(said)?;
            output::text(&format!("Application '{short}' operation terminating\n"))?;
        }
        Command::Logs {
            name,
            follow,
            tail,
            container,
        } => {
            let (namespace, short) = split(&name);
            let request = ApplicationPodLogsQuery {
                name: short.to_owned(),
                app_namespace: Some(namespace.to_owned()),
                follow: Some(follow),
                tail_lines: Some(tail),
                container: Some(container),
                ..ApplicationPodLogsQuery::default()
            };
            let mut lines = client
                .pod_logs(remote.request(request)?)
                .await
                .map_err(said)?
                .into_inner();
            while let Some(line) = lines.message().await.map_err(said)? {
                if line.last {
                    break;
                }
                output::text(&format!("{}\n", line.content))?;
            }
        }
        Command::Delete { name, cascade, yes } => {
            if !yes {
                eprint!(
                    "Are you sure you want to delete '{name}'{}? [y/n] ",
                    if cascade { " and all its resources" } else { "" }
                );
                let mut answer = String::new();
                std::io::stdin()
                    .read_line(&mut answer)
                    .context("read the answer")?;
                if !answer.trim().eq_ignore_ascii_case("y") {
                    bail!("the application is not deleted");
                }
            }
            let (namespace, short) = split(&name);
            let request = ApplicationDeleteRequest {
                name: short.to_owned(),
                app_namespace: Some(namespace.to_owned()),
                cascade: Some(cascade),
                ..ApplicationDeleteRequest::default()
            };
            client.delete(remote.request(request)?).await.map_err(said)?;
            output::text(&format!("application '{name}' deleted\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `namespace/name` or `name`.
fn split(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("", name))
}

fn query(name: &str) -> ApplicationQuery {
    let (namespace, name) = split(name);
    ApplicationQuery {
        name: Some(name.to_owned()),
        app_namespace: Some(namespace.to_owned()),
        ..ApplicationQuery::default()
    }
}

fn resource_of(text: &str) -> Result<SyncOperationResource> {
    let parts: Vec<&str> = text.splitn(3, ':').collect();
    let [group, kind, name] = parts[..] else {
        bail!("--resource {text}: GROUP:KIND:NAME is expected");
    };
    let (namespace, name) = split(name);
    Ok(SyncOperationResource {
        group: group.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

fn in_operation(app: &Application) -> bool {
    app.operation.is_some()
        || app.status.operation_state.as_ref().is_some_and(|state| {
            !state
                .phase
                .parse()
                .is_ok_and(argosy_api::v1alpha1::OperationPhase::completed)
        })
}

/// Watches until the Application is as wanted.
async fn wait(
    client: &mut Client,
    remote: &Remote,
    name: &str,
    timeout: u64,
    done: impl Fn(&Application) -> bool,
) -> Result<Application> {
    let started = Instant::now();
    let deadline = (timeout > 0).then(|| Duration::from_secs(timeout));
    loop {
        let mut events = client
            .watch(remote.request(query(name))?)
            .await
            .map_err(said)?
            .into_inner();
        loop {
            let left = deadline.map(|deadline| deadline.saturating_sub(started.elapsed()));
            let next = match left {
                None => events.message().await,
                Some(left) => match tokio::time::timeout(left, events.message()).await {
                    Ok(next) => next,
                    Err(_) => bail!("application '{name}' was not as wanted after {timeout} s"),
                },
            };
            match next {
                Ok(Some(event)) if event.r#type == "DELETED" => bail!("application '{name}' was deleted"),
                Ok(Some(event)) if done(&event.application) => return Ok(event.application),
                Ok(Some(_)) => {}
                Ok(None) => break,
                // A watch that fell behind is begun anew.
                Err(status) if status.code() == tonic::Code::Aborted => break,
                Err(status) => return Err(said(status)),
            }
        }
    }
}

fn source(app: &Application) -> ApplicationSource {
    let first = app.spec.sources.first().or(app.spec.source.as_ref());
    first.cloned().unwrap_or_default()
}

fn policy(app: &Application) -> &'static str {
    let automated = app
        .spec
        .sync_policy
        .as_ref()
        .and_then(|policy| policy.automated.as_ref());
    match automated.filter(|automated| automated.enabled != Some(false)) {
        None => "Manual",
        Some(automated) if automated.prune == Some(true) => "Auto-Prune",
        Some(_) => "Auto",
    }
}

fn print_list(apps: &[Application], format: Format) -> Result<()> {
    let name = |app: &Application| format!("{}/{}", app.metadata.namespace, app.metadata.name);
    match format {
        Format::Json => output::json(&documents(apps)),
        Format::Yaml => output::text(&argosy_object::yaml::to_string(&documents(apps))),
        Format::Name => output::text(&apps.iter().map(|app| name(app) + "\n").collect::<String>()),
        Format::Wide => {
            let rows = apps.iter().map(|app| {
                let (spec, status, source) = (&app.spec, &app.status, source(app));
                let conditions: Vec<_> = status
                    .conditions
                    .iter()
                    .map(|condition| condition.r#type.as_str())
                    .collect();
                let destination = &spec.destination;
                let cluster = if destination.name.is_empty() {
                    &destination.server
                } else {
                    &destination.name
                };
                vec![
                    name(app),
                    cluster.clone(),
                    destination.namespace.clone(),
                    spec.project.clone(),
                    status.sync.status.clone(),
                    status.health.status.clone(),
                    policy(app).to_owned(),
                    if conditions.is_empty() {
                        "<none>".to_owned()
                    } else {
                        conditions.join(",")
                    },
                    source.repo_url,
                    if source.chart.is_empty() {
                        source.path
                    } else {
                        source.chart
                    },
                    source.target_revision,
                ]
            });
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
            output::text(&table(&headings, &rows.collect::<Vec<_>>()))
        }
    }
}

fn documents(apps: &[Application]) -> Value {
    Value::from(apps.iter().map(|app| app.to_document()).collect::<Vec<_>>())
}

fn print_app(app: &Application, format: Format) -> Result<()> {
    match format {
        Format::Json => return output::json(&app.to_document()),
        Format::Yaml => return output::text(&argosy_object::yaml::to_string(&app.to_document())),
        Format::Name => return output::text(&format!("{}/{}\n", app.metadata.namespace, app.metadata.name)),
        Format::Wide => {}
    }
    let (spec, status, source) = (&app.spec, &app.status, source(app));
    let line = |name: &str, value: &str| format!("{:<20}{value}\n", format!("{name}:"));
    let short = status.sync.revision.get(..7).unwrap_or(&status.sync.revision);
    let target = if source.target_revision.is_empty() {
        "HEAD"
    } else {
        &source.target_revision
    };
    let mut text = line(
        "Name",
        &format!("{}/{}", app.metadata.namespace, app.metadata.name),
    );
    text += &line("Project", &spec.project);
    text += &line(
        "Server",
        if spec.destination.name.is_empty() {
            &spec.destination.server
        } else {
            &spec.destination.name
        },
    );
    text += &line("Namespace", &spec.destination.namespace);
    text += &line("Repo", &source.repo_url);
    text += &line("Target", target);
    text += &line(
        "Path",
        if source.chart.is_empty() {
            &source.path
        } else {
            &source.chart
        },
    );
    text += &line("Sync Policy", policy(app));
    text += &line(
        "Sync Status",
        &match status.sync.status.as_str() {
            "Synced" => format!("Synced to {target} ({short})"),
            "OutOfSync" => format!("OutOfSync from {target} ({short})"),
            other => other.to_owned(),
        },
    );
    text += &line("Health Status", &status.health.status);
    for condition in &status.conditions {
        text += &format!("\n{}: {}\n", condition.r#type, condition.message);
    }
    text.push('\n');
    text += &resources(app);
    output::text(&text)
}

fn resources(app: &Application) -> String {
    let results = app
        .status
        .operation_state
        .as_ref()
        .and_then(|state| state.sync_result.as_ref());
    let results = results.map_or(&[][..], |result| &result.resources);
    let rows = app.status.resources.iter().map(|resource| {
        let result = results.iter().find(|result| {
            (&result.group, &result.kind, &result.namespace, &result.name)
                == (
                    &resource.group,
                    &resource.kind,
                    &resource.namespace,
                    &resource.name,
                )
        });
        vec![
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
            result.map(|result| result.message.clone()).unwrap_or_default(),
        ]
    });
    table(
        &[
            "GROUP",
            "KIND",
            "NAMESPACE",
            "NAME",
            "STATUS",
            "HEALTH",
            "MESSAGE",
        ],
        &rows.collect::<Vec<_>>(),
    )
}

/// The outcome of an operation; exit code 1 if it failed.
fn print_operation(app: &Application) -> Result<ExitCode> {
    print_app(app, Format::Wide)?;
    let Some(state) = &app.status.operation_state else {
        return Ok(ExitCode::SUCCESS);
    };
    let line = |name: &str, value: &str| format!("{:<20}{value}\n", format!("{name}:"));
    output::text(&format!(
        "\n{}{}",
        line("Phase", &state.phase),
        line("Message", &state.message)
    ))?;
    Ok(if state.phase == "Succeeded" {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
