//! Fleets: many clusters, made when looked at.

use argosy_simulation::Fleet;
use jiff::Timestamp;
use serde_json::Value;

use crate::support::{Direct, Remote};

fn direct(fleet: &Fleet) -> Direct {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    Direct {
        server: fleet.server(0, now),
        now,
    }
}

#[test]
fn a_cluster_has_the_mix_that_was_asked_for() {
    let fleet = Fleet {
        objects: 580,
        ..Fleet::default()
    };
    let mut direct = direct(&fleet);
    for (path, count) in [
        ("/apis/apps/v1/deployments", 40),
        ("/apis/apps/v1/replicasets", 120),
        ("/api/v1/pods", 160),
        ("/api/v1/configmaps", 80),
        ("/apis/autoscaling/v2/horizontalpodautoscalers", 8),
        ("/apis/simulation.example.com/v1/widgets", 4),
    ] {
        let (code, list) = direct.call("GET", path, &Value::Null);
        assert_eq!(
            (code, list["items"].as_array().unwrap().len()),
            (200, count),
            "{path}"
        );
    }
}

#[test]
fn generated_objects_are_objects_that_the_server_itself_would_keep() {
    // Written back as they came, they change nothing: no field is unknown, none is missing.
    let fleet = Fleet {
        objects: 290,
        ..Fleet::default()
    };
    let mut direct = direct(&fleet);
    for path in [
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/replicasets",
        "/apis/apps/v1/statefulsets",
        "/api/v1/pods",
        "/api/v1/services",
        "/api/v1/configmaps",
        "/api/v1/secrets",
        "/apis/networking.k8s.io/v1/ingresses",
        "/apis/autoscaling/v2/horizontalpodautoscalers",
        "/apis/discovery.k8s.io/v1/endpointslices",
        "/apis/simulation.example.com/v1/widgets",
    ] {
        let (_, list) = direct.call("GET", path, &Value::Null);
        let items = list["items"].as_array().unwrap();
        let item = items
            .iter()
            .rfind(|item| item["metadata"]["namespace"] != "default")
            .unwrap();
        let plural = path.rsplit('/').next().unwrap();
        let root = path.strip_suffix(&format!("/{plural}")).unwrap();
        let (namespace, name) = (&item["metadata"]["namespace"], &item["metadata"]["name"]);
        let target = format!(
            "{root}/namespaces/{}/{plural}/{}",
            namespace.as_str().unwrap(),
            name.as_str().unwrap()
        );
        let (code, after) = direct.call("PUT", &target, item);
        assert_eq!(code, 200, "{target}: {after}");
        for field in ["spec", "data", "status"] {
            assert_eq!(after.get(field), item.get(field), "{target}");
        }
        assert_eq!(
            after["metadata"]["resourceVersion"], item["metadata"]["resourceVersion"],
            "{target}"
        );
    }
}

#[test]
fn churn_changes_pods_and_watches_tell_it() {
    let fleet = Fleet {
        objects: 290,
        ..Fleet::default()
    };
    let mut direct = direct(&fleet);
    let from = direct.server.resource_version();
    let mut watch = direct.watch(&format!("/api/v1/pods?watch=true&resourceVersion={from}"));
    assert_eq!(direct.server.churn(25, direct.now), 25);
    let events = direct.events(&mut watch);
    assert_eq!(events.len(), 25);
    assert!(events.iter().all(|event| event.starts_with("MODIFIED app-0-")));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_cluster_of_a_fleet_answers_for_itself() {
    let fleet = Fleet {
        clusters: 5,
        objects: 290,
        extra_kinds: 3,
        ..Fleet::default()
    };
    let clusters = fleet.start().await.unwrap();
    let mut seen = Vec::new();
    for cluster in &clusters {
        let remote = Remote::connect(cluster.kubeconfig().unwrap()).await;
        let list = remote
            .call("GET", "/apis/apps/v1/deployments?limit=1", "", "")
            .await;
        seen.push(
            list.body["items"][0]["metadata"]["uid"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
        let things = remote
            .call("GET", "/apis/simulation.example.com/v1/things2", "", "")
            .await;
        assert_eq!(things.code, 200);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 5, "clusters do not share their objects");
}
