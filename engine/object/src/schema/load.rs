//! Schemas from JSON: OpenAPI v3 documents, the compact form of the built-in kinds, and CRDs.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Flags, Id, Node, Rare, Schemas, Scope, Type};
use crate::{GroupKind, GroupVersionKind, Map, Value, intern, meta};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// What controller-gen writes for `resource.Quantity`.
const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// All kinds of some OpenAPI v3 documents. Definitions that several documents repeat are taken from the first.
pub(super) fn openapi<'v>(documents: impl IntoIterator<Item = &'v Value>) -> Schemas {
    let mut definitions: BTreeMap<&str, &Value> = BTreeMap::new();
    let mut all_scopes = Vec::new();
    for document in documents {
        let schemas = meta::field(document, &["components", "schemas"]).and_then(Value::as_object);
        for (name, schema) in schemas.into_iter().flatten() {
            definitions.entry(name).or_insert(schema);
        }
        all_scopes.extend(scopes(document));
    }
    define(&definitions, all_scopes)
}

/// The compact form that [`super::compact`] makes.
pub(super) fn compact(facts: &Value) -> Schemas {
    let object = |name| facts.get(name).and_then(Value::as_object).into_iter().flatten();
    let definitions = object("schemas")
        .map(|(name, schema)| (name.as_str(), schema))
        .collect();
    let scopes = object("scopes").filter_map(|(kind, scope)| {
        let (group, kind) = kind.split_once('/')?;
        Some((
            GroupKind::new(group, kind),
            serde_json::from_value(scope.clone()).ok()?,
        ))
    });
    define(&definitions, scopes.collect())
}

/// A layer with the kinds of some CRDs over `base`.
pub(super) fn crds<V: Borrow<Value>>(base: Arc<Schemas>, crds: impl IntoIterator<Item = V>) -> Schemas {
    let object_meta = base.bottom().object_meta.map(Id::of_bottom);
    let mut loader = Loader {
        object_meta,
        ..Loader::default()
    };
    let (mut roots, mut scopes) = (HashMap::new(), HashMap::new());
    for crd in crds {
        let crd = crd.borrow();
        if !meta::is_crd(crd) {
            continue;
        }
        let text = |path: &[&str]| meta::str_field(crd, path);
        let (Some(group), Some(kind)) = (text(&["spec", "group"]), text(&["spec", "names", "kind"])) else {
            continue;
        };
        let scope = if text(&["spec", "scope"]) == Some("Cluster") {
            Scope::Cluster
        } else {
            Scope::Namespaced
        };
        scopes.insert(GroupKind::new(group, kind), scope);
        let preserve = meta::bool_field(crd, &["spec", "preserveUnknownFields"]) == Some(true);
        for version in meta::array_field(crd, &["spec", "versions"]) {
            let Some(name) = meta::str_field(version, &["name"]) else {
                continue;
            };
            let schema = meta::field(version, &["schema", "openAPIV3Schema"])
                .or_else(|| meta::field(crd, &["spec", "validation", "openAPIV3Schema"]));
            let Some(schema) = schema else { continue };
            let mut root = loader.read(schema, Origin::Author);
            root.kind = Type::Object;
            root.flags.preserve_unknown |= preserve;
            loader.make_document(&mut root);
            let id = loader.add(root);
            roots.insert(GroupVersionKind::new(group, name, kind), id);
        }
    }
    Schemas {
        base: Some(base),
        nodes: loader.nodes,
        roots,
        scopes,
        object_meta: None,
    }
}

/// Which kinds of a document are namespaced, told by where their resources are written.
pub(super) fn scopes(document: &Value) -> Vec<(GroupKind, Scope)> {
    let paths = document.get("paths").and_then(Value::as_object);
    paths
        .into_iter()
        .flatten()
        .flat_map(|(path, operations)| scopes_at(path, operations))
        .collect()
}

fn scopes_at(path: &str, operations: &Value) -> Vec<(GroupKind, Scope)> {
    let steps: Vec<&str> = path.trim_matches('/').split('/').collect();
    let resource = match steps.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => return Vec::new(),
    };
    // A collection of a namespaced kind can also be listed in the whole cluster, so only what creates or addresses one
    // resource tells the scope.
    let (scope, actions): (_, &[&str]) = match resource {
        ["namespaces", "{namespace}", _plural] => (Scope::Namespaced, &["post"]),
        ["namespaces", "{namespace}", _plural, "{name}"] => {
            (Scope::Namespaced, &["get", "put", "patch", "delete"])
        }
        [_plural] => (Scope::Cluster, &["post"]),
        [_plural, "{name}"] => (Scope::Cluster, &["get", "put", "patch", "delete"]),
        _ => return Vec::new(),
    };
    let operations = operations
        .as_object()
        .into_iter()
        .flatten()
        .map(|(_, operation)| operation);
    operations
        .filter(|operation| {
            meta::str_field(operation, &["x-kubernetes-action"])
                .is_some_and(|action| actions.contains(&action))
        })
        .filter_map(|operation| kind_of(operation.get("x-kubernetes-group-version-kind")?))
        .map(|kind| (kind.group_kind(), scope))
        .collect()
}

pub(super) fn kind_of(value: &Value) -> Option<GroupVersionKind> {
    let text = |name| meta::str_field(value, &[name]);
    Some(GroupVersionKind::new(
        text("group")?,
        text("version")?,
        text("kind")?,
    ))
}

/// The definition that a schema refers to, alone (`$ref`) or with additions beside it (`allOf`).
pub(super) fn reference(schema: &Value) -> Option<&str> {
    let direct = meta::str_field(schema, &["$ref"]);
    let target = direct.or_else(|| match meta::array_field(schema, &["allOf"]) {
        [only] => meta::str_field(only, &["$ref"]),
        _ => None,
    })?;
    target.rsplit('/').next()
}

/// Whether a default is only Go's empty value, which the OpenAPI documents of built-in kinds give for required fields.
pub(super) fn is_empty_default(default: &Value) -> bool {
    match default {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Whether the definitions of this name are made from Go types of Kubernetes itself.
pub(super) fn is_native(definition: &str) -> bool {
    definition.starts_with("io.k8s.")
}

fn define(definitions: &BTreeMap<&str, &Value>, scopes: Vec<(GroupKind, Scope)>) -> Schemas {
    let ids: HashMap<&str, Id> = definitions
        .keys()
        .enumerate()
        .map(|(at, name)| (*name, Id::new(at)))
        .collect();
    let object_meta = ids.get(OBJECT_META).copied();
    // Definitions refer to each other in circles, so all have their place before the first is read.
    let nodes = vec![Node::default(); definitions.len()];
    let mut loader = Loader {
        nodes,
        ids,
        object_meta,
        ..Loader::default()
    };
    let mut roots = HashMap::new();
    for (name, schema) in definitions {
        let id = loader.ids[name];
        let node = loader.definition(name, schema);
        loader.nodes[id.index()] = node;
        let kinds = meta::array_field(schema, &["x-kubernetes-group-version-kind"]);
        roots.extend(kinds.iter().filter_map(kind_of).map(|kind| (kind, id)));
    }
    Schemas {
        base: None,
        nodes: loader.nodes,
        roots,
        scopes: scopes.into_iter().collect(),
        object_meta,
    }
}

/// Who wrote a schema, and so what its words mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Generated from Go types: formats are Go types, and empty defaults say nothing.
    Native,
    /// Written for a CRD: values are kept as they come, and every default is meant.
    Author,
}

#[derive(Default)]
struct Loader<'v> {
    nodes: Vec<Node>,
    /// Equal nodes are one.
    known: HashMap<Node, Id>,
    /// Definitions by name.
    ids: HashMap<&'v str, Id>,
    object_meta: Option<Id>,
}

impl Loader<'_> {
    fn definition(&mut self, name: &str, schema: &Value) -> Node {
        let origin = if is_native(name) {
            Origin::Native
        } else {
            Origin::Author
        };
        let mut node = self.read(schema, origin);
        if origin == Origin::Native {
            match name.rsplit("pkg.").next().unwrap_or_default() {
                "api.resource.Quantity" => node.kind = Type::Quantity,
                "util.intstr.IntOrString" => node.kind = Type::IntOrString,
                "apis.meta.v1.Time" | "apis.meta.v1.MicroTime" => node.kind = Type::Time,
                "apis.meta.v1.Duration" => node.kind = Type::Duration,
                "runtime.RawExtension" | "apis.meta.v1.FieldsV1" => node.flags.preserve_unknown = true,
                _ => node.flags.preserve_unknown |= node.kind == Type::Any,
            }
        }
        node
    }

    fn read(&mut self, schema: &Value, origin: Origin) -> Node {
        let text = |name| meta::str_field(schema, &[name]);
        let truth = |name| meta::bool_field(schema, &[name]) == Some(true);
        let int_or_string = truth("x-kubernetes-int-or-string") || text("format") == Some("int-or-string");
        let kind = match text("type") {
            // Generators of CRDs declare a quantity so; a port or a percentage has another pattern or none.
            _ if int_or_string && text("pattern") == Some(QUANTITY_PATTERN) => Type::Quantity,
            _ if int_or_string => Type::IntOrString,
            Some("object") => Type::Object,
            Some("array") => Type::Array,
            Some("string") if origin == Origin::Native && text("format") == Some("byte") => Type::Bytes,
            Some("string") => Type::String,
            Some("integer") => Type::Integer,
            Some("number") => Type::Number,
            Some("boolean") => Type::Boolean,
            _ if schema.get("properties").is_some() => Type::Object,
            _ => Type::Any,
        };
        let mut node = Node {
            target: reference(schema).and_then(|name| self.ids.get(name).copied()),
            kind,
            flags: Flags {
                preserve_unknown: truth("x-kubernetes-preserve-unknown-fields"),
                embedded_resource: truth("x-kubernetes-embedded-resource"),
                nullable: truth("nullable"),
                atomic_map: text("x-kubernetes-map-type") == Some("atomic"),
                granular_map: text("x-kubernetes-map-type") == Some("granular"),
                set: text("x-kubernetes-list-type") == Some("set"),
            },
            items: schema
                .get("items")
                .filter(|items| items.is_object())
                .map(|items| self.child(items, origin)),
            additional: match schema.get("additionalProperties") {
                Some(values @ Value::Object(_)) => Some(self.child(values, origin)),
                Some(Value::Bool(true)) => Some(self.child(&Value::Null, origin)),
                _ => None,
            },
            fields: self.fields(schema.get("properties").and_then(Value::as_object), origin),
            rare: rare(schema, origin),
        };
        if node.flags.embedded_resource {
            self.make_document(&mut node);
        }
        node
    }

    /// The id of a part of a schema. What is but a reference is what it refers to.
    fn child(&mut self, schema: &Value, origin: Origin) -> Id {
        let node = self.read(schema, origin);
        match node.target {
            Some(target)
                if node
                    == (Node {
                        target: Some(target),
                        ..Node::default()
                    }) =>
            {
                target
            }
            _ => self.add(node),
        }
    }

    fn fields(&mut self, properties: Option<&Map>, origin: Origin) -> Box<[(crate::Name, Id)]> {
        let properties = properties.into_iter().flatten();
        properties
            .map(|(name, schema)| (intern(name), self.child(schema, origin)))
            .collect()
    }

    fn add(&mut self, node: Node) -> Id {
        if let Some(known) = self.known.get(&node) {
            return *known;
        }
        let id = Id::new(self.nodes.len());
        self.known.insert(node.clone(), id);
        self.nodes.push(node);
        id
    }

    /// Gives an object the fields that every Kubernetes document has.
    fn make_document(&mut self, node: &mut Node) {
        let text = self.add(Node {
            kind: Type::String,
            ..Node::default()
        });
        let mut fields: BTreeMap<_, _> = std::mem::take(&mut node.fields).into_iter().collect();
        fields.insert(intern("apiVersion"), text);
        fields.insert(intern("kind"), text);
        if let Some(object_meta) = self.object_meta {
            fields.insert(intern("metadata"), object_meta);
        }
        node.fields = fields.into_iter().collect();
    }
}

fn rare(schema: &Value, origin: Origin) -> Option<Box<Rare>> {
    let text = |name| meta::str_field(schema, &[name]).map(str::to_owned);
    let keyed = meta::str_field(schema, &["x-kubernetes-list-type"]) == Some("map");
    let keys = if keyed {
        meta::array_field(schema, &["x-kubernetes-list-map-keys"])
    } else {
        &[]
    };
    // Also a CRD's schema, once published, has an empty default beside its reference to what Kubernetes defines.
    let meant = |default: &&Value| {
        !is_empty_default(default) || (origin == Origin::Author && reference(schema).is_none())
    };
    let rare = Rare {
        default: schema.get("default").filter(meant).cloned(),
        patch_strategy: text("x-kubernetes-patch-strategy"),
        patch_merge_key: text("x-kubernetes-patch-merge-key"),
        map_keys: keys.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
    };
    (rare != Rare::default()).then(|| Box::new(rare))
}
