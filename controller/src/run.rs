//! The process: connect, wire the parts, wait for the first lists, dispatch.
//!
//! Two dispatchers take from two queues: looks (refresh and compare) and passes of operations and deletions. A pass
//! that panics costs its own Application a condition and a later try, nothing else.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use argosy_api::condition::{self, ConditionType};
use argosy_api::meta::Time;
use argosy_kube_io::{ClusterAuth, Target, auth, client, endpoints};
use argosy_peers::{Component, Live, Mutual};
use argosy_peers_keeper::Keeper;
use argosy_repo_client::RepoClient;
use argosy_runtime::clock::{Clock, System};
use argosy_runtime::tasks::{Tasks, caught};
use argosy_runtime::{log, metrics as port};
use argosy_shard_coordinator::own::{self, Own};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::args::{Args, ENV_PREFIX, METRICS_PORT};
use crate::clusters::{Clusters, FenceOf, Pace, Setup};
use crate::context::{AppKey, Context};
use crate::dirty::{Marker, deleting, wants_operation};
use crate::metrics::{KnowledgeCollector, Metrics, StateCollector};
use crate::operation::{self, Next};
use crate::queue::{Groups, Queue, Reason, Refresh, Work};
use crate::shards::{Shards, ShardsCollector};
use crate::{apps, deletion, events, metrics, reconcile, redis, settings, status, tree};

/// Tasks may finish what they have in hand for so long after a signal; clusters are handed over in that time. Kubernetes
/// kills after 30 s.
const GRACE: Duration = Duration::from_secs(25);
/// An Application whose pass panicked is looked at again after so long.
const AFTER_PANIC: Duration = Duration::from_secs(60);
/// An operation in hand is asked for again after at most so long (Argo CD's backstop).
const OPERATION_BACKSTOP: Duration = Duration::from_secs(30);
/// Live changes during an operation are looked at so much later: its end is looked at anyway.
const DURING_OPERATION: Duration = Duration::from_secs(1);

/// Runs the controller until a signal, or until something without which it is of no use fails.
pub async fn run(args: Args) -> anyhow::Result<()> {
    // A second start in one process (tests) keeps the first one's logs.
    if let Err(error @ log::Error::Filter { .. }) = log::init(&args.log, ENV_PREFIX) {
        return Err(error.into());
    }
    argosy_runtime::process::return_memory_when_idle();
    let tasks = Tasks::new();
    let surroundings = Surroundings::find(&args).await?;
    start(args, surroundings, &tasks).await?;
    tasks.run_until_stopped(GRACE).await?;
    Ok(())
}

/// What a controller has around it. Simulations make their own.
pub struct Surroundings {
    /// The control plane's API server.
    pub auth: ClusterAuth,
    /// This process's place among the shards.
    pub shard: Own,
    /// Renders sources into manifests; without it the repo-server that the flags name.
    pub repo: Option<RepoClient>,
    /// The clocks of the machine.
    pub clock: Arc<dyn Clock>,
}

impl Surroundings {
    /// What flags, environment and machine say.
    async fn find(args: &Args) -> anyhow::Result<Self> {
        Ok(Surroundings {
            auth: ClusterAuth::infer(args.kubeconfig.as_deref(), args.context.as_deref())
                .await
                .context("find the control plane's API server")?,
            shard: own::from_env().context("find out which shard this is")?,
            repo: None,
            clock: Arc::new(System),
        })
    }
}

/// Starts everything on `tasks` and returns once it is wired; lists are still coming in.
///
/// # Errors
/// When the control plane cannot be reached, a port is taken, or a file that a flag names cannot be read.
pub async fn start(args: Args, around: Surroundings, tasks: &Tasks) -> anyhow::Result<Arc<Context>> {
    let Surroundings {
        auth,
        shard,
        repo,
        clock,
    } = around;
    let namespace = args
        .namespace
        .clone()
        .unwrap_or_else(|| auth.namespace().to_owned());
    if shard.guessed {
        warn!("neither ARGOCD_CONTROLLER_SHARD nor the host name says which shard this is: taking 0");
    }
    let control_plane = argosy_kube_io::connect(auth.clone(), client::Options::default())
        .await
        .context("connect to the control plane's API server")?;
    let target = Target::new(control_plane.clone());
    let options = args.options(namespace.clone());

    let apps = apps::Store::new(&namespace);
    let looks = fair_queue(&apps, args.status_processors);
    let operations = fair_queue(&apps, args.operation_processors);
    let marker = Arc::new(Marker::new(
        apps.clone(),
        looks.clone(),
        operations.clone(),
        options.resync,
        options.resync_jitter,
    ));
    let settings = settings::Store::new(&namespace);
    let mut registry = port::registry();
    let metrics = Metrics::new(&mut registry);

    // Settings first: what tracks what, and which kinds are watched, is theirs to say.
    let settings_ready = spawn_settings(tasks, &settings, &control_plane);
    settings_ready.wait().await;

    let (replicas, mode, number) = (shard.replicas, shard.mode, shard.shard);
    let shards = Shards::new(shard, clock.clone());
    let ownership = shards.ownership();
    let clusters = Clusters::start(Setup {
        client: control_plane.clone(),
        namespace: namespace.clone(),
        sink: marker.clone(),
        rules: settings.get().cluster_rules(),
        owns: shards.owns(),
        fence: ownership
            .clone()
            .map(|ownership| -> FenceOf { Arc::new(move |server: &str| ownership.fence(server)) }),
        policy: auth::Policy {
            allow_exec: args.allow_exec_credentials,
        },
        pace: Pace::default(),
        tasks: tasks.clone(),
        clock: clock.clone(),
    });
    metrics.set_clusters(clusters.clone());
    {
        let (marker, clusters) = (marker.clone(), clusters.clone());
        tasks.spawn("cluster changes", async move {
            marker
                .follow_clusters(|server| clusters.info(server).map(|info| info.name))
                .await;
        });
    }
    let filter = events::Filter::parse(&std::env::var("ARGOCD_ENABLE_K8S_EVENT").unwrap_or_default());
    let (recorder, writer) = events::recorder(target.clone(), filter, clock.clone());
    tasks.spawn("events", writer.run());
    registry.register_collector(Box::new(StateCollector {
        metrics: metrics.clone(),
        apps: apps.clone(),
        clusters: clusters.clone(),
        refreshes: looks.clone(),
        operations: operations.clone(),
        clock: clock.clone(),
        labels: args.metrics_application_labels.clone(),
        conditions: args.metrics_application_conditions.clone(),
    }));
    registry.register_collector(Box::new(KnowledgeCollector {
        metrics: metrics.clone(),
        apps: apps.clone(),
        clusters: clusters.clone(),
        queues: [
            (metrics::LOOKS, looks.clone()),
            (metrics::OPERATIONS, operations.clone()),
        ],
        clock: clock.clone(),
    }));
    let writer = status::Writer::new(target.clone(), apps.clone(), marker.clone());
    let writer = match ownership.clone() {
        Some(ownership) => writer.behind(ownership.clone(), clusters.clone()),
        None => writer,
    };
    if let (Some(known), Some(ownership)) = (shards.known(), ownership.clone()) {
        registry.register_collector(Box::new(ShardsCollector { known, ownership }));
    }
    let (looked, for_argo_cd) = redis::prepare(&args.redis)?.unzip();
    let live = match args.mutual_tls {
        Mutual::Off => Arc::default(),
        _ => {
            let keeper = Keeper::new(target.clone(), &namespace, Component::Controller);
            keeper.start(tasks).await
        }
    };
    let repo = match repo {
        Some(repo) => repo,
        None => repo_server(&args, tasks, &live, &control_plane, &namespace)?,
    };
    let ctx = Arc::new(Context {
        looked,
        status: Arc::new(writer),
        ownership,
        repo,
        apps: apps.clone(),
        settings: settings.clone(),
        clusters: clusters.clone(),
        queue: looks.clone(),
        memos: Default::default(),
        events: recorder,
        metrics,
        options,
        clock,
    });

    let namespaces = apps::Namespaces::new(&namespace, &args.application_namespaces);
    let listed = follow(tasks, &ctx, &marker, &control_plane, namespaces);
    follow_settings(tasks, &ctx, &marker);
    let lease_client = match shards.known() {
        // Connections of their own: renewals wait for nothing else.
        Some(_) => argosy_kube_io::connect(auth, client::Options::default())
            .await
            .context("connect to the control plane's API server for leases")?,
        None => control_plane.clone(),
    };
    shards.start(tasks, &ctx, &marker, lease_client);
    let health = port::Health {
        live: shards.live(),
        ready: Some(listed.check()),
    };
    port::serve(tasks, args.metrics.socket(METRICS_PORT), registry, health).await?;

    tree::serve(tasks, &args, &ctx, target, live)?;
    if let Some(waiting) = for_argo_cd {
        redis::start(tasks, &ctx, waiting);
    }

    let (dispatching, started) = ((tasks.clone(), ctx.clone(), marker.clone()), ctx);
    let (looks_max, operations_max) = (args.status_processors, args.operation_processors);
    tasks.spawn("dispatch", async move {
        let (tasks, ctx, marker) = dispatching;
        // A look before projects and clusters are known would call them missing.
        listed.wait().await;
        ctx.clusters.ready().await;
        info!("everything is listed, looking at applications");
        let look = dispatch(
            &tasks,
            &ctx,
            (&looks, metrics::LOOKS),
            looks_max,
            "look",
            |work| {
                let (ctx, marker, looks) = (ctx.clone(), marker.clone(), looks.clone());
                async move { look(&ctx, &marker, &looks, &work).await }
            },
        );
        let memories: Arc<Memories> = Arc::default();
        let operate = dispatch(
            &tasks,
            &ctx,
            (&operations, metrics::OPERATIONS),
            operations_max,
            "operation",
            |work| {
                let (ctx, operations, memories) = (ctx.clone(), operations.clone(), memories.clone());
                async move { operate(&ctx, &operations, &memories, &work).await }
            },
        );
        tokio::join!(look, operate);
    });
    info!(
        namespace,
        shard = number,
        replicas,
        sharding = ?mode,
        "started"
    );
    Ok(started)
}

/// A queue in which one cluster, whose API server may be slow, leaves a quarter of the workers to the others.
fn fair_queue(apps: &Arc<apps::Store>, workers: usize) -> Arc<Queue> {
    let apps = apps.clone();
    Queue::fair(Groups {
        of: Box::new(move |key| apps.is_spread().then(|| apps.destination_of(key)).flatten()),
        most: (workers - workers / 4).max(1),
    })
}

/// The way to the repo-server that the flags name, with the certificates that are kept.
fn repo_server(
    args: &Args,
    tasks: &Tasks,
    live: &Arc<Live>,
    control_plane: &client::Client,
    namespace: &str,
) -> anyhow::Result<RepoClient> {
    let mut config = args.repo_server().config(tasks, live)?;
    if args.repo_server_endpoints {
        config.told = Some(endpoints::ready_replicas(
            tasks,
            control_plane,
            &args.repo_server,
            namespace,
        )?);
    }
    RepoClient::new(config).context("configure the repo-server client")
}

/// First lists that are still awaited.
#[derive(Clone)]
struct Listed(Vec<(&'static str, watch::Receiver<bool>)>);

impl Listed {
    async fn wait(&self) {
        for (_, listed) in &self.0 {
            // A sender that is gone means that the process is ending.
            let _ = listed.clone().wait_for(|listed| *listed).await;
        }
    }

    fn check(&self) -> port::Check {
        let listed = self.0.clone();
        Arc::new(
            move || match listed.iter().find(|(_, listed)| !*listed.borrow()) {
                Some((what, _)) => Err(format!("{what} are not listed yet")),
                None => Ok(()),
            },
        )
    }
}

fn spawn_settings(tasks: &Tasks, store: &Arc<settings::Store>, client: &client::Client) -> Listed {
    let (tx, rx) = watch::channel(false);
    let (store, client) = (store.clone(), client.clone());
    tasks.spawn_restarting("settings", move || {
        let (store, client, tx) = (store.clone(), client.clone(), tx.clone());
        settings::follow(client, store, move || _ = tx.send_replace(true))
    });
    Listed(vec![("settings", rx)])
}

/// Follows Applications and projects.
fn follow(
    tasks: &Tasks,
    ctx: &Arc<Context>,
    marker: &Arc<Marker>,
    client: &client::Client,
    namespaces: apps::Namespaces,
) -> Listed {
    let (apps_tx, apps_rx) = watch::channel(false);
    let (projects_tx, projects_rx) = watch::channel(false);
    {
        let (store, marker, client) = (ctx.apps.clone(), marker.clone(), client.clone());
        tasks.spawn_restarting("projects", move || {
            let tx = projects_tx.clone();
            apps::follow_projects(client.clone(), store.clone(), marker.clone(), move || {
                _ = tx.send_replace(true)
            })
        });
    }
    let (store, marker, client) = (ctx.apps.clone(), marker.clone(), client.clone());
    tasks.spawn_restarting("applications", move || {
        let tx = apps_tx.clone();
        let (client, namespaces, store, marker) =
            (client.clone(), namespaces.clone(), store.clone(), marker.clone());
        apps::follow_applications(client, namespaces, store, marker, move || {
            _ = tx.send_replace(true)
        })
    });
    Listed(vec![("projects", projects_rx), ("applications", apps_rx)])
}

/// Settings that change are told to the clusters, and every Application is looked at.
fn follow_settings(tasks: &Tasks, ctx: &Arc<Context>, marker: &Arc<Marker>) {
    let (ctx, marker) = (ctx.clone(), marker.clone());
    let mut changes = ctx.settings.subscribe();
    changes.mark_unchanged();
    tasks.spawn("settings changes", async move {
        while changes.changed().await.is_ok() {
            let settings = changes.borrow_and_update().clone();
            ctx.clusters.set_rules(settings.cluster_rules());
            marker.settings();
        }
    });
}

/// Takes work from a queue, which metrics know by its name, for ever, with at most `max` passes at a time.
async fn dispatch<M, F>(
    tasks: &Tasks,
    ctx: &Arc<Context>,
    (queue, queue_name): (&Arc<Queue>, &'static str),
    max: usize,
    name: &'static str,
    make: M,
) where
    M: Fn(Work) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(max.max(1)));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return;
        };
        let work = queue.next().await;
        ctx.metrics.taken(queue_name, work.waited);
        let (ctx, queue, key) = (ctx.clone(), queue.clone(), work.key.clone());
        let (pass, began) = (make(work), Instant::now());
        // A pass that has begun comes to its end, also when the process is to stop: it writes what it has decided.
        tasks.spawn_finishing(name, async move {
            if let Err(message) = caught(pass).await {
                panicked(&ctx, &queue, &key, &message).await;
            }
            queue.done(&key);
            ctx.metrics.worked(queue_name, began.elapsed());
            drop(slot);
        });
    }
}

async fn panicked(ctx: &Context, queue: &Queue, key: &AppKey, message: &str) {
    error!(app = %key.name, app_namespace = %key.namespace, panic = message, "a pass panicked");
    ctx.metrics.panicked();
    queue.mark_after(key, AFTER_PANIC, Refresh::Recent, Reason::Retry);
    let Some(app) = ctx.apps.get(key) else { return };
    let found =
        vec![ConditionType::UnknownError.with_message(format!("a defect of the controller: {message}"))];
    let now = Time::from_timestamp(ctx.clock.now());
    let conditions = condition::updated(&app.status.conditions, found, &[ConditionType::UnknownError], now);
    if conditions != app.status.conditions {
        let patch = json!({"status": {"conditions": conditions}});
        if let Err(error) = ctx.status.patch(&app, patch).await {
            warn!(app = %key.name, error = argosy_runtime::log::chain(&error), "report a panic");
        }
    }
}

async fn look(ctx: &Arc<Context>, marker: &Marker, looks: &Queue, work: &Work) {
    // What an operation is changing is looked at when it is over, or now and then if it takes long.
    let in_operation = || ctx.apps.get(&work.key).is_some_and(|app| wants_operation(&app));
    if work.reasons.only_live() && in_operation() {
        looks.mark_after(&work.key, DURING_OPERATION, work.refresh, Reason::DuringOperation);
        return;
    }
    reconcile::run(ctx, marker, work).await;
}

/// What operations keep in memory between two passes.
type Memories = Mutex<HashMap<AppKey, operation::Memory>>;

async fn operate(ctx: &Arc<Context>, operations: &Queue, memories: &Memories, work: &Work) {
    let key = &work.key;
    let app = ctx
        .apps
        .get(key)
        .filter(|app| !reconcile::skipped(app) && wants_operation(app));
    let Some(app) = app else {
        memories.lock().remove(key);
        return;
    };
    // What was remembered under another epoch, or before another shard had the cluster, is void.
    let epoch = ctx.epoch(&app);
    let ours = match ctx.ownership {
        Some(_) => epoch.is_some(),
        None => ctx.clusters.owns_destination(&app.spec.destination),
    };
    if !ours {
        memories.lock().remove(key);
        return;
    }
    let mut memory = memories.lock().remove(key).unwrap_or_default();
    if memory.epoch != epoch {
        memory = operation::Memory::default();
        memory.epoch = epoch;
    }
    let going_on = app.operation.is_some()
        || app
            .status
            .operation_state
            .as_ref()
            .is_some_and(|state| !completed(&state.phase));
    let next = match going_on {
        true => operation::run(ctx, &app, &mut memory).await,
        false => deletion::run(ctx, &app).await,
    };
    match next {
        Next::Done => {
            let app = ctx.apps.get(key);
            if let Some(app) = app.filter(|_| going_on) {
                ctx.metrics.operation_ended(&app);
                ctx.queue.mark(key, Refresh::Latest, Reason::Operation);
                if deleting(&app) {
                    operations.mark(key, Refresh::Nothing, Reason::Operation);
                }
            }
        }
        Next::Again => {
            memories.lock().insert(key.clone(), memory);
            operations.mark(key, Refresh::Nothing, Reason::Operation);
        }
        Next::Wait { at_most } => {
            memories.lock().insert(key.clone(), memory);
            operations.reschedule(
                key,
                at_most.min(OPERATION_BACKSTOP),
                Refresh::Nothing,
                Reason::Operation,
            );
        }
    }
}

fn completed(phase: &str) -> bool {
    phase
        .parse()
        .is_ok_and(argosy_api::v1alpha1::OperationPhase::completed)
}
