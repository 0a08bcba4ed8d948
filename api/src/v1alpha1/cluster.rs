//! Target clusters: address, credentials, and what is known of their state.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::{ListMeta, RawExtension, Time, is_false, is_zero, null_as_default};

/// A cluster Applications deploy to.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["server", "name", "config"]))]
pub struct Cluster {
    #[prost(string, tag = "1")]
    pub server: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, required, tag = "3")]
    pub config: ClusterConfig,
    #[prost(message, required, tag = "4")]
    pub connection_state: ConnectionState,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server_version: String,
    /// Only these are managed; empty is the whole cluster.
    #[prost(string, repeated, tag = "6")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub refresh_requested_at: Option<Time>,
    #[prost(message, required, tag = "8")]
    pub info: ClusterInfo,
    /// A shard chosen by hand.
    #[prost(int64, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<i64>,
    /// With `namespaces`: manage cluster-scoped kinds all the same.
    #[prost(bool, tag = "10")]
    #[serde(skip_serializing_if = "is_false")]
    pub cluster_resources: bool,
    /// The project the cluster belongs to; empty is everyone.
    #[prost(string, tag = "11")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub project: String,
    #[prost(btree_map = "string, string", tag = "12")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "13")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Several clusters.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["items"]))]
pub struct ClusterList {
    #[prost(message, required, tag = "1")]
    pub metadata: ListMeta,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "null_as_default")]
    pub items: Vec<Cluster>,
}

/// How to authenticate. Precedence and defaults are in [`crate::cluster_secret`].
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["tlsClientConfig"]))]
pub struct ClusterConfig {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub password: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bearer_token: String,
    #[prost(message, required, tag = "4")]
    pub tls_client_config: TlsClientConfig,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_auth_config: Option<AwsAuthConfig>,
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec_provider_config: Option<ExecProviderConfig>,
    #[prost(bool, tag = "7")]
    #[serde(skip_serializing_if = "is_false")]
    pub disable_compression: bool,
    #[prost(string, tag = "8")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub proxy_url: String,
}

/// TLS towards the API server; PEM, base64 in JSON.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["insecure"]))]
pub struct TlsClientConfig {
    #[prost(bool, tag = "1")]
    pub insecure: bool,
    /// The name to expect in the certificate, in place of the host of the URL.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server_name: String,
    #[prost(bytes = "vec", tag = "3")]
    #[serde(with = "crate::meta::base64_text", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "String")]
    pub cert_data: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    #[serde(with = "crate::meta::base64_text", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "String")]
    pub key_data: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    #[serde(with = "crate::meta::base64_text", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "String")]
    pub ca_data: Vec<u8>,
}

/// Authenticate as an AWS identity.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AwsAuthConfig {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_name: String,
    #[prost(string, tag = "2")]
    #[serde(rename = "roleARN", skip_serializing_if = "String::is_empty")]
    pub role_arn: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub profile: String,
}

/// Authenticate with what a program prints.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ExecProviderConfig {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
    #[prost(string, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    #[prost(btree_map = "string, string", tag = "3")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub install_hint: String,
    #[prost(bool, tag = "6")]
    #[serde(skip_serializing_if = "is_false")]
    pub provide_cluster_info: bool,
    /// Handed to the program as the configuration of the cluster.
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<RawExtension>,
}

/// Did the last attempt to connect succeed.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["status", "message", "attemptedAt"]))]
pub struct ConnectionState {
    /// `Successful`, `Failed` or `Unknown`.
    #[prost(string, tag = "1")]
    pub status: String,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(message, optional, tag = "3")]
    pub attempted_at: Option<Time>,
}

/// What is known of a cluster.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["applicationsCount"]))]
pub struct ClusterInfo {
    #[prost(message, required, tag = "1")]
    pub connection_state: ConnectionState,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server_version: String,
    #[prost(message, required, tag = "3")]
    pub cache_info: ClusterCacheInfo,
    #[prost(int64, tag = "4")]
    pub applications_count: i64,
    #[prost(string, repeated, tag = "5")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_versions: Vec<String>,
}

/// How much of a cluster is held.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterCacheInfo {
    #[prost(int64, tag = "1")]
    #[serde(skip_serializing_if = "is_zero")]
    pub resources_count: i64,
    #[prost(int64, tag = "2")]
    #[serde(skip_serializing_if = "is_zero")]
    pub apis_count: i64,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub last_cache_sync_time: Option<Time>,
}
