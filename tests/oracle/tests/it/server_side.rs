//! Comparison by dry run: histories and applies made by the API server's field manager, with something that a webhook put in, against what
//! Argo CD makes of the same answer.

use argosy_diff::{Context, IgnoreRules, Options, Value, compare_dry_run};
use argosy_object::meta;
use argosy_object::schema::Schemas;
use argosy_oracle::{Generator, Oracle};
use serde_json::json;

use crate::{Tally, kinds, objects, places, seed, settled};

#[test]
fn verdicts_by_dry_run_are_those_of_argo_cd() {
    const OURS: &str = "argocd-controller";
    let Some(mut oracle) = Oracle::start().unwrap() else {
        return;
    };
    let schemas = Schemas::builtin();
    let mut kinds = kinds(&schemas, &mut oracle);
    // The reference brings its own, older schemas along.
    kinds.retain(|kind| matches!(&*kind.group, "" | "apps" | "batch") && kind.version == "v1");
    let mut generator = Generator::new(&schemas, seed() + 4_000_000);
    let mut tally = Tally::default();
    for _ in 0..objects() {
        let kind = generator.dice.pick(&kinds);
        let first = generator.object(kind);
        let Some(first) = oracle.store(&first, true).unwrap() else {
            continue;
        };
        let mut desired = first.clone();
        if generator.dice.chance(50) {
            desired = generator.mutated(&desired);
        }
        let mut steps = vec![json!({"manager": OURS, "update": false, "object": first})];
        if generator.dice.chance(40) {
            steps.push(json!({"manager": "editor", "update": true, "object": generator.mutated(&first)}));
        }
        steps.push(json!({"manager": OURS, "update": false, "object": desired}));
        let Ok(answer) = oracle.ask("apply", json!({"steps": steps})).unwrap() else {
            continue;
        };
        let (live, mut predicted) = (answer["before"].clone(), answer["after"].clone());
        // A webhook that adds a label at each write.
        if generator.dice.chance(50) {
            predicted["metadata"]["labels"]["webhook"] = "was-here".into();
        }
        let include = generator.dice.chance(50);
        let request =
            json!({"desired": desired, "live": live, "predicted": predicted, "include_webhooks": include});
        let Ok(theirs) = oracle.ask("server-side", request).unwrap() else {
            continue;
        };
        let (rules, options) = (IgnoreRules::none(), Options::default());
        let ctx = Context {
            schemas: &schemas,
            rules: &rules,
            options: &options,
        };
        let Ok(ours) = compare_dry_run(&live, &predicted, include, &ctx) else {
            continue;
        };
        if ours.modified == (theirs["modified"] == true) {
            tally.agree();
            continue;
        }
        let reference = places(&theirs["live"], &theirs["predicted"]);
        // The field manager alone fills no defaults in; a server would.
        let with_defaults = |oracle: &mut Oracle, side: &str| oracle.store(&theirs[side], true).unwrap();
        if !ours.modified
            && let (Some(a), Some(b)) = (
                with_defaults(&mut oracle, "live"),
                with_defaults(&mut oracle, "predicted"),
            )
            && settled::same_but_for_empties(&a, &b)
        {
            tally.settle("apply-changes-nothing");
            continue;
        }
        match settled::dry_run_name(&ours, &theirs["live"], &theirs["predicted"]) {
            Some(name) => tally.settle(name),
            None => tally.fault(format!(
                "{} modified: ours {}, reference {}\n  ours: {:?}\n  reference: {reference:?}\n  {}",
                meta::kind(&first),
                ours.modified,
                theirs["modified"],
                ours.differences
                    .iter()
                    .map(|one| format!("{} ({})", one.path, one.why))
                    .collect::<Vec<_>>(),
                if std::env::var_os("ARGOSY_ORACLE_FULL").is_some() {
                    json!({"live": live, "predicted": predicted}).to_string()
                } else {
                    Value::Null.to_string()
                }
            )),
        }
    }
    tally.close("verdicts by dry run", objects() / 3);
}
