use std::collections::BTreeSet;
use std::time::Instant;

use argosy_kube_io::client::Client;
use argosy_kube_io::list_watch::{self, Event, ListWatch};
use argosy_kube_io::target::{Delete, Propagation, Selection, Write};
use argosy_kube_io::{ApiResource, Budget, Target, api};
use argosy_object::{Value, meta};
use argosy_test_cluster::Cluster;
use futures::StreamExt as _;
use serde_json::json;

use crate::{PATIENCE, config_map, target};

const MANY: usize = 2_000;

fn events(client: &Client, resource: ApiResource, streaming: bool) -> ListWatch {
    let options = list_watch::Options {
        selection: Selection::namespace("default"),
        streaming,
        ..list_watch::Options::default()
    };
    ListWatch::new(client.clone(), resource, options, Budget::new(Budget::LIST))
}

async fn next(events: &mut ListWatch) -> Event {
    tokio::time::timeout(PATIENCE, events.next()).await.unwrap()
}

fn at_once() -> Delete {
    Delete {
        propagation: Propagation::Background,
        ..Delete::default()
    }
}

fn name(bytes: &[u8]) -> String {
    meta::name(&serde_json::from_slice::<Value>(bytes).unwrap()).to_owned()
}

/// Names in the list, and whether it came as the only one.
async fn listed(events: &mut ListWatch) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut starts = 0;
    loop {
        match next(events).await {
            Event::ListStart => starts += 1,
            Event::Listed(bytes) => assert!(names.insert(name(&bytes))),
            Event::ListEnd { resource_version } => {
                assert!(resource_version.parse::<u64>().is_ok());
                assert_eq!(starts, 1);
                return names;
            }
            other => panic!("{other:?} inside a list"),
        }
    }
}

async fn create_many(target: &Target, resource: &ApiResource) {
    let write = Write::default();
    let made = futures::stream::iter(0..MANY)
        .map(|index| {
            let (target, resource, write) = (target.clone(), resource.clone(), write.clone());
            async move {
                let object = config_map(&format!("many-{index:04}"), json!({"payload": "x".repeat(500)}));
                target.create(&resource, &object, &write).await.unwrap();
            }
        })
        .buffer_unordered(32);
    made.collect::<Vec<_>>().await;
}

pub(crate) async fn lists_in_pages_and_streams_are_the_same(client: &Client) {
    let (target, resource) = (target(client), api::config_maps());
    create_many(&target, &resource).await;

    let start = Instant::now();
    let mut streamed = events(client, resource.clone(), true);
    let by_stream = listed(&mut streamed).await;
    let middle = Instant::now();
    let mut paged = events(client, resource.clone(), false);
    let by_page = listed(&mut paged).await;
    eprintln!(
        "{} objects: streamed in {:?}, paged in {:?}",
        by_stream.len(),
        middle - start,
        middle.elapsed()
    );
    assert!(by_stream.len() >= MANY);
    assert_eq!(by_stream, by_page);

    // Both go on with the changes after the list.
    target
        .create(&resource, &config_map("later", json!({})), &Write::default())
        .await
        .unwrap();
    target
        .delete(&resource, "default", "later", &at_once())
        .await
        .unwrap();
    for events in [&mut streamed, &mut paged] {
        let mut seen = Vec::new();
        while seen.len() < 2 {
            match next(events).await {
                Event::Applied(bytes) => seen.push(("applied", name(&bytes))),
                Event::Deleted(bytes) => seen.push(("deleted", name(&bytes))),
                Event::Live | Event::Progress { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(
            seen,
            [("applied", "later".to_owned()), ("deleted", "later".to_owned())]
        );
    }
}

pub(crate) async fn objects_are_counted_between_watches(client: &Client) {
    let options = list_watch::Options {
        selection: Selection::namespace("default"),
        watch_time: 2..3,
        audit_pause: std::time::Duration::ZERO,
        ..list_watch::Options::default()
    };
    let mut events = ListWatch::new(
        client.clone(),
        api::config_maps(),
        options,
        Budget::new(Budget::LIST),
    );
    let names = listed(&mut events).await;
    loop {
        match next(&mut events).await {
            Event::Audit { count, .. } => {
                assert_eq!(count, Some(names.len() as u64));
                break;
            }
            Event::Progress { .. } | Event::Live => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(next(&mut events).await, Event::Live));

    // What changes until the next count is told by the watch, and after the count once more, by another.
    let (target, resource) = (target(client), api::config_maps());
    let object = config_map("again", json!({"payload": "x"}));
    target
        .create(&resource, &object, &Write::default())
        .await
        .unwrap();
    let (mut applied, mut seen) = (false, false);
    loop {
        match next(&mut events).await {
            Event::Applied(bytes) => applied |= name(&bytes) == "again",
            Event::Seen { object, .. } if name(&object) == "again" => {
                let object: Value = serde_json::from_slice(&object).unwrap();
                assert_eq!(object["kind"], "PartialObjectMetadata");
                assert!(object["data"].is_null());
                seen = true;
            }
            Event::Audit { count: None, due, .. } if seen => {
                assert!(applied && due, "the watch is there already");
                break;
            }
            Event::Audit { .. } | Event::Progress { .. } | Event::Live | Event::Seen { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    target
        .delete(&resource, "default", "again", &at_once())
        .await
        .unwrap();
}

#[derive(serde::Deserialize, Debug)]
struct Numbers {
    metadata: Named,
    data: Number,
}
#[derive(serde::Deserialize, Debug)]
struct Named {
    name: String,
}
#[derive(serde::Deserialize, Debug)]
struct Number {
    #[serde(rename = "number")]
    _number: String,
}

pub(crate) async fn one_bad_object_does_not_stop_the_others(client: &Client) {
    let (target, resource, write) = (target(client), api::config_maps(), Write::default());
    for (name, data) in [
        ("typed-good", json!({"number": "1"})),
        ("typed-bad", json!({"word": "x"})),
    ] {
        let mut object = config_map(name, data);
        object["metadata"]["labels"] = json!({"typed": "yes"});
        target.create(&resource, &object, &write).await.unwrap();
    }
    let selection = Selection {
        namespace: "default".to_owned(),
        labels: "typed=yes".to_owned(),
        fields: String::new(),
    };
    let list = api::list::<Numbers>(&target, &resource, &selection)
        .await
        .unwrap();
    assert_eq!((list.items.len(), list.unreadable.len()), (1, 1));
    assert_eq!(list.unreadable[0].place.name, "typed-bad");

    let mut watch = api::TypedWatch::<Numbers>::new(client.clone(), resource.clone(), selection);
    let (mut good, mut bad) = (0, 0);
    loop {
        match watch.next().await {
            api::Change::Applied(object) => {
                assert_eq!(object.metadata.name, "typed-good");
                let _ = object.data;
                good += 1;
            }
            api::Change::Unreadable(object) => {
                assert!(object.message.contains("number"), "{}", object.message);
                bad += 1;
            }
            api::Change::Synced => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((good, bad), (1, 1));
    target
        .delete(&resource, "default", "typed-good", &at_once())
        .await
        .unwrap();
    assert!(matches!(watch.next().await, api::Change::Deleted(place) if place.name == "typed-good"));
}

pub(crate) async fn changes_go_on_after_the_server_was_away(cluster: &mut Cluster, client: &Client) {
    let (target, resource, write) = (target(client), api::config_maps(), Write::default());
    let mut following = events(client, resource.clone(), true);
    listed(&mut following).await;
    assert!(matches!(next(&mut following).await, Event::Live));

    cluster.kill_api_server();
    let mut failures = 0;
    while failures == 0 {
        match next(&mut following).await {
            Event::Failed(error) => {
                assert!(error.status().is_none(), "{error}");
                failures += 1;
            }
            Event::Progress { .. } => {}
            other => panic!("{other:?} while the server is away"),
        }
    }
    cluster.start_api_server().unwrap();
    // The first calls may still hit the old connection.
    while target
        .create(&resource, &config_map("after", json!({})), &write)
        .await
        .is_err_and(|error| !error.already_exists())
    {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    loop {
        match next(&mut following).await {
            Event::Applied(bytes) if name(&bytes) == "after" => break,
            Event::Live | Event::Applied(_) | Event::Progress { .. } => {}
            Event::Failed(error) => eprintln!("still away: {error}"),
            // The new server may not know the old version; then one full list is right.
            Event::ListStart => {
                assert!(listed_without_start(&mut following).await.contains("after"));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn listed_without_start(events: &mut ListWatch) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    loop {
        match next(events).await {
            Event::Listed(bytes) => {
                names.insert(name(&bytes));
            }
            Event::ListEnd { .. } => return names,
            other => panic!("{other:?} inside a list"),
        }
    }
}
