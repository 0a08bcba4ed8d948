//! The engine against the reference. `ARGOSY_ORACLE_OBJECTS` says how many objects each test makes, `ARGOSY_ORACLE_SEED` which.
#![allow(clippy::unwrap_used, missing_docs)]
#![recursion_limit = "256"]

mod api_server;
mod plugin;
mod rbac;
mod redis;
mod scalars;
mod server_side;
mod settled;
mod strategic;
mod structured;
mod verdict;
mod wire;

use std::collections::BTreeMap;

use argosy_object::schema::Schemas;
use argosy_object::{GroupVersionKind, Value};
use argosy_oracle::Oracle;

/// How many objects a test makes.
fn objects() -> usize {
    number("ARGOSY_ORACLE_OBJECTS", 1_500)
}

fn seed() -> u64 {
    number("ARGOSY_ORACLE_SEED", 1) as u64
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Built-in kinds that are stored and have a Go type in the client library.
fn kinds(schemas: &Schemas, oracle: &mut Oracle) -> Vec<GroupVersionKind> {
    let mut kinds: Vec<_> = schemas.kinds().into_iter().cloned().collect();
    // Not stored; and truth values that became optional after v1beta2.
    kinds.retain(|kind| {
        kind.kind != "ComponentStatus" && !(kind.kind == "ResourceSlice" && kind.version.contains("beta"))
    });
    kinds.retain(|kind| {
        let object = serde_json::json!({
            "apiVersion": argosy_object::api_version(&kind.group, &kind.version),
            "kind": kind.kind, "metadata": {"name": "x"}
        });
        oracle.store(&object, false).unwrap().is_some()
    });
    assert!(kinds.len() > 50, "{} kinds", kinds.len());
    kinds
}

/// How many answers agreed, how many are settled otherwise and by what name, and those that are neither.
#[derive(Default)]
struct Tally {
    asked: usize,
    settled: BTreeMap<&'static str, usize>,
    faults: Vec<String>,
}

impl Tally {
    fn agree(&mut self) {
        self.asked += 1;
    }

    fn settle(&mut self, name: &'static str) {
        self.asked += 1;
        *self.settled.entry(name).or_default() += 1;
    }

    fn fault(&mut self, what: String) {
        self.asked += 1;
        self.faults.push(what);
    }

    /// Prints the counts; fails if anything is unsettled.
    fn close(self, area: &str, asked_min: usize) {
        let settled: usize = self.settled.values().sum();
        eprintln!(
            "{area}: {} asked, {} agree, {settled} settled {:?}, {} differ",
            self.asked,
            self.asked - settled - self.faults.len(),
            self.settled,
            self.faults.len()
        );
        assert!(
            self.faults.is_empty(),
            "{} of {} differ from the reference, among them\n{}",
            self.faults.len(),
            self.asked,
            self.faults
                .iter()
                .take(number("ARGOSY_ORACLE_SHOW", 8))
                .cloned()
                .collect::<Vec<_>>()
                .join("\n")
        );
        for name in self.settled.keys() {
            settled::must_be_listed(name);
        }
        assert!(
            self.asked >= asked_min,
            "only {} of {asked_min} could be asked",
            self.asked
        );
    }
}

/// The places where two documents are not the same, as `path: left | right`.
fn places(left: &Value, right: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk("", left, right, &mut found);
    found
}

fn walk(path: &str, left: &Value, right: &Value, found: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for name in names {
                let null = Value::Null;
                walk(
                    &format!("{path}.{name}"),
                    a.get(name).unwrap_or(&null),
                    b.get(name).unwrap_or(&null),
                    found,
                );
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                walk(&format!("{path}[{at}]"), a, b, found);
            }
        }
        _ if left == right => {}
        _ => found.push(format!("{path}: {left} | {right}")),
    }
}
