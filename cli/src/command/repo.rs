//! `argosy repo`, `argosy repocreds`: repositories and templates of credentials through the API server.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use argosy_api::services::repocreds::{RepoCredsCreateRequest, RepoCredsDeleteRequest, RepoCredsQuery};
use argosy_api::services::repository::{RepoAccessQuery, RepoCreateRequest, RepoQuery};
use argosy_api::v1alpha1::{RepoCreds, Repository};

use crate::input;
use crate::output;
use crate::remote::{Connection, ask};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List repositories.
    List {
        /// Look anew whether they can be reached.
        #[arg(long, value_parser = ["hard"])]
        refresh: Option<String>,
        /// How to print them.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "url", "json", "yaml"])]
        output: String,
    },
    /// Show one repository.
    Get {
        /// URL.
        repo: String,
        /// Project of the repository.
        #[arg(long, default_value = "")]
        project: String,
        /// Look anew whether it can be reached.
        #[arg(long, value_parser = ["hard"])]
        refresh: Option<String>,
        /// How to print it.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "url", "json", "yaml"])]
        output: String,
    },
    /// Add a repository.
    Add(Box<Add>),
    /// Remove repositories.
    Rm {
        /// URLs.
        #[arg(required = true)]
        repos: Vec<String>,
        /// Project of the repositories.
        #[arg(long, default_value = "")]
        project: String,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
}

/// What is shown to a repository.
#[derive(clap::Args)]
struct Credentials {
    /// User name.
    #[arg(long, default_value = "")]
    username: String,
    /// Password.
    #[arg(long, default_value = "")]
    password: String,
    /// Token, instead of user name and password.
    #[arg(long, default_value = "")]
    bearer_token: String,
    /// File of a private key for SSH.
    #[arg(long)]
    ssh_private_key_path: Option<PathBuf>,
    /// File of a client certificate.
    #[arg(long, requires = "tls_client_cert_key_path")]
    tls_client_cert_path: Option<PathBuf>,
    /// File of its key.
    #[arg(long, requires = "tls_client_cert_path")]
    tls_client_cert_key_path: Option<PathBuf>,
    /// Id of a GitHub App.
    #[arg(long, default_value_t = 0)]
    github_app_id: i64,
    /// Id of its installation.
    #[arg(long, default_value_t = 0)]
    github_app_installation_id: i64,
    /// File of its private key.
    #[arg(long)]
    github_app_private_key_path: Option<PathBuf>,
    /// API of a GitHub Enterprise.
    #[arg(long, default_value = "")]
    github_app_enterprise_base_url: String,
    /// File of a Google service account's key.
    #[arg(long)]
    gcp_service_account_key_path: Option<PathBuf>,
    /// User name and password without being asked for them.
    #[arg(long)]
    force_http_basic_auth: bool,
    /// Azure's identity of the workload.
    #[arg(long)]
    use_azure_workload_identity: bool,
    /// Client id of an Azure service principal.
    #[arg(long, default_value = "")]
    azure_service_principal_client_id: String,
    /// Its secret.
    #[arg(long, default_value = "")]
    azure_service_principal_client_secret: String,
    /// Its tenant.
    #[arg(long, default_value = "")]
    azure_service_principal_tenant_id: String,
    /// Another Active Directory than the public one.
    #[arg(long, default_value = "")]
    azure_active_directory_endpoint: String,
    /// Charts are in an OCI registry.
    #[arg(long)]
    enable_oci: bool,
    /// The registry speaks without TLS.
    #[arg(long)]
    insecure_oci_force_http: bool,
    /// git, helm or oci.
    #[arg(long = "type", default_value = "git", value_parser = ["git", "helm", "oci"])]
    kind: String,
    /// Proxy to it.
    #[arg(long, visible_alias = "proxy-url", default_value = "")]
    proxy: String,
    /// Hosts that the proxy is not for.
    #[arg(long, default_value = "")]
    no_proxy: String,
}

impl Credentials {
    fn template(self, url: String) -> Result<RepoCreds> {
        let ssh = input::text_of(self.ssh_private_key_path.as_deref())?;
        ensure!(
            ssh.is_empty() || url.starts_with("ssh://") || url.contains('@') && !url.contains("://"),
            "--ssh-private-key-path is only supported for SSH repositories: {url} is none"
        );
        Ok(RepoCreds {
            url,
            username: self.username,
            password: self.password,
            bearer_token: self.bearer_token,
            ssh_private_key: ssh,
            tls_client_cert_data: input::text_of(self.tls_client_cert_path.as_deref())?,
            tls_client_cert_key: input::text_of(self.tls_client_cert_key_path.as_deref())?,
            github_app_id: self.github_app_id,
            github_app_installation_id: self.github_app_installation_id,
            github_app_private_key: input::text_of(self.github_app_private_key_path.as_deref())?,
            github_app_enterprise_base_url: self.github_app_enterprise_base_url,
            gcp_service_account_key: input::text_of(self.gcp_service_account_key_path.as_deref())?,
            force_http_basic_auth: self.force_http_basic_auth,
            use_azure_workload_identity: self.use_azure_workload_identity,
            azure_service_principal_client_id: self.azure_service_principal_client_id,
            azure_service_principal_client_secret: self.azure_service_principal_client_secret,
            azure_service_principal_tenant_id: self.azure_service_principal_tenant_id,
            azure_active_directory_endpoint: self.azure_active_directory_endpoint,
            enable_oci: self.enable_oci,
            insecure_oci_force_http: self.insecure_oci_force_http,
            r#type: self.kind,
            proxy: self.proxy,
            no_proxy: self.no_proxy,
        })
    }
}

#[derive(clap::Args)]
struct Add {
    /// URL.
    repo: String,
    /// Name; charts need one.
    #[arg(long, default_value = "")]
    name: String,
    /// Project that it is for alone.
    #[arg(long, default_value = "")]
    project: String,
    /// Any certificate or host key will do.
    #[arg(long)]
    insecure_skip_server_verification: bool,
    /// Any host key will do (older form).
    #[arg(long)]
    insecure_ignore_host_key: bool,
    /// Large files too.
    #[arg(long)]
    enable_lfs: bool,
    /// Only so many commits.
    #[arg(long, default_value_t = 0)]
    depth: i64,
    /// Change it if it is there.
    #[arg(long)]
    upsert: bool,
    #[command(flatten)]
    credentials: Credentials,
}

impl Add {
    fn repository(self) -> Result<Repository> {
        let shown = self.credentials.template(self.repo)?;
        ensure!(
            shown.r#type != "helm" || !self.name.is_empty(),
            "must specify --name for repos of type 'helm'"
        );
        Ok(Repository {
            repo: shown.url,
            name: self.name,
            project: self.project,
            insecure: self.insecure_skip_server_verification || self.insecure_ignore_host_key,
            insecure_ignore_host_key: self.insecure_ignore_host_key,
            enable_lfs: self.enable_lfs,
            depth: self.depth,
            username: shown.username,
            password: shown.password,
            bearer_token: shown.bearer_token,
            ssh_private_key: shown.ssh_private_key,
            tls_client_cert_data: shown.tls_client_cert_data,
            tls_client_cert_key: shown.tls_client_cert_key,
            github_app_id: shown.github_app_id,
            github_app_installation_id: shown.github_app_installation_id,
            github_app_private_key: shown.github_app_private_key,
            github_app_enterprise_base_url: shown.github_app_enterprise_base_url,
            gcp_service_account_key: shown.gcp_service_account_key,
            force_http_basic_auth: shown.force_http_basic_auth,
            use_azure_workload_identity: shown.use_azure_workload_identity,
            azure_service_principal_client_id: shown.azure_service_principal_client_id,
            azure_service_principal_client_secret: shown.azure_service_principal_client_secret,
            azure_service_principal_tenant_id: shown.azure_service_principal_tenant_id,
            azure_active_directory_endpoint: shown.azure_active_directory_endpoint,
            enable_oci: shown.enable_oci,
            insecure_oci_force_http: shown.insecure_oci_force_http,
            r#type: shown.r#type,
            proxy: shown.proxy,
            no_proxy: shown.no_proxy,
            ..Repository::default()
        })
    }
}

/// What the server tries before a repository is added.
fn access(repository: &Repository) -> RepoAccessQuery {
    let of = repository.clone();
    RepoAccessQuery {
        repo: of.repo,
        r#type: of.r#type,
        name: of.name,
        username: of.username,
        password: of.password,
        bearer_token: of.bearer_token,
        ssh_private_key: of.ssh_private_key,
        tls_client_cert_data: of.tls_client_cert_data,
        tls_client_cert_key: of.tls_client_cert_key,
        insecure: of.insecure,
        enable_oci: of.enable_oci,
        github_app_private_key: of.github_app_private_key,
        github_app_id: of.github_app_id,
        github_app_installation_id: of.github_app_installation_id,
        github_app_enterprise_base_url: of.github_app_enterprise_base_url,
        proxy: of.proxy,
        project: of.project,
        gcp_service_account_key: of.gcp_service_account_key,
        force_http_basic_auth: of.force_http_basic_auth,
        use_azure_workload_identity: of.use_azure_workload_identity,
        insecure_oci_force_http: of.insecure_oci_force_http,
        azure_service_principal_client_id: of.azure_service_principal_client_id,
        azure_service_principal_client_secret: of.azure_service_principal_client_secret,
        azure_service_principal_tenant_id: of.azure_service_principal_tenant_id,
        azure_active_directory_endpoint: of.azure_active_directory_endpoint,
    }
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let remote = args.connection.remote()?;
    match args.command {
        Command::List { refresh, output } => {
            let query = RepoQuery {
                force_refresh: refresh.is_some(),
                ..RepoQuery::default()
            };
            print(
                &ask!(remote, repositories.list_repositories(query)).items,
                &output,
            )?;
        }
        Command::Get {
            repo,
            project,
            refresh,
            output,
        } => {
            let query = RepoQuery {
                repo,
                app_project: project,
                force_refresh: refresh.is_some(),
            };
            let found = ask!(remote, repositories.get(query));
            if !output::structured(&output, &found)? {
                print(&[found], &output)?;
            }
        }
        Command::Add(args) => {
            let upsert = args.upsert;
            let repository = args.repository()?;
            ask!(remote, repositories.validate_access(access(&repository)));
            let request = RepoCreateRequest {
                repo: Some(repository),
                upsert,
                creds_only: false,
            };
            let made = ask!(remote, repositories.create_repository(request));
            output::text(&format!("Repository '{}' added\n", made.repo))?;
        }
        Command::Rm { repos, project, yes } => {
            for repo in repos {
                if !input::confirmed(
                    &format!("Are you sure you want to delete repository '{repo}'?"),
                    yes,
                )? {
                    output::text(&format!("The command to delete '{repo}' was cancelled.\n"))?;
                    continue;
                }
                let query = RepoQuery {
                    repo: repo.clone(),
                    app_project: project.clone(),
                    ..RepoQuery::default()
                };
                ask!(remote, repositories.delete_repository(query));
                output::text(&format!("Repository '{repo}' removed\n"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(repositories: &[Repository], format: &str) -> Result<()> {
    if output::structured(format, &repositories)? {
        return Ok(());
    }
    if format == "url" {
        return output::lines(repositories.iter().map(|repository| &repository.repo));
    }
    let rows = repositories.iter().map(|repository| {
        let credentials = match (repository.inherited_creds, repository.username.is_empty()) {
            (true, _) => "inherited",
            (_, true) => "false",
            (_, false) => "true",
        };
        vec![
            repository.r#type.clone(),
            repository.name.clone(),
            repository.repo.clone(),
            (repository.insecure || repository.insecure_ignore_host_key).to_string(),
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
    output::table(&headings, rows)
}

#[derive(clap::Args)]
pub(crate) struct CredentialArgs {
    #[command(subcommand)]
    command: CredentialCommand,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum CredentialCommand {
    /// List templates of credentials.
    List {
        /// How to print them.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "url", "json", "yaml"])]
        output: String,
    },
    /// Add a template of credentials.
    Add {
        /// Beginning of the URLs that it is for.
        url: String,
        /// Change it if it is there.
        #[arg(long)]
        upsert: bool,
        #[command(flatten)]
        credentials: Box<Credentials>,
    },
    /// Remove templates of credentials.
    Rm {
        /// Beginnings of URLs, as they were added.
        #[arg(required = true)]
        urls: Vec<String>,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
}

pub(crate) async fn credentials(args: CredentialArgs) -> Result<ExitCode> {
    let remote = args.connection.remote()?;
    match args.command {
        CredentialCommand::List { output } => {
            let found = ask!(
                remote,
                credentials.list_repository_credentials(RepoCredsQuery::default())
            )
            .items;
            if output::structured(&output, &found)? {
                return Ok(ExitCode::SUCCESS);
            }
            if output == "url" {
                output::lines(found.iter().map(|template| &template.url))?;
            } else {
                let rows = found.iter().map(|template| {
                    let (ssh, tls) = (
                        !template.ssh_private_key.is_empty(),
                        !template.tls_client_cert_data.is_empty(),
                    );
                    vec![
                        template.url.clone(),
                        template.username.clone(),
                        ssh.to_string(),
                        tls.to_string(),
                    ]
                });
                output::table(&["URL PATTERN", "USERNAME", "SSH_CREDS", "TLS_CREDS"], rows)?;
            }
        }
        CredentialCommand::Add {
            url,
            upsert,
            credentials,
        } => {
            let request = RepoCredsCreateRequest {
                creds: Some(credentials.template(url)?),
                upsert,
            };
            let made = ask!(remote, credentials.create_repository_credentials(request));
            output::text(&format!("Repository credentials for '{}' added\n", made.url))?;
        }
        CredentialCommand::Rm { urls, yes } => {
            for url in urls {
                if !input::confirmed(&format!("Are you sure you want to delete '{url}'?"), yes)? {
                    output::text(&format!("The command to remove '{url}' was cancelled.\n"))?;
                    continue;
                }
                ask!(
                    remote,
                    credentials.delete_repository_credentials(RepoCredsDeleteRequest { url: url.clone() })
                );
                output::text(&format!("Repository credentials for '{url}' removed\n"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
