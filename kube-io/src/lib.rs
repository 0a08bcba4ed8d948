//! Talking to Kubernetes API servers: the network half of everything Argosy knows about and does to a cluster.
//!
//! | module | answers |
//! |---|---|
//! | [`auth`] | where an API server is and with what credentials to speak to it |
//! | [`client`] | a few HTTP/2 connections to one API server, shared by all calls and watches |
//! | [`discovery`] | which kinds the server serves, and which of its groups are broken |
//! | [`openapi`] | the server's schemas, held once in the process for all clusters |
//! | [`target`] | reads and guarded writes of documents |
//! | [`list_watch`] | one kind as a never-ending sequence of lists and changes |
//! | [`budget`] | bytes of lists in flight in this process |
//! | [`api`] | the control plane's own kinds, decoded object by object |
//! | [`endpoints`] | which addresses behind a Service are ready |
//! | [`error`] | what went wrong, and whose turn it is |
//!
//! Nothing here knows Applications, syncs or shards. Ownership comes in through [`fence::Fence`]: a write that is no
//! longer ours fails in the connector, after every queue and before the first byte.

pub mod api;
pub mod auth;
pub mod budget;
pub mod client;
mod credentials;
pub mod discovery;
pub mod endpoints;
pub mod error;
pub mod fence;
mod items;
pub mod list_watch;
pub mod openapi;
pub mod target;

pub use auth::ClusterAuth;
pub use budget::Budget;
pub use client::{Client, connect};
pub use discovery::{ApiResource, Discovery, discover};
pub use error::{Class, Error};
pub use target::Target;
