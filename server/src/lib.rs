//! The API for people and tools: Argo CD's gRPC, gRPC-web and REST, on one port.
//!
//! A request's way: [`listener`] takes the connection and tells TLS from plaintext and gRPC from HTTP; [`auth`] says who
//! is calling; a file of [`service`] asks the [`gate`] whether they may, and answers from [`state`], which follows the
//! control plane, or from [`live`], which asks the controllers. [`rest`] is the same services for HTTP. What leaves goes
//! through [`egress`], which masks Secrets.

mod args;
mod auth;
mod egress;
mod gate;
mod links;
mod listener;
mod live;
mod metrics;
mod openpgp;
mod patch;
mod reflection;
mod rest;
mod run;
mod selector;
mod service;
mod state;
mod status;
mod targets;
mod tls;
mod web;
mod webhook;

pub use args::Args;
pub use run::{Server, run, start};
