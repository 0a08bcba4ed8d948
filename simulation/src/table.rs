//! Rows for people: what `kubectl get` shows.

use argosy_object::{Value, meta};
use jiff::Timestamp;
use serde_json::json;

use crate::registry::ResourceType;

/// A column: name, type, format, and whether only a wide view shows it.
struct Column {
    name: String,
    kind: &'static str,
    format: &'static str,
    wide: bool,
}

/// Columns of a built-in kind, `|` before those of the wide view, each with where its value is.
fn layout(kind: &ResourceType) -> &'static [(&'static str, &'static str)] {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => &[
            ("Ready", "pod-ready"),
            ("Status", "pod-status"),
            ("Restarts", "pod-restarts"),
            ("Age", "age"),
            ("|IP", ".status.podIP"),
            ("|Node", ".spec.nodeName"),
        ],
        ("", "Namespace" | "PersistentVolume") => &[("Status", ".status.phase"), ("Age", "age")],
        ("", "ConfigMap") => &[("Data", "data"), ("Age", "age")],
        ("", "Secret") => &[("Type", ".type"), ("Data", "data"), ("Age", "age")],
        ("", "Service") => &[
            ("Type", ".spec.type"),
            ("Cluster-IP", ".spec.clusterIP"),
            ("External-IP", "external"),
            ("Port(s)", "ports"),
            ("Age", "age"),
            ("|Selector", "selector"),
        ],
        ("", "ServiceAccount") => &[("Secrets", "secrets"), ("Age", "age")],
        ("", "Node") => &[
            ("Status", "node-status"),
            ("Roles", "none"),
            ("Age", "age"),
            ("Version", ".status.nodeInfo.kubeletVersion"),
        ],
        ("", "PersistentVolumeClaim") => &[
            ("Status", ".status.phase"),
            ("Volume", ".spec.volumeName"),
            ("Capacity", ".status.capacity.storage"),
            ("Access Modes", "modes"),
            ("StorageClass", ".spec.storageClassName"),
            ("Age", "age"),
        ],
        ("", "Event") => &[
            ("Last Seen", "age"),
            ("Type", ".type"),
            ("Reason", ".reason"),
            ("Object", "event-object"),
            ("Message", ".message"),
        ],
        ("apps", "Deployment") => &[
            ("Ready", "ready"),
            ("Up-to-date", "0.status.updatedReplicas"),
            ("Available", "0.status.availableReplicas"),
            ("Age", "age"),
            ("|Containers", "containers"),
            ("|Images", "images"),
            ("|Selector", "match-labels"),
        ],
        ("apps", "ReplicaSet") => &[
            ("Desired", "0.spec.replicas"),
            ("Current", "0.status.replicas"),
            ("Ready", "0.status.readyReplicas"),
            ("Age", "age"),
            ("|Containers", "containers"),
            ("|Images", "images"),
            ("|Selector", "match-labels"),
        ],
        ("apps", "StatefulSet") => &[
            ("Ready", "ready"),
            ("Age", "age"),
            ("|Containers", "containers"),
            ("|Images", "images"),
        ],
        ("apps", "DaemonSet") => &[
            ("Desired", "0.status.desiredNumberScheduled"),
            ("Current", "0.status.currentNumberScheduled"),
            ("Ready", "0.status.numberReady"),
            ("Up-to-date", "0.status.updatedNumberScheduled"),
            ("Available", "0.status.numberAvailable"),
            ("Node Selector", "none"),
            ("Age", "age"),
        ],
        ("batch", "Job") => &[
            ("Status", "job-status"),
            ("Completions", "job-completions"),
            ("Duration", "none"),
            ("Age", "age"),
        ],
        ("batch", "CronJob") => &[
            ("Schedule", ".spec.schedule"),
            ("Timezone", ".spec.timeZone"),
            ("Suspend", ".spec.suspend"),
            ("Active", "none"),
            ("Last Schedule", ".status.lastScheduleTime"),
            ("Age", "age"),
        ],
        ("networking.k8s.io", "Ingress") => &[
            ("Class", ".spec.ingressClassName"),
            ("Hosts", "hosts"),
            ("Address", "none"),
            ("Ports", "ingress-ports"),
            ("Age", "age"),
        ],
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            &[("Created At", ".metadata.creationTimestamp")]
        }
        _ => &[("Age", "age")],
    }
}

/// The `Table` of some objects.
pub(crate) fn of(
    kind: &ResourceType,
    version: &str,
    objects: &[Value],
    now: Timestamp,
    include: &str,
) -> Value {
    let custom: Vec<Value> = kind
        .version(version)
        .map(|version| version.columns.clone())
        .unwrap_or_default();
    let (columns, sources) = columns(kind, &custom);
    let definitions: Vec<Value> = columns
        .iter()
        .map(|column| {
            json!({
                "name": column.name, "type": column.kind, "format": column.format, "description": "",
                "priority": i32::from(column.wide),
            })
        })
        .collect();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells: Vec<Value> = sources.iter().map(|source| cell(object, source, now)).collect();
            let mut row = json!({"cells": cells});
            match include {
                "None" => {}
                "Object" => {
                    let mut object = object.clone();
                    object["apiVersion"] = kind.api_version(version).into();
                    object["kind"] = kind.kind.as_str().into();
                    row["object"] = object;
                }
                _ => row["object"] = crate::read::partial(object, "PartialObjectMetadata"),
            }
            row
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": ""},
        "columnDefinitions": definitions, "rows": rows,
    })
}

fn columns(kind: &ResourceType, custom: &[Value]) -> (Vec<Column>, Vec<String>) {
    let mut columns = vec![Column {
        name: "Name".into(),
        kind: "string",
        format: "name",
        wide: false,
    }];
    let mut sources = vec![".metadata.name".to_owned()];
    let mut add = |name: &str, source: &str, number: bool, wide: bool| {
        columns.push(Column {
            name: name.to_owned(),
            kind: if number { "integer" } else { "string" },
            format: "",
            wide,
        });
        sources.push(source.to_owned());
    };
    if !kind.custom {
        for (name, source) in layout(kind) {
            let wide = name.starts_with('|');
            add(
                name.trim_start_matches('|'),
                source,
                source.starts_with('0'),
                wide,
            );
        }
    } else if custom.is_empty() {
        add("Age", "age", false, false);
    } else {
        for column in custom {
            let path = column["jsonPath"].as_str().unwrap_or_default();
            let date = column["type"] == "date";
            let source = if date {
                format!("since{path}")
            } else {
                path.to_owned()
            };
            let wide = column["priority"].as_i64().unwrap_or_default() > 0;
            add(column["name"].as_str().unwrap_or_default(), &source, false, wide);
        }
    }
    (columns, sources)
}

fn cell(object: &Value, source: &str, now: Timestamp) -> Value {
    let number = |path: &[&str]| meta::i64_field(object, path).unwrap_or_default();
    let items = |path: &[&str]| meta::array_field(object, path);
    let joined = |values: Vec<String>| {
        if values.is_empty() {
            json!("<none>")
        } else {
            values.join(",").into()
        }
    };
    let pairs = |value: &Value| {
        let labels = value.as_object().into_iter().flatten();
        labels
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect()
    };
    let containers = |field: &str| {
        let template = items(&["spec", "template", "spec", "containers"]);
        template
            .iter()
            .filter_map(|one| one[field].as_str())
            .map(str::to_owned)
            .collect()
    };
    match source {
        "age" => age(meta::creation_timestamp(object).unwrap_or_default(), now).into(),
        "none" => "<none>".into(),
        "data" => {
            let count = |field: &str| object[field].as_object().map_or(0, serde_json::Map::len);
            (count("data") + count("binaryData")).into()
        }
        "secrets" => items(&["secrets"]).len().into(),
        "ready" => format!(
            "{}/{}",
            number(&["status", "readyReplicas"]),
            number(&["spec", "replicas"])
        )
        .into(),
        "pod-ready" => {
            let statuses = items(&["status", "containerStatuses"]);
            let ready = statuses.iter().filter(|one| one["ready"] == true).count();
            format!("{ready}/{}", items(&["spec", "containers"]).len()).into()
        }
        "pod-status" if meta::deletion_timestamp(object).is_some() => "Terminating".into(),
        "pod-status" => match meta::str_field(object, &["status", "phase"]) {
            Some("Succeeded") => "Completed".into(),
            phase => phase.unwrap_or_default().into(),
        },
        "pod-restarts" => {
            let statuses = items(&["status", "containerStatuses"]);
            statuses
                .iter()
                .filter_map(|one| one["restartCount"].as_i64())
                .sum::<i64>()
                .to_string()
                .into()
        }
        "node-status" => "Ready".into(),
        "external" => match meta::str_field(object, &["spec", "externalName"]) {
            Some(name) if !name.is_empty() => name.into(),
            _ => "<none>".into(),
        },
        "ports" => joined(items(&["spec", "ports"]).iter().map(port).collect()),
        "selector" => joined(pairs(&object["spec"]["selector"])),
        "match-labels" => joined(pairs(&object["spec"]["selector"]["matchLabels"])),
        "containers" => joined(containers("name")),
        "images" => joined(containers("image")),
        "modes" => {
            let short = |mode: &Value| match mode.as_str() {
                Some("ReadWriteOnce") => "RWO",
                Some("ReadOnlyMany") => "ROX",
                Some("ReadWriteMany") => "RWX",
                _ => "RWOP",
            };
            let modes: Vec<String> = items(&["status", "accessModes"])
                .iter()
                .map(short)
                .map(str::to_owned)
                .collect();
            modes.join(",").into()
        }
        "event-object" => {
            let of = &object["involvedObject"];
            let text = |field: &str| of[field].as_str().unwrap_or_default();
            format!("{}/{}", text("kind").to_lowercase(), text("name")).into()
        }
        "job-status" => {
            let done = |word: &str| {
                items(&["status", "conditions"])
                    .iter()
                    .any(|one| one["type"] == word && one["status"] == "True")
            };
            if done("Complete") {
                "Complete".into()
            } else if done("Failed") {
                "Failed".into()
            } else {
                "Running".into()
            }
        }
        "job-completions" => format!(
            "{}/{}",
            number(&["status", "succeeded"]),
            number(&["spec", "completions"])
        )
        .into(),
        "hosts" => {
            let hosts: Vec<String> = items(&["spec", "rules"])
                .iter()
                .filter_map(|rule| rule["host"].as_str())
                .map(str::to_owned)
                .collect();
            if hosts.is_empty() {
                "*".into()
            } else {
                hosts.join(",").into()
            }
        }
        "ingress-ports" => if items(&["spec", "tls"]).is_empty() {
            "80"
        } else {
            "80, 443"
        }
        .into(),
        _ => by_path(object, source, now),
    }
}

/// A cell by a simple JSON path: `.a.b[0].c`, with `since` before it for a time and `0` for a number that is zero by default.
fn by_path(object: &Value, source: &str, now: Timestamp) -> Value {
    let since = source.strip_prefix("since");
    let zero = source.strip_prefix('0');
    let path = since.or(zero).unwrap_or(source);
    let found = select(object, path);
    match (found, since) {
        (Some(Value::String(time)), Some(_)) => age(time, now).into(),
        (Some(value @ (Value::Object(_) | Value::Array(_))), _) => value.to_string().into(),
        (Some(value), _) if !value.is_null() => value.clone(),
        _ if zero.is_some() => 0.into(),
        _ => "".into(),
    }
}

fn select<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut here = object;
    for step in path.trim_start_matches('.').split('.') {
        let (name, rest) = step
            .split_once('[')
            .map_or((step, ""), |(name, rest)| (name, rest));
        if !name.is_empty() {
            here = here.get(name.replace('\\', "").as_str())?;
        }
        let index = rest.trim_end_matches(']');
        if let Some((key, wanted)) = index
            .strip_prefix("?(@")
            .and_then(|filter| filter.split_once("=="))
        {
            let wanted = wanted.trim_end_matches(')').trim_matches(['"', '\'']);
            let key = key.trim_start_matches('.');
            here = here.as_array()?.iter().find(|item| item[key] == wanted)?;
        } else if !index.is_empty() {
            here = here.get(index.parse::<usize>().ok()?)?;
        }
    }
    Some(here)
}

fn port(port: &Value) -> String {
    let number = port["port"].as_i64().unwrap_or_default();
    let protocol = port["protocol"].as_str().unwrap_or("TCP");
    match port["nodePort"].as_i64() {
        Some(node) => format!("{number}:{node}/{protocol}"),
        None => format!("{number}/{protocol}"),
    }
}

/// How long ago, as `kubectl` writes it: `42s`, `5m`, `3h`, `2d`.
fn age(time: &str, now: Timestamp) -> String {
    let Ok(then) = time.parse::<Timestamp>() else {
        return "<unknown>".to_owned();
    };
    let seconds = now.duration_since(then).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{}m{}s", seconds / 60, seconds % 60),
        120..10_800 => format!("{}m", seconds / 60),
        10_800..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
