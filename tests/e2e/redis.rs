//! The state that API servers, Argo CD's and ours, read from Redis.

use std::io::Read as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use argosy_test_cluster::api::kinds;
use argosy_test_cluster::redis::{PASSWORD, Redis};
use serde_json::{Value, json};

use crate::harness::{self, IN_CLUSTER, PATIENCE, config_map, run, synced_to, wait_app};

/// A redis-server, and what is asked of it.
struct Server(Redis);

impl Server {
    /// The value of a key of Argo CD's, once it is there and meets `condition`.
    fn wait(&self, key: &str, condition: impl Fn(&Value) -> bool) -> Result<Value> {
        let started = Instant::now();
        let mut last = None;
        while started.elapsed() < PATIENCE {
            if let Some(value) = self.get(key)? {
                if condition(&value) {
                    return Ok(value);
                }
                last = Some(value);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("{key} is {last:?}")
    }

    fn get(&self, key: &str) -> Result<Option<Value>> {
        let value: Option<Vec<u8>> = redis::cmd("GET").arg(key).query(&mut self.connection()?)?;
        let Some(value) = value else { return Ok(None) };
        let mut json = Vec::new();
        flate2::read::GzDecoder::new(&*value)
            .read_to_end(&mut json)
            .context("unpack the value")?;
        Ok(Some(serde_json::from_slice(&json)?))
    }

    fn connection(&self) -> Result<redis::Connection> {
        Ok(redis::Client::open(self.0.url())?.get_connection()?)
    }
}

#[test]
fn api_servers_find_trees_managed_resources_and_clusters_in_redis() {
    run(async {
        let redis = Server(Redis::start(&harness::scratch("redis"))?);
        let mut installation = harness::start_installation("argocd-redis").await?;
        installation.kill_controller();
        let address = format!("--redis={}", redis.0.address());
        let password = format!("--redis-password={PASSWORD}");
        installation.start_controller(&[&address, &password])?;
        let (api, namespace) = (installation.api(), installation.namespace());

        let name = "in-redis";
        let repository = harness::repository(name)?;
        repository.write("app/settings.yaml", &config_map("settings", "1"))?;
        let revision = repository.commit("one")?;
        let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
        let mut updates = redis.connection()?;
        let mut channel = updates.as_pubsub();
        channel.subscribe(format!("app|managed-resources|{name}|1.8.3"))?;
        api.create(kinds::APPLICATION, &harness::application(namespace, name, source))
            .await?;
        wait_app(api, namespace, name, "Synced", |app| synced_to(app, &revision)).await?;

        let tree = redis.wait(&format!("app|resources-tree|{name}|1.8.3.gz"), |tree| {
            tree["nodes"][0]["name"] == "settings"
        })?;
        assert_eq!(
            (&tree["nodes"][0]["kind"], &tree["nodes"][0]["namespace"]),
            (&json!("ConfigMap"), &json!(name))
        );
        let key = format!("app|managed-resources|{name}|1.8.3.gz");
        let managed = redis.wait(&key, |managed| managed[0]["liveState"] != "null")?;
        let live: Value = serde_json::from_str(managed[0]["liveState"].as_str().unwrap_or_default())?;
        assert_eq!(live["data"]["key"], "1");
        assert_eq!(
            channel.get_message()?.get_payload::<String>()?,
            "",
            "listeners are told"
        );
        let cluster = redis.wait(&format!("cluster|info|{IN_CLUSTER}|1.8.3.gz"), |_| true)?;
        assert_eq!(cluster["connectionState"]["status"], "Successful");

        // Drift is seen there as well, and an Application that goes takes its entries along.
        repository.write("app/settings.yaml", &config_map("settings", "2"))?;
        let revision = repository.commit("two")?;
        wait_app(api, namespace, name, "Synced", |app| synced_to(app, &revision)).await?;
        redis.wait(&key, |managed| {
            managed[0]["liveState"]
                .as_str()
                .is_some_and(|live| live.contains("\"key\":\"2\""))
        })?;

        // Our own API server reads there what the controller wrote, now that it is gone.
        installation.kill_controller();
        installation.start_server(&["--insecure", "--disable-auth", &address, &password])?;
        let server = installation.server_address();
        let command = ["app", "resources", name, "--server", &server, "--plaintext"];
        let output = Command::new(harness::program()).args(command).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("ConfigMap") && said.contains("settings"),
            "{said}{error}"
        );
        installation.start_controller(&[&address, &password])?;

        let (api, namespace) = (installation.api(), installation.namespace());
        api.delete(kinds::APPLICATION, namespace, name).await?;
        let started = Instant::now();
        while redis.get(&key)?.is_some() {
            assert!(started.elapsed() < PATIENCE, "the entry stays");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    });
}
