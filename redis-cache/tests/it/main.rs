//! Entries in a real Redis: what we write, what Argo CD writes, and what nobody should have written.
#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::time::Duration;

use argosy_redis::entries::{Entries, Flags};
use argosy_redis::redis::{self, Commands as _};
use argosy_test_cluster::redis::{PASSWORD, Redis};
use clap::Parser;
use futures::StreamExt as _;

/// What Argo CD's controller writes of an Application with a Deployment: Go's JSON, with fields that it always writes.
const TREE: &str = r#"{"nodes":[{"group":"apps","version":"v1","kind":"Deployment","namespace":"shop","name":"web","uid":"u1","info":[{"name":"Revision","value":"Rev:1"}],"networkingInfo":{"labels":{"app":"web"}},"resourceVersion":"7","images":["web:1"],"health":{"status":"Healthy"},"createdAt":"2026-11-30T10:00:00Z"},{"version":"v1","kind":"ConfigMap","namespace":"shop","name":"settings"}],"hosts":[{"name":"node-1","systemInfo":{"machineID":"","systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"linux","architecture":"amd64"}}]}"#;
/// And of what it manages. A modified resource has texts of JSON in JSON.
const MANAGED: &str = r#"[{"group":"apps","kind":"Deployment","namespace":"shop","name":"web","targetState":"{\"kind\":\"Deployment\"}","liveState":"null","normalizedLiveState":"null","predictedLiveState":"{\"kind\":\"Deployment\"}","resourceVersion":"7","modified":true}]"#;
const CLUSTER: &str = r#"{"connectionState":{"status":"Successful","message":"","attemptedAt":"2026-11-30T10:00:00Z"},"serverVersion":"1.34","cacheInfo":{"resourcesCount":12,"apisCount":3,"lastCacheSyncTime":"2026-11-30T10:00:00Z"},"applicationsCount":0,"apiVersions":["v1","apps/v1"]}"#;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    flags: Flags,
}

struct World {
    redis: Redis,
    _dir: tempfile::TempDir,
}

impl World {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let redis = Redis::start(dir.path()).unwrap();
        World { redis, _dir: dir }
    }

    fn entries(&self, more: &[&str]) -> Entries {
        let address = format!("--redis={}", self.redis.address());
        let password = format!("--redis-password={PASSWORD}");
        let args = ["test", &address, &password];
        let flags = Command::try_parse_from([&args, more].concat()).unwrap().flags;
        Entries::new(&flags).unwrap().unwrap()
    }

    fn set(&self, key: &str, value: &[u8]) {
        let () = self.connection().set(key, value).unwrap();
    }

    fn connection(&self) -> redis::Connection {
        redis::Client::open(self.redis.url())
            .unwrap()
            .get_connection()
            .unwrap()
    }
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn what_argo_cds_controller_writes_is_read() {
    let world = World::start();
    world.set("app|resources-tree|shop|1.8.3.gz", &gzip(TREE));
    world.set("app|managed-resources|shop|1.8.3.gz", &gzip(MANAGED));
    world.set("app|managed-resources|empty|1.8.3.gz", &gzip("null"));
    world.set("cluster|info|https://one|1.8.3.gz", &gzip(CLUSTER));
    let entries = world.entries(&[]);

    let tree = entries.tree("shop").await.unwrap().unwrap();
    assert_eq!(serde_json::to_value(&tree).unwrap()["nodes"], {
        let written: serde_json::Value = serde_json::from_str(TREE).unwrap();
        written["nodes"].clone()
    });
    assert_eq!(tree.hosts[0].system_info.operating_system, "linux");
    let managed = entries.managed_resources("shop").await.unwrap().unwrap();
    assert!(managed[0].modified && managed[0].live_state == "null");
    assert_eq!(managed[0].target_state, r#"{"kind":"Deployment"}"#);
    assert_eq!(entries.managed_resources("empty").await.unwrap(), Some(vec![]));

    let servers = ["https://one".to_owned(), "https://two".to_owned()];
    let clusters = entries.clusters(&servers).await.unwrap();
    assert_eq!(clusters.len(), 1);
    let one = &clusters["https://one"];
    assert_eq!(
        (one.server_version.as_str(), one.cache_info.resources_count),
        ("1.34", 12)
    );
}

#[tokio::test]
async fn a_tree_in_pieces_is_put_together_and_one_with_a_gap_is_unknown() {
    let world = World::start();
    let piece = |name: &str, count: u8| {
        let count = if count > 0 {
            format!(",\"shardsCount\":{count}")
        } else {
            String::new()
        };
        gzip(&format!(
            r#"{{"nodes":[{{"version":"v1","kind":"Pod","namespace":"a","name":"{name}"}}]{count}}}"#
        ))
    };
    world.set("app|resources-tree|shop|1.8.3.gz", &piece("one", 3));
    world.set("app|resources-tree|shop|1|1.8.3.gz", &piece("two", 0));
    let entries = world.entries(&[]);
    assert_eq!(entries.tree("shop").await.unwrap(), None);
    world.set("app|resources-tree|shop|2|1.8.3.gz", &piece("three", 0));
    let tree = entries.tree("shop").await.unwrap().unwrap();
    let names: Vec<_> = tree
        .nodes
        .iter()
        .map(|node| node.resource_ref.name.as_str())
        .collect();
    assert_eq!(names, ["one", "two", "three"]);
}

#[tokio::test]
async fn what_we_write_stands_where_argo_cd_looks_for_it_and_listeners_are_told() {
    let world = World::start();
    for (more, prefix, end) in [
        (&[][..], "", ".gz"),
        (
            &["--redis-compress=none", "--redis-key-prefix=blue"][..],
            "blue|",
            "",
        ),
    ] {
        let entries = world.entries(more);
        assert_eq!(entries.tree("team_shop").await.unwrap(), None);
        let mut changes = entries.changes("team_shop").await.unwrap();
        entries
            .write_application(
                "team_shop",
                TREE.as_bytes(),
                MANAGED.as_bytes(),
                Duration::from_secs(60),
            )
            .await
            .unwrap();
        entries
            .write_cluster("https://one", CLUSTER.as_bytes())
            .await
            .unwrap();
        changes.next().await.unwrap();
        assert_eq!(entries.tree("team_shop").await.unwrap().unwrap().nodes.len(), 2);

        let mut keys: Vec<String> = world.connection().keys(format!("{prefix}*{end}")).unwrap();
        keys.sort();
        let expected = [
            format!("{prefix}app|managed-resources|team_shop|1.8.3{end}"),
            format!("{prefix}app|resources-tree|team_shop|1.8.3{end}"),
            format!("{prefix}cluster|info|https://one|1.8.3{end}"),
        ];
        assert_eq!(keys, expected);
        let lasts: i64 = world.connection().ttl(&keys[0]).unwrap();
        assert!((1..=60).contains(&lasts), "{lasts}");
        let hour = Duration::from_secs(3600);
        assert!(entries.keep_application("team_shop", hour).await.unwrap());
        let lasts: i64 = world.connection().ttl(&keys[0]).unwrap();
        assert!((61..=3600).contains(&lasts), "{lasts}");
        let () = world.connection().del(&keys[1]).unwrap();
        assert!(!entries.keep_application("team_shop", hour).await.unwrap());

        entries.remove_application("team_shop").await.unwrap();
        changes.next().await.unwrap();
        assert_eq!(entries.managed_resources("team_shop").await.unwrap(), None);
    }
}

#[tokio::test]
async fn what_argo_cd_does_not_write_is_an_error_that_names_the_entry() {
    let world = World::start();
    let entries = world.entries(&[]);
    let endless = gzip(&format!(r#"{{"shardsCount":{}}}"#, i64::MAX));
    for (value, why) in [
        (b"{}".to_vec(), "not gzip"),
        (gzip(TREE)[..40].to_vec(), "not gzip"),
        (gzip("[]x"), "not the JSON"),
        (gzip("\"text\""), "not the JSON"),
        (endless, "pieces"),
    ] {
        world.set("app|resources-tree|shop|1.8.3.gz", &value);
        let error = entries.tree("shop").await.unwrap_err().to_string();
        assert!(
            error.contains(why) && error.contains("app|resources-tree|shop|1.8.3.gz"),
            "{error}"
        );
    }
    // A bad entry of one cluster does not hide the others.
    world.set("cluster|info|https://one|1.8.3.gz", &gzip(CLUSTER));
    world.set("cluster|info|https://two|1.8.3.gz", b"nonsense");
    let servers = ["https://one".to_owned(), "https://two".to_owned()];
    assert_eq!(entries.clusters(&servers).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_refusal_of_redis_tells_what_was_asked_of_whom() {
    let world = World::start();
    let address = world.redis.address();
    let arg = format!("--redis={address}");
    let flags = Command::parse_from(["test", &arg, "--redis-password=wrong"]).flags;
    let entries = Entries::new(&flags).unwrap().unwrap();
    let error = entries.tree("shop").await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!("read app|resources-tree|shop|1.8.3.gz in Redis at {address} (--redis)")
    );
}
