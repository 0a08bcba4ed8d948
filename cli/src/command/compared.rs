//! Desired and live files as the pairs that a comparison and a plan start from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use argosy_api::annotation;
use argosy_api::v1alpha1::Application;
use argosy_diff::{Comparison, Context, IgnoreRule, IgnoreRules, Options};
use argosy_object::schema::{Schemas, Scope};
use argosy_object::{GroupKind, ResourceKey, Value, meta};
use argosy_sync::{SyncOptions, resource_options};

use crate::input;

#[derive(clap::Args)]
pub(crate) struct Files {
    /// What Git wants: one file of any number of documents.
    #[arg(long, value_name = "FILE")]
    desired: PathBuf,
    /// What the cluster has.
    #[arg(long, value_name = "FILE")]
    live: PathBuf,
    /// The Application, for its destination namespace, ignoreDifferences and sync options.
    #[arg(long, value_name = "FILE")]
    app: Option<PathBuf>,
    /// OpenAPI v3 of the target cluster (JSON); without it, that of Kubernetes 1.36. CRDs in either file count as well.
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
}

/// Everything compared.
pub(crate) struct Compared {
    /// The Application, if one was given.
    pub(crate) application: Option<Application>,
    /// Pairs in the order of the desired file; what is only live comes last.
    pub(crate) pairs: Vec<Pair>,
}

/// One resource and its verdict.
pub(crate) struct Pair {
    pub(crate) key: ResourceKey,
    pub(crate) desired: Option<Value>,
    pub(crate) live: Option<Value>,
    pub(crate) comparison: Comparison,
}

/// Reads the files and compares what they hold.
pub(crate) fn compare(files: &Files) -> Result<Compared> {
    let application = files.app.as_deref().map(input::application).transpose()?;
    let desired = input::documents(&files.desired)?;
    let live = input::documents(&files.live)?;
    let schemas = schemas(files.schema.as_deref(), desired.iter().chain(&live))?;
    pairs(application, desired, live, &schemas).with_context(|| file_of(files.app.as_deref()))
}

/// Compares objects by the schemas of Kubernetes itself and of the CRDs among them.
pub(crate) fn of(
    application: Option<Application>,
    desired: Vec<Value>,
    live: Vec<Value>,
) -> Result<Compared> {
    let schemas = schemas(None, desired.iter().chain(&live))?;
    pairs(application, desired, live, &schemas)
}

fn pairs(
    application: Option<Application>,
    desired: Vec<Value>,
    live: Vec<Value>,
    schemas: &Schemas,
) -> Result<Compared> {
    let namespace = application
        .as_ref()
        .map_or("", |app| app.spec.destination.namespace.as_str());
    let rules = ignore_rules(application.as_ref())?;
    let sync_options = application_options(application.as_ref());
    let pairs = pair_up(desired, live, namespace, schemas)
        .into_iter()
        .map(|(key, mut desired, live)| {
            if let (Some(desired), Some(live)) = (&mut desired, &live) {
                take_marks(desired, live);
            }
            let applied = resource_options(&sync_options, None, desired.as_ref(), live.as_ref());
            let options = Options {
                server_side_apply: applied.server_side_apply,
                strict: applied.strict,
                migrate_from: applied.migrate_from,
                ..Options::default()
            };
            let context = Context {
                schemas,
                rules: &rules,
                options: &options,
            };
            let comparison = argosy_diff::compare(desired.as_ref(), live.as_ref(), &context);
            Pair {
                key,
                desired,
                live,
                comparison,
            }
        })
        .collect();
    Ok(Compared { application, pairs })
}

/// Manifests as files have them lack the marks by which an Application knows its objects: those of the live object are theirs.
fn take_marks(desired: &mut Value, live: &Value) {
    for mark in [annotation::TRACKING_ID, annotation::INSTALLATION_ID] {
        if meta::annotation(desired, mark).is_none()
            && let Some(text) = meta::annotation(live, mark)
        {
            meta::set_annotation(desired, mark, text);
        }
    }
}

/// The sync options of the Application's policy.
pub(crate) fn application_options(application: Option<&Application>) -> SyncOptions {
    let policy = application.and_then(|app| app.spec.sync_policy.as_ref());
    SyncOptions::parse(
        policy
            .iter()
            .flat_map(|policy| policy.sync_options.iter().map(String::as_str)),
    )
}

fn file_of(app: Option<&Path>) -> String {
    app.map(|file| file.display().to_string()).unwrap_or_default()
}

fn schemas<'a>(file: Option<&Path>, documents: impl Iterator<Item = &'a Value>) -> Result<Arc<Schemas>> {
    let base = match file {
        None => Schemas::builtin(),
        Some(file) => {
            let bytes = input::read(file)?;
            let document: Value =
                serde_json::from_slice(&bytes).with_context(|| format!("{}: read JSON", file.display()))?;
            check_openapi(&document).with_context(|| file.display().to_string())?;
            Schemas::from_openapi_v3([&document])
        }
    };
    let crds: Vec<&Value> = documents.filter(|document| meta::is_crd(document)).collect();
    Ok(if crds.is_empty() {
        base
    } else {
        base.with_crds(crds)
    })
}

fn check_openapi(document: &Value) -> Result<()> {
    if document["openapi"]
        .as_str()
        .is_none_or(|version| !version.starts_with("3."))
    {
        bail!(
            "`openapi` is not 3.x: a document such as a kube-apiserver serves under /openapi/v3/ is expected"
        );
    }
    if !document["components"]["schemas"].is_object() {
        bail!("`components.schemas` is missing");
    }
    Ok(())
}

fn ignore_rules(application: Option<&Application>) -> Result<IgnoreRules> {
    let rules = application
        .into_iter()
        .flat_map(|app| &app.spec.ignore_differences)
        .map(|rule| IgnoreRule {
            group: rule.group.clone(),
            kind: rule.kind.clone(),
            name: rule.name.clone(),
            namespace: rule.namespace.clone(),
            json_pointers: rule.json_pointers.clone(),
            jq_path_expressions: rule.jq_path_expressions.clone(),
            managed_fields_managers: rule.managed_fields_managers.clone(),
        });
    let (rules, findings) = IgnoreRules::new(rules);
    match findings.into_iter().next() {
        Some(finding) => Err(anyhow!("spec.ignoreDifferences: {finding}")),
        None => Ok(rules),
    }
}

type Unpaired = (ResourceKey, Option<Value>, Option<Value>);

/// Pairs by key; what has an owner and is not desired is that owner's business. A desired object without namespace gets that of the destination if its kind is namespaced; two files
/// of one object each are a pair even if their namespaces are written differently.
fn pair_up(desired: Vec<Value>, live: Vec<Value>, namespace: &str, schemas: &Schemas) -> Vec<Unpaired> {
    let mut live: BTreeMap<ResourceKey, Value> = live
        .into_iter()
        .map(|object| (meta::key(&object), object))
        .collect();
    let mut pairs = Vec::new();
    for object in desired {
        let mut key = meta::key(&object);
        let scope = schemas.scope(&GroupKind {
            group: key.group.clone(),
            kind: key.kind.clone(),
        });
        match scope {
            Some(Scope::Cluster) => key.namespace = String::new(),
            _ if key.namespace.is_empty() => key.namespace = namespace_for(&key, namespace, &live),
            _ => {}
        }
        let counterpart = live.remove(&key);
        pairs.push((key, Some(object), counterpart));
    }
    let extra = live
        .into_iter()
        .filter(|(_, object)| meta::array_field(object, &["metadata", "ownerReferences"]).is_empty());
    pairs.extend(extra.map(|(key, object)| (key, None, Some(object))));
    pairs
}

/// The destination's namespace; when none is known, the one in which the only live object of that name is.
fn namespace_for(key: &ResourceKey, destination: &str, live: &BTreeMap<ResourceKey, Value>) -> String {
    if !destination.is_empty() {
        return destination.to_owned();
    }
    let mut same = live
        .keys()
        .filter(|live| live.group == key.group && live.kind == key.kind && live.name == key.name);
    match (same.next(), same.next()) {
        (Some(only), None) => only.namespace.clone(),
        _ => String::new(),
    }
}
