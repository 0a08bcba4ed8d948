//! A document at rest: small, immutable, cheap to share.
//!
//! Most of what a cluster holds is the same again and again. So a document is kept as what is its own: numbers of shared
//! skeletons and words, and of its leaves those that a document of that skeleton does not usually have.
//!
//! | file | answers |
//! |---|---|
//! | [`tree`] | a document on its way in, in scratch memory |
//! | [`json`] | the fast way there from JSON text |
//! | [`encode`] | how it is cut into sections and written down |
//! | [`code`] | what the bytes mean |
//! | [`typed`] | strings that are ids, times, digests, … |
//! | [`squeeze`] | long texts, made small |
//! | [`shape`] | skeletons, and the templates of their leaves |
//! | [`pool`] | the tables that the process shares |
//! | [`decode`] | the way back, of everything or of one field |

mod code;
mod decode;
mod encode;
mod json;
mod pool;
mod shape;
mod squeeze;
mod tree;
mod typed;

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use bumpalo::Bump;

use crate::Value;
use decode::Decoder;
use tree::Node;

/// A Kubernetes document that is kept rather than worked on. Clones share the content.
#[derive(Clone)]
pub struct Document(Arc<Content>);

/// The identity of a document's content: equal documents, whatever their spelling, have equal hashes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash([u8; 32]);

/// Why bytes are no document.
#[derive(Debug, thiserror::Error)]
#[error("read document as JSON")]
pub struct Error(#[source] serde_json::Error);

/// A document that has arrived and is not kept yet. Reads of it cost nothing.
#[derive(Clone, Copy)]
pub struct Arrived<'a> {
    node: Node<'a>,
    scratch: &'a Bump,
}

struct Content(Box<[u8]>);

impl Drop for Content {
    fn drop(&mut self) {
        code::used_by_document(&self.0, &mut shape::release);
    }
}

/// Scratch memory that a thread keeps for the next document.
const SCRATCH_KEPT: usize = 1 << 20;

impl Document {
    /// Keeps a value.
    pub fn from_value(value: &Value) -> Self {
        Self::view(value, |arrived| arrived.document())
    }

    /// Keeps a document given as JSON text in any spelling.
    pub fn from_json(json: &[u8]) -> Result<Self, Error> {
        Self::read(json, |arrived| arrived.document())
    }

    /// Reads JSON text in any spelling and hands it on, to be looked at and kept.
    pub fn read<T>(json: &[u8], take: impl FnOnce(Arrived<'_>) -> T) -> Result<T, Error> {
        with_scratch(|scratch| {
            let node = Node::read(json, scratch).map_err(Error)?;
            Ok(take(Arrived { node, scratch }))
        })
    }

    /// Looks at a value as at a document that has just arrived.
    pub fn view<T>(value: &Value, take: impl FnOnce(Arrived<'_>) -> T) -> T {
        with_scratch(|scratch| {
            let node = Node::of(value, scratch);
            take(Arrived { node, scratch })
        })
    }

    fn keep(node: Node<'_>, scratch: &Bump) -> Self {
        Self(Arc::new(Content(encode::encode(node, scratch))))
    }

    /// The document to work on.
    pub fn value(&self) -> Value {
        Decoder::new(&self.0.0).value()
    }

    /// The document's JSON text: keys sorted, no spaces.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.value()).expect("a value always has a JSON text")
    }

    /// The identity of the content. Made from all of it at each call.
    pub fn hash(&self) -> ContentHash {
        ContentHash::of_value(&self.value())
    }

    /// The string at a path of names, without building the tree.
    pub fn str_at(&self, path: &[&str]) -> Option<String> {
        match self.value_at(path)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The part of the document at a path of names, without building the rest of the tree.
    pub fn value_at(&self, path: &[&str]) -> Option<Value> {
        Decoder::new(&self.0.0).value_at(path)
    }

    /// `metadata.name`, empty if absent; it costs nothing.
    pub fn name(&self) -> &str {
        Decoder::new(&self.0.0).name()
    }

    /// Whether `metadata.namespace` is this.
    pub fn is_in(&self, namespace: &str) -> bool {
        Decoder::new(&self.0.0).namespace() == namespace
    }

    /// `metadata.namespace`, empty if absent; cheaper than a read of the field.
    pub fn namespace(&self) -> String {
        Decoder::new(&self.0.0).namespace().into_owned()
    }

    /// `metadata.uid`, empty if absent; cheaper than a read of the field.
    pub fn uid(&self) -> String {
        Decoder::new(&self.0.0).uid().into_owned()
    }

    /// `metadata.resourceVersion`, empty if absent; cheaper than a read of the field.
    pub fn resource_version(&self) -> String {
        Decoder::new(&self.0.0).version().into_owned()
    }

    /// Bytes of memory that are this document's own, shared by all clones. What it has in common with others is not counted.
    pub fn stored_len(&self) -> usize {
        size_of::<Content>() + 2 * size_of::<usize>() + self.0.0.len()
    }

    /// Words and shapes that all documents of the process share now.
    pub fn shared() -> (usize, usize) {
        (shape::WORDS.len(), shape::SHAPES.len())
    }
}

impl Arrived<'_> {
    /// The string at a path of names.
    pub fn str_at(&self, path: &[&str]) -> Option<&str> {
        self.node.text_at(path)
    }

    /// The part of the document at a path of names.
    pub fn value_at(&self, path: &[&str]) -> Option<Value> {
        self.node.at(path).map(|node| node.value())
    }

    /// The whole document, to work on.
    pub fn value(&self) -> Value {
        self.node.value()
    }

    /// Who the document is and what is written on it: apiVersion, kind, type, and of metadata all but managedFields and
    /// annotations of more than [`LARGE`] bytes.
    pub fn label(&self) -> Value {
        let mut label = crate::Map::new();
        for name in ["apiVersion", "kind", "type"] {
            if let Some(node) = self.node.at(&[name]) {
                label.insert(name.to_owned(), node.value());
            }
        }
        if let Some(Node::Map(entries)) = self.node.at(&["metadata"]) {
            let small = |node: &Node<'_>| !matches!(node, Node::Text(text) if text.len() > LARGE);
            let mut metadata = crate::Map::new();
            for (name, node) in entries.iter().filter(|(name, _)| *name != "managedFields") {
                let value = match node {
                    Node::Map(entries) => {
                        let kept = entries.iter().filter(|(_, node)| small(node));
                        Value::Object(
                            kept.map(|(name, node)| ((*name).to_owned(), node.value()))
                                .collect(),
                        )
                    }
                    node => node.value(),
                };
                metadata.insert((*name).to_owned(), value);
            }
            label.insert("metadata".to_owned(), Value::Object(metadata));
        }
        Value::Object(label)
    }

    /// Keeps the document.
    pub fn document(&self) -> Document {
        Document::keep(self.node, self.scratch)
    }
}

impl<'a> Arrived<'a> {
    /// The part of the document at a path of names, to look at.
    pub fn at(&self, path: &[&str]) -> Option<Arrived<'a>> {
        let node = self.node.at(path)?;
        Some(Arrived { node, ..*self })
    }

    /// The items of a list; none of anything else.
    pub fn items(&self) -> impl Iterator<Item = Arrived<'a>> + use<'a> {
        let (items, scratch) = match self.node {
            Node::List(items) => (items, self.scratch),
            _ => (&[][..], self.scratch),
        };
        items.iter().map(move |node| Arrived { node: *node, scratch })
    }

    /// The same with `apiVersion` and `kind` where it has none, as in lists of built-in kinds.
    #[must_use]
    pub fn stamped(self, api_version: &'a str, kind: &'a str) -> Self {
        let node = self.node.with("apiVersion", api_version, self.scratch);
        Arrived {
            node: node.with("kind", kind, self.scratch),
            ..self
        }
    }
}

/// Annotations longer than this are not part of a label: what client-side apply records.
const LARGE: usize = 1024;

fn with_scratch<T>(work: impl FnOnce(&Bump) -> T) -> T {
    thread_local! {
        static SCRATCH: RefCell<Bump> = RefCell::default();
    }
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => {
            let out = work(&scratch);
            if scratch.allocated_bytes() > SCRATCH_KEPT {
                *scratch = Bump::new();
            } else {
                scratch.reset();
            }
            out
        }
        // Somebody keeps a document while looking at another.
        Err(_) => work(&Bump::new()),
    })
}

impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        // The same content may be written in several ways, depending on what was known of others at the time.
        if Arc::ptr_eq(&self.0, &other.0) || self.0.0 == other.0.0 {
            return true;
        }
        let (one, two) = (Decoder::new(&self.0.0), Decoder::new(&other.0.0));
        one.name() == two.name() && one.version() == two.version() && one.value() == two.value()
    }
}

impl Eq for Document {}

impl From<&Value> for Document {
    fn from(value: &Value) -> Self {
        Self::from_value(value)
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("name", &self.name())
            .field("bytes", &self.0.0.len())
            .finish()
    }
}

impl ContentHash {
    /// The hash of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The hash of a value, which is that of its document.
    pub fn of_value(value: &Value) -> Self {
        let mut hasher = blake3::Hasher::new();
        serde_json::to_writer(&mut hasher, value).expect("a value always has a JSON text");
        Self(*hasher.finalize().as_bytes())
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for ContentHash {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for ContentHash {
    /// Lower-case hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn large() -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "data": {"text": "line\n".repeat(200), "a\"b": "q\\", "nested": "{\"metadata\":1}"},
            "metadata": {"name": "x", "labels": {"app": "y"}, "generation": 3},
        })
    }

    #[test]
    fn what_goes_in_comes_out() {
        for value in [
            json!({}),
            json!(null),
            json!([1, 1.0, -0.5, u64::MAX, "ü"]),
            large(),
        ] {
            assert_eq!(Document::from_value(&value).value(), value);
        }
    }

    #[test]
    fn the_hash_is_of_the_content_and_not_of_its_spelling() {
        let one = Document::from_json(br#"{"b": [1, 2], "a": "\u0041"}"#).unwrap();
        let two = Document::from_json(br#"{"a":"A","b":[1,2]}"#).unwrap();
        assert_eq!(one, two);
        assert_eq!(one.hash(), ContentHash::of_value(&one.value()));
        assert_ne!(
            one.hash(),
            Document::from_json(br#"{"a":"A","b":[1,2.0]}"#).unwrap().hash()
        );
        assert!(Document::from_json(b"{").is_err());
    }

    #[test]
    fn large_text_is_compressed() {
        let document = Document::from_value(&large());
        assert!(document.stored_len() < document.to_json().len() / 2);
    }

    #[test]
    fn one_field_is_read_without_the_rest() {
        let document = Document::from_value(&large());
        assert_eq!(
            document.str_at(&["metadata", "labels", "app"]).as_deref(),
            Some("y")
        );
        assert_eq!(document.str_at(&["data", "a\"b"]).as_deref(), Some("q\\"));
        assert_eq!(document.str_at(&["kind"]).as_deref(), Some("ConfigMap"));
        assert_eq!(document.str_at(&["metadata", "generation"]), None);
        assert_eq!(document.str_at(&["metadata", "uid"]), None);
        assert_eq!(document.str_at(&["kind", "x"]), None);
        assert_eq!(document.value_at(&["metadata", "generation"]), Some(json!(3)));
        assert_eq!(
            document.value_at(&["metadata"]),
            Some(large()["metadata"].clone())
        );
        assert_eq!(document.value_at(&[]), Some(large()));
    }
}
