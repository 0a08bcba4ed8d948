//! Live state when API servers misbehave, against simulated ones that do as they are told.
//!
//! | fault | test |
//! |---|---|
//! | a kind's server takes requests and never answers | [`a_kind_that_hangs_is_degraded_alone`] |
//! | a watch stays open and says nothing more | [`a_watch_that_falls_silent_is_resumed_and_then_doubted`] |
//! | a server that has fallen behind is read | [`a_server_that_falls_behind_takes_nothing_back`] |
//! | versions and continue tokens expire | [`what_the_server_forgets_costs_lists_of_that_kind_alone`] |
//! | a streamed list never comes to its end | [`a_list_that_takes_longer_than_a_watch_may_last_comes_in_pages`] |
//! | definitions of kinds are odd or broken | [`odd_definitions_hurt_only_themselves`] |
//! | objects of the control plane cannot be read | [`objects_that_cannot_be_read_hurt_only_themselves`] |
//! | most kinds hang at once | [`kinds_that_hang_leave_the_lists_to_the_others`] |
//! | an object cannot be read | [`an_object_that_cannot_be_read_is_told_until_it_is_gone`] |
//! | a watch is ended with an error, again and again | [`a_watch_that_ends_with_an_error_is_not_followed`] |
//! | a streamed list is ended with 410 | [`a_streamed_list_that_expires_comes_in_pages`] |
//! | an account may not list a kind | [`kinds_that_the_account_may_not_list_are_left_out_on_demand`] |
//! | a definition goes and another takes its kind | [`a_kind_that_comes_back_elsewhere_is_followed_there`] |
//! | a document of schemas cannot be had | [`a_document_of_schemas_is_missing_alone`] |
//!
//! What a watch was not told is in [`missed`].
//!
//! An API server that is away, and a conversion webhook that is, are in `clusters.rs`, on a real one.

mod missed;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use argosy_api::settings::RespectRbac;
use argosy_api::v1alpha1::ApplicationDestination;
use argosy_controller::DirtySink;
use argosy_controller::clusters::{Cluster, Clusters, Pace, Rules, Setup, Status};
use argosy_kube_io::client::Options;
use argosy_kube_io::list_watch::{self, Event, ListWatch};
use argosy_kube_io::target::{Delete, Patch, Propagation, Selection, Write};
use argosy_kube_io::{ApiResource, Budget, ClusterAuth, Target, api, auth, connect, openapi};
use argosy_object::{GroupKind, GroupVersionKind, ResourceKey, Value, meta};
use argosy_runtime::tasks::Tasks;
use argosy_simulation::fault::{Fault, Rule};
use argosy_simulation::serve::Transport;
use argosy_simulation::{ApiServer, Cluster as Simulated, Options as Simulation};
use jiff::Timestamp;
use serde_json::json;

const NAMESPACE: &str = "argocd";
/// Long enough for a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(300);

/// Tells nobody.
struct Nobody;

impl DirtySink for Nobody {
    fn untracked(&self, _: &str, _: &str) {}
    fn touched(&self, _: &str, _: &str, _: &ResourceKey) {}
    fn cluster_changed(&self, _: &str) {}
}

/// A simulated cluster that is followed.
struct World {
    simulated: Simulated,
    target: Target,
    cluster: Cluster,
    clusters: Arc<Clusters>,
    _tasks: Tasks,
}

/// Everything is looked at; the label `app` names the Application.
fn rules() -> Rules {
    Rules {
        owner: Arc::new(|object, _| meta::label(object, "app").map(Arc::from)),
        watched: Arc::new(|_, _| true),
        matters: Arc::new(|_, _| true),
        respect_rbac: RespectRbac::Off,
        in_cluster_enabled: true,
    }
}

/// A server whose watches tell of themselves every second.
fn server() -> ApiServer {
    let options = Simulation {
        bookmark_seconds: 1,
        ..Simulation::default()
    };
    ApiServer::new(options, Timestamp::now())
}

fn kubeconfig(simulated: &Simulated) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), simulated.kubeconfig().unwrap().to_string()).unwrap();
    file
}

impl World {
    /// Prepares a server and follows it.
    async fn new(pace: list_watch::Options, prepare: impl AsyncFnOnce(&Simulated, &Target)) -> World {
        let simulated = Simulated::serve(server(), Transport::Tls).await.unwrap();
        let file = kubeconfig(&simulated);
        let auth = ClusterAuth::kubeconfig(Some(file.path()), None).await.unwrap();
        let client = connect(auth, Options::default()).await.unwrap();
        let target = Target::new(client.clone());
        prepare(&simulated, &target).await;
        let tasks = Tasks::new();
        let clusters = Clusters::start(Setup {
            client,
            namespace: NAMESPACE.to_owned(),
            sink: Arc::new(Nobody),
            rules: rules(),
            owns: Arc::new(|_| true),
            fence: None,
            policy: auth::Policy::default(),
            pace: Pace {
                kinds: pace,
                ..Pace::default()
            },
            tasks: tasks.clone(),
            clock: Arc::new(argosy_runtime::clock::System),
        });
        clusters.ready().await;
        let cluster = clusters.resolve(&ApplicationDestination {
            server: auth::IN_CLUSTER_SERVER.to_owned(),
            ..ApplicationDestination::default()
        });
        World {
            simulated,
            target,
            cluster: cluster.unwrap(),
            clusters,
            _tasks: tasks,
        }
    }

    async fn synced(&self) {
        assert!(
            tokio::time::timeout(PATIENCE, self.cluster.synced())
                .await
                .unwrap()
        );
    }

    /// The kinds that cannot be followed.
    fn degraded(&self) -> Vec<GroupKind> {
        let failures = self.cluster.kind_failures();
        failures.into_iter().map(|failure| failure.kind).collect()
    }

    fn fault(&self, rule: Rule) {
        self.simulated.with(|server| server.faults().add(rule));
    }

    fn mend(&self) {
        self.simulated.with(|server| server.faults().clear());
    }

    fn lists(&self, plural: &str) -> u64 {
        self.simulated.with(|server| server.asked("list", plural))
    }

    fn watches(&self, plural: &str) -> u64 {
        self.simulated.with(|server| server.asked("watch", plural))
    }

    /// Names and versions of the ConfigMaps of the namespace `default` in live state.
    fn maps(&self) -> BTreeMap<String, String> {
        let maps = self
            .cluster
            .snapshot()
            .by_kind_in(&GroupKind::new("", "ConfigMap"), "default");
        maps.iter()
            .map(|map| (map.key.name.clone(), map.resource_version.to_string()))
            .collect()
    }

    /// The same on the server.
    async fn true_maps(&self) -> BTreeMap<String, String> {
        let (maps, selection) = (api::config_maps(), Selection::namespace("default"));
        let items = self.target.list(&maps, &selection).await.unwrap().items;
        let objects = items
            .iter()
            .map(|item| serde_json::from_slice::<Value>(item).unwrap());
        objects
            .map(|map| {
                (
                    meta::name(&map).to_owned(),
                    meta::resource_version(&map).to_owned(),
                )
            })
            .collect()
    }

    fn has_map(&self, name: &str) -> bool {
        self.maps().contains_key(name)
    }
}

fn rule(verb: &str, plural: &str, fault: Fault) -> Rule {
    Rule {
        verb: verb.to_owned(),
        plural: plural.to_owned(),
        path: String::new(),
        percent: 100,
        times: None,
        fault,
    }
}

fn once(verb: &str, plural: &str, fault: Fault) -> Rule {
    Rule {
        times: Some(1),
        ..rule(verb, plural, fault)
    }
}

/// Tries again soon, and waits for answers as long as others do: a busy machine is no fault.
fn brisk() -> list_watch::Options {
    list_watch::Options {
        answer_max: Duration::from_secs(60),
        silence_max: Duration::from_secs(60),
        wait_min: Duration::from_millis(50),
        wait_max: Duration::from_millis(500),
        ..list_watch::Options::default()
    }
}

fn config_map(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name}, "data": {"text": text}})
}

async fn create(target: &Target, resource: &ApiResource, object: &Value) {
    target.create(resource, object, &Write::default()).await.unwrap();
}

async fn create_map(target: &Target, name: &str) {
    create(target, &api::config_maps(), &config_map(name, "first")).await;
}

async fn change_map(target: &Target, name: &str) {
    let change = json!({"data": {"text": "second"}});
    let (maps, patch) = (api::config_maps(), Patch::Merge(&change));
    target
        .patch(&maps, "default", name, patch, &Write::default())
        .await
        .unwrap();
}

async fn delete_map(target: &Target, name: &str) {
    let delete = Delete {
        propagation: Propagation::Background,
        ..Delete::default()
    };
    target
        .delete(&api::config_maps(), "default", name, &delete)
        .await
        .unwrap();
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_hangs_is_degraded_alone() {
    let forever = Fault::Delay(Duration::from_secs(3600));
    let ingresses = GroupKind::new("networking.k8s.io", "Ingress");
    let pace = list_watch::Options {
        answer_max: Duration::from_secs(5),
        ..brisk()
    };
    let world = World::new(pace, async |simulated, _| {
        simulated.with(|server| server.faults().add(rule("", "ingresses", forever.clone())));
    })
    .await;
    // The others do not wait for it, not even at the start.
    world.synced().await;
    until("it to be degraded, and nothing else", || {
        let failures = world.cluster.kind_failures();
        let told = failures.first().map(|failure| failure.message.as_str());
        world.degraded() == [ingresses.clone()] && told.is_some_and(|told| told.contains("no answer within"))
    })
    .await;
    create_map(&world.target, "beside").await;
    until("other kinds to go on", || world.has_map("beside")).await;

    world.mend();
    until("the kind to be followed", || {
        world.cluster.kind_failures().is_empty()
    })
    .await;
    assert!(matches!(world.cluster.status(), Status::Synced { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_that_hang_leave_the_lists_to_the_others() {
    let pace = list_watch::Options {
        // Longer than anybody waits here.
        answer_max: Duration::from_secs(3600),
        ..brisk()
    };
    let map = config_map("beside", "first");
    let world = World::new(pace, async |simulated, target| {
        create(target, &api::config_maps(), &map).await;
        simulated.with(|server| {
            let faults = server.faults();
            // Clusters are read from Secrets.
            let forever = Duration::from_secs(3600);
            let delays = [
                ("configmaps", Duration::ZERO),
                ("secrets", Duration::ZERO),
                ("", forever),
            ];
            for (plural, delay) in delays {
                for verb in ["list", "watch"] {
                    faults.add(rule(verb, plural, Fault::Delay(delay)));
                }
            }
        });
    })
    .await;
    until("the one kind that answers to be listed", || {
        world.has_map("beside")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_cannot_be_read_is_told_until_it_is_gone() {
    let pace = list_watch::Options {
        watch_time: 3..4,
        audit_pause: Duration::ZERO,
        ..brisk()
    };
    let maps = GroupKind::new("", "ConfigMap");
    let world = World::new(pace, async |_, target| create_map(target, "a").await).await;
    world.synced().await;
    let alter = |map: Option<&Value>| {
        world
            .simulated
            .with(|server| server.alter_silently("", "configmaps", "default", "deep", map));
    };
    // Nested deeper than anybody reads.
    let mut deep = json!("text");
    for _ in 0..200 {
        deep = json!([deep]);
    }
    let mut map = config_map("deep", "first");
    map["metadata"]["uid"] = json!("deep");
    map["data"] = deep;
    alter(Some(&map));
    until("the object to be noticed", || {
        world.cluster.kind_failure(&maps).is_some()
    })
    .await;
    let failure = world.cluster.kind_failure(&maps).unwrap();
    assert!(failure.message.contains("ConfigMap default/deep"), "{failure:?}");
    assert!(failure.listed, "what was known is not all there is any more");
    create_map(&world.target, "b").await;
    until("changes to be followed all the same", || world.has_map("b")).await;
    // Watches go on meanwhile, and none of them says that all is well.
    let watches = world.watches("configmaps");
    until("watches to begin anew", || {
        assert!(world.cluster.kind_failure(&maps).is_some());
        world.watches("configmaps") > watches + 1
    })
    .await;

    alter(None);
    until("the kind to be known whole", || {
        world.cluster.kind_failures().is_empty()
    })
    .await;
}

/// What following the ConfigMaps of a server tells until `last`, objects and bookmarks left out.
async fn told(
    simulated: &Simulated,
    options: list_watch::Options,
    last: impl Fn(&[&str]) -> bool,
) -> Vec<&'static str> {
    let file = kubeconfig(simulated);
    let auth = ClusterAuth::kubeconfig(Some(file.path()), None).await.unwrap();
    let client = connect(auth, Options::default()).await.unwrap();
    let mut events = ListWatch::new(client, api::config_maps(), options, Budget::new(0));
    let mut told = Vec::new();
    while !last(&told) {
        match tokio::time::timeout(PATIENCE, events.next()).await.unwrap() {
            Event::ListStart => told.push("list"),
            Event::ListEnd { .. } => told.push("end"),
            Event::Live => told.push("live"),
            Event::Failed(_) => told.push("failed"),
            _ => {}
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_ends_with_an_error_is_not_followed() {
    let simulated = Simulated::serve(server(), Transport::Tls).await.unwrap();
    simulated.with(|server| {
        let fault = Fault::FailWatch { events: 0, code: 500 };
        let rule = Rule {
            times: Some(3),
            ..rule("watch", "configmaps", fault)
        };
        server.faults().add(rule);
    });
    let pace = list_watch::Options {
        streaming: false,
        ..brisk()
    };
    let is_live_again = |told: &[&str]| told.contains(&"failed") && told.last() == Some(&"live");
    let told = told(&simulated, pace, is_live_again).await;
    assert_eq!(
        told,
        ["list", "end", "live", "failed", "failed", "failed", "live"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streamed_list_that_expires_comes_in_pages() {
    let simulated = Simulated::serve(server(), Transport::Tls).await.unwrap();
    simulated.with(|server| {
        let fault = Fault::FailWatch { events: 0, code: 410 };
        server.faults().add(once("watch", "configmaps", fault));
    });
    let told = told(&simulated, brisk(), |told| told.contains(&"live")).await;
    assert_eq!(told, ["list", "list", "end", "live"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_that_the_account_may_not_list_are_left_out_on_demand() {
    let ingresses = GroupKind::new("networking.k8s.io", "Ingress");
    let world = World::new(brisk(), async |simulated, _| {
        simulated.with(|server| {
            for verb in ["list", "watch"] {
                server
                    .faults()
                    .add(rule(verb, "ingresses", Fault::Error(403, None)));
            }
        });
    })
    .await;
    world.synced().await;
    let failure = || world.cluster.kind_failure(&ingresses);
    assert!(!failure().unwrap().left_out);
    let kinds = world.cluster.watched_kinds();
    let respect = |respect_rbac| {
        world.clusters.set_rules(Rules {
            respect_rbac,
            ..rules()
        });
    };
    respect(RespectRbac::Normal);
    until("the kind to be left out", || {
        failure().is_some_and(|failure| failure.left_out)
    })
    .await;
    assert_eq!(world.cluster.watched_kinds(), kinds - 1);
    // The server says that the account may: the refusal has another reason.
    respect(RespectRbac::Strict);
    until("the refusal to be a fault", || {
        failure().is_some_and(|failure| !failure.left_out)
    })
    .await;
    world.mend();
    until("the kind to be followed", || failure().is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_comes_back_elsewhere_is_followed_there() {
    let definition = |plural: &str| {
        let names = json!({"kind": "Widget", "plural": plural, "singular": plural.trim_end_matches('s')});
        let schema =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names,
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
        })
    };
    let widget = |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"namespace": "default", "name": name}});
    let widgets = |plural| ApiResource::known("example.com", "v1", "Widget", plural, true);
    let definitions = api::custom_resource_definitions();
    let world = World::new(brisk(), async |_, target| {
        create(target, &definitions, &definition("widgets")).await
    })
    .await;
    world.synced().await;
    let has = |name: &str| {
        let key = ResourceKey::new("example.com", "Widget", "default", name);
        world.cluster.snapshot().get(&key).is_some()
    };
    create(&world.target, &widgets("widgets"), &widget("first")).await;
    until("the kind to be followed", || has("first")).await;

    let delete = Delete {
        propagation: Propagation::Background,
        ..Delete::default()
    };
    world
        .target
        .delete(&definitions, "", "widgets.example.com", &delete)
        .await
        .unwrap();
    while world
        .target
        .get(&definitions, "", "widgets.example.com")
        .await
        .unwrap()
        .is_some()
    {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // Before anybody has asked which kinds there are now.
    create(&world.target, &definitions, &definition("gadgets")).await;
    until("the first to be gone", || !has("first")).await;
    let create_second = async || {
        let (gadgets, second) = (widgets("gadgets"), widget("second"));
        world
            .target
            .create(&gadgets, &second, &Write::default())
            .await
            .is_ok()
    };
    while !create_second().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until("the other to be followed", || has("second")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_of_schemas_is_missing_alone() {
    let simulated = Simulated::serve(server(), Transport::Tls).await.unwrap();
    let file = kubeconfig(&simulated);
    let auth = ClusterAuth::kubeconfig(Some(file.path()), None).await.unwrap();
    let client = connect(auth, Options::default()).await.unwrap();
    let broken = Rule {
        path: "/openapi/v3/apis/batch/v1".to_owned(),
        ..rule("", "", Fault::Error(503, None))
    };
    simulated.with(|server| server.faults().add(broken));
    let missing = parking_lot::Mutex::default();
    let (job, deployment) = (
        GroupVersionKind::new("batch", "v1", "Job"),
        GroupVersionKind::new("apps", "v1", "Deployment"),
    );
    let schemas = async || openapi::schemas(&client, &missing).await.unwrap();
    let first = schemas().await;
    assert!(first.root(&job).is_none() && first.root(&deployment).is_some());
    assert_eq!(missing.lock().iter().collect::<Vec<_>>(), ["apis/batch/v1"]);
    assert!(Arc::ptr_eq(&first, &schemas().await), "nothing has changed");

    simulated.with(|server| server.faults().clear());
    let whole = schemas().await;
    assert!(whole.root(&job).is_some() && whole.root(&deployment).is_some());
    assert!(missing.lock().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_falls_silent_is_resumed_and_then_doubted() {
    let maps = GroupKind::new("", "ConfigMap");
    let pace = list_watch::Options {
        silence_max: Duration::from_secs(4),
        ..brisk()
    };
    let world = World::new(pace, async |simulated, target| {
        create_map(target, "a").await;
        // The list, its end and a bookmark are told. The watch after it tells nothing at all.
        simulated.with(|server| {
            let events = server.count("", "configmaps") as u64 + 2;
            server
                .faults()
                .add(once("watch", "configmaps", Fault::SilenceWatch { events }));
            server
                .faults()
                .add(rule("watch", "configmaps", Fault::SilenceWatch { events: 0 }));
        });
    })
    .await;
    world.synced().await;
    let lists = world.lists("configmaps");
    until("the silence to be doubted, and nothing else", || {
        world.degraded() == [maps.clone()]
    })
    .await;
    create_map(&world.target, "b").await;
    assert!(world.has_map("a") && !world.has_map("b"));

    world.mend();
    until("what was missed to be told", || world.has_map("b")).await;
    until("the kind to be followed", || {
        world.cluster.kind_failures().is_empty()
    })
    .await;
    assert_eq!(
        world.lists("configmaps"),
        lists,
        "a watch that is resumed needs no list"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_falls_behind_takes_nothing_back() {
    let pace = list_watch::Options {
        streaming: false,
        watch_time: 1..2,
        audit_pause: Duration::from_secs(3600),
        ..brisk()
    };
    let world = World::new(pace, async |_, target| {
        create_map(target, "changed").await;
        create_map(target, "deleted").await;
    })
    .await;
    world.synced().await;
    change_map(&world.target, "changed").await;
    delete_map(&world.target, "deleted").await;
    create_map(&world.target, "created").await;
    let truth = world.true_maps().await;
    until("all of it to be seen", || world.maps() == truth).await;

    // The version is refused, and the list that follows is one from before the three changes.
    let lists = world.lists("configmaps");
    world.fault(once("list", "configmaps", Fault::Stale { changes: 3 }));
    world.fault(once("watch", "configmaps", Fault::Error(410, None)));
    until("the past to be listed", || {
        assert_eq!(world.maps(), truth);
        world.lists("configmaps") > lists
    })
    .await;
    create_map(&world.target, "later").await;
    until("the present to be told again", || {
        let mut maps = world.maps();
        let present = maps.remove("later").is_some();
        assert_eq!(maps, truth);
        present
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_forgets_costs_lists_of_that_kind_alone() {
    let pace = list_watch::Options {
        streaming: false,
        page_len: 10,
        watch_time: 1..2,
        audit_pause: Duration::from_secs(3600),
        ..brisk()
    };
    let world = World::new(pace, async |simulated, target| {
        for number in 0..35 {
            create_map(target, &format!("map-{number:02}")).await;
        }
        // The second page asks for a version that is gone, and the watch after the list is told so too.
        simulated.with(|server| {
            let twice = Rule {
                times: Some(2),
                ..rule("list", "configmaps", Fault::Forget)
            };
            server.faults().add(twice);
            server
                .faults()
                .add(once("watch", "configmaps", Fault::Error(410, None)));
        });
    })
    .await;
    world.synced().await;
    let other_lists = world.lists("services");
    for round in 0..4 {
        change_map(&world.target, &format!("map-{round:02}")).await;
        delete_map(&world.target, &format!("map-{:02}", 20 + round)).await;
        create_map(&world.target, &format!("new-{round}")).await;
        let lists = world.lists("configmaps");
        world.fault(once("watch", "configmaps", Fault::Error(410, None)));
        until("the watch to expire", || {
            assert!(
                world.cluster.kind_failures().is_empty(),
                "nothing is wrong with a list that is due"
            );
            world.lists("configmaps") > lists
        })
        .await;
        let truth = world.true_maps().await;
        until("nothing to be missing", || world.maps() == truth).await;
    }
    assert!(matches!(world.cluster.status(), Status::Synced { .. }));
    assert_eq!(world.lists("services"), other_lists);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_takes_longer_than_a_watch_may_last_comes_in_pages() {
    let names = ["a", "b", "c", "d", "e"];
    let world = World::new(brisk(), async |simulated, target| {
        for name in names {
            create_map(target, name).await;
        }
        // No stream ever gets to the end of the list.
        simulated.with(|server| {
            let cut = Fault::CutWatch {
                events: 2,
                torn: false,
            };
            server.faults().add(rule("watch", "configmaps", cut));
        });
    })
    .await;
    world.synced().await;
    until("all to be listed", || {
        names.iter().all(|name| world.has_map(name)) && world.cluster.kind_failures().is_empty()
    })
    .await;
}

fn definition(group: &str, plural: &str, kind: &str, versions: &[(&str, Value)]) -> Value {
    let versions = versions.iter().enumerate().map(|(at, (name, schema))| {
        json!({"name": name, "served": true, "storage": at == 0, "schema": {"openAPIV3Schema": schema}})
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "versions": versions.collect::<Vec<_>>(),
            "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind, "listKind": format!("{kind}List")},
        },
    })
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_definitions_hurt_only_themselves() {
    let plain = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    // A megabyte of schema, one that is 60 levels deep, one that says nothing, and two versions of which one goes.
    let field = |at: usize| {
        (
            format!("field{at}"),
            json!({"type": "string", "description": "x".repeat(200)}),
        )
    };
    let many: serde_json::Map<String, Value> = (0..5000).map(field).collect();
    let huge = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": many}}});
    assert!(huge.to_string().len() > 1 << 20);
    let deep = (0..60).fold(
        json!({"type": "string"}),
        |inner, _| json!({"type": "object", "properties": {"next": inner}}),
    );
    let odd = [
        ("huges", "Huge", vec![("v1", huge)]),
        ("deeps", "Deep", vec![("v1", deep)]),
        ("blanks", "Blank", vec![("v1", plain.clone())]),
        (
            "movers",
            "Mover",
            vec![("v2", plain.clone()), ("v1", plain.clone())],
        ),
        // The name of a built-in kind, in another group.
        ("configmaps", "ConfigMap", vec![("v1", plain.clone())]),
    ];
    let before = resident_mb();
    let world = World::new(brisk(), async |simulated, _| {
        // The OpenAPI document of one group cannot be had: its definition has to do.
        simulated.with(|server| {
            server.faults().add(Rule {
                path: "/openapi/v3/apis/broken.example.com".to_owned(),
                ..rule("", "", Fault::Error(500, None))
            });
        });
    })
    .await;
    world.synced().await;
    let crds = api::custom_resource_definitions();
    for (plural, kind, versions) in &odd {
        create(
            &world.target,
            &crds,
            &definition("odd.example.com", plural, kind, versions),
        )
        .await;
    }
    let broken = definition(
        "broken.example.com",
        "brokens",
        "Broken",
        &[("v1", plain.clone())],
    );
    create(&world.target, &crds, &broken).await;

    let mut kinds: Vec<(&str, &str, &str)> = odd
        .iter()
        .map(|(plural, kind, _)| ("odd.example.com", *plural, *kind))
        .collect();
    kinds.push(("broken.example.com", "brokens", "Broken"));
    for (group, plural, kind) in kinds {
        let known = GroupKind::new(group, kind);
        until(&format!("{kind} to be followed"), || {
            world.cluster.follows(&known) && world.cluster.kind_failure(&known).is_none()
        })
        .await;
        let version = if kind == "Mover" { "v2" } else { "v1" };
        let resource = ApiResource::known(group, version, kind, plural, true);
        let object = json!({"apiVersion": format!("{group}/{version}"), "kind": kind,
            "metadata": {"namespace": "default", "name": "one"}, "spec": {}});
        create(&world.target, &resource, &object).await;
        let key = ResourceKey::new(group, kind, "default", "one");
        until(&format!("the {kind} to be seen"), || {
            world.cluster.snapshot().get(&key).is_some()
        })
        .await;
    }
    // A version goes; its objects do not.
    let one_version = json!({"spec": {"versions": definition("odd.example.com", "movers", "Mover", &[("v2", plain)])["spec"]["versions"]}});
    let patch = Patch::Merge(&one_version);
    world
        .target
        .patch(&crds, "", "movers.odd.example.com", patch, &Write::default())
        .await
        .unwrap();
    until("the version to be gone", || {
        !world
            .cluster
            .api_versions()
            .iter()
            .any(|version| version == "odd.example.com/v1/Mover")
    })
    .await;
    let mover = ResourceKey::new("odd.example.com", "Mover", "default", "one");
    assert!(world.cluster.snapshot().get(&mover).is_some());

    // What is known of the other kinds is as good as ever, and so is what is said of them.
    let root = |group: &str, version: &str, kind: &str| {
        let schemas = world.cluster.schemas();
        schemas
            .root(&GroupVersionKind::new(group, version, kind))
            .is_some()
    };
    until("the schemas to be known", || root("apps", "v1", "Deployment")).await;
    until("the huge schema to be known", || {
        root("odd.example.com", "v1", "Huge")
    })
    .await;
    until("a definition to do", || {
        root("broken.example.com", "v1", "Broken")
    })
    .await;
    assert!(
        world.cluster.kind_failures().is_empty(),
        "{:?}",
        world.cluster.kind_failures()
    );
    create_map(&world.target, "beside").await;
    until("other kinds to go on", || world.has_map("beside")).await;
    let grown = resident_mb().saturating_sub(before);
    // With the simulated server's own copies, and with what tests beside this one take meanwhile.
    assert!(grown < 400, "resident memory grew by {grown} MB");
}

#[derive(clap::Parser)]
struct Command {
    #[command(flatten)]
    args: argosy_controller::Args,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_cannot_be_read_hurt_only_themselves() {
    use clap::Parser as _;
    let simulated = Simulated::serve(server(), Transport::Tls).await.unwrap();
    let file = kubeconfig(&simulated);
    let auth = ClusterAuth::kubeconfig(Some(file.path()), None).await.unwrap();
    let target = Target::new(connect(auth, Options::default()).await.unwrap());
    for name in [NAMESPACE, "good"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create(&target, &api::namespaces(), &namespace).await;
    }
    // Definitions as an old installation has them: the API server checks nothing.
    let plain = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    for (plural, kind) in [("applications", "Application"), ("appprojects", "AppProject")] {
        let definition = definition("argoproj.io", plural, kind, &[("v1alpha1", plain.clone())]);
        create(&target, &api::custom_resource_definitions(), &definition).await;
    }
    let project = |name: &str, spec: Value| {
        json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"namespace": NAMESPACE, "name": name}, "spec": spec})
    };
    let everything = json!({"sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}]});
    let app = |name: &str, spec: Value| {
        json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"namespace": NAMESPACE, "name": name}, "spec": spec})
    };
    let spec = |project: &str| {
        json!({"project": project, "source": {"repoURL": "https://git.example.com/shop.git", "path": "app"},
            "destination": {"server": auth::IN_CLUSTER_SERVER, "namespace": "good"}})
    };
    let with = |pointer: &str, value: Value| {
        let mut spec = spec("default");
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        spec.pointer_mut(parent).unwrap()[name] = value;
        spec
    };
    let poisoned = [
        app("spec-is-text", json!("text")),
        app("destination-is-a-list", with("/destination", json!([1, 2]))),
        app("source-is-a-number", with("/source", json!(7))),
        app("sources-are-text", with("/sources", json!("text"))),
        app(
            "options-are-numbers",
            with("/syncPolicy", json!({"syncOptions": [1, {"a": 2}]})),
        ),
        app("retry-is-text", with("/syncPolicy", json!({"retry": "often"}))),
    ];
    let names: Vec<String> = poisoned.iter().map(|app| meta::name(app).to_owned()).collect();
    for app in &poisoned {
        create(&target, &api::applications(), app).await;
    }
    // These can be read; what the duration means cannot, and a status is ours to write anew.
    let mut status_is_text = app("status-is-text", spec("default"));
    status_is_text["status"] = json!("text");
    create(&target, &api::applications(), &status_is_text).await;
    let duration = json!({"automated": {}, "retry": {"limit": 2, "backoff": {"duration": "banana", "maxDuration": "-"}}});
    create(
        &target,
        &api::applications(),
        &app("duration-is-a-fruit", with("/syncPolicy", duration)),
    )
    .await;
    create(&target, &api::app_projects(), &project("default", everything)).await;
    create(
        &target,
        &api::app_projects(),
        &project("broken", json!({"destinations": "everywhere", "roles": 3})),
    )
    .await;
    create(
        &target,
        &api::applications(),
        &app("of-a-broken-project", spec("broken")),
    )
    .await;
    for (name, data) in [
        (
            "no-config",
            json!({"server": "aHR0cHM6Ly9hLmV4YW1wbGUuY29t", "config": "e25vdCBqc29u"}),
        ),
        ("no-server", json!({"name": "bm8tc2VydmVy"})),
        ("no-data", json!({})),
    ] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": data, "metadata": {"namespace": NAMESPACE, "name": name,
            "labels": {"argocd.argoproj.io/secret-type": "cluster"}}});
        create(&target, &api::secrets(), &secret).await;
    }
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": NAMESPACE, "name": "argocd-cm", "labels": {"app.kubernetes.io/part-of": "argocd"}},
        "data": {"resource.customizations": "{ not yaml", "resource.exclusions": "7", "timeout.reconciliation": "soon",
            "resource.customizations.ignoreDifferences.apps_Deployment": "jqPathExpressions: [\"[[[\"]"}});
    create(&target, &api::config_maps(), &settings).await;
    // And one that is as it should be, with something to do that needs no repo-server.
    let mut good = app("good", spec("default"));
    let manifest =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made", "namespace": "good"}});
    good["operation"] =
        json!({"sync": {"manifests": [manifest.to_string()]}, "initiatedBy": {"username": "admin"}});
    create(&target, &api::applications(), &good).await;

    let args = Command::parse_from([
        "controller",
        &format!("--namespace={NAMESPACE}"),
        &format!("--kubeconfig={}", file.path().display()),
        "--repo-server=127.0.0.1:1",
        "--metrics-port=0",
        "--tree-port=0",
        "--sync-wave-delay-seconds=0",
    ]);
    let controller = tokio::spawn(argosy_controller::run(args.args));
    let start = Instant::now();
    loop {
        assert!(!controller.is_finished(), "the controller has ended");
        assert!(start.elapsed() < PATIENCE, "in vain");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let made = target.get(&api::config_maps(), "good", "made").await.unwrap();
        let good = target
            .get(&api::applications(), NAMESPACE, "good")
            .await
            .unwrap()
            .unwrap();
        if made.is_some() && good["status"]["operationState"]["phase"] == "Succeeded" {
            break;
        }
    }
    let conditions = async |name: &str| {
        let app = target
            .get(&api::applications(), NAMESPACE, name)
            .await
            .unwrap()
            .unwrap();
        app["status"]["conditions"].to_string()
    };
    for name in names.iter().map(String::as_str).chain(["of-a-broken-project"]) {
        let start = Instant::now();
        loop {
            let told = conditions(name).await;
            if told.contains("cannot be read") || told.contains("broken") {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{name} is told {told}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    controller.abort();
}
