//! Rendering without a server, for `argosy render`: the same code on a repository or on a plain directory.

use crate::access;
use crate::args::Args;
use crate::error::{Error, Result};
use crate::manifest;
use crate::metrics::Metrics;
use crate::path::TreePath;
use crate::render::{Located, Renderer, Request, Tracking};
use crate::tree::Tree;
use argosy_api::refs;
use argosy_api::v1alpha1::{ApplicationSource, HelmOptions, KustomizeOptions, RefTarget, Repository};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where the files are.
#[derive(Clone, Debug)]
pub enum Files {
    /// Each source's own `repoURL`.
    Repositories,
    /// A directory of this machine, as it is now, instead of every git repository that the sources name.
    Directory(PathBuf),
}

/// What to render.
#[derive(Clone, Debug)]
pub struct LocalRequest {
    /// Where the files are.
    pub files: Files,
    /// The sources, in the order of the Application. Those that only have a `ref` lend their files.
    pub sources: Vec<ApplicationSource>,
    /// Revision instead of each source's own, when not empty.
    pub revision: String,
    /// Instance name of the Application.
    pub app_name: String,
    /// Destination namespace.
    pub namespace: String,
    /// Project.
    pub project: String,
    /// Version of the target.
    pub kube_version: String,
    /// API versions of the target.
    pub api_versions: Vec<String>,
    /// Repositories with credentials.
    pub credentials: Vec<Repository>,
    /// Options of Kustomize.
    pub kustomize_options: KustomizeOptions,
    /// Marks; `None` leaves objects unmarked.
    pub tracking: Option<Tracking>,
    /// Where repositories are kept between calls; without it they are fetched into a temporary directory.
    pub cache_dir: Option<PathBuf>,
    /// The render worker, if it is not beside the running executable.
    pub render_worker: Option<PathBuf>,
}

impl Default for LocalRequest {
    fn default() -> Self {
        LocalRequest {
            files: Files::Repositories,
            sources: Vec::new(),
            revision: String::new(),
            app_name: String::new(),
            namespace: String::new(),
            project: "default".into(),
            kube_version: String::new(),
            api_versions: Vec::new(),
            credentials: Vec::new(),
            kustomize_options: KustomizeOptions::default(),
            tracking: None,
            cache_dir: None,
            render_worker: None,
        }
    }
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The objects, in the order of the sources.
    pub objects: Vec<Value>,
    /// What is odd about the sources and holds nothing up, such as keys that stand twice.
    pub warnings: Vec<String>,
}

/// Renders all sources, one after another.
///
/// # Errors
/// See [`Error`].
pub async fn render(request: LocalRequest) -> Result<Outcome> {
    // Dropped, and with it the files, when the manifests are there.
    let temporary =
        tempfile::tempdir().map_err(|e| Error::io("failed to create a temporary directory", e))?;
    let cache_dir = request
        .cache_dir
        .clone()
        .unwrap_or_else(|| temporary.path().to_owned());
    let mut args = defaults();
    args.render_worker.clone_from(&request.render_worker);
    // A person may read what a person may read.
    args.allow_inner_hosts = vec!["*".into()];
    let open = match &request.files {
        Files::Repositories => Vec::new(),
        Files::Directory(directory) => vec![
            directory
                .canonicalize()
                .map_err(|e| Error::path(directory.display().to_string(), e.to_string()))?,
        ],
    };
    let renderer = crate::setup::renderer_of(&args, &cache_dir, open, Metrics::default())?;
    let refs = refs::targets(&request.sources, &[], |url| {
        access::find(url, &request.credentials, &[])
    });
    let refs = refs.map_err(|error| Error::Source(error.to_string()))?;
    let mut outcome = Outcome::default();
    for source in &request.sources {
        if !source.r#ref.is_empty() && source.path.is_empty() && source.chart.is_empty() {
            continue;
        }
        let one = one(&renderer, &request, source, &refs).await?;
        outcome.objects.extend(one.objects);
        outcome.warnings.extend(one.warnings);
    }
    Ok(outcome)
}

async fn one(
    renderer: &Renderer,
    local: &LocalRequest,
    source: &ApplicationSource,
    refs: &BTreeMap<String, RefTarget>,
) -> Result<Outcome> {
    let request = Request {
        repo: access::find(&source.repo_url, &local.credentials, &[]),
        revision: local.revision.clone(),
        app_name: local.app_name.clone(),
        namespace: local.namespace.clone(),
        project: local.project.clone(),
        source: source.clone(),
        multiple_sources: local.sources.len() > 1,
        ref_sources: refs.clone(),
        repos: local.credentials.clone(),
        kustomize_options: local.kustomize_options.clone(),
        helm_options: HelmOptions::default(),
        kube_version: local.kube_version.clone(),
        api_versions: local.api_versions.clone(),
        tracking: local.tracking.clone(),
        ..Request::default()
    };
    let directory = match &local.files {
        Files::Directory(directory) if source.chart.is_empty() => directory,
        _ => {
            let manifests = renderer.manifests(&request).await?;
            manifests.rendered.notes.faultless()?;
            let texts = manifests.rendered.manifests.iter();
            let objects = texts.map(|text| {
                serde_json::from_str(text).map_err(|e| Error::io("failed to read a manifest", e))
            });
            return Ok(Outcome {
                objects: objects.collect::<Result<_>>()?,
                warnings: manifests.rendered.notes.warnings.clone(),
            });
        }
    };
    let tree = Tree::disk(directory)?;
    let located = Located {
        path: TreePath::parse(&source.path)?,
        tree: tree.clone(),
        revision: local.revision.clone(),
        id: String::new(),
        on_disk: None,
        commit: None,
    };
    let refs = refs.keys().map(|name| (name.clone(), tree.clone())).collect();
    let (_, output) = renderer.produce(&request, &located, &refs).await?;
    let mut objects = manifest::flatten(output.objects)?;
    let mut notes = output.notes;
    manifest::note_faults(&objects, &mut notes);
    notes.faultless()?;
    if let Some(tracking) = &local.tracking {
        crate::render::stamp(&mut objects, &request, tracking)?;
    }
    Ok(Outcome {
        objects,
        warnings: notes.warnings,
    })
}

/// The arguments of a repo-server that was given none.
pub fn defaults() -> Args {
    use clap::{Args as _, FromArgMatches as _};
    let command = Args::augment_args(clap::Command::new("repo-server").no_binary_name(true));
    let matches = command.try_get_matches_from(std::iter::empty::<&str>());
    let parsed = matches.and_then(|matches| Args::from_arg_matches(&matches));
    parsed.expect("invariant: every argument has a default")
}

/// The marks that an installation without settings puts on objects.
pub fn default_tracking() -> Tracking {
    let config = argosy_api::tracking::Config::default();
    Tracking {
        label_key: config.label_key,
        method: config.method.as_str().to_owned(),
        installation_id: String::new(),
    }
}
