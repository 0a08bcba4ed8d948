//! How projects are printed.

use anyhow::Result;
use argosy_api::services::project::DetailedProjectsResponse;
use argosy_api::v1alpha1::{AppProject, Stored as _};

use crate::output::{self, counted, field, or_none};

pub(super) fn list(projects: &[AppProject], format: &str) -> Result<()> {
    let documents: Vec<_> = projects.iter().map(|project| project.to_document()).collect();
    if output::structured(format, &documents)? {
        return Ok(());
    }
    if format == "name" {
        return output::lines(projects.iter().map(|project| &project.metadata.name));
    }
    let headings = [
        "NAME",
        "DESCRIPTION",
        "DESTINATIONS",
        "SOURCES",
        "CLUSTER-RESOURCE-WHITELIST",
        "NAMESPACE-RESOURCE-BLACKLIST",
        "SIGNATURE-KEYS",
        "ORPHANED-RESOURCES",
        "DESTINATION-SERVICE-ACCOUNTS",
    ];
    output::table(&headings, projects.iter().map(row))
}

fn row(project: &AppProject) -> Vec<String> {
    let spec = &project.spec;
    let number = |count: usize, what: &str| match count {
        0 => "<none>".to_owned(),
        count => format!("{count} {what}"),
    };
    vec![
        project.metadata.name.clone(),
        spec.description.clone(),
        counted(&destinations(project), "destinations"),
        counted(&spec.source_repos, "repos"),
        counted(&allowed(project), "resources"),
        number(spec.namespace_resource_blacklist.len(), "resources"),
        number(spec.signature_keys.len(), "key(s)"),
        orphaned(project),
        counted(&service_accounts(project), "destinationServiceAccounts"),
    ]
}

fn destinations(project: &AppProject) -> Vec<String> {
    let destinations = project.spec.destinations.iter();
    destinations
        .map(|destination| {
            let cluster = if destination.server.is_empty() {
                &destination.name
            } else {
                &destination.server
            };
            format!("{cluster},{}", destination.namespace)
        })
        .collect()
}

fn allowed(project: &AppProject) -> Vec<String> {
    let allowed = project.spec.cluster_resource_whitelist.iter();
    allowed
        .map(|item| format!("{}/{}", item.group, item.kind))
        .collect()
}

fn service_accounts(project: &AppProject) -> Vec<String> {
    let accounts = project.spec.destination_service_accounts.iter();
    accounts
        .map(|account| {
            format!(
                "{},{},{}",
                account.server, account.namespace, account.default_service_account
            )
        })
        .collect()
}

fn orphaned(project: &AppProject) -> String {
    let Some(settings) = &project.spec.orphaned_resources else {
        return "disabled".to_owned();
    };
    let warn = settings.warn.unwrap_or(true);
    match settings.ignore.len() {
        0 => format!("enabled (warn={warn})"),
        ignored => format!("enabled (warn={warn}, ignored {ignored})"),
    }
}

pub(super) fn one(detailed: &DetailedProjectsResponse, format: &str) -> Result<()> {
    let project = detailed.project.clone().unwrap_or_default();
    if output::structured(format, &project.to_document())? {
        return Ok(());
    }
    let spec = &project.spec;
    // The first on the line of its heading, the others below it.
    let several = |name: &str, texts: &[String]| {
        let mut text = field(name, &or_none(texts.first().cloned().unwrap_or_default()));
        for more in texts.iter().skip(1) {
            text += &format!("{:<20}{more}\n", "");
        }
        text
    };
    let denied: Vec<_> = spec
        .namespace_resource_blacklist
        .iter()
        .map(|item| format!("{}/{}", item.group, item.kind))
        .collect();
    let repositories: Vec<_> = detailed
        .repositories
        .iter()
        .map(|repository| repository.repo.clone())
        .collect();
    let clusters: Vec<_> = detailed
        .clusters
        .iter()
        .map(|cluster| cluster.server.clone())
        .collect();
    let keys: Vec<_> = spec
        .signature_keys
        .iter()
        .map(|key| key.key_id.as_str())
        .collect();
    let mut text = field("Name", &project.metadata.name);
    text += &field("Description", &spec.description);
    text += &several("Destinations", &destinations(&project));
    text += &several("Repositories", &spec.source_repos);
    text += &several("Source Namespaces", &spec.source_namespaces);
    text += &several("Scoped Repositories", &repositories);
    text += &several("Allowed Cluster Resources", &allowed(&project));
    text += &several("Scoped Clusters", &clusters);
    text += &several("Denied Namespaced Resources", &denied);
    text += &field("Signature keys", &or_none(keys.join(", ")));
    text += &field("Orphaned Resources", &orphaned(&project));
    output::text(&text)
}
