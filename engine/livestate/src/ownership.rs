//! Who owns whom.
//!
//! Owner references are most of it. Two relations of Kubernetes are older than they are and have none: a StatefulSet and
//! the claims made from its templates, a Service and the Endpoints of its name. Endpoints are found by name; a claim stands
//! in the index of owners under every set that its name may mean, and whether the set means it is asked when it is read.

use std::collections::BTreeSet;
use std::sync::Arc;

use argosy_object::{Name, ResourceKey, Value};

use crate::index::{RowId, token};
use crate::resource::Resource;
use crate::row::{KindId, Row};
use crate::snapshot::Snapshot;

/// Owner chains are three or four long in life. A chain that is longer, or a circle, ends here.
const DEPTH_MAX: usize = 16;

impl Snapshot {
    /// The objects that the object with this uid owns, sorted by key.
    pub fn children(&self, uid: &str) -> Vec<Arc<Resource>> {
        let owner = token(uid);
        let known = self.find_uid(owner).next().map(|id| self.row(id));
        let mut children: Vec<RowId> = self
            .owned
            .rows(owner)
            .filter(|id| {
                let child = self.row(*id);
                child.owners.tokens().contains(&owner) && known.is_none_or(|known| known.may_own(child))
            })
            .collect();
        if let Some(known) = known {
            children.extend(self.inferred_children(known));
        }
        self.resources(children.into_iter())
    }

    /// The owners of an object that are there.
    pub fn parents(&self, resource: &Resource) -> Vec<Arc<Resource>> {
        let row = self.row_of(resource);
        self.owners_of(&row)
            .into_iter()
            .map(|id| self.resource(id))
            .collect()
    }

    /// Instance names of the Applications that an object belongs to, sorted: its own, or else those of its owners, owners
    /// of owners and so on. An object that an Application tracks itself does not count for its owners' Applications.
    pub fn apps_of(&self, resource: &Resource) -> Vec<Name> {
        match &resource.app {
            Some(app) => vec![app.clone()],
            None => self.apps_of_row(&self.row_of(resource)),
        }
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

    pub(crate) fn apps_of_row(&self, row: &Row) -> Vec<Name> {
        if let Some(app) = &row.app {
            return vec![app.clone()];
        }
        let mut apps = BTreeSet::new();
        let mut level = self.owners_of(row);
        let mut seen = BTreeSet::new();
        for _ in 0..DEPTH_MAX {
            let mut next = Vec::new();
            for id in level {
                if !seen.insert(id) {
                    continue;
                }
                let owner = self.row(id);
                match &owner.app {
                    Some(app) => {
                        apps.insert(app.clone());
                    }
                    None => next.extend(self.owners_of(owner)),
                }
            }
            if next.is_empty() {
                break;
            }
            level = next;
        }
        apps.into_iter().collect()
    }

    /// By what a claim is found from the sets that may have made it; nothing for other kinds.
    pub(crate) fn inferred_tokens(&self, row: &Row) -> Vec<u64> {
        if !row.owners.tokens().is_empty() || !self.kind(row).is("", "PersistentVolumeClaim") {
            return Vec::new();
        }
        claims_of(row.document.name())
            .map(|(_, set)| set_token(row.namespace, set))
            .collect()
    }

    fn owners_of(&self, row: &Row) -> Vec<RowId> {
        let mut owners = Vec::new();
        for owner in row.owners.tokens() {
            owners.extend(
                self.find_uid(*owner)
                    .take(1)
                    .filter(|id| self.row(*id).may_own(row)),
            );
        }
        if row.owners.tokens().is_empty() {
            owners.extend(self.inferred_owner(row));
        }
        owners
    }

    fn inferred_children(&self, owner: &Row) -> Vec<RowId> {
        let kind = self.kind(owner);
        let name = owner.document.name();
        if kind.is("apps", "StatefulSet") {
            let candidates: Vec<RowId> = self.owned.rows(set_token(owner.namespace, name)).collect();
            if candidates.is_empty() {
                return candidates;
            }
            let templates = claim_templates(owner);
            let made_by = |id: &RowId| {
                let claim = self.row(*id);
                self.kind(claim).is("", "PersistentVolumeClaim")
                    && claim.owners.tokens().is_empty()
                    && claim.namespace == owner.namespace
                    && claims_of(claim.document.name())
                        .any(|(template, set)| set == name && templates.iter().any(|known| known == template))
            };
            return candidates.into_iter().filter(made_by).collect();
        }
        if kind.is("", "Service") {
            let endpoints = ResourceKey::new("", "Endpoints", owner.document.namespace(), name);
            let found = self.find(&endpoints);
            return found
                .into_iter()
                .filter(|id| self.row(*id).owners.tokens().is_empty())
                .collect();
        }
        Vec::new()
    }

    fn inferred_owner(&self, row: &Row) -> Option<RowId> {
        let kind = self.kinds.get(&row.kind)?;
        let name = row.document.name();
        if kind.is("", "PersistentVolumeClaim") {
            let namespace = row.document.namespace();
            return claims_of(name).find_map(|(template, set)| {
                let set = self.find(&ResourceKey::new("apps", "StatefulSet", &*namespace, set))?;
                claim_templates(self.row(set))
                    .iter()
                    .any(|known| known == template)
                    .then_some(set)
            });
        }
        if kind.is("", "Endpoints") {
            return self.find(&ResourceKey::new("", "Service", row.document.namespace(), name));
        }
        None
    }

    /// What would be kept of an object, for questions about it.
    fn row_of(&self, resource: &Resource) -> Row {
        let kind = self.kind_id(&resource.group_kind()).unwrap_or(KindId::MAX);
        Row::new(resource, kind)
    }
}

/// Readings of a claim's name as `<template>-<set>-<ordinal>`, where template and set may have dashes of their own.
fn claims_of(name: &str) -> impl Iterator<Item = (&str, &str)> {
    let rest = name.rsplit_once('-').and_then(|(rest, ordinal)| {
        let is_ordinal = !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
        is_ordinal.then_some(rest)
    });
    rest.into_iter().flat_map(|rest| {
        rest.match_indices('-')
            .map(move |(at, _)| (&rest[..at], &rest[at + 1..]))
    })
}

fn set_token(namespace: u32, set: &str) -> u64 {
    token(&("StatefulSet", namespace, set))
}

fn claim_templates(set: &Row) -> Vec<String> {
    let templates = set.document.value_at(&["spec", "volumeClaimTemplates"]);
    let templates = templates.as_ref().and_then(Value::as_array);
    templates
        .into_iter()
        .flatten()
        .map(|template| argosy_object::meta::name(template).to_owned())
        .collect()
}
