//! Helm charts: everything Helm would look for is found here, then the worker templates.

use super::{Notes, Output, Reads, objects, read_paths, worker_error};
use crate::access;
use crate::chart::Charts;
use crate::egress::NamedBy;
use crate::env::BuildEnv;
use crate::error::{Error, Result};
use crate::http;
use crate::materialise::{Directory, write_file};
use crate::path::TreePath;
use crate::tree::{Node, Tree};
use crate::worker::wire::{self, Call, ErrorKind, HelmTemplate, Outcome, ParameterKind};
use crate::worker::{Caller, Workers};
use argosy_api::v1alpha1::{ApplicationSourceHelm, RepoCreds, Repository};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest value file.
const MAX_VALUES: u64 = 32 << 20;
/// Rounds of fetching dependencies: each may reveal others.
const MAX_ROUNDS: usize = 8;
const TOOL: &str = "helm template";

/// Where a value file is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// In the source's own tree, or in that of the source `$name`.
    Tree { of: Option<String>, path: TreePath },
    /// Behind HTTP; `named_by` says who wrote the URL.
    Url { url: String, named_by: NamedBy },
}

impl Place {
    /// Whether it stands for all files that match it.
    fn is_pattern(&self) -> bool {
        matches!(self, Place::Tree { path, .. } if path.as_str().contains(['*', '?', '[']))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tree { of: None, path } => path.fmt(f),
            Place::Tree { of: Some(name), path } => write!(f, "{name}/{path}"),
            Place::Url { url, .. } => f.write_str(&crate::git::url::display(url)),
        }
    }
}

/// The source's files and where they lie on disk.
pub struct Location<'a> {
    /// All files of the repository (or of the unpacked chart).
    pub tree: &'a Tree,
    /// The chart.
    pub dir: &'a Node,
    /// A directory that holds the part of the tree below `base`.
    pub files: &'a Arc<Directory>,
    /// See `files`.
    pub base: &'a TreePath,
    /// What of that part is there, if it is not all of it.
    pub parts: &'a [TreePath],
}

impl Location<'_> {
    /// What a tool looked for in vain, or read as a whole, though the tree has it and it was not brought.
    pub(crate) fn lacked(&self, reads: &wire::ReadSet) -> Option<TreePath> {
        if self.parts.is_empty() {
            return None;
        }
        let brought = |path: &TreePath| self.parts.iter().any(|part| path.is_below(part));
        let paths = |list: &[String]| {
            let found = list.iter().filter_map(|path| {
                let relative = Path::new(path).strip_prefix(self.files.path()).ok()?;
                self.base.join(relative.to_str()?).ok()
            });
            found.filter(|path| !brought(path)).collect::<Vec<_>>()
        };
        let exists = |path: &TreePath| !matches!(self.tree.lookup(path), Ok(None));
        let absent = paths(&reads.absent).into_iter().find(exists);
        absent.or_else(|| paths(&reads.trees).into_iter().next())
    }

    /// Where a path of the tree lies on disk.
    pub fn on_disk(&self, path: &TreePath) -> Option<PathBuf> {
        path.relative_to(self.base)
            .map(|relative| self.files.path().join(relative))
    }
}

/// Everything a template run depends on besides the files.
pub struct Request<'a> {
    /// For whom it is.
    pub caller: Caller,
    /// The source's parameters.
    pub helm: &'a ApplicationSourceHelm,
    /// Those that the Application itself has; the others were added by files of the repository.
    pub own: Option<&'a ApplicationSourceHelm>,
    /// The source's repository.
    pub repo: &'a Repository,
    /// Name of the Application, without namespace.
    pub app: &'a str,
    /// Destination namespace.
    pub namespace: &'a str,
    /// Version of the target.
    pub kube_version: &'a str,
    /// API versions of the target.
    pub api_versions: &'a [String],
    /// For substitution.
    pub env: &'a BuildEnv,
    /// Schemes that value files may be fetched by.
    pub schemes: &'a [String],
    /// Trees of `$ref` sources.
    pub refs: &'a BTreeMap<String, Tree>,
    /// Configured repositories, for dependencies.
    pub repos: &'a [Repository],
    /// Credential templates, for dependencies.
    pub repo_creds: &'a [RepoCreds],
    /// Repositories that the project permits; empty permits all.
    pub permitted: &'a [String],
    /// For error texts.
    pub project: &'a str,
    /// Private directory of this render.
    pub scratch: &'a Path,
    /// Largest output, in bytes.
    pub max_output: u64,
}

/// Renders a chart.
///
/// # Errors
/// [`Error::Render`] in Helm's words, and those of fetching.
pub async fn render(
    location: &Location<'_>,
    request: &Request<'_>,
    charts: &Charts,
    workers: &Workers,
) -> Result<Output> {
    let mut call = prepare(location, request, charts).await?;
    let mut reads = std::mem::take(&mut call.used);
    let commands = vec![command(request, &call.message, &call.values)];
    let mut held = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let reply = workers
            .call(&request.caller, TOOL, Call::HelmTemplate(call.message.clone()))
            .await?;
        let read = reply.reads.unwrap_or_default();
        match reply.outcome {
            Some(Outcome::Rendered(rendered)) => {
                reads
                    .paths
                    .extend(read_paths(&read, location.files.path(), location.base));
                reads.paths.push(location.dir.path.clone());
                reads.open.extend(rendered.open_inputs.iter().cloned());
                let mut notes = Notes::default();
                for warning in &rendered.warnings {
                    notes.warn(call.named(warning));
                }
                return Ok(Output {
                    objects: objects(TOOL, rendered)?,
                    reads,
                    commands,
                    notes,
                });
            }
            Some(Outcome::Error(error)) if error.kind == ErrorKind::Dependency as i32 => {
                let before = held.len();
                for dependency in &error.dependencies {
                    let chart = fetch_dependency(dependency, request, charts).await?;
                    let path = chart.path.display().to_string();
                    // One chart may be there under several aliases.
                    if !call.message.dependency_charts.contains(&path) {
                        call.message.dependency_charts.push(path);
                        held.push(chart);
                    }
                }
                if held.len() == before {
                    return Err(worker_error(TOOL, error));
                }
                // What a version range means is decided by its repository, not by our inputs.
                reads.open.push("dependencies that were fetched".into());
            }
            Some(Outcome::Error(mut error)) => {
                error.message = call.named(&error.message);
                error.file = call.named(&error.file);
                return Err(worker_error(TOOL, error));
            }
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
        message: "its dependencies never come to an end".into(),
    })
}

struct Prepared {
    message: HelmTemplate,
    /// Value files as written.
    values: Vec<String>,
    /// Names of the files that were handed over as copies, and what they are copies of.
    copies: Vec<(String, String)>,
    /// What was looked at, found or not.
    used: Reads,
}

impl Prepared {
    /// A text of the worker, with the files under the names that their authors know.
    fn named(&self, text: &str) -> String {
        let copies = self.copies.iter();
        copies.fold(text.to_owned(), |text, (file, name)| text.replace(file, name))
    }
}

async fn prepare(location: &Location<'_>, request: &Request<'_>, charts: &Charts) -> Result<Prepared> {
    let helm = request.helm;
    if !matches!(helm.version.as_str(), "" | "v3") {
        return Err(Error::Source(format!(
            "invalid helm version {:?}: only v3 is supported",
            helm.version
        )));
    }
    let Some(chart_dir) = location.on_disk(&location.dir.path) else {
        return Err(Error::io(
            "failed to find the chart on disk",
            location.dir.path.to_string(),
        ));
    };
    let mut used = Reads::default();
    let mut copies = Vec::new();
    let own = request.own.cloned().unwrap_or_default();
    let files = value_files(location, request, charts, &own, &mut used, &mut copies).await?;
    let (values_files, values): (Vec<String>, Vec<String>) = files.into_iter().unzip();
    let mut parameters = Vec::new();
    for parameter in &helm.parameters {
        parameters.push(wire::HelmParameter {
            name: parameter.name.clone(),
            value: request.env.substitute(&parameter.value),
            kind: if parameter.force_string {
                ParameterKind::SetString
            } else {
                ParameterKind::Set
            } as i32,
        });
    }
    for parameter in &helm.file_parameters {
        let own = own.file_parameters.iter().any(|own| own.path == parameter.path);
        let place = place(location, request, &parameter.path, own)?;
        let Some(path) = file(location, request, charts, &place, &mut used).await? else {
            return Err(missing(&place));
        };
        parameters.push(wire::HelmParameter {
            name: parameter.name.clone(),
            value: path.display().to_string(),
            kind: ParameterKind::SetFile as i32,
        });
        copies.push((file_name(&path), place.to_string()));
    }
    let or = |own: &str, other: &str| {
        if own.is_empty() {
            other.to_owned()
        } else {
            own.to_owned()
        }
    };
    let api_versions = if helm.api_versions.is_empty() {
        request.api_versions
    } else {
        &helm.api_versions
    };
    let message = HelmTemplate {
        chart_dir: chart_dir.display().to_string(),
        tree_root: location.files.path().display().to_string(),
        release_name: or(&helm.release_name, request.app),
        namespace: or(&helm.namespace, request.namespace),
        kube_version: or(&helm.kube_version, request.kube_version),
        api_versions_whole: helm.api_versions.is_empty() && is_whole(request.api_versions),
        api_versions: api_versions.to_vec(),
        values_files,
        values: values_text(helm)?,
        parameters,
        skip_crds: helm.skip_crds,
        skip_tests: helm.skip_tests,
        skip_schema_validation: helm.skip_schema_validation,
        dependency_charts: Vec::new(),
        max_output_bytes: request.max_output,
    };
    Ok(Prepared {
        message,
        values,
        copies,
        used,
    })
}

/// The value files in the order in which they count: where each is handed over, and how it is written.
async fn value_files(
    location: &Location<'_>,
    request: &Request<'_>,
    charts: &Charts,
    own: &ApplicationSourceHelm,
    used: &mut Reads,
    copies: &mut Vec<(String, String)>,
) -> Result<Vec<(String, String)>> {
    let helm = request.helm;
    let mut written = Vec::new();
    for text in &helm.value_files {
        let place = place(location, request, text, own.value_files.contains(text))?;
        written.push((text, place));
    }
    // A file that is named counts where it is named, not where a pattern finds it too; none counts twice.
    let named: HashSet<&Place> = written
        .iter()
        .map(|(_, place)| place)
        .filter(|place| !place.is_pattern())
        .collect();
    let (mut seen, mut files) = (HashSet::new(), Vec::new());
    for (text, place) in &written {
        let (matching, pattern) = (matching(location, request, place, used)?, place.is_pattern());
        if pattern && matching.is_empty() && !helm.ignore_missing_value_files {
            return Err(Error::Render {
                tool: TOOL,
                message: format!("values file glob {text:?} matched no files"),
            });
        }
        for place in matching {
            if pattern && named.contains(&place) || seen.contains(&place) {
                continue;
            }
            match file(location, request, charts, &place, used).await? {
                Some(path) => {
                    let shown = if pattern {
                        place.to_string()
                    } else {
                        (*text).clone()
                    };
                    files.push((path.display().to_string(), shown));
                    copies.push((file_name(&path), place.to_string()));
                    seen.insert(place);
                }
                None if helm.ignore_missing_value_files => {}
                None => return Err(missing(&place)),
            }
        }
    }
    Ok(files)
}

/// Whether these are all API versions of a cluster, and not some that a person adds to what Helm knows: every cluster serves these.
fn is_whole(api_versions: &[String]) -> bool {
    let serves = |version: &str| api_versions.iter().any(|served| served == version);
    serves("v1") && serves("apps/v1")
}

/// `valuesObject` takes the place of `values`.
fn values_text(helm: &ApplicationSourceHelm) -> Result<String> {
    match &helm.values_object {
        Some(object) => serde_json::to_string(object)
            .map_err(|e| Error::Source(format!("failed to read valuesObject: {e}"))),
        None => Ok(helm.values.clone()),
    }
}

/// Where the file is that a source names as `$ref/path`, URL, or path in its tree; `own`: the Application itself names it.
fn place(location: &Location<'_>, request: &Request<'_>, written: &str, own: bool) -> Result<Place> {
    let text = request.env.substitute(&escape_ref(written, request.refs));
    if let Some(rest) = text.strip_prefix('$') {
        let (name, path) = rest.split_once('/').unwrap_or((rest, ""));
        let name = format!("${name}");
        if !request.refs.contains_key(&name) {
            return Err(Error::Source(format!(
                "source referenced {name:?}, but no source has a 'ref' field defined"
            )));
        }
        let path = TreePath::root().join_rooted(path)?;
        return Ok(Place::Tree { of: Some(name), path });
    }
    if http::is_url(&text) {
        let named_by = if own { NamedBy::Operator } else { NamedBy::Content };
        return Ok(Place::Url { url: text, named_by });
    }
    let path = location.dir.path.join_rooted(&text).map_err(|_| {
        Error::path(
            &text,
            "error resolving helm value file: resolved to outside repository root",
        )
    })?;
    Ok(Place::Tree { of: None, path })
}

/// `$ref/…` must survive the substitution of `$NAME`.
fn escape_ref(text: &str, refs: &BTreeMap<String, Tree>) -> String {
    let name = text.split('/').next().unwrap_or_default();
    if refs.contains_key(name) {
        format!("${text}")
    } else {
        text.to_owned()
    }
}

fn missing(place: &Place) -> Error {
    Error::Render {
        tool: TOOL,
        message: format!("open {place}: no such file or directory"),
    }
}

/// One file, handed over as a copy: it may lie outside of what was materialised.
async fn file(
    location: &Location<'_>,
    request: &Request<'_>,
    charts: &Charts,
    place: &Place,
    used: &mut Reads,
) -> Result<Option<PathBuf>> {
    match place {
        Place::Tree { of, path } => {
            // That a file is absent is part of what the output depends on.
            let Some(tree) = tree_of(location, request, of.as_deref()) else {
                return Ok(None);
            };
            used.note(of.as_deref(), path);
            let Some(node) = tree.lookup(path)? else {
                return Ok(None);
            };
            write(request.scratch, &tree.read_node(&node, MAX_VALUES)?).map(Some)
        }
        Place::Url { url, named_by } => {
            let scheme = url.split("://").next().unwrap_or_default().to_ascii_lowercase();
            let allowed = if request.schemes.is_empty() {
                matches!(scheme.as_str(), "http" | "https")
            } else {
                request
                    .schemes
                    .iter()
                    .any(|one| one.eq_ignore_ascii_case(&scheme))
            };
            if !allowed || !matches!(scheme.as_str(), "http" | "https") {
                return Err(Error::Source(format!(
                    "error resolving helm value file: the URL scheme '{scheme}' is not allowed"
                )));
            }
            let owner = match named_by {
                NamedBy::Operator => url,
                NamedBy::Content => "",
            };
            let nobody = access::way(request.repo);
            let fetched = charts.http().get(url, owner, &nobody, false, MAX_VALUES).await?;
            used.open.push("a value file by URL".into());
            write(request.scratch, &fetched.body).map(Some)
        }
    }
}

fn tree_of<'a>(location: &Location<'a>, request: &Request<'a>, of: Option<&str>) -> Option<&'a Tree> {
    match of {
        None => Some(location.tree),
        Some(name) => request.refs.get(name),
    }
}

/// A place itself, or the places of all files that match it, in order.
fn matching(
    location: &Location<'_>,
    request: &Request<'_>,
    place: &Place,
    used: &mut Reads,
) -> Result<Vec<Place>> {
    let Place::Tree { of, path } = place else {
        return Ok(vec![place.clone()]);
    };
    if !place.is_pattern() {
        return Ok(vec![place.clone()]);
    }
    let Some(tree) = tree_of(location, request, of.as_deref()) else {
        return Ok(Vec::new());
    };
    let matcher = globset::GlobBuilder::new(path.as_str())
        .literal_separator(true)
        .build()
        .map_err(|e| {
            Error::Source(format!(
                "failed to parse the glob {:?}: {}",
                path.as_str(),
                e.kind()
            ))
        })?
        .compile_matcher();
    // Nothing above the first component with a wildcard needs to be looked at.
    let mut base = TreePath::root();
    for part in path.components() {
        if part.contains(['*', '?', '[', '{']) {
            break;
        }
        base = base.child(part);
    }
    used.note(of.as_deref(), &base);
    let Some(dir) = tree.lookup(&base)?.filter(|node| node.is_dir) else {
        return Ok(Vec::new());
    };
    // Under the names by which they are asked for: a link may be on the way.
    let name = |file: &Node| {
        let parts = file.path.relative_to(&dir.path)?.split('/');
        Some(parts.fold(base.clone(), |path, part| path.child(part)))
    };
    let files = tree.walk(&dir)?;
    let mut found: Vec<TreePath> = files
        .iter()
        .filter_map(name)
        .filter(|path| matcher.is_match(path.as_str()))
        .collect();
    sort(&mut found, path);
    Ok(found
        .into_iter()
        .map(|path| Place::Tree { of: of.clone(), path })
        .collect())
}

/// Puts what a pattern matches in the order in which Argo CD finds it: each directory that `**` stands for comes before those
/// below it.
fn sort(found: &mut [TreePath], pattern: &TreePath) {
    let parts: Vec<&str> = pattern.components().collect();
    let Some(at) = parts.iter().rposition(|part| *part == "**") else {
        return;
    };
    let behind = parts.len() - at - 1;
    found.sort_by_cached_key(|path| {
        let mut dir: Vec<String> = path.components().map(str::to_owned).collect();
        let rest = dir.split_off(dir.len().saturating_sub(behind));
        (dir, rest)
    });
}

/// The name of a copy, which says what is in it.
fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn write(scratch: &Path, data: &[u8]) -> Result<PathBuf> {
    let path = scratch.join(format!("{}.yaml", crate::chart::hex_sha256(data)));
    if !path.exists() {
        write_file(&path, data, 0o400).map_err(|e| Error::io("failed to write a value file", e))?;
    }
    Ok(path)
}

async fn fetch_dependency(
    dependency: &wire::Dependency,
    request: &Request<'_>,
    charts: &Charts,
) -> Result<crate::chart::Chart> {
    let location = dependency.repository.as_str();
    let named = location
        .strip_prefix('@')
        .or_else(|| location.strip_prefix("alias:"));
    let repo = match named {
        Some(name) => request
            .repos
            .iter()
            .find(|repo| repo.name == name)
            .cloned()
            .ok_or_else(|| {
                Error::Source(format!(
                    "no repository is configured under the name {name} of dependency {}",
                    dependency.name
                ))
            })?,
        None => access::find(location, request.repos, request.repo_creds),
    };
    if !permitted(&repo.repo, request.permitted) {
        return Err(Error::Source(format!(
            "helm repos {} are not permitted in project '{}'",
            crate::git::url::display(&repo.repo),
            request.project
        )));
    }
    let mut repo = repo;
    if repo.proxy.is_empty() {
        repo.proxy.clone_from(&request.repo.proxy);
        repo.no_proxy.clone_from(&request.repo.no_proxy);
    }
    let mut chart = access::chart(&repo, request.helm.pass_credentials)?;
    if !access::is_configured(&repo.repo, request.repos, request.repo_creds) {
        chart.named_by = NamedBy::Content;
    }
    let repo = chart;
    let version = charts
        .resolve(&repo, &dependency.name, &dependency.version, false)
        .await?;
    charts.fetch(&repo, &dependency.name, &version).await
}

/// Whether a project permits a repository; `!pattern` denies.
fn permitted(url: &str, patterns: &[String]) -> bool {
    let matches = |pattern: &str| {
        pattern == "*"
            || pattern.trim_end_matches('/') == url.trim_end_matches('/')
            || globset::GlobBuilder::new(pattern)
                .literal_separator(true)
                .build()
                .is_ok_and(|glob| glob.compile_matcher().is_match(url))
    };
    let denied = patterns
        .iter()
        .filter_map(|pattern| pattern.strip_prefix('!'))
        .any(matches);
    let allowed = patterns.is_empty()
        || patterns
            .iter()
            .filter(|pattern| !pattern.starts_with('!'))
            .any(|p| matches(p));
    allowed && !denied
}

/// The command that does the same by hand.
fn command(request: &Request<'_>, message: &HelmTemplate, values: &[String]) -> String {
    let mut parts = vec!["helm template .".to_owned()];
    let mut flag = |name: &str, value: &str| {
        if !value.is_empty() {
            parts.push(format!("{name} {value}"));
        }
    };
    flag("--name-template", &message.release_name);
    flag("--namespace", &message.namespace);
    flag("--kube-version", &message.kube_version);
    for parameter in &message.parameters {
        match ParameterKind::try_from(parameter.kind).unwrap_or(ParameterKind::Set) {
            ParameterKind::Set => flag("--set", &format!("{}={}", parameter.name, parameter.value)),
            ParameterKind::SetString => {
                flag("--set-string", &format!("{}={}", parameter.name, parameter.value))
            }
            ParameterKind::SetFile => {}
        }
    }
    for parameter in &request.helm.file_parameters {
        flag("--set-file", &format!("{}={}", parameter.name, parameter.path));
    }
    for written in values {
        flag("--values", written);
    }
    if !message.values.is_empty() {
        flag("--values", "<inline values>");
    }
    for version in &message.api_versions {
        flag("--api-versions", version);
    }
    if message.skip_tests {
        parts.push("--skip-tests".into());
    }
    if message.skip_schema_validation {
        parts.push("--skip-schema-validation".into());
    }
    parts.push(
        if message.skip_crds {
            "--skip-crds"
        } else {
            "--include-crds"
        }
        .into(),
    );
    parts.join(" ")
}

/// Details of a chart, for people and the UI.
///
/// # Errors
/// [`Error::Render`] when the chart cannot be read.
pub async fn inspect(
    location: &Location<'_>,
    values_files: &[String],
    workers: &Workers,
) -> Result<wire::HelmDetails> {
    let Some(chart_dir) = location.on_disk(&location.dir.path) else {
        return Err(Error::io(
            "failed to find the chart on disk",
            location.dir.path.to_string(),
        ));
    };
    let selected = values_files
        .iter()
        .filter_map(|file| location.on_disk(&location.dir.path.join_rooted(file).ok()?))
        .map(|path| path.display().to_string())
        .collect();
    let call = Call::HelmInspect(wire::HelmInspect {
        chart_dir: chart_dir.display().to_string(),
        tree_root: location.files.path().display().to_string(),
        values_files: selected,
    });
    match workers.call(&Caller::default(), "helm show", call).await?.outcome {
        Some(Outcome::HelmDetails(details)) => Ok(details),
        Some(Outcome::Error(error)) => Err(worker_error("helm show", error)),
        _ => Err(Error::Worker {
            what: "helm show".into(),
            message: "it gave an answer of another kind".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_permits_by_glob_and_denies_by_mark() {
        let list = |patterns: &[&str]| patterns.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>();
        assert!(permitted("https://example.com/charts", &[]));
        assert!(permitted("https://example.com/charts", &list(&["*"])));
        assert!(permitted(
            "https://example.com/charts",
            &list(&["https://example.com/*"])
        ));
        assert!(!permitted(
            "https://example.com/a/b",
            &list(&["https://example.com/*"])
        ));
        assert!(!permitted(
            "https://example.com/x",
            &list(&["*", "!https://example.com/*"])
        ));
    }
}
