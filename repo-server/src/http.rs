//! HTTP for charts and value files: one client per set of credentials, bounded bodies, credentials only to the
//! origin that they belong to.

use crate::error::{Error, Result};
use crate::git::{Credentials, Secret, TrustStore, redact};
use futures::StreamExt as _;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Clients by what distinguishes them.
pub struct Http {
    trust: TrustStore,
    timeout: Duration,
    clients: Mutex<HashMap<(String, String), reqwest::Client>>,
}

/// A body and what the server said about it.
pub struct Fetched {
    /// The body.
    pub body: Vec<u8>,
}

impl Http {
    /// Builds clients as they are needed.
    pub fn new(trust: TrustStore, timeout: Duration) -> Http {
        // Whoever starts first installs the one provider that is linked; both are the same.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Http {
            trust,
            timeout,
            clients: Mutex::default(),
        }
    }

    /// Gets a URL, at most `limit` bytes. Credentials are sent only if `owner` (the repository they were given for)
    /// has the same origin, or `everywhere` says that they may go anywhere.
    ///
    /// # Errors
    /// [`Error::Fetch`], [`Error::Authentication`], [`Error::Limit`].
    pub async fn get(
        &self,
        url: &str,
        owner: &str,
        credentials: &Credentials,
        everywhere: bool,
        limit: u64,
    ) -> Result<Fetched> {
        let parsed = url::Url::parse(url).map_err(|e| Error::Repository {
            url: crate::git::url::display(url),
            message: format!("the URL is not valid: {e}"),
        })?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(Error::Repository {
                url: crate::git::url::display(url),
                message: "only http and https URLs are allowed".into(),
            });
        }
        let same = url::Url::parse(owner).is_ok_and(|owner| owner.origin() == parsed.origin());
        let allowed = same || everywhere;
        let anonymous = Credentials {
            insecure: credentials.insecure,
            proxy: credentials.proxy.clone(),
            no_proxy: credentials.no_proxy.clone(),
            ..Credentials::default()
        };
        let used = if allowed { credentials } else { &anonymous };
        let shown = crate::git::url::display(url);
        let failed = |e: reqwest::Error| Error::Fetch {
            attempted: "failed to get",
            url: shown.clone(),
            message: redact(&chain(&e), credentials, None),
        };
        let client = self.client(parsed.host_str().unwrap_or_default(), used)?;
        let mut request = client.get(parsed.clone());
        if !used.bearer_token.is_empty() {
            request = request.bearer_auth(used.bearer_token.expose());
        } else if !used.username.is_empty() || !used.password.is_empty() {
            request = request.basic_auth(&used.username, Some(used.password.expose()));
        }
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        if status.as_u16() == 401 || status.as_u16() == 403 {
            return Err(Error::Authentication {
                url: shown.clone(),
                message: format!("the server answered {status}"),
            });
        }
        if !status.is_success() {
            return Err(Error::Fetch {
                attempted: "failed to get",
                url: shown.clone(),
                message: format!("the server answered {status}"),
            });
        }
        let mut body = Vec::new();
        let mut stream = response.bytes_stream();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(failed)?;
            if (body.len() + chunk.len()) as u64 > limit {
                return Err(Error::Limit {
                    which: format!("size of {shown}"),
                    limit: format!("{limit} bytes"),
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Fetched { body })
    }

    /// Posts nothing to a URL with a bearer token, and gives the answer.
    pub(crate) async fn post(&self, url: &str, credentials: &Credentials) -> Result<Vec<u8>> {
        let shown = crate::git::url::display(url);
        let failed = |message: String| Error::Fetch {
            attempted: "failed to post to",
            url: shown.clone(),
            message: redact(&message, credentials, None),
        };
        let parsed = url::Url::parse(url).map_err(|e| failed(e.to_string()))?;
        let client = self.client(
            parsed.host_str().unwrap_or_default(),
            &Credentials {
                // The token differs each time; the client need not.
                bearer_token: Secret::default(),
                ..credentials.clone()
            },
        )?;
        let request = client
            .post(parsed)
            .bearer_auth(credentials.bearer_token.expose())
            .header("accept", "application/vnd.github+json");
        let response = request.send().await.map_err(|e| failed(chain(&e)))?;
        let status = response.status();
        if status.as_u16() == 401 || status.as_u16() == 403 {
            return Err(Error::Authentication {
                url: shown,
                message: format!("the server answered {status}"),
            });
        }
        if !status.is_success() {
            return Err(failed(format!("the server answered {status}")));
        }
        Ok(response.bytes().await.map_err(|e| failed(chain(&e)))?.to_vec())
    }

    fn client(&self, host: &str, credentials: &Credentials) -> Result<reqwest::Client> {
        let key = (host.to_owned(), credentials.fingerprint());
        if let Some(client) = self
            .clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
        {
            return Ok(client.clone());
        }
        let client = self.build(host, credentials)?;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() > 1000 {
            clients.clear();
        }
        clients.insert(key, client.clone());
        Ok(client)
    }

    fn build(&self, host: &str, credentials: &Credentials) -> Result<reqwest::Client> {
        let unusable = |e: &dyn std::fmt::Display| Error::Repository {
            url: host.to_owned(),
            message: e.to_string(),
        };
        let mut builder = reqwest::Client::builder()
            .user_agent("argosy-repo-server")
            .redirect(reqwest::redirect::Policy::limited(5))
            .connect_timeout(Duration::from_secs(15))
            .read_timeout(Duration::from_secs(30))
            .timeout(self.timeout);
        if credentials.insecure {
            builder = builder.tls_danger_accept_invalid_certs(true);
        }
        if let Some(bundle) = self.trust.ca_bundle(host) {
            let pem = std::fs::read(&bundle).map_err(|e| unusable(&e))?;
            builder = builder
                .tls_certs_merge(reqwest::Certificate::from_pem_bundle(&pem).map_err(|e| unusable(&e))?);
        }
        if !credentials.tls_client_cert.is_empty() {
            let pem = format!(
                "{}\n{}",
                credentials.tls_client_key.expose(),
                credentials.tls_client_cert
            );
            let identity = reqwest::Identity::from_pem(pem.as_bytes())
                .map_err(|_| unusable(&"the client certificate or its key is not valid"))?;
            builder = builder.identity(identity);
        }
        if !credentials.proxy.is_empty() {
            let proxy = reqwest::Proxy::all(&credentials.proxy)
                .map_err(|_| unusable(&"the proxy URL is not valid"))?;
            builder = builder.proxy(proxy.no_proxy(reqwest::NoProxy::from_string(&credentials.no_proxy)));
        }
        builder.build().map_err(|e| unusable(&chain(&e)))
    }

    /// The administrator's certificates.
    pub fn trust(&self) -> &TrustStore {
        &self.trust
    }
}

/// An error with all its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}

/// Whether a text is a URL that value files may be taken from.
pub(crate) fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    })
}
