//! Shards as processes: who owns a cluster when its owner is killed, frozen, told to end, and when others come and go.
//!
//! The target clusters are several addresses of one API server; what counts is who owns them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use argosy_test_cluster::api::{Api, Kind, kinds};
use argosy_test_cluster::installation::Installation;
use argosy_test_cluster::{ADMIN_TOKEN, free_port};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{self, PATIENCE, config_map, run, wait_app};

const LEASE: Kind = Kind {
    api_version: "coordination.k8s.io/v1",
    plural: "leases",
};
const NAMESPACE: &str = "argocd-shards";
const CLUSTERS: usize = 4;

#[test]
fn clusters_always_find_an_owner_and_never_two() {
    run(async {
        let mut installation = harness::start_installation(NAMESPACE).await?;
        installation.kill_controller();
        let api = installation.api().clone();
        let repository = harness::repository("shards")?;
        repository.write("app/one.yaml", &config_map("one", "1"))?;
        repository.commit("one")?;
        for number in 0..CLUSTERS {
            let server = address_of_the_api_server().await?;
            api.create(
                kinds::NAMESPACE,
                &json!({
                    "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("shards-{number}")},
                }),
            )
            .await?;
            api.create(kinds::SECRET, &cluster_secret(number, &server))
                .await?;
            let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
            let mut app = harness::application(NAMESPACE, &format!("app-{number}"), source);
            app["spec"]["destination"] = json!({"server": server, "namespace": format!("shards-{number}")});
            app["spec"]["syncPolicy"]["syncOptions"] = json!([]);
            api.create(kinds::APPLICATION, &app).await?;
        }

        let mut shards = Shards::default();
        for name in ["a", "b", "c"] {
            shards.start(&installation, name)?;
        }
        shards.settled(&api, "three shards start").await?;
        all_synced(&api, &repository.head()?).await?;
        assert_eq!(shards.owners(&api).await?.len(), 3, "each has something to do");

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
        for number in 0..CLUSTERS {
            let path = format!("/api/v1/applications/app-{number}/resource-tree");
            let tree = get(&installation.server_address(), &path).await?;
            assert!(tree.contains(r#""name":"one""#), "{path}: {tree}");
        }

        // kill -9
        let before = records(&api).await?;
        shards.kill("a");
        shards.settled(&api, "one is killed").await?;
        let after = records(&api).await?;
        for (cluster, (owner, epoch)) in &before {
            let (_, now) = &after[cluster];
            assert!(
                owner != "a" || now > epoch,
                "a change of the owner is a new epoch"
            );
        }
        repository.write("app/one.yaml", &config_map("one", "2"))?;
        let second = repository.commit("two")?;
        all_synced(&api, &second).await?;

        // In the same pod it takes up what it had, or what others gave it, at once.
        shards.start(&installation, "a")?;
        shards.settled(&api, "it is started again").await?;

        // Frozen for longer than its lease: others take over, and what wakes up owns nothing by what it remembers.
        let frozen = records(&api).await?;
        shards.signal("b", "STOP")?;
        shards.settled_without(&api, "b", "one is frozen").await?;
        shards.signal("b", "CONT")?;
        shards.settled(&api, "it wakes up").await?;
        let woken = records(&api).await?;
        for (cluster, (owner, epoch)) in &frozen {
            let (_, now) = &woken[cluster];
            assert!(
                owner != "b" || now > epoch,
                "{cluster} was taken from the frozen one"
            );
        }

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

        for name in ["d", "e", "f"] {
            shards.start(&installation, name)?;
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
        repository.write("app/one.yaml", &config_map("one", "3"))?;
        let third = repository.commit("three")?;
        all_synced(&api, &third).await?;

        // Nobody takes the clusters of a lost shard: their Applications say so, until somebody does.
        drain(&["b"])?;
        shards.settled_without(&api, "b", "one is drained").await?;
        shards.kill("f");
        for number in 0..CLUSTERS {
            wait_app(&api, NAMESPACE, &format!("app-{number}"), "Unknown", |app| {
                let conditions = app["status"]["conditions"].to_string();
                app["status"]["sync"]["status"] == "Unknown"
                    && app["status"]["health"]["status"] == "Unknown"
                    && conditions.contains("No shard looks after cluster")
            })
            .await?;
        }
        drain(&["b", "--undo"])?;
        all_synced(&api, &third).await
    });
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

/// A listener of its own that leads to the API server: another cluster, as far as anybody can tell.
async fn address_of_the_api_server() -> Result<String> {
    let behind = harness::cluster()
        .server()
        .trim_start_matches("https://")
        .to_owned();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let server = format!("https://127.0.0.1:{}", listener.local_addr()?.port());
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let behind = behind.clone();
            tokio::spawn(async move {
                if let Ok(mut to) = TcpStream::connect(behind).await {
                    let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                }
            });
        }
    });
    Ok(server)
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
            "namespaces": format!("shards-{number}"),
        },
    })
}

async fn all_synced(api: &Api, revision: &str) -> Result<()> {
    for number in 0..CLUSTERS {
        wait_app(api, NAMESPACE, &format!("app-{number}"), "Synced", |app| {
            harness::synced_to(app, revision)
        })
        .await?;
    }
    Ok(())
}

/// An answer of the API server, with its head.
async fn get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Owner and epoch of each cluster.
async fn records(api: &Api) -> Result<BTreeMap<String, (String, u64)>> {
    let mut records = BTreeMap::new();
    for lease in api.list(LEASE, NAMESPACE).await? {
        if lease["metadata"]["labels"]["argosy.dev/lease"] != "cluster" {
            continue;
        }
        let state = lease["metadata"]["annotations"]["argosy.dev/state"]
            .as_str()
            .unwrap_or_default();
        let state: Value = serde_json::from_str(state)?;
        let owner = state["owner"]["shard"].as_str().unwrap_or_default().to_owned();
        let cluster = state["cluster"].as_str().unwrap_or_default().to_owned();
        records.insert(cluster, (owner, state["epoch"].as_u64().unwrap_or_default()));
    }
    Ok(records)
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

/// Shards that run, by name. Whatever runs at the end is killed.
#[derive(Default)]
struct Shards(BTreeMap<String, Shard>);

struct Shard {
    process: Child,
    /// Where it tells the API server about live state.
    tree: String,
    /// Where it tells its metrics.
    metrics: String,
}

impl Shards {
    fn start(&mut self, installation: &Installation, name: &str) -> Result<()> {
        let log: PathBuf = harness::scratch(&format!("shard-{name}")).join("log");
        let log = std::fs::File::create(log)?;
        let tree_port = free_port()?;
        let metrics = format!("127.0.0.1:{}", free_port()?);
        let process = Command::new(harness::program())
            .args([
                "controller",
                "--tree-address=127.0.0.1",
                &format!("--tree-port={tree_port}"),
                &format!("--namespace={NAMESPACE}"),
                &format!("--kubeconfig={}", harness::cluster().kubeconfig().display()),
                &format!("--repo-server={}", installation.repo_server_address()),
                &format!("--metrics-address={metrics}"),
                "--app-resync=3s",
                "--app-resync-jitter=0",
            ])
            .env("ARGOSY_SHARDING", "leases")
            .env("POD_UID", name)
            // Leases of 8 s: long enough for a busy machine, short enough for a test.
            .env("ARGOCD_CONTROLLER_HEARTBEAT_TIME", "2")
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .spawn()
            .context("start a shard")?;
        let tree = format!("127.0.0.1:{tree_port}");
        let shard = Shard {
            process,
            tree,
            metrics,
        };
        self.0.insert(name.to_owned(), shard);
        Ok(())
    }

    fn metrics(&self, name: &str) -> &str {
        &self.0[name].metrics
    }

    fn trees(&self) -> Vec<String> {
        self.0.values().map(|shard| shard.tree.clone()).collect()
    }

    fn kill(&mut self, name: &str) {
        if let Some(mut shard) = self.0.remove(name) {
            let _ = shard.process.kill();
            let _ = shard.process.wait();
        }
    }

    fn signal(&self, name: &str, signal: &str) -> Result<()> {
        let pid = self.0[name].process.id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{signal}"), &pid])
            .status()?;
        if !sent.success() {
            bail!("send {signal} to shard {name}");
        }
        Ok(())
    }

    async fn ended(&mut self, name: &str) -> Result<()> {
        let mut child = self.0.remove(name).context("a shard that runs")?.process;
        let started = Instant::now();
        loop {
            match child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("shard {name} ended with {status}"),
                None if started.elapsed() > PATIENCE => {
                    let _ = child.kill();
                    bail!("shard {name} did not end");
                }
                None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn owners(&self, api: &Api) -> Result<Vec<String>> {
        let mut owners: Vec<String> = records(api)
            .await?
            .into_values()
            .map(|(owner, _)| owner)
            .collect();
        owners.sort();
        owners.dedup();
        Ok(owners)
    }

    /// Waits until every cluster is owned by a shard that runs.
    async fn settled(&self, api: &Api, what: &str) -> Result<()> {
        self.settled_without(api, "", what).await
    }

    async fn settled_without(&self, api: &Api, other: &str, what: &str) -> Result<()> {
        let started = Instant::now();
        loop {
            let records = records(api).await?;
            // The targets, the control plane's own cluster, and what has no cluster.
            let complete = records.len() == CLUSTERS + 2;
            let owned = |(owner, _): &(String, u64)| self.0.contains_key(owner) && owner != other;
            if complete && records.values().all(owned) {
                eprintln!("{what}: owned after {:.1} s", started.elapsed().as_secs_f32());
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                bail!("{what}: not every cluster is owned: {records:?}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        for shard in self.0.values_mut() {
            let _ = shard.process.kill();
            let _ = shard.process.wait();
        }
    }
}
