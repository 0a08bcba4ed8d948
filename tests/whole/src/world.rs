//! A control plane, targets, Git, and pods with controllers in them, on one true time.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use argosy_controller::{Args, Context, Surroundings};
use argosy_kube_io::ClusterAuth;
use argosy_object::Value;
use argosy_repo_client::{Config, RepoClient, Tls};
use argosy_runtime::clock::Clock;
use argosy_runtime::dial::{Dial, Stream};
use argosy_runtime::tasks::Tasks;
use argosy_shard_coordinator::assignment::Algorithm;
use argosy_shard_coordinator::own::{Mode, Own};
use argosy_shard_coordinator::timing::Timing;
use argosy_simulation::serve::Unbound;
use argosy_simulation::{ADMIN_TOKEN, ApiServer, Options};
use clap::Parser;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

use crate::check::{Checker, application, call, get};
use crate::git::{self, Git};
use crate::host::Host;
use crate::network::{Network, ProcessId};
use crate::witness::{Command, Dice, Look};

/// The control plane's namespace.
pub(crate) const NAMESPACE: &str = "argocd";
/// Where Applications deploy to.
pub(crate) const SAMPLE: &str = "sample";
/// The control plane's API server.
pub(crate) const CONTROL: &str = "control.example:80";
const REPO_SERVER: &str = "10.0.0.9:8081";
/// Machines run so long at a time, one after the other.
const TICK: Duration = Duration::from_millis(10);
/// Clocks run so many thousandths apart from true time at most.
const APART: i64 = 100;
/// An orderly end may take so long.
const GRACE: Duration = Duration::from_secs(25);

/// True time as servers tell it.
pub(crate) fn time(at: Duration) -> Timestamp {
    let beginning = Timestamp::from_second(1_800_000_000).unwrap_or_default();
    let passed = SignedDuration::try_from(at).unwrap_or_default();
    beginning.checked_add(passed).unwrap_or(Timestamp::MAX)
}

/// The URL of a target.
pub(crate) fn url(target: usize) -> String {
    format!("http://{}", address(target))
}

/// Its address.
pub(crate) fn address(target: usize) -> String {
    format!("target-{target}.example:80")
}

/// The Application of a target.
pub(crate) fn app_of(target: usize) -> String {
    format!("shop-{target}")
}

/// Everything there is.
pub(crate) struct World {
    pub(crate) chance: fastrand::Rng,
    pub(crate) now: Duration,
    pub(crate) network: Network,
    pub(crate) git: Git,
    pub(crate) checker: Arc<Mutex<Checker>>,
    pub(crate) dice: Arc<Mutex<Dice>>,
    pub(crate) control: Arc<Unbound>,
    pub(crate) targets: Vec<Arc<Unbound>>,
    pub(crate) pods: Vec<Pod>,
    /// All that watches have left out is found by then.
    pub(crate) looked: Duration,
    processes: ProcessId,
    kubeconfig: tempfile::NamedTempFile,
    mode: Mode,
    /// Where the servers run. Dropped last.
    ground: Host,
}

/// A place for a controller, which is started again whenever it ends.
pub(crate) struct Pod {
    /// Its uid.
    pub(crate) name: String,
    ordinal: u32,
    pub(crate) process: ProcessId,
    pub(crate) state: State,
    running: Option<Running>,
    /// How far its clock is from true time, in seconds.
    skew: i64,
    fast: i64,
    lives: u32,
}

/// What a pod is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its controller runs.
    Runs,
    /// The machine stands still until then.
    Stands(Duration),
    /// It is started at that time.
    Down(Duration),
}

struct Running {
    context: Arc<OnceLock<Arc<Context>>>,
    tasks: Tasks,
    life: tokio::task::JoinHandle<Result<()>>,
    host: Host,
}

/// The clocks of one process.
struct ProcessClock {
    start: Instant,
    wall: Timestamp,
}

impl Clock for ProcessClock {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.start.elapsed()).unwrap_or_default();
        self.wall.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    fn since_boot(&self) -> Duration {
        self.start.elapsed()
    }
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

impl World {
    pub(crate) fn new(seed: u64, pods: usize, targets: usize) -> Result<Self> {
        let mut chance = fastrand::Rng::with_seed(seed);
        // What the controllers leave to chance.
        fastrand::seed(chance.u64(..));
        let network = Network::new(chance.u64(..));
        let git = Git::default();
        git.commit();
        let checker = Arc::new(Mutex::new(Checker::new(git.clone(), pods == 1)));
        let dice = Arc::new(Mutex::new(Dice::new(chance.u64(..))));
        let ground = Host::new(Duration::ZERO, 0)?;
        let serve = |seed: u64, address: &str, target: Option<usize>| {
            let options = Options {
                seed,
                nodes: 1,
                ..Options::default()
            };
            let guard = ground.runtime().enter();
            let clock = network.clone();
            let server = ApiServer::new(options, time(Duration::ZERO));
            let server = Arc::new(Unbound::start(server, Arc::new(move || time(clock.now()))));
            drop(guard);
            let (sender, mut arrivals) = unbounded_channel();
            network.listen(address, sender);
            let (serving, network) = (server.clone(), network.clone());
            let (checker, dice) = (checker.clone(), dice.clone());
            ground.runtime().spawn(async move {
                while let Some(arrival) = arrivals.recv().await {
                    let look = Look {
                        target,
                        from: arrival.from,
                        network: network.clone(),
                        checker: checker.clone(),
                        dice: dice.clone(),
                    };
                    tokio::spawn(serving.serve(arrival.end, Arc::new(look)));
                }
            });
            server
        };
        let control = serve(chance.u64(..), CONTROL, None);
        let servers: Vec<_> = (0..targets)
            .map(|target| serve(chance.u64(..), &address(target), Some(target)))
            .collect();
        let (sender, mut arrivals) = unbounded_channel();
        network.listen(REPO_SERVER, sender);
        let repository = git.clone();
        ground.runtime().spawn(async move {
            while let Some(arrival) = arrivals.recv().await {
                tokio::spawn(repository.clone().serve(arrival.end));
            }
        });
        for (target, server) in servers.iter().enumerate() {
            checker.lock().target(&url(target), server);
        }
        let kubeconfig = tempfile::NamedTempFile::new()?;
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "simulated",
            "clusters": [{"name": "simulated", "cluster": {"server": format!("http://{CONTROL}")}}],
            "users": [{"name": "admin", "user": {"token": ADMIN_TOKEN}}],
            "contexts": [{"name": "simulated", "context": {"cluster": "simulated", "user": "admin"}}],
        });
        std::fs::write(kubeconfig.path(), config.to_string())?;
        let mut world = World {
            now: Duration::ZERO,
            network,
            git,
            checker,
            dice,
            control,
            targets: servers,
            pods: Vec::new(),
            looked: Duration::ZERO,
            processes: 0,
            kubeconfig,
            mode: if pods > 1 { Mode::Leases } else { Mode::Alone },
            ground,
            chance,
        };
        world.furnish()?;
        for ordinal in 0..pods {
            let starts = Duration::from_millis(world.chance.u64(..3000));
            let pod = Pod {
                name: format!("pod-{ordinal}"),
                ordinal: ordinal as u32,
                process: 0,
                state: State::Down(starts),
                running: None,
                skew: world.chance.i64(-1200..1200),
                fast: world.chance.i64(-APART..=APART),
                lives: 0,
            };
            world.pods.push(pod);
        }
        Ok(world)
    }

    /// What people set up: kinds, a project, clusters and Applications.
    fn furnish(&mut self) -> Result<()> {
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        for crd in argosy_api::crds() {
            self.create(None, crds, &crd)?;
        }
        let namespace =
            |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.create(None, "/api/v1/namespaces", &namespace(NAMESPACE))?;
        for target in 0..self.targets.len() {
            self.create(Some(target), "/api/v1/namespaces", &namespace(SAMPLE))?;
            let config = json!({"bearerToken": ADMIN_TOKEN});
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {
                    "name": format!("cluster-{target}"), "namespace": NAMESPACE,
                    "labels": {"argocd.argoproj.io/secret-type": "cluster"},
                },
                "stringData": {
                    "name": format!("cluster-{target}"), "server": url(target), "config": config.to_string(),
                },
            });
            self.create(None, &format!("/api/v1/namespaces/{NAMESPACE}/secrets"), &secret)?;
        }
        // The controllers of the control plane serve the new kinds first.
        for _ in 0..200 {
            self.step()?;
        }
        let ours = format!("/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}");
        let project = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": "default", "namespace": NAMESPACE},
            "spec": {
                "sourceRepos": ["*"],
                "destinations": [{"server": "*", "namespace": "*"}],
                "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
            },
        });
        self.create(None, &format!("{ours}/appprojects"), &project)?;
        for target in 0..self.targets.len() {
            let app = json!({
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
                "metadata": {"name": app_of(target), "namespace": NAMESPACE},
                "spec": {
                    "project": "default",
                    "source": {"repoURL": "https://git.example/shop.git", "path": "app", "targetRevision": "main"},
                    "destination": {"server": url(target), "namespace": SAMPLE},
                    "syncPolicy": {
                        "automated": {"prune": true, "selfHeal": true},
                        "retry": {"limit": 100, "backoff": {"duration": "1s", "factor": 2, "maxDuration": "8s"}},
                    },
                },
            });
            self.create(None, &format!("{ours}/applications"), &app)?;
        }
        Ok(())
    }

    fn create(&self, target: Option<usize>, path: &str, object: &Value) -> Result<()> {
        let (code, answer) = self
            .server(target)
            .with(|server| call(server, Method::POST, path, object, self.now));
        ensure!(code == 201, "create {path}: {code} {answer}");
        Ok(())
    }

    /// The control plane, or a target.
    pub(crate) fn server(&self, target: Option<usize>) -> &Arc<Unbound> {
        target.map_or(&self.control, |target| &self.targets[target])
    }

    /// An object as a server has it.
    pub(crate) fn get(&self, target: Option<usize>, path: &str) -> Value {
        self.server(target).with(|server| get(server, path, self.now))
    }

    /// Lets so much time pass, as long as nothing is broken.
    pub(crate) fn pass(&mut self, time: Duration) -> Result<()> {
        let until = self.now + time;
        while self.now < until && self.checker.lock().broken.is_none() {
            self.step()?;
        }
        Ok(())
    }

    /// A tick on every machine.
    pub(crate) fn step(&mut self) -> Result<()> {
        self.now += TICK;
        self.network.advance(self.now);
        self.ground.drive(self.now);
        let commands = std::mem::take(&mut self.dice.lock().commands);
        for command in commands {
            self.obey(command);
        }
        let first = self.chance.usize(..self.pods.len().max(1));
        for nth in 0..self.pods.len() {
            let pod = (first + nth) % self.pods.len();
            self.turn(pod)?;
        }
        Ok(())
    }

    fn turn(&mut self, nth: usize) -> Result<()> {
        let now = self.now;
        let pod = &mut self.pods[nth];
        match pod.state {
            State::Stands(until) if now < until => return Ok(()),
            State::Down(until) if now < until => return Ok(()),
            State::Down(_) => self.start(nth)?,
            _ => pod.state = State::Runs,
        }
        let pod = &mut self.pods[nth];
        let Some(running) = &mut pod.running else {
            return Ok(());
        };
        running.host.drive(now);
        if running.life.is_finished() {
            // As Kubernetes does it, in the same pod.
            pod.state = State::Down(now + Duration::from_secs(2));
            pod.running = None;
            self.network.ended(pod.process, false);
            self.checker.lock().dead.insert(pod.process);
        }
        Ok(())
    }

    fn start(&mut self, nth: usize) -> Result<()> {
        self.processes += 1;
        let process = self.processes;
        let pod = &mut self.pods[nth];
        let host = Host::new(self.now, pod.fast)?;
        let network = self.network.clone();
        let dial = Dial::new(move |address| {
            let (network, address) = (network.clone(), address.to_owned());
            Box::pin(async move {
                let end = network.dial(process, address).await?;
                Ok(Box::new(end) as Box<dyn Stream>)
            })
        });
        let shard = Own {
            mode: self.mode,
            name: pod.name.clone(),
            alone: true,
            ordinal: Some(pod.ordinal),
            timing: Timing::default(),
            replicas: 1,
            shard: 0,
            algorithm: Algorithm::Legacy,
            guessed: false,
        };
        let args = Line::try_parse_from([
            "controller",
            &format!("--namespace={NAMESPACE}"),
            "--metrics-address=127.0.0.1:0",
            "--tree-port=0",
            "--app-resync=10s",
            "--app-resync-jitter=0",
            "--mutual-tls=off",
        ])?
        .args;
        let wall = time(self.now)
            .checked_add(SignedDuration::from_secs(pod.skew))
            .unwrap_or_default();
        let (context, tasks): (Arc<OnceLock<Arc<Context>>>, _) = (Arc::default(), Tasks::new());
        let (put, stopping) = (context.clone(), tasks.clone());
        let kubeconfig = self.kubeconfig.path().to_owned();
        let life = host.runtime().spawn(async move {
            let auth = ClusterAuth::kubeconfig(Some(&kubeconfig), None).await?;
            let repo = RepoClient::new(Config {
                address: REPO_SERVER.to_owned(),
                tls: Tls::Plaintext,
                dial: Some(dial.clone()),
                ..Config::default()
            })?;
            let around = Surroundings {
                auth: auth.dialing(dial),
                shard,
                repo: Some(repo),
                clock: Arc::new(ProcessClock {
                    start: Instant::now(),
                    wall,
                }),
            };
            let context = argosy_controller::start(args, around, &stopping).await?;
            let _ = put.set(context);
            stopping.stopping().cancelled().await;
            stopping.finish(GRACE).await.context("end a controller")
        });
        pod.running = Some(Running {
            context,
            tasks,
            life,
            host,
        });
        pod.process = process;
        tracing::debug!(at = ?self.now, pod = nth, process, name = pod.name, "a process starts");
        pod.state = State::Runs;
        pod.lives += 1;
        Ok(())
    }

    pub(crate) fn obey(&mut self, command: Command) {
        match command {
            Command::Kill {
                process,
                lost,
                new_pod,
                pause,
            } => {
                if let Some(nth) = self.pods.iter().position(|pod| pod.process == process) {
                    self.kill(nth, lost, new_pod, pause);
                }
            }
            Command::Stop { process, pause } => {
                if let Some(nth) = self.pods.iter().position(|pod| pod.process == process) {
                    self.stand(nth, pause);
                }
            }
        }
    }

    /// `kill -9`. What it sent last may be lost; another follows in the same pod, or in a new one.
    pub(crate) fn kill(&mut self, nth: usize, lost: bool, new_pod: bool, pause: Duration) {
        let now = self.now;
        let pod = &mut self.pods[nth];
        if pod.running.take().is_none() {
            return;
        }
        tracing::debug!(?now, pod = nth, lost, new_pod, ?pause, "a process is killed");
        self.network.ended(pod.process, lost);
        self.checker.lock().dead.insert(pod.process);
        pod.state = State::Down(now + pause);
        if new_pod {
            pod.name = format!("pod-{}-{}", pod.ordinal, pod.lives);
        }
    }

    /// The machine stands still.
    pub(crate) fn stand(&mut self, nth: usize, pause: Duration) {
        let now = self.now;
        let pod = &mut self.pods[nth];
        if let (Some(running), State::Runs) = (&mut pod.running, pod.state) {
            running.host.stand();
            pod.state = State::Stands(now + pause);
        }
    }

    /// The process is told to end.
    pub(crate) fn tell_to_end(&mut self, nth: usize) {
        if let Some(running) = &self.pods[nth].running {
            running.tasks.stop();
        }
    }

    /// Everybody runs, and every network is whole.
    pub(crate) fn mend(&mut self) {
        for nth in 0..self.pods.len() {
            self.connect(nth);
            let now = self.now;
            let pod = &mut self.pods[nth];
            pod.state = match pod.state {
                State::Stands(until) => State::Stands(until.min(now)),
                State::Down(until) => State::Down(until.min(now)),
                State::Runs => State::Runs,
            };
        }
        for server in self.targets.iter().chain([&self.control]) {
            server.with(|server| {
                server.faults().clear();
                server.lose_changes(0);
            });
        }
    }

    /// Every network of a pod is whole.
    pub(crate) fn connect(&mut self, nth: usize) {
        let process = self.pods[nth].process;
        self.network.cut(process, CONTROL, false);
        self.network.cut(process, REPO_SERVER, false);
        for target in 0..self.targets.len() {
            self.network.cut(process, &address(target), false);
        }
    }

    /// What the controller in a pod knows, once it has started.
    pub(crate) fn context(&self, nth: usize) -> Option<&Arc<Context>> {
        self.pods[nth].running.as_ref()?.context.get()
    }

    /// The pod whose process owns a target.
    pub(crate) fn owner(&self, target: usize) -> Option<usize> {
        if self.mode == Mode::Alone {
            return Some(0);
        }
        let process = self.checker.lock().owner(&url(target))?;
        self.pods.iter().position(|pod| pod.process == process)
    }

    /// Applications that are not Synced to the newest commit and Healthy, and what they say.
    pub(crate) fn unsettled(&self) -> Vec<String> {
        let revision = git::hash(self.git.head());
        let mut found = Vec::new();
        for target in 0..self.targets.len() {
            let name = app_of(target);
            let app = self.get(None, &application(&name));
            let status = &app["status"];
            let settled = status["sync"]["status"] == "Synced"
                && status["sync"]["revision"] == revision.as_str()
                && status["health"]["status"] == "Healthy"
                && status["operationState"]["phase"] == "Succeeded";
            if !settled {
                found.push(format!(
                    "{name}: sync {}, health {}, operation {} {}, conditions {}",
                    status["sync"],
                    status["health"]["status"],
                    status["operationState"]["phase"],
                    status["operationState"]["message"],
                    status["conditions"],
                ));
            }
        }
        found
    }
}
