//! `argosy shards`: who owns which cluster, and the two things that people may want of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use argosy_kube_io::target::{Selection, Write};
use argosy_kube_io::{ClusterAuth, Target, api, client};
use argosy_object::{Value, meta};
use argosy_shard_coordinator::object::{Object, Pin, Record, ShardId, ShardLease};
use argosy_shard_coordinator::wire;
use serde_json::json;

use crate::output::{self, Verdict};

/// `--watch` looks this often.
const WATCH: Duration = Duration::from_secs(2);
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
        /// The shard's name or number; `none` takes the pin off.
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
        let text = match args.output {
            Verdict::Text => table(&all),
            Verdict::Json => format!("{}\n", serde_json::to_string_pretty(&document(&all))?),
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

fn table(all: &All) -> String {
    if all.shards.is_empty() {
        return "no shard holds a lease here: one controller looks after everything, or clusters are divided by number\n"
            .to_owned();
    }
    let loads = loads(all);
    let mut text = format!(
        "{:<40} {:>4} {:>8} {:>10}  {}\n",
        "SHARD", "NO.", "CLUSTERS", "LOAD", "STATE"
    );
    for (lease, _) in &all.shards {
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
            state(lease)
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
            known(all, record).as_deref().unwrap_or("-"),
            record.pin.as_ref().map_or_else(String::new, pin_text),
        );
    }
    text
}

fn document(all: &All) -> Value {
    let loads = loads(all);
    json!({
        "shards": all.shards.iter().map(|(lease, read)| {
            let name = lease.holder.shard.to_string();
            let (clusters, load) = loads.get(&name).copied().unwrap_or_default();
            json!({
                "name": name, "term": lease.holder.term, "ordinal": lease.ordinal, "state": state(lease),
                "clusters": clusters, "load": load, "coordinates": name == all.coordinator,
                "renewTime": meta::field(read, &["spec", "renewTime"]),
            })
        }).collect::<Vec<_>>(),
        "clusters": all.records.iter().map(|(record, _)| json!({
            "server": record.cluster, "owner": record.owner.as_ref().map(|owner| owner.shard.to_string()),
            "epoch": record.epoch, "state": record.state().to_string(),
            "successor": record.handover.as_ref().and_then(|handover| handover.to.as_ref())
                .map(|to| to.shard.to_string()),
            "pin": record.pin.as_ref().map(pin_text), "known": known(all, record),
        })).collect::<Vec<_>>(),
    })
}

/// As of when a cluster is known: `now` while its owner watches it, nothing if nobody has seen it yet or owns it. An owner tells
/// with each renewal of its lease; what it told last counts for as long as nobody has marked the lease over.
fn known(all: &All, record: &Record) -> Option<String> {
    let lease = record.owner.as_ref().and_then(|owner| {
        let mut leases = all.shards.iter().map(|(lease, _)| lease);
        leases.find(|lease| lease.holder == *owner && !lease.over)
    });
    match lease?.unseen.get(&record.cluster) {
        None => Some("now".to_owned()),
        Some(since) => {
            let since = jiff::Timestamp::from_second((*since)?).ok()?;
            Some(since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        }
    }
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

fn state(lease: &ShardLease) -> &'static str {
    match (lease.over, lease.leaving, lease.drain) {
        (true, ..) => "over",
        (_, true, _) => "leaving",
        (.., true) => "drained",
        _ => "takes clusters",
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
        let mut found = all
            .shards
            .into_iter()
            .filter(|(lease, _)| !lease.over && lease.holder.shard.0.starts_with(name));
        let (mut lease, read) = match (found.next(), found.next()) {
            (Some(only), None) => only,
            (None, _) => bail!("no shard that lives is called {name}: see `argosy shards`"),
            (Some(_), Some(_)) => bail!("several shards are called {name}…: say more of the name"),
        };
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

async fn pin(store: &Store, cluster: &str, shard: &str) -> Result<()> {
    let cluster = cluster.trim_end_matches('/');
    let wanted = match (shard, shard.parse::<u32>()) {
        ("none", _) => None,
        (_, Ok(number)) => Some(Pin::Number(number)),
        (name, Err(_)) => Some(Pin::Shard(ShardId::new(name))),
    };
    for _ in 0..ATTEMPTS {
        let all = store.all().await?;
        if let Some(Pin::Shard(shard)) = &wanted
            && !all
                .shards
                .iter()
                .any(|(lease, _)| lease.holder.shard == *shard && !lease.over)
        {
            bail!("no shard that lives is called {shard}: see `argosy shards`");
        }
        let Some((mut record, read)) = all
            .records
            .into_iter()
            .find(|(record, _)| *record.cluster.0 == *cluster)
        else {
            bail!("there is no record of cluster {cluster}: see `argosy shards`");
        };
        record.pin = wanted.clone();
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
    use argosy_shard_coordinator::object::{ClusterId, Incarnation};

    use super::*;

    #[test]
    fn a_cluster_is_known_as_of_what_its_owner_told_last() {
        let holder = Incarnation {
            shard: ShardId::new("pod-0"),
            term: 3,
        };
        let [seen, lost, new] = ["https://seen", "https://lost", "https://new"].map(ClusterId::new);
        let lease = ShardLease {
            holder: holder.clone(),
            boot: "b".into(),
            over: false,
            revision: 1,
            renewals: 1,
            ordinal: None,
            drain: false,
            leaving: false,
            costs: BTreeMap::new(),
            unseen: BTreeMap::from([(lost.clone(), Some(1_800_000_000)), (new.clone(), None)]),
        };
        let mut all = All {
            shards: vec![(lease, Value::Null)],
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
        assert_eq!(known(&all, &record(&seen)).as_deref(), Some("now"));
        assert_eq!(
            known(&all, &record(&lost)).as_deref(),
            Some("2027-01-15T08:00:00Z")
        );
        assert_eq!(known(&all, &record(&new)), None);
        all.shards[0].0.over = true;
        assert_eq!(known(&all, &record(&seen)), None, "nobody looks at it");
    }
}
