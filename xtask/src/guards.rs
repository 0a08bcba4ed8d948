//! `cargo xtask guards`: is the simulation sharp enough? Each guard of the shards' protocol is taken out of a copy of the
//! sources, one at a time, and seeds are run until one breaks an invariant. With `--whole` the same for guards of the whole
//! controller, in seeds of whole controllers; with `--tests` for guards of invariants that no seed looks at, each of which has a
//! test of its own.
//!
//! Between them every invariant I1 to I10 has a guard that it breaks without.

use std::path::{Path, PathBuf};
use std::process::Command;

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
const SEEDS: u64 = 20_000;

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
        with: "let (desired, live) = (managed.desired(), managed.live());",
        without: "let (desired, live) = (managed.desired().filter(|_| managed.key.name != *\"late\" || managed.live().is_none()), managed.live());" },
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
const WHOLE_SEEDS: u64 = 20;
const WHOLE_CHAOS: &str = "120";

/// A guard with the test that needs it.
struct Tested {
    invariant: &'static str,
    guard: Guard,
    package: &'static str,
    test: &'static str,
}

#[rustfmt::skip]
const TESTED: [Tested; 11] = [
    Tested { invariant: "I2", package: "argosy-whole", test: "an_owner_whose_watch_is_behind_goes_on_with_nothing_that_has_ended",
        guard: Guard { name: "an operation of somebody else is taken over first", file: "controller/src/operation.rs",
            with: "    } else if !memory.ours {\n        desk.adopt().await?;", without: "    } else if !memory.ours {" } },
    Tested { invariant: "I7", package: "argosy-controller", test: "faults::missed::a_change_behind_the_watch_is_found_by_counting",
        guard: Guard { name: "objects are counted between watches", file: "kube-io/src/list_watch.rs",
            with: "            self.audit_begins(look, false);\n            return Ok(());", without: "            let _ = look;" } },
    Tested { invariant: "I7", package: "argosy-controller", test: "faults::missed::an_update_behind_the_watch_is_found_by_its_version",
        guard: Guard { name: "versions are compared, too", file: "kube-io/src/list_watch/audit.rs",
            with: "        } else if now >= self.versions_due {", without: "        } else if now >= self.versions_due && false {" } },
    Tested { invariant: "I9", package: "argosy-kube-io", test: "budget::tests::lists_wait_for_bytes_and_the_smallest_budget_is_one_list",
        guard: Guard { name: "lists in flight have a budget of bytes", file: "kube-io/src/budget.rs",
            with: "bytes.clamp(Self::LIST, Semaphore::MAX_PERMITS)", without: "bytes.clamp(Semaphore::MAX_PERMITS, Semaphore::MAX_PERMITS)" } },
    Tested { invariant: "I9", package: "argosy-object", test: "yaml::tests::budgets_are_kept",
        guard: Guard { name: "aliases have a budget", file: "engine/object/src/yaml/build.rs",
            with: "if self.alias_nodes > self.limits.alias_nodes ||", without: "if" } },
    Tested { invariant: "I9", package: "argosy-repo-server", test: "load::tests::there_is_an_end_to_how_many_may_wait_and_none_for_others_because_of_one",
        guard: Guard { name: "there is an end to how many renders may wait", file: "repo-server/src/load.rs",
            with: "self.all >= MAX || self.all", without: "self.all" } },
    Tested { invariant: "I9", package: "argosy-server", test: "webhook::room::tests::large_payloads_share_a_room_and_keep_no_small_one_out",
        guard: Guard { name: "payloads that are being read share a room", file: "server/src/webhook/room.rs",
            with: "room.try_acquire_many(len)", without: "room.try_acquire_many(len.min(0))" } },
    Tested { invariant: "I9", package: "argosy-server", test: "webhook::tests::a_flood_fills_a_bounded_room_and_loses_no_repository_of_what_it_took",
        // Without any end the test would not end either.
        guard: Guard { name: "pushes that wait have an end", file: "server/src/webhook.rs",
            with: "self.pushes.len() + pushes.len() > WAITING_MAX", without: "self.pushes.len() > 2 * WAITING_MAX" } },
    Tested { invariant: "I10", package: "argosy-diff", test: "mask::tests::equal_values_get_equal_marks_and_others_longer_ones",
        guard: Guard { name: "values of Secrets become marks", file: "engine/diff/src/mask.rs",
            with: "                *value = marks.of(value);\n            }\n        }\n    }\n}\n\n/// The marks of one key.",
            without: "                marks.of(value);\n            }\n        }\n    }\n}\n\n/// The marks of one key." } },
    Tested { invariant: "I10", package: "argosy-server", test: "egress::tests::no_credential_of_a_repository_template_or_cluster_leaves",
        guard: Guard { name: "what a repository is entered with stays in", file: "server/src/egress.rs",
            with: "webhook_manifest_cache_warm_disabled,\n        ..Repository::default()", without: "webhook_manifest_cache_warm_disabled,\n        ..full.clone()" } },
    Tested { invariant: "I10", package: "argosy-repo-server", test: "git::command::tests::credentials_do_not_survive_in_error_texts",
        guard: Guard { name: "Git's words lose the credentials in them", file: "repo-server/src/git/command.rs",
            with: "text = text.replace(secret, \"***\");", without: "" } },
];

/// Which guards are taken out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Those of the protocol, against its simulation.
    Protocol,
    /// Those of the controller, against whole ones.
    Whole,
    /// Those that have a test of their own.
    Tests,
}

/// Takes out each guard in turn whose name contains `only`, and runs `seeds` of the simulation, or as many as it takes by default.
///
/// # Errors
/// When a guard is not where it should be, when what is left does not compile, or when nothing notices that one is gone.
pub(crate) fn run(kind: Kind, only: &str, seeds: Option<u64>) -> Result<()> {
    let copy = Copy {
        sources: shell::root().join("target/guards/sources"),
        built: shell::root().join("target/guards/built"),
    };
    let mut unnoticed = Vec::new();
    let mut note = |guard: &Guard, broken: Option<(String, String)>| {
        let (invariant, place) = broken.unwrap_or_else(|| {
            unnoticed.push(guard.name);
            ("nothing".to_owned(), String::new())
        });
        println!("| {} | {invariant} | {place} |", guard.name);
    };
    let place = if kind == Kind::Tests { "its test" } else { "seed" };
    println!("| guard taken out | breaks | {place} |\n|---|---|---|");
    match kind {
        Kind::Protocol => {
            for guard in GUARDS.iter().filter(|guard| guard.name.contains(only)) {
                let seeds = seeds.unwrap_or(SEEDS).to_string();
                let args = ["--release", "--package", "argosy-shard-simulation"];
                note(guard, copy.seed_without(guard, &args, &["--seeds", &seeds])?);
            }
        }
        Kind::Whole => {
            for guard in WHOLE.iter().filter(|guard| guard.name.contains(only)) {
                let seeds = seeds.unwrap_or(WHOLE_SEEDS).to_string();
                // The controller takes longer to be optimised than its seeds to run.
                let args = ["--package", "argosy-whole"];
                let rest = ["--seeds", &seeds, "--chaos", WHOLE_CHAOS];
                note(guard, copy.seed_without(guard, &args, &rest)?);
            }
        }
        Kind::Tests => {
            for tested in TESTED.iter().filter(|tested| tested.guard.name.contains(only)) {
                let failed = copy.test_without(tested)?;
                let broken = failed.then(|| (tested.invariant.to_owned(), format!("`{}`", tested.test)));
                note(&tested.guard, broken);
            }
        }
    }
    if !unnoticed.is_empty() {
        bail!("nothing needs these: {}", unnoticed.join("; "));
    }
    Ok(())
}

/// The sources once more, and what is built from them.
struct Copy {
    sources: PathBuf,
    built: PathBuf,
}

impl Copy {
    /// Which invariant breaks without the guard, and in which seed of a package's program.
    fn seed_without(
        &self,
        guard: &Guard,
        package: &[&str],
        args: &[&str],
    ) -> Result<Option<(String, String)>> {
        self.take_out(guard)?;
        let mut build = self.cargo("build");
        shell::output(build.args(package))?;
        let mut seeds = self.cargo("run");
        seeds.args(package).arg("--").args(args);
        let output = seeds.output().context("run the simulation")?;
        Ok(broken(&String::from_utf8_lossy(&output.stderr)))
    }

    /// Whether the guard's test fails without it.
    fn test_without(&self, tested: &Tested) -> Result<bool> {
        self.take_out(&tested.guard)?;
        let package = ["--package", tested.package];
        shell::output(self.cargo("test").args(package).arg("--no-run"))?;
        let mut test = self.cargo("test");
        test.args(package)
            .args(["--no-fail-fast", "--", "--exact", tested.test]);
        let output = test.output().context("run the test")?;
        // Quiet tests name those that have failed at the end.
        let said = String::from_utf8_lossy(&output.stdout);
        Ok(!output.status.success() && said.lines().any(|line| line.trim() == tested.test))
    }

    /// Brings the copy in line with the sources and takes the guard out of it.
    fn take_out(&self, guard: &Guard) -> Result<()> {
        mirror(&self.sources)?;
        let text = with(guard)?;
        let place = self.sources.join(guard.file);
        std::fs::write(&place, text.replace(guard.with, guard.without))
            .with_context(|| format!("write {}", place.display()))
    }

    fn cargo(&self, what: &str) -> Command {
        let mut command = shell::cargo([what, "--quiet"]);
        command
            .current_dir(&self.sources)
            .env("CARGO_TARGET_DIR", &self.built)
            // The builds differ in one line each.
            .env("CARGO_INCREMENTAL", "1");
        command
    }
}

/// The text of the guard's file, in which it stands once.
fn with(guard: &Guard) -> Result<String> {
    let text = std::fs::read_to_string(shell::root().join(guard.file))
        .with_context(|| format!("read {}", guard.file))?;
    match text.matches(guard.with).count() {
        1 => Ok(text),
        _ => bail!(
            "the guard {:?} is not to be found once in {}",
            guard.name,
            guard.file
        ),
    }
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

/// Which invariant broke, and in which seed.
fn broken(text: &str) -> Option<(String, String)> {
    let line = text.lines().find(|line| line.starts_with("seed "))?;
    let mut words = line.split([' ', ':']);
    let seed = words.nth(1)?.to_owned();
    Some((words.nth(1)?.to_owned(), seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_guard_stands_where_it_is_said_to() {
        let tested = TESTED.iter().map(|tested| &tested.guard);
        for guard in GUARDS.iter().chain(&WHOLE).chain(tested) {
            if let Err(error) = with(guard) {
                panic!("{error:#}");
            }
        }
    }

    #[test]
    fn a_seed_that_breaks_an_invariant_says_which() {
        let said = "warning: unused\nseed 17 broke I8 after 3.250 s: late\nrepeat it: …";
        assert_eq!(broken(said), Some(("I8".to_owned(), "17".to_owned())));
        assert_eq!(broken("warning: unused\n"), None);
    }
}
