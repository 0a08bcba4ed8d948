//! `cargo xtask guards`: is the simulation sharp enough? Each guard of the shards' protocol is taken out of a copy of the
//! sources, one at a time, and seeds are run until one breaks an invariant. With `--whole` the same for guards of the whole
//! controller, in seeds of whole controllers.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

use crate::shell;

/// One guard: what it is, where it stands, and the text without it.
struct Guard {
    name: &'static str,
    file: &'static str,
    with: &'static str,
    without: &'static str,
}

const NODE: &str = "shard-coordinator/src/node.rs";
const LEASE: &str = "shard-coordinator/src/node/lease.rs";
const HOLD: &str = "shard-coordinator/src/node/hold.rs";
const COORDINATE: &str = "shard-coordinator/src/node/coordinate.rs";
const TIMING: &str = "shard-coordinator/src/timing.rs";
const OBJECT: &str = "shard-coordinator/src/object.rs";
const BALANCE: &str = "shard-coordinator/src/balance.rs";
const STORE: &str = "shard-coordinator/simulation/src/store.rs";
const WORLD: &str = "shard-coordinator/simulation/src/world.rs";

/// So many seeds at most for each of them.
const SEEDS: &str = "20000";

#[rustfmt::skip]
const GUARDS: [Guard; 42] = [
    // The holder's own clock.
    Guard { name: "writes begin and end within the lease", file: NODE,
        with: "start: *sent + self.timing.write,\n                end: *sent + self.timing.duration,",
        without: "start: *sent + self.timing.duration * 2,\n                end: *sent + self.timing.duration * 2," },
    Guard { name: "the server is told to give up within the lease", file: NODE,
        with: "end: *sent + self.timing.duration,", without: "end: *sent + self.timing.duration * 3," },
    Guard { name: "a lease counts from when its renewal was first sent", file: NODE,
        with: "self.written(pending.first, &object, out);", without: "self.written(now, &object, out);" },
    Guard { name: "a repeated renewal counts from its first attempt", file: NODE,
        with: "self.written(pending.first, &object, out);", without: "self.written(pending.last, &object, out);" },
    Guard { name: "a lost lease ends everything held", file: LEASE,
        with: "    fn lose(&mut self, sent: Time, out: &mut Out) {\n        self.drop_all(out);",
        without: "    fn lose(&mut self, sent: Time, out: &mut Out) {" },
    Guard { name: "a lease that was marked over is not renewed over", file: LEASE,
        with: "|| self.is_taken(&incarnation)", without: "|| (self.is_taken(&incarnation) && false)" },
    // Others.
    Guard { name: "others wait until a lease has not changed for its length", file: COORDINATE,
        with: "&& now - seen.since >= self.timing.expiry()\n            })\n            .map(|seen| seen.object.clone())",
        without: "&& now - seen.since >= self.timing.renew\n            })\n            .map(|seen| seen.object.clone())" },
    Guard { name: "and for the margin between clocks", file: TIMING,
        with: "self.duration + self.margin", without: "self.duration" },
    Guard { name: "only a later term, or the mark, proves that a hold is over", file: COORDINATE,
        with: "lease.holder.term > incarnation.term || (lease.holder == *incarnation && lease.over)",
        without: "lease.holder.term > incarnation.term || lease.over" },
    Guard { name: "a lease that is not there proves nothing", file: COORDINATE,
        with: "None => Owner::Lost(owner.clone()),", without: "None => Owner::Nobody," },
    Guard { name: "what a dead process of the pod sent is waited for by others", file: COORDINATE,
        with: "followed.is_none_or(|since| now - *since >= self.timing.expiry())",
        without: "followed.is_none_or(|since| now - *since >= Time::ZERO)" },
    Guard { name: "that an owner is over is the store's own word", file: COORDINATE,
        with: "landed && self.store_says(now, owner, since, out)", without: "landed && since >= Time::ZERO" },
    Guard { name: "and by its follower, before it hands over", file: HOLD,
        with: "Phase::Owned if now < self.wire => {}", without: "Phase::Owned if now < self.wire && false => {}" },
    // Deleted objects.
    Guard { name: "an empty store is left alone for a lease", file: COORDINATE,
        with: "&& settled\n", without: "&& (settled || true)\n" },
    Guard { name: "a record that is gone is not made anew at once", file: COORDINATE,
        with: "&& !self.gone.contains_key(cluster)\n", without: "\n" },
    Guard { name: "epochs of new records lie above earlier ones", file: COORDINATE,
        with: "epoch: count,", without: "epoch: 1," },
    Guard { name: "counts of new records lie above earlier ones", file: COORDINATE,
        with: "revision: count,", without: "revision: 1," },
    Guard { name: "terms of new leases lie above earlier ones", file: LEASE,
        with: ".max(lease.map_or(self.first_count(), |lease| lease.holder.term));",
        without: ".max(lease.map_or(0, |lease| lease.holder.term));" },
    Guard { name: "counts of new leases lie above earlier ones", file: LEASE,
        with: "revision: lease.map_or(self.first_count(), |lease| lease.revision) + 1,",
        without: "revision: lease.map_or(0, |lease| lease.revision) + 1," },
    Guard { name: "terms lie above those that records name", file: LEASE,
        with: "terms.max().unwrap_or(0).max(self.last_term)", without: "terms.max().unwrap_or(0).min(0)" },
    Guard { name: "a lease whose term has been borne is let go", file: LEASE,
        with: "match self.highest_term() > incarnation.term ||", without: "match" },
    Guard { name: "a deleted lease is put back, so that the wait for it can begin", file: COORDINATE,
        with: "Owner::Lost(owner) => self.stand_in(now, owner, out),\n            Owner::Alive(owner) => self.hand",
        without: "Owner::Lost(_) => {}\n            Owner::Alive(owner) => self.hand" },
    Guard { name: "a record that is not there any more is not held", file: NODE,
        with: "&& self.held.remove(cluster).is_some()", without: "&& self.held.contains_key(cluster) && false" },
    // Views.
    Guard { name: "an older view is no news", file: NODE,
        with: "let news = known.is_none_or(|known| known < object.revision());",
        without: "let news = known.is_none_or(|known| known < object.revision() || true);" },
    Guard { name: "what contradicts is asked of the store", file: NODE,
        with: "if !news && known", without: "if false && !news && known" },
    Guard { name: "an owner is so by the store's word", file: HOLD,
        with: "if mine && !confirmed && held", without: "if mine && !confirmed && false && held" },
    Guard { name: "what was given up is taken again under a new epoch only", file: HOLD,
        with: ".is_none_or(|epoch| *epoch < record.epoch) =>", without: ".is_none_or(|_| true) =>" },
    Guard { name: "what was given up and is still its own is taken again", file: HOLD,
        with: "if (earlier && self.stop.is_none()) || given_up {", without: "if (earlier && self.stop.is_none()) || (given_up && false) {" },
    Guard { name: "answers belong to their write", file: NODE,
        with: ".filter(|pending| pending.number == number)", without: ".filter(|pending| pending.number > 0 && number > 0)" },
    Guard { name: "news on the way of an answer is asked for again", file: NODE,
        with: "if known.is_some() && known != before &&", without: "if false && known.is_some() && known != before &&" },
    Guard { name: "whoever has lost its lease learns everything anew", file: LEASE,
        with: "        self.shards.clear();\n        self.records.clear();\n        self.election = None;\n        self.listed = false;\n        self.counted = false;\n        self.listing = None;\n        out.push(Effect::List);\n",
        without: "" },
    Guard { name: "everything is listed anew once in a while", file: NODE,
        with: "|| now - since >= self.timing.relist) {", without: "|| (now - since >= self.timing.relist && false)) {" },
    // Hand-over.
    Guard { name: "an owner lets go when no write is under way", file: HOLD,
        with: "Phase::Draining => {}\n            Phase::Drained => {", without: "Phase::Draining | Phase::Drained => {" },
    Guard { name: "a cluster that may have been given away is not taken up again", file: HOLD,
        with: "if !asked && !given && leaving", without: "if !asked && (!given || given) && leaving" },
    Guard { name: "a process ends when it holds nothing", file: LEASE,
        with: "if !self.ending && (owns", without: "if own.term == 0 && (owns" },
    Guard { name: "a process that gives its lease back takes nothing", file: HOLD,
        with: "self.incarnation().filter(|_| !self.ending).cloned()", without: "self.incarnation().filter(|_| true).cloned()" },
    Guard { name: "each owner has an epoch of its own", file: OBJECT,
        with: "epoch: self.epoch + 1,", without: "epoch: self.epoch," },
    // Rest.
    Guard { name: "a lease is renewed when it is due", file: LEASE,
        with: "if now < next && leaving == known.object.leaving {", without: "if false && now < next && leaving == known.object.leaving {" },
    Guard { name: "clusters move when a bound is broken", file: BALANCE,
        with: "if over || under {", without: "if over || under || true {" },
    // Outside of the node: what the shell and the API servers do.
    Guard { name: "the store compares before it swaps", file: STORE,
        with: "if self.objects.get(&key).map(|(_, version)| version) != expect {",
        without: "if false && self.objects.get(&key).map(|(_, version)| version) != expect {" },
    Guard { name: "a target's object is written under preconditions", file: WORLD,
        with: "if *version != landing.expect {", without: "if false && *version != landing.expect {" },
    Guard { name: "a target drops what is past its time limit", file: WORLD,
        with: "if self.now > landing.until {", without: "if false && self.now > landing.until {" },
];

/// Guards of the controller that the protocol alone does not have.
#[rustfmt::skip]
const WHOLE: [Guard; 9] = [
    Guard { name: "a write leaves within the lease", file: "controller/src/shards/ownership.rs",
        with: "open.then(|| self.ownership.left()).flatten()",
        without: "open.then(|| self.ownership.left().unwrap_or(Duration::from_secs(60)))" },
    Guard { name: "each owner has an epoch of its own", file: OBJECT,
        with: "epoch: self.epoch + 1,", without: "epoch: self.epoch," },
    Guard { name: "a cluster that cannot be reached makes its Applications Unknown", file: "controller/src/reconcile/live.rs",
        with: "Status::Failed { message, since } => Err(Error::Cluster {",
        without: "Status::Failed { .. } if cluster.watched_kinds() > 0 => Ok(()),\n        Status::Failed { message, since } => Err(Error::Cluster {" },
    Guard { name: "manifests are taken whole", file: "controller/src/reconcile/desired.rs",
        with: "    let rendered = rendered(&responses);",
        without: "    responses.iter_mut().for_each(|response| response.manifests.truncate(2));\n    let rendered = rendered(&responses);" },
    Guard { name: "an operation deletes nothing that Git holds", file: "controller/src/operation/begin.rs",
        with: "let (mut desired, live) = (managed.desired(), managed.live());",
        without: "let (mut desired, live) = (managed.desired().filter(|_| managed.key.name != *\"late\" || managed.live().is_none()), managed.live());" },
    Guard { name: "an Application is written when something has changed", file: "controller/src/status.rs",
        with: "    if known == status {\n        return None;",
        without: "    if known == status {\n        return Some(json!({ \"status\": value_of(status) }));" },
    Guard { name: "a deletion that a watch tells is taken into live state", file: "controller/src/watch/writer.rs",
        with: "let touched = self.state.apply(Event::Delete(deletion));\n                self.note(touched);",
        without: "drop(deletion);" },
    Guard { name: "changes that a watch has lost are looked for", file: "kube-io/src/list_watch.rs",
        with: "audit_pause: Duration::from_secs(60),", without: "audit_pause: Duration::MAX," },
    Guard { name: "the state of an operation is written over no newer one", file: "controller/src/status.rs",
        with: "patch[\"metadata\"][\"resourceVersion\"] = version.into();",
        without: "let _ = &version;" },
];

/// So many seeds of whole controllers, with so many seconds of faults.
const WHOLE_SEEDS: &str = "20";
const WHOLE_CHAOS: &str = "120";

/// Takes out each guard in turn: those of the protocol, or, with `whole`, of the controller.
///
/// # Errors
/// When a guard is not where it should be, or when the simulation does not notice that one is gone.
pub(crate) fn run(whole: bool) -> Result<()> {
    let copy = shell::root().join("target/guards/sources");
    let mut unnoticed = Vec::new();
    println!("| guard taken out | breaks | seed |\n|---|---|---|");
    let guards: &[Guard] = if whole { &WHOLE } else { &GUARDS };
    for guard in guards {
        mirror(&copy)?;
        let place = copy.join(guard.file);
        let text = std::fs::read_to_string(&place).with_context(|| format!("read {}", guard.file))?;
        if text.matches(guard.with).count() != 1 {
            bail!(
                "the guard {:?} is not to be found once in {}",
                guard.name,
                guard.file
            );
        }
        std::fs::write(&place, text.replace(guard.with, guard.without))?;
        let output = simulate(&copy, whole)?;
        match broken(&output) {
            Some((invariant, seed)) => println!("| {} | {invariant} | {seed} |", guard.name),
            None => {
                println!("| {} | nothing | |", guard.name);
                unnoticed.push(guard.name);
            }
        }
    }
    if !unnoticed.is_empty() {
        bail!("no seed needs these: {}", unnoticed.join("; "));
    }
    Ok(())
}

/// Brings the copy in line with the sources. Files that are the same are not touched, so that little is compiled.
fn mirror(copy: &Path) -> Result<()> {
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let root = shell::root();
    for name in shell::output(list.current_dir(&root))?.lines() {
        let (from, to) = (root.join(name), copy.join(name));
        let Ok(content) = std::fs::read(&from) else {
            continue;
        };
        if std::fs::read(&to).is_ok_and(|known| known == content) {
            continue;
        }
        std::fs::create_dir_all(to.parent().map_or_else(PathBuf::new, Path::to_path_buf))?;
        std::fs::write(&to, content)?;
    }
    Ok(())
}

fn simulate(copy: &Path, whole: bool) -> Result<Output> {
    let program: &[&str] = match whole {
        true => &[
            "argosy-whole",
            "--",
            "--seeds",
            WHOLE_SEEDS,
            "--chaos",
            WHOLE_CHAOS,
        ],
        false => &["argosy-shard-simulation", "--", "--seeds", SEEDS],
    };
    let mut command = shell::cargo(["run", "--quiet", "--release", "--package"]);
    command.args(program);
    command
        .current_dir(copy)
        .env("RUSTFLAGS", "-Awarnings")
        .env("CARGO_TARGET_DIR", shell::root().join("target/guards/built"))
        // The builds differ in one line each.
        .env("CARGO_INCREMENTAL", "1");
    command.output().context("run the simulation")
}

/// Which invariant broke, and in which seed.
fn broken(output: &Output) -> Option<(String, String)> {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.starts_with("seed "))?;
    let mut words = line.split([' ', ':']);
    let seed = words.nth(1)?.to_owned();
    Some((words.nth(1)?.to_owned(), seed))
}
