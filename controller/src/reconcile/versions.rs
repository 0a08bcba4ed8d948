//! Live objects in the version of their API that Git speaks.
//!
//! A cluster's objects are watched in one version each. Where Git has a resource in another one, and the two do not say the same in the same
//! fields, comparing them field by field would be comparing languages: the API server is asked for the object in Git's version. Only pairs
//! without a standing verdict are asked about, and most Applications have none.

use std::collections::HashMap;
use std::sync::Arc;

use argosy_kube_io::Target;
use argosy_livestate::Snapshot;
use argosy_object::{ResourceKey, Value};

use super::compare::Verdicts;
use super::dry_run::{self, BUDGET};
use super::manifest::Manifest;
use crate::clusters::Cluster;

/// By resource: the live object in the manifest's version, or why it could not be had.
pub(crate) type InVersion = HashMap<Arc<ResourceKey>, Result<Value, String>>;

/// Asks for the live objects of `manifests`, whose version is not that of the watch, where no verdict of `known` stands.
pub(crate) async fn ask(
    manifests: &[Arc<Manifest>],
    snapshot: &Snapshot,
    known: Option<&Verdicts>,
    cluster: &Cluster,
) -> InVersion {
    let open = dry_run::unsettled(manifests, snapshot, known);
    dry_run::of_each(open, cluster, |manifest, target| async move {
        let read = match target {
            Some(target) => one(&manifest, cluster, &target).await,
            None => Err("the cluster is not connected".to_owned()),
        };
        let version = manifest.gvk().api_version();
        read.map_err(|message| format!("read it as {version}: {message}"))
    })
    .await
}

async fn one(manifest: &Manifest, cluster: &Cluster, target: &Target) -> Result<Value, String> {
    let resource = cluster.discovery().exact(&manifest.gvk()).cloned();
    let resource = resource.ok_or("the cluster does not serve this version")?;
    let _slot = BUDGET.acquire().await.map_err(|_| "the process ends")?;
    let key = &manifest.key;
    let read = target.get(&resource, &key.namespace, &key.name).await;
    read.map_err(|error| error.message())?
        .ok_or_else(|| "it is gone".to_owned())
}
