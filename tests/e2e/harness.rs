//! What the tests share: one control plane, one installation, and waiting with a good last word.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use argosy_test_cluster::api::{Api, Kind, kinds};
use argosy_test_cluster::git::Repository;
use argosy_test_cluster::installation::{Installation, Options};
use argosy_test_cluster::{Binaries, Cluster};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

/// The longest wait for anything that should happen. Two busy cores are slow; a pass does not wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// In-cluster, as every Application of these tests names it.
pub(crate) const IN_CLUSTER: &str = "https://kubernetes.default.svc";

/// Runs a test on the runtime that all tests share (clients live as long as their runtime).
pub(crate) fn run(test: impl Future<Output = Result<()>>) {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| Runtime::new().expect("start a runtime"));
    if let Err(error) = runtime.block_on(test) {
        panic!("{error:?}");
    }
}

/// The control plane.
pub(crate) fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let binaries = Binaries::locate().expect("find the control plane's programs");
        let scratch = scratch("cluster");
        Cluster::start_in(binaries, &scratch).expect("start the control plane")
    })
}

/// The installation that most tests share, in namespace `argocd`.
pub(crate) async fn installation() -> &'static Installation {
    static INSTALLATION: OnceCell<Installation> = OnceCell::const_new();
    INSTALLATION
        .get_or_init(|| async {
            start_installation("argocd")
                .await
                .expect("start the shared installation")
        })
        .await
}

/// An installation of its own in `namespace`.
pub(crate) async fn start_installation(namespace: &str) -> Result<Installation> {
    let options = Options {
        program: program(),
        namespace: namespace.to_owned(),
        dir: scratch(namespace),
        // Tests wait for what they ask for, not for the two minutes of the periodic look.
        attention: Some(Duration::from_secs(3)),
    };
    Installation::start(cluster(), options).await
}

/// The shipped program, built by `cargo xtask test` before the tests.
pub(crate) fn program() -> PathBuf {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/debug/argosy");
    assert!(
        program.is_file(),
        "build the program first: cargo build -p argosy"
    );
    program
}

/// A program that `cargo xtask tools` builds, if it was built: whoever has no Go still can run all other tests.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("ARGOSY_TOOLS").map(PathBuf::from);
    let is_set = dir.is_some();
    let dir = dir.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools"));
    let program = dir.join(name);
    if program.is_file() {
        return Some(program);
    }
    assert!(
        !is_set,
        "{} is missing: build it with `cargo xtask tools`",
        program.display()
    );
    eprintln!("left out what needs {name}: build it with `cargo xtask tools`");
    None
}

/// A fresh folder under target/ that outlives the test for a look at its logs.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("create a scratch folder");
    dir
}

/// A repository for one test.
pub(crate) fn repository(name: &str) -> Result<Repository> {
    Repository::init(scratch(&format!("git-{name}")))
}

/// An Application of the shared shape: one source, namespace made on the way, automated.
pub(crate) fn application(control_plane: &str, name: &str, source: Value) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": name, "namespace": control_plane},
        "spec": {
            "project": "default",
            "source": source,
            "destination": {"server": IN_CLUSTER, "namespace": name},
            "syncPolicy": {
                "automated": {"prune": true, "selfHeal": true},
                "syncOptions": ["CreateNamespace=true"],
            },
        },
    })
}

/// A ConfigMap as YAML.
pub(crate) fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  key: \"{value}\"\n")
}

/// Waits until the Application meets `condition`, and returns it.
///
/// # Errors
/// After [`PATIENCE`], with the status as it then was.
pub(crate) async fn wait_app(
    api: &Api,
    control_plane: &str,
    name: &str,
    what: &str,
    condition: impl Fn(&Value) -> bool,
) -> Result<Value> {
    wait(api, kinds::APPLICATION, control_plane, name, what, |app| {
        app.is_some_and(&condition)
    })
    .await?
    .with_context(|| format!("Application {name} is gone"))
}

/// Waits until the object (None: absent) meets `condition`, and returns it.
///
/// # Errors
/// After [`PATIENCE`], with the object as it then was.
pub(crate) async fn wait(
    api: &Api,
    kind: Kind,
    namespace: &str,
    name: &str,
    what: &str,
    condition: impl Fn(Option<&Value>) -> bool,
) -> Result<Option<Value>> {
    let started = Instant::now();
    loop {
        let object = api.get(kind, namespace, name).await?;
        if condition(object.as_ref()) {
            return Ok(object);
        }
        if started.elapsed() > PATIENCE {
            let seen = object.map_or(Value::Null, |object| {
                json!({"operation": object["operation"], "spec": object["spec"], "status": object["status"], "data": object["data"]})
            });
            bail!(
                "waited {} s in vain for {} {namespace}/{name} to be {what}; it is\n{}",
                PATIENCE.as_secs(),
                kind.plural,
                serde_json::to_string_pretty(&seen)?
            );
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Whether the Application is Synced to `revision` and its operation succeeded.
pub(crate) fn synced_to(app: &Value, revision: &str) -> bool {
    app["status"]["sync"]["status"] == "Synced"
        && app["status"]["sync"]["revision"] == revision
        && app["status"]["operationState"]["phase"] == "Succeeded"
}

/// The message of the condition of that type, or "".
pub(crate) fn condition<'a>(app: &'a Value, condition_type: &str) -> &'a str {
    let conditions = app["status"]["conditions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let found = conditions
        .iter()
        .find(|condition| condition["type"] == condition_type);
    found
        .and_then(|condition| condition["message"].as_str())
        .unwrap_or_default()
}

/// Asks for a look now, as `argocd app get --refresh` does.
///
/// # Errors
/// When the API server refuses.
pub(crate) async fn refresh(api: &Api, control_plane: &str, name: &str) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {"argocd.argoproj.io/refresh": "normal"}}});
    api.merge_patch(kinds::APPLICATION, control_plane, name, &patch)
        .await
        .map(drop)
}

/// Writes what a kubelet and the Job controller would write of a Job whose Pod has ended well, once the Job controller has begun with it:
/// before that no API server believes it.
///
/// # Errors
/// When the API server refuses.
pub(crate) async fn complete_job(api: &Api, namespace: &str, name: &str) -> Result<()> {
    let began = |job: Option<&Value>| job.is_some_and(|job| job["status"]["startTime"].is_string());
    let job = wait(api, kinds::JOB, namespace, name, "begun", began).await?;
    let now = job.unwrap_or_default()["status"]["startTime"].clone();
    let status = json!({"status": {
        "completionTime": now,
        "succeeded": 1,
        "active": 0,
        "ready": 0,
        "uncountedTerminatedPods": {},
        "conditions": [
            {"type": "SuccessCriteriaMet", "status": "True", "lastProbeTime": now, "lastTransitionTime": now},
            {"type": "Complete", "status": "True", "lastProbeTime": now, "lastTransitionTime": now},
        ],
    }});
    api.patch_status(kinds::JOB, namespace, name, &status)
        .await
        .map(drop)
}
