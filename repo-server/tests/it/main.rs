//! The repo-server on real things: repositories, servers and tools that the tests start themselves.
#![allow(clippy::unwrap_used)]

mod charts;
mod git;
mod render;
mod service;
mod support;
