//! Cases: `tests/cases/<name>/live.yaml` and what is to be said of it in `expected.txt`: `Status`, `Status: message`, or `none`. With a
//! `health.lua` beside it the script answers for the kind of the object; `neighbours.yaml` holds other objects of the cluster.
//!
//! `UPDATE_EXPECTED=1 cargo test` writes the answers as they are; read them before you keep them.
#![allow(clippy::unwrap_used, missing_docs)]

mod actions;
mod oracle;

use std::fs;
use std::path::Path;

use argosy_health::{Customizations, Neighbours, Value, assess_among};
use argosy_object::{meta, yaml};

#[test]
fn cases() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut failures = Vec::new();
    let mut count = 0;
    let mut folders: Vec<_> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.sort();
    for folder in folders {
        count += 1;
        if let Err(failure) = check(&folder) {
            failures.push(format!(
                "{}: {failure}",
                folder.file_name().unwrap().to_string_lossy()
            ));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {count} cases differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(count > 100);
}

/// The other objects of a case; the Pods are the workload's.
struct Around(Vec<Value>);

impl Neighbours for Around {
    fn storage_class(&self, name: &str) -> Option<Value> {
        let found = |object: &&Value| meta::kind(object) == "StorageClass" && meta::name(object) == name;
        self.0.iter().find(found).cloned()
    }

    fn pods(&self, _: &Value) -> Vec<Value> {
        let is_pod = |object: &&Value| meta::kind(object) == "Pod";
        self.0.iter().filter(is_pod).cloned().collect()
    }
}

fn check(folder: &Path) -> Result<(), String> {
    let text = fs::read_to_string(folder.join("live.yaml")).map_err(|error| error.to_string())?;
    let live = yaml::parse(&text, &yaml::Limits::default()).map_err(|error| error.message)?;
    let mut customizations = Customizations::none();
    if let Ok(script) = fs::read_to_string(folder.join("health.lua")) {
        let gvk = meta::gvk(&live);
        let pattern = if gvk.group.is_empty() {
            gvk.kind
        } else {
            format!("{}/{}", gvk.group, gvk.kind)
        };
        customizations.insert(&pattern, &script, true).unwrap();
    }
    let neighbours = match fs::read_to_string(folder.join("neighbours.yaml")) {
        Ok(text) => {
            yaml::parse_all(text.as_bytes(), &yaml::Limits::default()).map_err(|error| error.message)?
        }
        Err(_) => Vec::new(),
    };
    let neighbours = neighbours.into_iter().map(|found| found.value).collect();
    let answer = assess_among(&live, &customizations, &Around(neighbours))
        .map_or("none".to_owned(), |health| health.to_string());

    let file = folder.join("expected.txt");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(&file, format!("{answer}\n")).map_err(|error| error.to_string())?;
    }
    let expected = fs::read_to_string(&file).map_err(|error| error.to_string())?;
    if expected.trim_end() == answer {
        Ok(())
    } else {
        Err(format!("expected {:?}, is {answer:?}", expected.trim_end()))
    }
}
