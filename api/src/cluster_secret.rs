//! Clusters from the Secrets they are registered with, and how to authenticate to them.

use std::collections::BTreeMap;

use crate::annotation;
use crate::meta::Time;
use crate::v1alpha1::{Cluster, ClusterConfig, TlsClientConfig};

/// URL of the cluster that the control plane runs in.
pub const IN_CLUSTER_SERVER: &str = "https://kubernetes.default.svc";
/// Name of that cluster where no Secret names it.
pub const IN_CLUSTER_NAME: &str = "in-cluster";
/// Value of [`annotation::SECRET_TYPE`].
pub const SECRET_TYPE: &str = "cluster";

/// A cluster Secret, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Registered {
    /// UID of the Secret, by which clusters are sharded.
    pub uid: String,
    /// The cluster.
    pub cluster: Cluster,
    /// The controller leaves this cluster alone.
    pub skip_reconcile: bool,
    /// What could not be read and was passed over.
    pub findings: Vec<String>,
}

/// Why a Secret describes no cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `config` is no ClusterConfig.
    #[error("read config of cluster secret {name}")]
    Config {
        /// Name of the Secret.
        name: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// `server` is empty.
    #[error("read cluster secret {name}: it names no server")]
    NoServer {
        /// Name of the Secret.
        name: String,
    },
}

/// The parts of a Secret that matter here.
#[derive(Debug, Clone, Copy)]
pub struct Secret<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: &'a BTreeMap<String, String>,
    /// Its data, decoded.
    pub data: &'a BTreeMap<String, Vec<u8>>,
}

/// Reads a cluster Secret.
///
/// # Errors
/// When it names no server or its `config` cannot be read. What is merely odd is passed over and named in the findings.
pub fn read(secret: Secret<'_>) -> Result<Registered, Error> {
    let text = |key: &str| String::from_utf8_lossy(secret.data.get(key).map_or(&[][..], Vec::as_slice));
    let mut findings = Vec::new();

    let config = match secret.data.get("config") {
        Some(bytes) if !bytes.is_empty() => {
            serde_json::from_slice(bytes).map_err(|source| Error::Config {
                name: secret.name.to_owned(),
                source,
            })?
        }
        _ => ClusterConfig::default(),
    };
    let server = text("server").trim_end_matches('/').to_owned();
    if server.is_empty() {
        return Err(Error::NoServer {
            name: secret.name.to_owned(),
        });
    }
    let refresh_requested_at = secret.annotations.get(annotation::REFRESH).and_then(|at| {
        Time::parse(at)
            .map_err(|error| findings.push(format!("{}: {error}", annotation::REFRESH)))
            .ok()
    });
    let shard = secret
        .data
        .contains_key("shard")
        .then(|| text("shard"))
        .and_then(|shard| {
            shard
                .parse()
                .map_err(|error| findings.push(format!("shard {shard:?}: {error}")))
                .ok()
        });

    let mut labels = secret.labels.clone();
    labels.remove(annotation::SECRET_TYPE);
    let mut annotations = secret.annotations.clone();
    annotations.remove(annotation::LAST_APPLIED);
    annotations.remove(annotation::MANAGED_BY);

    let skip = secret
        .annotations
        .get(annotation::SKIP_RECONCILE)
        .and_then(|text| annotation::parse_bool(text));
    Ok(Registered {
        uid: secret.uid.to_owned(),
        skip_reconcile: skip == Some(true),
        findings,
        cluster: Cluster {
            server,
            name: text("name").into_owned(),
            namespaces: text("namespaces")
                .split(',')
                .map(str::trim)
                .filter(|n| !n.is_empty())
                .map(str::to_owned)
                .collect(),
            cluster_resources: text("clusterResources") == "true",
            config,
            refresh_requested_at,
            shard,
            project: text("project").into_owned(),
            labels,
            annotations,
            ..Cluster::default()
        },
    })
}

/// The cluster that the control plane runs in, where no Secret describes it.
pub fn in_cluster() -> Cluster {
    Cluster {
        server: IN_CLUSTER_SERVER.to_owned(),
        name: IN_CLUSTER_NAME.to_owned(),
        ..Cluster::default()
    }
}

/// How to authenticate to a cluster.
#[derive(Clone, PartialEq)]
pub enum Auth {
    /// As the service account of the pod, whose files also hold address and certificate authority.
    Pod,
    /// At the pod's own API server, but with these credentials.
    PodWith(Static),
    /// As what a program prints; never asking a person.
    Exec(Exec),
    /// With what the Secret holds.
    Static(Static),
}

/// Credentials that stand in the Secret. Any of them may be empty; a client certificate is in the TLS part.
#[derive(Clone, Default, PartialEq)]
pub struct Static {
    /// For basic authentication.
    pub username: String,
    /// For basic authentication.
    pub password: String,
    /// A token.
    pub bearer_token: String,
}

/// A program that prints an ExecCredential.
#[derive(Debug, Clone, PartialEq)]
pub struct Exec {
    /// The version of `client.authentication.k8s.io` to speak.
    pub api_version: String,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Added to its environment.
    pub env: BTreeMap<String, String>,
    /// Shown where the program is missing.
    pub install_hint: String,
    /// Tell it about the cluster.
    pub provide_cluster_info: bool,
    /// Told with the cluster: JSON.
    pub config: Option<Vec<u8>>,
}

impl std::fmt::Debug for Static {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Static")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pod => f.write_str("Pod"),
            Self::PodWith(credentials) => f.debug_tuple("PodWith").field(credentials).finish(),
            Self::Exec(exec) => f
                .debug_struct("Exec")
                .field("command", &exec.command)
                .finish_non_exhaustive(),
            Self::Static(credentials) => f.debug_tuple("Static").field(credentials).finish(),
        }
    }
}

/// Chooses among the credentials of a cluster: the pod's own for the cluster it runs in, else AWS, else a program, else
/// what stands in the Secret.
pub fn auth(cluster: &Cluster) -> Auth {
    let config = &cluster.config;
    let credentials = Static {
        username: config.username.clone(),
        password: config.password.clone(),
        bearer_token: config.bearer_token.clone(),
    };
    if cluster.server == IN_CLUSTER_SERVER {
        return if credentials == Static::default() {
            Auth::Pod
        } else {
            Auth::PodWith(credentials)
        };
    }
    if let Some(aws) = &config.aws_auth_config {
        let mut args = vec![
            "aws".to_owned(),
            "--cluster-name".to_owned(),
            aws.cluster_name.clone(),
        ];
        for (flag, value) in [("--role-arn", &aws.role_arn), ("--profile", &aws.profile)] {
            if !value.is_empty() {
                args.extend([flag.to_owned(), value.clone()]);
            }
        }
        return Auth::Exec(Exec {
            api_version: "client.authentication.k8s.io/v1beta1".to_owned(),
            command: "argocd-k8s-auth".to_owned(),
            args,
            env: BTreeMap::new(),
            install_hint: String::new(),
            provide_cluster_info: false,
            config: None,
        });
    }
    if let Some(exec) = &config.exec_provider_config {
        return Auth::Exec(Exec {
            api_version: exec.api_version.clone(),
            command: exec.command.clone(),
            args: exec.args.clone(),
            env: exec.env.clone(),
            install_hint: exec.install_hint.clone(),
            provide_cluster_info: exec.provide_cluster_info,
            config: exec
                .config
                .as_ref()
                .map(|config| config.raw.clone())
                .filter(|raw| !raw.is_empty()),
        });
    }
    Auth::Static(credentials)
}

/// How to speak TLS to a cluster; the pod's files stand in where the pod's own credentials do.
pub fn tls(cluster: &Cluster) -> Option<&TlsClientConfig> {
    (cluster.server != IN_CLUSTER_SERVER).then_some(&cluster.config.tls_client_config)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read_data(pairs: &[(&str, &str)]) -> Result<Registered, Error> {
        let data = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
            .collect();
        let labels = BTreeMap::from([
            (annotation::SECRET_TYPE.to_owned(), "cluster".to_owned()),
            ("tier".to_owned(), "prod".to_owned()),
        ]);
        let annotations = BTreeMap::from([
            (annotation::REFRESH.to_owned(), "2026-01-02T03:04:05Z".to_owned()),
            (
                annotation::MANAGED_BY.to_owned(),
                annotation::MANAGED_BY_ARGOCD.to_owned(),
            ),
            (annotation::SKIP_RECONCILE.to_owned(), "T".to_owned()),
        ]);
        read(Secret {
            name: "cluster-a",
            uid: "u-1",
            labels: &labels,
            annotations: &annotations,
            data: &data,
        })
    }

    #[test]
    fn a_secret_becomes_a_cluster() {
        let found = read_data(&[
            ("name", "prod-eu"),
            ("server", "https://10.0.0.1:6443/"),
            ("namespaces", "shop, billing,"),
            ("clusterResources", "true"),
            ("shard", "2"),
            ("project", "team-a"),
            (
                "config",
                r#"{"bearerToken":"t","tlsClientConfig":{"insecure":false,"caData":"Q0E="}}"#,
            ),
        ])
        .unwrap();
        assert_eq!(found.uid, "u-1");
        assert!(found.skip_reconcile);
        let cluster = found.cluster;
        assert_eq!(cluster.server, "https://10.0.0.1:6443");
        assert_eq!(cluster.namespaces, ["shop", "billing"]);
        assert!(cluster.cluster_resources);
        assert_eq!(cluster.shard, Some(2));
        assert_eq!(
            cluster.labels,
            BTreeMap::from([("tier".to_owned(), "prod".to_owned())])
        );
        assert_eq!(
            cluster.refresh_requested_at.unwrap().to_string(),
            "2026-01-02T03:04:05Z"
        );
        assert!(!cluster.annotations.contains_key(annotation::MANAGED_BY));
        assert_eq!(cluster.config.tls_client_config.ca_data, b"CA");
        assert_eq!(
            auth(&cluster),
            Auth::Static(Static {
                bearer_token: "t".to_owned(),
                ..Static::default()
            })
        );
    }

    #[test]
    fn an_odd_shard_is_a_finding_and_an_odd_config_an_error() {
        let found = read_data(&[("server", "https://a"), ("shard", "two")]).unwrap();
        assert_eq!(found.cluster.shard, None);
        assert_eq!(found.findings.len(), 1);
        let error = read_data(&[("server", "https://a"), ("config", "{")]).unwrap_err();
        assert_eq!(error.to_string(), "read config of cluster secret cluster-a");
        assert!(matches!(read_data(&[]), Err(Error::NoServer { .. })));
    }

    #[test]
    fn the_own_cluster_uses_the_pods_account_unless_told_otherwise() {
        assert_eq!(auth(&in_cluster()), Auth::Pod);
        let mut with = in_cluster();
        with.config.bearer_token = "t".to_owned();
        assert!(matches!(auth(&with), Auth::PodWith(_)));
        assert_eq!(tls(&with), None);
    }

    #[test]
    fn aws_beats_a_program_beats_a_token() {
        let config = r#"{"bearerToken":"t","execProviderConfig":{"command":"login","args":["--x"],"apiVersion":"v1",
            "env":{"A":"b"},"config":{"id":7}},"awsAuthConfig":{"clusterName":"eu","roleARN":"arn:1"},"tlsClientConfig":{}}"#;
        let mut cluster = read_data(&[("server", "https://a"), ("config", config)])
            .unwrap()
            .cluster;
        let Auth::Exec(exec) = auth(&cluster) else {
            panic!("not a program")
        };
        assert_eq!(exec.command, "argocd-k8s-auth");
        assert_eq!(exec.args, ["aws", "--cluster-name", "eu", "--role-arn", "arn:1"]);
        cluster.config.aws_auth_config = None;
        let Auth::Exec(exec) = auth(&cluster) else {
            panic!("not a program")
        };
        assert_eq!(
            (exec.command.as_str(), exec.config.as_deref()),
            ("login", Some(&br#"{"id":7}"#[..]))
        );
    }

    #[test]
    fn credentials_do_not_print() {
        let printed = format!(
            "{:?}",
            Static {
                username: "u".into(),
                password: "p4ss".into(),
                bearer_token: "t0k".into()
            }
        );
        assert!(!printed.contains("p4ss") && !printed.contains("t0k"));
    }
}
