//! What a cluster does by itself: workloads get their Pods, Pods run, namespaces and owned objects go when they should.
//!
//! Every change of an object is a reason to look at it, at those who own it, and at whoever selects it. Looking reads the state and does
//! the next step; the change that this makes is the reason for the next look. So everything comes about in small steps, in an order that
//! depends on nothing but the requests.

mod claim;
mod daemon_set;
mod definition;
mod deployment;
mod disruption_budget;
mod garbage;
mod job;
mod namespace;
mod pod;
mod replica_set;
mod service;
mod stateful_set;

use std::collections::{BTreeMap, BTreeSet};

use argosy_object::meta::{self, OwnerReference};
use argosy_object::schema::Scope;
use argosy_object::{GroupKind, Value};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::api_server::{ApiServer, key};
use crate::registry::GroupResource;
use crate::store::Key;

pub(crate) use pod::node;

/// One object to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Look {
    resource: GroupResource,
    key: Key,
}

/// What is to be done, and who belongs to whom.
#[derive(Default)]
pub(crate) struct Controllers {
    ready: BTreeSet<Look>,
    later: BTreeSet<(Timestamp, Look)>,
    /// By the uid of the owner.
    dependents: BTreeMap<String, BTreeSet<Look>>,
    /// Namespaces on their way out.
    terminating: BTreeSet<String>,
}

/// How many steps are done in one go before others get their turn.
const STEPS: usize = 512;

impl Controllers {
    /// Takes note of a change.
    pub(crate) fn note(
        &mut self,
        resource: &GroupResource,
        key: &Key,
        before: Option<&Value>,
        after: Option<&Value>,
    ) {
        let look = Look {
            resource: resource.clone(),
            key: key.clone(),
        };
        for owner in before.map(meta::owner_references).unwrap_or_default() {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(&look);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
        for owner in after.map(meta::owner_references).unwrap_or_default() {
            self.dependents.entry(owner.uid).or_default().insert(look.clone());
        }
        // The object itself, and once it has gone those that it owned.
        match (before, after) {
            (Some(before), None) => {
                let owned = self
                    .dependents
                    .get(meta::uid(before))
                    .cloned()
                    .unwrap_or_default();
                self.ready.extend(owned);
                if let Some((namespace, _)) = key.split_once('/')
                    && self.terminating.contains(namespace)
                {
                    self.look(&GroupResource::new("", "namespaces"), namespace);
                }
                if &*resource.plural == "namespaces" && resource.group.is_empty() {
                    self.terminating.remove(&**key);
                }
            }
            _ => {
                self.ready.insert(look);
            }
        }
        let owners = [before, after]
            .into_iter()
            .flatten()
            .flat_map(meta::owner_references);
        for owner in owners.collect::<Vec<_>>() {
            if let Some(look) = owner_look(&owner, key) {
                self.ready.insert(look);
            }
        }
    }

    pub(crate) fn look(&mut self, resource: &GroupResource, key: &str) {
        self.ready.insert(Look {
            resource: resource.clone(),
            key: key.into(),
        });
    }

    fn look_later(&mut self, resource: &GroupResource, key: &str, at: Timestamp) {
        self.later.insert((
            at,
            Look {
                resource: resource.clone(),
                key: key.into(),
            },
        ));
    }

    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        !self.ready.is_empty() || self.later.first().is_some_and(|(at, _)| *at <= now)
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.later.first().map(|(at, _)| *at)
    }

    fn next(&mut self, now: Timestamp) -> Option<Look> {
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, look)) = self.later.pop_first() {
                self.ready.insert(look);
            }
        }
        self.ready.pop_first()
    }
}

/// Where an owner is that has a controller here. Others are found by the garbage collector alone.
fn owner_look(owner: &OwnerReference, dependent: &str) -> Option<Look> {
    let group = owner.group.as_str();
    let plural = match (group, owner.kind.as_str()) {
        ("apps", "Deployment") => "deployments",
        ("apps", "ReplicaSet") => "replicasets",
        ("apps", "StatefulSet") => "statefulsets",
        ("apps", "DaemonSet") => "daemonsets",
        ("batch", "Job") => "jobs",
        _ => return None,
    };
    let namespace = dependent.split_once('/').map_or("", |(namespace, _)| namespace);
    Some(Look {
        resource: GroupResource::new(group, plural),
        key: key(namespace, &owner.name).into(),
    })
}

/// Does what is due.
pub(crate) fn run(server: &mut ApiServer, now: Timestamp) {
    for _ in 0..STEPS {
        let Some(look) = server.controllers.next(now) else {
            return;
        };
        step(server, &look, now);
    }
}

fn step(server: &mut ApiServer, look: &Look, now: Timestamp) {
    let Some(entry) = server.store.get(&look.resource, &look.key) else {
        return;
    };
    let object = entry.content.value();
    if garbage::collect(server, look, &object, now) {
        return;
    }
    let mut work = Work { server, look, now };
    match (&*look.resource.group, &*look.resource.plural) {
        ("", "namespaces") => namespace::step(&mut work, &object),
        ("", "pods") => pod::step(&mut work, &object),
        ("", "services") => service::step(&mut work, &object),
        ("", "persistentvolumeclaims") => claim::step(&mut work, &object),
        ("", "persistentvolumes") => claim::release(&mut work, &object),
        ("apps", "deployments") => deployment::step(&mut work, &object),
        ("apps", "replicasets") => replica_set::step(&mut work, &object),
        ("apps", "statefulsets") => stateful_set::step(&mut work, &object),
        ("apps", "daemonsets") => daemon_set::step(&mut work, &object),
        ("batch", "jobs") => job::step(&mut work, &object),
        ("policy", "poddisruptionbudgets") => disruption_budget::step(&mut work, &object),
        ("networking.k8s.io", "ingresses") => service::publish_ingress(&mut work, &object),
        ("apiextensions.k8s.io", "customresourcedefinitions") => definition::step(&mut work, &object),
        _ => {}
    }
}

/// One look at one object, with what it takes to act.
struct Work<'a> {
    server: &'a mut ApiServer,
    look: &'a Look,
    now: Timestamp,
}

impl Work<'_> {
    fn has_nodes(&self) -> bool {
        self.server.options.nodes > 0
    }

    fn stamp(&self) -> String {
        crate::api_server::stamp(self.now)
    }

    fn later(&mut self, seconds: i64) {
        let at = self.now + SignedDuration::from_secs(seconds);
        self.server
            .controllers
            .look_later(&self.look.resource, &self.look.key, at);
    }

    /// Objects of a kind that `owner` controls, sorted by name.
    fn owned(&self, owner: &Value, group: &str, plural: &str) -> Vec<Value> {
        let resource = GroupResource::new(group, plural);
        let dependents = self.server.controllers.dependents.get(meta::uid(owner));
        let of_kind = dependents
            .into_iter()
            .flatten()
            .filter(|look| look.resource == resource);
        of_kind
            .filter_map(|look| self.server.store.get(&look.resource, &look.key))
            .map(|entry| entry.content.value())
            .filter(|object| controlled_by(object, meta::uid(owner)))
            .collect()
    }

    fn collection(&self, group: &str, version: &str, namespace: &str, plural: &str) -> String {
        let root = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        };
        if namespace.is_empty() {
            format!("{root}/{plural}")
        } else {
            format!("{root}/namespaces/{namespace}/{plural}")
        }
    }

    fn create(
        &mut self,
        group: &str,
        version: &str,
        namespace: &str,
        plural: &str,
        manager: &str,
        object: &Value,
    ) -> Option<Value> {
        let path = self.collection(group, version, namespace, plural);
        self.server.own(
            "POST",
            &format!("{path}?fieldManager={manager}"),
            "application/json",
            object,
            self.now,
        )
    }

    /// Merges a patch into an object or its status.
    fn patch(&mut self, manager: &str, subresource: &str, patch: &Value) -> Option<Value> {
        let (resource, key) = (self.look.resource.clone(), self.look.key.clone());
        self.patch_other(&resource, &key, manager, subresource, patch)
    }

    fn patch_other(
        &mut self,
        resource: &GroupResource,
        key: &str,
        manager: &str,
        subresource: &str,
        patch: &Value,
    ) -> Option<Value> {
        let version = self.server.registry.get(resource)?.storage.clone();
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let path = self.collection(&resource.group, &version, namespace, &resource.plural);
        let below = if subresource.is_empty() {
            String::new()
        } else {
            format!("/{subresource}")
        };
        let target = format!("{path}/{name}{below}?fieldManager={manager}");
        self.server
            .own("PATCH", &target, "application/merge-patch+json", patch, self.now)
    }

    /// Sets the status, if it is another than that of `object`. Fields that the new one leaves out go.
    fn set_status(&mut self, manager: &str, object: &Value, status: Value) {
        let Value::Object(mut patch) = status else { return };
        let old = object["status"].as_object();
        if old == Some(&patch) {
            return;
        }
        for name in old.into_iter().flatten().map(|(name, _)| name) {
            patch.entry(name.clone()).or_insert(Value::Null);
        }
        self.patch(manager, "status", &json!({"status": patch}));
    }

    fn delete(&mut self, group: &str, plural: &str, key: &str) {
        let resource = GroupResource::new(group, plural);
        crate::write::delete_by_machinery(self.server, &resource, key, None, false, self.now);
    }
}

fn controlled_by(object: &Value, uid: &str) -> bool {
    meta::owner_references(object)
        .iter()
        .any(|owner| owner.controller && owner.uid == uid)
}

fn key_of(object: &Value) -> String {
    key(meta::namespace(object), meta::name(object))
}

/// The reference by which an object says who controls it.
fn controller_reference(owner: &Value, api_version: &str, kind: &str) -> Value {
    json!([{
        "apiVersion": api_version, "kind": kind, "name": meta::name(owner), "uid": meta::uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// A Pod made from a workload's template.
fn pod_of(template: &Value, owner: Value, labels: &[(&str, &str)]) -> Value {
    let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
    if pod["metadata"].is_null() {
        pod["metadata"] = json!({});
    }
    for (key, value) in labels {
        meta::set_label(&mut pod, key, *value);
    }
    pod["metadata"]["ownerReferences"] = owner;
    pod
}

/// A short name for a template, as controllers put it into names and labels.
fn template_hash(template: &Value) -> String {
    let hash = crate::discovery::hash(template.to_string().as_bytes());
    let letters = b"bcdfghjklmnpqrstvwxz2456789";
    hash.bytes()
        .take(10)
        .map(|byte| char::from(letters[usize::from(byte) % letters.len()]))
        .collect()
}

/// Whether a Pod counts: it neither has ended nor is it going.
fn is_active(pod: &Value) -> bool {
    meta::deletion_timestamp(pod).is_none()
        && !matches!(
            meta::str_field(pod, &["status", "phase"]),
            Some("Succeeded" | "Failed")
        )
}

fn is_ready(pod: &Value) -> bool {
    let conditions = meta::array_field(pod, &["status", "conditions"]);
    conditions
        .iter()
        .any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// The conditions of `object` with one set; its time stays while its status does.
fn with_condition(
    conditions: &[Value],
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) -> Vec<Value> {
    let mut conditions = conditions.to_vec();
    let known = conditions.iter().position(|one| one["type"] == kind);
    let time = match known {
        Some(at) if conditions[at]["status"] == status => conditions[at]["lastTransitionTime"].clone(),
        _ => now.into(),
    };
    let mut condition = json!({
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time,
    });
    if let Some(updated) = known.and_then(|at| conditions[at].get("lastUpdateTime").cloned()) {
        condition["lastUpdateTime"] = updated;
    }
    match known {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    conditions
}

/// A number that is written only if it is not zero.
fn put_count(status: &mut Value, name: &str, count: usize) {
    if count > 0 {
        status[name] = count.into();
    }
}

/// The kind of an owner, with the key that it has if it exists.
fn owner_key(
    server: &ApiServer,
    owner: &OwnerReference,
    dependent: &Value,
) -> Option<(GroupResource, String)> {
    let kind = server
        .registry
        .by_kind(&GroupKind::new(owner.group.as_str(), owner.kind.as_str()))?;
    let scope = if kind.namespaced {
        Scope::Namespaced
    } else {
        Scope::Cluster
    };
    let namespace = match scope {
        Scope::Namespaced => meta::namespace(dependent),
        Scope::Cluster => "",
    };
    Some((kind.resource(), key(namespace, &owner.name)))
}
