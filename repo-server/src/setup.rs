//! Builds what rendering needs from the arguments of the process.

use crate::args::Args;
use crate::chart::{self, Charts};
use crate::child;
use crate::egress::Egress;
use crate::error::{Error, Result};
use crate::git::{self, Git, TrustStore};
use crate::http::Http;
use crate::load::Load;
use crate::manifest_cache::ManifestCache;
use crate::materialise::Materialiser;
use crate::metrics::Metrics;
use crate::render::{Limits, Renderer};
use crate::shared_cache::SharedCache;
use crate::source::jsonnet;
use crate::source::plugin::Plugins;
use crate::worker::{self, Workers};
use argosy_api::glob::Glob;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Memory of one Jsonnet program.
const JSONNET_MEMORY: u64 = 1 << 30;
/// Deadline of one Jsonnet program.
const JSONNET_DEADLINE: Duration = Duration::from_secs(30);
/// Largest output of one tool.
const MAX_OUTPUT: u64 = 256 << 20;

/// Makes a renderer with its caches below `cache_dir`.
///
/// # Errors
/// [`Error::Io`] when a directory cannot be made.
pub fn renderer(args: &Args, cache_dir: &Path, metrics: Metrics) -> Result<Renderer> {
    renderer_of(args, cache_dir, Vec::new(), metrics)
}

/// As [`renderer`]; render workers may read the directories of `open` where they are.
pub(crate) fn renderer_of(
    args: &Args,
    cache_dir: &Path,
    open: Vec<PathBuf>,
    metrics: Metrics,
) -> Result<Renderer> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    private(&cache_dir.join("scratch"))?;
    // Free of links: tools tell what they read by names without any, and we find them by ours.
    let cache_dir = cache_dir
        .canonicalize()
        .map_err(|e| Error::io(format!("failed to open {}", cache_dir.display()), e))?;
    let scratch = cache_dir.join("scratch");
    let slots = cache_dir.join("slots");
    private(&slots)?;
    let child = args
        .render_child
        .clone()
        .map(|path| child::Program {
            path,
            arguments: Vec::new(),
        })
        .or_else(child::Program::locate);
    let files = Arc::new(Materialiser::new(
        cache_dir.join("trees"),
        args.tree_cache_size,
        args.tree_cache_size / 2,
    )?);
    let egress = Egress::new(args.allow_inner_hosts.iter().map(String::as_str))
        .map_err(|error| Error::Source(format!("--allow-inner-hosts: {error}")))?;
    let http = Arc::new(Http::new(TrustStore::default(), egress, args.exec_timeout));
    let git = Git::new(
        cache_dir.join("git"),
        scratch.clone(),
        http.clone(),
        git::Settings {
            list_timeout: args.git_request_timeout,
            fetch_timeout: args.exec_timeout,
            refs_ttl: args.revision_cache_expiration,
            attempts: args.git_attempts.max(1),
            submodules: args.git_modules_enabled,
            store_bytes: args.git_store_size,
            keys: args.gpg_data_path.clone(),
        },
        metrics.clone(),
    )?;
    let limits = chart::Limits {
        extracted: args.helm_manifest_max_extracted_size,
        ..chart::Limits::default()
    };
    let charts = Charts::new(
        http.clone(),
        files.clone(),
        limits,
        args.revision_cache_expiration,
        metrics.clone(),
    );
    let load = Load::new(args.parallelism_limit, metrics.clone());
    let started = load.clone();
    let worker_settings = worker::Settings {
        program: args
            .render_worker
            .clone()
            .unwrap_or_else(worker::Settings::default_program),
        count: if args.render_workers == 0 {
            cores
        } else {
            args.render_workers
        },
        deadline: args.exec_timeout,
        max_memory: args.render_worker_memory,
        total_memory: match args.render_memory {
            0 => memory() / 4 * 3,
            bytes => bytes,
        },
        max_calls: args.render_worker_renders.max(1),
        kustomize_helm: true,
        fence: child.clone(),
        slots,
        open,
    };
    let workers = Workers::new(worker_settings, move || started.worker_started());
    let jsonnet = jsonnet::Engine {
        program: child.clone(),
        deadline: JSONNET_DEADLINE.min(args.exec_timeout),
        max_memory: JSONNET_MEMORY,
        // What a program may take is limited by itself.
        door: worker::Admission::new(cores.max(2), u64::MAX),
    };
    let patterns = args.plugin_tar_exclusions.iter().filter(|text| !text.is_empty());
    let exclusions: Result<_, _> = patterns.map(|text| Glob::path(text)).collect();
    let plugins = Plugins {
        folder: args.plugin_sockets.clone(),
        seen: Arc::default(),
        exclusions: exclusions.map_err(|error| Error::Source(format!("--plugin-tar-exclude: {error}")))?,
        declared_paths: args.plugin_use_manifest_generate_paths,
        deadline: args.exec_timeout,
        max_output: usize::try_from(MAX_OUTPUT).unwrap_or(usize::MAX),
        scratch: scratch.clone(),
    };
    let shared = SharedCache::new(&args.redis, args.repo_cache_expiration)?;
    Ok(Renderer {
        git,
        plugins,
        load,
        charts,
        http,
        files,
        workers,
        jsonnet,
        metrics,
        limits: Limits {
            directory_bytes: args.max_combined_directory_manifests_size,
            output_bytes: MAX_OUTPUT,
        },
        scratch,
        child,
        policy: format!(
            "inner {:?} files {} output {MAX_OUTPUT} submodules {} plugins {:?} {}",
            args.allow_inner_hosts,
            args.max_combined_directory_manifests_size,
            args.git_modules_enabled,
            args.plugin_tar_exclusions,
            args.plugin_use_manifest_generate_paths
        ),
        cache: ManifestCache::new(args.manifest_cache_size, args.repo_cache_expiration, shared),
    })
}

/// The memory that this process may have: the container's, or else the machine's.
fn memory() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let container = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .into_iter()
    .filter_map(|path| read(path)?.trim().parse().ok());
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(kib * 1024)
    });
    container.chain(machine).min().unwrap_or(u64::MAX)
}

/// Makes a directory that only we can read, empty.
fn private(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let failed = |e: std::io::Error| Error::io(format!("failed to create {}", path.display()), e);
    if path.exists() {
        std::fs::remove_dir_all(path).map_err(failed)?;
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(failed)
}
