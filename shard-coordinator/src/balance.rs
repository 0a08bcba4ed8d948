//! Which shard each cluster should be on: by measured cost, within a bound, with few moves.
//!
//! A cluster stays where it is unless that shard has gone, a person pins it elsewhere, or shards are out of balance. The
//! heaviest of those without a shard goes first, to the least loaded one. Then, while a shard carries more than
//! [`OVER`] times the mean, or less than [`UNDER`] times, one cluster at a time moves where that helps most. Where one
//! cluster alone is heavier than the mean, that cluster is what [`OVER`] is a multiple of: no division is better than one whose
//! heaviest shard has nothing else, and clearing everything off that shard would move many for little.

use std::collections::BTreeMap;

use crate::object::{ClusterId, Pin, ShardId};

/// A shard carries at most so many times the mean, or the heaviest cluster if that is more.
pub const OVER: f64 = 1.25;
/// A shard below so many times the mean is given some.
pub const UNDER: f64 = 0.5;
/// Clusters that have a shard already and are moved for balance, in one decision. What is still out of balance then is
/// put right by the next ones, when these moves are made.
pub const MOVES_MAX: usize = 2;

/// A shard that takes clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which.
    pub id: ShardId,
    /// Its number, if it has one.
    pub ordinal: Option<u32>,
}

/// A cluster to be looked after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Which.
    pub cluster: ClusterId,
    /// What it costs; any unit, the same for all.
    pub cost: u64,
    /// Where it must be.
    pub pin: Option<Pin>,
    /// Where it is.
    pub owner: Option<ShardId>,
}

/// The shard of each cluster. Empty without members; otherwise every cluster has one.
pub fn balance(members: &[Member], items: &[Item]) -> BTreeMap<ClusterId, ShardId> {
    if members.is_empty() {
        return BTreeMap::new();
    }
    let mut board = Board::new(members, items);
    board.settle();
    board.place();
    board.level();
    board
        .places
        .iter()
        .zip(items)
        .filter_map(|(place, item)| Some((item.cluster.clone(), members[place.as_ref()?.member].id.clone())))
        .collect()
}

#[derive(Clone, Copy)]
struct Place {
    member: usize,
    /// Pinned clusters stay; those without a shard move for nothing; others only if they must.
    ease: Ease,
}

#[derive(Clone, Copy, PartialEq)]
enum Ease {
    Pinned,
    Settled,
    Free,
}

struct Board<'a> {
    members: &'a [Member],
    items: &'a [Item],
    places: Vec<Option<Place>>,
    loads: Vec<u64>,
    mean: f64,
    /// No shard should carry more.
    bound: f64,
}

impl<'a> Board<'a> {
    fn new(members: &'a [Member], items: &'a [Item]) -> Self {
        let total: u64 = items.iter().map(weight).sum();
        let mean = total as f64 / members.len() as f64;
        let heaviest = items.iter().map(weight).max().unwrap_or(0);
        Board {
            members,
            items,
            places: vec![None; items.len()],
            loads: vec![0; members.len()],
            mean,
            bound: OVER * mean.max(heaviest as f64),
        }
    }

    /// Pins first, then all that may stay.
    fn settle(&mut self) {
        for (at, item) in self.items.iter().enumerate() {
            if let Some(pin) = &item.pin
                && let Some(member) = self.pinned(pin)
            {
                self.put(at, member, Ease::Pinned);
                continue;
            }
            let owner = item
                .owner
                .as_ref()
                .and_then(|owner| self.members.iter().position(|member| member.id == *owner));
            if let Some(member) = owner {
                self.put(at, member, Ease::Settled);
            }
        }
    }

    /// The shard of that name or number. For a number that nobody bears the shards are ranked by a hash, so that it
    /// changes only when the first of them goes or a better one comes. A named shard that is not there pins nothing.
    fn pinned(&self, pin: &Pin) -> Option<usize> {
        match pin {
            Pin::Shard(id) => self.members.iter().position(|member| member.id == *id),
            Pin::Number(number) => self
                .members
                .iter()
                .position(|member| member.ordinal == Some(*number))
                .or_else(|| {
                    (0..self.members.len())
                        .max_by_key(|at| rank(&self.members[*at].id.0, &number.to_string()))
                }),
        }
    }

    /// The heaviest first, each to the least loaded; of equals to the one that its hash prefers.
    fn place(&mut self) {
        let mut left: Vec<usize> = (0..self.items.len())
            .filter(|at| self.places[*at].is_none())
            .collect();
        left.sort_by(|a, b| {
            let (a, b) = (&self.items[*a], &self.items[*b]);
            (weight(b), &a.cluster).cmp(&(weight(a), &b.cluster))
        });
        for at in left {
            let item = &self.items[at];
            let best = (0..self.members.len()).min_by_key(|member| {
                let preference = rank(&self.members[*member].id.0, &item.cluster.0);
                let load = self.load_with(*member, weight(item));
                (load, self.loads[*member], u64::MAX - preference)
            });
            if let Some(member) = best {
                self.put(at, member, Ease::Free);
            }
        }
    }

    /// What a shard carries with another cluster. Where that is too much, the two heaviest that it can pass on are not
    /// counted: a heavy cluster goes where making room for it takes few moves.
    fn load_with(&self, member: usize, weight_more: u64) -> u64 {
        let load = self.loads[member] + weight_more;
        let bound = self.bound;
        if load as f64 <= bound {
            return load;
        }
        let least = self.loads.iter().min().copied().unwrap_or(0);
        let mut fitting: Vec<u64> = (0..self.items.len())
            .filter(|at| {
                self.places[*at].is_some_and(|place| place.member == member && place.ease != Ease::Pinned)
            })
            .map(|at| weight(&self.items[at]))
            .filter(|weight| (least + weight) as f64 <= bound)
            .collect();
        fitting.sort_unstable_by(|a, b| b.cmp(a));
        let passed_on: u64 = fitting.iter().take(MOVES_MAX).sum();
        // Below its bound no shard is better than another.
        (load - passed_on).max(bound as u64)
    }

    /// Moves single clusters for as long as a bound is broken and a move helps.
    fn level(&mut self) {
        let mut moves = 0;
        for _ in 0..self.items.len() {
            let mut by_load: Vec<usize> = (0..self.loads.len()).collect();
            by_load.sort_by_key(|member| std::cmp::Reverse(self.loads[*member]));
            let Some(&low) = by_load.last() else { return };
            let under = (self.loads[low] as f64) < UNDER * self.mean;
            // The heaviest may have nothing to give: one great cluster, or pinned ones.
            let found = by_load.into_iter().find_map(|high| {
                let over = self.loads[high] as f64 > self.bound;
                if over || under {
                    self.best_move(high, low, over)
                } else {
                    None
                }
            });
            let Some(at) = found else { return };
            if self.places[at].is_some_and(|place| place.ease == Ease::Settled) {
                moves += 1;
                if moves > MOVES_MAX {
                    return;
                }
            }
            self.put(at, low, Ease::Free);
        }
    }

    /// The cluster of `high` whose move to `low` leaves both lightest. Of those that bring `high` within its bound
    /// without breaking that of `low`, the lightest: it is the cheapest to move.
    fn best_move(&self, high: usize, low: usize, over: bool) -> Option<usize> {
        let bound = self.bound;
        let after = |cost: u64| (self.loads[high] - cost).max(self.loads[low] + cost);
        let movable = (0..self.items.len()).filter(|at| {
            let place = self.places[*at];
            let cost = weight(&self.items[*at]);
            place.is_some_and(|place| place.member == high && place.ease != Ease::Pinned)
                && after(cost) < self.loads[high]
        });
        movable.min_by_key(|at| {
            let cost = weight(&self.items[*at]);
            let free = self.places[*at].is_some_and(|place| place.ease == Ease::Free);
            let enough = over && after(cost) as f64 <= bound;
            // Free moves that suffice, then others that suffice, then whatever helps most.
            let class = match (enough, free) {
                (true, true) => 0,
                (true, false) => 1,
                (false, _) => 2,
            };
            let within = if enough { cost } else { after(cost) };
            (class, within, &self.items[*at].cluster)
        })
    }

    fn put(&mut self, at: usize, member: usize, ease: Ease) {
        let weight = weight(&self.items[at]);
        if let Some(place) = self.places[at] {
            self.loads[place.member] -= weight;
        }
        self.places[at] = Some(Place { member, ease });
        self.loads[member] += weight;
    }
}

/// A cluster always weighs something: many empty ones are spread too.
fn weight(item: &Item) -> u64 {
    item.cost.max(1)
}

/// How much a member is preferred for something (rendezvous hashing).
fn rank(member: &str, what: &str) -> u64 {
    let mut state = blake2b_simd::State::new();
    state
        .update(member.as_bytes())
        .update(&[0])
        .update(what.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&state.finalize().as_bytes()[..8]);
    u64::from_le_bytes(first)
}
