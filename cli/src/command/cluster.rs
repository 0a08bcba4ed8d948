//! `argosy cluster`: clusters through the API server.

mod add;

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use argosy_api::services::cluster::{ClusterId, ClusterQuery, ClusterUpdateRequest};
use argosy_api::v1alpha1::Cluster;

use crate::input;
use crate::output;
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
    /// List clusters.
    List {
        /// How to print them.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "server", "json", "yaml"])]
        output: String,
    },
    /// Show one cluster.
    Get {
        /// URL of its API server, or its name.
        cluster: String,
        /// How to print it.
        #[arg(long, short, default_value = "yaml", value_parser = ["yaml", "json", "wide", "server"])]
        output: String,
    },
    /// Add a cluster out of a kubeconfig.
    Add(Box<add::Add>),
    /// Change a cluster.
    Set {
        /// Its name.
        cluster: String,
        /// Another name.
        #[arg(long)]
        name: Option<String>,
        /// Namespaces that are looked at; `*` is all.
        #[arg(long)]
        namespace: Vec<String>,
        /// NAME=VALUE: a label.
        #[arg(long)]
        label: Vec<String>,
        /// NAME=VALUE: an annotation.
        #[arg(long)]
        annotation: Vec<String>,
    },
    /// Remove clusters.
    Rm {
        /// URLs of API servers, or names.
        #[arg(required = true)]
        clusters: Vec<String>,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
    /// Give a cluster's service account another token.
    RotateAuth {
        /// URL of its API server, or its name.
        cluster: String,
    },
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let remote = args.connection.remote()?;
    match args.command {
        Command::List { output } => {
            let list = ask!(remote, clusters.list(ClusterQuery::default()));
            print(&list.items, &output)?;
        }
        Command::Get { cluster, output } => {
            let found = ask!(remote, clusters.get(named(&cluster)));
            if output::structured(&output, &found)? {
                return Ok(ExitCode::SUCCESS);
            }
            match output.as_str() {
                "server" => output::lines([found.server])?,
                _ => show(&found)?,
            }
        }
        Command::Add(args) => add::add(&remote, *args).await?,
        Command::Set {
            cluster,
            name,
            namespace,
            label,
            annotation,
        } => {
            set(&remote, &cluster, name, namespace, &label, &annotation).await?;
        }
        Command::Rm { clusters, yes } => {
            for cluster in clusters {
                if !input::confirmed(
                    &format!(
                        "Are you sure you want to remove '{cluster}'? Any Apps deploying to this cluster will go to health status Unknown."
                    ),
                    yes,
                )? {
                    output::text(&format!("The command to remove '{cluster}' was cancelled.\n"))?;
                    continue;
                }
                ask!(remote, clusters.delete(named(&cluster)));
                output::text(&format!("Cluster '{cluster}' removed\n"))?;
            }
        }
        Command::RotateAuth { cluster } => {
            ask!(remote, clusters.rotate_auth(named(&cluster)));
            output::text(&format!("Cluster '{cluster}' rotated auth\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A cluster by the URL of its API server, or by name.
fn named(cluster: &str) -> ClusterQuery {
    let url = cluster.starts_with("https://") || cluster.starts_with("http://");
    match url {
        true => ClusterQuery {
            server: cluster.to_owned(),
            ..ClusterQuery::default()
        },
        false => ClusterQuery {
            name: cluster.to_owned(),
            ..ClusterQuery::default()
        },
    }
}

async fn set(
    remote: &Remote,
    cluster: &str,
    name: Option<String>,
    namespaces: Vec<String>,
    labels: &[String],
    annotations: &[String],
) -> Result<()> {
    let pairs = |flag: &str, texts: &[String]| {
        let pair = |text: &String| {
            let (name, value) = text
                .split_once('=')
                .with_context(|| format!("{flag} {text}: NAME=VALUE is expected"))?;
            Ok((name.to_owned(), value.to_owned()))
        };
        texts.iter().map(pair).collect::<Result<Vec<_>>>()
    };
    let mut changed = Cluster {
        name: name.clone().unwrap_or_else(|| cluster.to_owned()),
        ..Cluster::default()
    };
    let mut fields = Vec::new();
    if name.is_some() {
        fields.push("name");
    }
    if !namespaces.is_empty() {
        changed.namespaces = namespaces
            .into_iter()
            .filter(|namespace| namespace != "*")
            .collect();
        fields.push("namespaces");
    }
    if !labels.is_empty() {
        changed.labels = pairs("--label", labels)?.into_iter().collect();
        fields.push("labels");
    }
    if !annotations.is_empty() {
        changed.annotations = pairs("--annotation", annotations)?.into_iter().collect();
        fields.push("annotations");
    }
    ensure!(
        !fields.is_empty(),
        "nothing to set: give --name, --namespace, --label or --annotation"
    );
    let request = ClusterUpdateRequest {
        cluster: Some(changed),
        updated_fields: fields.into_iter().map(str::to_owned).collect(),
        id: Some(ClusterId {
            r#type: "name".into(),
            value: cluster.to_owned(),
        }),
    };
    ask!(remote, clusters.update(request));
    output::text(&format!("Cluster '{cluster}' updated.\n"))
}

fn print(clusters: &[Cluster], format: &str) -> Result<()> {
    if output::structured(format, &clusters)? {
        return Ok(());
    }
    if format == "server" {
        return output::lines(clusters.iter().map(|cluster| &cluster.server));
    }
    let rows = clusters.iter().map(|cluster| {
        let server = match cluster.namespaces.len() {
            0 => cluster.server.clone(),
            count => format!("{} ({count} namespaces)", cluster.server),
        };
        let info = &cluster.info;
        vec![
            server,
            cluster.name.clone(),
            info.server_version.clone(),
            info.connection_state.status.clone(),
            info.connection_state.message.clone(),
            cluster.project.clone(),
        ]
    });
    output::table(
        &["SERVER", "NAME", "VERSION", "STATUS", "MESSAGE", "PROJECT"],
        rows,
    )
}

fn show(cluster: &Cluster) -> Result<()> {
    let or_dash = |text: &str| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text.to_owned()
        }
    };
    let namespaces = if cluster.namespaces.is_empty() {
        "*".to_owned()
    } else {
        cluster.namespaces.join(", ")
    };
    let config = &cluster.config;
    let lines = [
        "Cluster information".to_owned(),
        String::new(),
        format!("  Server URL:            {}", cluster.server),
        format!("  Server Name:           {}", or_dash(&cluster.name)),
        format!("  Server Version:        {}", cluster.info.server_version),
        format!("  Namespaces:            {namespaces}"),
        "\nTLS configuration\n".to_owned(),
        format!(
            "  Client cert:           {}",
            !config.tls_client_config.cert_data.is_empty()
        ),
        format!("  Cert validation:       {}", !config.tls_client_config.insecure),
        "\nAuthentication\n".to_owned(),
        format!("  Basic authentication:  {}", !config.username.is_empty()),
        format!("  oAuth authentication:  {}", !config.bearer_token.is_empty()),
        format!("  AWS authentication:    {}", config.aws_auth_config.is_some()),
        format!("\nDisable compression: {}", config.disable_compression),
        format!("\nUse proxy: {}\n", !config.proxy_url.is_empty()),
    ];
    output::lines(lines)
}
