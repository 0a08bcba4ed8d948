//! Case folders: `cases/<name>/input.yaml` is a small world, `expected.txt` is the plan for it and the walk through it.
//!
//! The world answers as a cluster would: what is written exists, health follows the script of the case, a deletion takes
//! as long as the case says. `UPDATE_EXPECTED=1` writes the answers of the code; they are for reading, not for believing.
#![allow(clippy::unwrap_used)]

mod properties;
mod world;

use std::fs;
use std::path::{Path, PathBuf};

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut cases: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    cases
}

#[test]
fn every_case_walks_as_expected() {
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    let mut wrong = Vec::new();
    for case in cases() {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let walk = world::walk(&fs::read_to_string(case.join("input.yaml")).unwrap());
        let file = case.join("expected.txt");
        if update {
            fs::write(&file, &walk).unwrap();
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if walk != expected {
            wrong.push(format!("--- {name}\nexpected:\n{expected}\nfound:\n{walk}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A controller may be stopped after any step. What comes out must not depend on that, and no hook may be created twice.
#[test]
fn a_sync_that_is_interrupted_anywhere_ends_as_one_that_is_not() {
    for case in cases() {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let input = fs::read_to_string(case.join("input.yaml")).unwrap();
        let whole = world::run(&input, None);
        for stop in 0..whole.steps {
            let broken = world::run(&input, Some(stop));
            assert_eq!(broken.end, whole.end, "{name}, stopped after step {stop}");
            assert_eq!(
                broken.hooks_created, whole.hooks_created,
                "{name}, stopped after step {stop}"
            );
            assert_eq!(broken.objects, whole.objects, "{name}, stopped after step {stop}");
        }
    }
}
