//! What other objects of the cluster know about the health of one.
//!
//! Two things that Argo CD, which looks at one object alone, cannot say: a claim that waits for its first consumer is as it should be, and
//! a workload that does not get ready says which of its Pods is stuck. The code of a workload stays its own.

use argosy_object::{Value, meta};

use crate::assess;
use crate::customizations::Customizations;
use crate::kind::pod;
use crate::status::{Health, Status};

/// Set by the scheduler on a claim once a Pod that uses it has a node.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Other objects of the cluster.
pub trait Neighbours {
    /// The StorageClass of this name.
    fn storage_class(&self, name: &str) -> Option<Value>;
    /// The Pods of a workload.
    fn pods(&self, workload: &Value) -> Vec<Value>;
}

/// [`assess`] with what `neighbours` know. They are asked only about an object that is on its way, and not where a script has answered.
#[must_use]
pub fn assess_among(
    live: &Value,
    customizations: &Customizations,
    neighbours: &impl Neighbours,
) -> Option<Health> {
    let health = assess(live, customizations)?;
    Some(among(live, health, customizations, neighbours))
}

fn among(
    live: &Value,
    health: Health,
    customizations: &Customizations,
    neighbours: &impl Neighbours,
) -> Health {
    let (group, kind) = (meta::group(live), meta::kind(live));
    if health.status != Status::Progressing
        || meta::deletion_timestamp(live).is_some()
        || customizations.script(group, kind).is_some()
    {
        return health;
    }
    match (group, kind) {
        ("", "PersistentVolumeClaim") if waits_for_consumer(live, neighbours) => {
            Health::new(Status::Healthy, "waiting for its first consumer")
        }
        ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet") => {
            let pods = neighbours.pods(live);
            let mut stuck = pods
                .iter()
                .filter_map(|found| Some((meta::name(found), pod::stuck(found)?)));
            match stuck.next() {
                None => health,
                Some((name, reason)) => {
                    let more = match stuck.count() {
                        0 => String::new(),
                        more => format!(" and {more} more"),
                    };
                    let text = format!("pod {name}: {reason}{more}");
                    let texts = [health.message, text];
                    let said: Vec<String> = texts.into_iter().filter(|text| !text.is_empty()).collect();
                    Health::new(health.status, said.join("; "))
                }
            }
        }
        _ => health,
    }
}

/// Its class binds volumes only where a Pod wants one, and no Pod has come yet.
fn waits_for_consumer(claim: &Value, neighbours: &impl Neighbours) -> bool {
    let class = meta::str_field(claim, &["spec", "storageClassName"]).unwrap_or_default();
    meta::str_field(claim, &["status", "phase"]) == Some("Pending")
        && meta::annotation(claim, SELECTED_NODE).is_none()
        && !class.is_empty()
        && neighbours.storage_class(class).is_some_and(|class| {
            meta::str_field(&class, &["volumeBindingMode"]) == Some("WaitForFirstConsumer")
        })
}
