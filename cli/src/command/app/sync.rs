//! `app sync`, `app terminate-op`

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use argosy_api::services::application::{ApplicationSyncRequest, OperationTerminateRequest, SyncOptions};
use argosy_api::v1alpha1::{
    Application, Backoff, Info, RetryStrategy, SyncOperationResource, SyncStrategy, SyncStrategyApply,
    SyncStrategyHook,
};

use super::options::{pair, pairs};
use super::resources::Wanted;
use super::show::{self, FORMATS, show};
use super::wait::{Until, Waited, degraded, timed_out, wait_for};
use super::{Named, Several, diff, manifests, qualified};
use crate::remote::{Remote, ask};
use crate::{input, output};

#[derive(clap::Args)]
pub(super) struct Sync {
    #[command(flatten)]
    apps: Several,
    /// All of these projects.
    #[arg(long)]
    project: Vec<String>,
    /// To this revision.
    #[arg(long, default_value = "")]
    revision: String,
    /// To these revisions of the sources at --source-positions.
    #[arg(long)]
    revisions: Vec<String>,
    /// Positions of sources, counted from 1.
    #[arg(long, value_delimiter = ',')]
    source_positions: Vec<i64>,
    /// To what this folder renders to, here, in place of Git. The Application must not be synced automatically.
    #[arg(long, conflicts_with_all = ["revision", "revisions", "selector"])]
    local: Option<PathBuf>,
    /// The root of the repository that the folder is in.
    #[arg(long, requires = "local")]
    local_repo_root: Option<PathBuf>,
    /// Delete what is no longer in Git.
    #[arg(long)]
    prune: bool,
    /// Change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Only these: GROUP:KIND:NAME or GROUP:KIND:NAMESPACE/NAME; `*` stands for anything, `!` before it for all others.
    #[arg(long)]
    resource: Vec<String>,
    /// NAME=VALUE: only resources with this label.
    #[arg(long)]
    label: Vec<String>,
    /// Delete and create what cannot be changed.
    #[arg(long)]
    force: bool,
    /// Replace instead of apply.
    #[arg(long)]
    replace: bool,
    /// Apply on the server's side.
    #[arg(long)]
    server_side: bool,
    /// Leave alone what is in sync.
    #[arg(long)]
    apply_out_of_sync_only: bool,
    /// With hooks or without.
    #[arg(long, value_parser = ["apply", "hook"])]
    strategy: Option<String>,
    /// NAME=VALUE, kept with the operation.
    #[arg(long)]
    info: Vec<String>,
    /// Attempts; below 0 without end.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    retry_limit: i64,
    /// Attempts after the first look for the newest revision.
    #[arg(long)]
    retry_refresh: bool,
    /// Wait before the second attempt.
    #[arg(long, default_value = "5s")]
    retry_backoff_duration: String,
    /// The longest wait.
    #[arg(long, default_value = "3m0s")]
    retry_backoff_max_duration: String,
    /// By how much the wait grows.
    #[arg(long, default_value_t = 2)]
    retry_backoff_factor: i64,
    /// Show what differs first, and ask.
    #[arg(long)]
    preview_changes: bool,
    /// Do not ask.
    #[arg(long = "assumeYes", alias = "assume-yes")]
    assume_yes: bool,
    /// Do not wait.
    #[arg(long = "async")]
    no_wait: bool,
    /// Seconds to wait; 0 for ever.
    #[arg(long, default_value_t = 0)]
    timeout: u64,
    /// How to print them afterwards.
    #[arg(long, short, default_value = "wide", value_parser = FORMATS)]
    output: String,
}

pub(super) async fn sync(remote: &Remote, args: Sync) -> Result<ExitCode> {
    ensure!(
        args.revisions.len() == args.source_positions.len(),
        "while using --revisions and --source-positions, length of values for both flags should be same"
    );
    let apps = args.apps.resolve(remote, args.project.clone()).await?;
    let mut code = ExitCode::SUCCESS;
    for named in apps {
        if one(remote, &args, &named).await? != ExitCode::SUCCESS {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

impl Sync {
    /// What is to be synced in place of what is in Git.
    async fn manifests(&self, app: &Application) -> Result<Vec<String>> {
        let Some(folder) = &self.local else {
            return Ok(Vec::new());
        };
        let automated = app
            .spec
            .sync_policy
            .as_ref()
            .and_then(|policy| policy.automated.as_ref());
        let is_on = automated.is_some_and(|automated| automated.enabled != Some(false));
        ensure!(
            !is_on || self.dry_run,
            "Cannot use local sync when Automatic Sync Policy is enabled except with --dry-run"
        );
        let rendered = manifests::here(app, folder, self.local_repo_root.as_deref()).await?;
        // Without manifests the server would take those of Git.
        ensure!(
            !rendered.is_empty(),
            "{} has no manifests: there is nothing to sync",
            folder.display()
        );
        Ok(rendered.iter().map(argosy_object::Value::to_string).collect())
    }
}

async fn one(remote: &Remote, args: &Sync, named: &Named) -> Result<ExitCode> {
    let app = named.get(remote).await?;
    let resources = chosen(remote, args, &app).await?;
    if args.preview_changes {
        output::text(&format!(
            "====== Previewing differences between live and desired state of application {} ======\n",
            qualified(&app)
        ))?;
        if !diff::show_all(remote, &app).await? {
            output::text("====== No Differences found ======\n")?;
            return Ok(ExitCode::SUCCESS);
        }
        let question = format!(
            "Please review changes to application {} shown above. Do you want to continue the sync process?",
            qualified(&app)
        );
        if !input::asked(&question, args.assume_yes)? {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let request = ApplicationSyncRequest {
        name: app.metadata.name.clone(),
        app_namespace: Some(app.metadata.namespace.clone()),
        revision: Some(args.revision.clone()),
        revisions: args.revisions.clone(),
        source_positions: args.source_positions.clone(),
        prune: Some(args.prune),
        dry_run: Some(args.dry_run),
        strategy: args.strategy(),
        resources: resources.clone(),
        infos: pairs("--info", &args.info)?
            .into_iter()
            .map(|(name, value)| Info { name, value })
            .collect(),
        retry_strategy: args.retry(),
        sync_options: args.options(),
        manifests: args.manifests(&app).await?,
        ..ApplicationSyncRequest::default()
    };
    ask!(remote, applications.sync(request));
    if args.no_wait {
        return Ok(ExitCode::SUCCESS);
    }
    let until = Until {
        operation: true,
        ..Until::default()
    };
    let wanted = Wanted::exactly(&resources);
    outcome(
        remote,
        named,
        until,
        &wanted,
        args.timeout,
        &args.output,
        args.dry_run,
    )
    .await
}

/// Waits for the end of an operation and prints it; exit code 1 if it failed or took too long.
pub(super) async fn outcome(
    remote: &Remote,
    named: &Named,
    until: Until,
    wanted: &Wanted,
    timeout: u64,
    format: &str,
    dry_run: bool,
) -> Result<ExitCode> {
    let waited = wait_for(
        remote,
        named,
        until,
        wanted,
        Duration::from_secs(timeout),
        format == "wide",
    )
    .await?;
    let app = match waited {
        Waited::Met(app) => app,
        Waited::Deleted => bail!("application '{}' was deleted", named.name),
        Waited::Degraded(app, before) => {
            degraded(remote, &app, &before, format).await?;
            return Ok(ExitCode::FAILURE);
        }
        Waited::TimedOut => {
            timed_out(remote, named, timeout, format).await?;
            return Ok(ExitCode::FAILURE);
        }
    };
    show(remote, &app, format).await?;
    if format == "wide" {
        output::text(&format!("\n{}", show::operation(&app)))?;
    }
    let Some(state) = app.status.operation_state.as_ref().filter(|_| !dry_run) else {
        return Ok(ExitCode::SUCCESS);
    };
    if state.phase != "Succeeded" {
        eprintln!("Operation has completed with phase: {}", state.phase);
        return Ok(ExitCode::FAILURE);
    }
    let results = state
        .sync_result
        .as_ref()
        .map_or(&[][..], |result| &result.resources);
    let left = results
        .iter()
        .filter(|result| result.status == "PruneSkipped")
        .count();
    if wanted.all() && app.status.sync.status != "Synced" && left > 0 {
        eprintln!("{left} resources require pruning");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The resources that are to be synced; none for all.
async fn chosen(remote: &Remote, args: &Sync, app: &Application) -> Result<Vec<SyncOperationResource>> {
    let wanted = Wanted::read(&args.resource)?;
    let as_operation = |resource: &argosy_api::v1alpha1::ResourceStatus| SyncOperationResource {
        group: resource.group.clone(),
        kind: resource.kind.clone(),
        namespace: resource.namespace.clone(),
        name: resource.name.clone(),
    };
    if !args.label.is_empty() {
        let labels = args
            .label
            .iter()
            .map(|text| pair("--label", text))
            .collect::<Result<Vec<_>>>()?;
        let found = diff::with_labels(remote, app, &labels).await?;
        ensure!(
            !found.is_empty(),
            "no matching resources found for labels: {}",
            args.label.join(", ")
        );
        return Ok(found);
    }
    if args.resource.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(plain) = wanted.plain() {
        return Ok(plain);
    }
    let found: Vec<_> = app
        .status
        .resources
        .iter()
        .filter(|resource| {
            wanted.has(
                &resource.group,
                &resource.kind,
                &resource.namespace,
                &resource.name,
            )
        })
        .map(as_operation)
        .collect();
    ensure!(
        !found.is_empty(),
        "no matching app resources found for resource filter: {}",
        args.resource.join(", ")
    );
    Ok(found)
}

impl Sync {
    fn strategy(&self) -> Option<SyncStrategy> {
        let apply = SyncStrategyApply { force: self.force };
        match self.strategy.as_deref() {
            Some("apply") => Some(SyncStrategy {
                apply: Some(apply),
                hook: None,
            }),
            None if !self.force => None,
            _ => Some(SyncStrategy {
                apply: None,
                hook: Some(SyncStrategyHook {
                    sync_strategy_apply: apply,
                }),
            }),
        }
    }

    fn options(&self) -> Option<SyncOptions> {
        let flags = [
            (self.replace, "Replace=true"),
            (self.server_side, "ServerSideApply=true"),
            (self.apply_out_of_sync_only, "ApplyOutOfSyncOnly=true"),
        ];
        let items: Vec<String> = flags
            .into_iter()
            .filter(|(set, _)| *set)
            .map(|(_, option)| option.to_owned())
            .collect();
        (!items.is_empty()).then_some(SyncOptions { items })
    }

    fn retry(&self) -> Option<RetryStrategy> {
        (self.retry_limit != 0).then(|| RetryStrategy {
            limit: self.retry_limit,
            refresh: self.retry_refresh,
            backoff: Some(Backoff {
                duration: self.retry_backoff_duration.clone(),
                max_duration: self.retry_backoff_max_duration.clone(),
                factor: Some(self.retry_backoff_factor),
            }),
        })
    }
}

#[derive(clap::Args)]
pub(super) struct TerminateOp {
    #[command(flatten)]
    app: Named,
}

pub(super) async fn terminate(remote: &Remote, args: TerminateOp) -> Result<()> {
    let (namespace, name) = args.app.place();
    let request = OperationTerminateRequest {
        name: name.to_owned(),
        app_namespace: Some(namespace.to_owned()),
        project: None,
    };
    ask!(remote, applications.terminate_operation(request));
    output::text(&format!("Application '{name}' operation terminating\n")).context("tell the end")
}
