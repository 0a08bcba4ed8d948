//! Where an API server is, and with what credentials to speak to it.
//!
//! Three sources lead to the same [`ClusterAuth`]: the pod's own service account, a kubeconfig file (for people and
//! tests), and the `config` of an Argo CD cluster Secret. Nothing here touches the network.

use std::fmt;
use std::path::{Path, PathBuf};

use argosy_api::v1alpha1::{AwsAuthConfig, ClusterConfig, ExecProviderConfig};
use argosy_runtime::dial::Dial;
use base64::Engine as _;
use http::Uri;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use crate::credentials::{ExecPlugin, Source};
use crate::error::{self, Error};

/// The URL under which a cluster knows itself. An Application's destination of this URL means the cluster that the
/// control plane runs in.
pub const IN_CLUSTER_SERVER: &str = "https://kubernetes.default.svc";
/// The name of that cluster when no cluster Secret gives it another.
pub const IN_CLUSTER_NAME: &str = "in-cluster";

/// What a configuration may make this process do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy {
    /// Cluster Secrets may name a program that is run to get credentials (`execProviderConfig`, `awsAuthConfig`).
    /// Who may write such a Secret may then run programs here.
    pub allow_exec: bool,
}

/// An API server's address, trust and credentials. Prints without secrets.
#[derive(Clone)]
pub struct ClusterAuth {
    pub(crate) server: String,
    pub(crate) config: kube::Config,
    pub(crate) source: Source,
    pub(crate) compression: bool,
    /// How connections are made, if not by TCP.
    pub(crate) dial: Option<Dial>,
}

impl fmt::Debug for ClusterAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterAuth")
            .field("server", &self.server)
            .field("credentials", &self.source)
            .finish_non_exhaustive()
    }
}

impl ClusterAuth {
    /// The same by other connections than TCP's; so are those of the clusters for which this one is the local one
    /// ([`ClusterAuth::cluster`]).
    #[must_use]
    pub fn dialing(mut self, dial: Dial) -> Self {
        self.dial = Some(dial);
        self
    }

    /// The URL of the API server, without a slash at the end.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The namespace of the pod or of the kubeconfig's context; `default` if there is none.
    pub fn namespace(&self) -> &str {
        &self.config.default_namespace
    }

    /// The pod's own service account: address from the environment, certificate authority and token from the mounted
    /// files, both read again when they rotate.
    pub fn in_cluster() -> Result<Self, Error> {
        let mut config = kube::Config::incluster().map_err(|error| Error::Config {
            server: IN_CLUSTER_SERVER.to_owned(),
            message: format!("read the service account: {}", error::chain(&error)),
        })?;
        let source = source_of(&config.cluster_url.to_string(), &mut config.auth_info)?;
        let mut auth = ClusterAuth {
            server: IN_CLUSTER_SERVER.to_owned(),
            config,
            source,
            // Inside one cluster the network is wider than the servers' processors.
            compression: false,
            dial: None,
        };
        auth.proxy_from_environment();
        Ok(auth)
    }

    /// A context of a kubeconfig file. Without `path`, `KUBECONFIG` or `~/.kube/config`; without `context`, the
    /// current one.
    pub async fn kubeconfig(path: Option<&Path>, context: Option<&str>) -> Result<Self, Error> {
        let fail = |message: String| Error::Config {
            server: path.map_or_else(|| "kubeconfig".to_owned(), |path| path.display().to_string()),
            message,
        };
        let file = match path {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        }
        .map_err(|error| fail(format!("read the kubeconfig: {}", error::chain(&error))))?;
        let options = KubeConfigOptions {
            context: context.map(str::to_owned),
            ..KubeConfigOptions::default()
        };
        let mut config = kube::Config::from_custom_kubeconfig(file, &options)
            .await
            .map_err(|error| fail(format!("use the kubeconfig: {}", error::chain(&error))))?;
        let server = trimmed(&config.cluster_url.to_string());
        let source = source_of(&server, &mut config.auth_info)?;
        let compression = !config.disable_compression;
        Ok(ClusterAuth {
            server,
            config,
            source,
            compression,
            dial: None,
        })
    }

    /// The service account if this process runs in a pod, else the kubeconfig.
    pub async fn infer(path: Option<&Path>, context: Option<&str>) -> Result<Self, Error> {
        let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        if path.is_none() && context.is_none() && in_pod && std::env::var_os("KUBECONFIG").is_none() {
            return Self::in_cluster();
        }
        Self::kubeconfig(path, context).await
    }

    /// The cluster of an Argo CD cluster Secret with this `server` and `config`.
    ///
    /// `local` is the cluster that the control plane lives in: it stands for [`IN_CLUSTER_SERVER`], with a token or
    /// password of the Secret laid over it. Of several credentials the first of these counts, as in Argo CD: AWS,
    /// plugin, then client certificate with password or token.
    pub fn cluster(
        server: &str,
        config: &ClusterConfig,
        local: &ClusterAuth,
        policy: Policy,
    ) -> Result<Self, Error> {
        let server = trimmed(server);
        let fail = |message: String| Error::Config {
            server: server.clone(),
            message,
        };
        if server == IN_CLUSTER_SERVER {
            let mut auth = local.clone();
            auth.server = server.clone();
            match static_source(&server, config)? {
                Source::None => {}
                source => auth.source = source,
            }
            return Ok(auth);
        }

        let url: Uri = server
            .parse()
            .map_err(|error| fail(format!("read the server's URL: {error}")))?;
        if url
            .scheme_str()
            .is_none_or(|scheme| scheme != "https" && scheme != "http")
            || url.host().is_none()
        {
            return Err(fail(
                "the server's URL must begin with https:// or http://".to_owned(),
            ));
        }
        let mut kube = kube::Config::new(url);
        "default".clone_into(&mut kube.default_namespace);
        let tls = &config.tls_client_config;
        if tls.insecure && !tls.ca_data.is_empty() {
            return Err(fail(
                "specifying a root certificates file with the insecure flag is not allowed".to_owned(),
            ));
        }
        kube.accept_invalid_certs = tls.insecure;
        if !tls.server_name.is_empty() {
            kube.tls_server_name = Some(tls.server_name.clone());
        }
        if !tls.ca_data.is_empty() {
            kube.root_cert = Some(certificates(&tls.ca_data).map_err(&fail)?);
        }
        match (tls.cert_data.is_empty(), tls.key_data.is_empty()) {
            (true, true) => {}
            (false, false) => set_identity(&mut kube.auth_info, &tls.cert_data, &tls.key_data),
            _ => {
                return Err(fail(
                    "a client certificate needs both certData and keyData".to_owned(),
                ));
            }
        }
        let source = if let Some(aws) = &config.aws_auth_config {
            exec(&server, aws_plugin(aws), policy)?
        } else if let Some(plugin) = &config.exec_provider_config {
            exec(&server, provider_plugin(&kube, &server, plugin, config)?, policy)?
        } else {
            static_source(&server, config)?
        };
        let mut auth = ClusterAuth {
            server: server.clone(),
            config: kube,
            source,
            compression: !config.disable_compression,
            dial: local.dial.clone(),
        };
        if config.proxy_url.is_empty() {
            auth.proxy_from_environment();
        } else {
            let proxy: Uri = config
                .proxy_url
                .parse()
                .map_err(|error| fail(format!("read proxyUrl: {error}")))?;
            if !matches!(proxy.scheme_str(), Some("http" | "https" | "socks5")) {
                return Err(fail(
                    "proxyUrl must begin with http://, https:// or socks5://".to_owned(),
                ));
            }
            auth.config.proxy_url = Some(proxy);
        }
        Ok(auth)
    }

    /// `HTTPS_PROXY`, `NO_PROXY` and their kind, as Kubernetes clients read them.
    fn proxy_from_environment(&mut self) {
        let matcher = hyper_util::client::proxy::matcher::Matcher::from_env();
        if let Some(found) = matcher.intercept(&self.config.cluster_url) {
            self.config.proxy_url = Some(found.uri().clone());
        }
    }
}

fn trimmed(server: &str) -> String {
    server.trim().trim_end_matches('/').to_owned()
}

fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let found: Result<Vec<Vec<u8>>, _> = CertificateDer::pem_slice_iter(pem)
        .map(|item| item.map(|der| der.as_ref().to_vec()))
        .collect();
    match found {
        Ok(list) if list.is_empty() => Err("caData holds no PEM certificate".to_owned()),
        Ok(list) => Ok(list),
        Err(error) => Err(format!("read caData: {error}")),
    }
}

/// Puts a PEM certificate and key where kube's TLS set-up looks for them.
pub(crate) fn set_identity(info: &mut AuthInfo, cert: &[u8], key: &[u8]) {
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    info.client_certificate_data = Some(encode(cert));
    info.client_key_data = Some(encode(key).into());
}

fn static_source(server: &str, config: &ClusterConfig) -> Result<Source, Error> {
    if !config.username.is_empty() {
        return Source::basic(server, &config.username, &config.password);
    }
    if !config.bearer_token.is_empty() {
        return Source::bearer(server, &config.bearer_token);
    }
    Ok(Source::None)
}

fn exec(server: &str, plugin: ExecPlugin, policy: Policy) -> Result<Source, Error> {
    if !policy.allow_exec {
        return Err(Error::Config {
            server: server.to_owned(),
            message: format!(
                "the cluster Secret asks to run the credential plugin {:?}, which is not allowed here; start the \
                 controller with --allow-exec-credentials, or give the cluster a token or client certificate",
                plugin.command
            ),
        });
    }
    Ok(Source::exec(plugin))
}

fn aws_plugin(aws: &AwsAuthConfig) -> ExecPlugin {
    let mut args = vec![
        "aws".to_owned(),
        "--cluster-name".to_owned(),
        aws.cluster_name.clone(),
    ];
    if !aws.role_arn.is_empty() {
        args.extend(["--role-arn".to_owned(), aws.role_arn.clone()]);
    }
    if !aws.profile.is_empty() {
        args.extend(["--profile".to_owned(), aws.profile.clone()]);
    }
    ExecPlugin {
        command: "argocd-k8s-auth".to_owned(),
        args,
        env: Vec::new(),
        api_version: "client.authentication.k8s.io/v1beta1".to_owned(),
        install_hint: String::new(),
        cluster: None,
    }
}

fn provider_plugin(
    kube: &kube::Config,
    server: &str,
    plugin: &ExecProviderConfig,
    config: &ClusterConfig,
) -> Result<ExecPlugin, Error> {
    let cluster = plugin.provide_cluster_info.then(|| {
        let tls = config.tls_client_config.clone();
        let mut info = json!({ "server": kube.cluster_url.to_string() });
        if tls.insecure {
            info["insecure-skip-tls-verify"] = Value::Bool(true);
        }
        if !tls.server_name.is_empty() {
            info["tls-server-name"] = Value::String(tls.server_name);
        }
        if !tls.ca_data.is_empty() {
            info["certificate-authority-data"] =
                Value::String(base64::engine::general_purpose::STANDARD.encode(&tls.ca_data));
        }
        if let Some(opaque) = plugin_config(plugin) {
            info["config"] = opaque;
        }
        info
    });
    if plugin.command.is_empty() {
        return Err(Error::Config {
            server: server.to_owned(),
            message: "execProviderConfig names no command".to_owned(),
        });
    }
    Ok(ExecPlugin {
        command: plugin.command.clone(),
        args: plugin.args.clone(),
        env: plugin
            .env
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        api_version: plugin.api_version.clone(),
        install_hint: plugin.install_hint.clone(),
        cluster,
    })
}

/// The opaque document that Argo CD hands through to the plugin as `spec.cluster.config`.
fn plugin_config(plugin: &ExecProviderConfig) -> Option<Value> {
    let value = serde_json::to_value(plugin).ok()?;
    value.get("config").filter(|config| !config.is_null()).cloned()
}

/// Takes the credentials that we handle ourselves out of a kubeconfig's user, so that kube does not act on them too.
fn source_of(server: &str, info: &mut AuthInfo) -> Result<Source, Error> {
    use secrecy::ExposeSecret as _;
    if let Some(plugin) = info.exec.take() {
        let cluster = plugin
            .cluster
            .as_ref()
            .and_then(|cluster| serde_json::to_value(cluster).ok());
        let pair = |entry: std::collections::HashMap<String, String>| {
            Some((entry.get("name")?.clone(), entry.get("value")?.clone()))
        };
        return Ok(Source::exec(ExecPlugin {
            command: plugin.command.unwrap_or_default(),
            args: plugin.args.unwrap_or_default(),
            env: plugin
                .env
                .unwrap_or_default()
                .into_iter()
                .filter_map(pair)
                .collect(),
            api_version: plugin.api_version.unwrap_or_default(),
            install_hint: plugin.install_hint.unwrap_or_default(),
            cluster: cluster.filter(|_| plugin.provide_cluster_info),
        }));
    }
    if let (Some(user), Some(password)) = (&info.username, &info.password) {
        return Source::basic(server, user, password.expose_secret());
    }
    if let Some(token) = &info.token {
        return Source::bearer(server, token.expose_secret());
    }
    Ok(info
        .token_file
        .take()
        .map_or(Source::None, |path| Source::file(PathBuf::from(path))))
}
