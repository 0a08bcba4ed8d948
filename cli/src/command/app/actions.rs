//! `app actions list`, `app actions run`

use anyhow::{Context as _, Result};
use argosy_api::services::application::{
    ApplicationResourceRequest, ResourceActionParameters, ResourceActionRunRequestV2,
};
use serde_json::json;

use super::options::pair;
use super::resources::Target;
use crate::output;
use crate::remote::{Remote, ask};

#[derive(clap::Args)]
pub(super) struct Actions {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Show which actions there are.
    List {
        #[command(flatten)]
        target: Target,
        /// How to print them.
        #[arg(long = "out", short, alias = "output", default_value = "wide", value_parser = ["wide", "json", "yaml"])]
        output: String,
    },
    /// Run an action.
    Run {
        #[command(flatten)]
        target: Target,
        /// The action.
        action: String,
        /// NAME=VALUE: a parameter of the action.
        #[arg(long = "param", short = 'p')]
        params: Vec<String>,
        /// On all that the flags choose.
        #[arg(long)]
        all: bool,
    },
}

pub(super) async fn run(remote: &Remote, args: Actions) -> Result<()> {
    match args.verb {
        Verb::List { target, output } => list(remote, &target, &output).await,
        Verb::Run {
            target,
            action,
            params,
            all,
        } => start(remote, &target, &action, &params, all).await,
    }
}

async fn list(remote: &Remote, target: &Target, format: &str) -> Result<()> {
    let mut found = Vec::new();
    for chosen in target.chosen(remote, true).await? {
        let (namespace, name) = target.app.place();
        let request = ApplicationResourceRequest {
            name: name.to_owned(),
            app_namespace: Some(namespace.to_owned()),
            namespace: Some(chosen.namespace.clone()),
            resource_name: chosen.name.clone(),
            version: chosen.version.clone(),
            group: Some(chosen.group.clone()),
            kind: chosen.kind.clone(),
            project: Some(target.project.clone()),
        };
        for action in ask!(remote, applications.list_resource_actions(request)).actions {
            found.push((
                chosen.group.clone(),
                chosen.kind.clone(),
                chosen.name.clone(),
                action,
            ));
        }
    }
    let documents = found.iter().map(|(group, kind, name, action)| {
        json!({"Group": group, "Kind": kind, "Name": name, "Action": action.name, "Disabled": action.disabled})
    });
    if output::structured(format, &documents.collect::<Vec<_>>())? {
        return Ok(());
    }
    let rows = found
        .into_iter()
        .map(|(group, kind, name, action)| vec![group, kind, name, action.name, action.disabled.to_string()]);
    output::table(&["GROUP", "KIND", "NAME", "ACTION", "DISABLED"], rows)
}

async fn start(remote: &Remote, target: &Target, action: &str, params: &[String], all: bool) -> Result<()> {
    let params = params.iter().map(|text| {
        let (name, value) = pair("--param", text)?;
        Ok(ResourceActionParameters { name, value })
    });
    let params = params.collect::<Result<Vec<_>>>()?;
    for chosen in target.chosen(remote, all).await? {
        let (namespace, name) = target.app.place();
        let shown = format!("{} {}/{}", chosen.kind, chosen.namespace, chosen.name);
        let request = ResourceActionRunRequestV2 {
            name: name.to_owned(),
            app_namespace: Some(namespace.to_owned()),
            namespace: Some(chosen.namespace),
            resource_name: chosen.name,
            version: chosen.version,
            group: Some(chosen.group),
            kind: chosen.kind,
            action: action.to_owned(),
            project: Some(target.project.clone()),
            resource_action_parameters: params.clone(),
        };
        let asked = async { anyhow::Ok(ask!(remote, applications.run_resource_action_v2(request))) };
        asked.await.with_context(|| format!("run {action} on {shown}"))?;
    }
    Ok(())
}
