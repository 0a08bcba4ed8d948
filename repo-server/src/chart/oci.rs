//! Charts in OCI registries.

use super::{ChartRepo, hex_sha256};
use crate::egress::NamedBy;
use crate::error::{Error, Result};
use crate::git::redact;
use crate::http::Http;
use crate::identity::{Identity, Tokens, Use};
use crate::metrics::Metrics;
use oci_client::client::{Certificate, CertificateEncoding, Client, ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::manifest::OciImageManifest;
use oci_client::secrets::RegistryAuth;
use oci_client::{Reference, RegistryOperation};
use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Layers that hold a chart.
const CHART_LAYERS: [&str; 2] = [
    "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
    "application/tar+gzip",
];
/// Layers that hold an artifact of plain manifests.
const ARTIFACT_LAYERS: [&str; 3] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
];
/// Deadline of one request to a registry.
const DEADLINE: Duration = Duration::from_secs(60);

/// How long the token service of a registry is believed to stay where it is.
const REALM_TTL: Duration = Duration::from_secs(600);

pub(super) struct Registries {
    http: Arc<Http>,
    tokens: Tokens,
    metrics: Metrics,
    /// Registries whose token service was looked at, and when.
    checked: Mutex<HashMap<String, Instant>>,
}

/// A manifest, its digest, and the client that was let in to read it.
struct Found {
    client: Client,
    manifest: OciImageManifest,
    digest: String,
}

impl Registries {
    pub(super) fn new(http: Arc<Http>, metrics: Metrics) -> Registries {
        Registries {
            tokens: Tokens::new(http.clone()),
            http,
            metrics,
            checked: Mutex::default(),
        }
    }

    /// A client for a registry whose address is allowed.
    async fn client(&self, repo: &ChartRepo, host: &str) -> Result<Client> {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port.parse().unwrap_or(443)),
            _ => (host, if repo.plain_http { 80 } else { 443 }),
        };
        let way = &repo.credentials;
        self.http
            .egress()
            .addresses(name, port, repo.named_by, way, !repo.plain_http)
            .await?;
        // What an operator's proxy reaches is the operator's to say.
        if way.proxy.is_empty() || repo.named_by == NamedBy::Content {
            self.check_realm(repo, host, name).await?;
        }
        self.build(repo, host)
    }

    /// A registry names the service that gives out tokens, and credentials are shown to it: that it lies on an inner
    /// address is only believed of one that is the registry itself, or that an operator allowed.
    async fn check_realm(&self, repo: &ChartRepo, host: &str, name: &str) -> Result<()> {
        let fresh = |at: &Instant| at.elapsed() < REALM_TTL;
        let way = &repo.credentials;
        let key = format!("{} {host} {} {}", repo.plain_http, way.proxy, way.no_proxy);
        if self
            .checked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .is_some_and(fresh)
        {
            return Ok(());
        }
        let scheme = if repo.plain_http { "http" } else { "https" };
        let anonymous = way.without_secrets();
        let url = format!("{scheme}://{host}/v2/");
        let challenge = self
            .http
            .challenge(&url, repo.named_by, &anonymous)
            .await
            .unwrap_or_default();
        let realm = challenge
            .split_once("realm=\"")
            .and_then(|(_, rest)| rest.split('"').next())
            .and_then(|realm| url::Url::parse(realm).ok());
        if let Some(realm) = realm
            && let Some(other) = realm.host_str().filter(|other| *other != name)
        {
            let port = realm.port_or_known_default().unwrap_or(443);
            let encrypted = realm.scheme() == "https";
            self.http
                .egress()
                .addresses(other, port, NamedBy::Content, way, encrypted)
                .await?;
        }
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        checked.retain(|_, at| fresh(at));
        checked.insert(key, Instant::now());
        Ok(())
    }

    /// What is shown to a registry. Of identities Azure's have tokens for registries.
    async fn auth(&self, repo: &ChartRepo, host: &str) -> Result<RegistryAuth> {
        let credentials = match &repo.credentials.identity {
            Some(Identity::Azure(_)) => {
                let what = Use::Registry(host.to_owned());
                self.tokens.credentials(&repo.credentials, what).await?
            }
            _ => repo.credentials.clone(),
        };
        Ok(if !credentials.bearer_token.is_empty() {
            RegistryAuth::Bearer(credentials.bearer_token.expose().to_owned())
        } else if credentials.username.is_empty() && credentials.password.is_empty() {
            RegistryAuth::Anonymous
        } else {
            RegistryAuth::Basic(
                credentials.username.clone(),
                credentials.password.expose().to_owned(),
            )
        })
    }

    fn build(&self, repo: &ChartRepo, host: &str) -> Result<Client> {
        let mut certificates = Vec::new();
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        if let Some(bundle) = self.http.trust().ca_bundle(name) {
            let data = std::fs::read(&bundle)
                .map_err(|e| Error::io(format!("failed to read the certificates for {host}"), e))?;
            certificates.push(Certificate {
                encoding: CertificateEncoding::Pem,
                data,
            });
        }
        let proxy = (!repo.credentials.proxy.is_empty()).then(|| repo.credentials.proxy.clone());
        let config = ClientConfig {
            protocol: if repo.plain_http {
                ClientProtocol::Http
            } else {
                ClientProtocol::Https
            },
            accept_invalid_certificates: repo.credentials.insecure,
            extra_root_certificates: certificates,
            connect_timeout: Some(Duration::from_secs(15)),
            read_timeout: Some(Duration::from_secs(30)),
            user_agent: "argosy-repo-server",
            https_proxy: proxy.clone(),
            http_proxy: proxy,
            no_proxy: (!repo.credentials.no_proxy.is_empty()).then(|| repo.credentials.no_proxy.clone()),
            ..ClientConfig::default()
        };
        Client::try_from(config).map_err(|e| Error::Repository {
            url: repo.shown(),
            message: redact(&e.to_string(), &repo.credentials, None),
        })
    }

    fn reference(repo: &ChartRepo, chart: &str, tag: &str) -> Result<Reference> {
        let separator = if tag.starts_with("sha256:") { "@" } else { ":" };
        let name = if chart.is_empty() {
            repo.url.clone()
        } else {
            format!("{}/{chart}", repo.url)
        };
        format!("{name}{separator}{tag}")
            .parse()
            .map_err(|e| Error::Repository {
                url: repo.shown(),
                message: format!("the reference is not valid: {e}"),
            })
    }

    pub(super) async fn tags(&self, repo: &ChartRepo, chart: &str) -> Result<Vec<String>> {
        let reference = Self::reference(repo, chart, "latest")?;
        let client = self.client(repo, reference.registry()).await?;
        let auth = self.auth(repo, reference.registry()).await?;
        let list = async {
            let mut all: Vec<String> = Vec::new();
            loop {
                let page = client
                    .list_tags(&reference, &auth, Some(1000), all.last().map(String::as_str))
                    .await?;
                let more = page.tags.len() >= 1000;
                all.extend(page.tags);
                if !more || all.len() > 100_000 {
                    return Ok(all);
                }
            }
        };
        self.request(repo, "get-tags", "failed to list tags of", list)
            .await
    }

    /// Logs in: any path below the registry will do for that.
    pub(super) async fn ping(&self, repo: &ChartRepo) -> Result<()> {
        let registry = repo.url.split('/').next().unwrap_or_default();
        let name = if repo.url.contains('/') {
            repo.url.clone()
        } else {
            format!("{registry}/library")
        };
        let reference: Reference = format!("{name}:latest").parse().map_err(|e| Error::Repository {
            url: repo.shown(),
            message: format!("the reference is not valid: {e}"),
        })?;
        let client = self.client(repo, registry).await?;
        let auth = self.auth(repo, registry).await?;
        let login = client.auth(&reference, &auth, RegistryOperation::Pull);
        self.request(repo, "test-repo", "failed to log in to", login)
            .await
            .map(drop)
    }

    /// Pulls the archive of a chart and checks it against the digest in the manifest.
    pub(super) async fn pull(
        &self,
        repo: &ChartRepo,
        chart: &str,
        version: &str,
        limit: u64,
    ) -> Result<Vec<u8>> {
        let reference = Self::reference(repo, chart, &version.replace('+', "_"))?;
        let found = self.manifest(repo, &reference).await?;
        self.layer(repo, &reference, &found, &CHART_LAYERS, limit).await
    }

    /// Pulls the one layer of an artifact, with the digest of its manifest; no layer if that digest is the one that we
    /// `have`.
    pub(super) async fn artifact(
        &self,
        repo: &ChartRepo,
        tag: &str,
        limit: u64,
        have: Option<&str>,
    ) -> Result<(Option<Vec<u8>>, String)> {
        let reference = Self::reference(repo, "", tag)?;
        let found = self.manifest(repo, &reference).await?;
        if have == Some(found.digest.as_str()) {
            return Ok((None, found.digest));
        }
        let layer = self
            .layer(repo, &reference, &found, &ARTIFACT_LAYERS, limit)
            .await?;
        Ok((Some(layer), found.digest))
    }

    /// What the manifest of an artifact says about it.
    pub(super) async fn annotations(&self, repo: &ChartRepo, tag: &str) -> Result<BTreeMap<String, String>> {
        let reference = Self::reference(repo, "", tag)?;
        let found = self.manifest(repo, &reference).await?;
        Ok(found.manifest.annotations.unwrap_or_default())
    }

    async fn manifest(&self, repo: &ChartRepo, reference: &Reference) -> Result<Found> {
        let client = self.client(repo, reference.registry()).await?;
        let auth = self.auth(repo, reference.registry()).await?;
        let manifest = async {
            client.auth(reference, &auth, RegistryOperation::Pull).await?;
            client.pull_image_manifest(reference, &auth).await
        };
        let attempted = "failed to read the manifest of";
        let answer = self.request(repo, "resolve-revision", attempted, manifest);
        let (manifest, digest) = answer.await?;
        Ok(Found {
            client,
            manifest,
            digest,
        })
    }

    async fn layer(
        &self,
        repo: &ChartRepo,
        reference: &Reference,
        found: &Found,
        kinds: &[&str],
        limit: u64,
    ) -> Result<Vec<u8>> {
        let Found { client, manifest, .. } = found;
        let shown = format!("oci://{reference}");
        let found: Vec<_> = manifest
            .layers
            .iter()
            .filter(|layer| kinds.contains(&layer.media_type.as_str()))
            .collect();
        let [layer] = found.as_slice() else {
            return Err(Error::Source(format!(
                "expected only a single oci content layer in {shown}, got {}",
                found.len()
            )));
        };
        let over = || Error::Limit {
            which: format!("size of {shown}"),
            limit: format!("{limit} bytes"),
        };
        if u64::try_from(layer.size).is_ok_and(|size| size > limit) {
            return Err(over());
        }
        let mut archive = Bounded {
            data: Vec::new(),
            limit,
            over: false,
        };
        let pulled = self
            .request(
                repo,
                "fetch",
                "failed to pull",
                client.pull_blob(reference, *layer, &mut archive),
            )
            .await;
        if archive.over {
            return Err(over());
        }
        pulled?;
        let archive = archive.data;
        let found = format!("sha256:{}", hex_sha256(&archive));
        if layer.digest.starts_with("sha256:") && layer.digest != found {
            return Err(Error::Fetch {
                attempted: "failed to verify",
                url: shown,
                message: format!("its digest is {found}, the manifest says {}", layer.digest),
            });
        }
        Ok(archive)
    }

    async fn request<T>(
        &self,
        repo: &ChartRepo,
        kind: &'static str,
        attempted: &'static str,
        work: impl Future<Output = Result<T, OciDistributionError>>,
    ) -> Result<T> {
        let started = Instant::now();
        let answer = tokio::time::timeout(DEADLINE, work).await;
        self.metrics.oci_request(&repo.shown(), kind, started.elapsed());
        let answer = answer.map_err(|_| Error::Deadline {
            what: format!("{attempted} {}", repo.shown()),
            after: DEADLINE,
        })?;
        answer.map_err(|error| {
            let refused = matches!(
                error,
                OciDistributionError::AuthenticationFailure(_)
                    | OciDistributionError::UnauthorizedError { .. }
            );
            let message = redact(&crate::http::chain(&error), &repo.credentials, None);
            if refused {
                Error::Authentication {
                    url: repo.shown(),
                    message,
                }
            } else {
                Error::Fetch {
                    attempted,
                    url: repo.shown(),
                    message,
                }
            }
        })
    }
}

/// Takes bytes up to a limit; a registry may say one size and send another.
struct Bounded {
    data: Vec<u8>,
    limit: u64,
    over: bool,
}

impl tokio::io::AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        if (self.data.len() + bytes.len()) as u64 > self.limit {
            self.over = true;
            return Poll::Ready(Err(std::io::Error::other("too large")));
        }
        self.data.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
