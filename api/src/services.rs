//! The services of the API server, one module a package, the gRPC by which it asks the controllers, and the one by which
//! the repo-server asks config management plugins.
//!
//! Generated from `api/proto`; requests and answers carry the messages of [`crate::v1alpha1`]. Their serde derives are
//! the JSON of the REST API: field names as in the `.proto` files, zero values left out as Go leaves them out.
#![allow(missing_docs, clippy::all, unreachable_pub)]

pub use crate::{events, repository};

/// The services of the API server with all that they speak of, as `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

macro_rules! packages {
    ($($module:ident: $file:literal;)*) => {$(
        pub mod $module {
            include!(concat!("generated/", $file, ".rs"));
        }
    )*};
}

packages! {
    account: "account";
    application: "application";
    applicationset: "applicationset";
    certificate: "certificate";
    cluster: "cluster";
    gpgkey: "gpgkey";
    notification: "notification";
    plugin: "plugin";
    project: "project";
    repocreds: "repocreds";
    session: "session";
    tree: "argosy.tree.v1";
    version: "version";
}
