//! `argosy render`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use argosy_api::v1alpha1::{Application, ApplicationSource, ApplicationSourceHelm, HelmParameter};
use argosy_repo_server::local::{self, Files, LocalRequest};
use argosy_repo_server::render::Tracking;

use crate::input;
use crate::output::{self, Documents};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The Application whose sources are rendered.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["repo", "chart"], required_unless_present = "repo")]
    app: Option<PathBuf>,
    /// URL of the repository, or a directory of this machine as it is (also one that is no repository).
    #[arg(long, value_name = "URL|DIR")]
    repo: Option<String>,
    /// Branch, tag, commit or version range [default: HEAD].
    #[arg(long)]
    revision: Option<String>,
    /// Folder in the repository.
    #[arg(long, value_name = "FOLDER")]
    path: Option<String>,
    /// Chart of a Helm repository instead of a folder.
    #[arg(long, conflicts_with = "path")]
    chart: Option<String>,
    /// Helm value files, relative to the folder.
    #[arg(long = "values", value_name = "FILE")]
    value_files: Vec<String>,
    /// Helm parameters.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// Name of the Application; also the Helm release.
    #[arg(long, default_value = "app")]
    name: String,
    /// Namespace of the destination [default: the Application's].
    #[arg(long)]
    namespace: Option<String>,
    /// Version of the target cluster.
    #[arg(long, default_value = "1.36.0")]
    kube_version: String,
    /// API versions that the target cluster serves, such as monitoring.coreos.com/v1.
    #[arg(long = "api-version", value_name = "GROUP/VERSION[/KIND]")]
    api_versions: Vec<String>,
    /// Mark every object as the Application's, as the repo-server does.
    #[arg(long)]
    tracking: bool,
    /// The render worker [default: argosy-render-worker beside this program].
    #[arg(long, env = "ARGOSY_RENDER_WORKER")]
    render_worker: Option<PathBuf>,
    /// Format.
    #[arg(short, long, value_enum, default_value_t = Documents::Yaml)]
    output: Documents,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let (format, mut request) = (args.output, LocalRequest::default());
    request.kube_version.clone_from(&args.kube_version);
    request.api_versions.clone_from(&args.api_versions);
    request.render_worker.clone_from(&args.render_worker);
    request.revision = args.revision.clone().unwrap_or_default();
    request.app_name.clone_from(&args.name);
    match &args.app {
        Some(file) => take_application(&mut request, &input::application(file)?, file)?,
        None => take_source(&mut request, &args)?,
    }
    if let Some(namespace) = &args.namespace {
        request.namespace.clone_from(namespace);
    }
    if args.tracking {
        request.tracking = Some(Tracking::default());
    }
    let rendered = local::render(request).await.map_err(|error| anyhow!("{error}"))?;
    for warning in &rendered.warnings {
        eprintln!("warning: {warning}");
    }
    output::documents(&rendered.objects, format)?;
    Ok(ExitCode::SUCCESS)
}

fn take_application(request: &mut LocalRequest, application: &Application, file: &Path) -> Result<()> {
    let spec = &application.spec;
    request.sources = match (&spec.sources[..], &spec.source) {
        ([], Some(source)) => vec![source.clone()],
        ([], None) => bail!(
            "{}: the Application has neither spec.source nor spec.sources",
            file.display()
        ),
        (sources, _) => sources.to_vec(),
    };
    request.app_name.clone_from(&application.metadata.name);
    request.namespace.clone_from(&spec.destination.namespace);
    if !spec.project.is_empty() {
        request.project.clone_from(&spec.project);
    }
    Ok(())
}

fn take_source(request: &mut LocalRequest, args: &Args) -> Result<()> {
    let repo = args.repo.clone().unwrap_or_default();
    let directory = Path::new(&repo);
    let is_git = directory.join(".git").exists() || directory.join("HEAD").is_file();
    if directory.is_dir() && (args.revision.is_none() || !is_git) {
        request.files = Files::Directory(directory.to_path_buf());
    }
    request.sources = vec![ApplicationSource {
        repo_url: if directory.is_dir() {
            format!("file://{}", directory.canonicalize()?.display())
        } else {
            repo
        },
        path: args.path.clone().unwrap_or_else(|| {
            if args.chart.is_some() {
                String::new()
            } else {
                ".".to_owned()
            }
        }),
        chart: args.chart.clone().unwrap_or_default(),
        target_revision: args.revision.clone().unwrap_or_default(),
        helm: helm(args)?,
        ..ApplicationSource::default()
    }];
    Ok(())
}

fn helm(args: &Args) -> Result<Option<ApplicationSourceHelm>> {
    if args.value_files.is_empty() && args.parameters.is_empty() {
        return Ok(None);
    }
    let parameters = args
        .parameters
        .iter()
        .map(|parameter| match parameter.split_once('=') {
            Some((name, value)) => Ok(HelmParameter {
                name: name.to_owned(),
                value: value.to_owned(),
                ..HelmParameter::default()
            }),
            None => bail!("--set {parameter}: NAME=VALUE is expected"),
        });
    Ok(Some(ApplicationSourceHelm {
        value_files: args.value_files.clone(),
        parameters: parameters.collect::<Result<_>>()?,
        ..ApplicationSourceHelm::default()
    }))
}
