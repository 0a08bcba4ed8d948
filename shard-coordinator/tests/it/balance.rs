//! Balance and movement, with weights as fleets have them (log-normal).

use std::collections::BTreeMap;

use argosy_shard_coordinator::balance::{Item, Member, balance};
use argosy_shard_coordinator::object::{ClusterId, Pin, ShardId};

/// The bound of a shard's load, as a multiple of what no assignment can be below.
const LIMIT: f64 = 1.25 + 1e-9;

fn members(count: usize) -> Vec<Member> {
    (0..count)
        .map(|number| Member {
            id: ShardId::new(&format!("shard-{number}")),
            ordinal: Some(number as u32),
        })
        .collect()
}

/// Log-normal weights with a standard deviation of 1: the heaviest of 500 costs some twenty times the median.
fn fleet(seed: u64, count: usize) -> Vec<Item> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut normal = || {
        let (u, v) = (rng.f64().max(1e-12), rng.f64());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    };
    (0..count)
        .map(|number| Item {
            cluster: ClusterId::new(&format!("https://{number}")),
            cost: (normal().exp() * 1000.0) as u64 + 1,
            pin: None,
            owner: None,
        })
        .collect()
}

fn settled(items: &[Item], places: &BTreeMap<ClusterId, ShardId>) -> Vec<Item> {
    items
        .iter()
        .map(|item| Item {
            owner: Some(places[&item.cluster].clone()),
            ..item.clone()
        })
        .collect()
}

fn moved(items: &[Item], places: &BTreeMap<ClusterId, ShardId>) -> usize {
    items
        .iter()
        .filter(|item| item.owner.as_ref() != Some(&places[&item.cluster]))
        .count()
}

/// The heaviest load as a multiple of what no assignment can be below: the mean, or the heaviest cluster if that is more.
fn over_least(members: &[Member], items: &[Item], places: &BTreeMap<ClusterId, ShardId>) -> f64 {
    let mut loads: BTreeMap<&ShardId, u64> = members.iter().map(|member| (&member.id, 0)).collect();
    for item in items {
        *loads.get_mut(&places[&item.cluster]).unwrap() += item.cost;
    }
    let total: u64 = loads.values().sum();
    let heaviest = items.iter().map(|item| item.cost).max().unwrap();
    *loads.values().max().unwrap() as f64 / (total as f64 / members.len() as f64).max(heaviest as f64)
}

/// Decides again and again, as the coordinator does while moves are made, until nothing moves.
fn at_rest(members: &[Member], items: &[Item]) -> BTreeMap<ClusterId, ShardId> {
    let mut places = balance(members, items);
    for _ in 0..items.len() {
        let next = balance(members, &settled(items, &places));
        if next == places {
            return places;
        }
        places = next;
    }
    panic!("it does not come to rest");
}

#[test]
fn when_one_of_ten_shards_is_lost_its_clusters_move_and_few_others() {
    let (mut losses, mut unbalanced, mut more) = (0, 0, 0);
    for (count, seeds) in [(100, 0..40), (500, 0..5)] {
        for seed in seeds {
            let all = members(10);
            let fleet = fleet(seed, count);
            let before = at_rest(&all, &fleet);
            assert!(over_least(&all, &fleet, &before) <= LIMIT);
            for lost in 0..10 {
                let mut left = all.clone();
                let lost = left.remove(lost);
                let items = settled(&fleet, &before);
                let owned = items
                    .iter()
                    .filter(|item| item.owner.as_ref() == Some(&lost.id))
                    .count();
                let after = balance(&left, &items);
                let of = format!("seed {seed}, {count} clusters, {owned} were owned");
                let moves = moved(&items, &after);
                assert!(moves <= owned + 2, "{of}: {moves} moved at once");
                losses += 1;
                unbalanced += usize::from(over_least(&left, &items, &after) > LIMIT);
                let rest = at_rest(&left, &items);
                assert!(over_least(&left, &items, &rest) <= LIMIT, "{of}");
                let moves = moved(&items, &rest);
                assert!(moves <= owned + 4, "{of}: {moves} moved until it was at rest");
                more += usize::from(moves > owned + 2);
            }
        }
    }
    // One cluster about as heavy as a shard's share: two moves are not enough to make room for it.
    for odd in [unbalanced, more] {
        assert!(
            odd * 30 <= losses,
            "of {losses} losses {unbalanced} out of balance at first, {more} with more moves"
        );
    }
}

#[test]
fn a_shard_that_joins_gets_its_share_and_others_keep_theirs() {
    for seed in 0..20 {
        let fleet = fleet(seed, 100);
        let three = members(3);
        let items = settled(&fleet, &at_rest(&three, &fleet));
        let five = members(5);
        let after = at_rest(&five, &items);
        assert!(over_least(&five, &items, &after) <= LIMIT);
        // Two of five shards are new: about two fifths of the load has to move.
        let moved = moved(&items, &after);
        assert!(moved <= 60, "seed {seed}: {moved} of 100 moved");
    }
}

#[test]
fn a_cluster_that_is_added_moves_no_other() {
    for seed in 0..50 {
        let all = members(4);
        let mut items = fleet(seed, 40);
        items = settled(&items, &balance(&all, &items));
        items.push(Item {
            cluster: ClusterId::new("https://new"),
            cost: 10,
            pin: None,
            owner: None,
        });
        let after = balance(&all, &items);
        assert_eq!(moved(&items, &after), 1);
    }
}

#[test]
fn pins_are_kept_and_those_of_one_number_stay_together() {
    let mut items = fleet(1, 30);
    items[0].pin = Some(Pin::Number(2));
    items[1].pin = Some(Pin::Shard(ShardId::new("shard-1")));
    items[2].pin = Some(Pin::Shard(ShardId::new("gone")));
    items[3].pin = Some(Pin::Number(77));
    items[4].pin = Some(Pin::Number(77));
    let places = balance(&members(4), &items);
    assert_eq!(&*places[&items[0].cluster].0, "shard-2");
    assert_eq!(&*places[&items[1].cluster].0, "shard-1");
    assert!(
        places.contains_key(&items[2].cluster),
        "a pin to nobody leaves no cluster without an owner"
    );
    assert_eq!(places[&items[3].cluster], places[&items[4].cluster]);
}

#[test]
fn without_members_nothing_is_placed_and_with_one_everything() {
    let items = fleet(1, 5);
    assert!(balance(&[], &items).is_empty());
    assert_eq!(balance(&members(1), &items).len(), 5);
    assert!(balance(&members(3), &[]).is_empty());
}

#[test]
fn a_new_shard_is_given_some_though_the_heaviest_has_nothing_to_give() {
    let members = members(3);
    let item = |number: usize, cost: u64, owner: &str| Item {
        cluster: ClusterId::new(&format!("https://{number}")),
        cost,
        pin: None,
        owner: Some(ShardId::new(owner)),
    };
    let mut items = vec![item(0, 1000, "shard-0")];
    items.extend((1..=50).map(|number| item(number, 18, "shard-1")));
    let places = at_rest(&members, &items);
    let lightest = members
        .iter()
        .map(|member| {
            let own = items.iter().filter(|item| places[&item.cluster] == member.id);
            own.map(|item| item.cost).sum::<u64>()
        })
        .min();
    // Half of the mean is 316.7, and it takes no more moves than that.
    assert_eq!(lightest, Some(324));
    assert_eq!(moved(&items, &places), 18);
}
