//! SIGKILL at random moments of syncs with waves, hooks and deletions: each ends as if nothing had happened.
//!
//! The hooks' Pods run on a node played by kwok and end as their commands say; in every third sync one of them fails.
//! `ARGOSY_KILLS` says how often the controller is killed (5 times if unset), `ARGOSY_SEED` repeats a run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::Result;
use argosy_test_cluster::api::{Api, kinds};
use argosy_test_cluster::git::Repository;
use argosy_test_cluster::nodes::{NODE, Nodes};
use serde_json::{Value, json};

use crate::harness::{self, PATIENCE, run, synced_to, wait_app};

const NAME: &str = "kills";
const CONTROL_PLANE: &str = "argocd-kills";
/// A kill comes at the latest so long after its commit; a sync of this application takes about as long.
const LATEST_KILL: Duration = Duration::from_secs(16);

/// The waves of the ConfigMaps. A hook runs in the second.
const WAVES: [i64; 3] = [-1, 1, 2];

#[test]
fn kills_at_random_moments_leave_the_reference_state_and_run_each_hook_once() {
    run(async {
        let kills: u64 = number("ARGOSY_KILLS").unwrap_or(5);
        let seed = number("ARGOSY_SEED").unwrap_or_else(|| u64::from(std::process::id()));
        println!("ARGOSY_SEED={seed}");
        let mut chance = Chance(seed.wrapping_mul(2) + 1);

        let _nodes = Nodes::start(harness::cluster()).await?;
        let mut installation = harness::start_installation(CONTROL_PLANE).await?;
        let api = installation.api().clone();
        let repository = harness::repository(NAME)?;
        write(&repository, 0)?;
        let mut revision = repository.commit("generation 0")?;
        let source = json!({"repoURL": repository.url(), "path": "app", "targetRevision": "main"});
        let mut app = harness::application(CONTROL_PLANE, NAME, source);
        // Each revision is tried once: what a failed sync leaves is what is looked at.
        app["spec"]["syncPolicy"]["automated"]["selfHeal"] = json!(false);
        app["spec"]["syncPolicy"]["retry"] = json!({"limit": 0});
        api.create(kinds::APPLICATION, &app).await?;
        let (mut reference, mut runs) = (Reference::default(), Runs::default());

        for generation in 0..kills {
            let after = LATEST_KILL.mul_f64(chance.next());
            println!("generation {generation}: killed after {after:?}");
            tokio::time::sleep(after).await;
            installation.kill_controller();
            installation.start_controller(&[])?;
            ended(&api, generation, &revision).await?;
            reference.sync(generation);
            reference.check(&api, generation).await?;
            runs.check(&api, generation).await?;
            if generation + 1 < kills {
                write(&repository, generation + 1)?;
                revision = repository.commit(&format!("generation {}", generation + 1))?;
            }
        }
        Ok(())
    });
}

/// In every third generation the hook among the resources fails.
fn fails(generation: u64) -> bool {
    generation % 3 == 2
}

/// Waits for the end of the sync, several times as long as others wait: a start, a whole sync and a look lie between.
async fn ended(api: &Api, generation: u64, revision: &str) -> Result<()> {
    let has_ended = |app: &Value| match fails(generation) {
        false => synced_to(app, revision),
        true => {
            let state = &app["status"]["operationState"];
            state["phase"] == "Failed" && state["syncResult"]["revision"] == revision
        }
    };
    let what = "at the end of its sync after a kill";
    for _ in 0..4 {
        if wait_app(api, CONTROL_PLANE, NAME, what, has_ended).await.is_ok() {
            return Ok(());
        }
    }
    wait_app(api, CONTROL_PLANE, NAME, what, has_ended)
        .await
        .map(drop)
}

/// The application of one generation: what one generation has and the next has not is pruned.
fn write(repository: &Repository, generation: u64) -> Result<()> {
    let file = |name: &str, text: String| repository.write(&format!("app/{name}.yaml"), &text);
    for wave in WAVES {
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
    let code = u8::from(fails(generation));
    for (name, hook, wave, policy, command) in [
        (
            "before",
            "PreSync",
            0,
            "BeforeHookCreation",
            "sleep 1; exit 0".to_owned(),
        ),
        (
            "among",
            "Sync",
            1,
            "BeforeHookCreation,HookSucceeded",
            format!("sleep 2; exit {code}"),
        ),
        (
            "after",
            "PostSync",
            0,
            "BeforeHookCreation,HookSucceeded",
            "sleep 1; exit 0".to_owned(),
        ),
        (
            "undo",
            "SyncFail",
            0,
            "BeforeHookCreation,HookFailed",
            "sleep 1; exit 0".to_owned(),
        ),
    ] {
        file(
            name,
            format!(
                "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\n  annotations:\n    argocd.argoproj.io/hook: {hook}\n    \
                 argocd.argoproj.io/sync-wave: '{wave}'\n    argocd.argoproj.io/hook-delete-policy: {policy}\n\
                 spec:\n  backoffLimit: 0\n  template:\n    spec:\n      nodeName: {NODE}\n      restartPolicy: Never\n      \
                 containers: [{{name: main, image: registry.example/x:1, command: [sh, -c, '{command}']}}]\n"
            ),
        )?;
    }
    Ok(())
}

/// What the cluster should hold: the ConfigMaps by name, with their data.
#[derive(Default)]
struct Reference(BTreeMap<String, Value>);

impl Reference {
    /// A sync from the generation before. One that fails does so in the second wave: the third is not applied, and what
    /// goes in the third wave of deletions, which is the first of the last generation's, stays.
    fn sync(&mut self, generation: u64) {
        let waves = if fails(generation) {
            &WAVES[..2]
        } else {
            &WAVES[..]
        };
        let mirrored: Vec<i64> = WAVES.iter().rev().copied().collect();
        let gone: BTreeSet<i64> = if fails(generation) {
            mirrored[..2].iter().copied().collect()
        } else {
            WAVES.into()
        };
        self.0.retain(|name, _| {
            let of = |wave: &i64| name.starts_with(&format!("changes{wave}-"));
            !gone.iter().any(of)
        });
        for wave in waves {
            let data = json!({"generation": generation.to_string()});
            self.0.insert(format!("stays{wave}"), data);
            self.0.insert(format!("changes{wave}-{generation}"), Value::Null);
        }
    }

    /// The cluster holds exactly this, and no hook is held back by its finalizer.
    async fn check(&self, api: &Api, generation: u64) -> Result<()> {
        let maps = api.list(kinds::CONFIG_MAP, NAME).await?.into_iter();
        let found: BTreeMap<String, Value> = maps
            .filter(|object| object["metadata"]["deletionTimestamp"].is_null())
            .map(|object| {
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                (name, object["data"].clone())
            })
            .filter(|(name, _)| name != "kube-root-ca.crt")
            .collect();
        assert_eq!(found, self.0, "generation {generation}");
        let jobs = api.list(kinds::JOB, NAME).await?.into_iter();
        let held: Vec<_> = jobs
            .map(|job| job["metadata"].clone())
            .filter(|metadata| {
                metadata["finalizers"]
                    .to_string()
                    .contains("argocd.argoproj.io/hook-finalizer")
            })
            .map(|metadata| metadata["name"].clone())
            .collect();
        assert!(
            held.is_empty(),
            "hooks that nobody waits for any longer are held: {held:?}"
        );
        Ok(())
    }
}

/// The Jobs whose Pods have run, by the events of the Job controller: name and uid of the Job → how many Pods.
#[derive(Default)]
struct Runs(BTreeMap<(String, String), u64>);

impl Runs {
    /// Since the last look each hook of this generation has run once, and nothing else.
    async fn check(&mut self, api: &Api, generation: u64) -> Result<()> {
        let hooks: &[&str] = match fails(generation) {
            false => &["after", "among", "before"],
            true => &["among", "before", "undo"],
        };
        let expected: Vec<(&str, u64)> = hooks.iter().map(|name| (*name, 1)).collect();
        let started = Instant::now();
        let mut all = Self::seen(api).await?;
        // An event is stored a moment after what it tells of.
        while self.news(&all).len() < expected.len() && started.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(250)).await;
            all = Self::seen(api).await?;
        }
        assert_eq!(
            self.news(&all),
            expected,
            "generation {generation}: hooks and their Pods"
        );
        self.0 = all;
        Ok(())
    }

    async fn seen(api: &Api) -> Result<BTreeMap<(String, String), u64>> {
        let mut pods = BTreeMap::new();
        for event in api.list(kinds::EVENT, NAME).await? {
            let object = &event["involvedObject"];
            if object["kind"] == "Job" && event["reason"] == "SuccessfulCreate" {
                let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
                *pods.entry((text("name"), text("uid"))).or_default() += event["count"].as_u64().unwrap_or(1);
            }
        }
        Ok(pods)
    }

    fn news<'a>(&self, all: &'a BTreeMap<(String, String), u64>) -> Vec<(&'a str, u64)> {
        let new = all.iter().filter(|(job, _)| !self.0.contains_key(job));
        new.map(|((name, _), pods)| (name.as_str(), *pods)).collect()
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
