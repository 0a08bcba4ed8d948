//! SIGKILL at random moments of syncs with waves, hooks and deletions: each ends as if nothing had happened.
//!
//! `ARGOSY_KILLS` says how often (5 if unset), `ARGOSY_SEED` repeats a run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use argosy_test_cluster::api::{Api, kinds};
use argosy_test_cluster::git::Repository;
use serde_json::{Value, json};

use crate::harness::{self, run, synced_to, wait_app};

const NAME: &str = "kills";
const CONTROL_PLANE: &str = "argocd-kills";
/// A kill comes at the latest so long after its commit; a sync of this application takes about as long.
const LATEST_KILL: Duration = Duration::from_secs(16);

#[test]
fn kills_at_random_moments_leave_the_reference_state_and_run_each_hook_once() {
    run(async {
        let kills: u64 = number("ARGOSY_KILLS").unwrap_or(5);
        let seed = number("ARGOSY_SEED").unwrap_or_else(|| u64::from(std::process::id()));
        println!("ARGOSY_SEED={seed}");
        let mut chance = Chance(seed.wrapping_mul(2) + 1);

        let mut installation = harness::start_installation(CONTROL_PLANE).await?;
        let api = installation.api().clone();
        let repository = harness::repository(NAME)?;
        write(&repository, 0)?;
        let mut revision = repository.commit("generation 0")?;
        let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
        api.create(
            kinds::APPLICATION,
            &harness::application(CONTROL_PLANE, NAME, source),
        )
        .await?;
        let jobs = Jobs::complete_all(api.clone());

        for generation in 1..=kills {
            let after = LATEST_KILL.mul_f64(chance.next());
            println!("generation {}: killed after {after:?}", generation - 1);
            tokio::time::sleep(after).await;
            installation.kill_controller();
            installation.start_controller(&[])?;
            synced(&api, &revision).await?;
            check(&api, generation - 1).await?;
            jobs.check(generation - 1);
            if generation < kills {
                write(&repository, generation)?;
                revision = repository.commit(&format!("generation {generation}"))?;
            }
        }
        Ok(())
    });
}

/// Waits for the end of the sync, several times as long as others wait: a start, a whole sync and a look lie between.
async fn synced(api: &Api, revision: &str) -> Result<()> {
    for _ in 0..4 {
        let waited = wait_app(api, CONTROL_PLANE, NAME, "Synced after a kill", |app| {
            synced_to(app, revision)
        });
        if waited.await.is_ok() {
            return Ok(());
        }
    }
    wait_app(api, CONTROL_PLANE, NAME, "Synced after a kill", |app| {
        synced_to(app, revision)
    })
    .await
    .map(drop)
}

/// The application of one generation: what one generation has and the next has not is pruned.
fn write(repository: &Repository, generation: u64) -> Result<()> {
    let file = |name: &str, text: String| repository.write(&format!("app/{name}.yaml"), &text);
    for wave in [-1, 1, 2] {
        file(
            &format!("stays{wave}"),
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: stays{wave}\n  annotations: {{argocd.argoproj.io/sync-wave: '{wave}'}}\ndata: {{generation: '{generation}'}}\n"
            ),
        )?;
        file(
            &format!("changes{wave}"),
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: changes{wave}-{generation}\n  annotations: {{argocd.argoproj.io/sync-wave: '{wave}'}}\ndata: {{}}\n"
            ),
        )?;
    }
    for (name, hook, wave, policy) in [
        ("before", "PreSync", 0, "BeforeHookCreation"),
        ("among", "Sync", 1, "HookSucceeded"),
        ("after", "PostSync", 0, "BeforeHookCreation,HookSucceeded"),
    ] {
        file(
            name,
            format!(
                "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\n  annotations:\n    argocd.argoproj.io/hook: {hook}\n    \
                 argocd.argoproj.io/sync-wave: '{wave}'\n    argocd.argoproj.io/hook-delete-policy: {policy}\n    generation: '{generation}'\n\
                 spec:\n  template:\n    spec:\n      restartPolicy: Never\n      containers: [{{name: main, image: registry.example/x:1}}]\n"
            ),
        )?;
    }
    Ok(())
}

/// The cluster holds exactly what this generation asks for.
async fn check(api: &Api, generation: u64) -> Result<()> {
    let found: BTreeMap<String, Value> = api
        .list(kinds::CONFIG_MAP, NAME)
        .await?
        .into_iter()
        .filter(|object| object["metadata"]["deletionTimestamp"].is_null())
        .map(|object| {
            (
                object["metadata"]["name"].as_str().unwrap().to_owned(),
                object["data"].clone(),
            )
        })
        .filter(|(name, _)| name != "kube-root-ca.crt")
        .collect();
    let mut expected = BTreeMap::new();
    for wave in [-1, 1, 2] {
        expected.insert(
            format!("stays{wave}"),
            json!({"generation": generation.to_string()}),
        );
        expected.insert(format!("changes{wave}-{generation}"), Value::Null);
    }
    assert_eq!(found, expected, "generation {generation}");
    let held: Vec<_> = api
        .list(kinds::JOB, NAME)
        .await?
        .into_iter()
        .filter(|job| job["metadata"]["name"] != "before" || job["metadata"]["deletionTimestamp"].is_string())
        .map(|job| {
            (
                job["metadata"]["name"].clone(),
                job["metadata"]["finalizers"].clone(),
            )
        })
        .filter(|(_, finalizers)| {
            finalizers
                .to_string()
                .contains("argocd.argoproj.io/hook-finalizer")
        })
        .collect();
    assert!(
        held.is_empty(),
        "hooks that nobody waits for any longer are held: {held:?}"
    );
    Ok(())
}

/// Generation and name → the uids of the Jobs that ran.
type Runs = BTreeMap<(u64, String), BTreeSet<String>>;

/// Plays the kubelet and the Job controller: every Job completes a moment after it is seen.
struct Jobs {
    runs: Arc<Mutex<Runs>>,
    task: tokio::task::JoinHandle<()>,
}

impl Jobs {
    fn complete_all(api: Api) -> Self {
        let runs = Arc::new(Mutex::new(BTreeMap::new()));
        let seen = runs.clone();
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(150)).await;
                let Ok(jobs) = api.list(kinds::JOB, NAME).await else {
                    continue;
                };
                for job in jobs {
                    let text = |path: &str| {
                        job.pointer(path)
                            .and_then(Value::as_str)
                            .unwrap_or_default()
                            .to_owned()
                    };
                    let name = text("/metadata/name");
                    let generation = text("/metadata/annotations/generation")
                        .parse()
                        .unwrap_or_default();
                    let uid = text("/metadata/uid");
                    let add = |all: &mut Runs| all.entry((generation, name.clone())).or_default().insert(uid);
                    add(&mut seen.lock().unwrap());
                    let complete = job["status"]["conditions"].to_string().contains("\"Complete\"");
                    if !complete {
                        // A Job that has just been replaced is met again in the next round.
                        let _ = harness::complete_job(&api, NAME, &name).await;
                    }
                }
            }
        });
        Jobs { runs, task }
    }

    fn check(&self, generation: u64) {
        let runs = self.runs.lock().unwrap();
        for name in ["before", "among", "after"] {
            let uids = runs.get(&(generation, name.to_owned())).map_or(0, BTreeSet::len);
            assert_eq!(uids, 1, "generation {generation}: hook {name} ran so often");
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// A xorshift generator: the same numbers for the same seed.
struct Chance(u64);

impl Chance {
    /// Between 0 and 1.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
