//! `argosy account`: local accounts through the API server, and who one is.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use argosy_api::services::account::{
    Account, CanIRequest, CreateTokenRequest, DeleteTokenRequest, GetAccountRequest, ListAccountRequest,
    UpdatePasswordRequest,
};
use argosy_api::services::session::{GetUserInfoRequest, GetUserInfoResponse, SessionCreateRequest};

use crate::input;
use crate::output::{self, field, unix_time};
use crate::remote::{Connection, Remote, ask, said};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List accounts.
    List {
        /// How to print them.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "name", "json", "yaml"])]
        output: String,
    },
    /// Show an account.
    Get {
        /// Name [default: one's own].
        #[arg(long, short)]
        account: Option<String>,
        /// How to print it.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "name", "json", "yaml"])]
        output: String,
    },
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
    GetUserInfo {
        /// How to print it.
        #[arg(long, short, default_value = "", value_parser = ["", "json", "yaml"])]
        output: String,
    },
    /// Change a password.
    UpdatePassword {
        /// Whose [default: one's own].
        #[arg(long)]
        account: Option<String>,
        /// One's own password now [default: read from stdin].
        #[arg(long)]
        current_password: Option<String>,
        /// The new one [default: read from stdin].
        #[arg(long)]
        new_password: Option<String>,
    },
    /// Make a token for an account.
    GenerateToken {
        /// Name [default: one's own].
        #[arg(long, short)]
        account: Option<String>,
        /// It counts for so long, such as 12h or 7d; 0s for ever.
        #[arg(long, short, default_value = "0s")]
        expires_in: String,
        /// Id [default: by chance].
        #[arg(long, default_value = "")]
        id: String,
    },
    /// Take a token back.
    DeleteToken {
        /// Its id.
        id: String,
        /// Name [default: one's own].
        #[arg(long, short)]
        account: Option<String>,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
    /// Print the token of the login.
    SessionToken,
    /// Print the hash of a password, for argocd-secret.
    Bcrypt {
        /// The password [default: read from stdin].
        #[arg(long)]
        password: Option<String>,
        /// A file with the password.
        #[arg(long, conflicts_with = "password")]
        from: Option<PathBuf>,
    },
}

/// As in Argo CD.
const BCRYPT_COST: u32 = 10;

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::SessionToken => output::lines([args.connection.token()?])?,
        Command::Bcrypt { password, from } => {
            let given = from.map(|file| input::text(&file)).transpose()?.or(password);
            let password = input::password(given, "Password")?;
            let hash = bcrypt::non_truncating_hash_with_result(password.trim_end(), BCRYPT_COST)
                .context("hash the password")?;
            output::lines([hash.format_for_version(bcrypt::Version::TwoA)])?;
        }
        command => with_server(&args.connection, &args.connection.remote()?, command).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn with_server(connection: &Connection, remote: &Remote, command: Command) -> Result<()> {
    match command {
        Command::List { output } => {
            let accounts = ask!(remote, accounts.list_accounts(ListAccountRequest {})).items;
            if output::structured(&output, &accounts)? {
                return Ok(());
            }
            if output == "name" {
                return output::lines(accounts.iter().map(|account| &account.name));
            }
            let rows = accounts.into_iter().map(|account| {
                vec![
                    account.name,
                    account.enabled.to_string(),
                    account.capabilities.join(", "),
                ]
            });
            output::table(&["NAME", "ENABLED", "CAPABILITIES"], rows)
        }
        Command::Get { account, output } => {
            let name = own_or(remote, account).await?;
            let account = ask!(remote, accounts.get_account(GetAccountRequest { name }));
            match output.as_str() {
                "name" => output::lines([account.name]),
                format if output::structured(format, &account)? => Ok(()),
                _ => show(&account),
            }
        }
        Command::CanI {
            action,
            resource,
            subresource,
            explain,
        } => {
            let answer = ask!(
                remote,
                accounts.can_i(CanIRequest {
                    resource,
                    action,
                    subresource,
                    explain
                })
            );
            let why = if answer.why.is_empty() {
                String::new()
            } else {
                format!("{}\n", answer.why)
            };
            output::text(&format!("{}\n{why}", answer.value))
        }
        Command::GetUserInfo { output } => {
            let info = me(remote).await?;
            if output::structured(&output, &info)? {
                return Ok(());
            }
            let mut text = format!("Logged In: {}\n", info.logged_in);
            if info.logged_in {
                text += &format!(
                    "Username: {}\nIssuer: {}\nGroups: {}\n",
                    info.username,
                    info.iss,
                    info.groups.join(",")
                );
            }
            output::text(&text)
        }
        Command::UpdatePassword {
            account,
            current_password,
            new_password,
        } => update_password(connection, remote, account, current_password, new_password).await,
        Command::GenerateToken {
            account,
            expires_in,
            id,
        } => {
            let lasts = argosy_api::duration::parse(&expires_in)
                .with_context(|| format!("--expires-in {expires_in}"))?;
            let request = CreateTokenRequest {
                name: own_or(remote, account).await?,
                expires_in: i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX),
                id,
            };
            output::lines([ask!(remote, accounts.create_token(request)).token])
        }
        Command::DeleteToken { id, account, yes } => {
            if !input::confirmed(&format!("Are you sure you want to delete '{id}' token?"), yes)? {
                return output::text(&format!("The command to delete '{id}' was cancelled.\n"));
            }
            let name = own_or(remote, account).await?;
            ask!(remote, accounts.delete_token(DeleteTokenRequest { name, id }));
            Ok(())
        }
        // `run` has done these without a server.
        Command::SessionToken | Command::Bcrypt { .. } => Ok(()),
    }
}

async fn me(remote: &Remote) -> Result<GetUserInfoResponse> {
    Ok(ask!(remote, sessions.get_user_info(GetUserInfoRequest {})))
}

async fn own_or(remote: &Remote, account: Option<String>) -> Result<String> {
    match account {
        Some(name) => Ok(name),
        None => Ok(me(remote).await?.username),
    }
}

async fn update_password(
    connection: &Connection,
    remote: &Remote,
    account: Option<String>,
    current: Option<String>,
    new: Option<String>,
) -> Result<()> {
    let own = me(remote).await?.username;
    let prompt = format!("*** Enter password of currently logged in user ({own})");
    let current_password = input::password(current, &prompt)?;
    let name = account.unwrap_or_else(|| own.clone());
    let new_password = match new {
        Some(password) => password,
        None => {
            let first = input::password(None, &format!("*** Enter new password for user {name}"))?;
            ensure!(
                first == input::password(None, &format!("*** Confirm new password for user {name}"))?,
                "passwords do not match"
            );
            first
        }
    };
    let request = UpdatePasswordRequest {
        name: name.clone(),
        current_password,
        new_password: new_password.clone(),
    };
    ask!(remote, accounts.update_password(request));
    output::text("Password updated\n")?;
    if name == own {
        // The session of the old password has ended with it.
        let login = SessionCreateRequest {
            username: name,
            password: new_password,
            token: String::new(),
        };
        let answer = remote.sessions().create(login).await.map_err(said)?;
        connection.renew(&answer.into_inner().token)?;
    }
    Ok(())
}

fn show(account: &Account) -> Result<()> {
    let mut text = field("Name", &account.name);
    text += &field("Enabled", &account.enabled.to_string());
    text += &field("Capabilities", &account.capabilities.join(", "));
    text += "\nTokens:\n";
    if account.tokens.is_empty() {
        text += "NONE\n";
    } else {
        let rows = account.tokens.iter().map(|token| {
            vec![
                token.id.clone(),
                unix_time(token.issued_at, ""),
                unix_time(token.expires_at, "never"),
            ]
        });
        text += &output::table_text(&["ID", "ISSUED AT", "EXPIRING AT"], rows);
    }
    output::text(&text)
}
