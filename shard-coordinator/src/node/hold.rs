//! What is owned, handed over, warmed and taken over.

use super::{Effect, Held, Node, Out, Phase};
use crate::object::{ClusterId, Handover, Incarnation, Key, Object, Record};
use crate::timing::Time;

impl Node {
    /// Brings what this process holds in line with the records.
    pub(super) fn settle_holds(&mut self, now: Time, out: &mut Out) {
        let Some(own) = self.incarnation().filter(|_| !self.ending).cloned() else {
            return;
        };
        let concerned = self
            .records
            .values()
            .filter(|seen| self.concerns(&own, &seen.object));
        let seen: Vec<(Record, bool)> = concerned
            .map(|seen| (seen.object.clone(), seen.asked.is_some()))
            .collect();
        for (record, confirmed) in &seen {
            self.follow(now, &own, record, *confirmed, out);
            self.adopt(now, &own, record, *confirmed, out);
            self.warm(now, &own, record, out);
        }
        self.stop_warming(&own, out);
        self.ask_for_missing(now, out);
        let alone = !self.others_take(now, &own);
        for (record, confirmed) in seen {
            if record.owner.as_ref() == Some(&own) {
                self.hand_over(now, &record, confirmed, alone, out);
            }
        }
    }

    /// Whether there is anything to do about a record: most are other shards'.
    fn concerns(&self, own: &Incarnation, record: &Record) -> bool {
        let owned = record
            .owner
            .as_ref()
            .is_some_and(|owner| owner.shard == own.shard);
        let coming = record
            .handover
            .as_ref()
            .is_some_and(|handover| handover.to.as_ref() == Some(own));
        owned || coming || self.held.contains_key(&record.cluster)
    }

    /// Owns what names this incarnation, and nothing that names another. That it does is asked of the store itself: what
    /// a watch tells may be of a time when another process bore this name.
    fn follow(&mut self, now: Time, own: &Incarnation, record: &Record, confirmed: bool, out: &mut Out) {
        let cluster = &record.cluster;
        let mine = record.owner.as_ref() == Some(own);
        let key = Key::Cluster(cluster.clone());
        let held = self.held.get(cluster).map(|held| held.epoch);
        if mine && !confirmed && held.is_none_or(|epoch| epoch < record.epoch) {
            if self.idle(now, &key) {
                self.read(now, key, out);
            }
            return;
        }
        match self.held.get_mut(cluster) {
            None if mine
                && self
                    .released
                    .get(cluster)
                    .is_none_or(|epoch| *epoch < record.epoch) =>
            {
                self.warming.remove(cluster);
                self.held.insert(
                    cluster.clone(),
                    Held {
                        epoch: record.epoch,
                        phase: Phase::Owned,
                        asked: None,
                        given: None,
                    },
                );
                out.push(Effect::Own(cluster.clone(), record.epoch));
            }
            Some(held) if mine && record.epoch > held.epoch => {
                *held = Held {
                    epoch: record.epoch,
                    phase: Phase::Owned,
                    asked: None,
                    given: None,
                };
                out.push(Effect::Own(cluster.clone(), record.epoch));
            }
            Some(held) if !mine && record.epoch > held.epoch => {
                self.released.insert(cluster.clone(), held.epoch);
                self.held.remove(cluster);
                out.push(Effect::Disown(cluster.clone()));
            }
            _ => {}
        }
    }

    /// What an earlier incarnation of this shard owned is taken on at once: it is over, since this one has begun. What this
    /// one has given up, as it was told, and the store says is still its own (it had been told of times before somebody
    /// deleted everything), it takes under a new epoch: if that was no news either, the write fails.
    fn adopt(&mut self, now: Time, own: &Incarnation, record: &Record, confirmed: bool, out: &mut Out) {
        let earlier = record
            .owner
            .as_ref()
            .is_some_and(|owner| owner.shard == own.shard && owner.term < own.term);
        let given_up =
            confirmed && record.owner.as_ref() == Some(own) && !self.held.contains_key(&record.cluster);
        if (earlier && self.stop.is_none()) || given_up {
            self.put(now, Object::Record(record.given_to(Some(own.clone()))), out);
        }
    }

    /// Lists what is about to be handed over to this incarnation, and says so when it has.
    fn warm(&mut self, now: Time, own: &Incarnation, record: &Record, out: &mut Out) {
        let Some(handover) = &record.handover else { return };
        if handover.to.as_ref() != Some(own) || self.held.contains_key(&record.cluster) {
            return;
        }
        match self.warming.get(&record.cluster) {
            None => {
                self.warming.insert(record.cluster.clone(), false);
                out.push(Effect::Warm(record.cluster.clone()));
            }
            Some(true) if !handover.warm => {
                let warm = Record {
                    handover: Some(Handover {
                        warm: true,
                        ..handover.clone()
                    }),
                    ..record.next()
                };
                self.put(now, Object::Record(warm), out);
            }
            Some(_) => {}
        }
    }

    fn stop_warming(&mut self, own: &Incarnation, out: &mut Out) {
        let called_off: Vec<ClusterId> = self
            .warming
            .keys()
            .filter(|cluster| {
                let record = self.records.get(*cluster).map(|seen| &seen.object);
                !record.is_some_and(|record| {
                    let handover = record.handover.as_ref();
                    let coming = handover.is_some_and(|handover| handover.to.as_ref() == Some(own));
                    coming || record.owner.as_ref() == Some(own)
                })
            })
            .cloned()
            .collect();
        for cluster in called_off {
            self.warming.remove(&cluster);
            out.push(Effect::Disown(cluster));
        }
    }

    /// A record that somebody has deleted: the store itself is asked.
    fn ask_for_missing(&mut self, now: Time, out: &mut Out) {
        let missing: Vec<Key> = self
            .held
            .keys()
            .filter(|cluster| !self.records.contains_key(*cluster))
            .map(|cluster| Key::Cluster(cluster.clone()))
            .collect();
        for key in missing {
            if self.idle(now, &key) {
                self.read(now, key, out);
            }
        }
    }

    /// Lets go of what it is asked for: first the successor lists, then writes end, then the record changes.
    fn hand_over(&mut self, now: Time, record: &Record, confirmed: bool, alone: bool, out: &mut Out) {
        let leaving = self.stop.map(|since| alone || now - since >= self.timing.leave);
        let warm = match self.stop {
            Some(_) => self.timing.leave,
            None => self.timing.warm,
        };
        let key = Key::Cluster(record.cluster.clone());
        let version = self.version(&key);
        let known = self
            .wanted
            .as_ref()
            .is_some_and(|wanted| wanted.contains_key(&record.cluster));
        let Some(held) = self.held.get_mut(&record.cluster) else {
            return;
        };
        let given = held.given.is_some() && held.given == version;
        let asked = match &record.handover {
            Some(handover) => {
                let since = *held.asked.get_or_insert(now);
                match handover.to {
                    // That the coordinator has not heard of the cluster is no proof that there is none: it goes when its owner
                    // knows of none either.
                    None => !known,
                    Some(_) => handover.warm || now - since >= warm,
                }
            }
            None => {
                held.asked = None;
                false
            }
        };
        if !asked && !given && leaving != Some(true) {
            if held.phase != Phase::Owned && !confirmed {
                // A view of the past, perhaps of before it was given away.
                if self.idle(now, &key) {
                    self.read(now, key, out);
                }
            } else if held.phase != Phase::Owned {
                // Called off.
                held.phase = Phase::Owned;
                out.push(Effect::Own(record.cluster.clone(), held.epoch));
            }
            return;
        }
        match held.phase {
            // A successor would meet what the dead process before this one has sent.
            Phase::Owned if now < self.wire => {}
            Phase::Owned => {
                held.phase = Phase::Draining;
                out.push(Effect::Drain(record.cluster.clone(), held.epoch));
            }
            Phase::Draining => {}
            Phase::Drained => {
                held.given = version;
                let to = record.handover.as_ref().and_then(|handover| handover.to.clone());
                self.put(now, Object::Record(record.given_to(to)), out);
            }
        }
    }

    /// Is there another shard that could take clusters?
    fn others_take(&self, now: Time, own: &Incarnation) -> bool {
        self.shards.values().any(|seen| {
            seen.object.takes()
                && seen.object.holder.shard != own.shard
                && now - seen.since < self.timing.expiry()
        })
    }

    /// Whether a record has a write under way.
    pub(super) fn record_idle(&self, now: Time, cluster: &ClusterId) -> bool {
        self.idle(now, &Key::Cluster(cluster.clone()))
    }
}
