//! Which kinds a server serves, and how.
//!
//! The built-in ones are as recorded from a kube-apiserver (`recorded/`) and shared by all servers of the process; those of
//! CustomResourceDefinitions come and go.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use argosy_object::schema::{Schemas, Scope};
use argosy_object::{GroupKind, GroupVersionKind, api_version, meta};
use serde_json::{Map, Value, json};

use crate::recorded;

/// Group and plural name: what the objects of a kind are kept under, whatever the version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// Empty for the core group.
    pub group: Arc<str>,
    /// Such as `deployments`.
    pub plural: Arc<str>,
}

impl GroupResource {
    /// From the two names.
    #[must_use]
    pub fn new(group: &str, plural: &str) -> Self {
        Self {
            group: group.into(),
            plural: plural.into(),
        }
    }
}

/// One kind of resource in all its versions.
#[derive(Debug)]
pub struct ResourceType {
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) namespaced: bool,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    /// In the order of preference.
    pub(crate) versions: Vec<Version>,
    /// The version in which objects are kept.
    pub(crate) storage: String,
    /// Defined by a CustomResourceDefinition.
    pub(crate) custom: bool,
}

/// One served version of a kind.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) verbs: Vec<String>,
    pub(crate) subresources: Vec<Subresource>,
    /// The schema and printer columns as a CustomResourceDefinition writes them.
    pub(crate) schema: Value,
    pub(crate) columns: Vec<Value>,
    pub(crate) scale: Option<Value>,
    pub(crate) deprecated: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Subresource {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) verbs: Vec<String>,
}

impl ResourceType {
    pub(crate) fn resource(&self) -> GroupResource {
        GroupResource::new(&self.group, &self.plural)
    }

    /// `deployments.apps`, as texts name it.
    pub(crate) fn qualified(&self) -> String {
        qualified(&self.plural, &self.group)
    }

    /// `Deployment.apps`.
    pub(crate) fn qualified_kind(&self) -> String {
        qualified(&self.kind, &self.group)
    }

    /// `details` of a refusal.
    pub(crate) fn details(&self, name: &str, kind: &str) -> Value {
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !self.group.is_empty() {
            details.insert("group".into(), self.group.as_str().into());
        }
        details.insert("kind".into(), kind.into());
        Value::Object(details)
    }

    pub(crate) fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    pub(crate) fn api_version(&self, version: &str) -> String {
        api_version(&self.group, version)
    }

    pub(crate) fn gvk(&self, version: &str) -> GroupVersionKind {
        GroupVersionKind::new(&self.group, version, &self.kind)
    }

    /// How an object of this kind begins in JSON: the rest follows after it.
    pub(crate) fn head(&self, version: &str) -> String {
        format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",",
            self.kind,
            self.api_version(version)
        )
    }

    pub(crate) fn has_status(&self) -> bool {
        self.versions
            .iter()
            .any(|version| version.subresource("status").is_some())
    }
}

impl Version {
    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|one| one.name == name)
    }

    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }
}

fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() {
        name.to_owned()
    } else {
        format!("{name}.{group}")
    }
}

/// The kinds of one server.
#[derive(Clone)]
pub(crate) struct Registry {
    types: BTreeMap<GroupResource, Arc<ResourceType>>,
    /// CustomResourceDefinitions by name, as they are stored.
    definitions: BTreeMap<String, Arc<Value>>,
    schemas: Arc<Schemas>,
    /// Changes when anything here does.
    pub(crate) revision: u64,
}

static BUILTIN: LazyLock<BTreeMap<GroupResource, Arc<ResourceType>>> = LazyLock::new(|| {
    recorded::discovery()["items"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(builtin_group)
        .map(|one| (one.resource(), Arc::new(one)))
        .collect()
});

impl Registry {
    /// What a fresh server serves.
    pub(crate) fn builtin() -> Self {
        Self {
            types: BUILTIN.clone(),
            definitions: BTreeMap::new(),
            schemas: Schemas::builtin(),
            revision: 0,
        }
    }

    pub(crate) fn get(&self, resource: &GroupResource) -> Option<&Arc<ResourceType>> {
        self.types.get(resource)
    }

    pub(crate) fn find(&self, group: &str, plural: &str) -> Option<&Arc<ResourceType>> {
        self.types.get(&GroupResource::new(group, plural))
    }

    pub(crate) fn by_kind(&self, kind: &GroupKind) -> Option<&Arc<ResourceType>> {
        self.types
            .values()
            .find(|one| one.group == kind.group && one.kind == kind.kind)
    }

    pub(crate) fn types(&self) -> impl Iterator<Item = &Arc<ResourceType>> {
        self.types.values()
    }

    pub(crate) fn schemas(&self) -> &Arc<Schemas> {
        &self.schemas
    }

    /// Group versions with the best first within each group; groups in the order of their priority.
    pub(crate) fn group_versions(&self) -> Vec<(String, Vec<String>)> {
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for one in self.types.values() {
            let versions = groups.entry(&one.group).or_default();
            for version in &one.versions {
                if !versions.contains(&version.name.as_str()) {
                    versions.push(&version.name);
                }
            }
        }
        let mut groups: Vec<(String, Vec<String>)> = groups
            .into_iter()
            .map(|(group, mut versions)| {
                versions.sort_by_key(|version| version_rank(version));
                (
                    group.to_owned(),
                    versions.into_iter().map(str::to_owned).collect(),
                )
            })
            .collect();
        groups.sort_by_key(|(group, _)| recorded::group_rank(group));
        groups
    }

    /// Serves what a CustomResourceDefinition defines (anew).
    pub(crate) fn define(&mut self, mut definition: Value) {
        // Stored objects leave out what their kind says.
        definition["apiVersion"] = "apiextensions.k8s.io/v1".into();
        definition["kind"] = "CustomResourceDefinition".into();
        let name = meta::name(&definition).to_owned();
        self.forget(&name);
        let custom = custom(&definition);
        self.types.insert(custom.resource(), Arc::new(custom));
        self.definitions.insert(name, Arc::new(definition));
        self.renew();
    }

    /// Stops serving what the CustomResourceDefinition of that name defined.
    pub(crate) fn undefine(&mut self, name: &str) -> bool {
        let known = self.forget(name);
        if known {
            self.renew();
        }
        known
    }

    fn forget(&mut self, name: &str) -> bool {
        let Some(definition) = self.definitions.remove(name) else {
            return false;
        };
        let text = |path: &[&str]| meta::str_field(&definition, path).unwrap_or_default().to_owned();
        self.types.remove(&GroupResource::new(
            &text(&["spec", "group"]),
            &text(&["spec", "names", "plural"]),
        ));
        true
    }

    fn renew(&mut self) {
        let definitions = self.definitions.values().map(AsRef::<Value>::as_ref);
        self.schemas = Schemas::builtin().with_crds(definitions);
        self.revision += 1;
    }
}

/// Sorts versions as Kubernetes does: stable before beta before alpha, later before earlier.
pub(crate) fn version_rank(version: &str) -> (u8, std::cmp::Reverse<u32>, std::cmp::Reverse<u32>, String) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: u32 = rest[..end].parse().ok()?;
        let rest = &rest[end..];
        if rest.is_empty() {
            return Some((0, major, 0));
        }
        let (class, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => (1, minor),
            (_, Some(minor)) => (2, minor),
            _ => return None,
        };
        Some((class, major, minor.parse().ok()?))
    };
    match parse() {
        Some((class, major, minor)) => (
            class,
            std::cmp::Reverse(major),
            std::cmp::Reverse(minor),
            String::new(),
        ),
        None => (3, std::cmp::Reverse(0), std::cmp::Reverse(0), version.to_owned()),
    }
}

/// What a server says whenever somebody uses these.
const ENDPOINTS: &str = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

/// The kinds of one `APIGroupDiscovery`.
fn builtin_group(group: &Value) -> Vec<ResourceType> {
    let name = meta::name(group);
    let mut types: BTreeMap<String, ResourceType> = BTreeMap::new();
    for version in meta::array_field(group, &["versions"]) {
        let version_name = meta::str_field(version, &["version"]).unwrap_or_default();
        for resource in meta::array_field(version, &["resources"]) {
            let text = |path: &[&str]| meta::str_field(resource, path).unwrap_or_default().to_owned();
            let kind = text(&["responseKind", "kind"]);
            let plural = text(&["resource"]);
            let entry = types.entry(plural.clone()).or_insert_with(|| ResourceType {
                group: name.to_owned(),
                plural,
                singular: text(&["singularResource"]),
                list_kind: format!("{kind}List"),
                kind,
                namespaced: text(&["scope"]) == "Namespaced",
                short_names: strings(&resource["shortNames"]),
                categories: strings(&resource["categories"]),
                versions: Vec::new(),
                storage: String::new(),
                custom: false,
            });
            entry.versions.push(Version {
                name: version_name.to_owned(),
                verbs: strings(&resource["verbs"]),
                subresources: meta::array_field(resource, &["subresources"])
                    .iter()
                    .map(subresource)
                    .collect(),
                schema: Value::Null,
                columns: Vec::new(),
                scale: None,
                deprecated: (name.is_empty() && entry.kind == "Endpoints").then(|| ENDPOINTS.to_owned()),
            });
        }
    }
    let mut types: Vec<_> = types.into_values().collect();
    for one in &mut types {
        one.versions.sort_by_key(|version| version_rank(&version.name));
        one.storage = one.versions[0].name.clone();
    }
    types
}

fn subresource(value: &Value) -> Subresource {
    let text = |path: &[&str]| meta::str_field(value, path).unwrap_or_default().to_owned();
    Subresource {
        name: text(&["subresource"]),
        group: text(&["responseKind", "group"]),
        version: text(&["responseKind", "version"]),
        kind: text(&["responseKind", "kind"]),
        verbs: strings(&value["verbs"]),
    }
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

const CUSTOM_VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

/// The kind that a CustomResourceDefinition defines.
fn custom(definition: &Value) -> ResourceType {
    let spec = &definition["spec"];
    let text = |path: &[&str]| meta::str_field(spec, path).unwrap_or_default().to_owned();
    let (group, kind) = (text(&["group"]), text(&["names", "kind"]));
    let served = |version: &&Value| version["served"] == true;
    let mut versions: Vec<Version> = meta::array_field(spec, &["versions"])
        .iter()
        .filter(served)
        .map(|version| custom_version(version, &group, &kind))
        .collect();
    versions.sort_by_key(|version| version_rank(&version.name));
    let storage = meta::array_field(spec, &["versions"])
        .iter()
        .find(|version| version["storage"] == true);
    ResourceType {
        plural: text(&["names", "plural"]),
        singular: meta::str_field(spec, &["names", "singular"])
            .map_or_else(|| kind.to_lowercase(), str::to_owned),
        list_kind: meta::str_field(spec, &["names", "listKind"])
            .map_or_else(|| format!("{kind}List"), str::to_owned),
        namespaced: text(&["scope"]) != "Cluster",
        short_names: strings(&spec["names"]["shortNames"]),
        categories: strings(&spec["names"]["categories"]),
        versions,
        storage: storage
            .and_then(|version| version["name"].as_str())
            .unwrap_or_default()
            .to_owned(),
        custom: true,
        group,
        kind,
    }
}

fn custom_version(version: &Value, group: &str, kind: &str) -> Version {
    let name = version["name"].as_str().unwrap_or_default().to_owned();
    let subresource = |sub: &str, group: &str, version: &str, kind: &str| Subresource {
        name: sub.to_owned(),
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        verbs: ["get", "patch", "update"].map(str::to_owned).to_vec(),
    };
    let given = &version["subresources"];
    let mut subresources = Vec::new();
    if given.get("status").is_some_and(Value::is_object) {
        subresources.push(subresource("status", group, &name, kind));
    }
    let scale = given.get("scale").filter(|scale| scale.is_object()).cloned();
    if scale.is_some() {
        subresources.push(subresource("scale", "autoscaling", "v1", "Scale"));
    }
    let deprecated = (version["deprecated"] == true).then(|| {
        let warning = version["deprecationWarning"].as_str().map(str::to_owned);
        warning.unwrap_or_else(|| format!("{group}/{name} {kind} is deprecated"))
    });
    Version {
        verbs: CUSTOM_VERBS.map(str::to_owned).to_vec(),
        subresources,
        schema: version["schema"]["openAPIV3Schema"].clone(),
        columns: meta::array_field(version, &["additionalPrinterColumns"]).to_vec(),
        scale,
        deprecated,
        name,
    }
}

/// The scope of a kind in the words of discovery.
pub(crate) fn scope_word(namespaced: bool) -> &'static str {
    match if namespaced {
        Scope::Namespaced
    } else {
        Scope::Cluster
    } {
        Scope::Namespaced => "Namespaced",
        Scope::Cluster => "Cluster",
    }
}

/// `{"group", "version", "kind"}` as discovery writes it.
pub(crate) fn response_kind(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}
