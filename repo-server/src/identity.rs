//! Identities whose tokens are shown in place of a password: apps of GitHub, service accounts of Google, principals and workloads of
//! Azure. A token is bought once for all who need it, and used until shortly before its end.

mod azure;
mod github_app;
mod google;

pub use azure::{Principal, Proof};
pub use github_app::GithubApp;
pub use google::ServiceAccount;

use crate::error::{Error, Result};
use crate::git::{Credentials, Secret};
use crate::http::{Call, Http};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Largest answer of who sells tokens.
const MAX_ANSWER: u64 = 1 << 20;
/// So long before its end a token is not used any more.
const MARGIN: Duration = Duration::from_secs(300);
/// The media type of forms.
const FORM: &str = "application/x-www-form-urlencoded";

/// As whom to buy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// An installation of an app of GitHub.
    GithubApp(GithubApp),
    /// A service account of Google Cloud.
    Google(ServiceAccount),
    /// A service principal or workload of Azure.
    Azure(Principal),
}

/// What a token is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    /// Repositories of Git.
    Git,
    /// The registry at this host.
    Registry(String),
}

impl Identity {
    /// All that it is made of, for digests alone.
    pub(crate) fn exposed(&self) -> String {
        match self {
            Identity::GithubApp(app) => app.exposed(),
            Identity::Google(account) => account.exposed(),
            Identity::Azure(principal) => principal.exposed(),
        }
    }
}

/// A token, and how long it may be used.
struct Bought {
    token: Secret,
    until: Instant,
}

impl Bought {
    fn new(token: impl Into<String>, lifetime: Duration) -> Bought {
        // Never so short that it is bought anew for each call.
        let lifetime = lifetime.saturating_sub(MARGIN).max(Duration::from_secs(30));
        Bought {
            token: Secret::new(token),
            until: Instant::now() + lifetime,
        }
    }
}

/// Tokens by identity and use.
pub(crate) struct Tokens {
    http: Arc<Http>,
    cache: Mutex<HashMap<(Identity, Use), Cell>>,
}

/// One token; the lock makes concurrent buyers one.
type Cell = Arc<tokio::sync::Mutex<Option<Bought>>>;

impl Tokens {
    pub(crate) fn new(http: Arc<Http>) -> Tokens {
        Tokens {
            http,
            cache: Mutex::default(),
        }
    }

    /// Credentials that can be shown: those given, with a token in place of the identity.
    ///
    /// # Errors
    /// [`Error::Authentication`] and others of who sells tokens; [`Error::Repository`] for an identity that cannot be used.
    pub(crate) async fn credentials(&self, given: &Arc<Credentials>, what: Use) -> Result<Arc<Credentials>> {
        let Some(identity) = &given.identity else {
            return Ok(given.clone());
        };
        let cell = self
            .cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry((identity.clone(), what.clone()))
            .or_default()
            .clone();
        let mut kept = cell.lock().await;
        let token = match &*kept {
            Some(bought) if bought.until > Instant::now() => bought.token.clone(),
            _ => {
                // Boxed: nearly nobody comes here, and everybody would carry it along.
                let bought = Box::pin(self.buy(identity, &what, given)).await?;
                let token = bought.token.clone();
                *kept = Some(bought);
                token
            }
        };
        let plain = Credentials {
            identity: None,
            ..given.as_ref().clone()
        };
        let basic = |username: &str, password| Credentials {
            username: username.to_owned(),
            password,
            ..plain.clone()
        };
        Ok(Arc::new(match (identity, what) {
            (Identity::GithubApp(_), _) => basic("x-access-token", token),
            (Identity::Google(account), _) => basic(account.email(), token),
            (Identity::Azure(_), Use::Registry(_)) => basic(azure::REGISTRY_USER, token),
            (Identity::Azure(_), Use::Git) => Credentials {
                bearer_token: token,
                ..plain
            },
        }))
    }

    async fn buy(&self, identity: &Identity, what: &Use, given: &Credentials) -> Result<Bought> {
        let shop = Shop {
            http: &self.http,
            way: Credentials {
                insecure: given.insecure,
                proxy: given.proxy.clone(),
                no_proxy: given.no_proxy.clone(),
                ..Credentials::default()
            },
        };
        match (identity, what) {
            (Identity::GithubApp(app), _) => app.buy(&shop).await,
            (Identity::Google(account), _) => account.buy(&shop).await,
            (Identity::Azure(principal), Use::Git) => principal.buy_for_git(&shop).await,
            (Identity::Azure(principal), Use::Registry(host)) => {
                principal.buy_for_registry(&shop, host).await
            }
        }
    }
}

/// The way to who sells tokens.
struct Shop<'a> {
    http: &'a Http,
    /// Proxy and trust of the repository.
    way: Credentials,
}

/// What OAuth 2 answers with.
#[derive(Deserialize)]
struct Granted {
    access_token: String,
    #[serde(default)]
    expires_in: u64,
}

impl Shop<'_> {
    /// Posts a text.
    async fn post<T: for<'de> Deserialize<'de>>(
        &self,
        url: &str,
        post: (&str, String),
        headers: &BTreeMap<String, String>,
    ) -> Result<T> {
        self.call(url, Some(post), headers).await
    }

    async fn get<T: for<'de> Deserialize<'de>>(
        &self,
        url: &str,
        headers: &BTreeMap<String, String>,
    ) -> Result<T> {
        self.call(url, None, headers).await
    }

    async fn call<T: for<'de> Deserialize<'de>>(
        &self,
        url: &str,
        post: Option<(&str, String)>,
        headers: &BTreeMap<String, String>,
    ) -> Result<T> {
        let call = Call {
            // Who configured the identity named this place, by that.
            owner: url,
            credentials: &self.way,
            headers,
            post,
            limit: MAX_ANSWER,
            ..Call::to(url)
        };
        let answer = self.http.call(call).await?;
        serde_json::from_slice(&answer.body).map_err(|_| Error::Fetch {
            attempted: "failed to get a token from",
            url: crate::git::url::display(url),
            message: "the answer is not the one that was asked for".into(),
        })
    }

    /// Posts a form of OAuth 2.
    async fn grant(&self, url: &str, fields: &[(&str, &str)]) -> Result<Bought> {
        let granted: Granted = self.post(url, (FORM, form(fields)), &BTreeMap::new()).await?;
        Ok(Bought::new(
            granted.access_token,
            Duration::from_secs(granted.expires_in),
        ))
    }
}

fn form(fields: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(fields)
        .finish()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// A statement, signed with a key in PEM (a JWT with RS256); `whose` is for errors.
fn signed(claims: &serde_json::Value, key: &Secret, whose: &str) -> Result<String> {
    let unusable = |message: &str| Error::Repository {
        url: whose.to_owned(),
        message: message.into(),
    };
    let key = rustls_pemfile::private_key(&mut key.expose().as_bytes())
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
    let text = format!("{header}.{}", BASE64URL.encode(claims.to_string()));
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
