//! `argosy health`

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use argosy_api::settings::Settings;
use argosy_health::action::Definitions;
use argosy_health::{Customizations, Neighbours, assess_among};
use argosy_object::{Value, meta, yaml};
use serde_json::json;

use crate::input;
use crate::output::{self, Verdict};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The live object, or several (`-` is stdin).
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Scripts that come before the built-in rules: a folder laid out as GROUP/KIND/health.lua, or a file with the argocd-cm ConfigMap.
    #[arg(long, value_name = "DIR|FILE")]
    customizations: Option<PathBuf>,
    /// Format. JSON of one object is `{"status", "message"}`, of several a list of these with `resource`.
    #[arg(short, long, value_enum, default_value_t = Verdict::Text)]
    output: Verdict,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let customizations = customizations(args.customizations.as_deref())?;
    let documents = input::documents(&args.file)?;
    if documents.is_empty() {
        bail!("{}: no object in it", args.file.display());
    }
    match args.output {
        Verdict::Json => output::json(&as_json(&documents, &customizations))?,
        Verdict::Text => output::text(&as_text(&documents, &customizations))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The objects of the file are each other's neighbours.
struct InFile<'a>(&'a [Value]);

impl Neighbours for InFile<'_> {
    fn storage_class(&self, name: &str) -> Option<Value> {
        let found = |object: &&Value| meta::kind(object) == "StorageClass" && meta::name(object) == name;
        self.0.iter().find(found).cloned()
    }

    fn pods(&self, workload: &Value) -> Vec<Value> {
        let uid = meta::uid(workload);
        let owned = |object: &&Value| {
            !uid.is_empty()
                && meta::owner_references(object)
                    .iter()
                    .any(|owner| owner.uid == uid)
        };
        let found = self.0.iter().filter(owned);
        let below = found.clone().filter(|object| meta::kind(object) == "ReplicaSet");
        let of_sets = below.flat_map(|set| self.pods(set));
        let own = found.filter(|object| meta::kind(object) == "Pod").cloned();
        own.chain(of_sets).collect()
    }
}

/// A kind that nobody has a health rule for has no health: an empty status.
fn verdict(document: &Value, all: &[Value], customizations: &Customizations) -> (String, String) {
    match assess_among(document, customizations, &InFile(all)) {
        Some(health) => (health.status.to_string(), health.message),
        None => (String::new(), String::new()),
    }
}

fn as_json(documents: &[Value], customizations: &Customizations) -> Value {
    let one = |document| {
        let (status, message) = verdict(document, documents, customizations);
        json!({"status": status, "message": message})
    };
    if let [document] = documents {
        return one(document);
    }
    let with_name = documents.iter().map(|document| {
        let mut entry = one(document);
        entry["resource"] = meta::key(document).to_string().into();
        entry
    });
    with_name.collect()
}

fn as_text(documents: &[Value], customizations: &Customizations) -> String {
    let lines = documents.iter().map(|document| {
        let (status, message) = verdict(document, documents, customizations);
        let status = if status.is_empty() {
            "(no health rule)"
        } else {
            &status
        };
        let gap = if message.is_empty() { "" } else { ": " };
        format!("{}  {status}{gap}{message}\n", meta::key(document))
    });
    lines.collect()
}

/// The scripts of a folder, or of the ConfigMap in a file; none if nothing is given.
pub(super) fn customizations(given: Option<&Path>) -> Result<Customizations> {
    let Some(path) = given else {
        return Ok(Customizations::none());
    };
    if path.is_file() {
        return of_settings(path);
    }
    let mut files = Vec::new();
    collect(path, path, &mut files)?;
    Customizations::from_files(files).with_context(|| format!("read the scripts of {}", path.display()))
}

fn of_settings(file: &Path) -> Result<Customizations> {
    let mut documents = input::documents(file)?;
    documents.retain(|document| meta::kind(document) == "ConfigMap");
    let [config_map] = <[Value; 1]>::try_from(documents).map_err(|found| {
        anyhow!(
            "{}: one ConfigMap is expected, found {}",
            file.display(),
            found.len()
        )
    })?;
    let data = config_map["data"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect();
    let parse = |text: &str| yaml::parse(text, &yaml::Limits::default()).map_err(|error| error.message);
    let (settings, findings) = Settings::read(&data, meta::namespace(&config_map), &parse);
    if let Some(finding) = findings.first() {
        bail!("{}: {finding}", file.display());
    }
    let mut customizations = Customizations::none();
    for (kind, found) in &settings.overrides {
        if !found.health_lua.is_empty() {
            customizations
                .insert(kind, &found.health_lua, found.use_open_libs)
                .with_context(|| format!("{}: {kind}", file.display()))?;
        }
        if !found.actions.is_empty() {
            let definitions = Definitions::parse(&found.actions, found.use_open_libs)
                .map_err(|error| anyhow!("{}: the actions of {kind}: {error}", file.display()))?;
            customizations.insert_actions(kind, definitions);
        }
    }
    Ok(customizations)
}

fn collect(root: &Path, dir: &Path, files: &mut Vec<(String, String)>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "lua") {
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let relative = path.strip_prefix(root).unwrap_or(&path);
            files.push((relative.to_string_lossy().into_owned(), text));
        }
    }
    Ok(())
}
