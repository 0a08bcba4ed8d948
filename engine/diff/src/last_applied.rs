//! What client-side apply applied last, as it stands in the annotation of the live object.

use std::fmt;

use argosy_object::Value;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The object in the annotation, or what is wrong with it.
pub(crate) fn read(text: &str) -> Result<Value, String> {
    match serde_json::from_str::<Value>(text) {
        Ok(base) if base.is_object() => Ok(base),
        Ok(_) => Err("is not an object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether `text` is `document`, without building another document of it.
pub(crate) fn is(text: &str, document: &Value) -> bool {
    let mut read = serde_json::Deserializer::from_str(text);
    Same(document).deserialize(&mut read).is_ok() && read.end().is_ok()
}

/// Reads a value that must be this one; anything else is an error, which ends the reading.
struct Same<'v>(&'v Value);

impl Same<'_> {
    fn check<E: Error>(&self, same: bool) -> Result<(), E> {
        if same {
            Ok(())
        } else {
            Err(E::custom("is another"))
        }
    }
}

impl<'de> DeserializeSeed<'de> for Same<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, read: D) -> Result<(), D::Error> {
        read.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Same<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the same value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.check(self.0.is_null())
    }

    fn visit_bool<E: Error>(self, read: bool) -> Result<(), E> {
        self.check(self.0.as_bool() == Some(read))
    }

    fn visit_i64<E: Error>(self, read: i64) -> Result<(), E> {
        self.check(*self.0 == read)
    }

    fn visit_u64<E: Error>(self, read: u64) -> Result<(), E> {
        self.check(*self.0 == read)
    }

    fn visit_f64<E: Error>(self, read: f64) -> Result<(), E> {
        self.check(*self.0 == read)
    }

    fn visit_str<E: Error>(self, read: &str) -> Result<(), E> {
        self.check(self.0.as_str() == Some(read))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut read: A) -> Result<(), A::Error> {
        let items = self.0.as_array().map(Vec::as_slice).unwrap_or_default();
        for item in items {
            let read = read.next_element_seed(Same(item))?;
            self.check(read.is_some())?;
        }
        let more = read.next_element::<serde::de::IgnoredAny>()?;
        self.check(self.0.is_array() && more.is_none())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut read: A) -> Result<(), A::Error> {
        let Some(fields) = self.0.as_object() else {
            return self.check(false);
        };
        // Writers put names in order, and then each is the next one here. A name that comes twice is taken for another document.
        let mut next = fields.iter();
        while let Some(found) = read.next_key_seed(Name(&mut next))? {
            read.next_value_seed(Same(found))?;
        }
        self.check(next.next().is_none())
    }
}

/// Reads the name of the next field of an object, and gives that field.
struct Name<'i, 'v>(&'i mut serde_json::map::Iter<'v>);

impl<'de, 'v> DeserializeSeed<'de> for Name<'_, 'v> {
    type Value = &'v Value;

    fn deserialize<D: Deserializer<'de>>(self, read: D) -> Result<&'v Value, D::Error> {
        read.deserialize_str(self)
    }
}

impl<'v> Visitor<'_> for Name<'_, 'v> {
    type Value = &'v Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of the next field")
    }

    fn visit_str<E: Error>(self, read: &str) -> Result<&'v Value, E> {
        match self.0.next() {
            Some((name, field)) if name == read => Ok(field),
            _ => Err(E::custom("is another")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_is_a_document_or_is_not() {
        let document = json!({"a": [1, -2, 1.5, true, null, "x\"<"], "b": {"c": {}, "d": []}, "e": 18446744073709551615_u64});
        assert!(is(&document.to_string(), &document));
        assert!(is(&format!("{document}\n"), &document));
        assert!(is(&document.to_string().replace('<', "\\u003c"), &document));
        for other in [
            json!({}),
            json!([]),
            json!(null),
            json!({"a": [1, -2, 1.5, true, null], "b": {"c": {}, "d": []}, "e": 18446744073709551615_u64}),
            json!({"a": [1, -2, 1.5, true, null, "x\"<", 1], "b": {"c": {}, "d": []}, "e": 18446744073709551615_u64}),
            json!({"a": [1, -2, 1.5, true, null, "x\"<"], "b": {"c": {}, "d": {}}, "e": 18446744073709551615_u64}),
            json!({"a": [1, -2, 1.5, true, null, "x\"<"], "b": {"c": {}}, "e": 18446744073709551615_u64}),
            json!({"a": [1, -2, 1.5, true, null, "x\"<"], "b": {"c": {}, "d": []}, "e": 1}),
            json!({"a": [1, -2, 1.5, true, null, "x\"<"], "b": {"c": {}, "d": []}, "e": 18446744073709551615_u64, "f": 1}),
        ] {
            assert!(!is(&other.to_string(), &document), "{other}");
            assert!(!is(&document.to_string(), &other), "{other}");
        }
        assert!(!is("{", &document));
        assert!(!is(&format!("{document} more"), &document));
    }

    #[test]
    fn what_is_no_object_is_no_last_apply() {
        assert_eq!(read("{\"a\": 1}"), Ok(json!({"a": 1})));
        assert_eq!(read("[]"), Err("is not an object".to_owned()));
        assert!(read("{").is_err());
    }
}
