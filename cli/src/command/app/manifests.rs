//! `app manifests`

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, ensure};
use argosy_api::services::application::{ApplicationManifestQuery, ResourcesQuery};
use argosy_api::v1alpha1::{Application, ResourceDiff};
use argosy_object::Value;
use argosy_repo_server::local::{self, Files, LocalRequest};

use super::{Named, upload};
use crate::output;
use crate::remote::{Remote, ask};

#[derive(clap::Args)]
pub(super) struct Manifests {
    #[command(flatten)]
    app: Named,
    /// Out of Git, or live.
    #[arg(long, default_value = "git", value_parser = ["git", "live"])]
    source: String,
    #[command(flatten)]
    at: At,
}

/// Which manifests are meant instead of those that are compared.
#[derive(clap::Args)]
pub(super) struct At {
    /// At this revision.
    #[arg(long, default_value = "")]
    revision: String,
    /// At these revisions of the sources at --source-positions.
    #[arg(long)]
    revisions: Vec<String>,
    /// Positions of sources, counted from 1.
    #[arg(long, value_delimiter = ',')]
    source_positions: Vec<i64>,
    /// Rendered here, from this folder.
    #[arg(long, conflicts_with_all = ["revision", "revisions"])]
    local: Option<PathBuf>,
    /// The root of the repository that the folder is in.
    #[arg(long)]
    local_repo_root: Option<PathBuf>,
    /// Have the server render the files of the folder, the root of the repository, as it renders those of Git.
    #[arg(long, requires = "local", conflicts_with = "local_repo_root")]
    server_side_generate: bool,
    /// Which files are sent.
    #[arg(long, default_values = ["*.yaml", "*.yml", "*.json"], requires = "server_side_generate")]
    local_include: Vec<String>,
}

pub(super) async fn manifests(remote: &Remote, args: Manifests) -> Result<()> {
    let documents = match args.source.as_str() {
        "live" => {
            let managed = managed(remote, &args.app).await?;
            let live = managed.iter().map(|resource| state(&resource.live_state));
            live.filter_map(Result::transpose).collect::<Result<Vec<_>>>()?
        }
        _ => match args.at.rendered(remote, &args.app).await? {
            Some(rendered) => rendered,
            None => ask_for(remote, &args.app, ApplicationManifestQuery::default()).await?,
        },
    };
    let texts = documents
        .iter()
        .map(|document| format!("---\n{}", argosy_object::yaml::to_string(document)));
    output::text(&texts.collect::<String>())
}

impl At {
    /// The manifests that are meant instead, if others are.
    pub(super) async fn rendered(&self, remote: &Remote, app: &Named) -> Result<Option<Vec<Value>>> {
        ensure!(
            self.revisions.len() == self.source_positions.len(),
            "while using --revisions and --source-positions, length of values for both flags should be same"
        );
        if let Some(folder) = &self.local {
            if self.server_side_generate {
                let archive = upload::pack(folder, &self.local_include)?;
                return upload::rendered(remote, app, archive).await.map(Some);
            }
            let app = app.get(remote).await?;
            return here(&app, folder, self.local_repo_root.as_deref())
                .await
                .map(Some);
        }
        if self.revision.is_empty() && self.revisions.is_empty() {
            return Ok(None);
        }
        let query = ApplicationManifestQuery {
            revision: Some(self.revision.clone()).filter(|text| !text.is_empty()),
            revisions: self.revisions.clone(),
            source_positions: self.source_positions.clone(),
            ..ApplicationManifestQuery::default()
        };
        ask_for(remote, app, query).await.map(Some)
    }
}

/// Renders a folder of this machine as the Application's source would be.
pub(super) async fn here(app: &Application, folder: &Path, root: Option<&Path>) -> Result<Vec<Value>> {
    let sources = app.spec.effective_sources();
    let [source] = &sources[..] else {
        anyhow::bail!(
            "--local is for Applications of one source: this one has {}",
            sources.len()
        );
    };
    let folder = folder
        .canonicalize()
        .with_context(|| format!("find {}", folder.display()))?;
    let root = match root {
        Some(root) => root
            .canonicalize()
            .with_context(|| format!("find {}", root.display()))?,
        None => folder.clone(),
    };
    let path = folder
        .strip_prefix(&root)
        .with_context(|| format!("{} is not below {}", folder.display(), root.display()))?;
    let mut source = source.clone();
    source.path = match path.to_str() {
        Some("") | None => ".".to_owned(),
        Some(path) => path.to_owned(),
    };
    source.repo_url = format!("file://{}", root.display());
    let request = LocalRequest {
        files: Files::Directory(root),
        sources: vec![source],
        app_name: app.metadata.name.clone(),
        namespace: app.spec.destination.namespace.clone(),
        ..LocalRequest::default()
    };
    let rendered = local::render(request).await.map_err(|error| anyhow!("{error}"))?;
    for warning in &rendered.warnings {
        eprintln!("warning: {warning}");
    }
    Ok(rendered.objects)
}

async fn ask_for(remote: &Remote, app: &Named, query: ApplicationManifestQuery) -> Result<Vec<Value>> {
    let (namespace, name) = app.place();
    let query = ApplicationManifestQuery {
        name: name.to_owned(),
        app_namespace: Some(namespace.to_owned()),
        ..query
    };
    let answer = ask!(remote, applications.get_manifests(query));
    let read = |text: &String| serde_json::from_str(text).context("read a manifest");
    answer.manifests.iter().map(read).collect()
}

/// Desired and live state of what an Application manages, without hooks.
pub(super) async fn managed(remote: &Remote, app: &Named) -> Result<Vec<ResourceDiff>> {
    let (namespace, name) = app.place();
    let query = ResourcesQuery {
        application_name: name.to_owned(),
        app_namespace: Some(namespace.to_owned()),
        ..ResourcesQuery::default()
    };
    let mut items = ask!(remote, applications.managed_resources(query)).items;
    items.retain(|item| !item.hook);
    Ok(items)
}

/// A state as an object; none where there is none.
pub(super) fn state(text: &str) -> Result<Option<Value>> {
    match text {
        "" | "null" => Ok(None),
        text => serde_json::from_str(text).context("read a state").map(Some),
    }
}
