//! Kubernetes calls as a person with `kubectl` makes them, over plain JSON.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

/// The field manager of everything that this client applies: a person's.
const MANAGER: &str = "kubectl";

/// A client of one API server.
#[derive(Clone)]
pub struct Api {
    client: Client,
}

/// One kind, as its REST path needs it.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// `v1` or `group/version`.
    pub api_version: &'static str,
    /// The plural name in paths.
    pub plural: &'static str,
}

/// Kinds that tests and demo speak of.
pub mod kinds {
    use super::Kind;

    macro_rules! kinds {
        ($($name:ident = $api_version:literal / $plural:literal),* $(,)?) => {
            $(#[doc = concat!("`", $plural, "` of `", $api_version, "`.")]
            pub const $name: Kind = Kind { api_version: $api_version, plural: $plural };)*
        };
    }

    kinds! {
        NAMESPACE = "v1" / "namespaces",
        CONFIG_MAP = "v1" / "configmaps",
        SECRET = "v1" / "secrets",
        SERVICE = "v1" / "services",
        SERVICE_ACCOUNT = "v1" / "serviceaccounts",
        EVENT = "v1" / "events",
        NODE = "v1" / "nodes",
        POD = "v1" / "pods",
        DEPLOYMENT = "apps/v1" / "deployments",
        REPLICA_SET = "apps/v1" / "replicasets",
        JOB = "batch/v1" / "jobs",
        CRD = "apiextensions.k8s.io/v1" / "customresourcedefinitions",
        APPLICATION = "argoproj.io/v1alpha1" / "applications",
        PROJECT = "argoproj.io/v1alpha1" / "appprojects",
        CLUSTER_ROLE = "rbac.authorization.k8s.io/v1" / "clusterroles",
    }
}

impl Api {
    /// A client from a kubeconfig file.
    ///
    /// # Errors
    /// When the file cannot be read or names no usable server.
    pub async fn connect(kubeconfig: &Path) -> Result<Self> {
        // Two callers may race to install it; either one's choice is the same.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let file = Kubeconfig::read_from(kubeconfig).context("read the kubeconfig")?;
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Ok(Self {
            client: Client::try_from(config)?,
        })
    }

    /// The object, or None if there is none.
    ///
    /// # Errors
    /// When the API server refuses or cannot be reached.
    pub async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Value>> {
        match self
            .call("GET", &path(kind, namespace, Some(name)), "", None)
            .await
        {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_code(&error, 404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All objects of a kind in a namespace (`""`: in all).
    ///
    /// # Errors
    /// When the API server refuses or cannot be reached.
    pub async fn list(&self, kind: Kind, namespace: &str) -> Result<Vec<Value>> {
        let list = self.call("GET", &path(kind, namespace, None), "", None).await?;
        match list {
            Value::Object(mut list) => match list.remove("items") {
                Some(Value::Array(items)) => Ok(items),
                _ => Ok(Vec::new()),
            },
            _ => Err(anyhow!("the API server's answer to a list is not an object")),
        }
    }

    /// Creates an object.
    ///
    /// # Errors
    /// When the API server refuses or cannot be reached.
    pub async fn create(&self, kind: Kind, object: &Value) -> Result<Value> {
        let query = format!("?fieldManager={MANAGER}");
        let target = format!("{}{query}", path(kind, namespace_of(object), None));
        self.call("POST", &target, "application/json", Some(object)).await
    }

    /// Server-side apply with force.
    ///
    /// # Errors
    /// When the API server refuses or cannot be reached.
    pub async fn apply(&self, kind: Kind, object: &Value) -> Result<Value> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let query = format!("?fieldManager={MANAGER}&force=true");
        let target = format!("{}{query}", path(kind, namespace_of(object), Some(name)));
        self.call("PATCH", &target, "application/apply-patch+yaml", Some(object))
            .await
    }

    /// JSON merge patch.
    ///
    /// # Errors
    /// When the API server refuses or cannot be reached.
    pub async fn merge_patch(&self, kind: Kind, namespace: &str, name: &str, patch: &Value) -> Result<Value> {
        let target = format!("{}?fieldManager={MANAGER}", path(kind, namespace, Some(name)));
        self.call("PATCH", &target, "application/merge-patch+json", Some(patch))
            .await
    }

    /// A patch of any kind by a field manager, forced; `dry_run` stores nothing. `object` says which one is patched.
    ///
    /// # Errors
    /// When the API server refuses or cannot be reached.
    pub async fn patch_as(
        &self,
        manager: &str,
        kind: Kind,
        object: &Value,
        content_type: &str,
        body: &Value,
        dry_run: bool,
    ) -> Result<Value> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let force = if content_type.contains("apply") {
            "&force=true"
        } else {
            ""
        };
        let dry_run = if dry_run { "&dryRun=All" } else { "" };
        let target = format!(
            "{}?fieldManager={manager}{force}{dry_run}",
            path(kind, namespace_of(object), Some(name))
        );
        self.call("PATCH", &target, content_type, Some(body)).await
    }

    /// JSON merge patch of the status subresource, as a kubelet or a workload controller writes it.
    ///
    /// # Errors
    /// When the API server refuses or cannot be reached.
    pub async fn patch_status(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value> {
        let target = format!(
            "{}/status?fieldManager={MANAGER}",
            path(kind, namespace, Some(name))
        );
        self.call("PATCH", &target, "application/merge-patch+json", Some(patch))
            .await
    }

    /// Deletes an object in the background; fine if it is not there.
    ///
    /// # Errors
    /// When the API server refuses or cannot be reached.
    pub async fn delete(&self, kind: Kind, namespace: &str, name: &str) -> Result<()> {
        let options = json!({"propagationPolicy": "Background"});
        match self
            .call(
                "DELETE",
                &path(kind, namespace, Some(name)),
                "application/json",
                Some(&options),
            )
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if is_code(&error, 404) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let mut request = http::Request::builder().method(method).uri(path);
        if !content_type.is_empty() {
            request = request.header("Content-Type", content_type);
        }
        let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        self.client
            .request(request.body(body)?)
            .await
            .with_context(|| format!("{method} {path}"))
    }
}

/// Whether an error of this client is the API server's answer with that HTTP code.
#[must_use]
pub fn is_code(error: &anyhow::Error, code: u16) -> bool {
    matches!(error.downcast_ref::<kube::Error>(), Some(kube::Error::Api(status)) if status.code == code)
}

fn namespace_of(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or_default()
}

fn path(kind: Kind, namespace: &str, name: Option<&str>) -> String {
    let root = if kind.api_version.contains('/') {
        "/apis"
    } else {
        "/api"
    };
    let namespace = if namespace.is_empty() {
        String::new()
    } else {
        format!("/namespaces/{namespace}")
    };
    let name = name.map(|name| format!("/{name}")).unwrap_or_default();
    format!("{root}/{}{namespace}/{}{name}", kind.api_version, kind.plural)
}
