//! Service accounts of Google Cloud: the account's key buys a token.

use super::{Bought, Shop, now, signed};
use crate::error::Result;
use crate::git::Secret;
use serde::Deserialize;

/// What tokens are good for.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// A service account, as its key file says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceAccount {
    email: String,
    private_key: Secret,
    token_uri: String,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    client_email: String,
    #[serde(default)]
    private_key: String,
    #[serde(default)]
    token_uri: String,
}

impl ServiceAccount {
    /// Reads a key file.
    ///
    /// # Errors
    /// Why it cannot be used, without what it holds.
    pub fn read(json: &str) -> Result<ServiceAccount, String> {
        let file: File = serde_json::from_str(json)
            .map_err(|_| "the key of the Google Cloud service account is not JSON".to_owned())?;
        if file.r#type != "service_account" || file.client_email.is_empty() || file.private_key.is_empty() {
            return Err("the Google Cloud credentials are not the key of a service account".to_owned());
        }
        let token_uri = match file.token_uri.is_empty() {
            true => "https://oauth2.googleapis.com/token".to_owned(),
            false => file.token_uri,
        };
        Ok(ServiceAccount {
            email: file.client_email,
            private_key: Secret::new(file.private_key),
            token_uri,
        })
    }

    pub(super) fn email(&self) -> &str {
        &self.email
    }

    pub(super) fn exposed(&self) -> String {
        format!("{} {} {}", self.email, self.token_uri, self.private_key.expose())
    }

    pub(super) async fn buy(&self, shop: &Shop<'_>) -> Result<Bought> {
        let now = now();
        let claims = serde_json::json!({
            "iss": self.email, "scope": SCOPE, "aud": self.token_uri, "iat": now, "exp": now + 3600,
        });
        let assertion = signed(&claims, &self.private_key, &self.email)?;
        let fields = [("grant_type", GRANT), ("assertion", assertion.as_str())];
        shop.grant(&self.token_uri, &fields).await
    }
}
