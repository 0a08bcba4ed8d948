//! What people configure, read from the tables of ConfigMaps and Secrets into one immutable value.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use argosy_api::annotation::SECRET_TYPE;
use argosy_api::repository_secret::{self, secret_type};
use argosy_api::v1alpha1::{Cluster, RepoCreds, Repository};
use argosy_api::{cluster_secret, settings as parsed};
use argosy_health::Customizations;
use argosy_health::action::Definitions;
pub(crate) use argosy_rbac::Config as Rbac;
use tracing::warn;

use super::accounts::{self, Account};
use super::rows::{ConfigMap, Secret};

/// The ConfigMaps and Secrets that have a name.
pub(crate) const CONFIG_MAP: &str = "argocd-cm";
/// Policies.
pub(crate) const RBAC_CONFIG_MAP: &str = "argocd-rbac-cm";
/// Keys, passwords, tokens.
pub(crate) const SECRET: &str = "argocd-secret";

/// A session lasts so long unless `users.session.duration` says otherwise.
const SESSION: Duration = Duration::from_secs(24 * 3600);
/// What a password must look like unless `passwordPattern` says otherwise.
const PASSWORD_PATTERN: &str = "^.{8,32}$";

/// Everything people configure. Immutable.
pub(crate) struct Settings {
    /// The typed part of `argocd-cm`.
    pub config: parsed::Settings,
    /// `argocd-cm`, as it is.
    pub texts: BTreeMap<String, String>,
    /// Local accounts.
    pub accounts: BTreeMap<String, Account>,
    /// Those who bring no token get the default role.
    pub anonymous: bool,
    /// How long a session lasts.
    pub session: Duration,
    /// A regular expression.
    pub password_pattern: String,
    /// What session tokens are signed with; empty before the first start is through.
    pub signing_key: Vec<u8>,
    /// Who may do what.
    pub rbac: Arc<Rbac>,
    /// Scripts of actions.
    pub actions: Arc<Customizations>,
    /// Repositories, as their Secrets have them, with the Secret's name.
    pub repositories: Vec<(String, Repository)>,
    /// The same for pushing.
    pub write_repositories: Vec<(String, Repository)>,
    /// Credential templates, with the Secret's name.
    pub templates: Vec<(String, RepoCreds)>,
    /// The same for pushing.
    pub write_templates: Vec<(String, RepoCreds)>,
    /// Clusters, with the Secret's name; the control plane's own has none if it is only implied.
    pub clusters: Vec<(Option<String>, Cluster)>,
}

impl Settings {
    /// Reads the tables. `before` is what counted before: a policy that cannot be read leaves the old one standing.
    pub(crate) fn read(
        namespace: &str,
        config_maps: &[Arc<ConfigMap>],
        secrets: &[Arc<Secret>],
        before: Option<&Arc<Rbac>>,
    ) -> Self {
        let of = |name: &str| {
            let found = config_maps.iter().find(|map| map.metadata.name == name);
            found.map(|map| map.data.clone()).unwrap_or_default()
        };
        let texts = of(CONFIG_MAP);
        let yaml = |text: &str| {
            argosy_object::yaml::parse(text, &argosy_object::yaml::Limits::default())
                .map_err(|error| error.to_string())
        };
        let (config, findings) = parsed::Settings::read(&texts, namespace, &yaml);
        for finding in findings {
            warn!(key = finding.key, "argocd-cm: {}", finding.message);
        }
        let secret = secrets.iter().find(|secret| secret.metadata.name == SECRET);
        let none = BTreeMap::new();
        let secret = secret.map_or(&none, |secret| &secret.data);
        let text = |key: &str| texts.get(key).map_or("", String::as_str);
        let duration = argosy_api::duration::parse(text("users.session.duration")).ok();
        let of_type = |wanted: &'static str| {
            secrets.iter().filter(move |secret| {
                secret
                    .metadata
                    .labels
                    .get(SECRET_TYPE)
                    .is_some_and(|kind| kind == wanted)
            })
        };
        let repositories = |kind| {
            of_type(kind)
                .map(|secret| {
                    (
                        secret.metadata.name.clone(),
                        repository_secret::repository(&secret.data).0,
                    )
                })
                .filter(|(_, repository)| !repository.repo.is_empty())
                .collect()
        };
        let templates = |kind| {
            of_type(kind)
                .map(|secret| {
                    (
                        secret.metadata.name.clone(),
                        repository_secret::repo_creds(&secret.data).0,
                    )
                })
                .filter(|(_, template)| !template.url.is_empty())
                .collect()
        };
        Settings {
            accounts: accounts::read(&texts, secret),
            anonymous: text("users.anonymous.enabled") == "true",
            session: duration.filter(|duration| !duration.is_zero()).unwrap_or(SESSION),
            password_pattern: match text("passwordPattern") {
                "" => PASSWORD_PATTERN.to_owned(),
                pattern => pattern.to_owned(),
            },
            signing_key: secret.get("server.secretkey").cloned().unwrap_or_default(),
            rbac: rbac(&of(RBAC_CONFIG_MAP), before),
            repositories: repositories(secret_type::REPOSITORY),
            write_repositories: repositories(secret_type::REPOSITORY_WRITE),
            templates: templates(secret_type::REPO_CREDS),
            write_templates: templates(secret_type::REPO_WRITE_CREDS),
            clusters: clusters(of_type("cluster"), config.in_cluster_enabled),
            actions: Arc::new(actions(&config)),
            config,
            texts,
        }
    }

    /// A text of `argocd-cm`; empty if it is not set.
    pub(crate) fn text(&self, key: &str) -> String {
        self.texts.get(key).cloned().unwrap_or_default()
    }

    /// The repository of this URL for a project, with credentials.
    pub(crate) fn repository(&self, url: &str, project: &str) -> Repository {
        let repositories: Vec<_> = self.repositories.iter().map(|(_, found)| found.clone()).collect();
        let templates: Vec<_> = self.templates.iter().map(|(_, found)| found.clone()).collect();
        repository_secret::lookup(&repositories, &templates, url, project)
    }
}

/// The actions of `resource.customizations`; a text that cannot be read leaves the built-in ones.
fn actions(config: &parsed::Settings) -> Customizations {
    let mut customizations = Customizations::none();
    for (kind, custom) in config
        .overrides
        .iter()
        .filter(|(_, custom)| !custom.actions.is_empty())
    {
        match Definitions::parse(&custom.actions, custom.use_open_libs) {
            Ok(definitions) => customizations.insert_actions(kind, definitions),
            Err(why) => warn!(kind, "argocd-cm: actions: {why}"),
        }
    }
    customizations
}

fn rbac(data: &BTreeMap<String, String>, before: Option<&Arc<Rbac>>) -> Arc<Rbac> {
    // Settings are read whenever a ConfigMap or Secret changes; policies mostly have not.
    if let Some(before) = before.filter(|before| before.is_of(data)) {
        return before.clone();
    }
    Rbac::read(data).map(Arc::new).unwrap_or_else(|error| {
        warn!("argocd-rbac-cm: {error}: the policy before stays in force");
        before.cloned().unwrap_or_default()
    })
}

/// The cluster that a Secret describes.
pub(crate) fn cluster(secret: &Secret) -> Result<Cluster, cluster_secret::Error> {
    let read = cluster_secret::read(cluster_secret::Secret {
        name: &secret.metadata.name,
        uid: &secret.metadata.uid,
        labels: &secret.metadata.labels,
        annotations: &secret.metadata.annotations,
        data: &secret.data,
    })?;
    Ok(read.cluster)
}

fn clusters<'a>(
    secrets: impl Iterator<Item = &'a Arc<Secret>>,
    in_cluster: bool,
) -> Vec<(Option<String>, Cluster)> {
    let mut clusters: Vec<(Option<String>, Cluster)> = Vec::new();
    for secret in secrets {
        match cluster(secret) {
            Ok(cluster) => clusters.push((Some(secret.metadata.name.clone()), cluster)),
            Err(error) => warn!(
                error = argosy_runtime::log::chain(&error),
                "a cluster is passed over"
            ),
        }
    }
    let own = cluster_secret::in_cluster();
    if !in_cluster {
        clusters.retain(|(_, cluster)| cluster.server != own.server);
    } else if clusters.iter().all(|(_, cluster)| cluster.server != own.server) {
        clusters.push((None, own));
    }
    clusters
}
