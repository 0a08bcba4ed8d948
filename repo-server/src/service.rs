//! gRPC in, gRPC out: messages become requests of [`crate::render`], errors become statuses. Nothing else of the
//! crate knows tonic.

mod details;

use crate::access::{self, RepoKind};
use crate::env::BuildEnv;
use crate::error::{Class, Error, Result};
use crate::path::TreePath;
use crate::render::{Manifests, Renderer, Request, Tracking, chart_repo};
use crate::source::detect::{self, SourceType};
use crate::source::{helm, plugin};
use crate::tree::{Node, RawKind, Tree};
use crate::upload::Upload;
use argosy_api::integrity::{self, Signature, Verdict};
use argosy_api::repository as wire;
use argosy_api::repository::repo_server_service_server::RepoServerService;
use argosy_api::v1alpha1::{
    self, ApplicationSource, ChartDetails, OciMetadata, Repository, RevisionMetadata,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tonic::{Code, Request as Call, Response, Status, Streaming};

/// Requests that may wait for each one that is served, before more are refused.
const MAX_WAITING: usize = 500;
/// Sum of the files that one request for files may carry.
const MAX_FILES: u64 = 64 << 20;

/// The service.
pub(crate) struct Service {
    renderer: Arc<Renderer>,
    /// Renders at once; `None` leaves it to the pools of the tools.
    permits: Option<Arc<tokio::sync::Semaphore>>,
    waiting: AtomicUsize,
    include_hidden: bool,
    /// Whether demands for signatures are looked at.
    verifies: bool,
    pool: Pool,
}

impl Service {
    /// Serves what a renderer renders; `parallelism` 0 is no limit.
    pub(crate) fn new(
        renderer: Arc<Renderer>,
        parallelism: usize,
        include_hidden: bool,
        verifies: bool,
    ) -> std::io::Result<Service> {
        let permits = (parallelism > 0).then(|| Arc::new(tokio::sync::Semaphore::new(parallelism)));
        Ok(Service {
            renderer,
            permits,
            waiting: AtomicUsize::new(0),
            include_hidden,
            verifies,
            pool: Pool::new()?,
        })
    }

    /// Waits for a place among the renders.
    async fn place(&self) -> Result<Option<tokio::sync::OwnedSemaphorePermit>> {
        let Some(permits) = &self.permits else {
            return Ok(None);
        };
        if self.waiting.fetch_add(1, Ordering::Relaxed) > MAX_WAITING {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::Overloaded {
                retry_after: Duration::from_secs(10),
            });
        }
        let started = Instant::now();
        let permit = permits.clone().acquire_owned().await.ok();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.renderer.metrics.waited(started.elapsed());
        Ok(permit)
    }

    /// Runs work that reads many objects away from the threads that serve connections. However many wait for one
    /// render, they hold no thread while they do.
    async fn run<T, F>(&self, work: impl FnOnce(Arc<Renderer>) -> F) -> Result<Response<T>, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        match self.pool.spawn(work(self.renderer.clone())).await {
            Ok(outcome) => outcome.map(Response::new).map_err(status),
            Err(error) => Err(Status::internal(format!("the request panicked: {error}"))),
        }
    }
}

/// Threads that may be kept busy by reading files and objects, which those of the connections must not be.
struct Pool(Option<tokio::runtime::Runtime>);

impl Pool {
    fn new() -> std::io::Result<Pool> {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4 * cores)
            .thread_name("render")
            .thread_stack_size(8 << 20)
            .enable_all()
            .build()?;
        Ok(Pool(Some(runtime)))
    }

    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        let runtime = self.0.as_ref().expect("invariant: it is taken by drop alone");
        runtime.spawn(work)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A runtime may not wait for its threads inside of another.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A failure as a status. A stock repo-server answers nearly everything with `Unknown`, and users match on the texts.
fn status(error: Error) -> Status {
    let code = match (&error, error.class()) {
        (Error::Deadline { .. }, _) => Code::DeadlineExceeded,
        (Error::Overloaded { .. }, _) => Code::ResourceExhausted,
        (Error::Unsupported(_), _) => Code::FailedPrecondition,
        (_, Class::Retry { .. }) => Code::Aborted,
        (_, Class::Stalled) => Code::Unknown,
        (_, Class::Bug) => Code::Internal,
    };
    Status::new(code, error.to_string())
}

fn repo(repo: Option<Repository>) -> Result<Repository, Status> {
    repo.filter(|repo| !repo.repo.is_empty())
        .ok_or_else(|| Status::invalid_argument("the request names no repository"))
}

impl Service {
    /// What a caller demands of signatures. One that speaks only the language of Argo CD before 3.5 is refused: it would take
    /// an answer without a result for a good one.
    fn demanded(
        &self,
        asked: bool,
        integrity: Option<v1alpha1::SourceIntegrity>,
    ) -> Result<Option<v1alpha1::SourceIntegrity>, Status> {
        if !self.verifies {
            return Ok(None);
        }
        if asked && integrity.is_none() {
            return Err(Status::failed_precondition(
                "signatures are verified for callers that send sourceIntegrity (Argo CD 3.5 and later)",
            ));
        }
        Ok(integrity)
    }
}

/// The answer to a request; one that the caller still has is told by its digest alone.
fn answer(manifests: &Manifests, known: &str) -> wire::ManifestResponse {
    let rendered = &manifests.rendered;
    let unchanged = !known.is_empty() && known == rendered.digest;
    let (texts, commands) = if unchanged {
        (Vec::new(), Vec::new())
    } else {
        (rendered.manifests.clone(), rendered.commands.clone())
    };
    wire::ManifestResponse {
        manifests: texts,
        revision: manifests.revision.clone(),
        source_type: rendered.source_type.as_str().to_owned(),
        commands,
        digest: rendered.digest.clone(),
        unchanged,
        warnings: rendered.notes.warnings.clone(),
        faults: rendered.notes.faults.clone(),
        ..wire::ManifestResponse::default()
    }
}

fn render_request(request: wire::ManifestRequest) -> Result<Request, Status> {
    let source = request
        .application_source
        .ok_or_else(|| Status::invalid_argument("the request names no source"))?;
    Ok(Request {
        repo: repo(request.repo)?,
        revision: request.revision,
        no_cache: request.no_cache,
        no_revision_cache: request.no_revision_cache,
        app_name: request.app_name,
        namespace: request.namespace,
        project: request.project_name,
        source,
        multiple_sources: request.has_multiple_sources,
        ref_sources: request.ref_sources.into_iter().collect(),
        repos: request.repos,
        repo_creds: request.helm_repo_creds,
        permitted_repos: request.project_source_repos,
        kustomize_options: request.kustomize_options.unwrap_or_default(),
        helm_options: request.helm_options.unwrap_or_default(),
        kube_version: request.kube_version,
        api_versions: request.api_versions,
        tracking: Some(Tracking {
            label_key: request.app_label_key,
            method: request.tracking_method,
            installation_id: request.installation_id,
        }),
        generate_paths: request.annotation_manifest_generate_paths,
        enabled_types: request.enabled_source_types.into_iter().collect(),
    })
}

#[tonic::async_trait]
impl RepoServerService for Service {
    async fn generate_manifest(
        &self,
        call: Call<wire::ManifestRequest>,
    ) -> Result<Response<wire::ManifestResponse>, Status> {
        let mut message = call.into_inner();
        let known = std::mem::take(&mut message.known_digest);
        let faulty_too = message.faulty_too;
        let integrity = self.demanded(message.verify_signature, message.source_integrity.take())?;
        let request = render_request(message)?;
        let started = Instant::now();
        let _place = self.place().await.map_err(status)?;
        let (app, url) = (
            request.app_name.clone(),
            crate::git::url::display(&request.repo.repo),
        );
        let answer = self
            .run(async move |renderer| {
                let manifests = renderer.manifests(&request).await?;
                if !faulty_too {
                    manifests.rendered.notes.faultless()?;
                }
                let mut answer = answer(&manifests, &known);
                if let Some(integrity) = &integrity {
                    answer.source_integrity_result =
                        renderer.verify(&request, &manifests.revision, integrity).await?;
                }
                Ok(answer)
            })
            .await;
        let took = started.elapsed().as_millis() as u64;
        match &answer {
            Ok(answer) => {
                let answer = answer.get_ref();
                tracing::debug!(
                    app,
                    repo = url,
                    revision = answer.revision,
                    manifests = answer.manifests.len(),
                    took,
                    "rendered"
                );
            }
            Err(error) => tracing::info!(app, repo = url, error = error.message(), took, "rendering failed"),
        }
        answer
    }

    async fn generate_manifest_with_files(
        &self,
        call: Call<Streaming<wire::ManifestRequestWithFiles>>,
    ) -> Result<Response<wire::ManifestResponse>, Status> {
        use wire::manifest_request_with_files::Part;
        let mut parts = call.into_inner();
        let (mut message, mut checksum, mut upload) = (None, String::new(), Upload::default());
        while let Some(part) = parts.message().await? {
            match part.part {
                Some(Part::Request(request)) => message = Some(request),
                Some(Part::Metadata(metadata)) => checksum = metadata.checksum,
                Some(Part::Chunk(chunk)) => upload.take(&chunk.chunk).map_err(status)?,
                None => {}
            }
        }
        let mut message =
            message.ok_or_else(|| Status::invalid_argument("the files came without a request"))?;
        let archive = upload.finish(&checksum).map_err(status)?;
        let integrity = self.demanded(message.verify_signature, message.source_integrity.take())?;
        let request = render_request(message)?;
        if integrity::is_demanded(integrity.as_ref(), &request.source) {
            return Err(Status::failed_precondition(
                "Cannot use local manifests when source integrity is enforced",
            ));
        }
        let _place = self.place().await.map_err(status)?;
        self.run(async move |renderer| {
            let rendered = Arc::new(renderer.uploaded(&request, archive).await?);
            let manifests = Manifests {
                rendered,
                revision: request.revision.clone(),
                ran: true,
            };
            Ok(answer(&manifests, ""))
        })
        .await
    }

    async fn test_repository(
        &self,
        call: Call<wire::TestRepositoryRequest>,
    ) -> Result<Response<wire::TestRepositoryResponse>, Status> {
        let repo = repo(call.into_inner().repo)?;
        self.run(async move |renderer| {
            match access::kind(&repo, "") {
                RepoKind::Git => {
                    renderer.git.refs(&access::git(&repo)?, true).await?;
                }
                _ => {
                    let repo = chart_repo(&repo)?;
                    if repo.oci {
                        renderer.charts.ping(&repo).await?;
                    } else {
                        renderer.charts.index(&repo, true).await?;
                    }
                }
            }
            Ok(wire::TestRepositoryResponse {
                verified_repository: true,
            })
        })
        .await
    }

    async fn resolve_revision(
        &self,
        call: Call<wire::ResolveRevisionRequest>,
    ) -> Result<Response<wire::ResolveRevisionResponse>, Status> {
        let request = call.into_inner();
        let repo = repo(request.repo)?;
        let source = request
            .app
            .map(|app| source_of(&app, request.source_index))
            .unwrap_or_default();
        let (wanted, fresh) = (request.ambiguous_revision, request.no_revision_cache);
        self.run(async move |renderer| {
            let revision = match access::kind(&repo, &source.chart) {
                RepoKind::Git => {
                    renderer
                        .git
                        .resolve(&access::git(&repo)?, &wanted, &source.tag_prefix, fresh)
                        .await?
                        .commit
                }
                RepoKind::Helm => {
                    renderer
                        .charts
                        .resolve(&chart_repo(&repo)?, &source.chart, &wanted, fresh)
                        .await?
                }
                RepoKind::Oci => {
                    renderer
                        .charts
                        .artifact(&chart_repo(&repo)?, &wanted, fresh)
                        .await?
                        .1
                }
            };
            let ambiguous_revision = if wanted == revision {
                revision.clone()
            } else {
                format!("{wanted} ({revision})")
            };
            Ok(wire::ResolveRevisionResponse {
                revision,
                ambiguous_revision,
            })
        })
        .await
    }

    async fn list_refs(&self, call: Call<wire::ListRefsRequest>) -> Result<Response<wire::Refs>, Status> {
        let repo = repo(call.into_inner().repo)?;
        self.run(async move |renderer| {
            let refs = renderer.git.refs(&access::git(&repo)?, false).await?;
            Ok(wire::Refs {
                branches: refs.branches(),
                tags: refs.tags(),
            })
        })
        .await
    }

    async fn list_oci_tags(&self, call: Call<wire::ListRefsRequest>) -> Result<Response<wire::Refs>, Status> {
        let repo = repo(call.into_inner().repo)?;
        self.run(async move |renderer| {
            let tags = renderer.charts.tags(&chart_repo(&repo)?, "", false).await?;
            Ok(wire::Refs {
                branches: Vec::new(),
                tags: tags.as_ref().clone(),
            })
        })
        .await
    }

    async fn list_apps(&self, call: Call<wire::ListAppsRequest>) -> Result<Response<wire::AppList>, Status> {
        let request = call.into_inner();
        let repo = repo(request.repo)?;
        let enabled: BTreeMap<String, bool> = request.enabled_source_types.into_iter().collect();
        self.run(async move |renderer| {
            let commit = renderer
                .commit(&access::git(&repo)?, &request.revision, false)
                .await?;
            let tree = Tree::Git(commit.tree());
            let root = tree.app_dir(&TreePath::root())?;
            let of_plugin = plugin::Request {
                tree: &tree,
                dir: &root,
                source: &ApplicationSource::default(),
                app: "",
                env: BuildEnv::default(),
                paths: "",
            };
            // As in Argo CD, a repository that a plugin takes is one application, the plugin's.
            if renderer.plugins.choose(None, &of_plugin).await?.plugin.is_some() {
                let kind = SourceType::Plugin.as_str().to_owned();
                return Ok(wire::AppList {
                    apps: [(root.path.to_string(), kind)].into(),
                });
            }
            let mut apps = Vec::new();
            for dir in directories(&tree, false)? {
                if let Some(kind) = detect::discover(&tree, &dir, &enabled)? {
                    apps.push((dir.path.to_string(), kind.as_str().to_owned()));
                }
            }
            Ok(wire::AppList {
                apps: apps.into_iter().collect(),
            })
        })
        .await
    }

    async fn list_plugins(&self, _: Call<()>) -> Result<Response<wire::PluginList>, Status> {
        let names = self.renderer.plugins.names().into_iter();
        let items = names.map(|name| wire::PluginInfo { name }).collect();
        Ok(Response::new(wire::PluginList { items }))
    }

    async fn get_app_details(
        &self,
        call: Call<wire::RepoServerAppDetailsQuery>,
    ) -> Result<Response<wire::RepoAppDetailsResponse>, Status> {
        let query = call.into_inner();
        let request = Request {
            repo: repo(query.repo)?,
            source: query.source.unwrap_or_default(),
            repos: query.repos,
            kustomize_options: query.kustomize_options.unwrap_or_default(),
            helm_options: query.helm_options.unwrap_or_default(),
            app_name: query.app_name,
            no_cache: query.no_cache,
            no_revision_cache: query.no_revision_cache,
            enabled_types: query.enabled_source_types.into_iter().collect(),
            ref_sources: query.ref_sources.into_iter().collect(),
            ..Request::default()
        };
        self.run(async move |renderer| details::details(&renderer, &request).await)
            .await
    }

    async fn get_revision_metadata(
        &self,
        call: Call<wire::RepoServerRevisionMetadataRequest>,
    ) -> Result<Response<RevisionMetadata>, Status> {
        let request = call.into_inner();
        let integrity = self.demanded(request.check_signature, request.source_integrity)?;
        let repo = repo(request.repo)?;
        self.run(async move |renderer| {
            let access = access::git(&repo)?;
            let commit = renderer.commit(&access, &request.revision, false).await?;
            let info = commit.info()?;
            let checked = match &integrity {
                Some(integrity) => {
                    let named = (request.revision.as_str(), "");
                    renderer.check(&repo, &commit.sha(), named, integrity).await?
                }
                None => None,
            };
            let (result, signatures) = checked.unzip();
            let tags = renderer
                .git
                .refs(&access, false)
                .await
                .map(|refs| refs.tags_at(&commit.sha()))
                .unwrap_or_default();
            Ok(RevisionMetadata {
                author: info.author,
                date: Some(v1alpha1_time(info.seconds)),
                tags,
                message: info.message,
                signature_info: signatures
                    .and_then(|signatures| signatures.first().map(signature_info))
                    .unwrap_or_default(),
                source_integrity_result: result,
                ..RevisionMetadata::default()
            })
        })
        .await
    }

    async fn get_oci_metadata(
        &self,
        call: Call<wire::RepoServerRevisionChartDetailsRequest>,
    ) -> Result<Response<OciMetadata>, Status> {
        let request = call.into_inner();
        let repo = repo(request.repo)?;
        self.run(async move |renderer| {
            let annotations = renderer
                .charts
                .annotations(&chart_repo(&repo)?, &request.revision)
                .await?;
            let of = |name: &str| {
                annotations
                    .get(&format!("org.opencontainers.image.{name}"))
                    .cloned()
                    .unwrap_or_default()
            };
            Ok(OciMetadata {
                created_at: of("created"),
                authors: of("authors"),
                image_url: of("url"),
                docs_url: of("documentation"),
                source_url: of("source"),
                version: of("version"),
                description: of("description"),
            })
        })
        .await
    }

    async fn get_revision_chart_details(
        &self,
        call: Call<wire::RepoServerRevisionChartDetailsRequest>,
    ) -> Result<Response<ChartDetails>, Status> {
        let request = call.into_inner();
        let repo = repo(request.repo)?;
        self.run(async move |renderer| {
            let repo = chart_repo(&repo)?;
            let version = renderer
                .charts
                .resolve(&repo, &request.name, &request.revision, false)
                .await?;
            if !repo.oci {
                let index = renderer.charts.index(&repo, false).await?;
                if let Some(entry) = index
                    .versions(&request.name)
                    .iter()
                    .find(|entry| entry.version == version)
                {
                    return Ok(ChartDetails {
                        description: entry.description.clone(),
                        home: entry.home.clone(),
                        maintainers: entry.maintainers.clone(),
                    });
                }
            }
            let chart = renderer.charts.fetch(&repo, &request.name, &version).await?;
            let tree = Tree::disk(&chart.path)?;
            let dir = tree.app_dir(&TreePath::root())?;
            let files = Arc::new(crate::materialise::Directory::borrowed(&chart.path));
            let location = helm::Location {
                tree: &tree,
                dir: &dir,
                files: &files,
                base: &TreePath::root(),
            };
            let details = helm::inspect(&location, &[], &renderer.workers).await?;
            Ok(ChartDetails {
                description: details.description,
                home: details.home,
                maintainers: details.maintainers,
            })
        })
        .await
    }

    async fn get_helm_charts(
        &self,
        call: Call<wire::HelmChartsRequest>,
    ) -> Result<Response<wire::HelmChartsResponse>, Status> {
        let repo = repo(call.into_inner().repo)?;
        self.run(async move |renderer| {
            let index = renderer.charts.index(&chart_repo(&repo)?, true).await?;
            let items = index
                .charts()
                .map(|(name, entries)| wire::HelmChart {
                    name: name.to_owned(),
                    versions: entries.iter().map(|entry| entry.version.clone()).collect(),
                })
                .collect();
            Ok(wire::HelmChartsResponse { items })
        })
        .await
    }

    async fn get_git_files(
        &self,
        call: Call<wire::GitFilesRequest>,
    ) -> Result<Response<wire::GitFilesResponse>, Status> {
        let request = call.into_inner();
        let integrity = self.demanded(request.verify_commit, request.source_integrity)?;
        let repo = repo(request.repo)?;
        self.run(async move |renderer| {
            let commit = renderer
                .commit(&access::git(&repo)?, &request.revision, request.no_revision_cache)
                .await?;
            if let Some(integrity) = &integrity {
                renderer
                    .require(&repo, &commit.sha(), &request.revision, integrity)
                    .await?;
            }
            let tree = Tree::Git(commit.tree());
            // The old way is git's, whose star crosses directories.
            let matcher = globset::GlobBuilder::new(request.path.trim_start_matches('/'))
                .literal_separator(request.new_git_file_globbing_enabled)
                .build()
                .map_err(|e| {
                    Error::Source(format!(
                        "failed to parse the pattern {:?}: {}",
                        request.path,
                        e.kind()
                    ))
                })?
                .compile_matcher();
            let root = tree.app_dir(&TreePath::root())?;
            let mut left = MAX_FILES;
            let mut files = Vec::new();
            for node in tree.walk(&root)? {
                if !matcher.is_match(node.path.as_str()) {
                    continue;
                }
                let content = tree.read_node(&node, left)?;
                left -= content.len() as u64;
                files.push((node.path.as_str().to_owned(), content));
            }
            Ok(wire::GitFilesResponse {
                map: files.into_iter().collect(),
            })
        })
        .await
    }

    async fn get_git_directories(
        &self,
        call: Call<wire::GitDirectoriesRequest>,
    ) -> Result<Response<wire::GitDirectoriesResponse>, Status> {
        let request = call.into_inner();
        let integrity = self.demanded(request.verify_commit, request.source_integrity)?;
        let repo = repo(request.repo)?;
        let hidden = self.include_hidden;
        self.run(async move |renderer| {
            let commit = renderer
                .commit(&access::git(&repo)?, &request.revision, request.no_revision_cache)
                .await?;
            if let Some(integrity) = &integrity {
                renderer
                    .require(&repo, &commit.sha(), &request.revision, integrity)
                    .await?;
            }
            let tree = Tree::Git(commit.tree());
            let all = directories(&tree, hidden)?;
            let paths = all
                .iter()
                .filter(|dir| !dir.path.is_root())
                .map(|dir| dir.path.as_str().to_owned())
                .collect();
            Ok(wire::GitDirectoriesResponse { paths })
        })
        .await
    }

    async fn update_revision_for_paths(
        &self,
        call: Call<wire::UpdateRevisionForPathsRequest>,
    ) -> Result<Response<wire::UpdateRevisionForPathsResponse>, Status> {
        let request = call.into_inner();
        let repo = repo(request.repo.clone())?;
        self.run(async move |renderer| {
            let access = access::git(&repo)?;
            let prefix = request
                .application_source
                .as_ref()
                .map(|source| source.tag_prefix.clone())
                .unwrap_or_default();
            let resolved = renderer
                .git
                .resolve(&access, &request.revision, &prefix, request.no_revision_cache)
                .await?;
            let revision = resolved.commit.clone();
            let answer = |changes| {
                Ok(wire::UpdateRevisionForPathsResponse {
                    changes,
                    revision: revision.clone(),
                })
            };
            // Refs point at other repositories, whose changes the paths do not describe.
            if request.paths.is_empty() || !request.ref_sources.is_empty() {
                return answer(true);
            }
            if revision == request.synced_revision {
                return answer(false);
            }
            let new = Tree::Git(renderer.git.commit(&access, &resolved).await?.tree());
            let old = Tree::Git(
                renderer
                    .commit(&access, &request.synced_revision, false)
                    .await?
                    .tree(),
            );
            // Nothing is carried over: a render finds unchanged content by itself.
            answer(changed(&old, &new, &request.paths)?)
        })
        .await
    }
}

/// Whether anything under the paths differs between two trees; a path may be a glob.
fn changed(old: &Tree, new: &Tree, paths: &[String]) -> Result<bool> {
    for text in paths {
        let Ok(path) = TreePath::parse(text.trim_start_matches('/')) else {
            return Ok(true);
        };
        if !text.contains(['*', '?', '[', '{']) {
            if old.content_id(&path)? != new.content_id(&path)? {
                return Ok(true);
            }
            continue;
        }
        let matcher = globset::GlobBuilder::new(path.as_str())
            .literal_separator(true)
            .build();
        let Ok(matcher) = matcher.map(|glob| glob.compile_matcher()) else {
            return Ok(true);
        };
        let matching = |tree: &Tree| -> Result<Vec<(TreePath, String)>> {
            let root = tree.app_dir(&TreePath::root())?;
            let files = tree
                .walk(&root)?
                .into_iter()
                .filter(|node| matcher.is_match(node.path.as_str()));
            Ok(files.map(|node| (node.path, node.id)).collect())
        };
        if matching(old)? != matching(new)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The source of an Application that a revision is asked for.
fn source_of(app: &v1alpha1::Application, index: i64) -> v1alpha1::ApplicationSource {
    let spec = &app.spec;
    if !spec.sources.is_empty() {
        return usize::try_from(index)
            .ok()
            .and_then(|index| spec.sources.get(index))
            .cloned()
            .unwrap_or_default();
    }
    spec.source.clone().unwrap_or_default()
}

/// All directories of a tree, the root first, sorted.
fn directories(tree: &Tree, hidden: bool) -> Result<Vec<Node>> {
    let mut all = vec![tree.app_dir(&TreePath::root())?];
    let mut at = 0;
    while let Some(dir) = all.get(at).cloned() {
        at += 1;
        for entry in tree.list(&dir)?.iter() {
            if entry.kind == RawKind::Directory && (hidden || !entry.name.starts_with('.')) {
                let path = dir.path.child(&entry.name);
                all.push(Node {
                    path,
                    is_dir: true,
                    executable: false,
                    id: entry.id.clone(),
                });
            }
        }
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(all)
}

/// A signature in the words that Argo CD's UI shows.
fn signature_info(signature: &Signature) -> String {
    let quality = match signature.verdict {
        Verdict::Unsigned => return "Revision is not signed.".into(),
        Verdict::Good => "Good",
        Verdict::Bad => "Bad",
        _ => "Invalid",
    };
    format!(
        "{quality} signature from {} key {}",
        signature.author, signature.key
    )
}

fn v1alpha1_time(seconds: i64) -> argosy_api::meta::Time {
    argosy_api::meta::Time { seconds, nanos: 0 }
}
