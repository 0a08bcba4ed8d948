//! `argosy demo`: the main job where a person can watch it.
//!
//! A control plane on loopback (simulated, or a real one), a Git repository made of `examples/`, Argosy beside them as an operator would run it, and
//! the examples' Applications. They are synced; then a commit is made, and it arrives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use argosy_object::{Value, meta, yaml};
use argosy_test_cluster::api::{Api, kinds};
use argosy_test_cluster::git::Repository;
use argosy_test_cluster::installation::{Installation, Options};
use argosy_test_cluster::{Binaries, Cluster};
use serde_json::json;

use crate::output;

/// The address that the examples' Applications name, to be replaced by that of the sample repository.
const PLACEHOLDER: &str = "https://git.example.test/argosy-examples.git";

/// The control plane's namespace.
const NAMESPACE: &str = "argocd";

/// How soon the demo's commit is noticed: people wait for it.
const ATTENTION: Duration = Duration::from_secs(3);

/// All Applications are Synced well before this, or something is wrong.
const DEADLINE: Duration = Duration::from_secs(180);

/// The Application whose folder the demo's commit touches, and the file that the commit adds.
const COMMITTED_APPLICATION: &str = "guestbook";
const COMMITTED_FILE: &str = "note.yaml";
const COMMITTED_RESOURCE: &str = "note-from-the-second-commit";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// End after the commit has arrived; exit code 0 only if all Applications are Synced.
    #[arg(long)]
    once: bool,
    /// Print one summary object instead of the story.
    #[arg(long, requires = "once")]
    json: bool,
    /// What Argosy runs on.
    #[arg(long, value_enum, default_value_t = Plane::Simulated)]
    control_plane: Plane,
    /// The folder with the sample repository's content and its Applications.
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples"))]
    examples: PathBuf,
}

/// The Kubernetes that the demo runs on.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Plane {
    /// A simulated API server in this process, there at once.
    Simulated,
    /// etcd, kube-apiserver and kube-controller-manager, as `cargo xtask tools` builds them. There are no nodes, so no Pod runs.
    Real,
}

/// A running control plane. It ends with this value.
enum ControlPlane {
    Simulated {
        _cluster: argosy_simulation::Cluster,
        kubeconfig: PathBuf,
    },
    Real(Box<Cluster>),
}

impl ControlPlane {
    async fn start(plane: Plane, dir: &Path, story: &Story) -> Result<Self> {
        match plane {
            Plane::Simulated => {
                story.tell("Starting a simulated Kubernetes API server on loopback");
                let options = argosy_simulation::Options::default();
                let transport = argosy_simulation::serve::Transport::Tls;
                let cluster = argosy_simulation::Cluster::start(options, transport).await?;
                let kubeconfig = dir.join("kubeconfig");
                std::fs::write(&kubeconfig, serde_json::to_vec_pretty(&cluster.kubeconfig()?)?)
                    .with_context(|| format!("write {}", kubeconfig.display()))?;
                Ok(Self::Simulated {
                    _cluster: cluster,
                    kubeconfig,
                })
            }
            Plane::Real => {
                story.tell("Starting a Kubernetes control plane (etcd, kube-apiserver, kube-controller-manager) on loopback");
                Ok(Self::Real(Box::new(Cluster::start(Binaries::locate()?)?)))
            }
        }
    }

    /// Whether Pods come to run, so that all can become Healthy. A real control plane has no nodes here.
    fn runs_pods(&self) -> bool {
        matches!(self, Self::Simulated { .. })
    }

    fn kubeconfig(&self) -> PathBuf {
        match self {
            Self::Simulated { kubeconfig, .. } => kubeconfig.clone(),
            Self::Real(cluster) => cluster.kubeconfig(),
        }
    }
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let story = Story {
        quiet: args.json,
        started: Instant::now(),
    };
    let scratch = tempfile::Builder::new().prefix("argosy-demo-").tempdir()?;

    let plane = ControlPlane::start(args.control_plane, scratch.path(), &story).await?;
    story.tell("Making a Git repository from examples/");
    let repository = sample_repository(&args.examples, &scratch.path().join("repository"))?;
    story.tell("Starting argosy repo-server and argosy controller");
    let mut installation = Installation::start_on(
        plane.kubeconfig(),
        Binaries::render_worker_built(),
        Options {
            program: std::env::current_exe().context("find this program")?,
            namespace: NAMESPACE.into(),
            dir: scratch.path().join("argosy"),
            attention: Some(ATTENTION),
        },
    )
    .await?;

    if !args.once {
        story.tell("Starting argosy server");
        installation.start_server(&[])?;
    }
    let names = create_applications(installation.api(), &args.examples, &repository.url()).await?;
    story.tell(&format!(
        "Created {} Applications: {}",
        names.len(),
        names.join(", ")
    ));
    let first = repository.head()?;
    let all_synced = watch(&story, &installation, &names, |application| {
        is_synced(application, &first) && (is_healthy(application) || !plane.runs_pods())
    })
    .await?;

    let arrival = if all_synced {
        commit_and_watch(&story, &installation, &repository).await?
    } else {
        None
    };
    let summary = summary(&installation, &names, &story, all_synced, arrival).await?;
    if args.json {
        output::json(&summary)?;
    } else {
        tell_how_to_look_further(
            &story,
            &plane.kubeconfig(),
            &repository,
            summary["synced"] == true,
        );
    }
    if !args.once {
        tell_how_to_log_in(&installation).await?;
        tokio::select! {
            ended = tokio::signal::ctrl_c() => ended.context("wait for Ctrl-C")?,
            lost = watch_over(&installation) => return Err(lost),
        }
    }
    Ok(if summary["synced"] == true {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Ends when one of the processes has.
async fn watch_over(installation: &Installation) -> anyhow::Error {
    loop {
        if let Err(lost) = installation.check_alive() {
            return lost;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// What is told to a person while it happens.
struct Story {
    quiet: bool,
    started: Instant,
}

impl Story {
    fn tell(&self, text: &str) {
        if !self.quiet {
            println!("{:>6.1} s  {text}", self.started.elapsed().as_secs_f64());
        }
    }
}

fn sample_repository(examples: &Path, dir: &Path) -> Result<Repository> {
    let repository = Repository::init(dir)?;
    for entry in std::fs::read_dir(examples).with_context(|| format!("read {}", examples.display()))? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "apps") {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            repository.copy_in(&path, &name)?;
        }
    }
    repository.commit("The sample repository")?;
    Ok(repository)
}

/// Creates the project and the Applications of `examples/apps`, pointed at the sample repository. Returns the Applications' names.
async fn create_applications(api: &Api, examples: &Path, url: &str) -> Result<Vec<String>> {
    let dir = examples.join("apps");
    let mut objects = Vec::new();
    for entry in std::fs::read_dir(&dir).with_context(|| format!("read {}", dir.display()))? {
        let file = entry?.path();
        let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let parts = yaml::parse_all(
            text.replace(PLACEHOLDER, url).as_bytes(),
            &yaml::Limits::default(),
        );
        objects.extend(
            parts
                .with_context(|| file.display().to_string())?
                .into_iter()
                .map(|part| part.value),
        );
    }
    // The project first; then by name, so that the story is told in the same order each time.
    objects.sort_by_key(|object| (meta::kind(object) == "Application", meta::name(object).to_owned()));
    let mut names = Vec::new();
    for mut object in objects {
        meta::set_field(&mut object, &["metadata", "namespace"], NAMESPACE);
        if meta::kind(&object) == "Application" {
            names.push(meta::name(&object).to_owned());
            api.apply(kinds::APPLICATION, &object).await?;
        } else {
            api.apply(kinds::PROJECT, &object).await?;
        }
    }
    if names.is_empty() {
        bail!("{}: no Application in it", dir.display());
    }
    Ok(names)
}

/// Tells every change of an Application's state until all meet `done`. False when the deadline passes first.
async fn watch(
    story: &Story,
    installation: &Installation,
    names: &[String],
    done: impl Fn(&Value) -> bool,
) -> Result<bool> {
    let started = Instant::now();
    let mut told: BTreeMap<&str, String> = BTreeMap::new();
    loop {
        installation.check_alive()?;
        let mut waiting = false;
        for name in names {
            let application = installation
                .api()
                .get(kinds::APPLICATION, NAMESPACE, name)
                .await?
                .unwrap_or_default();
            let state = state(&application);
            if told.get(name.as_str()) != Some(&state) {
                story.tell(&format!("{name:<18} {state}"));
                told.insert(name, state);
            }
            waiting |= !done(&application);
        }
        if !waiting {
            return Ok(true);
        }
        if started.elapsed() > DEADLINE {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn state(application: &Value) -> String {
    let status = &application["status"];
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let revision = text(&status["sync"]["revision"]);
    let revision = revision.get(..7).unwrap_or("-------");
    let operation = status["operationState"]["phase"].as_str();
    let operation = operation
        .map(|phase| format!("  sync {phase}"))
        .unwrap_or_default();
    let problem = status["conditions"][0]["message"]
        .as_str()
        .map(|text| format!("  {text}"))
        .unwrap_or_default();
    format!(
        "{:<10} {:<12} {revision}{operation}{problem}",
        text(&status["sync"]["status"]),
        text(&status["health"]["status"])
    )
}

fn is_synced(application: &Value, revision: &str) -> bool {
    let sync = &application["status"]["sync"];
    let revisions = sync["revisions"].as_array().map_or(&[][..], Vec::as_slice);
    sync["status"] == "Synced"
        && (sync["revision"] == revision || revisions.iter().any(|one| one == revision))
}

fn is_healthy(application: &Value) -> bool {
    application["status"]["health"]["status"] == "Healthy"
}

/// Adds a ConfigMap by a commit and waits until it lives in the cluster. Returns the revision and the seconds it took.
async fn commit_and_watch(
    story: &Story,
    installation: &Installation,
    repository: &Repository,
) -> Result<Option<(String, f64)>> {
    let api = installation.api();
    let application = api
        .get(kinds::APPLICATION, NAMESPACE, COMMITTED_APPLICATION)
        .await?;
    let application =
        application.with_context(|| format!("the examples have no Application {COMMITTED_APPLICATION}"))?;
    let folder = application["spec"]["source"]["path"].as_str().unwrap_or_default();
    let manifest = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": COMMITTED_RESOURCE},
        "data": {"text": "Git decides, the cluster follows"},
    });
    repository.write(&format!("{folder}/{COMMITTED_FILE}"), &yaml::to_string(&manifest))?;
    let revision = repository.commit("Add a note")?;
    let committed = Instant::now();
    story.tell(&format!(
        "Committed {}: adds {folder}/{COMMITTED_FILE}",
        &revision[..7]
    ));
    let names = [COMMITTED_APPLICATION.to_owned()];
    if !watch(story, installation, &names, |application| {
        is_synced(application, &revision)
    })
    .await?
    {
        return Ok(None);
    }
    let namespace = application["spec"]["destination"]["namespace"]
        .as_str()
        .unwrap_or_default();
    if api
        .get(kinds::CONFIG_MAP, namespace, COMMITTED_RESOURCE)
        .await?
        .is_none()
    {
        bail!(
            "{COMMITTED_APPLICATION} is Synced to {revision}, but ConfigMap {namespace}/{COMMITTED_RESOURCE} is not there"
        );
    }
    let seconds = committed.elapsed().as_secs_f64();
    story.tell(&format!(
        "ConfigMap {namespace}/{COMMITTED_RESOURCE} is in the cluster {seconds:.1} s after the commit"
    ));
    Ok(Some((revision, seconds)))
}

async fn summary(
    installation: &Installation,
    names: &[String],
    story: &Story,
    all_synced: bool,
    arrival: Option<(String, f64)>,
) -> Result<Value> {
    let mut applications = Vec::new();
    for name in names {
        let application = installation
            .api()
            .get(kinds::APPLICATION, NAMESPACE, name)
            .await?
            .unwrap_or_default();
        let status = &application["status"];
        applications.push(json!({
            "name": name,
            "sync": status["sync"]["status"],
            "health": status["health"]["status"],
            "sourceType": status["sourceType"],
            "resources": status["resources"].as_array().map_or(0, Vec::len),
            "conditions": status["conditions"],
        }));
    }
    let synced = all_synced && arrival.is_some() && applications.iter().all(|one| one["sync"] == "Synced");
    let commit =
        arrival.map(|(revision, seconds)| json!({"revision": revision, "secondsToArrive": rounded(seconds)}));
    Ok(json!({
        "synced": synced,
        "seconds": rounded(story.started.elapsed().as_secs_f64()),
        "applications": applications,
        "commit": commit,
    }))
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}

fn tell_how_to_look_further(story: &Story, kubeconfig: &Path, repository: &Repository, synced: bool) {
    story.tell(if synced {
        "All is Synced."
    } else {
        "Not all is Synced: the lines above say what is in the way."
    });
    println!(
        "\nLook further while this runs (Ctrl-C ends it):\n\
         \n  export KUBECONFIG={}\n  \
         kubectl -n {NAMESPACE} get applications\n  \
         kubectl -n {NAMESPACE} get application {COMMITTED_APPLICATION} -o yaml\n  \
         kubectl -n example-{COMMITTED_APPLICATION} delete configmap {COMMITTED_RESOURCE}   # and see it come back\n\
         \nThe repository is {}: commit there and watch it arrive.",
        kubeconfig.display(),
        repository.dir().display(),
    );
}

async fn tell_how_to_log_in(installation: &Installation) -> Result<()> {
    println!(
        "\nThe API server listens; with Argo CD's program:\n\
         \n  argocd login {} --insecure --username admin --password '{}'\n  \
         argocd app list",
        installation.server_address(),
        installation.admin_password().await?,
    );
    Ok(())
}
