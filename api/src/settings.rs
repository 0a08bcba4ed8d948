//! `argocd-cm`, read once into types.
//!
//! Every key stands for itself: one that cannot be read keeps its default and becomes a [`Finding`], and its neighbours
//! count. The values that are YAML are read by the parser the caller hands in, so that this crate has none.
//!
//! Only what some part of this program acts on is here. Keys of the UI, of single sign-on and of deep links are read by
//! those who serve them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::annotation::parse_bool;
use crate::meta::{LabelSelector, null_as_default};
use crate::tracking;
use crate::v1alpha1::{
    HelmOptions, KnownTypeField, KustomizeOptions, KustomizeVersion, OverrideIgnoreDiff, ResourceOverride,
};
use crate::{duration, glob};

/// Reads YAML with the meaning it has for Kubernetes, or says what is wrong with it.
pub type ParseYaml<'a> = &'a dyn Fn(&str) -> Result<Value, String>;

/// Something in a ConfigMap that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The key.
    pub key: String,
    /// What is wrong, and what counts instead.
    pub message: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

/// When the deletions of an automated sync wait for a person (`application.sync.deletionHold.*`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletionHold {
    /// They do at all.
    pub enabled: bool,
    /// Syncs that delete fewer objects are never held.
    pub at_least: usize,
    /// A sync that deletes more than so many of a hundred live resources is held.
    pub share: usize,
    /// A sync that deletes an object of one of these kinds is held.
    pub kinds: Vec<String>,
}

impl Default for DeletionHold {
    fn default() -> Self {
        DeletionHold {
            enabled: true,
            at_least: 10,
            share: 50,
            kinds: ["Namespace", "CustomResourceDefinition", "PersistentVolumeClaim"]
                .map(str::to_owned)
                .into(),
        }
    }
}

/// The settings of an installation.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How resources are tracked.
    pub tracking: tracking::Config,
    /// Which kinds are looked at.
    pub resources: ResourceFilter,
    /// Customisations by `group/Kind`; core kinds go by `Kind` alone, and either part may hold globs.
    pub overrides: BTreeMap<String, ResourceOverride>,
    /// Whether the `ignoreResourceUpdates` rules count.
    pub ignore_resource_updates_enabled: bool,
    /// How resources are compared.
    pub compare: CompareOptions,
    /// Annotations whose values are masked like Secrets.
    pub sensitive_annotations: Vec<String>,
    /// Labels that become resource info in the tree.
    pub custom_labels: Vec<String>,
    /// Labels of Applications that go onto their events: globs.
    pub include_event_labels: Vec<String>,
    /// Labels that do not.
    pub exclude_event_labels: Vec<String>,
    /// Labels of nodes that are shown.
    pub allowed_node_labels: Vec<String>,
    /// Watch only what the credentials allow.
    pub respect_rbac: RespectRbac,
    /// Source types that may be rendered.
    pub enabled: EnabledSources,
    /// Options of Helm.
    pub helm: HelmOptions,
    /// Options of Kustomize.
    pub kustomize: KustomizeOptions,
    /// Projects that others inherit from.
    pub global_projects: Vec<GlobalProject>,
    /// The cluster of the control plane is a destination.
    pub in_cluster_enabled: bool,
    /// Syncs act as a service account of the project.
    pub impersonation_enabled: bool,
    /// A sync for which no account matches fails.
    pub impersonation_enforced: bool,
    /// When the deletions of an automated sync wait for a person.
    pub deletion_hold: DeletionHold,
    /// Syncing to another revision than the spec's needs the privilege to override.
    pub require_override_for_revision_sync: bool,
    /// How often an Application is compared although nothing happened; zero is never.
    pub reconciliation: Duration,
    /// At most so much is added to it, by chance.
    pub reconciliation_jitter: Duration,
    /// How often it is rendered anew although nothing happened; zero is never.
    pub hard_reconciliation: Duration,
    /// Base URL of this Argo CD, without trailing slash.
    pub url: String,
    /// Author of hydrated commits.
    pub commit_author_name: String,
    /// Author of hydrated commits.
    pub commit_author_email: String,
    /// Go template of their message; empty is the built-in one.
    pub commit_message_template: String,
    /// Go template of the README of a hydrated path; empty is the built-in one.
    pub readme_message_template: String,
    /// Largest body of a webhook.
    pub webhook_payload_bytes_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tracking: tracking::Config::default(),
            resources: ResourceFilter::default(),
            overrides: BTreeMap::new(),
            ignore_resource_updates_enabled: true,
            compare: CompareOptions::default(),
            sensitive_annotations: Vec::new(),
            custom_labels: Vec::new(),
            include_event_labels: Vec::new(),
            exclude_event_labels: Vec::new(),
            allowed_node_labels: Vec::new(),
            respect_rbac: RespectRbac::Off,
            enabled: EnabledSources::default(),
            helm: HelmOptions {
                values_file_schemes: vec!["https".to_owned(), "http".to_owned()],
            },
            kustomize: KustomizeOptions::default(),
            global_projects: Vec::new(),
            in_cluster_enabled: true,
            impersonation_enabled: false,
            impersonation_enforced: true,
            deletion_hold: DeletionHold::default(),
            require_override_for_revision_sync: false,
            reconciliation: Duration::from_secs(120),
            reconciliation_jitter: Duration::from_secs(60),
            hard_reconciliation: Duration::ZERO,
            url: String::new(),
            commit_author_name: "Argo CD".to_owned(),
            commit_author_email: "argo-cd@example.com".to_owned(),
            commit_message_template: String::new(),
            readme_message_template: String::new(),
            webhook_payload_bytes_max: 50 << 20,
        }
    }
}

/// How resources are compared (`resource.compareoptions`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompareOptions {
    /// Rules that Kubernetes aggregates into ClusterRoles are no difference.
    pub ignore_aggregated_roles: bool,
    /// For which kinds `/status` is no difference.
    pub ignore_status: IgnoreStatus,
    /// `ignoreDifferences` rules count as `ignoreResourceUpdates` rules as well.
    pub ignore_differences_on_resource_updates: bool,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self {
            ignore_aggregated_roles: false,
            ignore_status: IgnoreStatus::All,
            ignore_differences_on_resource_updates: true,
        }
    }
}

/// For which kinds `/status` is no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoreStatus {
    /// All.
    All,
    /// CustomResourceDefinitions only.
    Crd,
    /// None.
    None,
}

/// What to do about kinds that credentials do not allow to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RespectRbac {
    /// Report them.
    Off,
    /// Leave out what a list call is refused for.
    Normal,
    /// Leave out what an access review denies.
    Strict,
}

/// Source types that may be rendered; plugins always may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnabledSources {
    /// Helm charts.
    pub helm: bool,
    /// Kustomizations.
    pub kustomize: bool,
    /// Jsonnet, and with it plain directories.
    pub jsonnet: bool,
}

impl Default for EnabledSources {
    fn default() -> Self {
        Self {
            helm: true,
            kustomize: true,
            jsonnet: true,
        }
    }
}

impl EnabledSources {
    /// As manifest requests carry it.
    pub fn to_map(self) -> BTreeMap<String, bool> {
        [
            ("Helm", self.helm),
            ("Kustomize", self.kustomize),
            ("Directory", self.jsonnet),
            ("Plugin", true),
        ]
        .map(|(name, on)| (name.to_owned(), on))
        .into()
    }
}

/// A project that others inherit from.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GlobalProject {
    /// Its name.
    pub project_name: String,
    /// Projects with these labels inherit from it.
    pub label_selector: LabelSelector,
}

/// Some kinds on some clusters. A part without patterns matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceRule {
    /// Globs.
    #[serde(deserialize_with = "null_as_default")]
    pub api_groups: Vec<String>,
    /// Kinds, or `*`.
    #[serde(deserialize_with = "null_as_default")]
    pub kinds: Vec<String>,
    /// Globs of server URLs.
    #[serde(deserialize_with = "null_as_default")]
    pub clusters: Vec<String>,
}

impl ResourceRule {
    fn matches(&self, group: &str, kind: &str, server: &str) -> bool {
        (self.api_groups.is_empty()
            || self
                .api_groups
                .iter()
                .any(|pattern| glob::matches(pattern, group)))
            && (self.kinds.is_empty() || self.kinds.iter().any(|own| own == "*" || own == kind))
            && self.matches_cluster(server)
    }

    fn matches_cluster(&self, server: &str) -> bool {
        self.clusters.is_empty() || self.clusters.iter().any(|pattern| glob::matches(pattern, server))
    }
}

/// Which kinds are looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceFilter {
    /// `resource.exclusions`.
    pub exclusions: Vec<ResourceRule>,
    /// `resource.inclusions`.
    pub inclusions: Vec<ResourceRule>,
}

impl ResourceFilter {
    /// Whether a kind is passed over on a cluster. Exclusions win; where a cluster has inclusions, only those count.
    ///
    /// Events, metrics and leases are passed over whatever settings say: they change all the time and nobody deploys them.
    pub fn excludes(&self, group: &str, kind: &str, server: &str) -> bool {
        let built_in = matches!(
            (group, kind),
            ("events.k8s.io" | "metrics.k8s.io", _) | ("", "Event") | ("coordination.k8s.io", "Lease")
        );
        if built_in
            || self
                .exclusions
                .iter()
                .any(|rule| rule.matches(group, kind, server))
        {
            return true;
        }
        !self
            .inclusions
            .iter()
            .any(|rule| rule.matches(group, kind, server))
            && self.inclusions.iter().any(|rule| rule.matches_cluster(server))
    }
}

impl Settings {
    /// Reads the data of `argocd-cm`. The namespace is that of the control plane.
    pub fn read(
        data: &BTreeMap<String, String>,
        control_plane_namespace: &str,
        yaml: ParseYaml<'_>,
    ) -> (Self, Vec<Finding>) {
        let mut read = Reader {
            data,
            yaml,
            findings: Vec::new(),
        };
        let default = Self::default();
        let settings = Self {
            tracking: read.tracking(control_plane_namespace),
            resources: ResourceFilter {
                exclusions: read.yaml("resource.exclusions"),
                inclusions: read.yaml("resource.inclusions"),
            },
            overrides: read.overrides(),
            ignore_resource_updates_enabled: read.bool("resource.ignoreResourceUpdatesEnabled", true),
            compare: read.compare(),
            sensitive_annotations: read.list("resource.sensitive.mask.annotations"),
            custom_labels: read.list("resource.customLabels"),
            include_event_labels: read.list("resource.includeEventLabelKeys"),
            exclude_event_labels: read.list("resource.excludeEventLabelKeys"),
            allowed_node_labels: read.list("application.allowedNodeLabels"),
            respect_rbac: read.respect_rbac(),
            enabled: EnabledSources {
                helm: read.is_not_other_than_true("helm.enable"),
                kustomize: read.is_not_other_than_true("kustomize.enable"),
                jsonnet: read.is_not_other_than_true("jsonnet.enable"),
            },
            helm: HelmOptions {
                values_file_schemes: match data.get("helm.valuesFileSchemes") {
                    Some(_) => read.list("helm.valuesFileSchemes"),
                    None => default.helm.values_file_schemes,
                },
            },
            kustomize: read.kustomize(),
            global_projects: read.yaml("globalProjects"),
            in_cluster_enabled: read.text("cluster.inClusterEnabled") != "false",
            impersonation_enabled: read.text("application.sync.impersonation.enabled") == "true",
            impersonation_enforced: read.text("application.sync.impersonation.enforced") != "false",
            deletion_hold: read.deletion_hold(),
            require_override_for_revision_sync: read
                .bool("application.sync.requireOverridePrivilegeForRevisionSync", false),
            reconciliation: read.duration("timeout.reconciliation", default.reconciliation),
            reconciliation_jitter: read
                .duration("timeout.reconciliation.jitter", default.reconciliation_jitter),
            hard_reconciliation: read.duration("timeout.hard.reconciliation", default.hard_reconciliation),
            url: read.text("url").trim_end_matches('/').to_owned(),
            commit_author_name: read.text_or("commit.author.name", default.commit_author_name),
            commit_author_email: read.text_or("commit.author.email", default.commit_author_email),
            commit_message_template: read.text("sourceHydrator.commitMessageTemplate").to_owned(),
            readme_message_template: read.text("sourceHydrator.readmeMessageTemplate").to_owned(),
            webhook_payload_bytes_max: read
                .parsed("webhook.maxPayloadSizeMB", 50_u64, "a number")
                .saturating_mul(1 << 20),
        };
        (settings, read.findings)
    }

    /// The rules by which comparison goes: those of `overrides`, and `/status` for the kinds that the options name.
    pub fn comparison_overrides(&self) -> BTreeMap<String, ResourceOverride> {
        let mut overrides = self.overrides.clone();
        let key = match self.compare.ignore_status {
            IgnoreStatus::All => "*/*",
            IgnoreStatus::Crd => "apiextensions.k8s.io/CustomResourceDefinition",
            IgnoreStatus::None => return overrides,
        };
        let rules = &mut overrides.entry(key.to_owned()).or_default().ignore_differences;
        rules.json_pointers.push("/status".to_owned());
        overrides
    }

    /// The rules that tell which changes of live objects matter, as `ignore_differences` of each kind.
    pub fn update_overrides(&self) -> BTreeMap<String, ResourceOverride> {
        let mut overrides = self.comparison_overrides();
        for rules in overrides.values_mut() {
            let mut updates = std::mem::take(&mut rules.ignore_resource_updates);
            if self.compare.ignore_differences_on_resource_updates {
                let more = std::mem::take(&mut rules.ignore_differences);
                updates.json_pointers.extend(more.json_pointers);
                updates.jq_path_expressions.extend(more.jq_path_expressions);
                updates
                    .managed_fields_managers
                    .extend(more.managed_fields_managers);
            }
            rules.ignore_differences = updates;
        }
        let everywhere = &mut overrides.entry("*/*".to_owned()).or_default().ignore_differences;
        for pointer in [
            "/metadata/resourceVersion",
            "/metadata/generation",
            "/metadata/managedFields",
        ] {
            everywhere.json_pointers.push(pointer.to_owned());
        }
        overrides
    }
}

struct Reader<'a> {
    data: &'a BTreeMap<String, String>,
    yaml: ParseYaml<'a>,
    findings: Vec<Finding>,
}

impl<'a> Reader<'a> {
    fn find(&mut self, key: &str, message: impl Into<String>) {
        self.findings.push(Finding {
            key: key.to_owned(),
            message: message.into(),
        });
    }

    fn text(&self, key: &str) -> &'a str {
        self.data.get(key).map_or("", String::as_str)
    }

    fn text_or(&self, key: &str, default: String) -> String {
        match self.text(key) {
            "" => default,
            text => text.to_owned(),
        }
    }

    /// Words with commas between.
    fn list(&self, key: &str) -> Vec<String> {
        self.text(key)
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    }

    fn bool(&mut self, key: &str, default: bool) -> bool {
        match self.text(key) {
            "" => default,
            text => parse_bool(text).unwrap_or_else(|| {
                let message = format!("{text:?} is not a boolean, {default} counts");
                self.find(key, message);
                default
            }),
        }
    }

    /// For switches that any word but `true` turns off.
    fn is_not_other_than_true(&self, key: &str) -> bool {
        matches!(self.text(key), "" | "true")
    }

    fn parsed<T: std::str::FromStr + Copy + std::fmt::Display>(
        &mut self,
        key: &str,
        default: T,
        expected: &str,
    ) -> T {
        match self.text(key) {
            "" => default,
            text => text.parse().unwrap_or_else(|_| {
                let message = format!("{text:?} is not {expected}, {default} counts");
                self.find(key, message);
                default
            }),
        }
    }

    fn deletion_hold(&mut self) -> DeletionHold {
        let default = DeletionHold::default();
        let kinds = "application.sync.deletionHold.kinds";
        DeletionHold {
            enabled: self.bool("application.sync.deletionHold.enabled", default.enabled),
            at_least: self.parsed(
                "application.sync.deletionHold.atLeast",
                default.at_least,
                "a number of resources",
            ),
            share: self.parsed(
                "application.sync.deletionHold.share",
                default.share,
                "a percentage",
            ),
            kinds: if self.data.contains_key(kinds) {
                self.list(kinds)
            } else {
                default.kinds
            },
        }
    }

    fn duration(&mut self, key: &str, default: Duration) -> Duration {
        match self.text(key) {
            "" => default,
            text => duration::parse_with_days(text).unwrap_or_else(|error| {
                self.find(key, format!("{error}, {} counts", duration::format(default)));
                default
            }),
        }
    }

    /// A YAML value of some type; its default where it is absent or cannot be read.
    fn yaml<T: Default + DeserializeOwned>(&mut self, key: &str) -> T {
        let text = self.text(key).to_owned();
        self.yaml_text(key, &text)
    }

    fn yaml_text<T: Default + DeserializeOwned>(&mut self, key: &str, text: &str) -> T {
        match self.try_yaml(text) {
            Ok(value) => value,
            Err(message) => {
                self.find(key, format!("{message}; it is passed over"));
                T::default()
            }
        }
    }

    fn try_yaml<T: Default + DeserializeOwned>(&self, text: &str) -> Result<T, String> {
        if text.trim().is_empty() {
            return Ok(T::default());
        }
        let value = (self.yaml)(text)?;
        Option::<T>::deserialize(&value)
            .map(Option::unwrap_or_default)
            .map_err(|error| error.to_string())
    }

    fn tracking(&mut self, control_plane_namespace: &str) -> tracking::Config {
        let method = self.text("application.resourceTrackingMethod").to_owned();
        if !matches!(method.as_str(), "" | "annotation" | "label" | "annotation+label") {
            self.find(
                "application.resourceTrackingMethod",
                format!("{method:?} is no method, annotation counts"),
            );
        }
        tracking::Config {
            method: tracking::Method::parse(&method),
            label_key: self.text_or("application.instanceLabelKey", tracking::DEFAULT_LABEL.to_owned()),
            installation_id: self.text("installationID").to_owned(),
            control_plane_namespace: control_plane_namespace.to_owned(),
        }
    }

    fn compare(&mut self) -> CompareOptions {
        const KEY: &str = "resource.compareoptions";
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Options {
            ignore_aggregated_roles: Option<bool>,
            ignore_resource_status_field: Option<Value>,
            ignore_differences_on_resource_updates: Option<bool>,
        }
        let options: Options = self.yaml(KEY);
        let default = CompareOptions::default();
        CompareOptions {
            ignore_aggregated_roles: options
                .ignore_aggregated_roles
                .unwrap_or(default.ignore_aggregated_roles),
            ignore_differences_on_resource_updates: options
                .ignore_differences_on_resource_updates
                .unwrap_or(default.ignore_differences_on_resource_updates),
            // `off` without quotes is the boolean false in YAML.
            ignore_status: match options.ignore_resource_status_field {
                None => default.ignore_status,
                Some(Value::Bool(false)) => IgnoreStatus::None,
                Some(value) => match value.as_str() {
                    Some("" | "all") => IgnoreStatus::All,
                    Some("crd") => IgnoreStatus::Crd,
                    Some("none" | "off" | "false") => IgnoreStatus::None,
                    _ => {
                        self.find(
                            KEY,
                            format!("ignoreResourceStatusField: {value} is unknown, all counts"),
                        );
                        IgnoreStatus::All
                    }
                },
            },
        }
    }

    fn respect_rbac(&mut self) -> RespectRbac {
        match self.text("resource.respectRBAC") {
            "" => RespectRbac::Off,
            "normal" => RespectRbac::Normal,
            "strict" => RespectRbac::Strict,
            text => {
                let message = format!("{text:?} is neither normal nor strict, it is off");
                self.find("resource.respectRBAC", message);
                RespectRbac::Off
            }
        }
    }

    fn kustomize(&mut self) -> KustomizeOptions {
        let mut versions: BTreeMap<String, KustomizeVersion> = BTreeMap::new();
        for (key, path) in self.data {
            let name = ["kustomize.version.", "kustomize.path."]
                .iter()
                .find_map(|prefix| key.strip_prefix(prefix));
            let Some(name) = name.filter(|name| !name.is_empty()) else {
                continue;
            };
            let version = KustomizeVersion {
                name: name.to_owned(),
                path: path.clone(),
                build_options: self.text(&format!("kustomize.buildOptions.{name}")).to_owned(),
            };
            if versions.insert(name.to_owned(), version).is_some() {
                self.findings.push(Finding {
                    key: key.clone(),
                    message: format!("version {name} is given twice, this one counts"),
                });
            }
        }
        KustomizeOptions {
            build_options: self.text("kustomize.buildOptions").to_owned(),
            binary_path: String::new(),
            versions: versions.into_values().collect(),
        }
    }

    /// Both forms: one YAML map, then keys of their own, which win.
    fn overrides(&mut self) -> BTreeMap<String, ResourceOverride> {
        const KEY: &str = "resource.customizations";
        let mut overrides = BTreeMap::new();
        let whole: BTreeMap<String, Value> = self.yaml(KEY);
        for (kind, value) in whole {
            let place = format!("{KEY} of {kind}");
            let read = self.override_of(&place, &value);
            overrides.insert(kind, read);
        }
        let data = self.data;
        for (key, text) in data {
            let Some((part, kind)) = key
                .strip_prefix("resource.customizations.")
                .and_then(|rest| rest.split_once('.'))
            else {
                continue;
            };
            let kind = match kind.split('_').collect::<Vec<_>>()[..] {
                ["all"] => "*/*".to_owned(),
                [kind] if !kind.is_empty() => kind.to_owned(),
                [group, kind] => format!("{group}/{kind}"),
                _ => {
                    self.find(key, "it does not end in group_Kind; it is passed over");
                    continue;
                }
            };
            self.override_part(key, part, text, overrides.entry(kind).or_default());
        }
        overrides
    }

    fn override_part(&mut self, key: &str, part: &str, text: &str, target: &mut ResourceOverride) {
        match part {
            "health" => target.health_lua = text.to_owned(),
            "actions" => target.actions = text.to_owned(),
            "useOpenLibs" => target.use_open_libs = self.bool(key, false),
            "ignoreDifferences" => target.ignore_differences = self.yaml_text(key, text),
            "ignoreResourceUpdates" => target.ignore_resource_updates = self.yaml_text(key, text),
            "knownTypeFields" => target.known_type_fields = self.yaml_text(key, text),
            _ => self.find(key, format!("{part} is no customization; it is passed over")),
        }
    }

    /// One entry of the map form, whose rules are YAML texts inside the YAML.
    fn override_of(&mut self, place: &str, value: &Value) -> ResourceOverride {
        let text = |key: &str| {
            value
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let known: Vec<KnownTypeField> = match value.get("knownTypeFields") {
            None | Some(Value::Null) => Vec::new(),
            Some(list) => Deserialize::deserialize(list).unwrap_or_else(|error| {
                self.find(place, format!("knownTypeFields: {error}; it is passed over"));
                Vec::new()
            }),
        };
        ResourceOverride {
            health_lua: text("health.lua"),
            use_open_libs: value
                .get("health.lua.useOpenLibs")
                .and_then(Value::as_bool)
                .unwrap_or_default(),
            actions: text("actions"),
            ignore_differences: self.rules(place, &text("ignoreDifferences")),
            ignore_resource_updates: self.rules(place, &text("ignoreResourceUpdates")),
            known_type_fields: known,
        }
    }

    fn rules(&mut self, place: &str, text: &str) -> OverrideIgnoreDiff {
        self.yaml_text(place, text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// JSON is YAML; the real parser is argosy-object's.
    fn json(text: &str) -> Result<Value, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    fn read(pairs: &[(&str, &str)]) -> (Settings, Vec<Finding>) {
        let data = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        Settings::read(&data, "argocd", &json)
    }

    #[test]
    fn an_empty_config_map_is_the_defaults() {
        let (settings, findings) = read(&[]);
        assert_eq!(findings, []);
        let mut expected = Settings::default();
        expected.tracking.control_plane_namespace = "argocd".to_owned();
        assert_eq!(settings, expected);
        assert_eq!(settings.reconciliation, Duration::from_secs(120));
        assert_eq!(settings.helm.values_file_schemes, ["https", "http"]);
    }

    #[test]
    fn one_bad_key_does_not_hurt_the_others() {
        let (settings, findings) = read(&[
            ("timeout.reconciliation", "soon"),
            ("timeout.reconciliation.jitter", "5m"),
            ("resource.exclusions", "{"),
            ("resource.inclusions", r#"[{"apiGroups":["apps"],"kinds":["*"]}]"#),
            ("application.resourceTrackingMethod", "guess"),
            ("resource.respectRBAC", "strict"),
            ("resource.ignoreResourceUpdatesEnabled", "maybe"),
        ]);
        assert_eq!(settings.reconciliation, Duration::from_secs(120));
        assert_eq!(settings.reconciliation_jitter, Duration::from_secs(300));
        assert_eq!(settings.resources.inclusions.len(), 1);
        assert_eq!(settings.respect_rbac, RespectRbac::Strict);
        let keys: Vec<_> = findings.iter().map(|finding| finding.key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "application.resourceTrackingMethod",
                "resource.exclusions",
                "resource.ignoreResourceUpdatesEnabled",
                "timeout.reconciliation"
            ]
        );
    }

    #[test]
    fn exclusions_win_and_inclusions_close_their_clusters() {
        let (settings, _) = read(&[
            (
                "resource.exclusions",
                r#"[{"apiGroups":["*.cilium.io","cilium.io"],"kinds":["CiliumIdentity"],"clusters":["https://eu-*"]}]"#,
            ),
            (
                "resource.inclusions",
                r#"[{"apiGroups":["apps"],"kinds":["*"],"clusters":["https://edge"]}]"#,
            ),
        ]);
        let filter = settings.resources;
        assert!(filter.excludes("cilium.io", "CiliumIdentity", "https://eu-1"));
        assert!(!filter.excludes("cilium.io", "CiliumIdentity", "https://us-1"));
        assert!(!filter.excludes("apps", "Deployment", "https://edge"));
        assert!(filter.excludes("", "ConfigMap", "https://edge"));
        assert!(!filter.excludes("", "ConfigMap", "https://us-1"));
    }

    #[test]
    fn events_metrics_and_leases_cannot_be_included() {
        let (settings, _) = read(&[("resource.inclusions", r#"[{"apiGroups":["*"],"kinds":["*"]}]"#)]);
        for (group, kind) in [
            ("", "Event"),
            ("events.k8s.io", "Event"),
            ("metrics.k8s.io", "PodMetrics"),
            ("coordination.k8s.io", "Lease"),
        ] {
            assert!(
                settings.resources.excludes(group, kind, "https://a"),
                "{group}/{kind}"
            );
        }
    }

    #[test]
    fn what_deletions_wait_for_a_person_can_be_set() {
        let (settings, findings) = read(&[
            ("application.sync.deletionHold.atLeast", "3"),
            ("application.sync.deletionHold.share", "many"),
            ("application.sync.deletionHold.kinds", ""),
        ]);
        assert_eq!(
            settings.deletion_hold,
            DeletionHold {
                enabled: true,
                at_least: 3,
                share: 50,
                kinds: Vec::new(),
            }
        );
        assert_eq!(findings.len(), 1);
        assert_eq!(read(&[]).0.deletion_hold, DeletionHold::default());
    }

    #[test]
    fn customizations_come_whole_or_in_parts() {
        let whole = json!({"apps/Deployment": {
            "health.lua": "return {}",
            "ignoreDifferences": "{\"jsonPointers\":[\"/spec/replicas\"]}",
            "knownTypeFields": [{"field": "spec.x", "type": "core/Quantity"}]
        }})
        .to_string();
        let (settings, findings) = read(&[
            ("resource.customizations", whole.as_str()),
            ("resource.customizations.useOpenLibs.apps_Deployment", "true"),
            ("resource.customizations.health.ConfigMap", "return 1"),
            (
                "resource.customizations.ignoreDifferences.all",
                r#"{"managedFieldsManagers":["hpa"],"jsonPointers":null}"#,
            ),
            ("resource.customizations.ignoreDifferences.apps_StatefulSet", "{"),
            ("resource.customizations.colour.apps_DaemonSet", "red"),
        ]);
        let deployment = &settings.overrides["apps/Deployment"];
        assert_eq!(deployment.health_lua, "return {}");
        assert!(deployment.use_open_libs);
        assert_eq!(deployment.ignore_differences.json_pointers, ["/spec/replicas"]);
        assert_eq!(deployment.known_type_fields[0].r#type, "core/Quantity");
        assert_eq!(settings.overrides["ConfigMap"].health_lua, "return 1");
        assert_eq!(
            settings.overrides["*/*"]
                .ignore_differences
                .managed_fields_managers,
            ["hpa"]
        );
        assert_eq!(findings.len(), 2);
    }

    #[test]
    fn status_is_ignored_where_compare_options_say() {
        let (settings, _) = read(&[]);
        assert_eq!(
            settings.comparison_overrides()["*/*"]
                .ignore_differences
                .json_pointers,
            ["/status"]
        );
        let (settings, _) = read(&[(
            "resource.compareoptions",
            r#"{"ignoreResourceStatusField":"crd"}"#,
        )]);
        assert!(
            settings
                .comparison_overrides()
                .contains_key("apiextensions.k8s.io/CustomResourceDefinition")
        );
        let (settings, findings) = read(&[(
            "resource.compareoptions",
            r#"{"ignoreResourceStatusField":false}"#,
        )]);
        assert!(settings.comparison_overrides().is_empty() && findings.is_empty());
    }

    #[test]
    fn update_rules_take_in_difference_rules_unless_told_not_to() {
        let rules = [
            (
                "resource.customizations.ignoreDifferences.apps_Deployment",
                r#"{"jsonPointers":["/spec/replicas"]}"#,
            ),
            (
                "resource.customizations.ignoreResourceUpdates.apps_Deployment",
                r#"{"jsonPointers":["/status"]}"#,
            ),
        ];
        let pointers = |pairs: &[(&str, &str)]| {
            read(pairs).0.update_overrides()["apps/Deployment"]
                .ignore_differences
                .json_pointers
                .clone()
        };
        assert_eq!(pointers(&rules), ["/status", "/spec/replicas"]);
        let off = [
            rules[0],
            rules[1],
            (
                "resource.compareoptions",
                r#"{"ignoreDifferencesOnResourceUpdates":false}"#,
            ),
        ];
        assert_eq!(pointers(&off), ["/status"]);
        let everywhere = &read(&rules).0.update_overrides()["*/*"]
            .ignore_differences
            .json_pointers;
        assert!(everywhere.contains(&"/metadata/managedFields".to_owned()));
    }

    #[test]
    fn tools_can_be_turned_off_and_versions_added() {
        let (settings, _) = read(&[
            ("helm.enable", "false"),
            ("helm.valuesFileSchemes", " s3, git "),
            ("kustomize.buildOptions", "--enable-helm"),
            ("kustomize.path.v5.0.0", "/opt/kustomize5"),
            (
                "kustomize.buildOptions.v5.0.0",
                "--load-restrictor LoadRestrictionsNone",
            ),
        ]);
        assert!(!settings.enabled.to_map()["Helm"]);
        assert!(settings.enabled.to_map()["Directory"]);
        assert_eq!(settings.helm.values_file_schemes, ["s3", "git"]);
        assert_eq!(settings.kustomize.build_options, "--enable-helm");
        assert_eq!(
            settings.kustomize.versions,
            [KustomizeVersion {
                name: "v5.0.0".to_owned(),
                path: "/opt/kustomize5".to_owned(),
                build_options: "--load-restrictor LoadRestrictionsNone".to_owned()
            }]
        );
    }

    #[test]
    fn global_projects_are_chosen_by_labels() {
        let (settings, _) = read(&[(
            "globalProjects",
            r#"[{"projectName":"base","labelSelector":{"matchExpressions":[{"key":"tier","operator":"In","values":["prod"]}]}}]"#,
        )]);
        let global = &settings.global_projects[0];
        assert_eq!(global.project_name, "base");
        assert!(
            global
                .label_selector
                .matches(&BTreeMap::from([("tier".to_owned(), "prod".to_owned())]))
        );
        assert!(!global.label_selector.matches(&BTreeMap::new()));
    }
}
