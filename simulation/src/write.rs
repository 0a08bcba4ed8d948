//! Writing: create, update, patch, apply, delete.
//!
//! Every way to write ends in [`commit`] or [`discard`]: the one place where the store changes, and where what follows from a change
//! (a new kind, work for a controller) is noted.

mod body;
mod create;
mod delete;
mod review;
mod update;

use argosy_object::{Value, meta};
use bytes::Bytes;
use http::{Response, StatusCode};

use crate::api_server::{ApiServer, Scope, bare_head, json_response};
use crate::fields::Node;
use crate::read;
use crate::refusal::{Cause, Refusal};
use crate::registry::GroupResource;
use crate::request::{Form, Request, field_manager};
use crate::store::{Content, Entry, Key};

pub(crate) use create::uid_of;
pub(crate) use delete::{CLEANUP, FOREGROUND, ORPHAN, delete_by_machinery};

/// What a write carries beside its document.
pub(crate) struct Writing<'a> {
    pub(crate) scope: &'a Scope<'a>,
    pub(crate) manager: String,
    pub(crate) dry_run: bool,
    pub(crate) force: bool,
    strictness: Strictness,
    warnings: Vec<String>,
    form: Form,
}

/// What becomes of fields that nobody knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strictness {
    Ignore,
    Warn,
    Strict,
}

impl<'a> Writing<'a> {
    fn of(scope: &'a Scope<'a>, request: &Request) -> Result<Self, Refusal> {
        let query = scope.query;
        let strictness = match query.text("fieldValidation") {
            "Ignore" => Strictness::Ignore,
            "Strict" => Strictness::Strict,
            "Warn" | "" => Strictness::Warn,
            other => {
                let cause =
                    Cause::unsupported("fieldValidation", &other.into(), &["Ignore", "Warn", "Strict"]);
                return Err(Refusal::invalid_as("meta.k8s.io", "CreateOptions", "", &[cause]));
            }
        };
        let dry_run: Vec<&str> = query.all("dryRun").filter(|value| !value.is_empty()).collect();
        if let Some(wrong) = dry_run.iter().find(|value| **value != "All") {
            let cause = Cause::unsupported("dryRun", &serde_json::json!([wrong]), &["All"]);
            return Err(Refusal::invalid_as("meta.k8s.io", "CreateOptions", "", &[cause]));
        }
        Ok(Self {
            scope,
            manager: field_manager(request.headers(), query),
            dry_run: !dry_run.is_empty(),
            force: query.flag("force"),
            strictness,
            warnings: Vec::new(),
            form: Form::of(request.headers())?,
        })
    }

    /// The written object as an answer.
    fn answer(&self, entry: &Entry, code: StatusCode) -> Response<Bytes> {
        let scope = self.scope;
        let mut response = read::one(scope.kind, &scope.place.version, entry, self.form, scope, code);
        self.warn(&mut response);
        response
    }

    fn warn(&self, response: &mut Response<Bytes>) {
        for warning in &self.warnings {
            if let Ok(value) = format!("299 - {warning:?}").parse() {
                response.headers_mut().append(http::header::WARNING, value);
            }
        }
    }
}

pub(crate) fn write(
    server: &mut ApiServer,
    scope: &Scope<'_>,
    verb: &str,
    request: &Request,
) -> Result<Response<Bytes>, Refusal> {
    let mut writing = Writing::of(scope, request)?;
    match act(server, &mut writing, verb, request) {
        // What was warned of is said beside a refusal too.
        Err(refusal) if !writing.warnings.is_empty() => {
            let mut response = crate::api_server::refused(&refusal);
            writing.warn(&mut response);
            Ok(response)
        }
        answer => answer,
    }
}

fn act(
    server: &mut ApiServer,
    writing: &mut Writing<'_>,
    verb: &str,
    request: &Request,
) -> Result<Response<Bytes>, Refusal> {
    let scope = writing.scope;
    match verb {
        "create" if review::is_one(scope) => review::answer(server, scope, request),
        "create" if !scope.place.subresource.is_empty() => create::on_subresource(server, writing, request),
        "create" => {
            let object = body::document(scope, request)?;
            let entry = create::create(server, writing, object, None)?;
            Ok(writing.answer(&entry, StatusCode::CREATED))
        }
        "update" => update::replace(server, writing, request),
        "patch" => update::patch(server, writing, request),
        "delete" => delete::one(server, writing, request),
        _ => delete::many(server, writing, request),
    }
}

/// Stores an object under the next version, or on a dry run only says what it would be.
fn commit(server: &mut ApiServer, writing: &Writing<'_>, key: String, object: Value) -> Entry {
    let version = if writing.dry_run {
        server.store.version()
    } else {
        server.store.next_version()
    };
    store(
        server,
        &writing.scope.resource(),
        key,
        object,
        version,
        writing.dry_run,
    )
}

fn store(
    server: &mut ApiServer,
    resource: &GroupResource,
    key: String,
    mut object: Value,
    version: u64,
    dry_run: bool,
) -> Entry {
    bare_head(&mut object);
    if !dry_run {
        meta::set_field(&mut object, &["metadata", "resourceVersion"], version.to_string());
    }
    let content = Content::of(&object);
    if !dry_run {
        let key = Key::from(key);
        let before = server
            .store
            .get(resource, &key)
            .map(|entry| entry.content.clone());
        server.store.put(resource, key.clone(), content.clone());
        let before = before.map(|content| content.value());
        follow(server, resource, &key, before.as_ref(), Some(&object));
    }
    Entry { version, content }
}

/// Writes an object as the cluster's own machinery does, past all checks.
pub(crate) fn store_by_machinery(server: &mut ApiServer, resource: &GroupResource, key: &str, object: Value) {
    let version = server.store.next_version();
    store(server, resource, key.to_owned(), object, version, false);
}

/// Removes an object from the store.
fn discard(server: &mut ApiServer, resource: &GroupResource, key: &str, mut object: Value) -> Value {
    let version = server.store.next_version();
    meta::set_field(&mut object, &["metadata", "resourceVersion"], version.to_string());
    let key = Key::from(key);
    server.store.remove(resource, &key, Content::of(&object));
    follow(server, resource, &key, Some(&object), None);
    object
}

/// What a change entails.
fn follow(
    server: &mut ApiServer,
    resource: &GroupResource,
    key: &Key,
    before: Option<&Value>,
    after: Option<&Value>,
) {
    if &*resource.group == "apiextensions.k8s.io" {
        follow_definition(server, before, after);
    }
    server.controllers.note(resource, key, before, after);
}

fn follow_definition(server: &mut ApiServer, before: Option<&Value>, after: Option<&Value>) {
    match (before, after) {
        (before, Some(after)) if before.is_none_or(|before| before["spec"] != after["spec"]) => {
            server.registry.define(after.clone());
        }
        (Some(before), None) => {
            let name = meta::name(before).to_owned();
            let gone = GroupResource::new(
                meta::str_field(before, &["spec", "group"]).unwrap_or_default(),
                meta::str_field(before, &["spec", "names", "plural"]).unwrap_or_default(),
            );
            server.registry.undefine(&name);
            server.store.wake(&gone);
        }
        _ => {}
    }
}

/// The schema that fields of the kind are owned by.
fn with_node<T>(server: &ApiServer, scope: &Scope<'_>, act: impl FnOnce(Node<'_>) -> T) -> T {
    let schemas = std::sync::Arc::clone(server.registry.schemas());
    match schemas.root(&scope.kind.gvk(&scope.kind.storage)) {
        Some(schema) => act(Node::Known(schema)),
        None => act(Node::Deduced),
    }
}

fn success(scope: &Scope<'_>, name: &str, uid: &str) -> Response<Bytes> {
    let mut details = scope.kind.details(name, &scope.kind.plural);
    details["uid"] = uid.into();
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    });
    json_response(StatusCode::OK, status.to_string().into())
}
