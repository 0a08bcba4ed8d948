//! The generators of an ApplicationSet, each a source of parameter sets.
//!
//! Generators nest two deep at most. The outer level is typed; what `matrix` and `merge` hold inside a nested generator
//! travels as raw JSON and is read as [`NestedMatrixGenerator`] or [`NestedMergeGenerator`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ApplicationSetTemplate;
use crate::meta::{Json, LabelSelector, is_default, is_false, null_as_default};

/// One generator: exactly one of the kinds, perhaps with a selector over what it produces.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSetGenerator {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<ListGenerator>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<ClusterGenerator>,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<GitGenerator>,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scm_provider: Option<ScmProviderGenerator>,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_decision_resource: Option<DuckTypeGenerator>,
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PullRequestGenerator>,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrix: Option<MatrixGenerator>,
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeGenerator>,
    /// Keeps the parameter sets whose flattened keys match.
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    #[prost(message, optional, tag = "10")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginGenerator>,
}

/// A generator inside a matrix or merge.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSetNestedGenerator {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<ListGenerator>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<ClusterGenerator>,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<GitGenerator>,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scm_provider: Option<ScmProviderGenerator>,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_decision_resource: Option<DuckTypeGenerator>,
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PullRequestGenerator>,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrix: Option<Json>,
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge: Option<Json>,
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    #[prost(message, optional, tag = "10")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginGenerator>,
}

/// A generator inside a nested matrix or merge, where nesting ends.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationSetTerminalGenerator {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<ListGenerator>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<ClusterGenerator>,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<GitGenerator>,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scm_provider: Option<ScmProviderGenerator>,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_decision_resource: Option<DuckTypeGenerator>,
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PullRequestGenerator>,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginGenerator>,
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// Parameter sets written down.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ListGenerator {
    /// Objects.
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "null_as_default")]
    pub elements: Vec<Json>,
    #[prost(message, required, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub template: ApplicationSetTemplate,
    /// A text that is templated and then read as a YAML list.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub elements_yaml: String,
}

/// One parameter set for each registered cluster.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterGenerator {
    /// Over the labels of cluster Secrets; empty also yields the cluster Argo CD runs in.
    #[prost(message, required, tag = "1")]
    pub selector: LabelSelector,
    #[prost(message, required, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub template: ApplicationSetTemplate,
    #[prost(btree_map = "string, string", tag = "3")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
    /// One parameter set with all clusters in `clusters`.
    #[prost(bool, tag = "4")]
    #[serde(skip_serializing_if = "is_false")]
    pub flat_list: bool,
}

/// Directories or files of a Git repository.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["repoURL", "revision"]))]
pub struct GitGenerator {
    #[prost(string, tag = "1")]
    #[serde(rename = "repoURL")]
    pub repo_url: String,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<GitDirectoryGeneratorItem>,
    #[prost(message, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<GitFileGeneratorItem>,
    #[prost(string, tag = "4")]
    pub revision: String,
    #[prost(int64, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_after_seconds: Option<i64>,
    #[prost(message, required, tag = "6")]
    #[serde(skip_serializing_if = "is_default")]
    pub template: ApplicationSetTemplate,
    /// Puts the path parameters under this key.
    #[prost(string, tag = "7")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path_param_prefix: String,
    #[prost(btree_map = "string, string", tag = "8")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
}

/// A glob of directories to take or leave.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["path"]))]
pub struct GitDirectoryGeneratorItem {
    #[prost(string, tag = "1")]
    pub path: String,
    #[prost(bool, tag = "2")]
    #[serde(skip_serializing_if = "is_false")]
    pub exclude: bool,
}

/// A glob of files to take or leave.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["path"]))]
pub struct GitFileGeneratorItem {
    #[prost(string, tag = "1")]
    pub path: String,
    #[prost(bool, tag = "2")]
    #[serde(skip_serializing_if = "is_false")]
    pub exclude: bool,
}

/// Repositories of an organisation at a hosting service.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ScmProviderGenerator {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub github: Option<ScmProviderGeneratorGithub>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gitlab: Option<ScmProviderGeneratorGitlab>,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bitbucket: Option<ScmProviderGeneratorBitbucket>,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bitbucket_server: Option<ScmProviderGeneratorBitbucketServer>,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gitea: Option<ScmProviderGeneratorGitea>,
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure_dev_ops: Option<ScmProviderGeneratorAzureDevOps>,
    /// One must hold; within one, all given conditions must hold.
    #[prost(message, repeated, tag = "7")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<ScmProviderGeneratorFilter>,
    /// `ssh` or `https`.
    #[prost(string, tag = "8")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub clone_protocol: String,
    #[prost(int64, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_after_seconds: Option<i64>,
    #[prost(message, required, tag = "10")]
    #[serde(skip_serializing_if = "is_default")]
    pub template: ApplicationSetTemplate,
    #[prost(btree_map = "string, string", tag = "11")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
    #[prost(message, optional, tag = "12")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_code_commit: Option<ScmProviderGeneratorAwsCodeCommit>,
}

/// Conditions on a repository; the matches are regular expressions.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ScmProviderGeneratorFilter {
    #[prost(string, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository_match: Option<String>,
    #[prost(string, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths_exist: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths_do_not_exist: Vec<String>,
    #[prost(string, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_match: Option<String>,
    #[prost(string, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch_match: Option<String>,
}

/// An organisation at GitHub.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["organization"]))]
pub struct ScmProviderGeneratorGithub {
    #[prost(string, tag = "1")]
    pub organization: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api: String,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ref: Option<SecretRef>,
    /// A repo-creds Secret that holds a GitHub App.
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub app_secret_name: String,
    #[prost(bool, tag = "5")]
    #[serde(skip_serializing_if = "is_false")]
    pub all_branches: bool,
    #[prost(bool, tag = "6")]
    #[serde(skip_serializing_if = "is_false")]
    pub exclude_archived_repos: bool,
}

/// A group at GitLab.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["group"]))]
pub struct ScmProviderGeneratorGitlab {
    /// Numeric id or full path.
    #[prost(string, tag = "1")]
    pub group: String,
    #[prost(bool, tag = "2")]
    #[serde(skip_serializing_if = "is_false")]
    pub include_subgroups: bool,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api: String,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ref: Option<SecretRef>,
    #[prost(bool, tag = "5")]
    #[serde(skip_serializing_if = "is_false")]
    pub all_branches: bool,
    #[prost(bool, tag = "6")]
    #[serde(skip_serializing_if = "is_false")]
    pub insecure: bool,
    #[prost(bool, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_shared_projects: Option<bool>,
    #[prost(string, tag = "8")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub topic: String,
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<ConfigMapKeyRef>,
    #[prost(bool, tag = "10")]
    #[serde(skip_serializing_if = "is_false")]
    pub include_archived_repos: bool,
}

/// An owner at Gitea.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["owner", "api"]))]
pub struct ScmProviderGeneratorGitea {
    #[prost(string, tag = "1")]
    pub owner: String,
    #[prost(string, tag = "2")]
    pub api: String,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ref: Option<SecretRef>,
    #[prost(bool, tag = "4")]
    #[serde(skip_serializing_if = "is_false")]
    pub all_branches: bool,
    #[prost(bool, tag = "5")]
    #[serde(skip_serializing_if = "is_false")]
    pub insecure: bool,
    #[prost(bool, tag = "6")]
    #[serde(skip_serializing_if = "is_false")]
    pub exclude_archived_repos: bool,
}

/// A workspace at Bitbucket Cloud.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["owner", "user", "appPasswordRef"]))]
pub struct ScmProviderGeneratorBitbucket {
    #[prost(string, tag = "1")]
    pub owner: String,
    #[prost(string, tag = "2")]
    pub user: String,
    #[prost(message, optional, tag = "3")]
    pub app_password_ref: Option<SecretRef>,
    #[prost(bool, tag = "4")]
    #[serde(skip_serializing_if = "is_false")]
    pub all_branches: bool,
}

/// A project at Bitbucket Server.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["project", "api"]))]
pub struct ScmProviderGeneratorBitbucketServer {
    #[prost(string, tag = "1")]
    pub project: String,
    #[prost(string, tag = "2")]
    pub api: String,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<BasicAuthBitbucketServer>,
    #[prost(bool, tag = "4")]
    #[serde(skip_serializing_if = "is_false")]
    pub all_branches: bool,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer_token: Option<BearerTokenBitbucket>,
    #[prost(bool, tag = "6")]
    #[serde(skip_serializing_if = "is_false")]
    pub insecure: bool,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<ConfigMapKeyRef>,
}

/// A team project at Azure DevOps.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["organization", "teamProject", "accessTokenRef"]))]
pub struct ScmProviderGeneratorAzureDevOps {
    #[prost(string, tag = "5")]
    pub organization: String,
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api: String,
    #[prost(string, tag = "7")]
    pub team_project: String,
    #[prost(message, optional, tag = "8")]
    pub access_token_ref: Option<SecretRef>,
    #[prost(bool, tag = "9")]
    #[serde(skip_serializing_if = "is_false")]
    pub all_branches: bool,
}

/// Repositories at AWS CodeCommit.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ScmProviderGeneratorAwsCodeCommit {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tag_filters: Vec<TagFilter>,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub role: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub region: String,
    #[prost(bool, tag = "4")]
    #[serde(skip_serializing_if = "is_false")]
    pub all_branches: bool,
}

/// A tag that repositories must bear.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["key"]))]
pub struct TagFilter {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
}

/// Clusters as the status of some other resource lists them.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["configMapRef"]))]
pub struct DuckTypeGenerator {
    /// Name of a ConfigMap that says which resource and which keys.
    #[prost(string, tag = "1")]
    pub config_map_ref: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(int64, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_after_seconds: Option<i64>,
    #[prost(message, required, tag = "4")]
    pub label_selector: LabelSelector,
    #[prost(message, required, tag = "5")]
    #[serde(skip_serializing_if = "is_default")]
    pub template: ApplicationSetTemplate,
    #[prost(btree_map = "string, string", tag = "6")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
}

/// Open pull requests of a repository.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PullRequestGenerator {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub github: Option<PullRequestGeneratorGithub>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gitlab: Option<PullRequestGeneratorGitLab>,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gitea: Option<PullRequestGeneratorGitea>,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bitbucket_server: Option<PullRequestGeneratorBitbucketServer>,
    #[prost(message, repeated, tag = "5")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<PullRequestGeneratorFilter>,
    #[prost(int64, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_after_seconds: Option<i64>,
    #[prost(message, required, tag = "7")]
    #[serde(skip_serializing_if = "is_default")]
    pub template: ApplicationSetTemplate,
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bitbucket: Option<PullRequestGeneratorBitbucket>,
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azuredevops: Option<PullRequestGeneratorAzureDevOps>,
    #[prost(btree_map = "string, string", tag = "10")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
    /// A repository that is gone yields nothing, not an error.
    #[prost(bool, tag = "11")]
    #[serde(skip_serializing_if = "is_false")]
    pub continue_on_repo_not_found_error: bool,
}

/// Conditions on a pull request; the matches are regular expressions.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PullRequestGeneratorFilter {
    #[prost(string, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch_match: Option<String>,
    #[prost(string, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_branch_match: Option<String>,
    #[prost(string, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title_match: Option<String>,
}

/// A repository at GitHub.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["owner", "repo"]))]
pub struct PullRequestGeneratorGithub {
    #[prost(string, tag = "1")]
    pub owner: String,
    #[prost(string, tag = "2")]
    pub repo: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api: String,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ref: Option<SecretRef>,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub app_secret_name: String,
    #[prost(string, repeated, tag = "6")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// A project at GitLab.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["project"]))]
pub struct PullRequestGeneratorGitLab {
    #[prost(string, tag = "1")]
    pub project: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api: String,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ref: Option<SecretRef>,
    #[prost(string, repeated, tag = "4")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pull_request_state: String,
    #[prost(bool, tag = "6")]
    #[serde(skip_serializing_if = "is_false")]
    pub insecure: bool,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<ConfigMapKeyRef>,
}

/// A repository at Gitea.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["owner", "repo", "api"]))]
pub struct PullRequestGeneratorGitea {
    #[prost(string, tag = "1")]
    pub owner: String,
    #[prost(string, tag = "2")]
    pub repo: String,
    #[prost(string, tag = "3")]
    pub api: String,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ref: Option<SecretRef>,
    #[prost(bool, tag = "5")]
    #[serde(skip_serializing_if = "is_false")]
    pub insecure: bool,
    #[prost(string, repeated, tag = "6")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// A repository at Bitbucket Server.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["project", "repo", "api"]))]
pub struct PullRequestGeneratorBitbucketServer {
    #[prost(string, tag = "1")]
    pub project: String,
    #[prost(string, tag = "2")]
    pub repo: String,
    #[prost(string, tag = "3")]
    pub api: String,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<BasicAuthBitbucketServer>,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer_token: Option<BearerTokenBitbucket>,
    #[prost(bool, tag = "6")]
    #[serde(skip_serializing_if = "is_false")]
    pub insecure: bool,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<ConfigMapKeyRef>,
}

/// A repository at Bitbucket Cloud.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["owner", "repo"]))]
pub struct PullRequestGeneratorBitbucket {
    #[prost(string, tag = "1")]
    pub owner: String,
    #[prost(string, tag = "2")]
    pub repo: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api: String,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<BasicAuthBitbucketServer>,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer_token: Option<BearerTokenBitbucketCloud>,
}

/// A repository at Azure DevOps.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["organization", "project", "repo"]))]
pub struct PullRequestGeneratorAzureDevOps {
    #[prost(string, tag = "1")]
    pub organization: String,
    #[prost(string, tag = "2")]
    pub project: String,
    #[prost(string, tag = "3")]
    pub repo: String,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api: String,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ref: Option<SecretRef>,
    #[prost(string, repeated, tag = "6")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// Every combination of the sets of two generators.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["generators"]))]
pub struct MatrixGenerator {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "null_as_default")]
    pub generators: Vec<ApplicationSetNestedGenerator>,
    #[prost(message, required, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub template: ApplicationSetTemplate,
}

/// A matrix inside a matrix or merge.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["generators"]))]
pub struct NestedMatrixGenerator {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "null_as_default")]
    pub generators: Vec<ApplicationSetTerminalGenerator>,
}

/// The sets of the first generator, overridden by those of the others with equal `mergeKeys`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["generators", "mergeKeys"]))]
pub struct MergeGenerator {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "null_as_default")]
    pub generators: Vec<ApplicationSetNestedGenerator>,
    #[prost(string, repeated, tag = "2")]
    #[serde(deserialize_with = "null_as_default")]
    pub merge_keys: Vec<String>,
    #[prost(message, required, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub template: ApplicationSetTemplate,
}

/// A merge inside a matrix or merge.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["generators", "mergeKeys"]))]
pub struct NestedMergeGenerator {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "null_as_default")]
    pub generators: Vec<ApplicationSetTerminalGenerator>,
    #[prost(string, repeated, tag = "2")]
    #[serde(deserialize_with = "null_as_default")]
    pub merge_keys: Vec<String>,
}

/// Sets that an HTTP service answers with.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["configMapRef"]))]
pub struct PluginGenerator {
    #[prost(message, required, tag = "1")]
    pub config_map_ref: PluginConfigMapRef,
    #[prost(message, required, tag = "2")]
    pub input: PluginInput,
    #[prost(int64, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_after_seconds: Option<i64>,
    #[prost(message, required, tag = "4")]
    #[serde(skip_serializing_if = "is_default")]
    pub template: ApplicationSetTemplate,
    #[prost(btree_map = "string, string", tag = "5")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
}

/// The ConfigMap that holds address and token of the service.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["name"]))]
pub struct PluginConfigMapRef {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Parameters handed to the service.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PluginInput {
    #[prost(btree_map = "string, message", tag = "1")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Json>,
}

/// One key of a Secret.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["secretName", "key"]))]
pub struct SecretRef {
    #[prost(string, tag = "1")]
    pub secret_name: String,
    #[prost(string, tag = "2")]
    pub key: String,
}

/// One key of a ConfigMap.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["configMapName", "key"]))]
pub struct ConfigMapKeyRef {
    #[prost(string, tag = "1")]
    pub config_map_name: String,
    #[prost(string, tag = "2")]
    pub key: String,
}

/// User name and password for Bitbucket Server.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["username", "passwordRef"]))]
pub struct BasicAuthBitbucketServer {
    #[prost(string, tag = "1")]
    pub username: String,
    #[prost(message, optional, tag = "2")]
    pub password_ref: Option<SecretRef>,
}

/// A token for Bitbucket Server.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["tokenRef"]))]
pub struct BearerTokenBitbucket {
    #[prost(message, optional, tag = "1")]
    pub token_ref: Option<SecretRef>,
}

/// A token for Bitbucket Cloud.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["tokenRef"]))]
pub struct BearerTokenBitbucketCloud {
    #[prost(message, optional, tag = "1")]
    pub token_ref: Option<SecretRef>,
}
