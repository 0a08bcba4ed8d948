//! Repositories, credentials and the options of the tools that read them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConnectionState;
use crate::meta::{ListMeta, is_false, is_zero, null_as_default};

/// A repository and the credentials to read it.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["repo"]))]
pub struct Repository {
    #[prost(string, tag = "1")]
    pub repo: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub password: String,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ssh_private_key: String,
    #[prost(message, required, tag = "5")]
    pub connection_state: ConnectionState,
    #[prost(bool, tag = "6")]
    #[serde(skip_serializing_if = "is_false")]
    pub insecure_ignore_host_key: bool,
    #[prost(bool, tag = "7")]
    #[serde(skip_serializing_if = "is_false")]
    pub insecure: bool,
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "is_false")]
    pub enable_lfs: bool,
    #[prost(string, tag = "9")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tls_client_cert_data: String,
    #[prost(string, tag = "10")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tls_client_cert_key: String,
    /// `git` (or empty), `helm` or `oci`.
    #[prost(string, tag = "11")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub r#type: String,
    #[prost(string, tag = "12")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The credentials come from a matching [`RepoCreds`].
    #[prost(bool, tag = "13")]
    #[serde(skip_serializing_if = "is_false")]
    pub inherited_creds: bool,
    #[prost(bool, tag = "14")]
    #[serde(rename = "enableOCI", skip_serializing_if = "is_false")]
    pub enable_oci: bool,
    #[prost(string, tag = "15")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub github_app_private_key: String,
    #[prost(int64, tag = "16")]
    #[serde(rename = "githubAppID", skip_serializing_if = "is_zero")]
    pub github_app_id: i64,
    #[prost(int64, tag = "17")]
    #[serde(rename = "githubAppInstallationID", skip_serializing_if = "is_zero")]
    pub github_app_installation_id: i64,
    #[prost(string, tag = "18")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub github_app_enterprise_base_url: String,
    #[prost(string, tag = "19")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub proxy: String,
    /// The project the entry belongs to; empty is everyone.
    #[prost(string, tag = "20")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub project: String,
    #[prost(string, tag = "21")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub gcp_service_account_key: String,
    #[prost(bool, tag = "22")]
    #[serde(skip_serializing_if = "is_false")]
    pub force_http_basic_auth: bool,
    #[prost(string, tag = "23")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub no_proxy: String,
    #[prost(bool, tag = "24")]
    #[serde(skip_serializing_if = "is_false")]
    pub use_azure_workload_identity: bool,
    #[prost(string, tag = "25")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bearer_token: String,
    #[prost(bool, tag = "26")]
    #[serde(rename = "insecureOCIForceHttp", skip_serializing_if = "is_false")]
    pub insecure_oci_force_http: bool,
    /// Commits to fetch; 0 is all.
    #[prost(int64, tag = "27")]
    #[serde(skip_serializing_if = "is_zero")]
    pub depth: i64,
    /// Do not render ahead when a webhook arrives.
    #[prost(bool, tag = "28")]
    #[serde(skip_serializing_if = "is_false")]
    pub webhook_manifest_cache_warm_disabled: bool,
    #[prost(string, tag = "29")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub azure_service_principal_client_id: String,
    #[prost(string, tag = "30")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub azure_service_principal_client_secret: String,
    #[prost(string, tag = "31")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub azure_service_principal_tenant_id: String,
    #[prost(string, tag = "32")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub azure_active_directory_endpoint: String,
}

/// Several repositories.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["items"]))]
pub struct RepositoryList {
    #[prost(message, required, tag = "1")]
    pub metadata: ListMeta,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "null_as_default")]
    pub items: Vec<Repository>,
}

/// Credentials for every repository whose URL begins so.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["url"]))]
pub struct RepoCreds {
    /// A prefix.
    #[prost(string, tag = "1")]
    pub url: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub password: String,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ssh_private_key: String,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tls_client_cert_data: String,
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tls_client_cert_key: String,
    #[prost(string, tag = "7")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub github_app_private_key: String,
    #[prost(int64, tag = "8")]
    #[serde(rename = "githubAppID", skip_serializing_if = "is_zero")]
    pub github_app_id: i64,
    #[prost(int64, tag = "9")]
    #[serde(rename = "githubAppInstallationID", skip_serializing_if = "is_zero")]
    pub github_app_installation_id: i64,
    #[prost(string, tag = "10")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub github_app_enterprise_base_url: String,
    #[prost(bool, tag = "11")]
    #[serde(rename = "enableOCI", skip_serializing_if = "is_false")]
    pub enable_oci: bool,
    #[prost(string, tag = "12")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub r#type: String,
    #[prost(string, tag = "13")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub gcp_service_account_key: String,
    #[prost(string, tag = "19")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub proxy: String,
    #[prost(bool, tag = "20")]
    #[serde(skip_serializing_if = "is_false")]
    pub force_http_basic_auth: bool,
    #[prost(string, tag = "23")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub no_proxy: String,
    #[prost(bool, tag = "24")]
    #[serde(skip_serializing_if = "is_false")]
    pub use_azure_workload_identity: bool,
    #[prost(string, tag = "25")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bearer_token: String,
    #[prost(bool, tag = "26")]
    #[serde(rename = "insecureOCIForceHttp", skip_serializing_if = "is_false")]
    pub insecure_oci_force_http: bool,
    #[prost(string, tag = "29")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub azure_service_principal_client_id: String,
    #[prost(string, tag = "30")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub azure_service_principal_client_secret: String,
    #[prost(string, tag = "31")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub azure_service_principal_tenant_id: String,
    #[prost(string, tag = "32")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub azure_active_directory_endpoint: String,
}

/// Several credential templates.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["items"]))]
pub struct RepoCredsList {
    #[prost(message, required, tag = "1")]
    pub metadata: ListMeta,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "null_as_default")]
    pub items: Vec<RepoCreds>,
}

/// Where a `$ref` points. Field names are capitalised in JSON.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RefTarget {
    #[prost(message, required, tag = "1")]
    #[serde(rename = "Repo")]
    pub repo: Repository,
    #[prost(string, tag = "2")]
    #[serde(rename = "TargetRevision")]
    pub target_revision: String,
    #[prost(string, tag = "3")]
    #[serde(rename = "Chart")]
    pub chart: String,
}

/// A certificate or host key that a server is known by.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["serverName", "certType", "certSubType", "certData", "certInfo"]))]
pub struct RepositoryCertificate {
    #[prost(string, tag = "1")]
    pub server_name: String,
    /// `https` or `ssh`.
    #[prost(string, tag = "2")]
    pub cert_type: String,
    #[prost(string, tag = "3")]
    pub cert_sub_type: String,
    #[prost(bytes = "vec", tag = "4")]
    #[serde(with = "crate::meta::base64_text")]
    #[schemars(with = "String")]
    pub cert_data: Vec<u8>,
    #[prost(string, tag = "5")]
    pub cert_info: String,
}

/// Several certificates.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["items"]))]
pub struct RepositoryCertificateList {
    #[prost(message, required, tag = "1")]
    pub metadata: ListMeta,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "null_as_default")]
    pub items: Vec<RepositoryCertificate>,
}

/// A key that commits may be signed with.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["keyID"]))]
pub struct GnuPgPublicKey {
    #[prost(string, tag = "1")]
    #[serde(rename = "keyID")]
    pub key_id: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fingerprint: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner: String,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trust: String,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sub_type: String,
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key_data: String,
}

/// Several keys.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["items"]))]
pub struct GnuPgPublicKeyList {
    #[prost(message, required, tag = "1")]
    pub metadata: ListMeta,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "null_as_default")]
    pub items: Vec<GnuPgPublicKey>,
}

/// Helm options of the installation. Field names are capitalised in JSON.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HelmOptions {
    #[prost(string, repeated, tag = "1")]
    #[serde(rename = "ValuesFileSchemes", deserialize_with = "null_as_default")]
    pub values_file_schemes: Vec<String>,
}

/// Kustomize options of the installation. Field names are capitalised in JSON.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct KustomizeOptions {
    #[prost(string, tag = "1")]
    #[serde(rename = "BuildOptions")]
    pub build_options: String,
    #[prost(string, tag = "2")]
    #[serde(rename = "BinaryPath")]
    pub binary_path: String,
    #[prost(message, repeated, tag = "3")]
    #[serde(rename = "Versions", deserialize_with = "null_as_default")]
    pub versions: Vec<KustomizeVersion>,
}

/// A further Kustomize binary. Field names are capitalised in JSON.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct KustomizeVersion {
    #[prost(string, tag = "1")]
    #[serde(rename = "Name")]
    pub name: String,
    #[prost(string, tag = "2")]
    #[serde(rename = "Path")]
    pub path: String,
    #[prost(string, tag = "3")]
    #[serde(rename = "BuildOptions")]
    pub build_options: String,
}

/// A plugin of the removed first generation; its number on the wire is still taken.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["name", "generate"]))]
pub struct ConfigManagementPlugin {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init: Option<Command>,
    #[prost(message, required, tag = "3")]
    pub generate: Command,
    #[prost(bool, tag = "4")]
    #[serde(skip_serializing_if = "is_false")]
    pub lock_repo: bool,
}

/// A command line.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Command {
    #[prost(string, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
}

/// A parameter of a component; kept for its number on the wire.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["name", "value"]))]
pub struct ComponentParameter {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub component: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub value: String,
}
