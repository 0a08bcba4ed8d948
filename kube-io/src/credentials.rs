//! The `Authorization` header of a request, from wherever it comes, shared by all connections to one server.

use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use http::HeaderValue;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::{self, Error};

/// A token file is read again after this time; the kubelet rotates tokens long before they end.
const TOKEN_FILE_AGE_MAX: Duration = Duration::from_secs(60);
/// Credentials of a plugin are replaced so long before they end.
const EXPIRY_MARGIN: Duration = Duration::from_secs(60);
/// The longest run of a credential plugin.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);

/// A program that prints credentials (client-go's exec protocol).
#[derive(Clone)]
pub(crate) struct ExecPlugin {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// Such as `client.authentication.k8s.io/v1beta1`.
    pub(crate) api_version: String,
    pub(crate) install_hint: String,
    /// What the plugin is told about the cluster, if it wants to know.
    pub(crate) cluster: Option<Value>,
}

/// What a plugin printed.
#[derive(Clone)]
pub(crate) struct Obtained {
    header: Option<HeaderValue>,
    /// PEM certificate and key.
    pub(crate) identity: Option<(String, String)>,
    pub(crate) expires: Option<Timestamp>,
}

/// Where the header comes from. Clones share what was obtained.
#[derive(Clone)]
pub(crate) enum Source {
    None,
    Static(HeaderValue),
    File(Arc<FileToken>),
    Exec(Arc<Exec>),
}

pub(crate) struct FileToken {
    path: PathBuf,
    read: Mutex<Option<(Instant, HeaderValue)>>,
}

pub(crate) struct Exec {
    plugin: ExecPlugin,
    obtained: Mutex<Option<Obtained>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::None => f.write_str("none"),
            Source::Static(_) => f.write_str("static"),
            Source::File(file) => write!(f, "file {}", file.path.display()),
            Source::Exec(exec) => write!(f, "plugin {}", exec.plugin.command),
        }
    }
}

impl Source {
    pub(crate) fn basic(server: &str, user: &str, password: &str) -> Result<Self, Error> {
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        header(&format!("Basic {pair}"))
            .map(Source::Static)
            .map_err(|message| Error::Config {
                server: server.to_owned(),
                message,
            })
    }

    pub(crate) fn bearer(server: &str, token: &str) -> Result<Self, Error> {
        header(&format!("Bearer {}", token.trim()))
            .map(Source::Static)
            .map_err(|message| Error::Config {
                server: server.to_owned(),
                message,
            })
    }

    pub(crate) fn file(path: PathBuf) -> Self {
        Source::File(Arc::new(FileToken {
            path,
            read: Mutex::new(None),
        }))
    }

    pub(crate) fn exec(plugin: ExecPlugin) -> Self {
        Source::Exec(Arc::new(Exec {
            plugin,
            obtained: Mutex::new(None),
        }))
    }

    /// The header for a request that leaves now.
    pub(crate) async fn header(&self, server: &str) -> Result<Option<HeaderValue>, Error> {
        match self {
            Source::None => Ok(None),
            Source::Static(header) => Ok(Some(header.clone())),
            Source::File(file) => file.header(server).await.map(Some),
            Source::Exec(exec) => exec.obtain(server).await.map(|obtained| obtained.header),
        }
    }

    /// The client certificate that a plugin gives, and when it ends.
    pub(crate) async fn identity(&self, server: &str) -> Result<Option<Obtained>, Error> {
        match self {
            Source::Exec(exec) => exec.obtain(server).await.map(Some),
            _ => Ok(None),
        }
    }

    /// Forgets what was obtained, because the server did not accept it. Says whether asking again can help.
    pub(crate) async fn forget(&self) -> bool {
        match self {
            Source::None | Source::Static(_) => false,
            Source::File(file) => file.read.lock().await.take().is_some(),
            Source::Exec(exec) => exec.obtained.lock().await.take().is_some(),
        }
    }
}

fn header(text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| "the token or password has characters that HTTP headers cannot hold".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

impl FileToken {
    async fn header(&self, server: &str) -> Result<HeaderValue, Error> {
        let fail = |message: String| Error::Credentials {
            server: server.to_owned(),
            message,
        };
        let mut read = self.read.lock().await;
        if let Some((at, value)) = &*read
            && at.elapsed() < TOKEN_FILE_AGE_MAX
        {
            return Ok(value.clone());
        }
        match tokio::fs::read_to_string(&self.path).await {
            Ok(token) => {
                let value = header(&format!("Bearer {}", token.trim())).map_err(fail)?;
                *read = Some((Instant::now(), value.clone()));
                Ok(value)
            }
            // The last token serves on: it may well be accepted still.
            Err(error) => match &*read {
                Some((_, value)) => Ok(value.clone()),
                None => Err(fail(format!("read {}: {error}", self.path.display()))),
            },
        }
    }
}

impl Exec {
    async fn obtain(&self, server: &str) -> Result<Obtained, Error> {
        let mut obtained = self.obtained.lock().await;
        if let Some(known) = &*obtained
            && known
                .expires
                .is_none_or(|end| end > Timestamp::now() + EXPIRY_MARGIN)
        {
            return Ok(known.clone());
        }
        let fresh = self.run(server).await?;
        *obtained = Some(fresh.clone());
        Ok(fresh)
    }

    async fn run(&self, server: &str) -> Result<Obtained, Error> {
        let plugin = &self.plugin;
        let fail = |message: String| Error::Credentials {
            server: server.to_owned(),
            message,
        };
        let mut spec = json!({ "interactive": false });
        if let Some(cluster) = &plugin.cluster {
            spec["cluster"] = cluster.clone();
        }
        let info = json!({ "apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec });
        let run = tokio::process::Command::new(&plugin.command)
            .args(&plugin.args)
            .envs(plugin.env.iter().map(|(name, value)| (name, value)))
            .env("KUBERNETES_EXEC_INFO", info.to_string())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = match tokio::time::timeout(PLUGIN_TIMEOUT, run).await {
            Err(_) => {
                return Err(fail(format!(
                    "run {}: not done after {}s",
                    plugin.command,
                    PLUGIN_TIMEOUT.as_secs()
                )));
            }
            Ok(Err(error)) => {
                let hint = if plugin.install_hint.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", plugin.install_hint.trim())
                };
                return Err(fail(format!("run {}: {error}{hint}", plugin.command)));
            }
            Ok(Ok(output)) => output,
        };
        if !output.status.success() {
            let said: String = String::from_utf8_lossy(&output.stderr)
                .trim()
                .chars()
                .take(500)
                .collect();
            return Err(fail(format!("run {}: {}: {said}", plugin.command, output.status)));
        }
        read_credential(&output.stdout).map_err(|message| fail(format!("run {}: {message}", plugin.command)))
    }
}

fn read_credential(stdout: &[u8]) -> Result<Obtained, String> {
    #[derive(Deserialize)]
    struct Wire {
        status: Option<WireStatus>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct WireStatus {
        token: String,
        client_certificate_data: String,
        client_key_data: String,
        expiration_timestamp: Option<String>,
    }
    let wire: Wire = serde_json::from_slice(stdout)
        .map_err(|error| format!("its output is no ExecCredential: {error}"))?;
    let status = wire.status.ok_or("its output has no status")?;
    let expires = match &status.expiration_timestamp {
        None => None,
        Some(text) => Some(
            text.parse::<Timestamp>()
                .map_err(|error| format!("read expirationTimestamp: {}", error::chain(&error)))?,
        ),
    };
    let token = if status.token.is_empty() {
        None
    } else {
        Some(header(&format!("Bearer {}", status.token))?)
    };
    let identity = (!status.client_certificate_data.is_empty())
        .then_some((status.client_certificate_data, status.client_key_data));
    if token.is_none() && identity.is_none() {
        return Err("it gave neither a token nor a client certificate".to_owned());
    }
    Ok(Obtained {
        header: token,
        identity,
        expires,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn script(text: &str) -> Source {
        Source::exec(ExecPlugin {
            command: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), text.to_owned()],
            env: vec![("GIVEN".to_owned(), "from-the-secret".to_owned())],
            api_version: "client.authentication.k8s.io/v1".to_owned(),
            install_hint: String::new(),
            cluster: Some(json!({ "server": "https://example.com" })),
        })
    }

    #[tokio::test]
    async fn a_plugins_token_is_asked_for_once_while_it_is_good() {
        let file = std::env::temp_dir().join(format!("argosy-plugin-{}", std::process::id()));
        let source = script(&format!(
            r#"echo run >> {0}; echo '{{"status":{{"token":"'$GIVEN'","expirationTimestamp":"2999-01-01T00:00:00Z"}}}}'"#,
            file.display()
        ));
        for _ in 0..3 {
            let header = source.header("s").await.unwrap().unwrap();
            assert_eq!(header.to_str().unwrap(), "Bearer from-the-secret");
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "run\n");
        assert!(source.forget().await);
        source.header("s").await.unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "run\nrun\n");
        std::fs::remove_file(&file).unwrap();
    }

    #[tokio::test]
    async fn a_plugin_sees_the_cluster_and_is_never_interactive() {
        let source = script(
            r#"case "$KUBERNETES_EXEC_INFO" in *'"interactive":false'*example.com*|*example.com*'"interactive":false'*) echo '{"status":{"token":"ok"}}';; *) exit 3;; esac"#,
        );
        assert!(source.header("s").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn what_a_failing_plugin_says_is_in_the_error() {
        let error = script("echo 'session ended, log in again' >&2; exit 1")
            .header("s")
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("session ended, log in again"),
            "{error}"
        );
    }

    #[test]
    fn secrets_do_not_print() {
        let source = Source::bearer("s", "topsecret").unwrap();
        assert!(!format!("{source:?}").contains("topsecret"));
        let Source::Static(header) = &source else {
            panic!("a bearer token is static")
        };
        assert!(!format!("{header:?}").contains("topsecret"));
    }
}
