//! Who owns whom.
//!
//! Owner references are most of it. Two relations of Kubernetes are older than they are and have none: a StatefulSet and
//! the claims made from its templates, a Service and the Endpoints of its name. They are computed when asked for, from
//! the ordered index of names, and cost nothing otherwise.

use std::collections::BTreeSet;
use std::sync::Arc;

use argosy_object::{GroupKind, ResourceKey, Value};

use crate::resource::Resource;
use crate::snapshot::Snapshot;

/// Owner chains are three or four long in life. A chain that is longer, or a circle, ends here.
const DEPTH_MAX: usize = 16;

impl Snapshot {
    /// The objects that the object with this uid owns, sorted by key.
    pub fn children(&self, uid: &str) -> Vec<Arc<Resource>> {
        let owner = self.by_uid(uid);
        let mut children = self
            .owned
            .get(uid)
            .map_or_else(Vec::new, |keys| self.rows_of(keys.iter()));
        if let Some(owner) = owner {
            children.retain(|child| may_own(&owner.key, &child.key));
            children.extend(self.inferred_children(&owner));
            children.sort_by(|a, b| a.key.cmp(&b.key));
        }
        children
    }

    /// The owners of an object that are there.
    pub fn parents(&self, resource: &Resource) -> Vec<Arc<Resource>> {
        let mut parents: Vec<_> = resource
            .owners
            .iter()
            .filter_map(|owner| self.by_uid(&owner.uid))
            .filter(|owner| may_own(&owner.key, &resource.key))
            .collect();
        if resource.owners.is_empty() {
            parents.extend(self.inferred_parent(resource));
        }
        parents
    }

    /// Instance names of the Applications that an object belongs to, sorted: its own, or else those of its owners, owners
    /// of owners and so on. An object that an Application tracks itself does not count for its owners' Applications.
    pub fn apps_of(&self, resource: &Resource) -> Vec<Arc<str>> {
        if let Some(app) = &resource.app {
            return vec![app.clone()];
        }
        let mut apps = BTreeSet::new();
        let mut level = self.parents(resource);
        let mut seen: BTreeSet<Arc<ResourceKey>> = BTreeSet::new();
        for _ in 0..DEPTH_MAX {
            let mut next = Vec::new();
            for owner in level {
                if !seen.insert(owner.key.clone()) {
                    continue;
                }
                match &owner.app {
                    Some(app) => {
                        apps.insert(app.clone());
                    }
                    None => next.extend(self.parents(&owner)),
                }
            }
            if next.is_empty() {
                break;
            }
            level = next;
        }
        apps.into_iter().collect()
    }

    /// Everything below an object, the object itself first, each once, parents before their children.
    pub fn descendants(&self, resource: &Arc<Resource>) -> Vec<Arc<Resource>> {
        let mut out = vec![resource.clone()];
        let mut seen = BTreeSet::from([resource.key.clone()]);
        let mut at = 0;
        while at < out.len() {
            for child in self.children(&out[at].uid) {
                if seen.insert(child.key.clone()) {
                    out.push(child);
                }
            }
            at += 1;
        }
        out
    }

    fn inferred_children(&self, owner: &Resource) -> Vec<Arc<Resource>> {
        let key = &owner.key;
        match (key.group.as_str(), key.kind.as_str()) {
            ("apps", "StatefulSet") => {
                let claims = claim();
                let mut children = Vec::new();
                for template in claim_templates(&owner.value()) {
                    let prefix = format!("{template}-{}-", key.name);
                    children.extend(
                        self.with_prefix(&claims, &key.namespace, &prefix)
                            .filter(|child| {
                                child.owners.is_empty() && is_ordinal(&child.key.name[prefix.len()..])
                            }),
                    );
                }
                children
            }
            ("", "Service") => {
                let endpoints = ResourceKey::new("", "Endpoints", &*key.namespace, &*key.name);
                self.get(&endpoints)
                    .filter(|child| child.owners.is_empty())
                    .into_iter()
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    fn inferred_parent(&self, resource: &Resource) -> Option<Arc<Resource>> {
        let key = &resource.key;
        match (key.group.as_str(), key.kind.as_str()) {
            ("", "PersistentVolumeClaim") => {
                // `<template>-<set>-<ordinal>`, where template and set may have dashes of their own.
                let (rest, ordinal) = key.name.rsplit_once('-')?;
                if !is_ordinal(ordinal) {
                    return None;
                }
                rest.match_indices('-').find_map(|(at, _)| {
                    let (template, set) = (&rest[..at], &rest[at + 1..]);
                    let owner = self.get(&ResourceKey::new("apps", "StatefulSet", &*key.namespace, set))?;
                    claim_templates(&owner.value())
                        .iter()
                        .any(|known| known == template)
                        .then_some(owner)
                })
            }
            ("", "Endpoints") => self.get(&ResourceKey::new("", "Service", &*key.namespace, &*key.name)),
            _ => None,
        }
    }
}

/// An owner is in the namespace of what it owns, or in none. References that say otherwise are not believed: they would
/// let one tenant's object appear under another's.
fn may_own(owner: &ResourceKey, child: &ResourceKey) -> bool {
    owner.namespace.is_empty() || owner.namespace == child.namespace
}

fn claim() -> GroupKind {
    GroupKind::new("", "PersistentVolumeClaim")
}

fn claim_templates(set: &Value) -> Vec<String> {
    argosy_object::meta::array_field(set, &["spec", "volumeClaimTemplates"])
        .iter()
        .map(|template| argosy_object::meta::name(template).to_owned())
        .collect()
}

fn is_ordinal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
