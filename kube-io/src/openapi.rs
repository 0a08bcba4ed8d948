//! The schemas that an API server publishes.
//!
//! OpenAPI v3 is an index and one document for each group and version, every one with a hash in its URL. A document is
//! fetched once for each hash and kept while somebody uses it; schemas made from the same documents are the same
//! schemas. So a hundred clusters of one version and one set of CRDs hold them once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Weak};

use argosy_object::schema::Schemas;
use argosy_object::{ContentHash, Value};
use futures::StreamExt as _;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::client::{Call, Client, decode};
use crate::error::Error;

/// Documents fetched at once from one server. Each is up to a few MB.
const PARALLEL: usize = 2;

/// A document as far as schemas are made from it: without the texts, and of its paths only who acts on what. That is a
/// small part of it. While the schemas of a server are made, all its documents are held as one ([`Slim::absorb`]).
#[derive(Default, Deserialize)]
struct Slim {
    #[serde(default)]
    paths: BTreeMap<String, BTreeMap<String, Operation>>,
    #[serde(default)]
    components: BTreeMap<String, Textless>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Operation {
    Of {
        #[serde(rename = "x-kubernetes-action")]
        action: Value,
        #[serde(rename = "x-kubernetes-group-version-kind")]
        kind: Value,
    },
    /// Parameters and the like.
    Other(serde::de::IgnoredAny),
}

impl Slim {
    /// Adds what another document has and this one does not: they repeat most of each other's definitions.
    fn absorb(&mut self, other: Slim) {
        self.paths.extend(other.paths);
        for (name, Textless(parts)) in other.components {
            let known = self.components.entry(name).or_insert(Textless(Value::Null));
            match (&mut known.0, parts) {
                (Value::Object(known), Value::Object(parts)) => {
                    for (name, part) in parts {
                        known.entry(name).or_insert(part);
                    }
                }
                (known, parts) => *known = parts,
            }
        }
    }

    fn into_value(self) -> Value {
        let operations = |operations: BTreeMap<String, Operation>| {
            let kept = operations.into_iter().filter_map(|(name, operation)| match operation {
                Operation::Of { action, kind } => Some((
                    name,
                    serde_json::json!({"x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind}),
                )),
                Operation::Other(_) => None,
            });
            Value::Object(kept.collect())
        };
        let paths: serde_json::Map<_, _> = self
            .paths
            .into_iter()
            .map(|(path, all)| (path, operations(all)))
            .collect();
        let components: serde_json::Map<_, _> = self
            .components
            .into_iter()
            .map(|(name, part)| (name, part.0))
            .collect();
        serde_json::json!({"paths": paths, "components": components})
    }
}

/// A value without descriptions: texts under the key `description`. (A property of that name is no text.)
struct Textless(Value);

impl<'de> Deserialize<'de> for Textless {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Value;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON value")
            }
            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_str<E>(self, value: &str) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                let mut list = Vec::new();
                while let Some(Textless(item)) = items.next_element()? {
                    list.push(item);
                }
                Ok(Value::Array(list))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
                let mut map = serde_json::Map::new();
                while let Some((key, Textless(value))) = fields.next_entry::<String, _>()? {
                    if key != "description" || !value.is_string() {
                        map.insert(key, value);
                    }
                }
                Ok(Value::Object(map))
            }
        }

        deserializer.deserialize_any(Visitor).map(Textless)
    }
}

/// Schemas by the hashes of all their documents.
static SCHEMAS: LazyLock<Mutex<HashMap<ContentHash, Weak<Schemas>>>> = LazyLock::new(Mutex::default);

/// One group and version in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// `api/v1` or `apis/GROUP/VERSION`.
    pub path: String,
    /// URL on the server, with the hash.
    pub url: String,
}

impl Document {
    /// The hash of the content, empty if the server gives none.
    fn hash(&self) -> &str {
        self.url
            .split_once("hash=")
            .map_or("", |(_, hash)| hash.split('&').next().unwrap_or_default())
    }
}

/// The documents that the server offers, sorted by path, without those that describe no kinds.
pub async fn index(client: &Client) -> Result<Vec<Document>, Error> {
    #[derive(Deserialize)]
    struct Index {
        paths: BTreeMap<String, Entry>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Entry {
        #[serde(rename = "serverRelativeURL")]
        url: String,
    }
    let call = Call::get("get the index of schemas", "/openapi/v3");
    let answer = client.call(&call).await?;
    let index: Index = decode(&call.what, &answer.body)?;
    let has_kinds =
        |path: &str| path == "api/v1" || path.strip_prefix("apis/").is_some_and(|rest| rest.contains('/'));
    Ok(index
        .paths
        .into_iter()
        .filter(|(path, _)| has_kinds(path))
        .map(|(path, entry)| Document { path, url: entry.url })
        .collect())
}

/// All schemas of the server, or those that another server with the same documents has given already. A document that the server
/// fails to give (the extension server behind it is down, say) is missing with its kinds alone; `missing` remembers which those are,
/// so that the others are not fetched again each time.
///
/// # Errors
/// If the index cannot be had, or no document, or the server goes away meanwhile. The schemas known before stay right for their kinds.
pub async fn schemas(client: &Client, missing: &Mutex<BTreeSet<String>>) -> Result<Arc<Schemas>, Error> {
    let documents = index(client).await?;
    let mut lacking = BTreeSet::new();
    let suspects = missing.lock().clone();
    for document in &documents {
        if suspects.contains(&document.path) && fetch(client, document).await?.is_none() {
            lacking.insert(document.path.clone());
        }
    }
    if let Some(known) = known(key(client, &documents, &lacking)) {
        *missing.lock() = lacking;
        return Ok(known);
    }
    let mut all = Slim::default();
    let mut fetched = futures::stream::iter(documents.clone())
        .map(|document| async move {
            let parts = fetch(client, &document).await;
            (document.path, parts)
        })
        .buffered(PARALLEL);
    let mut lacking = BTreeSet::new();
    while let Some((path, parts)) = fetched.next().await {
        match parts? {
            Some(parts) => all.absorb(parts),
            None => drop(lacking.insert(path)),
        }
    }
    if !documents.is_empty() && lacking.len() == documents.len() {
        return Err(Error::Answer {
            call: "get schemas".to_owned(),
            message: "the server gives none of its documents".to_owned(),
        });
    }
    let key = key(client, &documents, &lacking);
    *missing.lock() = lacking;
    if let Some(known) = known(key) {
        return Ok(known);
    }
    let made = Schemas::from_openapi_v3([&all.into_value()]);
    let mut known = SCHEMAS.lock();
    known.retain(|_, schemas| schemas.strong_count() > 0);
    known.insert(key, Arc::downgrade(&made));
    Ok(made)
}

fn known(key: ContentHash) -> Option<Arc<Schemas>> {
    SCHEMAS.lock().get(&key).and_then(Weak::upgrade)
}

/// What the schemas from these documents are known by.
fn key(client: &Client, documents: &[Document], lacking: &BTreeSet<String>) -> ContentHash {
    let had = documents
        .iter()
        .filter(|document| !lacking.contains(&document.path));
    // A document without a hash cannot be known to be the same; it is keyed by its server.
    let of_each = had.map(|document| match document.hash() {
        "" => format!("{} {}", client.server(), document.url),
        hash => format!("{} {hash}", document.path),
    });
    ContentHash::of(of_each.collect::<Vec<_>>().join("\n").as_bytes())
}

/// One document; none if it is this one that the server fails to give.
async fn fetch(client: &Client, document: &Document) -> Result<Option<Slim>, Error> {
    let call = Call::get(format!("get schemas of {}", document.path), document.url.clone());
    let read = match client.call(&call).await {
        Ok(answer) => decode::<Slim>(&call.what, &answer.body),
        Err(error) => Err(error),
    };
    match read {
        Ok(parts) => Ok(Some(parts)),
        Err(error @ (Error::Answer { .. } | Error::Timeout { .. })) => {
            tracing::debug!(server = client.server(), error = %error, "schemas are missing");
            Ok(None)
        }
        // Who has too much to do says so of everything.
        Err(error) if error.status().is_some() && error.code() != Some(429) => {
            tracing::debug!(server = client.server(), error = %error, "schemas are missing");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_are_held_as_one_in_which_the_first_definition_counts() {
        let document = |path: &str, definitions: Value| -> Slim {
            serde_json::from_value(json!({"paths": {path: {}}, "components": {"schemas": definitions}}))
                .unwrap()
        };
        let mut all = Slim::default();
        all.absorb(document(
            "/a",
            json!({"Meta": {"type": "object"}, "A": {"$ref": "Meta"}}),
        ));
        all.absorb(document("/b", json!({"Meta": {"type": "string"}, "B": {}})));
        assert_eq!(
            all.into_value(),
            json!({
                "paths": {"/a": {}, "/b": {}},
                "components": {"schemas": {"Meta": {"type": "object"}, "A": {"$ref": "Meta"}, "B": {}}},
            })
        );
    }

    #[test]
    fn a_slim_document_keeps_what_schemas_are_made_from() {
        let kind = json!({"group": "", "version": "v1", "kind": "Secret"});
        let document = json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes"},
            "paths": {"/api/v1/namespaces/{namespace}/secrets": {
                "parameters": [{"name": "pretty"}],
                "post": {"description": "create", "responses": {"200": {}}, "x-kubernetes-action": "post",
                    "x-kubernetes-group-version-kind": kind},
            }},
            "components": {"schemas": {"Secret": {
                "description": "a text",
                "properties": {"description": {"type": "string", "description": "its text"}, "n": {"maximum": 1.5}},
                "x-kubernetes-group-version-kind": [kind],
            }}},
        });
        let slim = serde_json::from_value::<Slim>(document).unwrap().into_value();
        assert_eq!(
            slim,
            json!({
                "paths": {"/api/v1/namespaces/{namespace}/secrets": {"post":
                    {"x-kubernetes-action": "post", "x-kubernetes-group-version-kind": kind}}},
                "components": {"schemas": {"Secret": {
                    "properties": {"description": {"type": "string"}, "n": {"maximum": 1.5}},
                    "x-kubernetes-group-version-kind": [kind],
                }}},
            })
        );
    }
}
