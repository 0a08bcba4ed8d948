//! Our API server over Argo CD's controller: live state comes from the Redis that it writes.

use std::path::Path;
use std::time::Instant;

use argosy_redis::redis::{self, Commands as _};
use argosy_test_cluster::api::kinds;
use argosy_test_cluster::redis::{PASSWORD, Redis};
use serde_json::{Value, json};

use crate::world::{PATIENCE, World, run, start};

fn set(redis: &Redis, name: &str, value: &Value) {
    let mut connection = redis::Client::open(redis.url())
        .unwrap()
        .get_connection()
        .unwrap();
    let () = connection
        .set(format!("{name}|1.8.3"), value.to_string())
        .unwrap();
    let () = connection.publish(format!("{name}|1.8.3"), "").unwrap();
}

fn tree(name: &str) -> Value {
    json!({"nodes": [{"version": "v1", "kind": "ConfigMap", "namespace": "default", "name": name, "uid": "u1"}]})
}

async fn begin(namespace: &str) -> (Redis, World) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("server-it-{namespace}"));
    let redis = Redis::start(&dir).unwrap();
    let address = format!("--redis={}", redis.address());
    let password = format!("--redis-password={PASSWORD}");
    let args = ["--insecure", &address, &password, "--redis-compress=none"];
    let world = start(namespace, &args).await;
    (redis, world)
}

#[test]
fn trees_managed_resources_and_clusters_are_those_that_argo_cds_controller_wrote() {
    run(async {
        let (redis, world) = begin("redis-read").await;
        let admin = world.admin().await;
        set(&redis, "app|resources-tree|web", &tree("settings"));
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"key": "aHVzaA=="}});
        let item = json!({"kind": "Secret", "namespace": "default", "name": "s", "liveState": secret.to_string(),
            "targetState": "null", "normalizedLiveState": secret.to_string(), "predictedLiveState": "null"});
        set(&redis, "app|managed-resources|web", &json!([item]));
        let info = json!({"connectionState": {"status": "Successful", "message": "", "attemptedAt": null},
            "serverVersion": "1.36", "cacheInfo": {"resourcesCount": 7}, "applicationsCount": 1});
        set(&redis, "cluster|info|https://far.example.com:6443", &info);

        let get = async |path: &str| {
            let (status, text) = world.http("GET", &format!("/api/v1/{path}"), &admin, None).await;
            assert_eq!(status, 200, "{path}: {text}");
            serde_json::from_str::<Value>(&text).unwrap()
        };
        assert_eq!(get("applications/web/resource-tree").await, tree("settings"));
        let managed = get("applications/web/managed-resources").await;
        assert_eq!(managed["items"][0]["name"], "s");
        assert!(!managed.to_string().contains("aHVzaA=="), "{managed}");
        let cluster = get("clusters/far?id.type=name").await;
        assert_eq!(cluster["connectionState"]["status"], "Successful");
        assert_eq!(cluster["info"]["cacheInfo"]["resourcesCount"], 7);

        // A watch begins with the tree and goes on with each that is written.
        let mut watch = world
            .watch("/api/v1/stream/applications/web/resource-tree", &admin)
            .await;
        assert_eq!(watch.next().await["result"], tree("settings"));
        set(&redis, "app|resources-tree|web", &tree("changed"));
        set(&redis, "app|managed-resources|web", &json!([]));
        let started = Instant::now();
        while watch.next().await["result"] != tree("changed") {
            assert!(started.elapsed() < PATIENCE);
        }
    });
}

#[test]
fn where_nothing_is_written_the_controller_is_asked_to_look_unless_that_is_hopeless() {
    run(async {
        let (redis, world) = begin("redis-missing").await;
        let admin = world.admin().await;
        // A controller: it looks, takes the annotation away and writes soon after.
        let (api, namespace) = (world.api.clone(), "redis-missing");
        let controller = async {
            let started = Instant::now();
            loop {
                let app = api
                    .get(kinds::APPLICATION, namespace, "web")
                    .await
                    .unwrap()
                    .unwrap();
                if app["metadata"]["annotations"]["argocd.argoproj.io/refresh"] == "normal" {
                    break;
                }
                assert!(started.elapsed() < PATIENCE, "nobody asks the controller to look");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            let patch = json!({"metadata": {"annotations": {"argocd.argoproj.io/refresh": null}}});
            let patched = api.merge_patch(kinds::APPLICATION, namespace, "web", &patch);
            patched.await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            set(&redis, "app|resources-tree|web", &tree("written"));
        };
        let path = "/api/v1/applications/web/resource-tree";
        let ((), (status, text)) = tokio::join!(controller, world.http("GET", path, &admin, None));
        assert_eq!(status, 200, "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), tree("written"));

        // An Application that cannot be compared has no tree however often one looks.
        let conditions = json!([{"type": "ComparisonError", "message": "no such chart"}]);
        let patch = json!({"status": {"conditions": conditions}});
        world
            .api
            .merge_patch(kinds::APPLICATION, namespace, "api", &patch)
            .await
            .unwrap();
        let started = Instant::now();
        let seen = async || {
            world
                .http("GET", "/api/v1/applications/api", &admin, None)
                .await
                .1
        };
        while !seen().await.contains("no such chart") {
            assert!(started.elapsed() < PATIENCE, "the condition is not seen");
        }
        let path = "/api/v1/applications/api/resource-tree";
        let (status, text) = world.http("GET", path, &admin, None).await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (status, &answer["message"]),
            (500, &json!("ComparisonError: no such chart"))
        );

        // Nonsense is told with the entry that holds it.
        set(&redis, "app|resources-tree|web", &json!("nonsense"));
        let (status, text) = world
            .http("GET", "/api/v1/applications/web/resource-tree", &admin, None)
            .await;
        assert_eq!(status, 400, "{text}");
        assert!(text.contains("app|resources-tree|web|1.8.3"), "{text}");
    });
}
