//! `argosy appset`: ApplicationSets through the API server.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use argosy_api::services::applicationset::{
    ApplicationSetCreateRequest, ApplicationSetDeleteRequest, ApplicationSetGenerateRequest,
    ApplicationSetGetQuery, ApplicationSetListQuery,
};
use argosy_api::v1alpha1::{ApplicationSet, Stored as _};

use crate::input;
use crate::output::{self, field, or_none, table_text, time};
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
    /// List ApplicationSets.
    List {
        /// Only with these labels.
        #[arg(long, short = 'l', default_value = "")]
        selector: String,
        /// Only of these projects.
        #[arg(long, short)]
        project: Vec<String>,
        /// Only in this namespace.
        #[arg(long, short = 'N', default_value = "")]
        appset_namespace: String,
        /// How to print them.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "name", "json", "yaml"])]
        output: String,
    },
    /// Show one ApplicationSet.
    Get {
        /// Name, or namespace/name.
        name: String,
        /// Namespace of the ApplicationSet.
        #[arg(long, short = 'N', default_value = "")]
        appset_namespace: String,
        /// How to print it.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "json", "yaml"])]
        output: String,
    },
    /// Create ApplicationSets from manifests.
    Create {
        /// The files; `-` is stdin.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Change those that exist.
        #[arg(long)]
        upsert: bool,
        /// Change nothing.
        #[arg(long)]
        dry_run: bool,
        /// Namespace of those that name none.
        #[arg(long, short = 'N', default_value = "")]
        appset_namespace: String,
        /// How to print them.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "json", "yaml"])]
        output: String,
    },
    /// Show the Applications that ApplicationSets would make.
    Generate {
        /// The file; `-` is stdin.
        file: PathBuf,
        /// Namespace if it names none.
        #[arg(long, short = 'N', default_value = "")]
        appset_namespace: String,
        /// How to print them.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "json", "yaml"])]
        output: String,
    },
    /// Delete ApplicationSets, and the Applications that they made.
    Delete {
        /// Names, or namespace/name.
        #[arg(required = true)]
        names: Vec<String>,
        /// Namespace of the ApplicationSets.
        #[arg(long, short = 'N', default_value = "")]
        appset_namespace: String,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let remote = args.connection.remote()?;
    match args.command {
        Command::List {
            selector,
            project,
            appset_namespace,
            output,
        } => {
            let query = ApplicationSetListQuery {
                projects: project,
                selector,
                appset_namespace,
            };
            let sets = ask!(remote, application_sets.list(query)).items;
            print_list(&sets, &output)?;
        }
        Command::Get {
            name,
            appset_namespace,
            output,
        } => {
            let (appset_namespace, name) = place(&name, &appset_namespace);
            let query = ApplicationSetGetQuery {
                name,
                appset_namespace,
            };
            let set = ask!(remote, application_sets.get(query));
            print(&set, &output)?;
        }
        Command::Create {
            files,
            upsert,
            dry_run,
            appset_namespace,
            output,
        } => {
            for mut set in read(&files)? {
                if set.metadata.namespace.is_empty() {
                    set.metadata.namespace.clone_from(&appset_namespace);
                }
                let request = ApplicationSetCreateRequest {
                    applicationset: Some(set),
                    upsert,
                    dry_run,
                };
                let made = ask!(remote, application_sets.create(request));
                output::text(&format!(
                    "ApplicationSet '{}' {}\n",
                    made.metadata.name,
                    if dry_run { "would be created" } else { "created" }
                ))?;
                print(&made, &output)?;
            }
        }
        Command::Generate {
            file,
            appset_namespace,
            output,
        } => {
            let [mut set] =
                <[ApplicationSet; 1]>::try_from(read(std::slice::from_ref(&file))?).map_err(|found| {
                    anyhow::anyhow!(
                        "{}: one ApplicationSet is expected, found {}",
                        file.display(),
                        found.len()
                    )
                })?;
            if set.metadata.namespace.is_empty() {
                set.metadata.namespace = appset_namespace;
            }
            generate(&remote, set, &output).await?;
        }
        Command::Delete {
            names,
            appset_namespace,
            yes,
        } => {
            for shown in names {
                if !input::confirmed(
                    &format!("Are you sure you want to delete '{shown}' and all its Applications?"),
                    yes,
                )? {
                    output::text(&format!("The command to delete '{shown}' was cancelled.\n"))?;
                    continue;
                }
                let (appset_namespace, name) = place(&shown, &appset_namespace);
                ask!(
                    remote,
                    application_sets.delete(ApplicationSetDeleteRequest {
                        name,
                        appset_namespace
                    })
                );
                output::text(&format!("applicationset '{shown}' deleted\n"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Namespace and name.
fn place(name: &str, namespace: &str) -> (String, String) {
    let (namespace, name) = name.split_once('/').unwrap_or((namespace, name));
    (namespace.to_owned(), name.to_owned())
}

fn read(files: &[PathBuf]) -> Result<Vec<ApplicationSet>> {
    let mut sets = Vec::new();
    for file in files {
        let found: Vec<ApplicationSet> = input::all(file, "ApplicationSet")?;
        ensure!(
            !found.is_empty(),
            "{}: there is no ApplicationSet in it",
            file.display()
        );
        sets.extend(found);
    }
    Ok(sets)
}

async fn generate(remote: &Remote, set: ApplicationSet, format: &str) -> Result<()> {
    let request = ApplicationSetGenerateRequest {
        application_set: Some(set),
    };
    let apps = ask!(remote, application_sets.generate(request)).applications;
    let documents: Vec<_> = apps.iter().map(|app| app.to_document()).collect();
    if output::structured(format, &documents)? {
        return Ok(());
    }
    let rows = apps.iter().map(|app| {
        vec![
            app.metadata.name.clone(),
            app.spec.project.clone(),
            app.spec.destination.namespace.clone(),
        ]
    });
    output::table(&["NAME", "PROJECT", "NAMESPACE"], rows)
}

fn qualified(set: &ApplicationSet) -> String {
    format!("{}/{}", set.metadata.namespace, set.metadata.name)
}

/// The policy of what happens to Applications that are made.
fn policy(set: &ApplicationSet) -> String {
    let policy = set
        .spec
        .sync_policy
        .as_ref()
        .and_then(|policy| policy.applications_sync.clone());
    policy.unwrap_or_default()
}

fn print_list(sets: &[ApplicationSet], format: &str) -> Result<()> {
    let documents: Vec<_> = sets.iter().map(|set| set.to_document()).collect();
    if output::structured(format, &documents)? {
        return Ok(());
    }
    if format == "name" {
        return output::lines(sets.iter().map(qualified));
    }
    let rows = sets.iter().map(|set| {
        let conditions = set
            .status
            .conditions
            .iter()
            .filter(|condition| condition.status == "True");
        let conditions: Vec<_> = conditions.map(|condition| condition.r#type.as_str()).collect();
        let source = set
            .spec
            .template
            .spec
            .effective_sources()
            .into_iter()
            .next()
            .unwrap_or_default();
        vec![
            qualified(set),
            set.spec.template.spec.project.clone(),
            or_none(policy(set)),
            set.status.health.status.clone(),
            or_none(conditions.join(",")),
            source.repo_url,
            source.path,
            source.target_revision,
        ]
    });
    output::table(
        &[
            "NAME",
            "PROJECT",
            "SYNCPOLICY",
            "HEALTH",
            "CONDITIONS",
            "REPO",
            "PATH",
            "TARGET",
        ],
        rows,
    )
}

fn print(set: &ApplicationSet, format: &str) -> Result<()> {
    if output::structured(format, &set.to_document())? {
        return Ok(());
    }
    let template = &set.spec.template.spec;
    let server = match template.destination.server.as_str() {
        "" => &template.destination.name,
        server => server,
    };
    let mut text = field("Name", &qualified(set));
    text += &field("Project", &template.project);
    text += &field("Server", server);
    text += &field("Namespace", &template.destination.namespace);
    text += &field("Health Status", &set.status.health.status);
    text += if template.sources.len() > 1 {
        "Sources:\n"
    } else {
        "Source:\n"
    };
    for source in template.effective_sources() {
        text += &field("- Repo", &source.repo_url);
        text += &field("  Target", &source.target_revision);
        text += &field("  Path", &source.path);
    }
    text += &field("SyncPolicy", &or_none(policy(set)));
    let rows = set.status.conditions.iter().map(|condition| {
        vec![
            condition.r#type.clone(),
            condition.status.clone(),
            condition.message.clone(),
            time(condition.last_transition_time),
        ]
    });
    text += &format!(
        "\n{}",
        table_text(&["CONDITION", "STATUS", "MESSAGE", "LAST TRANSITION"], rows)
    );
    output::text(&text)
}
