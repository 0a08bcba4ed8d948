//! What the coordinating shard does: leases that have not changed are marked over, clusters without a living owner get
//! one, others are moved where balance or a person wants it. All of it are proposals: each write names the version that
//! it was decided on.

use std::collections::{BTreeMap, BTreeSet};

use super::lease::milliseconds;
use super::{Effect, Lead, Node, Out, Seen};
use crate::balance::{Item, Member, balance};
use crate::object::{ClusterId, Election, Handover, Incarnation, Key, Object, Record, ShardId, ShardLease};
use crate::timing::Time;

/// What is known of the owner of a record.
enum Owner {
    /// None, or one whose incarnation is over.
    Nobody,
    /// Alive, as far as is known.
    Alive(ShardId),
    /// Its lease does not exist, or is another's.
    Lost(Incarnation),
}

impl Node {
    pub(super) fn coordinate(&mut self, now: Time, out: &mut Out) {
        let Some(own) = self.incarnation().cloned() else {
            return;
        };
        self.campaign(now, &own, out);
        let Some(lead) = self.lead.clone() else { return };
        if now - lead.sent >= self.timing.write || !self.listed {
            return;
        }
        self.end_leases(now, &own, out);
        self.look_at_followed(now);
        let (count, wait) = (self.first_count(), self.timing.expiry());
        self.gone.retain(|_, gone| !gone.is_past(now, count, wait));
        let Some(wanted) = self.wanted.clone() else {
            return;
        };
        let members = self.members(now);
        let targets = balance(&members, &self.items());
        let mut moving = Moving::of(&self.records);
        for cluster in wanted.keys() {
            let target = targets.get(cluster).and_then(|id| self.holder_of(id));
            self.place(now, cluster, target, &lead, &mut moving, out);
        }
        let unwanted: Vec<ClusterId> = self
            .records
            .keys()
            .filter(|cluster| !wanted.contains_key(*cluster))
            .cloned()
            .collect();
        for cluster in unwanted {
            self.remove(now, &cluster, out);
        }
        self.forget_leases(now, out);
    }

    /// Takes the coordinator's lease when its holder is over or has not renewed it, and renews it.
    fn campaign(&mut self, now: Time, own: &Incarnation, out: &mut Out) {
        let Some(election) = self.election.clone() else {
            if self.listed && self.stop.is_none() {
                let first = Election {
                    holder: Some(own.clone()),
                    settled: false,
                    revision: self.elections + 1,
                };
                self.put(now, Object::Election(first), out);
            }
            return;
        };
        let mine = election.object.holder.as_ref() == Some(own);
        let due = match &self.lead {
            Some(lead) if mine => now - lead.sent >= self.timing.renew,
            _ if mine => true,
            _ => {
                self.lead = None;
                let vacant = match &election.object.holder {
                    Some(holder) if matches!(self.owner(holder), Owner::Nobody) => {
                        self.store_says(now, holder, election.since, out)
                    }
                    Some(_) => false,
                    None => true,
                };
                self.stop.is_none() && (vacant || now - election.since >= self.timing.expiry())
            }
        };
        if due {
            let waited = self.lead.as_ref().map_or(Time::ZERO, |lead| now - lead.since);
            let next = Election {
                holder: Some(own.clone()),
                settled: election.object.settled || waited >= self.timing.expiry(),
                // Above all counts that were ever seen: somebody may have deleted this lease and left nobody who knew it.
                revision: election.object.revision.max(self.elections) + 1,
            };
            self.put(now, Object::Election(next), out);
        }
    }

    pub(super) fn election_written(&mut self, sent: Time, election: &Election) {
        if election.holder.is_none() || election.holder.as_ref() != self.incarnation() {
            self.lead = None;
            return;
        }
        let since = self.lead.as_ref().map_or(sent, |lead| lead.since);
        self.lead = Some(Lead { since, sent });
    }

    /// Leases that nobody has renewed are marked over, which ends their incarnation for good.
    fn end_leases(&mut self, now: Time, own: &Incarnation, out: &mut Out) {
        let silent: Vec<ShardLease> = self
            .shards
            .values()
            .filter(|seen| {
                !seen.object.over
                    && seen.object.holder.shard != own.shard
                    && now - seen.since >= self.timing.expiry()
            })
            .map(|seen| seen.object.clone())
            .collect();
        for lease in silent {
            let over = ShardLease {
                over: true,
                revision: lease.revision + 1,
                costs: Default::default(),
                unseen: Default::default(),
                ..lease
            };
            self.put(now, Object::Shard(over), out);
        }
    }

    /// A lease that a new process of its pod took at once did not run out first. The pod may go on with its clusters under
    /// the preconditions of its writes; for everybody else they are to be had when a lease has passed.
    fn look_at_followed(&mut self, now: Time) {
        let followed: BTreeSet<Incarnation> = self
            .records
            .values()
            .filter_map(|seen| seen.object.owner.clone())
            .filter(|owner| {
                let lease = self.shards.get(&owner.shard);
                lease.is_some_and(|seen| seen.object.holder.term > owner.term)
            })
            .collect();
        self.followed.retain(|owner, _| followed.contains(owner));
        for owner in followed {
            self.followed.entry(owner).or_insert(now);
        }
    }

    /// Whether others may have the cluster of this owner, which is over by what is known: the store says so itself, and no
    /// write of it can still arrive.
    fn is_past(
        &mut self,
        now: Time,
        cluster: &ClusterId,
        owner: Option<&Incarnation>,
        out: &mut Out,
    ) -> bool {
        let Some(owner) = owner else { return true };
        let since = self.records.get(cluster).map_or(now, |seen| seen.since);
        let followed = self.followed.get(owner);
        let landed = followed.is_none_or(|since| now - *since >= self.timing.expiry());
        landed && self.store_says(now, owner, since, out)
    }

    /// Whether what is known of somebody's lease is the store's own word, asked after that which names them was seen as it
    /// is: a watch may tell of a time before they began. If not, it is asked.
    fn store_says(&mut self, now: Time, named: &Incarnation, since: Time, out: &mut Out) -> bool {
        let asked = self.shards.get(&named.shard).and_then(|seen| seen.asked);
        if named.shard == self.identity.shard || asked.is_some_and(|asked| asked >= since) {
            return true;
        }
        let key = Key::Shard(named.shard.clone());
        if self.idle(now, &key) {
            self.read(now, key, out);
        }
        false
    }

    /// Shards that take clusters.
    fn members(&self, now: Time) -> Vec<Member> {
        self.shards
            .values()
            .filter(|seen| seen.object.takes() && now - seen.since < self.timing.expiry())
            .map(|seen| Member {
                id: seen.object.holder.shard.clone(),
                ordinal: seen.object.ordinal,
            })
            .collect()
    }

    fn items(&self) -> Vec<Item> {
        let wanted = self.wanted.iter().flatten();
        wanted
            .map(|(cluster, wanted)| {
                let record = self.records.get(cluster).map(|seen| &seen.object);
                let owner = record.and_then(|record| {
                    // A move that has begun counts as made.
                    let next = record.handover.as_ref().and_then(|handover| handover.to.as_ref());
                    let next = next.filter(|next| matches!(self.owner(next), Owner::Alive(_)));
                    let owner = next.or(record.owner.as_ref())?;
                    matches!(self.owner(owner), Owner::Alive(_)).then(|| owner.shard.clone())
                });
                Item {
                    cluster: cluster.clone(),
                    cost: self.cost(cluster, wanted.cost),
                    pin: record
                        .and_then(|record| record.pin.clone())
                        .or_else(|| wanted.pin.clone()),
                    owner,
                }
            })
            .collect()
    }

    /// What the owner has measured, or had when it was assigned, or else the guess.
    fn cost(&self, cluster: &ClusterId, guess: u64) -> u64 {
        let record = self.records.get(cluster).map(|seen| &seen.object);
        let measured = record
            .and_then(|record| record.owner.as_ref())
            .and_then(|owner| self.shards.get(&owner.shard)?.object.costs.get(cluster).copied());
        measured
            .or_else(|| record.map(|record| record.cost))
            .unwrap_or(guess)
    }

    /// Gives a cluster to its target, at once if it has no living owner, else by hand-over.
    fn place(
        &mut self,
        now: Time,
        cluster: &ClusterId,
        target: Option<Incarnation>,
        lead: &Lead,
        moving: &mut Moving,
        out: &mut Out,
    ) {
        if !self.record_idle(now, cluster) {
            return;
        }
        let guess = self
            .wanted
            .as_ref()
            .and_then(|wanted| wanted.get(cluster))
            .map_or(1, |wanted| wanted.cost);
        let cost = self.cost(cluster, guess);
        let Some(record) = self.records.get(cluster).map(|seen| seen.object.clone()) else {
            // What nobody has owned yet can wait a moment for shards that are just starting. If it has been owned, and
            // its record was deleted, the owner has to notice first.
            let settled = self.election.as_ref().is_some_and(|seen| seen.object.settled);
            let claimed = self
                .shards
                .values()
                .any(|seen| !seen.object.over && seen.object.costs.contains_key(cluster));
            let count = self.first_count();
            if let Some(target) = target
                && settled
                && !claimed
                && !self.gone.contains_key(cluster)
                && now - lead.since >= self.timing.gather
            {
                let first = Record {
                    cluster: cluster.clone(),
                    revision: count,
                    epoch: count,
                    owner: Some(target),
                    handover: None,
                    pin: None,
                    cost,
                };
                self.put(now, Object::Record(first), out);
            }
            return;
        };
        match record
            .owner
            .as_ref()
            .map_or(Owner::Nobody, |owner| self.owner(owner))
        {
            Owner::Nobody => {
                if target.is_some() && self.is_past(now, cluster, record.owner.as_ref(), out) {
                    let given = Record {
                        cost,
                        ..record.given_to(target)
                    };
                    self.put(now, Object::Record(given), out);
                }
            }
            Owner::Lost(owner) => self.stand_in(now, owner, out),
            Owner::Alive(owner) => self.hand_over_to(now, &record, &owner, target, moving, out),
        }
    }

    fn hand_over_to(
        &mut self,
        now: Time,
        record: &Record,
        owner: &ShardId,
        target: Option<Incarnation>,
        moving: &mut Moving,
        out: &mut Out,
    ) {
        let stays = target.as_ref().is_none_or(|target| target.shard == *owner);
        let handover = match (&record.handover, target) {
            (None, _) if stays => return,
            (Some(_), _) if stays => None,
            (Some(handover), target) if handover.to == target => return,
            (_, Some(target)) => {
                let emptied = self.shards.get(owner).is_some_and(|seen| !seen.object.takes());
                if record.handover.is_none() && !moving.allows(owner, &target.shard, emptied) {
                    return;
                }
                moving.begin(owner, &target.shard);
                Some(Handover {
                    to: Some(target),
                    warm: false,
                })
            }
            (_, None) => return,
        };
        let asked = Record {
            handover,
            ..record.next()
        };
        self.put(now, Object::Record(asked), out);
    }

    /// A lease that somebody has deleted is put back in the name of its last known holder, so that the wait for it has a
    /// beginning that everybody can see.
    fn stand_in(&mut self, now: Time, owner: Incarnation, out: &mut Out) {
        let known = self.shards.get(&owner.shard).map(|seen| seen.object.revision);
        let lease = ShardLease {
            holder: owner,
            boot: "".into(),
            over: false,
            revision: known.unwrap_or(self.first_count()) + 1,
            renewals: 0,
            ordinal: None,
            expiry: milliseconds(self.timing.expiry()),
            drain: false,
            leaving: false,
            costs: BTreeMap::new(),
            unseen: BTreeMap::new(),
        };
        self.put(now, Object::Shard(lease), out);
    }

    /// A cluster that is not wanted any more: its owner lets go, then the record goes.
    fn remove(&mut self, now: Time, cluster: &ClusterId, out: &mut Out) {
        let Some(Seen { object, version, .. }) = self.records.get(cluster).cloned() else {
            return;
        };
        let Some(owner) = &object.owner else {
            self.delete(now, Key::Cluster(cluster.clone()), version, out);
            return;
        };
        match self.owner(owner) {
            Owner::Nobody if !self.is_past(now, cluster, Some(owner), out) => {}
            Owner::Nobody => self.put(now, Object::Record(object.given_to(None)), out),
            Owner::Lost(owner) => self.stand_in(now, owner, out),
            Owner::Alive(_) => {
                let to_nobody = Some(Handover {
                    to: None,
                    warm: false,
                });
                if object.handover != to_nobody {
                    let asked = Record {
                        handover: to_nobody,
                        ..object.next()
                    };
                    self.put(now, Object::Record(asked), out);
                }
            }
        }
    }

    /// Leases of shards that have long been over, and own nothing, are removed.
    fn forget_leases(&mut self, now: Time, out: &mut Out) {
        let named: BTreeSet<ShardId> = self
            .records
            .values()
            .flat_map(|seen| [seen.object.owner.as_ref(), handed_to(&seen.object)])
            .flatten()
            .map(|incarnation| incarnation.shard.clone())
            .collect();
        let gone: Vec<(Key, crate::object::Version)> = self
            .shards
            .iter()
            .filter(|(id, seen)| {
                seen.object.over && now - seen.since >= self.timing.forget && !named.contains(*id)
            })
            .map(|(id, seen)| (Key::Shard(id.clone()), seen.version.clone()))
            .collect();
        for (key, version) in gone {
            if self.idle(now, &key) {
                self.delete(now, key, version, out);
            }
        }
    }

    fn owner(&self, owner: &Incarnation) -> Owner {
        match self.shards.get(&owner.shard) {
            None => Owner::Lost(owner.clone()),
            Some(seen) if is_over(&seen.object, owner) => Owner::Nobody,
            // It was deleted and made anew with the terms beginning again, and then ended.
            Some(seen) if seen.object.over => Owner::Lost(owner.clone()),
            Some(_) => Owner::Alive(owner.shard.clone()),
        }
    }

    fn holder_of(&self, shard: &ShardId) -> Option<Incarnation> {
        self.shards.get(shard).map(|seen| seen.object.holder.clone())
    }

    /// The clusters that nobody living owns, as far as this process knows.
    pub fn unowned(&self) -> BTreeSet<ClusterId> {
        let wanted = self.wanted.iter().flatten().map(|(cluster, _)| cluster);
        wanted
            .filter(|cluster| {
                let record = self.records.get(*cluster).map(|seen| &seen.object);
                let owner = record.and_then(|record| record.owner.as_ref());
                !owner.is_some_and(|owner| matches!(self.owner(owner), Owner::Alive(_)))
            })
            .cloned()
            .collect()
    }
}

/// The lease proves that the incarnation has ended. A lease that is behind the incarnation proves nothing.
pub(super) fn is_over(lease: &ShardLease, incarnation: &Incarnation) -> bool {
    lease.holder.term > incarnation.term || (lease.holder == *incarnation && lease.over)
}

fn handed_to(record: &Record) -> Option<&Incarnation> {
    record.handover.as_ref().and_then(|handover| handover.to.as_ref())
}

/// Hand-overs under way, by shard.
struct Moving {
    from: BTreeSet<ShardId>,
    to: BTreeSet<ShardId>,
}

impl Moving {
    fn of(records: &BTreeMap<ClusterId, Seen<Record>>) -> Self {
        let mut moving = Moving {
            from: BTreeSet::new(),
            to: BTreeSet::new(),
        };
        for seen in records.values() {
            if let (Some(owner), Some(to)) = (&seen.object.owner, handed_to(&seen.object)) {
                moving.begin(&owner.shard, &to.shard);
            }
        }
        moving
    }

    /// One at a time for balance. All at once from a shard that wants to be empty, as after its loss: how many clusters
    /// are listed together is for their new owner to say, and until they are, the old one goes on.
    fn allows(&self, from: &ShardId, to: &ShardId, emptied: bool) -> bool {
        emptied || (!self.from.contains(from) && !self.to.contains(to))
    }

    fn begin(&mut self, from: &ShardId, to: &ShardId) {
        self.from.insert(from.clone());
        self.to.insert(to.clone());
    }
}

impl Effect {
    /// The object that a write concerns.
    pub fn writes(&self) -> Option<Key> {
        match self {
            Effect::Put(object, ..) => Some(object.key()),
            Effect::Delete(key, ..) => Some(key.clone()),
            _ => None,
        }
    }

    /// The number of a write.
    pub fn number(&self) -> u64 {
        match self {
            Effect::Put(.., number) | Effect::Delete(.., number) => *number,
            _ => 0,
        }
    }
}
