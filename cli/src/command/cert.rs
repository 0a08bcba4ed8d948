//! `argosy cert`, `argosy gpg`: what repositories are verified by, through the API server.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use argosy_api::services::certificate::{RepositoryCertificateCreateRequest, RepositoryCertificateQuery};
use argosy_api::services::gpgkey::{GnuPgPublicKeyCreateRequest, GnuPgPublicKeyQuery};
use argosy_api::v1alpha1::{GnuPgPublicKey, RepositoryCertificate, RepositoryCertificateList};

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
    /// List TLS certificates and SSH host keys.
    List {
        /// Only of this type.
        #[arg(long, default_value = "", value_parser = ["", "ssh", "https"])]
        cert_type: String,
        /// Only of hosts that match this glob.
        #[arg(long, default_value = "")]
        hostname_pattern: String,
        /// In this order.
        #[arg(long, default_value = "", value_parser = ["", "hostname", "type"])]
        sort: String,
        /// How to print them.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "json", "yaml"])]
        output: String,
    },
    /// Add TLS certificates of a server.
    AddTls {
        /// Name of the server.
        server: String,
        /// PEM file; without, stdin.
        #[arg(long)]
        from: Option<PathBuf>,
        /// Replace those that are there.
        #[arg(long)]
        upsert: bool,
    },
    /// Add SSH host keys.
    AddSsh {
        /// Several at once; there is no other way.
        #[arg(long, required = true)]
        batch: bool,
        /// File in the form of known_hosts; without, stdin.
        #[arg(long)]
        from: Option<PathBuf>,
        /// Replace those that are there.
        #[arg(long)]
        upsert: bool,
    },
    /// Remove certificates and keys of servers.
    Rm {
        /// Name of the server; a glob.
        server: String,
        /// Only of this type.
        #[arg(long, default_value = "", value_parser = ["", "ssh", "https"])]
        cert_type: String,
        /// Only of this kind of key.
        #[arg(long, default_value = "")]
        cert_sub_type: String,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let remote = args.connection.remote()?;
    match args.command {
        Command::List {
            cert_type,
            hostname_pattern,
            sort,
            output,
        } => {
            let query = RepositoryCertificateQuery {
                host_name_pattern: hostname_pattern,
                cert_type,
                ..RepositoryCertificateQuery::default()
            };
            print(
                ask!(remote, certificates.list_certificates(query)).items,
                &sort,
                &output,
            )?;
        }
        Command::AddTls { server, from, upsert } => {
            let text = input::text(&from.unwrap_or_else(|| "-".into()))?;
            let pem = blocks(&text);
            ensure!(
                !pem.is_empty(),
                "no valid certificates have been detected in the stream"
            );
            let count = pem.iter().map(String::as_str).collect::<BTreeSet<_>>().len();
            let certificate = RepositoryCertificate {
                server_name: server.clone(),
                cert_type: "https".into(),
                cert_data: pem.concat().into_bytes(),
                ..RepositoryCertificate::default()
            };
            create(&remote, vec![certificate], upsert).await?;
            output::text(&format!(
                "Created entry with {count} PEM certificates for repository server {server}\n"
            ))?;
        }
        Command::AddSsh {
            from,
            upsert,
            batch: _,
        } => {
            let keys = known_hosts(&input::text(&from.unwrap_or_else(|| "-".into()))?)?;
            ensure!(!keys.is_empty(), "no valid SSH known hosts data found");
            let made = create(&remote, keys, upsert).await?;
            output::text(&format!("Successfully created {made} SSH known host entries\n"))?;
        }
        Command::Rm {
            server,
            cert_type,
            cert_sub_type,
            yes,
        } => {
            ensure!(
                server != "*",
                "a single wildcard is not allowed as REPOSERVER name"
            );
            if !input::confirmed(
                &format!("Are you sure you want to remove all certificates for '{server}'?"),
                yes,
            )? {
                output::text(&format!(
                    "The command to remove all certificates for '{server}' was cancelled.\n"
                ))?;
                return Ok(ExitCode::SUCCESS);
            }
            let query = RepositoryCertificateQuery {
                host_name_pattern: server,
                cert_type,
                cert_sub_type,
            };
            let gone = ask!(remote, certificates.delete_certificate(query)).items;
            if gone.is_empty() {
                output::text("No certificates were removed (none matched the given pattern)\n")?;
            }
            output::lines(gone.iter().map(|cert| {
                format!(
                    "Removed cert for '{}' of type '{}' (subtype '{}')",
                    cert.server_name, cert.cert_type, cert.cert_sub_type
                )
            }))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(remote: &Remote, items: Vec<RepositoryCertificate>, upsert: bool) -> Result<usize> {
    let request = RepositoryCertificateCreateRequest {
        certificates: Some(RepositoryCertificateList {
            items,
            ..RepositoryCertificateList::default()
        }),
        upsert,
    };
    Ok(ask!(remote, certificates.create_certificate(request)).items.len())
}

fn print(mut certificates: Vec<RepositoryCertificate>, sort: &str, format: &str) -> Result<()> {
    match sort {
        "hostname" => certificates.sort_by(|a, b| a.server_name.cmp(&b.server_name)),
        "type" => certificates.sort_by(|a, b| a.cert_type.cmp(&b.cert_type)),
        _ => {}
    }
    if output::structured(format, &certificates)? {
        return Ok(());
    }
    let rows = certificates.into_iter().map(|cert| {
        vec![
            cert.server_name,
            cert.cert_type,
            cert.cert_sub_type,
            cert.cert_info,
        ]
    });
    output::table(&["HOSTNAME", "TYPE", "SUBTYPE", "INFO"], rows)
}

/// The certificates of a PEM text.
fn blocks(text: &str) -> Vec<String> {
    let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(begin) {
        let Some(len) = rest[at..].find(end) else { break };
        blocks.push(format!("{}\n", &rest[at..at + len + end.len()]));
        rest = &rest[at + len + end.len()..];
    }
    blocks
}

/// Host keys, one a line: host, kind of key, key.
fn known_hosts(text: &str) -> Result<Vec<RepositoryCertificate>> {
    let mut keys = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let [host, kind, key, ..] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            bail!("line {}: HOST KIND KEY is expected", number + 1);
        };
        ensure!(
            !host.starts_with(['@', '|']),
            "line {}: marked and hashed hosts are not taken",
            number + 1
        );
        for host in host.split(',') {
            keys.push(RepositoryCertificate {
                server_name: host.to_owned(),
                cert_type: "ssh".into(),
                cert_sub_type: kind.to_owned(),
                cert_data: key.as_bytes().to_vec(),
                ..RepositoryCertificate::default()
            });
        }
    }
    Ok(keys)
}

#[derive(clap::Args)]
pub(crate) struct GpgArgs {
    #[command(subcommand)]
    command: GpgCommand,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum GpgCommand {
    /// List public keys.
    List {
        /// How to print them.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "json", "yaml"])]
        output: String,
    },
    /// Show a public key.
    Get {
        /// Id.
        key: String,
        /// How to print it.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "json", "yaml"])]
        output: String,
    },
    /// Add public keys.
    Add {
        /// File of armoured keys.
        #[arg(long, short)]
        from: PathBuf,
    },
    /// Remove a public key.
    Rm {
        /// Id.
        key: String,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
}

pub(crate) async fn gpg(args: GpgArgs) -> Result<ExitCode> {
    let remote = args.connection.remote()?;
    match args.command {
        GpgCommand::List { output } => {
            let keys = ask!(remote, gpg_keys.list(GnuPgPublicKeyQuery::default())).items;
            if !output::structured(&output, &keys)? {
                let rows = keys
                    .into_iter()
                    .map(|key| vec![key.key_id, key.sub_type.to_uppercase(), key.owner]);
                output::table(&["KEYID", "TYPE", "IDENTITY"], rows)?;
            }
        }
        GpgCommand::Get { key, output } => {
            let key = ask!(remote, gpg_keys.get(GnuPgPublicKeyQuery { key_id: key }));
            if !output::structured(&output, &key)? {
                output::text(&format!(
                    "Key ID:          {}\nKey fingerprint: {}\nKey subtype:     {}\nKey owner:       {}\nKey data follows until EOF:\n{}\n",
                    key.key_id,
                    key.fingerprint,
                    key.sub_type.to_uppercase(),
                    key.owner,
                    key.key_data
                ))?;
            }
        }
        GpgCommand::Add { from } => {
            let request = GnuPgPublicKeyCreateRequest {
                publickey: Some(GnuPgPublicKey {
                    key_data: input::text(&from)?,
                    ..GnuPgPublicKey::default()
                }),
                upsert: false,
            };
            let made = ask!(remote, gpg_keys.create(request));
            let count = made.created.map(|list| list.items.len()).unwrap_or_default();
            let skipped = match made.skipped.len() {
                0 => String::new(),
                skipped => format!(", and {skipped} key(s) were skipped because they exist already"),
            };
            output::text(&format!("Created {count} key(s) from input file{skipped}.\n"))?;
        }
        GpgCommand::Rm { key, yes } => {
            if input::confirmed(&format!("Are you sure you want to remove '{key}'?"), yes)? {
                ask!(
                    remote,
                    gpg_keys.delete(GnuPgPublicKeyQuery { key_id: key.clone() })
                );
                output::text(&format!("Deleted key with key ID {key}\n"))?;
            } else {
                output::text(&format!(
                    "The command to delete key with key ID '{key}' was cancelled.\n"
                ))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
