//! What a person asks for: the Application, its destination and its policies.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ApplicationSource, ApplicationStatus, Operation, SourceHydrator};
use crate::meta::{ListMeta, ObjectMeta, is_false, is_zero, null_as_default};

/// A group of Kubernetes resources kept as their source describes them.
///
/// A top-level `operation` is a request: its appearance starts a sync. Status is no subresource of this kind.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["metadata", "spec"]))]
pub struct Application {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    #[prost(message, required, tag = "2")]
    pub spec: ApplicationSpec,
    #[prost(message, required, tag = "3")]
    pub status: ApplicationStatus,
    /// Requested and not yet taken up; the controller moves it into `status.operationState`.
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
}

/// Several Applications, as a list call returns them.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["metadata", "items"]))]
pub struct ApplicationList {
    #[prost(message, required, tag = "1")]
    pub metadata: ListMeta,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "null_as_default")]
    pub items: Vec<Application>,
}

/// One event of a watch on Applications.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["type", "application"]))]
pub struct ApplicationWatchEvent {
    /// `ADDED`, `MODIFIED`, `DELETED` or `ERROR`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    #[prost(message, required, tag = "2")]
    pub application: Application,
}

/// What a person wants deployed, from where, to where, and how eagerly.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["destination", "project"]))]
pub struct ApplicationSpec {
    /// The single source; `sources` wins over it, `sourceHydrator` over both.
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<ApplicationSource>,
    #[prost(message, required, tag = "2")]
    pub destination: ApplicationDestination,
    /// Empty means `default`.
    #[prost(string, tag = "3")]
    pub project: String,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_policy: Option<SyncPolicy>,
    #[prost(message, repeated, tag = "5")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore_differences: Vec<ResourceIgnoreDifferences>,
    /// Shown to people only; a value that is a URL becomes a link.
    #[prost(message, repeated, tag = "6")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub info: Vec<Info>,
    /// Entries of `status.history` to keep: 10 unless given, 0 keeps none.
    #[prost(int64, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i64>,
    #[prost(message, repeated, tag = "8")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<ApplicationSource>,
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_hydrator: Option<SourceHydrator>,
}

impl ApplicationSpec {
    /// The sources that count, one or several: a hydrator's, else `sources`, else `source`.
    pub fn effective_sources(&self) -> Vec<ApplicationSource> {
        if let Some(hydrator) = &self.source_hydrator {
            let (dry, sync) = (&hydrator.dry_source, &hydrator.sync_source);
            return vec![ApplicationSource {
                repo_url: if sync.repo_url.is_empty() {
                    dry.repo_url.clone()
                } else {
                    sync.repo_url.clone()
                },
                target_revision: sync.target_branch.clone(),
                path: sync.path.clone(),
                ..ApplicationSource::default()
            }];
        }
        if !self.sources.is_empty() {
            return self.sources.clone();
        }
        self.source.iter().cloned().collect()
    }

    /// Do `sources` count, rather than one `source`? Then the plural fields of the status do as well.
    pub fn has_multiple_sources(&self) -> bool {
        self.source_hydrator.is_none() && !self.sources.is_empty()
    }
}

/// The cluster and namespace resources go to; exactly one of `server` and `name` is given.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationDestination {
    /// URL of the API server.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server: String,
    /// For namespaced resources that name no namespace of their own.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the cluster, in place of its URL.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// Fields of matching resources that are not compared.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["kind"]))]
pub struct ResourceIgnoreDifferences {
    /// A glob; empty is the core group.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// A glob.
    #[prost(string, tag = "2")]
    pub kind: String,
    /// Exact; empty matches every name.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Exact; empty matches every namespace.
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[prost(string, repeated, tag = "5")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub json_pointers: Vec<String>,
    #[prost(string, repeated, tag = "6")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jq_path_expressions: Vec<String>,
    /// Ignore every field that one of these managers owns by server-side apply.
    #[prost(string, repeated, tag = "7")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub managed_fields_managers: Vec<String>,
}

/// A name and a value for people to read.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["name", "value"]))]
pub struct Info {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// When and how syncs happen by themselves.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SyncPolicy {
    /// Present: sync automatically, unless `enabled` is false.
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automated: Option<SyncPolicyAutomated>,
    /// `Name=value` texts, read by [`crate::annotation::SyncOption`].
    #[prost(string, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sync_options: Vec<String>,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryStrategy>,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_namespace_metadata: Option<ManagedNamespaceMetadata>,
}

/// What an automated sync may do.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SyncPolicyAutomated {
    /// Delete what the source no longer contains.
    #[prost(bool, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prune: Option<bool>,
    /// Sync again when live objects drift, not only when the source changes.
    #[prost(bool, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_heal: Option<bool>,
    /// Let a sync delete everything when the source renders nothing.
    #[prost(bool, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_empty: Option<bool>,
    /// Absent counts as true.
    #[prost(bool, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// How often and at what pace a failed sync is tried again.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RetryStrategy {
    /// Attempts after the first; negative is without end.
    #[prost(int64, tag = "1")]
    #[serde(skip_serializing_if = "is_zero")]
    pub limit: i64,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// Resolve the revision anew before each attempt.
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "is_false")]
    pub refresh: bool,
}

/// The pause between attempts: `duration` times `factor` to the power of the attempt, at most `maxDuration`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Backoff {
    /// A Go duration, or a bare number of seconds; 5s unless given.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub duration: String,
    /// 2 unless given.
    #[prost(int64, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<i64>,
    /// 3m unless given.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub max_duration: String,
}

/// Labels and annotations of the namespace that `CreateNamespace=true` makes.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ManagedNamespaceMetadata {
    #[prost(btree_map = "string, string", tag = "1")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "2")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(url: &str) -> ApplicationSource {
        ApplicationSource {
            repo_url: url.into(),
            ..ApplicationSource::default()
        }
    }

    #[test]
    fn sources_win_over_source() {
        let mut spec = ApplicationSpec {
            source: Some(source("one")),
            ..ApplicationSpec::default()
        };
        assert_eq!(spec.effective_sources(), [source("one")]);
        assert!(!spec.has_multiple_sources());
        spec.sources = vec![source("two")];
        assert_eq!(spec.effective_sources(), [source("two")]);
        assert!(spec.has_multiple_sources());
    }

    #[test]
    fn a_hydrator_makes_its_own_source() {
        let mut spec = ApplicationSpec {
            source: Some(source("one")),
            ..ApplicationSpec::default()
        };
        let mut hydrator = SourceHydrator::default();
        hydrator.dry_source.repo_url = "dry".into();
        hydrator.sync_source.target_branch = "env/prod".into();
        hydrator.sync_source.path = "app".into();
        spec.source_hydrator = Some(hydrator);
        let expected = ApplicationSource {
            target_revision: "env/prod".into(),
            path: "app".into(),
            ..source("dry")
        };
        assert_eq!(spec.effective_sources(), [expected]);
    }
}
