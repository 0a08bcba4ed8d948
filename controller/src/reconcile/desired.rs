//! Application → desired state: which sources, at which revisions, rendered by the repo-server.
//!
//! The last desired state is kept. It is handed out again without a call when what goes into rendering is as before, and
//! nothing asked for newer revisions, or the repo-server has just said that there are none ([`super::resolved`]); and a
//! rendering whose texts are the same as the last ones is not read again.

use std::sync::Arc;
use std::time::Duration;

use argosy_api::annotation;
use argosy_api::integrity;
use argosy_api::refs;
use argosy_api::repository::{ManifestRequest, ManifestResponse};
use argosy_api::v1alpha1::{AppProject, Application};
use argosy_object::{ContentHash, GroupKind, GroupVersionKind, Value};
use argosy_repo_client::Class;

use tokio::time::Instant;

use super::Request;
use super::manifest::{Desired, Finding, Kinds, sort_out};
use crate::apps;
use crate::clusters::Cluster;
use crate::context::{AppKey, Context};
use crate::queue::Refresh;
use crate::settings::Settings;

/// An answer of the repo-server is taken for its last word for so long.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(3600);

/// What rendering needs to know.
pub(crate) struct Render<'a> {
    pub ctx: &'a Context,
    pub app: &'a Application,
    pub project: &'a AppProject,
    pub cluster: &'a Cluster,
    pub settings: &'a Settings,
}

/// Why there is no desired state.
#[derive(Debug)]
pub(crate) struct Failed {
    pub message: String,
    /// After how long it may be otherwise, if nobody has to change anything for it.
    pub again: Option<Duration>,
}

impl From<String> for Failed {
    fn from(message: String) -> Failed {
        Failed { message, again: None }
    }
}

/// The desired state for `request`. `known` is the last one of this Application.
pub(crate) async fn desired(
    render: &Render<'_>,
    request: &Request,
    known: Option<Arc<Desired>>,
) -> Result<Arc<Desired>, Failed> {
    let kinds = || ClusterKinds::new(render.cluster, render.settings);
    let namespace = &render.app.spec.destination.namespace;
    if !request.manifests.is_empty() {
        let integrity = integrity::effective(&render.project.spec);
        if request
            .sources
            .iter()
            .any(|source| integrity::is_demanded(integrity.as_ref(), source))
        {
            return Err("Cannot use local manifests when source integrity is enforced"
                .to_owned()
                .into());
        }
        return Ok(Arc::new(local(render, request, &kinds())?));
    }
    let inputs = inputs(render, request);
    let revisions = revisions(render, request);
    if let Some(known) = &known
        && known.inputs == Some(inputs)
        && !request.hard
        && match &revisions {
            Some(revisions) => *revisions == known.revisions,
            None => has_not_moved(render, request, known),
        }
    {
        return Ok(known.clone());
    }
    let have = known
        .as_ref()
        .filter(|known| known.inputs == Some(inputs))
        .map_or(&[][..], |known| &known.digests);
    let mut responses = generate(render, request, revisions.as_deref(), have).await?;
    let all_known = known
        .as_ref()
        .is_some_and(|known| known.rendered == Some(rendered(&responses)));
    if responses.iter().any(|response| response.unchanged) && !all_known {
        // One source changed: the texts of the others, which were left out, are needed beside it.
        responses = generate(render, request, revisions.as_deref(), &[]).await?;
        if responses.iter().any(|response| response.unchanged) {
            // Taken for an empty answer, it would have everything pruned.
            let message = "the repo-server left out manifests that it was not told to leave out";
            return Err(message.to_owned().into());
        }
    }
    if revisions.is_none() {
        let project = apps::project_name(render.app);
        for (source, response) in request.sources.iter().zip(&responses) {
            let resolved = &render.ctx.memos.resolved;
            resolved.note(source, project, &response.revision);
        }
    }
    let rendered = rendered(&responses);
    let revisions: Vec<String> = responses
        .iter()
        .map(|response| response.revision.clone())
        .collect();
    let digests: Vec<String> = responses.iter().map(|response| response.digest.clone()).collect();
    let source_types: Vec<String> = responses
        .iter()
        .map(|response| response.source_type.clone())
        .collect();
    if let Some(known) = &known
        && known.rendered == Some(rendered)
        && known.inputs == Some(inputs)
    {
        let mut again = Desired {
            resources: known.resources.clone(),
            hooks: known.hooks.clone(),
            findings: known.findings.clone(),
            read_elsewhere: known.read_elsewhere.clone(),
            deletion_hooks: known.deletion_hooks,
            ..Desired::default()
        };
        (again.revisions, again.source_types) = (revisions, source_types);
        (again.rendered, again.inputs) = (Some(rendered), Some(inputs));
        (again.digests, again.answered) = (digests, Some(Instant::now()));
        return Ok(Arc::new(again));
    }
    let texts = responses.iter().flat_map(|response| &response.manifests);
    let manifests = texts
        .map(|text| serde_json::from_str::<Value>(text))
        .collect::<Result<Vec<_>, _>>();
    let manifests =
        manifests.map_err(|error| format!("the repo-server sent a manifest that is no JSON: {error}"))?;
    let mut desired = sort_out(manifests, namespace, &kinds())?;
    add_notes(&mut desired, &responses);
    (desired.revisions, desired.source_types) = (revisions, source_types);
    (desired.rendered, desired.inputs) = (Some(rendered), Some(inputs));
    (desired.digests, desired.answered) = (digests, Some(Instant::now()));
    Ok(Arc::new(desired))
}

/// Whether the targets still stand for what was rendered last. Now and then the repo-server is asked all the same: what a
/// rendering draws in from elsewhere may have changed although the revision has not. Signatures are its to judge each time.
fn has_not_moved(render: &Render<'_>, request: &Request, known: &Desired) -> bool {
    let integrity = integrity::effective(&render.project.spec);
    let demanded = |source| integrity::is_demanded(integrity.as_ref(), source);
    request.refresh < Refresh::ForceResolve
        && known.answered.is_some_and(|at| at.elapsed() < ANSWER_AGE_MAX)
        && !request.sources.iter().any(demanded)
        && render.ctx.memos.resolved.are(
            &request.sources,
            apps::project_name(render.app),
            &known.revisions,
            render.ctx.options.resync,
        )
}

/// What the repo-server says of files and objects. It knows the files, so its words about a fault stand for those found here.
fn add_notes(desired: &mut Desired, responses: &[ManifestResponse]) {
    let faults = || responses.iter().flat_map(|response| &response.faults);
    desired.findings.retain(|finding| match finding {
        Finding::Faulty(found) => !faults().any(|fault| fault.contains(found)),
        _ => true,
    });
    let odd = responses.iter().flat_map(|response| &response.warnings);
    let odd = odd.cloned().map(Finding::Odd);
    desired
        .findings
        .extend(faults().cloned().map(Finding::Faulty).chain(odd));
}

/// The desired state of a sync that brought its own manifests.
fn local(render: &Render<'_>, request: &Request, kinds: &ClusterKinds) -> Result<Desired, String> {
    let key = AppKey::of(render.app);
    let instance = key.instance(&render.ctx.options.namespace);
    let mut manifests = Vec::new();
    for text in &request.manifests {
        let mut object: Value = serde_json::from_str(text)
            .map_err(|error| format!("failed to parse a local manifest: {error}"))?;
        let namespace = &render.app.spec.destination.namespace;
        argosy_api::tracking::stamp(&mut object, &instance, namespace, &render.settings.tracking)
            .map_err(|error| format!("failed to track a local manifest: {error}"))?;
        manifests.push(object);
    }
    let mut desired = sort_out(manifests, &render.app.spec.destination.namespace, kinds)?;
    desired.revisions = request.revisions.clone();
    Ok(desired)
}

/// Exact revisions that will do; nothing if the repo-server is to find out what the targets stand for.
fn revisions(render: &Render<'_>, request: &Request) -> Option<Vec<String>> {
    if !request.revisions.is_empty() {
        return Some(request.revisions.clone());
    }
    if request.refresh >= Refresh::Latest {
        return None;
    }
    let sync = &render.app.status.sync;
    let revisions = match render.app.spec.has_multiple_sources() {
        true => sync.revisions.clone(),
        false => vec![sync.revision.clone()],
    };
    let known =
        revisions.len() == request.sources.len() && revisions.iter().all(|revision| !revision.is_empty());
    known.then_some(revisions)
}

/// Identity of all that goes into rendering and sorting out, besides the revisions.
fn inputs(render: &Render<'_>, request: &Request) -> ContentHash {
    let app = render.app;
    let parts = serde_json::json!({
        "sources": request.sources,
        "destination": app.spec.destination,
        "project": apps::project_name(app),
        "sourceRepos": render.project.spec.source_repos,
        "integrity": integrity::effective(&render.project.spec),
        "paths": app.metadata.annotations.get(annotation::MANIFEST_GENERATE_PATHS),
        "kube": render.cluster.kube_version(),
        "apis": render.cluster.api_versions_id().to_string(),
        "settings": render.settings.rendering,
    });
    ContentHash::of_value(&parts)
}

/// Identity of what was rendered: by the repo-server's digests where it gives them, else by the texts.
fn rendered(responses: &[ManifestResponse]) -> ContentHash {
    if responses.iter().all(|response| !response.digest.is_empty()) {
        let digests: Vec<&str> = responses
            .iter()
            .map(|response| response.digest.as_str())
            .collect();
        return ContentHash::of(digests.join("\n").as_bytes());
    }
    let mut bytes = Vec::new();
    for text in responses.iter().flat_map(|response| &response.manifests) {
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(b'\n');
    }
    ContentHash::of(&bytes)
}

/// Whether the same is rendered from `revisions` as `known` was; what cannot be said is no.
pub(super) async fn is_the_same(
    render: &Render<'_>,
    request: &Request,
    known: &Desired,
    revisions: &[String],
) -> bool {
    let told =
        |list: &[String]| list.len() == request.sources.len() && list.iter().all(|text| !text.is_empty());
    if !told(&known.digests) || !told(revisions) || known.inputs != Some(inputs(render, request)) {
        return false;
    }
    let request = Request {
        refresh: Refresh::Recent,
        hard: false,
        ..request.clone()
    };
    match generate(render, &request, Some(revisions), &known.digests).await {
        Ok(responses) => responses
            .iter()
            .map(|response| &response.digest)
            .eq(&known.digests),
        Err(error) => {
            tracing::debug!(
                app = render.app.metadata.name,
                error = error.message,
                "render what was synced last"
            );
            false
        }
    }
}

/// Asks the repo-server for each source; `have` are the digests of the answers that are still here.
async fn generate(
    render: &Render<'_>,
    request: &Request,
    revisions: Option<&[String]>,
    have: &[String],
) -> Result<Vec<ManifestResponse>, Failed> {
    let (app, settings, project) = (render.app, render.settings, render.project);
    let project_name = apps::project_name(app);
    let refs = refs::targets(&request.sources, revisions.unwrap_or_default(), |url| {
        settings.repositories.find(url, project_name)
    });
    let refs = refs.map_err(|error| Failed::from(format!("failed to get ref sources: {error}")))?;
    let (helm_repositories, helm_credentials) = settings.repositories.helm(project_name);
    let integrity = integrity::effective(&project.spec);
    let calls = request.sources.iter().enumerate().map(|(index, source)| {
        let revision = revisions
            .and_then(|revisions| revisions.get(index))
            .unwrap_or(&source.target_revision);
        let ask = ManifestRequest {
            repo: Some(settings.repositories.find(&source.repo_url, project_name)),
            revision: revision.clone(),
            no_cache: request.hard,
            no_revision_cache: request.refresh >= Refresh::ForceResolve,
            app_label_key: settings.tracking.label_key.clone(),
            app_name: AppKey::of(app).instance(&render.ctx.options.namespace),
            namespace: app.spec.destination.namespace.clone(),
            application_source: Some(source.clone()),
            repos: helm_repositories.clone(),
            helm_repo_creds: helm_credentials.clone(),
            kustomize_options: settings.kustomize_options(source),
            helm_options: settings.helm_options(),
            kube_version: render.cluster.kube_version().unwrap_or_default(),
            api_versions: render.cluster.api_versions().to_vec(),
            tracking_method: settings.tracking.method.as_str().to_owned(),
            enabled_source_types: settings.enabled_source_types(),
            has_multiple_sources: request.sources.len() > 1 || app.spec.has_multiple_sources(),
            ref_sources: refs.clone(),
            project_source_repos: project.spec.source_repos.clone(),
            project_name: project_name.to_owned(),
            annotation_manifest_generate_paths: app
                .metadata
                .annotations
                .get(annotation::MANIFEST_GENERATE_PATHS)
                .cloned()
                .unwrap_or_default(),
            installation_id: settings.tracking.installation_id.clone(),
            source_integrity: integrity.clone(),
            known_digest: have.get(index).cloned().unwrap_or_default(),
            faulty_too: true,
            ..ManifestRequest::default()
        };
        let demanded = integrity::is_demanded(integrity.as_ref(), source);
        async move {
            let count = request.sources.len();
            let answer = render.ctx.repo.generate_manifest(ask).await.map_err(|error| {
                let text = argosy_runtime::log::chain(&error);
                let message = format!(
                    "failed to generate manifest for source {} of {count}: {text}",
                    index + 1
                );
                let again = match error.class() {
                    Class::Retry { after } => Some(after),
                    Class::Stalled | Class::Bug => None,
                };
                Failed { message, again }
            })?;
            match &answer.source_integrity_result {
                Some(result) => match integrity::problems(result) {
                    Some(problems) => Err(Failed::from(format!(
                        "source {} of {count}: {problems}",
                        index + 1
                    ))),
                    None => Ok(answer),
                },
                None if demanded => Err(Failed::from(format!(
                    "source {} of {count}: the project demands signatures, and the repo-server verified none",
                    index + 1
                ))),
                None => Ok(answer),
            }
        }
    });
    futures::future::try_join_all(calls).await
}

/// What a cluster serves and the settings exclude.
pub(crate) struct ClusterKinds {
    discovery: argosy_kube_io::Discovery,
    schemas: Arc<argosy_object::schema::Schemas>,
    excluded: Arc<dyn Fn(&GroupKind) -> bool + Send + Sync>,
}

impl ClusterKinds {
    pub(crate) fn new(cluster: &Cluster, settings: &Settings) -> Self {
        ClusterKinds {
            discovery: cluster.discovery(),
            schemas: cluster.schemas(),
            excluded: settings.excluded(cluster.server()),
        }
    }
}

impl Kinds for ClusterKinds {
    fn namespaced(&self, kind: &GroupKind) -> Option<bool> {
        if let Some(resource) = self.discovery.preferred(kind) {
            return Some(resource.namespaced);
        }
        self.schemas
            .scope(kind)
            .map(|scope| scope == argosy_object::schema::Scope::Namespaced)
    }

    fn excluded(&self, kind: &GroupKind) -> bool {
        (self.excluded)(kind)
    }

    fn read_elsewhere(&self, gvk: &GroupVersionKind) -> bool {
        let read = self.discovery.preferred(&gvk.group_kind());
        read.is_some_and(|read| read.version != gvk.version)
            && self.discovery.exact(gvk).is_some()
            && argosy_diff::managed::differ_between_versions(&gvk.group, &gvk.kind)
    }
}
