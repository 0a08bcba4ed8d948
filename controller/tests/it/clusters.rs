//! Live state of real clusters. One control plane serves all scenarios, one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use argosy_api::settings::RespectRbac;
use argosy_api::v1alpha1::ApplicationDestination;
use argosy_controller::DirtySink;
use argosy_controller::clusters::{Cluster, Clusters, DestinationError, Pace, Rules, Setup, Status};
use argosy_kube_io::client::{Client, Options};
use argosy_kube_io::target::{Delete, Patch, Propagation, Write};
use argosy_kube_io::{ApiResource, ClusterAuth, Target, api, auth, connect};
use argosy_object::{GroupKind, GroupVersionKind, ResourceKey, Value, meta};
use argosy_runtime::tasks::Tasks;
use argosy_test_cluster::{Binaries, Cluster as ControlPlane};
use futures::StreamExt as _;
use serde_json::json;

const NAMESPACE: &str = "argocd";
/// Long enough for a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(300);

#[test]
fn live_state_of_real_clusters() {
    let mut server = ControlPlane::start(Binaries::locate().unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let world = World::new(&server).await;
        a_cluster_is_known_whole(&world).await;
        many_objects_are_held_in_little_memory(&world).await;
        what_an_application_owns_concerns_it(&world).await;
        our_own_writes_are_seen_at_once(&world).await;
        kinds_come_and_go_with_their_definitions(&world).await;
        one_broken_kind_hurts_nothing_else(&world).await;
        clusters_come_and_go_with_their_secrets(&world, &server).await;
        an_outage_is_said_and_made_up_for(&world, &mut server).await;
    });
}

/// Remembers what it was told.
#[derive(Default)]
struct Told {
    touched: Mutex<BTreeMap<String, BTreeSet<String>>>,
    clusters: Mutex<BTreeSet<String>>,
}

impl DirtySink for Told {
    fn untracked(&self, _: &str, _: &str) {}

    fn touched(&self, _: &str, app: &str, key: &ResourceKey) {
        self.touched
            .lock()
            .unwrap()
            .entry(app.to_owned())
            .or_default()
            .insert(key.kind.clone());
    }

    fn cluster_changed(&self, server: &str) {
        self.clusters.lock().unwrap().insert(server.to_owned());
    }
}

struct World {
    target: Target,
    clusters: Arc<Clusters>,
    told: Arc<Told>,
    write: Write,
    _tasks: Tasks,
}

impl World {
    async fn new(server: &ControlPlane) -> World {
        let auth = ClusterAuth::kubeconfig(Some(&server.kubeconfig()), None)
            .await
            .unwrap();
        let client: Client = connect(auth, Options::default()).await.unwrap();
        let target = Target::new(client.clone());
        let write = Write::default();
        for name in [NAMESPACE, "shop"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            target
                .create(&api::namespaces(), &namespace, &write)
                .await
                .unwrap();
        }
        let (told, tasks) = (Arc::new(Told::default()), Tasks::new());
        let clusters = Clusters::start(Setup {
            client,
            namespace: NAMESPACE.to_owned(),
            sink: told.clone(),
            rules: rules("app"),
            owns: Arc::new(|info| info.shard != Some(1)),
            fence: None,
            policy: auth::Policy::default(),
            pace: Pace::default(),
            tasks: tasks.clone(),
            clock: Arc::new(argosy_runtime::clock::System),
        });
        clusters.ready().await;
        World {
            target,
            clusters,
            told,
            write,
            _tasks: tasks,
        }
    }

    fn local(&self) -> Cluster {
        self.clusters
            .resolve(&by_server(auth::IN_CLUSTER_SERVER))
            .unwrap()
    }

    async fn create(&self, resource: &ApiResource, object: Value) -> Value {
        self.target
            .create(resource, &object, &self.write)
            .await
            .unwrap()
            .object
    }
}

/// The label `label` names the Application; Secrets are not looked at.
fn rules(label: &'static str) -> Rules {
    Rules {
        owner: Arc::new(move |object, _| meta::label(object, label).map(Arc::from)),
        watched: Arc::new(|_, kind| kind.kind != "Secret"),
        matters: Arc::new(|_, _| true),
        respect_rbac: RespectRbac::Off,
        in_cluster_enabled: true,
    }
}

fn by_server(server: &str) -> ApplicationDestination {
    ApplicationDestination {
        server: server.to_owned(),
        ..Default::default()
    }
}

fn by_name(name: &str) -> ApplicationDestination {
    ApplicationDestination {
        name: name.to_owned(),
        ..Default::default()
    }
}

fn deployments() -> ApiResource {
    ApiResource::known("apps", "v1", "Deployment", "deployments", true)
}

async fn synced(cluster: &Cluster) {
    assert!(tokio::time::timeout(PATIENCE, cluster.synced()).await.unwrap());
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn config_map(namespace: &str, name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": data})
}

async fn a_cluster_is_known_whole(world: &World) {
    let start = Instant::now();
    let cluster = world.local();
    synced(&cluster).await;
    eprintln!(
        "synced after {:?}: {} kinds, {} objects",
        start.elapsed(),
        cluster.watched_kinds(),
        cluster.resource_count()
    );
    assert!(cluster.watched_kinds() > 40);
    assert!(
        cluster.kind_failures().is_empty(),
        "{:?}",
        cluster.kind_failures()
    );
    let snapshot = cluster.snapshot();
    assert!(
        snapshot
            .get(&ResourceKey::new("", "Namespace", "", "kube-system"))
            .is_some()
    );
    for never in [
        ("", "Event"),
        ("events.k8s.io", "Event"),
        ("coordination.k8s.io", "Lease"),
        ("", "Secret"),
    ] {
        let kind = GroupKind::new(never.0, never.1);
        assert!(!cluster.follows(&kind) && snapshot.kind_len(&kind) == 0, "{kind}");
    }
    let role = snapshot.by_kind(&GroupKind::new("rbac.authorization.k8s.io", "ClusterRole"));
    assert!(role.len() > 10);
    assert_eq!(meta::kind(&role[0].value()), "ClusterRole");
    assert!(cluster.kube_version().unwrap().starts_with("v1."));
    assert!(
        cluster
            .api_versions()
            .iter()
            .any(|version| version == "apps/v1/Deployment")
    );
    assert!(
        cluster
            .schemas()
            .root(&GroupVersionKind::new("apps", "v1", "Deployment"))
            .is_some()
    );
    assert!(
        world
            .told
            .clusters
            .lock()
            .unwrap()
            .contains(auth::IN_CLUSTER_SERVER)
    );
}

async fn many_objects_are_held_in_little_memory(world: &World) {
    let (cluster, before) = (world.local(), resident_mb());
    let make = |index: usize| async move {
        let data = json!({"payload": format!("{index}-{}", "abcdefghij".repeat(100))});
        world
            .create(
                &api::config_maps(),
                config_map("shop", &format!("many-{index:04}"), data),
            )
            .await
    };
    futures::stream::iter(0..2_000)
        .map(make)
        .buffer_unordered(32)
        .collect::<Vec<_>>()
        .await;
    let kind = GroupKind::new("", "ConfigMap");
    until("all ConfigMaps to be seen", || {
        cluster.snapshot().kind_len(&kind) >= 2_000
    })
    .await;
    eprintln!(
        "2,000 ConfigMaps of 1 KB: resident {before} MB before, {} MB after",
        resident_mb()
    );

    // Listed anew by another handle on the same server, through a second registration.
    let all = Delete {
        propagation: Propagation::Background,
        ..Delete::default()
    };
    let drop_one = |index: usize| {
        let all = all.clone();
        async move {
            world
                .target
                .delete(&api::config_maps(), "shop", &format!("many-{index:04}"), &all)
                .await
                .unwrap();
        }
    };
    futures::stream::iter(0..2_000)
        .map(drop_one)
        .buffer_unordered(32)
        .collect::<Vec<_>>()
        .await;
    until("all ConfigMaps to be gone", || {
        cluster.snapshot().by_kind_in(&kind, "shop").len() <= 1
    })
    .await;
}

fn deployment(name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": name, "labels": {"app": app}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"run": name}},
            "template": {
                "metadata": {"labels": {"run": name}},
                "spec": {"containers": [{"name": "main", "image": "example.com/web:1"}]},
            },
        },
    })
}

async fn what_an_application_owns_concerns_it(world: &World) {
    let cluster = world.local();
    world.create(&deployments(), deployment("web", "shop-app")).await;
    // The ReplicaSet and the Pods carry no mark of the Application: they are found through their owners.
    until("the Pods to be made", || {
        let snapshot = cluster.snapshot();
        let rows = snapshot.by_app("shop-app");
        rows.len() == 1
            && snapshot
                .descendants(&rows[0])
                .iter()
                .filter(|row| row.key.kind == "Pod")
                .count()
                == 2
    })
    .await;
    until("the Application to be told", || {
        let touched = world.told.touched.lock().unwrap();
        touched.get("shop-app").is_some_and(|kinds| {
            ["Deployment", "ReplicaSet", "Pod"]
                .iter()
                .all(|kind| kinds.contains(*kind))
        })
    })
    .await;

    // Other rules of tracking count without a new list.
    world.clusters.set_rules(rules("run"));
    until("the new owner to be known", || {
        let snapshot = cluster.snapshot();
        snapshot.by_app("shop-app").is_empty()
            && snapshot.by_app("web").iter().any(|row| row.key.kind == "Pod")
    })
    .await;
    world.clusters.set_rules(rules("app"));
    until("the old owner to be known", || {
        cluster.snapshot().by_app("shop-app").len() == 1
    })
    .await;
}

async fn our_own_writes_are_seen_at_once(world: &World) {
    let cluster = world.local();
    let key = ResourceKey::new("", "ConfigMap", "shop", "ours");
    for round in 0..20 {
        let object = world
            .create(
                &api::config_maps(),
                config_map("shop", "ours", json!({"round": round.to_string()})),
            )
            .await;
        let uid = meta::uid(&object).to_owned();
        cluster.observe(object).await;
        assert_eq!(&*cluster.snapshot().get(&key).unwrap().uid, uid);
        let delete = Delete {
            uid: Some(uid.clone()),
            propagation: Propagation::Background,
            ..Delete::default()
        };
        world
            .target
            .delete(&api::config_maps(), "shop", "ours", &delete)
            .await
            .unwrap();
        cluster.observe_deleted(&key, &uid).await;
        assert!(cluster.snapshot().get(&key).is_none());
    }
}

fn definition(plural: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.shop.example.com")},
        "spec": {
            "group": "shop.example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 3}}}}}},
            }],
        },
    })
}

async fn define(world: &World, plural: &str, kind: &str) -> ApiResource {
    world
        .create(&api::custom_resource_definitions(), definition(plural, kind))
        .await;
    let cluster = world.local();
    let name = GroupKind::new("shop.example.com", kind);
    until("the kind to be followed", || {
        cluster.follows(&name) && cluster.kind_failure(&name).is_none()
    })
    .await;
    ApiResource::known("shop.example.com", "v1", kind, plural, true)
}

async fn kinds_come_and_go_with_their_definitions(world: &World) {
    let cluster = world.local();
    let kinds = cluster.watched_kinds();
    let start = Instant::now();
    let resource = define(world, "widgets", "Widget").await;
    eprintln!("a new kind is followed after {:?}", start.elapsed());
    let widget = json!({"apiVersion": "shop.example.com/v1", "kind": "Widget",
        "metadata": {"namespace": "shop", "name": "one", "labels": {"app": "widgets-app"}}, "spec": {}});
    world.create(&resource, widget).await;
    let key = ResourceKey::new("shop.example.com", "Widget", "shop", "one");
    until("the object to be seen", || cluster.snapshot().get(&key).is_some()).await;
    until("the schema to be known", || {
        let schemas = cluster.schemas();
        let root = schemas.root(&resource.gvk());
        root.and_then(|root| root.field("spec")?.field("size")?.default().cloned()) == Some(json!(3))
    })
    .await;
    assert!(matches!(cluster.status(), Status::Synced { .. }));

    let name = "widgets.shop.example.com";
    world
        .target
        .delete(&api::custom_resource_definitions(), "", name, &Delete::default())
        .await
        .unwrap();
    until("the kind to be gone", || {
        cluster.watched_kinds() == kinds
            && cluster.snapshot().get(&key).is_none()
            && !cluster.follows(&key.group_kind())
    })
    .await;
    assert!(world.told.touched.lock().unwrap().contains_key("widgets-app"));
}

async fn one_broken_kind_hurts_nothing_else(world: &World) {
    let cluster = world.local();
    let resource = define(world, "gadgets", "Gadget").await;
    let gadget = json!({"apiVersion": "shop.example.com/v1", "kind": "Gadget",
        "metadata": {"namespace": "shop", "name": "one", "labels": {"app": "gadgets-app"}}, "spec": {}});
    world.create(&resource, gadget).await;
    let key = ResourceKey::new("shop.example.com", "Gadget", "shop", "one");
    until("the object to be seen", || cluster.snapshot().get(&key).is_some()).await;

    // A second version, converted by a webhook that nobody serves.
    let version = definition("gadgets", "Gadget")["spec"]["versions"][0].clone();
    let mut second = version.clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    let broken = json!({"spec": {
        "versions": [second, version],
        "conversion": {"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:9/convert"},
        }},
    }});
    let crds = api::custom_resource_definitions();
    world
        .target
        .patch(
            &crds,
            "",
            "gadgets.shop.example.com",
            Patch::Merge(&broken),
            &world.write,
        )
        .await
        .unwrap();
    until("the kind to fail", || {
        cluster.kind_failure(&key.group_kind()).is_some()
    })
    .await;
    let failure = cluster.kind_failure(&key.group_kind()).unwrap();
    // Either the webhook is named, or that the server's cache of the kind cannot be filled on its account.
    assert!(
        ["conversion webhook", "storage is (re)initializing"]
            .iter()
            .any(|text| failure.message.contains(text)),
        "{}",
        failure.message
    );
    // What was known last stays known, and everything else goes on.
    assert!(cluster.snapshot().get(&key).is_some());
    assert!(matches!(cluster.status(), Status::Synced { .. }));
    world
        .create(&api::config_maps(), config_map("shop", "beside", json!({})))
        .await;
    let beside = ResourceKey::new("", "ConfigMap", "shop", "beside");
    until("other kinds to go on", || {
        cluster.snapshot().get(&beside).is_some()
    })
    .await;
    assert_eq!(cluster.kind_failures().len(), 1);

    let mended = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
    world
        .target
        .patch(
            &crds,
            "",
            "gadgets.shop.example.com",
            Patch::Merge(&mended),
            &world.write,
        )
        .await
        .unwrap();
    until("the kind to recover", || cluster.kind_failures().is_empty()).await;
    assert!(cluster.snapshot().get(&key).is_some());
    world
        .target
        .delete(&crds, "", "gadgets.shop.example.com", &Delete::default())
        .await
        .unwrap();
}

async fn clusters_come_and_go_with_their_secrets(world: &World, server: &ControlPlane) {
    assert!(matches!(
        world.clusters.resolve(&by_name("second")),
        Err(DestinationError::UnknownName { .. })
    ));
    assert!(matches!(
        world.clusters.resolve(&by_name("")),
        Err(DestinationError::Missing)
    ));
    let url = server.server();
    let config = json!({
        "bearerToken": argosy_test_cluster::ADMIN_TOKEN,
        "tlsClientConfig": {"caData": base64(&server.ca_pem().unwrap())},
    });
    let secret = |name: &str, config: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"namespace": NAMESPACE, "name": name, "labels": {"argocd.argoproj.io/secret-type": "cluster"}},
            "stringData": {"name": "second", "server": format!("{url}/"), "config": config, "namespaces": "shop"},
        })
    };
    world
        .create(&api::secrets(), secret("second", &config.to_string()))
        .await;
    until("the cluster to be known", || world.clusters.info(&url).is_some()).await;
    let cluster = world.clusters.resolve(&by_name("second")).unwrap();
    assert_eq!(cluster.server(), url);
    synced(&cluster).await;
    // Only the one namespace, and nothing that is in none.
    let snapshot = cluster.snapshot();
    assert!(
        snapshot
            .get(&ResourceKey::new("apps", "Deployment", "shop", "web"))
            .is_some()
    );
    assert!(snapshot.iter().all(|row| row.key.namespace == "shop"));
    assert!(snapshot.len() < world.local().snapshot().len());

    // New credentials: the old handle ends, a new one works.
    let broken = json!({"stringData": {"config": "{\"bearerToken\":"}});
    let patch = Patch::Merge(&broken);
    world
        .target
        .patch(&api::secrets(), NAMESPACE, "second", patch, &world.write)
        .await
        .unwrap();
    until("the broken secret to be noticed", || {
        matches!(
            world.clusters.resolve(&by_server(&url)),
            Err(DestinationError::Unusable { .. })
        )
    })
    .await;
    assert_eq!(cluster.status(), Status::Stopped);
    let right = json!({"stringData": {"config": config.to_string()}});
    world
        .target
        .patch(
            &api::secrets(),
            NAMESPACE,
            "second",
            Patch::Merge(&right),
            &world.write,
        )
        .await
        .unwrap();
    until("the secret to be right again", || {
        world.clusters.resolve(&by_server(&url)).is_ok()
    })
    .await;
    synced(&world.clusters.resolve(&by_server(&url)).unwrap()).await;

    // Nothing but its owner changes: it is not followed here any longer.
    let moved = json!({"stringData": {"shard": "1"}});
    let patch = Patch::Merge(&moved);
    world
        .target
        .patch(&api::secrets(), NAMESPACE, "second", patch, &world.write)
        .await
        .unwrap();
    until("the cluster to be another shard's", || {
        world.clusters.get(&url).is_none()
    })
    .await;
    assert!(matches!(
        world.clusters.resolve(&by_server(&url)),
        Err(DestinationError::NotOwned { .. })
    ));
    assert!(!world.clusters.owns_destination(&by_server(&url)));
    assert!(
        world
            .clusters
            .owns_destination(&by_server(auth::IN_CLUSTER_SERVER))
    );
    assert!(world.clusters.owns_destination(&by_name("nowhere")));

    world
        .target
        .delete(&api::secrets(), NAMESPACE, "second", &Delete::default())
        .await
        .unwrap();
    until("the cluster to be gone", || world.clusters.info(&url).is_none()).await;
    assert!(matches!(
        world.clusters.resolve(&by_server(&url)),
        Err(DestinationError::UnknownServer { .. })
    ));
    assert!(matches!(world.local().status(), Status::Synced { .. }));
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

async fn an_outage_is_said_and_made_up_for(world: &World, server: &mut ControlPlane) {
    let cluster = world.local();
    let known = cluster.resource_count();
    server.kill_api_server();
    until("the outage to be said", || {
        matches!(cluster.status(), Status::Failed { .. })
    })
    .await;
    // What was known stays readable.
    assert!(cluster.resource_count() >= known.min(10));
    server.start_api_server().unwrap();
    let up = Instant::now();
    synced(&cluster).await;
    eprintln!("synced again {:?} after the server was ready", up.elapsed());
    world
        .create(
            &api::config_maps(),
            config_map("shop", "after-the-outage", json!({})),
        )
        .await;
    let key = ResourceKey::new("", "ConfigMap", "shop", "after-the-outage");
    until("changes to be seen again", || {
        cluster.snapshot().get(&key).is_some()
    })
    .await;
    until("no kind to be in failure", || cluster.kind_failures().is_empty()).await;
}
