//! `cargo xtask tidy`: the layering and habits that the compiler does not check.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;

/// What must not become reachable from a crate that decides: I/O comes in by its arguments.
const IMPURE: [&str; 4] = ["tokio", "kube", "tonic", "reqwest"];

/// Checks everything and reports all findings at once.
///
/// # Errors
/// Lists the findings.
pub(crate) fn run() -> Result<()> {
    let root = shell::root();
    let metadata = shell::output(&mut shell::cargo([
        "metadata",
        "--format-version",
        "1",
        "--locked",
    ]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("read cargo metadata")?;
    let mut findings = Vec::new();
    check_purity(&metadata, &mut findings);
    check_lints_inherited(&metadata, &mut findings)?;
    check_map(&root, &mut findings)?;
    if findings.is_empty() {
        return Ok(());
    }
    bail!(
        "tidy found:\n{}",
        findings
            .iter()
            .map(|finding| format!("  - {finding}"))
            .collect::<Vec<_>>()
            .join("\n")
    )
}

/// No crate under engine/ reaches the network or a runtime, nor does rbac/. The latter may know the nouns of argosy-api, whose
/// generated code names tonic's types.
fn check_purity(metadata: &Value, findings: &mut Vec<String>) {
    let edges = edges(metadata);
    for package in members(metadata) {
        let path = text(package, "manifest_path");
        if !path.contains("/engine/") && !path.contains("/rbac/") {
            continue;
        }
        if let Some(chain) = way_to_impure(text(package, "id"), &edges, path.contains("/rbac/")) {
            findings.push(format!(
                "{} reaches what decisions must not: {}",
                text(package, "name"),
                chain.join(" -> ")
            ));
        }
    }
}

/// The normal dependencies of each package, by package id.
fn edges(metadata: &Value) -> BTreeMap<&str, Vec<&str>> {
    let nodes = metadata["resolve"]["nodes"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    nodes
        .iter()
        .map(|node| {
            let deps = node["deps"].as_array().map_or(&[][..], Vec::as_slice);
            let normal = deps.iter().filter(|dep| {
                dep["dep_kinds"]
                    .as_array()
                    .is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
            });
            (text(node, "id"), normal.map(|dep| text(dep, "pkg")).collect())
        })
        .collect()
}

fn way_to_impure<'a>(
    start: &'a str,
    edges: &BTreeMap<&'a str, Vec<&'a str>>,
    may_know_api: bool,
) -> Option<Vec<String>> {
    let mut queue = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::from([start]);
    while let Some(chain) = queue.pop_front() {
        let last = chain.last().copied().unwrap_or_default();
        if IMPURE.contains(&crate_name(last).as_str()) {
            return Some(chain.iter().map(|id| crate_name(id)).collect());
        }
        if may_know_api && crate_name(last) == "argosy-api" {
            continue;
        }
        for next in edges.get(last).into_iter().flatten() {
            if seen.insert(next) {
                let mut longer = chain.clone();
                longer.push(next);
                queue.push_back(longer);
            }
        }
    }
    None
}

/// `registry+…#tokio@1.54.0` → `tokio`; `path+file:///…/engine/diff#argosy-diff@0.1.0` → `argosy-diff`.
fn crate_name(id: &str) -> String {
    let (place, fragment) = id.rsplit_once('#').unwrap_or(("", id));
    match fragment.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => place.rsplit('/').next().unwrap_or(fragment).to_owned(),
    }
}

fn check_lints_inherited(metadata: &Value, findings: &mut Vec<String>) -> Result<()> {
    for package in members(metadata) {
        let manifest = text(package, "manifest_path");
        let content = fs::read_to_string(manifest).with_context(|| format!("read {manifest}"))?;
        if !content.contains("[lints]\nworkspace = true") {
            findings.push(format!(
                "{} does not take its lints from the workspace",
                text(package, "name")
            ));
        }
    }
    Ok(())
}

/// Every path that the map of the code names exists.
fn check_map(root: &Path, findings: &mut Vec<String>) -> Result<()> {
    let map = fs::read_to_string(root.join("docs/ARCHITECTURE.md")).context("read docs/ARCHITECTURE.md")?;
    for word in map.split('`').skip(1).step_by(2) {
        let is_path = word.contains('/') && word.ends_with(".rs") && !word.contains(['*', ' ', '{', '<']);
        if is_path && !root.join(word).exists() {
            findings.push(format!("docs/ARCHITECTURE.md names {word}, which does not exist"));
        }
    }
    Ok(())
}

fn members(metadata: &Value) -> impl Iterator<Item = &Value> {
    let members: BTreeSet<&str> = metadata["workspace_members"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    packages
        .iter()
        .filter(move |package| members.contains(text(package, "id")))
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}
