//! Where manifests come from and with which parameters they are rendered.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::{IntOrString, RawExtension, is_default, is_false};

/// One place manifests come from, and the tool that renders them.
///
/// At most one of `helm`, `kustomize`, `directory`, `plugin` is given; none means detect. A source with `ref` alone
/// renders nothing and lends its files to other sources as `$ref/…`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["repoURL"]))]
pub struct ApplicationSource {
    /// Git, Helm or `oci://` repository.
    #[prost(string, tag = "1")]
    #[serde(rename = "repoURL")]
    pub repo_url: String,
    /// Directory inside the repository.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Branch, tag, commit, or a semver constraint; empty is `HEAD`.
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target_revision: String,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub helm: Option<ApplicationSourceHelm>,
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kustomize: Option<ApplicationSourceKustomize>,
    #[prost(message, optional, tag = "10")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<ApplicationSourceDirectory>,
    #[prost(message, optional, tag = "11")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<ApplicationSourcePlugin>,
    /// Name of the chart when the repository holds Helm charts.
    #[prost(string, tag = "12")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub chart: String,
    /// Name under which other sources reach the files of this one.
    #[prost(string, tag = "13")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub r#ref: String,
    #[prost(string, tag = "14")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Only tags that begin so take part in semver matching; the prefix is taken off first.
    #[prost(string, tag = "15")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tag_prefix: String,
}

/// Parameters of Helm. Later beats earlier: chart values, `valueFiles` in order, `values` or `valuesObject`, then
/// `fileParameters` and `parameters`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSourceHelm {
    /// Paths, `$ref/…` paths, globs or URLs.
    #[prost(string, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub value_files: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<HelmParameter>,
    /// The name of the Application unless given.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub release_name: String,
    /// YAML text.
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub values: String,
    #[prost(message, repeated, tag = "5")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub file_parameters: Vec<HelmFileParameter>,
    /// Legacy; only `v3` is valid.
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Send the credentials to every domain (`--pass-credentials`).
    #[prost(bool, tag = "7")]
    #[serde(skip_serializing_if = "is_false")]
    pub pass_credentials: bool,
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "is_false")]
    pub ignore_missing_value_files: bool,
    #[prost(bool, tag = "9")]
    #[serde(skip_serializing_if = "is_false")]
    pub skip_crds: bool,
    /// Values as an object; takes the place of `values`.
    #[prost(message, optional, tag = "10")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values_object: Option<RawExtension>,
    /// The namespace of the destination unless given.
    #[prost(string, tag = "11")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// In place of the version of the target cluster.
    #[prost(string, tag = "12")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kube_version: String,
    /// In place of the API versions of the target cluster, each `[group/]version/kind`.
    #[prost(string, repeated, tag = "13")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_versions: Vec<String>,
    #[prost(bool, tag = "14")]
    #[serde(skip_serializing_if = "is_false")]
    pub skip_tests: bool,
    #[prost(bool, tag = "15")]
    #[serde(skip_serializing_if = "is_false")]
    pub skip_schema_validation: bool,
}

/// One `--set`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HelmParameter {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Make it a `--set-string`.
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "is_false")]
    pub force_string: bool,
}

/// One `--set-file`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HelmFileParameter {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
}

/// Edits to make to a kustomization before it is built.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSourceKustomize {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name_prefix: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name_suffix: String,
    /// `old=new:tag`, `name:tag` or `name@digest`.
    #[prost(string, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    #[prost(btree_map = "string, string", tag = "4")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub common_labels: BTreeMap<String, String>,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    #[prost(btree_map = "string, string", tag = "6")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub common_annotations: BTreeMap<String, String>,
    /// Overwrite labels that are there already.
    #[prost(bool, tag = "7")]
    #[serde(skip_serializing_if = "is_false")]
    pub force_common_labels: bool,
    /// Overwrite annotations that are there already.
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "is_false")]
    pub force_common_annotations: bool,
    #[prost(string, tag = "9")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Substitute the build environment in the values of `commonAnnotations`.
    #[prost(bool, tag = "10")]
    #[serde(skip_serializing_if = "is_false")]
    pub common_annotations_envsubst: bool,
    #[prost(message, repeated, tag = "11")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<KustomizeReplica>,
    #[prost(message, repeated, tag = "12")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<KustomizePatch>,
    #[prost(string, repeated, tag = "13")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<String>,
    /// Do not add common labels to selectors.
    #[prost(bool, tag = "14")]
    #[serde(skip_serializing_if = "is_false")]
    pub label_without_selector: bool,
    #[prost(string, tag = "15")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kube_version: String,
    #[prost(string, repeated, tag = "16")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_versions: Vec<String>,
    /// Leave out components that do not exist.
    #[prost(bool, tag = "17")]
    #[serde(skip_serializing_if = "is_false")]
    pub ignore_missing_components: bool,
    /// With `labelWithoutSelector`: label pod templates all the same.
    #[prost(bool, tag = "18")]
    #[serde(skip_serializing_if = "is_false")]
    pub label_include_templates: bool,
}

/// Replicas of one workload.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["name", "count"]))]
pub struct KustomizeReplica {
    #[prost(string, tag = "1")]
    pub name: String,
    /// An integer, or a text that holds one.
    #[prost(message, required, tag = "2")]
    pub count: IntOrString,
}

/// One patch, given by `path` or as text in `patch`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct KustomizePatch {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub patch: String,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<KustomizeSelector>,
    #[prost(btree_map = "string, bool", tag = "4")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, bool>,
}

/// Which resources a patch is for.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct KustomizeSelector {
    #[prost(message, required, tag = "1")]
    #[serde(flatten)]
    pub res_id: KustomizeResId,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub annotation_selector: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label_selector: String,
}

/// By name, as [`super::SyncStrategyHook`] is read.
impl<'de> Deserialize<'de> for KustomizeSelector {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Fields {
            group: String,
            version: String,
            kind: String,
            name: String,
            namespace: String,
            annotation_selector: String,
            label_selector: String,
        }
        let fields = Fields::deserialize(deserializer)?;
        Ok(KustomizeSelector {
            res_id: KustomizeResId {
                gvk: KustomizeGvk {
                    group: fields.group,
                    version: fields.version,
                    kind: fields.kind,
                },
                name: fields.name,
                namespace: fields.namespace,
            },
            annotation_selector: fields.annotation_selector,
            label_selector: fields.label_selector,
        })
    }
}

/// A resource as Kustomize identifies it. Its three kind fields stand beside the names in JSON.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct KustomizeResId {
    #[prost(message, required, tag = "1")]
    #[serde(flatten)]
    pub gvk: KustomizeGvk,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// Group, version and kind as Kustomize writes them.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct KustomizeGvk {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
}

/// A directory of plain manifests and Jsonnet.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSourceDirectory {
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "is_false")]
    pub recurse: bool,
    #[prost(message, required, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub jsonnet: ApplicationSourceJsonnet,
    /// A glob, or a `{a,b}` set of them.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub exclude: String,
    /// A glob, or a `{a,b}` set of them.
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub include: String,
    /// Read every file, not only yaml, yml, json and jsonnet.
    #[prost(bool, tag = "5")]
    #[serde(skip_serializing_if = "is_false")]
    pub disable_extension_filter: bool,
}

/// Parameters of Jsonnet.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSourceJsonnet {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ext_vars: Vec<JsonnetVar>,
    /// Top-level arguments.
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tlas: Vec<JsonnetVar>,
    /// Directories to import from, relative to the repository.
    #[prost(string, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub libs: Vec<String>,
}

/// One variable of Jsonnet.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["name", "value"]))]
pub struct JsonnetVar {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
    /// The value is an expression, not a string.
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "is_false")]
    pub code: bool,
}

/// Parameters of a config management plugin.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSourcePlugin {
    /// Empty: the plugin whose discovery matches.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvEntry>,
    #[prost(message, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<ApplicationSourcePluginParameter>,
}

/// One parameter of a plugin. A present but empty `map` or `array` stays present.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSourcePluginParameter {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<OptionalMap>,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub array: Option<OptionalArray>,
    #[prost(string, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub string: Option<String>,
}

/// A map whose presence matters even when it is empty.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct OptionalMap {
    #[prost(btree_map = "string, string", tag = "1")]
    pub map: BTreeMap<String, String>,
}

/// A list whose presence matters even when it is empty.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct OptionalArray {
    #[prost(string, repeated, tag = "1")]
    pub array: Vec<String>,
}

/// One environment variable of a plugin.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["name", "value"]))]
pub struct EnvEntry {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// Render from one branch, commit the result to another, deploy from there.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["drySource", "syncSource"]))]
pub struct SourceHydrator {
    #[prost(message, required, tag = "1")]
    pub dry_source: DrySource,
    #[prost(message, required, tag = "2")]
    pub sync_source: SyncSource,
    /// A staging branch in place of the one that is synced; people or tools promote from it.
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hydrate_to: Option<HydrateTo>,
}

/// Where the unrendered source lies.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["repoURL", "targetRevision", "path"]))]
pub struct DrySource {
    #[prost(string, tag = "1")]
    #[serde(rename = "repoURL")]
    pub repo_url: String,
    #[prost(string, tag = "2")]
    pub target_revision: String,
    #[prost(string, tag = "3")]
    pub path: String,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub helm: Option<ApplicationSourceHelm>,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kustomize: Option<ApplicationSourceKustomize>,
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<ApplicationSourceDirectory>,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<ApplicationSourcePlugin>,
}

impl DrySource {
    /// As a source that can be rendered.
    #[must_use]
    pub fn to_source(&self) -> ApplicationSource {
        ApplicationSource {
            repo_url: self.repo_url.clone(),
            target_revision: self.target_revision.clone(),
            path: self.path.clone(),
            helm: self.helm.clone(),
            kustomize: self.kustomize.clone(),
            directory: self.directory.clone(),
            plugin: self.plugin.clone(),
            ..ApplicationSource::default()
        }
    }
}

/// Where rendered manifests are deployed from.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["targetBranch", "path"]))]
pub struct SyncSource {
    #[prost(string, tag = "1")]
    pub target_branch: String,
    /// Neither empty nor the root of the repository.
    #[prost(string, tag = "2")]
    #[schemars(extend("minLength" = 1, "pattern" = "^.{2,}|[^./]$"))]
    pub path: String,
    /// The dry repository unless given.
    #[prost(string, tag = "3")]
    #[serde(rename = "repoURL", skip_serializing_if = "String::is_empty")]
    pub repo_url: String,
}

/// The branch rendered manifests are pushed to.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["targetBranch"]))]
pub struct HydrateTo {
    #[prost(string, tag = "1")]
    pub target_branch: String,
}
