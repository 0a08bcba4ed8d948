//! What the tool of a source can be told: parameters and value files of a chart, images of a kustomization, the parameters that a
//! plugin announces.

use super::repo;
use crate::error::{Error, Result};
use crate::path::TreePath;
use crate::render::{Located, Renderer, Request, build_env, caller, plugin_request};
use crate::source::detect::{self, SourceType};
use crate::source::{helm, kustomize, overrides};
use argosy_api::repository as wire;
use argosy_api::v1alpha1;
use std::sync::Arc;
use tonic::Status;

/// Describes a source.
pub(super) async fn details(
    renderer: Arc<Renderer>,
    query: wire::RepoServerAppDetailsQuery,
) -> Result<wire::RepoAppDetailsResponse, Status> {
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
    Ok(described(&renderer, &request).await?)
}

async fn described(renderer: &Renderer, request: &Request) -> Result<wire::RepoAppDetailsResponse> {
    let _entered = renderer.load.enter(&request.app_name, None).await?;
    let located = renderer.locate(request).await?;
    let dir = located.tree.app_dir(&located.path)?;
    let source = overrides::apply(&request.source, &located.tree, &dir, &request.app_name)?;
    let mut answer = wire::RepoAppDetailsResponse::default();
    let for_plugins = plugin_request(request, &located, &dir, &source);
    let plugins = &renderer.plugins;
    let choice = plugins.choose(detect::explicit(&source)?, &for_plugins).await?;
    if let Some(plugin) = &choice.plugin {
        answer.r#type = SourceType::Plugin.as_str().to_owned();
        answer.plugin = Some(wire::PluginAppSpec {
            parameters_announcement: plugins.announce(plugin, &for_plugins).await?,
        });
        return Ok(answer);
    }
    let kind = detect::detect(&source, &located.tree, &dir, &request.enabled_types)?;
    answer.r#type = kind.as_str().to_owned();
    match kind {
        SourceType::Helm => answer.helm = Some(chart_details(renderer, &located, &source).await?),
        SourceType::Kustomize => answer.kustomize = Some(images(renderer, request, &located, &source).await?),
        SourceType::Directory | SourceType::Plugin => {
            answer.directory = Some(wire::DirectoryAppSpec::default());
        }
    }
    Ok(answer)
}

async fn chart_details(
    renderer: &Renderer,
    located: &Located,
    source: &v1alpha1::ApplicationSource,
) -> Result<wire::HelmAppSpec> {
    let selected = source
        .helm
        .as_ref()
        .map(|helm| helm.value_files.clone())
        .unwrap_or_default();
    let held = renderer.held(located, &TreePath::root()).await?;
    let dir = located.tree.app_dir(&located.path)?;
    let details = helm::inspect(&held.location(&located.tree, &dir), &selected, &renderer.workers).await?;
    Ok(wire::HelmAppSpec {
        name: details.name,
        value_files: details.values_files,
        values: details.values,
        parameters: details
            .parameters
            .into_iter()
            .map(|one| v1alpha1::HelmParameter {
                name: one.name,
                value: one.value,
                force_string: false,
            })
            .collect(),
        file_parameters: source
            .helm
            .as_ref()
            .map(|helm| helm.file_parameters.clone())
            .unwrap_or_default(),
    })
}

async fn images(
    renderer: &Renderer,
    request: &Request,
    located: &Located,
    source: &v1alpha1::ApplicationSource,
) -> Result<wire::KustomizeAppSpec> {
    let scratch = tempfile::tempdir_in(&renderer.scratch)
        .map_err(|e| Error::io("failed to create a private directory", e))?;
    let options = source.kustomize.clone().unwrap_or_default();
    let remotes = renderer.remotes(request, scratch.path());
    let env = build_env(request, &located.revision, source);
    let request = kustomize::Request {
        caller: caller(request, source),
        kustomize: &options,
        options: &request.kustomize_options,
        kube_version: "",
        api_versions: &[],
        env: &env,
        remotes: &remotes,
        max_output: renderer.limits.output_bytes,
    };
    let held = renderer.held(located, &TreePath::root()).await?;
    let dir = located.tree.app_dir(&located.path)?;
    let location = held.location(&located.tree, &dir);
    let images = kustomize::images(&location, &request, &renderer.workers).await?;
    Ok(wire::KustomizeAppSpec { images })
}
