//! Another token for the service account that a cluster is entered with.

use std::time::{Duration, Instant};

use argosy_api::v1alpha1::Cluster;
use argosy_kube_io::target::{Delete, Write};
use argosy_kube_io::{Target, api};
use argosy_object::Value;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;
use tonic::Status;

use super::Stored;
use crate::auth::session;
use crate::gate::{Granted, Update};
use crate::service::Api;
use crate::status;

/// A token controller fills a Secret within a moment.
const TOKEN_DEADLINE: Duration = Duration::from_secs(30);

/// Whose token it is, as the token itself says. It is not verified: the cluster does that, and it is only asked to make
/// another one for the same account.
struct Account {
    namespace: String,
    name: String,
    secret: String,
}

impl Account {
    fn of(token: &str) -> Option<Self> {
        let body = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
        let claims: Value = serde_json::from_slice(&body).ok()?;
        let claim = |name: &str| {
            Some(
                claims[format!("kubernetes.io/serviceaccount/{name}")]
                    .as_str()?
                    .to_owned(),
            )
        };
        Some(Account {
            namespace: claim("namespace")?,
            name: claim("service-account.name")?,
            secret: claim("secret.name")?,
        })
    }
}

impl Api {
    /// Makes a token, tries it, stores it, and takes the old one away, in this order: whatever fails, one of them works.
    pub(super) async fn rotate(&self, stored: &Granted<Stored, Update>) -> Result<(), Status> {
        let cluster = &stored.1;
        if cluster.config.bearer_token.is_empty() {
            return Err(Status::invalid_argument(format!(
                "Cluster '{}' does not use bearer token authentication",
                cluster.server
            )));
        }
        let account = Account::of(&cluster.config.bearer_token).ok_or_else(|| {
            Status::failed_precondition(
                "the token is not of a service account's Secret: add the cluster anew instead",
            )
        })?;
        let target = self.targets.of(&self.plane, cluster).await?;
        let (secret, token) = fresh_token(&target, &account).await?;
        let mut becomes = cluster.clone();
        let change = |cluster: &mut Cluster| {
            cluster.config.bearer_token.clone_from(&token);
            cluster.config.tls_client_config.cert_data.clear();
            cluster.config.tls_client_config.key_data.clear();
        };
        change(&mut becomes);
        self.try_cluster(&becomes).await?;
        let written = self.plane.change_cluster(stored, stored, change).await?;
        self.targets.forget(&written.server);
        tracing::info!(cluster = written.server, secret, "the cluster has another token");
        // With the new token: the old one may be refused from now on.
        let target = self.targets.of(&self.plane, &written).await?;
        target
            .delete(
                &api::secrets(),
                &account.namespace,
                &account.secret,
                &Delete::default(),
            )
            .await
            .map_err(status::kube)?;
        Ok(())
    }
}

/// A new Secret of the service account, and the token that the cluster puts into it.
async fn fresh_token(target: &Target, account: &Account) -> Result<(String, String), Status> {
    let suffix: String = session::random::<4>()?
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let name = format!("{}-token-{suffix}", account.name);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": name, "namespace": account.namespace,
            "annotations": {"kubernetes.io/service-account.name": account.name}}});
    target
        .create(&api::secrets(), &secret, &Write::default())
        .await
        .map_err(status::kube)?;
    let started = Instant::now();
    while started.elapsed() < TOKEN_DEADLINE {
        let found = target
            .get(&api::secrets(), &account.namespace, &name)
            .await
            .map_err(status::kube)?;
        let token = found.as_ref().and_then(|secret| secret["data"]["token"].as_str());
        if let Some(bytes) = token.and_then(|token| STANDARD.decode(token).ok())
            && let Ok(token) = String::from_utf8(bytes)
        {
            return Ok((name, token));
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    Err(Status::deadline_exceeded(format!(
        "Secret {}/{name} of the cluster got no token within {} s: does its token controller run?",
        account.namespace,
        TOKEN_DEADLINE.as_secs()
    )))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_says_whose_it_is() {
        let token = |claims: Value| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let account = Account::of(&token(json!({
            "kubernetes.io/serviceaccount/namespace": "kube-system",
            "kubernetes.io/serviceaccount/secret.name": "argocd-manager-token-abc",
            "kubernetes.io/serviceaccount/service-account.name": "argocd-manager"})))
        .unwrap();
        assert_eq!(
            (account.namespace.as_str(), account.name.as_str()),
            ("kube-system", "argocd-manager")
        );
        assert_eq!(account.secret, "argocd-manager-token-abc");
        // Of the kind that the API server hands to Pods, and of no kind at all.
        assert!(Account::of(&token(json!({"kubernetes.io": {"namespace": "a"}}))).is_none());
        assert!(Account::of("opaque").is_none());
    }
}
