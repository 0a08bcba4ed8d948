//! Requests by chance: a few objects that several managers create, change, apply and delete.

use serde_json::{Map, Value, json};

use super::{APPLY, JSON, MERGE, PATCH, STRATEGIC, Step};

/// A script of so many steps; the same seed makes the same one.
pub(super) fn script(seed: u64, steps: usize) -> Vec<Step> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..steps).map(|_| step(&mut random)).collect()
}

const MANAGERS: [&str; 3] = ["one", "two", "three"];

fn step(random: &mut fastrand::Rng) -> Step {
    let kind = random.usize(..3);
    let collection = [
        "/api/v1/namespaces/script/configmaps",
        "/api/v1/namespaces/script/podtemplates",
        "/apis/script.example.com/v1/namespaces/script/widgets",
    ][kind];
    let name = one_of(random, &["r1", "r2", "r3"]);
    let manager = MANAGERS[random.usize(..3)];
    let one = format!("{collection}/{name}");
    let by = format!("fieldManager={manager}");
    let dry = if random.u8(..8) == 0 { "&dryRun=All" } else { "" };
    match random.usize(..12) {
        0 | 1 => Step::new(
            "POST",
            format!("{collection}?{by}{dry}"),
            JSON,
            object(random, kind, name),
        ),
        2 => Step::new(
            "PUT",
            format!("{one}?{by}{dry}"),
            JSON,
            object(random, kind, name),
        ),
        3 | 4 => Step::new("PATCH", format!("{one}?{by}{dry}"), MERGE, merge(random, kind)),
        5 => Step::new(
            "PATCH",
            format!("{one}?{by}"),
            if kind == 2 { MERGE } else { STRATEGIC },
            merge(random, kind),
        ),
        6 => {
            let patch = json!([{"op": "add", "path": "/metadata/labels", "value": labels(random)}]);
            Step::new("PATCH", format!("{one}?{by}"), PATCH, patch)
        }
        7..=9 => {
            let force = if random.bool() { "&force=true" } else { "" };
            Step::new(
                "PATCH",
                format!("{one}?{by}{force}{dry}"),
                APPLY,
                object(random, kind, name),
            )
        }
        10 => Step::new(
            "GET",
            if random.bool() {
                one
            } else {
                format!("{collection}?labelSelector=a")
            },
            JSON,
            Value::Null,
        ),
        _ if random.u8(..3) == 0 => Step::new("DELETE", one, JSON, Value::Null),
        _ => Step::new("GET", one, JSON, Value::Null),
    }
}

fn one_of(random: &mut fastrand::Rng, words: &[&'static str]) -> &'static str {
    words[random.usize(..words.len())]
}

fn labels(random: &mut fastrand::Rng) -> Value {
    let mut labels = Map::new();
    for key in ["a", "b", "c"] {
        if random.bool() {
            labels.insert(key.to_owned(), one_of(random, &["1", "2"]).into());
        }
    }
    Value::Object(labels)
}

fn some_texts(random: &mut fastrand::Rng) -> Value {
    let mut texts = Map::new();
    for key in ["x", "y", "z", "w"] {
        if random.bool() {
            texts.insert(key.to_owned(), one_of(random, &["1", "2", ""]).into());
        }
    }
    Value::Object(texts)
}

fn object(random: &mut fastrand::Rng, kind: usize, name: &str) -> Value {
    let mut object = match kind {
        0 => json!({"apiVersion": "v1", "kind": "ConfigMap", "data": some_texts(random)}),
        1 => json!({"apiVersion": "v1", "kind": "PodTemplate", "template": {"spec": pod_spec(random)}}),
        _ => json!({"apiVersion": "script.example.com/v1", "kind": "Widget", "spec": widget_spec(random)}),
    };
    object["metadata"] = json!({"name": name});
    if random.bool() {
        object["metadata"]["labels"] = labels(random);
    }
    object
}

fn pod_spec(random: &mut fastrand::Rng) -> Value {
    let mut containers = Vec::new();
    for name in ["main", "side", "third"] {
        if random.u8(..3) == 0 && (!containers.is_empty() || name != "third") {
            continue;
        }
        let mut container = json!({"name": name, "image": one_of(random, &["img:1", "img:2", "img"])});
        if random.bool() {
            container["env"] =
                json!([{"name": one_of(random, &["E", "F"]), "value": one_of(random, &["1", "2"])}]);
        }
        // The server warns of two containers with one port.
        let port = match name {
            "main" => 80,
            "side" => 81,
            _ => 82,
        };
        if random.u8(..3) == 0 {
            container["ports"] = json!([{"containerPort": port}]);
        }
        if random.u8(..3) == 0 {
            container["resources"] = json!({"limits": {"cpu": one_of(random, &["1", "500m"])}});
        }
        if random.u8(..4) == 0 {
            container["args"] = json!(["a", one_of(random, &["b", "c"])]);
        }
        containers.push(container);
    }
    json!({"containers": containers})
}

fn widget_spec(random: &mut fastrand::Rng) -> Value {
    let mut spec = json!({"color": one_of(random, &["red", "green"])});
    if random.bool() {
        spec["size"] = random.u32(1..4).into();
    }
    if random.bool() {
        let names = ["p", "q", "r"]
            .into_iter()
            .filter(|_| random.bool())
            .collect::<Vec<_>>();
        let parts: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "weight": random.u32(1..3)}))
            .collect();
        spec["parts"] = parts.into();
    }
    if random.u8(..3) == 0 {
        spec["limits"] = some_texts(random);
    }
    if random.u8(..3) == 0 {
        spec["tags"] = json!(["t", one_of(random, &["u", "v"])]);
    }
    if random.u8(..4) == 0 {
        spec["whole"] = json!({"a": one_of(random, &["1", "2"])});
    }
    spec
}

/// A patch by merging, with nulls.
fn merge(random: &mut fastrand::Rng, kind: usize) -> Value {
    let mut patch = match kind {
        0 => json!({"data": some_texts(random)}),
        1 => json!({"template": {"metadata": {"labels": labels(random)}}}),
        _ => json!({"spec": {"size": random.u32(1..4), "limits": some_texts(random)}}),
    };
    let target = match kind {
        0 => &mut patch["data"],
        1 => &mut patch["template"]["metadata"]["labels"],
        _ => &mut patch["spec"]["limits"],
    };
    if random.bool() {
        target[["x", "a"][usize::from(kind == 1)]] = Value::Null;
    }
    if random.u8(..4) == 0 {
        patch["metadata"] = json!({"annotations": {"note": one_of(random, &["1", "2"])}});
    }
    patch
}
