//! Secrets that hold credentials: of clusters, repositories and templates, in Argo CD's form and under its names.

use std::collections::BTreeMap;

use argosy_api::annotation;
use argosy_api::v1alpha1::{Cluster, RepoCreds, Repository};
use argosy_kube_io::api;
use argosy_kube_io::target::{Delete, Propagation, Write};
use argosy_object::Value;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tonic::Status;

use super::{TRIES, overtaken};
use crate::gate::{Granted, Writes};
use crate::state::{ControlPlane, Secret, settings};
use crate::status;

/// A cluster, and the name of the Secret that describes it.
type Described = (Option<String>, Cluster);

impl ControlPlane {
    /// Writes the Secret of a cluster, whatever it held before.
    pub(crate) async fn write_cluster<V: Writes>(
        &self,
        granted: &Granted<Described, V>,
    ) -> Result<(), Status> {
        let (secret, cluster) = &**granted;
        let name = secret
            .clone()
            .unwrap_or_else(|| cluster_secret_name(&cluster.server));
        let (labels, annotations, data) = cluster_fields(cluster)?;
        self.put_secret(&name, labels, annotations, data, secret.is_none())
            .await
    }

    /// Changes the Secret of a cluster. `change` is called on the newest version until the write is not overtaken. What
    /// was granted is the cluster before and after, so one that others have moved meanwhile is left alone.
    pub(crate) async fn change_cluster<V: Writes>(
        &self,
        before: &Granted<Described, V>,
        after: &Granted<Described, V>,
        change: impl Fn(&mut Cluster),
    ) -> Result<Cluster, Status> {
        let (Some(name), known) = &**before else {
            return Err(no_secret());
        };
        let resource = api::secrets();
        let _turn = self.turns.take(&resource.plural, &self.namespace, name).await;
        let mut secret = self.own_secret(name);
        for _ in 0..TRIES {
            let newest = secret.ok_or_else(|| status::not_found("secrets", name))?;
            let mut cluster = settings::cluster(&newest).map_err(|error| status::internal(&error))?;
            let place = |cluster: &Cluster| (cluster.server.clone(), cluster.project.clone());
            let moved = place(&cluster) != place(known);
            change(&mut cluster);
            if moved || place(&cluster) != place(&after.1) {
                return Err(Status::aborted(format!(
                    "cluster {} has been moved by others: read it again and repeat the change",
                    known.server
                )));
            }
            let (labels, annotations, data) = cluster_fields(&cluster)?;
            let object = self.secret_document(Some(&newest), name, labels, annotations, data);
            match self.target.replace(&resource, &object, &Write::default()).await {
                Ok(written) => {
                    self.take_secret(written.object)?;
                    return Ok(cluster);
                }
                Err(error) if error.conflict() => {
                    secret = match self.newest(&resource, name).await? {
                        Some(newest) => Some(self.take_secret(newest)?),
                        None => None,
                    };
                }
                Err(error) => return Err(status::kube(error)),
            }
        }
        Err(overtaken(name))
    }

    /// Deletes the Secret of a cluster.
    pub(crate) async fn delete_cluster<V: Writes>(
        &self,
        granted: &Granted<Described, V>,
    ) -> Result<(), Status> {
        match &granted.0 {
            Some(secret) => self.delete_secret(secret).await,
            None => Err(no_secret()),
        }
    }

    /// Writes the Secret of a repository; `kind` is one of `secret_type`.
    pub(crate) async fn write_repository<V: Writes>(
        &self,
        granted: &Granted<(String, Repository), V>,
        kind: &str,
        new: bool,
    ) -> Result<(), Status> {
        let (secret, repository) = &**granted;
        let prefix = if kind == argosy_api::repository_secret::secret_type::REPOSITORY {
            "repo"
        } else {
            "repo-write"
        };
        let name = if new {
            format!(
                "{prefix}-{}",
                fnv32a(&format!("{}{}", repository.repo, repository.project))
            )
        } else {
            secret.clone()
        };
        let data = repository_fields(repository);
        self.put_secret(&name, typed(kind), managed(), data, new).await
    }

    /// Deletes the Secret of a repository.
    pub(crate) async fn delete_repository<V: Writes>(
        &self,
        granted: &Granted<(String, Repository), V>,
    ) -> Result<(), Status> {
        self.delete_secret(&granted.0).await
    }

    /// Writes the Secret of a credential template.
    pub(crate) async fn write_template<V: Writes>(
        &self,
        granted: &Granted<(String, RepoCreds), V>,
        kind: &str,
        new: bool,
    ) -> Result<(), Status> {
        let (secret, template) = &**granted;
        let prefix = if kind == argosy_api::repository_secret::secret_type::REPO_CREDS {
            "creds"
        } else {
            "creds-write"
        };
        let name = if new {
            format!("{prefix}-{}", fnv32a(&template.url))
        } else {
            secret.clone()
        };
        self.put_secret(&name, typed(kind), managed(), template_fields(template), new)
            .await
    }

    /// Deletes the Secret of a credential template.
    pub(crate) async fn delete_template<V: Writes>(
        &self,
        granted: &Granted<(String, RepoCreds), V>,
    ) -> Result<(), Status> {
        self.delete_secret(&granted.0).await
    }

    /// Writes a whole Secret: what the request says, whatever stands there.
    async fn put_secret(
        &self,
        name: &str,
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
        data: BTreeMap<&'static str, String>,
        new: bool,
    ) -> Result<(), Status> {
        let resource = api::secrets();
        let _turn = self.turns.take(&resource.plural, &self.namespace, name).await;
        if new {
            let object = self.secret_document(None, name, labels, annotations, data);
            let written = self.target.create(&resource, &object, &Write::default()).await;
            self.take_secret(written.map_err(status::kube)?.object)?;
            return Ok(());
        }
        let mut known = self.own_secret(name);
        for _ in 0..TRIES {
            let (mut labels, annotations, data) = (labels.clone(), annotations.clone(), data.clone());
            // Notes of others on the Secret stay.
            for (key, value) in known.iter().flat_map(|known| &known.metadata.labels) {
                labels.entry(key.clone()).or_insert_with(|| value.clone());
            }
            let object = self.secret_document(known.as_deref(), name, labels, annotations, data);
            match self.target.replace(&resource, &object, &Write::default()).await {
                Ok(written) => {
                    self.take_secret(written.object)?;
                    return Ok(());
                }
                Err(error) if error.conflict() => {
                    known = match self.newest(&resource, name).await? {
                        Some(newest) => Some(self.take_secret(newest)?),
                        None => None,
                    };
                }
                Err(error) => return Err(status::kube(error)),
            }
        }
        Err(overtaken(name))
    }

    /// The document of a Secret; of one that is known, with its version.
    fn secret_document(
        &self,
        known: Option<&Secret>,
        name: &str,
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
        data: BTreeMap<&'static str, String>,
    ) -> Value {
        let data: BTreeMap<_, _> = data
            .into_iter()
            .map(|(key, text)| (key, STANDARD.encode(text)))
            .collect();
        let mut object = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels, "annotations": annotations}});
        if let Some(known) = known {
            object["metadata"]["resourceVersion"] = known.metadata.resource_version.clone().into();
        }
        object
    }

    async fn delete_secret(&self, name: &str) -> Result<(), Status> {
        let delete = Delete {
            propagation: Propagation::Background,
            ..Delete::default()
        };
        self.target
            .delete(&api::secrets(), &self.namespace, name, &delete)
            .await
            .map_err(status::kube)?;
        self.secrets.forget(&self.namespace, name);
        self.read_settings();
        Ok(())
    }
}

fn no_secret() -> Status {
    Status::failed_precondition(
        "the control plane's own cluster has no Secret; set cluster.inClusterEnabled in argocd-cm to false",
    )
}

type Fields = (
    BTreeMap<String, String>,
    BTreeMap<String, String>,
    BTreeMap<&'static str, String>,
);

/// Labels, annotations and values of a cluster's Secret.
fn cluster_fields(cluster: &Cluster) -> Result<Fields, Status> {
    let mut labels = cluster.labels.clone();
    labels.extend(typed("cluster"));
    let mut annotations = cluster.annotations.clone();
    annotations.extend(managed());
    if let Some(at) = &cluster.refresh_requested_at {
        annotations.insert(annotation::REFRESH.to_owned(), at.to_timestamp().to_string());
    }
    let config = serde_json::to_string(&cluster.config).map_err(|error| status::internal(&error))?;
    let mut data = BTreeMap::from([
        ("server", cluster.server.trim_end_matches('/').to_owned()),
        ("name", cluster.name.clone()),
        ("config", config),
    ]);
    if !cluster.namespaces.is_empty() {
        data.insert("namespaces", cluster.namespaces.join(","));
    }
    if cluster.cluster_resources {
        data.insert("clusterResources", "true".to_owned());
    }
    if let Some(shard) = cluster.shard {
        data.insert("shard", shard.to_string());
    }
    if !cluster.project.is_empty() {
        data.insert("project", cluster.project.clone());
    }
    Ok((labels, annotations, data))
}

fn typed(kind: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(annotation::SECRET_TYPE.to_owned(), kind.to_owned())])
}

fn managed() -> BTreeMap<String, String> {
    BTreeMap::from([(
        annotation::MANAGED_BY.to_owned(),
        annotation::MANAGED_BY_ARGOCD.to_owned(),
    )])
}

/// `cluster-<host>-<hash of the URL>`.
fn cluster_secret_name(server: &str) -> String {
    let host = url::Url::parse(server)
        .ok()
        .and_then(|url| url.host_str().map(str::to_lowercase));
    let host = host.unwrap_or_default().replace([':', '[', ']'], "");
    format!("cluster-{host}-{}", fnv32a(server))
}

/// 32-bit FNV-1a: what Argo CD names its Secrets by.
fn fnv32a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

fn repository_fields(repository: &Repository) -> BTreeMap<&'static str, String> {
    let texts = [
        ("url", &repository.repo),
        ("name", &repository.name),
        ("type", &repository.r#type),
        ("project", &repository.project),
        ("username", &repository.username),
        ("password", &repository.password),
        ("bearerToken", &repository.bearer_token),
        ("sshPrivateKey", &repository.ssh_private_key),
        ("tlsClientCertData", &repository.tls_client_cert_data),
        ("tlsClientCertKey", &repository.tls_client_cert_key),
        ("githubAppPrivateKey", &repository.github_app_private_key),
        (
            "githubAppEnterpriseBaseUrl",
            &repository.github_app_enterprise_base_url,
        ),
        ("gcpServiceAccountKey", &repository.gcp_service_account_key),
        (
            "azureServicePrincipalClientId",
            &repository.azure_service_principal_client_id,
        ),
        (
            "azureServicePrincipalClientSecret",
            &repository.azure_service_principal_client_secret,
        ),
        (
            "azureServicePrincipalTenantId",
            &repository.azure_service_principal_tenant_id,
        ),
        (
            "azureActiveDirectoryEndpoint",
            &repository.azure_active_directory_endpoint,
        ),
        ("proxy", &repository.proxy),
        ("noProxy", &repository.no_proxy),
    ];
    let flags = [
        ("insecure", repository.insecure),
        ("insecureIgnoreHostKey", repository.insecure_ignore_host_key),
        ("enableLfs", repository.enable_lfs),
        ("enableOCI", repository.enable_oci),
        ("insecureOCIForceHttp", repository.insecure_oci_force_http),
        ("forceHttpBasicAuth", repository.force_http_basic_auth),
        ("useAzureWorkloadIdentity", repository.use_azure_workload_identity),
        (
            "webhookManifestCacheWarmDisabled",
            repository.webhook_manifest_cache_warm_disabled,
        ),
    ];
    let numbers = [
        ("githubAppID", repository.github_app_id),
        ("githubAppInstallationID", repository.github_app_installation_id),
        ("depth", repository.depth),
    ];
    fields(&texts, &flags, &numbers)
}

fn template_fields(template: &RepoCreds) -> BTreeMap<&'static str, String> {
    let texts = [
        ("url", &template.url),
        ("type", &template.r#type),
        ("username", &template.username),
        ("password", &template.password),
        ("bearerToken", &template.bearer_token),
        ("sshPrivateKey", &template.ssh_private_key),
        ("tlsClientCertData", &template.tls_client_cert_data),
        ("tlsClientCertKey", &template.tls_client_cert_key),
        ("githubAppPrivateKey", &template.github_app_private_key),
        (
            "githubAppEnterpriseBaseUrl",
            &template.github_app_enterprise_base_url,
        ),
        ("gcpServiceAccountKey", &template.gcp_service_account_key),
        (
            "azureServicePrincipalClientID",
            &template.azure_service_principal_client_id,
        ),
        (
            "azureServicePrincipalClientSecret",
            &template.azure_service_principal_client_secret,
        ),
        (
            "azureServicePrincipalTenantID",
            &template.azure_service_principal_tenant_id,
        ),
        (
            "azureActiveDirectoryEndpoint",
            &template.azure_active_directory_endpoint,
        ),
        ("proxy", &template.proxy),
        ("noProxy", &template.no_proxy),
    ];
    let flags = [
        ("enableOCI", template.enable_oci),
        ("insecureOCIForceHttp", template.insecure_oci_force_http),
        ("forceHttpBasicAuth", template.force_http_basic_auth),
        ("useAzureWorkloadIdentity", template.use_azure_workload_identity),
    ];
    let numbers = [
        ("githubAppID", template.github_app_id),
        ("githubAppInstallationID", template.github_app_installation_id),
    ];
    fields(&texts, &flags, &numbers)
}

fn fields(
    texts: &[(&'static str, &String)],
    flags: &[(&'static str, bool)],
    numbers: &[(&'static str, i64)],
) -> BTreeMap<&'static str, String> {
    let texts = texts
        .iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(key, text)| (*key, (*text).clone()));
    let flags = flags
        .iter()
        .filter(|(_, on)| *on)
        .map(|(key, _)| (*key, "true".to_owned()));
    let numbers = numbers
        .iter()
        .filter(|(_, number)| *number != 0)
        .map(|(key, number)| (*key, number.to_string()));
    texts.chain(flags).chain(numbers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_those_that_argo_cd_gives() {
        // FNV-1a test vectors of its specification.
        assert_eq!(fnv32a(""), 0x811c_9dc5);
        assert_eq!(fnv32a("a"), 0xe40c_292c);
        assert_eq!(fnv32a("foobar"), 0xbf9c_f968);
        assert!(cluster_secret_name("https://K8s.Example.com:6443").starts_with("cluster-k8s.example.com-"));
    }
}
