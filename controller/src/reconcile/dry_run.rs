//! Comparison by dry run (`ServerSideDiff`): before the pairs are judged, the API server is asked what an apply would make of them.
//!
//! Only pairs that have both sides, that want it, and that have no standing verdict are asked about: an unchanged pair costs no call. Calls
//! are budgeted over the whole process, so that a fleet that is compared at once does not drown its API servers.

use std::collections::HashMap;
use std::sync::Arc;

use argosy_api::annotation::CompareOptions;
use argosy_kube_io::Target;
use argosy_kube_io::target::{FieldValidation, Impersonate, Patch, Write};
use argosy_livestate::Snapshot;
use argosy_object::{ResourceKey, Value};
use futures::StreamExt as _;
use tokio::sync::Semaphore;

use super::compare::Verdicts;
use super::manifest::Manifest;
use crate::clusters::Cluster;
use crate::operation::prepared;

/// Calls in flight for comparisons, over all Applications and clusters of the process.
pub(super) static BUDGET: Semaphore = Semaphore::const_new(40);
/// Those of one Application.
const OF_ONE: usize = 10;

/// What the API server said about an apply of a resource.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The object as it would be.
    Predicted(Box<Value>),
    /// It would be refused: desired and live differ, and this is what a sync would be told.
    Refused(String),
    /// It could not be asked: nothing is known.
    Unknown(String),
}

/// Answers by resource.
pub(crate) type DryRuns = HashMap<Arc<ResourceKey>, Answer>;

/// Whether a resource is compared by dry run: as it says itself, or else its Application, or else the process.
pub(crate) fn wanted(of_resource: CompareOptions, of_app: CompareOptions, by_default: bool) -> bool {
    of_resource
        .server_side_diff
        .or(of_app.server_side_diff)
        .unwrap_or(by_default)
}

/// Asks about those of `manifests` that are compared by dry run and have no standing verdict among `known`; as `account`, if there is one, and
/// not at all if it cannot be said as whom.
pub(crate) async fn ask(
    manifests: &[Arc<Manifest>],
    snapshot: &Snapshot,
    known: Option<&Verdicts>,
    cluster: &Cluster,
    account: &Result<Option<Impersonate>, String>,
    wanted: impl Fn(&Manifest) -> bool,
) -> DryRuns {
    let open = unsettled(manifests, snapshot, known).filter(|manifest| wanted(manifest));
    of_each(open, cluster, |manifest, target| async move {
        match (target, account) {
            (Some(target), Ok(None)) => one(&manifest, cluster, &target).await,
            (Some(target), Ok(Some(account))) => {
                one(&manifest, cluster, &target.with_impersonation(account.clone())).await
            }
            (Some(_), Err(message)) => Answer::Unknown(message.clone()),
            (None, _) => Answer::Unknown("the cluster is not connected".to_owned()),
        }
    })
    .await
}

/// The manifests that live and have no standing verdict among `known`: all that the API server is ever asked about.
pub(super) fn unsettled<'a>(
    manifests: &'a [Arc<Manifest>],
    snapshot: &Snapshot,
    known: Option<&Verdicts>,
) -> impl Iterator<Item = &'a Arc<Manifest>> {
    manifests.iter().filter(move |manifest| {
        let live = snapshot.get(&manifest.key);
        let stands = || {
            let verdict = known.and_then(|known| known.get(&manifest.key));
            verdict.is_some_and(|verdict| verdict.stands(Some(manifest), live.as_deref()))
        };
        live.is_some() && !stands()
    })
}

/// By resource, what `question` got to know of each manifest, a few at a time; it is given the cluster's target if that is connected.
pub(super) async fn of_each<T, Asked: Future<Output = T>>(
    manifests: impl Iterator<Item = &Arc<Manifest>>,
    cluster: &Cluster,
    question: impl Fn(Arc<Manifest>, Option<Target>) -> Asked,
) -> HashMap<Arc<ResourceKey>, T> {
    let target = cluster.target();
    let asked: Vec<_> = manifests
        .map(|manifest| {
            let answer = question(manifest.clone(), target.clone());
            let key = manifest.key.clone();
            async move { (key, answer.await) }
        })
        .collect();
    futures::stream::iter(asked)
        .buffer_unordered(OF_ONE)
        .collect()
        .await
}

async fn one(manifest: &Manifest, cluster: &Cluster, target: &Target) -> Answer {
    let Some(resource) = cluster.discovery().find(&manifest.gvk()).cloned() else {
        return Answer::Unknown(format!("the cluster does not serve {:?}", manifest.gvk()));
    };
    let object = prepared(&manifest.document.value());
    let options = Write {
        dry_run: true,
        field_validation: FieldValidation::Ignore,
        ..Write::default()
    };
    let body = Patch::Apply {
        object: &object,
        force: true,
    };
    let Ok(_slot) = BUDGET.acquire().await else {
        return Answer::Unknown("the process ends".to_owned());
    };
    let key = &manifest.key;
    match target
        .patch(&resource, &key.namespace, &key.name, body, &options)
        .await
    {
        Ok(written) => Answer::Predicted(Box::new(written.object)),
        Err(error) if error.invalid() => Answer::Refused(error.message()),
        Err(error) => Answer::Unknown(error.message()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_beats_its_application_and_that_the_process() {
        let stated = |server_side_diff| CompareOptions {
            server_side_diff,
            ..CompareOptions::default()
        };
        assert!(wanted(stated(None), stated(None), true));
        assert!(!wanted(stated(None), stated(Some(false)), true));
        assert!(wanted(stated(Some(true)), stated(Some(false)), false));
        assert!(!wanted(stated(Some(false)), stated(Some(true)), true));
    }
}
