//! The repo-server on real things: repositories, servers and tools that the tests start themselves.
#![allow(clippy::unwrap_used)]

mod charts;
mod egress;
mod faults;
mod fingerprint;
mod flood;
mod git;
mod hostile_bytes;
mod hostile_files;
mod identity;
mod jail;
mod lfs;
mod mutual_tls;
mod plugins;
mod render;
mod replicas;
mod service;
mod shared_cache;
mod signatures;
mod sources;
mod support;
