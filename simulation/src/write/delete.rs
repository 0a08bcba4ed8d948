//! Deleting: at once, after a grace period, or after others have done their part.

use argosy_object::{Map, Value, meta};
use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{Writing, body, discard, store_by_machinery, success};
use crate::api_server::{ApiServer, json_response, stamp};
use crate::kinds;
use crate::read;
use crate::refusal::{Cause, Refusal};
use crate::registry::{GroupResource, ResourceType};
use crate::request::{Query, Request};
use crate::selector::Selector;
use crate::store::{Content, Entry};

/// The finalizer under which the objects of a CustomResourceDefinition are deleted.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

/// What becomes of the objects that a deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Propagation {
    Background,
    Foreground,
    Orphan,
}

#[derive(Debug, Default)]
struct Options {
    grace: Option<i64>,
    propagation: Option<Propagation>,
    uid: Option<String>,
    resource_version: Option<String>,
    dry_run: bool,
}

impl Options {
    fn read(writing: &Writing<'_>, request: &Request) -> Result<Self, Refusal> {
        let given = match request.body().is_empty() {
            true => json!({}),
            false => body::any(request)?,
        };
        let mut options = Self::of_document(&given)?;
        let query: &Query = writing.scope.query;
        if options.grace.is_none() {
            options.grace = query.text("gracePeriodSeconds").parse().ok();
        }
        if options.propagation.is_none() {
            options.propagation = propagation(query.text("propagationPolicy"))?;
        }
        options.dry_run |= writing.dry_run;
        Ok(options)
    }

    fn of_document(given: &Value) -> Result<Self, Refusal> {
        let text = |path: &[&str]| meta::str_field(given, path).map(str::to_owned);
        let mut propagation = propagation(given["propagationPolicy"].as_str().unwrap_or_default())?;
        if propagation.is_none() && given["orphanDependents"] == true {
            propagation = Some(Propagation::Orphan);
        }
        Ok(Self {
            grace: given["gracePeriodSeconds"].as_i64(),
            propagation,
            uid: text(&["preconditions", "uid"]),
            resource_version: text(&["preconditions", "resourceVersion"]),
            dry_run: given["dryRun"].as_array().is_some_and(|all| !all.is_empty()),
        })
    }
}

fn propagation(text: &str) -> Result<Option<Propagation>, Refusal> {
    Ok(Some(match text {
        "" => return Ok(None),
        "Background" => Propagation::Background,
        "Foreground" => Propagation::Foreground,
        "Orphan" => Propagation::Orphan,
        other => {
            let cause = Cause::unsupported(
                "propagationPolicy",
                &other.into(),
                &["Foreground", "Background", "Orphan", "nil"],
            );
            return Err(Refusal::invalid_as("meta.k8s.io", "DeleteOptions", "", &[cause]));
        }
    }))
}

/// What a delete did.
enum Deleted {
    /// The object is no more.
    Gone(Value),
    /// It goes later; this is what it is now.
    Going(Value),
}

/// DELETE of one object.
pub(super) fn one(
    server: &mut ApiServer,
    writing: &Writing<'_>,
    request: &Request,
) -> Result<Response<Bytes>, Refusal> {
    let scope = writing.scope;
    let options = Options::read(writing, request)?;
    let entry = server
        .store
        .get(&scope.resource(), &scope.key())
        .cloned()
        .ok_or_else(|| scope.not_found())?;
    let object = entry.content.value();
    let name = meta::name(&object).to_owned();
    let uid = meta::uid(&object).to_owned();
    let deleted = delete(server, scope.kind, &scope.key(), object, &options, scope.now)?;
    Ok(match deleted {
        Deleted::Gone(last) if kinds::answers_deleted_object(scope.kind) => whole(writing, &last),
        Deleted::Gone(_) => success(scope, &name, &uid),
        Deleted::Going(now) => whole(writing, &now),
    })
}

fn whole(writing: &Writing<'_>, object: &Value) -> Response<Bytes> {
    let entry = Entry {
        version: 0,
        content: Content::of(object),
    };
    writing.answer(&entry, StatusCode::OK)
}

/// DELETE of a collection.
pub(super) fn many(
    server: &mut ApiServer,
    writing: &Writing<'_>,
    request: &Request,
) -> Result<Response<Bytes>, Refusal> {
    let scope = writing.scope;
    let options = Options::read(writing, request)?;
    let selector = Selector::of(scope.query, scope.kind)?;
    let version = server.store.version();
    let objects = select(server, &scope.resource(), &scope.place.namespace, &selector);
    let items: Vec<String> = objects
        .iter()
        .map(|(_, entry)| {
            let json = if scope.kind.custom {
                read::object_json(scope.kind, &scope.place.version, entry)
            } else {
                entry.content.json()
            };
            String::from_utf8_lossy(&json).into_owned()
        })
        .collect();
    for (key, entry) in objects {
        delete(
            server,
            scope.kind,
            &key,
            entry.content.value(),
            &options,
            scope.now,
        )?;
    }
    let body = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{{\"resourceVersion\":\"{version}\"}},\"items\":[{}]}}",
        scope.kind.list_kind,
        scope.kind.api_version(&scope.place.version),
        items.join(",")
    );
    Ok(json_response(StatusCode::OK, body.into()))
}

fn select(
    server: &ApiServer,
    resource: &GroupResource,
    namespace: &str,
    selector: &Selector,
) -> Vec<(String, Entry)> {
    let prefix = if namespace.is_empty() {
        String::new()
    } else {
        format!("{namespace}/")
    };
    let entries = server
        .store
        .table(resource)
        .into_iter()
        .flat_map(|table| &table.objects);
    entries
        .filter(|(key, _)| key.starts_with(&prefix))
        .filter(|(_, entry)| selector.is_everything() || selector.matches(&entry.content.value()))
        .map(|(key, entry)| (key.to_string(), entry.clone()))
        .collect()
}

/// An eviction is a delete with the eviction's options. Disruption budgets that allow none refuse it.
pub(super) fn evict(
    server: &mut ApiServer,
    writing: &Writing<'_>,
    pod: &Value,
    options: &Value,
) -> Result<(), Refusal> {
    let scope = writing.scope;
    let resource = GroupResource::new("policy", "poddisruptionbudgets");
    let budgets = select(server, &resource, &scope.place.namespace, &Selector::default());
    for (key, budget) in budgets {
        let budget = budget.content.value();
        let covers = Selector::of_document(&budget["spec"]["selector"]).matches(pod);
        if covers && meta::i64_field(&budget, &["status", "disruptionsAllowed"]).unwrap_or_default() == 0 {
            let mut refusal = Refusal::fault(429, None);
            refusal.message = "Cannot evict pod as it would violate the pod's disruption budget.".to_owned();
            return Err(refusal);
        }
        server.controllers.look(&resource, &key);
    }
    let options = Options::of_document(options)?;
    delete(server, scope.kind, &scope.key(), pod.clone(), &options, scope.now)?;
    Ok(())
}

/// Deletes an object as controllers do: in the background, if it is still the one with that uid.
pub(crate) fn delete_by_machinery(
    server: &mut ApiServer,
    resource: &GroupResource,
    key: &str,
    grace: Option<i64>,
    foreground: bool,
    now: Timestamp,
) {
    let Some(kind) = server.registry.get(resource).cloned() else {
        return;
    };
    let Some(entry) = server.store.get(resource, key).cloned() else {
        return;
    };
    let propagation = if foreground {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    let options = Options {
        grace,
        propagation: Some(propagation),
        ..Options::default()
    };
    // Without preconditions a delete is not refused.
    let _ = delete(server, &kind, key, entry.content.value(), &options, now);
}

fn delete(
    server: &mut ApiServer,
    kind: &ResourceType,
    key: &str,
    object: Value,
    options: &Options,
    now: Timestamp,
) -> Result<Deleted, Refusal> {
    let mut object = object;
    check(kind, &object, options)?;
    let already = meta::deletion_timestamp(&object).is_some();
    let propagation = options.propagation.unwrap_or_else(|| default_propagation(kind));
    if !already || options.propagation.is_some() {
        finalise_by(&mut object, propagation);
    }
    if kind.kind == "CustomResourceDefinition" && !already && server.options.controllers {
        mark_definition(&mut object, now);
    }
    let grace = kinds::grace_seconds(kind, &object, options.grace);
    let pending = meta::finalizers(&object).next().is_some()
        || (kind.kind == "Namespace" && !meta::array_field(&object, &["spec", "finalizers"]).is_empty());
    if grace == 0 && !pending {
        if options.dry_run {
            return Ok(Deleted::Gone(object));
        }
        return Ok(Deleted::Gone(discard(server, &kind.resource(), key, object)));
    }

    let before = object.clone();
    let known_grace = meta::i64_field(&object, &["metadata", "deletionGracePeriodSeconds"]);
    if !already || known_grace.is_some_and(|known| grace < known) {
        let ends = now + SignedDuration::from_secs(grace);
        meta::set_field(&mut object, &["metadata", "deletionTimestamp"], stamp(ends));
        if kind.kind != "Namespace" {
            meta::set_field(&mut object, &["metadata", "deletionGracePeriodSeconds"], grace);
        }
        if let Some(generation) = meta::generation(&object).filter(|_| !already) {
            meta::set_field(&mut object, &["metadata", "generation"], generation + 1);
        }
        if kind.kind == "Namespace" {
            meta::set_field(&mut object, &["status", "phase"], "Terminating");
        }
    }
    let stored = server
        .store
        .get(&kind.resource(), key)
        .map(|entry| entry.content.value());
    if options.dry_run || (stored.as_ref() == Some(&object) && before == object) {
        return Ok(Deleted::Going(object));
    }
    store_by_machinery(server, &kind.resource(), key, object);
    let now = server
        .store
        .get(&kind.resource(), key)
        .map(|entry| entry.content.value());
    Ok(Deleted::Going(now.unwrap_or_else(|| Value::Object(Map::new()))))
}

fn check(kind: &ResourceType, object: &Value, options: &Options) -> Result<(), Refusal> {
    let name = meta::name(object);
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != meta::uid(object)) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then \
             recreated",
            meta::uid(object)
        );
        return Err(Refusal::precondition(kind, name, &why));
    }
    let record = meta::resource_version(object);
    if let Some(version) = options
        .resource_version
        .as_deref()
        .filter(|version| *version != record)
    {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({record}). The object \
             might have been modified"
        );
        return Err(Refusal::precondition(kind, name, &why));
    }
    Ok(())
}

/// The objects of a definition go before it.
fn mark_definition(definition: &mut Value, now: Timestamp) {
    let mut finalizers = meta::array_field(definition, &["metadata", "finalizers"]).to_vec();
    finalizers.push(CLEANUP.into());
    meta::set_field(definition, &["metadata", "finalizers"], finalizers);
    let mut conditions = meta::array_field(definition, &["status", "conditions"]).to_vec();
    conditions.push(json!({
        "type": "Terminating", "status": "True", "lastTransitionTime": stamp(now), "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    }));
    meta::set_field(definition, &["status", "conditions"], conditions);
}

fn default_propagation(kind: &ResourceType) -> Propagation {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("batch", "Job") | ("", "ReplicationController") => Propagation::Orphan,
        _ => Propagation::Background,
    }
}

/// Sets the finalizer by which the garbage collector knows what to do with dependents.
fn finalise_by(object: &mut Value, propagation: Propagation) {
    let mut finalizers: Vec<String> = meta::finalizers(object)
        .filter(|name| *name != FOREGROUND && *name != ORPHAN)
        .map(str::to_owned)
        .collect();
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => finalizers.push(FOREGROUND.to_owned()),
        Propagation::Orphan => finalizers.push(ORPHAN.to_owned()),
    }
    if finalizers.is_empty() {
        meta::remove_field(object, &["metadata", "finalizers"]);
    } else {
        meta::set_field(object, &["metadata", "finalizers"], finalizers);
    }
}
