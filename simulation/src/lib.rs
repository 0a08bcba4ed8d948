//! Simulated Kubernetes API servers: any number of them in one process, with everything that a client can see.
//!
//! [`ApiServer`] is the server itself: requests and times in, answers and events out, the same ones every time. [`serve`] puts it on a
//! port, so that `kubectl`, client-go and Argosy speak to it as to any other. [`fleet`] fills many of them with workloads that are made
//! only when somebody looks.
//!
//! What it answers is held against a real kube-apiserver by a test that sends both the same requests; what it leaves out is listed in
//! `docs/results/simulation.md`.

mod access;
mod api_server;
mod controllers;
mod convert;
mod custom;
mod discovery;
pub mod fault;
mod fields;
pub mod fleet;

mod kinds;
mod openapi;
mod patch;
mod read;
mod recorded;
mod refusal;
mod registry;
mod request;
mod scale;
mod selector;
pub mod serve;
mod shapes;
mod store;
mod table;
mod watch;
mod write;

pub use access::{ADMIN_TOKEN, POWERLESS_TOKEN, User};
pub use api_server::{Answer, ApiServer, Options};

pub use fleet::Fleet;
pub use refusal::Refusal;
pub use registry::{GroupResource, ResourceType};
pub use request::Request;
pub use serve::Cluster;
pub use store::Population;
pub use watch::Watch;
