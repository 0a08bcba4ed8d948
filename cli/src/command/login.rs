//! `argosy login`, `logout`, `context`, `version`, `account`.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use argosy_api::services::account::CanIRequest;
use argosy_api::services::account::account_service_client::AccountServiceClient;
use argosy_api::services::session::session_service_client::SessionServiceClient;
use argosy_api::services::session::{GetUserInfoRequest, SessionCreateRequest, SessionDeleteRequest};
use argosy_api::services::version::version_service_client::VersionServiceClient;

use crate::output;
use crate::remote::{Connection, said, table};

#[derive(clap::Args)]
pub(crate) struct Login {
    /// Address of the API server.
    #[arg(value_name = "SERVER")]
    address: String,
    /// Name of the account.
    #[arg(long)]
    username: String,
    /// Its password [default: read from stdin].
    #[arg(long)]
    password: Option<String>,
    /// Name to remember the login by [default: the address].
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) async fn login(args: Login) -> Result<ExitCode> {
    let remote = args.connection.anonymous(&args.address)?;
    let password = match args.password {
        Some(password) => password,
        None => {
            eprint!("Password: ");
            let mut line = String::new();
            std::io::stdin()
                .read_line(&mut line)
                .context("read the password")?;
            line.trim_end_matches(['\n', '\r']).to_owned()
        }
    };
    let request = SessionCreateRequest {
        username: args.username.clone(),
        password,
        ..SessionCreateRequest::default()
    };
    let answer = SessionServiceClient::new(remote.channel.clone())
        .create(request)
        .await
        .map_err(said)?;
    let context = args.name.as_deref().unwrap_or(&remote.server);
    args.connection
        .remember(&remote.server, context, &answer.into_inner().token)?;
    output::text(&format!(
        "'{}:login' logged in successfully\nContext '{context}' updated\n",
        args.username
    ))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(clap::Args)]
pub(crate) struct Logout {
    /// The context.
    context: String,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) async fn logout(args: Logout) -> Result<ExitCode> {
    let remote = args.connection.remote()?;
    // A server that is gone keeps nobody from logging out here.
    if let Err(status) = SessionServiceClient::new(remote.channel.clone())
        .delete(remote.request(SessionDeleteRequest {})?)
        .await
    {
        eprintln!("argosy: end the session: {}", status.message());
    }
    args.connection.forget(&args.context)?;
    output::text(&format!("Logged out from '{}'\n", args.context))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(clap::Args)]
pub(crate) struct Contexts {
    /// Make this one the current one.
    context: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn contexts(args: &Contexts) -> Result<ExitCode> {
    if let Some(name) = &args.context {
        args.connection.use_context(name)?;
        output::text(&format!("Switched to context '{name}'\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = args
        .connection
        .contexts()?
        .into_iter()
        .map(|(current, name, server)| {
            vec![if current { "*".to_owned() } else { String::new() }, name, server]
        });
    output::text(&table(&["CURRENT", "NAME", "SERVER"], &rows.collect::<Vec<_>>()))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(clap::Args)]
pub(crate) struct Version {
    /// Only of this program.
    #[arg(long)]
    client: bool,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) async fn version(args: Version) -> Result<ExitCode> {
    output::text(&format!("argosy: v{}\n", env!("CARGO_PKG_VERSION")))?;
    if args.client {
        return Ok(ExitCode::SUCCESS);
    }
    let remote = args.connection.remote()?;
    let answer = VersionServiceClient::new(remote.channel.clone())
        .version(remote.request(())?)
        .await
        .map_err(said)?;
    output::text(&format!("argocd-server: {}\n", answer.into_inner().version))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(clap::Args)]
pub(crate) struct Account {
    #[command(subcommand)]
    command: AccountCommand,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum AccountCommand {
    /// May I? Answers yes or no.
    CanI {
        /// Such as `sync`.
        action: String,
        /// Such as `applications`.
        resource: String,
        /// Such as `default/guestbook`.
        subresource: String,
        /// And by which rule. Argosy's server alone tells it.
        #[arg(long)]
        explain: bool,
    },
    /// Who am I?
    GetUserInfo,
}

pub(crate) async fn account(args: Account) -> Result<ExitCode> {
    let remote = args.connection.remote()?;
    match args.command {
        AccountCommand::CanI {
            action,
            resource,
            subresource,
            explain,
        } => {
            let request = remote.request(CanIRequest {
                resource,
                action,
                subresource,
                explain,
            })?;
            let answer = AccountServiceClient::new(remote.channel.clone())
                .can_i(request)
                .await
                .map_err(said)?;
            let answer = answer.into_inner();
            output::text(&format!("{}\n", answer.value))?;
            if explain {
                output::text(&format!("{}\n", answer.why))?;
            }
        }
        AccountCommand::GetUserInfo => {
            let request = remote.request(GetUserInfoRequest {})?;
            let info = SessionServiceClient::new(remote.channel.clone())
                .get_user_info(request)
                .await
                .map_err(said)?;
            let info = info.into_inner();
            output::text(&format!(
                "Logged In: {}\nUsername: {}\nIssuer: {}\nGroups: {}\n",
                info.logged_in,
                info.username,
                info.iss,
                info.groups.join(",")
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
