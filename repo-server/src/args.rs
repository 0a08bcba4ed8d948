//! Arguments of the repo-server, under the names and environment twins of Argo CD.

use argosy_peers::Mutual;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

/// Where Argo CD mounts the certificates of those who may call.
pub(crate) const CLIENT_CA: &str = "/app/config/reposerver/mtls/client-ca.crt";

/// Arguments of `argosy repo-server`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// How to log.
    #[command(flatten)]
    pub log: argosy_runtime::args::Log,
    /// Address of the gRPC port.
    #[arg(long, env = "ARGOCD_REPO_SERVER_LISTEN_ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    pub address: IpAddr,
    /// The gRPC port; 0 takes a free one.
    #[arg(long, default_value_t = 8081)]
    pub port: u16,
    /// Address of metrics and health, with or without a port.
    #[arg(
        long,
        env = "ARGOCD_REPO_SERVER_METRICS_LISTEN_ADDRESS",
        default_value = "0.0.0.0"
    )]
    pub metrics_address: argosy_runtime::args::Address,
    /// Port of metrics and health, unless the address has one; 0 takes a free one.
    #[arg(long, default_value_t = 8084)]
    pub metrics_port: u16,
    /// Speak gRPC without TLS.
    #[arg(long, env = "ARGOCD_REPO_SERVER_DISABLE_TLS")]
    pub disable_tls: bool,
    /// Directory with `tls.crt` and `tls.key`; without them a self-signed certificate is made.
    #[arg(
        long,
        env = "ARGOCD_REPO_SERVER_TLS_PATH",
        default_value = "/app/config/reposerver/tls"
    )]
    pub tls_path: PathBuf,
    /// File with certificates of the authorities that clients must be known by. As long as it is not there any client is served;
    /// its folder has to be there, unless it is that of the default.
    #[arg(long, env = "ARGOCD_REPO_SERVER_CLIENT_CA_PATH", default_value = CLIENT_CA)]
    pub client_ca_path: PathBuf,
    /// Whether clients must show a certificate of these authorities: `required`, `optional` (who shows none is served), `off`.
    #[arg(long, env = "ARGOSY_MUTUAL_TLS", default_value_t = Mutual::Required)]
    pub mutual_tls: Mutual,
    /// Requests rendered at once; 0 is no limit.
    #[arg(
        long = "parallelismlimit",
        env = "ARGOCD_REPO_SERVER_PARALLELISM_LIMIT",
        default_value_t = 0
    )]
    pub parallelism_limit: usize,
    /// How long rendered manifests may be used again.
    #[arg(long, env = "ARGOCD_REPO_CACHE_EXPIRATION", value_parser = duration, default_value = "24h")]
    pub repo_cache_expiration: Duration,
    /// How long a resolved branch, tag or range may be used again.
    #[arg(long, env = "ARGOCD_RECONCILIATION_TIMEOUT", value_parser = duration, default_value = "180s")]
    pub revision_cache_expiration: Duration,
    /// Size of the cache of rendered manifests.
    #[arg(long, env = "ARGOSY_REPO_SERVER_MANIFEST_CACHE_SIZE", value_parser = bytes, default_value = "512Mi")]
    pub manifest_cache_size: u64,
    /// Redis flags.
    #[command(flatten)]
    pub redis: crate::shared_cache::Flags,
    /// Where repositories and charts are kept.
    #[arg(long, env = "ARGOSY_REPO_SERVER_CACHE_DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Size of the unpacked charts and trees that are kept for reuse.
    #[arg(long, env = "ARGOSY_REPO_SERVER_TREE_CACHE_SIZE", value_parser = bytes, default_value = "8Gi")]
    pub tree_cache_size: u64,
    /// Size of the fetched repositories that are kept; those that nobody reads and that were unused for longest go first.
    #[arg(long, env = "ARGOSY_REPO_SERVER_GIT_STORE_SIZE", value_parser = bytes, default_value = "16Gi")]
    pub git_store_size: u64,
    /// Combined size of the files of one directory source.
    #[arg(
        long,
        env = "ARGOCD_REPO_SERVER_MAX_COMBINED_DIRECTORY_MANIFESTS_SIZE",
        value_parser = bytes,
        default_value = "10M"
    )]
    pub max_combined_directory_manifests_size: u64,
    /// Extracted size of one chart.
    #[arg(long, env = "ARGOCD_REPO_SERVER_HELM_MANIFEST_MAX_EXTRACTED_SIZE", value_parser = bytes, default_value = "1G")]
    pub helm_manifest_max_extracted_size: u64,
    /// Largest gRPC message, in MB.
    #[arg(long, env = "ARGOCD_GRPC_MAX_SIZE_MB", default_value_t = 100)]
    pub grpc_max_size: usize,
    /// Deadline of listing the refs of a repository.
    #[arg(long, env = "ARGOCD_GIT_REQUEST_TIMEOUT", value_parser = some_time, default_value = "15s")]
    pub git_request_timeout: Duration,
    /// Deadline of one run of a tool or a fetch.
    #[arg(long, env = "ARGOCD_EXEC_TIMEOUT", value_parser = some_time, default_value = "90s")]
    pub exec_timeout: Duration,
    /// Attempts of one request to a git server.
    #[arg(long, env = "ARGOCD_GIT_ATTEMPTS_COUNT", default_value_t = 1)]
    pub git_attempts: u32,
    /// Whether submodules are fetched and read.
    #[arg(
        long = "enable-git-submodule",
        env = "ARGOCD_GIT_MODULES_ENABLED",
        default_value_t = true,
        action = clap::ArgAction::Set
    )]
    pub git_modules_enabled: bool,
    /// Directory of the keys that commits may be signed with, in files named by the keys' long ids.
    #[arg(long, env = "ARGOCD_GPG_DATA_PATH", default_value = "/app/config/gpg/source")]
    pub gpg_data_path: PathBuf,
    /// Whether signatures are verified where a project demands it; if not, what it demands is not looked at.
    #[arg(
        long,
        env = "ARGOCD_GPG_ENABLED",
        default_value_t = true,
        action = clap::ArgAction::Set,
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub gpg_enabled: bool,
    /// Whether directories that begin with a dot are listed.
    #[arg(long, env = "ARGOCD_REPO_SERVER_INCLUDE_HIDDEN_DIRECTORIES")]
    pub include_hidden_directories: bool,
    /// Hosts, addresses and networks that repositories may lie at although they are of this machine or an inner
    /// network; `file://` allows repositories that are directories, `*` everything.
    #[arg(long, env = "ARGOSY_REPO_SERVER_ALLOW_INNER_HOSTS", value_delimiter = ',')]
    pub allow_inner_hosts: Vec<String>,
    /// Directory of the sockets of config management plugins.
    #[arg(
        long,
        env = "ARGOCD_PLUGINSOCKFILEPATH",
        default_value = "/home/argocd/cmp-server/plugins"
    )]
    pub plugin_sockets: PathBuf,
    /// Shell pattern of paths that plugins are not sent; may be given several times, or as one with semicolons.
    #[arg(
        long = "plugin-tar-exclude",
        env = "ARGOCD_REPO_SERVER_PLUGIN_TAR_EXCLUSIONS",
        value_delimiter = ';'
    )]
    pub plugin_tar_exclusions: Vec<String>,
    /// Send plugins only the paths that an Application names by `argocd.argoproj.io/manifest-generate-paths`, and its own.
    #[arg(long, env = "ARGOCD_REPO_SERVER_PLUGIN_USE_MANIFEST_GENERATE_PATHS")]
    pub plugin_use_manifest_generate_paths: bool,
    /// The render worker; without it, the program of that name beside this one.
    #[arg(long, env = "ARGOSY_RENDER_WORKER")]
    pub render_worker: Option<PathBuf>,
    /// The program that fences renders in; without it, the program `argosy-render-child` beside this one, or this one.
    #[arg(long, env = "ARGOSY_RENDER_CHILD")]
    pub render_child: Option<PathBuf>,
    /// Do not start where the kernel cannot fence renders in.
    #[arg(long, env = "ARGOSY_REQUIRE_RENDER_FENCE")]
    pub require_render_fence: bool,
    /// Render workers at once; 0 is one per core.
    #[arg(long, env = "ARGOSY_RENDER_WORKERS", default_value_t = 0)]
    pub render_workers: usize,
    /// Memory of one render worker.
    #[arg(long, env = "ARGOSY_RENDER_WORKER_MEMORY", value_parser = bytes, default_value = "2Gi")]
    pub render_worker_memory: u64,
    /// Memory that all renders together may take, as far as it can be told from their last time; 0 is three quarters of what
    /// the process may have.
    #[arg(long, env = "ARGOSY_RENDER_MEMORY", value_parser = bytes, default_value = "0")]
    pub render_memory: u64,
    /// Renders after which a worker is replaced.
    #[arg(long, env = "ARGOSY_RENDER_WORKER_RENDERS", default_value_t = 1000)]
    pub render_worker_renders: u64,
}

/// Go's durations: `1h30m`, `90s`, `250ms`; a bare number is seconds.
///
/// # Errors
/// A text for people.
pub fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration like 1h30m");
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    if text.is_empty() {
        return Err(bad());
    }
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(bad)?;
        let value: f64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let unit = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        total += value
            * match &rest[..unit] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return Err(bad()),
            };
        rest = &rest[unit..];
    }
    Duration::try_from_secs_f64(total).map_err(|_| bad())
}

/// A duration in which something can be done.
fn some_time(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time.is_zero() {
        return Err("nothing can be done in no time".to_owned());
    }
    Ok(time)
}

/// Quantities: `10M`, `512Mi`, `1G`, plain bytes.
///
/// # Errors
/// A text for people.
pub fn bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a size like 512Mi");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let value: u64 = text[..end].parse().map_err(|_| bad())?;
    let factor: u64 = match &text[end..] {
        "" => 1,
        "k" | "K" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return Err(bad()),
    };
    value.checked_mul(factor).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_those_of_the_reference() {
        assert_eq!(bytes("10M"), Ok(10_000_000));
        assert_eq!(bytes("1Gi"), Ok(1 << 30));
        assert!(bytes("x").is_err());
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("180"), Ok(Duration::from_secs(180)));
        assert!(duration("soon").is_err());
        assert!(duration("").is_err());
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert!(some_time("0s").is_err());
    }
}
