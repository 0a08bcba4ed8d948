//! The objects as `coordination.k8s.io/v1` Leases in the control plane's namespace.
//!
//! | object | name | `holderIdentity` | `leaseTransitions` |
//! |---|---|---|---|
//! | shard | `argosy-shard-<id>` | the incarnation, nobody once it is over | its term |
//! | coordinator | `argosy-coordinator` | who coordinates | |
//! | cluster | `argosy-cluster-<hash of the URL>` | the owner | the epoch |
//!
//! What counts is the JSON in the annotation [`STATE`]; the fields of the Lease say the same to people. `renewTime` is for
//! people too: nobody compares it with a clock.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::object::{Key, Object, Record, ShardLease};

/// The label that all Leases of the protocol carry; its value tells which of the three they are.
pub const LABEL: &str = "argosy.dev/lease";
/// The annotation that holds the object.
pub const STATE: &str = "argosy.dev/state";
/// The annotation that tells the URL of a record's cluster.
pub const CLUSTER: &str = "argosy.dev/cluster";

/// Why a Lease is not an object of the protocol.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It carries no such label, or another value.
    #[error("lease {name}: label {LABEL} is {value:?}, not shard, coordinator or cluster")]
    Kind {
        /// Its name.
        name: String,
        /// The label's value.
        value: String,
    },
    /// Its state cannot be read.
    #[error("lease {name}: read annotation {STATE}")]
    State {
        /// Its name.
        name: String,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// It has another name than its state says.
    #[error("lease {name}: its state is that of {expected}")]
    Name {
        /// Its name.
        name: String,
        /// The name that the state belongs to.
        expected: String,
    },
}

/// The name of an object's Lease.
pub fn name(key: &Key) -> String {
    match key {
        Key::Election => "argosy-coordinator".to_owned(),
        Key::Shard(id) => {
            let text = &id.0;
            let plain = !text.is_empty()
                && text.len() <= 200
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
                && !text.starts_with('-')
                && !text.ends_with('-');
            match plain {
                true => format!("argosy-shard-{text}"),
                false => format!("argosy-shard-x{}", hash(text)),
            }
        }
        Key::Cluster(id) => format!("argosy-cluster-{}", hash(&id.0)),
    }
}

/// The Lease of an object. `version` is that which it replaces; `duration` is for people, as is `now` (RFC 3339 with
/// microseconds).
pub fn encode(
    object: &Object,
    namespace: &str,
    version: Option<&str>,
    duration: Duration,
    now: &str,
) -> Value {
    let (kind, holder, transitions, state) = match object {
        Object::Shard(lease) => (
            "shard",
            (!lease.over).then(|| lease.holder.to_string()),
            lease.holder.term,
            text_of(lease),
        ),
        Object::Election(election) => (
            "coordinator",
            election.holder.as_ref().map(ToString::to_string),
            0,
            text_of(election),
        ),
        Object::Record(record) => (
            "cluster",
            record.owner.as_ref().map(ToString::to_string),
            record.epoch,
            text_of(record),
        ),
    };
    let mut annotations = Map::new();
    annotations.insert(STATE.to_owned(), Value::String(state));
    if let Object::Record(record) = object {
        annotations.insert(CLUSTER.to_owned(), Value::String(record.cluster.to_string()));
    }
    let mut metadata = json!({
        "name": name(&object.key()),
        "namespace": namespace,
        "labels": {"app.kubernetes.io/part-of": "argocd", LABEL: kind},
        "annotations": annotations,
    });
    if let Some(version) = version {
        metadata["resourceVersion"] = Value::from(version);
    }
    let mut spec = json!({
        "holderIdentity": holder.unwrap_or_default(),
        "leaseTransitions": i32::try_from(transitions).unwrap_or(i32::MAX),
    });
    if !matches!(object, Object::Record(_)) {
        spec["leaseDurationSeconds"] = Value::from(duration.as_secs().max(1));
        spec["renewTime"] = Value::from(now);
    }
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})
}

/// The object of a Lease, which somebody else may have written.
pub fn decode(lease: &Value) -> Result<Object, Error> {
    let text = |pointer: &str| lease.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let found = text("/metadata/name").to_owned();
    let state = lease
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(STATE))
        .and_then(Value::as_str)
        .unwrap_or_default();
    let kind = lease
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(LABEL))
        .and_then(Value::as_str)
        .unwrap_or_default();
    let unreadable = |source| Error::State {
        name: found.clone(),
        source,
    };
    let object = match kind {
        "shard" => Object::Shard(serde_json::from_str::<ShardLease>(state).map_err(unreadable)?),
        "coordinator" => Object::Election(serde_json::from_str(state).map_err(unreadable)?),
        "cluster" => Object::Record(serde_json::from_str::<Record>(state).map_err(unreadable)?),
        other => {
            return Err(Error::Kind {
                name: found,
                value: other.to_owned(),
            });
        }
    };
    let expected = name(&object.key());
    if expected != found {
        return Err(Error::Name {
            name: found,
            expected,
        });
    }
    Ok(object)
}

fn text_of<T: serde::Serialize>(object: &T) -> String {
    serde_json::to_string(object).expect("invariant: objects of the protocol have text keys")
}

/// 16 hexadecimal digits of BLAKE2b.
fn hash(text: &str) -> String {
    let digest = blake2b_simd::blake2b(text.as_bytes());
    digest.as_bytes()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::*;
    use crate::object::{ClusterId, Election, Handover, Incarnation, Pin, ShardId};

    fn objects() -> Vec<Object> {
        let holder = Incarnation {
            shard: ShardId::new("0f6e-1"),
            term: 3,
        };
        let cluster = ClusterId::new("https://prod.example.com:6443");
        vec![
            Object::Shard(ShardLease {
                holder: holder.clone(),
                boot: "b".into(),
                over: false,
                revision: 9,
                renewals: 4,
                ordinal: Some(1),
                expiry: 25_000,
                drain: true,
                leaving: false,
                costs: BTreeMap::from([(cluster.clone(), 12)]),
                unseen: BTreeMap::from([(cluster.clone(), Some(1_800_000_000))]),
            }),
            Object::Election(Election {
                holder: None,
                settled: true,
                revision: 2,
            }),
            Object::Record(Record {
                cluster,
                revision: 7,
                epoch: 5,
                owner: Some(holder.clone()),
                handover: Some(Handover {
                    to: Some(holder),
                    warm: true,
                }),
                pin: Some(Pin::Number(2)),
                cost: 100,
            }),
        ]
    }

    #[test]
    fn what_is_written_is_read_back() {
        for object in objects() {
            let lease = encode(
                &object,
                "argocd",
                Some("77"),
                Duration::from_secs(20),
                "2026-01-01T00:00:00.000000Z",
            );
            assert_eq!(lease["metadata"]["resourceVersion"], "77");
            assert_eq!(decode(&lease).unwrap(), object);
        }
    }

    #[test]
    fn people_see_owner_and_epoch() {
        let lease = encode(&objects()[2], "argocd", None, Duration::from_secs(20), "");
        assert_eq!(lease["spec"]["holderIdentity"], "0f6e-1#3");
        assert_eq!(lease["spec"]["leaseTransitions"], 5);
        assert_eq!(
            lease["metadata"]["annotations"][CLUSTER],
            "https://prod.example.com:6443"
        );
    }

    #[test]
    fn a_lease_of_something_else_is_refused_by_name() {
        let mut lease = encode(&objects()[2], "argocd", None, Duration::from_secs(20), "");
        lease["metadata"]["name"] = "argosy-cluster-0".into();
        assert!(matches!(decode(&lease), Err(Error::Name { .. })));
        lease["metadata"]["annotations"][STATE] = "{".into();
        assert!(matches!(decode(&lease), Err(Error::State { .. })));
        lease["metadata"]["labels"] = json!({});
        assert!(matches!(decode(&lease), Err(Error::Kind { .. })));
    }

    #[test]
    fn names_are_names_that_kubernetes_takes() {
        let long = "x".repeat(300);
        for id in ["pod-1", "Host.Name_1", "", "-a", &long] {
            let name = name(&Key::Shard(ShardId::new(id)));
            assert!(
                name.len() <= 253
                    && name
                        .bytes()
                        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            );
            assert!(!name.ends_with('-'), "{name}");
        }
    }
}
