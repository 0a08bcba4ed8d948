//! `argocd-cm`, repositories and credentials, live: what the control plane's people configure.
//!
//! One writer, [`follow`]; readers take an [`Arc<Settings>`] that never changes ([`Store::get`]). A key that cannot be
//! read keeps its default and is logged; a Secret that cannot be read is left out and logged.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use argosy_api::annotation::SECRET_TYPE;
use argosy_api::repository_secret::{self, secret_type};
use argosy_api::settings::{self as parsed, IgnoreStatus};
use argosy_api::tracking;
use argosy_api::v1alpha1::{
    AppProject, ApplicationSource, HelmOptions, KustomizeOptions, RepoCreds, Repository,
    ResourceIgnoreDifferences, ResourceOverride,
};
use argosy_diff::{IgnoreRule, IgnoreRules, KnownType, KnownTypeKind};
use argosy_health::Customizations;
use argosy_kube_io::api::{self, Change, Place, TypedWatch};
use argosy_kube_io::client::Client;
use argosy_kube_io::target::Selection;
use argosy_object::{ContentHash, GroupKind, Value, meta};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::apps;
use crate::clusters::{Matters, Rules};

/// The ConfigMap.
const CONFIG_MAP: &str = "argocd-cm";

/// Everything people configure, read into what stages use. Immutable.
pub struct Settings {
    /// Grows with each change; equal versions are equal settings.
    pub version: u64,
    /// The typed ConfigMap.
    pub config: parsed::Settings,
    /// How resources are tracked.
    pub tracking: Arc<tracking::Config>,
    /// Repositories and their credentials.
    pub repositories: Repositories,
    /// Health scripts.
    pub health: Arc<Customizations>,
    /// How documents are compared.
    pub diff_options: Arc<argosy_diff::Options>,
    /// Identity of everything here that goes into rendering.
    pub rendering: String,
    rules: Vec<IgnoreRule>,
    ignore: Arc<IgnoreRules>,
    /// How many of them are wrong.
    ignore_findings: usize,
}

/// Repositories and credential templates, as their Secrets have them.
#[derive(Clone, Debug, Default)]
pub struct Repositories {
    repositories: Vec<Repository>,
    templates: Vec<RepoCreds>,
}

impl Repositories {
    /// The repository of this URL for a project, with credentials.
    pub fn find(&self, url: &str, project: &str) -> Repository {
        repository_secret::lookup(&self.repositories, &self.templates, url, project)
    }

    /// What Helm charts of a project may draw dependencies from.
    pub fn helm(&self, project: &str) -> (Vec<Repository>, Vec<RepoCreds>) {
        let permitted = |owner: &str| owner.is_empty() || owner == project;
        let charts = |kind: &str, oci: bool| kind == "helm" || kind == "oci" || oci;
        let repositories = self
            .repositories
            .iter()
            .filter(|repository| {
                permitted(&repository.project) && charts(&repository.r#type, repository.enable_oci)
            })
            .map(|repository| self.find(&repository.repo, project));
        let templates = self
            .templates
            .iter()
            .filter(|template| charts(&template.r#type, template.enable_oci));
        (repositories.collect(), templates.cloned().collect())
    }
}

/// The current settings.
pub struct Store {
    control_plane: String,
    current: watch::Sender<Arc<Settings>>,
}

impl Store {
    /// Defaults, until [`follow`] has read what there is.
    pub fn new(control_plane: &str) -> Arc<Self> {
        let settings = Settings::new(0, control_plane, &BTreeMap::new(), Repositories::default());
        Arc::new(Store {
            control_plane: control_plane.to_owned(),
            current: watch::Sender::new(Arc::new(settings)),
        })
    }

    /// The settings now.
    pub fn get(&self) -> Arc<Settings> {
        self.current.borrow().clone()
    }

    /// Tells each change.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Settings>> {
        self.current.subscribe()
    }
}

impl Settings {
    fn new(
        version: u64,
        control_plane: &str,
        data: &BTreeMap<String, String>,
        repositories: Repositories,
    ) -> Self {
        let yaml = |text: &str| {
            argosy_object::yaml::parse(text, &argosy_object::yaml::Limits::default())
                .map_err(|error| error.to_string())
        };
        let (config, findings) = parsed::Settings::read(data, control_plane, &yaml);
        for finding in findings {
            warn!(key = finding.key, "argocd-cm: {}", finding.message);
        }
        let (rules, known_types) = (ignore_rules(&config.overrides), known_types(&config));
        let (ignore, findings) = IgnoreRules::new(rules.iter().cloned());
        for finding in &findings {
            warn!("argocd-cm: ignoreDifferences: {finding}");
        }
        let diff_options = argosy_diff::Options {
            ignore_aggregated_roles: config.compare.ignore_aggregated_roles,
            ignore_status: match config.compare.ignore_status {
                IgnoreStatus::All => argosy_diff::IgnoreStatus::All,
                IgnoreStatus::Crd => argosy_diff::IgnoreStatus::Crd,
                IgnoreStatus::None => argosy_diff::IgnoreStatus::None,
            },
            sensitive_annotations: config.sensitive_annotations.clone(),
            known_types,
            ..argosy_diff::Options::default()
        };
        let rendering = format!(
            "{:?} {:?} {:?} {:?} {:?}",
            config.tracking, config.helm, config.kustomize, config.enabled, repositories
        );
        Settings {
            version,
            tracking: Arc::new(config.tracking.clone()),
            health: Arc::new(health(&config)),
            diff_options: Arc::new(diff_options),
            // Credentials go into it; only its identity is kept.
            rendering: format!("{:?}", ContentHash::of(rendering.as_bytes())),
            ignore: Arc::new(ignore),
            ignore_findings: findings.len(),
            rules,
            config,
            repositories,
        }
    }

    /// What clusters need to know: which Application a live object belongs to, and which kinds are looked at.
    pub fn cluster_rules(&self) -> Rules {
        let (tracking, filter) = (self.tracking.clone(), self.config.resources.clone());
        Rules {
            owner: Arc::new(move |object, whole| {
                let owner = match tracking::has_label_alone(object, &tracking) {
                    true => tracking::owner(&whole(), &tracking),
                    false => tracking::owner(object, &tracking),
                };
                owner.map(|owner| owner.instance.into())
            }),
            watched: Arc::new(move |server, kind| !filter.excludes(&kind.group, &kind.kind, server)),
            matters: self.matters(),
            respect_rbac: self.config.respect_rbac,
            in_cluster_enabled: self.config.in_cluster_enabled,
        }
    }

    /// A change matters if it is not only in what `ignoreResourceUpdates` names, or if it changes the health.
    fn matters(&self) -> Matters {
        if !self.config.ignore_resource_updates_enabled {
            return Arc::new(|_, _| true);
        }
        let (rules, findings) = IgnoreRules::new(ignore_rules(&self.config.update_overrides()));
        for finding in findings {
            warn!("argocd-cm: ignoreResourceUpdates: {finding}");
        }
        let health = self.health.clone();
        Arc::new(move |before, after| {
            rules.strip(before).0 != rules.strip(after).0
                || argosy_health::assess(before, &health) != argosy_health::assess(after, &health)
        })
    }

    /// Is a kind excluded on this cluster?
    pub fn excluded(&self, server: &str) -> Arc<dyn Fn(&GroupKind) -> bool + Send + Sync> {
        let (filter, server) = (self.config.resources.clone(), server.to_owned());
        Arc::new(move |kind| filter.excludes(&kind.group, &kind.kind, &server))
    }

    /// The rules of the settings and of one Application, compiled, and what is wrong with those of the Application.
    pub fn ignore_rules(&self, of_app: &[ResourceIgnoreDifferences]) -> (Arc<IgnoreRules>, Vec<String>) {
        if of_app.is_empty() {
            return (self.ignore.clone(), Vec::new());
        }
        let of_app = of_app.iter().map(|rule| IgnoreRule {
            group: rule.group.clone(),
            kind: rule.kind.clone(),
            name: rule.name.clone(),
            namespace: rule.namespace.clone(),
            json_pointers: rule.json_pointers.clone(),
            jq_path_expressions: rule.jq_path_expressions.clone(),
            managed_fields_managers: rule.managed_fields_managers.clone(),
        });
        let (rules, findings) = IgnoreRules::new(of_app.chain(self.rules.iter().cloned()));
        // Behind them stand those of the settings, which have been told.
        let own = findings.len().saturating_sub(self.ignore_findings);
        let own = findings[..own].iter().map(ToString::to_string).collect();
        (Arc::new(rules), own)
    }

    /// The project with what it inherits from global ones.
    pub fn effective(&self, project: &Arc<AppProject>, apps: &apps::Store) -> Arc<AppProject> {
        if self.config.global_projects.is_empty() {
            return project.clone();
        }
        let inherited = self.config.global_projects.iter().filter(|global| {
            global.project_name != project.metadata.name
                && global.label_selector.matches(&project.metadata.labels)
        });
        let globals: Vec<Arc<AppProject>> = inherited
            .filter_map(|global| match apps.project(&global.project_name) {
                apps::Project::Found(found) => Some(found),
                apps::Project::Unreadable(_) | apps::Project::Missing => None,
            })
            .collect();
        if globals.is_empty() {
            return project.clone();
        }
        Arc::new(argosy_api::project::with_globals(
            project,
            globals.iter().map(|global| &**global),
        ))
    }

    /// Options of the Kustomize version that a source asks for.
    pub fn kustomize_options(&self, source: &ApplicationSource) -> Option<KustomizeOptions> {
        let mut options = self.config.kustomize.clone();
        let version = source
            .kustomize
            .as_ref()
            .map(|kustomize| kustomize.version.as_str())
            .unwrap_or_default();
        if let Some(found) = options
            .versions
            .iter()
            .find(|known| !version.is_empty() && known.name == version)
        {
            options.binary_path.clone_from(&found.path);
            if !found.build_options.is_empty() {
                options.build_options.clone_from(&found.build_options);
            }
        }
        Some(options)
    }

    /// Options of Helm.
    pub fn helm_options(&self) -> Option<HelmOptions> {
        Some(self.config.helm.clone())
    }

    /// Source types that may be rendered.
    pub fn enabled_source_types(&self) -> BTreeMap<String, bool> {
        self.config.enabled.to_map()
    }
}

/// `group/Kind` or `Kind` of an override, either part perhaps a pattern.
fn group_and_kind(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

fn ignore_rules(overrides: &BTreeMap<String, ResourceOverride>) -> Vec<IgnoreRule> {
    let rule = |(key, found): (&String, &ResourceOverride)| {
        let (group, kind) = group_and_kind(key);
        let fields = &found.ignore_differences;
        let empty = fields.json_pointers.is_empty()
            && fields.jq_path_expressions.is_empty()
            && fields.managed_fields_managers.is_empty();
        (!empty).then(|| IgnoreRule {
            group: group.to_owned(),
            kind: kind.to_owned(),
            json_pointers: fields.json_pointers.clone(),
            jq_path_expressions: fields.jq_path_expressions.clone(),
            managed_fields_managers: fields.managed_fields_managers.clone(),
            ..IgnoreRule::default()
        })
    };
    overrides.iter().filter_map(rule).collect()
}

fn known_types(config: &parsed::Settings) -> Vec<KnownType> {
    let mut types = Vec::new();
    for (key, found) in &config.overrides {
        let (group, kind) = group_and_kind(key);
        for field in &found.known_type_fields {
            let known = match field.r#type.as_str() {
                "core/Quantity" | "core/v1/ResourceList" => KnownTypeKind::Quantity,
                "meta/v1/Duration" => KnownTypeKind::Duration,
                name if name.starts_with("core/v1/") => KnownTypeKind::Core,
                name => {
                    warn!(key, "argocd-cm: knownTypeFields: {name:?} is not known");
                    continue;
                }
            };
            types.push(KnownType {
                group: group.into(),
                kind: kind.into(),
                field: field.field.clone(),
                known,
            });
        }
    }
    types
}

fn health(config: &parsed::Settings) -> Customizations {
    let mut customizations = Customizations::none();
    for (key, found) in config
        .overrides
        .iter()
        .filter(|(_, found)| !found.health_lua.is_empty())
    {
        if let Err(error) = customizations.insert(key, &found.health_lua, found.use_open_libs) {
            warn!("argocd-cm: {}", argosy_runtime::log::chain(&error));
        }
    }
    customizations
}

/// What has been read so far.
#[derive(Default)]
struct Read {
    config: BTreeMap<String, String>,
    secrets: HashMap<Place, Secret>,
    version: u64,
}

enum Secret {
    Repository(Box<Repository>),
    Template(Box<RepoCreds>),
}

/// Follows the ConfigMap and the Secrets into the store. `ready` is called when both have been read once. Ends never.
pub async fn follow(client: Client, store: Arc<Store>, ready: impl Fn() + Send) {
    let namespace = store.control_plane.clone();
    let config = Selection {
        fields: format!("metadata.name={CONFIG_MAP}"),
        ..Selection::namespace(&namespace)
    };
    let labels = format!(
        "{SECRET_TYPE} in ({}, {})",
        secret_type::REPOSITORY,
        secret_type::REPO_CREDS
    );
    let secrets = Selection {
        labels,
        ..Selection::namespace(&namespace)
    };
    // A watch must not be dropped while it reads, so each has its own task and hands its changes over.
    let (tx, mut rx) = tokio::sync::mpsc::channel(64);
    let watches = tokio::task::JoinSet::from_iter([
        forward(
            TypedWatch::new(client.clone(), api::config_maps(), config),
            Kind::Config,
            tx.clone(),
        ),
        forward(
            TypedWatch::new(client, api::secrets(), secrets),
            Kind::Secrets,
            tx,
        ),
    ]);
    let mut read = Read {
        version: store.get().version,
        ..Read::default()
    };
    let (mut config_synced, mut secrets_synced) = (false, false);
    while let Some((kind, change)) = rx.recv().await {
        let changed = match (kind, change) {
            (Kind::Config, Change::Applied(object)) => {
                read.config = texts(&object, "data");
                true
            }
            (Kind::Config, Change::Deleted(_)) => {
                read.config.clear();
                true
            }
            (Kind::Secrets, Change::Applied(object)) => read.secret(&object),
            (Kind::Secrets, Change::Deleted(place)) => read.secrets.remove(&place).is_some(),
            (Kind::Config, Change::Synced) => !std::mem::replace(&mut config_synced, true),
            (Kind::Secrets, Change::Synced) => !std::mem::replace(&mut secrets_synced, true),
            (_, Change::Unreadable(unreadable)) => {
                warn!(
                    name = unreadable.place.name,
                    error = unreadable.message,
                    "an object of the settings cannot be read"
                );
                false
            }
            (_, Change::Failed(error)) => {
                warn!(error = argosy_runtime::log::chain(&error), "follow the settings");
                false
            }
        };
        // Until both lists are in, settings would be half of what people wrote.
        if changed && config_synced && secrets_synced {
            read.version += 1;
            let settings = Settings::new(read.version, &namespace, &read.config, read.repositories());
            info!(
                version = read.version,
                repositories = settings.repositories.repositories.len(),
                "settings are read"
            );
            store.current.send_replace(Arc::new(settings));
            ready();
        }
    }
    drop(watches);
}

#[derive(Clone, Copy)]
enum Kind {
    Config,
    Secrets,
}

async fn forward(
    mut watch: TypedWatch<Value>,
    kind: Kind,
    tx: tokio::sync::mpsc::Sender<(Kind, Change<Value>)>,
) {
    while tx.send((kind, watch.next().await)).await.is_ok() {}
}

impl Read {
    fn secret(&mut self, object: &Value) -> bool {
        let place = Place {
            namespace: meta::namespace(object).to_owned(),
            name: meta::name(object).to_owned(),
        };
        let encoded = texts(object, "data");
        let data: repository_secret::Data = encoded
            .into_iter()
            .filter_map(|(key, text)| STANDARD.decode(text).ok().map(|bytes| (key, bytes)))
            .collect();
        let (secret, invalid) = match meta::label(object, SECRET_TYPE) {
            Some(secret_type::REPOSITORY) => {
                let (repository, invalid) = repository_secret::repository(&data);
                (Secret::Repository(Box::new(repository)), invalid)
            }
            Some(secret_type::REPO_CREDS) => {
                let (template, invalid) = repository_secret::repo_creds(&data);
                (Secret::Template(Box::new(template)), invalid)
            }
            _ => return self.secrets.remove(&place).is_some(),
        };
        for invalid in invalid {
            warn!(secret = place.name, "{invalid}");
        }
        self.secrets.insert(place, secret);
        true
    }

    fn repositories(&self) -> Repositories {
        let mut places: Vec<&Place> = self.secrets.keys().collect();
        places.sort();
        let mut repositories = Repositories::default();
        for place in places {
            match &self.secrets[place] {
                Secret::Repository(repository) => repositories.repositories.push((**repository).clone()),
                Secret::Template(template) => repositories.templates.push((**template).clone()),
            }
        }
        repositories
    }
}

fn texts(object: &Value, field: &str) -> BTreeMap<String, String> {
    let map = object.get(field).and_then(Value::as_object);
    map.into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn settings(data: &[(&str, &str)]) -> Settings {
        let data = data
            .iter()
            .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
            .collect();
        Settings::new(1, "argocd", &data, Repositories::default())
    }

    #[test]
    fn overrides_become_rules_and_scripts() {
        let settings = settings(&[
            (
                "resource.customizations.ignoreDifferences.apps_Deployment",
                "jsonPointers:\n- /spec/replicas\n",
            ),
            (
                "resource.customizations.health.example.com_Thing",
                "return {status = \"Healthy\"}",
            ),
        ]);
        assert_eq!(settings.rules.len(), 1);
        assert_eq!(
            (settings.rules[0].group.as_str(), settings.rules[0].kind.as_str()),
            ("apps", "Deployment")
        );
        assert!(settings.health.covers("example.com", "Thing"));
    }

    #[test]
    fn the_whole_object_is_asked_for_only_where_a_label_of_earlier_days_stands_alone() {
        use serde_json::json;
        use std::cell::Cell;
        let owner = settings(&[]).cluster_rules().owner;
        let asked = Cell::new(0);
        let of = |metadata: serde_json::Value| {
            let label = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            let mut whole = label.clone();
            whole["metadata"]["managedFields"] = json!([{"manager": "argocd-controller",
                "fieldsV1": {"f:metadata": {"f:labels": {"f:app.kubernetes.io/instance": {}}}}}]);
            let whole = || {
                asked.set(asked.get() + 1);
                whole.clone()
            };
            owner(&label, &whole).map(|app| app.to_string())
        };
        let labels = json!({"app.kubernetes.io/instance": "shop"});
        let tracked = json!({"argocd.argoproj.io/tracking-id": "web:/ConfigMap:shop/a"});
        assert_eq!(of(json!({"name": "a"})), None);
        let both =
            json!({"name": "a", "namespace": "shop", "labels": labels.clone(), "annotations": tracked});
        assert_eq!(of(both).as_deref(), Some("web"));
        assert_eq!(asked.get(), 0);
        assert_eq!(
            of(json!({"name": "a", "labels": labels})).as_deref(),
            Some("shop")
        );
        assert_eq!(asked.get(), 1);
    }

    #[test]
    fn a_change_matters_unless_it_is_only_in_what_may_be_ignored() {
        use serde_json::json;
        let key = "resource.customizations.ignoreResourceUpdates.ConfigMap";
        let pointers = "jsonPointers:\n- /data/heartbeat\n";
        let matters = settings(&[(key, pointers)]).cluster_rules().matters;
        let config = |heartbeat: u32, color: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                   "metadata": {"name": "a", "resourceVersion": heartbeat.to_string(), "generation": heartbeat},
                   "data": {"heartbeat": heartbeat, "color": color}})
        };
        assert!(!matters(&config(1, "red"), &config(2, "red")));
        assert!(matters(&config(1, "red"), &config(2, "blue")));
        // A status says nothing by itself, but the health that it makes does.
        let claim = |phase: &str| json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"}, "status": {"phase": phase}});
        assert!(matters(&claim("Pending"), &claim("Bound")));
        assert!(!matters(&claim("Bound"), &claim("Bound")));
        let all = settings(&[
            (key, pointers),
            ("resource.ignoreResourceUpdatesEnabled", "false"),
        ]);
        assert!((all.cluster_rules().matters)(
            &config(1, "red"),
            &config(2, "red")
        ));
    }

    #[test]
    fn what_goes_into_rendering_has_an_identity() {
        let (plain, same) = (settings(&[]), settings(&[("statusbadge.enabled", "true")]));
        assert_eq!(plain.rendering, same.rendering);
        assert_ne!(
            plain.rendering,
            settings(&[("kustomize.buildOptions", "--enable-helm")]).rendering
        );
    }

    #[test]
    fn a_secret_becomes_a_repository() {
        let mut read = Read::default();
        let object = serde_json::json!({"metadata": {"namespace": "argocd", "name": "repo-1",
                "labels": {SECRET_TYPE: "repository"}},
            "data": {"url": STANDARD.encode("https://git.example.com/app"), "username": STANDARD.encode("me"),
                "password": STANDARD.encode("secret")}});
        assert!(read.secret(&object));
        let found = read
            .repositories()
            .find("https://git.example.com/app.git", "default");
        assert_eq!(
            (found.username.as_str(), found.password.as_str()),
            ("me", "secret")
        );
    }
}
