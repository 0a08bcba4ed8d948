//! Watches: where they begin, what they say, when they are told that it is too late.

use argosy_simulation::Options;
use serde_json::{Value, json};

use crate::support::Direct;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn quiet() -> Direct {
    Direct::new(Options {
        controllers: false,
        history_max: 8,
        ..Options::default()
    })
}

fn put(direct: &mut Direct, name: &str, label: &str) {
    let body = json!({"metadata": {"name": name, "labels": {"l": label}}});
    if direct.call("POST", MAPS, &body).0 == 409 {
        assert_eq!(direct.call("PATCH", &format!("{MAPS}/{name}"), &body).0, 200);
    }
}

fn version(direct: &mut Direct) -> String {
    let (_, list) = direct.call("GET", MAPS, &Value::Null);
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[test]
fn a_watch_from_a_version_tells_what_came_after_it() {
    let mut direct = quiet();
    put(&mut direct, "a", "1");
    let from = version(&mut direct);
    put(&mut direct, "b", "1");
    put(&mut direct, "a", "2");
    let mut watch = direct.watch(&format!("{MAPS}?watch=true&resourceVersion={from}"));
    assert_eq!(direct.events(&mut watch), ["ADDED b", "MODIFIED a"]);
    direct.call("DELETE", &format!("{MAPS}/b"), &Value::Null);
    assert_eq!(direct.events(&mut watch), ["DELETED b"]);
    assert_eq!(direct.events(&mut watch), Vec::<String>::new());
}

#[test]
fn a_watch_without_a_version_begins_with_what_there_is() {
    let mut direct = quiet();
    put(&mut direct, "a", "1");
    for query in ["watch=true", "watch=true&resourceVersion=0"] {
        let mut watch = direct.watch(&format!("{MAPS}?{query}"));
        assert_eq!(direct.events(&mut watch), ["ADDED a"], "{query}");
    }
}

#[test]
fn a_streamed_list_ends_with_a_marked_bookmark() {
    let mut direct = quiet();
    put(&mut direct, "a", "1");
    let query =
        "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut watch = direct.watch(&format!("{MAPS}?{query}"));
    put(&mut direct, "b", "1");
    let lines = direct.lines(&mut watch);
    let words: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(words, ["ADDED", "BOOKMARK", "ADDED"]);
    assert_eq!(
        lines[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    assert_eq!(lines[1]["object"]["kind"], "ConfigMap");
}

#[test]
fn an_object_comes_into_sight_and_goes_out_of_it() {
    let mut direct = quiet();
    let from = version(&mut direct);
    let mut watch = direct.watch(&format!(
        "{MAPS}?watch=true&labelSelector=l%3Dyes&resourceVersion={from}"
    ));
    put(&mut direct, "a", "no");
    put(&mut direct, "a", "yes");
    put(&mut direct, "a", "no");
    put(&mut direct, "a", "yes");
    direct.call("DELETE", &format!("{MAPS}/a"), &Value::Null);
    assert_eq!(
        direct.events(&mut watch),
        ["ADDED a", "DELETED a", "ADDED a", "DELETED a"]
    );
}

#[test]
fn a_version_that_is_forgotten_is_gone() {
    let mut direct = quiet();
    put(&mut direct, "a", "0");
    let from = version(&mut direct);
    let page = direct.call("GET", &format!("{MAPS}?limit=1"), &Value::Null).1;
    for count in 0..20 {
        put(&mut direct, "a", &count.to_string());
    }
    let mut watch = direct.watch(&format!("{MAPS}?watch=true&resourceVersion={from}"));
    let lines = direct.lines(&mut watch);
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (&lines[0]["type"], &lines[0]["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert!(watch.is_over());
    assert_eq!(page["metadata"].get("continue"), None, "one page held all");
}

#[test]
fn pages_show_one_state_however_the_objects_change() {
    let mut direct = quiet();
    for name in ["a", "b", "c", "d"] {
        put(&mut direct, name, "old");
    }
    let (_, first) = direct.call("GET", &format!("{MAPS}?limit=2"), &Value::Null);
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    put(&mut direct, "c", "new");
    direct.call("DELETE", &format!("{MAPS}/d"), &Value::Null);
    put(&mut direct, "e", "new");
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let (_, second) = direct.call("GET", &format!("{MAPS}?limit=2&continue={token}"), &Value::Null);
    let seen: Vec<(&str, &str)> = second["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            (
                item["metadata"]["name"].as_str().unwrap(),
                item["metadata"]["labels"]["l"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(seen, [("c", "old"), ("d", "old")]);
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    direct.server.compact();
    put(&mut direct, "a", "new");
    let (code, refusal) = direct.call("GET", &format!("{MAPS}?limit=2&continue={token}"), &Value::Null);
    assert_eq!((code, refusal["reason"].as_str().unwrap()), (410, "Expired"));
}

#[test]
fn bookmarks_come_by_the_clock_and_say_how_far_the_server_is() {
    let mut direct = quiet();
    let from = version(&mut direct);
    let mut watch = direct.watch(&format!(
        "{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds=100"
    ));
    direct.call(
        "POST",
        "/api/v1/namespaces/default/secrets",
        &json!({"metadata": {"name": "s"}}),
    );
    assert!(direct.lines(&mut watch).is_empty());
    direct.pass(61);
    let lines = direct.lines(&mut watch);
    assert_eq!(lines[0]["type"], "BOOKMARK");
    let now = direct.server.resource_version().to_string();
    assert_eq!(lines[0]["object"]["metadata"]["resourceVersion"], now.as_str());
    // The last one comes soon before the end.
    direct.pass(36);
    assert!(direct.lines(&mut watch).is_empty());
    direct.pass(1);
    assert_eq!(direct.events(&mut watch), ["BOOKMARK"]);
    direct.pass(3);
    assert!(direct.lines(&mut watch).is_empty());
    assert!(watch.is_over(), "the time that the client gave is over");
}

#[test]
fn a_watch_of_a_kind_that_is_not_served_any_more_ends() {
    let mut direct = Direct::new(Options::default());
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(direct.call("POST", definitions, &definition).0, 201);
    direct.settle();
    assert_eq!(
        direct
            .call(
                "POST",
                "/apis/example.com/v1/things",
                &json!({"metadata": {"name": "t"}})
            )
            .0,
        201
    );
    let mut watch = direct.watch("/apis/example.com/v1/things?watch=true");
    assert_eq!(direct.events(&mut watch), ["ADDED t"]);
    direct.call(
        "DELETE",
        &format!("{definitions}/things.example.com"),
        &Value::Null,
    );
    direct.settle();
    direct.events(&mut watch);
    assert!(watch.is_over());
    assert_eq!(
        direct.call("GET", "/apis/example.com/v1/things", &Value::Null).0,
        404
    );
}
