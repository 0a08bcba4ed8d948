//! The kinds that tables hold.

use std::collections::BTreeMap;

use argosy_api::meta::ObjectMeta;
use argosy_api::v1alpha1::{AppProject, Application, ApplicationSet};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::project_of;
use super::table::Row;

/// A ConfigMap.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ConfigMap {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its texts.
    pub data: BTreeMap<String, String>,
}

/// A Secret. It has no Debug, so that no log holds one by mistake.
#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Secret {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its values, decoded.
    #[serde(deserialize_with = "decoded")]
    pub data: BTreeMap<String, Vec<u8>>,
}

impl Secret {
    /// A value as text.
    pub(crate) fn text(&self, key: &str) -> String {
        self.data
            .get(key)
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .unwrap_or_default()
    }
}

fn decoded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Vec<u8>>, D::Error> {
    let texts = Option::<BTreeMap<String, String>>::deserialize(deserializer)?.unwrap_or_default();
    texts
        .into_iter()
        .map(|(key, text)| {
            // The value stays out of the message.
            let bytes = STANDARD
                .decode(&text)
                .map_err(|_| D::Error::custom(format!("data.{key} is not base64")))?;
            Ok((key, bytes))
        })
        .collect()
}

/// An Application is looked for by its project, and one that was deleted is told to those who watch again: 1000 of 5 kB
/// each are 5 MB.
impl Row for Application {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn group(&self) -> &str {
        project_of(self)
    }

    const GONE_MAX: usize = 1000;
}

macro_rules! rows {
    ($($kind:ty),*) => {$(
        impl Row for $kind {
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    )*};
}

rows!(AppProject, ApplicationSet, ConfigMap, Secret);
