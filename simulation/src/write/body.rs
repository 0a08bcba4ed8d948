//! A request's body becomes a document of the kind, in the form in which it is stored.

use argosy_object::{Value, meta, yaml};

use super::{Strictness, Writing};
use crate::api_server::Scope;
use crate::refusal::Refusal;
use crate::request::{Request, content_type};
use crate::shapes::{self, Reading};
use crate::{convert, custom};

/// The body as a document, whatever it says.
pub(super) fn any(request: &Request) -> Result<Value, Refusal> {
    match content_type(request.headers()) {
        "application/json" | "" => serde_json::from_slice(request.body())
            .map_err(|error| Refusal::bad_request(format!("the body is not JSON: {error}"))),
        "application/yaml" => yaml_value(request.body()),
        other => Err(unsupported(other)),
    }
}

pub(super) fn yaml_value(body: &[u8]) -> Result<Value, Refusal> {
    let text = std::str::from_utf8(body).map_err(|error| Refusal::bad_request(error.to_string()))?;
    yaml::parse(text, &yaml::Limits::default())
        .map_err(|error| Refusal::bad_request(format!("error decoding YAML: {error}")))
}

fn unsupported(media: &str) -> Refusal {
    Refusal::unsupported_media_type(format!(
        "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf (got {media})"
    ))
}

/// The body as a document of the request's kind.
pub(super) fn document(scope: &Scope<'_>, request: &Request) -> Result<Value, Refusal> {
    let kind = &scope.kind.kind;
    let media = content_type(request.headers());
    let mut object = match media {
        "application/json" | "" => serde_json::from_slice(request.body()).map_err(|error: serde_json::Error| {
            let shown = match request.body().as_ref() {
                [] => "<empty>".into(),
                body => String::from_utf8_lossy(&body[..body.len().min(100)]),
            };
            let why = if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() };
            Refusal::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {why} ({shown})"
            ))
        })?,
        _ => any(request)?,
    };
    if !object.is_object() {
        return Err(Refusal::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind})"
        )));
    }
    check_kind(scope, &mut object)?;
    Ok(object)
}

/// The document must be of the kind that the path names. What it leaves out is taken from the path.
pub(super) fn check_kind(scope: &Scope<'_>, object: &mut Value) -> Result<(), Refusal> {
    let expected = scope.kind.api_version(&scope.place.version);
    let kind = &scope.kind.kind;
    for (field, wanted) in [("apiVersion", &expected), ("kind", kind)] {
        if object[field].as_str().is_none_or(str::is_empty) {
            object[field] = wanted.as_str().into();
        }
    }
    let (api_version, given) = (meta::api_version(object), meta::kind(object));
    if given != kind {
        return Err(Refusal::bad_request(format!(
            "{given} in version {:?} cannot be handled as a {kind}: converting (v1.{given}) to (core.{kind}): unknown conversion",
            argosy_object::split_api_version(api_version).1
        )));
    }
    if api_version != expected {
        let version = argosy_object::split_api_version(api_version).1;
        if scope.kind.custom {
            return Err(Refusal::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({expected})"
            )));
        }
        return Err(Refusal::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: no kind {kind:?} is registered for version \
             {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
        )));
    }
    if object.get("metadata").is_none_or(Value::is_null) {
        object["metadata"] = serde_json::json!({});
    }
    Ok(())
}

/// Brings a document of the kind into the form that is stored, defaults aside. Unknown fields go, with a warning or a refusal.
pub(super) fn normalise(writing: &mut Writing<'_>, object: Value) -> Result<Value, Refusal> {
    let scope = writing.scope;
    let mut object = object;
    let mut reading = Reading::default();
    if scope.kind.custom {
        custom::normalise(scope.kind, &scope.place.version, &mut object, &mut reading);
    } else if let Some(shape) = shapes::kind(&scope.kind.gvk(&scope.place.version)) {
        shapes::normalise(&mut object, shape, "", &mut reading);
    }
    let described = || {
        format!(
            "{} in version {:?} cannot be handled as a {}",
            scope.kind.kind, scope.place.version, scope.kind.kind
        )
    };
    if let Some(mismatch) = reading.mismatch {
        return Err(Refusal::bad_request(format!("{}: {mismatch}", described())));
    }
    if !reading.unknown.is_empty() {
        let texts: Vec<String> = reading
            .unknown
            .iter()
            .map(|field| format!("unknown field {field:?}"))
            .collect();
        match writing.strictness {
            Strictness::Strict => {
                return Err(Refusal::bad_request(format!(
                    "{}: strict decoding error: {}",
                    described(),
                    texts.join(", ")
                )));
            }
            Strictness::Warn => writing.warnings.extend(texts),
            Strictness::Ignore => {}
        }
    }
    Ok(convert::to_storage(scope.kind, &scope.place.version, object))
}
