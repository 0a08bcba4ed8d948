//! A requested sync (`Application.operation`) and how it went (`status.operationState`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ApplicationSource, Info, ManagedNamespaceMetadata, OperationInitiator, RetryStrategy};
use crate::meta::{Time, is_false, is_zero};

/// A request to act on an Application, today always a sync.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Operation {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncOperation>,
    #[prost(message, required, tag = "2")]
    pub initiated_by: OperationInitiator,
    #[prost(message, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub info: Vec<Info>,
    #[prost(message, required, tag = "4")]
    pub retry: RetryStrategy,
}

/// One sync: to which revision, of what, and how.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SyncOperation {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision: String,
    #[prost(bool, tag = "2")]
    #[serde(skip_serializing_if = "is_false")]
    pub prune: bool,
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "is_false")]
    pub dry_run: bool,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_strategy: Option<SyncStrategy>,
    /// Only these; empty is all (a full sync).
    #[prost(message, repeated, tag = "6")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<SyncOperationResource>,
    /// In place of the source of the spec, as a rollback wants it.
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<ApplicationSource>,
    /// Local manifests in place of the source.
    #[prost(string, repeated, tag = "8")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<String>,
    #[prost(string, repeated, tag = "9")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sync_options: Vec<String>,
    #[prost(message, repeated, tag = "10")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<ApplicationSource>,
    #[prost(string, repeated, tag = "11")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<String>,
    /// Self-heal attempts so far; drives their backoff.
    #[prost(int64, tag = "12")]
    #[serde(skip_serializing_if = "is_zero")]
    pub auto_heal_attempts_count: i64,
}

/// One resource a partial sync is confined to.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["kind", "name"]))]
pub struct SyncOperationResource {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[prost(string, tag = "2")]
    pub kind: String,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// Apply with hooks (the default) or without.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SyncStrategy {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apply: Option<SyncStrategyApply>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<SyncStrategyHook>,
}

/// Apply and run no hooks.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SyncStrategyApply {
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "is_false")]
    pub force: bool,
}

/// Apply and run hooks. JSON holds `force` directly, the wire holds it one message deeper.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SyncStrategyHook {
    #[prost(message, required, tag = "1")]
    #[serde(flatten)]
    pub sync_strategy_apply: SyncStrategyApply,
}

/// By name, which a flattened field does not tell: readers that know keys in any case have to be told which there are.
impl<'de> Deserialize<'de> for SyncStrategyHook {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Fields {
            force: bool,
        }
        let Fields { force } = Fields::deserialize(deserializer)?;
        Ok(SyncStrategyHook {
            sync_strategy_apply: SyncStrategyApply { force },
        })
    }
}

/// The current or last operation.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["operation", "phase", "startedAt"]))]
pub struct OperationState {
    #[prost(message, required, tag = "1")]
    pub operation: Operation,
    /// An [`OperationPhase`](super::OperationPhase). `Running` together with `finishedAt` means waiting for a retry.
    #[prost(string, tag = "2")]
    pub phase: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Filled while the sync proceeds.
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_result: Option<SyncOperationResult>,
    #[prost(message, optional, tag = "6")]
    pub started_at: Option<Time>,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub finished_at: Option<Time>,
    #[prost(int64, tag = "8")]
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_count: i64,
}

/// What a sync did, resource by resource.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["revision"]))]
pub struct SyncOperationResult {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceResult>,
    /// The revision that was synced.
    #[prost(string, tag = "2")]
    pub revision: String,
    #[prost(message, required, tag = "3")]
    pub source: ApplicationSource,
    #[prost(message, repeated, tag = "4")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<ApplicationSource>,
    #[prost(string, repeated, tag = "5")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<String>,
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_namespace_metadata: Option<ManagedNamespaceMetadata>,
}

/// What a sync did with one resource.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["group", "version", "kind", "namespace", "name"]))]
pub struct ResourceResult {
    #[prost(string, tag = "1")]
    pub group: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(string, tag = "3")]
    pub kind: String,
    #[prost(string, tag = "4")]
    pub namespace: String,
    #[prost(string, tag = "5")]
    pub name: String,
    /// A [`ResultCode`](super::ResultCode); empty for hooks.
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    #[prost(string, tag = "7")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The hook phase, empty for ordinary resources.
    #[prost(string, tag = "8")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hook_type: String,
    /// An [`OperationPhase`](super::OperationPhase).
    #[prost(string, tag = "9")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hook_phase: String,
    /// `PreSync`, `Sync`, `PostSync` or `SyncFail`.
    #[prost(string, tag = "10")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sync_phase: String,
    #[prost(string, repeated, tag = "11")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
}
