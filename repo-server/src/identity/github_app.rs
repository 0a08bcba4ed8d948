//! Apps of GitHub: the app's key buys a token for an installation of it.

use super::{Bought, Shop, now, signed};
use crate::error::Result;
use crate::git::Secret;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a token is valid.
const LIFETIME: Duration = Duration::from_secs(3600);

/// An installation of an app.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GithubApp {
    /// Id of the app.
    pub app_id: i64,
    /// Id of its installation; 0 if it is to be asked for.
    pub installation_id: i64,
    /// Owner and name of the repository, by which it is asked for.
    pub repository: String,
    /// The app's private key in PEM.
    pub private_key: Secret,
    /// API of an enterprise server; empty is github.com.
    pub base_url: String,
}

#[derive(Deserialize)]
struct Token {
    token: String,
}

#[derive(Deserialize)]
struct Installation {
    id: i64,
}

impl GithubApp {
    pub(super) fn exposed(&self) -> String {
        format!(
            "{} {} {} {} {}",
            self.app_id,
            self.installation_id,
            self.repository,
            self.base_url,
            self.private_key.expose()
        )
    }

    pub(super) async fn buy(&self, shop: &Shop<'_>) -> Result<Bought> {
        let base = match self.base_url.as_str() {
            "" => "https://api.github.com",
            url => url.trim_end_matches('/'),
        };
        let now = now();
        // A minute back, for clocks that differ; ten minutes is the most that GitHub takes.
        let claims = serde_json::json!({"iat": now - 60, "exp": now + 540, "iss": self.app_id.to_string()});
        let whose = format!("GitHub App {}", self.app_id);
        let bearer = format!("Bearer {}", signed(&claims, &self.private_key, &whose)?);
        let headers = BTreeMap::from([("authorization".to_owned(), bearer)]);
        let installation = match self.installation_id {
            0 => {
                let url = format!("{base}/repos/{}/installation", self.repository);
                shop.get::<Installation>(&url, &headers).await?.id
            }
            known => known,
        };
        let url = format!("{base}/app/installations/{installation}/access_tokens");
        let post = ("application/vnd.github+json", String::new());
        let bought: Token = shop.post(&url, post, &headers).await?;
        Ok(Bought::new(bought.token, LIFETIME))
    }
}
