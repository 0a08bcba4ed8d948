//! What the controller found: `Application.status` without the operation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    ApplicationDestination, ApplicationSource, OperationState, ResourceIgnoreDifferences, SourceHydrator,
};
use crate::meta::{Time, is_false, is_zero};

/// What the controller last found.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationStatus {
    /// Desired resources and extra managed ones, not the whole tree.
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceStatus>,
    #[prost(message, required, tag = "2")]
    pub sync: SyncStatus,
    #[prost(message, required, tag = "3")]
    pub health: AppHealthStatus,
    #[prost(message, repeated, tag = "4")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<RevisionHistory>,
    #[prost(message, repeated, tag = "5")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ApplicationCondition>,
    /// When the last comparison ended.
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub reconciled_at: Option<Time>,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_state: Option<OperationState>,
    /// Deprecated; read, never written.
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub observed_at: Option<Time>,
    /// `Helm`, `Kustomize`, `Directory` or `Plugin`; `sourceTypes` with several sources.
    #[prost(string, tag = "9")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source_type: String,
    #[prost(message, required, tag = "10")]
    pub summary: ApplicationSummary,
    /// `appTree`: the health of resources lies in the shared resource tree. Empty: in `resources`.
    #[prost(string, tag = "11")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_health_source: String,
    #[prost(string, repeated, tag = "12")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_types: Vec<String>,
    /// Namespace of the controller that wrote this.
    #[prost(string, tag = "13")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub controller_namespace: String,
    #[prost(message, required, tag = "14")]
    pub source_hydrator: SourceHydratorStatus,
}

/// Does live match desired, and at which revision was that asked.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["status"]))]
pub struct SyncStatus {
    /// A [`SyncStatusCode`](super::SyncStatusCode).
    #[prost(string, tag = "1")]
    pub status: String,
    #[prost(message, required, tag = "2")]
    pub compared_to: ComparedTo,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision: String,
    #[prost(string, repeated, tag = "4")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<String>,
}

/// The spec that the comparison was made with.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["destination"]))]
pub struct ComparedTo {
    #[prost(message, required, tag = "1")]
    pub source: ApplicationSource,
    #[prost(message, required, tag = "2")]
    pub destination: ApplicationDestination,
    #[prost(message, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<ApplicationSource>,
    #[prost(message, repeated, tag = "4")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore_differences: Vec<ResourceIgnoreDifferences>,
}

/// Health of an Application.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AppHealthStatus {
    /// A [`HealthStatusCode`](super::HealthStatusCode).
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// Which resources caused it.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When the code last changed.
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub last_transition_time: Option<Time>,
}

/// Health of one resource.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HealthStatus {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub last_transition_time: Option<Time>,
}

/// One managed resource: identity, sync status, perhaps health.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceStatus {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// A [`SyncStatusCode`](super::SyncStatusCode).
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// Absent where health is not kept in the Application itself.
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthStatus>,
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "is_false")]
    pub hook: bool,
    #[prost(bool, tag = "9")]
    #[serde(skip_serializing_if = "is_false")]
    pub requires_pruning: bool,
    #[prost(int64, tag = "10")]
    #[serde(skip_serializing_if = "is_zero")]
    pub sync_wave: i64,
    #[prost(bool, tag = "11")]
    #[serde(skip_serializing_if = "is_false")]
    pub requires_deletion_confirmation: bool,
}

/// One full, successful sync.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["deployedAt", "id"]))]
pub struct RevisionHistory {
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision: String,
    #[prost(message, optional, tag = "4")]
    pub deployed_at: Option<Time>,
    /// One more than the entry before; the first is 0.
    #[prost(int64, tag = "5")]
    pub id: i64,
    #[prost(message, required, tag = "6")]
    pub source: ApplicationSource,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub deploy_started_at: Option<Time>,
    #[prost(message, repeated, tag = "8")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<ApplicationSource>,
    #[prost(string, repeated, tag = "9")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<String>,
    #[prost(message, required, tag = "10")]
    pub initiated_by: OperationInitiator,
}

/// Who started an operation.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OperationInitiator {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    #[prost(bool, tag = "2")]
    #[serde(skip_serializing_if = "is_false")]
    pub automated: bool,
}

/// Something a person should know; see [`crate::condition`].
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["type", "message"]))]
pub struct ApplicationCondition {
    #[prost(string, tag = "1")]
    pub r#type: String,
    #[prost(string, tag = "2")]
    pub message: String,
    /// Stays while type and message stay.
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub last_transition_time: Option<Time>,
}

/// What lists show without the tree.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSummary {
    #[prost(string, repeated, tag = "1")]
    #[serde(rename = "externalURLs", skip_serializing_if = "Vec::is_empty")]
    pub external_urls: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// The tree holds at least one child Application.
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "is_false")]
    pub is_app_of_apps: bool,
}

/// How hydration goes.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SourceHydratorStatus {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_successful_operation: Option<SuccessfulHydrateOperation>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_operation: Option<HydrateOperation>,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_compared_dry_revision: String,
}

/// One hydration.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["phase", "message"]))]
pub struct HydrateOperation {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub started_at: Option<Time>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub finished_at: Option<Time>,
    /// `Hydrating`, `Hydrated` or `Failed`.
    #[prost(string, tag = "3")]
    #[schemars(extend("enum" = ["Hydrating", "Failed", "Hydrated"]))]
    pub phase: String,
    #[prost(string, tag = "4")]
    pub message: String,
    #[prost(string, tag = "5")]
    #[serde(rename = "drySHA", skip_serializing_if = "String::is_empty")]
    pub dry_sha: String,
    #[prost(string, tag = "6")]
    #[serde(rename = "hydratedSHA", skip_serializing_if = "String::is_empty")]
    pub hydrated_sha: String,
    #[prost(message, required, tag = "7")]
    pub source_hydrator: SourceHydrator,
}

/// The last hydration that worked.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SuccessfulHydrateOperation {
    #[prost(string, tag = "5")]
    #[serde(rename = "drySHA", skip_serializing_if = "String::is_empty")]
    pub dry_sha: String,
    #[prost(string, tag = "6")]
    #[serde(rename = "hydratedSHA", skip_serializing_if = "String::is_empty")]
    pub hydrated_sha: String,
    #[prost(message, required, tag = "7")]
    pub source_hydrator: SourceHydrator,
}
