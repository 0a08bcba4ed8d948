//! The server's flags. Names, defaults and environment twins are Argo CD's, where it has the flag.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use argosy_peers::{Component, Live, Mutual};
use argosy_repo_client::Tls;
use argosy_runtime::args;
use clap::ArgAction;

/// Prefix of the environment twins of shared flags.
pub(crate) const ENV_PREFIX: &str = "ARGOCD_SERVER";
/// Where metrics are served unless told otherwise.
pub(crate) const METRICS_PORT: u16 = 8083;

/// Flags of `argosy server`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Namespace of the control plane [default: the kubeconfig's, or the pod's].
    #[arg(long, short = 'n', env = "ARGOCD_NAMESPACE")]
    pub namespace: Option<String>,
    /// Kubeconfig of the control plane's cluster; in a pod its service account is used.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long)]
    pub context: Option<String>,

    /// Address to listen on.
    #[arg(long, env = "ARGOCD_SERVER_LISTEN_ADDRESS", default_value = "0.0.0.0")]
    pub address: IpAddr,
    /// Port of gRPC, gRPC-web and REST; 0 takes any free one.
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Serve without TLS.
    #[arg(long, env = "ARGOCD_SERVER_INSECURE", action = ArgAction::SetTrue)]
    pub insecure: bool,
    /// Ask nobody who they are: everybody is an administrator.
    #[arg(long, env = "ARGOCD_SERVER_DISABLE_AUTH", action = ArgAction::SetTrue)]
    pub disable_auth: bool,
    /// Path that stands before all others, for a proxy that does not take it away.
    #[arg(long, env = "ARGOCD_SERVER_ROOTPATH", default_value = "")]
    pub rootpath: String,
    /// Content types of requests that change something; empty for any.
    #[arg(
        long,
        env = "ARGOCD_API_CONTENT_TYPES",
        default_value = "application/json",
        value_delimiter = ';'
    )]
    pub api_content_types: Vec<String>,
    /// Value of the header X-Frame-Options; empty leaves it away.
    #[arg(long, env = "ARGOCD_SERVER_X_FRAME_OPTIONS", default_value = "sameorigin")]
    pub x_frame_options: String,
    /// Value of the header Content-Security-Policy; empty leaves it away.
    #[arg(
        long,
        env = "ARGOCD_SERVER_CONTENT_SECURITY_POLICY",
        default_value = "frame-ancestors 'self';"
    )]
    pub content_security_policy: String,
    /// Largest message of gRPC, in MB.
    #[arg(long, env = "ARGOCD_GRPC_MAX_SIZE_MB", default_value_t = 200)]
    pub grpc_max_size: usize,
    /// Let syncs replace objects.
    #[arg(long, env = "ARGOCD_SYNC_WITH_REPLACE_ALLOWED", default_value_t = true, action = ArgAction::Set)]
    pub sync_with_replace_allowed: bool,
    /// Logins looked at at the same time.
    #[arg(
        long,
        env = "ARGOCD_MAX_CONCURRENT_LOGIN_REQUESTS_COUNT",
        default_value_t = 50
    )]
    pub max_concurrent_logins: usize,

    /// Addresses of the controllers that tell live state; empty where there are none but Argo CD's.
    #[arg(
        long,
        env = "ARGOCD_SERVER_CONTROLLER",
        default_value = "argocd-application-controller:8085",
        value_delimiter = ','
    )]
    pub controller: Vec<String>,
    /// Speak to the controllers without TLS.
    #[arg(long, env = "ARGOCD_SERVER_CONTROLLER_PLAINTEXT", action = ArgAction::SetTrue)]
    pub controller_plaintext: bool,

    /// Redis flags: where Argo CD's controller writes live state of clusters that no controller of ours looks after.
    #[command(flatten)]
    pub redis: argosy_redis::entries::Flags,

    /// Address of the repo-server.
    #[arg(
        long,
        env = "ARGOCD_SERVER_REPO_SERVER",
        default_value = "argocd-repo-server:8081"
    )]
    pub repo_server: String,
    /// Find the replicas of the repo-server by the EndpointSlices of the Service that the address names, instead of by DNS.
    #[arg(long, env = "ARGOSY_REPO_SERVER_ENDPOINTS", action = ArgAction::SetTrue)]
    pub repo_server_endpoints: bool,
    /// Speak to the repo-server without TLS.
    #[arg(long, env = "ARGOCD_SERVER_REPO_SERVER_PLAINTEXT", action = ArgAction::SetTrue)]
    pub repo_server_plaintext: bool,
    /// Verify the repo-server's certificate.
    #[arg(long, env = "ARGOCD_SERVER_REPO_SERVER_STRICT_TLS", action = ArgAction::SetTrue)]
    pub repo_server_strict_tls: bool,
    /// Certificates that the repo-server's is verified with, in PEM: who names them wants it verified. Without it
    /// `--repo-server-strict-tls` looks at `/app/config/server/tls/ca.crt`.
    #[arg(long, env = "ARGOCD_SERVER_REPO_SERVER_CA_CERT_PATH")]
    pub repo_server_ca_cert_path: Option<PathBuf>,
    /// Our certificate for a repo-server that asks who calls, in PEM; where the file is not there, the one that is kept is shown.
    #[arg(
        long,
        env = "ARGOCD_SERVER_REPO_SERVER_CLIENT_CERT_PATH",
        default_value = "/app/config/reposerver/mtls/client.crt"
    )]
    pub repo_server_client_cert_path: PathBuf,
    /// The key of that certificate.
    #[arg(
        long,
        env = "ARGOCD_SERVER_REPO_SERVER_CLIENT_CERT_KEY_PATH",
        default_value = "/app/config/reposerver/mtls/client.key"
    )]
    pub repo_server_client_cert_key_path: PathBuf,
    /// Certificates among the components: `required` and `optional` keep them in Secrets (they differ in whether a caller that
    /// shows none is served), `off` keeps none.
    #[arg(long, env = "ARGOSY_MUTUAL_TLS", default_value_t = Mutual::Required)]
    pub mutual_tls: Mutual,
    /// Seconds a call to the repo-server may last.
    #[arg(long, env = "ARGOCD_SERVER_REPO_SERVER_TIMEOUT_SECONDS", default_value_t = 60)]
    pub repo_server_timeout_seconds: u64,

    /// Namespaces besides the control plane's that Applications may live in: globs or `/regular expressions/`.
    #[arg(long, env = "ARGOCD_APPLICATION_NAMESPACES", value_delimiter = ',')]
    pub application_namespaces: Vec<String>,
    /// Run the credential programs that cluster Secrets name. Whoever may write such a Secret may then run programs here.
    #[arg(long, env = "ARGOCD_SERVER_ALLOW_EXEC_CREDENTIALS", action = ArgAction::SetTrue)]
    pub allow_exec_credentials: bool,

    /// Log flags.
    #[command(flatten)]
    pub log: args::Log,
    /// Metrics flags.
    #[command(flatten)]
    pub metrics: args::Metrics,
}

impl Args {
    /// How the repo-server is reached.
    pub(crate) fn repo_server(&self) -> argosy_repo_client::Flags {
        argosy_repo_client::Flags {
            address: self.repo_server.clone(),
            plaintext: self.repo_server_plaintext,
            strict: self.repo_server_strict_tls,
            authority: self.repo_server_ca_cert_path.clone(),
            usual_authority: "/app/config/server/tls/ca.crt",
            certificate: self.repo_server_client_cert_path.clone(),
            key: self.repo_server_client_cert_key_path.clone(),
            timeout: Duration::from_secs(self.repo_server_timeout_seconds),
        }
    }

    /// How the controllers are reached.
    pub(crate) fn controller_tls(&self, live: &Arc<Live>) -> Tls {
        if self.controller_plaintext {
            return Tls::Plaintext;
        }
        Tls::Component {
            authority: live.clone(),
            identity: live.clone(),
            component: Component::Controller,
        }
    }
}
