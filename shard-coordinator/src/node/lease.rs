//! The own lease: taken, renewed, lost, given back.

use super::{Effect, Lease, Node, Out, Phase};
use crate::object::{ClusterId, Election, Incarnation, Key, Object, ShardLease};
use crate::timing::Time;

impl Node {
    /// Takes the lease if it is to be had, renews it when that is due.
    pub(super) fn settle_lease(&mut self, now: Time, out: &mut Out) {
        match self.lease.clone() {
            Lease::Out { from } if self.stop.is_none() && now >= from => self.take(now, out),
            Lease::Held {
                incarnation,
                sent,
                next,
            } => match self.highest_term() > incarnation.term || self.is_taken(&incarnation) {
                true => self.lose(sent, out),
                false => self.renew(now, &incarnation, next, out),
            },
            Lease::Out { .. } | Lease::Given => {}
        }
        self.repeat(now, out);
    }

    fn take(&mut self, now: Time, out: &mut Out) {
        if !self.listed {
            return;
        }
        let known = self.shards.get(&self.identity.shard);
        let ended = known.is_none_or(|known| {
            known.object.over
                || known.object.boot == self.identity.boot
                || now - known.since >= self.timing.expiry()
        });
        if !ended && !self.identity.alone {
            return;
        }
        // One that was deleted is made anew under a term and a count that no view of the past has: what is over stays over.
        if known.is_none() && !self.counted {
            if self.idle(now, &Key::Election) {
                self.read(now, Key::Election, out);
            }
            return;
        }
        let wire = if ended {
            Time::ZERO
        } else {
            now + self.timing.expiry()
        };
        let lease = known.map(|known| &known.object);
        let term = self
            .highest_term()
            .max(lease.map_or(self.first_count(), |lease| lease.holder.term));
        let taken = ShardLease {
            holder: Incarnation {
                shard: self.identity.shard.clone(),
                term: term + 1,
            },
            boot: self.identity.boot.clone(),
            over: false,
            revision: lease.map_or(self.first_count(), |lease| lease.revision) + 1,
            renewals: 0,
            ordinal: self.identity.ordinal,
            expiry: milliseconds(self.timing.wanted()),
            drain: lease.is_some_and(|lease| lease.drain),
            leaving: false,
            costs: Default::default(),
            unseen: Default::default(),
        };
        self.wire = self.wire.max(wire);
        self.put(now, Object::Shard(taken), out);
    }

    /// The highest term under which this shard has held anything. Should its lease have been deleted, its terms must
    /// still not come again: if one has, because not everything was known, the lease is let go and taken once more.
    fn highest_term(&self) -> u64 {
        let owners = self
            .records
            .values()
            .filter_map(|seen| seen.object.owner.as_ref());
        let terms = owners
            .filter(|owner| owner.shard == self.identity.shard)
            .map(|owner| owner.term);
        terms.max().unwrap_or(0).max(self.last_term)
    }

    /// Somebody has marked the lease over, or put another in its place. That stays so: it is not renewed over.
    fn is_taken(&self, own: &Incarnation) -> bool {
        self.shards.get(&own.shard).is_some_and(|seen| {
            let lease = &seen.object;
            lease.over || lease.holder != *own || lease.boot != self.identity.boot
        })
    }

    fn renew(&mut self, now: Time, incarnation: &Incarnation, next: Time, out: &mut Out) {
        let Some(known) = self.shards.get(&self.identity.shard) else {
            // The watch says that it is gone: only the store itself is believed.
            let key = Key::Shard(self.identity.shard.clone());
            if self.idle(now, &key) {
                self.read(now, key, out);
            }
            return;
        };
        let leaving = self.stop.is_some();
        if now < next && leaving == known.object.leaving {
            return;
        }
        let guess = |cluster: &ClusterId| self.records.get(cluster).map_or(1, |seen| seen.object.cost);
        let costs = self
            .held
            .keys()
            .map(|cluster| {
                let cost = self.costs.get(cluster).copied();
                (cluster.clone(), cost.unwrap_or_else(|| guess(cluster)))
            })
            .collect();
        let unseen = self
            .unseen
            .iter()
            .filter(|(cluster, _)| self.held.contains_key(cluster));
        let unseen = unseen.map(|(cluster, since)| (cluster.clone(), *since)).collect();
        let renewed = ShardLease {
            holder: incarnation.clone(),
            boot: self.identity.boot.clone(),
            revision: known.object.revision + 1,
            renewals: known.object.renewals + 1,
            ordinal: self.identity.ordinal,
            expiry: milliseconds(self.timing.wanted()),
            over: false,
            leaving,
            costs,
            unseen,
            drain: known.object.drain,
        };
        self.put(now, Object::Shard(renewed), out);
    }

    /// A renewal that is not answered is sent once more: only one of the two can be done.
    fn repeat(&mut self, now: Time, out: &mut Out) {
        let key = Key::Shard(self.identity.shard.clone());
        let (attempt, held) = (self.timing.attempt, self.incarnation().is_some());
        let rested = self.rest.get(&key).is_none_or(|until| *until <= now);
        if self
            .pending
            .get(&key)
            .is_some_and(|pending| pending.attempts == 0)
            && rested
        {
            // Whether it was done is still not known.
            self.read(now, key, out);
            return;
        }
        let Some(pending) = self.pending.get_mut(&key) else {
            return;
        };
        if let Some(object) = &pending.object
            && held
            && now - pending.last >= attempt
        {
            pending.last = now;
            pending.attempts += 1;
            out.push(Effect::Put(
                object.clone(),
                pending.expect.clone(),
                pending.number,
            ));
        }
    }

    /// The lease was written, by a request that left at `sent` or later.
    pub(super) fn own_written(&mut self, sent: Time, lease: &ShardLease, out: &mut Out) {
        if lease.over {
            self.lease = Lease::Given;
            self.left = true;
            out.push(Effect::Leave);
            return;
        }
        let anew = self.incarnation() != Some(&lease.holder);
        if anew {
            self.drop_all(out);
            self.last_term = lease.holder.term;
        }
        self.lease = Lease::Held {
            incarnation: lease.holder.clone(),
            sent,
            next: sent + self.timing.renew,
        };
    }

    /// The store was asked for the own lease, because a write of it was not answered as hoped.
    pub(super) fn read_own(&mut self, now: Time, out: &mut Out) {
        let key = Key::Shard(self.identity.shard.clone());
        let found = self
            .shards
            .get(&self.identity.shard)
            .map(|seen| seen.object.clone());
        let pending = self.pending.remove(&key);
        self.doubt = pending
            .as_ref()
            .and_then(|pending| Some((pending.expect.clone()?, pending.first)));
        let attempted = pending.and_then(|pending| Some((pending.object?, pending.first)));
        if let (Some(Object::Shard(attempted)), sent, Some(found)) = (
            attempted.as_ref().map(|(object, _)| object),
            attempted.as_ref().map_or(now, |(_, sent)| *sent),
            &found,
        ) && attempted.holder == found.holder
            && attempted.boot == found.boot
            && attempted.renewals == found.renewals
            && attempted.over == found.over
        {
            // It was done after all.
            self.own_written(sent, &found.clone(), out);
            return;
        }
        let Lease::Held {
            incarnation, sent, ..
        } = self.lease.clone()
        else {
            return;
        };
        let mine = found.is_some_and(|found| {
            found.holder == incarnation && !found.over && found.boot == self.identity.boot
        });
        if mine {
            // Somebody else wrote into it, or the write has not arrived.
            self.rest.insert(key, now + self.pause());
            return;
        }
        self.lose(sent, out);
    }

    /// Writes of the lost hold may be under way until its end; not before that is there another. Whoever has lost its
    /// lease may have missed more: it learns everything anew.
    fn lose(&mut self, sent: Time, out: &mut Out) {
        self.drop_all(out);
        self.shards.clear();
        self.records.clear();
        self.election = None;
        self.listed = false;
        self.counted = false;
        self.listing = None;
        out.push(Effect::List);
        // The margin: servers measure the time that they are given on clocks of their own.
        self.lease = Lease::Out {
            from: sent + self.timing.expiry(),
        };
    }

    fn drop_all(&mut self, out: &mut Out) {
        let clusters: Vec<ClusterId> = self
            .held
            .keys()
            .chain(
                self.warming
                    .keys()
                    .filter(|cluster| !self.held.contains_key(*cluster)),
            )
            .cloned()
            .collect();
        out.extend(clusters.into_iter().map(Effect::Disown));
        self.held.clear();
        self.warming.clear();
        self.released.clear();
        self.lead = None;
    }

    /// When the process is to end and nothing is left to hand over, the leases are given back.
    pub(super) fn settle_end(&mut self, now: Time, out: &mut Out) {
        if self.stop.is_none() {
            return;
        }
        let Some(own) = self.incarnation().cloned() else {
            self.left = true;
            out.push(Effect::Leave);
            return;
        };
        let owns = self
            .records
            .values()
            .any(|record| record.object.owner.as_ref() == Some(&own))
            || self.held.values().any(|held| held.phase != Phase::Drained);
        let writing = self.pending.keys().any(|key| matches!(key, Key::Cluster(_)));
        if !self.ending && (owns || writing || !self.held.is_empty()) {
            return;
        }
        if let Some(election) = &self.election
            && election.object.holder.as_ref() == Some(&own)
        {
            let given_up = Election {
                holder: None,
                revision: election.object.revision + 1,
                ..election.object.clone()
            };
            self.lead = None;
            self.put(now, Object::Election(given_up), out);
            return;
        }
        if let Some(known) = self.shards.get(&self.identity.shard) {
            let over = ShardLease {
                over: true,
                leaving: true,
                revision: known.object.revision + 1,
                renewals: known.object.renewals + 1,
                costs: Default::default(),
                unseen: Default::default(),
                ..known.object.clone()
            };
            self.ending = true;
            self.put(now, Object::Shard(over), out);
        }
    }
}

pub(super) fn milliseconds(time: Time) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
