//! Creating an object.

use argosy_object::{Value, meta};
use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::json;

use super::{Writing, body, commit, with_node};
use crate::api_server::{ApiServer, key};
use crate::fields::{self, Author, Managers};
use crate::kinds::{self, validation};
use crate::refusal::{Cause, Refusal};
use crate::registry::{GroupResource, ResourceType};
use crate::request::Request;
use crate::shapes;
use crate::store::Entry;

/// The letters of generated names: nothing that could make a word.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Creates `object`, which is of the request's kind. With `applied` its managers are decided already, by an apply.
pub(super) fn create(
    server: &mut ApiServer,
    writing: &mut Writing<'_>,
    object: Value,
    applied: Option<Managers>,
) -> Result<Entry, Refusal> {
    let scope = writing.scope;
    let mut object = body::normalise(writing, object)?;
    place_in_namespace(server, writing, &mut object)?;
    if !meta::resource_version(&object).is_empty() {
        return Err(Refusal::internal(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    let managers = Managers::of(&object);
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "uid",
        "generation",
        "managedFields",
    ] {
        meta::remove_field(&mut object, &["metadata", field]);
    }
    meta::remove_field(&mut object, &["metadata", "creationTimestamp"]);
    kinds::default(scope.kind, &mut object);
    match applied {
        Some(applied) => applied.write_to(&mut object),
        None => own(server, writing, &mut object, managers),
    }
    kinds::prepare_create(scope.kind, &mut object, &scope.stamp());
    name(server, writing, &mut object)?;
    meta::set_field(&mut object, &["metadata", "uid"], server.uid());
    meta::set_field(&mut object, &["metadata", "creationTimestamp"], scope.stamp());
    if kinds::has_generation(scope.kind) {
        meta::set_field(&mut object, &["metadata", "generation"], 1);
    }
    kinds::allocate(server, scope.kind, &mut object);
    validation::created(scope.kind, &scope.place.version, &object)?;

    let name = meta::name(&object).to_owned();
    let key = key(&scope.place.namespace, &name);
    if server.store.get(&scope.resource(), &key).is_some() {
        return Err(Refusal::already_exists(scope.kind, &name));
    }
    Ok(commit(server, writing, key, object))
}

/// The namespace must be that of the path, exist, and stay.
fn place_in_namespace(server: &ApiServer, writing: &Writing<'_>, object: &mut Value) -> Result<(), Refusal> {
    let scope = writing.scope;
    let namespace = scope.place.namespace.as_str();
    let given = meta::namespace(object);
    if !given.is_empty() && given != namespace {
        return Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if !scope.kind.namespaced {
        return Ok(());
    }
    if namespace.is_empty() {
        return Err(Refusal::method_not_allowed());
    }
    meta::set_field(object, &["metadata", "namespace"], namespace);
    let namespaces = GroupResource::new("", "namespaces");
    let Some(entry) = server.store.get(&namespaces, namespace) else {
        let kind = server.registry.get(&namespaces).expect("namespaces are built in");
        return Err(Refusal::not_found(kind, namespace));
    };
    if meta::deletion_timestamp(&entry.content.value()).is_some() {
        return Err(Refusal::namespace_terminating(
            scope.kind,
            meta::name(object),
            namespace,
        ));
    }
    Ok(())
}

/// What a typed server starts from: the empty struct of the kind.
pub(super) fn empty(kind: &ResourceType) -> Value {
    let shape = shapes::kind(&kind.gvk(&kind.storage)).filter(|_| !kind.custom);
    shape.map_or_else(|| json!({"metadata": {}}), shapes::Struct::empty)
}

/// Records who owns the fields of a new object.
fn own(server: &ApiServer, writing: &Writing<'_>, object: &mut Value, managers: Managers) {
    let scope = writing.scope;
    let empty = empty(scope.kind);
    let author = Author {
        manager: &writing.manager,
        api_version: &scope.kind.api_version(&scope.place.version),
        subresource: "",
        now: &scope.stamp(),
        typed: !scope.kind.custom,
    };
    let reset: &[&str] = if scope.kind.has_status() {
        &["f:status"]
    } else {
        &[]
    };
    with_node(server, scope, |node| {
        fields::update(&empty, object, managers, &author, reset, node).write_to(object);
    });
}

fn name(server: &mut ApiServer, writing: &Writing<'_>, object: &mut Value) -> Result<(), Refusal> {
    let scope = writing.scope;
    if meta::name(object).is_empty() {
        let prefix = meta::generate_name(object).to_owned();
        if prefix.is_empty() {
            let cause = Cause::required("metadata.name", "name or generateName is required");
            return Err(Refusal::invalid(scope.kind, "", &[cause]));
        }
        let suffix = server.letters(5);
        let room = prefix.len().min(58);
        meta::set_field(
            object,
            &["metadata", "name"],
            format!("{}{suffix}", &prefix[..room]),
        );
    }
    Ok(())
}

impl ApiServer {
    /// A new uid, by the server's seed.
    pub(crate) fn uid(&mut self) -> String {
        uid_of(self.random.u128(..))
    }

    /// Random letters as generated names end with.
    pub(crate) fn letters(&mut self, count: usize) -> String {
        let mut letter = || char::from(LETTERS[self.random.usize(..LETTERS.len())]);
        (0..count).map(|_| letter()).collect()
    }
}

/// A version 4 UUID of some random bits.
pub(crate) fn uid_of(bits: u128) -> String {
    let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

/// What can be created below an object: evictions and bindings of Pods, tokens of ServiceAccounts.
pub(super) fn on_subresource(
    server: &mut ApiServer,
    writing: &Writing<'_>,
    request: &Request,
) -> Result<Response<Bytes>, Refusal> {
    let scope = writing.scope;
    let entry = server
        .store
        .get(&scope.resource(), &scope.key())
        .cloned()
        .ok_or_else(|| scope.not_found())?;
    let given = body::any(request)?;
    match scope.place.subresource.as_str() {
        "eviction" => {
            super::delete::evict(server, writing, &entry.content.value(), &given["deleteOptions"])?;
        }
        "binding" => {
            let mut pod = entry.content.value();
            meta::set_field(&mut pod, &["spec", "nodeName"], given["target"]["name"].clone());
            commit(server, writing, scope.key(), pod);
        }
        "token" => {
            let expires = scope.now + jiff::SignedDuration::from_hours(1);
            let mut answer = given;
            let token = format!("simulated-{}", server.letters(24));
            let name = format!(
                "system:serviceaccount:{}:{}",
                scope.place.namespace, scope.place.name
            );
            server.admit(
                &token,
                crate::access::User::new(&name, &["system:authenticated", "system:serviceaccounts"]),
            );
            answer["status"] =
                json!({"token": token, "expirationTimestamp": crate::api_server::stamp(expires)});
            return Ok(crate::api_server::json_response(
                StatusCode::CREATED,
                answer.to_string().into(),
            ));
        }
        _ => return Err(Refusal::method_not_allowed()),
    }
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(crate::api_server::json_response(
        StatusCode::CREATED,
        status.to_string().into(),
    ))
}
