//! A document on its way in: a tree in scratch memory whose strings are those of the text it came from.

use bumpalo::Bump;
use bumpalo::collections::Vec as BumpVec;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::json;
use crate::{Map, Value};

/// Most lists and maps are no longer; what is left over goes with the scratch memory.
pub(super) const LIST_LEN: usize = 4;
pub(super) const MAP_LEN: usize = 8;

/// A part of the tree. Maps are sorted by key, each key once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    /// Below zero.
    Signed(i64),
    Float(f64),
    Text(&'a str),
    List(&'a [Node<'a>]),
    Map(&'a [(&'a str, Node<'a>)]),
}

impl<'a> Node<'a> {
    /// Reads JSON text.
    pub(super) fn read(json: &'a [u8], bump: &'a Bump) -> Result<Self, serde_json::Error> {
        let fast = std::str::from_utf8(json)
            .ok()
            .and_then(|text| json::read(text, bump));
        fast.map_or_else(|| Self::read_thoroughly(json, bump), Ok)
    }

    /// The same at leisure. Says what is wrong.
    pub(super) fn read_thoroughly(json: &'a [u8], bump: &'a Bump) -> Result<Self, serde_json::Error> {
        fn read<'a, R: serde_json::de::Read<'a>>(
            mut reader: serde_json::Deserializer<R>,
            bump: &'a Bump,
        ) -> Result<Node<'a>, serde_json::Error> {
            let node = Seed(bump).deserialize(&mut reader)?;
            reader.end()?;
            Ok(node)
        }
        match std::str::from_utf8(json) {
            // Once for all strings in it is much faster than for each.
            Ok(text) => read(serde_json::Deserializer::from_str(text), bump),
            // Says where it is no text.
            Err(_) => read(serde_json::Deserializer::from_slice(json), bump),
        }
    }

    /// The tree of a value.
    pub(super) fn of(value: &'a Value, bump: &'a Bump) -> Self {
        match value {
            Value::Null => Node::Null,
            Value::Bool(value) => Node::Bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => Node::Unsigned(number),
                (None, Some(number)) => Node::Signed(number),
                _ => Node::Float(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => Node::Text(text),
            Value::Array(items) => {
                Node::List(bump.alloc_slice_fill_iter(items.iter().map(|item| Node::of(item, bump))))
            }
            Value::Object(map) => Node::Map(
                bump.alloc_slice_fill_iter(
                    map.iter()
                        .map(|(name, value)| (name.as_str(), Node::of(value, bump))),
                ),
            ),
        }
    }

    /// The field at a path of names.
    pub(super) fn at(&self, path: &[&str]) -> Option<Node<'a>> {
        path.iter().try_fold(*self, |node, name| match node {
            Node::Map(entries) => {
                let at = entries.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
                Some(entries[at].1)
            }
            _ => None,
        })
    }

    /// The string at a path of names.
    pub(super) fn text_at(&self, path: &[&str]) -> Option<&'a str> {
        match self.at(path)? {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The same map with one more entry, in its place; the same if the name is there.
    pub(super) fn with(self, name: &'a str, value: &'a str, bump: &'a Bump) -> Self {
        let Node::Map(entries) = self else { return self };
        let Err(at) = entries.binary_search_by(|(known, _)| (*known).cmp(name)) else {
            return self;
        };
        let mut more = BumpVec::with_capacity_in(entries.len() + 1, bump);
        more.extend_from_slice(&entries[..at]);
        more.push((name, Node::Text(value)));
        more.extend_from_slice(&entries[at..]);
        Node::Map(more.into_bump_slice())
    }

    pub(super) fn value(&self) -> Value {
        match self {
            Node::Null => Value::Null,
            Node::Bool(value) => Value::Bool(*value),
            Node::Unsigned(number) => Value::from(*number),
            Node::Signed(number) => Value::from(*number),
            Node::Float(number) => Value::from(*number),
            Node::Text(text) => Value::from(*text),
            Node::List(items) => Value::Array(items.iter().map(Node::value).collect()),
            Node::Map(entries) => Value::Object(
                entries
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), value.value()))
                    .collect::<Map>(),
            ),
        }
    }
}

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Node::Null => serializer.serialize_unit(),
            Node::Bool(value) => serializer.serialize_bool(*value),
            Node::Unsigned(number) => serializer.serialize_u64(*number),
            Node::Signed(number) => serializer.serialize_i64(*number),
            Node::Float(number) => serializer.serialize_f64(*number),
            Node::Text(text) => serializer.serialize_str(text),
            Node::List(items) => serializer.collect_seq(*items),
            Node::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (name, value) in *entries {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Seed<'a>(&'a Bump);

impl<'a> DeserializeSeed<'a> for Seed<'a> {
    type Value = Node<'a>;

    fn deserialize<D: serde::Deserializer<'a>>(self, reader: D) -> Result<Node<'a>, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Seed<'a> {
    type Value = Node<'a>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node<'a>, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node<'a>, E> {
        Ok(Node::Bool(value))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node<'a>, E> {
        Ok(Node::Unsigned(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node<'a>, E> {
        Ok(u64::try_from(number).map_or(Node::Signed(number), Node::Unsigned))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Node<'a>, E> {
        if number.is_finite() {
            Ok(Node::Float(number))
        } else {
            Err(E::custom("a number is out of range"))
        }
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Node<'a>, E> {
        Ok(Node::Text(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node<'a>, E> {
        Ok(Node::Text(self.0.alloc_str(text)))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<Node<'a>, A::Error> {
        let mut list = BumpVec::with_capacity_in(LIST_LEN, self.0);
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Node::List(list.into_bump_slice()))
    }

    fn visit_map<A: MapAccess<'a>>(self, mut entries: A) -> Result<Node<'a>, A::Error> {
        let mut map = BumpVec::with_capacity_in(MAP_LEN, self.0);
        while let Some(name) = entries.next_key_seed(self)? {
            let Node::Text(name) = name else {
                return Err(A::Error::custom("a key is no string"));
            };
            map.push((name, entries.next_value_seed(self)?));
        }
        Ok(map_of(map))
    }
}

/// The map of some entries.
pub(super) fn map_of<'a>(mut entries: BumpVec<'a, (&'a str, Node<'a>)>) -> Node<'a> {
    if !entries.is_sorted_by(|before, after| before.0 < after.0) {
        // Of a key that comes twice the last value counts, as everywhere with JSON.
        entries.reverse();
        entries.sort_by(|a, b| a.0.cmp(b.0));
        entries.dedup_by(|later, first| later.0 == first.0);
    }
    Node::Map(entries.into_bump_slice())
}
