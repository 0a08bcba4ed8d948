//! Every write of this server to the control plane. Each wants what the gate granted for exactly this object; what the
//! API server answers is in the tables before the call returns.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_api::v1alpha1::{AppProject, Application, ApplicationSet, Cluster, RepoCreds, Repository, Stored};
use argosy_kube_io::target::{Delete, Deleted, Patch, Propagation, Write};
use argosy_kube_io::{ApiResource, api};
use argosy_object::Value;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tonic::Status;

use super::table::{Row, Table};
use super::{ConfigMap, ControlPlane, Secret, settings};
use crate::gate::{Granted, Writes};
use crate::status;

/// After a conflict the object is read anew, at most so often.
const TRIES: usize = 5;

/// A kind that is both stored and followed.
pub(crate) trait Kept: Stored + Row {
    /// Its name in URLs of the Kubernetes API.
    fn resource() -> ApiResource;
    /// Its table.
    fn table(plane: &ControlPlane) -> &Arc<Table<Self>>;
}

macro_rules! kept {
    ($($kind:ty, $resource:path, $table:ident;)*) => {$(
        impl Kept for $kind {
            fn resource() -> ApiResource {
                $resource()
            }

            fn table(plane: &ControlPlane) -> &Arc<Table<Self>> {
                &plane.$table
            }
        }
    )*};
}

kept! {
    Application, api::applications, apps;
    AppProject, api::app_projects, projects;
    ApplicationSet, api::application_sets, app_sets;
}

impl ControlPlane {
    fn observe<T: Kept>(&self, document: &Value) -> Result<Arc<T>, Status> {
        let row = T::from_document(document).map_err(|error| status::internal(&error))?;
        Ok(T::table(self).observe(row))
    }

    /// Creates the object that was granted, or only tries to.
    pub(crate) async fn create<T: Kept, V: Writes>(
        &self,
        granted: &Granted<Arc<T>, V>,
        dry_run: bool,
    ) -> Result<Arc<T>, Status> {
        let write = Write {
            dry_run,
            ..Write::default()
        };
        let document = granted.to_document();
        let written = self
            .target
            .create(&T::resource(), &document, &write)
            .await
            .map_err(status::kube)?;
        if dry_run {
            let row = T::from_document(&written.object).map_err(|error| status::internal(&error))?;
            return Ok(Arc::new(row));
        }
        self.observe(&written.object)
    }

    /// Changes the object that was granted. `change` is called on the newest version until the write is not overtaken,
    /// and may refuse.
    pub(crate) async fn update<T: Kept + Clone, V: Writes>(
        &self,
        granted: &Granted<Arc<T>, V>,
        mut change: impl FnMut(&mut T) -> Result<(), Status>,
    ) -> Result<Arc<T>, Status> {
        let (namespace, name) = (
            granted.metadata().namespace.clone(),
            granted.metadata().name.clone(),
        );
        let uid = granted.metadata().uid.clone();
        let mut row: T = T::clone(&***granted);
        for _ in 0..TRIES {
            let before = row.to_document();
            change(&mut row)?;
            let after = row.to_document();
            let mut patch = difference(&before, &after);
            if patch.as_object().is_some_and(serde_json::Map::is_empty) {
                return Ok(Arc::new(row));
            }
            patch["metadata"]["resourceVersion"] = row.metadata().resource_version.clone().into();
            patch["metadata"]["uid"] = uid.clone().into();
            let written = self
                .target
                .patch(
                    &T::resource(),
                    &namespace,
                    &name,
                    Patch::Merge(&patch),
                    &Write::default(),
                )
                .await;
            match written {
                Ok(written) => return self.observe(&written.object),
                Err(error) if error.conflict() => {
                    let newest = self
                        .target
                        .get(&T::resource(), &namespace, &name)
                        .await
                        .map_err(status::kube)?;
                    let newest = newest.filter(|newest| newest["metadata"]["uid"] == uid.as_str());
                    let newest = newest.ok_or_else(|| status::not_found(T::PLURAL, &name))?;
                    row = T::clone(&*self.observe::<T>(&newest)?);
                }
                Err(error) => return Err(status::kube(error)),
            }
        }
        Err(Status::aborted(format!(
            "{name} is being changed by others all the time, try again"
        )))
    }

    /// Deletes the object that was granted.
    pub(crate) async fn delete<T: Kept, V: Writes>(
        &self,
        granted: &Granted<Arc<T>, V>,
    ) -> Result<(), Status> {
        let meta = granted.metadata();
        let delete = Delete {
            uid: Some(meta.uid.clone()),
            propagation: Propagation::Background,
            ..Delete::default()
        };
        match self
            .target
            .delete(&T::resource(), &meta.namespace, &meta.name, &delete)
            .await
            .map_err(status::kube)?
        {
            Deleted::Gone => T::table(self).forget(&meta.namespace, &meta.name),
            Deleted::Marked(object) => _ = self.observe::<T>(&object)?,
        }
        Ok(())
    }

    /// Writes the Secret of a cluster. `fields` is what it holds besides labels.
    pub(crate) async fn write_cluster<V: Writes>(
        &self,
        granted: &Granted<(Option<String>, Cluster), V>,
    ) -> Result<(), Status> {
        let (secret, cluster) = &**granted;
        let name = secret
            .clone()
            .unwrap_or_else(|| cluster_secret_name(&cluster.server));
        let mut labels = cluster.labels.clone();
        labels.insert(
            argosy_api::annotation::SECRET_TYPE.to_owned(),
            "cluster".to_owned(),
        );
        let mut annotations = cluster.annotations.clone();
        annotations.insert(
            argosy_api::annotation::MANAGED_BY.to_owned(),
            argosy_api::annotation::MANAGED_BY_ARGOCD.to_owned(),
        );
        if let Some(at) = &cluster.refresh_requested_at {
            annotations.insert(
                argosy_api::annotation::REFRESH.to_owned(),
                at.to_timestamp().to_string(),
            );
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
        self.put_secret(&name, labels, annotations, data, secret.is_none())
            .await
    }

    /// Deletes the Secret of a cluster.
    pub(crate) async fn delete_cluster<V: Writes>(
        &self,
        granted: &Granted<(Option<String>, Cluster), V>,
    ) -> Result<(), Status> {
        match &granted.0 {
            Some(secret) => self.delete_secret(secret).await,
            None => Err(Status::failed_precondition(
                "the control plane's own cluster has no Secret; set cluster.inClusterEnabled in argocd-cm to false",
            )),
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

    /// Sets texts of a ConfigMap that the gate granted; None takes a key away.
    pub(crate) async fn write_config_map<V: Writes>(
        &self,
        _granted: &Granted<Arc<ConfigMap>, V>,
        name: &str,
        data: BTreeMap<String, Option<String>>,
    ) -> Result<(), Status> {
        let patch = json!({"data": data});
        let namespace = &self.namespace;
        let patched = self
            .target
            .patch(
                &api::config_maps(),
                namespace,
                name,
                Patch::Merge(&patch),
                &Write::default(),
            )
            .await;
        let written = match patched {
            Err(error) if error.not_found() => {
                let data: BTreeMap<_, _> = patch["data"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(_, value)| !value.is_null())
                    .collect();
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
                    "metadata": {"name": name, "namespace": namespace,
                        "labels": {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "argocd"}}});
                self.target
                    .create(&api::config_maps(), &object, &Write::default())
                    .await
            }
            other => other,
        };
        let written = written.map_err(status::kube)?;
        let row: ConfigMap =
            serde_json::from_value(written.object).map_err(|error| status::internal(&error))?;
        self.config_maps.observe(row);
        self.read_settings();
        Ok(())
    }

    /// Sets values of `argocd-secret`, in the name of an account that the gate granted; None takes a key away.
    pub(crate) async fn write_account<V: Writes>(
        &self,
        _granted: &Granted<String, V>,
        data: BTreeMap<String, Option<String>>,
    ) -> Result<(), Status> {
        self.merge_secret(settings::SECRET, data).await
    }

    /// Sets values of a Secret of the server's own: keys it makes, sessions that were ended, logins that failed.
    pub(crate) async fn merge_secret(
        &self,
        name: &str,
        data: BTreeMap<String, Option<String>>,
    ) -> Result<(), Status> {
        let encoded: BTreeMap<_, _> = data
            .into_iter()
            .map(|(key, value)| (key, value.map(|text| STANDARD.encode(text))))
            .collect();
        let patch = json!({"data": encoded});
        let patched = self
            .target
            .patch(
                &api::secrets(),
                &self.namespace,
                name,
                Patch::Merge(&patch),
                &Write::default(),
            )
            .await;
        let written = match patched {
            Err(error) if error.not_found() => {
                let data: BTreeMap<_, _> = encoded.into_iter().filter(|(_, value)| value.is_some()).collect();
                let object = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
                    "metadata": {"name": name, "namespace": self.namespace,
                        "labels": {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "argocd"}}});
                self.target
                    .create(&api::secrets(), &object, &Write::default())
                    .await
            }
            other => other,
        };
        self.take_secret(written.map_err(status::kube)?.object)
    }

    /// A Secret of the server's own.
    pub(crate) fn own_secret(&self, name: &str) -> Option<Arc<Secret>> {
        self.secrets.get(&self.namespace, name)
    }

    /// Asks the controller to look at every Application that is so; the number of those asked.
    pub(crate) async fn ask_for_looks(&self, so: impl Fn(&Application) -> bool) -> usize {
        let patch = json!({"metadata": {"annotations": {argosy_api::annotation::REFRESH: "normal"}}});
        let mut asked = 0;
        for app in self.apps.all() {
            let waiting = app
                .metadata
                .annotations
                .contains_key(argosy_api::annotation::REFRESH);
            if waiting || !so(&app) {
                continue;
            }
            let meta = &app.metadata;
            let patched = self
                .target
                .patch(
                    &api::applications(),
                    &meta.namespace,
                    &meta.name,
                    Patch::Merge(&patch),
                    &Write::default(),
                )
                .await;
            match patched {
                Ok(written) => {
                    asked += 1;
                    if let Err(error) = self.observe::<Application>(&written.object) {
                        tracing::warn!(
                            app = meta.name,
                            error = error.message(),
                            "read an Application back"
                        );
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        app = meta.name,
                        error = argosy_runtime::log::chain(&error),
                        "ask for a look"
                    );
                }
            }
        }
        asked
    }

    /// Makes the project that every installation has.
    pub(crate) async fn ensure_default_project(&self) -> Result<(), Status> {
        if self.projects.get(&self.namespace, "default").is_some() {
            return Ok(());
        }
        let object = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": "default", "namespace": self.namespace},
            "spec": {"sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}],
                "clusterResourceWhitelist": [{"group": "*", "kind": "*"}]}});
        match self
            .target
            .create(&api::app_projects(), &object, &Write::default())
            .await
        {
            Ok(written) => self.observe::<AppProject>(&written.object).map(|_| ()),
            Err(error) if error.already_exists() => Ok(()),
            Err(error) => Err(status::kube(error)),
        }
    }

    /// Raw reads of core kinds beside the control plane's own, such as events. The object they are about must have been
    /// granted.
    pub(crate) async fn events_about<T: Kept, V>(
        &self,
        granted: &Granted<Arc<T>, V>,
    ) -> Result<Vec<bytes::Bytes>, Status> {
        let meta = granted.metadata();
        let selection = argosy_kube_io::target::Selection {
            namespace: meta.namespace.clone(),
            fields: format!(
                "involvedObject.name={},involvedObject.uid={}",
                meta.name, meta.uid
            ),
            ..Default::default()
        };
        Ok(self
            .target
            .list(&api::events(), &selection)
            .await
            .map_err(status::kube)?
            .items)
    }

    fn take_secret(&self, object: Value) -> Result<(), Status> {
        let row: Secret = serde_json::from_value(object).map_err(|error| status::internal(&error))?;
        self.secrets.observe(row);
        self.read_settings();
        Ok(())
    }

    async fn put_secret(
        &self,
        name: &str,
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
        data: BTreeMap<&'static str, String>,
        new: bool,
    ) -> Result<(), Status> {
        let data: BTreeMap<_, _> = data
            .into_iter()
            .map(|(key, text)| (key, STANDARD.encode(text)))
            .collect();
        let mut object = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels, "annotations": annotations}});
        let written = if new {
            self.target
                .create(&api::secrets(), &object, &Write::default())
                .await
        } else {
            if let Some(known) = self.own_secret(name) {
                object["metadata"]["resourceVersion"] = known.metadata.resource_version.clone().into();
                // Notes of others on the Secret stay.
                for (key, value) in &known.metadata.labels {
                    if object["metadata"]["labels"].get(key).is_none() {
                        object["metadata"]["labels"][key] = value.clone().into();
                    }
                }
            }
            self.target
                .replace(&api::secrets(), &object, &Write::default())
                .await
        };
        self.take_secret(written.map_err(status::kube)?.object)
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

/// The merge patch that leads from one document to another.
pub(crate) fn difference(before: &Value, after: &Value) -> Value {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else {
        return after.clone();
    };
    let mut patch = serde_json::Map::new();
    for (key, value) in new {
        match old.get(key) {
            Some(known) if known == value => {}
            Some(known) if known.is_object() && value.is_object() => {
                patch.insert(key.clone(), difference(known, value));
            }
            _ => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

fn typed(kind: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(argosy_api::annotation::SECRET_TYPE.to_owned(), kind.to_owned())])
}

fn managed() -> BTreeMap<String, String> {
    BTreeMap::from([(
        argosy_api::annotation::MANAGED_BY.to_owned(),
        argosy_api::annotation::MANAGED_BY_ARGOCD.to_owned(),
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
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_of_secrets_are_those_that_argo_cd_gives() {
        // FNV-1a test vectors of its specification.
        assert_eq!(fnv32a(""), 0x811c_9dc5);
        assert_eq!(fnv32a("a"), 0xe40c_292c);
        assert_eq!(fnv32a("foobar"), 0xbf9c_f968);
        assert!(cluster_secret_name("https://K8s.Example.com:6443").starts_with("cluster-k8s.example.com-"));
    }

    #[test]
    fn a_difference_is_a_merge_patch() {
        let (before, after) = (
            json!({"a": {"b": 1, "c": 2}, "d": [1]}),
            json!({"a": {"b": 1, "c": 3}, "e": 4}),
        );
        let patch = difference(&before, &after);
        assert_eq!(patch, json!({"a": {"c": 3}, "d": null, "e": 4}));
        let mut patched = before;
        json_patch::merge(&mut patched, &patch);
        assert_eq!(patched, after);
    }
}
