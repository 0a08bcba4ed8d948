//! `app create`, `set`, `unset`, `edit`, `patch`, `delete`

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use argosy_api::annotation;
use argosy_api::services::application::{
    ApplicationCreateRequest, ApplicationDeleteRequest, ApplicationPatchRequest, ApplicationQuery,
    ApplicationUpdateRequest, ApplicationUpdateSpecRequest,
};
use argosy_api::v1alpha1::{Application, Stored as _};

use super::options::{Options, image_name, pairs, source_at};
use super::{Named, Several, place};
use crate::remote::{Remote, ask, said};
use crate::{input, output};

/// The finalizer that makes the deletion of an Application delete what it deployed.
const FINALIZER: &str = "resources-finalizer.argocd.argoproj.io";

#[derive(clap::Args)]
pub(super) struct Create {
    /// Name, or namespace/name [default: the manifest's].
    name: Option<String>,
    /// Manifests of Applications; `-` is stdin.
    #[arg(long, short)]
    file: Option<PathBuf>,
    /// Change it if it exists.
    #[arg(long)]
    upsert: bool,
    /// Look whether the repository can be read and the cluster is known.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    validate: bool,
    /// NAME=VALUE: a label.
    #[arg(long, short)]
    label: Vec<String>,
    /// NAME=VALUE: an annotation.
    #[arg(long)]
    annotations: Vec<String>,
    /// What it deployed goes when it is deleted.
    #[arg(long)]
    set_finalizer: bool,
    /// Namespace of the Application.
    #[arg(long, short = 'N', default_value = "")]
    app_namespace: String,
    #[command(flatten)]
    options: Options,
}

pub(super) async fn create(remote: &Remote, args: Create) -> Result<()> {
    let mut apps = match &args.file {
        Some(file) => input::all::<Application>(file, "Application")?,
        None => vec![Application::default()],
    };
    ensure!(
        !apps.is_empty(),
        "{}: there is no Application in it",
        args.file.unwrap_or_default().display()
    );
    if let Some(name) = &args.name {
        ensure!(
            apps.len() == 1,
            "a name is for one Application, and the file has {}",
            apps.len()
        );
        let (namespace, name) = place(name, &args.app_namespace);
        let known = &mut apps[0].metadata;
        if !known.name.is_empty() && known.name != name {
            bail!(
                "app name '{name}' does not match app spec metadata.name '{}'",
                known.name
            );
        }
        name.clone_into(&mut known.name);
        if !namespace.is_empty() {
            namespace.clone_into(&mut known.namespace);
        }
    }
    for mut app in apps {
        ensure!(
            !app.metadata.name.is_empty(),
            "which name? Give it, or a --file with an Application"
        );
        if app.metadata.namespace.is_empty() {
            app.metadata.namespace.clone_from(&args.app_namespace);
        }
        args.options.apply(&mut app, None)?;
        app.metadata.labels.extend(pairs("--label", &args.label)?);
        app.metadata
            .annotations
            .extend(pairs("--annotations", &args.annotations)?);
        if args.set_finalizer && !app.metadata.finalizers.iter().any(|known| known == FINALIZER) {
            app.metadata.finalizers.push(FINALIZER.to_owned());
        }
        if app.spec.project.is_empty() {
            app.spec.project = "default".into();
        }
        let (namespace, name) = (app.metadata.namespace.clone(), app.metadata.name.clone());
        let query = ApplicationQuery {
            name: Some(name.clone()),
            app_namespace: Some(namespace),
            ..ApplicationQuery::default()
        };
        // Those who may create and not look are told that it was created.
        let before = remote
            .applications()
            .get(remote.request(query)?)
            .await
            .ok()
            .map(tonic::Response::into_inner);
        let request = ApplicationCreateRequest {
            application: app,
            upsert: Some(args.upsert),
            validate: Some(args.validate),
        };
        let made = ask!(remote, applications.create(request));
        let word = match before {
            None => "created",
            Some(before) if before.metadata.resource_version == made.metadata.resource_version => "unchanged",
            Some(_) => "updated",
        };
        output::text(&format!("application '{}' {word}\n", made.metadata.name))?;
    }
    Ok(())
}

#[derive(clap::Args)]
pub(super) struct Set {
    #[command(flatten)]
    app: Named,
    /// Which of several sources, counted from 1.
    #[arg(long)]
    source_position: Option<usize>,
    /// Look whether the repository can be read and the cluster is known.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    validate: bool,
    #[command(flatten)]
    options: Options,
}

pub(super) async fn set(remote: &Remote, args: Set) -> Result<()> {
    let mut app = args.app.get(remote).await?;
    let before = app.spec.clone();
    args.options.apply(&mut app, args.source_position)?;
    ensure!(
        app.spec != before,
        "nothing to set: no flag says what to change, or all is so already"
    );
    update(remote, app, args.validate).await
}

pub(super) async fn update(remote: &Remote, app: Application, validate: bool) -> Result<()> {
    let request = ApplicationUpdateSpecRequest {
        name: app.metadata.name,
        app_namespace: Some(app.metadata.namespace),
        spec: app.spec,
        validate: Some(validate),
        project: None,
    };
    ask!(remote, applications.update_spec(request));
    Ok(())
}

#[derive(clap::Args)]
pub(super) struct Unset {
    #[command(flatten)]
    app: Named,
    /// Which of several sources, counted from 1.
    #[arg(long)]
    source_position: Option<usize>,
    /// Parameters of Helm.
    #[arg(long, short)]
    parameter: Vec<String>,
    /// Files of values.
    #[arg(long)]
    values: Vec<String>,
    /// Values that stand in the Application.
    #[arg(long)]
    values_literal: bool,
    /// Files of values that are missing are an error again.
    #[arg(long)]
    ignore_missing_value_files: bool,
    /// Credentials stay with the chart's host again.
    #[arg(long)]
    pass_credentials: bool,
    /// Suffix of names.
    #[arg(long)]
    namesuffix: bool,
    /// Prefix of names.
    #[arg(long)]
    nameprefix: bool,
    /// Version of Kustomize.
    #[arg(long)]
    kustomize_version: bool,
    /// Namespace of everything.
    #[arg(long)]
    kustomize_namespace: bool,
    /// Images, by name.
    #[arg(long)]
    kustomize_image: Vec<String>,
    /// Replicas, by name.
    #[arg(long)]
    kustomize_replica: Vec<String>,
    /// Components that are missing are an error again.
    #[arg(long)]
    ignore_missing_components: bool,
    /// Variables of a plugin, by name.
    #[arg(long)]
    plugin_env: Vec<String>,
    /// The name by which other sources refer to this one.
    #[arg(long = "ref")]
    reference: bool,
}

pub(super) async fn unset(remote: &Remote, args: Unset) -> Result<()> {
    let mut app = args.app.get(remote).await?;
    let before = app.spec.clone();
    let source = source_at(&mut app, args.source_position)?;
    if let Some(helm) = &mut source.helm {
        helm.parameters
            .retain(|known| !args.parameter.contains(&known.name));
        helm.value_files.retain(|known| !args.values.contains(known));
        if args.values_literal {
            helm.values.clear();
            helm.values_object = None;
        }
        helm.ignore_missing_value_files &= !args.ignore_missing_value_files;
        helm.pass_credentials &= !args.pass_credentials;
    }
    if let Some(kustomize) = &mut source.kustomize {
        for (clear, place) in [
            (args.namesuffix, &mut kustomize.name_suffix),
            (args.nameprefix, &mut kustomize.name_prefix),
            (args.kustomize_version, &mut kustomize.version),
            (args.kustomize_namespace, &mut kustomize.namespace),
        ] {
            if clear {
                place.clear();
            }
        }
        kustomize.images.retain(|known| {
            !args
                .kustomize_image
                .iter()
                .any(|name| name == known || name == image_name(known))
        });
        kustomize
            .replicas
            .retain(|known| !args.kustomize_replica.contains(&known.name));
        kustomize.ignore_missing_components &= !args.ignore_missing_components;
    }
    if let Some(plugin) = &mut source.plugin {
        plugin.env.retain(|known| !args.plugin_env.contains(&known.name));
    }
    if args.reference {
        source.r#ref.clear();
    }
    ensure!(app.spec != before, "nothing to unset: none of it is set");
    // As Argo CD's program does here and in the editor: a repository that is away does not stand in the way of a repair.
    update(remote, app, false).await
}

#[derive(clap::Args)]
pub(super) struct Edit {
    #[command(flatten)]
    app: Named,
}

pub(super) async fn edit(remote: &Remote, args: Edit) -> Result<()> {
    let mut app = args.app.get(remote).await?;
    match input::edited(&app.spec)? {
        None => output::text("Edit cancelled, no changes made.\n"),
        Some(spec) => {
            app.spec = spec;
            update(remote, app, false).await
        }
    }
}

#[derive(clap::Args)]
pub(super) struct Patch {
    #[command(flatten)]
    app: Named,
    /// The patch.
    #[arg(long)]
    patch: String,
    /// What it is.
    #[arg(long = "type", default_value = "json", value_parser = ["json", "merge"])]
    kind: String,
}

pub(super) async fn patch(remote: &Remote, args: Patch) -> Result<()> {
    let (namespace, name) = args.app.place();
    let request = ApplicationPatchRequest {
        name: name.to_owned(),
        app_namespace: Some(namespace.to_owned()),
        patch: args.patch,
        patch_type: args.kind,
        project: None,
    };
    let app = ask!(remote, applications.patch(request));
    output::text(&argosy_object::yaml::to_string(&app.to_document()))
}

#[derive(clap::Args)]
pub(super) struct ConfirmDeletion {
    #[command(flatten)]
    app: Named,
}

pub(super) async fn confirm_deletion(remote: &Remote, args: ConfirmDeletion) -> Result<()> {
    let mut app = args.app.get(remote).await?;
    let name = app.metadata.name.clone();
    let now = jiff::Timestamp::now().round(jiff::Unit::Second)?.to_string();
    app.metadata
        .annotations
        .insert(annotation::DELETION_APPROVED.to_owned(), now);
    let request = ApplicationUpdateRequest {
        application: app,
        // A repository that is away does not stand in the way of a deletion.
        validate: Some(false),
        project: None,
    };
    ask!(remote, applications.update(request));
    output::text(&format!("Application '{name}' updated successfully\n"))
}

#[derive(clap::Args)]
pub(super) struct Delete {
    #[command(flatten)]
    apps: Several,
    /// Delete what they deployed as well.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    cascade: bool,
    /// How what they deployed is deleted.
    #[arg(long, short, value_parser = ["foreground", "background"])]
    propagation_policy: Option<String>,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
    /// Wait until they are gone.
    #[arg(long)]
    wait: bool,
}

pub(super) async fn delete(remote: &Remote, args: Delete) -> Result<()> {
    for app in args.apps.resolve(remote, Vec::new()).await? {
        let (namespace, name) = app.place();
        let shown = if namespace.is_empty() {
            name.to_owned()
        } else {
            format!("{namespace}/{name}")
        };
        let what = if args.cascade {
            " and all its resources"
        } else {
            ""
        };
        if !input::confirmed(
            &format!("Are you sure you want to delete '{shown}'{what}?"),
            args.yes,
        )? {
            output::text(&format!("The command to delete '{shown}' was cancelled.\n"))?;
            continue;
        }
        let request = ApplicationDeleteRequest {
            name: name.to_owned(),
            app_namespace: Some(namespace.to_owned()),
            cascade: Some(args.cascade),
            propagation_policy: args.propagation_policy.clone().filter(|_| args.cascade),
            ..ApplicationDeleteRequest::default()
        };
        ask!(remote, applications.delete(request));
        if args.wait {
            gone(remote, &app).await?;
        }
        output::text(&format!("application '{shown}' deleted\n"))?;
    }
    Ok(())
}

/// Waits until an Application is not there any more.
async fn gone(remote: &Remote, app: &Named) -> Result<()> {
    loop {
        let mut events = ask!(remote, applications.watch(app.query()));
        // A watch of what is gone tells nothing: whether it is there is asked after the watch is on.
        match remote.applications().get(remote.request(app.query())?).await {
            Err(status)
                if matches!(
                    status.code(),
                    tonic::Code::NotFound | tonic::Code::PermissionDenied
                ) =>
            {
                return Ok(());
            }
            other => drop(other.map_err(said)?),
        }
        while let Some(event) = events
            .message()
            .await
            .map_err(said)
            .context("watch the deletion")?
        {
            if event.r#type == "DELETED" {
                return Ok(());
            }
        }
    }
}
