//! `repository.RepoServerService`, the gRPC between the components that need manifests and the server that renders them.
//!
//! Generated from `api/proto/repository/repository.proto`; its messages carry those of [`crate::v1alpha1`].
#![allow(missing_docs, clippy::all, unreachable_pub)]

include!("generated/repository.rs");

/// Metadata of a status: after how many milliseconds the same call may succeed. The name is gRPC's own for what a server says of
/// retries.
pub const RETRY_AFTER: &str = "grpc-retry-pushback-ms";
