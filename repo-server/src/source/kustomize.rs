//! Kustomizations: the worker edits and builds; what is named by URL is fetched here.

use super::helm::Location;
use super::{Notes, Output, Reads, objects, read_paths, remote, worker_error};
use crate::env::BuildEnv;
use crate::error::{Error, Result};
use crate::path::TreePath;
use crate::tree::{Node, Tree};
use crate::worker::wire::{self, Call, ErrorKind, KustomizeBuild, Outcome};
use crate::worker::{Caller, Workers};
use argosy_api::meta::IntOrString;
use argosy_api::v1alpha1::{ApplicationSourceKustomize, KustomizeOptions};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

const TOOL: &str = "kustomize build";
/// Rounds of fetching remote bases: each may name others.
const MAX_ROUNDS: usize = 10;
/// Kustomizations looked at to find what a build needs.
const MAX_BASES: usize = 500;

/// Everything a build depends on besides the files.
pub struct Request<'a> {
    /// For whom it is.
    pub caller: Caller,
    /// The source's edits.
    pub kustomize: &'a ApplicationSourceKustomize,
    /// Options of the installation.
    pub options: &'a KustomizeOptions,
    /// Version of the target.
    pub kube_version: &'a str,
    /// API versions of the target.
    pub api_versions: &'a [String],
    /// For substitution.
    pub env: &'a BuildEnv,
    /// Fetches what is named by URL.
    pub remotes: &'a remote::Fetcher<'a>,
    /// Largest output, in bytes.
    pub max_output: u64,
}

/// Builds a kustomization.
///
/// # Errors
/// [`Error::Render`] in Kustomize's words, and those of fetching.
pub async fn render(location: &Location<'_>, request: &Request<'_>, workers: &Workers) -> Result<Output> {
    let mut message = message(location, request)?;
    let commands = commands(&message, request);
    let mut reads = Reads::default();
    let mut held = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let reply = workers
            .call(&request.caller, TOOL, Call::KustomizeBuild(message.clone()))
            .await?;
        let read = reply.reads.unwrap_or_default();
        match reply.outcome {
            Some(Outcome::Rendered(rendered)) => {
                if let Some(path) = location.lacked(&read) {
                    return Err(Error::Render {
                        tool: TOOL,
                        message: format!("{path} was looked for in vain"),
                    });
                }
                reads
                    .paths
                    .extend(read_paths(&read, location.files.path(), location.base));
                reads.open.extend(rendered.open_inputs.iter().cloned());
                return Ok(Output {
                    objects: objects(TOOL, rendered)?,
                    reads,
                    commands,
                    notes: Notes::default(),
                });
            }
            Some(Outcome::Error(error))
                if error.kind == ErrorKind::Remote as i32 && !error.remotes.is_empty() =>
            {
                for entry in &error.remotes {
                    if message.remotes.contains_key(entry) {
                        return Err(worker_error(TOOL, error));
                    }
                    let copy = request.remotes.fetch(entry).await?;
                    message
                        .remotes
                        .insert(entry.clone(), copy.path.display().to_string());
                    held.push(copy);
                }
                reads.open.push("what was named by URL".into());
            }
            Some(Outcome::Error(error)) => return Err(worker_error(TOOL, error)),
            _ => {
                return Err(Error::Worker {
                    what: TOOL.into(),
                    message: "it gave an answer of another kind".into(),
                });
            }
        }
    }
    Err(Error::Render {
        tool: TOOL,
        message: "its remote bases never come to an end".into(),
    })
}

/// Images of a kustomization, for people and the UI.
///
/// # Errors
/// As [`render`].
pub async fn images(
    location: &Location<'_>,
    request: &Request<'_>,
    workers: &Workers,
) -> Result<Vec<String>> {
    let mut message = message(location, request)?;
    let mut held = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let call = Call::KustomizeInspect(wire::KustomizeInspect {
            build: Some(message.clone()),
        });
        match workers.call(&request.caller, TOOL, call).await?.outcome {
            Some(Outcome::KustomizeDetails(details)) => return Ok(details.images),
            Some(Outcome::Error(error))
                if error.kind == ErrorKind::Remote as i32 && !error.remotes.is_empty() =>
            {
                for entry in &error.remotes {
                    let copy = request.remotes.fetch(entry).await?;
                    message
                        .remotes
                        .insert(entry.clone(), copy.path.display().to_string());
                    held.push(copy);
                }
            }
            Some(Outcome::Error(error)) => return Err(worker_error(TOOL, error)),
            _ => {
                return Err(Error::Worker {
                    what: TOOL.into(),
                    message: "it gave an answer of another kind".into(),
                });
            }
        }
    }
    Err(Error::Render {
        tool: TOOL,
        message: "its remote bases never come to an end".into(),
    })
}

fn message(location: &Location<'_>, request: &Request<'_>) -> Result<KustomizeBuild> {
    let kustomize = request.kustomize;
    let Some(path) = location.dir.path.relative_to(location.base) else {
        return Err(Error::io(
            "failed to find the kustomization on disk",
            location.dir.path.to_string(),
        ));
    };
    let replicas = kustomize
        .replicas
        .iter()
        .map(|replica| {
            let count = replicas(&replica.count).ok_or_else(|| {
                Error::Source(format!(
                    "expected integer value for the replicas of {:?}",
                    replica.name
                ))
            })?;
            Ok(wire::KustomizeReplica {
                name: replica.name.clone(),
                count,
            })
        })
        .collect::<Result<_>>()?;
    let annotation = |value: &String| {
        if kustomize.common_annotations_envsubst {
            request.env.substitute(value)
        } else {
            value.clone()
        }
    };
    let version = request
        .options
        .versions
        .iter()
        .find(|version| version.name == kustomize.version);
    let build_options = match version {
        Some(version) if !kustomize.version.is_empty() && !version.build_options.is_empty() => {
            &version.build_options
        }
        _ => &request.options.build_options,
    };
    let or = |own: &str, other: &str| {
        if own.is_empty() {
            other.to_owned()
        } else {
            own.to_owned()
        }
    };
    Ok(KustomizeBuild {
        root: location.files.path().display().to_string(),
        path: path.to_owned(),
        name_prefix: kustomize.name_prefix.clone(),
        name_suffix: kustomize.name_suffix.clone(),
        images: kustomize
            .images
            .iter()
            .map(|image| request.env.substitute(image))
            .collect(),
        replicas,
        common_labels: kustomize
            .common_labels
            .iter()
            .map(|(k, v)| (k.clone(), request.env.substitute(v)))
            .collect(),
        force_common_labels: kustomize.force_common_labels,
        label_without_selector: kustomize.label_without_selector,
        label_include_templates: kustomize.label_include_templates,
        common_annotations: kustomize
            .common_annotations
            .iter()
            .map(|(k, v)| (k.clone(), annotation(v)))
            .collect(),
        force_common_annotations: kustomize.force_common_annotations,
        namespace: kustomize.namespace.clone(),
        components: kustomize.components.clone(),
        ignore_missing_components: kustomize.ignore_missing_components,
        patches: kustomize.patches.iter().map(patch).collect(),
        kube_version: or(&kustomize.kube_version, request.kube_version),
        api_versions: if kustomize.api_versions.is_empty() {
            request.api_versions.to_vec()
        } else {
            kustomize.api_versions.clone()
        },
        build_options: build_options.split_whitespace().map(str::to_owned).collect(),
        remotes: BTreeMap::new(),
        max_output_bytes: request.max_output,
    })
}

fn replicas(count: &IntOrString) -> Option<i64> {
    match serde_json::to_value(count).ok()? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn patch(patch: &argosy_api::v1alpha1::KustomizePatch) -> wire::KustomizePatch {
    wire::KustomizePatch {
        path: patch.path.clone(),
        patch: patch.patch.clone(),
        target: patch.target.as_ref().map(|target| wire::KustomizeSelector {
            group: target.res_id.gvk.group.clone(),
            version: target.res_id.gvk.version.clone(),
            kind: target.res_id.gvk.kind.clone(),
            name: target.res_id.name.clone(),
            namespace: target.res_id.namespace.clone(),
            annotation_selector: target.annotation_selector.clone(),
            label_selector: target.label_selector.clone(),
        }),
        options: patch
            .options
            .iter()
            .map(|(key, value)| (key.clone(), *value))
            .collect(),
    }
}

/// The commands that do the same by hand.
fn commands(message: &KustomizeBuild, request: &Request<'_>) -> Vec<String> {
    let mut commands = Vec::new();
    let mut edit = |command: String| commands.push(format!("kustomize edit {command}"));
    if !message.name_prefix.is_empty() {
        edit(format!("set nameprefix -- {}", message.name_prefix));
    }
    if !message.name_suffix.is_empty() {
        edit(format!("set namesuffix -- {}", message.name_suffix));
    }
    if !message.images.is_empty() {
        edit(format!("set image {}", message.images.join(" ")));
    }
    if !message.replicas.is_empty() {
        let replicas: Vec<String> = message
            .replicas
            .iter()
            .map(|r| format!("{}={}", r.name, r.count))
            .collect();
        edit(format!("set replicas {}", replicas.join(" ")));
    }
    let pairs = |map: &BTreeMap<String, String>| {
        map.iter()
            .map(|(key, value)| format!("{key}:{value}"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    if !message.common_labels.is_empty() {
        edit(format!("add label {}", pairs(&message.common_labels)));
    }
    if !message.common_annotations.is_empty() {
        edit(format!("add annotation {}", pairs(&message.common_annotations)));
    }
    if !message.namespace.is_empty() {
        edit(format!("set namespace -- {}", message.namespace));
    }
    if !message.components.is_empty() {
        edit(format!("add component {}", message.components.join(" ")));
    }
    let options = &request.options.build_options;
    commands.push(format!(
        "kustomize build .{}{options}",
        if options.is_empty() { "" } else { " " }
    ));
    commands
}

/// The directories, with all below, and files that a kustomization names, as far as its own files tell: what must be materialised.
/// None lies below another. The root alone when in doubt.
pub fn closure(tree: &Tree, dir: &Node, kustomize: &ApplicationSourceKustomize) -> Vec<TreePath> {
    let Some(parts) = reached(tree, dir, kustomize) else {
        return vec![TreePath::root()];
    };
    let parts = disjoint(parts);
    // Links below may lead out of a part, but not out of what holds all of them.
    if parts.iter().all(|part| is_closed(tree, part)) {
        return parts;
    }
    let common = parts
        .iter()
        .fold(dir.path.clone(), |common, part| ancestor(&common, part));
    if is_closed(tree, &common) {
        return vec![common];
    }
    vec![TreePath::root()]
}

/// Whether no link below a directory leads out of it.
fn is_closed(tree: &Tree, path: &TreePath) -> bool {
    match tree.lookup(path) {
        Ok(Some(node)) => !node.is_dir || links_stay(tree, &node),
        _ => false,
    }
}

/// Without those that lie below another.
fn disjoint(mut parts: Vec<TreePath>) -> Vec<TreePath> {
    parts.sort_by_cached_key(|part| part.components().count());
    let mut kept: Vec<TreePath> = Vec::new();
    for part in parts {
        if !kept.iter().any(|above| part.is_below(above)) {
            kept.push(part);
        }
    }
    kept.sort();
    kept
}

/// What a kustomization and those that it names name; `None` where there is no saying.
fn reached(tree: &Tree, dir: &Node, kustomize: &ApplicationSourceKustomize) -> Option<Vec<TreePath>> {
    let mut pending = vec![dir.path.clone()];
    let mut files = Vec::new();
    // Components and patch files given by the source itself may lie anywhere.
    let given = kustomize
        .components
        .iter()
        .chain(kustomize.patches.iter().map(|patch| &patch.path));
    for text in given.filter(|text| !text.is_empty()) {
        let path = dir.path.join(text).ok()?;
        match tree.lookup(&path) {
            Ok(Some(found)) if found.path == path && found.is_dir => pending.push(path),
            Ok(Some(found)) if found.path == path => files.push(path),
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return None,
        }
    }
    let mut seen = HashSet::new();
    while let Some(path) = pending.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        if seen.len() > MAX_BASES {
            return None;
        }
        let node = tree.lookup(&path).ok().flatten()?;
        // A link on the way: what it leads to must be there as well.
        if node.path != path {
            return None;
        }
        let Some(document) = super::detect::KUSTOMIZATIONS
            .iter()
            .find_map(|name| read(tree, &path.child(name)))
        else {
            continue;
        };
        // Plugins have files that name further files.
        if ["generators", "transformers", "validators"]
            .iter()
            .any(|key| document.get(key).is_some())
        {
            return None;
        }
        let mut texts = Vec::new();
        strings(&document, &mut texts);
        for text in texts {
            let file = text.split_once('=').map_or(text, |(_, file)| file);
            for candidate in [text, file] {
                let Ok(named) = path.join(candidate) else { continue };
                match tree.lookup(&named) {
                    Ok(Some(found)) if found.path == named && found.is_dir => pending.push(named),
                    Ok(Some(found)) if found.path == named => files.push(named),
                    Ok(None) => {}
                    Ok(Some(_)) | Err(_) => return None,
                }
            }
        }
    }
    files.extend(seen);
    Some(files)
}

/// Whether no link below a directory leads out of it.
pub(crate) fn links_stay(tree: &Tree, dir: &Node) -> bool {
    use crate::tree::RawKind;
    let mut pending = vec![dir.clone()];
    while let Some(here) = pending.pop() {
        let Ok(entries) = tree.list(&here) else {
            return false;
        };
        for entry in entries.iter() {
            let path = here.path.child(&entry.name);
            match entry.kind {
                RawKind::Directory => pending.push(Node {
                    path,
                    is_dir: true,
                    executable: false,
                    id: entry.id.clone(),
                }),
                RawKind::Link => match tree.lookup(&path) {
                    Ok(Some(target)) if target.path.is_below(&dir.path) => {}
                    Ok(None) => {}
                    _ => return false,
                },
                _ => {}
            }
        }
    }
    true
}

fn read(tree: &Tree, path: &TreePath) -> Option<Value> {
    let text = tree.read(path, 4 << 20).ok()?;
    argosy_object::yaml::parse(std::str::from_utf8(&text).ok()?, &crate::manifest::limits()).ok()
}

fn strings<'a>(value: &'a Value, out: &mut Vec<&'a str>) {
    match value {
        // A path has no line break; an inline patch does.
        Value::String(text) if text.len() < 1024 && !text.contains('\n') && !text.contains("://") => {
            out.push(text)
        }
        Value::Array(items) => items.iter().for_each(|item| strings(item, out)),
        Value::Object(map) => map.values().for_each(|item| strings(item, out)),
        _ => {}
    }
}

fn ancestor(a: &TreePath, b: &TreePath) -> TreePath {
    let mut common = TreePath::root();
    for (left, right) in a.components().zip(b.components()) {
        if left != right {
            break;
        }
        common = common.child(left);
    }
    common
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_part_of_the_tree_that_a_build_names_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("apps/web/base/kustomization.yaml", "resources: [a.yaml]\n"),
            ("apps/web/base/a.yaml", ""),
            (
                "apps/web/overlays/prod/kustomization.yaml",
                "resources:\n- ../../base\n",
            ),
            (
                "apps/web/overlays/far/kustomization.yaml",
                "components:\n- ../../../../shared\nconfigMapGenerator:\n- files: [a=../../../../files/values.env]\n",
            ),
            (
                "shared/kustomization.yaml",
                "kind: Component\nresources: [../files/missing.yaml]\n",
            ),
            ("files/values.env", ""),
            ("files/other.env", ""),
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let tree = Tree::disk(dir.path()).unwrap();
        let none = ApplicationSourceKustomize::default();
        let of = |path: &str| {
            let node = tree.app_dir(&TreePath::parse(path).unwrap()).unwrap();
            let parts = closure(&tree, &node, &none);
            parts
                .iter()
                .map(|part| part.as_str().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(of("apps/web/base"), ["apps/web/base"]);
        assert_eq!(
            of("apps/web/overlays/prod"),
            ["apps/web/base", "apps/web/overlays/prod"]
        );
        assert_eq!(
            of("apps/web/overlays/far"),
            ["apps/web/overlays/far", "files/values.env", "shared"]
        );
        // A link that leads out of a part needs what holds both; one that leads further, everything.
        let link = |to: &str| {
            let path = dir.path().join("apps/web/base/link");
            let _ = std::fs::remove_file(&path);
            std::os::unix::fs::symlink(to, path).unwrap();
        };
        link("../overlays/prod/kustomization.yaml");
        assert_eq!(of("apps/web/overlays/prod"), ["apps/web"]);
        link("../../../shared/kustomization.yaml");
        assert_eq!(of("apps/web/overlays/prod"), [""]);
    }
}
