//! Repositories and credential templates from their Secrets, and which of them a URL uses.

use std::collections::BTreeMap;

use crate::annotation::parse_bool;
use crate::git_url;
use crate::v1alpha1::{RepoCreds, Repository};

/// Values of [`crate::annotation::SECRET_TYPE`].
pub mod secret_type {
    /// A repository.
    pub const REPOSITORY: &str = "repository";
    /// Credentials for every repository whose URL begins so.
    pub const REPO_CREDS: &str = "repo-creds";
    /// A repository that hydrated manifests are pushed to.
    pub const REPOSITORY_WRITE: &str = "repository-write";
    /// Credentials for pushing.
    pub const REPO_WRITE_CREDS: &str = "repo-write-creds";
}

/// Data of a Secret, decoded.
pub type Data = BTreeMap<String, Vec<u8>>;

/// A value that is not what its key wants.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read {key} of the repository secret: {value:?} is not {expected}")]
pub struct Invalid {
    /// The key.
    pub key: &'static str,
    /// The value.
    pub value: String,
    /// `a boolean` or `a number`.
    pub expected: &'static str,
}

struct Reader<'a> {
    data: &'a Data,
    invalid: Vec<Invalid>,
}

impl Reader<'_> {
    fn text(&self, key: &str) -> String {
        self.data
            .get(key)
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .unwrap_or_default()
    }

    fn bool(&mut self, key: &'static str) -> bool {
        self.parsed(key, "a boolean", parse_bool)
    }

    fn int(&mut self, key: &'static str) -> i64 {
        self.parsed(key, "a number", |text| text.parse().ok())
    }

    fn parsed<T: Default>(
        &mut self,
        key: &'static str,
        expected: &'static str,
        parse: fn(&str) -> Option<T>,
    ) -> T {
        if !self.data.contains_key(key) {
            return T::default();
        }
        let value = self.text(key);
        parse(&value).unwrap_or_else(|| {
            self.invalid.push(Invalid { key, value, expected });
            T::default()
        })
    }
}

/// Reads a repository. What a key of it should not hold is left at its default and reported beside it.
pub fn repository(data: &Data) -> (Repository, Vec<Invalid>) {
    let mut read = Reader {
        data,
        invalid: Vec::new(),
    };
    let repository = Repository {
        repo: read.text("url"),
        name: read.text("name"),
        r#type: read.text("type"),
        project: read.text("project"),
        username: read.text("username"),
        password: read.text("password"),
        bearer_token: read.text("bearerToken"),
        ssh_private_key: read.text("sshPrivateKey"),
        tls_client_cert_data: read.text("tlsClientCertData"),
        tls_client_cert_key: read.text("tlsClientCertKey"),
        github_app_private_key: read.text("githubAppPrivateKey"),
        github_app_id: read.int("githubAppID"),
        github_app_installation_id: read.int("githubAppInstallationID"),
        github_app_enterprise_base_url: read.text("githubAppEnterpriseBaseUrl"),
        gcp_service_account_key: read.text("gcpServiceAccountKey"),
        azure_service_principal_client_id: read.text("azureServicePrincipalClientId"),
        azure_service_principal_client_secret: read.text("azureServicePrincipalClientSecret"),
        azure_service_principal_tenant_id: read.text("azureServicePrincipalTenantId"),
        azure_active_directory_endpoint: read.text("azureActiveDirectoryEndpoint"),
        use_azure_workload_identity: read.bool("useAzureWorkloadIdentity"),
        force_http_basic_auth: read.bool("forceHttpBasicAuth"),
        proxy: read.text("proxy"),
        no_proxy: read.text("noProxy"),
        insecure: read.bool("insecure"),
        insecure_ignore_host_key: read.bool("insecureIgnoreHostKey"),
        enable_lfs: read.bool("enableLfs"),
        enable_oci: read.bool("enableOCI"),
        insecure_oci_force_http: read.bool("insecureOCIForceHttp"),
        depth: read.int("depth"),
        webhook_manifest_cache_warm_disabled: read.bool("webhookManifestCacheWarmDisabled"),
        ..Repository::default()
    };
    (repository, read.invalid)
}

/// Reads a credential template. Two of its Azure keys end in `ID`, where those of a repository end in `Id`.
pub fn repo_creds(data: &Data) -> (RepoCreds, Vec<Invalid>) {
    let mut read = Reader {
        data,
        invalid: Vec::new(),
    };
    let creds = RepoCreds {
        url: read.text("url"),
        r#type: read.text("type"),
        username: read.text("username"),
        password: read.text("password"),
        bearer_token: read.text("bearerToken"),
        ssh_private_key: read.text("sshPrivateKey"),
        tls_client_cert_data: read.text("tlsClientCertData"),
        tls_client_cert_key: read.text("tlsClientCertKey"),
        github_app_private_key: read.text("githubAppPrivateKey"),
        github_app_id: read.int("githubAppID"),
        github_app_installation_id: read.int("githubAppInstallationID"),
        github_app_enterprise_base_url: read.text("githubAppEnterpriseBaseUrl"),
        gcp_service_account_key: read.text("gcpServiceAccountKey"),
        azure_service_principal_client_id: read.text("azureServicePrincipalClientID"),
        azure_service_principal_client_secret: read.text("azureServicePrincipalClientSecret"),
        azure_service_principal_tenant_id: read.text("azureServicePrincipalTenantID"),
        azure_active_directory_endpoint: read.text("azureActiveDirectoryEndpoint"),
        use_azure_workload_identity: read.bool("useAzureWorkloadIdentity"),
        force_http_basic_auth: read.bool("forceHttpBasicAuth"),
        proxy: read.text("proxy"),
        no_proxy: read.text("noProxy"),
        enable_oci: read.bool("enableOCI"),
        insecure_oci_force_http: read.bool("insecureOCIForceHttp"),
    };
    (creds, read.invalid)
}

/// The repository to use for a URL and a project, credentials filled in.
///
/// The entry of the project comes first, then the one of no project; without either the repository is taken as public.
/// One without credentials of its own takes those of the template with the longest matching URL.
pub fn lookup(repositories: &[Repository], templates: &[RepoCreds], url: &str, project: &str) -> Repository {
    let mut of_url = repositories
        .iter()
        .filter(|repository| git_url::same(&repository.repo, url));
    let mut found = of_url
        .clone()
        .find(|repository| repository.project == project)
        .or_else(|| of_url.find(|repository| repository.project.is_empty()))
        .cloned()
        .unwrap_or_else(|| Repository {
            repo: url.to_owned(),
            ..Repository::default()
        });
    if !has_credentials(&found)
        && let Some(template) = template_for(templates, &found.repo)
    {
        inherit(&mut found, template);
    }
    found
}

/// The template whose URL is the longest prefix of this one.
pub fn template_for<'a>(templates: &'a [RepoCreds], url: &str) -> Option<&'a RepoCreds> {
    let url = git_url::normalize(url);
    let mut longest: Option<(usize, &RepoCreds)> = None;
    for template in templates {
        let prefix = git_url::normalize(&template.url);
        if !prefix.is_empty() && url.starts_with(&prefix) && longest.is_none_or(|(len, _)| prefix.len() > len)
        {
            longest = Some((prefix.len(), template));
        }
    }
    longest.map(|(_, template)| template)
}

/// Whether a repository brings what it authenticates with.
pub fn has_credentials(repository: &Repository) -> bool {
    [
        &repository.username,
        &repository.password,
        &repository.bearer_token,
        &repository.ssh_private_key,
        &repository.tls_client_cert_data,
        &repository.github_app_private_key,
        &repository.azure_service_principal_client_secret,
    ]
    .iter()
    .any(|text| !text.is_empty())
        || repository.use_azure_workload_identity
}

/// Fills in what a template has and the repository has not.
pub fn inherit(repository: &mut Repository, template: &RepoCreds) {
    for (own, other) in [
        (&mut repository.username, &template.username),
        (&mut repository.password, &template.password),
        (&mut repository.bearer_token, &template.bearer_token),
        (&mut repository.ssh_private_key, &template.ssh_private_key),
        (
            &mut repository.tls_client_cert_data,
            &template.tls_client_cert_data,
        ),
        (&mut repository.tls_client_cert_key, &template.tls_client_cert_key),
        (
            &mut repository.github_app_private_key,
            &template.github_app_private_key,
        ),
        (
            &mut repository.github_app_enterprise_base_url,
            &template.github_app_enterprise_base_url,
        ),
        (
            &mut repository.gcp_service_account_key,
            &template.gcp_service_account_key,
        ),
        (
            &mut repository.azure_service_principal_client_id,
            &template.azure_service_principal_client_id,
        ),
        (
            &mut repository.azure_service_principal_client_secret,
            &template.azure_service_principal_client_secret,
        ),
        (
            &mut repository.azure_service_principal_tenant_id,
            &template.azure_service_principal_tenant_id,
        ),
        (
            &mut repository.azure_active_directory_endpoint,
            &template.azure_active_directory_endpoint,
        ),
        (&mut repository.proxy, &template.proxy),
        (&mut repository.no_proxy, &template.no_proxy),
        (&mut repository.r#type, &template.r#type),
    ] {
        if own.is_empty() {
            own.clone_from(other);
        }
    }
    if repository.github_app_id == 0 {
        repository.github_app_id = template.github_app_id;
    }
    if repository.github_app_installation_id == 0 {
        repository.github_app_installation_id = template.github_app_installation_id;
    }
    repository.enable_oci = template.enable_oci;
    repository.insecure_oci_force_http = template.insecure_oci_force_http;
    repository.force_http_basic_auth = template.force_http_basic_auth;
    repository.use_azure_workload_identity = template.use_azure_workload_identity;
    repository.inherited_creds = true;
}

/// Host keys are not checked, or certificates are not: the older key and the newer one mean the same.
pub fn is_insecure(repository: &Repository) -> bool {
    repository.insecure || repository.insecure_ignore_host_key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(pairs: &[(&str, &str)]) -> Data {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn a_bad_number_is_reported_and_hurts_nothing_else() {
        let (repository, invalid) = repository(&data(&[
            ("url", "https://a/b"),
            ("depth", "deep"),
            ("enableLfs", "T"),
            ("password", "p"),
        ]));
        assert_eq!(repository.password, "p");
        assert!(repository.enable_lfs);
        assert_eq!(
            invalid[0].to_string(),
            "read depth of the repository secret: \"deep\" is not a number"
        );
    }

    #[test]
    fn azure_ids_are_spelt_differently_in_templates() {
        let pairs = [
            ("azureServicePrincipalClientId", "small"),
            ("azureServicePrincipalClientID", "large"),
        ];
        assert_eq!(
            repository(&data(&pairs)).0.azure_service_principal_client_id,
            "small"
        );
        assert_eq!(
            repo_creds(&data(&pairs)).0.azure_service_principal_client_id,
            "large"
        );
    }

    #[test]
    fn the_projects_own_entry_comes_first() {
        let entry = |project: &str, password: &str| Repository {
            repo: "https://host/a.git".to_owned(),
            project: project.to_owned(),
            password: password.to_owned(),
            ..Repository::default()
        };
        let all = [
            entry("", "shared"),
            entry("team", "own"),
            entry("other", "foreign"),
        ];
        assert_eq!(lookup(&all, &[], "https://HOST/a", "team").password, "own");
        assert_eq!(lookup(&all, &[], "https://host/a", "nobody").password, "shared");
        assert_eq!(lookup(&all[2..], &[], "https://host/a", "team").password, "");
    }

    #[test]
    fn the_longest_template_lends_its_credentials() {
        let template = |url: &str, password: &str| RepoCreds {
            url: url.to_owned(),
            password: password.to_owned(),
            username: "u".to_owned(),
            ..RepoCreds::default()
        };
        let templates = [
            template("https://host", "short"),
            template("https://host/team", "long"),
            template("", "none"),
        ];
        let found = lookup(&[], &templates, "https://host/team/a", "");
        assert_eq!((found.password.as_str(), found.inherited_creds), ("long", true));

        let own = Repository {
            repo: "https://host/team/a".to_owned(),
            username: "me".to_owned(),
            ..Repository::default()
        };
        let found = lookup(&[own], &templates, "https://host/team/a", "");
        assert_eq!((found.password.as_str(), found.inherited_creds), ("", false));
    }
}
