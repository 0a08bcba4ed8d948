//! A place in the schema, walked beside the documents, and what it means there.

use argosy_object::schema::{List, Schema, Schemas, Type};
use argosy_object::{GroupVersionKind, Value};
use bumpalo::Bump;

use crate::facts;

/// How an apply treats objects of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Semantics {
    pub(crate) lists: Lists,
    /// The API server decodes the kind into a Go type: zero values of most optional fields are dropped, nulls too.
    pub(crate) native: bool,
}

/// How an apply treats lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lists {
    /// Strategic merge patch: by patch merge key where there is one.
    Strategic,
    /// JSON merge patch: as a whole.
    Replace,
    /// Server-side apply: by list type.
    Structured,
}

impl Semantics {
    pub(crate) fn of(group: &str, server_side_apply: bool) -> Self {
        let native = facts::is_native_group(group);
        let lists = match (server_side_apply, native) {
            (true, _) => Lists::Structured,
            (false, true) => Lists::Strategic,
            (false, false) => Lists::Replace,
        };
        Self { lists, native }
    }
}

/// How the items of a list belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListRule<'a> {
    /// As one value; order counts.
    Sequence,
    /// By value; order does not count.
    Set,
    /// By some fields of the items.
    Keyed(&'a [&'a str]),
}

/// The schema of a kind: in its version, or else in any other that is known (old versions differ little, and a server that still has them
/// may not describe them).
pub(crate) fn schema_of<'s>(schemas: &'s Schemas, gvk: &GroupVersionKind) -> Option<Schema<'s>> {
    schemas
        .root(gvk)
        .or_else(|| schemas.any_version(&gvk.group, &gvk.kind))
}

/// A place in a schema; where there is none, what is known without.
#[derive(Clone, Copy)]
pub(crate) struct Node<'s> {
    schema: Option<Schema<'s>>,
    graft: Graft<'s>,
    pub(crate) semantics: Semantics,
    /// An item of a list that retains keys; see [`Node::retains_keys`].
    retains_keys: bool,
    /// Some fields of the API are JSON of somebody else inside a native object (a default in a CRD's schema): taken literally.
    pub(crate) literal: bool,
}

/// A pod template inside a custom resource, whose own schema does not say that it is one.
#[derive(Clone, Copy)]
enum Graft<'s> {
    None,
    AtRoot(Schema<'s>),
    InSpec(Schema<'s>),
}

impl<'s> Node<'s> {
    pub(crate) fn root(
        schema: Option<Schema<'s>>,
        schemas: &'s Schemas,
        gvk: &GroupVersionKind,
        semantics: Semantics,
    ) -> Self {
        let graft = match (gvk.group.as_str(), gvk.kind.as_str()) {
            ("argoproj.io", "Rollout") => pod_template(schemas).map_or(Graft::None, Graft::AtRoot),
            _ => Graft::None,
        };
        Self {
            schema,
            graft,
            semantics,
            retains_keys: false,
            literal: false,
        }
    }

    fn below(self, schema: Option<Schema<'s>>) -> Self {
        Self {
            schema,
            graft: Graft::None,
            ..self
        }
    }

    /// The field `name` of an object here.
    pub(crate) fn field(self, name: &str) -> Self {
        let schema = self
            .schema
            .and_then(|schema| schema.field(name).or_else(|| schema.additional()));
        let mut node = self.below(schema);
        match (self.graft, name) {
            (Graft::AtRoot(template), "spec") => node.graft = Graft::InSpec(template),
            (Graft::InSpec(template), "template") => node.schema = Some(template),
            _ => {}
        }
        node.literal |=
            matches!(name, "default" | "example" | "enum") && self.semantics.native && self.is_json_schema();
        node
    }

    /// An item of a list here.
    pub(crate) fn item(self) -> Self {
        Self {
            retains_keys: self.retains_keys(),
            ..self.below(self.schema.and_then(|schema| schema.items()))
        }
    }

    pub(crate) fn kind(self) -> Type {
        self.schema.map_or(Type::Any, |schema| schema.kind())
    }

    pub(crate) fn default(self) -> Option<&'s Value> {
        self.schema.and_then(|schema| schema.default())
    }

    /// Whether this is a map with free keys (labels, limits) and not an object with fields.
    pub(crate) fn is_map(self) -> bool {
        self.schema.is_some_and(|schema| schema.additional().is_some())
    }

    /// Whether `name` is a field of the type here, and not an entry of a map or a field that the schema does not know.
    pub(crate) fn names_field(self, name: &str) -> bool {
        self.schema.is_some_and(|schema| schema.field(name).is_some())
    }

    /// Whether the type here has fields, and `name` is none of them.
    pub(crate) fn lacks_field(self, name: &str) -> bool {
        self.schema.is_some_and(|schema| {
            schema.fields().next().is_some()
                && schema.child(name).is_none()
                && !schema.preserve_unknown()
                && !schema.embedded_resource()
        })
    }

    /// The value of a key field of the list item here if nobody states it.
    pub(crate) fn key_default(self, key: &str) -> Option<&'s Value> {
        static TCP: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| Value::from("TCP"));
        self.field(key)
            .default()
            // The API declares this default only where it has to.
            .or_else(|| (key == "protocol" && self.semantics.native).then_some(&*TCP))
    }

    /// Whether the object here is applied as one value.
    pub(crate) fn is_atomic(self) -> bool {
        match self.semantics.lists {
            Lists::Structured => self.schema.is_some_and(|schema| schema.atomic_map()),
            Lists::Strategic => self
                .schema
                .and_then(|schema| schema.patch_strategy())
                .is_some_and(|text| text.split(',').any(|word| word == "replace")),
            Lists::Replace => false,
        }
    }

    /// Whether only the members that Git states may stay when the object changes (a union: a volume has one source).
    pub(crate) fn retains_keys(self) -> bool {
        let declared = self.schema.and_then(|schema| schema.patch_strategy());
        self.retains_keys
            || (self.semantics.lists == Lists::Strategic
                && declared.is_some_and(|text| text.contains("retainKeys")))
    }

    /// The key by which a strategic merge patch matches items of the list here.
    pub(crate) fn patch_merge_key(self) -> Option<&'s str> {
        self.schema
            .filter(|schema| schema.patch_strategy().is_some_and(|text| text.contains("merge")))
            .and_then(|schema| schema.patch_merge_key())
    }

    /// How items of the list here are matched.
    pub(crate) fn list_rule<'a>(self, arena: &'a Bump) -> ListRule<'a>
    where
        's: 'a,
    {
        let Some(schema) = self.schema else {
            return ListRule::Sequence;
        };
        let declared = match schema.list() {
            List::Atomic => ListRule::Sequence,
            List::Set => ListRule::Set,
            List::Map(keys) => {
                ListRule::Keyed(arena.alloc_slice_fill_iter(keys.iter().map(|key| -> &'a str { key })))
            }
        };
        match self.semantics.lists {
            Lists::Replace => ListRule::Sequence,
            Lists::Structured => declared,
            Lists::Strategic => {
                if !schema.patch_strategy().is_some_and(|text| text.contains("merge")) {
                    return ListRule::Sequence;
                }
                match (schema.patch_merge_key(), declared) {
                    // The declared keys tell apart what the patch key alone does not: one port, two protocols.
                    (Some(key), ListRule::Keyed(keys)) if keys.contains(&key) => ListRule::Keyed(keys),
                    (Some(key), _) => ListRule::Keyed(arena.alloc_slice_copy(&[key])),
                    (None, _) => ListRule::Set,
                }
            }
        }
    }

    fn is_json_schema(self) -> bool {
        self.schema.is_some_and(|schema| {
            schema.field("x-kubernetes-preserve-unknown-fields").is_some()
                && schema.field("properties").is_some()
        })
    }
}

fn pod_template(schemas: &Schemas) -> Option<Schema<'_>> {
    schemas
        .root(&GroupVersionKind::new("apps", "v1", "Deployment"))?
        .field("spec")?
        .field("template")
}
