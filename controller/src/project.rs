//! What a project permits. Pure: an AppProject and a thing in, yes or no out.
//!
//! Patterns are globs. In source repositories `*` stops at `/`; elsewhere it does not. A leading `!` denies, and one
//! denial beats every permission.

use argosy_api::v1alpha1::{AppProject, AppProjectSpec, ApplicationDestination, GroupKind};

/// Does `pattern` match `text`? `separator` is what `*` stops at.
fn matches(pattern: &str, text: &str, slash_separates: bool) -> bool {
    if pattern == "*" || pattern == text {
        return true;
    }
    if !pattern.contains(['*', '?', '[', '{', '\\']) {
        return false;
    }
    let glob = globset::GlobBuilder::new(pattern).literal_separator(slash_separates).backslash_escape(true).build();
    glob.is_ok_and(|glob| glob.compile_matcher().is_match(text))
}

/// As [`matches`], where a leading `!` turns the answer round.
fn matches_or_denies(pattern: &str, text: &str, slash_separates: bool) -> bool {
    match pattern.strip_prefix('!') {
        Some(denied) => !matches(denied, text, slash_separates),
        None => matches(pattern, text, slash_separates),
    }
}

/// A repository URL as it is compared: lower-case host, no `.git` and no slash at the end, `git@host:path` as
/// `ssh://git@host/path`.
pub fn normalize_repository(url: &str) -> String {
    let url = url.trim();
    if url == "*" || url.is_empty() {
        return url.to_owned();
    }
    let lower = url.to_lowercase();
    let trimmed = lower.trim_end_matches('/');
    let trimmed = trimmed.strip_suffix(".git").unwrap_or(trimmed);
    let unfolded = match trimmed.split_once("://") {
        Some(("ssh", rest)) => rest.to_owned(),
        Some(_) => trimmed.to_owned(),
        None => match trimmed.split_once('@') {
            // `git@host:path` and `ssh://git@host/path` are the same repository.
            Some((user, rest)) if !user.contains('/') => format!("{user}@{}", rest.replacen(':', "/", 1)),
            _ => trimmed.to_owned(),
        },
    };
    unfolded
}

/// May Applications of the project take manifests from this repository?
pub fn permits_source(project: &AppProject, url: &str) -> bool {
    let url = normalize_repository(url);
    let mut permitted = false;
    for pattern in &project.spec.source_repos {
        match pattern.strip_prefix('!') {
            Some(denied) if matches(&normalize_repository(denied), &url, true) => return false,
            Some(_) => {}
            None => permitted |= matches(&normalize_repository(pattern), &url, true),
        }
    }
    permitted
}

/// May Applications of the project go to this cluster and namespace? `destination` has server and name of the
/// cluster that was resolved.
pub fn permits_destination(project: &AppProject, destination: &ApplicationDestination) -> bool {
    let denies = |pattern: &str| pattern.starts_with('!');
    let mut permitted = false;
    for item in &project.spec.destinations {
        let name = !destination.name.is_empty() && matches_or_denies(&item.name, &destination.name, false);
        let server = !destination.server.is_empty() && matches_or_denies(&item.server, &destination.server, false);
        let namespace = matches_or_denies(&item.namespace, &destination.namespace, false);
        if (server || name) && namespace {
            permitted = true;
        } else if (!name && denies(&item.name)) || (!server && denies(&item.server) && namespace) {
            return false;
        } else if !namespace && denies(&item.namespace) && server {
            return false;
        }
    }
    permitted
}

/// May Applications of the project hold an object of this kind and name?
pub fn permits_kind(project: &AppProject, group: &str, kind: &str, name: &str, namespaced: bool) -> bool {
    let AppProjectSpec {
        cluster_resource_whitelist,
        cluster_resource_blacklist,
        namespace_resource_whitelist,
        namespace_resource_blacklist,
        ..
    } = &project.spec;
    let same = |other_group: &str, other_kind: &str| {
        matches(other_group, group, true) && matches(other_kind, kind, true)
    };
    if namespaced {
        let listed = |kinds: &[GroupKind]| kinds.iter().any(|item| same(&item.group, &item.kind));
        let allowed = namespace_resource_whitelist.is_empty() || listed(namespace_resource_whitelist);
        allowed && !listed(namespace_resource_blacklist)
    } else {
        let listed = |items: &[argosy_api::v1alpha1::ClusterResourceRestrictionItem]| {
            items.iter().any(|item| {
                same(&item.group, &item.kind) && (item.name.is_empty() || matches(&item.name, name, false))
            })
        };
        listed(cluster_resource_whitelist) && !listed(cluster_resource_blacklist)
    }
}

/// May Applications of this namespace use the project? Those of the control plane's namespace always may.
pub fn permits_namespace(project: &AppProject, namespace: &str, control_plane: &str) -> bool {
    namespace == control_plane
        || project.spec.source_namespaces.iter().any(|pattern| {
            match pattern.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
                Some(expression) => regex::Regex::new(expression).is_ok_and(|regex| regex.is_match(namespace)),
                None => matches(pattern, namespace, false),
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(change: impl FnOnce(&mut AppProjectSpec)) -> AppProject {
        let mut project = AppProject::default();
        change(&mut project.spec);
        project
    }

    fn destination(server: &str, name: &str, namespace: &str) -> ApplicationDestination {
        ApplicationDestination { server: server.into(), name: name.into(), namespace: namespace.into() }
    }

    #[test]
    fn a_star_in_a_repository_stops_at_a_slash() {
        let repos = |patterns: &[&str]| {
            project(|spec| spec.source_repos = patterns.iter().map(|text| (*text).to_owned()).collect())
        };
        let url = "https://git.example.com/team/app.git";
        for (patterns, expected) in [
            (&["*"][..], true),
            (&["https://git.example.com/team/*"], true),
            (&["https://git.example.com/*"], false),
            (&["https://git.example.com/**"], true),
            (&["https://GIT.example.com/team/app"], true),
            (&["*", "!https://git.example.com/team/*"], false),
            (&["!https://git.example.com/other/*"], false),
            (&["*", "!https://git.example.com/other/*"], true),
            (&[], false),
        ] {
            assert_eq!(permits_source(&repos(patterns), url), expected, "{patterns:?}");
        }
    }

    #[test]
    fn both_forms_of_an_ssh_address_are_one_repository() {
        let expected = normalize_repository("ssh://git@github.com/argoproj/test");
        assert_eq!(normalize_repository("git@GITHUB.com:argoproj/test.git"), expected);
        assert_ne!(normalize_repository("https://github.com/argoproj/test"), expected);
    }

    #[test]
    fn a_destination_needs_cluster_and_namespace_and_no_denial() {
        let to = |items: &[(&str, &str, &str)]| {
            project(|spec| spec.destinations = items.iter().map(|(s, n, ns)| destination(s, n, ns)).collect())
        };
        let target = destination("https://c1", "one", "shop");
        for (items, expected) in [
            (&[("*", "", "*")][..], true),
            (&[("https://c1", "", "shop")], true),
            (&[("https://c1", "", "other")], false),
            (&[("", "one", "sh*")], true),
            (&[("*", "", "*"), ("!https://c1", "", "*")], false),
            (&[("*", "", "*"), ("https://c1", "", "!shop")], false),
            (&[("*", "", "!kube-system")], true),
            (&[], false),
        ] {
            assert_eq!(permits_destination(&to(items), &target), expected, "{items:?}");
        }
    }

    #[test]
    fn cluster_scoped_kinds_must_be_listed_and_namespaced_ones_must_not_be_denied() {
        let kind = |group: &str, kind: &str| GroupKind { group: group.into(), kind: kind.into() };
        let item = |group: &str, kind: &str, name: &str| argosy_api::v1alpha1::ClusterResourceRestrictionItem {
            group: group.into(),
            kind: kind.into(),
            name: name.into(),
        };
        let none = project(|_| {});
        assert!(permits_kind(&none, "apps", "Deployment", "a", true));
        assert!(!permits_kind(&none, "", "Namespace", "a", false));
        let some = project(|spec| {
            spec.cluster_resource_whitelist = vec![item("", "Namespace", "team-*")];
            spec.cluster_resource_blacklist = vec![item("", "Namespace", "team-x")];
            spec.namespace_resource_blacklist = vec![kind("", "ResourceQuota")];
            spec.namespace_resource_whitelist = vec![kind("*", "*")];
        });
        assert!(permits_kind(&some, "", "Namespace", "team-a", false));
        assert!(!permits_kind(&some, "", "Namespace", "team-x", false));
        assert!(!permits_kind(&some, "", "Namespace", "other", false));
        assert!(!permits_kind(&some, "", "ResourceQuota", "a", true));
        assert!(permits_kind(&some, "apps", "Deployment", "a", true));
    }

    #[test]
    fn namespaces_of_applications_are_globs_or_regular_expressions() {
        let some = project(|spec| spec.source_namespaces = vec!["team-*".into(), "/^x[0-9]$/".into()]);
        for (namespace, expected) in [("argocd", true), ("team-a", true), ("x1", true), ("other", false)] {
            assert_eq!(permits_namespace(&some, namespace, "argocd"), expected, "{namespace}");
        }
    }
}
