//! What an AppProject permits. Pure questions to a spec; global projects are joined in first, by [`with_globals`].

use crate::git_url;
use crate::glob;
use crate::meta::GroupKind;
use crate::v1alpha1::{AppProject, AppProjectSpec, OrphanedResourcesMonitorSettings};

/// A cluster as a destination: its URL and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// URL of the API server.
    pub server: &'a str,
    /// Name, perhaps empty.
    pub name: &'a str,
}

/// A resource that someone wants to deploy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource<'a> {
    /// Empty is the core group.
    pub group: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// Empty for cluster-scoped resources.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

/// Joins the lists that a project inherits from global projects to its own.
pub fn with_globals<'a>(
    project: &AppProject,
    globals: impl IntoIterator<Item = &'a AppProject>,
) -> AppProject {
    let mut joined = project.clone();
    for global in globals {
        let (own, more) = (&mut joined.spec, &global.spec);
        own.cluster_resource_whitelist
            .extend_from_slice(&more.cluster_resource_whitelist);
        own.cluster_resource_blacklist
            .extend_from_slice(&more.cluster_resource_blacklist);
        own.namespace_resource_whitelist
            .extend_from_slice(&more.namespace_resource_whitelist);
        own.namespace_resource_blacklist
            .extend_from_slice(&more.namespace_resource_blacklist);
        own.sync_windows.extend_from_slice(&more.sync_windows);
        own.source_repos.extend_from_slice(&more.source_repos);
        own.destinations.extend_from_slice(&more.destinations);
        own.destination_service_accounts
            .extend_from_slice(&more.destination_service_accounts);
    }
    joined
}

/// May manifests come from this repository? One pattern must allow it and none deny it.
///
/// As in Argo CD a `!pattern` that does not match allows: beside a denial, patterns that allow narrow nothing.
pub fn permits_source(spec: &AppProjectSpec, repository: &str) -> bool {
    let repository = git_url::normalize(repository);
    let mut allowed = false;
    for pattern in &spec.source_repos {
        match pattern.strip_prefix('!') {
            Some(denied) => {
                if glob::matches_with_separator(&git_url::normalize(denied), &repository, '/') {
                    return false;
                }
                allowed = true;
            }
            None => {
                let pattern = git_url::normalize(pattern);
                allowed |= pattern == "*" || glob::matches_with_separator(&pattern, &repository, '/');
            }
        }
    }
    allowed
}

/// May an Application of this namespace use the project? Those of the control plane's namespace always may.
pub fn permits_application_namespace(
    spec: &AppProjectSpec,
    namespace: &str,
    control_plane_namespace: &str,
) -> bool {
    namespace.is_empty()
        || namespace == control_plane_namespace
        || glob::matches_list(spec.source_namespaces.iter().map(String::as_str), namespace)
}

/// May resources go to this namespace of this cluster?
///
/// `own_clusters` are the clusters whose Secret names this project; they matter only if the project permits no others.
pub fn permits_destination<'a>(
    spec: &AppProjectSpec,
    target: Target<'_>,
    namespace: &str,
    own_clusters: impl IntoIterator<Item = Target<'a>>,
) -> bool {
    matches_destination(spec, target, namespace)
        && (!spec.permit_only_project_scoped_clusters
            || own_clusters
                .into_iter()
                .any(|own| own.name == target.name || own.server == target.server))
}

fn matches_destination(spec: &AppProjectSpec, target: Target<'_>, namespace: &str) -> bool {
    let mut allowed = false;
    for item in &spec.destinations {
        let name = !target.name.is_empty() && matches_or_denies_not(&item.name, target.name);
        let server = !target.server.is_empty() && matches_or_denies_not(&item.server, target.server);
        let in_namespace = matches_or_denies_not(&item.namespace, namespace);
        if (server || name) && in_namespace {
            allowed = true;
        } else if (!name && is_denial(&item.name))
            || (!server && is_denial(&item.server) && in_namespace)
            || (!in_namespace && is_denial(&item.namespace) && server)
        {
            return false;
        }
    }
    allowed
}

fn is_denial(pattern: &str) -> bool {
    pattern.starts_with('!')
}

/// A pattern matches, or a `!pattern` does not.
fn matches_or_denies_not(pattern: &str, text: &str) -> bool {
    match pattern.strip_prefix('!') {
        Some(denied) => !glob::matches(denied, text),
        None => glob::matches(pattern, text),
    }
}

/// May resources of this kind, and of this name if cluster-scoped, be deployed anywhere?
pub fn permits_kind(spec: &AppProjectSpec, group: &str, kind: &str, name: &str, namespaced: bool) -> bool {
    if namespaced {
        let lists = |list: &[GroupKind]| {
            list.iter()
                .any(|item| glob::matches_path(&item.kind, kind) && glob::matches_path(&item.group, group))
        };
        let whitelist = &spec.namespace_resource_whitelist;
        (whitelist.is_empty() || lists(whitelist)) && !lists(&spec.namespace_resource_blacklist)
    } else {
        let lists = |list: &[crate::v1alpha1::ClusterResourceRestrictionItem]| {
            list.iter().any(|item| {
                glob::matches_path(&item.kind, kind)
                    && glob::matches_path(&item.group, group)
                    && (item.name.is_empty() || glob::matches_path(&item.name, name))
            })
        };
        lists(&spec.cluster_resource_whitelist) && !lists(&spec.cluster_resource_blacklist)
    }
}

/// May this resource be deployed to, or pruned from, this cluster?
pub fn permits_resource<'a>(
    spec: &AppProjectSpec,
    resource: Resource<'_>,
    target: Target<'_>,
    own_clusters: impl IntoIterator<Item = Target<'a>>,
) -> bool {
    let namespaced = !resource.namespace.is_empty();
    permits_kind(spec, resource.group, resource.kind, resource.name, namespaced)
        && (!namespaced || permits_destination(spec, target, resource.namespace, own_clusters))
}

/// Is this resource none of those that are reported as orphans? Kubernetes' own are not, and those that match a rule.
pub fn ignores_orphan(settings: &OrphanedResourcesMonitorSettings, resource: Resource<'_>) -> bool {
    let of_kubernetes = resource.group.is_empty()
        && matches!(
            (resource.kind, resource.name),
            ("ServiceAccount", "default") | ("ConfigMap", "kube-root-ca.crt") | ("Service", "kubernetes")
        )
        && (resource.kind != "Service" || resource.namespace == "default");
    of_kubernetes
        || settings.ignore.iter().any(|rule| {
            (rule.kind.is_empty() || glob::matches(&rule.kind, resource.kind))
                && glob::matches(&rule.group, resource.group)
                && (rule.name.is_empty() || glob::matches(&rule.name, resource.name))
        })
}

/// Why no service account can be derived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceAccountError {
    /// A rule matched whose account is empty or holds `!*[]{}\/`.
    #[error("read service account {0:?} of the project: it is empty or holds a character of patterns")]
    Invalid(String),
    /// A pattern of a rule is malformed.
    #[error("read destination service accounts of the project")]
    Pattern(#[from] glob::Malformed),
}

/// The user to act as on a destination: `system:serviceaccount:namespace:name` of the first rule that matches.
///
/// Where the rule names no namespace, it is that of the destination or, without one, of the Application.
///
/// # Errors
/// When a rule is malformed, up to and including the first that matches.
pub fn service_account(
    spec: &AppProjectSpec,
    server: &str,
    destination_namespace: &str,
    application_namespace: &str,
) -> Result<Option<String>, ServiceAccountError> {
    for rule in &spec.destination_service_accounts {
        let server_matches = glob::Glob::new(&rule.server, None)?.matches(server);
        let namespace_matches = glob::Glob::new(&rule.namespace, None)?.matches(destination_namespace);
        if !(server_matches && namespace_matches) {
            continue;
        }
        let account = rule.default_service_account.as_str();
        if account.trim_matches(' ').is_empty() || account.contains(['!', '*', '[', ']', '{', '}', '\\', '/'])
        {
            return Err(ServiceAccountError::Invalid(account.to_owned()));
        }
        let namespace = if destination_namespace.is_empty() {
            application_namespace
        } else {
            destination_namespace
        };
        return Ok(Some(if account.contains(':') {
            format!("system:serviceaccount:{account}")
        } else {
            format!("system:serviceaccount:{namespace}:{account}")
        }));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn spec(value: serde_json::Value) -> AppProjectSpec {
        serde_json::from_value(value).unwrap()
    }

    const HERE: Target<'_> = Target {
        server: "https://kubernetes.default.svc",
        name: "in-cluster",
    };

    #[test]
    fn a_source_needs_one_pattern_that_allows_and_none_that_denies() {
        let some = spec(json!({"sourceRepos": ["https://github.com/argo/*"]}));
        assert!(permits_source(&some, "https://github.com/Argo/demo.git"));
        assert!(!permits_source(&some, "https://github.com/argo/a/b"));
        let all_but_one = spec(json!({"sourceRepos": ["*", "!https://github.com/argo/secret"]}));
        assert!(permits_source(&all_but_one, "https://github.com/argo/demo"));
        assert!(!permits_source(&all_but_one, "https://github.com/argo/secret"));
        assert!(permits_source(
            &spec(json!({"sourceRepos": ["*"]})),
            "git@host:a/b"
        ));
        assert!(!permits_source(&spec(json!({})), "git@host:a/b"));
    }

    #[test]
    fn a_denial_allows_all_the_rest_as_in_argo_cd() {
        let only = spec(json!({"sourceRepos": ["!https://github.com/argo/secret"]}));
        assert!(permits_source(&only, "https://github.com/argo/demo"));
        let both =
            spec(json!({"sourceRepos": ["https://github.com/argo/*", "!https://github.com/argo/secret"]}));
        assert!(permits_source(&both, "https://elsewhere.example.com/x"));
    }

    #[test]
    fn a_destination_matches_by_server_or_name_and_by_namespace() {
        let some = spec(json!({"destinations": [
            {"server": "https://kubernetes.default.svc", "namespace": "team-*"},
            {"name": "prod-*", "namespace": "shop"},
        ]}));
        assert!(permits_destination(&some, HERE, "team-a", []));
        assert!(!permits_destination(&some, HERE, "shop", []));
        assert!(permits_destination(
            &some,
            Target {
                server: "https://1.2.3.4",
                name: "prod-eu"
            },
            "shop",
            []
        ));
        assert!(!permits_destination(
            &some,
            Target {
                server: "https://1.2.3.4",
                name: "dev"
            },
            "shop",
            []
        ));
    }

    #[test]
    fn a_denied_namespace_beats_a_star() {
        let some = spec(json!({"destinations": [
            {"server": "*", "namespace": "!kube-system"},
            {"server": "*", "namespace": "*"},
        ]}));
        assert!(permits_destination(&some, HERE, "team-a", []));
        assert!(!permits_destination(&some, HERE, "kube-system", []));
    }

    #[test]
    fn a_denied_server_beats_a_star() {
        let some = spec(json!({"destinations": [
            {"server": "!https://kubernetes.default.svc", "namespace": "*"},
            {"server": "*", "namespace": "*"},
        ]}));
        assert!(!permits_destination(&some, HERE, "team-a", []));
        assert!(permits_destination(
            &some,
            Target {
                server: "https://1.2.3.4",
                name: ""
            },
            "team-a",
            []
        ));
    }

    #[test]
    fn a_project_may_permit_only_its_own_clusters() {
        let some = spec(json!({
            "destinations": [{"server": "*", "namespace": "*"}], "permitOnlyProjectScopedClusters": true
        }));
        assert!(!permits_destination(&some, HERE, "a", []));
        assert!(permits_destination(&some, HERE, "a", [HERE]));
    }

    #[test]
    fn cluster_scoped_kinds_must_be_listed() {
        assert!(!permits_kind(&spec(json!({})), "", "Namespace", "a", false));
        let some = spec(json!({
            "clusterResourceWhitelist": [{"group": "", "kind": "Namespace", "name": "team-*"}, {"group": "*", "kind": "*Role"}],
            "clusterResourceBlacklist": [{"group": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}]
        }));
        assert!(permits_kind(&some, "", "Namespace", "team-a", false));
        assert!(!permits_kind(&some, "", "Namespace", "kube-system", false));
        assert!(permits_kind(
            &some,
            "rbac.authorization.k8s.io",
            "ClusterRole",
            "view",
            false
        ));
        assert!(!permits_kind(
            &some,
            "rbac.authorization.k8s.io",
            "ClusterRole",
            "admin",
            false
        ));
    }

    #[test]
    fn namespaced_kinds_are_free_without_a_list_and_closed_by_an_empty_one() {
        assert!(permits_kind(&spec(json!({})), "apps", "Deployment", "a", true));
        assert!(!permits_kind(
            &spec(json!({"namespaceResourceWhitelist": []})),
            "apps",
            "Deployment",
            "a",
            true
        ));
        let some = spec(json!({"namespaceResourceBlacklist": [{"group": "", "kind": "ResourceQuota"}]}));
        assert!(permits_kind(&some, "", "ConfigMap", "a", true));
        assert!(!permits_kind(&some, "", "ResourceQuota", "a", true));
    }

    #[test]
    fn global_projects_add_to_the_lists() {
        let project = AppProject {
            spec: spec(json!({"sourceRepos": ["https://a/*"]})),
            ..AppProject::default()
        };
        let global = AppProject {
            spec: spec(json!({"sourceRepos": ["https://b/*"], "roles": [{"name": "r"}]})),
            ..AppProject::default()
        };
        let joined = with_globals(&project, [&global]);
        assert!(permits_source(&joined.spec, "https://b/x"));
        assert!(joined.spec.roles.is_empty());
    }

    #[test]
    fn orphans_of_kubernetes_are_none() {
        let settings: OrphanedResourcesMonitorSettings = serde_json::from_value(
            json!({"ignore": [{"group": "apps", "kind": "Deploy*", "name": "tmp-*"}]}),
        )
        .unwrap();
        let resource = |group, kind, namespace, name| Resource {
            group,
            kind,
            namespace,
            name,
        };
        assert!(ignores_orphan(
            &settings,
            resource("", "ServiceAccount", "a", "default")
        ));
        assert!(ignores_orphan(
            &settings,
            resource("", "Service", "default", "kubernetes")
        ));
        assert!(!ignores_orphan(
            &settings,
            resource("", "Service", "a", "kubernetes")
        ));
        assert!(ignores_orphan(
            &settings,
            resource("apps", "Deployment", "a", "tmp-1")
        ));
        assert!(!ignores_orphan(
            &settings,
            resource("apps", "Deployment", "a", "web")
        ));
    }

    #[test]
    fn the_first_matching_rule_names_the_service_account() {
        let some = spec(json!({"destinationServiceAccounts": [
            {"server": "https://other", "namespace": "*", "defaultServiceAccount": "never"},
            {"server": "*", "namespace": "guestbook", "defaultServiceAccount": "deployer"},
            {"server": "*", "namespace": "*", "defaultServiceAccount": "ops:robot"},
            {"server": "*", "namespace": "", "defaultServiceAccount": "x"},
        ]}));
        let account = |namespace| {
            service_account(&some, HERE.server, namespace, "argocd")
                .unwrap()
                .unwrap()
        };
        assert_eq!(account("guestbook"), "system:serviceaccount:guestbook:deployer");
        assert_eq!(account("shop"), "system:serviceaccount:ops:robot");
        let invalid = spec(
            json!({"destinationServiceAccounts": [{"server": "*", "namespace": "*", "defaultServiceAccount": "a*"}]}),
        );
        assert!(service_account(&invalid, HERE.server, "a", "argocd").is_err());
    }
}
