//! `repository.RepoServerService`, the gRPC between the components that need manifests and the server that renders them.
//!
//! Generated from `api/proto/repository/repository.proto`; its messages carry those of [`crate::v1alpha1`].
#![allow(missing_docs, clippy::all, unreachable_pub)]

include!("generated/repository.rs");
