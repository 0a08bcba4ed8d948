//! The schemas that an API server publishes.
//!
//! OpenAPI v3 is an index and one document for each group and version, every one with a hash in its URL. A document is
//! fetched once for each hash and kept while somebody uses it; schemas made from the same documents are the same
//! schemas. So a hundred clusters of one version and one set of CRDs hold them once.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Weak};

use argosy_object::schema::Schemas;
use argosy_object::{ContentHash, Value};
use futures::{StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::client::{Call, Client, decode};
use crate::error::Error;

/// Documents fetched at once from one server. Each is up to a few MB.
const PARALLEL: usize = 4;

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

/// All schemas of the server, or those that another server with the same documents has given already.
///
/// # Errors
/// If the index or one of the documents cannot be had. The schemas known before stay right for their kinds.
pub async fn schemas(client: &Client) -> Result<Arc<Schemas>, Error> {
    let documents = index(client).await?;
    // A document without a hash cannot be known to be the same; it is keyed by its server.
    let key: Vec<String> = documents
        .iter()
        .map(|document| match document.hash() {
            "" => format!("{} {}", client.server(), document.url),
            hash => format!("{} {hash}", document.path),
        })
        .collect();
    let key = ContentHash::of(key.join("\n").as_bytes());
    if let Some(known) = SCHEMAS.lock().get(&key).and_then(Weak::upgrade) {
        return Ok(known);
    }
    let values: Vec<Value> = futures::stream::iter(documents)
        .map(|document| async move {
            let call = Call::get(format!("get schemas of {}", document.path), document.url);
            let answer = client.call(&call).await?;
            decode::<Value>(&call.what, &answer.body)
        })
        .buffered(PARALLEL)
        .try_collect()
        .await?;
    let made = Schemas::from_openapi_v3(&values);
    let mut known = SCHEMAS.lock();
    known.retain(|_, schemas| schemas.strong_count() > 0);
    known.insert(key, Arc::downgrade(&made));
    Ok(made)
}
