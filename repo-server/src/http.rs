//! HTTP for charts and value files: one client per set of credentials, bounded bodies, credentials only to the
//! origin that they belong to.

use crate::egress::{self, Egress, NamedBy, Resolver};
use crate::error::{Error, Result};
use crate::git::{Credentials, TrustStore, redact};
use crate::patience::{self, Patience};
use futures::StreamExt as _;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Redirects followed for one request.
const MAX_REDIRECTS: usize = 5;

/// Headers about the connection and the framing of a request, and whose it is at its address: they are ours to say. Another
/// `Host` would ask a proxy, or a server of many names, for something else than the URL that was looked at.
const OURS: [&str; 11] = [
    "host",
    "connection",
    "content-length",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Clients by what distinguishes them.
pub struct Http {
    trust: TrustStore,
    egress: Egress,
    timeout: Duration,
    patience: Patience,
    clients: Mutex<HashMap<ClientKey, reqwest::Client>>,
}

/// A host, as whom it is asked, who named it, and a name for the administrator's certificates that it is believed with.
type ClientKey = (String, String, NamedBy, String);

/// One request.
pub(crate) struct Call<'a> {
    pub(crate) url: &'a str,
    /// The repository for which the credentials were given: they go to its origin alone.
    pub(crate) owner: &'a str,
    pub(crate) credentials: &'a Credentials,
    /// The credentials may go anywhere.
    pub(crate) everywhere: bool,
    /// Further headers, as the server asked for them.
    pub(crate) headers: &'a BTreeMap<String, String>,
    /// What is posted, with its media type; without it the URL is got.
    pub(crate) post: Option<(&'a str, String)>,
    /// Largest body of the answer.
    pub(crate) limit: u64,
}

impl<'a> Call<'a> {
    /// Gets a URL as nobody.
    pub(crate) fn to(url: &'a str) -> Call<'a> {
        static NOBODY: LazyLock<Credentials> = LazyLock::new(Credentials::default);
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        Call {
            url,
            owner: "",
            credentials: &NOBODY,
            everywhere: false,
            headers: &NONE,
            post: None,
            limit: 0,
        }
    }

    fn attempted(&self) -> &'static str {
        match self.post {
            Some(_) => "failed to post to",
            None => "failed to get",
        }
    }
}

/// A body and what the server said about it.
pub struct Fetched {
    /// The body.
    pub body: Vec<u8>,
}

impl Http {
    /// Builds clients as they are needed.
    pub fn new(trust: TrustStore, egress: Egress, timeout: Duration) -> Http {
        // Whoever starts first installs the one provider that is linked; both are the same.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Http {
            trust,
            egress,
            timeout,
            patience: Patience::default(),
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
        self.call(Call {
            owner,
            credentials,
            everywhere,
            limit,
            ..Call::to(url)
        })
        .await
    }

    /// Gets a URL, or posts to it.
    ///
    /// # Errors
    /// [`Error::Fetch`], [`Error::Authentication`], [`Error::Limit`].
    pub(crate) async fn call(&self, call: Call<'_>) -> Result<Fetched> {
        let Call { url, credentials, .. } = call;
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
        let owner = url::Url::parse(call.owner).ok();
        let same = owner
            .as_ref()
            .is_some_and(|owner| owner.origin() == parsed.origin());
        let named_by = if owner.is_some_and(|owner| owner.host_str() == parsed.host_str()) {
            NamedBy::Operator
        } else {
            NamedBy::Content
        };
        let allowed = same || call.everywhere;
        let anonymous = Credentials {
            insecure: credentials.insecure,
            proxy: credentials.proxy.clone(),
            no_proxy: credentials.no_proxy.clone(),
            ..Credentials::default()
        };
        let used = if allowed { credentials } else { &anonymous };
        // What stands behind the question mark may be a right to read that a server gave us.
        let mut shown = crate::git::url::display(url);
        shown.truncate(shown.find('?').unwrap_or(shown.len()));
        let attempted = call.attempted();
        let failed = |e: reqwest::Error| Error::Fetch {
            attempted,
            url: shown.clone(),
            message: redact(&chain(&e.without_url()), credentials, None),
        };
        let client = self.client(&parsed, used, named_by)?;
        let mut request = match call.post {
            Some((media_type, body)) => client
                .post(parsed.clone())
                .header("content-type", media_type)
                .header(
                    "accept",
                    if media_type.ends_with("json") {
                        media_type
                    } else {
                        "application/json"
                    },
                )
                .body(body),
            None => client.get(parsed.clone()),
        };
        let authorised = call
            .headers
            .keys()
            .any(|name| name.eq_ignore_ascii_case("authorization"));
        if authorised {
            // Whoever sent us here said what to show.
        } else if !used.bearer_token.is_empty() {
            request = request.bearer_auth(used.bearer_token.expose());
        } else if !used.username.is_empty() || !used.password.is_empty() {
            request = request.basic_auth(&used.username, Some(used.password.expose()));
        }
        let theirs = |name: &&String| !OURS.iter().any(|ours| ours.eq_ignore_ascii_case(name));
        for (name, value) in call.headers.iter().filter(|(name, _)| theirs(name)) {
            request = request.header(name, value);
        }
        let origin = parsed.origin().ascii_serialization();
        let whom = used.fingerprint();
        let patience = |message: String, retry_after| Error::Patience {
            url: shown.clone(),
            message,
            retry_after,
        };
        if let Some(left) = self.patience.left(&origin, &whom) {
            return Err(patience("it has been asked too often".into(), left));
        }
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        let told = response.headers().get(reqwest::header::RETRY_AFTER);
        let told = told.and_then(|text| patience::retry_after(text.to_str().ok()?, SystemTime::now()));
        if status.as_u16() == 429 || status.as_u16() == 503 && told.is_some() {
            let retry_after = self.patience.have(&origin, &whom, told);
            return Err(patience(format!("the server answered {status}"), retry_after));
        }
        if status.as_u16() == 401 || status.as_u16() == 403 {
            return Err(Error::Authentication {
                url: shown.clone(),
                message: format!("the server answered {status}"),
            });
        }
        if !status.is_success() {
            return Err(Error::Fetch {
                attempted,
                url: shown.clone(),
                message: format!("the server answered {status}"),
            });
        }
        let mut body = Vec::new();
        let mut stream = response.bytes_stream();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(failed)?;
            if (body.len() + chunk.len()) as u64 > call.limit {
                return Err(Error::Limit {
                    which: format!("size of {shown}"),
                    limit: format!("{} bytes", call.limit),
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Fetched { body })
    }

    fn client(
        &self,
        url: &url::Url,
        credentials: &Credentials,
        named_by: NamedBy,
    ) -> Result<reqwest::Client> {
        let host = url.host_str().unwrap_or_default();
        let trusted = self.trusted(host, credentials, named_by);
        // What a proxy reaches is its operator's to say for what an operator names; content would use it to reach inside.
        let looked_at = credentials.proxy.is_empty() || named_by == NamedBy::Content;
        if looked_at && !Resolver::allows_url(&self.egress, &trusted, url) {
            return Err(egress::refused(host));
        }
        let bundle = self.bundle(host)?;
        let believed = bundle.as_deref().map(crate::chart::hex_sha256);
        let key = (
            host.to_owned(),
            credentials.fingerprint(),
            named_by,
            believed.unwrap_or_default(),
        );
        if let Some(client) = self
            .clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
        {
            return Ok(client.clone());
        }
        let client = self.build(host, credentials, trusted, bundle)?;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() > 1000 {
            clients.clear();
        }
        clients.insert(key, client.clone());
        Ok(client)
    }

    /// Hosts that the operator named: that of the repository, and the proxies on the way.
    fn trusted(&self, host: &str, credentials: &Credentials, named_by: NamedBy) -> Vec<String> {
        let proxies = [
            "http_proxy",
            "https_proxy",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "all_proxy",
            "ALL_PROXY",
        ]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .chain([credentials.proxy.clone()])
        .filter_map(|proxy| Some(url::Url::parse(&proxy).ok()?.host_str()?.to_owned()));
        let own = (named_by == NamedBy::Operator).then(|| host.to_owned());
        own.into_iter().chain(proxies).collect()
    }

    /// The administrator's certificates for a host, as they are now.
    fn bundle(&self, host: &str) -> Result<Option<Vec<u8>>> {
        let bundle = self.trust.ca_bundle(host).map(std::fs::read).transpose();
        bundle.map_err(|e| unusable(host, &e))
    }

    fn build(
        &self,
        host: &str,
        credentials: &Credentials,
        trusted: Vec<String>,
        bundle: Option<Vec<u8>>,
    ) -> Result<reqwest::Client> {
        let unusable = |e: &dyn std::fmt::Display| unusable(host, e);
        let mut builder = reqwest::Client::builder()
            .user_agent("argosy-repo-server")
            .redirect(self.redirects(trusted.clone()))
            .dns_resolver(Arc::new(Resolver {
                egress: self.egress.clone(),
                trusted,
            }))
            .connect_timeout(Duration::from_secs(15))
            .read_timeout(Duration::from_secs(30))
            .timeout(self.timeout);
        if credentials.insecure {
            builder = builder.tls_danger_accept_invalid_certs(true);
        }
        if let Some(pem) = bundle {
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

    /// Redirects are followed where the first request might have gone as well, and never from an encrypted connection
    /// to an open one. Credentials do not follow to another origin: the client takes them off.
    fn redirects(&self, trusted: Vec<String>) -> reqwest::redirect::Policy {
        let egress = self.egress.clone();
        reqwest::redirect::Policy::custom(move |attempt| {
            let downgrade = attempt.url().scheme() != "https"
                && attempt
                    .previous()
                    .last()
                    .is_some_and(|from| from.scheme() == "https");
            if attempt.previous().len() > MAX_REDIRECTS {
                attempt.error("too many redirects")
            } else if downgrade || !Resolver::allows_url(&egress, &trusted, attempt.url()) {
                attempt.error("the redirect leads where it may not")
            } else {
                attempt.follow()
            }
        })
    }

    /// Where a GET of a URL ends up, without reading the answer.
    pub(crate) async fn target(&self, url: &str, owner: &str, credentials: &Credentials) -> Result<url::Url> {
        let failed = |message: String| Error::Fetch {
            attempted: "failed to follow a redirect of",
            url: crate::git::url::display(url),
            message: redact(&message, credentials, None),
        };
        let parsed = url::Url::parse(url).map_err(|e| failed(e.to_string()))?;
        let owned = url::Url::parse(owner).is_ok_and(|owner| owner.host_str() == parsed.host_str());
        let named_by = if owned {
            NamedBy::Operator
        } else {
            NamedBy::Content
        };
        let client = self.client(&parsed, credentials, named_by)?;
        let answer = client
            .get(parsed)
            .send()
            .await
            .map_err(|e| failed(chain(&e.without_url())))?;
        Ok(answer.url().clone())
    }

    /// What a server asks of who comes without credentials.
    pub(crate) async fn challenge(
        &self,
        url: &str,
        named_by: NamedBy,
        credentials: &Credentials,
    ) -> Option<String> {
        let parsed = url::Url::parse(url).ok()?;
        let client = self.client(&parsed, credentials, named_by).ok()?;
        let answer = client.get(parsed).send().await.ok()?;
        let header = answer.headers().get("www-authenticate")?;
        Some(header.to_str().ok()?.to_owned())
    }

    /// Where the fetcher may connect to.
    pub fn egress(&self) -> &Egress {
        &self.egress
    }

    /// Hosts that are left alone for a while.
    pub(crate) fn patience(&self) -> &Patience {
        &self.patience
    }

    /// The administrator's certificates.
    pub fn trust(&self) -> &TrustStore {
        &self.trust
    }
}

fn unusable(host: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Repository {
        url: host.to_owned(),
        message: error.to_string(),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_right_to_read_that_stands_in_a_url_is_in_no_error() {
        let trust = TrustStore {
            tls_dir: "/no/such".into(),
            known_hosts: "/no/such".into(),
        };
        let http = Http::new(trust, Egress::open(), Duration::from_secs(5));
        // Nobody listens there.
        let url = "http://127.0.0.1:1/objects/a?X-Signature=canary";
        let got = http.get(url, url, &Credentials::default(), false, 10).await;
        let error = got.map(|got| got.body).unwrap_err().to_string();
        assert!(error.contains("http://127.0.0.1:1/objects/a"), "{error}");
        assert!(!error.contains("canary"), "{error}");
    }

    #[test]
    fn content_does_not_reach_inside_by_an_address_through_a_proxy() {
        let trust = TrustStore {
            tls_dir: "/no/such".into(),
            known_hosts: "/no/such".into(),
        };
        let http = Http::new(trust, Egress::default(), Duration::from_secs(1));
        let proxied = Credentials {
            proxy: "http://proxy.example.com:3128".into(),
            ..Credentials::default()
        };
        let may = |url: &str, named_by| {
            let url = url::Url::parse(url).unwrap();
            http.client(&url, &proxied, named_by).is_ok()
        };
        for inner in ["http://169.254.169.254/", "http://10.1.2.3/", "http://[::1]/"] {
            assert!(!may(inner, NamedBy::Content), "{inner}");
            assert!(may(inner, NamedBy::Operator), "{inner}");
        }
        assert!(may("https://lfs.example.com/", NamedBy::Content));
        assert!(may("http://93.184.216.34/", NamedBy::Content));
    }
}
