//! A configured repository becomes the right to read it.

use crate::chart::ChartRepo;
use crate::error::{Error, Result};
use crate::git::{Access, Credentials, GitUrl, Secret};
use crate::identity::{GithubApp, Identity, Principal, Proof, ServiceAccount};
use argosy_api::repository_secret;
use argosy_api::v1alpha1::{RepoCreds, Repository};

/// What kind of place a source is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepoKind {
    /// A git repository.
    Git,
    /// A Helm repository, classic or registry.
    Helm,
    /// An OCI artifact that is no chart.
    Oci,
}

/// Decides by the source's chart, the configured type and the URL.
pub fn kind(repo: &Repository, chart: &str) -> RepoKind {
    if !chart.is_empty() || repo.r#type == "helm" {
        RepoKind::Helm
    } else if repo.r#type == "oci" || repo.repo.starts_with("oci://") {
        RepoKind::Oci
    } else {
        RepoKind::Git
    }
}

/// Access to a git repository.
///
/// # Errors
/// [`Error::Repository`] for a URL that is not allowed.
pub fn git(repo: &Repository) -> Result<Access> {
    let depth = u32::try_from(repo.depth).unwrap_or(0);
    Ok(Access {
        lfs: repo.enable_lfs,
        ..Access::new(&repo.repo, credentials(repo), depth)?
    })
}

/// Access to a chart repository.
///
/// # Errors
/// [`Error::Repository`] for credentials of a kind that cannot be used.
pub fn chart(repo: &Repository, pass_credentials: bool) -> Result<ChartRepo> {
    let credentials = credentials(repo);
    if let Some(reason) = &credentials.unusable {
        return Err(Error::Repository {
            url: crate::git::url::display(&repo.repo),
            message: reason.clone(),
        });
    }
    // A registry is written without scheme when `enableOCI` is set.
    let scheme_less = !repo.repo.contains("://");
    Ok(ChartRepo::new(
        &repo.repo,
        repo.enable_oci || scheme_less,
        repo.insecure_oci_force_http,
        credentials,
        pass_credentials,
    ))
}

fn credentials(repo: &Repository) -> Credentials {
    let (identity, unusable) = match identity(repo) {
        Ok(identity) => (identity, None),
        Err(reason) => (None, Some(reason)),
    };
    Credentials {
        username: repo.username.clone(),
        password: Secret::new(repo.password.clone()),
        bearer_token: Secret::new(repo.bearer_token.clone()),
        ssh_private_key: Secret::new(repo.ssh_private_key.clone()),
        tls_client_cert: repo.tls_client_cert_data.clone(),
        tls_client_key: Secret::new(repo.tls_client_cert_key.clone()),
        insecure: repo.insecure || repo.insecure_ignore_host_key,
        force_basic: repo.force_http_basic_auth,
        proxy: repo.proxy.clone(),
        no_proxy: repo.no_proxy.clone(),
        identity,
        unusable,
    }
}

/// A repository's way to the network, for nobody: what its content names by URL is asked for on the same way.
pub(crate) fn way(repo: &Repository) -> Credentials {
    credentials(repo).without_secrets()
}

/// As whom tokens are bought for a repository, if they are.
fn identity(repo: &Repository) -> Result<Option<Identity>, String> {
    if repo.use_azure_workload_identity {
        return Principal::workload().map(|workload| Some(Identity::Azure(workload)));
    }
    if !repo.github_app_private_key.is_empty() {
        return Ok(Some(Identity::GithubApp(GithubApp {
            app_id: repo.github_app_id,
            installation_id: repo.github_app_installation_id,
            repository: match repo.github_app_installation_id {
                0 => owner_and_name(&repo.repo),
                _ => String::new(),
            },
            private_key: Secret::new(repo.github_app_private_key.clone()),
            base_url: repo.github_app_enterprise_base_url.clone(),
        })));
    }
    if !repo.gcp_service_account_key.is_empty() {
        let account = ServiceAccount::read(&repo.gcp_service_account_key)?;
        return Ok(Some(Identity::Google(account)));
    }
    if repo.azure_service_principal_client_secret.is_empty() {
        return Ok(None);
    }
    Ok(Some(Identity::Azure(Principal {
        tenant: repo.azure_service_principal_tenant_id.clone(),
        client_id: repo.azure_service_principal_client_id.clone(),
        proof: Proof::Secret(Secret::new(repo.azure_service_principal_client_secret.clone())),
        authority: repo.azure_active_directory_endpoint.clone(),
        resource: Principal::resource_of_registries(),
    })))
}

/// Owner and name of a repository at a host that gives it both.
fn owner_and_name(url: &str) -> String {
    let url = GitUrl::parse(url);
    let parts = url
        .as_ref()
        .map(|url| url.normal().split('/').skip(3).take(2).collect());
    parts.map_or_else(|_| String::new(), |parts: Vec<&str>| parts.join("/"))
}

/// Finds the repository configured for a URL or name among those that came with a request, else makes one from the
/// longest matching credential template, else an anonymous one.
///
/// Where nothing is for a place in a registry, a configured one above or below it is, as in Argo CD.
pub fn find(url: &str, repos: &[Repository], templates: &[RepoCreds]) -> Repository {
    let wanted = normal(url);
    if let Some(found) = repos.iter().find(|repo| normal(&repo.repo) == wanted) {
        let mut found = found.clone();
        // The URL as asked for says whether it is a registry.
        found.enable_oci |= url.starts_with("oci://");
        return found;
    }
    let template = templates
        .iter()
        .filter(|template| !template.url.is_empty() && wanted.starts_with(&normal(&template.url)))
        .filter(|template| at_boundary(&wanted, &normal(&template.url)))
        .max_by_key(|template| template.url.len());
    let mut repo = Repository {
        repo: url.to_owned(),
        enable_oci: url.starts_with("oci://"),
        ..Repository::default()
    };
    if let Some(template) = template {
        repository_secret::inherit(&mut repo, template);
        repo.enable_oci |= url.starts_with("oci://");
    } else if let Some(near) = near(url, repos) {
        repo = Repository {
            repo: url.to_owned(),
            name: String::new(),
            enable_oci: true,
            ..near.clone()
        };
    }
    repo
}

/// The form in which URLs are compared.
fn normal(url: &str) -> String {
    url.trim_end_matches('/')
        .trim_start_matches("oci://")
        .to_ascii_lowercase()
}

/// The first configured place above or below one in a registry.
fn near<'a>(url: &str, repos: &'a [Repository]) -> Option<&'a Repository> {
    let wanted = url.starts_with("oci://").then(|| normal(url))?;
    let within = |url: &str, prefix: &str| {
        url.strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    repos.iter().find(|repo| {
        let other = normal(&repo.repo);
        (repo.enable_oci || repo.r#type == "oci") && (within(&wanted, &other) || within(&other, &wanted))
    })
}

/// Names as whom a repository is read, saying nothing about it, and whether its LFS pointers are.
pub(crate) fn class(repo: &Repository) -> String {
    let whom = credentials(repo).fingerprint();
    if repo.enable_lfs { whom + " lfs" } else { whom }
}

/// As [`class`], for a credential template.
pub(crate) fn class_of_template(template: &RepoCreds) -> String {
    let mut repo = Repository::default();
    repository_secret::inherit(&mut repo, template);
    let (oci, open) = (repo.enable_oci, repo.insecure_oci_force_http);
    format!("{} {oci} {open}", credentials(&repo).fingerprint())
}

/// Whether an operator configured a URL: as a repository, or below a credential template.
pub fn is_configured(url: &str, repos: &[Repository], templates: &[RepoCreds]) -> bool {
    let wanted = normal(url);
    let covers = |prefix: &str| {
        let prefix = normal(prefix);
        !prefix.is_empty() && wanted.starts_with(&prefix) && at_boundary(&wanted, &prefix)
    };
    repos.iter().any(|repo| covers(&repo.repo))
        || templates.iter().any(|template| covers(&template.url))
        || near(url, repos).is_some()
}

/// A template for `https://example.com` is not for `https://example.com.evil.org`.
fn at_boundary(url: &str, prefix: &str) -> bool {
    match url.as_bytes().get(prefix.len()) {
        None => true,
        Some(next) => {
            let past_host = prefix
                .split_once("://")
                .is_some_and(|(_, rest)| rest.contains('/'))
                || !prefix.contains("://") && (prefix.contains('/') || prefix.contains(':'));
            past_host || matches!(next, b'/' | b':' | b'?')
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_gives_all_that_it_has() {
        let templates = [RepoCreds {
            url: "https://github.com/team".into(),
            github_app_id: 12,
            github_app_private_key: "key".into(),
            ..RepoCreds::default()
        }];
        let found = find("https://github.com/team/app.git", &[], &templates);
        let Some(Identity::GithubApp(app)) = credentials(&found).identity else {
            panic!("{found:?}")
        };
        assert_eq!((app.app_id, app.repository.as_str()), (12, "team/app"));
        let other = RepoCreds {
            github_app_id: 13,
            ..templates[0].clone()
        };
        assert_ne!(class_of_template(&templates[0]), class_of_template(&other));
    }

    #[test]
    fn a_place_in_a_registry_is_read_as_one_above_or_below_it() {
        let repos = [Repository {
            repo: "registry.example.com/charts/team".into(),
            enable_oci: true,
            password: "p".into(),
            ..Repository::default()
        }];
        for (url, password) in [
            ("oci://registry.example.com/charts/team/common", "p"),
            ("oci://registry.example.com/charts", "p"),
            ("oci://registry.example.com", "p"),
            ("oci://registry.example.com/charts/teams", ""),
            ("oci://registry.example.com/other", ""),
            ("oci://registry.example.com.evil.org/charts", ""),
            ("https://registry.example.com/charts", ""),
        ] {
            assert_eq!(find(url, &repos, &[]).password, password, "{url}");
            assert!(password.is_empty() || is_configured(url, &repos, &[]), "{url}");
        }
    }

    #[test]
    fn a_template_is_not_for_a_longer_host() {
        let templates = [RepoCreds {
            url: "https://example.com".into(),
            password: "p".into(),
            ..RepoCreds::default()
        }];
        assert_eq!(find("https://example.com/charts", &[], &templates).password, "p");
        assert_eq!(
            find("https://example.com.evil.org/charts", &[], &templates).password,
            ""
        );
    }
}
