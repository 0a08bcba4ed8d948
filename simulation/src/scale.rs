//! The `scale` subresource: replicas of a workload, whatever its kind.

use argosy_object::meta;
use serde_json::{Value, json};

use crate::api_server::Scope;
use crate::refusal::Refusal;

/// Where a kind keeps its replicas.
struct Paths {
    spec: Vec<String>,
    status: Vec<String>,
    selector: Vec<String>,
}

fn paths(scope: &Scope<'_>) -> Result<Paths, Refusal> {
    let split = |path: &str| {
        path.trim_start_matches('.')
            .split('.')
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    if !scope.kind.custom {
        return Ok(Paths {
            spec: split("spec.replicas"),
            status: split("status.replicas"),
            selector: split("spec.selector"),
        });
    }
    let version = scope.kind.version(&scope.place.version);
    let scale = version
        .and_then(|version| version.scale.as_ref())
        .ok_or_else(Refusal::no_such_resource)?;
    Ok(Paths {
        spec: split(scale["specReplicasPath"].as_str().unwrap_or_default()),
        status: split(scale["statusReplicasPath"].as_str().unwrap_or_default()),
        selector: scale["labelSelectorPath"].as_str().map(split).unwrap_or_default(),
    })
}

fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    meta::field(object, &path)
}

/// The `Scale` of an object.
pub(crate) fn of(scope: &Scope<'_>, object: &Value) -> Result<Value, Refusal> {
    let paths = paths(scope)?;
    let number = |path: &[String]| at(object, path).and_then(Value::as_i64).unwrap_or_default();
    let metadata = &object["metadata"];
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {}, "status": {"replicas": number(&paths.status)},
    });
    if number(&paths.spec) != 0 {
        scale["spec"]["replicas"] = number(&paths.spec).into();
    }
    match at(object, &paths.selector) {
        Some(Value::String(text)) => scale["status"]["selector"] = text.as_str().into(),
        Some(selector @ Value::Object(_)) => {
            let labels = selector["matchLabels"].as_object().into_iter().flatten();
            let pairs: Vec<String> = labels
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                .collect();
            scale["status"]["selector"] = pairs.join(",").into();
        }
        _ => {}
    }
    Ok(scale)
}

/// An object with the replicas that a `Scale` asks for.
pub(crate) fn onto(scope: &Scope<'_>, object: &Value, scale: &Value) -> Result<Value, Refusal> {
    let paths = paths(scope)?;
    let path: Vec<&str> = paths.spec.iter().map(String::as_str).collect();
    let mut object = object.clone();
    meta::set_field(
        &mut object,
        &path,
        scale["spec"]["replicas"].as_i64().unwrap_or_default(),
    );
    Ok(object)
}
