//! `argosy login`, `logout`, `context`, `configure`, `version`.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use argosy_api::services::session::{SessionCreateRequest, SessionDeleteRequest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use crate::remote::{Connection, ask, said};
use crate::{input, output};

#[derive(clap::Args)]
pub(crate) struct Login {
    /// Address of the API server.
    #[arg(value_name = "SERVER")]
    address: String,
    /// Name of the account [default: read from stdin].
    #[arg(long)]
    username: Option<String>,
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
    let username = input::line(args.username, "Username")?;
    let password = input::password(args.password, "Password")?;
    let request = SessionCreateRequest {
        username: username.clone(),
        password,
        ..SessionCreateRequest::default()
    };
    let answer = remote.sessions().create(request).await.map_err(said)?;
    let context = args
        .name
        .unwrap_or_else(|| args.connection.name_of(&remote.server));
    args.connection
        .remember(&remote.server, &context, &answer.into_inner().token)?;
    output::text(&format!(
        "'{username}:login' logged in successfully\nContext '{context}' updated\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(clap::Args)]
pub(crate) struct Relogin {
    /// Name of the account [default: the one that was logged in].
    #[arg(long)]
    username: Option<String>,
    /// Its password [default: read from stdin].
    #[arg(long)]
    password: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Logs in to the current context's server again.
pub(crate) async fn relogin(args: Relogin) -> Result<ExitCode> {
    let remote = args.connection.remote()?;
    let username = match args.username {
        Some(username) => username,
        None => account_of(&args.connection.token()?).context("which account? Give --username")?,
    };
    let request = SessionCreateRequest {
        username: username.clone(),
        password: input::password(args.password, "Password")?,
        ..SessionCreateRequest::default()
    };
    let answer = remote.sessions().create(request).await.map_err(said)?;
    args.connection.renew(&answer.into_inner().token)?;
    output::text(&format!("'{username}:login' logged in successfully\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// The account of a session, as its token says.
fn account_of(token: &str) -> Option<String> {
    let body = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&body).ok()?;
    Some(claims["sub"].as_str()?.strip_suffix(":login")?.to_owned())
}

#[derive(clap::Args)]
pub(crate) struct Logout {
    /// The context.
    context: String,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) async fn logout(args: Logout) -> Result<ExitCode> {
    let connection = args.connection.of_context(&args.context)?;
    let remote = connection.remote()?;
    // A server that is gone keeps nobody from logging out here.
    if let Err(status) = remote
        .sessions()
        .delete(remote.request(SessionDeleteRequest {})?)
        .await
    {
        eprintln!("argosy: end the session: {}", status.message());
    }
    connection.forget(&args.context)?;
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
    output::table(&["CURRENT", "NAME", "SERVER"], rows)?;
    Ok(ExitCode::SUCCESS)
}

#[derive(clap::Args)]
pub(crate) struct Configure {
    /// Have Argo CD's program ask where it can (true), or never (false). This program asks at a terminal before it deletes, and nowhere else.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    prompts_enabled: Option<bool>,
    #[command(flatten)]
    connection: Connection,
}

/// Changes the configuration file.
pub(crate) fn configure(args: &Configure) -> Result<ExitCode> {
    let enabled = args.connection.set_prompts(args.prompts_enabled)?;
    output::text(&format!(
        "Successfully updated the following configuration settings:\nprompts-enabled: {enabled}\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(clap::Args)]
pub(crate) struct Version {
    /// Only of this program.
    #[arg(long)]
    client: bool,
    /// The number alone.
    #[arg(long)]
    short: bool,
    /// How to print them.
    #[arg(long, short, default_value = "wide", value_parser = ["wide", "short", "json", "yaml"])]
    output: String,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) async fn version(args: Version) -> Result<ExitCode> {
    let own = format!("v{}", env!("CARGO_PKG_VERSION"));
    let server = match args.client {
        true => None,
        false => {
            let remote = args.connection.remote()?;
            Some(ask!(remote, versions.version(())))
        }
    };
    let mut versions = json!({"client": {"Version": own, "Platform": platform()}});
    if let Some(server) = &server {
        versions["server"] = serde_json::to_value(server)?;
    }
    if output::structured(&args.output, &versions)? {
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("argosy: {own}\n");
    if !args.short && args.output == "wide" {
        text += &format!("  Platform: {}\n", platform());
    }
    if let Some(server) = &server {
        text += &format!("argocd-server: {}\n", server.version);
        let parts = [
            ("Platform", &server.platform),
            ("Kustomize Version", &server.kustomize_version),
            ("Helm Version", &server.helm_version),
            ("Kubectl Version", &server.kubectl_version),
            ("Jsonnet Version", &server.jsonnet_version),
        ];
        for (name, value) in parts {
            if !args.short && args.output == "wide" && !value.is_empty() {
                text += &format!("  {name}: {value}\n");
            }
        }
    }
    output::text(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn platform() -> String {
    format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH)
}
