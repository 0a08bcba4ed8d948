//! What holds for any objects.

use argosy_diff::{Context, IgnoreRule, IgnoreRules, LAST_APPLIED, Options, Value, compare, ignore, patch};
use argosy_object::meta;
use argosy_object::schema::Schemas;
use proptest::prelude::*;
use serde_json::json;

use crate::server::{self, object};

fn small_text() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(str::to_owned)
}

/// JSON without nulls: what a custom resource may hold.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        (0..3_i64).prop_map(Value::from),
        small_text().prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(small_text(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect()))
        ]
    })
}

fn widget() -> impl Strategy<Value = Value> {
    prop::collection::btree_map(small_text(), json_value(), 0..4).prop_map(|spec| {
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "shop"}, "spec": spec})
    })
}

/// A list of named items in a random order, with a few fields each.
fn named(item: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::btree_map(small_text(), item, 0..4)
        .prop_map(|items| {
            items
                .into_iter()
                .map(|(name, mut item)| {
                    item["name"] = Value::from(name);
                    item
                })
                .collect::<Vec<_>>()
        })
        .prop_shuffle()
        .prop_map(Value::from)
}

fn container() -> impl Strategy<Value = Value> {
    let env = named(small_text().prop_map(|value| json!({"value": value})));
    let ports = prop::collection::btree_set((1..4_i64, any::<bool>()), 0..4).prop_map(|ports| {
        let ports = ports
            .into_iter()
            .map(|(port, udp)| json!({"containerPort": port, "protocol": if udp { "UDP" } else { "TCP" }}));
        Value::from(ports.collect::<Vec<_>>())
    });
    let args = prop::collection::vec(small_text(), 0..3);
    (small_text(), env, ports, args, prop::option::of(1..3_i64)).prop_map(|(image, env, ports, args, cpu)| {
        let mut container = object([
            ("image", image.into()),
            ("env", env),
            ("ports", ports),
            ("args", args.into()),
        ]);
        if let Some(cpu) = cpu {
            container["resources"] = json!({"limits": {"cpu": format!("{cpu}000m")}});
        }
        container
    })
}

fn deployment() -> impl Strategy<Value = Value> {
    let labels = prop::collection::btree_map(small_text(), small_text(), 0..4);
    let finalizers = prop::collection::btree_set(small_text(), 0..3);
    let volumes = named(any::<bool>().prop_map(|empty| {
        if empty {
            json!({"emptyDir": {}})
        } else {
            json!({"configMap": {"name": "c"}})
        }
    }));
    (
        named(container()),
        labels,
        finalizers,
        volumes,
        prop::option::of(0..4_i64),
    )
        .prop_map(|(containers, labels, finalizers, volumes, replicas)| {
            let mut deployment = json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "web", "namespace": "shop", "labels": labels, "finalizers": finalizers},
                "spec": {"template": {"spec": {"containers": containers, "volumes": volumes}}}
            });
            if let Some(replicas) = replicas {
                deployment["spec"]["replicas"] = replicas.into();
            }
            deployment
        })
}

fn check(base: &Value, desired: &Value, live: &Value) -> Result<(), TestCaseError> {
    let schemas = Schemas::builtin();
    let (rules, options) = (IgnoreRules::none(), Options::default());
    let ctx = Context {
        schemas: &schemas,
        rules: &rules,
        options: &options,
    };
    let mut live = live.clone();
    meta::set_annotation(&mut live, LAST_APPLIED, base.to_string());

    let before = compare(Some(desired), Some(&live), &ctx);
    let sent = patch::three_way(Some(base), desired, &live, &schemas);
    prop_assert_eq!(before.modified, !sent.is_empty(), "{}", sent.content);
    prop_assert_eq!(
        before.modified,
        before.normalized_live != *before.predicted_live()
    );

    let mut applied = server::apply(&live, &sent, &schemas);
    meta::set_annotation(&mut applied, LAST_APPLIED, desired.to_string());
    let after = compare(Some(desired), Some(&applied), &ctx);
    prop_assert!(
        !after.modified,
        "sent {}\nleft {:?}",
        sent.content,
        after.differences
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn x_against_x_is_empty(
        widget in widget(),
        deployment in deployment(),
        server_side_apply: bool,
        strict: bool,
        recorded: bool,
    ) {
        let (schemas, rules) = (Schemas::builtin(), IgnoreRules::none());
        let options = Options { server_side_apply, strict, ..Options::default() };
        let ctx = Context { schemas: &schemas, rules: &rules, options: &options };
        for x in [widget, deployment] {
            let mut live = x.clone();
            if recorded {
                meta::set_annotation(&mut live, LAST_APPLIED, x.to_string());
            }
            let comparison = compare(Some(&x), Some(&live), &ctx);
            prop_assert!(!comparison.modified && comparison.differences.is_empty(), "{:?}", comparison.differences);
            prop_assert_eq!(comparison.predicted_live(), &comparison.normalized_live);
        }
    }

    #[test]
    fn what_is_applied_is_not_different(widget in widget(), deployment in deployment()) {
        for x in [widget, deployment] {
            check(&x, &x, &x)?;
        }
    }

    #[test]
    fn after_an_apply_nothing_differs_for_custom_kinds(base in widget(), desired in widget(), live in widget()) {
        check(&base, &desired, &live)?;
    }

    #[test]
    fn after_an_apply_nothing_differs_for_native_kinds(base in deployment(), desired in deployment(), live in deployment()) {
        check(&base, &desired, &live)?;
    }
}

#[test]
fn a_field_that_the_schema_does_not_know_is_named() {
    let schemas = Schemas::builtin();
    let rules = IgnoreRules::none();
    let options = Options {
        server_side_apply: true,
        ..Options::default()
    };
    let ctx = Context {
        schemas: &schemas,
        rules: &rules,
        options: &options,
    };
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "labels": {"free": "x"}},
        "spec": {"brandNew": {"a": 1}, "template": {"spec": {"nodeSelector": {"free": "x"},
            "containers": [{"name": "main", "image": "x", "alsoNew": true, "resources": {"limits": {"free": "1"}}}]}}}
    });
    let comparison = compare(Some(&job), Some(&job), &ctx);
    assert!(!comparison.modified);
    let named: Vec<String> = comparison
        .findings
        .into_iter()
        .map(|finding| finding.what)
        .collect();
    assert_eq!(named, ["spec.brandNew", "spec.template.spec.containers.alsoNew"]);
}

#[test]
fn one_side_alone() {
    let schemas = Schemas::builtin();
    let (rules, options) = (IgnoreRules::none(), Options::default());
    let ctx = Context {
        schemas: &schemas,
        rules: &rules,
        options: &options,
    };
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "1"}});
    let new = compare(Some(&secret), None, &ctx);
    assert!(new.modified);
    assert_eq!(
        new.differences[0].desired.as_ref().unwrap()["data"]["a"],
        "++++++++"
    );
    assert_eq!(new.predicted_live()["data"]["a"], "MQ==");
    let extra = compare(None, Some(&secret), &ctx);
    assert!(!extra.modified);
    assert_eq!(*extra.predicted_live(), Value::Null);
    assert!(!compare(None, None, &ctx).modified);
}

#[test]
fn respected_fields_are_taken_from_the_cluster_item_by_item() {
    let (rules, findings) = IgnoreRules::new([IgnoreRule {
        group: "apps".into(),
        kind: "Deployment".into(),
        json_pointers: vec!["/spec/replicas".into(), "/spec/paused".into()],
        jq_path_expressions: vec![".spec.template.spec.containers[] | select(.name == \"a\").image".into()],
        ..IgnoreRule::default()
    }]);
    assert_eq!(findings, []);
    let make = |spec: Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec});
    let desired = make(json!({"paused": true, "template": {"spec": {"containers": [
        {"name": "b", "image": "b:2"}, {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "new"}]}
    ]}}}));
    let live = make(json!({"replicas": 7, "template": {"spec": {"containers": [
        {"name": "a", "image": "a:live", "env": [{"name": "X", "value": "old"}]}
    ]}}}));
    let (kept, findings) = ignore::keep_live(&desired, &live, &rules, &Schemas::builtin());
    assert_eq!(findings, []);
    assert_eq!(
        kept["spec"],
        json!({"replicas": 7, "template": {"spec": {"containers": [
            {"name": "b", "image": "b:2"}, {"name": "a", "image": "a:live", "env": [{"name": "X", "value": "new"}]}
        ]}}})
    );
}

#[test]
fn what_belongs_to_an_ignored_manager_keeps_its_live_value_where_git_states_it() {
    let (rules, findings) = IgnoreRules::new([IgnoreRule {
        group: "apps".into(),
        kind: "*".into(),
        managed_fields_managers: vec!["scaler".into()],
        ..IgnoreRule::default()
    }]);
    assert_eq!(findings, []);
    let make = |spec: Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec});
    let desired = make(json!({"replicas": 2, "template": {"spec": {"containers": [
        {"name": "new", "image": "new:1"}, {"name": "main", "image": "git:2", "args": ["git"]}
    ]}}}));
    let mut live = make(
        json!({"replicas": 7, "paused": true, "template": {"spec": {"containers": [
            {"name": "main", "image": "live:1", "args": ["live"]}
        ]}}}),
    );
    live["metadata"]["managedFields"] = json!([
        {"manager": "scaler", "operation": "Update", "apiVersion": "apps/v1", "fieldsV1": {"f:spec": {"f:replicas": {}, "f:paused": {},
            "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:image": {}}}}}}}},
        {"manager": "argocd-controller", "operation": "Update", "apiVersion": "apps/v1", "fieldsV1": {"f:spec": {"f:template": {"f:spec": {
            "f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:args": {}}}}}}}}
    ]);
    let (kept, findings) = ignore::keep_live(&desired, &live, &rules, &Schemas::builtin());
    assert_eq!(findings, []);
    assert_eq!(
        kept["spec"],
        json!({"replicas": 7, "template": {"spec": {"containers": [
            {"name": "new", "image": "new:1"}, {"name": "main", "image": "live:1", "args": ["git"]}
        ]}}})
    );
}

#[test]
fn strict_counts_in_a_comparison_by_dry_run_too() {
    let entry = |manager: &str, operation: &str, fields: Value| json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": fields});
    let live = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "managedFields": [
            entry("argocd-controller", "Apply", json!({"f:data": {"f:a": {}}})),
            entry("kubectl-edit", "Update", json!({"f:data": {"f:b": {}}})),
        ]},
        "data": {"a": "1", "b": "2"}
    });
    let (schemas, rules) = (Schemas::builtin(), IgnoreRules::none());
    for (strict, expected) in [(false, vec![]), (true, vec!["data.b"])] {
        let options = Options {
            strict,
            ..Options::default()
        };
        let ctx = Context {
            schemas: &schemas,
            rules: &rules,
            options: &options,
        };
        // An apply leaves what is not its own.
        let comparison = argosy_diff::compare_dry_run(&live, &live, false, &ctx).unwrap();
        let found: Vec<&str> = comparison
            .differences
            .iter()
            .map(|one| one.path.as_str())
            .collect();
        assert_eq!(found, expected);
        assert_eq!(comparison.modified, strict);
    }
}

/// What is applied of a custom resource without schema whose items' `image` belongs to somebody else, and what is said about it.
fn kept_images(desired: Value, live: Value) -> (Value, Vec<String>) {
    let (rules, findings) = IgnoreRules::new([IgnoreRule {
        group: "example.com".into(),
        kind: "Fleet".into(),
        jq_path_expressions: vec![".spec.ships[].image".into()],
        ..IgnoreRule::default()
    }]);
    assert_eq!(findings, []);
    let make = |ships: Value| json!({"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"name": "f"}, "spec": {"ships": ships}});
    let (kept, findings) = ignore::keep_live(&make(desired), &make(live), &rules, &Schemas::builtin());
    let findings = findings.iter().map(ToString::to_string).collect();
    (kept["spec"]["ships"].clone(), findings)
}

#[test]
fn items_without_a_schema_are_known_by_what_tells_them_apart() {
    let nothing: Vec<String> = Vec::new();
    // By a field that names them, though a new one stands before it.
    let kept = kept_images(
        json!([{"id": 2, "image": "new"}, {"id": 1, "image": "git", "size": "l"}]),
        json!([{"id": 1, "image": "live", "size": "s"}]),
    );
    assert_eq!(
        kept,
        (
            json!([{"id": 2, "image": "new"}, {"id": 1, "image": "live", "size": "l"}]),
            nothing.clone()
        )
    );
    // By all that is not ignored, though the live one has the ignored field alone.
    let kept = kept_images(
        json!([{"port": 2}, {"port": 1}]),
        json!([{"port": 1, "image": "live"}]),
    );
    assert_eq!(
        kept,
        (
            json!([{"port": 2}, {"port": 1, "image": "live"}]),
            nothing.clone()
        )
    );
    // By position, if nothing else helps and the lists are equally long.
    let kept = kept_images(
        json!([{"port": 1, "image": "git"}, {"port": 2, "image": "git"}]),
        json!([{"port": 8, "image": "a"}, {"port": 9, "image": "b"}]),
    );
    assert_eq!(
        kept,
        (
            json!([{"port": 1, "image": "a"}, {"port": 2, "image": "b"}]),
            nothing
        )
    );
}

#[test]
fn a_rule_that_cannot_be_applied_item_by_item_freezes_nothing_and_is_told() {
    let desired = json!([{"port": 1, "image": "git"}, {"port": 2, "image": "git"}]);
    let (kept, findings) = kept_images(desired.clone(), json!([{"port": 9, "image": "live"}]));
    assert_eq!(kept, desired);
    assert_eq!(findings.len(), 1);
    assert!(findings[0].starts_with(".spec.ships: "), "{findings:?}");
}
