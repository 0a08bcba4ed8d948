//! Reading typed fields of a live object: absent is the zero value, as in the Kubernetes API, but a wrong type is an error with its place.

use argosy_object::Value;

/// A field that has another type than its kind says.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("failed to convert unstructured {kind} to typed: {path} is not {expected}")]
pub(crate) struct Malformed {
    kind: &'static str,
    path: String,
    expected: &'static str,
}

/// A position in an object of a known kind.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    kind: &'static str,
    value: Option<&'a Value>,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(kind: &'static str, object: &'a Value) -> Self {
        Self {
            kind,
            value: Some(object),
        }
    }

    fn error(&self, path: &[&str], expected: &'static str) -> Malformed {
        Malformed {
            kind: self.kind,
            path: path.join("."),
            expected,
        }
    }

    fn get(&self, path: &[&str]) -> Option<&'a Value> {
        let mut value = self.value?;
        for name in path {
            value = value.get(name)?;
        }
        (!value.is_null()).then_some(value)
    }

    /// The value at `path`, seen as a position; absent is fine.
    pub(crate) fn at(&self, path: &[&str]) -> Self {
        Self {
            kind: self.kind,
            value: self.get(path),
        }
    }

    /// The value itself.
    pub(crate) fn value(&self) -> Option<&'a Value> {
        self.value
    }

    pub(crate) fn exists(&self) -> bool {
        self.value.is_some()
    }

    /// An integer, 0 if absent.
    pub(crate) fn int(&self, path: &[&str]) -> Result<i64, Malformed> {
        Ok(self.optional_int(path)?.unwrap_or(0))
    }

    /// An integer that may be absent.
    pub(crate) fn optional_int(&self, path: &[&str]) -> Result<Option<i64>, Malformed> {
        match self.get(path) {
            None => Ok(None),
            // A Go integer field also takes a float without fraction.
            Some(value) => match value.as_i64().or_else(|| whole(value.as_f64()?)) {
                Some(number) => Ok(Some(number)),
                None => Err(self.error(path, "an integer")),
            },
        }
    }

    /// A text, empty if absent.
    pub(crate) fn text(&self, path: &[&str]) -> Result<&'a str, Malformed> {
        match self.get(path) {
            None => Ok(""),
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(self.error(path, "a string")),
        }
    }

    /// A truth value, false if absent.
    pub(crate) fn truth(&self, path: &[&str]) -> Result<bool, Malformed> {
        match self.get(path) {
            None => Ok(false),
            Some(Value::Bool(truth)) => Ok(*truth),
            Some(_) => Err(self.error(path, "a boolean")),
        }
    }

    /// The items of a list, none if absent.
    pub(crate) fn list(&self, path: &[&str]) -> Result<impl Iterator<Item = Fields<'a>> + Clone, Malformed> {
        let items: &[Value] = match self.get(path) {
            None => &[],
            Some(Value::Array(items)) => items,
            Some(_) => return Err(self.error(path, "a list")),
        };
        let kind = self.kind;
        Ok(items.iter().map(move |value| Fields {
            kind,
            value: Some(value),
        }))
    }
}

fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < 9.0e15).then_some(number as i64)
}
