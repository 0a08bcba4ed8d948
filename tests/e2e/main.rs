//! End to end: the shipped program against a real kube-apiserver, with Git repositories made by `git`.
//!
//! One control plane serves all tests; each test has its own Applications, namespaces and repository. Tests that kill
//! the controller have an installation of their own in another namespace of the same control plane.

#![allow(clippy::unwrap_used)]

mod harness;

mod apiclient;
mod bad_input;
mod commit;
mod crash;
mod crds;
mod deletion;
mod deploy;
mod kills;
mod options;
mod others;
mod peers;
mod policy;
mod redis;
mod safety;
mod shards;
mod sources;
