//! `proj role`

use anyhow::{Context as _, Result, ensure};
use argosy_api::services::project::{ProjectTokenCreateRequest, ProjectTokenDeleteRequest};
use argosy_api::v1alpha1::{AppProject, JwtToken, ProjectRole};

use super::{get, update};
use crate::input;
use crate::output::{self, field, or_none, table_text, unix_time};
use crate::remote::{Remote, ask};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

/// A role of a project.
#[derive(clap::Args)]
struct Role {
    /// Name of the project.
    project: String,
    /// Name of the role.
    role: String,
}

/// A policy of a role.
#[derive(clap::Args)]
struct Policy {
    #[command(flatten)]
    role: Role,
    /// What is done, such as get, create, update, delete, sync.
    #[arg(long, short)]
    action: String,
    /// Whether it is allowed.
    #[arg(long, short, default_value = "allow", value_parser = ["allow", "deny"])]
    permission: String,
    /// With what in the project; `*` for everything.
    #[arg(long, short)]
    object: String,
    /// With which resource.
    #[arg(long, short, default_value = "applications")]
    resource: String,
}

impl Policy {
    fn line(&self) -> String {
        let (project, role) = (&self.role.project, &self.role.role);
        let Policy {
            action,
            permission,
            object,
            resource,
            ..
        } = self;
        format!("p, proj:{project}:{role}, {resource}, {action}, {project}/{object}, {permission}")
    }
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the roles of a project.
    List {
        /// Name of the project.
        project: String,
        /// How to print them.
        #[arg(long, short, default_value = "wide", value_parser = ["wide", "name", "json", "yaml"])]
        output: String,
    },
    /// Show a role.
    Get {
        #[command(flatten)]
        role: Role,
    },
    /// Create a role.
    Create {
        #[command(flatten)]
        role: Role,
        /// What it is for.
        #[arg(long, default_value = "")]
        description: String,
    },
    /// Delete a role.
    Delete {
        #[command(flatten)]
        role: Role,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
    /// Give a role a policy.
    AddPolicy(Policy),
    /// Take a policy from a role.
    RemovePolicy(Policy),
    /// Let a group of single sign-on have a role.
    AddGroup {
        #[command(flatten)]
        role: Role,
        /// Group.
        group: String,
    },
    /// Take a role from a group.
    RemoveGroup {
        #[command(flatten)]
        role: Role,
        /// Group.
        group: String,
    },
    /// Make a token for a role.
    CreateToken {
        #[command(flatten)]
        role: Role,
        /// It counts for so long, such as 12h or 7d; without, for ever.
        #[arg(long, short, default_value = "")]
        expires_in: String,
        /// Id [default: by chance].
        #[arg(long, short, default_value = "")]
        id: String,
        /// Print the token alone.
        #[arg(long, short)]
        token_only: bool,
    },
    /// List the tokens of a role.
    ListTokens {
        #[command(flatten)]
        role: Role,
        /// Times as seconds since 1970.
        #[arg(long, short)]
        unixtime: bool,
    },
    /// Take a token back.
    DeleteToken {
        #[command(flatten)]
        role: Role,
        /// When it was issued, in seconds since 1970.
        issued_at: i64,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
}

pub(super) async fn run(remote: &Remote, args: Args) -> Result<()> {
    match args.command {
        Command::List { project, output } => list(&get(remote, &project).await?, &output),
        Command::Get { role } => {
            let project = get(remote, &role.project).await?;
            show(&project, find(&project, &role.role)?)
        }
        Command::Create { role, description } => {
            let made = ProjectRole {
                name: role.role.clone(),
                description,
                ..ProjectRole::default()
            };
            let project = get(remote, &role.project).await?;
            if find(&project, &role.role).is_ok() {
                return output::text(&format!("Role '{}' already exists\n", role.role));
            }
            update(remote, &role.project, |project| {
                project.spec.roles.push(made);
                Ok(())
            })
            .await?;
            output::text(&format!("Role '{}' created\n", role.role))
        }
        Command::Delete { role, yes } => {
            find(&get(remote, &role.project).await?, &role.role)?;
            if !input::confirmed(
                &format!("Are you sure you want to delete role '{}'?", role.role),
                yes,
            )? {
                return output::text(&format!(
                    "The command to delete role '{}' was cancelled.\n",
                    role.role
                ));
            }
            update(remote, &role.project, |project| {
                project.spec.roles.retain(|known| known.name != role.role);
                Ok(())
            })
            .await?;
            output::text(&format!("Role '{}' deleted\n", role.role))
        }
        Command::AddPolicy(policy) => {
            let line = policy.line();
            change(remote, &policy.role, |role| {
                ensure!(!role.policies.contains(&line), "the role has this policy already");
                role.policies.push(line);
                Ok(())
            })
            .await
        }
        Command::RemovePolicy(policy) => {
            let line = policy.line();
            change(remote, &policy.role, |role| {
                let before = role.policies.len();
                role.policies.retain(|known| *known != line);
                ensure!(
                    role.policies.len() < before,
                    "unable to find policy '{line}' in the role"
                );
                Ok(())
            })
            .await
        }
        Command::AddGroup { role, group } => {
            let has = find(&get(remote, &role.project).await?, &role.role)?
                .groups
                .contains(&group);
            if has {
                return output::text(&format!(
                    "Group '{group}' already present in role '{}'\n",
                    role.role
                ));
            }
            change(remote, &role, |role| {
                role.groups.push(group.clone());
                Ok(())
            })
            .await?;
            output::text(&format!("Group '{group}' added to role '{}'\n", role.role))
        }
        Command::RemoveGroup { role, group } => {
            let has = find(&get(remote, &role.project).await?, &role.role)?
                .groups
                .contains(&group);
            if !has {
                return output::text(&format!("Group '{group}' not present in role '{}'\n", role.role));
            }
            change(remote, &role, |role| {
                role.groups.retain(|known| *known != group);
                Ok(())
            })
            .await?;
            output::text(&format!("Group '{group}' removed from role '{}'\n", role.role))
        }
        Command::CreateToken {
            role,
            expires_in,
            id,
            token_only,
        } => create_token(remote, &role, &expires_in, id, token_only).await,
        Command::ListTokens { role, unixtime } => {
            let project = get(remote, &role.project).await?;
            find(&project, &role.role)?;
            let tokens = tokens(&project, &role.role);
            if tokens.is_empty() {
                return output::text(&format!("No tokens for {}.{}\n", role.project, role.role));
            }
            let time = |seconds: i64| {
                if unixtime {
                    seconds.to_string()
                } else {
                    unix_time(seconds, "None")
                }
            };
            let rows = tokens
                .iter()
                .map(|token| vec![token.id.clone(), time(token.iat), time(token.exp)]);
            output::table(&["ID", "ISSUED AT", "EXPIRES AT"], rows)
        }
        Command::DeleteToken { role, issued_at, yes } => {
            if !input::confirmed(
                &format!(
                    "Are you sure you want to delete '{}' project token?",
                    role.project
                ),
                yes,
            )? {
                return output::text(&format!(
                    "The command to delete project token '{issued_at}' was cancelled.\n"
                ));
            }
            let request = ProjectTokenDeleteRequest {
                project: role.project,
                role: role.role,
                iat: issued_at,
                id: String::new(),
            };
            ask!(remote, projects.delete_token(request));
            Ok(())
        }
    }
}

fn find<'a>(project: &'a AppProject, role: &str) -> Result<&'a ProjectRole> {
    let found = project.spec.roles.iter().find(|known| known.name == role);
    found.with_context(|| {
        format!(
            "role '{role}' does not exist in project '{}'",
            project.metadata.name
        )
    })
}

async fn change(
    remote: &Remote,
    of: &Role,
    change: impl FnOnce(&mut ProjectRole) -> Result<()>,
) -> Result<()> {
    update(remote, &of.project, |project| {
        find(project, &of.role)?;
        match project.spec.roles.iter_mut().find(|known| known.name == of.role) {
            Some(role) => change(role),
            None => Ok(()),
        }
    })
    .await
}

fn tokens<'a>(project: &'a AppProject, role: &str) -> &'a [JwtToken] {
    project
        .status
        .jwt_tokens_by_role
        .get(role)
        .map_or(&[], |tokens| &tokens.items)
}

async fn create_token(
    remote: &Remote,
    role: &Role,
    expires_in: &str,
    id: String,
    token_only: bool,
) -> Result<()> {
    let seconds = match expires_in {
        "" | "0" => 0,
        text => {
            let duration =
                argosy_api::duration::parse(text).with_context(|| format!("--expires-in {text}"))?;
            i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
        }
    };
    let request = ProjectTokenCreateRequest {
        project: role.project.clone(),
        role: role.role.clone(),
        expires_in: seconds,
        id,
        ..ProjectTokenCreateRequest::default()
    };
    let token = ask!(remote, projects.create_token(request)).token;
    if token_only {
        return output::text(&format!("{token}\n"));
    }
    let claims = claims(&token)?;
    let time = |claim: &str, none: &str| unix_time(claims[claim].as_i64().unwrap_or_default(), none);
    output::text(&format!(
        "Create token succeeded for {}.\n  ID: {}\n  Issued At: {}\n  Expires At: {}\n  Token: {token}\n",
        claims["sub"].as_str().unwrap_or_default(),
        claims["jti"].as_str().unwrap_or_default(),
        time("iat", ""),
        time("exp", "Never"),
    ))
}

/// What a token says of itself. Whether it is true only the server knows, and it has just made it.
fn claims(token: &str) -> Result<serde_json::Value> {
    use base64::Engine as _;
    let body = token
        .split('.')
        .nth(1)
        .context("read the token: it has no claims")?;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(body)
        .context("read the token")?;
    serde_json::from_slice(&bytes).context("read the token")
}

fn list(project: &AppProject, format: &str) -> Result<()> {
    let roles = &project.spec.roles;
    if output::structured(format, roles)? {
        return Ok(());
    }
    if format == "name" {
        return output::lines(roles.iter().map(|role| &role.name));
    }
    let rows = roles
        .iter()
        .map(|role| vec![role.name.clone(), role.description.clone()]);
    output::table(&["ROLE-NAME", "DESCRIPTION"], rows)
}

fn show(project: &AppProject, role: &ProjectRole) -> Result<()> {
    let mut text = field("Role Name", &role.name);
    text += &field("Description", &role.description);
    text += "Policies:\n";
    text += &format!(
        "p, proj:{0}:{1}, projects, get, {0}, allow\n",
        project.metadata.name, role.name
    );
    for policy in &role.policies {
        text += &format!("{policy}\n");
    }
    text += "Groups:\n";
    text += &or_none(
        role.groups
            .iter()
            .map(|group| format!("  - {group}\n"))
            .collect::<String>(),
    );
    text = text.trim_end().to_owned() + "\nJWT Tokens:\n";
    let tokens = tokens(project, &role.name);
    if tokens.is_empty() {
        text += "<none>\n";
    } else {
        let rows = tokens.iter().map(|token| {
            vec![
                token.iat.to_string(),
                unix_time(token.iat, ""),
                unix_time(token.exp, "<none>"),
            ]
        });
        text += &table_text(&["ID", "ISSUED-AT", "EXPIRES-AT"], rows);
    }
    output::text(&text)
}
