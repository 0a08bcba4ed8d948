//! `cluster add`: makes a service account in the cluster that a context of the kubeconfig names, and hands its token to
//! the API server.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use argosy_api::cluster_secret::IN_CLUSTER_SERVER;
use argosy_api::services::cluster::ClusterCreateRequest;
use argosy_api::v1alpha1::{AwsAuthConfig, Cluster, ClusterConfig, ExecProviderConfig, TlsClientConfig};
use argosy_kube_io::target::{Patch, Write};
use argosy_kube_io::{ApiResource, ClusterAuth, Target, api, client};
use argosy_object::{Value, yaml};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::remote::{Remote, ask};
use crate::{input, output};

/// The service account, as Argo CD's own program names it and what belongs to it.
const ACCOUNT: &str = "argocd-manager";
/// A token controller fills the Secret within a moment.
const TOKEN_DEADLINE: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub(super) struct Add {
    /// Context of the kubeconfig.
    context: Option<String>,
    /// The kubeconfig [default: KUBECONFIG, or ~/.kube/config].
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Name of the cluster [default: the context's].
    #[arg(long)]
    name: Option<String>,
    /// Project that it is for alone.
    #[arg(long, default_value = "")]
    project: String,
    /// It is the cluster that the API server runs in.
    #[arg(long)]
    in_cluster: bool,
    /// Change it if it is there.
    #[arg(long)]
    upsert: bool,
    /// A service account that is there already; none is made.
    #[arg(long)]
    service_account: Option<String>,
    /// Namespace of the service account.
    #[arg(long, default_value = "kube-system")]
    system_namespace: String,
    /// Namespaces that are looked at [default: all].
    #[arg(long)]
    namespace: Vec<String>,
    /// Cluster resources too, where namespaces are given.
    #[arg(long)]
    cluster_resources: bool,
    /// Shard that looks after it.
    #[arg(long)]
    shard: Option<i64>,
    /// NAME=VALUE: a label.
    #[arg(long)]
    label: Vec<String>,
    /// NAME=VALUE: an annotation.
    #[arg(long)]
    annotation: Vec<String>,
    /// Proxy that the API server and the controllers take.
    #[arg(long, default_value = "")]
    proxy_url: String,
    /// Answers of the cluster are not compressed.
    #[arg(long)]
    disable_compression: bool,
    /// Name of an AWS cluster; AWS's identities instead of a service account.
    #[arg(long)]
    aws_cluster_name: Option<String>,
    /// Role to take there.
    #[arg(long, default_value = "")]
    aws_role_arn: String,
    /// Profile to take.
    #[arg(long, default_value = "")]
    aws_profile: String,
    /// A program that tells credentials, instead of a service account.
    #[arg(long)]
    exec_command: Option<String>,
    /// Its arguments.
    #[arg(long, allow_hyphen_values = true)]
    exec_command_args: Vec<String>,
    /// NAME=VALUE in its environment.
    #[arg(long)]
    exec_command_env: Vec<String>,
    /// Version of the protocol it speaks.
    #[arg(long, default_value = "")]
    exec_command_api_version: String,
    /// What to say if it is not there.
    #[arg(long, default_value = "")]
    exec_command_install_hint: String,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

pub(super) async fn add(remote: &Remote, args: Add) -> Result<()> {
    let file = Kubeconfig::read(args.kubeconfig.as_deref())?;
    let Some(context) = &args.context else {
        output::text(&file.contexts())?;
        bail!("choose a context name from the list");
    };
    let of_context = file.cluster(context)?;
    let mut config = ClusterConfig {
        tls_client_config: file.trust(of_context)?,
        proxy_url: match args.proxy_url.as_str() {
            "" => text(&of_context["proxy-url"]),
            given => given.to_owned(),
        },
        disable_compression: args.disable_compression,
        ..ClusterConfig::default()
    };
    if let Some(name) = &args.aws_cluster_name {
        config.aws_auth_config = Some(AwsAuthConfig {
            cluster_name: name.clone(),
            role_arn: args.aws_role_arn.clone(),
            profile: args.aws_profile.clone(),
        });
    } else if let Some(command) = &args.exec_command {
        config.exec_provider_config = Some(ExecProviderConfig {
            command: command.clone(),
            args: args.exec_command_args.clone(),
            env: pairs("--exec-command-env", &args.exec_command_env)?
                .into_iter()
                .collect(),
            api_version: args.exec_command_api_version.clone(),
            install_hint: args.exec_command_install_hint.clone(),
            ..ExecProviderConfig::default()
        });
    } else {
        let what = match args.namespace.is_empty() {
            true => "with full cluster level privileges".to_owned(),
            false => format!("with full privileges in {}", args.namespace.join(", ")),
        };
        let question = format!(
            "WARNING: This will create a service account `{ACCOUNT}` on the cluster referenced by context `{context}` {what}. Do you want to continue?"
        );
        if args.service_account.is_none() && !input::confirmed(&question, args.yes)? {
            return output::text("The cluster is not added.\n");
        }
        let auth = ClusterAuth::kubeconfig(args.kubeconfig.as_deref(), Some(context)).await?;
        let target = Target::new(argosy_kube_io::connect(auth, client::Options::default()).await?)
            .with_field_manager("argocd");
        config.bearer_token = token(&target, &args).await?;
    }
    let server = if args.in_cluster {
        IN_CLUSTER_SERVER.to_owned()
    } else {
        text(&of_context["server"])
    };
    let cluster = Cluster {
        server: server.trim_end_matches('/').to_owned(),
        name: args.name.clone().unwrap_or_else(|| context.clone()),
        namespaces: args.namespace.clone(),
        cluster_resources: args.cluster_resources,
        shard: args.shard,
        project: args.project.clone(),
        labels: pairs("--label", &args.label)?.into_iter().collect(),
        annotations: pairs("--annotation", &args.annotation)?.into_iter().collect(),
        config,
        ..Cluster::default()
    };
    let made = ask!(
        remote,
        clusters.create(ClusterCreateRequest {
            cluster: Some(cluster),
            upsert: args.upsert
        })
    );
    output::text(&format!("Cluster '{}' added\n", made.server))
}

/// The token of the service account, which is made unless one is named.
async fn token(target: &Target, args: &Add) -> Result<String> {
    let namespace = &args.system_namespace;
    let account = args.service_account.as_deref().unwrap_or(ACCOUNT);
    if args.service_account.is_none() {
        apply(
            target,
            &kind("", "v1", "ServiceAccount", "serviceaccounts", true),
            &json!({"metadata": {"name": ACCOUNT, "namespace": namespace}}),
        )
        .await?;
        rights(target, args).await?;
    }
    let name = format!("{account}-long-lived-token");
    let secret = json!({"metadata": {"name": name, "namespace": namespace,
        "annotations": {"kubernetes.io/service-account.name": account}}, "type": "kubernetes.io/service-account-token"});
    let started = Instant::now();
    if target.get(&api::secrets(), namespace, &name).await?.is_none() {
        apply(target, &api::secrets(), &secret).await?;
    }
    loop {
        let found = target
            .get(&api::secrets(), namespace, &name)
            .await?
            .unwrap_or_default();
        if let Some(token) = found["data"]["token"].as_str() {
            let bytes = STANDARD
                .decode(token)
                .with_context(|| format!("read Secret {namespace}/{name}"))?;
            return String::from_utf8(bytes).with_context(|| format!("read Secret {namespace}/{name}"));
        }
        ensure!(
            started.elapsed() < TOKEN_DEADLINE,
            "Secret {namespace}/{name} got no token within {} s: does the cluster's token controller run?",
            TOKEN_DEADLINE.as_secs()
        );
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Lets the service account do everything: in the cluster, or in some namespaces.
async fn rights(target: &Target, args: &Add) -> Result<()> {
    let subject = json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": args.system_namespace}]);
    let everything = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
    let group = "rbac.authorization.k8s.io";
    let (role, binding) = (format!("{ACCOUNT}-role"), format!("{ACCOUNT}-role-binding"));
    if args.namespace.is_empty() {
        let rules = json!([everything, {"nonResourceURLs": ["*"], "verbs": ["*"]}]);
        apply(
            target,
            &kind(group, "v1", "ClusterRole", "clusterroles", false),
            &json!({"metadata": {"name": role}, "rules": rules}),
        )
        .await?;
        let bound = json!({"metadata": {"name": binding}, "subjects": subject, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role}});
        return apply(
            target,
            &kind(group, "v1", "ClusterRoleBinding", "clusterrolebindings", false),
            &bound,
        )
        .await;
    }
    for namespace in &args.namespace {
        apply(
            target,
            &kind(group, "v1", "Role", "roles", true),
            &json!({"metadata": {"name": role, "namespace": namespace}, "rules": [everything]}),
        )
        .await?;
        let bound = json!({"metadata": {"name": binding, "namespace": namespace}, "subjects": subject,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": role}});
        apply(
            target,
            &kind(group, "v1", "RoleBinding", "rolebindings", true),
            &bound,
        )
        .await?;
    }
    Ok(())
}

fn kind(group: &str, version: &str, kind: &str, plural: &str, namespaced: bool) -> ApiResource {
    ApiResource::known(group, version, kind, plural, namespaced)
}

async fn apply(target: &Target, resource: &ApiResource, object: &Value) -> Result<()> {
    let mut object = object.clone();
    object["apiVersion"] = match resource.group.as_str() {
        "" => resource.version.clone(),
        group => format!("{group}/{}", resource.version),
    }
    .into();
    object["kind"] = resource.kind.clone().into();
    let metadata = &object["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    let patch = Patch::Apply {
        object: &object,
        force: true,
    };
    target
        .patch(resource, &namespace, &name, patch, &Write::default())
        .await
        .with_context(|| format!("make {} {name}", resource.kind))?;
    Ok(())
}

fn pairs(flag: &str, texts: &[String]) -> Result<Vec<(String, String)>> {
    let pair = |text: &String| {
        let (name, value) = text
            .split_once('=')
            .with_context(|| format!("{flag} {text}: NAME=VALUE is expected"))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    texts.iter().map(pair).collect()
}

/// A kubeconfig, and the folder that its file names are relative to.
struct Kubeconfig {
    value: Value,
    folder: PathBuf,
    file: PathBuf,
}

impl Kubeconfig {
    fn read(file: Option<&Path>) -> Result<Self> {
        let of_environment =
            || std::env::var_os("KUBECONFIG").and_then(|list| std::env::split_paths(&list).next());
        let of_home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
        let file = file
            .map(Path::to_path_buf)
            .or_else(of_environment)
            .or_else(of_home);
        let file = file.context("which kubeconfig? Give --kubeconfig")?;
        let text = input::text(&file)?;
        let value = yaml::parse(&text, &yaml::Limits::default())
            .with_context(|| format!("read {}", file.display()))?;
        Ok(Kubeconfig {
            value,
            folder: file.parent().map(Path::to_path_buf).unwrap_or_default(),
            file,
        })
    }

    fn entry<'a>(&'a self, list: &str, name: &str, key: &str) -> Option<&'a Value> {
        let found = self.value[list]
            .as_array()?
            .iter()
            .find(|entry| entry["name"] == name)?;
        Some(&found[key])
    }

    fn cluster(&self, context: &str) -> Result<&Value> {
        let found = self.entry("contexts", context, "context");
        let found =
            found.with_context(|| format!("context {context} does not exist in {}", self.file.display()))?;
        let name = text(&found["cluster"]);
        let cluster = self.entry("clusters", &name, "cluster");
        cluster.with_context(|| {
            format!(
                "context {context} names cluster {name:?}, which {} does not have",
                self.file.display()
            )
        })
    }

    fn trust(&self, cluster: &Value) -> Result<TlsClientConfig> {
        let ca_data = match (
            cluster["certificate-authority-data"].as_str(),
            cluster["certificate-authority"].as_str(),
        ) {
            (Some(data), _) => STANDARD.decode(data).context("read certificate-authority-data")?,
            (None, Some(file)) => input::read(&self.folder.join(file))?,
            (None, None) => Vec::new(),
        };
        Ok(TlsClientConfig {
            insecure: cluster["insecure-skip-tls-verify"] == true,
            server_name: text(&cluster["tls-server-name"]),
            ca_data,
            ..TlsClientConfig::default()
        })
    }

    fn contexts(&self) -> String {
        let current = text(&self.value["current-context"]);
        let rows = self.value["contexts"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|entry| {
                let name = text(&entry["name"]);
                let cluster = text(&entry["context"]["cluster"]);
                let server = self
                    .entry("clusters", &cluster, "cluster")
                    .map(|found| text(&found["server"]))
                    .unwrap_or_default();
                vec![
                    if name == current {
                        "*".to_owned()
                    } else {
                        String::new()
                    },
                    name,
                    cluster,
                    server,
                ]
            });
        output::table_text(&["CURRENT", "NAME", "CLUSTER", "SERVER"], rows)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
