//! What is changed in a project, one thing at a time or by the flags of `create` and `set`.

use anyhow::{Context as _, Result, bail, ensure};
use argosy_api::v1alpha1::{
    AppProject, ApplicationDestination, ApplicationDestinationServiceAccount, ClusterResourceRestrictionItem,
    GroupKind, OrphanedResourceKey, OrphanedResourcesMonitorSettings, SignatureKey,
};

use super::update;
use crate::output;
use crate::remote::Remote;

/// Flags of `create` and `set`. What is given replaces what was.
#[derive(clap::Args)]
pub(super) struct Options {
    /// What it is for.
    #[arg(long)]
    description: Option<String>,
    /// SERVER,NAMESPACE that may be deployed to.
    #[arg(long, short)]
    dest: Vec<String>,
    /// Repositories that may be deployed from.
    #[arg(long, short)]
    src: Vec<String>,
    /// Namespaces whose Applications may use it.
    #[arg(long)]
    source_namespaces: Vec<String>,
    /// Keys that commits must be signed with.
    #[arg(long, value_delimiter = ',')]
    signature_keys: Vec<String>,
    /// GROUP/KIND of cluster resources that are allowed.
    #[arg(long)]
    allow_cluster_resource: Vec<String>,
    /// GROUP/KIND of cluster resources that are not.
    #[arg(long)]
    deny_cluster_resource: Vec<String>,
    /// GROUP/KIND of namespaced resources that are allowed.
    #[arg(long)]
    allow_namespaced_resource: Vec<String>,
    /// GROUP/KIND of namespaced resources that are not.
    #[arg(long)]
    deny_namespaced_resource: Vec<String>,
    /// Look for resources that belong to nobody.
    #[arg(long)]
    orphaned_resources: bool,
    /// And warn of them.
    #[arg(long)]
    orphaned_resources_warn: bool,
    /// SERVER,NAMESPACE,SERVICE-ACCOUNT to deploy as.
    #[arg(long)]
    dest_service_accounts: Vec<String>,
}

impl Options {
    pub(super) fn apply(&self, project: &mut AppProject) -> Result<()> {
        let spec = &mut project.spec;
        if let Some(description) = &self.description {
            spec.description.clone_from(description);
        }
        if !self.dest.is_empty() {
            let destination = |text: &String| {
                let (server, namespace) = text
                    .split_once(',')
                    .with_context(|| format!("--dest {text}: SERVER,NAMESPACE is expected"))?;
                Ok(destination(server, namespace, false))
            };
            spec.destinations = self.dest.iter().map(destination).collect::<Result<_>>()?;
        }
        for (given, place) in [
            (&self.src, &mut spec.source_repos),
            (&self.source_namespaces, &mut spec.source_namespaces),
        ] {
            if !given.is_empty() {
                place.clone_from(given);
            }
        }
        if !self.signature_keys.is_empty() {
            spec.signature_keys = self
                .signature_keys
                .iter()
                .map(|key| key_of(key))
                .collect::<Result<_>>()?;
        }
        for (flag, given, place) in [
            (
                "--allow-cluster-resource",
                &self.allow_cluster_resource,
                &mut spec.cluster_resource_whitelist,
            ),
            (
                "--deny-cluster-resource",
                &self.deny_cluster_resource,
                &mut spec.cluster_resource_blacklist,
            ),
        ] {
            if !given.is_empty() {
                let item = |text: &String| {
                    let (group, kind) = kind_of(flag, text)?;
                    Ok(ClusterResourceRestrictionItem {
                        group,
                        kind,
                        ..ClusterResourceRestrictionItem::default()
                    })
                };
                *place = given.iter().map(item).collect::<Result<_>>()?;
            }
        }
        for (flag, given, place) in [
            (
                "--allow-namespaced-resource",
                &self.allow_namespaced_resource,
                &mut spec.namespace_resource_whitelist,
            ),
            (
                "--deny-namespaced-resource",
                &self.deny_namespaced_resource,
                &mut spec.namespace_resource_blacklist,
            ),
        ] {
            if !given.is_empty() {
                let item = |text: &String| kind_of(flag, text).map(|(group, kind)| GroupKind { group, kind });
                *place = given.iter().map(item).collect::<Result<_>>()?;
            }
        }
        if self.orphaned_resources || self.orphaned_resources_warn {
            let settings: &mut OrphanedResourcesMonitorSettings =
                spec.orphaned_resources.get_or_insert_default();
            settings.warn = Some(self.orphaned_resources_warn);
        }
        if !self.dest_service_accounts.is_empty() {
            let account = |text: &String| match text.splitn(3, ',').collect::<Vec<_>>()[..] {
                [server, namespace, account] => Ok(account_of(server, namespace, account)),
                _ => bail!("--dest-service-accounts {text}: SERVER,NAMESPACE,SERVICE-ACCOUNT is expected"),
            };
            spec.destination_service_accounts = self
                .dest_service_accounts
                .iter()
                .map(account)
                .collect::<Result<_>>()?;
        }
        Ok(())
    }
}

/// `GROUP/KIND`; of the core group `/KIND` or `KIND`.
fn kind_of(flag: &str, text: &str) -> Result<(String, String)> {
    let (group, kind) = text.split_once('/').unwrap_or(("", text));
    ensure!(!kind.is_empty(), "{flag} {text}: GROUP/KIND is expected");
    Ok((group.to_owned(), kind.to_owned()))
}

fn key_of(key: &str) -> Result<SignatureKey> {
    let plain = key.strip_prefix("0x").unwrap_or(key);
    ensure!(
        matches!(plain.len(), 16 | 40) && plain.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{key} is not a valid GnuPG key ID: 16 or 40 hexadecimal digits are expected"
    );
    Ok(SignatureKey {
        key_id: plain.to_uppercase(),
    })
}

fn destination(cluster: &str, namespace: &str, by_name: bool) -> ApplicationDestination {
    let (server, name) = if by_name { ("", cluster) } else { (cluster, "") };
    ApplicationDestination {
        server: server.to_owned(),
        name: name.to_owned(),
        namespace: namespace.to_owned(),
    }
}

fn account_of(server: &str, namespace: &str, account: &str) -> ApplicationDestinationServiceAccount {
    ApplicationDestinationServiceAccount {
        server: server.to_owned(),
        namespace: namespace.to_owned(),
        default_service_account: account.to_owned(),
    }
}

/// Which list a kind of resource is taken into, or out of.
#[derive(clap::Args)]
pub(super) struct OfKind {
    /// Name of the project.
    project: String,
    /// Group of the kind; `""` is the core group.
    group: String,
    /// The kind.
    kind: String,
    /// The list that is changed.
    #[arg(long, short, value_parser = ["allow", "deny"])]
    list: Option<String>,
}

/// Verbs that change one thing.
#[derive(clap::Subcommand)]
pub(super) enum Verb {
    /// Let a project deploy to a place.
    AddDestination {
        /// Name of the project.
        project: String,
        /// URL of the cluster, or its name with --name.
        server: String,
        /// Namespace.
        namespace: String,
        /// The cluster is given by name.
        #[arg(long)]
        name: bool,
    },
    /// Take a place away.
    RemoveDestination {
        /// Name of the project.
        project: String,
        /// URL or name of the cluster.
        server: String,
        /// Namespace.
        namespace: String,
    },
    /// Let a project deploy from a repository.
    AddSource {
        /// Name of the project.
        project: String,
        /// URL.
        url: String,
    },
    /// Take a repository away.
    RemoveSource {
        /// Name of the project.
        project: String,
        /// URL.
        url: String,
    },
    /// Let Applications of a namespace use a project.
    AddSourceNamespace {
        /// Name of the project.
        project: String,
        /// Namespace.
        namespace: String,
    },
    /// Take a namespace away.
    RemoveSourceNamespace {
        /// Name of the project.
        project: String,
        /// Namespace.
        namespace: String,
    },
    /// Allow a kind of cluster resources.
    AllowClusterResource(OfKind),
    /// Deny a kind of cluster resources.
    DenyClusterResource(OfKind),
    /// Allow a kind of namespaced resources.
    AllowNamespaceResource(OfKind),
    /// Deny a kind of namespaced resources.
    DenyNamespaceResource(OfKind),
    /// Do not count a kind among orphaned resources.
    AddOrphanedIgnore {
        /// Name of the project.
        project: String,
        /// Group of the kind.
        group: String,
        /// The kind.
        kind: String,
        /// Glob of names [default: all].
        #[arg(long, default_value = "")]
        name: String,
    },
    /// Count it again.
    RemoveOrphanedIgnore {
        /// Name of the project.
        project: String,
        /// Group of the kind.
        group: String,
        /// The kind.
        kind: String,
        /// Glob of names, as it was added.
        #[arg(long, default_value = "")]
        name: String,
    },
    /// Want commits signed with a key.
    AddSignatureKey {
        /// Name of the project.
        project: String,
        /// Id of the key.
        key: String,
    },
    /// Take a key away.
    RemoveSignatureKey {
        /// Name of the project.
        project: String,
        /// Id of the key.
        key: String,
    },
    /// Deploy to a place as a service account.
    AddDestinationServiceAccount {
        /// Name of the project.
        project: String,
        /// URL of the cluster.
        server: String,
        /// Namespace.
        namespace: String,
        /// Name of the service account.
        service_account: String,
        /// Namespace of the service account [default: the one deployed to].
        #[arg(long)]
        service_account_namespace: Option<String>,
    },
    /// Take a service account away.
    RemoveDestinationServiceAccount {
        /// Name of the project.
        project: String,
        /// URL of the cluster.
        server: String,
        /// Namespace.
        namespace: String,
        /// Name of the service account, as it was added.
        service_account: String,
    },
}

impl Verb {
    pub(super) async fn run(self, remote: &Remote) -> Result<()> {
        match self {
            Verb::AddDestination {
                project,
                server,
                namespace,
                name,
            } => {
                let added = destination(&server, &namespace, name);
                update(remote, &project, |project| {
                    add(&mut project.spec.destinations, added, "destination")
                })
                .await
            }
            Verb::RemoveDestination {
                project,
                server,
                namespace,
            } => {
                let is = |known: &ApplicationDestination| {
                    (known.server == server || known.name == server) && known.namespace == namespace
                };
                update(remote, &project, |project| {
                    remove(&mut project.spec.destinations, is, "destination")
                })
                .await
            }
            Verb::AddSource { project, url } => {
                update(remote, &project, |project| {
                    add(&mut project.spec.source_repos, url, "source repository")
                })
                .await
            }
            Verb::RemoveSource { project, url } => {
                update(remote, &project, |project| {
                    remove(
                        &mut project.spec.source_repos,
                        |known| *known == url,
                        "source repository",
                    )
                })
                .await
            }
            Verb::AddSourceNamespace { project, namespace } => {
                update(remote, &project, |project| {
                    add(&mut project.spec.source_namespaces, namespace, "source namespace")
                })
                .await
            }
            Verb::RemoveSourceNamespace { project, namespace } => {
                let is = |known: &String| *known == namespace;
                update(remote, &project, |project| {
                    remove(&mut project.spec.source_namespaces, is, "source namespace")
                })
                .await
            }
            Verb::AllowClusterResource(of) => of.change(remote, true, true).await,
            Verb::DenyClusterResource(of) => of.change(remote, true, false).await,
            Verb::AllowNamespaceResource(of) => of.change(remote, false, true).await,
            Verb::DenyNamespaceResource(of) => of.change(remote, false, false).await,
            Verb::AddOrphanedIgnore {
                project,
                group,
                kind,
                name,
            } => {
                let key = OrphanedResourceKey { group, kind, name };
                update(remote, &project, |project| {
                    add(
                        &mut project.spec.orphaned_resources.get_or_insert_default().ignore,
                        key,
                        "orphaned resource",
                    )
                })
                .await
            }
            Verb::RemoveOrphanedIgnore {
                project,
                group,
                kind,
                name,
            } => {
                let key = OrphanedResourceKey { group, kind, name };
                update(remote, &project, |project| {
                    remove(
                        &mut project.spec.orphaned_resources.get_or_insert_default().ignore,
                        |known| *known == key,
                        "orphaned resource",
                    )
                })
                .await
            }
            Verb::AddSignatureKey { project, key } => {
                let key = key_of(&key)?;
                update(remote, &project, |project| {
                    add(&mut project.spec.signature_keys, key, "signature key")
                })
                .await
            }
            Verb::RemoveSignatureKey { project, key } => {
                let key = key_of(&key)?;
                update(remote, &project, |project| {
                    remove(
                        &mut project.spec.signature_keys,
                        |known| *known == key,
                        "signature key",
                    )
                })
                .await
            }
            Verb::AddDestinationServiceAccount {
                project,
                server,
                namespace,
                service_account,
                service_account_namespace,
            } => {
                let account = match service_account_namespace {
                    Some(of) => format!("{of}:{service_account}"),
                    None => service_account,
                };
                ensure!(
                    !account.contains(['*', '?']),
                    "a service account is one: wildcards are not allowed in {account}"
                );
                let added = account_of(&server, &namespace, &account);
                update(remote, &project, |project| {
                    add(
                        &mut project.spec.destination_service_accounts,
                        added,
                        "destination service account",
                    )
                })
                .await
            }
            Verb::RemoveDestinationServiceAccount {
                project,
                server,
                namespace,
                service_account,
            } => {
                let gone = account_of(&server, &namespace, &service_account);
                update(remote, &project, |project| {
                    remove(
                        &mut project.spec.destination_service_accounts,
                        |known| *known == gone,
                        "destination service account",
                    )
                })
                .await
            }
        }
    }
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T, what: &str) -> Result<()> {
    ensure!(
        !list.contains(&item),
        "specified {what} is already defined in project"
    );
    list.push(item);
    Ok(())
}

fn remove<T>(list: &mut Vec<T>, is: impl Fn(&T) -> bool, what: &str) -> Result<()> {
    let before = list.len();
    list.retain(|known| !is(known));
    ensure!(list.len() < before, "specified {what} does not exist in project");
    Ok(())
}

impl OfKind {
    /// Allows or denies the kind. The list that is changed is the allowing one for cluster resources and the denying one
    /// for others, unless another is named: allowing takes a kind into the one or out of the other.
    async fn change(self, remote: &Remote, of_cluster: bool, allow: bool) -> Result<()> {
        let allowing = match self.list.as_deref() {
            Some(list) => list == "allow",
            None => of_cluster,
        };
        let (group, kind) = (self.group.trim_matches('"').to_owned(), self.kind);
        let into = allowing == allow;
        let mut changed = false;
        update(remote, &self.project, |project| {
            let spec = &mut project.spec;
            if of_cluster {
                let list = if allowing {
                    &mut spec.cluster_resource_whitelist
                } else {
                    &mut spec.cluster_resource_blacklist
                };
                let item = ClusterResourceRestrictionItem {
                    group: group.clone(),
                    kind: kind.clone(),
                    ..ClusterResourceRestrictionItem::default()
                };
                changed = put(list, item, into);
            } else {
                let list = if allowing {
                    &mut spec.namespace_resource_whitelist
                } else {
                    &mut spec.namespace_resource_blacklist
                };
                changed = put(
                    list,
                    GroupKind {
                        group: group.clone(),
                        kind: kind.clone(),
                    },
                    into,
                );
            }
            Ok(())
        })
        .await?;
        let list = if allowing { "allow" } else { "deny" };
        let what = match (changed, into) {
            (true, true) => "is added to",
            (true, false) => "is removed from",
            (false, true) => "is already in",
            (false, false) => "is not in",
        };
        output::text(&format!(
            "Group '{group}' and kind '{kind}' {what} the {list} list\n"
        ))
    }
}

/// Puts an item into a list or takes it out; whether that changed anything.
fn put<T: PartialEq>(list: &mut Vec<T>, item: T, into: bool) -> bool {
    let has = list.contains(&item);
    match into {
        true if !has => list.push(item),
        false if has => list.retain(|known| *known != item),
        _ => return false,
    }
    true
}
