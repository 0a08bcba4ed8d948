//! `argosy admin`: what an operator does without an API server, by files or by the control plane's own API server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use argosy_kube_io::{ClusterAuth, Target, api, client};
use argosy_rbac::{Access, Config, Request, builtin};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::{input, output};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print the first password of admin.
    InitialPassword {
        #[command(flatten)]
        place: Place,
    },
    /// Ask policies, or look whether they can be read.
    Rbac(Rbac),
    /// The same where Argo CD's program has it.
    Settings {
        #[command(subcommand)]
        command: Settings,
    },
}

#[derive(clap::Subcommand)]
enum Settings {
    /// Ask policies, or look whether they can be read.
    Rbac(Rbac),
}

#[derive(clap::Args)]
struct Rbac {
    #[command(subcommand)]
    verb: Verb,
}

/// A namespace of a cluster.
#[derive(clap::Args)]
struct Place {
    /// Namespace of the control plane [default: the kubeconfig's].
    #[arg(long, short)]
    namespace: Option<String>,
    /// The kubeconfig [default: KUBECONFIG, ~/.kube/config, or the pod's service account].
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long)]
    context: Option<String>,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// May this role or account do this? Exit code 0 for yes, 1 for no.
    Can {
        /// Such as `role:admin` or `alice`.
        subject: String,
        /// Such as `sync`.
        action: String,
        /// Such as `applications`.
        resource: String,
        /// Such as `default/guestbook` [default: anything].
        object: Option<String>,
        #[command(flatten)]
        policies: Policies,
        /// Role of everybody, instead of `policy.default`.
        #[arg(long)]
        default_role: Option<String>,
        /// The built-in roles count too.
        #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        use_builtin_policy: bool,
        /// Actions and resources that there are not are an error.
        #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        strict: bool,
        /// And by which rule.
        #[arg(long)]
        explain: bool,
        /// Print nothing.
        #[arg(long, short)]
        quiet: bool,
    },
    /// Can policies be read? Exit code 0 for yes, 1 for no.
    Validate {
        #[command(flatten)]
        policies: Policies,
    },
}

/// Where policies are.
#[derive(clap::Args)]
struct Policies {
    /// A CSV file, or a YAML file of the ConfigMap argocd-rbac-cm.
    #[arg(long)]
    policy_file: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::InitialPassword { place } => initial_password(&place).await,
        Command::Rbac(rbac)
        | Command::Settings {
            command: Settings::Rbac(rbac),
        } => match rbac.verb {
            Verb::Validate { policies } => validate(&policies).await,
            Verb::Can {
                subject,
                action,
                resource,
                object,
                policies,
                default_role,
                use_builtin_policy,
                strict,
                explain,
                quiet,
            } => {
                let mut config = policies
                    .read()
                    .await?
                    .with_context(|| format!("read the policies of {}", policies.origin()))?;
                if let Some(role) = default_role {
                    config.default_role = role;
                }
                let resource = resource_of(&resource, strict)?;
                check_action(&action, strict)?;
                let object = object_of(resource.as_str(), object);
                let global = if use_builtin_policy {
                    vec![builtin(), &config.policy]
                } else {
                    vec![&config.policy]
                };
                let access = Access::of(&global, [config.default_role.as_str(), subject.as_str()]);
                let verdict = access.explain(Request {
                    resource: &resource,
                    action: &action,
                    object: &object,
                });
                if !quiet {
                    let why = if explain {
                        format!("{verdict}\n")
                    } else {
                        String::new()
                    };
                    output::text(&format!(
                        "{}\n{why}",
                        if verdict.allowed() { "Yes" } else { "No" }
                    ))?;
                }
                Ok(if verdict.allowed() {
                    ExitCode::SUCCESS
                } else {
                    ExitCode::FAILURE
                })
            }
        },
    }
}

async fn validate(policies: &Policies) -> Result<ExitCode> {
    match policies.read().await? {
        Ok(_) => {
            output::text("Policy is valid.\n")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            output::text(&format!("Policy is invalid: {error}\n"))?;
            Ok(ExitCode::FAILURE)
        }
    }
}

impl Policies {
    /// The policies, or what is wrong with them.
    async fn read(&self) -> Result<Result<Config, argosy_rbac::Error>> {
        let data = match &self.policy_file {
            Some(file) => of_file(file)?,
            None => {
                ensure!(
                    self.place.namespace.is_some() || self.place.kubeconfig.is_some(),
                    "please provide exactly one of --policy-file or --namespace"
                );
                let (target, namespace) = self.place.target().await?;
                let found = target
                    .get(&api::config_maps(), &namespace, "argocd-rbac-cm")
                    .await?;
                let found = found
                    .with_context(|| format!("ConfigMap argocd-rbac-cm is not in namespace {namespace}"))?;
                data_of(&found)
            }
        };
        Ok(Config::read(&data))
    }

    fn origin(&self) -> String {
        match &self.policy_file {
            Some(file) => file.display().to_string(),
            None => "ConfigMap argocd-rbac-cm".to_owned(),
        }
    }
}

fn of_file(file: &Path) -> Result<BTreeMap<String, String>> {
    let yaml = file
        .extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml");
    if !yaml {
        return Ok(BTreeMap::from([("policy.csv".to_owned(), input::text(file)?)]));
    }
    let documents = input::documents(file)?;
    let map = documents
        .iter()
        .find(|document| argosy_object::meta::kind(document) == "ConfigMap");
    Ok(data_of(map.with_context(|| {
        format!("{}: there is no ConfigMap in it", file.display())
    })?))
}

fn data_of(map: &argosy_object::Value) -> BTreeMap<String, String> {
    serde_json::from_value(map["data"].clone()).unwrap_or_default()
}

impl Place {
    async fn target(&self) -> Result<(Target, String)> {
        let auth = ClusterAuth::infer(self.kubeconfig.as_deref(), self.context.as_deref())
            .await
            .context("find the control plane's API server")?;
        let namespace = self
            .namespace
            .clone()
            .unwrap_or_else(|| auth.namespace().to_owned());
        let client = argosy_kube_io::connect(auth, client::Options::default()).await?;
        Ok((Target::new(client), namespace))
    }
}

async fn initial_password(place: &Place) -> Result<ExitCode> {
    let (target, namespace) = place.target().await?;
    let name = "argocd-initial-admin-secret";
    let secret = target.get(&api::secrets(), &namespace, name).await?;
    let secret = secret.with_context(|| format!("Secret {name} is not in namespace {namespace}: it was deleted, or the server has not started there"))?;
    let bytes = STANDARD
        .decode(secret["data"]["password"].as_str().unwrap_or_default())
        .with_context(|| format!("read Secret {name}"))?;
    output::text(&format!(
        "{}\n\n This password must be only used for first time login. We strongly recommend you update the password using `argosy account update-password`.\n",
        String::from_utf8_lossy(&bytes)
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Resources, and the shorter words for them.
const RESOURCES: &[(&str, &[&str])] = &[
    ("accounts", &["account"]),
    ("applications", &["app", "apps", "application"]),
    ("applicationsets", &["appset", "appsets", "applicationset"]),
    ("certificates", &["cert", "certs", "certificate"]),
    ("clusters", &["cluster"]),
    ("exec", &[]),
    ("extensions", &["extension"]),
    ("gpgkeys", &["gpgkey", "key", "keys"]),
    ("logs", &["log"]),
    ("projects", &["proj", "projs", "project"]),
    ("repositories", &["repo", "repos", "repository"]),
    ("write-repositories", &["write-repository"]),
];

fn resource_of(word: &str, strict: bool) -> Result<String> {
    let found = RESOURCES
        .iter()
        .find(|(name, short)| *name == word || short.contains(&word));
    match found {
        Some((name, _)) => Ok((*name).to_owned()),
        None if strict => {
            let known: Vec<_> = RESOURCES.iter().map(|(name, _)| *name).collect();
            bail!("{word:?} is not a valid resource name: {} are", known.join(", "))
        }
        None => Ok(word.to_owned()),
    }
}

fn check_action(action: &str, strict: bool) -> Result<()> {
    const ACTIONS: &[&str] = &[
        "get", "create", "update", "delete", "sync", "rollback", "override", "invoke", "action", "*",
    ];
    let verb = action.split('/').next().unwrap_or_default();
    ensure!(
        !strict || ACTIONS.contains(&verb),
        "{action:?} is not a valid action: {} are",
        ACTIONS.join(", ")
    );
    Ok(())
}

/// Anything, if nothing is named: of resources in projects that is anything of any project.
fn object_of(resource: &str, object: Option<String>) -> String {
    let in_projects = matches!(
        resource,
        "applications" | "applicationsets" | "logs" | "exec" | "clusters" | "repositories"
    );
    match object.as_deref() {
        None | Some("" | "*") if in_projects => "*/*".to_owned(),
        None | Some("") => "*".to_owned(),
        Some(object) => object.to_owned(),
    }
}
