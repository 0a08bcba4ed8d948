//! Who asks, and whether they may: bearer tokens, and the roles and bindings that the server itself holds.

use std::collections::BTreeMap;

use argosy_object::meta;
use http::HeaderMap;
use serde_json::Value;

use crate::api_server::ApiServer;
use crate::refusal::Refusal;
use crate::registry::GroupResource;
use crate::request::Place;

/// The token of an administrator (group `system:masters`). The test control plane of kube-apiserver has the same.
pub const ADMIN_TOKEN: &str = "argosy-admin-token";
/// The token of a user without any right.
pub const POWERLESS_TOKEN: &str = "argosy-powerless-token";

const RBAC: &str = "rbac.authorization.k8s.io";
const MASTERS: &str = "system:masters";

/// Somebody who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name in bindings and refusals.
    pub name: String,
    /// The groups in bindings.
    pub groups: Vec<String>,
}

impl User {
    /// A user with their groups.
    #[must_use]
    pub fn new(name: &str, groups: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        }
    }

    pub(crate) fn machinery() -> Self {
        Self::new("system:apiserver", &[MASTERS])
    }
}

pub(crate) fn default_users() -> BTreeMap<String, User> {
    BTreeMap::from([
        (
            ADMIN_TOKEN.to_owned(),
            User::new("admin", &[MASTERS, "system:authenticated"]),
        ),
        (
            POWERLESS_TOKEN.to_owned(),
            User::new("powerless", &["nobody", "system:authenticated"]),
        ),
    ])
}

/// The user of a bearer token; `Impersonate-User` is taken from whoever is an administrator.
pub(crate) fn authenticate(users: &BTreeMap<String, User>, headers: &HeaderMap) -> Result<User, Refusal> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let user = match text("authorization") {
        None => User::new("system:anonymous", &["system:unauthenticated"]),
        Some(value) => {
            let token = value.strip_prefix("Bearer ").unwrap_or_default().trim();
            users.get(token).cloned().ok_or_else(Refusal::unauthorized)?
        }
    };
    let Some(name) = text("impersonate-user") else {
        return Ok(user);
    };
    if !is_master(&user) {
        return Err(Refusal::forbidden_path(format!(
            "users {name:?} is forbidden: User {:?} cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
            user.name
        )));
    }
    let groups = headers
        .get_all("impersonate-group")
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut groups: Vec<String> = groups.map(str::to_owned).collect();
    if let Some(account) = name.strip_prefix("system:serviceaccount:") {
        let namespace = account.split(':').next().unwrap_or_default();
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    groups.push("system:authenticated".to_owned());
    Ok(User {
        name: name.to_owned(),
        groups,
    })
}

fn is_master(user: &User) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

/// Discovery, OpenAPI and the version are for everybody who is known; the version and the health even for others.
pub(crate) fn may_read_documents(user: &User, path: &str) -> Result<(), Refusal> {
    let public = ["/version", "/healthz", "/readyz", "/livez"]
        .iter()
        .any(|known| path.starts_with(known));
    if public
        || user
            .groups
            .iter()
            .any(|group| group == "system:authenticated" || group == MASTERS)
    {
        return Ok(());
    }
    Err(Refusal::forbidden_path(format!(
        "forbidden: User {:?} cannot get path {path:?}",
        user.name
    )))
}

/// Refuses what no role allows.
pub(crate) fn authorise(server: &ApiServer, user: &User, verb: &str, place: &Place) -> Result<(), Refusal> {
    if allowed(server, user, verb, place) {
        return Ok(());
    }
    let resource = if place.subresource.is_empty() {
        place.plural.clone()
    } else {
        format!("{}/{}", place.plural, place.subresource)
    };
    let location = if place.namespace.is_empty() {
        " at the cluster scope".to_owned()
    } else {
        format!(" in the namespace {:?}", place.namespace)
    };
    let why = format!(
        "User {:?} cannot {verb} resource {resource:?} in API group {:?}{location}",
        user.name, place.group
    );
    let qualified = if place.group.is_empty() {
        place.plural.clone()
    } else {
        format!("{}.{}", place.plural, place.group)
    };
    let name = if place.name.is_empty() {
        String::new()
    } else {
        format!(" {:?}", place.name)
    };
    let mut refusal = Refusal::forbidden_path(format!("{qualified}{name} is forbidden: {why}"));
    let mut details = serde_json::Map::new();
    for (field, value) in [
        ("name", &place.name),
        ("group", &place.group),
        ("kind", &place.plural),
    ] {
        if !value.is_empty() {
            details.insert(field.to_owned(), value.as_str().into());
        }
    }
    refusal.details = Some(Value::Object(details));
    Err(refusal)
}

/// Whether a role that is bound to the user allows the verb there.
pub(crate) fn allowed(server: &ApiServer, user: &User, verb: &str, place: &Place) -> bool {
    if is_master(user) {
        return true;
    }
    // What everybody who is authenticated may ask.
    let self_review = place.plural.starts_with("selfsubject") && verb == "create";
    if self_review && user.groups.iter().any(|group| group == "system:authenticated") {
        return true;
    }
    let mut bindings: Vec<Value> = all(server, "clusterrolebindings", "");
    if !place.namespace.is_empty() {
        bindings.extend(all(server, "rolebindings", &place.namespace));
    }
    bindings
        .iter()
        .filter(|binding| binds(binding, user))
        .any(|binding| {
            let plural = if binding["roleRef"]["kind"] == "Role" {
                "roles"
            } else {
                "clusterroles"
            };
            let namespace = if plural == "roles" {
                meta::namespace(binding)
            } else {
                ""
            };
            let name = binding["roleRef"]["name"].as_str().unwrap_or_default();
            let role = server.store.get(
                &GroupResource::new(RBAC, plural),
                &crate::api_server::key(namespace, name),
            );
            let role = role.map(|entry| entry.content.value()).unwrap_or_default();
            meta::array_field(&role, &["rules"])
                .iter()
                .any(|rule| rule_allows(rule, verb, place))
        })
}

fn all(server: &ApiServer, plural: &str, namespace: &str) -> Vec<Value> {
    let prefix = if namespace.is_empty() {
        String::new()
    } else {
        format!("{namespace}/")
    };
    let table = server.store.table(&GroupResource::new(RBAC, plural));
    let entries = table.into_iter().flat_map(|table| &table.objects);
    entries
        .filter(|(key, _)| key.starts_with(&prefix))
        .map(|(_, entry)| entry.content.value())
        .collect()
}

fn binds(binding: &Value, user: &User) -> bool {
    meta::array_field(binding, &["subjects"]).iter().any(|subject| {
        let name = subject["name"].as_str().unwrap_or_default();
        match subject["kind"].as_str() {
            Some("User") => user.name == name,
            Some("Group") => user.groups.iter().any(|group| group == name),
            Some("ServiceAccount") => {
                let namespace = subject["namespace"].as_str().unwrap_or_default();
                user.name == format!("system:serviceaccount:{namespace}:{name}")
            }
            _ => false,
        }
    })
}

fn rule_allows(rule: &Value, verb: &str, place: &Place) -> bool {
    let has = |field: &str, wanted: &str| {
        let items = rule[field]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        items.into_iter().any(|item| item == "*" || item == wanted)
    };
    let names = rule["resourceNames"].as_array().map_or(&[][..], Vec::as_slice);
    let resource = if place.subresource.is_empty() {
        has("resources", &place.plural)
    } else {
        has("resources", &format!("{}/{}", place.plural, place.subresource))
            || has("resources", &format!("*/{}", place.subresource))
    };
    has("verbs", verb)
        && has("apiGroups", &place.group)
        && resource
        && (names.is_empty() || names.iter().any(|name| *name == place.name))
}
