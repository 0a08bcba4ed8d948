//! Kubernetes documents: the nouns that every other part of the engine speaks about.
//!
//! A document is a [`Value`] while it is worked on and a [`Document`] while it is kept. Around the two stand what one
//! asks of a document: who it is ([`key`], [`meta`]), where something is in it ([`path`], [`pointer`]), how it
//! comes in and goes out as text ([`yaml`]), what its fields mean ([`schema`]), and when two spellings of a scalar are
//! the same value ([`quantity`], [`duration`]).
//!
//! Nothing here reads a clock, a file or the network. The one piece of process-wide state is the string table in
//! [`intern`], which forgets a string with its last user.

pub mod document;
pub mod duration;
pub mod intern;
pub mod key;
pub mod meta;
pub mod path;
pub mod pointer;
pub mod quantity;
pub mod schema;
pub mod yaml;

pub use document::{Arrived, ContentHash, Document};
pub use intern::{Name, intern};
pub use key::{GroupKind, GroupVersionKind, ResourceKey, api_version, split_api_version};
pub use path::Path;

/// A Kubernetes document, or a part of one, while it is worked on.
///
/// Maps are sorted by key. Integers and floats are kept apart, as the Kubernetes API does (`1` is not `1.0`).
pub type Value = serde_json::Value;

/// The fields of an object [`Value`].
pub type Map = serde_json::Map<String, Value>;
