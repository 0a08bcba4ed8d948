//! Any sequence of changes leaves the state that a plain map would have, with every index in agreement, and after all
//! objects are deleted nothing is left.

use std::collections::{BTreeMap, BTreeSet};

use argosy_livestate::{ClusterState, Footprint, Scope, Snapshot};
use argosy_object::GroupKind;
use proptest::prelude::*;

use crate::{delete, key, object, resource, upsert};

const KINDS: [&str; 3] = ["A", "B", "C"];

#[derive(Clone, Debug)]
struct Fact {
    version: u64,
    owner: Option<usize>,
    app: Option<u8>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Sets an object; `late` replays an old version, which must not show.
    Put {
        slot: usize,
        owner: Option<usize>,
        app: Option<u8>,
        late: bool,
    },
    Delete {
        slot: usize,
    },
    /// Lists a kind; only the slots in `kept` are in the list.
    Relist {
        kind: usize,
        kept: BTreeSet<usize>,
        complete: bool,
    },
}

const SLOTS: usize = 24;

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..SLOTS;
    prop_oneof![
        6 => (slot.clone(), prop::option::of(slot.clone()), prop::option::of(0..4u8), prop::bool::weighted(0.2))
            .prop_map(|(slot, owner, app, late)| Step::Put { slot, owner, app, late }),
        2 => slot.clone().prop_map(|slot| Step::Delete { slot }),
        1 => (0..KINDS.len(), prop::collection::btree_set(slot, 0..SLOTS), any::<bool>())
            .prop_map(|(kind, kept, complete)| Step::Relist { kind, kept, complete }),
    ]
}

fn make(slot: usize, fact: &Fact) -> (serde_json::Value, Option<String>) {
    let owner_uid = fact.owner.map(|owner| format!("u{owner}"));
    let owners: Vec<_> = fact
        .owner
        .iter()
        .map(|owner| (KINDS[owner % 3], "any", owner_uid.as_deref().unwrap()))
        .collect();
    let value = object(
        "apps/v1",
        KINDS[slot % 3],
        &format!("n{slot}"),
        &format!("u{slot}"),
        fact.version,
        &owners,
    );
    (value, fact.app.map(|app| format!("app{app}")))
}

fn agrees(snapshot: &Snapshot, model: &BTreeMap<usize, Fact>) {
    assert_eq!(snapshot.len(), model.len());
    let mut by_app: BTreeMap<String, usize> = BTreeMap::new();
    let mut by_kind: BTreeMap<&str, usize> = BTreeMap::new();
    let mut owned: BTreeMap<usize, usize> = BTreeMap::new();
    for (slot, fact) in model {
        let row = snapshot
            .get(&key("apps", KINDS[slot % 3], &format!("n{slot}")))
            .unwrap();
        assert_eq!(*row.resource_version, *fact.version.to_string());
        assert_eq!(snapshot.by_uid(&format!("u{slot}")).unwrap().key, row.key);
        *by_kind.entry(KINDS[slot % 3]).or_default() += 1;
        if let Some(app) = fact.app {
            *by_app.entry(format!("app{app}")).or_default() += 1;
        }
        if let Some(owner) = fact.owner {
            *owned.entry(owner).or_default() += 1;
        }
    }
    assert_eq!(snapshot.apps().count(), by_app.len());
    for (app, len) in by_app {
        assert_eq!(snapshot.by_app(&app).len(), len);
    }
    for kind in KINDS {
        let rows = snapshot.by_kind(&GroupKind::new("apps", kind));
        assert_eq!(rows.len(), by_kind.get(kind).copied().unwrap_or_default());
        assert!(rows.is_sorted_by(|a, b| a.key < b.key));
    }
    for slot in 0..SLOTS {
        assert_eq!(
            snapshot.children(&format!("u{slot}")).len(),
            owned.get(&slot).copied().unwrap_or_default()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_sequence_of_changes_agrees_with_a_plain_map(steps in prop::collection::vec(step(), 1..120)) {
        let mut state = ClusterState::new();
        let mut model: BTreeMap<usize, Fact> = BTreeMap::new();
        let mut version = 10_000;
        // Later ones are older still, so that they lose against everything.
        let mut late_version = 5_000;
        // What a watch has told the end of does not come back by older news.
        let mut gone = BTreeSet::new();
        for step in steps {
            version += 10;
            late_version -= 1;
            match step {
                Step::Put { slot, owner, app, late } => {
                    let fact = Fact { version: if late { late_version } else { version }, owner, app };
                    let (value, app) = make(slot, &fact);
                    upsert(&mut state, &value, app.as_deref());
                    if !late || !model.contains_key(&slot) && !gone.contains(&slot) {
                        model.insert(slot, fact);
                    }
                }
                Step::Delete { slot } => {
                    delete(&mut state, &key("apps", KINDS[slot % 3], &format!("n{slot}")), &format!("u{slot}"), version);
                    model.remove(&slot);
                    gone.insert(slot);
                }
                Step::Relist { kind, kept, complete } => {
                    let scope = Scope::all(GroupKind::new("apps", KINDS[kind]));
                    state.begin_relist(&scope);
                    for (slot, fact) in model.iter().filter(|(slot, _)| *slot % 3 == kind && kept.contains(slot)) {
                        let (value, app) = make(*slot, fact);
                        state.relist(&scope, *resource(&value, app.as_deref()));
                    }
                    if complete {
                        state.end_relist(&scope, &version.to_string());
                        model.retain(|slot, _| *slot % 3 != kind || kept.contains(slot));
                    } else {
                        state.abandon_relist(&scope);
                    }
                }
            }
            agrees(&state.snapshot(), &model);
        }
        for (slot, _) in model {
            delete(&mut state, &key("apps", KINDS[slot % 3], &format!("n{slot}")), &format!("u{slot}"), version + 1);
        }
        prop_assert_eq!(state.footprint(), Footprint::default());
        prop_assert!(state.snapshot().is_empty());
    }
}
