//! Row `idle`: clusters in which nothing happens. What following them costs in an hour: bytes, lists (counts of one object each,
//! and pages of metadata), CPU seconds. And then changes that are not told: to no watch, an object that goes and one that changes;
//! and one that changes and is told to all watches but those that are open.
//!
//! Time is made to pass faster: everything that comes round by itself (bookmarks, ends of watches, counts, looks at versions,
//! discovery) comes round so many times as often, and the run is so much shorter. Pings of connections come at their own pace, and
//! silence is borne as long as ever: who takes a loaded machine for a silent server would measure his own doubts.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use argosy_api::settings::RespectRbac;
use argosy_api::v1alpha1::ApplicationDestination;
use argosy_controller::DirtySink;
use argosy_controller::clusters::{Cluster, Clusters, Pace, Rules, Setup};
use argosy_kube_io::{ClusterAuth, auth, client, connect, list_watch};
use argosy_object::{GroupKind, ResourceKey, Value};
use argosy_runtime::tasks::Tasks;
use argosy_simulation::{ADMIN_TOKEN, ApiServer, Fleet};
use base64::Engine as _;
use serde_json::json;

use crate::population::app_of;
use crate::rows::Context;
use crate::servers::{Servers, request};
use crate::usage;

/// The control plane's namespace.
const NAMESPACE: &str = "argocd";
/// What is not known after this time will not be: the first lists, and at the least pace what the rarest look finds.
const DEADLINE: Duration = Duration::from_secs(1800);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many clusters.
    #[arg(long, default_value_t = 20)]
    clusters: u32,
    /// Objects of each.
    #[arg(long, default_value_t = 20_000)]
    objects: u32,
    /// How many times faster time passes.
    #[arg(long, default_value_t = 20)]
    faster: u32,
    /// Minutes to watch, of the time that passes faster. The metadata of all objects is read once in six hours: less shows less.
    #[arg(long, default_value_t = 360)]
    minutes: u32,
}

struct Nobody;

impl DirtySink for Nobody {
    fn untracked(&self, _: &str, _: &str) {}
    fn touched(&self, _: &str, _: &str, _: &ResourceKey) {}
    fn cluster_changed(&self, _: &str) {}
}

pub(crate) async fn run(args: &Args, Context { report, .. }: &Context) -> Result<()> {
    ensure!((1..=60).contains(&args.faster), "--faster: bookmarks come at least a second apart, so 60 is the most");
    report.progress(&format!("{} simulated clusters of {} objects", args.clusters, args.objects));
    let servers = Servers::start(&Fleet {
        clusters: args.clusters,
        objects: args.objects,
        bookmark_seconds: 60 / args.faster,
        ..Fleet::default()
    })?;
    let dir = tempfile::Builder::new().prefix("argosy-perf-").tempdir()?;
    servers.write_kubeconfigs(dir.path())?;
    let tasks = Tasks::new();
    let clusters = follow(&servers, dir.path(), args.faster, &tasks).await?;
    let objects: usize = clusters.iter().map(Cluster::resource_count).sum();
    let listed = servers.sent();
    let known = usage::read(std::process::id())?;
    report.progress(&format!(
        "{objects} objects are known, {:.0} MB of lists, {:.0} MB resident with the servers",
        listed as f64 / 1e6,
        known.rss_mb
    ));

    let hours = f64::from(args.minutes) / 60.0;
    let seconds = f64::from(args.minutes) * 60.0 / f64::from(args.faster);
    // What is left over from the start is no idling, and the first look at metadata is after the tenth of its pause at the earliest.
    let pause = list_watch::Options::default().versions_pause / args.faster;
    tokio::time::sleep(Duration::from_secs(5) + pause / 10).await;
    let (sent, lists, cpu) = (servers.sent(), servers.lists(), servers.cpu_seconds_beside()?);
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    let cpu = servers.cpu_seconds_beside()? - cpu;
    let read = (servers.sent() - sent) as f64 / hours;
    report.figure("idle", "bytes_read", read, "B an hour");
    report.figure("idle", "share_of_relists", 100.0 * read / (6.0 * listed as f64), "%");
    report.figure("idle", "lists", (servers.lists() - lists) as f64 / hours, "an hour, of one object or of metadata");
    report.figure("idle", "cpu_seconds", cpu / hours, "s an hour");
    let mismatches: usize = clusters.iter().map(Cluster::audit_mismatches).sum();
    report.figure("idle", "false_alarms", mismatches as f64, "");

    let faster = f64::from(args.faster);
    let found = remove_silently(&servers, &clusters[0]).await?.as_secs_f64() * faster;
    report.figure("idle", "hidden_deletion_found_seconds", found, "s");
    let hidden = |server: &mut ApiServer, name: &ResourceKey, object: &Value| {
        server.alter_unheard("", "configmaps", &name.namespace, &name.name, Some(object));
    };
    let found = change(&servers, &clusters[0], hidden).await?.as_secs_f64() * faster;
    report.figure("idle", "update_lost_on_a_watch_found_seconds", found, "s");
    let hidden = |server: &mut ApiServer, name: &ResourceKey, object: &Value| {
        server.alter_silently("", "configmaps", &name.namespace, &name.name, Some(object));
    };
    let found = change(&servers, &clusters[0], hidden).await?.as_secs_f64() * faster;
    report.figure("idle", "hidden_update_found_seconds", found, "s");
    Ok(())
}

/// Follows all clusters, registered as people do it, until everything is known.
async fn follow(servers: &Servers, dir: &Path, faster: u32, tasks: &Tasks) -> Result<Vec<Cluster>> {
    let control_plane = &servers.clusters[0];
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    request(control_plane, "POST", "/api/v1/namespaces", &namespace)?;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    for (number, cluster) in servers.clusters.iter().enumerate().skip(1) {
        let config = json!({"bearerToken": ADMIN_TOKEN, "tlsClientConfig": {"caData": encode(cluster.ca_pem()?)}});
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": format!("cluster-{number}"), "labels": {"argocd.argoproj.io/secret-type": "cluster"}},
            "data": {"name": encode(&format!("cluster-{number}")), "server": encode(&cluster.url()),
                     "config": encode(&config.to_string())},
        });
        request(control_plane, "POST", &format!("/api/v1/namespaces/{NAMESPACE}/secrets"), &secret)?;
    }
    let auth = ClusterAuth::kubeconfig(Some(&dir.join("cluster-0")), None).await?;
    let times = list_watch::Options::default();
    let kinds = list_watch::Options {
        watch_time: times.watch_time.start / u64::from(faster)..times.watch_time.end / u64::from(faster),
        audit_pause: times.audit_pause / faster,
        stale_max: times.stale_max / faster,
        versions_pause: times.versions_pause / faster,
        ..times
    };
    let followed = Clusters::start(Setup {
        client: connect(auth, client::Options::default()).await?,
        namespace: NAMESPACE.to_owned(),
        sink: Arc::new(Nobody),
        rules: Rules {
            owner: Arc::new(|object, _| app_of(object)),
            watched: Arc::new(|_, _| true),
            matters: Arc::new(|_, _| true),
            respect_rbac: RespectRbac::Off,
            in_cluster_enabled: true,
        },
        owns: Arc::new(|_| true),
        fence: None,
        policy: auth::Policy::default(),
        pace: Pace {
            kinds,
            discovery: Pace::default().discovery / faster,
        },
        tasks: tasks.clone(),
        clock: Arc::new(argosy_runtime::clock::System),
    });
    followed.ready().await;
    let mut clusters = Vec::new();
    for cluster in &servers.clusters[1..] {
        let destination = ApplicationDestination {
            server: cluster.url(),
            ..ApplicationDestination::default()
        };
        clusters.push(followed.resolve(&destination)?);
    }
    for cluster in &clusters {
        let synced = tokio::time::timeout(DEADLINE, cluster.synced()).await;
        ensure!(synced.context("wait for the first lists")?, "a cluster is not followed any longer");
        // A kind that could not be listed at once is listed later.
        let listed = async {
            while !cluster.kind_failures().is_empty() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(DEADLINE, listed).await.context("wait for all lists")?;
    }
    Ok(clusters)
}

/// Takes a ConfigMap away without telling the watches, and waits until live state knows.
async fn remove_silently(servers: &Servers, cluster: &Cluster) -> Result<Duration> {
    let key = a_map(cluster)?;
    servers.clusters[1]
        .with(|server| server.alter_silently("", "configmaps", &key.namespace, &key.name, None));
    found(|| cluster.snapshot().get(&key).is_none()).await
}

/// Changes one in a way that its watch does not tell.
async fn change(
    servers: &Servers,
    cluster: &Cluster,
    hidden: impl FnOnce(&mut ApiServer, &ResourceKey, &Value),
) -> Result<Duration> {
    let key = a_map(cluster)?;
    let known = cluster.snapshot().get(&key).context("the ConfigMap is known")?;
    let mut map = known.value();
    map["data"] = json!({"changed": "behind the watch"});
    servers.clusters[1].with(|server| hidden(server, &key, &map));
    found(|| {
        let now = cluster.snapshot().get(&key);
        now.is_some_and(|now| now.resource_version != known.resource_version)
    })
    .await
}

fn a_map(cluster: &Cluster) -> Result<Arc<ResourceKey>> {
    let maps = cluster.snapshot().by_kind(&GroupKind::new("", "ConfigMap"));
    Ok(maps.last().context("the cluster has no ConfigMap")?.key.clone())
}

async fn found(is_known: impl Fn() -> bool) -> Result<Duration> {
    let hidden = Instant::now();
    while !is_known() {
        ensure!(hidden.elapsed() < DEADLINE, "the audit finds nothing");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(hidden.elapsed())
}
