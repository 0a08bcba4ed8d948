//! `argosy shards`: who owns which cluster, and the two things that people may want of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use argosy_kube_io::target::{Selection, Write};
use argosy_kube_io::{ClusterAuth, Target, api, client};
use argosy_object::{Value, meta};
use argosy_shard_coordinator::object::{Object, Pin, Record, ShardLease};
use argosy_shard_coordinator::wire;
use jiff::Timestamp;
use serde_json::json;

use crate::output::{self, Verdict};

/// `--watch` looks this often.
const WATCH: Duration = Duration::from_secs(2);
/// Clocks of people's machines and of the cluster may differ so much before a shard passes for silent.
const CLOCKS_APART: Duration = Duration::from_secs(60);
/// A write that met another one is tried so often.
const ATTEMPTS: usize = 5;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Namespace of the control plane [default: the kubeconfig's].
    #[arg(long, short = 'n', env = "ARGOCD_NAMESPACE", global = true)]
    namespace: Option<String>,
    /// Kubeconfig of the control plane's cluster.
    #[arg(long, env = "KUBECONFIG", global = true)]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, global = true)]
    context: Option<String>,
    /// Look again and again, and print what has changed.
    #[arg(long)]
    watch: bool,
    /// Format.
    #[arg(short, long, value_enum, default_value_t = Verdict::Text)]
    output: Verdict,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Let a shard hand over all its clusters, warm, and take none.
    Drain {
        /// Its name, or the beginning of it.
        shard: String,
        /// Let it take clusters again.
        #[arg(long)]
        undo: bool,
    },
    /// Have a cluster looked after by one shard.
    Pin {
        /// The URL of its API server.
        cluster: String,
        /// The shard's name, the beginning of it, or its number; `none` takes the pin off.
        shard: String,
    },
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let auth = ClusterAuth::infer(args.kubeconfig.as_deref(), args.context.as_deref())
        .await
        .context("find the control plane's API server")?;
    let namespace = args
        .namespace
        .clone()
        .unwrap_or_else(|| auth.namespace().to_owned());
    let client = argosy_kube_io::connect(auth, client::Options::default()).await?;
    let store = Store {
        target: Target::new(client),
        namespace,
    };
    match &args.action {
        None => list(&store, &args).await?,
        Some(Action::Drain { shard, undo }) => drain(&store, shard, !undo).await?,
        Some(Action::Pin { cluster, shard }) => pin(&store, cluster, shard).await?,
    }
    Ok(ExitCode::SUCCESS)
}

struct Store {
    target: Target,
    namespace: String,
}

/// Everything that is in the store, with the Leases as they were read.
#[derive(Default)]
struct All {
    shards: Vec<(ShardLease, Value)>,
    coordinator: String,
    records: Vec<(Record, Value)>,
}

impl Store {
    async fn all(&self) -> Result<All> {
        let selection = Selection {
            namespace: self.namespace.clone(),
            labels: wire::LABEL.to_owned(),
            fields: String::new(),
        };
        let leases = self
            .target
            .list(&api::leases(), &selection)
            .await
            .with_context(|| format!("list the leases in namespace {}", self.namespace))?;
        let mut all = All::default();
        for item in leases.items {
            let lease: Value = serde_json::from_slice(&item)?;
            match wire::decode(&lease) {
                Ok(Object::Shard(shard)) => all.shards.push((shard, lease)),
                Ok(Object::Record(record)) => all.records.push((record, lease)),
                Ok(Object::Election(election)) => {
                    all.coordinator = election
                        .holder
                        .map_or_else(String::new, |holder| holder.shard.to_string());
                }
                Err(error) => eprintln!("argosy: {:#}", anyhow::Error::from(error)),
            }
        }
        all.records.sort_by(|a, b| a.0.cluster.cmp(&b.0.cluster));
        all.shards.sort_by(|a, b| a.0.holder.cmp(&b.0.holder));
        Ok(all)
    }

    /// Writes over the version that was read; false if somebody else was faster.
    async fn put(&self, object: &Object, read: &Value) -> Result<bool> {
        let renewed = meta::str_field(read, &["spec", "renewTime"]).unwrap_or_default();
        let duration = meta::field(read, &["spec", "leaseDurationSeconds"]).and_then(Value::as_u64);
        let lease = wire::encode(
            object,
            &self.namespace,
            Some(meta::resource_version(read)),
            Duration::from_secs(duration.unwrap_or(20)),
            renewed,
        );
        match self
            .target
            .replace(&api::leases(), &lease, &Write::default())
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if error.conflict() => Ok(false),
            Err(error) => Err(error).context("write the lease"),
        }
    }
}

async fn list(store: &Store, args: &Args) -> Result<()> {
    let mut printed = String::new();
    loop {
        let all = store.all().await?;
        let now = Timestamp::now();
        let text = match args.output {
            Verdict::Text => table(&all, now),
            Verdict::Json => format!("{}\n", serde_json::to_string_pretty(&document(&all, now))?),
        };
        if text != printed {
            output::text(&text)?;
        }
        if !args.watch {
            return Ok(());
        }
        printed = text;
        tokio::time::sleep(WATCH).await;
    }
}

fn table(all: &All, now: Timestamp) -> String {
    if all.shards.is_empty() {
        return "no shard holds a lease here: one controller looks after everything, or clusters are divided by number\n"
            .to_owned();
    }
    let loads = loads(all);
    let mut text = format!(
        "{:<40} {:>4} {:>8} {:>10}  {}\n",
        "SHARD", "NO.", "CLUSTERS", "LOAD", "STATE"
    );
    for (lease, read) in &all.shards {
        let name = lease.holder.shard.to_string();
        let (clusters, load) = loads.get(&name).copied().unwrap_or_default();
        let number = lease
            .ordinal
            .map_or_else(String::new, |number| number.to_string());
        let coordinates = if name == all.coordinator {
            ", coordinates"
        } else {
            ""
        };
        text += &format!(
            "{name:<40} {number:>4} {clusters:>8} {load:>10}  {}{coordinates}\n",
            state(lease, read, now)
        );
    }
    text += &format!(
        "\n{:<52} {:<40} {:>6} {:<10} {:<20} {}\n",
        "CLUSTER", "OWNER", "EPOCH", "STATE", "KNOWN", "PIN"
    );
    for (record, _) in &all.records {
        text += &format!(
            "{:<52} {:<40} {:>6} {:<10} {:<20} {}\n",
            record.cluster,
            record
                .owner
                .as_ref()
                .map_or_else(|| "-".to_owned(), |owner| owner.shard.to_string()),
            record.epoch,
            record.state(),
            known(all, record, now).as_deref().unwrap_or("-"),
            record.pin.as_ref().map_or_else(String::new, pin_text),
        );
    }
    text
}

fn document(all: &All, now: Timestamp) -> Value {
    let loads = loads(all);
    json!({
        "shards": all.shards.iter().map(|(lease, read)| {
            let name = lease.holder.shard.to_string();
            let (clusters, load) = loads.get(&name).copied().unwrap_or_default();
            json!({
                "name": name, "term": lease.holder.term, "ordinal": lease.ordinal, "state": state(lease, read, now),
                "clusters": clusters, "load": load, "coordinates": name == all.coordinator,
                "renewTime": meta::field(read, &["spec", "renewTime"]),
            })
        }).collect::<Vec<_>>(),
        "clusters": all.records.iter().map(|(record, _)| json!({
            "server": record.cluster, "owner": record.owner.as_ref().map(|owner| owner.shard.to_string()),
            "epoch": record.epoch, "state": record.state().to_string(),
            "successor": record.handover.as_ref().and_then(|handover| handover.to.as_ref())
                .map(|to| to.shard.to_string()),
            "pin": record.pin.as_ref().map(pin_text), "known": known(all, record, now),
        })).collect::<Vec<_>>(),
    })
}

/// As of when a cluster is known: `now` while its owner watches it, nothing if nobody has seen it yet or owns it. An owner tells
/// with each renewal of its lease, so what one that does not renew any more told last was true then.
fn known(all: &All, record: &Record, now: Timestamp) -> Option<String> {
    let (lease, read) = record.owner.as_ref().and_then(|owner| {
        let mut leases = all.shards.iter();
        leases.find(|(lease, _)| lease.holder == *owner && !lease.over)
    })?;
    match lease.unseen.get(&record.cluster) {
        None => Some(match silent_since(lease, read, now) {
            Some(since) => written(since),
            None => "now".to_owned(),
        }),
        Some(since) => Some(written(Timestamp::from_second((*since)?).ok()?)),
    }
}

/// When a lease was renewed last that is not renewed any more. Other shards mark such a lease over; where there are none, nobody
/// does. It goes by the clock of this machine, which may be off by a minute.
fn silent_since(lease: &ShardLease, read: &Value, now: Timestamp) -> Option<Timestamp> {
    let renewed: Timestamp = meta::str_field(read, &["spec", "renewTime"])?.parse().ok()?;
    let wait = lease.expiry() + CLOCKS_APART;
    (!lease.over && now.duration_since(renewed).unsigned_abs() > wait && renewed < now).then_some(renewed)
}

fn written(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Clusters and their cost, by shard.
fn loads(all: &All) -> BTreeMap<String, (usize, u64)> {
    let mut loads: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    for (record, _) in &all.records {
        let Some(owner) = &record.owner else { continue };
        let measured = all
            .shards
            .iter()
            .find(|(lease, _)| lease.holder == *owner)
            .and_then(|(lease, _)| lease.costs.get(&record.cluster));
        let entry = loads.entry(owner.shard.to_string()).or_default();
        entry.0 += 1;
        entry.1 += measured.copied().unwrap_or(record.cost);
    }
    loads
}

fn state(lease: &ShardLease, read: &Value, now: Timestamp) -> String {
    let told = match (lease.over, lease.leaving, lease.drain) {
        (true, ..) => "over",
        (_, true, _) => "leaving",
        (.., true) => "drained",
        _ => "takes clusters",
    };
    match silent_since(lease, read, now) {
        Some(since) => format!("silent since {}", written(since)),
        None => told.to_owned(),
    }
}

fn pin_text(pin: &Pin) -> String {
    match pin {
        Pin::Number(number) => number.to_string(),
        Pin::Shard(shard) => shard.to_string(),
    }
}

async fn drain(store: &Store, name: &str, drain: bool) -> Result<()> {
    for _ in 0..ATTEMPTS {
        let all = store.all().await?;
        let (mut lease, read) = called(all.shards, name)?;
        if lease.drain == drain {
            return Ok(());
        }
        lease.drain = drain;
        lease.revision += 1;
        if store.put(&Object::Shard(lease), &read).await? {
            return Ok(());
        }
    }
    bail!("the lease of {name} changes all the time; try again")
}

/// The shard that lives of this name, or the only one whose name begins so.
fn called(shards: Vec<(ShardLease, Value)>, name: &str) -> Result<(ShardLease, Value)> {
    let mut found: Vec<_> = shards
        .into_iter()
        .filter(|(lease, _)| !lease.over && lease.holder.shard.0.starts_with(name))
        .collect();
    // `controller-1` is the beginning of `controller-10`, too.
    if let Some(at) = found.iter().position(|(lease, _)| *lease.holder.shard.0 == *name) {
        return Ok(found.swap_remove(at));
    }
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => bail!("no shard that lives is called {name}: see `argosy shards`"),
        (Some(_), false) => bail!("several shards are called {name}…: say more of the name"),
    }
}

async fn pin(store: &Store, cluster: &str, shard: &str) -> Result<()> {
    let cluster = cluster.trim_end_matches('/');
    for _ in 0..ATTEMPTS {
        let all = store.all().await?;
        let wanted = match (shard, shard.parse::<u32>()) {
            ("none", _) => None,
            (_, Ok(number)) => Some(Pin::Number(number)),
            (name, Err(_)) => Some(Pin::Shard(called(all.shards, name)?.0.holder.shard)),
        };
        let Some((mut record, read)) = all
            .records
            .into_iter()
            .find(|(record, _)| *record.cluster.0 == *cluster)
        else {
            bail!("there is no record of cluster {cluster}: see `argosy shards`");
        };
        record.pin = wanted;
        record.revision += 1;
        if store.put(&Object::Record(record), &read).await? {
            return Ok(());
        }
    }
    bail!("the record of {cluster} changes all the time; try again")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use argosy_shard_coordinator::object::{ClusterId, Incarnation, ShardId};

    use super::*;

    fn lease(name: &str) -> ShardLease {
        ShardLease {
            holder: Incarnation {
                shard: ShardId::new(name),
                term: 3,
            },
            boot: "b".into(),
            over: false,
            revision: 1,
            renewals: 1,
            ordinal: None,
            expiry: 25_000,
            drain: false,
            leaving: false,
            costs: BTreeMap::new(),
            unseen: BTreeMap::new(),
        }
    }

    #[test]
    fn a_shard_is_meant_by_its_name_or_the_beginning_of_only_one() {
        let shards = || {
            let mut over = lease("pod-2");
            over.over = true;
            let leases = [over, lease("pod-1"), lease("pod-10"), lease("pod-20")];
            leases.map(|lease| (lease, Value::Null)).to_vec()
        };
        let found = |name| called(shards(), name).map(|(lease, _)| lease.holder.shard.to_string());
        assert_eq!(found("pod-1").unwrap(), "pod-1");
        assert_eq!(found("pod-10").unwrap(), "pod-10");
        assert_eq!(found("pod-2").unwrap(), "pod-20", "what is over is not meant");
        assert!(found("pod-").unwrap_err().to_string().starts_with("several"));
        assert!(found("host").unwrap_err().to_string().starts_with("no shard"));
    }

    #[test]
    fn a_cluster_is_known_as_of_what_its_owner_told_last() {
        let [seen, lost, new] = ["https://seen", "https://lost", "https://new"].map(ClusterId::new);
        let mut lease = lease("pod-0");
        let holder = lease.holder.clone();
        lease.unseen = BTreeMap::from([(lost.clone(), Some(1_800_000_000)), (new.clone(), None)]);
        let renewed = json!({"spec": {"renewTime": "2027-01-15T09:00:00.000000Z"}});
        let now: Timestamp = "2027-01-15T09:00:20Z".parse().unwrap();
        let mut all = All {
            shards: vec![(lease, renewed)],
            ..All::default()
        };
        let record = |cluster: &ClusterId| Record {
            cluster: cluster.clone(),
            revision: 1,
            epoch: 1,
            owner: Some(holder.clone()),
            handover: None,
            pin: None,
            cost: 1,
        };
        assert_eq!(known(&all, &record(&seen), now).as_deref(), Some("now"));
        assert_eq!(
            known(&all, &record(&lost), now).as_deref(),
            Some("2027-01-15T08:00:00Z")
        );
        assert_eq!(known(&all, &record(&new), now), None);
        assert_eq!(state(&all.shards[0].0, &all.shards[0].1, now), "takes clusters");

        // All have died: nobody is there to mark a lease over.
        let later: Timestamp = "2027-01-17T18:00:00Z".parse().unwrap();
        assert_eq!(
            known(&all, &record(&seen), later).as_deref(),
            Some("2027-01-15T09:00:00Z")
        );
        assert_eq!(
            state(&all.shards[0].0, &all.shards[0].1, later),
            "silent since 2027-01-15T09:00:00Z"
        );
        let before: Timestamp = "2027-01-15T08:00:00Z".parse().unwrap();
        assert_eq!(
            known(&all, &record(&seen), before).as_deref(),
            Some("now"),
            "this machine's clock is late"
        );

        all.shards[0].0.over = true;
        assert_eq!(known(&all, &record(&seen), now), None, "nobody looks at it");
    }
}
