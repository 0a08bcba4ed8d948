//! Whatever is kept comes back exactly, whatever else is kept at the time.
#![allow(clippy::unwrap_used)]

use argosy_object::{ContentHash, Document, Value};
use proptest::prelude::*;
use serde_json::{Map, json};

/// Strings of the sorts that are written down in their own way, and their near misses.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{0,4}",
        "\\PC{0,40}",
        "(web|shop)-(a|b)-[0-9a-f]{9}-[a-z]{5}",
        "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "[12][09][0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]Z",
        "-?[0-9]{1,21}",
        "[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}",
        "(containerd://|image@sha256:)?[0-9a-f]{31,66}",
        "[A-Za-z0-9+/]{24,60}={0,2}",
        "(line [a-c]\n){20,60}",
        Just("{\"a\": 1}  {\"b\":2}, {\"c\": [1, 2]} and so on".to_owned()),
        json_text(),
    ]
}

/// JSON as clients record it, with Go's escapes and without, and JSON that cannot be written the same way again.
fn json_text() -> impl Strategy<Value = String> {
    (
        "[a-z<>&]{0,8}",
        any::<i64>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(text, number, line, escape, space)| {
            let mut out =
                json!({"metadata": {"name": text, "labels": {"app": "x"}}, "spec": {"replicas": number}})
                    .to_string();
            if escape {
                out = out
                    .replace('<', "\\u003c")
                    .replace('>', "\\u003e")
                    .replace('&', "\\u0026");
            }
            if space {
                out = out.replace(':', ": ");
            }
            if line {
                out.push('\n');
            }
            out
        })
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-100..200i64).prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON knows only finite numbers", |number| number.is_finite())
            .prop_map(Value::from),
        text().prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let key = prop_oneof!["[a-z]{1,3}", "f:[a-c]", "k:\\{\"ip\":\"[0-9]\"\\}", "\\PC{0,6}"];
    leaf().prop_recursive(5, 120, 12, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..12).prop_map(Value::Array),
            prop::collection::btree_map(key.clone(), inner, 0..30)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn object(body: &Value, name: &str, uid: &str, time: &str, version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Thing",
        "metadata": {
            "name": name, "namespace": "space", "uid": uid, "creationTimestamp": time, "resourceVersion": version,
            "labels": {"app": name.rsplit_once('-').map_or(name, |(stem, _)| stem)},
        },
        "note": format!("space/{name} and {uid} since {time}"), "started": time, "body": body,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_value_comes_back(value in value()) {
        let document = Document::from_value(&value);
        prop_assert_eq!(&document.value(), &value);
        let text = serde_json::to_vec(&value).unwrap();
        let again = Document::from_json(&text).unwrap();
        prop_assert_eq!(String::from_utf8(again.to_json()).unwrap(), String::from_utf8(text).unwrap());
        prop_assert_eq!(again.hash(), ContentHash::of_value(&value));
        prop_assert!(document == again);
    }

    #[test]
    fn objects_that_are_nearly_the_same_come_back(
        body in value(),
        changes in prop::collection::vec((text(), text(), text(), leaf()), 12..20),
    ) {
        let mut kept = Vec::new();
        for (name, time, version, leaf) in changes {
            let mut object = object(&body, &name, "8a2b0000-0000-4000-a000-000000000000", &time, &version);
            object["changing"] = leaf;
            kept.push((Document::from_value(&object), object));
        }
        for (document, object) in &kept {
            prop_assert_eq!(&document.value(), object);
            prop_assert_eq!(document.name(), object["metadata"]["name"].as_str().unwrap());
            for path in [&["metadata", "labels"][..], &["body"], &["changing"], &["metadata", "uid"], &["note"]] {
                let wanted = path.iter().try_fold(object, |at, name| at.get(name));
                prop_assert_eq!(document.value_at(path), wanted.cloned());
            }
            prop_assert_eq!(document.value_at(&["body", "no such field"]), None);
        }
    }

    #[test]
    fn text_that_is_no_json_is_refused(text in "\\PC{0,60}") {
        let known: Result<Value, _> = serde_json::from_str(&text);
        prop_assert_eq!(Document::from_json(text.as_bytes()).ok().map(|kept| kept.value()), known.ok());
    }
}

#[test]
fn of_a_key_that_comes_twice_the_last_counts() {
    let text = br#"{"b":1,"a":{"y":1,"x":2,"y":3},"b":[2]}"#;
    let value: Value = serde_json::from_slice(text).unwrap();
    assert_eq!(Document::from_json(text).unwrap().value(), value);
}

#[test]
fn a_document_that_is_too_deep_is_refused_and_not_overflowed() {
    let text = "[".repeat(100_000);
    assert!(Document::from_json(text.as_bytes()).is_err());
}

#[test]
fn threads_that_keep_and_drop_the_same_things_do_not_disturb_each_other() {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for round in 0..500 {
                    let name = format!("thread-{}-{}", thread % 2, round % 7);
                    let list: Vec<Value> = (0..round % 13)
                        .map(|n| json!({"name": name, "n": n, "x": null}))
                        .collect();
                    let object = object(
                        &json!({ "list": list }),
                        &name,
                        "u",
                        "2026-01-01T00:00:00Z",
                        "12345",
                    );
                    let kept: Vec<_> = (0..8).map(|_| Document::from_value(&object)).collect();
                    assert!(kept.iter().all(|document| document.value() == object));
                }
            });
        }
    });
}

#[test]
fn a_document_of_very_many_texts_comes_back() {
    let text = |number: usize| format!("a text of its own, {number:x}: {:x}", number * 7_919 * 104_729);
    let once: Vec<String> = (0..20_000).map(text).collect();
    let twice: Vec<String> = (0..20_000).rev().map(text).collect();
    let value = json!({"metadata": {"name": "many"}, "once": once, "twice": twice});
    let document = Document::from_value(&value);
    assert_eq!(document.value(), value);
    assert_eq!(document.str_at(&["metadata", "name"]).as_deref(), Some("many"));
    assert_eq!(document.value_at(&["twice"]).as_ref(), value.get("twice"));
}
