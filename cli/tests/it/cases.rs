//! The cases of the engine's tests, through the offline commands: files in, the same answers out.

use std::fs;
use std::path::{Path, PathBuf};

use argosy_object::{Value, meta, yaml};
use serde_json::json;

use crate::Desk;

/// The folders of cases of a crate, each with its name.
fn folders(of: &str) -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../engine")
        .join(of)
        .join("tests/cases");
    let mut folders: Vec<_> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path))
        .collect();
    folders.sort();
    folders
}

fn text(folder: &Path, name: &str) -> Option<String> {
    fs::read_to_string(folder.join(name)).ok()
}

fn value(folder: &Path, name: &str) -> Option<Value> {
    text(folder, name).map(|text| yaml::parse(&text, &yaml::Limits::default()).unwrap())
}

/// Documents of JSON, which are documents of YAML.
fn documents<'a>(objects: impl IntoIterator<Item = &'a Value>) -> String {
    let texts: Vec<String> = objects.into_iter().map(Value::to_string).collect();
    texts.join("\n---\n")
}

/// One object under two API groups: that they are the same is known to a cluster's discovery, and to no file.
const OF_DISCOVERY: &str = "live-in-another-api-version";

/// Settings that live in `argocd-cm`, which the command does not read.
const SYSTEM_SETTINGS: [&str; 4] = ["ignoreAggregatedRoles", "ignoreStatus", "knownTypes", "migrate"];

#[test]
fn diff_names_the_expected_places() {
    let (mut asked, mut failures) = (0, Vec::new());
    for (name, folder) in folders("diff") {
        let options = value(&folder, "options.yaml").unwrap_or_default();
        if name == OF_DISCOVERY
            || SYSTEM_SETTINGS
                .iter()
                .any(|setting| options.get(setting).is_some())
        {
            continue;
        }
        asked += 1;
        let shown = shown_differences(&folder, &options);
        let expected = text(&folder, "expected.txt").unwrap();
        if shown != expected.trim_end() {
            failures.push(format!("{name}: expected\n{expected}is\n{shown}"));
        }
    }
    println!("argosy diff: {} of {asked} folders", asked - failures.len());
    assert!(asked > 100);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// What `argosy diff` says of a case, in the lines of `expected.txt`.
fn shown_differences(folder: &Path, options: &Value) -> String {
    let desired = value(folder, "desired.yaml").unwrap();
    let mut live = value(folder, "live.yaml").unwrap();
    if let Some(applied) = value(folder, "last_applied.yaml") {
        let annotation = "kubectl.kubernetes.io/last-applied-configuration";
        meta::set_annotation(&mut live, annotation, applied.to_string());
    }
    // A definition among the objects is a schema; it is the same on both sides, so that it is no difference.
    let definition = value(folder, "crd.yaml");
    let with_definition = |object: &Value| documents([object].into_iter().chain(&definition));
    let mut sync_options = Vec::new();
    if options["serverSideApply"] == true {
        sync_options.push("ServerSideApply=true");
    }
    if options["strict"] == true {
        sync_options.push("Strict=true");
    }
    let application = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "case"},
        "spec": {"syncPolicy": {"syncOptions": sync_options}, "ignoreDifferences": options.get("rules")},
    });
    let desk = Desk::with(&[
        ("desired.yaml", &with_definition(&desired)),
        ("live.yaml", &with_definition(&live)),
        ("app.yaml", &application.to_string()),
    ]);
    let answer = desk.json("diff --desired desired.yaml --live live.yaml --app app.yaml -o json");
    let differences = answer["differences"].as_array().unwrap();
    assert_eq!(answer["synced"], differences.is_empty());
    if differences.is_empty() {
        return "same".to_owned();
    }
    let side = |value: &Value| {
        if value.is_null() {
            "-".to_owned()
        } else {
            value.to_string()
        }
    };
    let line = |difference: &Value| {
        format!(
            "{}: {} -> {} ({})",
            difference["path"].as_str().unwrap(),
            side(&difference["live"]),
            side(&difference["desired"]),
            difference["why"].as_str().unwrap()
        )
    };
    differences.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn health_gives_the_expected_status() {
    let (mut asked, mut failures) = (0, Vec::new());
    for (name, folder) in folders("health") {
        asked += 1;
        let live = value(&folder, "live.yaml").unwrap();
        let mut files = vec![("live.yaml".to_owned(), text(&folder, "live.yaml").unwrap())];
        if let Some(neighbours) = text(&folder, "neighbours.yaml") {
            files[0].1 = format!("{}\n---\n{neighbours}", files[0].1);
        }
        let mut command = "health -f live.yaml -o json".to_owned();
        if let Some(script) = text(&folder, "health.lua") {
            let gvk = meta::gvk(&live);
            files.push((format!("scripts/{}/{}/health.lua", gvk.group, gvk.kind), script));
            command.push_str(" --customizations scripts");
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (&**name, &**text)).collect();
        let answer = Desk::with(&files).json(&command);
        let of_object = answer.get(0).unwrap_or(&answer);
        let (status, message) = (&of_object["status"], of_object["message"].as_str().unwrap());
        let shown = match status.as_str().unwrap() {
            "" => "none".to_owned(),
            status if message.is_empty() => status.to_owned(),
            status => format!("{status}: {message}"),
        };
        let expected = text(&folder, "expected.txt").unwrap();
        if shown != expected.trim_end() {
            failures.push(format!("{name}: expected {expected:?}, is {shown:?}"));
        }
    }
    println!("argosy health: {} of {asked} folders", asked - failures.len());
    assert!(asked > 150);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
