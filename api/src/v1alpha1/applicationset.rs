//! ApplicationSet: a template for Applications and the state of their roll-out.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ApplicationSetGenerator, ApplicationSpec, HealthStatus, ResourceNode, ResourceStatus};
use crate::meta::{IntOrString, ListMeta, ObjectMeta, Time, is_false, is_zero, null_as_default};

/// Applications made from a template and generated parameters.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["metadata", "spec"]))]
pub struct ApplicationSet {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    #[prost(message, required, tag = "2")]
    pub spec: ApplicationSetSpec,
    #[prost(message, required, tag = "3")]
    pub status: ApplicationSetStatus,
}

/// Several ApplicationSets.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["items"]))]
pub struct ApplicationSetList {
    #[prost(message, required, tag = "1")]
    pub metadata: ListMeta,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "null_as_default")]
    pub items: Vec<ApplicationSet>,
}

/// One event of a watch on ApplicationSets.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["type", "applicationSet"]))]
pub struct ApplicationSetWatchEvent {
    #[prost(string, tag = "1")]
    pub r#type: String,
    #[prost(message, required, tag = "2")]
    pub application_set: ApplicationSet,
}

/// Generators, template, and how their outcome is brought about.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["generators", "template"]))]
pub struct ApplicationSetSpec {
    /// Go templates in place of `{{ name }}` substitution.
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "is_false")]
    pub go_template: bool,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "null_as_default")]
    pub generators: Vec<ApplicationSetGenerator>,
    #[prost(message, required, tag = "3")]
    pub template: ApplicationSetTemplate,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_policy: Option<ApplicationSetSyncPolicy>,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<ApplicationSetStrategy>,
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preserved_fields: Option<ApplicationPreservedFields>,
    #[prost(string, repeated, tag = "7")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub go_template_options: Vec<String>,
    /// Honour selectors of nested generators too.
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "is_false")]
    pub apply_nested_selectors: bool,
    #[prost(message, repeated, tag = "9")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore_application_differences: Vec<ApplicationSetResourceIgnoreDifferences>,
    /// A text in YAML or JSON, merged over each Application; needs `goTemplate`.
    #[prost(string, optional, tag = "10")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_patch: Option<String>,
}

/// The Application to be; its strings may hold template text.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["metadata", "spec"]))]
pub struct ApplicationSetTemplate {
    #[prost(message, required, tag = "1")]
    pub metadata: ApplicationSetTemplateMeta,
    #[prost(message, required, tag = "2")]
    pub spec: ApplicationSpec,
}

/// The metadata of the Application to be.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSetTemplateMeta {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[prost(btree_map = "string, string", tag = "3")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "4")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    #[prost(string, repeated, tag = "5")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
}

/// What the controller may do to generated Applications.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSetSyncPolicy {
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "is_false")]
    pub preserve_resources_on_deletion: bool,
    /// `create-only`, `create-update`, `create-delete` or `sync`.
    #[prost(string, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["create-only", "create-update", "create-delete", "sync"]))]
    pub applications_sync: Option<String>,
}

/// In which order Applications change.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSetStrategy {
    /// `AllAtOnce` or `RollingSync`.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub r#type: String,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_sync: Option<ApplicationSetRolloutStrategy>,
    /// `AllAtOnce` or `Reverse`.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub deletion_order: String,
}

/// The steps of a rolling sync.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSetRolloutStrategy {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<ApplicationSetRolloutStep>,
}

/// Applications that change together.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSetRolloutStep {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<ApplicationMatchExpression>,
    /// A number or a percentage; 0 waits for people.
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_update: Option<IntOrString>,
}

/// A condition on the labels of Applications.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationMatchExpression {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// `In` or `NotIn`.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operator: String,
    #[prost(string, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Keys that updates of generated Applications leave alone.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationPreservedFields {
    #[prost(string, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub annotations: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// Fields of generated Applications that are not put back.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSetResourceIgnoreDifferences {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(string, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub json_pointers: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jq_path_expressions: Vec<String>,
}

/// How the set stands.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSetStatus {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ApplicationSetCondition>,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub application_status: Vec<ApplicationSetApplicationStatus>,
    /// The generated Applications, cut at a limit; `resourcesCount` is the true number.
    #[prost(message, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceStatus>,
    #[prost(int64, tag = "4")]
    #[serde(skip_serializing_if = "is_zero")]
    pub resources_count: i64,
    #[prost(message, required, tag = "5")]
    pub health: HealthStatus,
}

/// Something a person should know of the set.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["type", "message", "status", "reason"]))]
pub struct ApplicationSetCondition {
    #[prost(string, tag = "1")]
    pub r#type: String,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub last_transition_time: Option<Time>,
    /// `True`, `False` or `Unknown`.
    #[prost(string, tag = "4")]
    pub status: String,
    #[prost(string, tag = "5")]
    pub reason: String,
}

/// How one generated Application stands in a rolling sync.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["application", "message", "status", "step", "targetRevisions"]))]
pub struct ApplicationSetApplicationStatus {
    #[prost(string, tag = "1")]
    pub application: String,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub last_transition_time: Option<Time>,
    #[prost(string, tag = "3")]
    pub message: String,
    /// `Waiting`, `Pending`, `Progressing` or `Healthy`.
    #[prost(string, tag = "4")]
    pub status: String,
    /// The number of the step, counted from 1, as a text.
    #[prost(string, tag = "5")]
    pub step: String,
    #[prost(string, repeated, tag = "6")]
    #[serde(deserialize_with = "null_as_default")]
    pub target_revisions: Vec<String>,
}

/// The Applications of a set as tree nodes.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSetTree {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<ResourceNode>,
}
