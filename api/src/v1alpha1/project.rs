//! AppProject: what Applications may deploy, from where, to where, and when.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ApplicationDestination;
use crate::meta::{GroupKind, ListMeta, ObjectMeta, is_false, is_zero, null_as_default};

/// The bounds within which Applications of one team live.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["metadata", "spec"]))]
pub struct AppProject {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    #[prost(message, required, tag = "2")]
    pub spec: AppProjectSpec,
    #[prost(message, required, tag = "3")]
    pub status: AppProjectStatus,
}

/// Several AppProjects.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["metadata", "items"]))]
pub struct AppProjectList {
    #[prost(message, required, tag = "1")]
    pub metadata: ListMeta,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "null_as_default")]
    pub items: Vec<AppProject>,
}

/// What Applications of the project may do. Decisions are in [`crate::project`].
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AppProjectSpec {
    /// Globs of repository URLs; `!` denies.
    #[prost(string, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_repos: Vec<String>,
    /// Globs of server or name, and namespace; `!` denies.
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<ApplicationDestination>,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("maxLength" = 255))]
    pub description: String,
    #[prost(message, repeated, tag = "4")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<ProjectRole>,
    /// Cluster-scoped kinds that are allowed; none unless listed.
    #[prost(message, repeated, tag = "5")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_resource_whitelist: Vec<ClusterResourceRestrictionItem>,
    #[prost(message, repeated, tag = "6")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespace_resource_blacklist: Vec<GroupKind>,
    /// Present: watch for resources of the destination namespaces that no Application owns.
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orphaned_resources: Option<OrphanedResourcesMonitorSettings>,
    #[prost(message, repeated, tag = "8")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sync_windows: Vec<SyncWindow>,
    /// Namespaced kinds that are allowed: absent allows all, an empty list allows none.
    ///
    /// Protocol Buffers cannot tell these two apart, so the empty list is held as [`NO_KIND`].
    #[prost(message, repeated, tag = "9")]
    #[serde(skip_serializing_if = "Vec::is_empty", with = "allowed_kinds")]
    #[schemars(with = "Vec<GroupKind>")]
    pub namespace_resource_whitelist: Vec<GroupKind>,
    /// Deprecated in favour of `sourceIntegrity`.
    #[prost(message, repeated, tag = "10")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signature_keys: Vec<SignatureKey>,
    #[prost(message, repeated, tag = "11")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_resource_blacklist: Vec<ClusterResourceRestrictionItem>,
    /// Namespaces whose Applications may use the project: globs or `/regex/`.
    #[prost(string, repeated, tag = "12")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_namespaces: Vec<String>,
    /// Only clusters that belong to the project are destinations.
    #[prost(bool, tag = "13")]
    #[serde(skip_serializing_if = "is_false")]
    pub permit_only_project_scoped_clusters: bool,
    #[prost(message, repeated, tag = "14")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destination_service_accounts: Vec<ApplicationDestinationServiceAccount>,
    #[prost(message, optional, tag = "15")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_integrity: Option<SourceIntegrity>,
}

/// Tokens issued, by role.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AppProjectStatus {
    #[prost(btree_map = "string, message", tag = "1")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub jwt_tokens_by_role: BTreeMap<String, JwtTokens>,
}

/// A role that people and tokens of the project may hold.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["name"]))]
pub struct ProjectRole {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Lines `p, proj:<project>:<role>, <resource>, <action>, <object>, allow|deny`.
    #[prost(string, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jwt_tokens: Vec<JwtToken>,
    #[prost(string, repeated, tag = "5")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

/// A token that was issued; times are seconds since 1970.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["iat"]))]
pub struct JwtToken {
    #[prost(int64, tag = "1")]
    pub iat: i64,
    #[prost(int64, tag = "2")]
    #[serde(skip_serializing_if = "is_zero")]
    pub exp: i64,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
}

/// The tokens of one role.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct JwtTokens {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<JwtToken>,
}

/// A cluster-scoped kind, perhaps confined to names that match a glob.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["group", "kind"]))]
pub struct ClusterResourceRestrictionItem {
    #[prost(string, tag = "1")]
    pub group: String,
    #[prost(string, tag = "2")]
    pub kind: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// The service account to act as on a destination.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["server", "defaultServiceAccount"]))]
pub struct ApplicationDestinationServiceAccount {
    /// A glob.
    #[prost(string, tag = "1")]
    pub server: String,
    /// A glob.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// `name`, or `namespace:name`.
    #[prost(string, tag = "3")]
    pub default_service_account: String,
}

/// How resources nobody owns are reported.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OrphanedResourcesMonitorSettings {
    /// Absent counts as true.
    #[prost(bool, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warn: Option<bool>,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<OrphanedResourceKey>,
}

/// Resources that are no orphans; every field is a glob.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OrphanedResourceKey {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// A span of time in which syncs are allowed or denied.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SyncWindow {
    /// `allow` or `deny`.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Cron with five fields, or `@hourly` and its like.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub schedule: String,
    /// A Go duration.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub duration: String,
    #[prost(string, repeated, tag = "4")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub applications: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    #[prost(string, repeated, tag = "6")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// People may sync while the window forbids it.
    #[prost(bool, tag = "7")]
    #[serde(skip_serializing_if = "is_false")]
    pub manual_sync: bool,
    /// An IANA name; UTC unless given.
    #[prost(string, tag = "8")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub time_zone: String,
    /// All given selectors must match, not any.
    #[prost(bool, tag = "9")]
    #[serde(skip_serializing_if = "is_false")]
    pub and_operator: bool,
    #[prost(string, tag = "10")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// An operation begun while allowed may end after the window shuts.
    #[prost(bool, tag = "11")]
    #[serde(skip_serializing_if = "is_false")]
    pub sync_overrun: bool,
}

/// A GnuPG key that may sign commits.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["keyID"]))]
pub struct SignatureKey {
    #[prost(string, tag = "1")]
    #[serde(rename = "keyID")]
    pub key_id: String,
}

/// What must be proven of a source before it is deployed.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["git"]))]
pub struct SourceIntegrity {
    #[prost(message, optional, tag = "1")]
    pub git: Option<SourceIntegrityGit>,
}

/// Rules for Git repositories.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["policies"]))]
pub struct SourceIntegrityGit {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "null_as_default")]
    pub policies: Vec<SourceIntegrityGitPolicy>,
}

/// A rule and the repositories it is for.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["repos", "gpg"]))]
pub struct SourceIntegrityGitPolicy {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "null_as_default")]
    pub repos: Vec<SourceIntegrityGitPolicyRepo>,
    #[prost(message, optional, tag = "2")]
    pub gpg: Option<SourceIntegrityGitPolicyGpg>,
}

/// Repositories by URL, a glob.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["url"]))]
pub struct SourceIntegrityGitPolicyRepo {
    #[prost(string, tag = "1")]
    pub url: String,
}

/// Which commits must be signed, and with which keys.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["mode", "keys"]))]
pub struct SourceIntegrityGitPolicyGpg {
    /// `none`, `head` (the commit or annotated tag) or `strict` (all its ancestors, back to a seal commit).
    #[prost(string, tag = "1")]
    pub mode: String,
    #[prost(string, repeated, tag = "3")]
    #[serde(deserialize_with = "null_as_default")]
    pub keys: Vec<String>,
}

/// The outcome of checks. Field names are capitalised in JSON.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SourceIntegrityCheckResult {
    #[prost(message, repeated, tag = "1")]
    #[serde(rename = "Checks", deserialize_with = "null_as_default")]
    pub checks: Vec<SourceIntegrityCheckResultItem>,
}

/// The outcome of one check; no problems means it passed.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SourceIntegrityCheckResultItem {
    #[prost(string, tag = "1")]
    #[serde(rename = "Name")]
    pub name: String,
    #[prost(string, repeated, tag = "2")]
    #[serde(rename = "Problems", deserialize_with = "null_as_default")]
    pub problems: Vec<String>,
}

/// Stands for the empty list in `namespaceResourceWhitelist`: no resource is of this kind.
pub const NO_KIND: GroupKind = GroupKind {
    group: String::new(),
    kind: String::new(),
};

mod allowed_kinds {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::NO_KIND;
    use crate::meta::GroupKind;

    pub(super) fn serialize<S: Serializer>(kinds: &[GroupKind], serializer: S) -> Result<S::Ok, S::Error> {
        if kinds == [NO_KIND] {
            [(); 0].serialize(serializer)
        } else {
            kinds.serialize(serializer)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<GroupKind>, D::Error> {
        Ok(match Option::<Vec<GroupKind>>::deserialize(deserializer)? {
            None => Vec::new(),
            Some(kinds) if kinds.is_empty() => vec![NO_KIND],
            Some(kinds) => kinds,
        })
    }
}
