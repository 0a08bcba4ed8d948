//! What holds for every plan.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use argosy_object::{ResourceKey, Value, meta};
use argosy_sync::{Hold, Options, Phase, Plan, Resource, SyncOptions, plan};
use proptest::prelude::*;
use serde_json::json;

use crate::world;

const KINDS: [&str; 7] = [
    "ConfigMap",
    "Service",
    "Deployment",
    "Job",
    "Widget",
    "ServiceAccount",
    "Ingress",
];

/// One resource of a random application: kind, name, wave, hook, whether it is desired, whether it is live.
#[derive(Clone, Debug)]
struct Sketch {
    kind: &'static str,
    name: u8,
    wave: i8,
    hook: Option<&'static str>,
    desired: bool,
    live: bool,
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let hooks = [None, None, None, Some("PreSync"), Some("Sync"), Some("PostSync")];
    (
        prop::sample::select(KINDS.to_vec()),
        0..30u8,
        -3..4i8,
        prop::sample::select(hooks.to_vec()),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(kind, name, wave, hook, desired, live)| Sketch {
            kind,
            name,
            wave,
            hook,
            desired: desired || !live || hook.is_some(),
            live: live && hook.is_none(),
        })
}

/// Each object once.
fn sketches() -> impl Strategy<Value = Vec<Sketch>> {
    prop::collection::vec(sketch(), 1..40).prop_map(|all| {
        let mut known = BTreeSet::new();
        all.into_iter()
            .filter(|sketch| known.insert((sketch.kind, sketch.name)))
            .collect()
    })
}

fn resource(sketch: &Sketch) -> Resource {
    let mut object = json!({"apiVersion": "v1", "kind": sketch.kind, "metadata": {"name": format!("r{}", sketch.name), "namespace": "shop"}});
    meta::set_annotation(
        &mut object,
        "argocd.argoproj.io/sync-wave",
        sketch.wave.to_string(),
    );
    if let Some(hook) = sketch.hook {
        meta::set_annotation(&mut object, "argocd.argoproj.io/hook", hook);
    }
    let object = Arc::new(object);
    Resource {
        key: meta::key(&object),
        gvk: meta::gvk(&object),
        desired: sketch.desired.then(|| object.clone()),
        live: sketch.live.then_some(object),
        out_of_sync: true,
        doubtful: false,
    }
}

fn options() -> Options {
    Options {
        namespace: "shop".into(),
        prune: true,
        hooks: true,
        ..Options::default()
    }
}

fn planned(sketches: &[Sketch], options: &Options) -> Plan {
    plan(&sketches.iter().map(resource).collect::<Vec<_>>(), options).unwrap()
}

fn order(plan: &Plan) -> Vec<(Phase, i64, u32, ResourceKey)> {
    let place = |task: &argosy_sync::Task| (task.phase, task.wave, task.rank, task.key.clone());
    plan.tasks.iter().map(place).collect()
}

/// The input of a small world in which everything becomes healthy at once.
fn input(sketches: &[Sketch]) -> String {
    let line = |sketch: &Sketch| {
        let hook = sketch
            .hook
            .map(|hook| format!(", hook: {hook}"))
            .unwrap_or_default();
        format!(
            "- {{kind: {}, name: r{}, wave: {}{hook}}}\n",
            sketch.kind, sketch.name, sketch.wave
        )
    };
    let lines = |wanted: fn(&Sketch) -> bool| -> String {
        sketches
            .iter()
            .filter(|sketch| wanted(sketch))
            .map(line)
            .collect()
    };
    let mut text = String::from("options: {prune: true}\n");
    for (name, lines) in [
        ("desired", lines(|sketch| sketch.desired)),
        ("live", lines(|sketch| sketch.live)),
    ] {
        match lines.is_empty() {
            true => writeln!(text, "{name}: []").unwrap(),
            false => write!(text, "{name}:\n{lines}").unwrap(),
        }
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_order_is_total_and_does_not_depend_on_how_the_resources_came(sketches in sketches(), turn in 0..40usize) {
        let whole = planned(&sketches, &options());
        let places = order(&whole);
        prop_assert!(places.windows(2).all(|pair| (pair[0].0, pair[0].1, pair[0].2) <= (pair[1].0, pair[1].1, pair[1].2)));
        let distinct: BTreeSet<_> = places.iter().map(|(phase, .., key)| (*phase, key.to_string())).collect();
        prop_assert_eq!(distinct.len(), places.len(), "each object once in a phase");

        let mut turned = sketches.clone();
        turned.rotate_left(turn % sketches.len());
        turned.reverse();
        prop_assert_eq!(order(&planned(&turned, &options())), places);
    }

    #[test]
    fn waves_are_respected(sketches in sketches()) {
        let whole = planned(&sketches, &options());
        let waves: BTreeMap<String, i64> = sketches
            .iter()
            .map(|sketch| (meta::key(&Value::clone(resource(sketch).desired.or(resource(sketch).live).as_deref().unwrap())).to_string(), i64::from(sketch.wave)))
            .collect();
        for (index, task) in whole.tasks.iter().enumerate() {
            for later in &whole.tasks[index + 1..] {
                let both_applied = task.action.is_apply() && later.action.is_apply();
                let both_pruned = task.action.is_prune() && later.action.is_prune();
                let (first, second) = (waves[&task.key.to_string()], waves[&later.key.to_string()]);
                if task.phase == later.phase && both_applied {
                    prop_assert!(first <= second, "applied in order of their waves");
                }
                if both_pruned {
                    prop_assert!(first >= second, "deleted in the opposite order");
                }
            }
        }
    }

    #[test]
    fn carrying_out_a_plan_reaches_synced(sketches in sketches()) {
        let run = world::run(&input(&sketches), None);
        prop_assert!(run.end.starts_with("Succeeded"), "{}", run.text);
        let desired: BTreeSet<String> = sketches
            .iter()
            .filter(|sketch| sketch.desired)
            .map(|sketch| format!("{}/r{}", sketch.kind, sketch.name))
            .collect();
        let found: BTreeSet<String> = run
            .objects
            .iter()
            .map(|key| key.split('/').collect::<Vec<_>>())
            .map(|parts| format!("{}/{}", parts[parts.len() - 3], parts[parts.len() - 1]))
            .collect();
        prop_assert_eq!(found, desired);

        // What is as it should be needs nothing more.
        let mut settled: Vec<Resource> = sketches.iter().filter(|sketch| sketch.desired && sketch.hook.is_none()).map(resource).collect();
        for resource in &mut settled {
            resource.live = resource.desired.clone();
            resource.out_of_sync = false;
        }
        let only_differences = Options { sync_options: SyncOptions::parse(["ApplyOutOfSyncOnly=true"]), ..options() };
        let again = plan(&settled, &only_differences).unwrap();
        prop_assert!(again.tasks.iter().all(|task| !task.action.is_apply() && !task.action.is_prune()));
    }

    #[test]
    fn being_stopped_anywhere_changes_neither_the_end_nor_the_hooks(sketches in sketches(), at in 0..1000usize) {
        let input = input(&sketches);
        let whole = world::run(&input, None);
        let broken = world::run(&input, Some(at % whole.steps.max(1)));
        prop_assert_eq!(&broken.end, &whole.end);
        prop_assert_eq!(&broken.objects, &whole.objects);
        prop_assert_eq!(&broken.hooks_created, &whole.hooks_created, "each hook once");
    }

    #[test]
    fn a_plan_made_again_deletes_in_the_same_order(sketches in sketches(), gone in 0..40usize) {
        let prunes = |plan: &Plan| -> Vec<ResourceKey> {
            plan.tasks.iter().filter(|task| task.action.is_prune()).map(|task| task.key.clone()).collect()
        };
        let whole = planned(&sketches, &options());
        let mut left = prunes(&whole);
        let gone: Vec<ResourceKey> = left.drain(..gone.min(left.len())).collect();
        let resources: Vec<Resource> = sketches.iter().map(resource).filter(|one| !gone.contains(&one.key)).collect();
        let again = plan(&resources, &Options { prune_waves: whole.prune_waves.clone(), ..options() }).unwrap();
        prop_assert_eq!(prunes(&again), left);
        let place = |plan: &Plan| -> BTreeMap<ResourceKey, i64> {
            plan.tasks.iter().map(|task| (task.key.clone(), task.wave)).collect()
        };
        let before = place(&whole);
        prop_assert!(place(&again).iter().all(|(key, wave)| before[key] == *wave), "nothing changes its wave");
    }

    #[test]
    fn a_plan_is_held_exactly_if_it_deletes_much(sketches in sketches()) {
        let hold = Hold { at_least: 3, share: 50, kinds: vec!["Service".into()] };
        let held = planned(&sketches, &Options { hold: Some(hold), ..options() });
        let live = sketches.iter().filter(|sketch| sketch.live).count();
        let doomed: Vec<&Sketch> = sketches.iter().filter(|sketch| !sketch.desired).collect();
        let much = doomed.len() * 2 > live || doomed.iter().any(|sketch| sketch.kind == "Service");
        prop_assert_eq!(held.held.is_some(), doomed.len() >= 3 && much);
        prop_assert_eq!(order(&held), order(&planned(&sketches, &options())), "holding changes no order");
    }
}
