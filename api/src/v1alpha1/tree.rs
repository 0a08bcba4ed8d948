//! What is shown of an Application: its resource tree, differences, actions and revisions.
//!
//! These types are not stored in CRs; they travel over the API and through the shared cache.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{HealthStatus, SourceIntegrityCheckResult};
use crate::meta::{LoadBalancerIngress, NodeSystemInfo, Time, is_false, is_zero};

/// Everything an Application owns, directly or through owner references.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationTree {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<ResourceNode>,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orphaned_nodes: Vec<ResourceNode>,
    #[prost(message, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostInfo>,
    /// Into how many pieces the shared cache cut this tree.
    #[prost(int64, tag = "4")]
    #[serde(skip_serializing_if = "is_zero")]
    pub shards_count: i64,
}

/// One resource of the tree. JSON holds the reference inline, the wire as a message.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceNode {
    #[prost(message, required, tag = "1")]
    #[serde(flatten)]
    pub resource_ref: ResourceRef,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parent_refs: Vec<ResourceRef>,
    /// Pairs the UI and CLI know by name: `Revision`, `Status Reason`, `Containers`, `Node`, `Restart Count`, …
    #[prost(message, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub info: Vec<InfoItem>,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networking_info: Option<ResourceNetworkingInfo>,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[prost(string, repeated, tag = "6")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthStatus>,
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub created_at: Option<Time>,
}

/// A resource by identity.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceRef {
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
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// A name and a value for people to read.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct InfoItem {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
}

/// How traffic reaches a resource.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceNetworkingInfo {
    #[prost(btree_map = "string, string", tag = "1")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub target_labels: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub target_refs: Vec<ResourceRef>,
    #[prost(btree_map = "string, string", tag = "3")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "4")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<LoadBalancerIngress>,
    #[prost(string, repeated, tag = "5")]
    #[serde(rename = "externalURLs", skip_serializing_if = "Vec::is_empty")]
    pub external_urls: Vec<String>,
}

/// A node that runs pods of the Application.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HostInfo {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources_info: Vec<HostResourceInfo>,
    #[prost(message, required, tag = "3")]
    pub system_info: NodeSystemInfo,
    #[prost(btree_map = "string, string", tag = "4")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Requests on a node; CPU in thousandths, memory in bytes times a thousand.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HostResourceInfo {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_name: String,
    #[prost(int64, tag = "2")]
    #[serde(skip_serializing_if = "is_zero")]
    pub requested_by_app: i64,
    #[prost(int64, tag = "3")]
    #[serde(skip_serializing_if = "is_zero")]
    pub requested_by_neighbors: i64,
    #[prost(int64, tag = "4")]
    #[serde(skip_serializing_if = "is_zero")]
    pub capacity: i64,
}

/// Desired and live state of one resource, as JSON texts (`null` where absent).
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceDiff {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target_state: String,
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub live_state: String,
    /// Deprecated, empty.
    #[prost(string, tag = "7")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub diff: String,
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "is_false")]
    pub hook: bool,
    #[prost(string, tag = "9")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub normalized_live_state: String,
    #[prost(string, tag = "10")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub predicted_live_state: String,
    #[prost(string, tag = "11")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[prost(bool, tag = "12")]
    #[serde(skip_serializing_if = "is_false")]
    pub modified: bool,
}

/// The actions one kind offers.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceActions {
    #[prost(string, tag = "1")]
    #[serde(rename = "discovery.lua", skip_serializing_if = "String::is_empty")]
    pub action_discovery_lua: String,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub definitions: Vec<ResourceActionDefinition>,
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "is_false")]
    pub merge_builtin_actions: bool,
}

/// An action and its script.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["name", "action.lua"]))]
pub struct ResourceActionDefinition {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    #[serde(rename = "action.lua")]
    pub action_lua: String,
}

/// An action that can be run on a resource.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceAction {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<ResourceActionParam>,
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "is_false")]
    pub disabled: bool,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub icon_class: String,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
}

/// A parameter an action asks for.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceActionParam {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// Who made a revision, when, and what it says.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["date"]))]
pub struct RevisionMetadata {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub author: String,
    #[prost(message, optional, tag = "2")]
    pub date: Option<Time>,
    #[prost(string, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Deprecated in favour of `sourceIntegrityResult`.
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub signature_info: String,
    #[prost(message, repeated, tag = "6")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<RevisionReference>,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_integrity_result: Option<SourceIntegrityCheckResult>,
}

/// A commit elsewhere that led to this revision.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RevisionReference {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitMetadata>,
}

/// A commit in another repository.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct CommitMetadata {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub author: String,
    /// RFC 3339.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub date: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub body: String,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sha: String,
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub repo_url: String,
}

/// What a Helm chart says of itself.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ChartDetails {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub home: String,
    #[prost(string, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub maintainers: Vec<String>,
}

/// What the annotations of an OCI manifest say.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OciMetadata {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub created_at: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub authors: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image_url: String,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub docs_url: String,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source_url: String,
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    #[prost(string, tag = "7")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
}
