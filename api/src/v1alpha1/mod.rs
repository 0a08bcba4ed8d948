//! Group `argoproj.io`, version `v1alpha1`: every stored kind, and the types that the APIs share with them.
//!
//! One Rust struct stands for each message. Its serde derive is the JSON of stored objects and of the REST API, with
//! the omissions that Argo CD makes; its prost derive is the gRPC wire with Argo CD's field numbers; its schemars derive
//! becomes the CRDs of [`crate::crd`]. Values of a closed set stay texts, because a stored object may hold one that is
//! newer than this program; the enums of [`codes`] read and write them.
//!
//! Proto names become Rust names the usual way (`repoURL` is `repo_url`, `JWTToken` is `JwtToken`), so a doc comment
//! stands where the name alone does not tell.
#![allow(missing_docs)] // of fields whose name says it

mod application;
mod applicationset;
mod cluster;
mod codes;
mod generator;
mod operation;
mod project;
mod repository;
mod resource_override;
mod source;
mod status;
mod tree;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use crate::meta::GroupKind;

pub use application::*;
pub use applicationset::*;
pub use cluster::*;
pub use codes::*;
pub use generator::*;
pub use operation::*;
pub use project::*;
pub use repository::*;
pub use resource_override::*;
pub use source::*;
pub use status::*;
pub use tree::*;

pub(crate) use codes::words;

use crate::meta::ObjectMeta;

/// The API group of every kind here.
pub const GROUP: &str = "argoproj.io";
/// The version of every kind here.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of every kind here.
pub const API_VERSION: &str = "argoproj.io/v1alpha1";

/// A kind that is stored in Kubernetes. The structs hold no `apiVersion` and `kind`: as in Argo CD's own API they
/// belong to the envelope, which these functions put on and take off.
pub trait Stored: Serialize + DeserializeOwned {
    /// The kind.
    const KIND: &'static str;
    /// Its name in URLs.
    const PLURAL: &'static str;

    /// The metadata.
    fn metadata(&self) -> &ObjectMeta;
    /// The metadata, to change.
    fn metadata_mut(&mut self) -> &mut ObjectMeta;

    /// The document as it is sent to Kubernetes.
    fn to_document(&self) -> Value {
        let mut document =
            serde_json::to_value(self).expect("invariant: these structs have text keys and valid raw JSON");
        document["apiVersion"] = API_VERSION.into();
        document["kind"] = Self::KIND.into();
        document
    }

    /// Reads a document that Kubernetes answered with. Fields that are unknown here are passed over.
    ///
    /// # Errors
    /// When the document is of another kind, or a field is of another type than declared.
    fn from_document(document: &Value) -> Result<Self, DecodeError> {
        let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
        let found = (text("apiVersion"), text("kind"));
        if found != (API_VERSION, Self::KIND) {
            return Err(DecodeError::Kind {
                expected: Self::KIND,
                api_version: found.0.to_owned(),
                kind: found.1.to_owned(),
            });
        }
        serde::Deserialize::deserialize(document).map_err(|source| DecodeError::Field {
            kind: Self::KIND,
            name: name_of(document),
            source,
        })
    }
}

fn name_of(document: &Value) -> String {
    let meta = |key: &str| document.pointer(key).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}", meta("/metadata/namespace"), meta("/metadata/name"))
}

/// Why a document could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The document is something else.
    #[error("read {expected}: the document is a {kind} of {api_version}")]
    Kind {
        /// The kind asked for.
        expected: &'static str,
        /// `apiVersion` of the document.
        api_version: String,
        /// `kind` of the document.
        kind: String,
    },
    /// A field does not have the declared type.
    #[error("read {kind} {name}")]
    Field {
        /// The kind asked for.
        kind: &'static str,
        /// `namespace/name`.
        name: String,
        /// What serde found.
        source: serde_json::Error,
    },
}

macro_rules! stored {
    ($($type:ident, $plural:literal;)*) => {$(
        impl Stored for $type {
            const KIND: &'static str = stringify!($type);
            const PLURAL: &'static str = $plural;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    )*};
}

stored! {
    Application, "applications";
    AppProject, "appprojects";
    ApplicationSet, "applicationsets";
}
