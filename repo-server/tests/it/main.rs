//! The repo-server on real things: repositories, servers and tools that the tests start themselves.
#![allow(clippy::unwrap_used)]

mod charts;
mod egress;
mod fingerprint;
mod git;
mod jail;
mod render;
mod service;
mod support;
