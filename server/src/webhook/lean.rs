//! A payload without what nobody asks for. As a tree of values it would take many times the room of its text, and anybody may send
//! one that is nothing but values.

use std::cell::Cell;
use std::fmt;

use argosy_runtime::bounds::{self, Limit};
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Keys below which something is looked for.
const KEYS: &[&str] = &[
    "action",
    "added",
    "changes",
    "clone",
    "clone_url",
    "commits",
    "container_metadata",
    "defaultBranch",
    "default_branch",
    "eventType",
    "event_data",
    "href",
    "html",
    "html_url",
    "id",
    "links",
    "login",
    "mainbranch",
    "modified",
    "name",
    "new",
    "object_kind",
    "owner",
    "package",
    "package_version",
    "project",
    "push",
    "ref",
    "refUpdates",
    "remoteUrl",
    "removed",
    "repository",
    "resource",
    "resource_url",
    "resources",
    "tag",
    "total_commits_count",
    "type",
    "web_url",
];
/// Values that are kept. A push that changes more files than that is looked at at the next look at its repository.
const VALUES_MAX: usize = 200_000;

/// Reads what matters of a payload.
///
/// # Errors
/// When it is not JSON, or has too many values.
pub(super) fn read(body: &[u8]) -> Result<Value, serde_json::Error> {
    let left = Cell::new(VALUES_MAX);
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = Lean(&left).deserialize(&mut json)?;
    json.end()?;
    Ok(value)
}

struct Lean<'a>(&'a Cell<usize>);

impl<'de> DeserializeSeed<'de> for Lean<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Lean<'_> {
    fn take<E: Error>(&self) -> Result<(), E> {
        let left = self.0.get().checked_sub(1).ok_or_else(|| {
            bounds::exceeded(Limit::WebhookPayload);
            E::custom(format!("it has more than {VALUES_MAX} values"))
        })?;
        self.0.set(left);
        Ok(())
    }
}

impl<'de> Visitor<'de> for Lean<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.take()?;
        Ok(text.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut kept = Vec::new();
        while let Some(value) = list.next_element_seed(Lean(self.0))? {
            // Nothing is looked for among numbers.
            if value.is_string() || value.is_object() {
                kept.push(value);
            }
        }
        Ok(kept.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        self.take()?;
        let mut kept = Map::new();
        while let Some(key) = object.next_key::<String>()? {
            if KEYS.contains(&key.as_str()) {
                kept.insert(key, object.next_value_seed(Lean(self.0))?);
            } else {
                object.next_value::<IgnoredAny>()?;
            }
        }
        Ok(kept.into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn what_nobody_asks_for_is_not_kept() {
        let payload = json!({"ref": "refs/heads/main", "sender": {"name": "x", "list": [1, 2]},
            "commits": [{"id": "c", "message": "long", "added": ["a", 1, null, [2]]}], "total_commits_count": 3});
        let read = read(payload.to_string().as_bytes()).unwrap();
        assert_eq!(
            read,
            json!({"ref": "refs/heads/main", "commits": [{"id": "c", "added": ["a"]}], "total_commits_count": 3})
        );
    }

    #[test]
    fn a_payload_that_is_all_values_takes_no_room() {
        let numbers = format!("{{\"commits\":[{}1]}}", "1,".repeat(1_000_000));
        assert_eq!(read(numbers.as_bytes()).unwrap(), json!({"commits": []}));
        let texts = format!("{{\"commits\":[{}1]}}", "\"\",".repeat(VALUES_MAX + 1));
        assert!(read(texts.as_bytes()).unwrap_err().to_string().contains("values"));
        assert!(read(b"{} {}").is_err() && read(b"{").is_err() && read(&b"[".repeat(1_000_000)).is_err());
    }
}
