//! `git-step`: the commits of a large repository, one after another, with all objects in the store: which of its Applications
//! does each touch, and the files of one Application read. CPU milliseconds a commit, in this process; then eight callers
//! at once, each with all commits, against one.
//!
//! A peer's command is run for each commit in a clone of the repository, with `COMMIT` in its environment: what a repo-server
//! that keeps a working tree does (`git cat-file`, `checkout`, `clean`, `rev-parse`, a look for links that lead out).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use argosy_api::v1alpha1::Repository;
use argosy_repo_server::metrics::Metrics;
use argosy_repo_server::path::TreePath;
use argosy_repo_server::render::Renderer;
use argosy_repo_server::tree::Tree;
use argosy_repo_server::{access, local};

use super::Context;
use super::monorepo::git;
use crate::report::Who;
use crate::{made, usage};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A repository, bare or not; without one, one of 4,500 files is made.
    #[arg(long)]
    repo: Option<PathBuf>,
    /// How many of its last commits.
    #[arg(long, default_value_t = 500)]
    commits: usize,
    /// Callers at once, in the second measurement.
    #[arg(long, default_value_t = 8)]
    callers: usize,
}

/// Leaves of the repository that is made.
const LEAVES: usize = 641;
/// Largest file that is read.
const MAX_FILE: u64 = 16 << 20;

pub(crate) async fn run(args: &Args, context: &Context) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("argosy-perf-").tempdir()?;
    let repo = match &args.repo {
        Some(repo) => repo.canonicalize()?,
        None => made::repository(&dir.path().join("made"), LEAVES, args.commits)?,
    };
    let text = git(&repo, &["rev-list", "--first-parent", "--reverse", &format!("-n{}", args.commits + 1), "HEAD"])?;
    let commits: Vec<String> = text.lines().map(str::to_owned).collect();
    ensure!(commits.len() > 1, "{} has no history", repo.display());
    let apps = Arc::new(applications(&repo)?);
    let files = git(&repo, &["ls-tree", "-r", "--name-only", "HEAD"])?.lines().count();
    context.report.progress(&format!("{} commits, {files} files, {} Applications", commits.len() - 1, apps.len()));

    let mut settings = local::defaults();
    settings.allow_inner_hosts = vec!["file://".into()];
    let renderer = argosy_repo_server::renderer(&settings, &dir.path().join("cache"), Metrics::default())?;
    let steps = Steps {
        renderer: Arc::new(renderer),
        repo: Repository {
            repo: format!("file://{}", repo.display()),
            ..Repository::default()
        },
        commits: Arc::new(commits.clone()),
        apps,
    };
    // The network's part: everything is in the store afterwards.
    for commit in &commits {
        steps.tree(commit).await?;
    }
    let (own, started) = (usage::read(std::process::id())?.cpu_seconds, Instant::now());
    let touched = steps.all().await?;
    let alone = started.elapsed();
    let used = usage::read(std::process::id())?.cpu_seconds - own;
    let count = (commits.len() - 1) as f64;
    let figure = |metric, value, unit| context.report.figure("git-step", metric, value, unit);
    figure("cpu_ms_per_commit", used * 1e3 / count, "ms CPU");
    figure("touched_per_commit", touched as f64 / count, "Applications");

    let (own, started) = (usage::read(std::process::id())?.cpu_seconds, Instant::now());
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..args.callers {
        let steps = steps.clone();
        callers.spawn(async move { steps.all().await });
    }
    while let Some(done) = callers.join_next().await {
        done??;
    }
    let together = started.elapsed();
    let used = usage::read(std::process::id())?.cpu_seconds - own;
    let speedup = alone.as_secs_f64() * args.callers as f64 / together.as_secs_f64();
    figure("concurrent_speedup", speedup, "times one caller's rate");
    figure("concurrent_cpu_ms_per_commit", used * 1e3 / count / args.callers as f64, "ms CPU");

    if let Some(command) = &context.peer {
        let clone = dir.path().join("clone");
        git(&repo, &["clone", "--quiet", "--no-hardlinks", ".", &clone.display().to_string()])?;
        let used = by_peer(command, &clone, &commits)?;
        context.report.of(Who::Peer, "git-step", "cpu_ms_per_commit", used * 1e3 / count, "ms CPU");
    }
    Ok(())
}

#[derive(Clone)]
struct Steps {
    renderer: Arc<Renderer>,
    repo: Repository,
    commits: Arc<Vec<String>>,
    apps: Arc<Vec<TreePath>>,
}

impl Steps {
    async fn tree(&self, commit: &str) -> Result<Tree> {
        let commit = self.renderer.commit(&access::git(&self.repo)?, commit, false).await?;
        Ok(Tree::Git(commit.tree()))
    }

    /// Goes through all commits; how many Applications they touch in all.
    async fn all(&self) -> Result<usize> {
        let mut known: Vec<Option<String>> = Vec::new();
        let mut touched = 0;
        for (nth, commit) in self.commits.iter().enumerate() {
            let tree = self.tree(commit).await?;
            let mut now = Vec::with_capacity(self.apps.len());
            let mut ids = tree.content_ids();
            for app in self.apps.iter() {
                now.push(ids.of(app)?);
            }
            touched += known.iter().zip(&now).filter(|(before, after)| before != after).count();
            known = now;
            // An Application that is there in every commit or not: what is not there has no files.
            if let Some(node) = tree.lookup(&self.apps[nth % self.apps.len()])? {
                for file in tree.walk(&node)? {
                    std::hint::black_box(tree.read_node(&file, MAX_FILE)?);
                }
            }
        }
        Ok(touched)
    }
}

/// Folders of charts and kustomizations.
fn applications(repo: &Path) -> Result<Vec<TreePath>> {
    let text = git(repo, &["-c", "core.quotePath=false", "ls-tree", "-r", "--name-only", "HEAD"])?;
    let folders = text.lines().filter_map(|path| {
        let (folder, name) = path.rsplit_once('/')?;
        ["Chart.yaml", "kustomization.yaml", "kustomization.yml", "Kustomization"].contains(&name).then_some(folder)
    });
    let paths: Vec<TreePath> = folders.map(TreePath::parse).collect::<Result<_, _>>()?;
    ensure!(!paths.is_empty(), "{} has no charts and no kustomizations", repo.display());
    Ok(paths)
}

/// CPU seconds of the command over all commits but the first.
fn by_peer(command: &str, clone: &Path, commits: &[String]) -> Result<f64> {
    let step = |commit: &str| -> Result<()> {
        let status = Command::new("sh")
            .args(["-c", command])
            .current_dir(clone)
            .env("COMMIT", commit)
            .stdout(std::process::Stdio::null())
            .status()
            .context("run the peer")?;
        ensure!(status.success(), "the peer failed at {commit}");
        Ok(())
    };
    step(&commits[0])?;
    let before = usage::children_cpu_seconds(std::process::id())?;
    commits[1..].iter().try_for_each(|commit| step(commit))?;
    Ok(usage::children_cpu_seconds(std::process::id())? - before)
}
