//! Server-side apply, against the field manager of the API server (structured-merge-diff).

use argosy_diff::{Context, IgnoreRules, Options, Value, compare};
use argosy_object::meta;
use argosy_object::schema::Schemas;
use argosy_oracle::{Generator, Oracle};
use serde_json::json;

use crate::{Tally, kinds, objects, places, seed, settled};

/// A history of applies and writes by us and others, then an apply of ours: what we predict is what the API server makes of it.
#[test]
fn predictions_for_native_kinds_are_what_the_field_manager_makes() {
    let Some(mut oracle) = Oracle::start().unwrap() else {
        return;
    };
    let schemas = Schemas::builtin();
    let kinds = kinds(&schemas, &mut oracle);
    let mut generator = Generator::new(&schemas, seed() + 2_000_000);
    let mut tally = Tally::default();
    for _ in 0..objects() {
        let kind = generator.dice.pick(&kinds);
        let first = generator.object(kind);
        one(
            &mut oracle,
            &schemas,
            &mut generator,
            &first,
            &Value::Null,
            &mut tally,
        );
    }
    tally.close("structured merge, native kinds", objects() / 2);
}

#[test]
fn predictions_for_custom_kinds_are_what_the_field_manager_makes() {
    let Some(mut oracle) = Oracle::start().unwrap() else {
        return;
    };
    let schema = widget_schema();
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}
    });
    let schemas = Schemas::builtin().with_crds([&crd]);
    let mut generator = Generator::new(&schemas, seed() + 3_000_000);
    let mut tally = Tally::default();
    for _ in 0..objects() {
        let first = generator.object(&argosy_object::GroupVersionKind::new(
            "example.com",
            "v1",
            "Widget",
        ));
        one(&mut oracle, &schemas, &mut generator, &first, &schema, &mut tally);
    }
    tally.close("structured merge, custom kinds", objects() / 2);
}

/// A schema with every kind of list and map.
fn widget_schema() -> Value {
    let text = json!({"type": "string"});
    json!({"type": "object", "properties": {
        "apiVersion": text, "kind": text,
        "metadata": {"type": "object"},
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer"},
            "on": {"type": "boolean"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "tags": {"type": "object", "additionalProperties": text},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text, "b": text}},
            "row": {"type": "array", "items": text},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": text, "a": text, "b": {"type": "integer"},
                    "inner": {"type": "object", "properties": {"x": text, "y": text}},
                    "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                        "items": {"type": "object", "required": ["port"], "properties": {
                            "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": text}}}
                }}}
        }}
    }})
}

fn one(
    oracle: &mut Oracle,
    schemas: &Schemas,
    generator: &mut Generator<'_>,
    first: &Value,
    schema: &Value,
    tally: &mut Tally,
) {
    const OURS: &str = "argocd-controller";
    let mut steps = vec![json!({"manager": OURS, "update": false, "object": first})];
    let mut stated = first.clone();
    let mut whole = first.clone();
    for _ in 0..generator.dice.below(3) {
        match generator.dice.below(3) {
            // Somebody edits what is there.
            0 => {
                for _ in 0..1 + generator.dice.below(3) {
                    whole = generator.mutated(&whole);
                }
                steps.push(json!({"manager": "editor", "update": true, "object": whole}));
            }
            // Somebody applies something of the like.
            1 => {
                let mut theirs = first.clone();
                for _ in 0..2 + generator.dice.below(4) {
                    theirs = generator.mutated(&theirs);
                }
                steps.push(json!({"manager": "other", "update": false, "object": theirs}));
            }
            _ => {
                stated = generator.mutated(&stated);
                steps.push(json!({"manager": OURS, "update": false, "object": stated}));
            }
        }
    }
    for _ in 0..generator.dice.below(4) {
        stated = generator.mutated(&stated);
    }
    steps.push(json!({"manager": OURS, "update": false, "object": stated}));
    let answer = oracle
        .ask("apply", json!({"steps": steps, "schema": schema}))
        .unwrap();
    let Ok(answer) = answer else { return };
    let (rules, options) = (
        IgnoreRules::none(),
        Options {
            server_side_apply: true,
            ..Options::default()
        },
    );
    let ctx = Context {
        schemas,
        rules: &rules,
        options: &options,
    };
    let comparison = compare(Some(&stated), Some(&answer["before"]), &ctx);
    let after = bare(&answer["after"]);
    // What is equal by meaning keeps the live spelling; so the prediction is held against both.
    let different = places(&after, &bare(comparison.predicted_live()));
    let real = places(&bare(&answer["before"]), &after);
    if different.is_empty() {
        return tally.agree();
    }
    // Where the two mean the same the live spelling stays; an API server would store both alike.
    let predicted = bare(comparison.predicted_live());
    if schema.is_null()
        && let (Some(a), Some(b)) = (
            oracle.store(&predicted, true).unwrap(),
            oracle.store(&after, true).unwrap(),
        )
        && settled::same_but_for_empties(&a, &b)
    {
        return tally.settle("apply-changes-nothing");
    }
    if let Some(name) = settled::prediction_name(&after, &predicted, &stated) {
        return tally.settle(name);
    }
    tally.fault(format!(
        "{}: reference | ours {different:?}\n  really changed: {real:?}\n  ours: {:?}\n  {}",
        meta::kind(first),
        comparison
            .differences
            .iter()
            .map(|one| format!("{}: {:?} | {:?} ({})", one.path, one.live, one.desired, one.why))
            .collect::<Vec<_>>(),
        if std::env::var_os("ARGOSY_ORACLE_FULL").is_some() {
            json!({"steps": steps, "before": answer["before"], "after": answer["after"]}).to_string()
        } else {
            String::new()
        }
    ));
}

/// Without managedFields, nulls, and what the comparison leaves out of both sides.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    for field in ["managedFields", "creationTimestamp", "namespace"] {
        meta::remove_field(&mut object, &["metadata", field]);
    }
    meta::remove_field(&mut object, &["status"]);
    without_nulls(&object)
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name.clone(), without_nulls(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}
