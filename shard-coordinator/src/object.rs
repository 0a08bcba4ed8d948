//! What stands in the store: one lease a shard, one record a cluster, one lease of the coordinator.
//!
//! Every object counts its own writes ([`Object::revision`]), so that of two views the newer is known without a clock,
//! and every write names the version that it replaces, so that of two writers one loses.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A version of an object as the store names it. Only equality means something.
pub type Version = Arc<str>;

/// Which shard: the uid of its pod, or another name that no two processes bear at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShardId(pub Arc<str>);

/// Which cluster: the URL of its API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(pub Arc<str>);

/// One unbroken hold of a shard's lease. When it is over it never comes back: whoever holds the lease next has a higher
/// term.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation {
    /// Whose lease.
    pub shard: ShardId,
    /// Raised each time the lease is taken.
    pub term: u64,
}

/// A shard's lease: it lives for as long as this changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShardLease {
    /// Who holds it, or held it last.
    pub holder: Incarnation,
    /// The process behind the holder; another one means that the process was started anew.
    pub boot: Arc<str>,
    /// The hold has ended, and nothing is written under it any more.
    pub over: bool,
    /// Writes so far.
    pub revision: u64,
    /// Writes of the holder so far; people write too.
    pub renewals: u64,
    /// The number by which people pin clusters to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordinal: Option<u32>,
    /// It is to be waited for so many milliseconds before it is taken away: others may renew more often, and go by shorter times.
    #[serde(default)]
    pub expiry: u64,
    /// A person wants it to own nothing.
    pub drain: bool,
    /// Its process is ending.
    pub leaving: bool,
    /// The clusters that it owns, and what they cost it.
    #[serde(default)]
    pub costs: BTreeMap<ClusterId, u64>,
    /// Those of them that it cannot watch now, and as of when it knows them: seconds since 1970 on its own clock, or nothing if
    /// it has not seen them yet. For people: nobody decides by it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unseen: BTreeMap<ClusterId, Option<i64>>,
}

impl ShardLease {
    /// How long it is to be waited for.
    pub fn expiry(&self) -> Duration {
        Duration::from_millis(self.expiry)
    }

    /// True while the shard may be given clusters.
    pub fn takes(&self) -> bool {
        !self.over && !self.drain && !self.leaving
    }
}

/// The coordinator's lease. Two may believe to hold it: every one of their writes names what it replaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Election {
    /// Who coordinates.
    pub holder: Option<Incarnation>,
    /// Every lease that may have been held when this object was made has ended since, or is in the store. Before that, no
    /// record for a cluster does not mean that nobody owns it: somebody may have deleted everything.
    pub settled: bool,
    /// Writes so far.
    pub revision: u64,
}

/// Where a cluster is to be looked after.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Pin {
    /// By the shard of this number (`shard` of a cluster Secret). Clusters with one number stay together, also where no
    /// shard bears it.
    Number(u32),
    /// By this shard.
    Shard(ShardId),
}

/// To whom a cluster is being handed over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handover {
    /// The successor; nobody if the cluster is no longer wanted.
    pub to: Option<Incarnation>,
    /// The successor has listed the cluster.
    pub warm: bool,
}

/// Who owns a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Which.
    pub cluster: ClusterId,
    /// Writes so far.
    pub revision: u64,
    /// Raised with every change of the owner.
    pub epoch: u64,
    /// The owner.
    pub owner: Option<Incarnation>,
    /// The owner is asked to let go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// A person's wish, stronger than that of the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Pin>,
    /// What it cost when it was last assigned.
    pub cost: u64,
}

/// How a record stands, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordState {
    /// Nobody owns the cluster.
    Free,
    /// Somebody does.
    Assigned,
    /// Somebody does and is asked to let go.
    Releasing,
}

impl Record {
    /// How it stands.
    pub fn state(&self) -> RecordState {
        match (&self.owner, &self.handover) {
            (None, _) => RecordState::Free,
            (Some(_), None) => RecordState::Assigned,
            (Some(_), Some(_)) => RecordState::Releasing,
        }
    }

    /// The record after the next write.
    pub(crate) fn next(&self) -> Record {
        Record {
            revision: self.revision + 1,
            ..self.clone()
        }
    }

    /// The record after the next write, which gives the cluster to `owner`.
    pub(crate) fn given_to(&self, owner: Option<Incarnation>) -> Record {
        Record {
            epoch: self.epoch + 1,
            owner,
            handover: None,
            ..self.next()
        }
    }
}

/// The name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The lease of a shard.
    Shard(ShardId),
    /// The lease of the coordinator.
    Election,
    /// The record of a cluster.
    Cluster(ClusterId),
}

/// Writes of one object between two renewals of the coordinator's lease, at the very most.
pub(crate) const REVISIONS: u64 = 64;

/// Any of the three.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    /// The lease of a shard.
    Shard(ShardLease),
    /// The lease of the coordinator.
    Election(Election),
    /// The record of a cluster.
    Record(Record),
}

impl Object {
    /// Its name.
    pub fn key(&self) -> Key {
        match self {
            Object::Shard(lease) => Key::Shard(lease.holder.shard.clone()),
            Object::Election(_) => Key::Election,
            Object::Record(record) => Key::Cluster(record.cluster.clone()),
        }
    }

    /// The revision that the coordinator's lease had at least when it was made: counts begin at a multiple of that.
    pub(crate) fn made_under(&self) -> u64 {
        match self {
            Object::Shard(lease) => lease.revision.max(lease.holder.term) / REVISIONS,
            Object::Election(election) => election.revision,
            Object::Record(record) => record.revision.max(record.epoch) / REVISIONS,
        }
    }

    /// Its count of writes.
    pub fn revision(&self) -> u64 {
        match self {
            Object::Shard(lease) => lease.revision,
            Object::Election(election) => election.revision,
            Object::Record(record) => record.revision,
        }
    }
}

impl ShardId {
    /// The shard of this name.
    pub fn new(name: &str) -> Self {
        ShardId(name.into())
    }
}

impl ClusterId {
    /// The cluster at this URL.
    pub fn new(server: &str) -> Self {
        ClusterId(server.into())
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.shard, self.term)
    }
}

impl fmt::Display for RecordState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            RecordState::Free => "Free",
            RecordState::Assigned => "Assigned",
            RecordState::Releasing => "Releasing",
        })
    }
}
