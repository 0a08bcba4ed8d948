//! What the server says about its kinds: aggregated discovery, and the older documents one a group and version.

use std::collections::HashMap;

use base64::Engine as _;
use bytes::Bytes;
use http::header::ACCEPT;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::api_server::{json_response, response};
use crate::refusal::Refusal;
use crate::registry::{Registry, ResourceType, Version, response_kind, scope_word};
use crate::request::Request;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Answers that were made for the current registry.
#[derive(Default)]
pub(crate) struct Documents {
    revision: u64,
    made: HashMap<String, Bytes>,
}

impl Documents {
    /// A document that is made once for each state of the registry.
    pub(crate) fn cached(&mut self, revision: u64, name: &str, make: impl FnOnce() -> Value) -> Bytes {
        self.cached_bytes(revision, name, || make().to_string().into())
    }

    /// As [`Self::cached`], for documents that are not JSON.
    pub(crate) fn cached_bytes(&mut self, revision: u64, name: &str, make: impl FnOnce() -> Bytes) -> Bytes {
        if self.revision != revision {
            self.made.clear();
            self.revision = revision;
        }
        if let Some(known) = self.made.get(name) {
            return known.clone();
        }
        let bytes = make();
        self.made.insert(name.to_owned(), bytes.clone());
        bytes
    }

    /// The discovery document at a path; none if there is none.
    pub(crate) fn answer(
        &mut self,
        registry: &Registry,
        path: &str,
        request: &Request,
    ) -> Result<Option<Response<Bytes>>, Refusal> {
        let steps: Vec<&str> = path.trim_matches('/').split('/').collect();
        let wants_aggregated = request
            .headers()
            .get(ACCEPT)
            .and_then(|value| value.to_str().ok())
            .and_then(|accept| accept.split(',').next())
            .is_some_and(|first| first.contains("as=APIGroupDiscoveryList") && first.contains("v=v2"));
        let revision = registry.revision;
        Ok(Some(match steps.as_slice() {
            [root @ ("api" | "apis")] if wants_aggregated => {
                let core = *root == "api";
                let body = self.cached(revision, &format!("aggregated/{root}"), || {
                    aggregated(registry, core)
                });
                tagged(response(StatusCode::OK, AGGREGATED, body), request)
            }
            ["api"] => json_response(StatusCode::OK, core_versions().to_string().into()),
            ["apis"] => json_response(StatusCode::OK, self.cached(revision, "apis", || groups(registry))),
            ["api", version] => match resources(registry, "", version) {
                Some(list) => json_response(StatusCode::OK, list.to_string().into()),
                None => return Ok(None),
            },
            ["apis", group] => match groups(registry)["groups"]
                .as_array()
                .and_then(|all| all.iter().find(|one| one["name"] == *group).cloned())
            {
                Some(mut one) => {
                    one["kind"] = "APIGroup".into();
                    one["apiVersion"] = "v1".into();
                    json_response(StatusCode::OK, one.to_string().into())
                }
                None => return Ok(None),
            },
            ["apis", group, version] => match resources(registry, group, version) {
                Some(list) => json_response(StatusCode::OK, list.to_string().into()),
                None => return Ok(None),
            },
            _ => return Ok(None),
        }))
    }
}

/// With an ETag; 304 for who has the document already.
fn tagged(mut response: Response<Bytes>, request: &Request) -> Response<Bytes> {
    let tag = format!("{:?}", hash(response.body()));
    if request
        .headers()
        .get(http::header::IF_NONE_MATCH)
        .is_some_and(|known| known.as_bytes() == tag.as_bytes())
    {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Bytes::new();
    }
    if let Ok(tag) = tag.parse() {
        response.headers_mut().insert(http::header::ETAG, tag);
    }
    response
}

/// A short name of some bytes (FNV-1a).
pub(crate) fn hash(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016X}")
}

fn core_versions() -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
    })
}

fn groups(registry: &Registry) -> Value {
    let one = |(group, versions): (String, Vec<String>)| {
        let versions: Vec<Value> = versions
            .iter()
            .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
            .collect();
        json!({"name": group, "preferredVersion": versions[0], "versions": versions})
    };
    let groups: Vec<Value> = registry
        .group_versions()
        .into_iter()
        .filter(|(group, _)| !group.is_empty())
        .map(one)
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `APIResourceList` of a group and version.
fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut list = Vec::new();
    for (kind, served) in served(registry, group, version) {
        let mut one = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": served.verbs,
        });
        if !kind.short_names.is_empty() {
            one["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            one["categories"] = json!(kind.categories);
        }
        if served.has_verb("get") {
            one["storageVersionHash"] = storage_hash(kind).into();
        }
        list.push(one);
        for sub in &served.subresources {
            let mut one = json!({
                "name": format!("{}/{}", kind.plural, sub.name), "singularName": "",
                "namespaced": kind.namespaced, "kind": sub.kind, "verbs": sub.verbs,
            });
            if !sub.group.is_empty() && sub.group != group {
                one["group"] = sub.group.as_str().into();
                one["version"] = sub.version.as_str().into();
            }
            list.push(one);
        }
    }
    if list.is_empty() {
        return None;
    }
    let group_version = argosy_object::api_version(group, version);
    let mut answer = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": list});
    if !group.is_empty() {
        answer["apiVersion"] = "v1".into();
    }
    Some(answer)
}

fn storage_hash(kind: &ResourceType) -> String {
    let text = format!("{}/{}/{}", kind.group, kind.storage, kind.kind);
    let digits = hash(text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digits.as_bytes()[..8])
}

fn served<'a>(
    registry: &'a Registry,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = (&'a ResourceType, &'a Version)> {
    registry
        .types()
        .filter(move |kind| kind.group == group)
        .filter_map(move |kind| Some((kind.as_ref(), kind.version(version)?)))
}

/// `APIGroupDiscoveryList` of the core group or of all others.
fn aggregated(registry: &Registry, core: bool) -> Value {
    let items: Vec<Value> = registry
        .group_versions()
        .into_iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = served(registry, &group, version).map(discovered).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if core { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn discovered((kind, served): (&ResourceType, &Version)) -> Value {
    // Kinds of CustomResourceDefinitions say their group, built-in ones leave it to the reader.
    let own = if kind.custom {
        response_kind(&kind.group, &served.name, &kind.kind)
    } else {
        response_kind("", "", &kind.kind)
    };
    let mut one = Map::new();
    one.insert("resource".into(), kind.plural.as_str().into());
    one.insert("responseKind".into(), own);
    one.insert("scope".into(), scope_word(kind.namespaced).into());
    one.insert("singularResource".into(), kind.singular.as_str().into());
    one.insert("verbs".into(), json!(served.verbs));
    if !kind.short_names.is_empty() {
        one.insert("shortNames".into(), json!(kind.short_names));
    }
    if !kind.categories.is_empty() {
        one.insert("categories".into(), json!(kind.categories));
    }
    let subresource = |sub: &crate::registry::Subresource| {
        json!({
            "subresource": sub.name,
            "responseKind": response_kind(&sub.group, &sub.version, &sub.kind),
            "verbs": sub.verbs,
        })
    };
    if !served.subresources.is_empty() {
        one.insert(
            "subresources".into(),
            served.subresources.iter().map(subresource).collect(),
        );
    }
    Value::Object(one)
}
