//! A document at rest: small, immutable, cheap to share.
//!
//! What is inside is nobody's business: today it is the document's JSON with sorted keys, compressed where that pays.
//! Only this file knows.

use std::fmt;
use std::sync::Arc;

use crate::Value;

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

struct Content {
    hash: ContentHash,
    /// Length of the JSON text in bytes.
    len: usize,
    form: Form,
}

enum Form {
    Plain(Box<[u8]>),
    Lz4(Box<[u8]>),
}

/// Shorter texts are not worth a decompression.
const COMPRESS_FROM: usize = 256;

impl Document {
    /// Keeps a value.
    pub fn from_value(value: &Value) -> Self {
        Self::from_canonical(serde_json::to_vec(value).expect("a value always has a JSON text"))
    }

    /// Keeps a document given as JSON text in any spelling.
    pub fn from_json(json: &[u8]) -> Result<Self, Error> {
        let value: Value = serde_json::from_slice(json).map_err(Error)?;
        Ok(Self::from_value(&value))
    }

    /// The document to work on.
    pub fn value(&self) -> Value {
        self.with_json(|json| {
            serde_json::from_slice(json).expect("a document holds the JSON text of a value")
        })
    }

    /// The document's JSON text: keys sorted, no spaces.
    pub fn to_json(&self) -> Vec<u8> {
        self.with_json(<[u8]>::to_vec)
    }

    /// The identity of the content, computed when the document was made.
    pub fn hash(&self) -> ContentHash {
        self.0.hash
    }

    /// The string at a path of names, without building the tree.
    pub fn str_at(&self, path: &[&str]) -> Option<String> {
        self.with_json(|json| {
            let text = scan::value_at(json, path)?;
            if text.first() == Some(&b'"') {
                serde_json::from_slice(text).ok()
            } else {
                None
            }
        })
    }

    /// The part of the document at a path of names, without building the rest of the tree.
    pub fn value_at(&self, path: &[&str]) -> Option<Value> {
        self.with_json(|json| serde_json::from_slice(scan::value_at(json, path)?).ok())
    }

    /// Bytes of memory that the content takes, shared by all clones.
    pub fn stored_len(&self) -> usize {
        let bytes = match &self.0.form {
            Form::Plain(bytes) | Form::Lz4(bytes) => bytes.len(),
        };
        size_of::<Content>() + 2 * size_of::<usize>() + bytes
    }

    /// Length of the JSON text in bytes.
    pub fn json_len(&self) -> usize {
        self.0.len
    }

    fn from_canonical(json: Vec<u8>) -> Self {
        let hash = ContentHash::of(&json);
        let len = json.len();
        let compressed = (len >= COMPRESS_FROM).then(|| lz4_flex::block::compress(&json));
        let form = match compressed {
            Some(compressed) if compressed.len() < len - len / 8 => Form::Lz4(compressed.into_boxed_slice()),
            _ => Form::Plain(json.into_boxed_slice()),
        };
        Self(Arc::new(Content { hash, len, form }))
    }

    fn with_json<T>(&self, read: impl FnOnce(&[u8]) -> T) -> T {
        match &self.0.form {
            Form::Plain(json) => read(json),
            Form::Lz4(compressed) => {
                let json = lz4_flex::block::decompress(compressed, self.0.len)
                    .expect("the document compressed these bytes itself");
                read(&json)
            }
        }
    }
}

impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.0.hash == other.0.hash
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
            .field("hash", &self.0.hash)
            .field("len", &self.0.len)
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

/// Finds a value in compact JSON text that is known to be well formed.
mod scan {
    /// The text of the value at a path of names.
    pub(super) fn value_at<'a>(json: &'a [u8], path: &[&str]) -> Option<&'a [u8]> {
        let mut at = json;
        for name in path {
            at = field(at, name)?;
        }
        Some(&at[..value_len(at)])
    }

    /// What follows the name of a field of the object that `json` starts with.
    fn field<'a>(json: &'a [u8], name: &str) -> Option<&'a [u8]> {
        let mut rest = json.strip_prefix(b"{")?;
        while rest.first() == Some(&b'"') {
            let key = &rest[..string_len(rest)];
            let value = &rest[key.len() + 1..];
            if is_name(key, name) {
                return Some(value);
            }
            rest = &value[value_len(value)..];
            rest = rest.strip_prefix(b",").unwrap_or(rest);
        }
        None
    }

    fn is_name(key: &[u8], name: &str) -> bool {
        let inner = &key[1..key.len() - 1];
        if inner.contains(&b'\\') {
            serde_json::from_slice::<String>(key).is_ok_and(|key| key == name)
        } else {
            inner == name.as_bytes()
        }
    }

    /// Length of the string that starts here, with its quotes.
    fn string_len(json: &[u8]) -> usize {
        let mut at = 1;
        while json[at] != b'"' {
            at += if json[at] == b'\\' { 2 } else { 1 };
        }
        at + 1
    }

    /// Length of the value that starts here.
    fn value_len(json: &[u8]) -> usize {
        let (mut at, mut depth) = (0, 0usize);
        while let Some(byte) = json.get(at) {
            match byte {
                b'"' => at += string_len(&json[at..]) - 1,
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth == 0 => return at,
                b'}' | b']' => depth -= 1,
                b',' if depth == 0 => return at,
                _ => {}
            }
            at += 1;
            if depth == 0 && matches!(byte, b'"' | b'}' | b']') {
                return at;
            }
        }
        at
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
        assert!(document.stored_len() < document.json_len());
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
