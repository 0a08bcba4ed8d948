//! The certificates of the components, kept in Secrets: made where there are none, renewed long before their end, and taken
//! over by the process that runs here. Every controller and API server does this; whoever comes first makes them, and
//! a write counts only if nobody else has written meanwhile.
//!
//! | Secret | what | read by |
//! |---|---|---|
//! | `argosy-authority` | the authority with its key | whoever keeps |
//! | `argocd-repo-server-mtls` | certificates of the authority, and of clients | the repo-server (mounted, the authority alone), Argo CD's components (mounted), ours |
//! | `argocd-repo-server-tls` | the repo-server's own certificate | the repo-server (mounted) |
//!
//! A Secret of these names that somebody else made is read and left as it is.

use std::sync::Arc;
use std::time::Duration;

use argosy_kube_io::target::Write;
use argosy_kube_io::{Target, api};
use argosy_object::Value;
use argosy_peers::authority::{self, Authority, Data};
use argosy_peers::{Component, Live, Material};
use argosy_runtime::tasks::Tasks;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::civil::Date;
use serde_json::json;

/// Holds the authority.
pub const AUTHORITY: &str = "argosy-authority";
/// Holds what clients show, under Argo CD's name.
pub const CLIENTS: &str = "argocd-repo-server-mtls";
/// Holds what the repo-server shows, under Argo CD's name.
pub const REPO_SERVER: &str = "argocd-repo-server-tls";

/// Secrets are looked at this often.
const LOOK: Duration = Duration::from_secs(30);
/// A start waits at most so long for them.
const START: Duration = Duration::from_secs(10);
/// After a conflict everything is read anew, at most so often: others make the same.
const TRIES: usize = 10;

/// Why certificates could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not let us, or could not be reached.
    #[error("{what} Secret {name}")]
    Secret {
        /// What was attempted.
        what: &'static str,
        /// The Secret.
        name: &'static str,
        /// What it said.
        #[source]
        source: argosy_kube_io::Error,
    },
    /// What a Secret holds cannot be used.
    #[error("use Secret {name}")]
    Content {
        /// The Secret.
        name: &'static str,
        /// What is wrong.
        #[source]
        source: argosy_peers::Error,
    },
    /// Others wrote the same all the time.
    #[error("Secrets of the components are being changed by others all the time")]
    Overtaken,
    /// The API server took its time.
    #[error("no answer within {} s", START.as_secs())]
    Late,
}

/// Keeps the certificates for one process.
pub struct Keeper {
    target: Target,
    namespace: String,
    component: Component,
    live: Arc<Live>,
}

impl Keeper {
    /// For a component of the installation in `namespace`.
    pub fn new(target: Target, namespace: &str, component: Component) -> Keeper {
        Keeper::with(target, namespace, component, Arc::default())
    }

    /// The same, for what somebody holds already.
    pub fn with(target: Target, namespace: &str, component: Component, live: Arc<Live>) -> Keeper {
        Keeper {
            target,
            namespace: namespace.to_owned(),
            component,
            live,
        }
    }

    /// What this process shows and believes: from now on, if the API server answers soon, else from when it does.
    pub async fn start(self, tasks: &Tasks) -> Arc<Live> {
        let mut told = String::new();
        let first = tokio::time::timeout(START, self.keep(today())).await;
        self.tell(first.unwrap_or(Err(Error::Late)), &mut told);
        let live = self.live.clone();
        tasks.spawn("certificates", async move {
            loop {
                // Not all at the same moment: what is due is made by the first of them.
                let spread = LOOK.mul_f64(0.5 + f64::from(std::process::id() % 100) / 100.0);
                tokio::time::sleep(spread).await;
                let kept = self.keep(today()).await;
                self.tell(kept, &mut told);
            }
        });
        live
    }

    fn tell(&self, kept: Result<bool, Error>, told: &mut String) {
        match kept {
            Ok(changed) => {
                told.clear();
                if changed {
                    tracing::info!(component = self.component.name(), "certificates have changed");
                }
            }
            Err(error) => {
                let text = argosy_runtime::log::chain(&error);
                if text != *told {
                    tracing::warn!(
                        error = text,
                        "the certificates of the components cannot be kept; calls between them go on as they are. The \
                         account needs get, create and update of Secrets, or set mutual.tls to off"
                    );
                    *told = text;
                }
            }
        }
    }

    /// Makes what is missing or due, and takes over what there is; gives whether that is something else than before.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn keep(&self, today: Date) -> Result<bool, Error> {
        for _ in 0..TRIES {
            if let Some((clients, other_repo_server)) = self.kept(today).await? {
                self.live.set_other_repo_server(other_repo_server);
                let get = |key: &str| Some(clients.get(key)?.clone().into_bytes());
                let pair = |name: &str| Some((get(&format!("{name}.crt"))?, get(&format!("{name}.key"))?));
                let material = Material {
                    identity: pair(self.component.name()).or_else(|| pair("client")),
                    authority: get("client-ca.crt"),
                };
                return self.live.set(material).map_err(content(CLIENTS));
            }
        }
        Err(Error::Overtaken)
    }

    /// The Secret for clients as it should be, and whether the repo-server's is of somebody else than that; nothing if somebody
    /// wrote meanwhile.
    async fn kept(&self, today: Date) -> Result<Option<(Data, bool)>, Error> {
        let clients = self.read(CLIENTS).await?;
        let server = self.read(REPO_SERVER).await?;
        let others_serve = server.as_ref().map(|secret| authority::is_others(&secret.data));
        if let Some(secret) = clients
            .as_ref()
            .filter(|secret| authority::is_others(&secret.data))
        {
            return Ok(Some((secret.data.clone(), others_serve == Some(false))));
        }
        let kept = self.read(AUTHORITY).await?;
        let authority = match &kept {
            Some(secret) => Authority::read(&secret.data).map_err(content(AUTHORITY))?,
            None => Authority::new(today).map_err(content(AUTHORITY))?,
        };
        let due = authority.due(today).map_err(content(AUTHORITY))?;
        if (kept.is_none() || due.is_some())
            && !self
                .write(
                    AUTHORITY,
                    kept.as_ref(),
                    due.as_ref().unwrap_or(&authority).data(),
                )
                .await?
        {
            return Ok(None);
        }
        let authority = due.unwrap_or(authority);
        let known = server.as_ref().map(|secret| &secret.data);
        let wanted = authority::server_secret(known, &authority, &self.namespace, today);
        if let Some(data) = wanted.map_err(content(REPO_SERVER))?
            && !self.write(REPO_SERVER, server.as_ref(), data).await?
        {
            return Ok(None);
        }
        let other = others_serve == Some(true);
        let known = clients.as_ref().map(|secret| &secret.data);
        match authority::client_secret(known, &authority, today).map_err(content(CLIENTS))? {
            None => Ok(clients.map(|secret| (secret.data, other))),
            Some(data) => {
                let written = self.write(CLIENTS, clients.as_ref(), data.clone()).await?;
                Ok(written.then_some((data, other)))
            }
        }
    }

    async fn read(&self, name: &'static str) -> Result<Option<Secret>, Error> {
        let found = self.target.get(&api::secrets(), &self.namespace, name).await;
        let found = found.map_err(|source| Error::Secret {
            what: "read",
            name,
            source,
        })?;
        Ok(found.map(|document| Secret {
            data: texts(&document),
            document,
        }))
    }

    /// Creates or replaces a Secret; false if somebody was faster.
    async fn write(&self, name: &'static str, old: Option<&Secret>, data: Data) -> Result<bool, Error> {
        let data: serde_json::Map<String, Value> = data
            .into_iter()
            .map(|(key, text)| (key, Value::String(STANDARD.encode(text))))
            .collect();
        let (resource, write) = (api::secrets(), Write::default());
        let written = match old {
            Some(old) => {
                let mut document = old.document.clone();
                document["data"] = Value::Object(data);
                self.target.replace(&resource, &document, &write).await
            }
            None => {
                let document = json!({
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {
                        "name": name,
                        "namespace": self.namespace,
                        "labels": {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "argocd"},
                    },
                    "data": data,
                });
                self.target.create(&resource, &document, &write).await
            }
        };
        match written {
            Ok(_) => {
                tracing::info!(secret = name, "certificates were made");
                Ok(true)
            }
            Err(error) if error.already_exists() || error.conflict() || error.not_found() => Ok(false),
            Err(source) => Err(Error::Secret {
                what: "write",
                name,
                source,
            }),
        }
    }
}

struct Secret {
    document: Value,
    data: Data,
}

fn texts(document: &Value) -> Data {
    let data = document.get("data").and_then(Value::as_object);
    let text = |value: &Value| String::from_utf8(STANDARD.decode(value.as_str()?).ok()?).ok();
    data.into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), text(value)?)))
        .collect()
}

fn content(name: &'static str) -> impl Fn(argosy_peers::Error) -> Error {
    move |source| Error::Content { name, source }
}

fn today() -> Date {
    jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date()
}
