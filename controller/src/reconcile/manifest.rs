//! Rendered manifests → the desired state: one entry a resource, in its namespace, hooks aside. Pure.
//!
//! The repo-server fills no namespaces in and knows no cluster: which kinds are namespaced, which are excluded, and
//! that two manifests are the same resource is found here.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_api::annotation;
use argosy_object::{ContentHash, Document, GroupKind, ResourceKey, Value, meta};
use argosy_sync::hook::{self, HookType};
use tokio::time::Instant;

/// One desired resource.
#[derive(Debug)]
pub struct Manifest {
    /// Which one. Its namespace is filled in.
    pub key: Arc<ResourceKey>,
    /// API version in its group, such as `v1`.
    pub version: String,
    /// The whole object, tracked and with its namespace.
    pub document: Document,
    /// Identity of the document's content.
    pub hash: ContentHash,
    /// A hook of any type, also one that is never run.
    pub hook: bool,
    /// How it wants to be compared.
    pub compare: annotation::CompareOptions,
}

impl Manifest {
    /// Group, version and kind.
    pub fn gvk(&self) -> argosy_object::GroupVersionKind {
        argosy_object::GroupVersionKind::new(&*self.key.group, &*self.version, &*self.key.kind)
    }
}

/// What is wrong with single manifests; the others stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The same resource more than once; the last one counts.
    Repeated {
        /// Which one.
        key: ResourceKey,
        /// How often.
        times: usize,
    },
    /// The settings exclude its kind.
    Excluded {
        /// Which one.
        key: ResourceKey,
    },
    /// It needs a namespace, and neither it nor the destination has one.
    NoNamespace {
        /// Name of the object.
        name: String,
        /// Version and kind, as in `/v1, Kind=ConfigMap`.
        gvk: String,
    },
    /// Who rendered it says what a reader should know of a file.
    Odd(String),
    /// What is wrong with an object, so that nothing is synced.
    Faulty(String),
}

/// The desired state of an Application.
#[derive(Debug, Default)]
pub struct Desired {
    /// Ordinary resources, by key.
    pub resources: Vec<Arc<Manifest>>,
    /// Hooks, by key.
    pub hooks: Vec<Arc<Manifest>>,
    /// Are there hooks for the deletion of the Application, before and after?
    pub deletion_hooks: (bool, bool),
    /// What is wrong with some of it.
    pub findings: Vec<Finding>,
    /// Those ordinary resources whose objects the cluster's watch reads in another version, which says the same in other fields.
    pub read_elsewhere: Vec<Arc<Manifest>>,
    /// The revision of each source.
    pub revisions: Vec<String>,
    /// The tool of each source that renders something.
    pub source_types: Vec<String>,
    /// Identity of what was rendered: equal texts give equal desired states on one cluster.
    pub rendered: Option<ContentHash>,
    /// Identity of what went into rendering, besides the revisions.
    pub inputs: Option<ContentHash>,
    /// The repo-server's digests of its answers, by source: with them, unchanged answers need not be sent again.
    pub digests: Vec<String>,
    /// When the repo-server answered.
    pub answered: Option<Instant>,
}

impl Desired {
    /// Is an object of this kind wanted, hooks included?
    pub fn wants(&self, kind: &GroupKind) -> bool {
        let mut manifests = self.resources.iter().chain(&self.hooks);
        manifests.any(|manifest| manifest.key.kind == kind.kind && manifest.key.group == kind.group)
    }
}

/// What the cluster and the settings say about kinds.
pub trait Kinds {
    /// Is the kind namespaced? Nothing if the cluster does not serve it.
    fn namespaced(&self, kind: &GroupKind) -> Option<bool>;
    /// Is the kind excluded by the settings?
    fn excluded(&self, kind: &GroupKind) -> bool;
    /// Are objects of this kind read in another version than this, though it is served, and may their fields differ?
    fn read_elsewhere(&self, _gvk: &argosy_object::GroupVersionKind) -> bool {
        false
    }
}

/// Sorts `manifests` out. `namespace` is the destination's.
///
/// One manifest that is no Kubernetes object fails them all: without knowing which resource it should have been, none
/// could be called extra.
pub fn sort_out(manifests: Vec<Value>, namespace: &str, kinds: &dyn Kinds) -> Result<Desired, String> {
    let scopes = Scopes {
        kinds,
        of_crds: manifests.iter().filter_map(scope_of_crd).collect(),
    };
    let mut desired = Desired::default();
    let mut by_key: BTreeMap<ResourceKey, (usize, Value)> = BTreeMap::new();
    let mut nameless = Vec::new();
    for mut object in manifests {
        check(&object)?;
        if let Some((path, found)) = meta::not_a_text(&object) {
            let (kind, name) = (meta::kind(&object), meta::name(&object));
            let fault = format!("{kind} {name}: {path} is {found}, and must be a text");
            desired.findings.push(Finding::Faulty(fault));
        }
        let kind = GroupKind::new(meta::group(&object), meta::kind(&object));
        if scopes.namespaced(&kind) {
            if meta::namespace(&object).is_empty() && !namespace.is_empty() {
                meta::set_field(&mut object, &["metadata", "namespace"], namespace);
            }
        } else {
            meta::remove_field(&mut object, &["metadata", "namespace"]);
        }
        let key = meta::key(&object);
        if kinds.excluded(&kind) {
            desired.findings.push(Finding::Excluded { key });
        } else if key.name.is_empty() {
            nameless.push(object);
        } else {
            let entry = by_key.entry(key).or_insert((0, Value::Null));
            *entry = (entry.0 + 1, object);
        }
    }
    for (key, (times, object)) in by_key {
        if times > 1 {
            desired.findings.push(Finding::Repeated {
                key: key.clone(),
                times,
            });
        }
        if key.namespace.is_empty() && scopes.namespaced(&key.group_kind()) {
            let gvk = meta::gvk(&object);
            let gvk = format!("{}/{}, Kind={}", gvk.group, gvk.version, gvk.kind);
            desired.findings.push(Finding::NoNamespace {
                name: key.name.clone(),
                gvk,
            });
        }
        desired.add(key, &object);
    }
    // Only hooks may leave their name to be generated; it is made when they run.
    for object in nameless {
        desired.add(meta::key(&object), &object);
    }
    let elsewhere = desired.resources.iter();
    desired.read_elsewhere = elsewhere
        .filter(|manifest| kinds.read_elsewhere(&manifest.gvk()))
        .cloned()
        .collect();
    Ok(desired)
}

impl Desired {
    fn add(&mut self, key: ResourceKey, object: &Value) {
        let hook = is_hook(object);
        self.deletion_hooks.0 |= hook && hook::is_of_type(object, HookType::PreDelete);
        self.deletion_hooks.1 |= hook && hook::is_of_type(object, HookType::PostDelete);
        let manifest = Arc::new(Manifest {
            key: Arc::new(key),
            version: meta::gvk(object).version,
            document: Document::from_value(object),
            hash: ContentHash::of_value(object),
            hook,
            compare: annotation::CompareOptions::read(object),
        });
        if hook {
            self.hooks.push(manifest)
        } else {
            self.resources.push(manifest)
        }
    }
}

/// Is the object a hook, of Argo CD's or of Helm's, run or not?
pub fn is_hook(object: &Value) -> bool {
    let annotated = meta::annotation(object, annotation::HOOK).is_some()
        || meta::annotation(object, annotation::HELM_HOOK).is_some();
    annotated && hook::Hook::of(object).is_some()
}

fn check(object: &Value) -> Result<(), String> {
    let text = |what: &str| meta::str_field(object, &[what]).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let named = !meta::name(object).is_empty() || !meta::generate_name(object).is_empty();
    if api_version.is_empty() || kind.is_empty() {
        return Err(format!(
            "a manifest has no apiVersion or kind: {}",
            start_of(object)
        ));
    }
    if !named {
        return Err(format!("a manifest of kind {kind} has no name"));
    }
    Ok(())
}

/// The first characters, to recognise it by.
fn start_of(object: &Value) -> String {
    object.to_string().chars().take(80).collect()
}

/// Group and kind that a CRD defines, and whether they are namespaced.
fn scope_of_crd(object: &Value) -> Option<(GroupKind, bool)> {
    if !meta::is_crd(object) {
        return None;
    }
    let text = |path: &[&str]| meta::str_field(object, path);
    let kind = GroupKind::new(text(&["spec", "group"])?, text(&["spec", "names", "kind"])?);
    Some((kind, text(&["spec", "scope"])? == "Namespaced"))
}

struct Scopes<'a> {
    kinds: &'a dyn Kinds,
    /// Kinds that the manifests themselves bring along.
    of_crds: BTreeMap<GroupKind, bool>,
}

impl Scopes<'_> {
    /// A kind that nobody knows is taken for namespaced, as most are.
    fn namespaced(&self, kind: &GroupKind) -> bool {
        self.kinds
            .namespaced(kind)
            .or_else(|| self.of_crds.get(kind).copied())
            .unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    struct Builtin;

    impl Kinds for Builtin {
        fn namespaced(&self, kind: &GroupKind) -> Option<bool> {
            match kind.kind.as_str() {
                "ConfigMap" | "Job" | "Secret" | "Endpoints" => Some(true),
                "Namespace" | "ClusterRole" => Some(false),
                _ => None,
            }
        }
        fn excluded(&self, kind: &GroupKind) -> bool {
            kind.kind == "Endpoints"
        }
    }

    fn object(kind: &str, namespace: Option<&str>, name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}})
    }

    fn keys(desired: &Desired) -> Vec<String> {
        desired
            .resources
            .iter()
            .map(|manifest| manifest.key.to_string())
            .collect()
    }

    #[test]
    fn namespaces_follow_the_scope_of_the_kind() {
        let manifests = vec![
            object("ConfigMap", None, "a"),
            object("ConfigMap", Some("b"), "a"),
            object("Namespace", Some("x"), "n"),
        ];
        let desired = sort_out(manifests, "shop", &Builtin).unwrap();
        assert_eq!(
            keys(&desired),
            ["/ConfigMap/b/a", "/ConfigMap/shop/a", "/Namespace//n"]
        );
        let filled = desired.resources[1].document.value();
        assert_eq!(meta::namespace(&filled), "shop");
        assert!(meta::field(&desired.resources[2].document.value(), &["metadata", "namespace"]).is_none());
    }

    #[test]
    fn a_crd_among_the_manifests_says_the_scope_of_its_kind() {
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {"group": "example.com", "scope": "Cluster", "names": {"kind": "Thing"}}});
        let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}});
        let desired = sort_out(vec![thing, crd], "shop", &Builtin).unwrap();
        assert!(
            keys(&desired).contains(&"example.com/Thing//t".to_owned()),
            "{:?}",
            keys(&desired)
        );
    }

    #[test]
    fn of_repeated_resources_the_last_counts_and_the_repetition_is_told() {
        let mut last = object("ConfigMap", Some("shop"), "a");
        last["data"] = json!({"x": "2"});
        let desired = sort_out(vec![object("ConfigMap", None, "a"), last], "shop", &Builtin).unwrap();
        let key = ResourceKey::new("", "ConfigMap", "shop", "a");
        assert_eq!(desired.findings, [Finding::Repeated { key, times: 2 }]);
        assert_eq!(desired.resources.len(), 1);
        assert_eq!(desired.resources[0].document.value()["data"]["x"], "2");
    }

    #[test]
    fn excluded_and_homeless_manifests_are_told_and_the_rest_stands() {
        let manifests = vec![object("Endpoints", None, "e"), object("ConfigMap", None, "a")];
        let desired = sort_out(manifests, "", &Builtin).unwrap();
        assert_eq!(keys(&desired), ["/ConfigMap//a"]);
        assert!(matches!(
            &desired.findings[..],
            [Finding::Excluded { .. }, Finding::NoNamespace { name, gvk }]
                if name == "a" && gvk == "/v1, Kind=ConfigMap"
        ));
    }

    #[test]
    fn one_manifest_that_is_no_object_fails_them_all() {
        let broken = json!({"kind": "ConfigMap", "metadata": {"name": "x"}});
        assert!(sort_out(vec![object("ConfigMap", None, "a"), broken], "shop", &Builtin).is_err());
    }

    #[test]
    fn an_object_with_a_label_that_is_no_text_is_told_and_the_others_stand() {
        let mut unquoted = object("ConfigMap", None, "b");
        unquoted["metadata"]["annotations"] = json!({"on": true});
        let desired = sort_out(vec![object("ConfigMap", None, "a"), unquoted], "shop", &Builtin).unwrap();
        assert_eq!(keys(&desired), ["/ConfigMap/shop/a", "/ConfigMap/shop/b"]);
        let told = "ConfigMap b: metadata.annotations.on is true, and must be a text".to_owned();
        assert_eq!(desired.findings, [Finding::Faulty(told)]);
    }

    #[test]
    fn hooks_stand_aside() {
        let mut hook = object("Job", None, "migrate");
        meta::set_annotation(&mut hook, annotation::HOOK, "PostDelete");
        let desired = sort_out(vec![hook, object("ConfigMap", None, "a")], "shop", &Builtin).unwrap();
        assert_eq!((desired.resources.len(), desired.hooks.len()), (1, 1));
        assert_eq!(desired.deletion_hooks, (false, true));
    }
}
