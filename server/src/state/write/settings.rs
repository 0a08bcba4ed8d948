//! ConfigMaps and Secrets of the installation itself: accounts, keys, certificates, what the server remembers.
//!
//! What is written mostly follows from what stands there (one more token in a list, a key only if there is none). So
//! each change is a function of the newest version, and is written only over exactly that.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_kube_io::target::{Patch, Write};
use argosy_kube_io::{ApiResource, api};
use argosy_object::Value;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tonic::Status;

use super::{TRIES, overtaken};
use crate::gate::{Granted, Writes};
use crate::state::{ConfigMap, ControlPlane, Secret, settings};
use crate::status;

/// What is to be set; None takes a key away.
pub(crate) type Change = BTreeMap<String, Option<String>>;

impl ControlPlane {
    /// Changes texts of a ConfigMap that the gate granted. `change` is called on the newest version until the write is
    /// not overtaken, and may refuse; an empty change writes nothing.
    pub(crate) async fn change_config_map<V: Writes>(
        &self,
        _granted: &Granted<Arc<ConfigMap>, V>,
        name: &str,
        mut change: impl FnMut(&ConfigMap) -> Result<Change, Status>,
    ) -> Result<(), Status> {
        let resource = api::config_maps();
        let _turn = self.turns.take(&resource.plural, &self.namespace, name).await;
        let mut known = self.config_maps.get(&self.namespace, name);
        for _ in 0..TRIES {
            let data = change(&known.clone().unwrap_or_default())?;
            if data.is_empty() {
                return Ok(());
            }
            let version = known.as_ref().map(|map| map.metadata.resource_version.as_str());
            if let Some(written) = self
                .try_to_set(&resource, "ConfigMap", name, version, json!(data))
                .await?
            {
                self.take_config_map(written)?;
                return Ok(());
            }
            known = match self.newest(&resource, name).await? {
                Some(newest) => Some(self.take_config_map(newest)?),
                None => None,
            };
        }
        Err(overtaken(name))
    }

    /// Changes values of `argocd-secret`, in the name of an account that the gate granted.
    pub(crate) async fn change_account<V: Writes>(
        &self,
        _granted: &Granted<String, V>,
        change: impl FnMut(&Secret) -> Result<Change, Status>,
    ) -> Result<(), Status> {
        self.change_secret(settings::SECRET, change).await
    }

    /// Changes values of a Secret of the server's own: keys it makes, sessions that were ended, logins that failed. As
    /// [`ControlPlane::change_config_map`].
    pub(crate) async fn change_secret(
        &self,
        name: &str,
        mut change: impl FnMut(&Secret) -> Result<Change, Status>,
    ) -> Result<(), Status> {
        let resource = api::secrets();
        let _turn = self.turns.take(&resource.plural, &self.namespace, name).await;
        let mut known = self.own_secret(name);
        for _ in 0..TRIES {
            let data = change(&known.clone().unwrap_or_default())?;
            if data.is_empty() {
                return Ok(());
            }
            let encoded: BTreeMap<_, _> = data
                .into_iter()
                .map(|(key, value)| (key, value.map(|text| STANDARD.encode(text))))
                .collect();
            let version = known
                .as_ref()
                .map(|secret| secret.metadata.resource_version.as_str());
            if let Some(written) = self
                .try_to_set(&resource, "Secret", name, version, json!(encoded))
                .await?
            {
                self.take_secret(written)?;
                return Ok(());
            }
            known = match self.newest(&resource, name).await? {
                Some(newest) => Some(self.take_secret(newest)?),
                None => None,
            };
        }
        Err(overtaken(name))
    }

    /// A Secret of the server's own.
    pub(crate) fn own_secret(&self, name: &str) -> Option<Arc<Secret>> {
        self.secrets.get(&self.namespace, name)
    }

    /// Sets `data` of an object of this version, or creates it where there is none. None if somebody else was first.
    async fn try_to_set(
        &self,
        resource: &ApiResource,
        kind: &str,
        name: &str,
        version: Option<&str>,
        mut data: Value,
    ) -> Result<Option<Value>, Status> {
        let written = match version {
            Some(version) => {
                let patch = json!({"data": data, "metadata": {"resourceVersion": version}});
                let write = Write::default();
                self.target
                    .patch(resource, &self.namespace, name, Patch::Merge(&patch), &write)
                    .await
            }
            None => {
                if let Some(data) = data.as_object_mut() {
                    data.retain(|_, value| !value.is_null());
                }
                let object = json!({"apiVersion": "v1", "kind": kind, "data": data,
                    "metadata": {"name": name, "namespace": self.namespace,
                        "labels": {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "argocd"}}});
                self.target.create(resource, &object, &Write::default()).await
            }
        };
        match written {
            Ok(written) => Ok(Some(written.object)),
            Err(error) if error.conflict() || error.already_exists() || error.not_found() => Ok(None),
            Err(error) => Err(status::kube(error)),
        }
    }

    /// The object as it is now.
    pub(super) async fn newest(&self, resource: &ApiResource, name: &str) -> Result<Option<Value>, Status> {
        self.target
            .get(resource, &self.namespace, name)
            .await
            .map_err(status::kube)
    }

    fn take_config_map(&self, object: Value) -> Result<Arc<ConfigMap>, Status> {
        let row: ConfigMap = serde_json::from_value(object).map_err(|error| status::internal(&error))?;
        let row = self.config_maps.observe(row);
        self.read_settings();
        Ok(row)
    }

    pub(super) fn take_secret(&self, object: Value) -> Result<Arc<Secret>, Status> {
        let row: Secret = serde_json::from_value(object).map_err(|error| status::internal(&error))?;
        let row = self.secrets.observe(row);
        self.read_settings();
        Ok(row)
    }
}
