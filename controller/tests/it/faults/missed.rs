//! Changes that a watch was not told, and how each is found.
//!
//! | fault | test |
//! |---|---|
//! | a creation or deletion never reaches the watch | [`a_change_behind_the_watch_is_found_by_counting`] |
//! | an update reaches other watches and not ours | [`an_update_that_one_watch_was_not_told_is_found_by_another`] |
//! | a watch does not get on, and says so | [`a_watch_that_stalls_is_found_by_the_version_of_a_count`] |
//! | a watch is behind in versions and not in objects | [`a_watch_that_has_nothing_to_say_is_no_alarm`] |
//! | the same of the control plane's own kinds | [`the_control_planes_own_kinds_are_counted_too`] |
//! | an update never reaches any watch | [`an_update_behind_the_watch_is_found_by_its_version`] |
//! | the same of an Application or another object of the control plane | [`what_a_watch_of_the_control_plane_was_not_told_is_found`] |
//! | one object goes and another comes, and no watch is told | [`an_exchange_behind_the_watch_is_found_by_a_stranger`] |

use std::collections::BTreeMap;
use std::time::Duration;

use argosy_kube_io::api::{Change, TypedWatch};
use argosy_kube_io::client::Options;
use argosy_kube_io::target::{Patch, Selection, Write};
use argosy_kube_io::{ClusterAuth, Target, api, connect, list_watch};
use argosy_object::{ResourceKey, Value, meta};
use argosy_simulation::fault::Fault;
use argosy_simulation::serve::Transport;
use serde_json::json;

use super::{
    PATIENCE, Simulated, World, brisk, change_map, config_map, create, create_map, delete_map, kubeconfig,
    rule, server, until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_behind_the_watch_is_found_by_counting() {
    let pace = list_watch::Options {
        watch_time: 3..4,
        audit_pause: Duration::ZERO,
        ..brisk()
    };
    let world = World::new(pace, async |_, target| {
        create_map(target, "stays").await;
        create_map(target, "goes").await;
    })
    .await;
    world.synced().await;
    until("both to be seen", || {
        world.has_map("stays") && world.has_map("goes")
    })
    .await;
    world
        .simulated
        .with(|server| server.alter_silently("", "configmaps", "default", "goes", None));
    until("the loss to be found", || !world.has_map("goes")).await;
    assert!(world.has_map("stays"));
    assert_eq!(world.cluster.audit_mismatches(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_behind_the_watch_is_found_by_its_version() {
    let pace = list_watch::Options {
        watch_time: 3..4,
        audit_pause: Duration::ZERO,
        versions_pause: Duration::ZERO,
        // The one that has changed is not on the first page.
        page_len: 2,
        ..brisk()
    };
    let world = World::new(pace, async |_, target| {
        for name in ["a", "b", "c", "d", "e"] {
            create_map(target, name).await;
        }
    })
    .await;
    world.synced().await;
    until("all to be seen", || {
        ["a", "b", "c", "d", "e"].iter().all(|name| world.has_map(name))
    })
    .await;
    let key = ResourceKey::new("", "ConfigMap", "default", "d");
    let mut map = world.cluster.snapshot().get(&key).unwrap().value();
    map["data"] = json!({"lost": "and found"});
    world
        .simulated
        .with(|server| server.alter_silently("", "configmaps", "default", "d", Some(&map)));
    let found = || {
        let known = world.cluster.snapshot().get(&key).unwrap();
        known.document.str_at(&["data", "lost"]).as_deref() == Some("and found")
    };
    until("the change to be found", found).await;
    assert_eq!(world.cluster.audit_mismatches(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_control_planes_own_kinds_are_counted_too() {
    let pace = list_watch::Options {
        watch_time: 3..4,
        audit_pause: Duration::ZERO,
        ..brisk()
    };
    let simulated = Simulated::serve(server(), Transport::Tls).await.unwrap();
    let file = kubeconfig(&simulated);
    let auth = ClusterAuth::kubeconfig(Some(file.path()), None).await.unwrap();
    let client = connect(auth, Options::default()).await.unwrap();
    let target = Target::new(client.clone());
    create_map(&target, "stays").await;
    create_map(&target, "goes").await;
    let mut watch = TypedWatch::<Value>::paced(client, api::config_maps(), pace);
    let mut hidden = false;
    loop {
        match tokio::time::timeout(PATIENCE, watch.next()).await.unwrap() {
            Change::Synced if !hidden => {
                hidden = true;
                simulated.with(|server| server.alter_silently("", "configmaps", "default", "goes", None));
            }
            Change::Deleted(place) => {
                assert_eq!(place.name, "goes");
                break;
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_behind_the_watch_is_found_by_a_stranger() {
    let pace = list_watch::Options {
        watch_time: 3..4,
        audit_pause: Duration::ZERO,
        versions_pause: Duration::ZERO,
        ..brisk()
    };
    let world = World::new(pace, async |_, target| create_map(target, "goes").await).await;
    world.synced().await;
    until("it to be seen", || world.has_map("goes")).await;
    let mut comes = config_map("comes", "first");
    comes["metadata"]["uid"] = json!("comes");
    world.simulated.with(|server| {
        server.alter_silently("", "configmaps", "default", "goes", None);
        server.alter_silently("", "configmaps", "default", "comes", Some(&comes));
    });
    until("the exchange to be found", || world.has_map("comes")).await;
    assert!(!world.has_map("goes"));
    assert_eq!(world.cluster.audit_mismatches(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_that_one_watch_was_not_told_is_found_by_another() {
    let pace = list_watch::Options {
        watch_time: 3..4,
        audit_pause: Duration::ZERO,
        ..brisk()
    };
    let world = World::new(pace, async |_, target| {
        create_map(target, "stays").await;
        create_map(target, "changes").await;
    })
    .await;
    world.synced().await;
    let key = ResourceKey::new("", "ConfigMap", "default", "changes");
    let known = || world.cluster.snapshot().get(&key);
    until("it to be seen", || known().is_some()).await;
    let lists = world.lists("configmaps");
    // A watch that ends right after the change, before its next bookmark, is resumed from before the change and tells it.
    for round in 0.. {
        let mut map = known().unwrap().value();
        map["data"] = json!({"round": round.to_string()});
        world
            .simulated
            .with(|server| server.alter_unheard("", "configmaps", "default", "changes", Some(&map)));
        until("the change to be found", || {
            known().unwrap().document.str_at(&["data", "round"]) == Some(round.to_string())
        })
        .await;
        if world.cluster.audit_mismatches() > 0 {
            break;
        }
    }
    assert_eq!(world.cluster.audit_mismatches(), 1);
    assert!(world.lists("configmaps") > lists);
    assert!(world.has_map("stays"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_stalls_is_found_by_the_version_of_a_count() {
    let world = World::new(stalling(), async |_, target| {
        create_map(target, "changed").await;
        create_map(target, "deleted").await;
    })
    .await;
    world.synced().await;
    let watches = world.watches("configmaps");
    world.fault(rule("watch", "configmaps", Fault::StallWatch));
    until("a watch that stalls", || world.watches("configmaps") > watches).await;
    change_map(&world.target, "changed").await;
    delete_map(&world.target, "deleted").await;
    create_map(&world.target, "created").await;
    let truth = world.true_maps().await;
    until("what was missed to be found", || world.maps() == truth).await;
    assert!(world.cluster.audit_mismatches() > 0);
    // And again, as long as it lasts.
    change_map(&world.target, "created").await;
    let truth = world.true_maps().await;
    until("what was missed since to be found", || world.maps() == truth).await;

    world.mend();
    create_map(&world.target, "told").await;
    until("the watch to go on", || world.has_map("told")).await;
    assert!(world.cluster.kind_failures().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_has_nothing_to_say_is_no_alarm() {
    let world = World::new(stalling(), async |_, target| create_map(target, "a").await).await;
    world.synced().await;
    world.fault(rule("watch", "configmaps", Fault::StallWatch));
    let counts = world.lists("configmaps");
    let secret = |number: u64| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": format!("s{number}")}});
    for number in 0.. {
        // Versions go on, with objects of another kind.
        create(&world.target, &api::secrets(), &secret(number)).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        if world.lists("configmaps") >= counts + 6 {
            break;
        }
    }
    assert_eq!(world.cluster.audit_mismatches(), 0);
    assert!(world.has_map("a"));
}

/// Objects of the control plane are kept by [`TypedWatch`]; here ConfigMaps, once all, once by a label, where servers do not say how
/// many there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_watch_of_the_control_plane_was_not_told_is_found() {
    let world = World::new(brisk(), async |_, target| {
        for name in ["changed", "deleted", "stays"] {
            create_map(target, name).await;
        }
    })
    .await;
    world.synced().await;
    // What the server itself makes stands aside.
    let labelled = |name| json!({"metadata": {"labels": {"of": "test"}, "name": name}});
    for name in ["changed", "deleted", "stays"] {
        let (labels, maps) = (labelled(name), api::config_maps());
        let patch = Patch::Merge(&labels);
        world
            .target
            .patch(&maps, "default", name, patch, &Write::default())
            .await
            .unwrap();
    }
    for labels in ["", "of=test"] {
        let options = list_watch::Options {
            selection: Selection {
                labels: labels.to_owned(),
                ..Selection::namespace("default")
            },
            watch_time: 3..4,
            audit_pause: Duration::ZERO,
            ..brisk()
        };
        let loss = Fault::LoseChanges { after: 0, count: 3 };
        world.fault(rule("watch", "configmaps", loss));
        let client = world.target.client().clone();
        let mut watch = TypedWatch::<Value>::paced(client, api::config_maps(), options);
        let mut known = BTreeMap::new();
        while !matches!(told(&mut watch, &mut known).await, Change::Synced) {}
        assert!(known.contains_key("deleted"));

        let (change, maps) = (json!({"data": {"round": labels}}), api::config_maps());
        let patch = Patch::Merge(&change);
        world
            .target
            .patch(&maps, "default", "changed", patch, &Write::default())
            .await
            .unwrap();
        delete_map(&world.target, "deleted").await;
        let mut created = config_map("created", "first");
        created["metadata"]["labels"] = json!({"of": "test"});
        create(&world.target, &api::config_maps(), &created).await;
        world.mend();
        let selected = |name: &String| labels.is_empty() || name != "kube-root-ca.crt";
        let mut truth = world.true_maps().await;
        truth.retain(|name, _| selected(name));
        while known != truth {
            told(&mut watch, &mut known).await;
        }

        // As it was, for the next round.
        delete_map(&world.target, "created").await;
        let mut deleted = config_map("deleted", "first");
        deleted["metadata"]["labels"] = json!({"of": "test"});
        create(&world.target, &api::config_maps(), &deleted).await;
    }
}

/// The next that a watch tells, and what is known then.
async fn told(watch: &mut TypedWatch<Value>, known: &mut BTreeMap<String, String>) -> Change<Value> {
    let change = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap();
    match &change {
        Change::Applied(map) => {
            let version = meta::resource_version(map).to_owned();
            known.insert(meta::name(map).to_owned(), version);
        }
        Change::Deleted(place) => drop(known.remove(&place.name)),
        _ => {}
    }
    change
}

/// Watches that are counted after often, and soon believed to stall.
fn stalling() -> list_watch::Options {
    list_watch::Options {
        watch_time: 3..4,
        audit_pause: Duration::ZERO,
        stale_max: Duration::from_secs(2),
        ..brisk()
    }
}
