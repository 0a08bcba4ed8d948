//! Client-side apply, against the three-way strategic merge patch of apimachinery: what the API server has after our patch is what it has
//! after the library's.

use argosy_diff::{IgnoreRules, Options, Value, compare, patch};
use argosy_object::meta;
use argosy_object::schema::Schemas;
use argosy_oracle::{Generator, Oracle};
use serde_json::json;

use crate::{Tally, kinds, objects, places, seed, settled};

#[test]
fn patches_lead_where_those_of_kubectl_lead() {
    let Some(mut oracle) = Oracle::start().unwrap() else {
        return;
    };
    let schemas = Schemas::builtin();
    let kinds = kinds(&schemas, &mut oracle);
    let mut generator = Generator::new(&schemas, seed() + 1_000_000);
    let mut tally = Tally::default();
    for _ in 0..objects() {
        let kind = generator.dice.pick(&kinds);
        let original = generator.object(kind);
        let mut modified = original.clone();
        for _ in 0..generator.dice.below(4) {
            modified = generator.mutated(&modified);
        }
        let Some(mut current) = oracle.store(&original, true).unwrap() else {
            continue;
        };
        for _ in 0..generator.dice.below(3) {
            current = generator.mutated(&current);
        }
        let Some(current) = oracle.store(&current, true).unwrap() else {
            continue;
        };
        let ours = patch::three_way(Some(&original), &modified, &current, &schemas);
        let request =
            json!({"original": original, "modified": modified, "current": current, "patch": ours.content});
        let Ok(answer) = oracle.ask("strategic", request).unwrap() else {
            continue;
        };
        if let Some(problem) = answer.get("problem") {
            tally.fault(format!(
                "{}: our patch cannot be read: {problem}\n  {}",
                kind.kind, ours.content
            ));
            continue;
        }
        let different = places(&answer["kept"], &answer["kept_of_other"]);
        if different.is_empty() {
            tally.agree();
            continue;
        }
        // The other patch shall not be the better one: whatever is left after ours is a fault.
        let left = left_over(&schemas, &modified, &answer["kept_of_other"]);
        match settled::patch_name(
            (&answer["kept"], &answer["kept_of_other"]),
            &original,
            &modified,
            &current,
        ) {
            // Endpoints made by chance have addresses without address, which have no order.
            Some(name) if left.is_empty() || name == "endpoints-in-order" => tally.settle(name),
            _ => tally.fault(format!(
                "{}: {different:?}\n  left over: {left:?}\n  ours {}\n  reference {}\n  {}",
                kind.kind,
                ours.content,
                answer["patch"],
                if std::env::var_os("ARGOSY_ORACLE_FULL").is_some() {
                    json!({"original": original, "modified": modified, "current": current}).to_string()
                } else {
                    String::new()
                }
            )),
        }
    }
    tally.close("strategic merge", objects() / 2);
}

/// What the comparison finds in the object that our patch made.
fn left_over(schemas: &Schemas, modified: &Value, kept: &Value) -> Vec<String> {
    let (rules, options) = (IgnoreRules::none(), Options::default());
    let mut kept = kept.clone();
    meta::set_annotation(&mut kept, argosy_diff::LAST_APPLIED, modified.to_string());
    let ctx = argosy_diff::Context {
        schemas,
        rules: &rules,
        options: &options,
    };
    let left = compare(Some(modified), Some(&kept), &ctx).differences;
    left.into_iter()
        .map(|one| format!("{} ({})", one.path, one.why))
        .collect()
}
