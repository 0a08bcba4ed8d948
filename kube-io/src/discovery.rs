//! Which kinds an API server serves.
//!
//! Aggregated discovery answers in two requests. Older servers are asked group by group; there, and for a group whose
//! aggregated API server is down, one broken group is a [`Finding`] and takes nothing else with it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use argosy_object::{GroupKind, GroupVersionKind};
use futures::StreamExt as _;
use serde::Deserialize;

use crate::client::{Answer, Call, Client, decode};
use crate::error::Error;

/// Asks for aggregated discovery, newest first, and takes the old form too.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
/// Group versions asked for at once on servers without aggregated discovery.
const LEGACY_PARALLEL: usize = 8;

/// One kind in one version, as the server serves it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ApiResource {
    /// Empty for the core group.
    pub group: String,
    /// Such as `v1`.
    pub version: String,
    /// Such as `Deployment`.
    pub kind: String,
    /// The name in URLs, such as `deployments`.
    pub plural: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Such as `get`, `list`, `watch`, `create`, `patch`, `delete`, sorted.
    pub verbs: Vec<String>,
    /// Such as `status`, `scale`, sorted.
    pub subresources: Vec<String>,
    /// Whether this is the version to use for the kind when nobody says otherwise. True for exactly one version.
    pub preferred: bool,
}

/// A part of discovery that did not work. What it says is missing may well exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The group concerned.
    pub group: String,
    /// The version concerned; empty for all.
    pub version: String,
    /// What the server said.
    pub message: String,
}

/// Everything that a server serves, and what could not be found out. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    resources: Vec<ApiResource>,
    findings: Vec<Finding>,
    by_version: HashMap<GroupVersionKind, usize>,
    preferred: BTreeMap<GroupKind, usize>,
}

impl ApiResource {
    /// Names one kind without asking the server, for kinds that are known beforehand.
    pub fn known(group: &str, version: &str, kind: &str, plural: &str, namespaced: bool) -> Self {
        ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            namespaced,
            verbs: ["create", "delete", "get", "list", "patch", "update", "watch"]
                .map(str::to_owned)
                .to_vec(),
            subresources: Vec::new(),
            preferred: true,
        }
    }

    /// `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        argosy_object::api_version(&self.group, &self.version)
    }

    /// Group and kind.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind {
            group: self.group.clone(),
            kind: self.kind.clone(),
        }
    }

    /// Group, version and kind.
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: self.kind.clone(),
        }
    }

    /// Whether the server allows this verb on the kind at all.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    /// Whether live state can be kept: lists and watches are served.
    pub fn watchable(&self) -> bool {
        self.has_verb("list") && self.has_verb("watch")
    }

    /// The URL path of the collection (`name` empty) or of an object. A namespace is ignored for cluster-scoped kinds;
    /// without one, a namespaced collection spans all namespaces.
    pub(crate) fn path(&self, namespace: &str, name: &str, subresource: &str) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if self.namespaced && !namespace.is_empty() {
            path.push_str("/namespaces/");
            crate::client::encode_into(&mut path, namespace);
        }
        path.push('/');
        path.push_str(&self.plural);
        for part in [name, subresource] {
            if !part.is_empty() {
                path.push('/');
                crate::client::encode_into(&mut path, part);
            }
        }
        path
    }
}

impl Discovery {
    /// Brings kinds into order: the versions of a group come as the server prefers them.
    pub fn new(mut resources: Vec<ApiResource>, findings: Vec<Finding>) -> Self {
        let mut by_version = HashMap::new();
        let mut preferred = BTreeMap::new();
        for (index, resource) in resources.iter_mut().enumerate() {
            by_version.entry(resource.gvk()).or_insert(index);
            let first = *preferred.entry(resource.group_kind()).or_insert(index);
            resource.preferred = first == index;
        }
        Discovery {
            inner: Arc::new(Inner {
                resources,
                findings,
                by_version,
                preferred,
            }),
        }
    }

    /// All kinds in all versions.
    pub fn resources(&self) -> &[ApiResource] {
        &self.inner.resources
    }

    /// What could not be found out.
    pub fn findings(&self) -> &[Finding] {
        &self.inner.findings
    }

    /// Whether the kinds of this group may be incomplete, so that a missing kind means nothing.
    pub fn group_is_broken(&self, group: &str) -> bool {
        self.inner.findings.iter().any(|finding| finding.group == group)
    }

    /// Exactly this version of the kind.
    pub fn exact(&self, gvk: &GroupVersionKind) -> Option<&ApiResource> {
        self.inner
            .by_version
            .get(gvk)
            .map(|index| &self.inner.resources[*index])
    }

    /// The preferred version of the kind.
    pub fn preferred(&self, kind: &GroupKind) -> Option<&ApiResource> {
        self.inner
            .preferred
            .get(kind)
            .map(|index| &self.inner.resources[*index])
    }

    /// Exactly this version if it is served, else the preferred one.
    pub fn find(&self, gvk: &GroupVersionKind) -> Option<&ApiResource> {
        self.exact(gvk).or_else(|| {
            self.preferred(&GroupKind {
                group: gvk.group.clone(),
                kind: gvk.kind.clone(),
            })
        })
    }

    /// Each kind once, in its preferred version, ordered by group and kind.
    pub fn kinds(&self) -> impl Iterator<Item = &ApiResource> {
        self.inner
            .preferred
            .values()
            .map(|index| &self.inner.resources[*index])
    }

    /// What renderers are told the cluster can do: each `group/version` and each `group/version/Kind`, sorted.
    pub fn api_versions(&self) -> Vec<String> {
        let mut out = BTreeSet::new();
        for resource in &self.inner.resources {
            let version = resource.api_version();
            out.insert(format!("{version}/{}", resource.kind));
            out.insert(version);
        }
        out.into_iter().collect()
    }
}

/// Asks the server what it serves.
///
/// # Errors
/// Only if the server cannot be asked at all; a broken group is a finding of the result.
pub async fn discover(client: &Client) -> Result<Discovery, Error> {
    let mut resources = Vec::new();
    let mut findings = Vec::new();
    for path in ["/api", "/apis"] {
        let mut call = Call::get(format!("discover {path}"), path);
        call.accept = Some(ACCEPT);
        let answer = client.call(&call).await?;
        if is_aggregated(&answer) {
            aggregated(decode(&call.what, &answer.body)?, &mut resources, &mut findings);
        } else {
            let versions = if path == "/api" {
                let core: CoreVersions = decode(&call.what, &answer.body)?;
                core.versions
                    .into_iter()
                    .map(|version| (String::new(), version))
                    .collect()
            } else {
                let groups: Groups = decode(&call.what, &answer.body)?;
                groups.in_order()
            };
            by_group(client, versions, &mut resources, &mut findings).await;
        }
    }
    Ok(Discovery::new(resources, findings))
}

fn is_aggregated(answer: &Answer) -> bool {
    answer
        .headers
        .get(http::header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|text| text.contains("as=APIGroupDiscoveryList"))
}

// Aggregated discovery, `apidiscovery.k8s.io/v2`.

#[derive(Deserialize)]
struct GroupList {
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: GroupMeta,
    #[serde(default)]
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize, Default)]
struct GroupMeta {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
    #[serde(default)]
    resources: Vec<GroupResource>,
    #[serde(default)]
    freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupResource {
    resource: String,
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    subresources: Vec<Subresource>,
}

#[derive(Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct Subresource {
    subresource: String,
}

fn aggregated(list: GroupList, resources: &mut Vec<ApiResource>, findings: &mut Vec<Finding>) {
    for group in list.items {
        for version in group.versions {
            if version.freshness == "Stale" {
                findings.push(Finding {
                    group: group.metadata.name.clone(),
                    version: version.version.clone(),
                    message:
                        "the API service behind this group does not answer; what it serves may be out of date"
                            .to_owned(),
                });
            }
            for resource in version.resources {
                // Some servers list virtual entries that only carry subresources.
                let kind = resource.response_kind.map(|known| known.kind).unwrap_or_default();
                if kind.is_empty() {
                    continue;
                }
                let mut verbs = resource.verbs;
                verbs.sort();
                let mut subresources: Vec<String> = resource
                    .subresources
                    .into_iter()
                    .map(|entry| entry.subresource)
                    .collect();
                subresources.sort();
                resources.push(ApiResource {
                    group: group.metadata.name.clone(),
                    version: version.version.clone(),
                    kind,
                    plural: resource.resource,
                    namespaced: resource.scope == "Namespaced",
                    verbs,
                    subresources,
                    preferred: false,
                });
            }
        }
    }
}

// Discovery group by group, `meta/v1`.

#[derive(Deserialize)]
struct CoreVersions {
    #[serde(default)]
    versions: Vec<String>,
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default)]
    groups: Vec<LegacyGroup>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyGroup {
    name: String,
    #[serde(default)]
    versions: Vec<LegacyVersion>,
    preferred_version: Option<LegacyVersion>,
}

#[derive(Deserialize)]
struct LegacyVersion {
    version: String,
}

#[derive(Deserialize)]
struct LegacyResources {
    #[serde(default)]
    resources: Vec<LegacyResource>,
}

#[derive(Deserialize)]
struct LegacyResource {
    name: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

impl Groups {
    /// Group and version, the preferred version of each group first.
    fn in_order(self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        for group in self.groups {
            let first = group.preferred_version.map(|known| known.version);
            if let Some(first) = &first {
                out.push((group.name.clone(), first.clone()));
            }
            for version in group.versions {
                if Some(&version.version) != first.as_ref() {
                    out.push((group.name.clone(), version.version));
                }
            }
        }
        out
    }
}

async fn by_group(
    client: &Client,
    versions: Vec<(String, String)>,
    resources: &mut Vec<ApiResource>,
    findings: &mut Vec<Finding>,
) {
    let answers: Vec<_> = futures::stream::iter(versions)
        .map(|(group, version)| async move {
            let path = if group.is_empty() {
                format!("/api/{version}")
            } else {
                format!("/apis/{group}/{version}")
            };
            let call = Call::get(format!("discover {path}"), path);
            let found = client
                .call(&call)
                .await
                .and_then(|answer| decode::<LegacyResources>(&call.what, &answer.body));
            (group, version, found)
        })
        .buffered(LEGACY_PARALLEL)
        .collect()
        .await;
    for (group, version, found) in answers {
        match found {
            Ok(list) => legacy(&group, &version, list, resources),
            Err(error) => findings.push(Finding {
                group,
                version,
                message: error.message(),
            }),
        }
    }
}

fn legacy(group: &str, version: &str, list: LegacyResources, resources: &mut Vec<ApiResource>) {
    let mut subresources: HashMap<String, Vec<String>> = HashMap::new();
    for resource in &list.resources {
        if let Some((parent, child)) = resource.name.split_once('/') {
            subresources
                .entry(parent.to_owned())
                .or_default()
                .push(child.to_owned());
        }
    }
    for resource in list
        .resources
        .into_iter()
        .filter(|resource| !resource.name.contains('/'))
    {
        let mut verbs = resource.verbs;
        verbs.sort();
        let mut children = subresources.remove(&resource.name).unwrap_or_default();
        children.sort();
        resources.push(ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: resource.kind,
            plural: resource.name,
            namespaced: resource.namespaced,
            verbs,
            subresources: children,
            preferred: false,
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn kind(group: &str, kind: &str) -> GroupKind {
        GroupKind {
            group: group.to_owned(),
            kind: kind.to_owned(),
        }
    }

    #[test]
    fn the_first_version_that_serves_a_kind_is_its_preferred_one() {
        let list: GroupList = serde_json::from_value(serde_json::json!({"items": [{
            "metadata": {"name": "autoscaling"},
            "versions": [
                {"version": "v2", "freshness": "Current", "resources": [
                    {"resource": "horizontalpodautoscalers", "responseKind": {"kind": "HorizontalPodAutoscaler"}, "scope": "Namespaced",
                     "verbs": ["watch", "list"], "subresources": [{"subresource": "status"}]}]},
                {"version": "v1", "freshness": "Current", "resources": [
                    {"resource": "horizontalpodautoscalers", "responseKind": {"kind": "HorizontalPodAutoscaler"}, "scope": "Namespaced", "verbs": ["list"]},
                    {"resource": "old", "responseKind": {"kind": "Old"}, "scope": "Cluster", "verbs": ["list"]}]}
            ]}]}))
        .unwrap();
        let (mut resources, mut findings) = (Vec::new(), Vec::new());
        aggregated(list, &mut resources, &mut findings);
        let discovery = Discovery::new(resources, findings);
        assert_eq!(
            discovery
                .preferred(&kind("autoscaling", "HorizontalPodAutoscaler"))
                .unwrap()
                .version,
            "v2"
        );
        let old = discovery.preferred(&kind("autoscaling", "Old")).unwrap();
        assert!(old.version == "v1" && old.preferred && !old.namespaced);
        assert_eq!(discovery.kinds().count(), 2);
        assert_eq!(
            discovery.api_versions(),
            [
                "autoscaling/v1",
                "autoscaling/v1/HorizontalPodAutoscaler",
                "autoscaling/v1/Old",
                "autoscaling/v2",
                "autoscaling/v2/HorizontalPodAutoscaler"
            ]
        );
    }

    #[test]
    fn a_group_whose_server_is_down_is_a_finding() {
        let list: GroupList = serde_json::from_value(serde_json::json!({"items": [
            {"metadata": {"name": "broken.example"}, "versions": [{"version": "v1", "freshness": "Stale"}]},
            {"metadata": {"name": "fine.example"}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
                {"resource": "things", "responseKind": {"kind": "Thing"}, "scope": "Namespaced", "verbs": ["list", "watch"]}]}]}
        ]}))
        .unwrap();
        let (mut resources, mut findings) = (Vec::new(), Vec::new());
        aggregated(list, &mut resources, &mut findings);
        let discovery = Discovery::new(resources, findings);
        assert!(discovery.group_is_broken("broken.example"));
        assert!(!discovery.group_is_broken("fine.example"));
        assert!(
            discovery
                .preferred(&kind("fine.example", "Thing"))
                .unwrap()
                .watchable()
        );
    }

    #[test]
    fn paths_are_those_of_the_api() {
        let pods = ApiResource::known("", "v1", "Pod", "pods", true);
        assert_eq!(pods.path("", "", ""), "/api/v1/pods");
        assert_eq!(
            pods.path("shop", "web", "status"),
            "/api/v1/namespaces/shop/pods/web/status"
        );
        let roles = ApiResource::known(
            "rbac.authorization.k8s.io",
            "v1",
            "ClusterRole",
            "clusterroles",
            false,
        );
        assert_eq!(
            roles.path("ignored", "system:node", ""),
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node"
        );
    }

    #[test]
    fn old_discovery_puts_the_preferred_version_first() {
        let groups: Groups =
            serde_json::from_value(serde_json::json!({"groups": [{"name": "a", "versions": [
            {"groupVersion": "a/v2beta1", "version": "v2beta1"}, {"groupVersion": "a/v1", "version": "v1"}],
            "preferredVersion": {"groupVersion": "a/v1", "version": "v1"}}]}))
            .unwrap();
        assert_eq!(
            groups.in_order(),
            [
                ("a".to_owned(), "v1".to_owned()),
                ("a".to_owned(), "v2beta1".to_owned())
            ]
        );
    }
}
