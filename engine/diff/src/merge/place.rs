//! Where a walk over the documents is, and what a value means there.

use argosy_object::schema::Type;
use argosy_object::{Map, Path, Value};

use super::NOT_IN_WHOLE;
use crate::node::Node;
use crate::{facts, scalar};

/// The object that holds a field, as it will be: what Git wants, over what is there.
#[derive(Clone, Copy, Default)]
pub(super) struct Beside<'p> {
    pub(super) desired: Option<&'p Map>,
    pub(super) live: Option<&'p Map>,
    /// What was applied last, of which goes what Git does not want now.
    pub(super) base: Option<&'p Map>,
}

impl<'p> Beside<'p> {
    fn get(self, name: &str) -> Option<&'p Value> {
        let of = |fields: Option<&'p Map>| {
            fields
                .and_then(|fields| fields.get(name))
                .filter(|value| !value.is_null())
        };
        of(self.desired).or_else(|| of(self.live).filter(|_| of(self.base).is_none()))
    }
}

/// Where the walk is.
#[derive(Clone, Copy)]
pub(super) struct At<'p> {
    pub(super) path: &'p Path<'p>,
    pub(super) node: Node<'p>,
    /// The field here, and the nearest field above it; an item of a list has its list's names.
    pub(super) name: &'p str,
    pub(super) parent: &'p str,
    /// The field above that one.
    pub(super) above: &'p str,
    /// What holds the field here.
    pub(super) beside: Beside<'p>,
    /// Why what Git does not state goes here, unless it is a default; if it does. Inside something that is applied as a whole, and where
    /// the other document is already what there will be.
    pub(super) gone: Option<&'static str>,
}

impl<'p> At<'p> {
    pub(super) fn field<'q>(&'q self, path: &'q Path<'q>, name: &'q str) -> At<'q>
    where
        'p: 'q,
    {
        At {
            path,
            node: self.node.field(name),
            name,
            parent: self.name,
            above: self.parent,
            beside: Beside::default(),
            gone: self.gone,
        }
    }

    /// The same place, knowing what holds it.
    pub(super) fn beside(self, beside: Beside<'p>) -> Self {
        At { beside, ..self }
    }

    pub(super) fn item<'q>(&'q self, path: &'q Path<'q>, gone: Option<&'static str>) -> At<'q>
    where
        'p: 'q,
    {
        At {
            path,
            node: self.node.item(),
            name: self.name,
            parent: self.parent,
            above: self.above,
            beside: Beside::default(),
            gone,
        }
    }

    /// As `gone`, for the items of a list that is one value.
    pub(super) fn inside(&self) -> Option<&'static str> {
        self.gone.or(Some(NOT_IN_WHOLE))
    }

    /// Whether the API server decodes what is here into a Go type.
    pub(super) fn native(&self) -> bool {
        self.node.semantics.native && !self.node.literal
    }

    /// Whether this is a map with free keys, in which every entry means something.
    pub(super) fn is_map(&self) -> bool {
        self.node.is_map()
    }

    /// Whether the API server drops `value` if it is put here.
    pub(super) fn drops(&self, value: &Value, in_map: bool) -> bool {
        value.is_null()
            || (self.native() && !in_map && facts::is_dropped(self.parent, self.name, value, self.is_map()))
    }

    /// Whether `value` is what is here if nobody states anything.
    pub(super) fn is_default(&self, value: &Value, in_map: bool) -> bool {
        if in_map {
            return false;
        }
        if let Some(default) = self.node.default()
            && covers(self.node, default, value)
        {
            return true;
        }
        if !self.native() {
            return false;
        }
        if let Some(default) = facts::default_beside(self.name, |name| self.beside.get(name)) {
            return default.as_ref() == Some(value) || self.drops(value, false);
        }
        // A claim inside a StatefulSet is an object with a status of its own.
        let claim_status = self.parent == "volumeClaimTemplates" && self.name == "status";
        // A quantity that nobody states is written as the amount that it then has.
        let no_amount = self.node.kind() == Type::Quantity && scalar::same_quantity(value, &Value::from(0));
        claim_status
            || no_amount
            || self.drops(value, false)
            || facts::is_default([self.parent, self.above], self.name, value)
            || self.is_all_defaults(value)
    }

    /// Whether `value` is an object that is always there, with nothing in it but defaults.
    pub(super) fn is_all_defaults(&self, value: &Value) -> bool {
        let Some(fields) = value.as_object() else {
            return false;
        };
        self.drops(&Value::Object(Map::new()), false)
            && !self.is_map()
            && fields.iter().all(|(name, value)| {
                let path = self.path.field(name);
                let beside = Beside {
                    desired: Some(fields),
                    ..Beside::default()
                };
                self.field(&path, name).beside(beside).is_default(value, false)
            })
    }
}

/// Whether `value` is `default` and further defaults below it.
fn covers(node: Node<'_>, default: &Value, value: &Value) -> bool {
    match (default, value) {
        (Value::Object(default), Value::Object(fields)) => {
            default.keys().all(|name| fields.contains_key(name))
                && fields.iter().all(|(name, field)| {
                    let below = node.field(name);
                    match default.get(name).or(below.default()) {
                        Some(default) => covers(below, default, field),
                        None => false,
                    }
                })
        }
        _ => scalar::same(node.kind(), default, value),
    }
}
