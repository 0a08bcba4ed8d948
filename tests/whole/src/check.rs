//! What must hold, looked at whenever a write lands.
//!
//! | invariant | looked at |
//! |---|---|
//! | I1 order of epochs | records of clusters, the epoch beside the state of operations, and the commits of a target's objects never go back |
//! | I2 one operation | an operation that has ended does not go on, each hook's Job is made once an operation |
//! | I3 no blind prune | nothing goes that the newest commit holds |
//! | I4 honest status | an Application is Synced to a commit only where the cluster holds that commit; Unknown in time |
//! | I5, I8 one owner, no write without the lease | a write lands only under the record that names its sender |
//! | I6 rest | writes to the control plane once nothing happens |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use argosy_object::{Value, meta};
use argosy_shard_coordinator::object::{ClusterId, Incarnation, Object, Record, ShardId, ShardLease};
use argosy_shard_coordinator::wire;
use argosy_simulation::serve::Unbound;
use argosy_simulation::{ADMIN_TOKEN, Answer, ApiServer, Request};
use argosy_sync::hook::{ANNOTATION, RUN_ANNOTATION};
use bytes::Bytes;
use http::Method;

use crate::git::{self, Git};
use crate::network::ProcessId;
use crate::world::{NAMESPACE, SAMPLE, time};

/// Argosy's note of the epoch on an Application.
const EPOCH: &str = "argosy.dev/epoch";
/// How the report that nobody looks after a cluster begins.
const UNOWNED: &str = "No shard looks after cluster";

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which, as `I8`.
    pub invariant: &'static str,
    /// When, since the beginning.
    pub at: Duration,
    /// What happened.
    pub detail: String,
}

/// A write, by where it goes.
pub(crate) struct Write<'a> {
    pub(crate) plural: &'a str,
    pub(crate) name: &'a str,
    pub(crate) method: &'a Method,
}

impl<'a> Write<'a> {
    /// What a request writes; nothing if it reads or only asks what a write would do.
    pub(crate) fn of(request: &'a Request) -> Option<Self> {
        let method = request.method();
        if method == Method::GET
            || request
                .uri()
                .query()
                .is_some_and(|query| query.contains("dryRun="))
        {
            return None;
        }
        let mut steps = request.uri().path().trim_matches('/').split('/');
        let skipped = if steps.next()? == "api" { 1 } else { 2 };
        let mut rest = steps.skip(skipped).peekable();
        let first = rest.next()?;
        let (plural, name) = match (first, rest.next(), rest.next()) {
            ("namespaces", Some(_), Some(plural)) => (plural, rest.next().unwrap_or_default()),
            (plural, name, _) => (plural, name.unwrap_or_default()),
        };
        Some(Write { plural, name, method })
    }

    /// Whether it is on objects that people see, and stands behind the fence.
    fn matters(&self) -> bool {
        self.plural != "leases" && self.plural != "events"
    }
}

/// All that is known of what has landed.
pub(crate) struct Checker {
    git: Git,
    /// There are no leases: everything is one process's.
    alone: bool,
    clusters: Vec<Target>,
    records: BTreeMap<ClusterId, Record>,
    epochs: BTreeMap<ClusterId, u64>,
    leases: BTreeMap<ShardId, ShardLease>,
    /// Which process bears, or bore, an incarnation.
    bearers: BTreeMap<Incarnation, ProcessId>,
    apps: BTreeMap<String, App>,
    /// The newest commit that each object of a target was written for, by cluster and name.
    commits: BTreeMap<(usize, String), u64>,
    /// The uids of the Jobs that each run of a hook has had, by cluster, run and name.
    hooks: BTreeMap<(usize, String, String), BTreeSet<String>>,
    /// Processes that are no more: what they sent may still arrive when another follows in their pod.
    pub(crate) dead: BTreeSet<ProcessId>,
    /// What the processes have written to the control plane, by kind.
    pub(crate) writes: BTreeMap<String, u64>,
    pub(crate) broken: Option<Broken>,
    /// Of all writes that landed.
    pub(crate) trace: u64,
}

struct Target {
    url: String,
    server: Weak<Unbound>,
}

#[derive(Default)]
struct App {
    epoch: u64,
    /// The running or last operation: when it began, and whether it has ended.
    operation: Option<(String, bool)>,
}

impl Checker {
    pub(crate) fn new(git: Git, alone: bool) -> Self {
        Checker {
            git,
            alone,
            clusters: Vec::new(),
            records: BTreeMap::new(),
            epochs: BTreeMap::new(),
            leases: BTreeMap::new(),
            bearers: BTreeMap::new(),
            apps: BTreeMap::new(),
            commits: BTreeMap::new(),
            hooks: BTreeMap::new(),
            dead: BTreeSet::new(),
            writes: BTreeMap::new(),
            broken: None,
            trace: 0xcbf2_9ce4_8422_2325,
        }
    }

    pub(crate) fn target(&mut self, url: &str, server: &Arc<Unbound>) {
        self.clusters.push(Target {
            url: url.to_owned(),
            server: Arc::downgrade(server),
        });
    }

    /// Who owns a cluster: the process that bears the incarnation of its record.
    pub(crate) fn owner(&self, url: &str) -> Option<ProcessId> {
        let owner = self.records.get(&ClusterId::new(url))?.owner.as_ref()?;
        self.bearers.get(owner).copied()
    }

    pub(crate) fn breaks(&mut self, invariant: &'static str, at: Duration, detail: String) {
        self.broken.get_or_insert(Broken {
            invariant,
            at,
            detail,
        });
    }

    /// A write of a process has landed at the control plane (nothing) or a target. `late` if it was on its way for longer than
    /// leases allow for.
    pub(crate) fn landed(
        &mut self,
        at: Duration,
        from: ProcessId,
        target: Option<usize>,
        write: &Write<'_>,
        object: &Value,
        late: bool,
    ) {
        self.note(
            format!(
                "{at:?} {from} {target:?} {} {} {}",
                write.method, write.plural, write.name
            )
            .as_bytes(),
        );
        let late = late || self.dead.contains(&from);
        match target {
            Some(target) if write.matters() => self.on_target(at, from, target, write, object, late),
            Some(_) => {}
            None => {
                *self.writes.entry(write.plural.to_owned()).or_default() += 1;
                match write.plural {
                    "leases" => self.on_lease(at, from, write, object),
                    "applications" => self.on_application(at, from, object, late),
                    _ => {}
                }
            }
        }
    }

    /// FNV-1a.
    fn note(&mut self, text: &[u8]) {
        for byte in text {
            self.trace = (self.trace ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn on_lease(&mut self, at: Duration, from: ProcessId, write: &Write<'_>, lease: &Value) {
        if *write.method == Method::DELETE {
            self.records.retain(|cluster, _| {
                let key = argosy_shard_coordinator::object::Key::Cluster(cluster.clone());
                wire::name(&key) != write.name
            });
            return;
        }
        match wire::decode(lease) {
            Ok(Object::Shard(lease)) => {
                let taken = self
                    .leases
                    .get(&lease.holder.shard)
                    .is_none_or(|known| known.holder != lease.holder || known.boot != lease.boot);
                if taken && !lease.over {
                    self.bearers.insert(lease.holder.clone(), from);
                }
                self.leases.insert(lease.holder.shard.clone(), lease);
            }
            Ok(Object::Record(record)) => self.on_record(at, record),
            Ok(Object::Election(_)) => {}
            Err(error) => self.breaks("I1", at, format!("a lease that cannot be read: {error}")),
        }
    }

    fn on_record(&mut self, at: Duration, record: Record) {
        let highest = self.epochs.entry(record.cluster.clone()).or_default();
        let before = *highest;
        *highest = before.max(record.epoch);
        let known = self.records.insert(record.cluster.clone(), record.clone());
        if record.epoch < before {
            let detail = format!(
                "the record of {} went from epoch {before} to {}",
                record.cluster, record.epoch
            );
            self.breaks("I1", at, detail);
        }
        let other = known.is_some_and(|known| known.owner != record.owner && known.epoch == record.epoch);
        if other && record.owner.is_some() {
            self.breaks(
                "I5",
                at,
                format!("two owners of {} under epoch {}", record.cluster, record.epoch),
            );
        }
    }

    fn on_application(&mut self, at: Duration, from: ProcessId, object: &Value, late: bool) {
        let name = meta::name(object).to_owned();
        let server = object["spec"]["destination"]["server"]
            .as_str()
            .unwrap_or_default();
        let conditions = object["status"]["conditions"].as_array();
        let reported = conditions.into_iter().flatten().any(|condition| {
            condition["message"]
                .as_str()
                .is_some_and(|text| text.starts_with(UNOWNED))
        });
        let of_nobody = reported && !self.looked_after(server);
        if !late && !of_nobody && !self.owns(from, server) {
            let detail = format!(
                "process {from} wrote {name}, whose cluster is that of {:?}",
                self.owner(server)
            );
            self.breaks("I8", at, detail);
        }

        let app = self.apps.entry(name.clone()).or_default();
        let epoch = meta::annotation(object, EPOCH)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        let before = std::mem::replace(&mut app.epoch, epoch);
        let state = &object["status"]["operationState"];
        let began = state["startedAt"].as_str().unwrap_or_default().to_owned();
        let ended = matches!(state["phase"].as_str(), Some("Succeeded" | "Failed" | "Error"));
        let operation = app.operation.replace((began.clone(), ended));
        if epoch < before {
            self.breaks("I1", at, format!("{name} went from epoch {before} to {epoch}"));
        }
        if let Some((known, over)) = operation.filter(|(known, _)| !known.is_empty()) {
            if known == began && over && !ended {
                self.breaks(
                    "I2",
                    at,
                    format!("the operation of {name} from {began} went on after its end"),
                );
            }
            if known != began && !over {
                let detail = format!("{name} began one at {began} before that from {known} had ended");
                self.breaks("I2", at, detail);
            }
        }
        self.is_honest(at, &name, server, &object["status"]["sync"]);
    }

    fn is_honest(&mut self, at: Duration, name: &str, server: &str, sync: &Value) {
        let commit = sync["revision"].as_str().and_then(git::commit);
        let (Some(commit), "Synced") = (commit, sync["status"].as_str().unwrap_or_default()) else {
            return;
        };
        let target = self.clusters.iter().find(|target| target.url == server);
        let Some(target) = target.and_then(|target| target.server.upgrade()) else {
            return;
        };
        for map in git::maps(commit) {
            let path = format!("/api/v1/namespaces/{SAMPLE}/configmaps/{map}");
            let found = target.with(|target| get(target, &path, at));
            let holds = found["data"]["commit"]
                .as_str()
                .and_then(|text| text.parse::<u64>().ok());
            // What a later commit has changed, or taken away, was right when it was looked at.
            let newer = self.git.head() > commit && (holds > Some(commit) || found.is_null());
            if holds != Some(commit) && !newer {
                let detail =
                    format!("{name} is Synced to commit {commit}, and {map} of {server} holds {holds:?}");
                self.breaks("I4", at, detail);
            }
        }
    }

    fn on_target(
        &mut self,
        at: Duration,
        from: ProcessId,
        target: usize,
        write: &Write<'_>,
        object: &Value,
        late: bool,
    ) {
        let url = self.clusters[target].url.clone();
        if !late && !self.owns(from, &url) {
            let detail = format!(
                "process {from} wrote {} {} of {url}, which is that of {:?}",
                write.plural,
                write.name,
                self.owner(&url)
            );
            self.breaks("I8", at, detail);
        }
        if let Some(run) = meta::annotation(object, RUN_ANNOTATION)
            && *write.method == Method::POST
        {
            let place = (target, run.to_owned(), meta::name(object).to_owned());
            let uids = self.hooks.entry(place.clone()).or_default();
            uids.insert(meta::uid(object).to_owned());
            if uids.len() > 1 && !late {
                self.breaks(
                    "I2",
                    at,
                    format!("the hook {} of run {} was made twice", place.2, place.1),
                );
            }
        }
        let commit = object["data"]["commit"]
            .as_str()
            .and_then(|text| text.parse().ok());
        if let Some(commit) = commit.filter(|_| *write.method != Method::DELETE && !late) {
            let name = meta::name(object).to_owned();
            let newest = self.commits.entry((target, name.clone())).or_default();
            let before = std::mem::replace(newest, commit);
            if commit < before {
                self.breaks(
                    "I1",
                    at,
                    format!("{name} of {url} went from commit {before} to {commit}"),
                );
            }
        }
        let hook = meta::annotation(object, ANNOTATION).is_some();
        if *write.method == Method::DELETE
            && write.plural == "configmaps"
            && !hook
            && git::maps(self.git.head()).iter().any(|map| map == write.name)
        {
            self.breaks(
                "I3",
                at,
                format!("{} of {url} was pruned, and Git holds it", write.name),
            );
        }
    }

    /// Whether the record of a cluster names the process.
    fn owns(&self, process: ProcessId, url: &str) -> bool {
        self.alone || self.owner(url) == Some(process)
    }

    /// Whether the record of a cluster names an owner whose lease is not over.
    fn looked_after(&self, url: &str) -> bool {
        let owner = self
            .records
            .get(&ClusterId::new(url))
            .and_then(|record| record.owner.as_ref());
        owner.is_some_and(|owner| {
            self.leases
                .get(&owner.shard)
                .is_some_and(|lease| lease.holder == *owner && !lease.over)
        })
    }
}

/// An object, or a list, as the server has it; null if there is none.
pub(crate) fn get(server: &mut ApiServer, path: &str, at: Duration) -> Value {
    match call(server, Method::GET, path, &Value::Null, at) {
        (200, object) => object,
        _ => Value::Null,
    }
}

/// A request of a person.
pub(crate) fn call(
    server: &mut ApiServer,
    method: Method,
    path: &str,
    body: &Value,
    at: Duration,
) -> (u16, Value) {
    let media = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = match body {
        Value::Null => Bytes::new(),
        body => Bytes::from(body.to_string()),
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::AUTHORIZATION, format!("Bearer {ADMIN_TOKEN}"))
        .header(http::header::CONTENT_TYPE, media)
        .body(body)
        .expect("a request of constant parts");
    match server.undisturbed(|server| server.handle(&request, time(at))) {
        Answer::Document(response) => (
            response.status().as_u16(),
            serde_json::from_slice(response.body()).unwrap_or_default(),
        ),
        Answer::Watch(_) | Answer::Broken => (0, Value::Null),
    }
}

/// The path of an Application.
pub(crate) fn application(name: &str) -> String {
    format!("/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/applications/{name}")
}
