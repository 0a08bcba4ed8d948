//! What a process knows of the whole, for metrics and people.

use super::coordinate::is_over;
use super::{Node, Phase};
use crate::object::{ClusterId, Incarnation, Record, ShardLease};
use crate::timing::Time;

/// A cluster that this process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which.
    pub cluster: ClusterId,
    /// Under which epoch.
    pub epoch: u64,
    /// Whether writes may begin, as far as hand-overs are concerned.
    pub writes: bool,
}

/// How a shard stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// Its lease is renewed.
    Alive,
    /// Its lease has not changed for longer than it should, but nobody has ended it yet.
    Silent,
    /// Its incarnation has ended.
    Over,
}

impl Node {
    /// What this process holds.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.held.iter().map(|(cluster, held)| Place {
            cluster: cluster.clone(),
            epoch: held.epoch,
            writes: held.phase == Phase::Owned,
        })
    }

    /// The incarnation of this process, while it has one.
    pub fn own(&self) -> Option<&Incarnation> {
        self.incarnation()
    }

    /// Whether this process coordinates, as far as it knows.
    pub fn leads(&self, now: Time) -> bool {
        self.lead
            .as_ref()
            .is_some_and(|lead| now - lead.sent < self.timing.write)
    }

    /// The known shards, and how each stands.
    pub fn shards(&self, now: Time) -> impl Iterator<Item = (&ShardLease, Live)> {
        self.shards.values().map(move |seen| {
            // Others may renew more seldom than this process.
            let its = seen.object.expiry().saturating_sub(self.timing.margin);
            let due = its.max(self.timing.duration);
            let live = match () {
                () if seen.object.over => Live::Over,
                () if now.saturating_sub(seen.since) >= due => Live::Silent,
                () => Live::Alive,
            };
            (&seen.object, live)
        })
    }

    /// The known records.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.values().map(|seen| &seen.object)
    }

    /// Whether the lease proves that this incarnation has ended.
    pub fn is_over(&self, incarnation: &Incarnation) -> bool {
        self.shards
            .get(&incarnation.shard)
            .is_some_and(|seen| is_over(&seen.object, incarnation))
    }
}
