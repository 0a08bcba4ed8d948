//! The annotations of one object, looked up once for all that a sync asks of them.

use argosy_object::{Map, Value, meta};

/// The annotations of an object, if it has any.
#[derive(Clone, Copy)]
pub(crate) struct Marks<'o>(Option<&'o Map>);

impl<'o> Marks<'o> {
    pub(crate) fn of(object: &'o Value) -> Self {
        Marks(meta::field(object, &["metadata", "annotations"]).and_then(Value::as_object))
    }

    /// The annotation with this key.
    pub(crate) fn text(self, key: &str) -> Option<&'o str> {
        self.0?.get(key)?.as_str()
    }

    /// The entries of an annotation that holds a comma-separated list: trimmed, without empty ones.
    pub(crate) fn list(self, key: &str) -> impl Iterator<Item = &'o str> {
        self.text(key)
            .unwrap_or_default()
            .split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
    }
}
