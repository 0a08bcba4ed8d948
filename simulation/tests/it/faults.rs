//! Requests that go wrong as they are told to.

use argosy_simulation::fault::{Fault, Rule};
use argosy_simulation::{Answer, Options};
use serde_json::{Value, json};

use crate::support::Direct;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn rule(verb: &str, fault: Fault, times: u32) -> Rule {
    Rule {
        verb: verb.into(),
        plural: "configmaps".into(),
        path: String::new(),
        percent: 100,
        times: Some(times),
        fault,
    }
}

fn direct() -> Direct {
    let mut direct = Direct::new(Options {
        controllers: false,
        ..Options::default()
    });
    for name in ["a", "b", "c"] {
        assert_eq!(
            direct.call("POST", MAPS, &json!({"metadata": {"name": name}})).0,
            201
        );
    }
    direct
}

#[test]
fn a_rule_hits_as_often_as_it_says_and_only_what_it_names() {
    let mut direct = direct();
    direct
        .server
        .faults()
        .add(rule("list", Fault::Error(429, Some(2)), 1));
    assert_eq!(
        direct
            .call("GET", "/api/v1/namespaces/default/secrets", &Value::Null)
            .0,
        200
    );
    assert_eq!(direct.call("GET", &format!("{MAPS}/a"), &Value::Null).0, 200);
    match direct.answer("GET", MAPS, "", "") {
        Answer::Document(response) => {
            assert_eq!(response.status(), 429);
            assert_eq!(response.headers()["retry-after"], "2");
        }
        _ => panic!("a refusal is a document"),
    }
    assert_eq!(direct.call("GET", MAPS, &Value::Null).0, 200);
}

#[test]
fn a_connection_breaks() {
    let mut direct = direct();
    direct.server.faults().add(rule("create", Fault::Reset, 1));
    assert!(matches!(
        direct.answer(
            "POST",
            MAPS,
            "application/json",
            "{\"metadata\":{\"name\":\"d\"}}"
        ),
        Answer::Broken
    ));
    assert_eq!(direct.call("GET", &format!("{MAPS}/d"), &Value::Null).0, 404);
}

#[test]
fn a_watch_is_cut_in_the_middle_of_a_line() {
    let mut direct = direct();
    direct.server.faults().add(rule(
        "watch",
        Fault::CutWatch {
            events: 2,
            torn: true,
        },
        1,
    ));
    let mut watch = direct.watch(&format!("{MAPS}?watch=true"));
    let lines = direct.server.next_events(&mut watch, direct.now);
    assert_eq!(lines.len(), 2);
    assert!(lines[0].ends_with(b"\n") && !lines[1].ends_with(b"\n"));
    assert!(watch.is_over());
}

#[test]
fn a_watch_goes_silent_and_stays_open() {
    let mut direct = direct();
    direct
        .server
        .faults()
        .add(rule("watch", Fault::SilenceWatch { events: 1 }, 1));
    let mut watch = direct.watch(&format!("{MAPS}?watch=true"));
    assert_eq!(direct.events(&mut watch), ["ADDED a"]);
    direct.call("POST", MAPS, &json!({"metadata": {"name": "d"}}));
    assert!(direct.events(&mut watch).is_empty() && !watch.is_over());
}

#[test]
fn a_watch_leaves_a_change_out_and_goes_on() {
    let mut direct = direct();
    let loss = Fault::LoseChanges { after: 1, count: 2 };
    direct.server.faults().add(rule("watch", loss, 1));
    let mut watch = direct.watch(&format!("{MAPS}?watch=true"));
    direct.events(&mut watch);
    for name in ["d", "e", "f", "g"] {
        direct.call("POST", MAPS, &json!({"metadata": {"name": name}}));
    }
    assert_eq!(direct.events(&mut watch), ["ADDED d", "ADDED g"]);
    let mut other = direct.watch(&format!("{MAPS}?watch=true&resourceVersion=0"));
    assert_eq!(direct.events(&mut other).len(), 7);
}

#[test]
fn a_stale_read_shows_what_was() {
    let mut direct = direct();
    direct.call("DELETE", &format!("{MAPS}/c"), &Value::Null);
    direct
        .server
        .faults()
        .add(rule("list", Fault::Stale { changes: 1 }, 1));
    direct
        .server
        .faults()
        .add(rule("get", Fault::Stale { changes: 1 }, 1));
    let (_, list) = direct.call("GET", MAPS, &Value::Null);
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
    assert_eq!(direct.call("GET", &format!("{MAPS}/c"), &Value::Null).0, 200);
    assert_eq!(direct.call("GET", &format!("{MAPS}/c"), &Value::Null).0, 404);
}

#[test]
fn a_change_behind_the_watch_is_seen_by_reads_alone() {
    let mut direct = direct();
    let mut watch = direct.watch(&format!("{MAPS}?watch=true"));
    direct.events(&mut watch);
    direct
        .server
        .alter_silently("", "configmaps", "default", "b", None);
    assert!(direct.events(&mut watch).is_empty());
    assert_eq!(direct.call("GET", &format!("{MAPS}/b"), &Value::Null).0, 404);
}

#[test]
fn a_change_that_open_watches_do_not_hear_of_is_told_to_later_ones() {
    let mut direct = direct();
    let from = direct.server.resource_version();
    let begin = |direct: &mut Direct| {
        direct.watch(&format!(
            "{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={from}"
        ))
    };
    let mut open = begin(&mut direct);
    assert!(direct.events(&mut open).is_empty());
    let (_, mut map) = direct.call("GET", &format!("{MAPS}/b"), &Value::Null);
    map["data"] = json!({"unheard": "of"});
    direct
        .server
        .alter_unheard("", "configmaps", "default", "b", Some(&map));
    direct
        .server
        .alter_unheard("", "configmaps", "default", "c", None);
    assert!(direct.events(&mut open).is_empty());
    let mut later = begin(&mut direct);
    assert_eq!(direct.events(&mut later), ["MODIFIED b", "DELETED c"]);
    // It believes to be as far as the other.
    direct.pass(61);
    let told = |direct: &mut Direct, watch: &mut argosy_simulation::Watch| {
        direct.lines(watch)[0]["object"]["metadata"]["resourceVersion"].clone()
    };
    assert_eq!(told(&mut direct, &mut open), told(&mut direct, &mut later));
    assert_eq!(
        direct.call("GET", &format!("{MAPS}/b"), &Value::Null).1["data"],
        json!({"unheard": "of"})
    );
}

#[test]
fn a_watch_that_has_stalled_stays_where_it_began_while_reads_go_on() {
    let mut direct = direct();
    let from = direct.server.resource_version();
    direct.server.faults().add(rule("watch", Fault::StallWatch, 1));
    let target =
        format!("{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds=300");
    let mut watch = direct.watch(&target);
    direct.call("DELETE", &format!("{MAPS}/a"), &Value::Null);
    assert!(direct.lines(&mut watch).is_empty());
    for _ in 0..2 {
        direct.pass(61);
        let lines = direct.lines(&mut watch);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["type"], "BOOKMARK");
        assert_eq!(
            lines[0]["object"]["metadata"]["resourceVersion"],
            from.to_string().as_str()
        );
    }
    assert_eq!(direct.call("GET", &format!("{MAPS}/a"), &Value::Null).0, 404);
    direct.pass(200);
    assert!(direct.lines(&mut watch).is_empty() && watch.is_over());
}
