//! The repo-server: a source at a revision becomes manifests.
//!
//! A request goes `service` (gRPC in, gRPC out) → [`render`] (the recipe) → [`git`] or [`chart`] (files) →
//! [`source`] (the tool) → manifests. Files of repositories are only read through [`tree::Tree`], whose paths cannot
//! leave it; Helm and Kustomize run in [`worker`] processes, Jsonnet in one of its own. [`local`] is the same without
//! a server.

pub mod access;
pub mod args;
pub mod chart;
pub mod child;
pub mod egress;
pub mod env;
mod error;
pub mod git;
pub mod http;
pub mod identity;
pub mod jail;
mod load;
pub mod local;
pub mod manifest;
mod manifest_cache;
mod materialise;
pub mod metrics;
pub mod path;
mod patience;
mod peers;
pub mod render;
mod server;
mod service;
mod setup;
mod shared_cache;
pub mod source;
pub mod tree;
mod upload;
mod verify;
pub mod version;
pub mod worker;

pub use args::Args;
pub use child::main as render_child;
pub use error::{Class, Error, Result};
pub use manifest_cache::Rendered;
pub use materialise::Materialiser;
pub use server::{Server, run, start};
pub use setup::renderer;
