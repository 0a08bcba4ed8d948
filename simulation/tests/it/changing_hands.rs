//! An operation that changes hands: the real plan and the real steps of a sync, against an API server in virtual time.
//!
//! An owner dies before a write, after it, or freezes between its last look at its lease and the network, so that the
//! write arrives when another owner is at work. The next one knows nothing but the journal, which is written under its
//! version, and the cluster. Whatever happens, the end is the state that Git asks for, and each hook has run once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use argosy_health::Customizations;
use argosy_object::{Value, meta};
use argosy_simulation::Options;
use argosy_sync::hook::{FINALIZER, RUN_ANNOTATION};
use argosy_sync::{
    Action, Observations, OperationPhase, Outcome, Plan, Progress, Resource, ResourceResult, Seen, Step,
    Task, TaskId, next, plan,
};
use serde_json::json;

use crate::support::Direct;

const SEEDS: u64 = 40;
const GENERATIONS: u64 = 3;
/// Owners that an operation has at most; then nothing goes wrong any more.
const OWNERS: u32 = 12;

#[test]
fn each_hook_runs_once_and_the_end_is_what_git_asks_for() {
    let mut died = 0;
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for generation in 1..=GENERATIONS {
            died += world.operate(generation);
            world.check(generation);
        }
    }
    assert!(died > SEEDS, "only {died} owners died");
}

/// What the next owner finds of an operation, besides the cluster.
#[derive(Default)]
struct Journal {
    version: u64,
    results: Vec<ResourceResult>,
    ended: bool,
}

struct World {
    seed: u64,
    direct: Direct,
    chance: fastrand::Rng,
    journal: Journal,
    /// Writes of frozen owners, on their way.
    late: Vec<(String, String, Value)>,
    /// The uids of the Jobs that each run has had, by run and name.
    ran: BTreeMap<(String, String), BTreeSet<String>>,
    /// Things go wrong.
    faults: bool,
}

/// The owner is no more.
struct Died;

impl World {
    fn new(seed: u64) -> Self {
        let options = Options {
            seed,
            nodes: 1,
            ..Options::default()
        };
        World {
            seed,
            direct: Direct::new(options),
            chance: fastrand::Rng::with_seed(seed),
            journal: Journal::default(),
            late: Vec::new(),
            ran: BTreeMap::new(),
            faults: true,
        }
    }

    /// One operation from its request to its end, by as many owners as it takes. How many died.
    fn operate(&mut self, generation: u64) -> u64 {
        self.journal = Journal::default();
        for owner in 0.. {
            assert!(
                owner < 2 * OWNERS,
                "seed {}: generation {generation} never ends",
                self.seed
            );
            self.faults = owner < OWNERS;
            if self.own(generation).is_ok() {
                self.arrive_late();
                return u64::from(owner);
            }
            self.pass_up_to(25, 40);
        }
        0
    }

    /// One owner: from the journal and the cluster to the end, or to its own.
    fn own(&mut self, generation: u64) -> Result<(), Died> {
        let seen = self.journal.version;
        let plan = self.plan(generation);
        let mut progress = Progress::resume(self.journal.results.clone());
        let mut version = seen;
        loop {
            let seen = self.observe(&plan);
            match next(&plan, &mut progress, &seen) {
                Step::DryRun(tasks) => {
                    for id in tasks {
                        progress.record(&plan, id, Outcome::Applied(String::new()));
                    }
                    progress.checked(&plan);
                }
                Step::Apply(tasks) => self.each(&plan, &mut progress, &tasks, World::apply)?,
                Step::Prune(tasks) => self.each(&plan, &mut progress, &tasks, World::prune)?,
                Step::Release(tasks) => self.each(&plan, &mut progress, &tasks, World::release)?,
                Step::DeleteHooks(tasks) => self.each(&plan, &mut progress, &tasks, World::delete_hook)?,
                Step::Pause { .. } => self.save(&mut version, &progress, None)?,
                Step::Wait(_) => {
                    self.save(&mut version, &progress, None)?;
                    self.pass_up_to(1, 6);
                }
                Step::Done { phase, message } => {
                    assert_eq!(phase, OperationPhase::Succeeded, "seed {}: {message}", self.seed);
                    return self.save(&mut version, &progress, Some(phase));
                }
            }
        }
    }

    fn each(
        &mut self,
        plan: &Plan,
        progress: &mut Progress,
        tasks: &[TaskId],
        write: fn(&mut World, &Task) -> Result<Outcome, Died>,
    ) -> Result<(), Died> {
        for id in tasks {
            let outcome = write(self, plan.task(*id))?;
            progress.record(plan, *id, outcome);
        }
        Ok(())
    }

    /// The journal is written over the version that was read, or not at all.
    fn save(
        &mut self,
        version: &mut u64,
        progress: &Progress,
        phase: Option<OperationPhase>,
    ) -> Result<(), Died> {
        if self.faults && self.chance.u32(..12) == 0 {
            return Err(Died);
        }
        if self.journal.version != *version {
            return Err(Died);
        }
        *version += 1;
        self.journal = Journal {
            version: *version,
            results: progress.results().to_vec(),
            ended: phase.is_some(),
        };
        let dies_now = self.faults && phase.is_none() && self.chance.u32(..12) == 0;
        if dies_now { Err(Died) } else { Ok(()) }
    }

    /// Sends a write. What its owner does not live to hear is done, not done, or done when another is at work.
    fn send(&mut self, method: &str, path: &str, body: &Value) -> Result<(u16, Value), Died> {
        self.pass_up_to(0, 2);
        match self.chance.u32(..24) {
            0 if self.faults => return Err(Died),
            1 if self.faults => {
                self.direct.call(method, path, body);
                self.note();
                return Err(Died);
            }
            2 if self.faults => {
                self.late.push((method.to_owned(), path.to_owned(), body.clone()));
                return Err(Died);
            }
            // Unheard: the same write once more, as a caller does that is told of a broken connection.
            3 if self.faults => drop(self.direct.call(method, path, body)),
            _ => {}
        }
        let answer = self.direct.call(method, path, body);
        self.note();
        Ok(answer)
    }

    fn apply(&mut self, task: &Task) -> Result<Outcome, Died> {
        let desired = task.desired.as_deref().unwrap();
        for _ in 0..4 {
            let (code, live) = self.get(task);
            let (code, answer) = if code == 404 {
                self.send("POST", &collection(task), desired)?
            } else if desired["data"] == live["data"] && desired["spec"].is_null() {
                return Ok(Outcome::Applied("unchanged".to_owned()));
            } else if task.is_hook() {
                // It is there: what follows is the next look's.
                return Ok(Outcome::Applied("unchanged".to_owned()));
            } else {
                let patch = json!({"data": desired["data"], "metadata": {"uid": meta::uid(&live)}});
                self.send("PATCH", &object(task), &patch)?
            };
            match code {
                200 | 201 => return Ok(Outcome::Applied("done".to_owned())),
                404 | 409 => {}
                _ => panic!("seed {}: {code} {answer}", self.seed),
            }
        }
        Ok(Outcome::Failed("it keeps changing".to_owned()))
    }

    fn prune(&mut self, task: &Task) -> Result<Outcome, Died> {
        let uid = meta::uid(task.live.as_deref().unwrap()).to_owned();
        self.delete(task, &uid)?;
        Ok(Outcome::Pruned)
    }

    fn release(&mut self, task: &Task) -> Result<Outcome, Died> {
        for _ in 0..4 {
            let (code, live) = self.get(task);
            let others: Vec<&str> = meta::finalizers(&live)
                .filter(|name| *name != FINALIZER)
                .collect();
            if code == 404 || others.len() == meta::finalizers(&live).count() {
                break;
            }
            let patch = json!({"metadata": {
                "finalizers": others, "uid": meta::uid(&live), "resourceVersion": meta::resource_version(&live),
            }});
            if self.send("PATCH", &object(task), &patch)?.0 == 200 {
                break;
            }
        }
        Ok(Outcome::Released)
    }

    fn delete_hook(&mut self, task: &Task) -> Result<Outcome, Died> {
        let (code, live) = self.get(task);
        if code == 200 {
            self.delete(task, meta::uid(&live))?;
        }
        Ok(Outcome::Deleted)
    }

    fn delete(&mut self, task: &Task, uid: &str) -> Result<(), Died> {
        let options = json!({"preconditions": {"uid": uid}, "propagationPolicy": "Background"});
        let (code, answer) = self.send("DELETE", &object(task), &options)?;
        assert!(matches!(code, 200 | 202 | 404 | 409), "{code} {answer}");
        Ok(())
    }

    fn get(&mut self, task: &Task) -> (u16, Value) {
        self.direct.call("GET", &object(task), &Value::Null)
    }

    fn plan(&mut self, generation: u64) -> Plan {
        let desired = desired(generation);
        let mut resources: BTreeMap<_, Resource> = BTreeMap::new();
        for object in &desired {
            let resource = Resource {
                key: meta::key(object),
                gvk: meta::gvk(object),
                desired: Some(Arc::new(object.clone())),
                live: None,
                out_of_sync: true,
                doubtful: false,
            };
            resources.insert(resource.key.clone(), resource);
        }
        for (collection, version, kind) in KINDS {
            let (_, list) = self.direct.call("GET", collection, &Value::Null);
            for item in list["items"].as_array().unwrap() {
                let mut live = item.clone();
                live["apiVersion"] = version.into();
                live["kind"] = kind.into();
                let ours = meta::str_field(&live, &["metadata", "labels", "app"]) == Some("shop");
                let hook = meta::annotation(&live, "argocd.argoproj.io/hook").is_some();
                match resources.get_mut(&meta::key(&live)) {
                    Some(known) => known.live = Some(Arc::new(live)),
                    None if ours && !hook => {
                        let resource = Resource {
                            key: meta::key(&live),
                            gvk: meta::gvk(&live),
                            desired: None,
                            live: Some(Arc::new(live)),
                            out_of_sync: true,
                            doubtful: false,
                        };
                        resources.insert(resource.key.clone(), resource);
                    }
                    None => {}
                }
            }
        }
        let options = argosy_sync::Options {
            namespace: "default".to_owned(),
            run: format!("{generation}-0"),
            prune: true,
            hooks: true,
            ..Default::default()
        };
        plan(&resources.into_values().collect::<Vec<_>>(), &options).unwrap()
    }

    fn observe(&mut self, plan: &Plan) -> Observations {
        let mut seen = Observations::default();
        for task in &plan.tasks {
            let looked = match self.get(task) {
                (404, _) => Seen::Absent,
                (_, live) => {
                    let health = argosy_health::assess(&live, &Customizations::default());
                    Seen::live(&live, health)
                }
            };
            if task.action != Action::Prune || matches!(looked, Seen::Present(_)) {
                seen.seen.insert(task.id, looked);
            }
        }
        seen
    }

    fn pass_up_to(&mut self, least: i64, most: i64) {
        let seconds = self.chance.i64(least..most);
        self.pass(seconds);
    }

    /// Time passes: Jobs go on, and what was frozen on its way may arrive.
    fn pass(&mut self, seconds: i64) {
        self.direct.pass(seconds);
        self.direct.settle();
        if self.chance.bool() {
            self.arrive_late();
        }
        self.note();
    }

    fn arrive_late(&mut self) {
        for (method, path, body) in std::mem::take(&mut self.late) {
            self.direct.call(&method, &path, &body);
        }
        self.note();
    }

    /// Notes which Jobs there are.
    fn note(&mut self) {
        let (_, list) = self.direct.call("GET", JOBS, &Value::Null);
        for job in list["items"].as_array().unwrap() {
            let run = meta::annotation(job, RUN_ANNOTATION)
                .unwrap_or_default()
                .to_owned();
            let place = (run, meta::name(job).to_owned());
            self.ran
                .entry(place)
                .or_default()
                .insert(meta::uid(job).to_owned());
        }
    }

    fn check(&mut self, generation: u64) {
        self.pass(60);
        let (_, list) = self.direct.call("GET", MAPS, &Value::Null);
        let ours = |item: &&Value| item["metadata"]["labels"]["app"] == "shop";
        let found: BTreeMap<&str, &Value> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(ours)
            .map(|item| (meta::name(item), &item["data"]["generation"]))
            .collect();
        let changes = format!("changes-{generation}");
        let text = json!(generation.to_string());
        let expected = BTreeMap::from([("early", &text), ("late", &text), (changes.as_str(), &text)]);
        assert_eq!(found, expected, "seed {}", self.seed);
        assert!(self.journal.ended, "seed {}", self.seed);
        for (hook, phase) in [("before", "PreSync"), ("among", "Sync"), ("after", "PostSync")] {
            let place = (format!("{generation}-0/{phase}"), hook.to_owned());
            let jobs = self.ran.get(&place).map_or(0, BTreeSet::len);
            assert_eq!(jobs, 1, "seed {}: {hook} of generation {generation}", self.seed);
        }
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const KINDS: [(&str, &str, &str); 2] = [(MAPS, "v1", "ConfigMap"), (JOBS, "batch/v1", "Job")];

fn collection(task: &Task) -> String {
    if task.key.kind == "Job" { JOBS } else { MAPS }.to_owned()
}

fn object(task: &Task) -> String {
    format!("{}/{}", collection(task), task.key.name)
}

/// What Git asks for: maps in two waves, one of them another in each generation, and a hook in each phase.
fn desired(generation: u64) -> Vec<Value> {
    let map = |name: &str, wave: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": name, "namespace": "default", "labels": {"app": "shop"},
                "annotations": {"argocd.argoproj.io/sync-wave": wave},
            },
            "data": {"generation": generation.to_string()},
        })
    };
    let hook = |name: &str, phase: &str, policy: &str| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": name, "namespace": "default", "labels": {"app": "shop"},
                "annotations": {"argocd.argoproj.io/hook": phase, "argocd.argoproj.io/hook-delete-policy": policy},
            },
            "spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example/x:1"}],
            }}},
        })
    };
    vec![
        map("early", "-1"),
        map("late", "1"),
        map(&format!("changes-{generation}"), "0"),
        hook("before", "PreSync", "BeforeHookCreation"),
        hook("among", "Sync", "BeforeHookCreation"),
        hook("after", "PostSync", "BeforeHookCreation"),
    ]
}
