//! A cluster as small as a case needs it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use argosy_health::{Health, Status};
use argosy_object::{ResourceKey, Value, meta, yaml};
use argosy_sync::plan::{Check, ManagedNamespace};
use argosy_sync::{
    Hold, Observations, Options, Outcome, Plan, Progress, Resource, Seen, Selector, Step, SyncOptions, Task,
    TaskId, next, plan,
};
use serde_json::json;

/// The walk through a case, as text.
pub(crate) fn walk(input: &str) -> String {
    run(input, None).text
}

/// What a run through a case came to.
pub(crate) struct Run {
    pub(crate) text: String,
    pub(crate) end: String,
    pub(crate) steps: usize,
    pub(crate) hooks_created: BTreeMap<String, usize>,
    pub(crate) objects: Vec<String>,
}

/// Runs a case; after step `stop` the controller forgets everything and goes on from what it had written down before it.
pub(crate) fn run(input: &str, stop: Option<usize>) -> Run {
    let input = yaml::parse(input, &yaml::Limits::default()).unwrap();
    let mut world = World::new(&input);
    let options = options(&input, &world);
    let mut text = String::new();
    let (mut plan, mut progress) = match begin(&input, &world, &options, Vec::new(), &mut text) {
        Ok(begun) => begun,
        Err(end) => {
            let _ = writeln!(text, "{end}");
            return Run {
                text,
                end,
                steps: 0,
                hooks_created: BTreeMap::new(),
                objects: world.names(),
            };
        }
    };
    let mut saved = progress.results().to_vec();
    let mut waits = 0;
    for number in 0.. {
        assert!(number < 200, "the walk does not end:\n{text}");
        if input
            .get("terminateAfter")
            .and_then(Value::as_u64)
            .is_some_and(|after| waits >= after)
        {
            progress.terminate();
        }
        let observations = world.observe(&plan, waits);
        let step = next(&plan, &mut progress, &observations);
        if let Step::Done { phase, message } = &step {
            let end = format!("{phase}: {message}");
            let _ = writeln!(text, "{end}");
            results(&progress, &mut text);
            return Run {
                text,
                end,
                steps: number,
                hooks_created: world.hooks_created.clone(),
                objects: world.names(),
            };
        }
        if number > 0 && stop == Some(number - 1) {
            // The outcome of the step before was never written down.
            (plan, progress) = begin(&input, &world, &options, saved.clone(), &mut String::new()).unwrap();
            continue;
        }
        saved = progress.results().to_vec();
        if let Step::Wait(_) = step {
            waits += 1;
        }
        world.act(&plan, &mut progress, &step, &mut text);
    }
    unreachable!()
}

fn begin(
    input: &Value,
    world: &World,
    options: &Options,
    results: Vec<argosy_sync::ResourceResult>,
    text: &mut String,
) -> Result<(Plan, Progress), String> {
    let mut plan = plan(&world.resources(input), options).map_err(|error| format!("no plan: {error}"))?;
    for row in plan.rows() {
        let _ = writeln!(text, "{row}");
    }
    let _ = writeln!(text);
    let mut progress = Progress::resume(results);
    let invalid = plan.validate(|task| world.check(task));
    if !invalid.is_empty() {
        let (phase, message) = progress.reject(&plan, &invalid);
        return Err(format!("{phase}: {message}"));
    }
    Ok((plan, progress))
}

fn results(progress: &Progress, text: &mut String) {
    for result in progress.results() {
        let status = result.status.map(|status| status.as_str()).unwrap_or("-");
        let phase = result.phase.map(|phase| phase.as_str()).unwrap_or("-");
        let hook = result
            .hook
            .map(|hook| format!(" hook {}", hook.as_str()))
            .unwrap_or_default();
        let _ = writeln!(
            text,
            "  {}/{} {}{hook}: {status} {phase} {}",
            result.key.kind, result.key.name, result.sync_phase, result.message
        );
    }
}

fn options(input: &Value, world: &World) -> Options {
    let given = input.get("options").cloned().unwrap_or_default();
    let flag = |key: &str| given.get(key).and_then(Value::as_bool).unwrap_or(false);
    let texts = |value: Option<&Value>| -> Vec<String> {
        value
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|item| item.as_str().unwrap().to_owned())
            .collect()
    };
    let map = |value: &Value, key: &str| -> BTreeMap<String, String> {
        let entries = value.get(key).and_then(Value::as_object).into_iter().flatten();
        entries
            .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
            .collect()
    };
    Options {
        namespace: "shop".into(),
        namespace_live: world.find("", "Namespace", "", "shop").cloned().map(Arc::new),
        managed_namespace: given.get("managedNamespace").map(|managed| ManagedNamespace {
            labels: map(managed, "labels"),
            annotations: map(managed, "annotations"),
        }),
        revision: "0123456789abcdef".into(),
        started_at: 1_700_000_000,
        run: "r1".into(),
        prune: flag("prune"),
        dry_run: flag("dryRun"),
        force: flag("force"),
        hooks: given.get("strategy").and_then(Value::as_str) != Some("apply"),
        selection: texts(given.get("resources"))
            .iter()
            .map(|text| selector(text))
            .collect(),
        sync_options: SyncOptions::parse(texts(given.get("syncOptions")).iter().map(String::as_str)),
        migration_manager: None,
        prune_waves: Vec::new(),
        hold: given.get("hold").map(|hold| Hold {
            at_least: hold["atLeast"].as_u64().unwrap() as usize,
            share: hold["share"].as_u64().unwrap() as usize,
            kinds: texts(hold.get("kinds")),
        }),
    }
}

/// `group/Kind/namespace/name`.
fn selector(text: &str) -> Selector {
    let parts: Vec<&str> = text.split('/').collect();
    let [group, kind, namespace, name] = parts[..] else {
        panic!("selector {text}")
    };
    Selector {
        group: group.into(),
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
    }
}

struct World {
    input: Value,
    objects: Vec<Value>,
    /// Objects on their way out, with the waits that are left to them.
    going: BTreeMap<String, u64>,
    /// How often each object was waited for since it was written.
    looked_at: BTreeMap<String, usize>,
    hooks_created: BTreeMap<String, usize>,
}

impl World {
    fn new(input: &Value) -> Self {
        let objects = list(input, "live").iter().map(object).collect();
        World {
            input: input.clone(),
            objects,
            going: BTreeMap::new(),
            looked_at: BTreeMap::new(),
            hooks_created: BTreeMap::new(),
        }
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .objects
            .iter()
            .map(|object| meta::key(object).to_string())
            .collect();
        names.sort();
        names
    }

    fn find(&self, group: &str, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        let key = ResourceKey::new(group, kind, namespace, name);
        self.objects.iter().find(|object| meta::key(object) == key)
    }

    fn live(&self, task: &Task) -> Option<&Value> {
        self.objects.iter().find(|object| meta::key(object) == task.key)
    }

    fn resources(&self, input: &Value) -> Vec<Resource> {
        let names = |field| -> Vec<&str> { list(input, field).iter().filter_map(Value::as_str).collect() };
        let (synced, doubtful) = (names("synced"), names("doubtful"));
        let mut resources: Vec<Resource> = Vec::new();
        for desired in list(input, "desired").iter().map(object) {
            let key = meta::key(&desired);
            let out_of_sync = !synced.contains(&short(&key).as_str());
            let live = self
                .objects
                .iter()
                .find(|live| meta::key(live) == key)
                .cloned()
                .map(Arc::new);
            resources.push(Resource {
                gvk: meta::gvk(&desired),
                key,
                desired: Some(Arc::new(desired)),
                live,
                out_of_sync,
                doubtful: false,
            });
        }
        for live in &self.objects {
            let key = meta::key(live);
            let foreign = key.kind == "Namespace" && key.name == "shop";
            if !foreign && resources.iter().all(|resource| resource.key != key) {
                resources.push(Resource {
                    gvk: meta::gvk(live),
                    doubtful: doubtful.contains(&short(&key).as_str()),
                    key,
                    desired: None,
                    live: Some(Arc::new(live.clone())),
                    out_of_sync: true,
                });
            }
        }
        resources
    }

    fn check(&self, task: &Task) -> Check {
        if let Some(text) = self
            .script("refused", task)
            .and_then(|text| text.as_str().map(str::to_owned))
        {
            return Check::Refused(text);
        }
        let unserved = list(&self.input, "unserved")
            .iter()
            .any(|kind| kind.as_str() == Some(&task.key.kind));
        if unserved && self.objects.iter().all(|object| !meta::is_crd(object)) {
            Check::UnknownKind
        } else {
            Check::Fine
        }
    }

    fn script(&self, what: &str, task: &Task) -> Option<&Value> {
        let scripts = self.input.get(what)?;
        // A generated name is scripted by what it starts with.
        scripts.get(short(&task.key)).or_else(|| {
            let entries = scripts.as_object()?.iter();
            entries
                .into_iter()
                .find(|(key, _)| key.ends_with('-') && short(&task.key).starts_with(key.as_str()))
                .map(|(_, value)| value)
        })
    }

    fn observe(&self, plan: &Plan, waits: u64) -> Observations {
        let seen = plan.tasks.iter().map(|task| (task.id, self.look(task))).collect();
        let confirmed = self.input.get("confirmedAfter").and_then(Value::as_u64);
        Observations {
            seen,
            prune_confirmed: confirmed.is_some_and(|after| waits >= after),
        }
    }

    fn look(&self, task: &Task) -> Seen {
        match self.live(task) {
            None => Seen::Absent,
            Some(object) => Seen::live(object, self.health(task)),
        }
    }

    fn health(&self, task: &Task) -> Option<Health> {
        let script = self.script("health", task)?.as_array()?;
        let looked_at = self.looked_at.get(&short(&task.key)).copied().unwrap_or(0);
        let text = script[looked_at.min(script.len() - 1)].as_str().unwrap();
        let (status, message) = text.split_once(": ").unwrap_or((text, ""));
        Some(Health::new(status.parse::<Status>().unwrap(), message))
    }

    fn act(&mut self, plan: &Plan, progress: &mut Progress, step: &Step, text: &mut String) {
        let names = |ids: &[TaskId]| {
            ids.iter()
                .map(|id| short(&plan.task(*id).key))
                .collect::<Vec<_>>()
                .join(" ")
        };
        match step {
            Step::DryRun(ids) => {
                let _ = writeln!(text, "check {}", names(ids));
                for id in ids {
                    let outcome = match self.script("failCheck", plan.task(*id)) {
                        Some(message) => Outcome::Failed(message.as_str().unwrap().to_owned()),
                        None => Outcome::Applied(format!("{} (dry run)", self.verb(plan.task(*id)))),
                    };
                    progress.record(plan, *id, outcome);
                }
                progress.checked(plan);
            }
            Step::Apply(ids) => {
                let _ = writeln!(text, "apply {}", names(ids));
                for id in ids {
                    let outcome = self.apply(plan.task(*id));
                    progress.record(plan, *id, outcome);
                }
            }
            Step::Prune(ids) => {
                let _ = writeln!(text, "prune {}", names(ids));
                for id in ids {
                    let outcome = match self.script("failDelete", plan.task(*id)) {
                        Some(message) => Outcome::Failed(message.as_str().unwrap().to_owned()),
                        None => {
                            self.delete(plan.task(*id));
                            Outcome::Pruned
                        }
                    };
                    progress.record(plan, *id, outcome);
                }
            }
            Step::Release(ids) => {
                let _ = writeln!(text, "release {}", names(ids));
                for id in ids {
                    self.release(plan.task(*id));
                    progress.record(plan, *id, Outcome::Released);
                }
            }
            Step::DeleteHooks(ids) => {
                let _ = writeln!(text, "delete hook {}", names(ids));
                for id in ids {
                    let outcome = match self.script("failDelete", plan.task(*id)) {
                        Some(message) => Outcome::RemovalFailed(message.as_str().unwrap().to_owned()),
                        None => {
                            self.delete(plan.task(*id));
                            Outcome::Deleted
                        }
                    };
                    progress.record(plan, *id, outcome);
                }
            }
            Step::Pause { phase, wave } => {
                let _ = writeln!(text, "pause after {phase} {wave}");
            }
            Step::Wait(wait) => {
                let _ = writeln!(text, "{}", wait.message);
                for on in &wait.on {
                    *self.looked_at.entry(short(&on.key)).or_default() += 1;
                }
                self.pass_time(plan);
            }
            Step::Done { .. } => unreachable!(),
        }
    }

    fn verb(&self, task: &Task) -> String {
        let verb = if self.live(task).is_some() {
            "configured"
        } else {
            "created"
        };
        format!("{} {verb}", short(&task.key).to_lowercase())
    }

    fn apply(&mut self, task: &Task) -> Outcome {
        if let Some(message) = self.script("fail", task) {
            return Outcome::Failed(message.as_str().unwrap().to_owned());
        }
        let message = self.verb(task);
        let existing = self.live(task).cloned();
        if task.is_hook() && existing.is_none() {
            *self.hooks_created.entry(short(&task.key)).or_default() += 1;
        }
        self.objects.retain(|object| meta::key(object) != task.key);
        self.objects.push(task.desired.as_deref().unwrap().clone());
        self.looked_at.insert(short(&task.key), 0);
        Outcome::Applied(message)
    }

    fn release(&mut self, task: &Task) {
        if let Some(object) = self
            .objects
            .iter_mut()
            .find(|object| meta::key(object) == task.key)
        {
            meta::set_field(object, &["metadata", "finalizers"], json!([]));
        }
    }

    fn delete(&mut self, task: &Task) {
        let left = self.script("lingers", task).and_then(Value::as_u64).unwrap_or(0);
        if left == 0 {
            return self.objects.retain(|object| meta::key(object) != task.key);
        }
        if let Some(object) = self
            .objects
            .iter_mut()
            .find(|object| meta::key(object) == task.key)
        {
            meta::set_field(
                object,
                &["metadata", "deletionTimestamp"],
                json!("2023-11-14T22:13:20Z"),
            );
            self.going.insert(task.key.to_string(), left);
        }
    }

    fn pass_time(&mut self, plan: &Plan) {
        self.going.values_mut().for_each(|left| *left -= 1);
        let going = &self.going;
        self.objects
            .retain(|object| going.get(&meta::key(object).to_string()) != Some(&0));
        self.going.retain(|_, left| *left > 0);
        for task in &plan.tasks {
            let looked_at = self.looked_at.get(&short(&task.key)).copied().unwrap_or(0);
            if self.script("vanishes", task).and_then(Value::as_u64) == Some(looked_at as u64) {
                self.objects.retain(|object| meta::key(object) != task.key);
            }
        }
    }
}

fn list<'a>(input: &'a Value, key: &str) -> &'a [Value] {
    input
        .get(key)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn short(key: &ResourceKey) -> String {
    format!("{}/{}", key.kind, key.name)
}

/// An object out of its short form: kind, name, and what matters to a sync.
fn object(short: &Value) -> Value {
    let text = |key: &str| {
        short.get(key).map(|value| {
            value
                .as_str()
                .map(str::to_owned)
                .unwrap_or_else(|| value.to_string())
        })
    };
    let kind = text("kind").unwrap();
    let mut object = json!({"apiVersion": text("apiVersion").unwrap_or_else(|| api_version(&kind).to_owned()), "kind": kind});
    if let Some(name) = text("name") {
        meta::set_field(&mut object, &["metadata", "name"], json!(name));
    }
    if let Some(prefix) = text("generateName") {
        meta::set_field(&mut object, &["metadata", "generateName"], json!(prefix));
    }
    let cluster_wide = [
        "Namespace",
        "CustomResourceDefinition",
        "ClusterRole",
        "StorageClass",
    ]
    .contains(&kind.as_str());
    if !cluster_wide {
        meta::set_field(
            &mut object,
            &["metadata", "namespace"],
            json!(text("namespace").unwrap_or("shop".into())),
        );
    }
    let annotations = [
        ("wave", "argocd.argoproj.io/sync-wave"),
        ("hook", "argocd.argoproj.io/hook"),
        ("policy", "argocd.argoproj.io/hook-delete-policy"),
        ("options", "argocd.argoproj.io/sync-options"),
        ("run", "argosy.dev/hook-run"),
        ("helmHook", "helm.sh/hook"),
        ("helmWeight", "helm.sh/hook-weight"),
        ("helmPolicy", "helm.sh/hook-delete-policy"),
        ("helmResource", "helm.sh/resource-policy"),
    ];
    for (field, annotation) in annotations {
        if let Some(value) = text(field) {
            meta::set_annotation(&mut object, annotation, value);
        }
    }
    for field in ["finalizers", "deletionTimestamp"] {
        if let Some(value) = short.get(field) {
            meta::set_field(&mut object, &["metadata", field], value.clone());
        }
    }
    if let Some(spec) = short.get("spec") {
        meta::set_field(&mut object, &["spec"], spec.clone());
    }
    object
}

fn api_version(kind: &str) -> &'static str {
    match kind {
        "Deployment" | "StatefulSet" | "DaemonSet" => "apps/v1",
        "Job" | "CronJob" => "batch/v1",
        "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
        "ClusterRole" | "Role" | "RoleBinding" => "rbac.authorization.k8s.io/v1",
        "Ingress" | "NetworkPolicy" => "networking.k8s.io/v1",
        "Widget" => "example.com/v1",
        _ => "v1",
    }
}
