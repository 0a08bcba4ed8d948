//! Cases: `tests/cases/<name>/` with `desired.yaml`, `live.yaml`, and where they matter `last_applied.yaml`, `crd.yaml`, `options.yaml`.
//! `expected.txt` has one line a difference, `path: live -> desired (why)` with JSON values and `-` for absent, or `same`.
//!
//! What would be sent to apply a case is checked with it: nothing if nothing differs, and after the API server has merged it nothing
//! differs any more. `UPDATE_EXPECTED=1 cargo test` writes the answers as they are; read them before you keep them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use argosy_diff::{
    Context, Difference, IgnoreRule, IgnoreRules, IgnoreStatus, KnownType, KnownTypeKind, LAST_APPLIED,
    Options, Value, compare, patch,
};
use argosy_object::schema::Schemas;
use argosy_object::{meta, yaml};

use crate::server;

#[test]
fn cases() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut folders: Vec<_> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.sort();
    let mut failures = Vec::new();
    for folder in &folders {
        if let Err(failure) = check(folder) {
            failures.push(format!(
                "{}:\n{failure}",
                folder.file_name().unwrap().to_string_lossy()
            ));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} cases differ\n{}",
        failures.len(),
        folders.len(),
        failures.join("\n")
    );
    assert!(folders.len() > 100);
}

fn check(folder: &Path) -> Result<(), String> {
    let desired = read(folder, "desired.yaml")?.unwrap();
    let mut live = read(folder, "live.yaml")?.unwrap();
    let last_applied = read(folder, "last_applied.yaml")?;
    if let Some(last_applied) = &last_applied {
        meta::set_annotation(&mut live, LAST_APPLIED, last_applied.to_string());
    }
    let schemas = match read(folder, "crd.yaml")? {
        Some(crd) => Schemas::builtin().with_crds([&crd]),
        None => Schemas::builtin(),
    };
    let written = read(folder, "options.yaml")?.unwrap_or_default();
    let (options, rules) = options(&written);
    let ctx = Context {
        schemas: &schemas,
        rules: &rules,
        options: &options,
    };

    let comparison = compare(Some(&desired), Some(&live), &ctx);
    let answer = match comparison.differences.as_slice() {
        [] => "same".to_owned(),
        differences => differences.iter().map(line).collect::<Vec<_>>().join("\n"),
    };
    let file = folder.join("expected.txt");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(&file, format!("{answer}\n")).unwrap();
    }
    let expected = fs::read_to_string(&file).unwrap();
    if expected.trim_end() != answer {
        return Err(format!("  expected\n{}\n  is\n{answer}", expected.trim_end()));
    }
    if comparison.modified == (answer == "same")
        || comparison.modified == (comparison.normalized_live == *comparison.predicted_live())
    {
        return Err("  verdict, differences and documents contradict each other".to_owned());
    }
    if written.is_null() {
        check_patch(&desired, &live, last_applied.as_ref(), answer == "same", &schemas)?;
    }
    Ok(())
}

fn check_patch(
    desired: &Value,
    live: &Value,
    last_applied: Option<&Value>,
    same: bool,
    schemas: &Arc<Schemas>,
) -> Result<(), String> {
    let (rules, options) = (IgnoreRules::none(), Options::default());
    let ctx = Context {
        schemas,
        rules: &rules,
        options: &options,
    };
    let sent = patch::three_way(last_applied, desired, live, schemas);
    if same && !sent.is_empty() {
        return Err(format!(
            "  nothing differs, but this would be sent: {}",
            sent.content
        ));
    }
    let mut applied = server::apply(live, &sent, schemas);
    meta::set_annotation(&mut applied, LAST_APPLIED, desired.to_string());
    let after = compare(Some(desired), Some(&applied), &ctx);
    if after.modified {
        let left = after.differences.iter().map(line).collect::<Vec<_>>().join("\n");
        return Err(format!("  after sending {} this is left:\n{left}", sent.content));
    }
    Ok(())
}

fn read(folder: &Path, name: &str) -> Result<Option<Value>, String> {
    let Ok(text) = fs::read_to_string(folder.join(name)) else {
        return Ok(None);
    };
    yaml::parse(&text, &yaml::Limits::default())
        .map(Some)
        .map_err(|error| format!("  {name}: {error}"))
}

fn line(difference: &Difference) -> String {
    let shown = |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), Value::to_string);
    format!(
        "{}: {} -> {} ({})",
        difference.path,
        shown(&difference.live),
        shown(&difference.desired),
        difference.why
    )
}

fn options(written: &Value) -> (Options, IgnoreRules) {
    let flag = |name: &str| written.get(name).and_then(Value::as_bool).unwrap_or_default();
    let text = |value: &Value, name: &str| {
        value
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let texts = |value: &Value, name: &str| -> Vec<String> {
        let items = value.get(name).and_then(Value::as_array).into_iter().flatten();
        items.map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    let list = |name: &str| {
        written
            .get(name)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let options = Options {
        server_side_apply: flag("serverSideApply"),
        strict: flag("strict"),
        migrate_from: match written.get("migrate") {
            Some(Value::Bool(false)) => None,
            _ => Options::default().migrate_from,
        },
        ignore_aggregated_roles: flag("ignoreAggregatedRoles"),
        ignore_status: match text(written, "ignoreStatus").as_str() {
            "none" => IgnoreStatus::None,
            "crd" => IgnoreStatus::Crd,
            _ => IgnoreStatus::All,
        },
        known_types: list("knownTypes")
            .iter()
            .map(|known| KnownType {
                group: text(known, "group"),
                kind: text(known, "kind"),
                field: text(known, "field"),
                known: match text(known, "type").as_str() {
                    "core/Quantity" => KnownTypeKind::Quantity,
                    "core/v1/PodSpec" => KnownTypeKind::Core,
                    _ => KnownTypeKind::Duration,
                },
            })
            .collect(),
        ..Options::default()
    };
    let rules = list("rules");
    let (rules, findings) = IgnoreRules::new(rules.iter().map(|rule| IgnoreRule {
        group: text(rule, "group"),
        kind: text(rule, "kind"),
        name: text(rule, "name"),
        namespace: text(rule, "namespace"),
        json_pointers: texts(rule, "jsonPointers"),
        jq_path_expressions: texts(rule, "jqPathExpressions"),
        managed_fields_managers: texts(rule, "managedFieldsManagers"),
    }));
    assert_eq!(findings, []);
    (options, rules)
}
