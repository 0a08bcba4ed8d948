//! `render`: sources that nobody has rendered yet, by class: 200 small charts, 200 overlays, 50 programs, 200 plain directories, and
//! three heavy ones (4,000 resources under one overlay, a chart of a hundred charts, two thousand `tpl`). CPU seconds are those
//! of the repo-server with all its workers; fetching is done before.
//!
//! A peer's command is run once for each source, in its folder, with the class in `CLASS`, and prints the manifests (YAML
//! documents, or one JSON array): `helm template`, `kustomize build`, `jsonnet` by class, as a repo-server without workers runs them.
//! The objects of both are compared as sets; `differences` counts the sources whose objects differ.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use argosy_api::repository::ManifestRequest;
use argosy_api::v1alpha1::{ApplicationSource, Repository};
use argosy_object::yaml;
use argosy_repo_client::RepoClient;
use argosy_test_cluster::git::Repository as Repo;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::Value;

use super::Context;
use crate::repo_server::RepoServers;
use crate::report::Who;
use crate::{sources, usage};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Sources of each small class; a quarter as many programs.
    #[arg(long, default_value_t = 200)]
    sources: usize,
    /// Requests at once.
    #[arg(long, default_value_t = 4)]
    callers: usize,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("argosy-perf-").tempdir()?;
    let repo = Repo::init(dir.path().join("repository"))?;
    let classes = sources::write(&repo, args.sources)?;
    repo.write("warm/a.yaml", &sources::config_map("a", "b"))?;
    repo.write("warm/chart/Chart.yaml", "apiVersion: v2\nname: warm\nversion: 1.0.0\n")?;
    repo.commit("all")?;
    let servers = RepoServers::start(&context.program, 1).await?;
    let client = servers.client()?;
    // The repository is fetched and the workers are there before anything is measured.
    client.generate_manifest(request(&repo, "warm")).await?;
    client.generate_manifest(request(&repo, "warm/chart")).await?;

    let mut differences = 0;
    for class in &classes {
        context.report.progress(&format!("{} sources of class {}", class.folders.len(), class.name));
        let before = servers.cpu_seconds()?;
        let answers: Vec<Vec<String>> = stream::iter(&class.folders)
            .map(|folder| manifests(&client, request(&repo, folder)))
            .buffered(args.callers)
            .try_collect()
            .await?;
        let used = servers.cpu_seconds()? - before;
        let metric = format!("renders_per_cpu_second_{}", class.name);
        let rate = |used: f64| class.folders.len() as f64 / used.max(0.01);
        context.report.figure("render", &metric, rate(used), "renders a CPU second");
        let Some(command) = &context.peer else { continue };
        let mut spent = 0.0;
        for (folder, ours) in class.folders.iter().zip(&answers) {
            let (text, used) = by_peer(command, class.name, &repo.dir().join(folder))?;
            spent += used;
            let differs = objects_of_texts(ours)? != objects(&text).with_context(|| format!("read what the peer made of {folder}"))?;
            if differs {
                context.report.progress(&format!("{folder} differs"));
            }
            differences += usize::from(differs);
        }
        context.report.of(Who::Peer, "render", &metric, rate(spent), "renders a CPU second");
        context.report.figure("render", &format!("over_peer_{}", class.name), spent / used.max(0.01), "times");
    }
    if context.peer.is_some() {
        context.report.figure("render", "differences", differences as f64, "sources");
    }
    Ok(())
}

async fn manifests(client: &RepoClient, request: ManifestRequest) -> Result<Vec<String>> {
    Ok(client.generate_manifest(request).await?.manifests)
}

fn request(repo: &Repo, folder: &str) -> ManifestRequest {
    let url = repo.url();
    ManifestRequest {
        repo: Some(Repository {
            repo: url.clone(),
            ..Repository::default()
        }),
        application_source: Some(ApplicationSource {
            repo_url: url,
            path: folder.to_owned(),
            ..ApplicationSource::default()
        }),
        app_name: "app".into(),
        namespace: "default".into(),
        tracking_method: "annotation".into(),
        kube_version: "1.34.0".into(),
        api_versions: sources::API_VERSIONS.iter().map(|text| (*text).to_owned()).collect(),
        ..ManifestRequest::default()
    }
}

/// Runs the command once; its output, and the CPU seconds that it took.
fn by_peer(command: &str, class: &str, folder: &Path) -> Result<(String, f64)> {
    let own = std::process::id();
    let before = usage::children_cpu_seconds(own)?;
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(folder)
        .env("CLASS", class)
        .output()
        .context("run the peer")?;
    ensure!(
        output.status.success(),
        "the peer in {}: {}",
        folder.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).context("read what the peer prints")?;
    Ok((text, usage::children_cpu_seconds(own)? - before))
}

/// The objects of a text, in one order, without the marks of an Application.
fn objects(text: &str) -> Result<Vec<String>> {
    let limits = yaml::Limits {
        bytes: 256 << 20,
        nodes: 20_000_000,
        ..yaml::Limits::default()
    };
    let mut found = Vec::new();
    for document in yaml::parse_all(text.as_bytes(), &limits)? {
        take(document.value, &mut found);
    }
    Ok(sorted(found))
}

fn objects_of_texts(texts: &[String]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for text in texts {
        take(serde_json::from_str(text)?, &mut found);
    }
    Ok(sorted(found))
}

fn take(value: Value, found: &mut Vec<Value>) {
    match value {
        Value::Array(items) => items.into_iter().for_each(|item| take(item, found)),
        Value::Null => {}
        mut object => {
            let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
            if let Some(annotations) = annotations {
                annotations.remove("argocd.argoproj.io/tracking-id");
                if annotations.is_empty()
                    && let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut)
                {
                    metadata.remove("annotations");
                }
            }
            found.push(object);
        }
    }
}

fn sorted(objects: Vec<Value>) -> Vec<String> {
    let mut texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    texts.sort();
    texts
}
