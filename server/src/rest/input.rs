//! Requests as they come in by HTTP: pieces of path and query, which are texts, and a JSON body, read into one message.

use std::collections::BTreeMap;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Visitor};
use serde_json::{Error, Map, Value};

/// Messages are not nested deeper than that.
const PATH_LEN_MAX: usize = 16;

/// A message that has not been read yet.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Input {
    /// What a query says of a field; several of a list.
    Texts(Vec<String>),
    /// A part of the body.
    Json(Value),
    /// A message, by fields.
    Fields(BTreeMap<String, Input>),
}

impl Default for Input {
    fn default() -> Self {
        Input::Fields(BTreeMap::new())
    }
}

impl Input {
    /// A body. `null` is how Go writes what is not there.
    pub(super) fn json(mut value: Value) -> Self {
        argosy_api::meta::strip_nulls(&mut value);
        Input::Json(value)
    }

    /// Sets the field at a path to a text; a second one makes it a list if `more`. A path that is longer than any field's is
    /// no field, as every other unknown one: whoever follows it must not run out of stack.
    pub(super) fn set(&mut self, path: &str, text: &str, more: bool) {
        if path.split('.').nth(PATH_LEN_MAX).is_none() {
            self.put(path, text, more);
        }
    }

    fn put(&mut self, path: &str, text: &str, more: bool) {
        let (head, rest) = path
            .split_once('.')
            .map_or((path, None), |(head, rest)| (head, Some(rest)));
        match self {
            Input::Fields(fields) => match rest {
                Some(rest) => fields.entry(head.to_owned()).or_default().put(rest, text, more),
                None => match fields.get_mut(head) {
                    Some(Input::Texts(texts)) if more => texts.push(text.to_owned()),
                    _ => drop(fields.insert(head.to_owned(), Input::Texts(vec![text.to_owned()]))),
                },
            },
            Input::Json(Value::Object(object)) => match rest {
                Some(rest) => {
                    let key = spelling(object, head).unwrap_or_else(|| head.to_owned());
                    let inner = object
                        .entry(&key)
                        .or_insert_with(|| Value::Object(Default::default()))
                        .take();
                    let mut inner = Input::Json(inner);
                    inner.put(rest, text, more);
                    if let Input::Json(inner) = inner {
                        object.insert(key, inner);
                    }
                }
                None => {
                    object.retain(|key, _| !key.eq_ignore_ascii_case(head));
                    object.insert(head.to_owned(), Value::String(text.to_owned()));
                }
            },
            // Whatever else stands there is no message; reading it will say so.
            Input::Json(_) | Input::Texts(_) => {}
        }
    }

    fn text(self) -> Result<String, Error> {
        match self {
            Input::Texts(mut texts) => Ok(texts.pop().unwrap_or_default()),
            _ => Err(Error::custom("a text is expected")),
        }
    }
}

/// How a document spells the key of a field: as the field is called, or else in another case, in which Go finds it too.
fn spelling(object: &Map<String, Value>, field: &str) -> Option<String> {
    if object.contains_key(field) {
        return Some(field.to_owned());
    }
    object.keys().find(|key| key.eq_ignore_ascii_case(field)).cloned()
}

/// A document with its keys spelled as the fields of a message. A key that is no field's stays as it is.
fn spelled(mut object: Map<String, Value>, fields: &[&str]) -> Map<String, Value> {
    if object.keys().all(|key| fields.contains(&key.as_str())) {
        return object;
    }
    let mut spelled = Map::new();
    for field in fields {
        if let Some(value) = spelling(&object, field).and_then(|key| object.remove(&key)) {
            spelled.insert((*field).to_owned(), value);
        }
    }
    // Of two spellings of one field one counts.
    object.retain(|key, _| !fields.iter().any(|field| key.eq_ignore_ascii_case(field)));
    spelled.extend(object);
    spelled
}

impl IntoDeserializer<'_, Error> for Input {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parsed {
    ($($method:ident $visit:ident $kind:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self {
                Input::Json(value) => value.$method(visitor),
                other => {
                    let text = other.text()?;
                    let read = text.parse().map_err(|_| Error::custom(format!("{text:?} is not {}", $kind)))?;
                    visitor.$visit(read)
                }
            }
        }
    )*};
}

macro_rules! as_any {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.deserialize_any(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Input {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Input::Texts(mut texts) => visitor.visit_string(texts.pop().unwrap_or_default()),
            Input::Json(value) => value.deserialize_any(visitor),
            Input::Fields(fields) => visitor.visit_map(MapDeserializer::new(fields.into_iter())),
        }
    }

    parsed! {
        deserialize_bool visit_bool "a boolean";
        deserialize_i8 visit_i8 "a number";
        deserialize_i16 visit_i16 "a number";
        deserialize_i32 visit_i32 "a number";
        deserialize_i64 visit_i64 "a number";
        deserialize_u8 visit_u8 "a number";
        deserialize_u16 visit_u16 "a number";
        deserialize_u32 visit_u32 "a number";
        deserialize_u64 visit_u64 "a number";
        deserialize_f32 visit_f32 "a number";
        deserialize_f64 visit_f64 "a number";
    }

    as_any! {
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_identifier
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Input::Json(Value::Null) => visitor.visit_none(),
            other => visitor.visit_some(other),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Input::Fields(fields) => visitor.visit_map(MapDeserializer::new(fields.into_iter())),
            Input::Json(Value::Object(object)) => {
                let fields = object.into_iter().map(|(key, value)| (key, Input::Json(value)));
                visitor.visit_map(MapDeserializer::new(fields))
            }
            // A list of values in the order of the fields would do for serde; it is no message.
            Input::Json(_) | Input::Texts(_) => Err(Error::custom("a message is expected")),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Input::Texts(texts) => {
                let each = texts.into_iter().map(|text| Input::Texts(vec![text]));
                visitor.visit_seq(SeqDeserializer::new(each))
            }
            Input::Json(Value::Array(list)) => {
                visitor.visit_seq(SeqDeserializer::new(list.into_iter().map(Input::Json)))
            }
            Input::Json(_) | Input::Fields(_) => Err(Error::custom("a list is expected")),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Input::Json(Value::Object(object)) => {
                Input::Json(Value::Object(spelled(object, fields))).deserialize_map(visitor)
            }
            other => other.deserialize_map(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Input::Json(value) => value.deserialize_enum(name, variants, visitor),
            other => visitor.visit_enum(other.text()?.into_deserializer()),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use argosy_api::services::application::{
        ApplicationQuery, ApplicationSyncRequest, ApplicationUpdateRequest,
    };
    use argosy_api::services::cluster::ClusterQuery;
    use argosy_api::v1alpha1::KustomizeSelector;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_of_a_query_become_what_the_field_is() {
        let mut input = Input::default();
        for (path, text) in [
            ("name", "a"),
            ("projects", "x"),
            ("projects", "y"),
            ("unknown", "z"),
        ] {
            input.set(path, text, true);
        }
        let query = ApplicationQuery::deserialize(input).unwrap();
        assert_eq!(query.name.as_deref(), Some("a"));
        assert_eq!(query.projects, ["x", "y"]);

        let mut input = Input::default();
        input.set("id.type", "name", true);
        input.set("id.value", "in-cluster", false);
        let id = ClusterQuery::deserialize(input).unwrap().id.unwrap();
        assert_eq!((id.r#type.as_str(), id.value.as_str()), ("name", "in-cluster"));
    }

    #[test]
    fn a_path_that_leads_too_deep_is_no_field() {
        let mut input = Input::default();
        input.set(&["a"; 30_000].join("."), "x", true);
        assert_eq!(input, Input::default());
        input.set("application.spec.source.helm.version", "v3", true);
        assert_ne!(input, Input::default());
    }

    #[test]
    fn the_path_wins_over_the_body() {
        let mut input =
            Input::json(json!({"name": "other", "dryRun": true, "revision": null, "strategy": null}));
        input.set("name", "a", false);
        let request = ApplicationSyncRequest::deserialize(input).unwrap();
        assert_eq!((request.name.as_str(), request.dry_run), ("a", Some(true)));

        let mut input = Input::default();
        if let Input::Fields(fields) = &mut input {
            fields.insert(
                "application".into(),
                Input::json(json!({"metadata": {"name": "b"}, "spec": {"project": "p"}})),
            );
        }
        input.set("application.metadata.name", "a", false);
        let request = ApplicationUpdateRequest::deserialize(input).unwrap();
        assert_eq!(request.application.metadata.name, "a");
        assert_eq!(request.application.spec.project, "p");
    }

    #[test]
    fn fields_of_a_body_are_found_in_any_case() {
        let mut input = Input::json(
            json!({"Name": "a", "DRYRUN": true, "Strategy": {"Hook": {"Force": true}},
            "Resources": [{"Kind": "Pod", "name": "one"}], "other": 1}),
        );
        input.set("name", "b", false);
        let request = ApplicationSyncRequest::deserialize(input).unwrap();
        assert_eq!((request.name.as_str(), request.dry_run), ("b", Some(true)));
        assert!(request.strategy.unwrap().hook.unwrap().sync_strategy_apply.force);
        assert_eq!(
            (
                request.resources[0].kind.as_str(),
                request.resources[0].name.as_str()
            ),
            ("Pod", "one")
        );

        // Fields that JSON holds inline in the message around them are no exception.
        let selector = Input::json(json!({"Kind": "Deployment", "NAME": "web", "labelselector": "a=b"}));
        let selector = KustomizeSelector::deserialize(selector).unwrap();
        assert_eq!(selector.res_id.gvk.kind, "Deployment");
        assert_eq!(
            (selector.res_id.name.as_str(), selector.label_selector.as_str()),
            ("web", "a=b")
        );

        // Keys of maps are people's own words.
        let mut input = Input::default();
        if let Input::Fields(fields) = &mut input {
            let labels = json!({"Labels": {"Name": "A", "name": "b"}});
            fields.insert(
                "application".into(),
                Input::json(json!({"Metadata": labels, "spec": {"Project": "p"}})),
            );
        }
        input.set("application.metadata.name", "a", false);
        let request = ApplicationUpdateRequest::deserialize(input).unwrap();
        assert_eq!(request.application.metadata.name, "a");
        assert_eq!(request.application.spec.project, "p");
        assert_eq!(request.application.metadata.labels["Name"], "A");
        assert_eq!(request.application.metadata.labels["name"], "b");
    }

    #[test]
    fn a_text_that_does_not_fit_says_so() {
        let mut input = Input::default();
        input.set("dryRun", "perhaps", true);
        let error = ApplicationSyncRequest::deserialize(input)
            .unwrap_err()
            .to_string();
        assert!(error.contains("\"perhaps\" is not a boolean"), "{error}");
    }

    #[test]
    fn nulls_inside_helm_values_stay() {
        let input =
            Input::json(json!({"spec": {"source": {"helm": {"valuesObject": {"a": null}}, "path": null}}}));
        let Input::Json(value) = input else {
            panic!("a body is JSON")
        };
        assert_eq!(
            value,
            json!({"spec": {"source": {"helm": {"valuesObject": {"a": null}}}}})
        );
    }
}
