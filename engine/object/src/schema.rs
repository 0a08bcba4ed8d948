//! What the fields of a kind mean: types, keys of lists, how patches merge, defaults.
//!
//! Facts come from three places and read the same: the built-in set ([`Schemas::builtin`], Kubernetes 1.36), the OpenAPI v3
//! documents that a cluster serves ([`Schemas::from_openapi_v3`]), and CustomResourceDefinitions laid over either
//! ([`Schemas::with_crds`]). A layer adds to its base and shares it; nothing is copied, and a kind that nobody knows is
//! `None` rather than a guess.
//!
//! Inside, a layer is one list of nodes that name each other by index, equal nodes once; so kinds may contain themselves
//! (as the schema of a CRD does), and a [`Schema`] is a pointer and a number.

mod compact;
mod load;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::{GroupKind, GroupVersionKind, Name, Value};

pub use compact::compact;

/// Schemas of many kinds.
#[derive(Debug, Default)]
pub struct Schemas {
    base: Option<Arc<Schemas>>,
    nodes: Vec<Node>,
    roots: HashMap<GroupVersionKind, Id>,
    scopes: HashMap<GroupKind, Scope>,
    /// The schema of `metadata` in this layer.
    object_meta: Option<Id>,
}

/// Whether resources of a kind live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// In a namespace each.
    Namespaced,
    /// In the cluster as a whole.
    Cluster,
}

/// What a field holds. Types of Kubernetes that have more than one spelling for a value are told apart from plain strings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Type {
    /// Fields by name ([`Schema::field`]), or any names with one schema ([`Schema::additional`]).
    Object,
    /// A list ([`Schema::items`], [`Schema::list`]).
    Array,
    /// A text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// An integer or a text, such as a port or a percentage.
    IntOrString,
    /// A quantity ([`crate::quantity`]).
    Quantity,
    /// A duration ([`crate::duration`]).
    Duration,
    /// A time in RFC 3339.
    Time,
    /// Bytes in base64.
    Bytes,
    /// Anything.
    #[default]
    Any,
}

/// How the items of a list are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List<'a> {
    /// The list is one value.
    Atomic,
    /// Items are scalars, each at most once.
    Set,
    /// Items are objects, told apart by these fields.
    Map(&'a [String]),
}

/// The schema of a value: a kind's, or a field's.
#[derive(Clone, Copy)]
pub struct Schema<'a> {
    layer: &'a Schemas,
    id: Id,
}

/// Index of a node: of the same layer, or of the undermost one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Id(u32);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Node {
    /// Where the structure stands, when this node only adds to it what belongs to a field (a default, a patch strategy).
    target: Option<Id>,
    kind: Type,
    flags: Flags,
    items: Option<Id>,
    additional: Option<Id>,
    /// Sorted by name.
    fields: Box<[(Name, Id)]>,
    rare: Option<Box<Rare>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Flags {
    preserve_unknown: bool,
    embedded_resource: bool,
    nullable: bool,
    atomic_map: bool,
    /// Says of one field that its object is not one value, although its type is.
    granular_map: bool,
    set: bool,
}

/// What few nodes have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Rare {
    default: Option<Value>,
    patch_strategy: Option<String>,
    patch_merge_key: Option<String>,
    map_keys: Vec<String>,
}

static BUILTIN: OnceLock<Arc<Schemas>> = OnceLock::new();
/// Made by `cargo xtask codegen` from the OpenAPI documents of Kubernetes.
const BUILTIN_JSON: &[u8] = include_bytes!("schema/builtin.json");

impl Schemas {
    /// The kinds of Kubernetes 1.36.
    pub fn builtin() -> Arc<Self> {
        let load = || {
            let facts = serde_json::from_slice(BUILTIN_JSON).expect("the embedded facts are JSON");
            Arc::new(load::compact(&facts))
        };
        Arc::clone(BUILTIN.get_or_init(load))
    }

    /// The kinds in OpenAPI v3 documents, as a kube-apiserver serves them one a group and version below `/openapi/v3`.
    pub fn from_openapi_v3<'v>(documents: impl IntoIterator<Item = &'v Value>) -> Arc<Self> {
        Arc::new(load::openapi(documents))
    }

    /// These schemas with the kinds that CRDs define laid over them. What is no CRD is passed over.
    pub fn with_crds<V: Borrow<Value>>(self: &Arc<Self>, crds: impl IntoIterator<Item = V>) -> Arc<Self> {
        Arc::new(load::crds(Arc::clone(self), crds))
    }

    /// The schema of a kind; none if the kind is unknown.
    pub fn root(&self, kind: &GroupVersionKind) -> Option<Schema<'_>> {
        self.layers()
            .find_map(|layer| layer.roots.get(kind).map(|id| Schema { layer, id: *id }))
    }

    /// The schema of a kind in the first of its versions that are known.
    pub fn any_version(&self, group: &str, kind: &str) -> Option<Schema<'_>> {
        let known = self.layers().flat_map(|layer| layer.roots.keys());
        let first = known
            .filter(|known| known.kind == kind && known.group == group)
            .min()?;
        self.root(first)
    }

    /// Whether resources of a kind live in namespaces; none if the kind is unknown.
    pub fn scope(&self, kind: &GroupKind) -> Option<Scope> {
        self.layers().find_map(|layer| layer.scopes.get(kind).copied())
    }

    /// All kinds with a schema, each once, in order.
    pub fn kinds(&self) -> Vec<&GroupVersionKind> {
        let mut kinds: Vec<_> = self.layers().flat_map(|layer| layer.roots.keys()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// How many nodes this layer holds itself: what it costs.
    pub fn own_nodes(&self) -> usize {
        self.nodes.len()
    }

    fn layers(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |layer| layer.base.as_deref())
    }

    fn bottom(&self) -> &Self {
        self.layers().last().unwrap_or(self)
    }
}

impl<'a> Schema<'a> {
    /// What the value holds.
    pub fn kind(self) -> Type {
        self.shape().node().kind
    }

    /// The schema of a named field of an object. Names that fall under [`Self::additional`] are not asked here.
    pub fn field(self, name: &str) -> Option<Schema<'a>> {
        let shape = self.shape();
        let fields = &shape.node().fields;
        let at = fields
            .binary_search_by(|(field, _)| field.as_str().cmp(name))
            .ok()?;
        Some(shape.at(fields[at].1))
    }

    /// The schema of whatever stands below `name`: the field, or else that of all other names.
    pub fn child(self, name: &str) -> Option<Schema<'a>> {
        self.field(name).or_else(|| self.additional())
    }

    /// The named fields of an object, sorted by name.
    pub fn fields(self) -> impl Iterator<Item = (&'a str, Schema<'a>)> {
        let shape = self.shape();
        shape
            .node()
            .fields
            .iter()
            .map(move |(name, id)| (name.as_str(), shape.at(*id)))
    }

    /// The schema of the items of a list.
    pub fn items(self) -> Option<Schema<'a>> {
        let shape = self.shape();
        shape.node().items.map(|id| shape.at(id))
    }

    /// The schema of the values of a map whose names are free, such as labels.
    pub fn additional(self) -> Option<Schema<'a>> {
        let shape = self.shape();
        shape.node().additional.map(|id| shape.at(id))
    }

    /// How the items of a list are told apart; atomic where the schema does not say.
    pub fn list(self) -> List<'a> {
        match self.rare(|rare| (!rare.map_keys.is_empty()).then_some(rare.map_keys.as_slice())) {
            Some(keys) => List::Map(keys),
            None if self.flag(|flags| flags.set) => List::Set,
            None => List::Atomic,
        }
    }

    /// Whether an object is one value: owned and replaced as a whole.
    pub fn atomic_map(self) -> bool {
        self.flag(|flags| flags.atomic_map) && !self.node().flags.granular_map
    }

    /// The field that tells items apart in a strategic merge patch (`x-kubernetes-patch-merge-key`).
    pub fn patch_merge_key(self) -> Option<&'a str> {
        self.rare(|rare| rare.patch_merge_key.as_deref())
    }

    /// The strategy of a strategic merge patch (`x-kubernetes-patch-strategy`): a list of words with commas, such as
    /// `merge`, `replace` or `merge,retainKeys`.
    pub fn patch_strategy(self) -> Option<&'a str> {
        self.rare(|rare| rare.patch_strategy.as_deref())
    }

    /// What the API server writes when the field is absent, as far as the schema says so. The empty values that the OpenAPI
    /// documents of built-in kinds name as defaults of required fields are not among them.
    pub fn default(self) -> Option<&'a Value> {
        self.rare(|rare| rare.default.as_ref())
    }

    /// Whether fields that the schema does not name are kept.
    pub fn preserve_unknown(self) -> bool {
        self.flag(|flags| flags.preserve_unknown)
    }

    /// Whether the value is a Kubernetes document itself.
    pub fn embedded_resource(self) -> bool {
        self.flag(|flags| flags.embedded_resource)
    }

    /// Whether null is a value of its own here.
    pub fn nullable(self) -> bool {
        self.flag(|flags| flags.nullable)
    }

    /// Where two schemas stand for the very same facts. For memory of what was compared.
    pub fn same(self, other: Schema<'_>) -> bool {
        std::ptr::eq(self.node(), other.node())
    }

    fn node(self) -> &'a Node {
        &self.layer.nodes[self.id.index()]
    }

    fn at(self, id: Id) -> Schema<'a> {
        Schema {
            layer: if id.in_bottom() {
                self.layer.bottom()
            } else {
                self.layer
            },
            id: id.local(),
        }
    }

    /// The schema that holds the structure.
    fn shape(self) -> Schema<'a> {
        match self.node().target {
            Some(target) => self.at(target).shape(),
            None => self,
        }
    }

    /// Something rare, of the field or else of what it refers to.
    fn rare<T>(self, read: impl Fn(&'a Rare) -> Option<T>) -> Option<T> {
        let own = self.node().rare.as_deref().and_then(&read);
        own.or_else(|| self.at(self.node().target?).node().rare.as_deref().and_then(read))
    }

    fn flag(self, read: impl Fn(Flags) -> bool) -> bool {
        read(self.node().flags)
            || self
                .node()
                .target
                .is_some_and(|target| read(self.at(target).node().flags))
    }
}

impl std::fmt::Debug for Schema<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Schema({:?})", self.kind())
    }
}

impl Id {
    const BOTTOM: u32 = 1 << 31;

    fn new(index: usize) -> Self {
        Self(
            u32::try_from(index)
                .ok()
                .filter(|index| *index < Self::BOTTOM)
                .expect("schemas stay below 2^31 nodes"),
        )
    }

    /// The same index in the undermost layer, told from another.
    fn of_bottom(self) -> Self {
        Self(self.0 | Self::BOTTOM)
    }

    fn in_bottom(self) -> bool {
        self.0 & Self::BOTTOM != 0
    }

    fn local(self) -> Self {
        Self(self.0 & !Self::BOTTOM)
    }

    fn index(self) -> usize {
        self.local().0 as usize
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn gvk(api_version: &str, kind: &str) -> GroupVersionKind {
        GroupVersionKind::from_api_version(api_version, kind)
    }

    fn at<'a>(schemas: &'a Schemas, kind: &GroupVersionKind, path: &str) -> Schema<'a> {
        let root = schemas.root(kind).unwrap();
        path.split('.').fold(root, |schema, step| match step {
            "[]" => schema.items().unwrap(),
            "*" => schema.additional().unwrap(),
            name => schema
                .field(name)
                .unwrap_or_else(|| panic!("no field {name} in {path}")),
        })
    }

    #[test]
    fn lists_of_a_pod_are_keyed() {
        let schemas = Schemas::builtin();
        let deployment = gvk("apps/v1", "Deployment");
        let containers = at(&schemas, &deployment, "spec.template.spec.containers");
        assert_eq!(containers.kind(), Type::Array);
        assert_eq!(containers.list(), List::Map(&["name".to_owned()]));
        assert_eq!(containers.patch_merge_key(), Some("name"));
        assert_eq!(containers.patch_strategy(), Some("merge"));
        let ports = at(&schemas, &deployment, "spec.template.spec.containers.[].ports");
        assert_eq!(
            ports.list(),
            List::Map(&["containerPort".to_owned(), "protocol".to_owned()])
        );
        assert_eq!(
            ports.items().unwrap().field("protocol").unwrap().default(),
            Some(&json!("TCP"))
        );
        let volumes = at(&schemas, &deployment, "spec.template.spec.volumes");
        assert_eq!(
            (volumes.patch_merge_key(), volumes.patch_strategy()),
            (Some("name"), Some("merge,retainKeys"))
        );
        assert_eq!(
            at(&schemas, &deployment, "spec.strategy").patch_strategy(),
            Some("retainKeys")
        );
        assert_eq!(
            at(&schemas, &deployment, "spec.template.spec.containers.[].command").list(),
            List::Atomic
        );
        assert_eq!(at(&schemas, &deployment, "metadata.finalizers").list(), List::Set);
        assert!(at(&schemas, &deployment, "spec.selector").atomic_map());
        let volume = gvk("v1", "PersistentVolume");
        assert!(!at(&schemas, &volume, "spec.claimRef").atomic_map());
        assert!(at(&schemas, &volume, "spec.csi.nodeStageSecretRef").atomic_map());
    }

    #[test]
    fn ports_of_a_service_are_keyed_by_port_and_protocol() {
        let schemas = Schemas::builtin();
        let ports = at(&schemas, &gvk("v1", "Service"), "spec.ports");
        assert_eq!(
            ports.list(),
            List::Map(&["port".to_owned(), "protocol".to_owned()])
        );
        assert_eq!(ports.patch_merge_key(), Some("port"));
        let port = ports.items().unwrap();
        assert_eq!(port.field("protocol").unwrap().default(), Some(&json!("TCP")));
        assert_eq!(port.field("targetPort").unwrap().kind(), Type::IntOrString);
        assert_eq!(port.field("port").unwrap().default(), None);
        assert_eq!(port.field("nothing").map(Schema::kind), None);
    }

    #[test]
    fn types_with_several_spellings_are_told_apart() {
        let schemas = Schemas::builtin();
        let pod = gvk("v1", "Pod");
        assert_eq!(
            at(&schemas, &pod, "spec.containers.[].resources.limits.*").kind(),
            Type::Quantity
        );
        assert_eq!(
            at(&schemas, &pod, "metadata.creationTimestamp").kind(),
            Type::Time
        );
        assert_eq!(at(&schemas, &pod, "metadata.labels.*").kind(), Type::String);
        assert_eq!(at(&schemas, &gvk("v1", "Secret"), "data.*").kind(), Type::Bytes);
        assert_eq!(
            at(
                &schemas,
                &gvk("coordination.k8s.io/v1", "Lease"),
                "spec.renewTime"
            )
            .kind(),
            Type::Time
        );
        assert_eq!(
            at(&schemas, &gvk("apps/v1", "Deployment"), "spec.replicas").kind(),
            Type::Integer
        );
        assert!(at(&schemas, &gvk("apps/v1", "ControllerRevision"), "data").preserve_unknown());
        assert!(!at(&schemas, &pod, "spec").preserve_unknown());
    }

    #[test]
    fn scopes_of_built_in_kinds_are_known() {
        let schemas = Schemas::builtin();
        for (group, kind, scope) in [
            ("", "ConfigMap", Scope::Namespaced),
            ("", "Namespace", Scope::Cluster),
            ("", "Node", Scope::Cluster),
            ("", "PersistentVolume", Scope::Cluster),
            ("", "PersistentVolumeClaim", Scope::Namespaced),
            ("apps", "Deployment", Scope::Namespaced),
            ("rbac.authorization.k8s.io", "ClusterRole", Scope::Cluster),
            ("rbac.authorization.k8s.io", "RoleBinding", Scope::Namespaced),
            ("apiextensions.k8s.io", "CustomResourceDefinition", Scope::Cluster),
            (
                "authorization.k8s.io",
                "LocalSubjectAccessReview",
                Scope::Namespaced,
            ),
            ("authorization.k8s.io", "SubjectAccessReview", Scope::Cluster),
            ("networking.k8s.io", "IngressClass", Scope::Cluster),
            ("storage.k8s.io", "StorageClass", Scope::Cluster),
        ] {
            assert_eq!(
                schemas.scope(&GroupKind::new(group, kind)),
                Some(scope),
                "{group}/{kind}"
            );
        }
        assert_eq!(schemas.scope(&GroupKind::new("example.com", "Widget")), None);
        assert!(schemas.root(&gvk("example.com/v1", "Widget")).is_none());
        assert!(schemas.root(&gvk("apps/v1beta1", "Deployment")).is_none());
    }

    #[test]
    fn a_schema_may_contain_itself() {
        let schemas = Schemas::builtin();
        let props = at(
            &schemas,
            &gvk("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            "spec.versions.[].schema.openAPIV3Schema",
        );
        let inner = props.field("properties").unwrap().additional().unwrap();
        assert_eq!(inner.kind(), Type::Object);
        assert!(
            inner
                .field("properties")
                .unwrap()
                .additional()
                .unwrap()
                .field("type")
                .is_some()
        );
        assert_eq!(props.field("default").unwrap().kind(), Type::Any);
    }

    fn widget_crd() -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                        "spec": {"type": "object", "properties": {
                            "size": {"type": "integer", "default": 0},
                            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                            "inner": {"type": "object", "x-kubernetes-embedded-resource": true},
                            "rules": {"type": "array", "x-kubernetes-list-type": "map",
                                "x-kubernetes-list-map-keys": ["id"],
                                "items": {"type": "object", "properties": {"id": {"type": "string"}}}},
                            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                            "nothing": {"type": "string", "nullable": true}
                        }}
                    }
                }}}]
            }
        })
    }

    #[test]
    fn crds_are_laid_over_a_base() {
        let base = Schemas::builtin();
        let crd = widget_crd();
        let schemas = base.with_crds([&crd, &json!({"kind": "Other"}), &Value::Null]);
        let widget = gvk("example.com/v1", "Widget");
        assert_eq!(
            schemas.scope(&GroupKind::new("example.com", "Widget")),
            Some(Scope::Namespaced)
        );
        assert_eq!(at(&schemas, &widget, "spec.size").default(), Some(&json!(0)));
        assert_eq!(at(&schemas, &widget, "spec.port").kind(), Type::IntOrString);
        assert!(at(&schemas, &widget, "spec.free").preserve_unknown());
        assert_eq!(
            at(&schemas, &widget, "spec.rules").list(),
            List::Map(&["id".to_owned()])
        );
        assert_eq!(at(&schemas, &widget, "spec.tags").list(), List::Set);
        assert_eq!(at(&schemas, &widget, "spec.labels.*").kind(), Type::String);
        assert!(at(&schemas, &widget, "spec.nothing").nullable());
        // What every document has comes from the base.
        assert_eq!(at(&schemas, &widget, "metadata.finalizers").list(), List::Set);
        assert!(at(&schemas, &widget, "spec.inner").embedded_resource());
        assert_eq!(
            at(&schemas, &widget, "spec.inner.metadata.labels.*").kind(),
            Type::String
        );
        // The base is shared and unchanged; a second layer stands on the first.
        assert!(schemas.root(&gvk("v1", "Pod")).is_some());
        assert!(base.root(&widget).is_none());
        assert!(schemas.own_nodes() < 40);
        let mut other = widget_crd();
        other["spec"]["names"]["kind"] = json!("Gadget");
        let both = schemas.with_crds([&other]);
        assert!(both.root(&widget).is_some());
        assert_eq!(
            at(&both, &gvk("example.com/v1", "Gadget"), "metadata.labels.*").kind(),
            Type::String
        );
    }

    #[test]
    fn documents_of_a_server_read_the_same() {
        let document = json!({
            "openapi": "3.0.0",
            "paths": {
                "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}": {"get": {
                    "x-kubernetes-action": "get",
                    "x-kubernetes-group-version-kind": {"group": "example.com", "version": "v1", "kind": "Widget"}}},
                "/apis/example.com/v1/widgets": {"get": {
                    "x-kubernetes-action": "list",
                    "x-kubernetes-group-version-kind": {"group": "example.com", "version": "v1", "kind": "Widget"}}}
            },
            "components": {"schemas": {
                "com.example.v1.Widget": {
                    "type": "object",
                    "properties": {
                        "metadata": {"allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}], "default": {}},
                        "spec": {"type": "object", "properties": {"on": {"type": "boolean", "default": false}}}
                    },
                    "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Widget"}]
                },
                "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "default": ""},
                        "missing": {"$ref": "#/components/schemas/nobody"}}
                }
            }}
        });
        let schemas = Schemas::from_openapi_v3([&document]);
        let widget = gvk("example.com/v1", "Widget");
        assert_eq!(schemas.scope(&widget.group_kind()), Some(Scope::Namespaced));
        assert_eq!(at(&schemas, &widget, "spec.on").default(), Some(&json!(false)));
        assert_eq!(at(&schemas, &widget, "metadata.name").default(), None);
        assert_eq!(at(&schemas, &widget, "metadata").default(), None);
        assert_eq!(at(&schemas, &widget, "metadata.missing").kind(), Type::Any);
        let layered = schemas.with_crds([widget_crd()]);
        assert_eq!(at(&layered, &widget, "metadata.name").kind(), Type::String);
    }
}
