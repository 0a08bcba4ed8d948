//! Whether something differs, against the comparison of Argo CD (`gitops-engine/pkg/diff`).

use argosy_diff::{Comparison, Context, IgnoreRules, LAST_APPLIED, Options, Value, compare};
use argosy_object::meta;
use argosy_object::schema::Schemas;
use argosy_oracle::{Generator, Oracle};
use serde_json::json;

use crate::settled;
use crate::{Tally, kinds, objects, places, seed};

/// What Git wants, what was applied last, and what the cluster has, made as it happens: applied, stored, perhaps changed on either side.
#[test]
fn verdicts_of_the_three_way_comparison_are_those_of_argo_cd() {
    let Some(mut oracle) = Oracle::start().unwrap() else {
        return;
    };
    let schemas = Schemas::builtin();
    let kinds = kinds(&schemas, &mut oracle);
    let mut generator = Generator::new(&schemas, seed());
    let mut tally = Tally::default();
    for round in 0..objects() {
        let common = &generator.dice.text(&["Deployment", "StatefulSet", "Service"]);
        let kind = if round % 3 == 0 {
            kinds.iter().find(|kind| kind.kind == *common).unwrap()
        } else {
            generator.dice.pick(&kinds)
        };
        let applied = generator.object(kind);
        let Some(stored) = oracle.store(&applied, true).unwrap() else {
            continue;
        };
        let mut desired = applied.clone();
        let mut live = stored;
        if generator.dice.chance(35) {
            desired = generator.mutated(&desired);
        }
        if generator.dice.chance(35) {
            live = generator.mutated(&live);
        }
        let (Some(mut live), Some(_)) = (
            oracle.store(&live, true).unwrap(),
            oracle.store(&desired, true).unwrap(),
        ) else {
            continue;
        };
        if generator.dice.chance(80) {
            meta::set_annotation(&mut live, LAST_APPLIED, applied.to_string());
        }
        judge(&mut oracle, &schemas, &desired, &live, &mut tally);
    }
    tally.close("verdicts", objects() / 2);
}

fn judge(oracle: &mut Oracle, schemas: &Schemas, desired: &Value, live: &Value, tally: &mut Tally) {
    let answer = oracle
        .ask("verdict", json!({"desired": desired, "live": live}))
        .unwrap();
    let Ok(answer) = answer else { return };
    let ours = ours(schemas, desired, live);
    let theirs = answer["modified"] == true;
    if ours.modified == theirs {
        return tally.agree();
    }
    let effect = effect(oracle, desired, live);
    let seen = places(&answer["live"], &answer["predicted"]);
    let last = meta::annotation(live, LAST_APPLIED).map(|text| serde_json::from_str(text).unwrap());
    if let Some(name) = settled::name(&ours, &seen, effect.as_deref(), desired, last.as_ref()) {
        return tally.settle(name);
    }
    tally.fault(format!(
        "{} modified: ours {}, reference {theirs}\n  ours: {:?}\n  reference: {:?}\n  an apply changes: {effect:?}\n  {}",
        meta::kind(desired),
        ours.modified,
        ours.differences
            .iter()
            .map(|one| format!("{}: {:?} | {:?} ({})", one.path, one.live, one.desired, one.why))
            .collect::<Vec<_>>(),
        seen,
        if std::env::var_os("ARGOSY_ORACLE_FULL").is_some() {
            json!({"desired": desired, "live": live}).to_string()
        } else {
            String::new()
        }
    ));
}

/// What an apply by kubectl would really change in the cluster: the arbiter where two verdicts contradict each other.
fn effect(oracle: &mut Oracle, desired: &Value, live: &Value) -> Option<Vec<String>> {
    let original: Value = meta::annotation(live, LAST_APPLIED)
        .map_or_else(|| desired.clone(), |text| serde_json::from_str(text).unwrap());
    let request = json!({"original": original, "modified": desired, "current": live, "patch": {}});
    let answer = oracle.ask("strategic", request).unwrap().ok()?;
    let mut places = places(live, &answer["kept"]);
    // A claim inside a StatefulSet is never given a status by an apply.
    places.retain(|place| !(place.contains(".volumeClaimTemplates") && place.contains(".status")));
    Some(places)
}

fn ours(schemas: &Schemas, desired: &Value, live: &Value) -> Comparison {
    let (rules, options) = (IgnoreRules::none(), Options::default());
    compare(
        Some(desired),
        Some(live),
        &Context {
            schemas,
            rules: &rules,
            options: &options,
        },
    )
}
