//! The flags that say where Redis is, and connections to it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::ArgAction;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo, RedisResult,
    TlsCertificates,
};

use crate::Error;

/// A connection over which nothing has come for so long is asked whether it still stands: whoever only listens would never
/// learn that the other end has gone without a word.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// And again after so long.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// A connection whose other end has confirmed nothing for so long is broken. Without it a call is the kernel's to send again
/// for a quarter of an hour, and all that come after it wait for nothing.
#[cfg(target_os = "linux")]
const UNCONFIRMED: Duration = Duration::from_secs(10);

/// Where Redis is: `host:port`, or nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address(Option<(String, u16)>);

impl Address {
    /// No Redis is to be used.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Address(None));
        }
        let (host, port) = text
            .rsplit_once(':')
            .ok_or("it has no port: write it as host:port, such as argocd-redis:6379")?;
        let port: u16 = port.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
            format!("{port:?} is no port: write it as host:port, such as argocd-redis:6379")
        })?;
        let bare = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) => inner,
            None if host.contains(':') => {
                return Err("it is more than host:port; an IPv6 address stands in brackets, and schemes are not written".into());
            }
            None => host,
        };
        let is_host = |char: char| char.is_alphanumeric() || matches!(char, '.' | '-' | '_' | ':' | '%');
        if bare.is_empty() || !bare.chars().all(is_host) {
            return Err(format!(
                "{host:?} is no host: write it as host:port, such as argocd-redis:6379"
            ));
        }
        Ok(Address(Some((bare.to_owned(), port))))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => Ok(()),
            Some((host, port)) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Some((host, port)) => write!(f, "{host}:{port}"),
        }
    }
}

/// Flags of a Redis. Names, defaults and environment twins are Argo CD's; without an address none is used.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(id = "redis-connection")]
pub struct Flags {
    /// Redis, `host:port`; without it none is used. User and password are taken from `REDIS_USERNAME` and `REDIS_PASSWORD`.
    #[arg(long, env = "REDIS_SERVER", default_value = "")]
    pub redis: Address,
    /// Number of its database.
    #[arg(long, env = "REDISDB", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
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
}

impl Flags {
    /// A connection that is made at its first use, and again whenever it breaks. Calls that take longer than `patience` have
    /// failed, and are tried again `retries` times. `None` where the flags name no Redis.
    ///
    /// # Errors
    /// When certificates cannot be read.
    pub fn connect(&self, patience: Duration, retries: usize) -> Result<Option<ConnectionManager>, Error> {
        let Some(client) = self.client()? else {
            return Ok(None);
        };
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(patience))
            .set_response_timeout(Some(patience))
            .set_number_of_retries(retries);
        let connection = ConnectionManager::new_lazy_with_config(client, config);
        connection.map(Some).map_err(|source| self.unprepared(source))
    }

    /// For connections that are made one by one. `None` where the flags name no Redis.
    ///
    /// # Errors
    /// When certificates cannot be read.
    pub fn client(&self) -> Result<Option<Client>, Error> {
        let Some((host, port)) = self.redis.0.clone() else {
            return Ok(None);
        };
        let certificates = match self.redis_use_tls {
            true => Some(self.certificates()?),
            false => None,
        };
        let client = self.open(host, port, certificates);
        client.map(Some).map_err(|source| self.unprepared(source))
    }

    fn open(&self, host: String, port: u16, certificates: Option<TlsCertificates>) -> RedisResult<Client> {
        let mut login = RedisConnectionInfo::default().set_db(self.redisdb);
        if !self.redis_username.is_empty() {
            login = login.set_username(&self.redis_username);
        }
        if !self.redis_password.is_empty() {
            login = login.set_password(&self.redis_password);
        }
        let Some(certificates) = certificates else {
            let address = ConnectionAddr::Tcp(host, port).into_connection_info()?;
            return Client::open(address.set_redis_settings(login).set_tcp_settings(tcp_settings()));
        };
        let address = ConnectionAddr::TcpTls {
            host,
            port,
            insecure: self.redis_insecure_skip_tls_verify,
            tls_params: None,
        };
        let address = address
            .into_connection_info()?
            .set_redis_settings(login)
            .set_tcp_settings(tcp_settings());
        Client::build_with_tls(address, certificates)
    }

    fn certificates(&self) -> Result<TlsCertificates, Error> {
        let read = |flag: &'static str, path: &PathBuf| {
            std::fs::read(path).map_err(|source| Error::File {
                flag,
                path: path.clone(),
                source,
            })
        };
        let client_tls = match (&self.redis_client_certificate, &self.redis_client_key) {
            (Some(certificate), Some(key)) => Some(ClientTlsConfig {
                client_cert: read("--redis-client-certificate", certificate)?,
                client_key: read("--redis-client-key", key)?,
            }),
            _ => None,
        };
        let authority = self.redis_ca_certificate.as_ref();
        let root_cert = authority
            .map(|path| read("--redis-ca-certificate", path))
            .transpose()?;
        Ok(TlsCertificates {
            client_tls,
            root_cert,
        })
    }

    fn unprepared(&self, source: redis::RedisError) -> Error {
        Error::Prepare {
            address: self.redis.clone(),
            source,
        }
    }
}

fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE_INTERVAL);
    let settings = TcpSettings::default().set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNCONFIRMED);
    settings
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        flags: Flags,
    }

    #[test]
    fn an_address_is_a_host_and_a_port_or_nothing() {
        for text in ["argocd-redis:6379", "10.0.0.1:6379", "[::1]:6379", ""] {
            let read: Address = text.parse().unwrap();
            assert_eq!(
                (read.to_string().as_str(), read.is_none()),
                (text, text.is_empty())
            );
        }
        for text in [
            "nonsense",
            "argocd-redis",
            "argocd-redis:",
            "argocd-redis:http",
            "argocd-redis:0",
            "argocd-redis:65536",
            ":6379",
            "redis://argocd-redis:6379",
            "::1:6379",
            "[]:6379",
            "argocd redis:6379",
            "user@argocd-redis:6379",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn flags_that_make_no_sense_are_refused_by_name() {
        for (arg, name) in [
            ("--redis=nonsense", "--redis"),
            ("--redisdb=-1", "--redisdb"),
            ("--redisdb=first", "--redisdb"),
            ("--redis-client-key=key.pem", "--redis-client-certificate"),
        ] {
            let error = Command::try_parse_from(["test", arg]).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        let error = Command::try_parse_from(["test", "--redis=nonsense"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("host:port"), "{error}");
    }

    #[test]
    fn a_certificate_that_is_not_there_is_named_with_its_flag() {
        let args = [
            "test",
            "--redis=localhost:6379",
            "--redis-use-tls",
            "--redis-ca-certificate=/nowhere/ca.crt",
        ];
        let flags = Command::parse_from(args).flags;
        let error = flags.client().err().unwrap().to_string();
        assert_eq!(error, "read /nowhere/ca.crt (--redis-ca-certificate)");
    }

    #[test]
    fn every_connection_learns_that_its_other_end_has_gone() {
        for more in [&[][..], &["--redis-use-tls"][..]] {
            let args = [&["test", "--redis=localhost:6379"], more].concat();
            let client = Command::parse_from(args).flags.client().unwrap().unwrap();
            let settings = client.get_connection_info().tcp_settings();
            assert!(settings.keepalive().is_some(), "{more:?}");
            #[cfg(target_os = "linux")]
            assert_eq!(settings.user_timeout(), Some(UNCONFIRMED), "{more:?}");
        }
    }

    #[test]
    fn without_an_address_there_is_no_client() {
        assert!(Command::parse_from(["test"]).flags.client().unwrap().is_none());
    }
}
