//! Changing an object: replaced, patched or applied.

use argosy_object::{Value, meta};
use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::json;

use super::{Writing, body, commit, create, discard, with_node};
use crate::api_server::ApiServer;
use crate::fields::{self, Author, Managers};
use crate::kinds::{self, validation};
use crate::refusal::{Cause, Refusal};
use crate::request::{Request, content_type};
use crate::store::{Content, Entry};
use crate::{convert, patch, scale};

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// PUT.
pub(super) fn replace(
    server: &mut ApiServer,
    writing: &mut Writing<'_>,
    request: &Request,
) -> Result<Response<Bytes>, Refusal> {
    let scope = writing.scope;
    let Some(current) = server.store.get(&scope.resource(), &scope.key()).cloned() else {
        // The body is looked at first, as decoding comes before the store.
        if scope.place.subresource != "scale" {
            named(writing, &body::document(scope, request)?)?;
        }
        return Err(scope.not_found());
    };
    if scope.place.subresource == "scale" {
        let scaled = scale::onto(scope, &current.content.value(), &body::any(request)?)?;
        return scale_answer(server, writing, &current, scaled);
    }
    let object = body::document(scope, request)?;
    named(writing, &object)?;
    let object = body::normalise(writing, object)?;
    let entry = change(server, writing, &current, object, None)?;
    Ok(writing.answer(&entry, StatusCode::OK))
}

fn named(writing: &Writing<'_>, object: &Value) -> Result<(), Refusal> {
    let place = writing.scope.place;
    let name = meta::name(object);
    if name.is_empty() {
        let cause = Cause::required("metadata.name", "name must be provided");
        return Err(Refusal::invalid(writing.scope.kind, "", &[cause]));
    }
    if name != place.name {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            place.name
        )));
    }
    let namespace = meta::namespace(object);
    if !namespace.is_empty() && namespace != place.namespace {
        return Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// PATCH.
pub(super) fn patch(
    server: &mut ApiServer,
    writing: &mut Writing<'_>,
    request: &Request,
) -> Result<Response<Bytes>, Refusal> {
    let scope = writing.scope;
    let media = content_type(request.headers());
    if media == "application/apply-patch+yaml" {
        return apply(server, writing, request);
    }
    if !matches!(
        media,
        "application/json-patch+json"
            | "application/merge-patch+json"
            | "application/strategic-merge-patch+json"
    ) {
        let mut refusal = Refusal::unsupported_media_type("415: Unsupported Media Type");
        refusal.details = Some(json!({}));
        return Err(refusal);
    }
    let current = server
        .store
        .get(&scope.resource(), &scope.key())
        .cloned()
        .ok_or_else(|| scope.not_found())?;
    let given: Value = serde_json::from_slice(request.body())
        .map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))?;
    let stored = current.content.value();
    let mut live = convert::between(scope.kind, &scope.place.version, stored.clone());
    live["apiVersion"] = scope.kind.api_version(&scope.place.version).into();
    live["kind"] = scope.kind.kind.as_str().into();
    if scope.place.subresource == "scale" {
        let scaled = patch::merge(&scale::of(scope, &live)?, &given);
        let scaled = scale::onto(scope, &stored, &scaled)?;
        return scale_answer(server, writing, &current, scaled);
    }
    let patched = match media {
        "application/json-patch+json" => patch::json(&live, &given)?,
        "application/merge-patch+json" => patch::merge(&live, &given),
        _ if scope.kind.custom => {
            return Err(Refusal::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ));
        }
        _ => {
            let schemas = std::sync::Arc::clone(server.registry.schemas());
            patch::strategic(&live, &given, schemas.root(&scope.kind.gvk(&scope.place.version)))?
        }
    };
    let mut patched = patched;
    body::check_kind(scope, &mut patched)?;
    let patched = body::normalise(writing, patched)?;
    let name = meta::name(&patched);
    if name != scope.place.name {
        let cause = Cause::invalid("metadata.name", &name.into(), "field is immutable");
        return Err(Refusal::invalid(scope.kind, &scope.place.name, &[cause]));
    }
    let entry = change(server, writing, &current, patched, None)?;
    Ok(writing.answer(&entry, StatusCode::OK))
}

fn scale_answer(
    server: &mut ApiServer,
    writing: &mut Writing<'_>,
    current: &Entry,
    scaled: Value,
) -> Result<Response<Bytes>, Refusal> {
    let entry = change(server, writing, current, scaled, None)?;
    let body = scale::of(writing.scope, &entry.content.value())?.to_string();
    Ok(crate::api_server::json_response(StatusCode::OK, body.into()))
}

/// Server-side apply.
fn apply(
    server: &mut ApiServer,
    writing: &mut Writing<'_>,
    request: &Request,
) -> Result<Response<Bytes>, Refusal> {
    let scope = writing.scope;
    if scope.query.text("fieldManager").is_empty() {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        return Err(Refusal::invalid_as("meta.k8s.io", "PatchOptions", "", &[cause]));
    }
    let mut config = body::yaml_value(request.body())?;
    if !config.is_object() {
        return Err(Refusal::bad_request(
            "error decoding YAML: an applied configuration is an object",
        ));
    }
    for field in ["apiVersion", "kind"] {
        if config[field].as_str().is_none_or(str::is_empty) {
            let kind = meta::kind(&config);
            return Err(Refusal::bad_request(format!(
                "invalid object type: /, Kind={kind}"
            )));
        }
    }
    body::check_kind(scope, &mut config)?;
    if meta::field(&config, &["metadata", "managedFields"]).is_some_and(|managed| !managed.is_null()) {
        return Err(Refusal::bad_request("metadata.managedFields must be nil"));
    }
    let name = meta::name(&config).to_owned();
    if !name.is_empty() && name != scope.place.name {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            scope.place.name
        )));
    }
    meta::set_field(&mut config, &["metadata", "name"], scope.place.name.as_str());
    let current = server.store.get(&scope.resource(), &scope.key()).cloned();
    if current.is_none() && !scope.place.subresource.is_empty() {
        return Err(scope.not_found());
    }
    let wanted_version = meta::resource_version(&config).to_owned();
    if current.is_none() && !scope.kind.custom && !wanted_version.is_empty() {
        return Err(Refusal::conflict(scope.kind, &scope.place.name, MODIFIED));
    }
    let empty = create::empty(scope.kind);
    let live = current
        .as_ref()
        .map_or_else(|| empty.clone(), |entry| entry.content.value());
    let author = author(writing);
    let reset: &[&str] = match scope.place.subresource.as_str() {
        "" if scope.kind.has_status() => &["f:status"],
        _ => &[],
    };
    let undeclared = with_node(server, scope, |node| fields::undeclared(&config, node));
    if !undeclared.is_empty() {
        let each: Vec<String> = undeclared
            .iter()
            .map(|path| format!("{path}: field not declared in schema"))
            .collect();
        let text = match each.as_slice() {
            [one] => one.clone(),
            many => format!("errors:\n  {}", many.join("\n  ")),
        };
        return Err(Refusal::internal(format!(
            "failed to create typed patch object ({}/{}; {}, Kind={}): {text}",
            meta::namespace(&config),
            scope.place.name,
            meta::api_version(&config),
            meta::kind(&config)
        )));
    }
    let mut managers = Managers::of(&live);
    if managers.is_empty() && current.is_some() {
        managers = with_node(server, scope, |node| {
            fields::before_first_apply(&live, &empty, &author.as_author(), node)
        });
    }
    let force = writing.force;
    let (merged, managers) = with_node(server, scope, |node| {
        fields::apply(&live, &config, managers, &author.as_author(), reset, force, node)
    })?;
    let mut merged = merged;
    let head = (
        scope.kind.api_version(&scope.place.version),
        scope.kind.kind.clone(),
    );
    merged["apiVersion"] = head.0.into();
    merged["kind"] = head.1.into();
    if merged.get("metadata").is_none_or(Value::is_null) {
        merged["metadata"] = json!({});
    }
    match current {
        Some(current) => {
            let merged = body::normalise(writing, merged)?;
            let entry = change(server, writing, &current, merged, Some(managers))?;
            Ok(writing.answer(&entry, StatusCode::OK))
        }
        None => {
            // Fields that only defaulting sets are nobody's after an apply.
            let entry = create::create(server, writing, merged, Some(managers))?;
            Ok(writing.answer(&entry, StatusCode::CREATED))
        }
    }
}

/// An author with texts of its own.
pub(super) struct Written {
    manager: String,
    api_version: String,
    subresource: String,
    now: String,
    typed: bool,
}

impl Written {
    pub(super) fn as_author(&self) -> Author<'_> {
        Author {
            manager: &self.manager,
            api_version: &self.api_version,
            subresource: &self.subresource,
            now: &self.now,
            typed: self.typed,
        }
    }
}

pub(super) fn author(writing: &Writing<'_>) -> Written {
    let scope = writing.scope;
    Written {
        manager: writing.manager.clone(),
        api_version: scope.kind.api_version(&scope.place.version),
        subresource: scope.place.subresource.clone(),
        now: scope.stamp(),
        typed: !scope.kind.custom,
    }
}

/// Makes `new` of the current object. With `managers` they are decided already, by an apply.
fn change(
    server: &mut ApiServer,
    writing: &mut Writing<'_>,
    current: &Entry,
    new: Value,
    managers: Option<Managers>,
) -> Result<Entry, Refusal> {
    let scope = writing.scope;
    let old = current.content.value();
    let mut new = new;
    preconditions(writing, &old, &new)?;
    keep_system_metadata(&old, &mut new);
    kinds::prepare_update(scope.kind, &scope.place.subresource, &old, &mut new);
    kinds::default(scope.kind, &mut new);
    crate::api_server::bare_head(&mut new);

    match managers {
        Some(managers) => managers.write_to(&mut new),
        None => own(server, writing, &old, &mut new),
    }
    if kinds::has_generation(scope.kind) {
        kinds::advance_generation(scope.kind, &scope.place.subresource, &old, &mut new);
    }
    validation::updated(scope.kind, &scope.place.version, &old, &new)?;

    if is_same(&old, &new) {
        return Ok(current.clone());
    }
    let finished = meta::deletion_timestamp(&new).is_some()
        && meta::finalizers(&new).next().is_none()
        && meta::i64_field(&new, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or_default() == 0
        && (scope.kind.kind != "Namespace" || meta::array_field(&new, &["spec", "finalizers"]).is_empty());
    if finished && !writing.dry_run {
        let gone = discard(server, &scope.resource(), &scope.key(), new);
        return Ok(Entry {
            version: server.store.version(),
            content: Content::of(&gone),
        });
    }
    Ok(commit(server, writing, scope.key(), new))
}

fn preconditions(writing: &Writing<'_>, old: &Value, new: &Value) -> Result<(), Refusal> {
    let scope = writing.scope;
    let version = meta::resource_version(new);
    if version.is_empty() && scope.kind.custom {
        let cause = Cause::invalid(
            "metadata.resourceVersion",
            &0.into(),
            "must be specified for an update",
        );
        let (group, plural) = (&scope.kind.group, &scope.kind.plural);
        return Err(Refusal::invalid_as(group, plural, &scope.place.name, &[cause]));
    }
    if !version.is_empty() && version != meta::resource_version(old) {
        return Err(Refusal::conflict(scope.kind, &scope.place.name, MODIFIED));
    }
    let uid = meta::uid(new);
    if !uid.is_empty() && uid != meta::uid(old) {
        let key = format!("/registry/{}/{}", scope.kind.plural, scope.key());
        return Err(Refusal::conflict(
            scope.kind,
            &scope.place.name,
            &format!(
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
                 UID in precondition: {uid}, UID in object meta: {}",
                meta::uid(old)
            ),
        ));
    }
    Ok(())
}

fn keep_system_metadata(old: &Value, new: &mut Value) {
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
    ] {
        match meta::field(old, &["metadata", field]) {
            Some(value) => meta::set_field(new, &["metadata", field], value.clone()),
            None => drop(meta::remove_field(new, &["metadata", field])),
        }
    }
    meta::remove_field(new, &["metadata", "selfLink"]);
}

fn own(server: &ApiServer, writing: &Writing<'_>, old: &Value, new: &mut Value) {
    let author = author(writing);
    // A document without managers keeps those that are; `[{}]` makes everybody forget.
    let given = meta::field(new, &["metadata", "managedFields"]).and_then(Value::as_array);
    let managers = match given {
        Some(entries) if *entries == [json!({})] || entries.is_empty() => {
            meta::remove_field(new, &["metadata", "managedFields"]);
            return;
        }
        Some(_) => Managers::of(new),
        // Whose fields nobody owns stays so until somebody applies it.
        None if Managers::of(old).is_empty() => return,
        None => Managers::of(old),
    };
    with_node(server, writing.scope, |node| {
        fields::update(old, new, managers, &author.as_author(), &[], node).write_to(new);
    });
}

/// Whether nothing but times of managers differs.
fn is_same(old: &Value, new: &Value) -> bool {
    let bare = |object: &Value| {
        let mut object = object.clone();
        meta::remove_field(&mut object, &["metadata", "managedFields"]);
        object
    };
    bare(old) == bare(new) && Managers::of(old).same_but_times(&Managers::of(new))
}
