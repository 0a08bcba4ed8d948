//! Messages of the render worker, as `render-worker/proto/render_worker.proto` defines them (package
//! `argosy.render.v1`). Written by hand so that no build step is needed; the numbers are the protocol.

use std::collections::{BTreeMap, HashMap};

/// One call.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    /// Chosen by us; comes back in the reply.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// What is asked.
    #[prost(oneof = "Call", tags = "2, 3, 4, 5, 6")]
    pub call: Option<Call>,
}

/// The calls.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Call {
    /// `helm template`.
    #[prost(message, tag = "2")]
    HelmTemplate(HelmTemplate),
    /// `kustomize build`.
    #[prost(message, tag = "3")]
    KustomizeBuild(KustomizeBuild),
    /// Details of a chart.
    #[prost(message, tag = "4")]
    HelmInspect(HelmInspect),
    /// Details of a kustomization.
    #[prost(message, tag = "5")]
    KustomizeInspect(KustomizeInspect),
    /// Versions of the tools.
    #[prost(message, tag = "6")]
    Version(VersionQuery),
}

/// Exactly one per request.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Reply {
    /// Of the request.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// How it went.
    #[prost(oneof = "Outcome", tags = "2, 3, 4, 5, 15")]
    pub outcome: Option<Outcome>,
    /// What was read.
    #[prost(message, optional, tag = "16")]
    pub reads: Option<ReadSet>,
    /// Wall time inside the worker.
    #[prost(uint64, tag = "17")]
    pub micros: u64,
}

/// The outcomes.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Outcome {
    /// Objects.
    #[prost(message, tag = "2")]
    Rendered(Rendered),
    /// Of a chart.
    #[prost(message, tag = "3")]
    HelmDetails(HelmDetails),
    /// Of a kustomization.
    #[prost(message, tag = "4")]
    KustomizeDetails(KustomizeDetails),
    /// Of the tools.
    #[prost(message, tag = "5")]
    Versions(Versions),
    /// Refused or failed.
    #[prost(message, tag = "15")]
    Error(WorkerError),
}

/// `helm template` as Argo CD calls it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HelmTemplate {
    /// Absolute path of the chart.
    #[prost(string, tag = "1")]
    pub chart_dir: String,
    /// Absolute path of the tree that holds it.
    #[prost(string, tag = "2")]
    pub tree_root: String,
    /// Release name.
    #[prost(string, tag = "3")]
    pub release_name: String,
    /// Namespace.
    #[prost(string, tag = "4")]
    pub namespace: String,
    /// Kubernetes version.
    #[prost(string, tag = "5")]
    pub kube_version: String,
    /// API versions.
    #[prost(string, repeated, tag = "6")]
    pub api_versions: Vec<String>,
    /// Absolute paths, lowest precedence first.
    #[prost(string, repeated, tag = "7")]
    pub values_files: Vec<String>,
    /// YAML text above every file.
    #[prost(string, tag = "8")]
    pub values: String,
    /// Set on the command line.
    #[prost(message, repeated, tag = "9")]
    pub parameters: Vec<HelmParameter>,
    /// Leave out CRDs.
    #[prost(bool, tag = "10")]
    pub skip_crds: bool,
    /// Leave out test hooks.
    #[prost(bool, tag = "11")]
    pub skip_tests: bool,
    /// Do not check values.schema.json.
    #[prost(bool, tag = "12")]
    pub skip_schema_validation: bool,
    /// Absolute paths of charts that were fetched for missing dependencies.
    #[prost(string, repeated, tag = "13")]
    pub dependency_charts: Vec<String>,
    /// 0 = no limit.
    #[prost(uint64, tag = "14")]
    pub max_output_bytes: u64,
    /// The API versions are all that there are.
    #[prost(bool, tag = "15")]
    pub api_versions_whole: bool,
}

/// One parameter.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HelmParameter {
    /// Path of the value.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
    /// How it is set.
    #[prost(enumeration = "ParameterKind", tag = "3")]
    pub kind: i32,
}

/// How a parameter is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ParameterKind {
    /// `--set`
    Set = 0,
    /// `--set-string`
    SetString = 1,
    /// `--set-file`
    SetFile = 2,
}

/// `kustomize edit …` and `build`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KustomizeBuild {
    /// Absolute path of the tree.
    #[prost(string, tag = "1")]
    pub root: String,
    /// Relative to it.
    #[prost(string, tag = "2")]
    pub path: String,
    /// Prefix.
    #[prost(string, tag = "3")]
    pub name_prefix: String,
    /// Suffix.
    #[prost(string, tag = "4")]
    pub name_suffix: String,
    /// Images.
    #[prost(string, repeated, tag = "5")]
    pub images: Vec<String>,
    /// Replicas.
    #[prost(message, repeated, tag = "6")]
    pub replicas: Vec<KustomizeReplica>,
    /// Labels.
    #[prost(btree_map = "string, string", tag = "7")]
    pub common_labels: BTreeMap<String, String>,
    /// Overwrite labels.
    #[prost(bool, tag = "8")]
    pub force_common_labels: bool,
    /// Labels not in selectors.
    #[prost(bool, tag = "9")]
    pub label_without_selector: bool,
    /// Labels in templates.
    #[prost(bool, tag = "10")]
    pub label_include_templates: bool,
    /// Annotations.
    #[prost(btree_map = "string, string", tag = "11")]
    pub common_annotations: BTreeMap<String, String>,
    /// Overwrite annotations.
    #[prost(bool, tag = "12")]
    pub force_common_annotations: bool,
    /// Namespace.
    #[prost(string, tag = "13")]
    pub namespace: String,
    /// Components.
    #[prost(string, repeated, tag = "14")]
    pub components: Vec<String>,
    /// Pass over components that are not there.
    #[prost(bool, tag = "15")]
    pub ignore_missing_components: bool,
    /// Patches.
    #[prost(message, repeated, tag = "16")]
    pub patches: Vec<KustomizePatch>,
    /// For inflated charts.
    #[prost(string, tag = "17")]
    pub kube_version: String,
    /// For inflated charts.
    #[prost(string, repeated, tag = "18")]
    pub api_versions: Vec<String>,
    /// From the settings.
    #[prost(string, repeated, tag = "19")]
    pub build_options: Vec<String>,
    /// Copies of what is named by URL.
    #[prost(btree_map = "string, string", tag = "20")]
    pub remotes: BTreeMap<String, String>,
    /// 0 = no limit.
    #[prost(uint64, tag = "21")]
    pub max_output_bytes: u64,
}

/// A replica count.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KustomizeReplica {
    /// Resource name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Replicas.
    #[prost(int64, tag = "2")]
    pub count: i64,
}

/// A patch.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KustomizePatch {
    /// File of the patch.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Or its text.
    #[prost(string, tag = "2")]
    pub patch: String,
    /// What it applies to.
    #[prost(message, optional, tag = "3")]
    pub target: Option<KustomizeSelector>,
    /// Kustomize's options.
    #[prost(map = "string, bool", tag = "4")]
    pub options: HashMap<String, bool>,
}

/// What a patch applies to.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KustomizeSelector {
    /// API group.
    #[prost(string, tag = "1")]
    pub group: String,
    /// API version.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Kind.
    #[prost(string, tag = "3")]
    pub kind: String,
    /// Name.
    #[prost(string, tag = "4")]
    pub name: String,
    /// Namespace.
    #[prost(string, tag = "5")]
    pub namespace: String,
    /// Annotation selector.
    #[prost(string, tag = "6")]
    pub annotation_selector: String,
    /// Label selector.
    #[prost(string, tag = "7")]
    pub label_selector: String,
}

/// Details of a chart.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HelmInspect {
    /// Absolute path of the chart.
    #[prost(string, tag = "1")]
    pub chart_dir: String,
    /// Absolute path of its tree.
    #[prost(string, tag = "2")]
    pub tree_root: String,
    /// Value files selected by the source.
    #[prost(string, repeated, tag = "3")]
    pub values_files: Vec<String>,
}

/// What a chart says about itself.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HelmDetails {
    /// Chart name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Chart version.
    #[prost(string, tag = "2")]
    pub version: String,
    /// App version.
    #[prost(string, tag = "3")]
    pub app_version: String,
    /// Description.
    #[prost(string, tag = "4")]
    pub description: String,
    /// Home page.
    #[prost(string, tag = "5")]
    pub home: String,
    /// Maintainers.
    #[prost(string, repeated, tag = "6")]
    pub maintainers: Vec<String>,
    /// Files with values.
    #[prost(string, repeated, tag = "7")]
    pub values_files: Vec<String>,
    /// Text of values.yaml.
    #[prost(string, tag = "8")]
    pub values: String,
    /// Flattened values.
    #[prost(message, repeated, tag = "9")]
    pub parameters: Vec<HelmParameter>,
    /// Dependencies that are not there.
    #[prost(message, repeated, tag = "10")]
    pub missing_dependencies: Vec<Dependency>,
    /// All dependencies.
    #[prost(message, repeated, tag = "11")]
    pub dependencies: Vec<Dependency>,
}

/// A dependency of a chart.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Dependency {
    /// Chart name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Version or range.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Repository URL, `@name` or `alias:name`.
    #[prost(string, tag = "3")]
    pub repository: String,
    /// Alias.
    #[prost(string, tag = "4")]
    pub alias: String,
}

/// Details of a kustomization.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KustomizeInspect {
    /// What to build.
    #[prost(message, optional, tag = "1")]
    pub build: Option<KustomizeBuild>,
}

/// Images of a kustomization.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KustomizeDetails {
    /// Sorted.
    #[prost(string, repeated, tag = "1")]
    pub images: Vec<String>,
}

/// Asks for versions.
#[derive(Clone, PartialEq, prost::Message)]
pub struct VersionQuery {}

/// Versions of the tools.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Versions {
    /// Helm.
    #[prost(string, tag = "1")]
    pub helm: String,
    /// Kustomize.
    #[prost(string, tag = "2")]
    pub kustomize: String,
    /// Kubernetes that Helm assumes.
    #[prost(string, tag = "3")]
    pub kube: String,
    /// Go.
    #[prost(string, tag = "4")]
    pub go: String,
    /// Revision of the protocol.
    #[prost(uint32, tag = "5")]
    pub protocol: u32,
}

/// The objects.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Rendered {
    /// In the tool's order.
    #[prost(message, repeated, tag = "1")]
    pub objects: Vec<Object>,
    /// Why the output is not a function of the inputs.
    #[prost(string, repeated, tag = "2")]
    pub open_inputs: Vec<String>,
    /// Warnings.
    #[prost(string, repeated, tag = "3")]
    pub warnings: Vec<String>,
}

/// One object.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Object {
    /// A JSON object.
    #[prost(bytes = "vec", tag = "1")]
    pub json: Vec<u8>,
    /// Where it comes from.
    #[prost(string, tag = "2")]
    pub source: String,
}

/// Absolute paths that were read.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadSet {
    /// Files.
    #[prost(string, repeated, tag = "1")]
    pub files: Vec<String>,
    /// Directories, with all below.
    #[prost(string, repeated, tag = "2")]
    pub trees: Vec<String>,
    /// Looked for in vain.
    #[prost(string, repeated, tag = "3")]
    pub absent: Vec<String>,
}

/// A refusal.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WorkerError {
    /// What sort.
    #[prost(enumeration = "ErrorKind", tag = "1")]
    pub kind: i32,
    /// The tool's words.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Relative file.
    #[prost(string, tag = "3")]
    pub file: String,
    /// From 1.
    #[prost(uint32, tag = "4")]
    pub line: u32,
    /// Missing dependencies.
    #[prost(message, repeated, tag = "5")]
    pub dependencies: Vec<Dependency>,
    /// Unknown remotes.
    #[prost(string, repeated, tag = "6")]
    pub remotes: Vec<String>,
}

/// Sorts of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ErrorKind {
    /// Not said.
    Unspecified = 0,
    /// The chart.
    Chart = 1,
    /// Values.
    Values = 2,
    /// The schema of the values.
    Schema = 3,
    /// A template.
    Template = 4,
    /// A kustomization.
    Kustomize = 5,
    /// A file.
    Io = 6,
    /// The worker itself.
    Internal = 7,
    /// Missing dependencies.
    Dependency = 8,
    /// Missing remotes.
    Remote = 9,
    /// Refused by configuration.
    Refused = 10,
    /// Too much output.
    Limit = 11,
    /// A senseless request.
    Request = 12,
}
