//! `argosy action list` and `argosy action run`

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use argosy_health::action::{self, Action, Impact, Operation};
use argosy_object::{Value, meta, yaml};

use super::health::customizations;
use crate::input;
use crate::output::{self, Verdict};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Show which actions an object offers.
    List(Target),
    /// Show what an action would make of an object. Nothing is written anywhere.
    Run {
        /// The action.
        name: String,
        #[command(flatten)]
        target: Target,
        /// A parameter of the action; may be given several times.
        #[arg(long = "param", value_name = "NAME=VALUE")]
        params: Vec<String>,
    },
}

#[derive(clap::Args)]
struct Target {
    /// The live object (`-` is stdin).
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Scripts that come before the built-in actions: a folder laid out as GROUP/KIND/actions/discovery.lua and
    /// GROUP/KIND/actions/NAME/action.lua, or a file with the argocd-cm ConfigMap.
    #[arg(long, value_name = "DIR|FILE")]
    customizations: Option<PathBuf>,
    /// Format. JSON is a list: of actions as Argo CD's API has them, or of `{"operation", "resource"}`.
    #[arg(short, long, value_enum, default_value_t = Verdict::Text)]
    output: Verdict,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.verb {
        Verb::List(target) => list(target),
        Verb::Run { name, target, params } => run_one(name, target, params),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn list(target: &Target) -> Result<()> {
    let live = target.live()?;
    let actions = action::discover(&live, &customizations(target.customizations.as_deref())?)
        .with_context(|| format!("discover the actions of {}", meta::key(&live)))?;
    match target.output {
        Verdict::Json => output::json(&serde_json::to_value(actions)?),
        Verdict::Text => output::text(&actions.iter().map(line).collect::<String>()),
    }
}

fn line(action: &Action) -> String {
    let mut line = action.name.clone();
    for param in &action.params {
        line.push_str(&format!(" {}=…", param.name));
    }
    if !action.display_name.is_empty() {
        line.push_str(&format!("  ({})", action.display_name));
    }
    if action.disabled {
        line.push_str("  disabled");
    }
    line.push('\n');
    line
}

fn run_one(name: &str, target: &Target, params: &[String]) -> Result<()> {
    let live = target.live()?;
    let params: BTreeMap<String, String> = params
        .iter()
        .map(|param| match param.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(anyhow!("--param {param:?}: NAME=VALUE is expected")),
        })
        .collect::<Result<_>>()?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|passed| i64::try_from(passed.as_secs()).ok())
        .unwrap_or_default();
    let customizations = customizations(target.customizations.as_deref())?;
    let impacts = action::run(&live, name, &params, now, &customizations)
        .with_context(|| format!("run the action {name:?} on {}", meta::key(&live)))?;
    match target.output {
        Verdict::Json => output::json(&serde_json::to_value(impacts)?),
        Verdict::Text => output::text(&impacts.iter().map(document).collect::<Vec<_>>().join("---\n")),
    }
}

fn document(impact: &Impact) -> String {
    let operation = match impact.operation {
        Operation::Create => "create",
        Operation::Patch => "patch",
    };
    format!("# {operation}\n{}", yaml::to_string(&impact.resource))
}

impl Target {
    fn live(&self) -> Result<Value> {
        let documents = input::documents(&self.file)?;
        match <[Value; 1]>::try_from(documents) {
            Ok([live]) => Ok(live),
            Err(found) => bail!(
                "{}: one object is expected, found {}",
                self.file.display(),
                found.len()
            ),
        }
    }
}
