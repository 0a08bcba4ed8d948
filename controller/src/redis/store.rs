//! Redis itself: where it is, and what Argo CD calls things there.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::ArgAction;
use flate2::Compression;
use flate2::write::GzEncoder;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo, TlsCertificates,
};

/// The version of Argo CD's entries, at the end of each key.
const CACHE_VERSION: &str = "1.8.3";
/// How long a cluster's state stands without being told anew. Argo CD's `clusterInfoCacheExpiration`.
const CLUSTER_EXPIRATION: Duration = Duration::from_secs(600);
/// A call that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Flags of Redis. Names, defaults and environment twins are Argo CD's; without an address nothing is written.
#[derive(Clone, Debug, clap::Args)]
pub struct Flags {
    /// Redis, `host:port`, that Argo CD's own API server reads trees from; without it nothing is written there. User and
    /// password are taken from `REDIS_USERNAME` and `REDIS_PASSWORD`.
    #[arg(long, env = "REDIS_SERVER", default_value = "")]
    pub redis: String,
    /// Number of its database.
    #[arg(long, env = "REDISDB", default_value_t = 0)]
    pub redisdb: i64,
    /// User of Redis.
    #[arg(long, env = "REDIS_USERNAME", default_value = "", hide = true)]
    pub redis_username: String,
    /// Password of Redis.
    #[arg(
        long,
        env = "REDIS_PASSWORD",
        default_value = "",
        hide = true,
        hide_env_values = true
    )]
    pub redis_password: String,
    /// How values are compressed: gzip or none.
    #[arg(long, env = "REDIS_COMPRESSION", value_enum, default_value_t = Compress::Gzip)]
    pub redis_compress: Compress,
    /// What stands before every key.
    #[arg(long, env = "REDIS_KEY_PREFIX", default_value = "")]
    pub redis_key_prefix: String,
    /// Speak TLS to Redis.
    #[arg(long, action = ArgAction::SetTrue)]
    pub redis_use_tls: bool,
    /// Take any certificate of Redis.
    #[arg(long, action = ArgAction::SetTrue)]
    pub redis_insecure_skip_tls_verify: bool,
    /// Certificates that that of Redis is verified with, in PEM [default: the system's].
    #[arg(long)]
    pub redis_ca_certificate: Option<PathBuf>,
    /// Our own certificate for Redis, in PEM.
    #[arg(long, requires = "redis_client_key")]
    pub redis_client_certificate: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, requires = "redis_client_certificate")]
    pub redis_client_key: Option<PathBuf>,
    /// How long an Application's state stands in Redis without being told anew.
    #[arg(long, env = "ARGOCD_APP_STATE_CACHE_EXPIRATION", default_value = "1h", value_parser = crate::args::duration)]
    pub app_state_cache_expiration: Duration,
}

/// `--redis-compress`
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Compress {
    /// Argo CD's default.
    Gzip,
    /// As it is.
    None,
}

/// Argo CD's entries in one Redis.
pub(super) struct Store {
    connection: ConnectionManager,
    prefix: String,
    compress: Compress,
    app_expiration: Duration,
}

impl Store {
    /// Connects at the first write, and again whenever the connection breaks.
    pub(super) fn new(flags: &Flags) -> anyhow::Result<Option<Self>> {
        if flags.redis.is_empty() {
            return Ok(None);
        }
        let client = client(flags)
            .with_context(|| format!("prepare to write to Redis at {} (--redis)", flags.redis))?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(TIMEOUT))
            .set_response_timeout(Some(TIMEOUT))
            // The caller tries again; a write that hangs on to a broken connection holds up the others.
            .set_number_of_retries(1);
        Ok(Some(Store {
            connection: ConnectionManager::new_lazy_with_config(client, config)?,
            prefix: match flags.redis_key_prefix.as_str() {
                "" => String::new(),
                prefix => format!("{prefix}|"),
            },
            compress: flags.redis_compress,
            app_expiration: flags.app_state_cache_expiration,
        }))
    }

    /// How long an Application's state stands.
    pub(super) fn app_expiration(&self) -> Duration {
        self.app_expiration
    }

    /// Writes an Application's tree and managed resources, both as JSON, and tells who listens.
    pub(super) async fn application(
        &self,
        instance: &str,
        tree: &[u8],
        managed: &[u8],
    ) -> anyhow::Result<()> {
        let seconds = self.app_expiration.as_secs().max(1);
        let managed_key = self.name(&managed_resources(instance));
        redis::pipe()
            .atomic()
            .set_ex(
                self.key(&managed_resources(instance)),
                self.value(managed)?,
                seconds,
            )
            .ignore()
            .set_ex(self.key(&resources_tree(instance)), self.value(tree)?, seconds)
            .ignore()
            .publish(managed_key, "")
            .ignore()
            .query_async::<()>(&mut self.connection.clone())
            .await
            .with_context(|| format!("write the tree of {instance}"))
    }

    /// Removes what was written of an Application.
    pub(super) async fn forget(&self, instance: &str) -> anyhow::Result<()> {
        redis::pipe()
            .del(self.key(&managed_resources(instance)))
            .ignore()
            .del(self.key(&resources_tree(instance)))
            .ignore()
            .publish(self.name(&managed_resources(instance)), "")
            .ignore()
            .query_async::<()>(&mut self.connection.clone())
            .await
            .with_context(|| format!("remove the tree of {instance}"))
    }

    /// Writes how a cluster is, as JSON.
    pub(super) async fn cluster(&self, server: &str, info: &[u8]) -> anyhow::Result<()> {
        redis::cmd("SETEX")
            .arg(self.key(&format!("cluster|info|{server}")))
            .arg(CLUSTER_EXPIRATION.as_secs())
            .arg(self.value(info)?)
            .query_async::<()>(&mut self.connection.clone())
            .await
            .with_context(|| format!("write the state of cluster {server}"))
    }

    /// A name with prefix and version: channels are called so.
    fn name(&self, name: &str) -> String {
        format!("{}{name}|{CACHE_VERSION}", self.prefix)
    }

    fn key(&self, name: &str) -> String {
        let name = self.name(name);
        match self.compress {
            Compress::Gzip => format!("{name}.gz"),
            Compress::None => name,
        }
    }

    fn value(&self, json: &[u8]) -> anyhow::Result<Vec<u8>> {
        match self.compress {
            Compress::None => Ok(json.to_vec()),
            Compress::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(json)?;
                Ok(encoder.finish()?)
            }
        }
    }
}

fn managed_resources(instance: &str) -> String {
    format!("app|managed-resources|{instance}")
}

fn resources_tree(instance: &str) -> String {
    format!("app|resources-tree|{instance}")
}

fn client(flags: &Flags) -> anyhow::Result<Client> {
    let Some((host, port)) = flags.redis.rsplit_once(':') else {
        bail!("the address has no port: write it as host:port");
    };
    let port = port.parse().context("the port is not a number")?;
    let host = host.trim_matches(['[', ']']).to_owned();
    let mut login = RedisConnectionInfo::default().set_db(flags.redisdb);
    if !flags.redis_username.is_empty() {
        login = login.set_username(&flags.redis_username);
    }
    if !flags.redis_password.is_empty() {
        login = login.set_password(&flags.redis_password);
    }
    if !flags.redis_use_tls {
        let address = ConnectionAddr::Tcp(host, port).into_connection_info()?;
        return Ok(Client::open(address.set_redis_settings(login))?);
    }
    let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("read {}", path.display()));
    let address = ConnectionAddr::TcpTls {
        host,
        port,
        insecure: flags.redis_insecure_skip_tls_verify,
        tls_params: None,
    };
    let certificates = TlsCertificates {
        client_tls: match (&flags.redis_client_certificate, &flags.redis_client_key) {
            (Some(certificate), Some(key)) => Some(ClientTlsConfig {
                client_cert: read(certificate)?,
                client_key: read(key)?,
            }),
            _ => None,
        },
        root_cert: flags.redis_ca_certificate.as_ref().map(read).transpose()?,
    };
    let address = address.into_connection_info()?.set_redis_settings(login);
    Ok(Client::build_with_tls(address, certificates)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        flags: Flags,
    }

    fn store(args: &[&str]) -> anyhow::Result<Option<Store>> {
        Store::new(&Command::parse_from([&["test"], args].concat()).flags)
    }

    #[tokio::test]
    async fn names_are_those_of_argo_cd() {
        let plain = store(&["--redis=localhost:6379"]).unwrap().unwrap();
        assert_eq!(
            plain.key(&resources_tree("shop")),
            "app|resources-tree|shop|1.8.3.gz"
        );
        assert_eq!(
            plain.name(&managed_resources("team_shop")),
            "app|managed-resources|team_shop|1.8.3"
        );
        let args = [
            "--redis=localhost:6379",
            "--redis-compress=none",
            "--redis-key-prefix=blue",
        ];
        let prefixed = store(&args).unwrap().unwrap();
        assert_eq!(
            prefixed.key("cluster|info|https://one"),
            "blue|cluster|info|https://one|1.8.3"
        );
    }

    #[tokio::test]
    async fn without_an_address_nothing_is_written_and_a_wrong_one_is_said() {
        assert!(store(&[]).unwrap().is_none());
        let error = store(&["--redis=argocd-redis"]).err().unwrap();
        let text = format!("{error:#}");
        assert!(
            text.contains("argocd-redis (--redis)") && text.contains("host:port"),
            "{text}"
        );
    }
}
