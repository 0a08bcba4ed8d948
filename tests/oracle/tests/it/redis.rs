//! What lies in Redis, against Argo CD's own cache: what it writes we read, what we write it reads, and nothing is lost.

use std::time::Duration;

use argosy_object::Value;
use argosy_oracle::Oracle;
use argosy_redis::entries::{Entries, Flags};
use argosy_test_cluster::redis::{PASSWORD, Redis};
use clap::Parser;
use serde_json::json;

use crate::seed;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    flags: Flags,
}

/// What is absent is not null, and an empty list is a list: names of differences that docs/compatibility.md settles.
fn plain(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            for value in fields.values_mut() {
                *value = plain(value.take());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = plain(item.take())),
        _ => {}
    }
    value
}

/// By what Argo CD sorts managed resources when it writes them.
fn sorted(managed: &Value) -> Vec<Value> {
    let mut items: Vec<Value> = managed.as_array().cloned().unwrap_or_default();
    items.sort_by_key(|item| ["group", "kind", "namespace", "name"].map(|key| item[key].to_string()));
    items
}

#[tokio::test]
async fn argo_cds_cache_and_ours_read_each_other() {
    let Some(mut oracle) = Oracle::argo_cd().unwrap() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path()).unwrap();
    for compress in ["gzip", "none"] {
        let args = [
            "test".to_owned(),
            format!("--redis={}", redis.address()),
            format!("--redis-password={PASSWORD}"),
            format!("--redis-compress={compress}"),
        ];
        let entries = Entries::new(&Command::parse_from(args).flags).unwrap().unwrap();
        for (number, share) in [0.0, 1.0, 0.75, 0.5].into_iter().enumerate() {
            let (instance, server) = (format!("team_shop-{number}"), format!("https://one/{number}"));
            let at = json!({"address": redis.address(), "password": PASSWORD, "compress": compress, "instance": instance,
                "server": server});
            let mut request = at.clone();
            (request["write"], request["share"]) = (true.into(), share.into());
            request["seed"] = (seed() + number as u64).into();
            let written = plain(oracle.ask("redis", request).unwrap().unwrap());

            let tree = entries.tree(&instance).await.unwrap().unwrap();
            let managed = entries.managed_resources(&instance).await.unwrap().unwrap();
            let infos = entries.clusters(std::slice::from_ref(&server)).await.unwrap();
            let info = &infos[&server];
            assert_eq!(plain(json!(tree)), written["tree"]);
            assert_eq!(sorted(&plain(json!(managed))), sorted(&written["managed"]));
            assert_eq!(plain(json!(info)), written["info"]);

            // And back: Argo CD reads what we write of the same.
            let bytes = |value: Value| serde_json::to_vec(&value).unwrap();
            entries.remove_application(&instance).await.unwrap();
            let lasts = Duration::from_secs(60);
            let (tree, managed) = (bytes(json!(tree)), bytes(json!(managed)));
            entries
                .write_application(&instance, &tree, &managed, lasts)
                .await
                .unwrap();
            entries.write_cluster(&server, &bytes(json!(info))).await.unwrap();
            let read = plain(oracle.ask("redis", at).unwrap().unwrap());
            assert_eq!(read["tree"], written["tree"]);
            assert_eq!(sorted(&read["managed"]), sorted(&written["managed"]));
            assert_eq!(read["info"], written["info"]);
        }
    }
}
