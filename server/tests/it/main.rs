//! The server against a real kube-apiserver, by the wire: gRPC, gRPC-web and REST.
#![allow(clippy::unwrap_used)]

mod at_once;
mod authz;
mod authz_rest;
mod bounds;
mod hostile;
mod lists;
mod login;
mod raw;
mod redis;
mod reflection;
mod rest;
mod services;
mod uniform;
mod world;
