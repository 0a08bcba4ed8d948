//! GitHub Apps: the app's key buys a token for an installation, the token is the password for `git`.

use super::credential::{Credentials, Secret};
use crate::error::{Error, Result};
use crate::http::Http;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a token is used; GitHub gives an hour.
const TOKEN_TTL: Duration = Duration::from_secs(50 * 60);

/// An installation of an app.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GithubApp {
    /// Id of the app.
    pub app_id: i64,
    /// Id of its installation.
    pub installation_id: i64,
    /// The app's private key in PEM.
    pub private_key: Secret,
    /// API of an enterprise server; empty is github.com.
    pub base_url: String,
}

/// Tokens by installation.
pub(super) struct Tokens {
    http: Arc<Http>,
    cache: Mutex<HashMap<GithubApp, Cell>>,
}

/// One token with its age; the lock makes concurrent buyers one.
type Cell = Arc<tokio::sync::Mutex<Option<(Instant, Secret)>>>;

impl Tokens {
    pub(super) fn new(http: Arc<Http>) -> Tokens {
        Tokens {
            http,
            cache: Mutex::default(),
        }
    }

    /// Credentials that `git` can use: those given, with a token in place of the app.
    pub(super) async fn credentials(&self, given: &Arc<Credentials>) -> Result<Arc<Credentials>> {
        let Some(app) = &given.github_app else {
            return Ok(given.clone());
        };
        let cell = self
            .cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(app.clone())
            .or_default()
            .clone();
        let mut token = cell.lock().await;
        let fresh = token.as_ref().is_some_and(|(at, _)| at.elapsed() < TOKEN_TTL);
        if !fresh {
            *token = Some((Instant::now(), self.buy(app, given).await?));
        }
        let password = token.as_ref().map(|(_, token)| token.clone()).unwrap_or_default();
        Ok(Arc::new(Credentials {
            username: "x-access-token".into(),
            password,
            github_app: None,
            ..given.as_ref().clone()
        }))
    }

    async fn buy(&self, app: &GithubApp, given: &Credentials) -> Result<Secret> {
        let base = if app.base_url.is_empty() {
            "https://api.github.com"
        } else {
            app.base_url.trim_end_matches('/')
        };
        let url = format!("{base}/app/installations/{}/access_tokens", app.installation_id);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let bearer = Credentials {
            bearer_token: Secret::new(assertion(app, now)?),
            insecure: given.insecure,
            proxy: given.proxy.clone(),
            no_proxy: given.no_proxy.clone(),
            ..Credentials::default()
        };
        let answer = self.http.post(&url, &bearer).await?;
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
        match answer.get("token").and_then(serde_json::Value::as_str) {
            Some(token) => Ok(Secret::new(token)),
            None => Err(Error::Fetch {
                attempted: "failed to get a token from",
                url,
                message: "the answer holds no token".into(),
            }),
        }
    }
}

/// The signed statement that we are the app.
fn assertion(app: &GithubApp, now: u64) -> Result<String> {
    let unusable = |message: &str| Error::Repository {
        url: format!("GitHub App {}", app.app_id),
        message: message.into(),
    };
    let key = rustls_pemfile::private_key(&mut app.private_key.expose().as_bytes())
        .ok()
        .flatten()
        .ok_or_else(|| unusable("its private key is not PEM"))?;
    let pair = match &key {
        rustls::pki_types::PrivateKeyDer::Pkcs1(key) => {
            aws_lc_rs::rsa::KeyPair::from_der(key.secret_pkcs1_der())
        }
        key => aws_lc_rs::rsa::KeyPair::from_pkcs8(key.secret_der()),
    };
    let pair = pair.map_err(|_| unusable("its private key is not RSA"))?;
    let header = BASE64URL.encode(r#"{"alg":"RS256","typ":"JWT"}"#);
    // A minute back, for clocks that differ; ten minutes is the most that GitHub takes.
    let claims = format!(
        r#"{{"iat":{},"exp":{},"iss":"{}"}}"#,
        now - 60,
        now + 540,
        app.app_id
    );
    let text = format!("{header}.{}", BASE64URL.encode(claims));
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign(
        &aws_lc_rs::signature::RSA_PKCS1_SHA256,
        &aws_lc_rs::rand::SystemRandom::new(),
        text.as_bytes(),
        &mut signature,
    )
    .map_err(|_| unusable("its private key cannot sign"))?;
    Ok(format!("{text}.{}", BASE64URL.encode(signature)))
}
