//! Reading: one object, a list, a page of a list, the beginning of a watch.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use bytes::{BufMut as _, Bytes, BytesMut};
use http::StatusCode;
use serde_json::{Value, json};

use crate::api_server::{Answer, ApiServer, Scope, json_response};
use crate::refusal::{Cause, Refusal};
use crate::registry::ResourceType;
use crate::request::{Form, Query, Request};
use crate::selector::Selector;
use crate::store::{Entry, Key, Table};
use crate::watch::Watch;
use crate::{convert, scale, table};

pub(crate) fn read(
    server: &mut ApiServer,
    scope: &Scope<'_>,
    verb: &str,
    request: &Request,
) -> Result<Answer, Refusal> {
    let form = Form::of(request.headers())?;
    let stale_by = server.faults.staleness(request);
    match verb {
        "get" => get(server, scope, form, stale_by).map(Answer::Document),
        "list" => list(server, scope, form, stale_by).map(Answer::Document),
        _ => watch(server, scope, form).map(|watch| Answer::Watch(Box::new(watch))),
    }
}

fn get(
    server: &mut ApiServer,
    scope: &Scope<'_>,
    form: Form,
    stale_by: u64,
) -> Result<http::Response<Bytes>, Refusal> {
    if let Some(refusal) = too_new(server, scope.query)? {
        return Err(refusal);
    }
    let table = server
        .store
        .table(&scope.resource())
        .ok_or_else(|| scope.not_found())?;
    let entry = match stale_by {
        0 => table.objects.get(scope.key().as_str()).cloned(),
        _ => table
            .at(before(server, table, stale_by))
            .and_then(|then| then.get(scope.key().as_str()).cloned()),
    };
    let entry = entry.ok_or_else(|| scope.not_found())?;
    if scope.place.subresource == "scale" {
        let body = scale::of(scope, &entry.content.value())?.to_string();
        return Ok(json_response(StatusCode::OK, body.into()));
    }
    if scope.place.subresource == "log" {
        let body = log(&entry.content.value(), scope);
        return Ok(crate::api_server::response(StatusCode::OK, "text/plain", body));
    }
    Ok(one(
        scope.kind,
        &scope.place.version,
        &entry,
        form,
        scope,
        StatusCode::OK,
    ))
}

/// What the containers of a Pod have said: that they run, if they do.
fn log(pod: &Value, scope: &Scope<'_>) -> Bytes {
    if pod["status"]["phase"] != "Running" {
        return Bytes::new();
    }
    let (name, started) = (
        &scope.place.name,
        pod["status"]["startTime"].as_str().unwrap_or_default(),
    );
    match scope.query.get("timestamps") {
        Some("true") => format!("{started} {name} runs\n").into(),
        _ => format!("{name} runs\n").into(),
    }
}

/// One object as an answer.
pub(crate) fn one(
    kind: &ResourceType,
    version: &str,
    entry: &Entry,
    form: Form,
    scope: &Scope<'_>,
    code: StatusCode,
) -> http::Response<Bytes> {
    let body = match form {
        Form::Plain => object_json(kind, version, entry),
        Form::Metadata => partial(&entry.content.value(), "PartialObjectMetadata")
            .to_string()
            .into(),
        Form::Table => {
            let objects = [convert::between(kind, version, entry.content.value())];
            let mut table = table::of(
                kind,
                version,
                &objects,
                scope.now,
                scope.query.text("includeObject"),
            );
            table["metadata"]["resourceVersion"] = entry.version.to_string().into();
            table.to_string().into()
        }
    };
    json_response(code, body)
}

/// A whole object in a version.
pub(crate) fn object_json(kind: &ResourceType, version: &str, entry: &Entry) -> Bytes {
    let body = body_json(kind, version, entry);
    let head = kind.head(version);
    let mut json = BytesMut::with_capacity(head.len() + body.len());
    json.put(head.as_bytes());
    json.put(&body[1..]);
    json.freeze()
}

/// An object without `apiVersion` and `kind`.
fn body_json(kind: &ResourceType, version: &str, entry: &Entry) -> Bytes {
    if convert::is_needed(kind, version) {
        convert::between(kind, version, entry.content.value())
            .to_string()
            .into()
    } else {
        entry.content.json()
    }
}

/// Only the metadata of an object.
pub(crate) fn partial(object: &Value, kind: &str) -> Value {
    json!({"kind": kind, "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

/// The resourceVersion of a read, if it asks for one.
fn asked_version(query: &Query) -> Result<Option<u64>, Refusal> {
    let text = query.text("resourceVersion");
    if text.is_empty() {
        return Ok(None);
    }
    let version = text.parse().map_err(|_| {
        Refusal::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })?;
    Ok(Some(version))
}

fn too_new(server: &ApiServer, query: &Query) -> Result<Option<Refusal>, Refusal> {
    let current = server.store.version();
    let asked = asked_version(query)?;
    Ok(asked
        .filter(|asked| *asked > current)
        .map(|asked| Refusal::too_large_version(asked, current)))
}

/// As lenient about the last bits as Go's decoder.
const TOKEN: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// Where a page begins.
struct Cursor {
    version: u64,
    after: String,
}

impl Cursor {
    fn encode(&self) -> String {
        let token = json!({"v": "meta.k8s.io/v1", "rv": self.version, "start": format!("{}\0", self.after)});
        TOKEN.encode(token.to_string())
    }

    fn decode(token: &str) -> Result<Self, Refusal> {
        let wrong = |why: &str| {
            Refusal::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let json = TOKEN
            .decode(token.trim_end_matches('='))
            .map_err(|error| wrong(&error.to_string()))?;
        let first = json.first().copied().map(char::from).unwrap_or(' ');
        let token: Value = serde_json::from_slice(&json).map_err(|_| {
            wrong(&format!(
                "invalid character '{first}' looking for beginning of value"
            ))
        })?;
        let start = token["start"].as_str().ok_or_else(|| wrong("no start"))?;
        Ok(Self {
            version: token["rv"]
                .as_u64()
                .ok_or_else(|| wrong("incorrect encoded start resourceVersion"))?,
            after: start.trim_end_matches('\0').to_owned(),
        })
    }
}

/// The version of so many changes ago, as far as it is remembered.
fn before(server: &ApiServer, table: &Table, changes: u64) -> u64 {
    server.store.version().saturating_sub(changes).max(table.oldest())
}

fn list(
    server: &mut ApiServer,
    scope: &Scope<'_>,
    form: Form,
    stale_by: u64,
) -> Result<http::Response<Bytes>, Refusal> {
    let query = scope.query;
    let selector = Selector::of(query, scope.kind)?;
    let limit = query.number("limit").filter(|limit| *limit > 0);
    let asked = asked_version(query)?;
    let exact = query.text("resourceVersionMatch");
    if !exact.is_empty() && asked.is_none() {
        return Err(forbidden_option(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ));
    }
    let current = server.store.version();
    let cursor = match query.text("continue") {
        "" => None,
        token => {
            if asked.is_some_and(|asked| asked != 0) {
                return Err(Refusal::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            Some(Cursor::decode(token)?)
        }
    };
    if let Some(refusal) = too_new(server, query)? {
        return Err(refusal);
    }
    let version = match (&cursor, exact) {
        (Some(cursor), _) => cursor.version,
        (None, "Exact") => asked.unwrap_or(current),
        // A limit with a version means that version, as long as nobody says otherwise.
        (None, "") if limit.is_some() && asked.is_some_and(|asked| asked > 0) => asked.unwrap_or(current),
        _ => match server.store.table(&scope.resource()) {
            Some(table) if stale_by > 0 => before(server, table, stale_by),
            _ => current,
        },
    };

    let prefix = if scope.place.namespace.is_empty() {
        String::new()
    } else {
        format!("{}/", scope.place.namespace)
    };
    let mut page = Page {
        entries: Vec::new(),
        last: String::new(),
        more: false,
        remaining: 0,
    };
    if let Some(table) = server.store.table(&scope.resource()) {
        let objects = table.at(version).ok_or_else(|| expired(cursor.as_ref()))?;
        let start = cursor
            .as_ref()
            .map_or(prefix.clone(), |cursor| format!("{}\0", cursor.after));
        page = read_page(&objects, &start, &prefix, &selector, limit);
    }
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if scope.kind.custom {
        // Lists without a Go type of their own write this even when there is no more.
        metadata["continue"] = "".into();
    }
    if page.more {
        metadata["continue"] = Cursor {
            version,
            after: page.last.clone(),
        }
        .encode()
        .into();
        // With a selector the rest is not counted.
        if selector.is_everything() {
            metadata["remainingItemCount"] = page.remaining.into();
        }
    }
    Ok(json_response(
        StatusCode::OK,
        list_json(scope, form, &page.entries, &metadata),
    ))
}

struct Page {
    entries: Vec<Entry>,
    last: String,
    more: bool,
    remaining: u64,
}

fn read_page(
    objects: &std::collections::BTreeMap<Key, Entry>,
    start: &str,
    prefix: &str,
    selector: &Selector,
    limit: Option<u64>,
) -> Page {
    let mut page = Page {
        entries: Vec::new(),
        last: String::new(),
        more: false,
        remaining: 0,
    };
    let range = objects.range::<str, _>((std::ops::Bound::Included(start), std::ops::Bound::Unbounded));
    for (key, entry) in range.take_while(|(key, _)| key.starts_with(prefix)) {
        if !selector.is_everything() && !selector.matches(&entry.content.value()) {
            continue;
        }
        if limit.is_some_and(|limit| page.entries.len() as u64 >= limit) {
            page.more = true;
            page.remaining += 1;
            continue;
        }
        page.entries.push(entry.clone());
        page.last = key.to_string();
    }
    page
}

fn expired(cursor: Option<&Cursor>) -> Refusal {
    match cursor {
        None => Refusal::expired("The resourceVersion for the provided list is too old."),
        Some(_) => Refusal::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
             the continue parameter.",
        ),
    }
}

fn list_json(scope: &Scope<'_>, form: Form, entries: &[Entry], metadata: &Value) -> Bytes {
    let (kind, version) = (scope.kind, scope.place.version.as_str());
    match form {
        Form::Plain => {
            let mut json = BytesMut::new();
            let api_version = kind.api_version(version);
            let list_kind = &kind.list_kind;
            json.put(format!("{{\"kind\":\"{list_kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[").as_bytes());
            for (index, entry) in entries.iter().enumerate() {
                if index > 0 {
                    json.put_u8(b',');
                }
                // Items of built-in lists do not repeat their kind.
                if kind.custom {
                    json.put(object_json(kind, version, entry));
                } else {
                    json.put(body_json(kind, version, entry));
                }
            }
            json.put(&b"]}"[..]);
            json.freeze()
        }
        Form::Metadata => {
            let items: Vec<Value> = entries
                .iter()
                .map(|entry| partial(&entry.content.value(), "PartialObjectMetadata"))
                .collect();
            json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items,
            })
            .to_string()
            .into()
        }
        Form::Table => {
            let objects: Vec<Value> = entries
                .iter()
                .map(|entry| convert::between(kind, version, entry.content.value()))
                .collect();
            let mut table = table::of(
                kind,
                version,
                &objects,
                scope.now,
                scope.query.text("includeObject"),
            );
            table["metadata"] = metadata.clone();
            table.to_string().into()
        }
    }
}

fn forbidden_option(field: &str, text: &str) -> Refusal {
    let cause = Cause::forbidden(field, text);
    Refusal::invalid_as("meta.k8s.io", "ListOptions", "", &[cause])
}

fn watch(server: &mut ApiServer, scope: &Scope<'_>, form: Form) -> Result<Watch, Refusal> {
    let query = scope.query;
    let mut selector = Selector::of(query, scope.kind)?;
    if !scope.place.name.is_empty() {
        selector = selector.named(&scope.place.name);
    }
    let asked = asked_version(query)?;
    let (matching, initial) = (query.text("resourceVersionMatch"), query.get("sendInitialEvents"));
    match (matching, initial) {
        ("", Some(_)) => {
            return Err(forbidden_option(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        ("", None) | ("NotOlderThan", Some(_)) => {}
        (_, None) => {
            return Err(forbidden_option(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        (other, Some(_)) => {
            let field = "resourceVersionMatch";
            let causes = [
                Cause::forbidden(
                    field,
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ),
                Cause::unsupported(field, &other.into(), &["NotOlderThan"]),
            ];
            return Err(Refusal::invalid_as("meta.k8s.io", "ListOptions", "", &causes));
        }
    }
    Ok(Watch::begin(server, scope, form, selector, asked))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_continue_token_has_the_form_of_a_kube_apiserver() {
        let token = Cursor {
            version: 293,
            after: "t1/a".into(),
        }
        .encode();
        let own = Cursor::decode(&token).unwrap();
        assert_eq!((own.version, own.after.as_str()), (293, "t1/a"));
        let theirs =
            Cursor::decode("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjkzLCJzdGFydCI6Ii9hXHUwMDAwIn0").unwrap();
        assert_eq!((theirs.version, theirs.after.as_str()), (293, "/a"));
        assert!(Cursor::decode("bad").is_err());
    }
}
