//! `app diff`

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use argosy_api::services::application::{ApplicationQuery, ApplicationServerSideDiffQuery};
use argosy_api::v1alpha1::{Application, SyncOperationResource};
use argosy_object::{Value, meta, yaml};

use super::Named;
use super::manifests::{At, managed, state};
use crate::command::compared;
use crate::output;
use crate::remote::{Remote, ask};

#[derive(clap::Args)]
pub(super) struct Diff {
    #[command(flatten)]
    app: Named,
    /// Have it looked at first.
    #[arg(long)]
    refresh: bool,
    /// The same without the cache of manifests.
    #[arg(long)]
    hard_refresh: bool,
    /// A difference is an exit code of its own.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    exit_code: bool,
    /// Which one.
    #[arg(long, default_value_t = 1)]
    diff_exit_code: u8,
    /// Have the cluster's API server tell what an apply would make.
    #[arg(long)]
    server_side_diff: bool,
    #[command(flatten)]
    at: At,
}

/// One resource whose two sides differ.
struct Different {
    /// `group/kind namespace/name`.
    title: String,
    live: Option<Value>,
    target: Option<Value>,
}

pub(super) async fn diff(remote: &Remote, args: Diff) -> Result<ExitCode> {
    let refresh = match (args.hard_refresh, args.refresh) {
        (true, _) => Some("hard".to_owned()),
        (_, true) => Some("normal".to_owned()),
        _ => None,
    };
    let app = ask!(
        remote,
        applications.get(ApplicationQuery {
            refresh,
            ..args.app.query()
        })
    );
    let different = match args.at.rendered(remote, &args.app).await? {
        Some(rendered) => with(remote, &args.app, &app, rendered).await?,
        None if args.server_side_diff => server_side(remote, &args.app, &app).await?,
        None => compared(remote, &args.app).await?,
    };
    let found = !different.is_empty();
    print(different)?;
    Ok(match found && args.exit_code {
        true => ExitCode::from(args.diff_exit_code),
        false => ExitCode::SUCCESS,
    })
}

/// Shows what differs of an Application; whether anything does.
pub(super) async fn show_all(remote: &Remote, app: &Application) -> Result<bool> {
    let named = Named {
        name: app.metadata.name.clone(),
        app_namespace: app.metadata.namespace.clone(),
    };
    let different = compared(remote, &named).await?;
    let found = !different.is_empty();
    print(different)?;
    Ok(found)
}

/// The managed resources whose manifest has these labels.
pub(super) async fn with_labels(
    remote: &Remote,
    app: &Application,
    labels: &[(String, String)],
) -> Result<Vec<SyncOperationResource>> {
    let named = Named {
        name: app.metadata.name.clone(),
        app_namespace: app.metadata.namespace.clone(),
    };
    let mut found = Vec::new();
    for item in managed(remote, &named).await? {
        let Some(target) = state(&item.target_state)? else {
            continue;
        };
        let has =
            |(name, value): &(String, String)| target["metadata"]["labels"][name.as_str()] == value.as_str();
        if labels.iter().all(has) {
            found.push(SyncOperationResource {
                group: item.group,
                kind: item.kind,
                namespace: item.namespace,
                name: item.name,
            });
        }
    }
    Ok(found)
}

/// What the controller's comparison says.
async fn compared(remote: &Remote, app: &Named) -> Result<Vec<Different>> {
    let mut different = Vec::new();
    for item in managed(remote, app).await? {
        let (live, target) = match item.modified {
            true => (
                state(&item.normalized_live_state)?,
                state(&item.predicted_live_state)?,
            ),
            false => (state(&item.live_state)?, state(&item.target_state)?),
        };
        if item.modified || live.is_none() != target.is_none() {
            let title = format!("{}/{} {}/{}", item.group, item.kind, item.namespace, item.name);
            different.push(Different { title, live, target });
        }
    }
    Ok(different)
}

/// What a dry run of the apply makes of the live objects.
async fn server_side(remote: &Remote, named: &Named, app: &Application) -> Result<Vec<Different>> {
    let managed = managed(remote, named).await?;
    let query = ApplicationServerSideDiffQuery {
        app_name: app.metadata.name.clone(),
        app_namespace: Some(app.metadata.namespace.clone()),
        project: Some(app.spec.project.clone()),
        target_manifests: managed.iter().map(|item| item.target_state.clone()).collect(),
        live_resources: managed,
    };
    let answer = ask!(remote, applications.server_side_diff(query));
    let mut different = Vec::new();
    for item in answer.items.into_iter().filter(|item| item.modified) {
        let title = format!("{}/{} {}/{}", item.group, item.kind, item.namespace, item.name);
        different.push(Different {
            title,
            live: state(&item.live_state)?,
            target: state(&item.target_state)?,
        });
    }
    Ok(different)
}

/// Other manifests against what is live, compared here as the controller would.
async fn with(
    remote: &Remote,
    named: &Named,
    app: &Application,
    desired: Vec<Value>,
) -> Result<Vec<Different>> {
    let mut live = Vec::new();
    for item in managed(remote, named).await? {
        live.extend(state(&item.live_state)?);
    }
    // What the server tells of Secrets is masked: a comparison with it would find nothing but the masks.
    let secret = |object: &Value| meta::kind(object) == "Secret" && meta::group(object).is_empty();
    let (secrets, desired): (Vec<_>, Vec<_>) = desired.into_iter().partition(|object| secret(object));
    live.retain(|object| !secret(object));
    for object in secrets {
        eprintln!(
            "Warning: Secret {}/{} is not compared",
            meta::namespace(&object),
            meta::name(&object)
        );
    }
    let compared = compared::of(Some(app.clone()), desired, live)?;
    let different = compared
        .pairs
        .into_iter()
        .filter(|pair| pair.desired.is_none() || pair.comparison.modified);
    Ok(different
        .map(|pair| {
            let target = pair.comparison.predicted_live().clone();
            Different {
                title: format!(
                    "{}/{} {}/{}",
                    pair.key.group, pair.key.kind, pair.key.namespace, pair.key.name
                ),
                live: Some(pair.comparison.normalized_live)
                    .filter(|side| !side.is_null())
                    .or(pair.live),
                target: Some(target).filter(|side| !side.is_null()).or(pair.desired),
            }
        })
        .collect())
}

fn print(mut different: Vec<Different>) -> Result<()> {
    different.sort_by(|a, b| a.title.cmp(&b.title));
    for each in different {
        output::text(&format!("\n===== {} ======\n", each.title))?;
        let name = each
            .live
            .as_ref()
            .or(each.target.as_ref())
            .map(meta::name)
            .unwrap_or_default()
            .to_owned();
        show(&name, each.live.as_ref(), each.target.as_ref())?;
    }
    Ok(())
}

/// Shows two sides by the program of `KUBECTL_EXTERNAL_DIFF`, or else by `diff`.
fn show(name: &str, live: Option<&Value>, target: Option<&Value>) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("argosy-diff-").tempdir()?;
    let write = |name: String, side: Option<&Value>| {
        let path = folder.path().join(name.replace('/', "_"));
        let text = side.map(yaml::to_string).unwrap_or_default();
        std::fs::write(&path, text)
            .map(|()| path)
            .context("write what is compared")
    };
    let (live, target) = (
        write(format!("{name}-live.yaml"), live)?,
        write(name.to_owned(), target)?,
    );
    let external = std::env::var("KUBECTL_EXTERNAL_DIFF")
        .ok()
        .filter(|text| !text.trim().is_empty());
    let words: Vec<&str> = external.as_deref().unwrap_or("diff").split_whitespace().collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .args([live, target])
        .output()
        .with_context(|| {
            format!(
                "start {:?}; KUBECTL_EXTERNAL_DIFF names another program",
                words[0]
            )
        })?;
    output::text(&String::from_utf8_lossy(&output.stdout))?;
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
