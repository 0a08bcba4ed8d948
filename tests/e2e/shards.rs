//! Shards as processes: who owns a cluster when its owner is killed, frozen, cut off, told to end, and when others come and go.
//!
//! Each shard has a network of its own to the control plane. The target clusters are simulated: `ARGOSY_SHARDS_CLUSTERS` says how many
//! (4 if unset), `ARGOSY_SHARDS_FROZEN` for how many seconds a shard is frozen at least.

mod processes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use argosy_simulation::ADMIN_TOKEN;
use argosy_simulation::serve::Transport;
use argosy_test_cluster::api::{Api, Kind, kinds};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{self, PATIENCE, config_map, run, wait_app};

use processes::{Shards, records};

const LEASE: Kind = Kind {
    api_version: "coordination.k8s.io/v1",
    plural: "leases",
};
const NAMESPACE: &str = "argocd-shards";
/// One on each of the first clusters.
const APPLICATIONS: usize = 4;

#[test]
fn clusters_always_find_an_owner_and_never_two() {
    run(async {
        let mut installation = harness::start_installation(NAMESPACE).await?;
        installation.kill_controller();
        installation.start_another_repo_server()?;
        let api = installation.api().clone();
        let repository = harness::repository("shards")?;
        repository.write("app/one.yaml", &config_map("one", "1"))?;
        repository.commit("one")?;
        let mut targets = Vec::new();
        let clusters = number("ARGOSY_SHARDS_CLUSTERS").map_or(APPLICATIONS, |clusters| clusters as usize);
        for number in 0..clusters {
            let target =
                argosy_simulation::Cluster::start(argosy_simulation::Options::default(), Transport::Tls)
                    .await?;
            api.create(kinds::SECRET, &cluster_secret(number, &target.url()))
                .await?;
            if number < APPLICATIONS {
                let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
                let mut app = harness::application(NAMESPACE, &format!("app-{number}"), source);
                app["spec"]["destination"] = json!({"server": target.url(), "namespace": "sample"});
                api.create(kinds::APPLICATION, &app).await?;
            }
            targets.push(target);
        }

        let mut shards = Shards::of(targets.len());
        for name in ["a", "b", "c"] {
            shards.start(&installation, name).await?;
        }
        shards.settled(&api, "three shards start").await?;
        all_synced(&api, &repository.head()?).await?;
        until("each has something to do", async || {
            Ok(shards.owners(&api).await?.len() == 3)
        })
        .await?;

        let metrics = get(shards.metrics("a"), "/metrics").await?;
        for name in watched_metrics()? {
            let told =
                |line: &str| line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} "));
            assert!(
                metrics.lines().any(told),
                "rules or dashboard name {name}, which no shard tells"
            );
        }
        let live = get(shards.metrics("a"), "/livez?verbose").await?;
        assert!(live.ends_with("[+]live ok\n"), "{live}");

        // The API server finds the owner of each cluster among them.
        let controllers = format!("--controller={}", shards.trees().join(","));
        installation.start_server(&["--disable-auth", "--insecure", &controllers])?;
        for number in 0..APPLICATIONS {
            let path = format!("/api/v1/applications/app-{number}/resource-tree");
            until(&path, async || {
                let tree = get(&installation.server_address(), &path).await?;
                Ok(tree.contains(r#""name":"one""#))
            })
            .await?;
        }

        // kill -9
        let before = records(&api).await?;
        shards.kill("a");
        shards.settled(&api, "one is killed").await?;
        taken_from("a", &before, &records(&api).await?);
        repository.write("app/one.yaml", &config_map("one", "2"))?;
        let second = repository.commit("two")?;
        all_synced(&api, &second).await?;

        // In the same pod it takes up what it had, or what others gave it, at once.
        shards.start(&installation, "a").await?;
        shards.settled(&api, "it is started again").await?;

        // Frozen for longer than its lease: others take over, and what wakes up owns nothing by what it remembers.
        let frozen = records(&api).await?;
        let started = Instant::now();
        shards.signal("b", "STOP")?;
        shards.settled_without(&api, "b", "one is frozen").await?;
        let at_least = Duration::from_secs(number("ARGOSY_SHARDS_FROZEN").unwrap_or_default());
        tokio::time::sleep(at_least.saturating_sub(started.elapsed())).await;
        shards.signal("b", "CONT")?;
        shards.settled(&api, "it wakes up").await?;
        taken_from("b", &frozen, &records(&api).await?);

        // Cut off from the control plane, though not from the targets: it stops by its own clock, and what it had on the way
        // when the network comes back changes nothing.
        let before = records(&api).await?;
        shards.cut_off("a", true);
        shards.settled_without(&api, "a", "one is cut off").await?;
        until("it tells that it holds nothing", async || {
            let metrics = get(shards.metrics("a"), "/metrics").await?;
            Ok(metrics.contains("\nargosy_shard_lease_held 0\n"))
        })
        .await?;
        repository.write("app/one.yaml", &config_map("one", "3"))?;
        let third = repository.commit("three")?;
        all_synced(&api, &third).await?;
        shards.cut_off("a", false);
        joined(&api, "a").await?;
        shards.settled(&api, "the network is back").await?;
        taken_from("a", &before, &records(&api).await?);

        // Told to end: everything is handed over before the process is gone.
        let started = Instant::now();
        shards.signal("c", "TERM")?;
        shards.ended("c").await?;
        eprintln!("told to end: gone after {:.1} s", started.elapsed().as_secs_f32());
        assert!(
            records(&api).await?.values().all(|(owner, _)| owner != "c"),
            "nothing is left to a shard that has ended in order"
        );
        shards.settled(&api, "one has ended").await?;

        // One of two repo-servers is killed: what it was asked for is asked of the other.
        installation.kill_repo_server();
        for name in ["d", "e", "f"] {
            shards.start(&installation, name).await?;
        }
        for name in ["d", "e", "f"] {
            joined(&api, name).await?;
        }
        shards.settled(&api, "from two to five").await?;
        for name in ["a", "d", "e"] {
            shards.signal(name, "TERM")?;
        }
        for name in ["a", "d", "e"] {
            shards.ended(name).await?;
        }
        shards.settled(&api, "from five to two").await?;
        repository.write("app/one.yaml", &config_map("one", "4"))?;
        let fourth = repository.commit("four")?;
        all_synced(&api, &fourth).await?;

        // Nobody takes the clusters of a lost shard: their Applications say so, until somebody does.
        drain(&["b"])?;
        shards.settled_without(&api, "b", "one is drained").await?;
        shards.kill("f");
        for number in 0..APPLICATIONS {
            wait_app(&api, NAMESPACE, &format!("app-{number}"), "Unknown", |app| {
                let conditions = app["status"]["conditions"].to_string();
                app["status"]["sync"]["status"] == "Unknown"
                    && app["status"]["health"]["status"] == "Unknown"
                    && conditions.contains("No shard looks after cluster")
            })
            .await?;
        }
        drain(&["b", "--undo"])?;
        all_synced(&api, &fourth).await
    });
}

/// Waits until that is so.
async fn until(what: &str, holds: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !holds().await? {
        if started.elapsed() > PATIENCE {
            bail!("in vain: {what}");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Whatever `owner` had is now owned under a higher epoch, be it by itself.
fn taken_from(
    owner: &str,
    before: &BTreeMap<String, (String, u64)>,
    after: &BTreeMap<String, (String, u64)>,
) {
    for (cluster, (_, epoch)) in before.iter().filter(|(_, (had, _))| had == owner) {
        let (_, now) = &after[cluster];
        assert!(now > epoch, "{cluster} was taken from {owner}");
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The metrics that the alert rules and the dashboard of `deploy/monitoring` look at.
fn watched_metrics() -> Result<BTreeSet<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/monitoring");
    let mut names = BTreeSet::new();
    for file in ["rules.yaml", "dashboard.json"] {
        let text = std::fs::read_to_string(folder.join(file))?;
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let is_metric = |word: &&str| {
            ["argosy_", "argocd_", "process_", "workqueue_"]
                .iter()
                .any(|prefix| word.starts_with(prefix))
        };
        names.extend(words.filter(is_metric).map(str::to_owned));
    }
    assert!(names.contains("argosy_cluster_unowned_seconds"), "{names:?}");
    Ok(names)
}

/// `argosy shards drain`, as people say it.
fn drain(args: &[&str]) -> Result<()> {
    let done = Command::new(harness::program())
        .args(["shards", "drain"])
        .args(args)
        .arg(format!("--namespace={NAMESPACE}"))
        .env("KUBECONFIG", harness::cluster().kubeconfig())
        .status()?;
    if !done.success() {
        bail!("argosy shards drain {args:?}: {done}");
    }
    Ok(())
}

fn cluster_secret(number: usize, server: &str) -> Value {
    let config = json!({"bearerToken": ADMIN_TOKEN, "tlsClientConfig": {"insecure": true}});
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": format!("cluster-{number}"), "namespace": NAMESPACE,
            "labels": {"argocd.argoproj.io/secret-type": "cluster"},
        },
        "stringData": {
            "name": format!("cluster-{number}"), "server": server, "config": config.to_string(),
        },
    })
}

async fn all_synced(api: &Api, revision: &str) -> Result<()> {
    for number in 0..APPLICATIONS {
        wait_app(api, NAMESPACE, &format!("app-{number}"), "Synced", |app| {
            harness::synced_to(app, revision)
        })
        .await?;
    }
    Ok(())
}

/// An answer of the API server, with its head.
pub(crate) async fn get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Waits until the shard holds a lease.
async fn joined(api: &Api, name: &str) -> Result<()> {
    let started = Instant::now();
    loop {
        for lease in api.list(LEASE, NAMESPACE).await? {
            let is_shard = lease["metadata"]["labels"]["argosy.dev/lease"] == "shard";
            let state = lease["metadata"]["annotations"]["argosy.dev/state"]
                .as_str()
                .unwrap_or("{}");
            let state: Value = serde_json::from_str(state)?;
            if is_shard && state["holder"]["shard"] == name && state["over"] == false {
                return Ok(());
            }
        }
        if started.elapsed() > PATIENCE {
            bail!("shard {name} takes no lease");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
