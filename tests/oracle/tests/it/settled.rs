//! Where the engine answers otherwise than the reference on purpose. Each has a name, and docs/compatibility.md has the reason.

use argosy_diff::{Comparison, Value};

/// Fails if the documentation does not name it.
pub(crate) fn must_be_listed(name: &str) {
    const LIST: &str = include_str!("../../../../docs/compatibility.md");
    assert!(
        LIST.contains(&format!("`{name}`")),
        "{name} is not in docs/compatibility.md"
    );
}

/// The name of a disagreement between two verdicts, if it is one of those. `reference` is where the reference sees a difference, `effect` is
/// what an apply would really change.
pub(crate) fn name(
    ours: &Comparison,
    reference: &[String],
    effect: Option<&[String]>,
    desired: &Value,
    last: Option<&Value>,
) -> Option<&'static str> {
    let all = |places: &[String], is: &dyn Fn(&String) -> bool| !places.is_empty() && places.iter().all(is);
    let empty = |place: &String| place.ends_with(": null | \"\"") || place.ends_with(": \"\" | null");
    if !ours.modified && effect.is_none() && all(reference, &empty) {
        return Some("empty-is-absent");
    }
    match (ours.modified, effect?) {
        (false, []) => Some("apply-changes-nothing"),
        (true, [_, ..]) => Some("apply-changes-something"),
        (true, []) if is_role_without_rules(desired) => Some("role-without-rules-grants-nothing"),
        (true, []) => {
            let paths: Vec<String> = ours
                .differences
                .iter()
                .map(|one| format!(".{}", one.path))
                .collect();
            all(&paths, &|path| is_in_ambiguous_list(path, desired))
                .then_some("keys-that-a-patch-cannot-tell-apart")
        }
        (false, places) if all(places, &|place| is_in_ambiguous_list(place, desired)) => {
            Some("keys-that-a-patch-cannot-tell-apart")
        }
        (false, places)
            if all(places, &|place| {
                place.starts_with(".spec.allocateLoadBalancerNodePorts: true | null")
            }) =>
        {
            Some("default-of-load-balancers")
        }
        (false, places) if all(places, &|place| is_left_to_the_server(place)) => {
            Some("assigned-by-the-server")
        }
        (false, places) if all(places, &|place| place.contains(".finalizers[")) => Some("order-of-a-set"),
        (false, places) if all(places, &|place| place.contains("piGroup: null | \"\"")) => {
            Some("empty-api-group")
        }
        (false, places)
            if all(places, &|place| {
                last.is_some_and(|last| states_nothing_at(place, last))
            }) =>
        {
            Some("an-empty-object-states-nothing")
        }
        (false, places) if all(places, &empty) => Some("empty-is-absent"),
        _ => None,
    }
}

/// Lists with two keys of which a strategic merge patch knows the first only (one port, two protocols): the list, the key.
const AMBIGUOUS: [(&str, &str); 3] = [
    (".ports", "containerPort"),
    (".ports", "port"),
    (".topologySpreadConstraints", "topologyKey"),
];

/// Whether a place (`.spec.ports[0].name: …`) is in such a list, and the object has one in which the first key is not enough.
fn is_in_ambiguous_list(place: &str, object: &Value) -> bool {
    AMBIGUOUS
        .iter()
        .any(|(list, key)| place.contains(list) && has_ambiguous(object, key))
}

/// A role that states no rules: what somebody adds by hand is taken away.
fn is_role_without_rules(object: &Value) -> bool {
    matches!(object["kind"].as_str(), Some("Role" | "ClusterRole"))
        && object["rules"].as_array().is_none_or(Vec::is_empty)
}

fn has_ambiguous(value: &Value, key: &str) -> bool {
    match value {
        Value::Object(fields) => fields.values().any(|value| has_ambiguous(value, key)),
        Value::Array(items) => {
            // Protocols that are spelled in two ways make two keys one too.
            let keys: Vec<_> = items.iter().filter_map(|item| item.get(key)).collect();
            let twice = keys.iter().enumerate().any(|(at, key)| keys[..at].contains(key));
            twice || items.iter().any(|item| has_ambiguous(item, key))
        }
        _ => false,
    }
}

/// Whether `object` states an empty object at a place, or around it.
fn states_nothing_at(place: &str, object: &Value) -> bool {
    let path = place.split(": ").next().unwrap_or_default();
    let mut at = object;
    for step in path.split(['.', '[', ']']).filter(|step| !step.is_empty()) {
        let next = match step.parse::<usize>() {
            Ok(index) => at.get(index),
            Err(_) => at.get(step),
        };
        match next {
            Some(next) => at = next,
            None => break,
        }
    }
    at.as_object().is_some_and(serde_json::Map::is_empty)
}

/// The name of a disagreement between what two patches lead to.
pub(crate) fn patch_name(
    (theirs, ours): (&Value, &Value),
    original: &Value,
    modified: &Value,
    current: &Value,
) -> Option<&'static str> {
    let places = crate::places(theirs, ours);
    if places.iter().all(|place| {
        [original, modified, current]
            .iter()
            .any(|object| is_in_ambiguous_list(place, object))
    }) {
        return Some("keys-that-a-patch-cannot-tell-apart");
    }
    let all = |is: &dyn Fn(&str) -> bool| places.iter().all(|place| is(place));
    match modified["kind"].as_str() {
        Some("Secret") if all(&|place| place.starts_with(".data") || place.starts_with(".stringData")) => {
            return Some("secret-texts-become-data");
        }
        Some("Role" | "ClusterRole")
            if is_role_without_rules(modified) && all(&|place| place.starts_with(".rules")) =>
        {
            return Some("role-without-rules-grants-nothing");
        }
        Some("Endpoints") if all(&|place| place.starts_with(".subsets")) => {
            return Some("endpoints-in-order");
        }
        _ => {}
    }
    if all(&|place| place.starts_with(".spec.allocateLoadBalancerNodePorts: null | true")) {
        return Some("default-of-load-balancers");
    }
    if crate::places(&with_sorted_lists(theirs), &with_sorted_lists(ours)).is_empty() {
        return Some("place-of-items-of-others");
    }
    if crate::places(&with_sorted_sets(theirs, ""), &with_sorted_sets(ours, "")).is_empty() {
        return Some("order-of-a-set");
    }
    if all(&|place| states_nothing_at(place, original)) {
        return Some("an-empty-object-states-nothing");
    }
    if all(&|place| is_left_to_the_server(place) || place.starts_with(".spec.volumeLifecycleModes: ")) {
        return Some("assigned-by-the-server");
    }
    if all(&is_default_anyway) {
        return Some("apply-changes-nothing");
    }
    if all(&|place| place.starts_with(".spec.volumeClaimTemplates[") && place.contains("].status")) {
        return Some("status-of-claim-templates");
    }
    if all(&|place| {
        place.contains(": \"\" | ")
            || place.ends_with(": null | {}")
            || place.ends_with(": [] | null")
            || place.ends_with(": null | []")
            || place.ends_with(": false | null")
            || place.ends_with(" | \"\"")
    }) {
        return Some("empty-is-absent");
    }
    let sorted = |value: &Value| with_sorted_lists(&without_empties(value));
    (sorted(theirs) == sorted(ours)).then_some("place-of-items-of-others")
}

/// The name of a disagreement between the predictions of a server-side apply of `stated`: two documents without nulls.
pub(crate) fn prediction_name(theirs: &Value, ours: &Value, stated: &Value) -> Option<&'static str> {
    let places = crate::places(theirs, ours);
    let all = |is: &dyn Fn(&str) -> bool| places.iter().all(|place| is(place));
    match stated["kind"].as_str() {
        Some("Secret") if all(&|place| place.starts_with(".data") || place.starts_with(".stringData")) => {
            return Some("secret-texts-become-data");
        }
        Some("Role" | "ClusterRole") if all(&|place| place.starts_with(".rules: null | []")) => {
            return Some("role-without-rules-grants-nothing");
        }
        Some("Endpoints") if all(&|place| place.starts_with(".subsets")) => {
            return Some("endpoints-in-order");
        }
        _ => {}
    }
    if crate::places(&with_sorted_sets(theirs, ""), &with_sorted_sets(ours, "")).is_empty() {
        return Some("order-of-a-set");
    }
    let says_nothing = |place: &str| place.ends_with(": {} | null") || place.ends_with(": null | {}");
    if all(&|place| is_left_to_the_server(place) || says_nothing(place)) && !all(&says_nothing) {
        return Some("assigned-by-the-server");
    }
    if all(&|place| place == ".spec.allocateLoadBalancerNodePorts: null | true") {
        return Some("default-of-load-balancers");
    }
    if all(&is_default_anyway) {
        return Some("apply-changes-nothing");
    }
    let native = stated["apiVersion"] != "example.com/v1";
    let sets = |value: &Value| with_sorted_sets(&without_empties(value), "");
    if native && sets(theirs) == sets(ours) && !same_but_for_empties(theirs, ours) {
        return Some("order-of-a-set");
    }
    (native && same_but_for_empties(theirs, ours)).then_some("empty-is-absent")
}

pub(crate) fn same_but_for_empties(left: &Value, right: &Value) -> bool {
    crate::places(&without_empties(left), &without_empties(right)).is_empty()
}

/// The default that the live object has anyway.
fn is_default_anyway(place: &str) -> bool {
    // In the template of a Job they are none of the API server, but of the Job that is made of it.
    [
        ".enableServiceLinks: null | true",
        ".spec.backoffLimit: null | 6",
        ".spec.completionMode: null | \"NonIndexed\"",
        ".spec.completions: null | 1",
        ".spec.parallelism: null | 1",
        ".spec.podReplacementPolicy: null | \"TerminatingOrFailed\"",
    ]
    .iter()
    .any(|default| place.ends_with(default))
}

/// Texts that Git leaves to the server by stating the empty one.
const ASSIGNED: [&str; 6] = [
    "clusterIP",
    "nodeName",
    "priorityClassName",
    "serviceAccount",
    "serviceAccountName",
    "volumeName",
];

fn is_left_to_the_server(place: &str) -> bool {
    let port = |name: &str| place.contains(&format!(".{name}: 0 | "));
    port("nodePort")
        || port("healthCheckNodePort")
        || ASSIGNED.iter().any(|name| {
            place.contains(&format!(".{name}: \"\" | "))
                || place.contains(&format!(".{name}: ")) && place.ends_with(" | \"\"")
        })
}

fn with_sorted_sets(value: &Value, name: &str) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, value)| (name.clone(), with_sorted_sets(value, name)))
                .collect(),
        ),
        Value::Array(items)
            if matches!(
                name,
                "set"
                    | "addresses"
                    | "finalizers"
                    | "podCIDRs"
                    | "volumeLifecycleModes"
                    | "validationActions"
            ) =>
        {
            let mut texts: Vec<String> = items.iter().map(Value::to_string).collect();
            texts.sort();
            texts.dedup();
            texts.into()
        }
        Value::Array(items) => Value::Array(items.iter().map(|item| with_sorted_sets(item, name)).collect()),
        other => other.clone(),
    }
}

fn with_sorted_lists(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, value)| (name.clone(), with_sorted_lists(value)))
                .collect(),
        ),
        Value::Array(items) if items.iter().all(Value::is_object) => {
            let mut items: Vec<Value> = items.iter().map(with_sorted_lists).collect();
            items.sort_by_key(Value::to_string);
            Value::Array(items)
        }
        other => other.clone(),
    }
}

fn without_empties(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields
                .iter()
                .map(|(name, value)| (name.clone(), without_empties(value)));
            Value::Object(kept.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_empties).collect()),
        other => other.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// The name of a disagreement between two verdicts on the same answer of a dry run, given the reference's two documents.
pub(crate) fn dry_run_name(ours: &Comparison, live: &Value, predicted: &Value) -> Option<&'static str> {
    if ours.modified {
        return None;
    }
    if same_but_for_empties(live, predicted) {
        return Some("empty-is-absent");
    }
    let sets = |value: &Value| with_sorted_sets(&without_empties(value), "");
    if sets(live) == sets(predicted) {
        return Some("order-of-a-set");
    }
    let places = crate::places(&without_empties(live), &without_empties(predicted));
    let all = |is: &dyn Fn(&str) -> bool| places.iter().all(|place| is(place));
    if all(&|place| place == ".spec.allocateLoadBalancerNodePorts: true | null") {
        return Some("default-of-load-balancers");
    }
    // What is empty has been left out on both sides.
    let emptied = |place: &str| is_left_to_the_server(&place.replace(" | null", " | \"\""));
    all(&emptied).then_some("assigned-by-the-server")
}
