//! The recipe: a source at a revision becomes manifests.
//!
//! 1. [`Renderer::locate`]: revision → commit or chart version → tree of files;
//! 2. look up by that tree and all parameters; then by what an earlier render read;
//! 3. [`Renderer::produce`]: overrides, detection, the tool;
//! 4. Lists expanded, tracking stamped, JSON texts.
//!
//! One render runs per key however many wait for it.

use crate::access::{self, RepoKind};
use crate::chart::{Chart, ChartRepo, Charts};
use crate::child;
use crate::env::BuildEnv;
use crate::error::{Error, Result};
use crate::git::{Access, Commit, Git};
use crate::http::Http;
use crate::load::Load;
use crate::manifest;
use crate::manifest_cache::{Entry, Inputs, ManifestCache, Rendered};
use crate::materialise::{Directory, Materialiser};
use crate::metrics::Metrics;
use crate::path::TreePath;
use crate::source::detect::{self, SourceType};
use crate::source::helm::Location;
use crate::source::plugin::{self, Plugin, Plugins};
use crate::source::{Output, directory, helm, jsonnet, kustomize, overrides, remote};
use crate::tree::{Node, Tree};
use crate::worker::{Caller, Workers};
use argosy_api::services::plugin::EnvEntry;
use argosy_api::v1alpha1::{
    ApplicationSource, HelmOptions, KustomizeOptions, RefTarget, RepoCreds, Repository,
};
use argosy_object::meta;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How objects are marked as belonging to an Application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracking {
    /// Key of the label.
    pub label_key: String,
    /// `annotation`, `label` or `annotation+label`; empty is `annotation`.
    pub method: String,
    /// Name of this installation; may be empty.
    pub installation_id: String,
}

/// One source to render. Everything that the output depends on is in here.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Where the source is, with credentials.
    pub repo: Repository,
    /// Overrides the revision of the source when not empty.
    pub revision: String,
    /// Render even if the answer is known.
    pub no_cache: bool,
    /// Ask the repository even if the revision is known.
    pub no_revision_cache: bool,
    /// Instance name (`web`, or `team_web` for an Application of another namespace).
    pub app_name: String,
    /// Destination namespace.
    pub namespace: String,
    /// Project.
    pub project: String,
    /// The source.
    pub source: ApplicationSource,
    /// Whether the Application has several sources.
    pub multiple_sources: bool,
    /// Sources that others refer to as `$name`.
    pub ref_sources: BTreeMap<String, RefTarget>,
    /// Repositories for chart dependencies.
    pub repos: Vec<Repository>,
    /// Credential templates for chart dependencies.
    pub repo_creds: Vec<RepoCreds>,
    /// Repositories that the project permits.
    pub permitted_repos: Vec<String>,
    /// Options of Kustomize.
    pub kustomize_options: KustomizeOptions,
    /// Options of Helm.
    pub helm_options: HelmOptions,
    /// Version of the target.
    pub kube_version: String,
    /// API versions of the target.
    pub api_versions: Vec<String>,
    /// Marks; `None` leaves objects unmarked.
    pub tracking: Option<Tracking>,
    /// Paths whose changes matter to the source, as annotated.
    pub generate_paths: String,
    /// Tools that are switched off, by name of the source type.
    pub enabled_types: BTreeMap<String, bool>,
    /// How long who asks will wait, if that is known. The output does not depend on it.
    pub patience: Option<Duration>,
}

/// Manifests and where they came from.
#[derive(Clone, Debug)]
pub struct Manifests {
    /// The cached part.
    pub rendered: Arc<Rendered>,
    /// Commit or chart version.
    pub revision: String,
    /// Whether a tool ran for this answer; otherwise it was found.
    pub ran: bool,
}

/// Budgets and switches.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Sum of the files of a directory source.
    pub directory_bytes: u64,
    /// Output of one tool.
    pub output_bytes: u64,
}

/// Everything that rendering needs.
pub struct Renderer {
    /// Repositories.
    pub git: Git,
    /// Charts.
    pub charts: Charts,
    /// HTTP.
    pub http: Arc<Http>,
    /// Directories for tools.
    pub files: Arc<Materialiser>,
    /// Helm and Kustomize.
    pub workers: Arc<Workers>,
    /// Jsonnet.
    pub jsonnet: jsonnet::Engine,
    /// Config management plugins.
    pub plugins: Plugins,
    /// Counters.
    pub metrics: Metrics,
    /// Budgets.
    pub limits: Limits,
    /// Parent of the private directories of renders.
    pub scratch: PathBuf,
    /// The program behind the fence; without it, renders run free.
    pub child: Option<child::Program>,
    /// What the operator decided that shows in the output: part of every key.
    pub policy: String,
    pub(crate) load: Arc<Load>,
    pub(crate) cache: ManifestCache,
}

/// A source whose revision is known and whose files can be read.
pub struct Located {
    /// All files.
    pub tree: Tree,
    /// The source's directory inside them.
    pub path: TreePath,
    /// Commit SHA, or chart version.
    pub revision: String,
    /// Names the tree: equal for equal content.
    pub id: String,
    /// Where the files lie already, for charts.
    pub on_disk: Option<Arc<Directory>>,
    /// The commit, for git.
    pub commit: Option<Commit>,
}

/// Files on disk, as long as this is held.
pub(crate) struct Held {
    files: Arc<Directory>,
    base: TreePath,
    parts: Vec<TreePath>,
}

impl Held {
    /// Where a source lies in them.
    pub(crate) fn location<'a>(&'a self, tree: &'a Tree, dir: &'a Node) -> Location<'a> {
        Location {
            tree,
            dir,
            files: &self.files,
            base: &self.base,
            parts: &self.parts,
        }
    }
}

impl Renderer {
    /// Renders a source, or finds it rendered.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn manifests(&self, request: &Request) -> Result<Manifests> {
        match self.manifests_once(request).await {
            Err(error) if self.git.mended(&error) => self.manifests_once(request).await,
            outcome => outcome,
        }
    }

    async fn manifests_once(&self, request: &Request) -> Result<Manifests> {
        let _pending = self
            .metrics
            .pending(&crate::git::url::display(&request.repo.repo));
        let located = Box::pin(self.locate(request)).await?;
        let refs = Box::pin(self.refs(request)).await?;
        let exact = self.key(request, &refs, Some(&located));
        let revision = located.revision.clone();
        if request.no_cache {
            self.cache.forget(&exact).await;
        } else if let Some(entry) = self.cache.get(&exact).await {
            self.metrics.cache("exact");
            return match entry {
                Entry::Done(rendered) => Ok(Manifests {
                    rendered,
                    revision,
                    ran: false,
                }),
                Entry::Failed(failure) => Err(failure.error),
            };
        }
        let content = self.key(request, &refs, None);
        let inputs = Inputs {
            own: &located.tree,
            refs: &refs,
        };
        let ran = AtomicBool::new(false);
        let rendered = self.cache.get_or_render(exact, async {
            if !request.no_cache
                && let Some(rendered) = self.cache.by_content(&content, &inputs).await
            {
                self.metrics.cache("content");
                return Ok(rendered);
            }
            if !request.no_cache
                && let Some(rendered) = self.cache.by_others(&exact, content).await
            {
                self.metrics.cache("shared");
                return Ok(rendered);
            }
            self.metrics.cache("miss");
            ran.store(true, Ordering::Relaxed);
            Box::pin(self.render(request, &located, &refs, &exact, content)).await
        });
        Ok(Manifests {
            rendered: rendered.await?,
            revision,
            ran: ran.into_inner(),
        })
    }

    async fn render(
        &self,
        request: &Request,
        located: &Located,
        refs: &BTreeMap<String, Tree>,
        exact: &[u8; 32],
        content: [u8; 32],
    ) -> Result<Arc<Rendered>> {
        let (source_type, output) = self.produce(request, located, refs).await?;
        let Output {
            objects,
            reads,
            commands,
            mut notes,
        } = output;
        notes.open.clone_from(&reads.open);
        notes.open.sort();
        notes.open.dedup();
        let mut objects = manifest::flatten(objects)?;
        manifest::note_faults(&objects, &mut notes);
        if let Some(tracking) = &request.tracking {
            stamp(&mut objects, request, tracking)?;
        }
        let manifests = objects.iter().map(Value::to_string).collect();
        let rendered = Arc::new(Rendered::new(manifests, source_type, commands, notes));
        let mut closed = None;
        if reads.open.is_empty() {
            let inputs = Inputs {
                own: &located.tree,
                refs,
            };
            closed = self.cache.remember(content, &inputs, reads, &rendered).await;
        } else {
            for reason in &rendered.notes.open {
                self.metrics.open_input(reason);
            }
            tracing::debug!(app = request.app_name, reasons = ?reads.open, "the output is not a function of the files alone");
        }
        self.cache.share(exact, &rendered, closed);
        Ok(rendered)
    }

    /// Renders without caches and tracking: overrides, detection, the tool.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn produce(
        &self,
        request: &Request,
        located: &Located,
        refs: &BTreeMap<String, Tree>,
    ) -> Result<(SourceType, Output)> {
        let _entered = self.load.enter(&request.app_name, request.patience).await?;
        let tree = &located.tree;
        let dir = tree.app_dir(&located.path)?;
        let source = overrides::apply(&request.source, tree, &dir, &request.app_name)?;
        let env = build_env(request, &located.revision, &source);
        let for_plugins = plugin_request(request, located, &dir, &source);
        // Boxed, here and below: a future that holds all tools inside itself would be as large as a stack.
        let choice = Box::pin(self.plugins.choose(detect::explicit(&source)?, &for_plugins)).await?;
        let (source_type, outcome) = match &choice.plugin {
            Some(plugin) => {
                tree.check_links(&dir)?;
                let outcome = Box::pin(self.run_plugin(plugin, request, &for_plugins)).await;
                (SourceType::Plugin, outcome)
            }
            None => {
                let source_type = detect::detect(&source, tree, &dir, &request.enabled_types)?;
                let outcome = self.run(request, located, refs, &dir, &source, &env, source_type);
                (source_type, Box::pin(outcome).await)
            }
        };
        self.metrics.rendered(source_type.as_str(), outcome.is_ok());
        let mut output = outcome?;
        if env.used_revision() || for_plugins.env.used_revision() {
            output.reads.open.push("the revision itself".into());
        }
        if choice.looked {
            output.reads.paths.push(dir.path.clone());
        }
        if dir.path != located.path {
            // A link, which may lead elsewhere in another commit.
            output.reads.paths.push(located.path.clone());
        }
        output
            .reads
            .paths
            .extend(overrides::files(&located.path, &request.app_name));
        output.reads.paths.push(located.path.child("Chart.yaml"));
        // What of the submodules below is there.
        output.reads.paths.push(TreePath::parse(".gitmodules")?);
        output
            .reads
            .paths
            .extend(detect::KUSTOMIZATIONS.iter().map(|name| located.path.child(name)));
        Ok((source_type, output))
    }

    async fn run(
        &self,
        request: &Request,
        located: &Located,
        refs: &BTreeMap<String, Tree>,
        dir: &Node,
        source: &ApplicationSource,
        env: &BuildEnv,
        source_type: SourceType,
    ) -> Result<Output> {
        let app = instance_app(&request.app_name);
        let scratch = tempfile::Builder::new()
            .prefix("render-")
            .tempdir_in(&self.scratch)
            .map_err(|e| Error::io("failed to create a private directory", e))?;
        match source_type {
            SourceType::Plugin => Err(Error::Source("the source names no plugin".into())),
            SourceType::Directory => {
                located.tree.check_links(dir)?;
                let options = source.directory.clone().unwrap_or_default();
                Box::pin(directory::render(directory::Request {
                    tree: &located.tree,
                    dir,
                    options: &options,
                    env,
                    max_bytes: self.limits.directory_bytes,
                    jsonnet: detect::is_on(source_type, &request.enabled_types).then_some(&self.jsonnet),
                    caller: caller(request, source),
                }))
                .await
            }
            SourceType::Helm => {
                located.tree.check_links(dir)?;
                let base = if chart_is_closed(&located.tree, dir) {
                    dir.path.clone()
                } else {
                    TreePath::root()
                };
                let options = source.helm.clone().unwrap_or_default();
                let held = self.held(located, &base).await?;
                let request = helm::Request {
                    caller: caller(request, source),
                    helm: &options,
                    own: request.source.helm.as_ref(),
                    repo: &request.repo,
                    app: &app,
                    namespace: &request.namespace,
                    kube_version: &request.kube_version,
                    api_versions: &request.api_versions,
                    env,
                    schemes: &request.helm_options.values_file_schemes,
                    refs,
                    repos: &request.repos,
                    repo_creds: &request.repo_creds,
                    permitted: &request.permitted_repos,
                    project: &request.project,
                    scratch: scratch.path(),
                    max_output: self.limits.output_bytes,
                };
                let location = held.location(&located.tree, dir);
                Box::pin(helm::render(&location, &request, &self.charts, &self.workers)).await
            }
            SourceType::Kustomize => {
                located.tree.check_links(dir)?;
                let options = source.kustomize.clone().unwrap_or_default();
                let remotes = self.remotes(request, scratch.path());
                let request = kustomize::Request {
                    caller: caller(request, source),
                    kustomize: &options,
                    options: &request.kustomize_options,
                    kube_version: &request.kube_version,
                    api_versions: &request.api_versions,
                    env,
                    remotes: &remotes,
                    max_output: self.limits.output_bytes,
                };
                let parts = kustomize::closure(&located.tree, dir, &options);
                let held = self.held_parts(located, &parts).await?;
                let location = held.location(&located.tree, dir);
                match Box::pin(kustomize::render(&location, &request, &self.workers)).await {
                    // What was materialised may have been too little; the whole tree never is.
                    Err(Error::Render { .. }) if parts.iter().all(|part| !part.is_root()) => {
                        let held = self.held(located, &TreePath::root()).await?;
                        let location = held.location(&located.tree, dir);
                        Box::pin(kustomize::render(&location, &request, &self.workers)).await
                    }
                    outcome => outcome,
                }
            }
        }
    }

    async fn run_plugin(
        &self,
        plugin: &Plugin,
        request: &Request,
        source: &plugin::Request<'_>,
    ) -> Result<Output> {
        let git = if plugin.wants_git_credentials() && access::kind(&request.repo, "") == RepoKind::Git {
            self.git.environment(&access::git(&request.repo)?).await?
        } else {
            Vec::new()
        };
        let git = git.into_iter().map(|(name, value)| EnvEntry { name, value });
        self.plugins.render(plugin, source, git.collect()).await
    }

    /// Materialises the part of a tree below `base`.
    pub(crate) async fn held(&self, located: &Located, base: &TreePath) -> Result<Held> {
        let root = TreePath::root();
        let (files, base) = match (&located.on_disk, &located.tree) {
            (Some(files), _) => (files.clone(), &root),
            (None, Tree::Git(tree)) => {
                let part = located
                    .tree
                    .lookup(base)?
                    .filter(|node| node.is_dir && !base.is_root());
                match part {
                    Some(node) => (self.files.tree(&tree.subtree(&node)?).await?, base),
                    None => (self.files.tree(tree).await?, &root),
                }
            }
            (None, Tree::Disk(tree)) => (Arc::new(Directory::borrowed(tree.root())), &root),
        };
        let base = base.clone();
        let parts = Vec::new();
        Ok(Held { files, base, parts })
    }

    /// Materialises parts of a tree, each in its place.
    async fn held_parts(&self, located: &Located, parts: &[TreePath]) -> Result<Held> {
        match (parts, &located.tree, &located.on_disk) {
            ([base], ..) => self.held(located, base).await,
            (_, Tree::Git(tree), None) => Ok(Held {
                files: self.files.parts(tree, parts).await?,
                base: TreePath::root(),
                parts: parts.to_vec(),
            }),
            // What lies on disk is there as a whole.
            _ => self.held(located, &TreePath::root()).await,
        }
    }

    pub(crate) fn remotes<'a>(&'a self, request: &'a Request, scratch: &'a Path) -> remote::Fetcher<'a> {
        remote::Fetcher {
            git: &self.git,
            http: &self.http,
            files: &self.files,
            own: &request.repo,
            repos: &request.repos,
            repo_creds: &request.repo_creds,
            scratch,
        }
    }

    /// Resolves the revision of a source and opens its files.
    ///
    /// # Errors
    /// Those of fetching; [`Error::Path`] for a path that leaves the repository.
    pub async fn locate(&self, request: &Request) -> Result<Located> {
        let source = &request.source;
        let wanted = if request.revision.is_empty() {
            &source.target_revision
        } else {
            &request.revision
        };
        match access::kind(&request.repo, &source.chart) {
            RepoKind::Git => {
                let path = TreePath::parse(&source.path)?;
                let access = access::git(&request.repo)?;
                let resolved = self
                    .git
                    .resolve(&access, wanted, &source.tag_prefix, request.no_revision_cache)
                    .await?;
                let commit = self.git.commit(&access, &resolved).await?;
                let tree = commit.tree();
                Ok(Located {
                    id: format!("git:{}", tree.root_id()),
                    tree: Tree::Git(tree),
                    path,
                    revision: resolved.commit,
                    on_disk: None,
                    commit: Some(commit),
                })
            }
            RepoKind::Helm => {
                let pass = source.helm.as_ref().is_some_and(|helm| helm.pass_credentials);
                let repo = access::chart(&request.repo, pass)?;
                if source.chart.is_empty() {
                    return Err(Error::Source(
                        "a source in a Helm repository needs a chart".into(),
                    ));
                }
                let version = self
                    .charts
                    .resolve(&repo, &source.chart, wanted, request.no_revision_cache)
                    .await?;
                let chart = self.charts.fetch(&repo, &source.chart, &version).await?;
                chart_location(chart, version)
            }
            RepoKind::Oci => {
                let path = TreePath::parse(&source.path)?;
                let repo = access::chart(&request.repo, false)?;
                let (artifact, digest) = self
                    .charts
                    .artifact(&repo, wanted, request.no_revision_cache)
                    .await?;
                Ok(Located {
                    tree: Tree::disk(artifact.path())?,
                    path,
                    id: format!("oci:{digest}"),
                    revision: digest,
                    on_disk: Some(artifact),
                    commit: None,
                })
            }
        }
    }

    /// Trees of the sources that value files refer to as `$name/…`.
    ///
    /// # Errors
    /// Those of fetching.
    pub async fn refs(&self, request: &Request) -> Result<BTreeMap<String, Tree>> {
        let mut trees = BTreeMap::new();
        let Some(helm) = &request.source.helm else {
            return Ok(trees);
        };
        let texts = helm
            .value_files
            .iter()
            .chain(helm.file_parameters.iter().map(|parameter| &parameter.path));
        for text in texts.filter(|text| text.starts_with('$')) {
            let name = text.split('/').next().unwrap_or_default();
            if trees.contains_key(name) {
                continue;
            }
            let Some(target) = request.ref_sources.get(name) else {
                if is_variable(name) {
                    continue;
                }
                return Err(Error::Source(format!(
                    "source referenced {name:?}, but no source has a 'ref' field defined"
                )));
            };
            if !target.chart.is_empty() {
                return Err(Error::Source(
                    "source has a 'chart' field defined, but Helm charts are not yet supported for 'ref' sources".into(),
                ));
            }
            let access = access::git(&target.repo)?;
            let commit = self
                .commit(&access, &target.target_revision, request.no_revision_cache)
                .await?;
            trees.insert(name.to_owned(), Tree::Git(commit.tree()));
        }
        Ok(trees)
    }

    /// Names everything the output depends on: with `located` the exact trees, without it the parameters alone.
    fn key(&self, request: &Request, refs: &BTreeMap<String, Tree>, located: Option<&Located>) -> [u8; 32] {
        let mut key = Key::default();
        key.add(env!("CARGO_PKG_VERSION"));
        key.add(&self.policy);
        for name in self.plugins.names() {
            key.add(&name);
        }
        key.request(request);
        for (name, tree) in refs {
            key.add(name);
            if let Tree::Git(tree) = tree {
                key.add(if tree.reads_lfs() { "lfs" } else { "" });
                if located.is_some() {
                    key.add(&tree.root_id());
                }
            }
        }
        if let Some(located) = located {
            key.add(&located.id);
            key.add(&located.revision);
            key.add(located.path.as_str());
        }
        *key.0.finalize().as_bytes()
    }

    /// A commit by revision.
    ///
    /// # Errors
    /// Those of fetching.
    pub async fn commit(&self, access: &Access, revision: &str, fresh: bool) -> Result<Commit> {
        let resolved = self.git.resolve(access, revision, "", fresh).await?;
        self.git.commit(access, &resolved).await
    }
}

fn chart_location(chart: Chart, version: String) -> Result<Located> {
    let root = chart.directory.path();
    let path = chart
        .path
        .strip_prefix(root)
        .ok()
        .and_then(Path::to_str)
        .unwrap_or_default();
    Ok(Located {
        tree: Tree::disk(root)?,
        path: TreePath::parse(path)?,
        revision: version,
        id: format!("chart:{}", chart.digest),
        on_disk: Some(chart.directory),
        commit: None,
    })
}

/// The build environment of a source at a commit or version. The name is that of the instance, as in Argo CD: with the
/// namespace for an Application outside of the control plane's.
pub(crate) fn build_env(request: &Request, revision: &str, source: &ApplicationSource) -> BuildEnv {
    BuildEnv::new(
        &request.app_name,
        &request.namespace,
        &request.project,
        revision,
        &source.path,
        &source.repo_url,
        &source.target_revision,
    )
}

/// A request as plugins are asked; they are told of the cluster too.
pub(crate) fn plugin_request<'a>(
    request: &'a Request,
    located: &'a Located,
    dir: &'a Node,
    source: &'a ApplicationSource,
) -> plugin::Request<'a> {
    plugin::Request {
        tree: &located.tree,
        dir,
        source,
        app: &request.app_name,
        env: build_env(request, &located.revision, source)
            .with("KUBE_VERSION", numbers(&request.kube_version))
            .with("KUBE_API_VERSIONS", request.api_versions.join(",")),
        paths: &request.generate_paths,
    }
}

/// For whom a render is, and what it is like: the next commit of the source probably takes as much.
pub(crate) fn caller(request: &Request, source: &ApplicationSource) -> Caller {
    Caller {
        app: request.app_name.clone(),
        class: [&request.repo.repo, &source.path, &source.chart]
            .map(String::as_str)
            .join("\0"),
    }
}

/// The numbers of a version, without what distributions add: `v1.34.0-gke.100` is `1.34.0`.
fn numbers(version: &str) -> String {
    let version = version.trim().trim_start_matches('v');
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.');
    version[..end.unwrap_or(version.len())]
        .trim_end_matches('.')
        .to_owned()
}

/// Whether a chart needs nothing outside its own directory.
fn chart_is_closed(tree: &Tree, dir: &Node) -> bool {
    let local = ["Chart.yaml", "requirements.yaml"].iter().any(|name| {
        tree.read(&dir.path.child(name), 1 << 20)
            .is_ok_and(|text| String::from_utf8_lossy(&text).contains("file://"))
    });
    !local && kustomize::links_stay(tree, dir)
}

/// Name of the Application without its namespace.
pub(crate) fn instance_app(instance: &str) -> String {
    instance
        .split_once('_')
        .map_or(instance, |(_, name)| name)
        .to_owned()
}

/// `$NAME` of the build environment, not of a source: left to the substitution of variables.
fn is_variable(name: &str) -> bool {
    ["$ARGOCD_", "$KUBE_", "${", "$$"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// A digest over texts, each with its length.
#[derive(Default)]
struct Key(blake3::Hasher);

impl Key {
    fn add(&mut self, text: &str) {
        self.0.update(&(text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
    }

    /// A repository: what it is called, how it is asked and as whom.
    fn repository(&mut self, repo: &Repository) {
        self.add(&repo.repo);
        self.add(&repo.name);
        self.add(&repo.r#type);
        self.add(&format!("{}{}", repo.enable_oci, repo.insecure_oci_force_http));
        self.add(&access::class(repo));
    }

    /// All parameters of a request.
    fn request(&mut self, request: &Request) {
        self.add(&serde_json::to_string(&request.source).unwrap_or_default());
        // As whom: two tenants share a render only if they share the right to read.
        self.repository(&request.repo);
        self.add(&request.repos.len().to_string());
        for repo in &request.repos {
            self.repository(repo);
        }
        self.add(&request.repo_creds.len().to_string());
        for template in &request.repo_creds {
            self.add(&template.url);
            self.add(&access::class_of_template(template));
        }
        for text in [
            &request.app_name,
            &request.namespace,
            &request.project,
            &request.kube_version,
            &request.generate_paths,
        ] {
            self.add(text);
        }
        let lists = [
            &request.api_versions,
            &request.helm_options.values_file_schemes,
            &request.permitted_repos,
        ];
        for list in lists {
            self.add(&list.len().to_string());
            for text in list {
                self.add(text);
            }
        }
        self.add(if request.multiple_sources {
            "several"
        } else {
            "one"
        });
        self.add(&request.kustomize_options.build_options);
        self.add(&request.kustomize_options.versions.len().to_string());
        for version in &request.kustomize_options.versions {
            self.add(&version.name);
            self.add(&version.build_options);
        }
        for (name, on) in &request.enabled_types {
            self.add(name);
            self.add(if *on { "on" } else { "off" });
        }
        match &request.tracking {
            Some(tracking) => {
                for text in [&tracking.label_key, &tracking.method, &tracking.installation_id] {
                    self.add(text);
                }
            }
            None => self.add("unmarked"),
        }
    }
}

/// Marks objects as belonging to the Application of a request. What has faults ([`manifest::note_faults`]) stays unmarked.
pub(crate) fn stamp(objects: &mut [Value], request: &Request, tracking: &Tracking) -> Result<()> {
    use argosy_api::tracking;
    let mut config = tracking::Config {
        method: tracking::Method::parse(&tracking.method),
        installation_id: tracking.installation_id.clone(),
        ..tracking::Config::default()
    };
    if !tracking.label_key.is_empty() {
        config.label_key.clone_from(&tracking.label_key);
    }
    for object in objects {
        if meta::not_a_text(object).is_some() {
            continue;
        }
        tracking::stamp(object, &request.app_name, &request.namespace, &config).map_err(|e| {
            Error::Source(format!(
                "failed to set app instance tracking info on manifest: {e}"
            ))
        })?;
    }
    Ok(())
}

/// Access for charts by repository, for the service.
pub(crate) fn chart_repo(repo: &Repository) -> Result<ChartRepo> {
    access::chart(repo, false)
}
