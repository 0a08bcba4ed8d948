//! Service principals and workloads of Azure: a secret, or the token that Kubernetes gives the workload, buys a token of Entra ID, and
//! that one, where a registry is asked, a token of the registry.

use super::{Bought, FORM, Shop, form};
use crate::error::{Error, Result};
use crate::git::Secret;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The user that tokens of a registry are the password of.
pub(super) const REGISTRY_USER: &str = "00000000-0000-0000-0000-000000000000";
/// Azure DevOps.
const DEVOPS: &str = "499b84ac-1321-427f-aa17-267ca6975798/.default";
/// The management of Azure, whose tokens registries take unless they are told not to.
const MANAGEMENT: &str = "https://management.core.windows.net";
/// Where tokens are sold.
const AUTHORITY: &str = "https://login.microsoftonline.com";
const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// How long a registry's token is used: it does not say, and lasts three hours.
const REGISTRY_LIFETIME: Duration = Duration::from_secs(3600);

/// Who buys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    /// The tenant.
    pub tenant: String,
    /// The application.
    pub client_id: String,
    /// How it shows that it is.
    pub proof: Proof,
    /// Where tokens are sold; empty is the public cloud.
    pub authority: String,
    /// Whose tokens registries take; empty is the management of the public cloud.
    pub resource: String,
}

/// By what a principal is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// A secret.
    Secret(Secret),
    /// A file whose content Kubernetes renews.
    File(PathBuf),
}

#[derive(Deserialize)]
struct Refresh {
    refresh_token: String,
}

impl Principal {
    /// The workload that this process is, as the webhook of Azure's workload identity says it.
    ///
    /// # Errors
    /// The variable that is missing.
    pub fn workload() -> Result<Principal, String> {
        let variable = |name: &str| {
            let value = std::env::var(name).ok().filter(|value| !value.is_empty());
            value.ok_or_else(|| {
                format!("Azure workload identity is not set up for this process: {name} is not set")
            })
        };
        Ok(Principal {
            tenant: variable("AZURE_TENANT_ID")?,
            client_id: variable("AZURE_CLIENT_ID")?,
            proof: Proof::File(variable("AZURE_FEDERATED_TOKEN_FILE")?.into()),
            authority: variable("AZURE_AUTHORITY_HOST").unwrap_or_default(),
            resource: Principal::resource_of_registries(),
        })
    }

    /// Whose tokens registries take, as this process was told: other clouds have another management, and a registry may take
    /// tokens for registries alone (`https://containerregistry.azure.net`).
    pub(crate) fn resource_of_registries() -> String {
        std::env::var("AZURE_ARM_TOKEN_RESOURCE").unwrap_or_default()
    }

    pub(super) fn exposed(&self) -> String {
        let proof = match &self.proof {
            Proof::Secret(secret) => secret.expose().to_owned(),
            Proof::File(path) => path.display().to_string(),
        };
        [
            &self.tenant,
            &self.client_id,
            &self.authority,
            &self.resource,
            &proof,
        ]
        .map(String::as_str)
        .join(" ")
    }

    pub(super) async fn buy_for_git(&self, shop: &Shop<'_>) -> Result<Bought> {
        self.buy(shop, DEVOPS).await
    }

    pub(super) async fn buy_for_registry(&self, shop: &Shop<'_>, host: &str) -> Result<Bought> {
        let resource = match self.resource.trim_end_matches('/') {
            "" => MANAGEMENT,
            resource => resource,
        };
        let entra = self.buy(shop, &format!("{resource}/.default")).await?;
        let fields = [
            ("grant_type", "access_token"),
            ("service", host),
            ("tenant", self.tenant.as_str()),
            ("access_token", entra.token.expose()),
        ];
        // Always encrypted: the token opens more than a registry.
        let url = format!("https://{host}/oauth2/exchange");
        let bought: Refresh = shop.post(&url, (FORM, form(&fields)), &BTreeMap::new()).await?;
        Ok(Bought::new(bought.refresh_token, REGISTRY_LIFETIME))
    }

    async fn buy(&self, shop: &Shop<'_>, scope: &str) -> Result<Bought> {
        let authority = match self.authority.trim_end_matches('/') {
            "" => AUTHORITY,
            authority => authority,
        };
        let url = format!("{authority}/{}/oauth2/v2.0/token", self.tenant);
        let mut fields = vec![
            ("grant_type", "client_credentials"),
            ("client_id", self.client_id.as_str()),
            ("scope", scope),
        ];
        let assertion;
        match &self.proof {
            Proof::Secret(secret) => fields.push(("client_secret", secret.expose())),
            Proof::File(path) => {
                assertion = std::fs::read_to_string(path)
                    .map_err(|e| Error::io(format!("failed to read {}", path.display()), e))?;
                fields.push(("client_assertion_type", ASSERTION));
                fields.push(("client_assertion", assertion.trim()));
            }
        }
        shop.grant(&url, &fields).await
    }
}
