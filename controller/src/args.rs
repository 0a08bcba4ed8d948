//! The controller's flags. Names, defaults and environment twins are Argo CD's.

use std::path::PathBuf;
use std::time::Duration;

use argosy_peers::Mutual;
use argosy_runtime::args;
use argosy_sync::autosync::SelfHealBackoff;
use clap::ArgAction;

use crate::context::Options;

/// Prefix of the environment twins of shared flags.
pub(crate) const ENV_PREFIX: &str = "ARGOCD_APPLICATION_CONTROLLER";
/// Where metrics are served unless told otherwise.
pub(crate) const METRICS_PORT: u16 = 8082;

/// Flags of `argosy controller`.
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

    /// Address of the repo-server; a name with several addresses is spread over.
    #[arg(
        long,
        env = "ARGOCD_APPLICATION_CONTROLLER_REPO_SERVER",
        default_value = "argocd-repo-server:8081"
    )]
    pub repo_server: String,
    /// Find the replicas of the repo-server by the EndpointSlices of the Service that the address names, instead of by DNS.
    #[arg(long, env = "ARGOSY_REPO_SERVER_ENDPOINTS", action = ArgAction::SetTrue)]
    pub repo_server_endpoints: bool,
    /// Speak to the repo-server without TLS.
    #[arg(long, env = "ARGOCD_APPLICATION_CONTROLLER_REPO_SERVER_PLAINTEXT", action = ArgAction::SetTrue)]
    pub repo_server_plaintext: bool,
    /// Verify the repo-server's certificate.
    #[arg(long, env = "ARGOCD_APPLICATION_CONTROLLER_REPO_SERVER_STRICT_TLS", action = ArgAction::SetTrue)]
    pub repo_server_strict_tls: bool,
    /// Certificates that the repo-server's is verified with, in PEM: who names them wants it verified. Without it
    /// `--repo-server-strict-tls` looks at `/app/config/controller/tls/ca.crt`.
    #[arg(long, env = "ARGOCD_APPLICATION_CONTROLLER_REPO_SERVER_CA_CERT_PATH")]
    pub repo_server_ca_cert_path: Option<PathBuf>,
    /// Our certificate for a repo-server that asks who calls, in PEM; where the file is not there, the one that is kept is shown.
    #[arg(
        long,
        env = "ARGOCD_APPLICATION_CONTROLLER_REPO_SERVER_CLIENT_CERT_PATH",
        default_value = "/app/config/reposerver/mtls/client.crt"
    )]
    pub repo_server_client_cert_path: PathBuf,
    /// The key of that certificate.
    #[arg(
        long,
        env = "ARGOCD_APPLICATION_CONTROLLER_REPO_SERVER_CLIENT_CERT_KEY_PATH",
        default_value = "/app/config/reposerver/mtls/client.key"
    )]
    pub repo_server_client_cert_key_path: PathBuf,
    /// Certificates among the components: `required` and `optional` keep them in Secrets (they differ in whether a caller that
    /// shows none is served), `off` keeps none.
    #[arg(long, env = "ARGOSY_MUTUAL_TLS", default_value_t = Mutual::Required)]
    pub mutual_tls: Mutual,
    /// Seconds a call to the repo-server may last.
    #[arg(
        long,
        env = "ARGOCD_APPLICATION_CONTROLLER_REPO_SERVER_TIMEOUT_SECONDS",
        default_value_t = 60
    )]
    pub repo_server_timeout_seconds: u64,
    /// Seconds for which an error of the repo-server leaves the old status standing.
    #[arg(long, env = "ARGOCD_REPO_ERROR_GRACE_PERIOD_SECONDS", default_value_t = 180)]
    pub repo_error_grace_period_seconds: u64,

    /// Run the credential programs that cluster Secrets name (`execProviderConfig`, `awsAuthConfig`). Whoever may
    /// write such a Secret may then run programs here.
    #[arg(long, env = "ARGOCD_APPLICATION_CONTROLLER_ALLOW_EXEC_CREDENTIALS", action = ArgAction::SetTrue)]
    pub allow_exec_credentials: bool,

    /// Applications looked at at the same time.
    #[arg(
        long,
        env = "ARGOCD_APPLICATION_CONTROLLER_STATUS_PROCESSORS",
        default_value_t = 20
    )]
    pub status_processors: usize,
    /// Operations at work at the same time.
    #[arg(
        long,
        env = "ARGOCD_APPLICATION_CONTROLLER_OPERATION_PROCESSORS",
        default_value_t = 10
    )]
    pub operation_processors: usize,
    /// Calls to target clusters that one operation has in flight; 0 for no limit.
    #[arg(
        long,
        env = "ARGOCD_APPLICATION_CONTROLLER_KUBECTL_PARALLELISM_LIMIT",
        default_value_t = 20
    )]
    pub kubectl_parallelism_limit: usize,

    /// Time between two looks at an Application that nothing has touched; a number is seconds.
    #[arg(long, env = "ARGOCD_RECONCILIATION_TIMEOUT", default_value = "120s", value_parser = duration)]
    pub app_resync: Duration,
    /// At most so much is added to it.
    #[arg(long, env = "ARGOCD_RECONCILIATION_JITTER", default_value = "60s", value_parser = duration)]
    pub app_resync_jitter: Duration,
    /// Time after which manifests are rendered without the cache; 0 for never.
    #[arg(long, env = "ARGOCD_HARD_RECONCILIATION_TIMEOUT", default_value = "0s", value_parser = duration)]
    pub app_hard_resync: Duration,

    /// Fixed seconds before a self-heal; 0 takes the growing backoff.
    #[arg(
        long,
        env = "ARGOCD_APPLICATION_CONTROLLER_SELF_HEAL_TIMEOUT_SECONDS",
        default_value_t = 0
    )]
    pub self_heal_timeout_seconds: u64,
    /// First pause of the self-heal backoff, in seconds.
    #[arg(
        long,
        env = "ARGOCD_APPLICATION_CONTROLLER_SELF_HEAL_BACKOFF_TIMEOUT_SECONDS",
        default_value_t = 2
    )]
    pub self_heal_backoff_timeout_seconds: u64,
    /// Factor of the self-heal backoff.
    #[arg(
        long,
        env = "ARGOCD_APPLICATION_CONTROLLER_SELF_HEAL_BACKOFF_FACTOR",
        default_value_t = 3
    )]
    pub self_heal_backoff_factor: u32,
    /// Longest pause of the self-heal backoff, in seconds.
    #[arg(
        long,
        env = "ARGOCD_APPLICATION_CONTROLLER_SELF_HEAL_BACKOFF_CAP_SECONDS",
        default_value_t = 300
    )]
    pub self_heal_backoff_cap_seconds: u64,

    /// Seconds between two sync waves.
    #[arg(long, env = "ARGOCD_SYNC_WAVE_DELAY", default_value_t = 2)]
    pub sync_wave_delay_seconds: u64,
    /// Seconds after which an operation is terminated; 0 for never.
    #[arg(long, env = "ARGOCD_APPLICATION_CONTROLLER_SYNC_TIMEOUT", default_value_t = 0)]
    pub sync_timeout: u64,

    /// Keep the health of each resource in the Application's status.
    #[arg(long, env = "ARGOCD_APPLICATION_CONTROLLER_PERSIST_RESOURCE_HEALTH", action = ArgAction::SetTrue)]
    pub persist_resource_health: bool,
    /// Compare by server-side dry run unless an Application says otherwise.
    #[arg(long, env = "ARGOCD_APPLICATION_CONTROLLER_SERVER_SIDE_DIFF", action = ArgAction::SetTrue)]
    pub server_side_diff_enabled: bool,

    /// Namespaces besides the control plane's whose Applications are looked after: globs or `/regular expressions/`.
    #[arg(long, env = "ARGOCD_APPLICATION_NAMESPACES", value_delimiter = ',')]
    pub application_namespaces: Vec<String>,
    /// Labels of Applications that become labels of `argocd_app_labels`.
    #[arg(
        long,
        env = "ARGOCD_APPLICATION_CONTROLLER_METRICS_APPLICATION_LABELS",
        value_delimiter = ','
    )]
    pub metrics_application_labels: Vec<String>,
    /// Conditions of Applications that `argocd_app_condition` counts.
    #[arg(
        long,
        env = "ARGOCD_APPLICATION_CONTROLLER_METRICS_APPLICATION_CONDITIONS",
        value_delimiter = ','
    )]
    pub metrics_application_conditions: Vec<String>,

    /// Address on which the API server is told about live state.
    #[arg(
        long,
        env = "ARGOCD_APPLICATION_CONTROLLER_TREE_ADDRESS",
        default_value = "0.0.0.0"
    )]
    pub tree_address: std::net::IpAddr,
    /// Port of the same; 0 tells nobody.
    #[arg(long, env = "ARGOCD_APPLICATION_CONTROLLER_TREE_PORT", default_value_t = 8085)]
    pub tree_port: u16,
    /// Tell it without TLS.
    #[arg(long, env = "ARGOCD_APPLICATION_CONTROLLER_TREE_PLAINTEXT", action = ArgAction::SetTrue)]
    pub tree_plaintext: bool,

    /// Redis flags.
    #[command(flatten)]
    pub redis: crate::redis::Flags,
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
            usual_authority: "/app/config/controller/tls/ca.crt",
            certificate: self.repo_server_client_cert_path.clone(),
            key: self.repo_server_client_cert_key_path.clone(),
            timeout: Duration::from_secs(self.repo_server_timeout_seconds),
        }
    }

    /// The options that stages read.
    pub(crate) fn options(&self, namespace: String) -> Options {
        let seconds = Duration::from_secs;
        Options {
            namespace,
            resync: self.app_resync,
            resync_jitter: self.app_resync_jitter,
            hard_resync: self.app_hard_resync,
            repo_error_grace: seconds(self.repo_error_grace_period_seconds),
            self_heal: SelfHealBackoff {
                fixed: Some(seconds(self.self_heal_timeout_seconds)).filter(|pause| !pause.is_zero()),
                first: seconds(self.self_heal_backoff_timeout_seconds),
                factor: self.self_heal_backoff_factor,
                cap: seconds(self.self_heal_backoff_cap_seconds),
            },
            sync_wave_delay: seconds(self.sync_wave_delay_seconds),
            sync_timeout: seconds(self.sync_timeout),
            kubectl_parallelism: if self.kubectl_parallelism_limit == 0 {
                tokio::sync::Semaphore::MAX_PERMITS
            } else {
                self.kubectl_parallelism_limit
            },
            persist_resource_health: self.persist_resource_health,
            server_side_diff: self.server_side_diff_enabled,
        }
    }
}

/// A Go duration, or a bare number of seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let nanoseconds = argosy_object::duration::parse(text).map_err(|error| error.to_string())?;
    u64::try_from(nanoseconds)
        .map(Duration::from_nanos)
        .map_err(|_| format!("{text} is negative"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn defaults_are_the_peers() {
        let args = Command::try_parse_from(["controller"]).unwrap().args;
        let options = args.options("argocd".into());
        assert_eq!((args.status_processors, args.operation_processors), (20, 10));
        assert_eq!(
            (options.resync.as_secs(), options.resync_jitter.as_secs()),
            (120, 60)
        );
        assert_eq!(options.self_heal, SelfHealBackoff::default());
        assert_eq!(options.repo_error_grace.as_secs(), 180);
        assert_eq!(options.sync_wave_delay.as_secs(), 2);
    }

    #[test]
    fn durations_are_seconds_or_gos() {
        assert_eq!(duration("180"), Ok(Duration::from_secs(180)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert!(duration("-1s").is_err());
        assert!(duration("soon").is_err());
    }
}
