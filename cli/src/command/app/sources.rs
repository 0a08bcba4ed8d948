//! `app add-source`, `remove-source`: the list of an Application of several sources.

use anyhow::{Context as _, Result, ensure};
use argosy_api::v1alpha1::ApplicationSource;

use super::Named;
use super::edit::update;
use super::options::Options;
use crate::remote::Remote;
use crate::{input, output};

#[derive(clap::Args)]
pub(super) struct AddSource {
    #[command(flatten)]
    app: Named,
    #[command(flatten)]
    options: Options,
    /// Its name.
    #[arg(long, default_value = "")]
    source_name: String,
    /// Look whether the repository can be read and the cluster is known.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    validate: bool,
}

pub(super) async fn add(remote: &Remote, args: AddSource) -> Result<()> {
    let mut app = args.app.get(remote).await?;
    let name = app.metadata.name.clone();
    ensure!(
        !app.spec.sources.is_empty(),
        "Cannot add source: application {name} does not have spec.sources defined"
    );
    app.spec.sources.push(ApplicationSource {
        name: args.source_name,
        ..ApplicationSource::default()
    });
    let position = app.spec.sources.len();
    args.options.apply(&mut app, Some(position))?;
    ensure!(
        app.spec
            .sources
            .last()
            .is_some_and(|source| !source.repo_url.is_empty()),
        "which source? Give at least --repo"
    );
    update(remote, app, args.validate).await?;
    output::text(&format!("Application '{name}' updated successfully\n"))
}

#[derive(clap::Args)]
pub(super) struct RemoveSource {
    #[command(flatten)]
    app: Named,
    /// Which one, counted from 1.
    #[arg(long)]
    source_position: Option<usize>,
    /// Which one, by its name.
    #[arg(
        long,
        conflicts_with = "source_position",
        required_unless_present = "source_position"
    )]
    source_name: Option<String>,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

pub(super) async fn remove(remote: &Remote, args: RemoveSource) -> Result<()> {
    let mut app = args.app.get(remote).await?;
    let name = app.metadata.name.clone();
    let sources = &mut app.spec.sources;
    ensure!(
        !sources.is_empty(),
        "Application does not have multiple sources configured"
    );
    ensure!(
        sources.len() > 1,
        "Cannot remove the only source remaining in the app"
    );
    let at = match &args.source_name {
        Some(wanted) => sources
            .iter()
            .position(|source| source.name == *wanted)
            .with_context(|| format!("Unknown source name '{wanted}'"))?,
        None => {
            let position = args.source_position.unwrap_or_default();
            ensure!(position > 0, "Value of source-position must be greater than 0");
            ensure!(
                position <= sources.len(),
                "Application does not have source at {position}"
            );
            position - 1
        }
    };
    sources.remove(at);
    if !input::confirmed("Are you sure you want to delete the source?", args.yes)? {
        return output::text("The command to delete the source was cancelled\n");
    }
    update(remote, app, false).await?;
    output::text(&format!("Application '{name}' updated successfully\n"))
}
