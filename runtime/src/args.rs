//! Arguments that every process takes. Flatten them into the process's own clap struct.
//!
//! Argo CD names the environment twin of a shared flag after the component (`ARGOCD_SERVER_LOG_LEVEL`,
//! `ARGOCD_APPLICATION_CONTROLLER_LOGLEVEL`), so the twins are read by [`Log::resolve`] with the component's prefix
//! and not by clap.

use std::net::{IpAddr, SocketAddr};

use clap::ValueEnum;

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON object a line.
    #[default]
    Json,
    /// `key=value` pairs for people.
    Text,
}

/// From which severity lines are written, in Argo CD's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Every step.
    Trace,
    /// One Application's decisions.
    Debug,
    /// A state of the system changed.
    #[default]
    Info,
    /// Unexpected and handled.
    #[value(alias = "warning")]
    Warn,
    /// Someone should look.
    Error,
}

impl Level {
    /// The name that `tracing` filters know.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Trace => "trace",
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }
}

/// The log flags.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Log {
    /// Format of log lines [default: json; environment: <COMPONENT>_LOGFORMAT].
    #[arg(long = "logformat", value_enum)]
    pub format: Option<Format>,
    /// Lowest level that is logged, or a filter such as `info,argosy_controller=debug` [default: info; environment:
    /// <COMPONENT>_LOGLEVEL].
    #[arg(long = "loglevel")]
    pub level: Option<String>,
}

impl Log {
    /// Flags first, then `<prefix>_LOGFORMAT`/`_LOGLEVEL` (also `_LOG_FORMAT`/`_LOG_LEVEL`), then the defaults.
    pub fn resolve(&self, prefix: &str) -> (Format, String) {
        self.resolve_from(prefix, |name| {
            std::env::var(name).ok().filter(|value| !value.is_empty())
        })
    }

    fn resolve_from(&self, prefix: &str, env: impl Fn(&str) -> Option<String>) -> (Format, String) {
        let twin = |short: &str, long: &str| {
            env(&format!("{prefix}_{short}")).or_else(|| env(&format!("{prefix}_{long}")))
        };
        let format = self
            .format
            .or_else(|| twin("LOGFORMAT", "LOG_FORMAT").and_then(|text| Format::from_str(&text, true).ok()))
            .unwrap_or_default();
        let level = self
            .level
            .clone()
            .or_else(|| twin("LOGLEVEL", "LOG_LEVEL"))
            .map(|text| match Level::from_str(&text, true) {
                Ok(level) => level.as_str().to_owned(),
                Err(_) => text,
            })
            .unwrap_or_else(|| Level::default().as_str().to_owned());
        (format, level)
    }
}

/// The metrics flags.
#[derive(Clone, Debug, clap::Args)]
pub struct Metrics {
    /// Address on which metrics and health are served, with or without a port.
    #[arg(long, default_value = "0.0.0.0")]
    pub metrics_address: Address,
    /// Port of metrics and health, unless the address has one; 0 takes any free one [default: the component's].
    #[arg(long)]
    pub metrics_port: Option<u16>,
}

impl Metrics {
    /// The socket to listen on, when `default_port` is the component's.
    pub fn socket(&self, default_port: u16) -> SocketAddr {
        let Address { ip, port } = self.metrics_address;
        SocketAddr::new(ip, port.or(self.metrics_port).unwrap_or(default_port))
    }
}

/// An IP address, perhaps with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// The port, if one is given.
    pub port: Option<u16>,
}

impl std::str::FromStr for Address {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(socket) = text.parse::<SocketAddr>() {
            return Ok(Address {
                ip: socket.ip(),
                port: Some(socket.port()),
            });
        }
        Ok(Address {
            ip: text.parse()?,
            port: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_bring_its_port() {
        let socket = |address: &str, port| {
            let metrics_address = address.parse().expect("invariant: an address of this test");
            Metrics {
                metrics_address,
                metrics_port: port,
            }
            .socket(8082)
            .to_string()
        };
        assert_eq!(socket("0.0.0.0", None), "0.0.0.0:8082");
        assert_eq!(socket("127.0.0.1", Some(9)), "127.0.0.1:9");
        assert_eq!(socket("127.0.0.1:7", Some(9)), "127.0.0.1:7");
        assert_eq!(socket("[::1]:7", None), "[::1]:7");
    }

    #[test]
    fn flags_win_over_environment_and_environment_over_defaults() {
        let env = |name: &str| match name {
            "ARGOCD_SERVER_LOG_LEVEL" => Some("warning".to_owned()),
            "ARGOCD_SERVER_LOGFORMAT" => Some("text".to_owned()),
            _ => None,
        };
        let none = Log::default();
        assert_eq!(
            none.resolve_from("ARGOCD_SERVER", env),
            (Format::Text, "warn".to_owned())
        );
        assert_eq!(none.resolve_from("OTHER", env), (Format::Json, "info".to_owned()));
        let flags = Log {
            format: Some(Format::Json),
            level: Some("debug".into()),
        };
        assert_eq!(
            flags.resolve_from("ARGOCD_SERVER", env),
            (Format::Json, "debug".to_owned())
        );
    }
}
