//! `monorepo`: the commits of a repository, oldest first, with every leaf kustomization and every chart as an Application.
//!
//! Held against: the *exact closure*, computed here from the files alone (which files does a leaf name, which files did the
//! commit touch), and clean renders of sampled commits. An Application whose closure a commit touches must be rendered,
//! and no other should be. Without `--repo` a repository is made ([`crate::made`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use argosy_api::v1alpha1::{ApplicationSource, KustomizeOptions, Repository};
use argosy_repo_server::local;
use argosy_repo_server::metrics::Metrics;
use argosy_repo_server::render::{Renderer, Request};
use serde_json::{Value, json};

use super::Context;
use crate::{made, usage};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A repository, bare or not; without one, one is made.
    #[arg(long)]
    repo: Option<PathBuf>,
    /// Leaves of the repository that is made.
    #[arg(long, default_value_t = 641)]
    leaves: usize,
    /// How many of its last commits (of the first parents) are replayed.
    #[arg(long, default_value_t = 200)]
    commits: usize,
    /// One JSON line a commit and path goes here: `{"commit","path","rendered","closure"}`.
    #[arg(long)]
    log: Option<PathBuf>,
    /// Every so many commits, all leaves are rendered afresh and compared.
    #[arg(long, default_value_t = 20)]
    sample: usize,
    /// The render worker.
    #[arg(long, env = "ARGOSY_RENDER_WORKER")]
    render_worker: Option<PathBuf>,
    /// The program that fences renders in.
    #[arg(long, env = "ARGOSY_RENDER_CHILD")]
    render_child: Option<PathBuf>,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let repo = match &args.repo {
        Some(repo) => repo.canonicalize()?,
        None => made::repository(&dir.path().join("made"), args.leaves, args.commits)?,
    };
    let mut settings = local::defaults();
    settings.render_worker.clone_from(&args.render_worker);
    settings.render_child.clone_from(&args.render_child);
    settings.allow_inner_hosts = vec!["file://".into()];
    let renderer = argosy_repo_server::renderer(&settings, &dir.path().join("cache"), Metrics::default())?;
    let mut log = args.log.as_ref().map(std::fs::File::create).transpose()?;

    let text = git(&repo, &["rev-list", "--first-parent", "--reverse", &format!("-n{}", args.commits + 1), "HEAD"])?;
    let commits: Vec<&str> = text.lines().collect();
    ensure!(commits.len() > 1, "{} has no history to replay", repo.display());
    context.report.progress(&format!("{} commits of {}", commits.len() - 1, repo.display()));

    let (mut count, started) = (Count::default(), usage::read(std::process::id())?);
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut texts = Texts::new();
    for (nth, commit) in commits.iter().enumerate() {
        let files = Files::read(&repo, commit, &mut texts)?;
        let touched: BTreeSet<String> = match nth.checked_sub(1) {
            Some(before) => git(&repo, &["diff-tree", "-r", "--name-only", "--no-renames", commits[before], commit])?
                .lines()
                .map(str::to_owned)
                .collect(),
            None => BTreeSet::new(),
        };
        let mut now = BTreeMap::new();
        for leaf in files.leaves() {
            let closure = files.closure(&leaf);
            // What was named before the commit counts too: it may be gone now.
            let before = known.get(&leaf);
            let must = before.is_none_or(|before| touched.iter().any(|path| covers(before, path) || covers(&closure, path)));
            let ran = match renderer.manifests(&request(&repo, commit, &leaf, false)).await {
                Ok(manifests) => manifests.ran,
                // A failure is remembered for the very commit; it is not a render that could have been saved.
                Err(_) => {
                    count.failed += 1;
                    now.insert(leaf, closure);
                    continue;
                }
            };
            if let Some(log) = &mut log {
                writeln!(log, "{}", json!({"commit": commit, "path": leaf, "rendered": ran, "closure": must}))?;
            }
            // The first commit fills the cache.
            if nth > 0 {
                count.asked += 1;
                count.rendered += usize::from(ran);
                count.closure += usize::from(must);
                count.missed += usize::from(must && !ran);
            }
            now.insert(leaf, closure);
        }
        known = now;
        if nth > 0 && nth % args.sample.max(1) == 0 {
            stale(&renderer, &repo, commit, known.keys(), &mut count).await?;
        }
    }
    let used = usage::read(std::process::id())?.cpu_seconds - started.cpu_seconds;
    let over = count.rendered as f64 / count.closure.max(1) as f64;
    for (metric, value, unit) in [
        ("renders_over_closure", over, "ratio"),
        ("stale", count.stale as f64, "renders"),
        ("renders", count.rendered as f64, "renders"),
        ("closure", count.closure as f64, "renders"),
        ("closure_found_otherwise", count.missed as f64, "renders"),
        ("requests", count.asked as f64, "requests"),
        ("failed_requests", count.failed as f64, "requests"),
        ("sampled", count.sampled as f64, "clean renders"),
        ("cpu_seconds", used, "s, without the render workers"),
    ] {
        context.report.figure("monorepo", metric, value, unit);
    }
    ensure!(count.stale == 0, "{} answers were stale", count.stale);
    Ok(())
}

#[derive(Default)]
struct Count {
    asked: usize,
    rendered: usize,
    closure: usize,
    /// The closure was touched and nothing was rendered: an earlier state of the files came back, or what was touched is
    /// named but not read. Whether that was right, the samples tell.
    missed: usize,
    failed: usize,
    sampled: usize,
    stale: usize,
}

/// Compares what the cache says with clean renders.
async fn stale(
    renderer: &Renderer,
    repo: &Path,
    commit: &str,
    leaves: impl Iterator<Item = &String>,
    count: &mut Count,
) -> Result<()> {
    for leaf in leaves {
        let Ok(cached) = renderer.manifests(&request(repo, commit, leaf, false)).await else {
            continue;
        };
        let clean = renderer.manifests(&request(repo, commit, leaf, true)).await?;
        count.sampled += 1;
        count.stale += usize::from(cached.rendered.manifests != clean.rendered.manifests);
    }
    Ok(())
}

fn request(repo: &Path, commit: &str, path: &str, no_cache: bool) -> Request {
    let url = format!("file://{}", repo.display());
    Request {
        repo: Repository {
            repo: url.clone(),
            ..Repository::default()
        },
        revision: commit.to_owned(),
        no_cache,
        app_name: "leaf".into(),
        namespace: "leaf".into(),
        project: "default".into(),
        kube_version: "1.34.0".into(),
        kustomize_options: KustomizeOptions {
            build_options: "--load-restrictor LoadRestrictionsNone".into(),
            ..KustomizeOptions::default()
        },
        source: ApplicationSource {
            repo_url: url,
            path: path.to_owned(),
            ..ApplicationSource::default()
        },
        ..Request::default()
    }
}

/// All paths of a commit, and its kustomizations.
struct Files {
    paths: BTreeSet<String>,
    directories: BTreeSet<String>,
    kustomizations: BTreeMap<String, Vec<String>>,
    charts: BTreeSet<String>,
}

impl Files {
    fn read(repo: &Path, commit: &str, texts: &mut Texts) -> Result<Files> {
        let text = git(repo, &["-c", "core.quotePath=false", "ls-tree", "-r", commit])?;
        // MODE TYPE ID<tab>PATH
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        let ids: BTreeMap<&str, &str> =
            lines.filter_map(|(entry, path)| Some((path, entry.rsplit(' ').next()?))).collect();
        let paths: BTreeSet<String> = ids.keys().map(|path| (*path).to_owned()).collect();
        let mut directories = BTreeSet::from([String::new()]);
        for path in &paths {
            let mut dir = parent(path);
            while directories.insert(dir.to_owned()) && !dir.is_empty() {
                dir = parent(dir);
            }
        }
        let mut files = Files {
            directories,
            kustomizations: BTreeMap::new(),
            charts: BTreeSet::new(),
            paths,
        };
        for path in files.paths.clone() {
            let name = path.rsplit('/').next().unwrap_or_default();
            let dir = parent(&path).to_owned();
            if name == "Chart.yaml" {
                files.charts.insert(dir);
            } else if ["kustomization.yaml", "kustomization.yml", "Kustomization"].contains(&name) {
                let id = ids.get(path.as_str()).copied().unwrap_or_default();
                if !texts.contains_key(id) {
                    texts.insert(id.to_owned(), texts_of(&git(repo, &["cat-file", "blob", id])?));
                }
                let named = files.named(&dir, &texts[id]);
                files.kustomizations.insert(dir, named);
            }
        }
        Ok(files)
    }

    /// The files and directories that a kustomization names with its texts.
    fn named(&self, dir: &str, texts: &[String]) -> Vec<String> {
        let candidates = texts
            .iter()
            .flat_map(|text| [text.as_str(), text.split_once('=').map_or(text.as_str(), |(_, file)| file)]);
        candidates
            .filter_map(|text| join(dir, text))
            .filter(|path| self.paths.contains(path) || self.directories.contains(path) && path != dir)
            .collect()
    }

    /// Charts that are no part of another one, and kustomizations that no other one refers to.
    fn leaves(&self) -> Vec<String> {
        let referred: BTreeSet<&String> = self.kustomizations.values().flatten().collect();
        let kustomizations =
            self.kustomizations.keys().filter(|dir| !referred.contains(dir) && !self.charts.contains(*dir));
        let holds = |other: &String, dir: &String| other != dir && dir.starts_with(&format!("{other}/"));
        let charts = self.charts.iter().filter(|dir| !self.charts.iter().any(|other| holds(other, dir)));
        kustomizations.chain(charts).cloned().collect()
    }

    /// Files, and directories with a slash at the end, that a leaf is made from.
    fn closure(&self, leaf: &str) -> BTreeSet<String> {
        // A chart beside a kustomization: Argo CD takes the folder for a chart.
        if self.charts.contains(leaf) {
            return BTreeSet::from([format!("{leaf}/")]);
        }
        let mut found = BTreeSet::new();
        let mut pending = vec![leaf.to_owned()];
        let mut seen = BTreeSet::new();
        while let Some(dir) = pending.pop() {
            if !seen.insert(dir.clone()) {
                continue;
            }
            for name in ["kustomization.yaml", "kustomization.yml", "Kustomization"] {
                found.insert(join(&dir, name).unwrap_or_default());
            }
            for named in self.kustomizations.get(&dir).into_iter().flatten() {
                if self.paths.contains(named) {
                    found.insert(named.clone());
                } else {
                    pending.push(named.clone());
                }
            }
        }
        for name in [".argocd-source.yaml", ".argocd-source-leaf.yaml"] {
            found.insert(join(leaf, name).unwrap_or_default());
        }
        found
    }
}

/// The texts of kustomizations, by the ids of their files: few change from commit to commit.
type Texts = HashMap<String, Vec<String>>;

fn texts_of(kustomization: &str) -> Vec<String> {
    let mut texts = Vec::new();
    if let Ok(document) = argosy_object::yaml::parse(kustomization, &argosy_object::yaml::Limits::default()) {
        strings(&document, &mut texts);
    }
    texts
}

fn covers(closure: &BTreeSet<String>, path: &str) -> bool {
    closure.contains(path)
        || closure
            .iter()
            .any(|one| one.ends_with('/') && (one == "/" || path.starts_with(one.as_str())))
}

fn strings(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) if text.len() < 1024 && !text.contains('\n') && !text.contains("://") => out.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| strings(item, out)),
        Value::Object(map) => map.values().for_each(|item| strings(item, out)),
        _ => {}
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// A path relative to a directory, inside the repository.
fn join(dir: &str, text: &str) -> Option<String> {
    if text.is_empty() || text.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

pub(super) fn git(repo: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(repo)
        .args(["-c", "safe.directory=*", "-c", "user.name=perf", "-c", "user.email=perf@example.com"])
        .args(arguments)
        .output()
        .context("run git")?;
    ensure!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
